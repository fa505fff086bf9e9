//! Just-in-time linearization: the set of all that may be true, from completion to completion.
//!
//! A *configuration* is a state of the object, what has become of each pending operation, and how
//! many unanswered operations of each class were used. Nothing is decided before an operation
//! completes; then every configuration in which it has not taken effect yet is carried on, through
//! all orders of pending operations that can matter, until it has. If no configuration is left,
//! there is no order.
//!
//! What keeps the set small, each by an exchange argument:
//! - a pending read takes effect at once in a configuration with its state;
//! - a write that is pending when another write takes effect may have been overwritten by it at
//!   once, and one of the value that is there changes nothing: it is *settled*, and yet still
//!   there to be used for its value until it completes;
//! - a pending write takes effect before another operation completes only if some pending
//!   operation needs its value: otherwise it can as well take effect afterwards;
//! - of pending operations with equal effect, the one that must complete first goes first;
//! - unanswered operations of equal effect are one class with a count. One takes effect only for
//!   the sake of an operation that needs the state it leads to, and a class is forgotten when no
//!   completion to come needs it;
//! - a configuration is dropped if another in the same state has settled at least as much, taken
//!   no more of the writes that may still be of use, and used no more of any class.

use rustc_hash::FxHashMap;

use super::configs::{
    Config, Mask, Set, Uncounted, Used, has, insert, is_none, minus, none, or, remove, slots,
};
use super::machine::{Effect, Machine, NEVER, START, State, Timed};
use super::needs::{Need, Needs};
use crate::{Budget, Exhausted};

/// How many configurations are carried on between two looks at the budget.
const STEPS_AT_ONCE: u64 = 1024;

/// What a search found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// There is an order that explains every answer.
    Order,
    /// The completion of the operation at this place cannot be explained, given what was called
    /// before it.
    At(usize),
    /// A limit was reached after so many completions.
    Exhausted { limit: Exhausted, decided: usize },
}

/// Searches for an order of operations that are sorted by their calls.
///
/// Where counting the unanswered operations takes long, two searches that hardly count come first.
/// If there is no order even with any number of each, there is none. If there is one that is found
/// by keeping, of all that differ only in what they used, the one that used least, there is one.
pub(crate) fn decide<M: Machine>(machine: &mut M, ops: &[Timed], budget: &Budget) -> Found {
    let needs = Needs::of(machine, ops);
    match needs.concurrency {
        0..=64 => by_width::<M, 1>(machine, ops, &needs, budget),
        65..=256 => by_width::<M, 4>(machine, ops, &needs, budget),
        257..=4096 => by_width::<M, 64>(machine, ops, &needs, budget),
        _ => Found::Exhausted {
            limit: Exhausted::Steps,
            decided: 0,
        },
    }
}

/// How many steps an operation may take before the searches that hardly count are tried.
const STEPS_PER_OP: u64 = 16;

fn by_width<M: Machine, const W: usize>(
    machine: &mut M,
    ops: &[Timed],
    needs: &Needs,
    budget: &Budget,
) -> Found {
    let few = needs.called_max < usize::from(u16::MAX);
    match needs.classes.len() {
        0 => Search::<M, Uncounted, W>::new(machine, ops, needs, budget, Effort::All).run(),
        1..=8 if few => counted::<M, [u16; 8], W>(machine, ops, needs, budget),
        9..=32 if few => counted::<M, [u16; 32], W>(machine, ops, needs, budget),
        _ => counted::<M, Box<[u32]>, W>(machine, ops, needs, budget),
    }
}

fn counted<M: Machine, U: Used, const W: usize>(
    machine: &mut M,
    ops: &[Timed],
    needs: &Needs,
    budget: &Budget,
) -> Found {
    let steps = STEPS_PER_OP * (ops.len() as u64 + STEPS_AT_ONCE);
    let exactly = Effort::Steps(steps);
    let found = Search::<M, U, W>::new(machine, ops, needs, budget, exactly).run();
    if !matches!(
        found,
        Found::Exhausted {
            limit: Exhausted::Steps,
            ..
        }
    ) {
        return found;
    }
    let found = Search::<M, Uncounted, W>::new(machine, ops, needs, budget, Effort::All).run();
    if found != Found::Order {
        return found;
    }
    let found = Search::<M, U, W>::new(machine, ops, needs, budget, Effort::Thrifty).run();
    if found == Found::Order {
        return found;
    }
    Search::<M, U, W>::new(machine, ops, needs, budget, Effort::All).run()
}

/// How thoroughly is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// Until it is decided.
    All,
    /// For so many steps.
    Steps(u64),
    /// For one order only among those that differ in the unanswered operations that they use: if
    /// none is found there may be one.
    Thrifty,
}

/// A pending operation.
#[derive(Clone, Copy)]
struct Slot {
    class: u32,
    effect: Effect,
    ret: u32,
}

struct Search<'a, M, U, const W: usize> {
    machine: &'a mut M,
    ops: &'a [Timed],
    budget: &'a Budget,
    needs: &'a Needs,
    effort: Effort,
    /// How many classes are of use no more.
    useless: usize,
    /// For each class of unanswered operations, how many were called.
    called: Vec<u32>,
    slots: Vec<Slot>,
    slot_of: Vec<u16>,
    free: Vec<usize>,
    pending: Pending<W>,
    frontier: Vec<Config<U, W>>,
    reached: Set<U, W>,
    seen: Set<U, W>,
    open: Vec<Config<U, W>>,
    /// Whether an unanswered operation of which nothing is known was called.
    vague_called: bool,
    steps: u64,
}

/// The pending operations by what they do.
struct Pending<const W: usize> {
    /// Those that may change the state.
    active: Mask<W>,
    overwriting: Mask<W>,
    passive: Mask<W>,
    vague: Mask<W>,
    /// Those that are possible in one state only, by that state.
    needing: FxHashMap<State, Mask<W>>,
    /// Those that change nothing in a state, by that state: its reads and its writes.
    harmless: FxHashMap<State, Mask<W>>,
}

impl<const W: usize> Pending<W> {
    fn call(&mut self, slot: usize, effect: Effect) {
        if effect.is_passive() {
            if effect.is_vague() {
                insert(&mut self.passive, slot);
            }
        } else {
            insert(&mut self.active, slot);
        }
        if effect.is_vague() {
            insert(&mut self.vague, slot);
        }
        if let Some(state) = effect.needs() {
            insert(self.needing.entry(state).or_insert(none()), slot);
        }
        if let Effect::Observes(state) | Effect::Overwrites(state) = effect {
            insert(self.harmless.entry(state).or_insert(none()), slot);
        }
        if matches!(effect, Effect::Overwrites(_)) {
            insert(&mut self.overwriting, slot);
        }
    }

    fn complete(&mut self, slot: usize, effect: Effect) {
        for mask in [
            &mut self.active,
            &mut self.overwriting,
            &mut self.passive,
            &mut self.vague,
        ] {
            remove(mask, slot);
        }
        if let Some(state) = effect.needs() {
            forget(&mut self.needing, state, slot);
        }
        if let Effect::Observes(state) | Effect::Overwrites(state) = effect {
            forget(&mut self.harmless, state, slot);
        }
    }
}

fn forget<const W: usize>(masks: &mut FxHashMap<State, Mask<W>>, state: State, slot: usize) {
    if let Some(mask) = masks.get_mut(&state) {
        remove(mask, slot);
        if is_none(mask) {
            masks.remove(&state);
        }
    }
}

impl<'a, M: Machine, U: Used, const W: usize> Search<'a, M, U, W> {
    fn new(
        machine: &'a mut M,
        ops: &'a [Timed],
        needs: &'a Needs,
        budget: &'a Budget,
        effort: Effort,
    ) -> Self {
        let thrifty = effort == Effort::Thrifty;
        let used = U::none(needs.classes.len());
        Search {
            machine,
            ops,
            budget,
            called: vec![0; needs.classes.len()],
            needs,
            effort,
            useless: 0,
            slots: Vec::new(),
            slot_of: vec![0; ops.len()],
            free: Vec::new(),
            pending: Pending {
                active: none(),
                overwriting: none(),
                passive: none(),
                vague: none(),
                needing: FxHashMap::default(),
                harmless: FxHashMap::default(),
            },
            frontier: vec![Config {
                state: START,
                taken: none(),
                settled: none(),
                used,
            }],
            reached: Set::new(thrifty),
            seen: Set::new(thrifty),
            open: Vec::new(),
            vague_called: false,
            steps: 0,
        }
    }

    fn run(mut self) -> Found {
        let mut next = 0;
        for (decided, &(ret, place)) in self.needs.returns.iter().enumerate() {
            while next < self.ops.len() && self.ops[next].call < ret {
                self.call(next);
                next += 1;
            }
            if let Err(limit) = self.complete(place as usize) {
                return Found::Exhausted { limit, decided };
            }
            if self.frontier.is_empty() {
                return Found::At(place as usize);
            }
        }
        Found::Order
    }

    fn call(&mut self, place: usize) {
        let op = self.ops[place];
        if op.ret == NEVER {
            if let Some(class) = self.needs.class_of(op.class)
                && self.needs.classes[class].until > op.call
            {
                self.called[class] += 1;
                self.vague_called |= self.needs.classes[class].effect.is_vague();
            }
            return;
        }
        let effect = self.machine.effect(op.class);
        let slot = Slot {
            class: op.class,
            effect,
            ret: op.ret,
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(slot);
            self.slots.len() - 1
        });
        self.slots[at] = slot;
        self.slot_of[place] = u16::try_from(at).expect("at most 4096 are pending");
        self.pending.call(at, effect);
        for config in &mut self.frontier {
            let settled = match effect {
                Effect::Observes(state) | Effect::Overwrites(state) => config.state == state,
                Effect::Passive => self.machine.step(config.state, op.class).is_some(),
                Effect::Moves(..) | Effect::Any => break,
            };
            if settled {
                insert(&mut config.settled, at);
            }
        }
    }

    /// Carries every configuration on until the operation at this place has taken effect.
    fn complete(&mut self, place: usize) -> Result<(), Exhausted> {
        let at = usize::from(self.slot_of[place]);
        let Slot { effect, ret, .. } = self.slots[at];
        let forgotten = self.forget_useless(ret);
        // What a write leaves may be of use later even where it is settled.
        let of_use = match effect {
            Effect::Overwrites(state) => self.needs.until(state) > ret,
            _ => false,
        };
        let done =
            |config: &Config<U, W>| has(&config.settled, at) && (!of_use || has(&config.taken, at));
        if !forgotten && self.frontier.iter().all(done) {
            for config in &mut self.frontier {
                remove(&mut config.settled, at);
                remove(&mut config.taken, at);
            }
            self.retire(at, effect);
            return Ok(());
        }
        let mut frontier = std::mem::take(&mut self.frontier);
        for config in frontier.drain(..) {
            self.take(config, at, of_use);
        }
        self.frontier = frontier;
        while let Some(config) = self.open.pop() {
            self.steps += 1;
            if self.steps.is_multiple_of(STEPS_AT_ONCE) {
                self.budget.spend(STEPS_AT_ONCE)?;
                if matches!(self.effort, Effort::Steps(most) if self.steps > most) {
                    return Err(Exhausted::Steps);
                }
                let bytes = self.reached.bytes() + self.seen.bytes();
                self.budget.hold(bytes)?;
            }
            self.carry_on(&config, at, of_use);
        }
        self.reached.drain_into(&mut self.frontier);
        self.seen.clear();
        self.retire(at, effect);
        Ok(())
    }

    /// Keeps a configuration: as reached, if the operation that completes has taken effect in it,
    /// or to be carried on.
    fn take(&mut self, config: Config<U, W>, at: usize, of_use: bool) {
        let settled = has(&config.settled, at);
        if settled {
            let mut reached = config.clone();
            remove(&mut reached.settled, at);
            remove(&mut reached.taken, at);
            self.reached.add(reached);
            if !of_use || has(&config.taken, at) {
                return;
            }
        }
        if self.seen.add(config.clone()) {
            self.open.push(config);
        }
    }

    fn retire(&mut self, at: usize, effect: Effect) {
        self.pending.complete(at, effect);
        self.free.push(at);
    }

    /// Forgets the classes that no completion from this one on needs; says whether there were any.
    fn forget_useless(&mut self, ret: u32) -> bool {
        let mut any = false;
        while let Some(class) = self.needs.useless(self.useless, ret) {
            self.useless += 1;
            if self.called[class] > 0 {
                any = true;
                self.called[class] = 0;
                for config in &mut self.frontier {
                    config.used.forget(class);
                }
            }
        }
        any
    }

    /// All configurations that one more operation leads to, for the sake of the one that completes.
    fn carry_on(&mut self, config: &Config<U, W>, at: usize, of_use: bool) {
        let untaken = minus(self.pending.active, &config.taken);
        let vague = self.vague_called || !is_none(&minus(self.pending.vague, &config.settled));
        for slot in slots(untaken) {
            let Slot { effect, class, ret } = self.slots[slot];
            let state = match effect {
                Effect::Moves(from, to) if from == config.state => to,
                Effect::Moves(..) => continue,
                Effect::Overwrites(to) => {
                    if slot != at && !vague && !self.is_needed(config, to) {
                        continue;
                    }
                    to
                }
                _ => match self.machine.step(config.state, class) {
                    Some(state) => state,
                    None => continue,
                },
            };
            if slot != at && self.another_goes_first(&untaken, slot, class, ret) {
                continue;
            }
            let mut next = config.clone();
            next.state = state;
            insert(&mut next.taken, slot);
            insert(&mut next.settled, slot);
            self.arrive(next, effect, at, of_use);
        }
        let unsettled = !is_none(&minus(self.pending.overwriting, &config.settled));
        for class in 0..self.called.len() {
            if config.used.count(class) >= self.called[class] {
                continue;
            }
            let Need {
                class: of, effect, ..
            } = self.needs.classes[class];
            let state = match effect {
                Effect::Moves(from, to) if from == config.state => to,
                Effect::Moves(..) => continue,
                Effect::Overwrites(to) => to,
                _ => match self.machine.step(config.state, of) {
                    Some(state) => state,
                    None => continue,
                },
            };
            let useful = vague || effect.leads_to().is_none() || self.is_needed(config, state);
            let settles = matches!(effect, Effect::Overwrites(_)) && unsettled;
            if !useful || (state == config.state && !settles) {
                continue;
            }
            let mut next = config.clone();
            next.state = state;
            next.used.add(class);
            self.arrive(next, effect, at, of_use);
        }
    }

    /// Takes a configuration in which an operation of this effect has just taken effect.
    fn arrive(&mut self, mut next: Config<U, W>, effect: Effect, at: usize, of_use: bool) {
        if matches!(effect, Effect::Overwrites(_)) {
            next.settled = or(next.settled, &self.pending.overwriting);
        }
        if let Some(harmless) = self.pending.harmless.get(&next.state) {
            next.settled = or(next.settled, harmless);
        }
        for slot in slots(minus(self.pending.passive, &next.settled)) {
            if self
                .machine
                .step(next.state, self.slots[slot].class)
                .is_some()
            {
                insert(&mut next.settled, slot);
            }
        }
        self.take(next, at, of_use);
    }

    /// Whether some operation that has not taken effect waits for this state.
    fn is_needed(&self, config: &Config<U, W>, state: State) -> bool {
        let waits = |needing: &Mask<W>| !is_none(&minus(*needing, &config.settled));
        self.pending.needing.get(&state).is_some_and(waits)
            || self.needs.moves_from(state, &self.called)
    }

    /// Whether another pending operation of this class must complete before this one.
    fn another_goes_first(&self, untaken: &Mask<W>, slot: usize, class: u32, ret: u32) -> bool {
        slots(*untaken).any(|other| {
            let other_slot = self.slots[other];
            other != slot && other_slot.class == class && other_slot.ret < ret
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A register of five values: reads, writes and cas as classes.
    struct Register;

    impl Machine for Register {
        fn effect(&self, class: u32) -> Effect {
            match class {
                0..5 => Effect::Observes(class),
                5..10 => Effect::Overwrites(class - 5),
                _ => Effect::Moves((class - 10) % 5, (class - 10) / 5),
            }
        }

        fn step(&mut self, state: State, class: u32) -> Option<State> {
            match self.effect(class) {
                Effect::Observes(only) => (only == state).then_some(state),
                Effect::Overwrites(to) => Some(to),
                Effect::Moves(from, to) => (from == state).then_some(to),
                Effect::Passive | Effect::Any => None,
            }
        }
    }

    fn ops() -> impl Strategy<Value = Vec<Timed>> {
        let op = (0u32..14, 0u32..24, 1u32..12, 0u32..3);
        prop::collection::vec(op, 1..24).prop_map(|raw| {
            let mut ends: Vec<(u32, bool, usize)> = Vec::new();
            for (place, &(_, from, length, _)) in raw.iter().enumerate() {
                ends.extend([(from, false, place), (from + length, true, place)]);
            }
            ends.sort_unstable();
            let mut ops: Vec<Timed> = raw
                .iter()
                .map(|&(class, ..)| Timed {
                    class,
                    call: 0,
                    ret: 0,
                })
                .collect();
            for (rank, &(_, returns, place)) in (0..).zip(&ends) {
                if returns {
                    ops[place].ret = rank;
                } else {
                    ops[place].call = rank;
                }
            }
            for (op, &(class, .., luck)) in ops.iter_mut().zip(&raw) {
                if luck == 0 && class >= 5 {
                    op.ret = NEVER;
                }
            }
            ops.sort_by_key(|op| op.call);
            ops
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        /// Not counting finds at least every order, being thrifty none that is not there.
        #[test]
        fn what_hardly_counts_errs_on_one_side(ops in ops()) {
            let (needs, budget) = (Needs::of(&Register, &ops), Budget::unlimited());
            let machine = &mut Register;
            let all = Effort::All;
            let exact = Search::<_, Box<[u32]>, 1>::new(machine, &ops, &needs, &budget, all);
            let exact = exact.run();
            let uncounted = Search::<_, Uncounted, 1>::new(machine, &ops, &needs, &budget, all);
            let uncounted = uncounted.run();
            prop_assert!(exact != Found::Order || uncounted == Found::Order);
            let thrifty = Effort::Thrifty;
            let thrifty = Search::<_, [u16; 32], 4>::new(machine, &ops, &needs, &budget, thrifty);
            prop_assert!(thrifty.run() != Found::Order || exact == Found::Order);
        }
    }
}
