//! The counterexample of a register: made small, and told in words.
//!
//! Operations are left out only where that keeps the meaning: whatever may have written the value
//! that a kept operation saw stays. A part that has no order then shows that the whole has none.

use history::{EventRef, History, Op};
use rustc_hash::FxHashMap;

use super::model::{Action, INITIAL, NEVER, Partition, RegisterOp, Val};
use super::{Decision, Failure, decide};
use crate::shrink::ddmin;
use crate::words::{self, ROWS_MAX, Story};
use crate::{Budget, Checked};

/// How many parts are tried to make a counterexample small.
const TESTS_MAX: usize = 2_000;
/// How many steps each of them may take.
const STEPS_MAX: u64 = 200_000;
/// How many operations before the failure are looked at first.
const WINDOW_FIRST: usize = 8;

/// Tells why a partition has no order.
pub(crate) fn tell(
    history: &History,
    partition: &Partition,
    failure: &Failure,
    budget: &Budget,
) -> Checked {
    let (cut, start) = match failure {
        Failure::Core(places) => (partition.clone(), places.clone()),
        Failure::At(place) => (cut_after(partition, *place), Vec::new()),
    };
    let parts = Parts::of(&cut);
    let mut fails = |places: &[usize]| {
        budget.spend(0).ok()?;
        let closed = parts.close(places);
        let part = parts.part(&closed);
        let limits = Budget::new(STEPS_MAX, Budget::DEFAULT_BYTES);
        matches!(decide(&part, &limits), Decision::Not(_)).then_some(closed)
    };
    let all = || (0..cut.ops.len()).collect::<Vec<_>>();
    let first = if start.is_empty() {
        last_that_fail(&cut, &mut fails).unwrap_or_else(all)
    } else {
        fails(&start).unwrap_or_else(all)
    };
    let small = if first.len() < 4 * WINDOW_FIRST * WINDOW_FIRST {
        ddmin(first, TESTS_MAX, fails)
    } else {
        first
    };
    let told = parts.complete(&small);
    let ops: Vec<(RegisterOp, bool)> = told
        .iter()
        .map(|place| (cut.ops[*place], small.contains(place)))
        .collect();
    write_down(history, partition, &ops)
}

/// What was known when the operation at this place returned: later operations are left out, those
/// that were open then are unanswered.
fn cut_after(partition: &Partition, place: usize) -> Partition {
    let end = partition.ops[place].ret;
    let known = partition.ops.iter().filter(|op| op.call < end);
    let ops = known.filter_map(|&op| {
        if op.ret <= end || op.ret == NEVER {
            return Some(op);
        }
        let changes = op.action.leaves().is_some();
        changes.then_some(RegisterOp { ret: NEVER, ..op })
    });
    Partition {
        key: partition.key,
        ops: ops.collect(),
    }
}

/// The shortest tail, of doubling length, that still fails.
fn last_that_fail(
    cut: &Partition,
    fails: &mut impl FnMut(&[usize]) -> Option<Vec<usize>>,
) -> Option<Vec<usize>> {
    let mut length = WINDOW_FIRST;
    while length < cut.ops.len() {
        let tail: Vec<usize> = (cut.ops.len() - length..cut.ops.len()).collect();
        if let Some(failing) = fails(&tail) {
            return Some(failing);
        }
        length *= 2;
    }
    None
}

/// Which operations may have written what others saw.
struct Parts<'p> {
    partition: &'p Partition,
    /// Places of those that change the value, by return, with their returns; for each value and
    /// for all of them.
    by_value: FxHashMap<Val, Vec<(u32, usize)>>,
    all: Vec<(u32, usize)>,
    /// Returns of those that certainly changed it, with the latest call so far.
    certain: Vec<(u32, u32)>,
}

impl<'p> Parts<'p> {
    fn of(partition: &'p Partition) -> Parts<'p> {
        let mut all: Vec<(u32, usize)> = Vec::new();
        let mut by_value: FxHashMap<Val, Vec<(u32, usize)>> = FxHashMap::default();
        for (place, op) in partition.ops.iter().enumerate() {
            if let Some(value) = op.action.leaves() {
                all.push((op.ret, place));
                by_value.entry(value).or_default().push((op.ret, place));
            }
        }
        all.sort_unstable();
        for places in by_value.values_mut() {
            places.sort_unstable();
        }
        let mut latest = 0;
        let answered = all.iter().take_while(|(ret, _)| *ret != NEVER);
        let certain = answered
            .map(|&(ret, place)| {
                latest = partition.ops[place].call.max(latest);
                (ret, latest)
            })
            .collect();
        Parts {
            partition,
            by_value,
            all,
            certain,
        }
    }

    /// The operations that may have been the last to change the value before this one. One that
    /// returned before another was called that certainly changed the value, and itself returned
    /// before this one was called, cannot have been.
    fn sources(&self, op: RegisterOp) -> impl Iterator<Item = usize> + '_ {
        let candidates: &[(u32, usize)] = match op.action {
            Action::Write(_) => &[],
            Action::NotValue(_) => &self.all,
            Action::Read(value) | Action::Cas(value, _) => {
                self.by_value.get(&value).map_or(&[], Vec::as_slice)
            }
        };
        let before = self.certain.partition_point(|&(ret, _)| ret < op.call);
        let since = before.checked_sub(1).map_or(0, |at| self.certain[at].1);
        let first = candidates.partition_point(|&(ret, _)| ret < since);
        candidates[first..]
            .iter()
            .map(|&(_, place)| place)
            .filter(move |&place| self.partition.ops[place].call < op.ret)
    }

    /// The same operations, and for each that saw a value which none of them can have written: the
    /// last that had written it, and one that certainly changed it afterwards. They prove nothing
    /// more, but without them it would look as if nobody had written that value.
    fn complete(&self, places: &[usize]) -> Vec<usize> {
        let mut all = places.to_vec();
        for &place in places {
            let op = self.partition.ops[place];
            let Some(value) = op.action.needs() else {
                continue;
            };
            if self.sources(op).next().is_some() {
                continue;
            }
            let writers = self.by_value.get(&value).map_or(&[][..], Vec::as_slice);
            let before = writers.partition_point(|&(ret, _)| ret < op.call);
            let Some(&(written, writer)) = before.checked_sub(1).map(|at| &writers[at]) else {
                continue;
            };
            let changes = |&&(ret, changer): &&(u32, usize)| {
                ret < op.call && self.partition.ops[changer].call > written
            };
            let between = self.all.iter().filter(changes).map(|&(_, changer)| changer);
            let plain =
                |&changer: &usize| matches!(self.partition.ops[changer].action, Action::Write(_));
            let changer = between
                .clone()
                .find(plain)
                .or_else(|| between.clone().next());
            all.push(writer);
            all.extend(changer);
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// These operations and all that they may have seen the effect of, sorted.
    fn close(&self, places: &[usize]) -> Vec<usize> {
        let mut kept = rustc_hash::FxHashSet::from_iter(places.iter().copied());
        let mut open: Vec<usize> = places.to_vec();
        while let Some(place) = open.pop() {
            for source in self.sources(self.partition.ops[place]) {
                if kept.insert(source) {
                    open.push(source);
                }
            }
        }
        let mut closed: Vec<usize> = kept.into_iter().collect();
        closed.sort_unstable();
        closed
    }

    fn part(&self, places: &[usize]) -> Partition {
        Partition {
            key: self.partition.key,
            ops: places
                .iter()
                .map(|&place| self.partition.ops[place])
                .collect(),
        }
    }
}

/// An operation with what it did, in words.
struct Told<'h> {
    op: RegisterOp,
    /// Whether it is part of the proof, and not only told so that the proof can be understood.
    proves: bool,
    of: Op<'h>,
    who: String,
    what: String,
}

impl<'h> Told<'h> {
    fn of(history: &'h History, op: RegisterOp, proves: bool) -> Told<'h> {
        let of = history.event(op.call as usize).op();
        let who = words::who(of.invoke);
        let argument = words::value(of.input());
        let what = match op.action {
            Action::Read(_) => format!("{} by {who}", of.f()),
            Action::Write(_) => format!("write of {argument} by {who}"),
            Action::Cas(..) | Action::NotValue(_) => format!("cas of {argument} by {who}"),
        };
        Told {
            op,
            proves,
            of,
            who,
            what,
        }
    }

    /// The value that a read returned.
    fn returned(&self) -> String {
        self.of.output().map_or_else(String::new, words::value)
    }

    fn event(&self) -> EventRef<'h> {
        match self.of.completion {
            Some(completion) if self.op.ret != NEVER => completion,
            _ => self.of.invoke,
        }
    }

    fn note(&self) -> String {
        let asked = words::at(self.of.start());
        let what = &self.what;
        if self.op.ret == NEVER {
            return format!(
                "{what} is asked for, and has no answer: it may take effect from here on, or never"
            );
        }
        match self.op.action {
            Action::Read(_) => format!("{what}, asked for at {asked}, returns {}", self.returned()),
            Action::Write(_) => format!("{what}, asked for at {asked}, is acknowledged"),
            Action::Cas(..) => format!("{what}, asked for at {asked}, succeeds"),
            Action::NotValue(_) => {
                format!("{what}, asked for at {asked}, fails: the value was another")
            }
        }
    }
}

fn write_down(history: &History, partition: &Partition, ops: &[(RegisterOp, bool)]) -> Checked {
    let told: Vec<Told<'_>> = ops
        .iter()
        .map(|&(op, proves)| Told::of(history, op, proves))
        .collect();
    let mut story = Story::default();
    // The last ones first, should there be more than fit.
    for one in told.iter().rev() {
        story.tell(one.event(), one.note());
    }
    let summary = format!("{}: {}", partition.name(history), summary(&told));
    let from = told
        .iter()
        .map(|one| one.of.invoke.index())
        .min()
        .unwrap_or(0);
    let to = told
        .iter()
        .map(|one| one.event().index())
        .max()
        .unwrap_or(0);
    story.tell_faults(history, from..to);
    let result = Checked::invalid(story.finish(summary));
    if told.len() > ROWS_MAX {
        result.note(format!(
            "of the {} operations that have no order together, the last {ROWS_MAX} are shown",
            told.len()
        ))
    } else {
        result
    }
}

/// What is wrong, in one sentence.
fn summary(told: &[Told<'_>]) -> String {
    let answered = told.iter().filter(|one| one.op.ret != NEVER);
    let mut readers: Vec<&Told<'_>> = answered
        .filter(|one| one.proves && one.op.action.needs().is_some())
        .collect();
    readers.sort_by_key(|one| std::cmp::Reverse(one.op.ret));
    readers
        .iter()
        .find_map(|reader| unwritten(told, reader))
        .or_else(|| readers.iter().find_map(|reader| overwritten(told, reader)))
        .or_else(|| went_back(&readers))
        .unwrap_or_else(|| {
            format!(
                "no order of these {} operations explains all their answers",
                told.len()
            )
        })
}

/// The value that it saw had not been written.
fn unwritten(told: &[Told<'_>], reader: &Told<'_>) -> Option<String> {
    let value = reader.op.action.needs()?;
    let mut writers = told
        .iter()
        .filter(|one| one.op.action.leaves() == Some(value))
        .peekable();
    if value == INITIAL {
        return None;
    }
    if writers.peek().is_none() {
        return Some(match reader.op.action {
            Action::Read(_) => format!(
                "{} returned {}, which nobody wrote",
                reader.what,
                reader.returned()
            ),
            _ => format!("{} succeeded on a value that nobody wrote", reader.what),
        });
    }
    let first = writers.min_by_key(|one| one.op.call)?;
    (first.op.call > reader.op.ret).then(|| {
        format!(
            "{} saw the value of the {} before that was asked for",
            reader.what, first.what
        )
    })
}

/// The value that it saw was certainly overwritten before it began.
fn overwritten(told: &[Told<'_>], reader: &Told<'_>) -> Option<String> {
    let value = reader.op.action.needs()?;
    let writers = told
        .iter()
        .filter(|one| one.op.action.leaves() == Some(value));
    let last = writers.map(|one| one.op.ret).max();
    let since = if value == INITIAL {
        last.or(Some(0))
    } else {
        last
    }?;
    let over = told.iter().find(|one| {
        let changes = one.op.action.leaves().is_some_and(|left| left != value);
        changes
            && one.op.ret < reader.op.call
            && (one.op.call > since || (value == INITIAL && since == 0))
    })?;
    let done = if matches!(over.op.action, Action::Write(_)) {
        "was acknowledged to"
    } else {
        "succeeded for"
    };
    let of_over = words::value(over.of.input());
    let f = over.of.f();
    Some(match reader.op.action {
        Action::Read(_) => format!(
            "{} began after {f} {of_over} {done} {}, and returned {}",
            reader.what,
            over.who,
            reader.returned()
        ),
        _ => format!(
            "{} began after {f} {of_over} {done} {}, and succeeded",
            reader.what, over.who
        ),
    })
}

/// A later read saw an older value than an earlier one.
fn went_back(readers: &[&Told<'_>]) -> Option<String> {
    let reads: Vec<&&Told<'_>> = readers
        .iter()
        .filter(|one| matches!(one.op.action, Action::Read(_)))
        .collect();
    let last = reads.first()?;
    let before = reads
        .iter()
        .find(|one| one.op.ret < last.op.call && one.op.action != last.op.action)?;
    Some(format!(
        "{} returned {} after {} had returned {}, and no order of the writes explains both",
        last.what,
        last.returned(),
        before.what,
        before.returned()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn partition() -> impl Strategy<Value = Partition> {
        let op = (0u32..5, 0u32..3, 0u32..3, 0u32..30, 1u32..12, 0u32..6);
        prop::collection::vec(op, 1..9).prop_map(|raw| {
            let mut ends: Vec<(u32, usize, bool)> = Vec::new();
            for (place, &(_, _, _, from, length, _)) in raw.iter().enumerate() {
                ends.push((from, place, false));
                ends.push((from + length, place, true));
            }
            ends.sort_unstable();
            let rank = |place: usize, returns: bool| {
                let at = ends
                    .iter()
                    .position(|end| (end.1, end.2) == (place, returns));
                u32::try_from(at.expect("each has both ends")).expect("few operations")
            };
            let ops = raw
                .iter()
                .enumerate()
                .map(|(place, &(pick, a, b, .., luck))| {
                    let action = match pick {
                        0 | 1 => Action::Read(a),
                        2 => Action::Write(a),
                        3 => Action::Cas(a, b),
                        _ => Action::NotValue(a),
                    };
                    let unanswered = luck == 0 && action.leaves().is_some();
                    RegisterOp {
                        action,
                        call: rank(place, false),
                        ret: if unanswered { NEVER } else { rank(place, true) },
                    }
                });
            let mut ops: Vec<RegisterOp> = ops.collect();
            ops.sort_by_key(|op| op.call);
            Partition { key: None, ops }
        })
    }

    fn has_order(partition: &Partition) -> bool {
        matches!(
            decide(partition, &Budget::unlimited()),
            Decision::Linearizable
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        /// What is left out can be left out: no part of a history that has an order has none.
        #[test]
        fn a_closed_part_of_what_has_an_order_has_one(partition in partition(), picks in any::<u16>()) {
            if !has_order(&partition) {
                return Ok(());
            }
            let parts = Parts::of(&partition);
            let places: Vec<usize> = (0..partition.ops.len()).filter(|at| picks >> at & 1 == 1).collect();
            prop_assert!(has_order(&parts.part(&parts.close(&places))));
        }

        /// Nor has what was known at any of its completions.
        #[test]
        fn a_beginning_of_what_has_an_order_has_one(partition in partition(), pick in any::<prop::sample::Index>()) {
            let place = pick.index(partition.ops.len());
            if has_order(&partition) && !partition.ops[place].is_unanswered() {
                prop_assert!(has_order(&cut_after(&partition, place)));
            }
        }
    }
}
