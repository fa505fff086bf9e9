//! JSON values packed into eight bytes each, with an arena for what does not fit.
//!
//! A history holds two values an operation, nearly all of them small integers, `null`, or a short
//! list or map of those. A tree of JSON would cost a few hundred bytes each. Here a value is one
//! word: three bits say what it is, the rest is the integer itself or a place in the arena.
//!
//! ```text
//! bits 63..3            bits 2..0
//! ---------------------+---------
//! 0                    | null
//! 0 or 1               | bool
//! signed integer       | int        (61 bits; larger ones go to the table of numbers)
//! index                | number     (a JSON number that is not such an integer)
//! symbol               | string
//! offset << 24 | length| list       (items follow each other in the arena)
//! offset << 24 | length| map        (key symbol and value alternate in the arena)
//! offset << 24 | length| transaction (micro-operations in columns of their own: `txn`); the
//!                      | highest bit of the length says that nothing was read yet
//! ```

use std::sync::Arc;

use serde_json::{Map, Number, Value};

use crate::symbols::Symbols;
use crate::txn::{Txn, Txns};

const NULL: u64 = 0;
const BOOL: u64 = 1;
const INT: u64 = 2;
const NUMBER: u64 = 3;
const STRING: u64 = 4;
const LIST: u64 = 5;
const MAP: u64 = 6;
const TXN: u64 = 7;

const LENGTH_BITS: u32 = 24;
/// In the length of a transaction: its reads were asked for and not answered yet.
const ASKED: u64 = 1 << (LENGTH_BITS - 1);
const INT_MAX: i64 = (1 << 60) - 1;
const INT_MIN: i64 = -(1 << 60);

/// A value in one word; what it means is known to the [`Values`] that made it.
///
/// Two packed values of one arena that are equal as words are equal as values. The reverse holds
/// for everything but lists, maps and numbers that are not 61-bit integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packed(u64);

impl Packed {
    /// The value `null`.
    pub const NULL: Packed = Packed(NULL);

    /// The integer itself, if this is one of up to 61 bits.
    #[inline]
    pub fn as_int(self) -> Option<i64> {
        (self.tag() == INT).then_some((self.0 as i64) >> 3)
    }

    /// The integer `int` of up to 61 bits.
    pub(crate) fn int(int: i64) -> Packed {
        debug_assert!(
            (INT_MIN..=INT_MAX).contains(&int),
            "{int} has more than 61 bits"
        );
        Packed((int as u64) << 3 | INT)
    }

    /// The transaction of so many micro-operations from `start` on.
    pub(crate) fn txn(start: usize, len: usize) -> Packed {
        assert!(
            (len as u64) < ASKED,
            "a transaction of more than 8 million micro-operations"
        );
        Packed::placed(start, len, TXN)
    }

    /// The same transaction as it was asked for: with nothing read yet.
    pub(crate) fn asked(self) -> Packed {
        debug_assert_eq!(self.tag(), TXN);
        Packed(self.0 | ASKED << 3)
    }

    /// A place for a transaction that is not known yet.
    pub(crate) fn awaited(slot: usize) -> Packed {
        Packed::placed(slot, (ASKED - 1) as usize, TXN)
    }

    /// The slot, if this is a place for a transaction.
    pub(crate) fn as_awaited(self) -> Option<usize> {
        let is_awaited = self.tag() == TXN && self.range().len() as u64 == ASKED - 1;
        is_awaited.then(|| self.range().start)
    }

    /// The value with this word.
    pub(crate) fn from_bits(bits: u64) -> Packed {
        Packed(bits)
    }

    fn placed(start: usize, len: usize, tag: u64) -> Packed {
        assert!(
            len < 1 << LENGTH_BITS,
            "a value of more than 16 million parts"
        );
        Packed(((start as u64) << LENGTH_BITS | len as u64) << 3 | tag)
    }

    pub(crate) fn bool(value: bool) -> Packed {
        Packed(u64::from(value) << 3 | BOOL)
    }

    /// Whether this is `null`.
    #[inline]
    pub fn is_null(self) -> bool {
        self.0 == NULL
    }

    /// Whether equal values of this kind are always equal words.
    pub(crate) fn is_scalar(self) -> bool {
        matches!(self.tag(), NULL | BOOL | INT | STRING)
    }

    /// The word; equal words mean equal values within one history.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    fn tag(self) -> u64 {
        self.0 & 7
    }

    fn payload(self) -> u64 {
        self.0 >> 3
    }

    fn range(self) -> std::ops::Range<usize> {
        let start = (self.payload() >> LENGTH_BITS) as usize;
        let most = if self.tag() == TXN { ASKED } else { ASKED << 1 };
        start..start + (self.payload() & (most - 1)) as usize
    }

    /// Whether this is a transaction as it was asked for.
    pub(crate) fn is_asked(self) -> bool {
        self.tag() == TXN && self.payload() & ASKED != 0
    }

    pub(crate) fn is_list(self) -> bool {
        self.tag() == LIST
    }

    pub(crate) fn is_txn(self) -> bool {
        self.tag() == TXN
    }
}

/// The arena and tables behind a history's packed values.
#[derive(Debug, Clone, Default)]
pub struct Values {
    arena: Vec<Packed>,
    numbers: Vec<Number>,
    strings: Symbols,
    pub(crate) txns: Txns,
}

impl Values {
    /// Packs a JSON value.
    pub fn pack(&mut self, value: &Value) -> Packed {
        match value {
            Value::Null => Packed::NULL,
            Value::Bool(b) => Packed::bool(*b),
            Value::Number(n) => self.pack_number(n),
            Value::String(s) => self.pack_str(s),
            Value::Array(items) => {
                let packed: Vec<Packed> = items.iter().map(|item| self.pack(item)).collect();
                self.pack_list(&packed)
            }
            Value::Object(map) => {
                let mut packed = Vec::with_capacity(map.len() * 2);
                for (key, item) in map {
                    packed.push(self.pack_str(key));
                    packed.push(self.pack(item));
                }
                self.pack_slice(&packed, MAP)
            }
        }
    }

    /// Packs a string.
    pub(crate) fn pack_str(&mut self, text: &str) -> Packed {
        Packed(u64::from(self.strings.intern(text)) << 3 | STRING)
    }

    /// Packs an integer; one beyond 64 bits is kept as the text of its digits.
    pub(crate) fn pack_integer(&mut self, integer: i128) -> Packed {
        if let Ok(int) = i64::try_from(integer) {
            if (INT_MIN..=INT_MAX).contains(&int) {
                return Packed::int(int);
            }
            return self.pack_number(&Number::from(int));
        }
        match u64::try_from(integer) {
            Ok(large) => self.pack_number(&Number::from(large)),
            Err(_) => self.pack_str(&integer.to_string()),
        }
    }

    /// Packs a list of what is packed already.
    pub(crate) fn pack_list(&mut self, items: &[Packed]) -> Packed {
        self.pack_slice(items, LIST)
    }

    /// Packs a map of what is packed already: string and value alternate. Of entries with the same
    /// key the last one counts.
    pub(crate) fn pack_map(&mut self, items: &[Packed]) -> Packed {
        let mut entries: Vec<(Packed, Packed)> = items
            .chunks_exact(2)
            .map(|entry| (entry[0], entry[1]))
            .collect();
        let name = |entry: &(Packed, Packed)| self.strings.name(entry.0.payload() as u32);
        entries.sort_by(|a, b| name(a).cmp(name(b)));
        entries.reverse();
        entries.dedup_by_key(|entry| entry.0);
        let flat: Vec<Packed> = entries
            .iter()
            .rev()
            .flat_map(|&(key, value)| [key, value])
            .collect();
        self.pack_slice(&flat, MAP)
    }

    /// What is there now, to come back to.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            arena: self.arena.len(),
            numbers: self.numbers.len(),
            mops: self.txns.mops.len(),
            elements: self.txns.elements.len(),
            words: self.txns.words_len(),
        }
    }

    /// Forgets what was packed since; strings and words keep their numbers, and words what they
    /// stand for.
    pub(crate) fn back_to(&mut self, mark: Mark) {
        if self.txns.words_len() == mark.words {
            self.arena.truncate(mark.arena);
            self.numbers.truncate(mark.numbers);
        }
        self.txns.mops.truncate(mark.mops);
        self.txns.elements.truncate(mark.elements);
    }

    /// The items of a packed list.
    pub(crate) fn items(&self, list: Packed) -> &[Packed] {
        debug_assert!(list.is_list());
        &self.arena[list.range()]
    }

    /// The micro-operations of a packed transaction.
    pub(crate) fn mops_of(&self, txn: Packed) -> &[crate::txn::Mop] {
        debug_assert!(txn.is_txn());
        &self.txns.mops[txn.range()]
    }

    pub(crate) fn pack_number(&mut self, number: &Number) -> Packed {
        if let Some(int) = number.as_i64()
            && (INT_MIN..=INT_MAX).contains(&int)
        {
            return Packed::int(int);
        }
        self.numbers.push(number.clone());
        Packed((self.numbers.len() as u64 - 1) << 3 | NUMBER)
    }

    fn pack_slice(&mut self, items: &[Packed], tag: u64) -> Packed {
        let start = self.arena.len();
        self.arena.extend_from_slice(items);
        Packed::placed(start, items.len(), tag)
    }

    /// A readable view of a packed value.
    pub fn view(&self, packed: Packed) -> ValueRef<'_> {
        ValueRef {
            values: self,
            packed,
        }
    }

    /// Gives back the room that was taken for growth.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.arena.shrink_to_fit();
        self.numbers.shrink_to_fit();
        self.txns.shrink_to_fit();
    }

    /// Bytes held by arena and tables, as an estimate of what they cost.
    pub fn heap_bytes(&self) -> usize {
        self.arena.capacity() * size_of::<Packed>()
            + self.numbers.capacity() * size_of::<Number>()
            + self.strings.iter().map(|s| s.len() + 64).sum::<usize>()
            + self.txns.heap_bytes()
    }
}

/// How much was packed at some moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    arena: usize,
    numbers: usize,
    mops: usize,
    elements: usize,
    words: usize,
}

/// A packed value together with the arena that explains it.
#[derive(Clone, Copy)]
pub struct ValueRef<'a> {
    values: &'a Values,
    packed: Packed,
}

impl<'a> ValueRef<'a> {
    /// The word.
    #[inline]
    pub fn packed(self) -> Packed {
        self.packed
    }

    /// Whether this is `null`.
    #[inline]
    pub fn is_null(self) -> bool {
        self.packed.is_null()
    }

    /// The value as a signed integer.
    #[inline]
    pub fn as_i64(self) -> Option<i64> {
        match self.packed.tag() {
            INT => self.packed.as_int(),
            NUMBER => self.values.numbers[self.packed.payload() as usize].as_i64(),
            _ => None,
        }
    }

    /// The value as an unsigned integer.
    #[inline]
    pub fn as_u64(self) -> Option<u64> {
        match self.packed.tag() {
            INT => self.packed.as_int().and_then(|int| u64::try_from(int).ok()),
            NUMBER => self.values.numbers[self.packed.payload() as usize].as_u64(),
            _ => None,
        }
    }

    /// The value as a string.
    pub fn as_str(self) -> Option<&'a str> {
        (self.packed.tag() == STRING)
            .then(|| self.values.strings.name(self.packed.payload() as u32))
    }

    /// The value as a string to keep, which is not copied: all that are equal are one.
    pub fn as_shared_str(self) -> Option<Arc<str>> {
        (self.packed.tag() == STRING)
            .then(|| self.values.strings.shared(self.packed.payload() as u32))
    }

    /// The value as a boolean.
    pub fn as_bool(self) -> Option<bool> {
        (self.packed.tag() == BOOL).then_some(self.packed.payload() == 1)
    }

    /// The items of a list.
    pub fn as_list(self) -> Option<impl ExactSizeIterator<Item = ValueRef<'a>> + use<'a>> {
        let values = self.values;
        (self.packed.tag() == LIST).then(|| {
            values.arena[self.packed.range()]
                .iter()
                .map(move |&packed| values.view(packed))
        })
    }

    /// The entries of a map, in the order of their keys.
    pub fn as_map(self) -> Option<impl Iterator<Item = (&'a str, ValueRef<'a>)> + use<'a>> {
        let values = self.values;
        (self.packed.tag() == MAP).then(|| {
            values.arena[self.packed.range()]
                .chunks_exact(2)
                .map(move |entry| {
                    (
                        values.strings.name(entry[0].payload() as u32),
                        values.view(entry[1]),
                    )
                })
        })
    }

    /// The entry of a map with this key.
    pub fn get(self, key: &str) -> Option<ValueRef<'a>> {
        self.as_map()?
            .find_map(|(name, value)| (name == key).then_some(value))
    }

    /// The value as a transaction.
    pub fn as_txn(self) -> Option<Txn<'a>> {
        (self.packed.tag() == TXN).then(|| Txn {
            values: self.values,
            mops: &self.values.txns.mops[self.packed.range()],
            asked: self.packed.is_asked(),
        })
    }

    /// Where the micro-operations of the transaction stand in [`crate::History::mops`].
    pub fn txn_range(self) -> Option<std::ops::Range<usize>> {
        (self.packed.tag() == TXN).then(|| self.packed.range())
    }

    /// The value as a tree of JSON.
    pub fn to_json(self) -> Value {
        match self.packed.tag() {
            NULL => Value::Null,
            BOOL => Value::Bool(self.packed.payload() == 1),
            INT => Value::from(self.packed.as_int()),
            NUMBER => Value::Number(self.values.numbers[self.packed.payload() as usize].clone()),
            STRING => Value::from(self.as_str()),
            LIST => Value::Array(
                self.as_list()
                    .into_iter()
                    .flatten()
                    .map(ValueRef::to_json)
                    .collect(),
            ),
            TXN => self.as_txn().map_or(Value::Null, Txn::to_json),
            _ => Value::Object(
                self.as_map()
                    .into_iter()
                    .flatten()
                    .map(|(key, value)| (key.to_owned(), value.to_json()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        if std::ptr::eq(self.values, other.values) && self.packed == other.packed {
            return true;
        }
        match (self.packed.tag(), other.packed.tag()) {
            (INT, INT) | (NULL, NULL) | (BOOL, BOOL) => self.packed == other.packed,
            (STRING, STRING) => self.as_str() == other.as_str(),
            (a, b) => a == b && self.to_json() == other.to_json(),
        }
    }
}

impl std::fmt::Debug for ValueRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.to_json())
    }
}

impl std::fmt::Display for ValueRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.to_json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1e9f64..1e9).prop_map(Value::from),
            "[a-z]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{1,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn packing_loses_nothing(values in prop::collection::vec(json(), 1..8)) {
            let mut arena = Values::default();
            let packed: Vec<Packed> = values.iter().map(|value| arena.pack(value)).collect();
            for (value, packed) in values.iter().zip(packed) {
                prop_assert_eq!(&arena.view(packed).to_json(), value);
            }
        }

        #[test]
        fn equality_is_that_of_json(a in json(), b in json()) {
            let mut arena = Values::default();
            let (pa, pb) = (arena.pack(&a), arena.pack(&b));
            prop_assert_eq!(arena.view(pa) == arena.view(pb), a == b);
        }
    }

    #[test]
    fn small_integers_are_their_own_word() {
        let mut arena = Values::default();
        let a = arena.pack(&Value::from(-7));
        assert_eq!(a.as_int(), Some(-7));
        assert_eq!(a, arena.pack(&Value::from(-7)));
        assert_eq!(arena.heap_bytes(), 0);
    }
}
