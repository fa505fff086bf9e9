//! `set-full`: what was once in a set stays in it, looked at element by element.
//!
//! `lost-writes` looks at the final reads alone; here every read counts.

use std::collections::BTreeMap;

use history::{EventRef, History, NONE, Op, Outcome, ValueRef};
use rustc_hash::FxHashMap;

use crate::elements::at;
use crate::params::{self, Param, Takes};
use crate::sets::Sets;
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

const READS: &[&str] = &["read", "final-read"];

/// What is to be said of reads that lack an element and are followed by one that has it.
const STALE_READS: Param = Param {
    name: "stale_reads",
    takes: Takes::Word(&["allowed", "violation"]),
    default: "allowed",
    about: "whether a read may lack an element that a later read has",
};

/// What was once in a set stays in it.
pub struct SetFull;

impl Checker for SetFull {
    fn name(&self) -> &'static str {
        "set-full"
    }

    fn promise(&self) -> &'static str {
        "An element whose add was acknowledged, or that was read, does not disappear from later \
         reads, and what was acknowledged is in the final reads of all nodes. No read has an \
         element twice, or one that nobody asked to add."
    }

    fn method(&self) -> &'static str {
        "An element is known since its add was first acknowledged or a read that has it was first \
         answered. It is lost if a read that began later lacks it and every read that has it was \
         answered before that one began; it is stale if a read that began later lacks it and \
         it is not lost; stable if a read has it and it is not lost; never read if no read that \
         began after it was known was answered. \
         Of the last `final-read` of each node it is said which of the acknowledged elements it \
         lacks, in the order of their acknowledgements: those before all that it has (prefix), \
         after all that it has (postfix; all of them if it has none), or between (middle). \
         O(n) in what was read, O(n log n) per node. Source: the checker `set-full` of Jepsen; its \
         test of NATS JetStream for prefix, middle and postfix."
    }

    fn params(&self) -> &'static [Param] {
        &[STALE_READS, params::FAILS]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("acknowledged", "elements whose add was acknowledged"),
            ("reads", "reads that were answered"),
            ("stable", "elements that are there in the end"),
            ("stale", "of these, elements that a read lacked"),
            ("lost", "elements that disappeared"),
            (
                "lost_on_a_node",
                "elements missing from a final read, but in a later read",
            ),
            (
                "never_read",
                "acknowledged elements of which no read says anything",
            ),
            (
                "recovered",
                "elements read whose add was never acknowledged",
            ),
            ("duplicated", "elements found more than once in one read"),
            ("unexpected", "elements read that nobody asked to add"),
            (
                "stale_ms_max",
                "longest time from when an element was known to the beginning of a read that lacks it and is not the end of it",
            ),
            ("lost_prefix:NODE", "elements missing before all others"),
            ("lost_middle:NODE", "elements missing among others"),
            ("lost_postfix:NODE", "elements missing after all others"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        if history.ops_of(&["remove"]).next().is_some() {
            let why = "elements are removed, too".to_owned();
            return Checked::unknown(Reason::NotApplicable(why));
        }
        let mut sets = Sets::of(history);
        if sets.len() == 0 {
            return Checked::unknown(Reason::NotApplicable("nothing was added".to_owned()));
        }
        let reads = Reads::of(history, &mut sets);
        let mut found = Found::default();
        found.judge(history, &sets, &reads);
        let by_node = found.judge_final_reads(&mut sets, &reads);
        let is_strict = STALE_READS.word(&history.header) == "violation";
        let result = found.verdict(history, &reads, is_strict);
        let mut result = result
            .count("acknowledged", found.acknowledged)
            .count("reads", reads.all.len() as u64)
            .count("stable", found.stable)
            .count("stale", found.stale)
            .count("lost", found.lost)
            .count("lost_on_a_node", found.lost_on_a_node)
            .count("never_read", found.never_read)
            .count("recovered", found.recovered)
            .count("duplicated", reads.duplicated)
            .count("unexpected", reads.unexpected)
            .count("stale_ms_max", words::ms(found.stale_max));
        for (node, [prefix, middle, postfix]) in by_node {
            result = result
                .count(&format!("lost_prefix:{node}"), prefix)
                .count(&format!("lost_middle:{node}"), middle)
                .count(&format!("lost_postfix:{node}"), postfix);
        }
        result
    }
}

/// What the reads say of one element.
#[derive(Clone, Copy)]
struct Seen {
    /// The answers of the first and of the last read to be answered that has it.
    first: u32,
    last: u32,
    /// So many of the last reads of the set have it.
    tail: u32,
    /// The number of the last read that was looked at and has it, from 1.
    stamp: u32,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            first: NONE,
            last: 0,
            tail: 0,
            stamp: 0,
        }
    }
}

/// What must not be in a read.
struct Strange<'h> {
    read: EventRef<'h>,
    value: String,
    is_twice: bool,
}

/// The reads of sets.
struct Reads<'h> {
    all: Vec<Op<'h>>,
    /// The reads of each set, in the order in which they began.
    of_set: FxHashMap<u32, Vec<u32>>,
    /// By element.
    seen: Vec<Seen>,
    duplicated: u64,
    unexpected: u64,
    strange: Option<Strange<'h>>,
}

impl<'h> Reads<'h> {
    fn of(history: &'h History, sets: &mut Sets) -> Reads<'h> {
        let is_read = |op: &Op<'_>| {
            let is_list = op.output().is_some_and(|value| value.as_list().is_some());
            is_list && sets.elements(op.key_id().unwrap_or(NONE)).is_some()
        };
        let all: Vec<Op<'h>> = history.ops_of(READS).filter(is_read).collect();
        let mut reads = Reads {
            seen: vec![Seen::default(); sets.len()],
            of_set: FxHashMap::default(),
            duplicated: 0,
            unexpected: 0,
            strange: None,
            all,
        };
        let fails = params::FAILS.word(&history.header) == "certain";
        for at in (0..reads.all.len()).rev() {
            let op = reads.all[at];
            let key = op.key_id().unwrap_or(NONE);
            let of_set = reads.of_set.entry(key).or_default();
            let later = of_set.len() as u32;
            of_set.push(at as u32);
            reads.look(sets, op, later, at as u32 + 1, fails);
        }
        for of_set in reads.of_set.values_mut() {
            of_set.reverse();
        }
        reads
    }

    /// Looks at a read, after `later` others of the same set that began after it.
    fn look(&mut self, sets: &mut Sets, op: Op<'h>, later: u32, stamp: u32, fails: bool) {
        let key = op.key_id().unwrap_or(NONE);
        let read = op.completion.unwrap_or(op.invoke);
        let answered = read.index() as u32;
        for item in op
            .output()
            .and_then(ValueRef::as_list)
            .into_iter()
            .flatten()
        {
            let element = sets.number(key, item);
            let seen = at(&mut self.seen, element);
            let is_twice = seen.stamp == stamp;
            if !is_twice {
                seen.first = seen.first.min(answered);
                seen.last = seen.last.max(answered);
                seen.tail += u32::from(seen.tail == later);
                seen.stamp = stamp;
            }
            let adds = &sets[element];
            let is_expected = match adds.best {
                None => false,
                Some(Outcome::Fail) if fails => false,
                Some(_) => adds.asked < answered,
            };
            self.duplicated += u64::from(is_twice);
            self.unexpected += u64::from(!is_expected && !is_twice);
            if is_twice || !is_expected {
                // Reads are looked at from the last to the first, and the first is told.
                self.strange = Some(Strange {
                    read,
                    value: words::value(item),
                    is_twice,
                });
            }
        }
    }

    /// The last read of the set to begin that lacks the element.
    fn last_absent(&self, key: u32, element: usize) -> Option<Op<'h>> {
        let of_set = self.of_set.get(&key)?;
        let tail = self.seen.get(element).map_or(0, |seen| seen.tail as usize);
        let place = of_set.len().checked_sub(tail + 1)?;
        Some(self.all[of_set[place] as usize])
    }
}

/// An element that a read should have and has not.
#[derive(Clone, Copy)]
struct Missing<'h> {
    element: usize,
    /// The event since which it is known.
    known: usize,
    read: Op<'h>,
}

#[derive(Default)]
struct Found<'h> {
    acknowledged: u64,
    stable: u64,
    stale: u64,
    lost: u64,
    lost_on_a_node: u64,
    never_read: u64,
    recovered: u64,
    stale_max: u64,
    /// By element.
    is_lost: Vec<bool>,
    first_lost: Option<Missing<'h>>,
    first_stale: Option<Missing<'h>>,
}

/// Keeps the one of which the read began first, and of those the one that was known first.
fn keep<'h>(first: &mut Option<Missing<'h>>, missing: Missing<'h>) {
    let place = |missing: &Missing<'_>| (missing.read.invoke.index(), missing.known);
    if first
        .as_ref()
        .is_none_or(|first| place(&missing) < place(first))
    {
        *first = Some(missing);
    }
}

impl<'h> Found<'h> {
    fn judge(&mut self, history: &'h History, sets: &Sets, reads: &Reads<'h>) {
        for key in sets.keys() {
            for &element in sets.elements(key).unwrap_or(&[]) {
                self.judge_element(history, sets, reads, key, element as usize);
            }
        }
    }

    fn judge_element(
        &mut self,
        history: &'h History,
        sets: &Sets,
        reads: &Reads<'h>,
        key: u32,
        element: usize,
    ) {
        let acknowledged = sets[element].acknowledged;
        let seen = reads.seen.get(element).copied().unwrap_or_default();
        let known = acknowledged.min(seen.first);
        self.acknowledged += u64::from(acknowledged != NONE);
        self.recovered += u64::from(acknowledged == NONE && seen.first != NONE);
        if known == NONE {
            return;
        }
        let known = known as usize;
        let absent = reads.last_absent(key, element);
        let Some(read) = absent.filter(|read| read.invoke.index() > known) else {
            match seen.first {
                NONE => self.never_read += 1,
                _ => self.stable += 1,
            }
            return;
        };
        let missing = Missing {
            element,
            known,
            read,
        };
        if seen.first == NONE || (seen.last as usize) < read.invoke.index() {
            self.lost += 1;
            *at(&mut self.is_lost, element) = true;
            keep(&mut self.first_lost, missing);
        } else {
            self.stable += 1;
            self.stale += 1;
            let since = history.event(known).time();
            self.stale_max = self.stale_max.max(read.start().saturating_sub(since));
            keep(&mut self.first_stale, missing);
        }
    }

    /// Looks for what the last final read of each node lacks, and counts it by node: before, among
    /// and after what is there.
    fn judge_final_reads(
        &mut self,
        sets: &mut Sets,
        reads: &Reads<'h>,
    ) -> BTreeMap<&'h str, [u64; 3]> {
        let mut last: BTreeMap<(&str, u32), Op<'h>> = BTreeMap::new();
        for &op in reads.all.iter().filter(|op| op.f() == "final-read") {
            if let Some(node) = op.node() {
                last.insert((node, op.key_id().unwrap_or(NONE)), op);
            }
        }
        let mut by_node: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
        let mut present: Vec<u32> = Vec::new();
        let mut is_missing: Vec<bool> = Vec::new();
        for (number, ((node, key), read)) in (1u32..).zip(last) {
            for item in read
                .output()
                .and_then(ValueRef::as_list)
                .into_iter()
                .flatten()
            {
                *at(&mut present, sets.number(key, item)) = number;
            }
            let asked = read.invoke.index();
            let mut due: Vec<(u32, u32)> = Vec::new();
            for &element in sets.elements(key).unwrap_or(&[]) {
                let acknowledged = sets[element as usize].acknowledged;
                if (acknowledged as usize) < asked {
                    due.push((acknowledged, element));
                }
            }
            due.sort_unstable();
            let is_here = |element: u32| present.get(element as usize) == Some(&number);
            let first = due.iter().position(|&(_, element)| is_here(element));
            let end = due.iter().rposition(|&(_, element)| is_here(element));
            let parts = by_node.entry(node).or_default();
            for (place, &(known, element)) in due.iter().enumerate() {
                if is_here(element) {
                    continue;
                }
                let part = match (first, end) {
                    (Some(first), _) if place < first => 0,
                    (_, Some(end)) if place < end => 1,
                    _ => 2,
                };
                parts[part] += 1;
                let missing = Missing {
                    element: element as usize,
                    known: known as usize,
                    read,
                };
                keep(&mut self.first_lost, missing);
                *at(&mut is_missing, element as usize) = true;
            }
        }
        let missing = is_missing.iter().enumerate().filter(|&(_, &is)| is);
        let on_a_node =
            missing.filter(|&(element, _)| !self.is_lost.get(element).is_some_and(|&is| is));
        self.lost_on_a_node = on_a_node.count() as u64;
        by_node
    }

    fn verdict(&self, history: &History, reads: &Reads<'h>, is_strict: bool) -> Checked {
        if let Some(missing) = &self.first_lost {
            return missing.tell(history, reads, true);
        }
        if let Some(strange) = &reads.strange {
            return strange.tell(history);
        }
        if let Some(missing) = self.first_stale.as_ref().filter(|_| is_strict) {
            return missing.tell(history, reads, false);
        }
        if self.stable == 0 {
            let why = "no read has an element that was added";
            return Checked::unknown(Reason::Coverage(why.to_owned()));
        }
        Checked::valid()
    }
}

impl Strange<'_> {
    fn tell(&self, history: &History) -> Checked {
        let mut story = Story::default();
        let (who, value) = (words::who(self.read), &self.value);
        let what = match self.is_twice {
            true => format!("{value} twice"),
            false => format!("{value}, which nobody had added"),
        };
        story.tell(self.read, format!("the read by {who} has {what}"));
        story.tell_faults(history, 0..self.read.index());
        Checked::invalid(story.finish(format!("the read by {who} has {what}")))
    }
}

impl Missing<'_> {
    fn tell(&self, history: &History, reads: &Reads<'_>, is_lost: bool) -> Checked {
        let mut story = Story::default();
        let known = history.event(self.known);
        let answer = self.read.completion.unwrap_or(self.read.invoke);
        let (who, reader) = (words::who(known), words::who(answer));
        let mut value = None;
        if known.f() == "add" {
            let asked = known.partner().unwrap_or(known);
            value = Some(words::value(asked.value()));
            story.tell(
                asked,
                format!("{who} asks to add {}", words::value(asked.value())),
            );
            story.tell(known, format!("it is acknowledged to {who}"));
        }
        let value = value.unwrap_or_else(|| self.name(history));
        let seen = reads.seen.get(self.element).copied().unwrap_or_default();
        if known.f() != "add" {
            story.tell(known, format!("the read by {who} has {value}"));
        }
        if seen.first != NONE {
            let last = history.event(seen.last as usize);
            let reader = words::who(last);
            story.tell(last, format!("the last read that has {value}, by {reader}"));
        }
        let on = self
            .read
            .node()
            .map_or_else(String::new, |node| format!(" on {node}"));
        let lacks = format!("the read by {reader}{on} lacks {value}");
        story.tell(
            self.read.invoke,
            format!("{reader} asks for all elements{on}"),
        );
        story.tell(answer, lacks);
        story.tell_faults_within(history);
        let how = match known.f() {
            "add" => format!("{value} was acknowledged to {who}"),
            _ => format!("{value} was read by {who}"),
        };
        let fate = match is_lost {
            true => "is missing from",
            false => "is not yet in",
        };
        Checked::invalid(story.finish(format!("{how} and {fate} the later read by {reader}{on}")))
    }

    /// The value of the element, in words: it was never acknowledged.
    fn name(&self, history: &History) -> String {
        let mut sets = Sets::of(history);
        let adds = history.ops_of(&["add"]);
        let mut adds =
            adds.filter(|op| sets.number(op.key_id().unwrap_or(NONE), op.input()) == self.element);
        let add = adds.next();
        add.map_or_else(String::new, |op| words::value(op.input()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        SetFull.check(&script::history("set", text), &Budget::unlimited())
    }

    const GOOD: &str = r#"
        0-1 A add - 1 -> 1
        2-3 A add - 2 -> info timeout
        4-5 B read - null -> [1]
        6-7 B read - null -> [2,1]
        8-9 A add - 3 -> 3"#;

    #[test]
    fn an_element_that_disappears_is_convicted() {
        let good = check(GOOD);
        assert_eq!(good.verdict, Verdict::Valid);
        for (name, number) in [
            ("stable", 2),
            ("never_read", 1),
            ("recovered", 1),
            ("stale", 0),
        ] {
            assert_eq!(good.counted(name), Some(number), "{name}");
        }
        let bad = check(&format!("{GOOD}\n10-11 C read - null -> [3,1]"));
        assert_eq!(bad.counted("lost"), Some(1));
        assert_eq!(
            bad.counterexample.unwrap().summary,
            "2 was read by B and is missing from the later read by C"
        );
        // The read that lacks it may have been the earlier one.
        let beside = check(&format!("{GOOD}\n6-11 C read - null -> [1]"));
        assert_eq!(beside.verdict, Verdict::Valid);
    }

    #[test]
    fn a_stale_read_is_convicted_where_none_is_allowed() {
        let stale = GOOD.replace("-> [1]\n", "-> []\n");
        let found = check(&stale);
        assert_eq!(found.verdict, Verdict::Valid);
        assert_eq!(found.counted("stale"), Some(1));
        assert_eq!(found.counted("stale_ms_max"), Some(3));
        let strict = check(&format!("param stale_reads \"violation\"\n{stale}"));
        assert_eq!(
            strict.counterexample.unwrap().summary,
            "1 was acknowledged to A and is not yet in the later read by B"
        );
    }

    #[test]
    fn what_is_twice_or_nobodys_is_convicted() {
        for (items, count) in [
            ("[2,1,2]", "duplicated"),
            ("[2,1,9]", "unexpected"),
            ("[2,1,3]", "unexpected"),
        ] {
            let bad = check(&GOOD.replace("[2,1]", items));
            assert_eq!(bad.verdict, Verdict::Invalid, "{items}");
            assert_eq!(bad.counted(count), Some(1), "{items}");
        }
        let failed = GOOD.replace("info timeout", "fail full");
        assert_eq!(check(&failed).verdict, Verdict::Invalid);
        let uncertain = check(&format!("param fails \"uncertain\"\n{failed}"));
        assert_eq!(uncertain.verdict, Verdict::Valid);
    }

    #[test]
    fn what_a_node_lacks_is_told_apart() {
        let text = r#"
            0-1 A add - 1 -> 1
            2-3 A add - 2 -> 2
            4-5 A add - 3 -> 3
            6-7 A add - 4 -> 4
            8-9 R final-read - null -> [2,4] @n1
            8-9 S final-read - null -> [1] @n2
            10-11 R final-read - null -> [1,2,3,4] @n3"#;
        let found = check(text);
        assert_eq!(found.verdict, Verdict::Invalid);
        for (name, number) in [
            ("lost", 0),
            ("lost_on_a_node", 4),
            ("lost_prefix:n1", 1),
            ("lost_middle:n1", 1),
            ("lost_postfix:n1", 0),
            ("lost_postfix:n2", 3),
            ("lost_postfix:n3", 0),
        ] {
            assert_eq!(found.counted(name), Some(number), "{name}");
        }
    }
}
