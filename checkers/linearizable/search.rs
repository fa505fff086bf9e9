//! Just-in-time linearization for any model; see `frontier` for the ideas. States and operations are
//! small numbers here, each step is taken once and remembered.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::configs::{Config, Mask, Set, count_of, has, with, with_one_more, without};
use super::models::{Model, NEVER, Timed};
use crate::{Budget, Exhausted};

/// How many configurations are carried on between two looks at the budget.
const STEPS_AT_ONCE: u64 = 1024;

/// What a search found.
pub(crate) enum Found {
    Order,
    At(usize),
    Exhausted { limit: Exhausted, decided: usize },
}

/// Searches for an order. `ops` are sorted by their calls.
pub(crate) fn decide<M: Model>(model: &M, ops: &[Timed<M::Op>], budget: &Budget) -> Found {
    match concurrency(ops) {
        0..=64 => Search::<M, 1>::new(model, ops, budget).run(),
        65..=512 => Search::<M, 8>::new(model, ops, budget).run(),
        513..=4096 => Search::<M, 64>::new(model, ops, budget).run(),
        _ => Found::Exhausted {
            limit: Exhausted::Steps,
            decided: 0,
        },
    }
}

/// The most answered operations that are open at once.
pub(crate) fn concurrency<O>(ops: &[Timed<O>]) -> usize {
    let answered = || ops.iter().filter(|timed| timed.ret != NEVER);
    let mut ends: Vec<u32> = answered().map(|timed| timed.ret).collect();
    ends.sort_unstable();
    let (mut ended, mut most) = (0, 0usize);
    for (opened, timed) in answered().enumerate() {
        while ends[ended] < timed.call {
            ended += 1;
        }
        most = most.max(opened + 1 - ended);
    }
    most
}

/// Things as numbers, in order of first use.
struct Interned<T> {
    all: Vec<T>,
    numbers: FxHashMap<T, u32>,
}

impl<T: Clone + Eq + Hash> Interned<T> {
    fn new() -> Interned<T> {
        Interned {
            all: Vec::new(),
            numbers: FxHashMap::default(),
        }
    }

    fn number(&mut self, thing: T) -> u32 {
        if let Some(&number) = self.numbers.get(&thing) {
            return number;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(NEVER);
        self.all.push(thing.clone());
        self.numbers.insert(thing, number);
        number
    }
}

struct Search<'a, M: Model, const W: usize> {
    model: &'a M,
    ops: &'a [Timed<M::Op>],
    budget: &'a Budget,
    states: Interned<M::State>,
    kinds: Interned<M::Op>,
    kind_of: Vec<u32>,
    steps_known: FxHashMap<(u32, u32), Option<u32>>,
    slots: Vec<Option<usize>>,
    slot_of: FxHashMap<usize, usize>,
    free: Vec<usize>,
    pending: Mask<W>,
    /// Kinds of unanswered operations, with how many were called.
    unanswered: Vec<(u32, u32)>,
    frontier: Vec<Config<W>>,
    steps: u64,
}

impl<'a, M: Model, const W: usize> Search<'a, M, W> {
    fn new(model: &'a M, ops: &'a [Timed<M::Op>], budget: &'a Budget) -> Self {
        let mut kinds = Interned::new();
        let kind_of = ops
            .iter()
            .map(|timed| kinds.number(timed.op.clone()))
            .collect();
        let mut states = Interned::new();
        let value = states.number(model.initial());
        Search {
            model,
            ops,
            budget,
            states,
            kinds,
            kind_of,
            steps_known: FxHashMap::default(),
            slots: Vec::new(),
            slot_of: FxHashMap::default(),
            free: Vec::new(),
            pending: [0; W],
            unanswered: Vec::new(),
            frontier: vec![Config {
                value,
                done: [0; W],
                used: Vec::new(),
            }],
            steps: 0,
        }
    }

    fn run(mut self) -> Found {
        let answered = self
            .ops
            .iter()
            .enumerate()
            .filter(|(_, timed)| timed.ret != NEVER);
        let mut returns: Vec<(u32, usize)> =
            answered.map(|(place, timed)| (timed.ret, place)).collect();
        returns.sort_unstable();
        let mut calls = self.ops.iter().enumerate().peekable();
        for (decided, (ret, place)) in returns.into_iter().enumerate() {
            while let Some((called, _)) = calls.next_if(|(_, timed)| timed.call < ret) {
                self.call(called);
            }
            if let Err(limit) = self.complete(place) {
                return Found::Exhausted { limit, decided };
            }
            if self.frontier.is_empty() {
                return Found::At(place);
            }
        }
        Found::Order
    }

    fn call(&mut self, place: usize) {
        let kind = self.kind_of[place];
        if self.ops[place].ret == NEVER {
            match self
                .unanswered
                .binary_search_by_key(&kind, |&(known, _)| known)
            {
                Ok(at) => self.unanswered[at].1 += 1,
                Err(at) => self.unanswered.insert(at, (kind, 1)),
            }
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(place);
        self.slot_of.insert(place, slot);
        self.pending = with(self.pending, slot);
    }

    fn step(&mut self, state: u32, kind: u32) -> Option<u32> {
        if let Some(&known) = self.steps_known.get(&(state, kind)) {
            return known;
        }
        let next = self.model.step(
            &self.states.all[state as usize],
            &self.kinds.all[kind as usize],
        );
        let next = next.map(|next| self.states.number(next));
        self.steps_known.insert((state, kind), next);
        next
    }

    /// Carries every configuration on until the operation at this place has taken effect.
    fn complete(&mut self, place: usize) -> Result<(), Exhausted> {
        let slot = self.slot_of.remove(&place).unwrap_or_default();
        let (mut reached, mut seen) = (Set::new(), Set::new());
        let mut open: Vec<Config<W>> = Vec::new();
        let take =
            |config: Config<W>, reached: &mut Set<W>, seen: &mut Set<W>, open: &mut Vec<_>| {
                if has(&config.done, slot) {
                    reached.add(&Config {
                        done: without(config.done, slot),
                        ..config
                    });
                } else if seen.add(&config) {
                    open.push(config);
                }
            };
        for config in std::mem::take(&mut self.frontier) {
            take(config, &mut reached, &mut seen, &mut open);
        }
        while let Some(config) = open.pop() {
            self.steps += 1;
            if self.steps.is_multiple_of(STEPS_AT_ONCE) {
                self.budget.spend(STEPS_AT_ONCE)?;
                self.budget.hold(reached.bytes() + seen.bytes())?;
            }
            for other in 0..self.slots.len() {
                let Some(op) = self.slots[other] else {
                    continue;
                };
                if has(&config.done, other) || self.another_goes_first(&config, other, op) {
                    continue;
                }
                if let Some(value) = self.step(config.value, self.kind_of[op]) {
                    let done = with(config.done, other);
                    let used = config.used.clone();
                    take(
                        Config { value, done, used },
                        &mut reached,
                        &mut seen,
                        &mut open,
                    );
                }
            }
            for at in 0..self.unanswered.len() {
                let (kind, called) = self.unanswered[at];
                if count_of(&config.used, kind) >= called {
                    continue;
                }
                if let Some(value) = self
                    .step(config.value, kind)
                    .filter(|&next| next != config.value)
                {
                    let used = with_one_more(&config.used, kind);
                    let done = config.done;
                    take(
                        Config { value, done, used },
                        &mut reached,
                        &mut seen,
                        &mut open,
                    );
                }
            }
        }
        self.frontier = reached.into_configs();
        self.slots[slot] = None;
        self.free.push(slot);
        self.pending = without(self.pending, slot);
        Ok(())
    }

    /// Whether another pending operation of this kind must return before this one.
    fn another_goes_first(&self, config: &Config<W>, slot: usize, place: usize) -> bool {
        let others = self.slots.iter().enumerate();
        others
            .filter(|&(other, _)| other != slot && !has(&config.done, other))
            .any(|(_, other)| {
                other.is_some_and(|other| {
                    self.kind_of[other] == self.kind_of[place]
                        && self.ops[other].ret < self.ops[place].ret
                })
            })
    }
}
