//! The elements of sets and queues, numbered.
//!
//! A history may speak of several collections, told apart by their keys; an element is a value
//! in one of them.

use history::{EventRef, History, Kind, NONE, ValueRef};
use rustc_hash::FxHashMap;

use crate::linearizable::models::Numbers;

/// Numbers elements from 0, nearly without gaps, in order of first use.
pub(crate) struct Elements {
    values: Numbers,
    /// Of several collections, the number of each value in each; one alone needs no second table.
    numbers: Option<FxHashMap<(u32, u32), u32>>,
}

impl Elements {
    /// For the collections that these functions work on.
    pub(crate) fn of(history: &History, functions: &[&str]) -> Elements {
        let mut keys = history.ops_of(functions).map(|op| op.key_id());
        let first = keys.next();
        let are_several = keys.any(|key| Some(key) != first);
        Elements {
            values: Numbers::default(),
            numbers: are_several.then(FxHashMap::default),
        }
    }

    /// The number of a value in the collection with this key, [`NONE`] for one without a key.
    pub(crate) fn number(&mut self, key: u32, value: ValueRef<'_>) -> usize {
        let value = self.values.of(value);
        let number = match &mut self.numbers {
            None => value,
            Some(numbers) => {
                let next = u32::try_from(numbers.len()).unwrap_or(NONE);
                *numbers.entry((key, value)).or_insert(next)
            }
        };
        number as usize
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
