//! etcd 3.4 and 3.5: how it is started and asked. Its client is in `client.rs`, the JSON gateway that
//! the client speaks in `gateway.rs`.

mod client;
mod gateway;

use std::rc::Rc;

use serde::Deserialize;
use sha1::{Digest, Sha1};
use spec::{Param, ParamKind, Params};

use crate::client::{Client, ClientProgram, Setup};
use crate::holder::{self, Holder};
use crate::{Error, Leadership, Probe, Server, Service, System, Timing, http_addr};

pub(crate) use gateway::{ERRORS, Meaning};

/// Where a member listens for clients, and for the other members.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// The name of the cluster. Members derive their ids from it: see [`member_id`].
const CLUSTER_TOKEN: &str = "etcd-cluster";

/// What to install.
const REMEDY: &str = "on Debian: apt-get install --no-install-recommends etcd-server etcd-client";

/// The system `etcd`.
#[derive(Debug)]
pub struct Etcd;

static PARAMS: &[Param] = &[
    Param {
        name: "pre-vote",
        kind: ParamKind::Bool(false),
        about: "ask before an election whether it could be won; off by default as in 3.4, on in 3.5",
    },
    Param {
        name: "election-timeout",
        kind: ParamKind::Duration("1s"),
        about: "after how long without a leader a member campaigns, at the earliest; twice that at \
                the latest. A lease lives for at least one and a half times that",
    },
    Param {
        name: "heartbeat-interval",
        kind: ParamKind::Duration("100ms"),
        about: "how often a leader shows that it is there; at most a fifth of the election timeout",
    },
    Param {
        name: "snapshot-count",
        kind: ParamKind::Int(100_000),
        about: "how many log entries are applied between two snapshots",
    },
];

impl System for Etcd {
    fn about(&self) -> &'static str {
        "The key-value store of Kubernetes. Tried with Debian's 3.4.23, over the JSON gateway."
    }

    fn params(&self) -> &'static [Param] {
        PARAMS
    }

    fn version(&self) -> Result<String, Error> {
        let missing = || Error::Missing {
            program: "etcd".to_owned(),
            remedy: REMEDY.to_owned(),
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "it asks the installed program for its version and runs on no node"
        )]
        let output = std::process::Command::new("etcd")
            .arg("--version")
            .output()
            .map_err(|_| missing())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text
            .lines()
            .find_map(|line| line.strip_prefix("etcd Version: "));
        version.map(str::to_owned).ok_or_else(missing)
    }

    fn workloads(&self) -> &'static [&'static str] {
        &["lock", "leader", "register", "set", "ids"]
    }

    /// `election-churn` only with pre-vote: without it etcd does not say that a member which comes
    /// back leaves a leader in peace. Not `split-brain`, which etcd promises and which cannot be
    /// decided from what it tells of its terms.
    fn claims(&self, workload: &str, params: &Params) -> Vec<&'static str> {
        let mut claims = vec!["availability"];
        if params.bool("pre-vote") {
            claims.push("election-churn");
        }
        claims.extend_from_slice(match workload {
            "lock" | "leader" => &[
                "mutual-exclusion",
                "stale-writes",
                "lease-early",
                "lease-stuck",
            ],
            "register" => &["linearizable", "convergence"],
            "set" => &["lost-writes", "convergence"],
            "ids" => &["unique-ids"],
            _ => &[],
        });
        claims
    }

    fn timing(&self, params: &Params) -> Timing {
        Timing {
            election_timeout: 2 * params.duration_ns("election-timeout"),
        }
    }

    fn services(
        &self,
        server: &Server,
        cluster: &[Server],
        params: &Params,
    ) -> Result<Vec<Service>, Error> {
        let (election, heartbeat) = (
            params.duration_ms("election-timeout"),
            params.duration_ms("heartbeat-interval"),
        );
        if heartbeat == 0 || election < 5 * heartbeat || election > 50_000 {
            return Err(Error::Unsupported(format!(
                "etcd: `heartbeat-interval` ({heartbeat} ms) must be above 0 and at most a fifth of \
                 `election-timeout` ({election} ms), and that at most 50s"
            )));
        }
        let members = cluster
            .iter()
            .map(|member| format!("{}={}", member.name, peer_url(member)));
        let members = members.collect::<Vec<_>>().join(",");
        let client_url = format!("http://{}", self.client_addr(server));
        let argv = [
            "etcd",
            "--name",
            &server.name,
            "--data-dir",
            &server.dir.join("etcd").to_string_lossy(),
            "--listen-peer-urls",
            &peer_url(server),
            "--initial-advertise-peer-urls",
            &peer_url(server),
            "--listen-client-urls",
            &client_url,
            "--advertise-client-urls",
            &client_url,
            "--initial-cluster",
            &members,
            "--initial-cluster-token",
            CLUSTER_TOKEN,
            "--initial-cluster-state",
            "new",
            "--election-timeout",
            &election.to_string(),
            "--heartbeat-interval",
            &heartbeat.to_string(),
            "--snapshot-count",
            &params.int("snapshot-count").to_string(),
            &format!("--pre-vote={}", params.bool("pre-vote")),
        ]
        .map(str::to_owned);
        Ok(vec![Service::new("etcd", argv)])
    }

    fn client_addr(&self, server: &Server) -> String {
        http_addr(server, CLIENT_PORT)
    }

    /// `/health` reads through the log, so that it also says that there is a quorum.
    fn ready_probe(&self, server: &Server) -> Probe {
        Probe::get(self.client_addr(server), "/health")
    }

    fn is_ready(&self, status: u16, body: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Health {
            health: String,
        }
        let health = serde_json::from_slice::<Health>(body);
        status == 200 && health.is_ok_and(|health| health.health == "true")
    }

    fn leader_probe(&self, server: &Server) -> Probe {
        Probe::post(self.client_addr(server), "/v3/maintenance/status", "{}")
    }

    /// The status names the leader by its member id, from which the node follows: see
    /// [`member_id`]. Its term is that of the last entry which the member *applied*; during an
    /// outage it stands still while elections go on, and after one it lags behind the new leader's.
    /// It is therefore told as `applied_term`. Terms can be read from the logs.
    fn leadership(&self, cluster: &[Server], status: u16, body: &[u8]) -> Option<Leadership> {
        if status != 200 {
            return None;
        }
        let status: gateway::Status = serde_json::from_slice(body).ok()?;
        let leader = cluster
            .iter()
            .find(|server| member_id(&peer_url(server)) == status.leader);
        Some(Leadership {
            leader: leader.map(|server| server.name.clone()),
            term: None,
            applied_term: Some(status.raft_term),
        })
    }
}

impl ClientProgram for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn functions(&self, workload: &str) -> &'static [&'static str] {
        match workload {
            "lock" | "leader" => holder::FUNCTIONS,
            "register" => &["read", "read-serializable", "write", "cas"],
            "set" => &["add", "final-read"],
            "ids" => &["generate"],
            _ => &[],
        }
    }

    fn client(&self, setup: &Rc<Setup>, thread: u64) -> Result<Box<dyn Client>, Error> {
        let members = client::Members::new(setup, thread);
        Ok(match &*setup.workload {
            "lock" | "leader" => {
                let leases = client::LeasedKeys::new(members, setup, thread);
                Box::new(Holder::new(leases, setup)?)
            }
            "register" | "set" | "ids" => Box::new(client::Data::new(members)),
            other => return Err(Error::workload(self, other)),
        })
    }
}

fn peer_url(server: &Server) -> String {
    format!("http://{}", http_addr(server, PEER_PORT))
}

/// The id that a member with one peer URL has in a cluster that begins with it: the first eight
/// bytes of the SHA-1 of the URL followed by the name of the cluster (etcd's
/// `membership.NewMember`). A member's name is not part of it.
fn member_id(peer_url: &str) -> u64 {
    let mut sha1 = Sha1::new();
    sha1.update(peer_url);
    sha1.update(CLUSTER_TOKEN);
    let digest: [u8; 20] = sha1.finalize().into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn server(number: u8) -> Server {
        Server {
            name: format!("n{number}"),
            addr: [10, 9, 0, number].into(),
            dir: format!("/nodes/n{number}").into(),
        }
    }

    fn params(given: Value) -> Params {
        Params::resolve(PARAMS, given.as_object().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_member_has_the_id_that_etcd_gives_it() {
        // What etcd 3.4.23 answers when it is started without any argument.
        assert_eq!(
            member_id("http://localhost:2380"),
            10_276_657_743_932_975_437
        );
    }

    #[test]
    fn a_member_names_the_leader_by_its_id() {
        let cluster: Vec<Server> = (1..=3).map(server).collect();
        let id = |server| member_id(&peer_url(server)).to_string();
        let body = json!({
            "header": {"member_id": id(&cluster[0]), "raft_term": "7"},
            "leader": id(&cluster[1]),
            "raftTerm": "7",
        });
        let seen = |body: &Value| {
            let seen = Etcd.leadership(&cluster, 200, body.to_string().as_bytes());
            seen.map(|seen| seen.to_value())
        };
        let expected = json!({"leader": "n2", "term": null, "applied_term": 7});
        assert_eq!(seen(&body), Some(expected));
        // Without a leader the field is left out, as every zero is.
        let body = json!({"header": {}, "raftTerm": "7"});
        let expected = json!({"leader": null, "term": null, "applied_term": 7});
        assert_eq!(seen(&body), Some(expected));
        assert_eq!(seen(&json!("x")), None);
    }

    #[test]
    fn a_server_is_ready_when_it_says_that_it_is_well() {
        assert!(Etcd.is_ready(200, b"{\"health\":\"true\"}"));
        assert!(!Etcd.is_ready(503, b"{\"health\":\"false\"}"));
        assert!(!Etcd.is_ready(200, b"{\"health\":\"false\"}"));
        assert!(!Etcd.is_ready(200, b"hello"));
    }

    #[test]
    fn pre_vote_is_off_unless_it_is_asked_for() {
        let cluster: Vec<Server> = (1..=3).map(server).collect();
        let argv = |given| {
            let services = Etcd.services(&cluster[0], &cluster, &params(given));
            services.unwrap().remove(0).argv
        };
        assert!(argv(json!({})).contains(&"--pre-vote=false".to_owned()));
        assert!(argv(json!({"pre-vote": true})).contains(&"--pre-vote=true".to_owned()));
        let wrong = params(json!({"heartbeat-interval": "500ms"}));
        assert!(Etcd.services(&cluster[0], &cluster, &wrong).is_err());
    }
}
