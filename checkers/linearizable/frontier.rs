//! Just-in-time linearization: the set of all that may be true, from completion to completion.
//!
//! A *configuration* is a value of the register, the pending operations that have taken effect
//! already (bits of a window of slots), and how many unanswered operations of each class were
//! used. Nothing is decided before an operation completes; then every configuration in which it
//! has not taken effect yet is carried on, through all orders of pending operations, until it
//! has. If no configuration is left, there is no order.
//!
//! Four things keep the set small, each by an exchange argument:
//! - a pending read takes effect at once in a configuration with its value;
//! - of pending operations with equal effect, the one that must return first goes first;
//! - unanswered operations of equal effect are one class with a count, and a configuration that
//!   used fewer of them makes one that used more superfluous;
//! - an unanswered operation takes effect only for the sake of another that needs the value it
//!   leaves, and is forgotten when no answer to come needs it.

use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::classes::Classes;
use super::configs::{Config, Mask, Set, Used, count_of, has, with, with_one_more, without};
use super::model::{Action, INITIAL, NEVER, Partition, RegisterOp, Val};
use super::{Decision, Failure};
use crate::{Budget, Exhausted};

/// How many configurations are carried on between two looks at the budget.
const STEPS_AT_ONCE: u64 = 1024;

/// Decides any partition.
pub(crate) fn decide(partition: &Partition, budget: &Budget) -> Decision {
    match partition.concurrency() {
        0..=64 => Search::<1>::new(partition, budget).run(),
        65..=128 => Search::<2>::new(partition, budget).run(),
        129..=512 => Search::<8>::new(partition, budget).run(),
        513..=4096 => Search::<64>::new(partition, budget).run(),
        _ => Decision::Exhausted {
            limit: Exhausted::Steps,
            decided: 0,
        },
    }
}

struct Search<'a, const W: usize> {
    partition: &'a Partition,
    budget: &'a Budget,
    /// The answered operation in each slot of the window.
    slots: Vec<Option<usize>>,
    slot_of: FxHashMap<usize, usize>,
    free: Vec<usize>,
    pending: Mask<W>,
    classes: Classes,
    /// How many pending operations and classes need each value.
    needed_now: FxHashMap<Val, u32>,
    /// How many pending operations need that the value is not another.
    pending_not: u32,
    /// The last completion of an operation that needs the value, directly or through unanswered
    /// cas.
    needed_until: FxHashMap<Val, u32>,
    /// Whether some operation says what the value is not; then any value may be of use.
    any_not: bool,
    frontier: Vec<Config<W>>,
    decided: usize,
    steps: u64,
}

impl<'a, const W: usize> Search<'a, W> {
    fn new(partition: &'a Partition, budget: &'a Budget) -> Search<'a, W> {
        Search {
            partition,
            budget,
            slots: Vec::new(),
            slot_of: FxHashMap::default(),
            free: Vec::new(),
            pending: [0; W],
            classes: Classes::default(),
            needed_now: FxHashMap::default(),
            pending_not: 0,
            needed_until: needed_until(partition),
            any_not: partition
                .ops
                .iter()
                .any(|op| matches!(op.action, Action::NotValue(_))),
            frontier: vec![Config {
                value: INITIAL,
                done: [0; W],
                used: Vec::new(),
            }],
            decided: 0,
            steps: 0,
        }
    }

    fn run(mut self) -> Decision {
        let ops = &self.partition.ops;
        let mut returns: Vec<(u32, usize)> = ops
            .iter()
            .enumerate()
            .filter(|(_, op)| op.ret != NEVER)
            .map(|(place, op)| (op.ret, place))
            .collect();
        returns.sort_unstable();
        let mut calls = ops.iter().enumerate().peekable();
        for (ret, place) in returns {
            while let Some((called, op)) = calls.next_if(|(_, op)| op.call < ret) {
                self.call(called, *op);
            }
            if let Err(limit) = self.complete(place) {
                return Decision::Exhausted {
                    limit,
                    decided: self.decided,
                };
            }
            if self.frontier.is_empty() {
                return Decision::Not(Failure::At(place));
            }
            self.decided += 1;
        }
        Decision::Linearizable
    }

    fn call(&mut self, place: usize, op: RegisterOp) {
        if op.ret == NEVER {
            self.call_unanswered(op);
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(place);
        self.slot_of.insert(place, slot);
        self.pending = with(self.pending, slot);
        self.need(op.action);
        if is_passive(op.action) {
            self.pending_not += u32::from(matches!(op.action, Action::NotValue(_)));
            for config in &mut self.frontier {
                if op.action.apply(config.value).is_some() {
                    config.done = with(config.done, slot);
                }
            }
        }
    }

    fn call_unanswered(&mut self, op: RegisterOp) {
        let Some(value) = op.action.leaves() else {
            return;
        };
        let until = if self.any_not {
            NEVER
        } else {
            self.needed_until.get(&value).copied().unwrap_or(0)
        };
        if until > op.call && self.classes.add(op.action, value, until) {
            self.need(op.action);
        }
    }

    fn need(&mut self, action: Action) {
        if let Some(value) = action.needs() {
            *self.needed_now.entry(value).or_insert(0) += 1;
        }
    }

    fn need_no_more(&mut self, action: Action) {
        if let Some(value) = action.needs()
            && let Some(count) = self.needed_now.get_mut(&value)
        {
            *count -= 1;
            if *count == 0 {
                self.needed_now.remove(&value);
            }
        }
    }

    /// Carries every configuration on until the operation at this place has taken effect.
    fn complete(&mut self, place: usize) -> Result<(), Exhausted> {
        let slot = self.slot_of.remove(&place).unwrap_or_default();
        if self.frontier.iter().all(|config| has(&config.done, slot)) {
            for config in &mut self.frontier {
                config.done = without(config.done, slot);
            }
            self.retire(place, slot);
            return Ok(());
        }
        let mut reached = Set::new();
        let mut seen = Set::new();
        let mut open: Vec<Config<W>> = Vec::new();
        for config in std::mem::take(&mut self.frontier) {
            take(config, slot, &mut reached, &mut seen, &mut open);
        }
        while let Some(config) = open.pop() {
            self.step(&reached, &seen)?;
            self.carry_on(&config, |next| {
                take(next, slot, &mut reached, &mut seen, &mut open);
            });
        }
        self.frontier = reached.into_configs();
        self.retire(place, slot);
        Ok(())
    }

    fn step(&mut self, reached: &Set<W>, seen: &Set<W>) -> Result<(), Exhausted> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_AT_ONCE) {
            self.budget.spend(STEPS_AT_ONCE)?;
            self.budget.hold(reached.bytes() + seen.bytes())?;
        }
        Ok(())
    }

    /// All configurations that one more operation leads to.
    fn carry_on(&self, config: &Config<W>, mut emit: impl FnMut(Config<W>)) {
        for slot in self.open_slots(&config.done) {
            let Some(op) = self.op(slot) else { continue };
            if is_passive(op.action) || self.another_goes_first(&config.done, slot, op) {
                continue;
            }
            if let Some(value) = op.action.apply(config.value) {
                emit(self.at_value(value, with(config.done, slot), config.used.clone()));
            }
        }
        let useful: Vec<u32> = if self.pending_not > 0 {
            self.classes.by_number.keys().copied().collect()
        } else {
            let needed = self.needed_now.keys();
            needed
                .flat_map(|value| self.classes.leaving(*value))
                .collect()
        };
        for number in useful {
            let class = &self.classes.by_number[&number];
            if count_of(&config.used, number) >= class.invoked {
                continue;
            }
            let next = class.action.apply(config.value);
            if let Some(value) = next.filter(|&value| value != config.value) {
                let used = with_one_more(&config.used, number);
                emit(self.at_value(value, config.done, used));
            }
        }
    }

    /// A configuration, with every pending read that its value answers taken into account.
    fn at_value(&self, value: Val, mut done: Mask<W>, used: Used) -> Config<W> {
        for slot in self.open_slots(&done) {
            if let Some(op) = self.op(slot)
                && is_passive(op.action)
                && op.action.apply(value).is_some()
            {
                done = with(done, slot);
            }
        }
        Config { value, done, used }
    }

    /// Whether another pending operation with the same effect must return before this one.
    fn another_goes_first(&self, done: &Mask<W>, slot: usize, op: RegisterOp) -> bool {
        self.open_slots(done).any(|other| {
            other != slot
                && self
                    .op(other)
                    .is_some_and(|other| other.action == op.action && other.ret < op.ret)
        })
    }

    fn op(&self, slot: usize) -> Option<RegisterOp> {
        self.slots[slot].map(|place| self.partition.ops[place])
    }

    /// The slots of pending operations that have not taken effect.
    fn open_slots(&self, done: &Mask<W>) -> impl Iterator<Item = usize> + use<W> {
        let mut open: Mask<W> = [0; W];
        for (word, bits) in open.iter_mut().enumerate() {
            *bits = self.pending[word] & !done[word];
        }
        open.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                if bits == 0 {
                    return None;
                }
                let slot = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                Some(slot)
            })
        })
    }

    /// Frees the slot of a completed operation and forgets classes that are of no more use.
    fn retire(&mut self, place: usize, slot: usize) {
        let op = self.partition.ops[place];
        self.slots[slot] = None;
        self.free.push(slot);
        self.pending = without(self.pending, slot);
        self.need_no_more(op.action);
        self.pending_not -= u32::from(matches!(op.action, Action::NotValue(_)));
        if !self.classes.by_number.is_empty() {
            self.forget_classes(op.ret);
        }
    }

    /// Drops the classes that no answer after this event may need, and what every configuration
    /// has used of the others.
    fn forget_classes(&mut self, event: u32) {
        let mut dropped = false;
        while let Some(action) = self.classes.pop_useless(event) {
            self.need_no_more(action);
            dropped = true;
        }
        if self.frontier.iter().all(|config| config.used.is_empty()) {
            return;
        }
        if dropped {
            let known = &self.classes.by_number;
            for config in &mut self.frontier {
                config.used.retain(|(number, _)| known.contains_key(number));
            }
        }
        let first = self.frontier[0].used.clone();
        let mut common = first;
        for config in &self.frontier {
            for (number, count) in &mut common {
                *count = (*count).min(count_of(&config.used, *number));
            }
            common.retain(|&(_, count)| count > 0);
        }
        for &(number, count) in &common {
            for config in &mut self.frontier {
                if let Ok(at) = config
                    .used
                    .binary_search_by_key(&number, |&(known, _)| known)
                {
                    config.used[at].1 -= count;
                    if config.used[at].1 == 0 {
                        config.used.remove(at);
                    }
                }
            }
            if let Some(action) = self.classes.use_up(number, count) {
                self.need_no_more(action);
            }
        }
        if dropped {
            let mut minimal = Set::new();
            for config in self.frontier.drain(..) {
                minimal.add(&config);
            }
            self.frontier = minimal.into_configs();
        }
    }
}

/// Files a configuration under those in which the completed operation has taken effect, or under
/// those that must be carried on.
fn take<const W: usize>(
    config: Config<W>,
    slot: usize,
    reached: &mut Set<W>,
    seen: &mut Set<W>,
    open: &mut Vec<Config<W>>,
) {
    if has(&config.done, slot) {
        reached.add(&Config {
            done: without(config.done, slot),
            ..config
        });
    } else if seen.add(&config) {
        open.push(config);
    }
}

/// Whether it only looks.
fn is_passive(action: Action) -> bool {
    action.leaves().is_none()
}

/// For each value the last completion of an operation that needs it: a read, a cas, or an
/// unanswered cas whose new value is needed.
fn needed_until(partition: &Partition) -> FxHashMap<Val, u32> {
    let mut until: FxHashMap<Val, u32> = FxHashMap::default();
    let mut links: FxHashMap<Val, Vec<Val>> = FxHashMap::default();
    for op in &partition.ops {
        match (op.action, op.ret) {
            (Action::Cas(old, new), NEVER) => links.entry(new).or_default().push(old),
            (action, ret) if ret != NEVER => {
                if let Some(value) = action.needs() {
                    let known = until.entry(value).or_insert(ret);
                    *known = ret.max(*known);
                }
            }
            _ => {}
        }
    }
    if links.is_empty() {
        return until;
    }
    // Latest first, so that each value gets its final number when it is first taken.
    let mut queue: BinaryHeap<(u32, Val)> =
        until.iter().map(|(&value, &ret)| (ret, value)).collect();
    while let Some((ret, value)) = queue.pop() {
        for old in links.remove(&value).unwrap_or_default() {
            let known = until.entry(old).or_insert(0);
            if *known < ret {
                *known = ret;
                queue.push((ret, old));
            }
        }
    }
    until
}
