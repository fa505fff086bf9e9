//! `lost-writes`: what was acknowledged is there at the end.
//!
//! Speaks of sets (`add`) and registers (`write`, `cas`). Whether the nodes agree with each other
//! is the matter of `convergence`.

use history::{EventRef, History, NONE, Op, Outcome, ValueRef};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::elements;
use crate::ident::Ident;
use crate::params::{self, Param};
use crate::sets::Sets;
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// What was acknowledged is there at the end.
pub struct LostWrites;

impl Checker for LostWrites {
    fn name(&self) -> &'static str {
        "lost-writes"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["set"]
    }

    fn promise(&self) -> &'static str {
        "Every write that was acknowledged before a final read began is in it, on every node, and \
         nothing that nobody wrote."
    }

    fn method(&self) -> &'static str {
        "Sets: every acknowledged `add` must be in every `final-read` that began later, and every \
         element read must have been asked for; where nothing is called `final-read`, the last \
         `read` of the set stands for it. Registers: the value of a `final-read` must have \
         been written, by a write that was not certainly overwritten: none that happened began \
         after it was answered and was answered before the read began. O(n) per node for sets, \
         O(n log n) for registers. Source: the set test of Jepsen; SlateDB issue 352, Vault issue \
         23013."
    }

    fn params(&self) -> &'static [Param] {
        &[params::INITIAL]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("acknowledged", "writes that were acknowledged"),
            ("final_reads", "final reads that were answered"),
            (
                "lost",
                "acknowledged writes missing from every final read that should have them",
            ),
            (
                "lost_on_a_node",
                "acknowledged writes missing from some of them only",
            ),
            ("unexpected", "values read that nobody wrote"),
            (
                "recovered",
                "elements found whose add was never acknowledged",
            ),
            (
                "failed_yet_there",
                "elements found whose add was said to have failed",
            ),
            ("duplicates", "elements found more than once in one read"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let mut found = Found::default();
        let acknowledged = history
            .ops_of(&["add", "write", "cas"])
            .filter(|op| op.is_ok())
            .count();
        let tried = history.ops_of(&["add", "write", "cas"]).next().is_some();
        if !tried {
            return Checked::unknown(Reason::NotApplicable("nothing was written".to_owned()));
        }
        let reads = final_reads(history);
        if reads.is_empty() {
            return Checked::unknown(Reason::Coverage("there is no final read".to_owned()))
                .count("acknowledged", acknowledged as u64)
                .count("final_reads", 0);
        }
        check_sets(history, &reads, &mut found);
        check_registers(history, &reads, &mut found);
        let result = match &found.first {
            None => Checked::valid(),
            Some(loss) => tell(history, loss),
        };
        result
            .count("acknowledged", acknowledged as u64)
            .count("final_reads", reads.len() as u64)
            .count("lost", found.lost)
            .count("lost_on_a_node", found.lost_on_a_node)
            .count("unexpected", found.unexpected)
            .count("recovered", found.recovered)
            .count("failed_yet_there", found.failed_yet_there)
            .count("duplicates", found.duplicates)
    }
}

/// The final reads that were answered. Where none is called so, as in histories of Jepsen, the last
/// read of each set stands for it.
fn final_reads(history: &History) -> Vec<Op<'_>> {
    let named: Vec<Op<'_>> = history.ops_of(&["final-read"]).collect();
    if !named.is_empty() {
        return named.into_iter().filter(|op| op.is_ok()).collect();
    }
    let mut left: FxHashSet<Option<u32>> = history.ops_of(&["add"]).map(|op| op.key_id()).collect();
    let is_list = |op: &Op<'_>| op.output().is_some_and(|value| value.as_list().is_some());
    let mut last: Vec<Op<'_>> = Vec::new();
    for op in history.ops_of(&["read"]).rev().filter(is_list) {
        if left.is_empty() {
            break;
        }
        if left.remove(&op.key_id()) {
            last.push(op);
        }
    }
    last.reverse();
    last
}

/// A read that lacks a write, or has a value that nobody wrote.
struct Loss<'h> {
    read: EventRef<'h>,
    /// The answer to the write that is missing; `None` for an unexpected value.
    write: Option<EventRef<'h>>,
    /// What is missing or unexpected.
    value: ValueRef<'h>,
    /// What a register had instead.
    instead: Option<ValueRef<'h>>,
}

#[derive(Default)]
struct Found<'h> {
    /// The one that is told: of the earliest read, the earliest write.
    first: Option<Loss<'h>>,
    lost: u64,
    lost_on_a_node: u64,
    unexpected: u64,
    recovered: u64,
    failed_yet_there: u64,
    duplicates: u64,
}

impl<'h> Found<'h> {
    fn keep(&mut self, loss: Loss<'h>) {
        let place = |loss: &Loss<'h>| (loss.read.index(), loss.write.map(EventRef::index));
        if self
            .first
            .as_ref()
            .is_none_or(|first| place(&loss) < place(first))
        {
            self.first = Some(loss);
        }
    }
}

fn check_sets<'h>(history: &'h History, reads: &[Op<'h>], found: &mut Found<'h>) {
    let mut sets = Sets::of(history);
    // In how many reads each element was missing and in how many it should have been, and the
    // number of the last read, from 1, that had it.
    let mut missing: Vec<(u32, u32)> = vec![(0, 0); sets.len()];
    let mut seen: Vec<u32> = vec![0; sets.len()];
    for (number, &read) in (1u32..).zip(reads) {
        let key = read.key_id().unwrap_or(NONE);
        let items = read.output().and_then(ValueRef::as_list);
        let Some(items) = items.filter(|_| sets.elements(key).is_some()) else {
            continue;
        };
        let answer = read.completion.unwrap_or(read.invoke);
        for item in items {
            let element = sets.number(key, item);
            match sets[element].best {
                None => {
                    found.unexpected += 1;
                    found.keep(Loss {
                        read: answer,
                        write: None,
                        value: item,
                        instead: None,
                    });
                }
                Some(Outcome::Info) => found.recovered += 1,
                Some(Outcome::Fail) => found.failed_yet_there += 1,
                Some(Outcome::Ok) => {}
            }
            let last = elements::at(&mut seen, element);
            found.duplicates += u64::from(*last == number);
            *last = number;
        }
        for &element in sets.elements(key).unwrap_or(&[]) {
            let element = element as usize;
            let acknowledged = sets[element].acknowledged as usize;
            if acknowledged > read.invoke.index() {
                continue;
            }
            missing[element].1 += 1;
            if seen[element] != number {
                missing[element].0 += 1;
                let write = history.event(acknowledged);
                found.keep(Loss {
                    read: answer,
                    write: Some(write),
                    value: write.partner().unwrap_or(write).value(),
                    instead: None,
                });
            }
        }
    }
    for (missing, due) in missing {
        found.lost += u64::from(missing > 0 && missing == due);
        found.lost_on_a_node += u64::from(missing > 0 && missing < due);
    }
}

/// The writes of one register.
#[derive(Default, Clone)]
struct Writes {
    /// Whether there may have been one.
    any: bool,
    /// Per value that a final read has, the invocations that may have written it, in order; each with
    /// the last answer of it and those before.
    producers: FxHashMap<Ident, Vec<(u32, u32)>>,
    /// Writes that happened, by answer; each with the last invocation of it and those before.
    happened: Vec<(u32, u32)>,
}

/// By the place of the key.
fn writes_by_register(history: &History, reads: &[Op<'_>]) -> Vec<Writes> {
    let writes = || {
        let ops = history.ops_of(&["write", "cas"]);
        let ops = ops.filter(|op| op.outcome() != Outcome::Fail);
        ops.filter_map(|op| Some((op, written(op)?)))
    };
    let mut registers: Vec<Writes> = Vec::new();
    for (op, _) in writes() {
        elements::at(&mut registers, elements::place(op.key_id())).any = true;
    }
    let is_written = |key| {
        let writes = registers.get(elements::place(key));
        writes.is_some_and(|writes| writes.any)
    };
    let mut are_read: FxHashSet<Ident> = FxHashSet::default();
    for read in reads {
        let Some(answer) = read.output() else {
            continue;
        };
        if let Some(values) = answer.as_map().filter(|_| read.key_id().is_none()) {
            are_read.extend(values.map(|(_, value)| Ident::of(value)));
        } else if is_written(read.key_id()) {
            are_read.insert(Ident::of(answer));
        }
    }
    for (op, value) in writes() {
        let writes = &mut registers[elements::place(op.key_id())];
        let asked = number(op.invoke);
        let answered = op.end().and(op.completion).map_or(NONE, number);
        let value = Ident::of(value);
        if are_read.contains(&value) {
            let writers = writes.producers.entry(value).or_default();
            let last = writers.last().map_or(0, |&(_, last)| last);
            writers.push((asked, answered.max(last)));
        }
        if op.is_ok() {
            writes.happened.push((answered, asked));
        }
    }
    for writes in &mut registers {
        writes.happened.sort_unstable();
        let mut latest = 0;
        for (_, asked) in &mut writes.happened {
            latest = latest.max(*asked);
            *asked = latest;
        }
    }
    registers
}

fn number(event: EventRef<'_>) -> u32 {
    u32::try_from(event.index()).unwrap_or(NONE)
}

/// The value that a write leaves behind.
fn written(op: Op<'_>) -> Option<ValueRef<'_>> {
    if op.f() == "write" {
        return Some(op.input());
    }
    op.input().as_list()?.nth(1)
}

fn check_registers<'h>(history: &'h History, reads: &[Op<'h>], found: &mut Found<'h>) {
    let registers = writes_by_register(history, reads);
    let mut lost: FxHashSet<u32> = FxHashSet::default();
    let mut judge = |key: Option<u32>, read: Op<'h>, value: ValueRef<'h>| {
        let writes = registers.get(elements::place(key));
        if let Some(writes) = writes.filter(|writes| writes.any) {
            judge(history, writes, read, value, found, &mut lost);
        }
    };
    for &read in reads {
        let Some(answer) = read.output() else {
            continue;
        };
        if answer.as_map().is_some() && read.key_id().is_none() {
            for key in 0..history.key_count() as u32 {
                let name = words::value(history.key_value(key));
                if let Some(value) = answer.get(&name) {
                    judge(Some(key), read, value);
                }
            }
        } else {
            judge(read.key_id(), read, answer);
        }
    }
    found.lost += lost.len() as u64;
}

fn judge<'h>(
    history: &'h History,
    writes: &Writes,
    read: Op<'h>,
    value: ValueRef<'h>,
    found: &mut Found<'h>,
    lost: &mut FxHashSet<u32>,
) {
    let answer = read.completion.unwrap_or(read.invoke);
    let is_initial = match history.header.params.get("initial") {
        None => value.is_null(),
        Some(initial) => value.to_json() == *initial,
    };
    let writers = writes.producers.get(&Ident::of(value));
    let produced = writers.and_then(|writers| {
        let before = writers.partition_point(|&(asked, _)| asked < number(answer));
        Some(writers[before.checked_sub(1)?].1)
    });
    let Some(last_produced) = produced.or(is_initial.then_some(0)) else {
        found.unexpected += 1;
        found.keep(Loss {
            read: answer,
            write: None,
            value,
            instead: None,
        });
        return;
    };
    let before = writes
        .happened
        .partition_point(|&(answered, _)| answered < number(read.invoke));
    let overwritten = before.checked_sub(1).map(|at| writes.happened[at].1);
    let never_written = produced.is_none();
    if let Some(asked) = overwritten
        && (never_written || asked > last_produced)
    {
        let write = history.event(asked as usize).op();
        lost.insert(asked);
        found.keep(Loss {
            read: answer,
            write: write.completion,
            value: written(write).unwrap_or(write.input()),
            instead: Some(value),
        });
    }
}

fn tell(history: &History, loss: &Loss<'_>) -> Checked {
    let mut story = Story::default();
    let on = loss
        .read
        .node()
        .map_or_else(String::new, |node| format!(" on {node}"));
    let value = words::value(loss.value);
    let Some(write) = loss.write else {
        story.tell(loss.read, format!("the final read{on} has {value}"));
        return Checked::invalid(story.finish(format!(
            "the final read{on} has {value}, which nobody wrote"
        )));
    };
    let who = words::who(write);
    if let Some(asked) = write.partner() {
        story.tell(asked, format!("{who} asks to {} {value}", asked.f()));
    }
    story.tell(write, format!("it is acknowledged to {who}"));
    let (note, summary) = match loss.instead.map(words::value) {
        Some(instead) => (
            format!("the final read{on} returns {instead}"),
            format!(
                "{value} was acknowledged to {who}, and the final read{on} returned {instead}, which it had overwritten"
            ),
        ),
        None => (
            format!("the final read{on} lacks {value}"),
            format!("{value} was acknowledged to {who} and is missing from the final read{on}"),
        ),
    };
    story.tell(loss.read, note);
    story.tell_faults(history, 0..write.index());
    Checked::invalid(story.finish(summary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        LostWrites.check(&script::history("set", text), &Budget::unlimited())
    }

    const SET: &str = r#"
        0-1 A add - 1 -> 1
        2-3 B add - 2 -> 2
        4-5 B add - 3 -> fail refused
        6-7 B add - 4 -> info timeout
        10-11 R final-read - null -> [1,2,4] @n1
        12-13 R final-read - null -> [1,2] @n2"#;

    #[test]
    fn an_acknowledged_element_that_is_missing_is_convicted() {
        let good = check(SET);
        assert_eq!(good.verdict, Verdict::Valid);
        assert_eq!(good.counted("recovered"), Some(1));
        let bad = check(&SET.replace("[1,2] @n2", "[1] @n2"));
        assert_eq!(bad.verdict, Verdict::Invalid);
        assert_eq!(bad.counted("lost_on_a_node"), Some(1));
        assert_eq!(
            bad.counterexample.unwrap().summary,
            "2 was acknowledged to B and is missing from the final read on n2"
        );
        let gone = check(&SET.replace("1,2", "1"));
        assert_eq!(gone.counted("lost"), Some(1));
        let phantom = check(&SET.replace("[1,2] @n2", "[1,2,9] @n2"));
        assert_eq!(phantom.verdict, Verdict::Invalid);
        assert_eq!(phantom.counted("unexpected"), Some(1));
    }

    #[test]
    fn without_a_final_read_nothing_is_known() {
        let text = SET.split("10-11").next().unwrap();
        assert!(matches!(
            check(text).verdict,
            Verdict::Unknown(Reason::Coverage(_))
        ));
    }

    #[test]
    fn a_register_that_went_back_is_convicted() {
        let text = r#"
            0-1 A write x 1 -> 1
            2-3 B write x 2 -> 2
            10-11 R final-read x null -> 2 @n1
            12-13 R final-read x null -> 2 @n2"#;
        assert_eq!(check(text).verdict, Verdict::Valid);
        let bad = check(&text.replace("2 @n2", "1 @n2"));
        assert_eq!(bad.verdict, Verdict::Invalid);
        assert_eq!(bad.counted("lost"), Some(1));
        assert_eq!(
            check(&text.replace("2 @n2", "null @n2")).verdict,
            Verdict::Invalid
        );
        assert_eq!(
            check(&text.replace("2 @n2", "7 @n2")).counted("unexpected"),
            Some(1)
        );
        // A write that came after the read explains nothing.
        let later = text.replace("2 @n2", "1 @n2") + "\n20-21 C write x 1 -> info timeout";
        assert_eq!(check(&later).verdict, Verdict::Invalid);
        // Concurrent writes may end either way.
        assert_eq!(
            check(&text.replace("2-3", "0-3").replace("2 @n2", "1 @n2")).verdict,
            Verdict::Valid
        );
        let maps = text.replace("x null -> 2 @n", "- null -> {\"x\":2} @n");
        assert_eq!(check(&maps).verdict, Verdict::Valid);
        assert_eq!(
            check(&maps.replace("{\"x\":2} @n2", "{\"x\":1} @n2")).verdict,
            Verdict::Invalid
        );
    }
}
