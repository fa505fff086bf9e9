//! The holder of a lock or a leadership, the same for every system: it takes a lease from the
//! system and does guarded operations on the vault.
//!
//! What a holder trusts is the parameter `holder`:
//!
//! | holder | before each guarded operation |
//! |---|---|
//! | `naive` | nothing: it shows its token and writes |
//! | `deadline` | it looks at its own monotonic clock; when the lease may be over it does not write, fails with `deadline-passed` and tells `lost` |
//! | `fenced` | nothing: it is a naive one whose vault refuses old tokens |
//!
//! A lease counts from when its request was *sent* (`CLOCK_MONOTONIC`, which goes on while the
//! process is stopped), so that the holder's deadline is never later than the server's. Between the
//! check and the write it sleeps for `check-to-write-pause`, so that a freeze can be made to hit
//! exactly the gap that no check can close. Nothing is renewed in the background: `renew` is an
//! operation, and a history shows it.

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use conclave::api::{ErrorBody, VaultAck, VaultFence, VaultKey, VaultPut, VaultValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Error;
use crate::client::{Client, Failure, Op, Patience, Setup};
use crate::http::{Answer, Endpoint};

/// The functions of the workloads `lock` and `leader`.
pub const FUNCTIONS: &[&str] = &[
    "acquire", "renew", "release", "put", "get", "delete", "fence", "act",
];

/// What a system grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token.
    pub token: u64,
    /// The session or lease behind it.
    pub session: u64,
    /// How long it lasts without a renewal, where the system granted something else than was
    /// asked for.
    pub ttl: Duration,
}

/// How a system grants leases: the part of a holder that differs between systems.
#[async_trait(?Send)]
pub trait Leases {
    /// Takes the lock or the leadership for a new session.
    ///
    /// # Errors
    /// `held`, definite, if another one has it.
    async fn acquire(
        &mut self,
        op: &Op,
        ttl: Duration,
        patience: &mut Patience,
    ) -> Result<Grant, Failure>;

    /// Makes the session last for another TTL.
    ///
    /// # Errors
    /// `not-held`, definite, if it is over.
    async fn renew(
        &mut self,
        op: &Op,
        grant: Grant,
        patience: &mut Patience,
    ) -> Result<(), Failure>;

    /// Gives the lock or the leadership back.
    ///
    /// # Errors
    /// `not-held`, definite, if it is over.
    async fn release(
        &mut self,
        op: &Op,
        grant: Grant,
        patience: &mut Patience,
    ) -> Result<(), Failure>;
}

/// What a holder trusts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// That it would have been told.
    Nothing,
    /// Its own clock.
    Deadline,
}

/// A lease that a worker has, as far as it knows.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    key: String,
    grant: Grant,
    deadline: Instant,
}

/// The client of a holder.
#[derive(Debug)]
pub struct Holder<L> {
    leases: L,
    setup: Rc<Setup>,
    trust: Trust,
    pause: Duration,
    vault: Option<Endpoint>,
    held: Vec<Held>,
}

/// The error of an operation that needs a lease which the worker does not have.
const NOT_HELD: Failure = Failure::Definite(std::borrow::Cow::Borrowed("not-held"));

impl<L: Leases> Holder<L> {
    /// A holder of nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `holder` or `check-to-write-pause` is not understood.
    pub fn new(leases: L, setup: &Rc<Setup>) -> Result<Holder<L>, Error> {
        let trust = match setup.params.get("holder").and_then(Value::as_str) {
            None | Some("naive" | "fenced") => Trust::Nothing,
            Some("deadline") => Trust::Deadline,
            Some(other) => {
                let known = "naive, deadline, fenced";
                return Err(Error::Unsupported(format!(
                    "unknown holder `{other}` (one of {known})"
                )));
            }
        };
        Ok(Holder {
            leases,
            trust,
            pause: pause(setup)?,
            vault: setup.vault.map(Endpoint::new),
            setup: Rc::clone(setup),
            held: Vec::new(),
        })
    }

    async fn acquire(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let Some(asked) = op.int("ttl_ms").filter(|&ttl| ttl > 0) else {
            return Err(Failure::bad_argument(op, "{\"ttl_ms\": N}"));
        };
        let sent = Instant::now();
        let ttl = Duration::from_millis(asked);
        let grant = self.leases.acquire(op, ttl, patience).await?;
        let key = op.key_or(DEFAULT_KEY);
        self.held.retain(|held| held.key != key);
        self.held.push(Held {
            key,
            grant,
            deadline: sent + grant.ttl,
        });
        Ok(if grant.ttl == ttl {
            json!({ "token": grant.token })
        } else {
            json!({ "token": grant.token, "ttl_ms": millis(grant.ttl) })
        })
    }

    async fn renew(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let sent = Instant::now();
        let index = self.index(op).ok_or(NOT_HELD)?;
        let grant = self.held[index].grant;
        let renewed = self.leases.renew(op, grant, patience).await;
        if renewed == Err(NOT_HELD) {
            self.lose(op, index);
        }
        renewed?;
        self.held[index].deadline = sent + grant.ttl;
        Ok(Value::Null)
    }

    async fn release(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let index = self.index(op).ok_or(NOT_HELD)?;
        let grant = self.held[index].grant;
        let released = self.leases.release(op, grant, patience).await;
        if released.is_ok() || released == Err(NOT_HELD) {
            self.held.remove(index);
        }
        released.map(|()| Value::Null)
    }

    /// The lease that an operation is about: the one with its token, or of its key, or the only one.
    fn index(&self, op: &Op) -> Option<usize> {
        let matches = |test: &dyn Fn(&Held) -> bool| self.held.iter().position(test);
        if let Some(token) = op.int("token") {
            return matches(&|held| held.grant.token == token);
        }
        let key = op.key_or(DEFAULT_KEY);
        let only = (self.held.len() == 1).then_some(0);
        matches(&|held| held.key == key).or(only)
    }

    /// The token to show, after everything that this kind of holder does before it writes.
    async fn check(&mut self, op: &Op) -> Result<u64, Failure> {
        let index = self.index(op);
        let token = match self.trust {
            Trust::Nothing => {
                let held = index.map(|index| self.held[index].grant.token);
                op.int("token").or(held).ok_or(NOT_HELD)?
            }
            Trust::Deadline => {
                let index = index.ok_or(NOT_HELD)?;
                if Instant::now() >= self.held[index].deadline {
                    self.lose(op, index);
                    return Err(Failure::definite("deadline-passed"));
                }
                self.held[index].grant.token
            }
        };
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
        Ok(token)
    }

    fn lose(&mut self, op: &Op, index: usize) {
        let lost = self.held.remove(index);
        let token = lost.grant.token;
        let value = json!({ "token": token });
        self.setup.tell(op.process, "lost", &lost.key, value);
    }

    async fn put(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let Some(v) = op.value.get("v") else {
            return Err(Failure::bad_argument(op, "{\"v\": ..., \"token\": N}"));
        };
        let token = self.check(op).await?;
        let put = VaultPut {
            key: op.key_or(DEFAULT_KEY),
            v: v.clone(),
            token,
        };
        let VaultAck { seq } = self.ask_vault("/put", &put, patience).await?;
        Ok(json!({ "v": v, "token": token, "seq": seq }))
    }

    async fn fence(
        &mut self,
        op: &Op,
        path: &'static str,
        patience: &mut Patience,
    ) -> Result<Value, Failure> {
        let token = self.check(op).await?;
        let fence = VaultFence {
            key: op.key_or(DEFAULT_KEY),
            token,
        };
        let VaultAck { seq } = self.ask_vault(path, &fence, patience).await?;
        Ok(json!({ "token": token, "seq": seq }))
    }

    async fn get(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let key = VaultKey {
            key: op.key_or(DEFAULT_KEY),
        };
        let got = self.ask_vault("/get", &key, patience).await;
        // A read changes nothing: without an answer it simply was not done.
        let VaultValue { v, token, seq } = got.map_err(Failure::harmless)?;
        Ok(json!({ "v": v, "token": token, "seq": seq }))
    }

    async fn ask_vault<T: Serialize, R: DeserializeOwned>(
        &mut self,
        path: &'static str,
        body: &T,
        patience: &mut Patience,
    ) -> Result<R, Failure> {
        let vault = self.vault.as_mut();
        let vault = vault.ok_or_else(|| Failure::definite("no-vault"))?;
        read_answer(&vault.post(path, body, patience).await?).map_err(Refused::into_failure)
    }
}

/// The key where an operation names none.
pub const DEFAULT_KEY: &str = "default";

#[async_trait(?Send)]
impl<L: Leases> Client for Holder<L> {
    async fn invoke(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        match &*op.f {
            "acquire" => self.acquire(op, patience).await,
            "renew" => self.renew(op, patience).await,
            "release" => self.release(op, patience).await,
            "put" => self.put(op, patience).await,
            "get" => self.get(op, patience).await,
            "delete" => self.fence(op, "/delete", patience).await,
            "fence" => self.fence(op, "/fence", patience).await,
            "act" => self.check(op).await.map(|_| Value::Null),
            _ => Err(Failure::unknown_function(op)),
        }
    }
}

/// How long to sleep between the check and the write: a duration as users write it, or
/// milliseconds.
const PAUSE: &str = "check-to-write-pause";

fn pause(setup: &Setup) -> Result<Duration, Error> {
    let wrong = |found: &dyn std::fmt::Display| {
        let message = format!("`{PAUSE}`: expected a duration or milliseconds, found {found}");
        Error::Unsupported(message)
    };
    match setup.params.get(PAUSE) {
        None => Ok(Duration::ZERO),
        Some(Value::String(text)) => spec::parse_duration(text)
            .map(Duration::from_nanos)
            .map_err(|error| wrong(&error)),
        Some(value) => value
            .as_u64()
            .map(Duration::from_millis)
            .ok_or_else(|| wrong(value)),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An answer of conclave or the vault that is not 200.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Refused {
    /// It says itself what it means.
    Said(Box<ErrorBody>),
    /// It cannot be read: whatever answered, nothing is known.
    Unread(u16),
}

impl Refused {
    /// Definite where the answer says so, and only there.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Refused::Said(body) if body.definite => Failure::definite(body.error),
            Refused::Said(body) => Failure::indefinite(body.error),
            Refused::Unread(status) => Failure::indefinite(format!("bad-answer: status {status}")),
        }
    }
}

/// Reads an answer of conclave or the vault.
pub(crate) fn read_answer<R: DeserializeOwned>(answer: &Answer) -> Result<R, Refused> {
    let unread = Refused::Unread(answer.status);
    if answer.status == 200 {
        return serde_json::from_slice(&answer.body).map_err(|_| unread);
    }
    match serde_json::from_slice(&answer.body) {
        Ok(body) => Err(Refused::Said(Box::new(body))),
        Err(_) => Err(unread),
    }
}
