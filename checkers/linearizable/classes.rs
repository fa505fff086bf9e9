//! Unanswered operations of equal effect as one class with a count, as long as one of them may be of
//! use. How many of each a configuration has used is in `configs`.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::model::{Action, Val};

/// A class of unanswered operations: what each of them does, how many were invoked, and until
/// which completion they may be of use.
pub(crate) struct Class {
    pub(crate) action: Action,
    pub(crate) invoked: u32,
    until: u32,
}

/// The classes that may still be of use.
#[derive(Default)]
pub(crate) struct Classes {
    pub(crate) by_number: FxHashMap<u32, Class>,
    number_of: FxHashMap<Action, u32>,
    leaving: FxHashMap<Val, Vec<u32>>,
    /// The last completion for whose sake each may be used.
    useful_until: BTreeSet<(u32, u32)>,
    numbers: u32,
}

impl Classes {
    /// Adds an operation; says whether it is the first of its class.
    pub(crate) fn add(&mut self, action: Action, leaves: Val, until: u32) -> bool {
        if let Some(class) = self
            .number_of
            .get(&action)
            .and_then(|number| self.by_number.get_mut(number))
        {
            class.invoked += 1;
            return false;
        }
        let number = self.numbers;
        self.numbers += 1;
        let class = Class {
            action,
            invoked: 1,
            until,
        };
        self.by_number.insert(number, class);
        self.number_of.insert(action, number);
        self.leaving.entry(leaves).or_default().push(number);
        self.useful_until.insert((until, number));
        true
    }

    /// The classes that leave this value.
    pub(crate) fn leaving(&self, value: Val) -> impl Iterator<Item = u32> + '_ {
        self.leaving.get(&value).into_iter().flatten().copied()
    }

    /// Removes a class that is of no use after this event; its action.
    pub(crate) fn pop_useless(&mut self, event: u32) -> Option<Action> {
        let &(until, number) = self.useful_until.first()?;
        (until <= event).then(|| self.remove(number))
    }

    /// Takes so many operations from a class; its action, if none is left.
    pub(crate) fn use_up(&mut self, number: u32, count: u32) -> Option<Action> {
        let class = self.by_number.get_mut(&number)?;
        class.invoked -= count;
        (class.invoked == 0).then(|| self.remove(number))
    }

    pub(crate) fn remove(&mut self, number: u32) -> Action {
        let class = self
            .by_number
            .remove(&number)
            .expect("a class that is listed is there");
        self.number_of.remove(&class.action);
        self.useful_until.remove(&(class.until, number));
        let leaves = class.action.leaves();
        if let Some(same) = leaves.and_then(|value| self.leaving.get_mut(&value)) {
            same.retain(|&other| other != number);
        }
        class.action
    }
}
