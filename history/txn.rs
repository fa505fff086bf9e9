//! Transactions in columns of their own: twelve bytes a micro-operation, four an element read.
//!
//! A transaction is a list of micro-operations `[f, key, value]`, where `f` is `append`, `r` or
//! `w`. As a tree, or as lists of lists in the arena of [`crate::values`], it would cost some
//! thirty bytes a micro-operation and eight an element; histories of transactions are the largest
//! ones, so they are kept flat:
//!
//! ```text
//! value of an event    TXN, offset and length in `mops`
//! mops      [ key | at | length, shape, f ]      12 bytes each
//! elements  [ word | word | ... ]                 4 bytes each; a list is a range of them
//! word      a small integer itself, or a place in the table of other words
//! ```

use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::values::{Packed, ValueRef, Values};

/// A key or value of a transaction in four bytes. Equal words mean equal values within a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Word(u32);

const TABLED: u32 = 1 << 31;

impl Word {
    /// A small integer.
    pub(crate) fn small(integer: u32) -> Word {
        debug_assert!(integer < TABLED);
        Word(integer)
    }

    /// The word itself: below 2^31 the integer of that size, otherwise a place in a table.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The integer, if this is a small one that is not negative.
    pub fn as_small(self) -> Option<u32> {
        (self.0 < TABLED).then_some(self.0)
    }
}

/// What a micro-operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MopKind {
    /// Adds an element to the end of a list: `append`.
    Append,
    /// Reads a list or a register: `r`.
    Read,
    /// Writes a register: `w`.
    Write,
}

impl MopKind {
    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            MopKind::Append => "append",
            MopKind::Read => "r",
            MopKind::Write => "w",
        }
    }

    /// The kind with this name.
    pub fn of(name: &str) -> Option<MopKind> {
        match name {
            "append" => Some(MopKind::Append),
            "r" => Some(MopKind::Read),
            "w" => Some(MopKind::Write),
            _ => None,
        }
    }
}

/// What a micro-operation wrote or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MopValue {
    /// `null`: nothing was read, or it is not known what.
    Nil,
    /// One value.
    One(Word),
    /// A list: this range of the elements of the history.
    List {
        /// Where it begins.
        start: u32,
        /// How many elements it has.
        len: u32,
    },
}

/// One micro-operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mop {
    key: Word,
    at: u32,
    /// Bits 0 and 1: the kind; 2 and 3: the shape of the value; from 4: the length of a list.
    meta: u32,
}

const LEN_MAX: u32 = (1 << 28) - 1;

impl Mop {
    /// A micro-operation.
    pub fn new(kind: MopKind, key: Word, value: MopValue) -> Mop {
        let (shape, at, len) = match value {
            MopValue::Nil => (0, 0, 0),
            MopValue::One(word) => (1, word.0, 0),
            MopValue::List { start, len } => (2, start, len),
        };
        assert!(len <= LEN_MAX, "a list of more than 268 million elements");
        let meta = len << 4 | shape << 2 | kind as u32;
        Mop { key, at, meta }
    }

    /// What it does.
    pub fn kind(self) -> MopKind {
        match self.meta & 3 {
            0 => MopKind::Append,
            1 => MopKind::Read,
            _ => MopKind::Write,
        }
    }

    /// The key it works on.
    pub fn key(self) -> Word {
        self.key
    }

    /// Whether `answer` is what this one may become: the same, and something read for nothing.
    pub(crate) fn is_answered_by(self, answer: Mop) -> bool {
        let is_unread = self.kind() == MopKind::Read && self.value() == MopValue::Nil;
        let same_call = self.key == answer.key && self.kind() == answer.kind();
        same_call && (is_unread || self == answer)
    }

    /// What it wrote or read.
    pub fn value(self) -> MopValue {
        match self.meta >> 2 & 3 {
            0 => MopValue::Nil,
            1 => MopValue::One(Word(self.at)),
            _ => MopValue::List {
                start: self.at,
                len: self.meta >> 4,
            },
        }
    }
}

/// The columns that all transactions of a history share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Txns {
    pub(crate) mops: Vec<Mop>,
    pub(crate) elements: Vec<Word>,
    /// What words beyond the small integers stand for.
    tabled: Vec<Packed>,
    scalars: FxHashMap<u64, Word>,
    others: FxHashMap<String, Word>,
}

impl Txns {
    /// How many words stand for something else than a small integer.
    pub(crate) fn words_len(&self) -> usize {
        self.tabled.len()
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.mops.shrink_to_fit();
        self.elements.shrink_to_fit();
        self.tabled.shrink_to_fit();
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.mops.capacity() * size_of::<Mop>()
            + self.elements.capacity() * size_of::<Word>()
            + self.tabled.capacity() * size_of::<Packed>()
            + (self.scalars.capacity() + self.others.capacity()) * 40
    }
}

impl Values {
    /// Packs a transaction; `None`, and nothing is kept, if the value is not a list of
    /// `[f, key, value]` with a known `f`.
    pub fn pack_txn(&mut self, value: &Value) -> Option<Packed> {
        let items = value.as_array()?;
        let (mops, elements) = (self.txns.mops.len(), self.txns.elements.len());
        for item in items {
            match self.mop_of(item) {
                Some(mop) => self.push_mop(mop),
                None => {
                    self.txns.mops.truncate(mops);
                    self.txns.elements.truncate(elements);
                    return None;
                }
            }
        }
        Some(self.end_txn(mops))
    }

    fn mop_of(&mut self, item: &Value) -> Option<Mop> {
        let [f, key, value] = item.as_array()?.as_slice() else {
            return None;
        };
        let kind = MopKind::of(f.as_str()?)?;
        let key = self.word_of(key);
        let value = match value {
            Value::Null => MopValue::Nil,
            Value::Array(items) if kind == MopKind::Read => {
                let words: Vec<Word> = items.iter().map(|item| self.word_of(item)).collect();
                self.push_list(words)
            }
            one => MopValue::One(self.word_of(one)),
        };
        Some(Mop::new(kind, key, value))
    }

    /// How many micro-operations there are: where the next transaction begins.
    pub fn mops_len(&self) -> usize {
        self.txns.mops.len()
    }

    /// Forgets the last micro-operations.
    pub(crate) fn truncate_mops(&mut self, len: usize) {
        self.txns.mops.truncate(len);
    }

    /// Adds the micro-operations of a transaction to the one that is being built.
    pub(crate) fn repeat_mops(&mut self, txn: Packed) {
        for at in self.view(txn).txn_range().unwrap_or_default() {
            let mop = self.txns.mops[at];
            self.txns.mops.push(mop);
        }
    }

    /// Adds a micro-operation to the transaction that is being built.
    pub fn push_mop(&mut self, mop: Mop) {
        self.txns.mops.push(mop);
    }

    /// Adds a list that a micro-operation read.
    pub fn push_list(&mut self, words: impl IntoIterator<Item = Word>) -> MopValue {
        let start = self.txns.elements.len();
        self.txns.elements.extend(words);
        self.end_list(start)
    }

    /// How many elements of lists there are: where the next list begins.
    pub(crate) fn elements_len(&self) -> usize {
        self.txns.elements.len()
    }

    /// Adds an element to the list that is being built.
    pub(crate) fn push_element(&mut self, word: Word) {
        self.txns.elements.push(word);
    }

    /// The list of all elements added since there were `start` of them.
    pub(crate) fn end_list(&self, start: usize) -> MopValue {
        let end = u32::try_from(self.txns.elements.len())
            .expect("fewer than 2^32 elements in all lists that were read");
        let start = u32::try_from(start).expect("it is at most the end");
        MopValue::List {
            start,
            len: end - start,
        }
    }

    /// The transaction of all micro-operations added since there were `start` of them.
    pub fn end_txn(&mut self, start: usize) -> Packed {
        Packed::txn(start, self.txns.mops.len() - start)
    }

    /// A JSON value as a word.
    pub fn word_of(&mut self, value: &Value) -> Word {
        let packed = self.pack(value);
        self.word_of_packed(packed)
    }

    /// A packed value as a word.
    pub(crate) fn word_of_packed(&mut self, packed: Packed) -> Word {
        if packed.is_scalar() {
            return self.word(packed);
        }
        let text = self.view(packed).to_string();
        if let Some(&word) = self.txns.others.get(&text) {
            return word;
        }
        let word = self.table(packed);
        self.txns.others.insert(text, word);
        word
    }

    /// A packed scalar (`null`, a boolean, a 61-bit integer, a string) as a word.
    pub fn word(&mut self, packed: Packed) -> Word {
        if let Some(int) = packed.as_int()
            && let Ok(small) = u32::try_from(int)
            && small < TABLED
        {
            return Word(small);
        }
        if let Some(&word) = self.txns.scalars.get(&packed.bits()) {
            return word;
        }
        let word = self.table(packed);
        self.txns.scalars.insert(packed.bits(), word);
        word
    }

    fn table(&mut self, packed: Packed) -> Word {
        let place = u32::try_from(self.txns.tabled.len()).expect("fewer than 2^31 words");
        assert!(place < TABLED, "more than 2^31 distinct words");
        self.txns.tabled.push(packed);
        Word(TABLED | place)
    }

    /// The value that a word stands for.
    pub fn view_word(&self, word: Word) -> ValueRef<'_> {
        self.view(match word.as_small() {
            Some(small) => Packed::int(i64::from(small)),
            None => self.txns.tabled[(word.0 & !TABLED) as usize],
        })
    }
}

/// A transaction of a history.
#[derive(Clone, Copy)]
pub struct Txn<'a> {
    pub(crate) values: &'a Values,
    /// Its micro-operations in order. Those of an invocation are kept once with those of its
    /// answer, if that answers just them: its reads then hold what was read.
    pub mops: &'a [Mop],
    /// Whether nothing is read yet.
    pub(crate) asked: bool,
}

impl<'a> Txn<'a> {
    /// The value that a word stands for.
    pub fn word(self, word: Word) -> ValueRef<'a> {
        self.values.view_word(word)
    }

    /// The elements of a list that was read.
    pub fn list(self, start: u32, len: u32) -> &'a [Word] {
        &self.values.txns.elements[start as usize..(start + len) as usize]
    }

    /// The transaction as a list of `[f, key, value]`.
    pub fn to_json(self) -> Value {
        let word = |word| self.word(word).to_json();
        let mop = |mop: &Mop| {
            let value = match mop.value() {
                _ if self.asked && mop.kind() == MopKind::Read => Value::Null,
                MopValue::Nil => Value::Null,
                MopValue::One(one) => word(one),
                MopValue::List { start, len } => {
                    self.list(start, len).iter().copied().map(word).collect()
                }
            };
            Value::from(vec![mop.kind().name().into(), word(mop.key()), value])
        };
        self.mops.iter().map(mop).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn part() -> impl Strategy<Value = Value> {
        prop_oneof![
            4 => (0u64..20).prop_map(Value::from),
            1 => any::<i64>().prop_map(Value::from),
            1 => any::<u64>().prop_map(Value::from),
            1 => "[a-z]{0,4}".prop_map(Value::from),
            1 => Just(json!([1, {"a": 2}])),
            1 => Just(Value::Null),
        ]
    }

    fn mop() -> impl Strategy<Value = Value> {
        let list = prop::collection::vec(part(), 0..5).prop_map(Value::from);
        prop_oneof![
            (part(), part()).prop_map(|(key, value)| json!(["append", key, value])),
            (part(), part()).prop_map(|(key, value)| json!(["w", key, value])),
            (part(), list).prop_map(|(key, value)| json!(["r", key, value])),
            (part(), part()).prop_map(|(key, value)| json!(["r", key, value])),
        ]
    }

    proptest! {
        #[test]
        fn packing_loses_nothing(txns in prop::collection::vec(prop::collection::vec(mop(), 0..5), 1..6)) {
            let mut values = Values::default();
            let packed: Vec<Packed> = txns
                .iter()
                .map(|txn| values.pack_txn(&Value::from(txn.clone())).expect("a transaction"))
                .collect();
            for (txn, packed) in txns.iter().zip(packed) {
                prop_assert_eq!(&values.view(packed).to_json(), &Value::from(txn.clone()));
            }
        }

        #[test]
        fn words_are_equal_as_values_are(a in part(), b in part()) {
            let mut values = Values::default();
            let (first, second) = (values.word_of(&a), values.word_of(&b));
            prop_assert_eq!(first == second, a == b);
            prop_assert_eq!(values.view_word(first).to_json(), a);
        }
    }

    #[test]
    fn what_is_no_transaction_is_not_kept() {
        let mut values = Values::default();
        for other in [
            json!(3),
            json!([["r", 1]]),
            json!([["append", 1, 2], ["pop", 1, null]]),
            json!([["r", 1, [1, 2]], 7]),
        ] {
            assert_eq!(values.pack_txn(&other), None, "{other}");
        }
        assert_eq!((values.mops_len(), values.txns.elements.len()), (0, 0));
    }

    #[test]
    fn a_micro_operation_is_twelve_bytes() {
        assert_eq!(size_of::<Mop>(), 12);
    }
}
