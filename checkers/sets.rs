//! The sets of a history: what was added to each, and how that went.

use std::ops::Index;

use history::{EventRef, History, NONE, Outcome, ValueRef};
use rustc_hash::FxHashMap;

use crate::elements::{Elements, at};

/// What is known of the adds of one element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Adds {
    /// The best that became of one; `None` if nobody asked to add it.
    pub(crate) best: Option<Outcome>,
    /// The event at which it was first asked for, [`NONE`] if never.
    pub(crate) asked: u32,
    /// The event at which it was first acknowledged, [`NONE`] if never.
    pub(crate) acknowledged: u32,
}

impl Default for Adds {
    fn default() -> Adds {
        Adds {
            best: None,
            asked: NONE,
            acknowledged: NONE,
        }
    }
}

/// The sets of a history, by the number of their key, [`NONE`] for one without a key.
pub(crate) struct Sets {
    elements: Elements,
    adds: Vec<Adds>,
    /// The elements that were added to each, in the order in which they were first asked for.
    of_set: FxHashMap<u32, Vec<u32>>,
}

impl Sets {
    /// All sets to which something was to be added.
    pub(crate) fn of(history: &History) -> Sets {
        let mut sets = Sets {
            elements: Elements::of(history, &["add"]),
            adds: Vec::new(),
            of_set: FxHashMap::default(),
        };
        for op in history.ops_of(&["add"]) {
            let key = op.key_id().unwrap_or(NONE);
            let element = sets.elements.number(key, op.input());
            let adds = at(&mut sets.adds, element);
            if adds.asked == NONE {
                adds.asked = number(op.invoke);
                sets.of_set.entry(key).or_default().push(element as u32);
            }
            adds.best = Some(match (adds.best, op.outcome()) {
                (Some(Outcome::Ok), _) | (_, Outcome::Ok) => Outcome::Ok,
                (Some(Outcome::Info), _) | (_, Outcome::Info) => Outcome::Info,
                _ => Outcome::Fail,
            });
            if let Some(answer) = op.completion.filter(|_| op.is_ok()) {
                adds.acknowledged = adds.acknowledged.min(number(answer));
            }
        }
        sets
    }

    /// The elements that somebody asked to add to this set; `None` if it is none.
    pub(crate) fn elements(&self, key: u32) -> Option<&[u32]> {
        self.of_set.get(&key).map(Vec::as_slice)
    }

    /// The sets, in the order of the numbers of their keys.
    pub(crate) fn keys(&self) -> Vec<u32> {
        let mut keys: Vec<u32> = self.of_set.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// The number of an element that was read, which nobody need have added.
    pub(crate) fn number(&mut self, key: u32, value: ValueRef<'_>) -> usize {
        let element = self.elements.number(key, value);
        at(&mut self.adds, element);
        element
    }

    /// One more than the largest number of an element.
    pub(crate) fn len(&self) -> usize {
        self.adds.len()
    }
}

impl Index<usize> for Sets {
    type Output = Adds;

    fn index(&self, element: usize) -> &Adds {
        &self.adds[element]
    }
}

fn number(event: EventRef<'_>) -> u32 {
    u32::try_from(event.index()).unwrap_or(NONE)
}
