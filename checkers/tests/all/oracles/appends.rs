//! `append` against all pairs, all cycles and all orders of up to six transactions.

use std::collections::{BTreeMap, BTreeSet};

use history::{History, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{answered, check};
use crate::made::{Answer, Step, cases, header, history};

/// A micro-operation: an append of an element, or a read of a list.
#[derive(Debug, Clone)]
pub(super) enum Mop {
    Append(u64, u64),
    Read(u64, Vec<u64>),
}

pub(super) struct Txn {
    pub(super) process: u32,
    pub(super) begin: usize,
    pub(super) end: usize,
    pub(super) outcome: Outcome,
    pub(super) mops: Vec<Mop>,
}

pub(super) fn txns(history: &History) -> Vec<Txn> {
    let number = |value: &Value| value.as_u64().expect("a number");
    let mop = |mop: &Value| match mop[0].as_str() {
        Some("append") => Mop::Append(number(&mop[1]), number(&mop[2])),
        _ => {
            let list = mop[2].as_array().map_or(&[][..], Vec::as_slice);
            Mop::Read(number(&mop[1]), list.iter().map(number).collect())
        }
    };
    let txn = |op: history::Op<'_>| {
        let value = op.output().unwrap_or(op.input()).to_json();
        Txn {
            process: op.process_id(),
            begin: op.invoke.index(),
            end: answered(op),
            outcome: op.outcome(),
            mops: value
                .as_array()
                .expect("a transaction")
                .iter()
                .map(mop)
                .collect(),
        }
    };
    history.ops().map(txn).collect()
}

/// What is known of the lists of a history.
pub(super) struct Lists<'t> {
    txns: &'t [Txn],
    longest: BTreeMap<u64, Vec<u64>>,
    writers: BTreeMap<(u64, u64), usize>,
}

impl<'t> Lists<'t> {
    pub(super) fn of(txns: &'t [Txn]) -> Lists<'t> {
        let mut lists = Lists {
            txns,
            longest: BTreeMap::new(),
            writers: BTreeMap::new(),
        };
        for (at, txn) in txns.iter().enumerate() {
            for mop in &txn.mops {
                match mop {
                    Mop::Append(key, element) => {
                        lists.writers.insert((*key, *element), at);
                    }
                    Mop::Read(key, list) if txn.outcome == Outcome::Ok => {
                        let longest = lists.longest.entry(*key).or_default();
                        if list.len() > longest.len() {
                            longest.clone_from(list);
                        }
                    }
                    Mop::Read(..) => {}
                }
            }
        }
        lists
    }

    pub(super) fn longest(&self, key: u64) -> &[u64] {
        self.longest.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Who appended each element of the longest read for the first time, if that happened.
    fn versions(&self, key: u64) -> Vec<(usize, u64)> {
        let list = self.longest(key);
        let happened = |(at, element): (usize, &u64)| {
            let writer = *self.writers.get(&(key, *element))?;
            let is_first = !list[..at].contains(element);
            (is_first && self.txns[writer].outcome != Outcome::Fail).then_some((writer, *element))
        };
        list.iter().enumerate().filter_map(happened).collect()
    }

    pub(super) fn happened(&self, txn: usize) -> bool {
        match self.txns[txn].outcome {
            Outcome::Ok => true,
            Outcome::Fail => false,
            Outcome::Info => self.appends(txn).into_iter().any(|(key, element)| {
                let all = (0..self.txns.len()).flat_map(|other| self.reads(other));
                all.into_iter()
                    .any(|(other, list)| other == key && list.contains(&element))
            }),
        }
    }

    fn reads(&self, txn: usize) -> Vec<(u64, &[u64])> {
        let mops = self.txns[txn].mops.iter();
        let reads = mops.filter_map(|mop| match mop {
            Mop::Read(key, list) => Some((*key, list.as_slice())),
            Mop::Append(..) => None,
        });
        let is_ok = self.txns[txn].outcome == Outcome::Ok;
        reads.filter(|_| is_ok).collect()
    }

    pub(super) fn appends(&self, txn: usize) -> Vec<(u64, u64)> {
        let mops = self.txns[txn].mops.iter();
        let appends = mops.filter_map(|mop| match mop {
            Mop::Append(key, element) => Some((*key, *element)),
            Mop::Read(..) => None,
        });
        appends.collect()
    }

    /// Whether `b` appended the element after one of `a`, by definition.
    fn ww(&self, a: usize, b: usize) -> bool {
        self.appends(b).into_iter().any(|(key, element)| {
            let versions = self.versions(key);
            let place = versions.iter().position(|&(_, other)| other == element);
            let is_garbled = place.is_none() && self.longest(key).contains(&element);
            let place = place.unwrap_or(versions.len());
            !is_garbled && place > 0 && versions[place - 1].0 == a
        })
    }

    /// Whether `b` read a list up to an element of `a`.
    fn wr(&self, a: usize, b: usize) -> bool {
        self.reads(b).into_iter().any(|(key, list)| {
            if self.longest(key).starts_with(list) {
                let seen = self.versions(key);
                let seen = seen
                    .iter()
                    .rev()
                    .find(|(_, element)| list.contains(element));
                return seen.is_some_and(|&(writer, _)| writer == a);
            }
            let last = list.last().and_then(|last| self.writers.get(&(key, *last)));
            last == Some(&a) && self.txns[a].outcome != Outcome::Fail
        })
    }

    /// Whether `a` read a list up to the element before one of `b`.
    fn rw(&self, a: usize, b: usize) -> bool {
        self.reads(a).into_iter().any(|(key, list)| {
            if !self.longest(key).starts_with(list) {
                return false;
            }
            let versions = self.versions(key);
            let next = versions.iter().find(|(_, element)| !list.contains(element));
            match next {
                Some(&(writer, _)) => writer == b,
                None => self
                    .appends(b)
                    .into_iter()
                    .any(|(other, element)| other == key && !self.longest(key).contains(&element)),
            }
        })
    }

    /// What makes `a` come before `b`, one letter each: of ww, wr and rw the first that does.
    fn before(&self, a: usize, b: usize) -> Vec<char> {
        if a == b || !self.happened(a) || !self.happened(b) {
            return Vec::new();
        }
        let (first, second) = (&self.txns[a], &self.txns[b]);
        let data = [
            (self.ww(a, b), 'w'),
            (self.wr(a, b), 'r'),
            (self.rw(a, b), 'a'),
        ];
        let strongest = data.into_iter().find(|(is, _)| *is);
        let mut found: Vec<char> = strongest.into_iter().map(|(_, letter)| letter).collect();
        let is_session = first.process == second.process && a < b;
        if is_session && first.outcome == Outcome::Ok && self.no_info_between(a, b) {
            found.push('s');
        }
        if first.outcome == Outcome::Ok && first.end < second.begin {
            found.push('t');
        }
        found
    }

    /// After an unanswered transaction a process is a new session.
    fn no_info_between(&self, a: usize, b: usize) -> bool {
        let process = self.txns[a].process;
        let between = self.txns[a..b].iter();
        between
            .filter(|txn| txn.process == process)
            .all(|txn| txn.outcome != Outcome::Info)
    }
}

/// For each base of an anomaly: the weakest order that it needs, and its shortest cycle.
type Anomalies = BTreeMap<&'static str, (u32, usize)>;

/// The class of a cycle.
fn class(steps: &[char]) -> (&'static str, u32) {
    let count = |letter| steps.iter().filter(|&&step| step == letter).count();
    let needs = match (count('t'), count('s')) {
        (0, 0) => 0,
        (0, _) => 1,
        _ => 2,
    };
    let adjacent =
        (0..steps.len()).any(|at| steps[at] == 'a' && steps[(at + 1) % steps.len()] == 'a');
    let base = match count('a') {
        0 if count('r') > 0 => "G1c",
        0 => "G0",
        1 => "G-single",
        _ if adjacent => "G2-item",
        _ => "G-nonadjacent",
    };
    (base, needs)
}

/// All simple cycles, each begun at its first transaction.
fn cycles(
    before: &[Vec<Vec<char>>],
    path: &mut Vec<usize>,
    steps: &mut Vec<char>,
    found: &mut Anomalies,
) {
    let (first, last) = (path[0], path[path.len() - 1]);
    for next in first..before.len() {
        for &step in &before[last][next] {
            steps.push(step);
            if next == first {
                let (base, needs) = class(steps);
                let new = (needs, steps.len());
                let least = found.entry(base).or_insert(new);
                *least = new.min(*least);
            } else if !path.contains(&next) {
                path.push(next);
                cycles(before, path, steps, found);
                path.pop();
            }
            steps.pop();
        }
    }
}

fn all_cycles(lists: &Lists<'_>) -> Anomalies {
    let count = lists.txns.len();
    let row = |a| (0..count).map(|b| lists.before(a, b)).collect();
    let before: Vec<Vec<Vec<char>>> = (0..count).map(row).collect();
    let mut found = Anomalies::new();
    for first in 0..count {
        cycles(&before, &mut vec![first], &mut Vec::new(), &mut found);
    }
    found
}

/// What reads and transactions show by themselves.
fn by_themselves(lists: &Lists<'_>) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let mut updates: BTreeMap<(u64, Vec<u64>), BTreeSet<usize>> = BTreeMap::new();
    for (at, txn) in lists.txns.iter().enumerate() {
        if txn.outcome != Outcome::Ok {
            continue;
        }
        let mut known: BTreeMap<u64, (Option<Vec<u64>>, Vec<u64>)> = BTreeMap::new();
        for (place, mop) in txn.mops.iter().enumerate() {
            match mop {
                Mop::Append(key, element) => {
                    let (read, own) = known.entry(*key).or_default();
                    let earlier = txn.mops[..place].iter();
                    let is_first = !earlier
                        .clone()
                        .any(|mop| matches!(mop, Mop::Append(k, _) if k == key));
                    let first_read = earlier.clone().find_map(|mop| match mop {
                        Mop::Read(k, list) if k == key => Some(list),
                        _ => None,
                    });
                    if let (true, Some(list), true) = (is_first, first_read, read.is_some())
                        && lists.longest(*key).starts_with(list)
                    {
                        updates.entry((*key, list.clone())).or_default().insert(at);
                    }
                    own.push(*element);
                }
                Mop::Read(key, list) => {
                    reads_show(lists, at, place, (*key, list), &mut found);
                    let (read, own) = known.entry(*key).or_default();
                    let fits = match read {
                        Some(read) => [read.as_slice(), own].concat() == *list,
                        None => list.ends_with(own),
                    };
                    if !fits {
                        found.insert("internal");
                    }
                    *read = Some(list.clone());
                    own.clear();
                }
            }
        }
    }
    if updates.values().any(|txns| txns.len() > 1) {
        found.insert("lost-update");
    }
    for (key, list) in &lists.longest {
        let outcomes: Vec<Outcome> = list
            .iter()
            .enumerate()
            .filter(|(at, element)| !list[..*at].contains(element))
            .filter_map(|(_, element)| lists.writers.get(&(*key, *element)))
            .map(|&writer| lists.txns[writer].outcome)
            .collect();
        for txn in 0..lists.txns.len() {
            let own = lists.appends(txn);
            let own = own.into_iter().filter(|(other, _)| other == key);
            let places: Vec<usize> = own
                .filter_map(|(_, element)| list.iter().position(|&other| other == element))
                .collect();
            if !places.is_sorted() {
                found.insert("incompatible-order");
            }
        }
        let failed = outcomes
            .iter()
            .position(|&outcome| outcome == Outcome::Fail);
        if failed.is_some_and(|at| outcomes[at..].contains(&Outcome::Ok)) {
            found.insert("dirty-update");
        }
    }
    found
}

fn reads_show(
    lists: &Lists<'_>,
    txn: usize,
    place: usize,
    (key, list): (u64, &[u64]),
    found: &mut BTreeSet<&'static str>,
) {
    if !lists.longest(key).starts_with(list) {
        found.insert("incompatible-order");
    }
    for (at, element) in list.iter().enumerate() {
        if list[..at].contains(element) {
            found.insert("duplicate-elements");
        }
        match lists.writers.get(&(key, *element)) {
            None => {
                found.insert("garbage-read");
            }
            Some(&writer) if lists.txns[writer].outcome == Outcome::Fail => {
                found.insert("G1a");
            }
            Some(_) => {}
        }
    }
    let Some(last) = list.last() else { return };
    let is_repeated = list[..list.len() - 1].contains(last);
    let Some(&writer) = lists.writers.get(&(key, *last)).filter(|_| !is_repeated) else {
        return;
    };
    let appends = lists.appends(writer);
    let own: Vec<u64> = appends
        .into_iter()
        .filter(|(k, _)| *k == key)
        .map(|(_, e)| e)
        .collect();
    if writer != txn && own.last() != Some(last) && lists.txns[writer].outcome != Outcome::Fail {
        found.insert("G1b");
    }
    let later = &lists.txns[txn].mops[place..];
    let is_later = later
        .iter()
        .any(|mop| matches!(mop, Mop::Append(k, e) if (k, e) == (&key, last)));
    if writer == txn && is_later && lists.longest(key).starts_with(list) {
        found.insert("future-read");
    }
}

/// What the checker says there is: the base of each anomaly with the order that it needs, and the
/// length of its cycle, if it is one.
fn said(history: &History) -> Anomalies {
    const BASES: [&str; 14] = [
        "G0",
        "G1c",
        "G-single",
        "G-nonadjacent",
        "G2-item",
        "G1a",
        "G1b",
        "internal",
        "future-read",
        "lost-update",
        "dirty-update",
        "incompatible-order",
        "duplicate-elements",
        "garbage-read",
    ];
    let found = check("append", history);
    let summary = found.counterexample.iter().map(|told| &told.summary);
    let told: Vec<&String> = summary.chain(&found.notes).collect();
    let mut said = Anomalies::new();
    for (name, _) in &found.counts {
        let Some(name) = name.strip_prefix("anomalies:") else {
            continue;
        };
        let (base, needs) = match name.strip_suffix("-realtime") {
            Some(base) => (base, 2),
            None => name
                .strip_suffix("-process")
                .map_or((name, 0), |base| (base, 1)),
        };
        let base = BASES
            .into_iter()
            .find(|known| *known == base)
            .expect("a known anomaly");
        let text = told
            .iter()
            .find_map(|text| text.strip_prefix(&format!("{name}: ")));
        let text = text.expect("each anomaly is told");
        let length = text
            .strip_prefix("a cycle of ")
            .and_then(|rest| rest.split(' ').next());
        said.insert(
            base,
            (
                needs,
                length.map_or(0, |length| length.parse().expect("a number")),
            ),
        );
    }
    said
}

/// Whether the transactions that happened, and some that may have, can be put in one order in
/// which each reads what those before it appended.
fn has_order(txns: &[Txn], sessions: bool, realtime: bool) -> bool {
    let happens: Vec<usize> = (0..txns.len())
        .filter(|&at| txns[at].outcome != Outcome::Fail)
        .collect();
    let mut done = vec![false; txns.len()];
    serial(
        txns,
        &happens,
        sessions,
        realtime,
        &mut done,
        &mut BTreeMap::new(),
    )
}

pub(super) type State = BTreeMap<u64, Vec<u64>>;

pub(super) fn precedes(txns: &[Txn], a: usize, b: usize, sessions: bool, realtime: bool) -> bool {
    let (first, second) = (&txns[a], &txns[b]);
    let same = first.process == second.process && a < b;
    let between = || txns[a..b].iter().filter(|txn| txn.process == first.process);
    let is_session = same && between().all(|txn| txn.outcome != Outcome::Info);
    first.outcome == Outcome::Ok && (sessions && is_session || realtime && first.end < second.begin)
}

fn serial(
    txns: &[Txn],
    happens: &[usize],
    sessions: bool,
    realtime: bool,
    done: &mut Vec<bool>,
    state: &mut State,
) -> bool {
    let left: Vec<usize> = happens.iter().copied().filter(|&at| !done[at]).collect();
    if left.iter().all(|&at| txns[at].outcome == Outcome::Info) {
        return true;
    }
    left.iter().any(|&at| {
        let must_wait =
            |other: &usize| *other != at && precedes(txns, *other, at, sessions, realtime);
        if left.iter().any(must_wait) {
            return false;
        }
        let before = state.clone();
        done[at] = true;
        let fits =
            apply(&txns[at], state) && serial(txns, happens, sessions, realtime, done, state);
        done[at] = false;
        *state = before;
        fits
    })
}

/// Does what a transaction does; false if it cannot have read what it read.
pub(super) fn apply(txn: &Txn, state: &mut State) -> bool {
    txn.mops.iter().all(|mop| match mop {
        Mop::Append(key, element) => {
            state.entry(*key).or_default().push(*element);
            true
        }
        Mop::Read(key, list) => {
            txn.outcome != Outcome::Ok || state.get(key).map_or(&[][..], Vec::as_slice) == list
        }
    })
}

/// How a transaction is made: process, gap, length, micro-operations, outcome, luck of its reads.
pub(super) type Made = (u64, u64, u64, Vec<(u64, bool, u64)>, u32);

pub(super) fn made() -> impl Strategy<Value = (Vec<Made>, u32, bool)> {
    let mop = (0u64..2, any::<bool>(), 0u64..100);
    let txn = (
        0u64..3,
        0u64..3,
        1u64..4,
        prop::collection::vec(mop, 1..4),
        0u32..12,
    );
    (prop::collection::vec(txn, 1..6), 0u32..100, any::<bool>())
}

/// Transactions whose reads are of a moment that is right, or a little wrong, as luck will have it.
pub(super) fn history_of((made, disorder, read_all): &(Vec<Made>, u32, bool)) -> History {
    let mut state: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut next = 0;
    let mut steps = Vec::new();
    for (process, gap, length, mops, outcome) in made {
        let mut asked = Vec::new();
        let mut answer = Vec::new();
        let snapshot = state.clone();
        for (key, reads, luck) in mops {
            let list = state.entry(*key).or_default();
            if *reads {
                asked.push(json!(["r", key, null]));
                let mut seen = list.clone();
                let wrong = luck * 100 / 100 < u64::from(*disorder);
                match luck % 7 {
                    _ if !wrong => {}
                    0 | 1 => seen.truncate(seen.len().saturating_sub(1)),
                    2 => seen = snapshot.get(key).cloned().unwrap_or_default(),
                    3 => seen.truncate(seen.len() / 2),
                    4 => seen.push(next + 1),
                    5 if luck % 2 == 0 => seen.reverse(),
                    5 => seen.extend(seen.first().copied()),
                    _ => seen.push(99),
                }
                answer.push(json!(["r", key, seen]));
            } else {
                next += 1;
                asked.push(json!(["append", key, next]));
                answer.push(json!(["append", key, next]));
                // A failed one leaves nothing behind, or should; an unanswered one may.
                let leaves = match outcome {
                    0 => luck % 5 == 0,
                    1 => luck % 2 == 0,
                    _ => luck % 20 > 0,
                };
                if leaves {
                    let at = list.len().saturating_sub(usize::from(luck % 17 == 0));
                    list.insert(at, next);
                }
            }
        }
        let asked = Value::from(asked);
        let step = Step {
            process: *process,
            gap: *gap,
            length: *length,
            f: "txn",
            key: None,
            node: None,
            input: asked,
            answer: match outcome {
                0 => Answer::Fail(None),
                1 => Answer::Info,
                _ => Answer::Ok(Value::from(answer)),
            },
        };
        steps.push(step);
    }
    if *read_all {
        let (mut asked, mut answer) = (Vec::new(), Vec::new());
        for (key, list) in &state {
            asked.push(json!(["r", key, null]));
            answer.push(json!(["r", key, list]));
        }
        steps.push(Step {
            process: 9,
            gap: 0,
            length: 100,
            f: "txn",
            key: None,
            node: None,
            input: Value::from(asked),
            answer: Answer::Ok(Value::from(answer)),
        });
    }
    history(header("append", Value::Null), &steps)
}

pub(super) fn at_level(history: &History, level: &str) -> History {
    let mut other = history.clone();
    other
        .header
        .params
        .insert("level".to_owned(), Value::from(level));
    other
}

/// The events, one a line.
pub(super) fn shown(history: &History) -> String {
    let line = |event: history::EventRef<'_>| {
        let (kind, value) = (event.kind(), event.value().to_json());
        format!("\n{} {kind:?} {value}", event.process())
    };
    history.events().map(line).collect()
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn anomalies_are_those_of_the_definitions(input in made()) {
        let history = history_of(&input);
        let txns = txns(&history);
        let lists = Lists::of(&txns);
        let mut expected = all_cycles(&lists);
        expected.extend(by_themselves(&lists).into_iter().map(|base| (base, (0, 0))));
        let mut said = said(&history);
        // A closed walk that is no cycle may hide a longer cycle, but never without a worse one.
        if let Some(&(needs, length)) = expected.get("G-nonadjacent")
            && said.get("G-nonadjacent").is_none_or(|&found| found > (needs, length))
        {
            let worse = ["G0", "G1c", "G-single"].into_iter().filter_map(|base| said.get(base));
            prop_assert!(worse.clone().any(|&(other, _)| other <= needs), "{:?} {:?}", expected, said);
            expected.remove("G-nonadjacent");
            said.remove("G-nonadjacent");
        }
        prop_assert_eq!(expected, said, "{}", shown(&history));
    }

    #[test]
    fn serializability_is_that_there_is_an_order(input in made()) {
        let history = history_of(&input);
        let txns = txns(&history);
        for (level, sessions, realtime) in [
            ("serializable", false, false),
            ("strong-session-serializable", true, false),
            ("strict-serializable", true, true),
        ] {
            let found = check("append", &at_level(&history, level));
            let convicted = found.verdict == checkers::Verdict::Invalid;
            prop_assert_eq!(convicted, !has_order(&txns, sessions, realtime), "{} {:?} {}", level, found, shown(&history));
        }
    }
}
