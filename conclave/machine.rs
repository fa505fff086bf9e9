//! The replicated state machine: what the log means. Pure and deterministic; no clock, no I/O.
//!
//! Every node applies the same commands at the same log indexes and so holds the same state. The
//! index of a command is its revision; it also serves as session id, fencing token and unique id,
//! which is why all of these only grow. Time is not here: [`crate::leases`] decides when a session
//! is over, and says so through a command.

use crate::api::{Dump, Event, GetResponse, Holder, SessionInfo};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many register writes are kept for watches that resume.
pub const EVENTS_KEPT: usize = 10_000;

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Writes a register.
    Put {
        /// The register.
        key: String,
        /// The value; null removes.
        value: Value,
    },
    /// Writes a register if it holds `old`.
    Cas {
        /// The register.
        key: String,
        /// What must be there; null means absent.
        old: Value,
        /// The value; null removes.
        new: Value,
    },
    /// Opens a session.
    Open {
        /// Its time to live in milliseconds.
        ttl_ms: u64,
    },
    /// Renews a session. Renewals go through the log, so that only a leader with a quorum behind it
    /// can acknowledge one, and so that every later expiry has seen it.
    Renew {
        /// The session.
        session: u64,
    },
    /// Ends a session on its owner's wish.
    Close {
        /// The session.
        session: u64,
    },
    /// Ends a session because its time is over, unless it was renewed since the leader looked.
    Expire {
        /// The session.
        session: u64,
        /// The generation whose time is over.
        generation: u64,
    },
    /// Takes a lock or a leadership.
    Acquire {
        /// The lock.
        key: String,
        /// The session that wants it.
        session: u64,
        /// What to publish.
        #[serde(default)]
        value: Value,
        /// A token minted by the proposer: only with the switch `--token-from-stale-state`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        minted: Option<u64>,
    },
    /// Gives a lock or a leadership back.
    Release {
        /// The lock.
        key: String,
        /// Its holder.
        session: u64,
        /// The token of the grant.
        token: u64,
    },
    /// Adds an element to a set.
    Add {
        /// The set.
        key: String,
        /// The element.
        v: Value,
    },
    /// Takes a unique id.
    GenerateId,
}

impl Command {
    /// The session whose life it concerns, when it is the entry at this index.
    pub fn session(&self, index: u64) -> Option<u64> {
        match self {
            Command::Open { .. } => Some(index),
            Command::Renew { session }
            | Command::Close { session }
            | Command::Expire { session, .. } => Some(*session),
            _ => None,
        }
    }
}

/// What a command did.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A register or a set was written at this revision.
    Written(u64),
    /// Another value was there.
    Mismatch(Value),
    /// A session was opened.
    Opened {
        /// Its id.
        session: u64,
        /// Its time to live in milliseconds.
        ttl_ms: u64,
    },
    /// A session was renewed.
    Renewed {
        /// Its time to live in milliseconds.
        ttl_ms: u64,
    },
    /// A session was closed or has expired, a lock was released.
    Done,
    /// An expiry came too late: the session had been renewed.
    Void,
    /// There is no such session.
    NoSession,
    /// The lock was granted under this token.
    Granted(u64),
    /// Somebody else holds the lock.
    Held(Holder),
    /// The lock is not held by that session under that token.
    NotHolder,
    /// A unique id.
    Id(u64),
}

/// A live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its time to live in milliseconds.
    pub ttl_ms: u64,
    /// How often it was renewed.
    pub generation: u64,
}

/// The state that all nodes agree on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    applied: u64,
    registers: BTreeMap<String, GetResponse>,
    sessions: BTreeMap<u64, Session>,
    holders: BTreeMap<String, Holder>,
    /// Elements by their canonical JSON text.
    sets: BTreeMap<String, BTreeSet<String>>,
    events: VecDeque<Event>,
    /// Events up to this revision may have been forgotten.
    forgotten: u64,
}

impl Machine {
    /// Applies a command at its index in the log.
    pub fn apply(&mut self, index: u64, command: Command) -> Outcome {
        self.applied = index;
        match command {
            Command::Put { key, value } => self.write(index, key, value),
            Command::Cas { key, old, new } => {
                let actual = self.get(&key).value;
                if actual != old {
                    return Outcome::Mismatch(actual);
                }
                self.write(index, key, new)
            }
            Command::Open { ttl_ms } => {
                self.sessions.insert(
                    index,
                    Session {
                        ttl_ms,
                        generation: 0,
                    },
                );
                Outcome::Opened {
                    session: index,
                    ttl_ms,
                }
            }
            Command::Renew { session } => match self.sessions.get_mut(&session) {
                Some(live) => {
                    live.generation += 1;
                    Outcome::Renewed {
                        ttl_ms: live.ttl_ms,
                    }
                }
                None => Outcome::NoSession,
            },
            Command::Close { session } => self.end(session),
            Command::Expire {
                session,
                generation,
            } => match self.sessions.get(&session) {
                Some(live) if live.generation != generation => Outcome::Void,
                _ => self.end(session),
            },
            Command::Acquire {
                key,
                session,
                value,
                minted,
            } => self.acquire(key, session, value, minted.unwrap_or(index)),
            Command::Release {
                key,
                session,
                token,
            } => match self.holders.get(&key) {
                Some(h) if h.session == session && h.token == token => {
                    self.holders.remove(&key);
                    Outcome::Done
                }
                _ => Outcome::NotHolder,
            },
            Command::Add { key, v } => {
                self.sets.entry(key).or_default().insert(v.to_string());
                Outcome::Written(index)
            }
            Command::GenerateId => Outcome::Id(index),
        }
    }

    /// Passes over an entry that holds no command: a new leader begins its term with one.
    pub fn skip(&mut self, index: u64) {
        self.applied = index;
    }

    fn write(&mut self, revision: u64, key: String, value: Value) -> Outcome {
        self.registers.insert(
            key.clone(),
            GetResponse {
                value: value.clone(),
                revision,
            },
        );
        self.events.push_back(Event {
            revision,
            key,
            value,
        });
        while self.events.len() > EVENTS_KEPT {
            self.forgotten = self
                .events
                .pop_front()
                .map_or(self.forgotten, |e| e.revision);
        }
        Outcome::Written(revision)
    }

    fn end(&mut self, session: u64) -> Outcome {
        if self.sessions.remove(&session).is_none() {
            return Outcome::NoSession;
        }
        self.holders.retain(|_, holder| holder.session != session);
        Outcome::Done
    }

    fn acquire(&mut self, key: String, session: u64, value: Value, token: u64) -> Outcome {
        if !self.sessions.contains_key(&session) {
            return Outcome::NoSession;
        }
        match self.holders.get(&key) {
            Some(holder) if holder.session == session => Outcome::Granted(holder.token),
            Some(holder) => Outcome::Held(holder.clone()),
            None => {
                self.holders.insert(
                    key,
                    Holder {
                        session,
                        token,
                        value,
                    },
                );
                Outcome::Granted(token)
            }
        }
    }

    /// The index of the last entry that was applied.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// A register; null at revision 0 when it was never written.
    pub fn get(&self, key: &str) -> GetResponse {
        let absent = || GetResponse {
            value: Value::Null,
            revision: 0,
        };
        self.registers.get(key).cloned().unwrap_or_else(absent)
    }

    /// The holder of a lock or a leadership.
    pub fn holder(&self, key: &str) -> Option<Holder> {
        self.holders.get(key).cloned()
    }

    /// The elements of a set.
    pub fn set(&self, key: &str) -> Vec<Value> {
        let texts = self.sets.get(key).into_iter().flatten();
        // Each text was made from a value, so each can be read back.
        texts
            .filter_map(|text| serde_json::from_str(text).ok())
            .collect()
    }

    /// The live sessions.
    pub fn sessions(&self) -> &BTreeMap<u64, Session> {
        &self.sessions
    }

    /// The events of a register (all registers: `None`) from a revision on.
    ///
    /// # Errors
    /// The oldest revision that can be asked for, when older ones have been forgotten.
    pub fn events_from(&self, key: Option<&str>, revision: u64) -> Result<Vec<Event>, u64> {
        if revision.max(1) <= self.forgotten {
            return Err(self.forgotten + 1);
        }
        let first = self
            .events
            .partition_point(|event| event.revision < revision);
        let wanted = self
            .events
            .range(first..)
            .filter(|e| key.is_none_or(|key| e.key == key));
        Ok(wanted.cloned().collect())
    }

    /// What can be compared between nodes.
    pub fn dump(&self) -> Dump {
        let info = |s: &Session| SessionInfo {
            ttl_ms: s.ttl_ms,
            generation: s.generation,
        };
        Dump {
            applied: self.applied,
            kv: self.registers.clone(),
            sessions: self.sessions.iter().map(|(id, s)| (*id, info(s))).collect(),
            holders: self.holders.clone(),
            sets: self
                .sets
                .iter()
                .map(|(key, set)| (key.clone(), set.len()))
                .collect(),
        }
    }
}
