//! conclave, the coordination service that schism ships: how it is started and asked, and its
//! client. The service itself is the crate `conclave`; the vault beside it is in [`crate::vault`].

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use conclave::api;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spec::{Param, ParamKind, Params};

use crate::client::{Client, ClientProgram, Failure, Op, Patience, Route, Setup};
use crate::holder::{self, DEFAULT_KEY, Grant, Holder, Leases, Refused, read_answer};
use crate::http::Endpoint;
use crate::{Error, Leadership, Probe, Server, Service, System, Timing, http_addr};

/// Where a node listens for clients, and for the other nodes.
const CLIENT_PORT: u16 = 7100;
const PEER_PORT: u16 = 7101;

/// The system `conclave`.
#[derive(Debug)]
pub struct Conclave;

const fn switch(name: &'static str, about: &'static str) -> Param {
    Param {
        name,
        kind: ParamKind::Bool(false),
        about,
    }
}

static PARAMS: &[Param] = &[
    Param {
        name: "election-timeout",
        kind: ParamKind::Duration("500ms"),
        about: "after how long without a leader a node campaigns, at the earliest; twice that at \
                the latest",
    },
    Param {
        name: "heartbeat",
        kind: ParamKind::Duration("100ms"),
        about: "how often a leader shows that it is there; at most half the election timeout",
    },
    Param {
        name: "snapshot-every",
        kind: ParamKind::Int(20_000),
        about: "how many log entries are applied between two snapshots",
    },
    switch(
        "ack-before-commit",
        "mistake: acknowledge writes before they are committed",
    ),
    switch(
        "dup-ids",
        "mistake: hand out ids from a counter of each node's own",
    ),
    switch(
        "forget-vote",
        "mistake: do not restore term and vote after a restart",
    ),
    switch(
        "no-check-quorum",
        "mistake: a leader without a quorum goes on believing that it leads",
    ),
    switch("no-fsync", "mistake: do not sync the log to disk"),
    switch("no-prevote", "mistake: elections without a pre-vote round"),
    switch(
        "stale-reads",
        "mistake: whoever believes to lead answers reads without asking a quorum",
    ),
    switch(
        "token-from-stale-state",
        "mistake: fencing tokens from a counter of each node's own",
    ),
    switch(
        "wall-clock-leases",
        "mistake: measure leases with the wall clock",
    ),
    switch(
        "watch-gap",
        "mistake: start every watch from now, whatever it asks for",
    ),
];

impl System for Conclave {
    fn about(&self) -> &'static str {
        "The coordination service that schism ships: correct as it is, and with a switch for each \
         of some real mistakes."
    }

    fn params(&self) -> &'static [Param] {
        PARAMS
    }

    fn version(&self) -> Result<String, Error> {
        Ok(env!("CARGO_PKG_VERSION").to_owned())
    }

    fn workloads(&self) -> &'static [&'static str] {
        &["lock", "leader", "register", "set", "ids"]
    }

    /// The same with and without switches: a mistake that is switched on is convicted by what
    /// conclave still claims.
    fn claims(&self, workload: &str, _params: &Params) -> Vec<&'static str> {
        let mut claims = vec!["split-brain", "availability", "election-churn"];
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
            params.duration_ms("heartbeat"),
        );
        if election < 2 * heartbeat || heartbeat < 10 {
            return Err(Error::Unsupported(format!(
                "conclave: `heartbeat` ({heartbeat} ms) must be at least 10ms and at most half of \
                 `election-timeout` ({election} ms)"
            )));
        }
        let addresses = |port| {
            let members = cluster
                .iter()
                .map(|member| format!("{}={}", member.name, http_addr(member, port)));
            members.collect::<Vec<_>>().join(",")
        };
        let mut argv: Vec<String> = [
            "schism",
            "conclave",
            "serve",
            "--name",
            &server.name,
            "--data-dir",
            &server.dir.join("conclave").to_string_lossy(),
            "--peers",
            &addresses(PEER_PORT),
            "--clients",
            &addresses(CLIENT_PORT),
            "--election-timeout-ms",
            &election.to_string(),
            "--heartbeat-ms",
            &heartbeat.to_string(),
            "--snapshot-every",
            &params.int("snapshot-every").to_string(),
        ]
        .map(str::to_owned)
        .into();
        let switches = PARAMS
            .iter()
            .filter(|param| matches!(param.kind, ParamKind::Bool(_)) && params.bool(param.name));
        argv.extend(switches.map(|param| format!("--{}", param.name)));
        Ok(vec![Service::new("conclave", argv)])
    }

    fn client_addr(&self, server: &Server) -> String {
        http_addr(server, CLIENT_PORT)
    }

    fn ready_probe(&self, server: &Server) -> Probe {
        Probe::get(http_addr(server, CLIENT_PORT), "/health")
    }

    fn is_ready(&self, status: u16, _body: &[u8]) -> bool {
        status == 200
    }

    fn leader_probe(&self, server: &Server) -> Probe {
        Probe::get(http_addr(server, CLIENT_PORT), "/status")
    }

    fn leadership(&self, _cluster: &[Server], status: u16, body: &[u8]) -> Option<Leadership> {
        if status != 200 {
            return None;
        }
        let status: api::Status = serde_json::from_slice(body).ok()?;
        Some(Leadership {
            leader: status.leader,
            term: Some(status.term),
            applied_term: None,
        })
    }
}

impl ClientProgram for Conclave {
    fn name(&self) -> &'static str {
        "conclave"
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
        let nodes = Nodes::new(setup, thread);
        Ok(match &*setup.workload {
            "lock" | "leader" => {
                let published = (setup.workload == "leader").then(|| Value::from(thread));
                Box::new(Holder::new(Grants { nodes, published }, setup)?)
            }
            "register" | "set" | "ids" => Box::new(Data { nodes }),
            other => return Err(Error::workload(self, other)),
        })
    }
}

/// The connections of one worker. Each is opened when an operation needs it and never while one is
/// open; see [`Endpoint`]. A node that does not lead refuses, and says who does: that is a definite
/// failure, and only the next operation goes to the other node.
#[derive(Debug)]
struct Nodes {
    setup: Rc<Setup>,
    endpoints: Vec<Endpoint>,
    route: Route,
}

impl Nodes {
    fn new(setup: &Rc<Setup>, thread: u64) -> Nodes {
        let endpoints = setup.nodes.iter().map(|node| Endpoint::new(node.addr));
        Nodes {
            endpoints: endpoints.collect(),
            route: Route::new(setup.nodes.len(), thread),
            setup: Rc::clone(setup),
        }
    }

    async fn ask<T: Serialize, R: DeserializeOwned>(
        &mut self,
        op: &Op,
        path: &'static str,
        body: &T,
        patience: &mut Patience,
    ) -> Result<R, Failure> {
        let node = self.route.choose(op.node);
        let posted = self.endpoints[node].post(path, body, patience).await;
        let answer = posted.inspect_err(|_| self.route.avoid(node))?;
        read_answer(&answer).map_err(|refused| {
            self.learn(node, &refused);
            refused.into_failure()
        })
    }

    /// Takes a hint for the next operation.
    fn learn(&mut self, node: usize, refused: &Refused) {
        match refused {
            Refused::Said(body) if body.error == "not-leader" => {
                let known = |name: &String| self.setup.nodes.iter().position(|n| n.name == *name);
                match body.leader.as_ref().and_then(known) {
                    Some(leader) => self.route.hint(leader),
                    None => self.route.avoid(node),
                }
            }
            Refused::Said(body) if body.definite => {}
            Refused::Said(_) | Refused::Unread(_) => self.route.avoid(node),
        }
    }

    /// A session for one lease. Whatever becomes of the request, no lock was asked for yet.
    async fn open_session(
        &mut self,
        op: &Op,
        ttl: Duration,
        patience: &mut Patience,
    ) -> Result<u64, Failure> {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let open = api::OpenRequest { ttl_ms };
        let opened = self.ask(op, "/session/open", &open, patience).await;
        let api::Opened { session, .. } = opened.map_err(Failure::harmless)?;
        Ok(session)
    }
}

/// Locks and leaderships, which differ in that a leader publishes something.
#[derive(Debug)]
struct Grants {
    nodes: Nodes,
    /// What observers of an election see, the worker's number; `None` for plain locks.
    published: Option<Value>,
}

#[async_trait(?Send)]
impl Leases for Grants {
    async fn acquire(
        &mut self,
        op: &Op,
        ttl: Duration,
        patience: &mut Patience,
    ) -> Result<Grant, Failure> {
        // A fresh session each time, so that the lease lasts for a whole TTL. That of an attempt
        // that failed ends by itself.
        let session = self.nodes.open_session(op, ttl, patience).await?;
        let key = op.key_or(DEFAULT_KEY);
        let granted = match &self.published {
            None => {
                let acquire = api::AcquireRequest { key, session };
                self.nodes
                    .ask(op, "/lock/acquire", &acquire, patience)
                    .await
            }
            Some(published) => {
                let value = published.clone();
                let campaign = api::CampaignRequest {
                    key,
                    session,
                    value,
                };
                self.nodes
                    .ask(op, "/leader/campaign", &campaign, patience)
                    .await
            }
        };
        let api::Granted { token } = granted?;
        Ok(Grant {
            token,
            session,
            ttl,
        })
    }

    async fn renew(
        &mut self,
        op: &Op,
        grant: Grant,
        patience: &mut Patience,
    ) -> Result<(), Failure> {
        let session = grant.session;
        let renew = api::SessionRequest { session };
        let renewed = self.nodes.ask(op, "/session/renew", &renew, patience).await;
        let api::Renewed { .. } = renewed.map_err(|failure| rename(failure, "no-session"))?;
        Ok(())
    }

    async fn release(
        &mut self,
        op: &Op,
        grant: Grant,
        patience: &mut Patience,
    ) -> Result<(), Failure> {
        let release = api::ReleaseRequest {
            key: op.key_or(DEFAULT_KEY),
            session: grant.session,
            token: grant.token,
        };
        let path = match self.published {
            None => "/lock/release",
            Some(_) => "/leader/resign",
        };
        let released = self.nodes.ask(op, path, &release, patience).await;
        let api::Done {} = released.map_err(|failure| rename(failure, "not-holder"))?;
        Ok(())
    }
}

/// What the service calls differently than the protocol does.
fn rename(failure: Failure, code: &str) -> Failure {
    match failure {
        Failure::Definite(error) if error == code => Failure::definite("not-held"),
        other => other,
    }
}

/// Registers, sets and ids.
#[derive(Debug)]
struct Data {
    nodes: Nodes,
}

impl Data {
    async fn read(
        &mut self,
        op: &Op,
        serializable: bool,
        patience: &mut Patience,
    ) -> Result<Value, Failure> {
        let key = op.key_or(DEFAULT_KEY);
        let get = api::GetRequest { key, serializable };
        let got = self.nodes.ask(op, "/kv/get", &get, patience).await;
        // A read changes nothing: without an answer it simply was not done.
        let api::GetResponse { value, .. } = got.map_err(Failure::harmless)?;
        Ok(value)
    }

    async fn write(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let put = api::PutRequest {
            key: op.key_or(DEFAULT_KEY),
            value: op.value.clone(),
        };
        let api::Written { .. } = self.nodes.ask(op, "/kv/put", &put, patience).await?;
        Ok(op.value.clone())
    }

    async fn cas(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let Some([old, new]) = op.value.as_array().map(Vec::as_slice) else {
            return Err(Failure::bad_argument(op, "[old, new]"));
        };
        let cas = api::CasRequest {
            key: op.key_or(DEFAULT_KEY),
            old: old.clone(),
            new: new.clone(),
        };
        let api::Written { .. } = self.nodes.ask(op, "/kv/cas", &cas, patience).await?;
        Ok(op.value.clone())
    }

    async fn add(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let add = api::AddRequest {
            key: op.key_or(DEFAULT_KEY),
            v: op.value.clone(),
        };
        let api::Written { .. } = self.nodes.ask(op, "/set/add", &add, patience).await?;
        Ok(op.value.clone())
    }

    async fn final_read(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        // Of one node when it is named, to compare nodes with each other; else what holds.
        let read = api::SetReadRequest {
            key: op.key_or(DEFAULT_KEY),
            local: op.node.is_some(),
        };
        let read = self.nodes.ask(op, "/set/read", &read, patience).await;
        let api::SetReadResponse { values, .. } = read.map_err(Failure::harmless)?;
        Ok(Value::Array(values))
    }

    async fn generate(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let api::Id { id } = self
            .nodes
            .ask(op, "/ids/generate", &json!({}), patience)
            .await?;
        Ok(Value::from(id))
    }
}

#[async_trait(?Send)]
impl Client for Data {
    async fn invoke(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        match &*op.f {
            "read" => self.read(op, false, patience).await,
            "read-serializable" => self.read(op, true, patience).await,
            "write" => self.write(op, patience).await,
            "cas" => self.cas(op, patience).await,
            "add" => self.add(op, patience).await,
            "final-read" => self.final_read(op, patience).await,
            "generate" => self.generate(op, patience).await,
            _ => Err(Failure::unknown_function(op)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conclave::faults::SWITCHES;

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
    fn every_switch_of_a_node_is_a_parameter() {
        let declared = PARAMS
            .iter()
            .filter(|param| matches!(param.kind, ParamKind::Bool(_)))
            .map(|param| param.name);
        let switches = SWITCHES.iter().filter(|switch| !switch.vault);
        assert_eq!(
            declared.collect::<Vec<_>>(),
            switches.map(|switch| switch.flag).collect::<Vec<_>>()
        );
    }

    #[test]
    fn the_service_understands_its_arguments() {
        #[derive(clap::Parser)]
        enum Cli {
            Serve(Box<conclave::ServeArgs>),
        }
        let cluster: Vec<Server> = (1..=3).map(server).collect();
        let params = params(json!({"no-prevote": true, "election-timeout": "300ms"}));
        let services = Conclave.services(&cluster[1], &cluster, &params).unwrap();
        let argv = services[0].argv.iter().skip(1);
        let Cli::Serve(args) = <Cli as clap::Parser>::parse_from(argv);
        assert_eq!(args.name, "n2");
        assert_eq!(args.election_timeout_ms, 300);
        assert_eq!(args.peers.len(), 3);
        assert_eq!(args.clients[2].address, Conclave.client_addr(&cluster[2]));
        assert!(args.switches.no_prevote && !args.switches.no_fsync);
    }

    #[test]
    fn a_heartbeat_that_cannot_keep_a_leader_is_refused() {
        let params = params(json!({"heartbeat": "400ms"}));
        let cluster = [server(1)];
        match Conclave.services(&cluster[0], &cluster, &params) {
            Err(Error::Unsupported(message)) => assert!(message.contains("half"), "{message}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_node_says_who_leads_and_in_which_term() {
        let status = api::Status {
            id: "n1".to_owned(),
            leader: Some("n2".to_owned()),
            term: 7,
            ..api::Status::default()
        };
        let body = serde_json::to_vec(&status).unwrap();
        let seen = Conclave.leadership(&[], 200, &body).unwrap();
        assert_eq!(seen.to_value(), json!({"leader": "n2", "term": 7}));
        assert_eq!(Conclave.leadership(&[], 200, b"<html>"), None);
        assert_eq!(Conclave.leadership(&[], 503, &body), None);
    }
}
