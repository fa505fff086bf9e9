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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the machine should be, told by rescanning all that ever happened: slow and obvious.
    #[derive(Default)]
    struct Model {
        writes: Vec<(u64, String, Value)>,
        /// Session, ttl, renewals; gone when it has ended.
        sessions: Vec<(u64, u64, u64)>,
        /// Lock, session, token.
        held: Vec<(String, u64, u64)>,
    }

    impl Model {
        fn value(&self, key: &str) -> Value {
            let last = self.writes.iter().rev().find(|(_, k, _)| k == key);
            last.map_or(Value::Null, |(_, _, value)| value.clone())
        }

        fn end(&mut self, session: u64) -> Outcome {
            let before = self.sessions.len();
            self.sessions.retain(|(id, ..)| *id != session);
            self.held.retain(|(_, holder, _)| *holder != session);
            if self.sessions.len() < before {
                Outcome::Done
            } else {
                Outcome::NoSession
            }
        }

        fn apply(&mut self, index: u64, command: Command) -> Option<Outcome> {
            Some(match command {
                Command::Put { key, value } => {
                    self.writes.push((index, key, value));
                    Outcome::Written(index)
                }
                Command::Cas { key, old, new } => {
                    if self.value(&key) != old {
                        return Some(Outcome::Mismatch(self.value(&key)));
                    }
                    self.writes.push((index, key, new));
                    Outcome::Written(index)
                }
                Command::Open { ttl_ms } => {
                    self.sessions.push((index, ttl_ms, 0));
                    Outcome::Opened {
                        session: index,
                        ttl_ms,
                    }
                }
                Command::Renew { session } => {
                    match self.sessions.iter_mut().find(|(id, ..)| *id == session) {
                        None => Outcome::NoSession,
                        Some((_, ttl_ms, renewals)) => {
                            *renewals += 1;
                            Outcome::Renewed { ttl_ms: *ttl_ms }
                        }
                    }
                }
                Command::Close { session } => self.end(session),
                Command::Expire {
                    session,
                    generation,
                } => {
                    if self
                        .sessions
                        .iter()
                        .any(|(id, _, n)| *id == session && *n != generation)
                    {
                        return Some(Outcome::Void);
                    }
                    self.end(session)
                }
                Command::Acquire { key, session, .. } => {
                    if !self.sessions.iter().any(|(id, ..)| *id == session) {
                        return Some(Outcome::NoSession);
                    }
                    match self.held.iter().find(|(k, ..)| *k == key) {
                        Some((_, s, token)) if *s == session => Outcome::Granted(*token),
                        Some(_) => return None,
                        None => {
                            self.held.push((key, session, index));
                            Outcome::Granted(index)
                        }
                    }
                }
                Command::Release {
                    key,
                    session,
                    token,
                } => {
                    let before = self.held.len();
                    self.held
                        .retain(|hold| *hold != (key.clone(), session, token));
                    if self.held.len() < before {
                        Outcome::Done
                    } else {
                        Outcome::NotHolder
                    }
                }
                Command::Add { .. } => Outcome::Written(index),
                Command::GenerateId => Outcome::Id(index),
            })
        }
    }

    fn key() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["a", "b"]).prop_map(str::to_owned)
    }

    fn value() -> impl Strategy<Value = Value> {
        prop::sample::select(vec![Value::Null, 1.into(), "x".into()])
    }

    /// Commands that meet each other: few keys, sessions from the first dozens of indexes.
    fn command() -> impl Strategy<Value = Command> {
        let id = 1..40u64;
        prop_oneof![
            (key(), value()).prop_map(|(key, value)| Command::Put { key, value }),
            (key(), value(), value()).prop_map(|(key, old, new)| Command::Cas { key, old, new }),
            (1..9u64).prop_map(|ttl_ms| Command::Open { ttl_ms }),
            (1..9u64).prop_map(|ttl_ms| Command::Open { ttl_ms }),
            id.clone().prop_map(|session| Command::Renew { session }),
            id.clone().prop_map(|session| Command::Close { session }),
            (id.clone(), 0..3u64).prop_map(|(session, generation)| Command::Expire {
                session,
                generation
            }),
            (key(), id.clone()).prop_map(|(key, session)| Command::Acquire {
                key,
                session,
                value: Value::Null,
                minted: None
            }),
            (key(), id.clone(), id).prop_map(|(key, session, token)| Command::Release {
                key,
                session,
                token
            }),
            (key(), value()).prop_map(|(key, v)| Command::Add { key, v }),
            Just(Command::GenerateId),
        ]
    }

    proptest! {
        #[test]
        fn the_machine_does_what_the_model_does(
            commands in prop::collection::vec(command(), 1..80),
            restart in any::<prop::sample::Index>(),
        ) {
            let (mut machine, mut model) = (Machine::default(), Model::default());
            let restart = restart.index(commands.len());
            let mut last_token = 0;
            for (at, command) in commands.into_iter().enumerate() {
                let index = at as u64 + 1;
                if at == restart {
                    // A snapshot and its restoration change nothing.
                    let bytes = serde_json::to_vec(&machine).unwrap();
                    machine = serde_json::from_slice(&bytes).unwrap();
                }
                let grants = matches!(command, Command::Acquire { .. });
                let outcome = machine.apply(index, command.clone());
                match model.apply(index, command) {
                    Some(expected) => prop_assert_eq!(&outcome, &expected),
                    None => prop_assert!(matches!(outcome, Outcome::Held(_))),
                }
                if let (true, Outcome::Granted(token)) = (grants, outcome)
                    && token == index
                {
                    prop_assert!(token > last_token);
                    last_token = token;
                }
                let live: Vec<u64> = machine.sessions().keys().copied().collect();
                prop_assert_eq!(live, model.sessions.iter().map(|s| s.0).collect::<Vec<_>>());
                for key in ["a", "b"] {
                    prop_assert_eq!(machine.get(key).value, model.value(key));
                    let holder = machine.holder(key).map(|h| (key.to_owned(), h.session, h.token));
                    let expected = model.held.iter().find(|(k, ..)| k == key).cloned();
                    prop_assert_eq!(holder, expected);
                }
            }
            for from in 0..=machine.applied() + 1 {
                let events = machine.events_from(Some("a"), from).unwrap();
                let events = events.into_iter().map(|e| (e.revision, e.key, e.value));
                let expected = model.writes.iter().filter(|(r, k, _)| *r >= from && k == "a");
                prop_assert_eq!(events.collect::<Vec<_>>(), expected.cloned().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn an_expiry_is_void_after_a_renewal() {
        let mut machine = Machine::default();
        machine.apply(1, Command::Open { ttl_ms: 5 });
        machine.apply(2, Command::Renew { session: 1 });
        let late = Command::Expire {
            session: 1,
            generation: 0,
        };
        assert_eq!(machine.apply(3, late), Outcome::Void);
        let due = Command::Expire {
            session: 1,
            generation: 1,
        };
        assert_eq!(machine.apply(4, due), Outcome::Done);
        assert_eq!(
            machine.apply(5, Command::Renew { session: 1 }),
            Outcome::NoSession
        );
    }

    #[test]
    fn forgotten_events_are_not_passed_over_in_silence() {
        let mut machine = Machine::default();
        let writes = EVENTS_KEPT as u64 + 10;
        for index in 1..=writes {
            machine.apply(
                index,
                Command::Put {
                    key: "a".to_owned(),
                    value: index.into(),
                },
            );
        }
        assert_eq!(machine.events_from(None, 10), Err(11));
        assert_eq!(machine.events_from(None, 0), Err(11));
        assert_eq!(machine.events_from(None, 11).unwrap().len(), EVENTS_KEPT);
    }
}
