//! The node's routes: each turns a request of [`crate::api`] into a command or a look at the state
//! machine, and what came of it into an answer.

use crate::api::*;
use crate::handle::Handle;
use crate::machine::{Command, Machine, Outcome};
use crate::pending::Refusal;
use crate::web::{Answer, Call, Failure, Service, line, ok, stream};
use bytes::Bytes;
use hyper::StatusCode;
use raft::StateRole;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The longest time to live of a session.
const TTL_MS_MAX: u64 = 86_400_000;
/// How often a watch on which nothing happens says so.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Answers the clients of one node.
#[derive(Debug)]
pub struct Routes {
    /// The node.
    pub handle: Handle,
    /// Its Raft id.
    pub id: u64,
    /// The names of all nodes, by Raft id.
    pub names: BTreeMap<u64, String>,
    /// The client addresses that are known, by Raft id.
    pub addresses: BTreeMap<u64, String>,
    /// Whether watches begin now, whatever they ask for: the switch `--watch-gap`.
    pub watch_gap: bool,
}

impl Service for Routes {
    async fn call(&self, call: Call) -> Result<Answer, Failure> {
        match call.path.as_str() {
            "/status" => ok(&self.status()),
            "/health" => self.health(),
            "/dump" => ok(&self.handle.look(Machine::dump)),
            "/kv/get" => self.get(call.parse()?).await,
            "/kv/put" => {
                let PutRequest { key, value } = call.parse()?;
                self.write(Command::Put { key, value }).await
            }
            "/kv/cas" => {
                let CasRequest { key, old, new } = call.parse()?;
                self.write(Command::Cas { key, old, new }).await
            }
            "/session/open" => self.open(call.parse()?).await,
            "/session/renew" => {
                let SessionRequest { session } = call.parse()?;
                self.write(Command::Renew { session }).await
            }
            "/session/close" => {
                let SessionRequest { session } = call.parse()?;
                self.write(Command::Close { session }).await
            }
            "/lock/acquire" => {
                let AcquireRequest { key, session } = call.parse()?;
                let value = serde_json::Value::Null;
                self.write(Command::Acquire {
                    key,
                    session,
                    value,
                    minted: None,
                })
                .await
            }
            "/leader/campaign" => {
                let CampaignRequest {
                    key,
                    session,
                    value,
                } = call.parse()?;
                self.write(Command::Acquire {
                    key,
                    session,
                    value,
                    minted: None,
                })
                .await
            }
            "/lock/release" | "/leader/resign" => {
                let ReleaseRequest {
                    key,
                    session,
                    token,
                } = call.parse()?;
                self.write(Command::Release {
                    key,
                    session,
                    token,
                })
                .await
            }
            "/lock/holder" | "/leader/observe" => self.holder(call.parse()?).await,
            "/set/add" => {
                let AddRequest { key, v } = call.parse()?;
                self.write(Command::Add { key, v }).await
            }
            "/set/read" => self.set(call.parse()?).await,
            "/ids/generate" => self.write(Command::GenerateId).await,
            "/watch" => self.watch(call.parse()?),
            _ => Err(Failure::definite(StatusCode::NOT_FOUND, "no-route")),
        }
    }
}

impl Routes {
    fn status(&self) -> Status {
        let belief = self.handle.belief();
        let role = match belief.role {
            StateRole::Leader => "leader",
            StateRole::Follower => "follower",
            StateRole::Candidate => "candidate",
            StateRole::PreCandidate => "pre-candidate",
        };
        Status {
            id: self.names.get(&self.id).cloned().unwrap_or_default(),
            role: role.to_owned(),
            leader: belief.leader.and_then(|id| self.names.get(&id).cloned()),
            term: belief.term,
            commit: belief.commit,
            applied: belief.applied,
            last_index: belief.last_index,
        }
    }

    fn health(&self) -> Result<Answer, Failure> {
        let belief = self.handle.belief();
        if belief.leader.is_some() && belief.applied == belief.commit && belief.commit > 0 {
            return ok(&self.status());
        }
        let failure = Failure::definite(StatusCode::SERVICE_UNAVAILABLE, "unavailable");
        Err(failure.with("no leader is known, or the log is not applied"))
    }

    async fn get(&self, request: GetRequest) -> Result<Answer, Failure> {
        self.recent(!request.serializable).await?;
        ok(&self.handle.look(|machine| machine.get(&request.key)))
    }

    async fn holder(&self, request: HolderRequest) -> Result<Answer, Failure> {
        self.recent(!request.serializable).await?;
        ok(&HolderResponse {
            holder: self.handle.look(|machine| machine.holder(&request.key)),
        })
    }

    async fn set(&self, request: SetReadRequest) -> Result<Answer, Failure> {
        self.recent(!request.local).await?;
        ok(&self.handle.look(|machine| SetReadResponse {
            values: machine.set(&request.key),
            applied: machine.applied(),
        }))
    }

    async fn open(&self, request: OpenRequest) -> Result<Answer, Failure> {
        let ttl_ms = request.ttl_ms;
        if !(1..=TTL_MS_MAX).contains(&ttl_ms) {
            return Err(Failure::bad_request(format!(
                "ttl_ms must be 1 to {TTL_MS_MAX}"
            )));
        }
        self.write(Command::Open { ttl_ms }).await
    }

    /// Waits, when `linearizable`, until this node's state is known to be recent.
    async fn recent(&self, linearizable: bool) -> Result<(), Failure> {
        match linearizable {
            true => self
                .handle
                .confirm()
                .await
                .map_err(|refusal| self.refused(refusal)),
            false => Ok(()),
        }
    }

    async fn write(&self, command: Command) -> Result<Answer, Failure> {
        let outcome = self
            .handle
            .write(command)
            .await
            .map_err(|refusal| self.refused(refusal))?;
        let conflict = |error| Failure::definite(StatusCode::CONFLICT, error);
        match outcome {
            Outcome::Written(revision) => ok(&Written { revision }),
            Outcome::Opened { session, ttl_ms } => ok(&Opened { session, ttl_ms }),
            Outcome::Renewed { ttl_ms } => ok(&Renewed { ttl_ms }),
            Outcome::Done | Outcome::Void => ok(&Done {}),
            Outcome::Granted(token) => ok(&Granted { token }),
            Outcome::Id(id) => ok(&Id { id }),
            Outcome::NoSession => Err(Failure::definite(StatusCode::NOT_FOUND, "no-session")),
            Outcome::NotHolder => Err(conflict("not-holder")),
            Outcome::Mismatch(actual) => {
                let mut failure = conflict("mismatch");
                failure.body.actual = Some(actual);
                Err(failure)
            }
            Outcome::Held(holder) => {
                let mut failure = conflict("held");
                failure.body.holder = Some(holder);
                Err(failure)
            }
        }
    }

    fn refused(&self, refusal: Refusal) -> Failure {
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        match refusal {
            Refusal::NotLeader(leader) => {
                let mut failure = Failure::definite(StatusCode::MISDIRECTED_REQUEST, "not-leader");
                failure.body.leader = leader.and_then(|id| self.names.get(&id).cloned());
                failure.body.addr = leader.and_then(|id| self.addresses.get(&id).cloned());
                failure
            }
            Refusal::Unavailable(why) => Failure::definite(unavailable, "unavailable").with(why),
            Refusal::Superseded => Failure::definite(unavailable, "superseded")
                .with("another leader's entry took its place in the log"),
            Refusal::Unknown => {
                let mut failure = Failure::definite(unavailable, "unknown");
                failure.body.definite = false;
                failure.with("it was proposed, and whether it will be committed is not known")
            }
        }
    }

    fn watch(&self, request: WatchRequest) -> Result<Answer, Failure> {
        let applied = self.handle.look(Machine::applied);
        let from = match request.from_revision {
            // The mistake of `--watch-gap`: what was written while nobody watched is skipped.
            Some(_) if self.watch_gap => applied + 1,
            Some(from) => from,
            None => applied + 1,
        };
        let (lines, body) = mpsc::channel(16);
        tokio::spawn(follow(self.handle.clone(), request.key, from, lines));
        stream(body)
    }
}

/// Sends the events from a revision on, as long as somebody listens. What has been sent is known by
/// a revision, and what comes next is looked up from it: nothing can fall between.
async fn follow(handle: Handle, key: Option<String>, mut from: u64, lines: mpsc::Sender<Bytes>) {
    let mut beliefs = handle.beliefs();
    let mut idle = true;
    loop {
        let seen = beliefs.borrow_and_update().applied;
        let look =
            |machine: &Machine| (machine.events_from(key.as_deref(), from), machine.applied());
        let (events, applied) = handle.look(look);
        let events = match events {
            Ok(events) => events,
            Err(oldest) => {
                let last = WatchLine::Compacted {
                    error: "compacted".to_owned(),
                    oldest,
                };
                let _ = lines.send(line(&last)).await;
                return;
            }
        };
        idle &= events.is_empty();
        for event in events {
            if lines.send(line(&WatchLine::Event(event))).await.is_err() {
                return;
            }
        }
        from = from.max(applied + 1);
        if idle
            && lines
                .send(line(&WatchLine::Progress { progress: from - 1 }))
                .await
                .is_err()
        {
            return;
        }
        let news = beliefs.wait_for(|belief| belief.applied > seen);
        match timeout(PROGRESS_EVERY, news).await {
            Ok(Ok(_)) => idle = false,
            Ok(Err(_)) => return,
            Err(_) => idle = true,
        }
    }
}
