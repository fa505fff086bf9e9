//! The elements of sets and queues, numbered.
//!
//! A history may speak of several collections, told apart by their keys; an element is a value
//! in one of them.

use history::{EventRef, History, Kind, ValueRef};
use rustc_hash::FxHashMap;

use crate::linearizable::models::Numbers;

/// Numbers elements from 0, nearly without gaps, in order of first use.
pub(crate) struct Elements {
    values: Numbers,
    /// Of several collections; one alone needs no second numbers.
    several: Option<Several>,
}

/// The numbers of values in several collections.
#[derive(Default)]
struct Several {
    count: u32,
    /// By value, one more than the first collection that had it, and its number there.
    first: Vec<(u64, u32)>,
    /// The number of a value in any other collection.
    others: FxHashMap<(u32, u32), u32>,
}

impl Elements {
    /// For the collections that these functions work on.
    pub(crate) fn of(history: &History, functions: &[&str]) -> Elements {
        let mut keys = history.ops_of(functions).map(|op| op.key_id());
        let first = keys.next();
        let are_several = keys.any(|key| Some(key) != first);
        Elements {
            values: Numbers::default(),
            several: are_several.then(Several::default),
        }
    }

    /// The number of a value in the collection with this key, [`history::NONE`] for one without a key.
    pub(crate) fn number(&mut self, key: u32, value: ValueRef<'_>) -> usize {
        let value = self.values.of(value);
        let number = match &mut self.several {
            None => value,
            Some(several) => several.number(key, value),
        };
        number as usize
    }
}

impl Several {
    fn number(&mut self, key: u32, value: u32) -> u32 {
        let next = self.count;
        let collection = u64::from(key) + 1;
        let first = at(&mut self.first, value as usize);
        let number = match first.0 {
            0 => {
                *first = (collection, next);
                next
            }
            known if known == collection => first.1,
            _ => *self.others.entry((key, value)).or_insert(next),
        };
        self.count += u32::from(number == next);
        number
    }
}

/// The entry of a table that grows as needed.
pub(crate) fn at<T: Clone + Default>(table: &mut Vec<T>, number: usize) -> &mut T {
    if number >= table.len() {
        table.resize(number + 1, T::default());
    }
    &mut table[number]
}

/// The key of the operation that an event belongs to: an answer need not repeat it.
pub(crate) fn key(event: EventRef<'_>) -> Option<u32> {
    match event.kind() {
        Kind::Invoke => event.key_id(),
        _ => event.partner().unwrap_or(event).key_id(),
    }
}

/// The place of a collection in tables by collection: one without a key comes first.
pub(crate) fn place(key: Option<u32>) -> usize {
    key.map_or(0, |key| key as usize + 1)
}

#[cfg(test)]
mod tests {
    use history::NONE;

    use super::*;
    use crate::script;

    #[test]
    fn a_value_is_another_element_in_another_collection() {
        let text = "0-1 A add x 7 -> 7\n2-3 A add x 8 -> 8\n4-5 A add x 7 -> 7";
        let numbers = |text: &str| -> Vec<usize> {
            let history = script::history("set", text);
            let mut elements = Elements::of(&history, &["add"]);
            let adds = history.ops_of(&["add"]);
            adds.map(|op| elements.number(op.key_id().unwrap_or(NONE), op.input()))
                .collect()
        };
        let one = numbers(text);
        assert_eq!(one[0], one[2]);
        assert_ne!(one[0], one[1]);
        let two = numbers(&text.replace("4-5 A add x", "4-5 A add y"));
        assert_eq!(two, [0, 1, 2]);
    }
}
