//! `long-fork`: all readers see two independent writes in one order.
//!
//! Each key is written once. A read of some keys says which of their writes it saw; of two reads
//! of the same keys, one must have seen all that the other saw.

use history::{EventRef, History, MopKind, MopValue, Op, Outcome, ValueRef};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::elements;
use crate::linearizable::models::{NULL, Numbers};
use crate::params::{Param, Takes};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

const FUNCTIONS: &[&str] = &["txn", "read", "write"];

/// More keys than this in one read are not judged: what was seen of them is a word of bits.
const KEYS_MAX: usize = 64;

/// All readers see two independent writes in one order.
pub struct LongFork;

impl Checker for LongFork {
    fn name(&self) -> &'static str {
        "long-fork"
    }

    fn promise(&self) -> &'static str {
        "Of two reads of the same keys, one saw every write that the other saw: no two readers see \
         independent writes in opposite orders."
    }

    fn method(&self) -> &'static str {
        "Each key is written once. Reads of the same keys are put together, as the sets of writes \
         that they saw; sorted by size, each must contain the one before. A read of a value that \
         nobody wrote is a violation, too. O(n), and n log n in the number of different sets. \
         Source: the long fork test of Jepsen; Sovran et al., Transactional storage for \
         geo-replicated systems (2011)."
    }

    fn params(&self) -> &'static [Param] {
        &[Param {
            name: "group_size",
            takes: Takes::Count,
            default: "as many as a read has",
            about: "how many keys a read must have to be judged",
        }]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("writes", "writes that may have happened"),
            ("reads", "reads that were judged"),
            ("groups", "groups of keys that were read more than once"),
            ("other_reads", "reads of another number of keys"),
            ("early_reads", "reads that saw none of the writes"),
            ("late_reads", "reads that saw all of the writes"),
            (
                "forks",
                "neighbouring sets of writes of which neither contains the other",
            ),
            ("unexpected", "values read that nobody wrote"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let mut found = Found::default();
        let mut mops: Vec<Micro<'_>> = Vec::new();
        let mut ops = 0u64;
        for op in history.ops_of(FUNCTIONS) {
            if micros(op, &mut mops) {
                ops += 1;
                found.add_writes(op, &mops);
            }
        }
        for op in history.ops_of(FUNCTIONS).filter(|op| op.is_ok()) {
            if micros(op, &mut mops) && mops.iter().all(|micro| micro.kind == MopKind::Read) {
                found.add_read(history, op, &mut mops);
            }
        }
        let fork = found.fork();
        let result = if let Some(fork) = &fork {
            tell_fork(history, fork)
        } else if let Some(strange) = &found.strange {
            strange.tell()
        } else if ops == 0 {
            Checked::unknown(Reason::NotApplicable(
                "there are no transactions of reads and writes".to_owned(),
            ))
        } else if let Some(key) = &found.rewritten {
            let why = format!("key {key} is written more than once");
            Checked::unknown(Reason::NotApplicable(why))
        } else if found.groups_read_again() == 0 {
            let why = "no keys were read together more than once";
            Checked::unknown(Reason::Coverage(why.to_owned()))
        } else {
            Checked::valid()
        };
        result
            .count("writes", found.writes)
            .count("reads", found.reads)
            .count("groups", found.groups_read_again())
            .count("other_reads", found.other_reads)
            .count("early_reads", found.early_reads)
            .count("late_reads", found.late_reads)
            .count("forks", found.forks)
            .count("unexpected", found.unexpected)
    }
}

/// One micro-operation, wherever it stood.
#[derive(Clone, Copy)]
struct Micro<'h> {
    kind: MopKind,
    key: ValueRef<'h>,
    /// The number of the key, once it has one.
    number: u32,
    /// What was written or read; `None` for nothing.
    value: Option<ValueRef<'h>>,
}

/// The micro-operations of an operation, as answered if it happened; whether it has any.
fn micros<'h>(op: Op<'h>, into: &mut Vec<Micro<'h>>) -> bool {
    into.clear();
    let value = op.output().unwrap_or(op.input());
    if let Some(txn) = value.as_txn() {
        into.extend(txn.mops.iter().filter_map(|mop| {
            let value = match mop.value() {
                MopValue::Nil => None,
                MopValue::One(word) => Some(word),
                MopValue::List { .. } => return None,
            };
            Some(Micro {
                kind: mop.kind(),
                key: txn.word(mop.key()),
                number: NULL,
                value: value.map(|word| txn.word(word)),
            })
        }));
    } else {
        into.extend(value.as_list().into_iter().flatten().filter_map(micro));
    }
    !into.is_empty()
}

/// `[f, key, value]` outside of a transaction.
fn micro(item: ValueRef<'_>) -> Option<Micro<'_>> {
    let mut parts = item.as_list().filter(|parts| parts.len() == 3)?;
    let kind = MopKind::of(parts.next()?.as_str()?)?;
    Some(Micro {
        kind,
        key: parts.next()?,
        number: NULL,
        value: parts.next().filter(|value| !value.is_null()),
    })
}

/// The reads that saw the same writes of a group.
#[derive(Clone, Copy)]
struct Seen<'h> {
    writes: u64,
    /// The first of them to be answered.
    first: EventRef<'h>,
}

/// How many sets of writes of a group are looked through one by one.
const SEEN_FEW: usize = 8;

#[derive(Default)]
struct Group<'h> {
    reads: u64,
    seen: Vec<Seen<'h>>,
}

/// The first write of a key.
#[derive(Clone, Copy, Default)]
struct Written {
    is: bool,
    /// The number of its value, if it has one.
    value: Option<u32>,
}

/// A value that was read and not written.
struct Strange<'h> {
    read: EventRef<'h>,
    key: String,
    value: String,
}

#[derive(Default)]
struct Found<'h> {
    keys: Numbers,
    values: Numbers,
    /// By key, the writes that may have happened.
    written: Vec<Written>,
    /// The key and value of every write of a key but the first.
    written_again: FxHashSet<(u32, u32)>,
    rewritten: Option<String>,
    /// The keys of the read that is looked at.
    read: Vec<u32>,
    group_of: FxHashMap<Box<[u32]>, usize>,
    groups: Vec<Group<'h>>,
    /// Of groups of which many sets of writes were seen, these sets.
    many_seen: FxHashSet<(usize, u64)>,
    strange: Option<Strange<'h>>,
    writes: u64,
    reads: u64,
    other_reads: u64,
    early_reads: u64,
    late_reads: u64,
    forks: u64,
    unexpected: u64,
}

impl<'h> Found<'h> {
    fn add_writes(&mut self, op: Op<'h>, mops: &[Micro<'h>]) {
        if op.outcome() == Outcome::Fail {
            return;
        }
        for micro in mops.iter().filter(|micro| micro.kind == MopKind::Write) {
            let key = self.keys.of(micro.key);
            let value = micro.value.map(|value| self.values.of(value));
            self.writes += 1;
            let first = elements::at(&mut self.written, key as usize);
            if !first.is {
                *first = Written { is: true, value };
                continue;
            }
            self.written_again.extend(value.map(|value| (key, value)));
            self.rewritten
                .get_or_insert_with(|| words::value(micro.key));
        }
    }

    fn add_read(&mut self, history: &History, op: Op<'h>, mops: &mut Vec<Micro<'h>>) {
        let answer = op.completion.unwrap_or(op.invoke);
        for micro in mops.iter_mut() {
            micro.number = self.keys.of(micro.key);
            let Some(value) = micro.value else { continue };
            let number = self.values.of(value);
            let first = self.written.get(micro.number as usize);
            let is_first = first.is_some_and(|first| first.value == Some(number));
            if !is_first && !self.written_again.contains(&(micro.number, number)) {
                self.unexpected += 1;
                self.strange.get_or_insert_with(|| Strange {
                    read: answer,
                    key: words::value(micro.key),
                    value: words::value(value),
                });
            }
        }
        mops.sort_unstable_by_key(|micro| micro.number);
        let is_twice = mops.windows(2).any(|pair| pair[0].number == pair[1].number);
        let wanted = history.header.param_u64("group_size");
        if is_twice || mops.len() > KEYS_MAX || wanted.is_some_and(|size| size != mops.len() as u64)
        {
            self.other_reads += 1;
            return;
        }
        self.reads += 1;
        self.read.clear();
        self.read.extend(mops.iter().map(|micro| micro.number));
        let next = self.groups.len();
        let place = self.group_of.get(&self.read[..]).copied().unwrap_or(next);
        if place == next {
            self.group_of.insert(self.read[..].into(), next);
            self.groups.push(Group::default());
        }
        let writes = mops
            .iter()
            .enumerate()
            .filter(|(_, micro)| micro.value.is_some())
            .fold(0_u64, |writes, (bit, _)| writes | 1 << bit);
        self.early_reads += u64::from(writes == 0);
        self.late_reads += u64::from(writes.count_ones() as usize == mops.len());
        let group = &mut self.groups[place];
        group.reads += 1;
        let few = &group.seen[..group.seen.len().min(SEEN_FEW)];
        let is_new = !few.iter().any(|seen| seen.writes == writes)
            && (few.len() < SEEN_FEW || self.many_seen.insert((place, writes)));
        if is_new {
            group.seen.push(Seen {
                writes,
                first: answer,
            });
        }
    }

    fn groups_read_again(&self) -> u64 {
        self.groups.iter().filter(|group| group.reads > 1).count() as u64
    }

    /// The first two reads of which neither saw all that the other saw.
    fn fork(&mut self) -> Option<(EventRef<'h>, EventRef<'h>)> {
        let mut first: Option<(EventRef<'h>, EventRef<'h>)> = None;
        for group in &mut self.groups {
            group
                .seen
                .sort_by_key(|seen| (seen.writes.count_ones(), seen.writes));
            for pair in group.seen.windows(2) {
                if pair[0].writes & !pair[1].writes == 0 {
                    continue;
                }
                self.forks += 1;
                let (a, b) = (pair[0].first, pair[1].first);
                let fork = if a.index() < b.index() {
                    (a, b)
                } else {
                    (b, a)
                };
                if first.is_none_or(|(_, known)| fork.1.index() < known.index()) {
                    first = Some(fork);
                }
            }
        }
        first
    }
}

/// The keys of whose writes one read saw something and the other nothing.
fn only(a: &[Micro<'_>], b: &[Micro<'_>]) -> Vec<String> {
    let is_seen = |mops: &[Micro<'_>], key: ValueRef<'_>| {
        mops.iter()
            .any(|micro| micro.key == key && micro.value.is_some())
    };
    a.iter()
        .filter(|micro| is_seen(a, micro.key) && !is_seen(b, micro.key))
        .map(|micro| words::value(micro.key))
        .collect()
}

fn tell_fork(history: &History, &(a, b): &(EventRef<'_>, EventRef<'_>)) -> Checked {
    let mut story = Story::default();
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for (answer, mops) in [(a, &mut of_a), (b, &mut of_b)] {
        if let Some(invoke) = answer.partner() {
            micros(invoke.op(), mops);
        }
    }
    let keys = (only(&of_a, &of_b), only(&of_b, &of_a));
    let (of_a, of_b) = (keys.0.join(", "), keys.1.join(", "));
    let (who_a, who_b) = (words::who(a), words::who(b));
    story.tell(
        a,
        format!("{who_a} sees the write of {of_a}, and not that of {of_b}"),
    );
    story.tell(
        b,
        format!("{who_b} sees the write of {of_b}, and not that of {of_a}"),
    );
    let mut mops = Vec::new();
    for op in history.ops_of(FUNCTIONS) {
        micros(op, &mut mops);
        for micro in mops.iter().filter(|micro| micro.kind == MopKind::Write) {
            let key = words::value(micro.key);
            if keys.0.contains(&key) || keys.1.contains(&key) {
                let value = micro.value.map_or_else(String::new, words::value);
                let who = words::who(op.invoke);
                story.tell(op.invoke, format!("{who} asks to write {value} to {key}"));
            }
        }
    }
    story.tell_faults_within(history);
    Checked::invalid(story.finish(format!(
        "{who_a} saw the write of {of_a} before that of {of_b}, and {who_b} the other way round"
    )))
}

impl Strange<'_> {
    fn tell(&self) -> Checked {
        let mut story = Story::default();
        let who = words::who(self.read);
        let (key, value) = (&self.key, &self.value);
        story.tell(self.read, format!("{who} reads {value} of {key}"));
        Checked::invalid(story.finish(format!("{who} read {value} of {key}, which nobody wrote")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        LongFork.check(&script::history("txn", text), &Budget::unlimited())
    }

    const GOOD: &str = r#"
        0-9 A txn - [["w",1,1]] -> [["w",1,1]]
        0-9 B txn - [["w",2,1]] -> [["w",2,1]]
        2-3 C txn - [["r",1,null],["r",2,null]] -> [["r",1,1],["r",2,null]]
        4-5 D txn - [["r",2,null],["r",1,null]] -> [["r",2,null],["r",1,1]]
        6-7 D txn - [["r",2,null],["r",1,null]] -> [["r",2,1],["r",1,1]]"#;

    #[test]
    fn opposite_orders_are_convicted() {
        let good = check(GOOD);
        assert_eq!(good.verdict, Verdict::Valid);
        assert_eq!(good.counted("groups"), Some(1));
        let fork = GOOD.replace(
            "-> [[\"r\",2,null],[\"r\",1,1]]",
            "-> [[\"r\",2,1],[\"r\",1,null]]",
        );
        let bad = check(&fork);
        assert_eq!(bad.verdict, Verdict::Invalid);
        assert_eq!(
            bad.counterexample.unwrap().summary,
            "C saw the write of 1 before that of 2, and D the other way round"
        );
        let other = check(&format!("param group_size 3\n{fork}"));
        assert_eq!(other.counted("other_reads"), Some(3));
        assert!(matches!(other.verdict, Verdict::Unknown(_)));
        // The functions of Jepsen's own histories.
        let named = |text: &str| {
            text.replace("txn - [[\"r\"", "read - [[\"r\"")
                .replace("txn", "write")
        };
        assert_eq!(check(&named(GOOD)).verdict, Verdict::Valid);
        assert_eq!(check(&named(&fork)).verdict, Verdict::Invalid);
    }

    #[test]
    fn what_nobody_wrote_is_convicted() {
        let bad = check(&GOOD.replace("-> [[\"r\",2,1]", "-> [[\"r\",2,7]"));
        assert_eq!(
            bad.counterexample.unwrap().summary,
            "D read 7 of 2, which nobody wrote"
        );
    }

    #[test]
    fn a_key_that_is_written_twice_leaves_it_open() {
        let twice = format!("{GOOD}\n20-21 A txn - [[\"w\",2,3]] -> [[\"w\",2,3]]");
        assert!(matches!(
            check(&twice).verdict,
            Verdict::Unknown(Reason::NotApplicable(_))
        ));
    }
}
