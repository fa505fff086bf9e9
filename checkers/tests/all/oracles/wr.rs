//! `wr` against all orders of up to six transactions, by the axioms of each level.
//!
//! Where a value was written twice, every way to say who wrote what was read is tried.

use std::collections::{BTreeMap, BTreeSet};

use checkers::Verdict;
use history::{History, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{answered, check};
use crate::made::{Answer, Step, cases, header, history};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mop {
    is_read: bool,
    key: u64,
    /// 0 is null, the value before the first write.
    value: u64,
}

struct Txn {
    process: u32,
    begin: usize,
    end: usize,
    outcome: Outcome,
    mops: Vec<Mop>,
}

fn txns(history: &History) -> Vec<Txn> {
    let mop = |mop: &Value| Mop {
        is_read: mop[0] == "r",
        key: mop[1].as_u64().expect("a key"),
        value: mop[2].as_u64().unwrap_or(0),
    };
    let txn = |op: history::Op<'_>| {
        let value = op.output().unwrap_or(op.input()).to_json();
        let mops = value.as_array().expect("a transaction");
        Txn {
            process: op.process_id(),
            begin: op.invoke.index(),
            end: answered(op),
            outcome: op.outcome(),
            mops: mops.iter().map(mop).collect(),
        }
    };
    history.ops().map(txn).collect()
}

impl Txn {
    /// What a read should say by what the transaction did before with the key.
    fn own(&self, at: usize) -> Option<Mop> {
        let mut before = self.mops[..at].iter();
        before.rfind(|mop| mop.key == self.mops[at].key).copied()
    }

    fn last_write(&self, key: u64) -> Option<u64> {
        let mut mops = self.mops.iter();
        let last = mops.rfind(|mop| !mop.is_read && mop.key == key);
        last.map(|mop| mop.value)
    }

    /// The places of reads that need an explanation by others, or by what comes later.
    fn open_reads(&self) -> Vec<usize> {
        let is_ok = self.outcome == Outcome::Ok;
        let reads = (0..self.mops.len()).filter(|&at| is_ok && self.mops[at].is_read);
        let explained = |at: usize| {
            self.own(at)
                .is_some_and(|own| !own.is_read && own.value == self.mops[at].value)
        };
        reads.filter(|&at| !explained(at)).collect()
    }
}

/// Who wrote what was read: for each transaction, the reads by their places; `None` is the value
/// before the first write.
type Sources = Vec<BTreeMap<usize, Option<usize>>>;

/// All ways to say who wrote what was read; none if a read cannot be explained. Writers that
/// failed wrote nothing.
fn all_sources(txns: &[Txn]) -> Vec<Sources> {
    let mut all = vec![vec![BTreeMap::new(); txns.len()]];
    for (reader, txn) in txns.iter().enumerate() {
        for at in txn.open_reads() {
            let read = txn.mops[at];
            let mut writers: Vec<Option<usize>> = Vec::new();
            if read.value == 0 {
                writers.push(None);
            }
            for (writer, other) in txns.iter().enumerate() {
                let writes =
                    |mop: &Mop| !mop.is_read && (mop.key, mop.value) == (read.key, read.value);
                if other.outcome != Outcome::Fail && other.mops.iter().any(writes) {
                    writers.push(Some(writer));
                }
            }
            let with = |sources: Sources| {
                writers
                    .iter()
                    .map(move |&writer| {
                        let mut sources = sources.clone();
                        sources[reader].insert(at, writer);
                        sources
                    })
                    .collect::<Vec<Sources>>()
            };
            all = all.into_iter().flat_map(with).collect();
        }
    }
    all
}

/// One way to read a history.
struct Case<'t> {
    txns: &'t [Txn],
    sources: &'t Sources,
    sessions: bool,
    realtime: bool,
}

impl Case<'_> {
    fn happened(&self, txn: usize) -> bool {
        let mut read = self.sources.iter().enumerate();
        match self.txns[txn].outcome {
            Outcome::Ok => true,
            Outcome::Fail => false,
            Outcome::Info => read.any(|(reader, reads)| {
                reader != txn && reads.values().any(|writer| *writer == Some(txn))
            }),
        }
    }

    fn members(&self) -> Vec<usize> {
        (0..self.txns.len())
            .filter(|&txn| self.happened(txn))
            .collect()
    }

    fn in_session(&self, a: usize, b: usize) -> bool {
        let process = self.txns[a].process;
        let mut between = self.txns[a..b.max(a)]
            .iter()
            .filter(|txn| txn.process == process);
        a < b && process == self.txns[b].process && between.all(|txn| txn.outcome != Outcome::Info)
    }

    /// Whether the orders that count put one before the other.
    fn ordered(&self, a: usize, b: usize) -> bool {
        let ended = self.txns[a].outcome == Outcome::Ok && self.txns[a].end < self.txns[b].begin;
        self.sessions && self.in_session(a, b) || self.realtime && ended
    }

    /// Reads of others in order: place, key, writer.
    fn external(&self, txn: usize) -> Vec<(usize, u64, Option<usize>)> {
        let reads = self.sources[txn].iter();
        let others = reads.filter(|(_, writer)| **writer != Some(txn));
        others
            .map(|(&at, &writer)| (at, self.txns[txn].mops[at].key, writer))
            .collect()
    }

    /// Reads of what was not the last write, and of what its own transaction writes later.
    fn is_clean(&self) -> bool {
        self.members().into_iter().all(|reader| {
            self.sources[reader].iter().all(|(&at, &writer)| {
                let mop = self.txns[reader].mops[at];
                match writer {
                    None => true,
                    Some(writer) if writer == reader => {
                        self.txns[reader].mops[..at].iter().any(|other| {
                            !other.is_read && (other.key, other.value) == (mop.key, mop.value)
                        })
                    }
                    Some(writer) => self.txns[writer].last_write(mop.key) == Some(mop.value),
                }
            })
        })
    }

    fn is_internal_consistent(&self) -> bool {
        self.members()
            .into_iter()
            .filter(|&txn| self.txns[txn].outcome == Outcome::Ok)
            .all(|txn| {
                let txn = &self.txns[txn];
                (0..txn.mops.len())
                    .filter(|&at| txn.mops[at].is_read)
                    .all(|at| {
                        txn.own(at)
                            .is_none_or(|own| own.value == txn.mops[at].value)
                    })
            })
    }

    /// Who is before whom by reads and sessions, over any number of steps.
    fn past(&self) -> BTreeSet<(usize, usize)> {
        let members = self.members();
        let mut past = BTreeSet::new();
        for &b in &members {
            past.extend(
                self.external(b)
                    .iter()
                    .filter_map(|&(_, _, writer)| Some((writer?, b))),
            );
            past.extend(
                members
                    .iter()
                    .filter(|&&a| self.sessions && self.in_session(a, b))
                    .map(|&a| (a, b)),
            );
        }
        for &by in &members {
            for &a in &members {
                for &b in &members {
                    if past.contains(&(a, by)) && past.contains(&(by, b)) {
                        past.insert((a, b));
                    }
                }
            }
        }
        past
    }

    /// Whether some order of the transactions, which keeps reads and orders, is good.
    fn some_order(&self, good: impl Fn(&[usize]) -> bool) -> bool {
        let members = self.members();
        permutations(
            &members,
            &mut Vec::new(),
            &|order, next| {
                let is_before = |other: usize| order.contains(&other);
                members
                    .iter()
                    .all(|&other| !self.ordered(other, next) || is_before(other))
                    && self
                        .external(next)
                        .iter()
                        .all(|&(_, _, writer)| writer.is_none_or(is_before))
            },
            &good,
        )
    }

    /// Whether in this order nothing is seen of a key that is later than what was read.
    fn keeps(&self, order: &[usize], sees: impl Fn(usize, usize, usize) -> bool) -> bool {
        let place = |txn: usize| order.iter().position(|&other| other == txn);
        order.iter().all(|&reader| {
            self.external(reader).iter().all(|&(at, key, writer)| {
                order.iter().all(|&other| {
                    Some(other) == writer
                        || other == reader
                        || self.txns[other].last_write(key).is_none()
                        || !sees(other, reader, at)
                        || writer.is_some_and(|writer| place(other) < place(writer))
                })
            })
        })
    }

    fn is_of(&self, level: Level) -> bool {
        let read_of = |other: usize, reader: usize, before: usize| {
            self.external(reader)
                .iter()
                .any(|&(at, _, writer)| at < before && writer == Some(other))
        };
        match level {
            Level::Uncommitted => true,
            _ if !self.is_clean() => false,
            Level::Committed => self.some_order(|_| true),
            Level::AtomicView => self.some_order(|order| self.keeps(order, read_of)),
            _ if !self.is_internal_consistent() => false,
            Level::Atomic => self.some_order(|order| {
                self.keeps(order, |other, reader, _| {
                    read_of(other, reader, usize::MAX)
                        || self.sessions && self.in_session(other, reader)
                })
            }),
            Level::Causal => {
                let past = self.past();
                self.some_order(|order| {
                    self.keeps(order, |other, reader, _| past.contains(&(other, reader)))
                })
            }
            Level::Serializable => self.some_order(|order| self.is_serial(order)),
            Level::Snapshot => self.has_snapshots(&mut Vec::new()),
        }
    }

    fn is_serial(&self, order: &[usize]) -> bool {
        let mut state: BTreeMap<u64, usize> = BTreeMap::new();
        order.iter().all(|&txn| {
            let reads = self.external(txn);
            let current = reads
                .iter()
                .all(|&(_, key, writer)| state.get(&key).copied() == writer);
            let writes = self.txns[txn].mops.iter().filter(|mop| !mop.is_read);
            state.extend(writes.map(|mop| (mop.key, txn)));
            current
        })
    }

    /// Whether transactions can begin and commit in some order such that each reads what had been
    /// committed when it began, and no two that write a key overlap. Each is twice in `events`.
    fn has_snapshots(&self, events: &mut Vec<usize>) -> bool {
        let members = self.members();
        if events.len() == 2 * members.len() {
            return true;
        }
        let times =
            |events: &[usize], txn: usize| events.iter().filter(|&&other| other == txn).count();
        members.iter().any(|&txn| {
            let fits = match times(events, txn) {
                0 => {
                    let orders = members
                        .iter()
                        .all(|&other| !self.ordered(other, txn) || times(events, other) == 2);
                    orders
                        && self.external(txn).iter().all(|&(_, key, writer)| {
                            let commits =
                                (0..events.len()).filter(|&at| events[..at].contains(&events[at]));
                            let mut writes = commits
                                .map(|at| events[at])
                                .filter(|&other| self.txns[other].last_write(key).is_some());
                            writes.next_back() == writer
                        })
                }
                1 => {
                    let begin = events.iter().position(|&other| other == txn).unwrap_or(0);
                    let mut since = events[begin + 1..]
                        .iter()
                        .filter(|&&other| times(events, other) == 2);
                    since.all(|&other| {
                        self.txns[txn].mops.iter().all(|mop| {
                            mop.is_read || self.txns[other].last_write(mop.key).is_none()
                        })
                    })
                }
                _ => false,
            };
            if !fits {
                return false;
            }
            events.push(txn);
            let found = self.has_snapshots(events);
            events.pop();
            found
        })
    }
}

fn permutations(
    members: &[usize],
    order: &mut Vec<usize>,
    may: &impl Fn(&[usize], usize) -> bool,
    good: &impl Fn(&[usize]) -> bool,
) -> bool {
    if order.len() == members.len() {
        return good(order);
    }
    members.iter().any(|&next| {
        if order.contains(&next) || !may(order, next) {
            return false;
        }
        order.push(next);
        let found = permutations(members, order, may, good);
        order.pop();
        found
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Uncommitted,
    Committed,
    AtomicView,
    Atomic,
    Causal,
    Snapshot,
    Serializable,
}

/// Levels by name: what they are, and whether sessions and real time count.
const LEVELS: [(&str, Level, bool, bool); 15] = [
    ("read-uncommitted", Level::Uncommitted, false, false),
    ("read-committed", Level::Committed, false, false),
    (
        "strong-session-read-committed",
        Level::Committed,
        true,
        false,
    ),
    ("strong-read-committed", Level::Committed, true, true),
    ("monotonic-atomic-view", Level::AtomicView, false, false),
    ("read-atomic", Level::Atomic, false, false),
    ("causal-cerone", Level::Causal, false, false),
    (
        "monotonic-atomic-view always",
        Level::AtomicView,
        true,
        false,
    ),
    ("read-atomic always", Level::Atomic, true, false),
    ("causal-cerone always", Level::Causal, true, false),
    ("snapshot-isolation", Level::Snapshot, false, false),
    (
        "strong-session-snapshot-isolation",
        Level::Snapshot,
        true,
        false,
    ),
    ("strong-snapshot-isolation", Level::Snapshot, true, true),
    ("serializable", Level::Serializable, false, false),
    ("strict-serializable", Level::Serializable, true, true),
];

/// Levels that are only shown by an order, and that all that has one is of.
const OTHERS: [&str; 6] = [
    "cursor-stability",
    "consistent-view",
    "repeatable-read",
    "parallel-snapshot-isolation",
    "prefix",
    "update-serializable",
];

fn at_level(history: &History, level: &str) -> History {
    let mut other = history.clone();
    let (level, always) = match level.strip_suffix(" always") {
        Some(level) => (level, true),
        None => (level, false),
    };
    let params = &mut other.header.params;
    params.insert("level".to_owned(), Value::from(level));
    if always {
        params.insert("session_order".to_owned(), Value::from("always"));
    }
    other
}

fn shown(history: &History) -> String {
    let line = |event: history::EventRef<'_>| {
        let (kind, value) = (event.kind(), event.value().to_json());
        format!("\n{} {kind:?} {value}", event.process())
    };
    history.events().map(line).collect()
}

type MadeMop = (u64, bool, u32);
type MadeTxn = (u64, u64, u64, u32, Vec<MadeMop>);

fn made(txns: usize) -> impl Strategy<Value = Vec<MadeTxn>> {
    let mop = (0u64..3, any::<bool>(), 0u32..24);
    let txn = (
        0u64..3,
        0u64..4,
        1u64..8,
        0u32..12,
        prop::collection::vec(mop, 1..4),
    );
    prop::collection::vec(txn, 1..=txns)
}

/// A register map that does what it is asked, or something else at times; of every key the values
/// it ever had are kept.
fn history_of(made: &[MadeTxn], values: u64) -> History {
    let mut written: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut next = 0;
    let mut steps = Vec::new();
    for (process, gap, length, outcome, mops) in made {
        let (mut asked, mut answer) = (Vec::new(), Vec::new());
        for &(key, is_read, luck) in mops {
            let all = written.entry(key).or_default();
            if is_read {
                let back = match luck {
                    0..16 => 0,
                    luck => luck as usize - 15,
                };
                let seen = match luck {
                    23 => Some(99),
                    22 => Some(next + 1),
                    _ => all
                        .len()
                        .checked_sub(1 + back % (all.len() + 1))
                        .map(|at| all[at]),
                };
                asked.push(json!(["r", key, null]));
                answer.push(json!(["r", key, seen]));
            } else {
                next += 1;
                let value = (next - 1) % values + 1;
                asked.push(json!(["w", key, value]));
                answer.push(json!(["w", key, value]));
                all.insert(all.len() - (luck as usize / 20).min(all.len()), value);
            }
        }
        steps.push(Step {
            process: *process,
            gap: *gap,
            length: *length,
            f: "txn",
            key: None,
            node: None,
            input: Value::from(asked),
            answer: match outcome {
                0 => Answer::Fail(None),
                1 => Answer::Info,
                _ => Answer::Ok(Value::from(answer)),
            },
        });
    }
    history(header("wr", Value::Null), &steps)
}

/// What the levels say of a history, against the checker.
fn compare(history: &History, is_unique: bool) -> Result<(), TestCaseError> {
    let txns = txns(history);
    let all = all_sources(&txns);
    if all.len() > 64 {
        return Ok(());
    }
    for (name, level, sessions, realtime) in LEVELS {
        if level == Level::Snapshot && txns.len() > 4 {
            continue;
        }
        let case = |sources| Case {
            txns: &txns,
            sources,
            sessions,
            realtime,
        };
        let expected =
            level == Level::Uncommitted || all.iter().any(|sources| case(sources).is_of(level));
        let found = check("wr", &at_level(history, name));
        let is_exact = is_unique && level != Level::Snapshot;
        let fits = match found.verdict {
            Verdict::Valid => expected,
            Verdict::Invalid => !expected,
            Verdict::Unknown(_) => !is_exact,
        };
        prop_assert!(fits, "{name} {expected} {found:?} {}", shown(history));
    }
    for name in OTHERS {
        let case = |sources| Case {
            txns: &txns,
            sources,
            sessions: false,
            realtime: false,
        };
        let found = check("wr", &at_level(history, name));
        let is_serial = all
            .iter()
            .any(|sources| case(sources).is_of(Level::Serializable));
        let fits = match found.verdict {
            Verdict::Valid => is_serial,
            Verdict::Invalid => !is_serial,
            Verdict::Unknown(_) => true,
        };
        prop_assert!(fits, "{name} {found:?} {}", shown(history));
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn levels_are_those_of_the_axioms(input in made(5)) {
        compare(&history_of(&input, u64::MAX), true)?;
    }

    #[test]
    fn values_that_were_written_twice_are_never_guessed(input in made(4)) {
        compare(&history_of(&input, 3), false)?;
    }
}
