//! Any model as a machine for the search in `frontier`: its states and operations are numbered in
//! order of first use, each step is taken once and remembered.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::frontier::{self, Found};
use super::machine::{Class, Effect, Machine, State};
use super::models::{Model, Timed};
use super::{machine, needs};
use crate::Budget;

/// Searches for an order of operations that are sorted by their calls.
pub(crate) fn decide<M: Model>(model: &M, ops: &[Timed<M::Op>], budget: &Budget) -> Found {
    let mut classes = Interned::new();
    let timed: Vec<machine::Timed> = ops
        .iter()
        .map(|timed| machine::Timed {
            class: classes.number(&timed.op),
            call: timed.call,
            ret: timed.ret,
        })
        .collect();
    let mut states = Interned::new();
    states.number(&model.initial());
    let effects = classes.all.iter().map(|op| {
        let effect = model.effect(op).map(|state| states.number(&state));
        match effect {
            Effect::Moves(from, to) if from == to => Effect::Observes(from),
            effect => effect,
        }
    });
    let effects = effects.collect();
    let mut machine = Remembering {
        model,
        states,
        classes: classes.all,
        effects,
        steps: FxHashMap::default(),
    };
    frontier::decide(&mut machine, &timed, budget)
}

/// The most answered operations that are open at once.
pub(crate) fn concurrency<O>(ops: &[Timed<O>]) -> usize {
    needs::concurrency(ops.iter().map(|timed| (timed.call, timed.ret)))
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

    fn number(&mut self, thing: &T) -> u32 {
        if let Some(&number) = self.numbers.get(thing) {
            return number;
        }
        let number = u32::try_from(self.all.len()).expect("fewer than 2^32 states and classes");
        self.all.push(thing.clone());
        self.numbers.insert(thing.clone(), number);
        number
    }
}

struct Remembering<'m, M: Model> {
    model: &'m M,
    states: Interned<M::State>,
    classes: Vec<M::Op>,
    effects: Vec<Effect>,
    steps: FxHashMap<(State, Class), Option<State>>,
}

impl<M: Model> Machine for Remembering<'_, M> {
    fn effect(&self, class: Class) -> Effect {
        self.effects[class as usize]
    }

    fn step(&mut self, state: State, class: Class) -> Option<State> {
        if let Some(&known) = self.steps.get(&(state, class)) {
            return known;
        }
        let from = &self.states.all[state as usize];
        let next = self.model.step(from, &self.classes[class as usize]);
        let next = next.map(|next| self.states.number(&next));
        self.steps.insert((state, class), next);
        next
    }
}
