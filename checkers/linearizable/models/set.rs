//! A set of values.

use std::sync::Arc;

use history::Header;

use super::append_log::known_order;
use super::{Asked, Effect, Model, NEVER, Numbers, Shortcut, Timed};
use crate::linearizable::order::{Clash, Stages};
use crate::linearizable::ranks;

/// A set of values.
pub struct Set;

impl Model for Set {
    const NAME: &'static str = "set";
    const ABOUT: &'static str = "A set. `add` and `remove` of a value, whether it is there or not; \
        `contains` of a value, which returns true or false; `read`, which returns all values.";
    const METHOD: &'static str = "Without `read`, each value by itself. Where nothing is removed: the \
        sets that were read must contain each other, and nothing may return before something \
        was called that must come before: O(n log n) in what was read, exact. Otherwise by search.";

    /// Sorted.
    type State = Arc<[u32]>;
    type Op = SetOp;

    fn of_header(_: &Header) -> Result<Set, String> {
        Ok(Set)
    }

    fn read(&self, asked: &Asked<'_>, numbers: &mut Numbers) -> Result<Option<SetOp>, String> {
        let op = match (asked.f, asked.output()) {
            ("add", _) => Some(SetOp::Add(numbers.of(asked.input))),
            ("remove", _) => Some(SetOp::Remove(numbers.of(asked.input))),
            ("contains", Some(answer)) => {
                let is = answer
                    .as_bool()
                    .ok_or("its result is neither true nor false")?;
                Some(SetOp::Contains(numbers.of(asked.input), is))
            }
            ("read", Some(answer)) => {
                let items = answer.as_list().ok_or("its result is no list")?;
                let mut items: Vec<u32> = items.map(|item| numbers.of(item)).collect();
                ranks::sort_distinct(&mut items);
                Some(SetOp::Read(items.into()))
            }
            ("contains" | "read", None) => None,
            _ => return asked.unknown("`add`, `remove`, `contains` and `read`"),
        };
        Ok(op.filter(|_| !asked.failed()))
    }

    fn initial(&self) -> Self::State {
        Arc::default()
    }

    fn effect(&self, op: &SetOp) -> Effect<Self::State> {
        match op {
            SetOp::Add(_) | SetOp::Remove(_) => Effect::Any,
            SetOp::Contains(..) => Effect::Passive,
            SetOp::Read(all) => Effect::Observes(all.clone()),
        }
    }

    fn step(&self, state: &Self::State, op: &SetOp) -> Option<Self::State> {
        let find = |value: &u32| state.binary_search(value);
        match op {
            SetOp::Add(value) => Some(match find(value) {
                Ok(_) => state.clone(),
                Err(at) => [&state[..at], &[*value], &state[at..]].concat().into(),
            }),
            SetOp::Remove(value) => Some(match find(value) {
                Ok(at) => [&state[..at], &state[at + 1..]].concat().into(),
                Err(_) => state.clone(),
            }),
            SetOp::Contains(value, is) => (find(value).is_ok() == *is).then(|| state.clone()),
            SetOp::Read(all) => (all == state).then(|| state.clone()),
        }
    }

    fn part(&self, op: &SetOp) -> Option<u32> {
        match op {
            SetOp::Add(value) | SetOp::Remove(value) | SetOp::Contains(value, _) => Some(*value),
            SetOp::Read(_) => None,
        }
    }

    fn shortcut(&self, ops: &[Timed<SetOp>]) -> Shortcut {
        let (mut asks, mut reads) = (false, false);
        for timed in ops {
            match timed.op {
                SetOp::Add(_) => {}
                SetOp::Remove(_) => return Shortcut::None,
                SetOp::Contains(..) => asks = true,
                SetOp::Read(_) => reads = true,
            }
        }
        match (asks, reads) {
            (false, _) => growing(ops),
            (true, false)
                if ops
                    .iter()
                    .all(|timed| self.part(&timed.op) == self.part(&ops[0].op)) =>
            {
                growing(ops)
            }
            _ => Shortcut::None,
        }
    }
}

/// What is done with a set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SetOp {
    /// Puts this in, if it is not there.
    Add(u32),
    /// Takes this out, if it is there.
    Remove(u32),
    /// Whether this is in it.
    Contains(u32, bool),
    /// All that is in it.
    Read(Arc<[u32]>),
}

/// Decides a set from which nothing is removed. A value that was asked for is a set of that value or
/// of none.
fn growing(ops: &[Timed<SetOp>]) -> Shortcut {
    let mut reads: Vec<(&[u32], usize)> = Vec::new();
    for (place, timed) in ops.iter().enumerate() {
        match &timed.op {
            SetOp::Read(all) => reads.push((all, place)),
            SetOp::Contains(value, true) => reads.push((std::slice::from_ref(value), place)),
            SetOp::Contains(_, false) => reads.push((&[], place)),
            SetOp::Add(_) | SetOp::Remove(_) => {}
        }
    }
    reads.sort_by_key(|(all, _)| all.len());
    let most = reads.iter().filter_map(|(all, _)| all.last()).max();
    let mut values = vec![Seen::default(); most.map_or(0, |&most| most as usize + 1)];
    let mut levels = Vec::with_capacity(reads.len());
    let mut level = 0;
    let mut before: &[u32] = &[];
    for (at, &(all, place)) in reads.iter().enumerate() {
        if at == 0 || all != before {
            level += 1;
            let mut new = 0;
            for value in missing(all, before) {
                values[value as usize].level = level;
                new += 1;
            }
            if new + before.len() != all.len() {
                return Shortcut::no_order(vec![place, reads[at - 1].1], |told| {
                    format!(
                        "neither of {} and {} returned all that the other did",
                        told[0], told[1]
                    )
                });
            }
            before = all;
        }
        levels.push(level);
    }
    let mut stages = Stages::new(ops, 2 * level as usize + 3);
    for (&(_, place), level) in reads.iter().zip(levels) {
        stages.put(2 * level + 1, rank(place));
    }
    let mut again: Vec<(u32, usize)> = Vec::new();
    for (place, timed) in ops.iter().enumerate() {
        let SetOp::Add(value) = &timed.op else {
            continue;
        };
        match values
            .get_mut(*value as usize)
            .filter(|seen| seen.level > 0)
        {
            Some(seen) if seen.is_added => again.push((2 * seen.level, place)),
            Some(seen) => {
                seen.is_added = true;
                stages.put(2 * seen.level, rank(place));
            }
            None if timed.ret == NEVER => {}
            None => stages.put(2 * level + 2, rank(place)),
        }
    }
    let added = |&value: &u32| values[value as usize].is_added;
    if let Some((_, reader)) = reads.iter().find(|(all, _)| !all.iter().all(added)) {
        return Shortcut::no_order(vec![*reader], |told| {
            format!("{} returned a value that nobody added", told[0])
        });
    }
    let clash = stages.clash().or_else(|| added_again(&stages, &again));
    let Some(clash) = clash else {
        return Shortcut::Order;
    };
    // Of two adds, one set tells which was first.
    let between = match clash {
        Clash::Stages(_, earlier) => stages.first_of(earlier.stage + 1),
        Clash::Blocks(_) => None,
    };
    known_order(clash, between)
}

/// What is known of a value in a set that grows.
#[derive(Clone, Default)]
struct Seen {
    /// The first set in which it was, counted from 1; 0 for none.
    level: u32,
    /// Whether its first add was seen.
    is_added: bool,
}

fn rank(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(NEVER)
}

/// The values of a sorted list that are not in another.
fn missing<'l>(all: &'l [u32], before: &'l [u32]) -> impl Iterator<Item = u32> + 'l {
    let mut known = before.iter().peekable();
    all.iter().copied().filter(move |value| {
        while known.next_if(|&known| known < value).is_some() {}
        known.next_if(|&known| known == value).is_none()
    })
}

/// A value may be added again at any time, but not before what was read without it.
fn added_again(stages: &Stages<'_, SetOp>, again: &[(u32, usize)]) -> Option<Clash> {
    if again.is_empty() {
        return None;
    }
    let before = stages.last_before();
    again.iter().find_map(|&(stage, place)| {
        let add = stages.placed(stage, place);
        let last = before[stage as usize]?;
        (add.ret < last.call).then_some(Clash::Stages(add, last))
    })
}
