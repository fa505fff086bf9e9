//! What is known of the operations before a search begins: the order of their completions, how many
//! are open at once, and until when a state, or a class of unanswered operations, may be of use.

use rustc_hash::FxHashMap;

use super::machine::{Class, Effect, Machine, NEVER, State, Timed};

/// A class of unanswered operations that may be of use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    pub(crate) class: Class,
    pub(crate) effect: Effect,
    /// The last completion for whose sake one of them may take effect.
    pub(crate) until: u32,
}

/// What a search looks up.
pub(crate) struct Needs {
    /// Return and place of each answered operation, in order.
    pub(crate) returns: Vec<(u32, u32)>,
    /// The most answered operations that are open at once.
    pub(crate) concurrency: usize,
    /// The classes of unanswered operations that may be of use, in order of first call.
    pub(crate) classes: Vec<Need>,
    /// The most unanswered operations of one class.
    pub(crate) called_max: usize,
    numbers: FxHashMap<Class, usize>,
    /// By state, the last completion of an operation that needs it.
    until: FxHashMap<State, u32>,
    /// The last completion of an operation that may need any state.
    until_any: u32,
    /// By state, the classes that lead from it to another.
    moves: FxHashMap<State, Vec<usize>>,
    /// The classes by the last completion for whose sake they may be used, in order.
    useless: Vec<(u32, usize)>,
}

impl Needs {
    pub(crate) fn of<M: Machine>(machine: &M, ops: &[Timed]) -> Needs {
        let mut returns: Vec<(u32, u32)> = Vec::with_capacity(ops.len());
        let mut until: FxHashMap<State, u32> = FxHashMap::default();
        let mut until_any = 0;
        let mut called: FxHashMap<Class, usize> = FxHashMap::default();
        let mut unanswered: Vec<(Class, Effect, u32)> = Vec::new();
        for (place, op) in ops.iter().enumerate() {
            let effect = machine.effect(op.class);
            if op.ret == NEVER {
                if effect.is_passive() {
                    continue;
                }
                let count = called.entry(op.class).or_insert(0);
                if *count == 0 {
                    unanswered.push((op.class, effect, op.call));
                }
                *count += 1;
                continue;
            }
            returns.push((op.ret, u32::try_from(place).unwrap_or(NEVER)));
            if effect.is_vague() {
                until_any = until_any.max(op.ret);
            }
            if let Some(state) = effect.needs() {
                let last = until.entry(state).or_insert(0);
                *last = (*last).max(op.ret);
            }
        }
        returns.sort_unstable();
        let mut needs = Needs {
            concurrency: concurrency(ops.iter().map(|op| (op.call, op.ret))),
            returns,
            classes: Vec::new(),
            called_max: 0,
            numbers: FxHashMap::default(),
            until,
            until_any,
            moves: FxHashMap::default(),
            useless: Vec::new(),
        };
        needs.reach_back(&unanswered);
        needs.number(&unanswered, &called);
        needs
    }

    /// An unanswered compare-and-set makes the state that it comes from of use as long as the one
    /// that it leads to is.
    fn reach_back(&mut self, unanswered: &[(Class, Effect, u32)]) {
        let mut changed = true;
        while changed {
            changed = false;
            for &(_, effect, _) in unanswered {
                if let Effect::Moves(from, to) = effect
                    && let Some(&last) = self.until.get(&to)
                {
                    let known = self.until.entry(from).or_insert(0);
                    if *known < last {
                        *known = last;
                        changed = true;
                    }
                }
                if effect == Effect::Any && self.until_any < NEVER {
                    self.until_any = NEVER;
                    changed = true;
                }
            }
        }
    }

    fn number(&mut self, unanswered: &[(Class, Effect, u32)], called: &FxHashMap<Class, usize>) {
        for &(class, effect, call) in unanswered {
            let until = match effect.leads_to() {
                Some(state) => self.until(state),
                None => NEVER,
            };
            if until <= call {
                continue;
            }
            let number = self.classes.len();
            self.numbers.insert(class, number);
            self.called_max = self.called_max.max(called[&class]);
            if let Effect::Moves(from, _) = effect {
                self.moves.entry(from).or_default().push(number);
            }
            self.useless.push((until, number));
            self.classes.push(Need {
                class,
                effect,
                until,
            });
        }
        self.useless.sort_unstable();
    }

    /// The last completion for whose sake the object may be in this state.
    pub(crate) fn until(&self, state: State) -> u32 {
        let known = self.until.get(&state).copied().unwrap_or(0);
        known.max(self.until_any)
    }

    /// The number of a class of unanswered operations, if it may be of use.
    pub(crate) fn class_of(&self, class: Class) -> Option<usize> {
        self.numbers.get(&class).copied()
    }

    /// Whether an unanswered operation that was called leads on from this state.
    pub(crate) fn moves_from(&self, state: State, called: &[u32]) -> bool {
        let moves = self.moves.get(&state);
        moves.is_some_and(|classes| classes.iter().any(|&class| called[class] > 0))
    }

    /// The class that is the next to be useless, if no completion from this one on needs it.
    pub(crate) fn useless(&self, before: usize, ret: u32) -> Option<usize> {
        let &(until, class) = self.useless.get(before)?;
        (until < ret).then_some(class)
    }
}

/// The most answered operations that are open at once, by their calls, in order, and returns.
pub(crate) fn concurrency(ops: impl Iterator<Item = (u32, u32)> + Clone) -> usize {
    let answered = || ops.clone().filter(|&(_, ret)| ret != NEVER);
    let mut returns: Vec<u32> = answered().map(|(_, ret)| ret).collect();
    returns.sort_unstable();
    let (mut ended, mut most) = (0, 0);
    for (opened, (call, _)) in answered().enumerate() {
        while returns[ended] < call {
            ended += 1;
        }
        most = most.max(opened + 1 - ended);
    }
    most
}
