//! What went wrong with lists, in words.

use history::{MopKind, MopValue, Word};

use super::lists::Lists;
use crate::transactions::anomalies::Base;
use crate::transactions::graph::Dep;
use crate::transactions::input::Transactions;
use crate::transactions::report::Case;
use crate::transactions::tell::Names;
use crate::verdict::Counterexample;
use crate::words::{self, Story};

/// Tells of the transactions of a history.
#[derive(Clone, Copy)]
pub(crate) struct Teller<'a, 'h> {
    pub(crate) txns: &'a Transactions<'h>,
    pub(crate) lists: &'a Lists,
}

impl<'h> Teller<'_, 'h> {
    /// Tells a case of an anomaly that is no cycle.
    pub(crate) fn case(self, base: Base, case: &Case) -> Counterexample {
        let txns = self.txns;
        let mut names = Names::default();
        let (txn, other) = (names.of(case.txn), case.other.map(|other| names.of(other)));
        let other = other.unwrap_or_else(|| "nobody".to_owned());
        let key = txns.key(case.key);
        let element = case
            .element
            .map_or_else(|| "nothing".to_owned(), |word| txns.value(word));
        let (said, of_other) = match base {
            Base::DuplicateElements => (
                format!("read {element} in {key} more than once, though it was appended once"),
                String::new(),
            ),
            Base::GarbageRead => (
                format!("read {element} in {key}, which nobody appended"),
                String::new(),
            ),
            Base::IncompatibleOrder if case.other.is_none() => (
                format!(
                    "appended {element} to {key} and then more, which is in the list before it"
                ),
                String::new(),
            ),
            Base::IncompatibleOrder => (
                format!("read {element} in {key} where {other} read something else"),
                format!("read {key} in another order than {txn}"),
            ),
            Base::G1a => (
                format!("read {element} in {key}, which {other} appended, which failed"),
                format!("failed, and {txn} read its {element} in {key}"),
            ),
            Base::DirtyUpdate => (
                format!("appended to {key} after {element} of {other}, which failed"),
                format!("failed, and {txn} appended to {key} after its {element}"),
            ),
            Base::G1b => (
                format!("read {key} up to {element}, after which {other} appended more"),
                format!("appended to {key} again after {element}"),
            ),
            Base::FutureRead => (
                format!("read {element} in {key} before it appended it itself"),
                String::new(),
            ),
            Base::LostUpdate => (
                format!("read {key} up to {element}, as {other} did, and appended to it"),
                format!("read {key} up to {element}, as {txn} did, and appended to it"),
            ),
            _ => (
                format!("read {key} up to {element}, against what it read or appended before"),
                String::new(),
            ),
        };
        let mut story = Story::default();
        let event = txns.event(case.txn);
        story.tell(event, format!("{txn} ({}) {said}", words::who(event)));
        if let Some(second) = case.other {
            let event = txns.event(second);
            story.tell(event, format!("{other} ({}) {of_other}", words::who(event)));
        }
        let anomaly = crate::transactions::anomalies::Anomaly::from(base);
        story.finish(format!("{anomaly}: {txn} {said}"))
    }

    /// Why one transaction is before another.
    pub(crate) fn why(self, names: &mut Names, from: u32, to: u32, dep: Dep) -> String {
        let (a, b) = (names.of(from), names.of(to));
        let txns = self.txns;
        match dep {
            Dep::Ww => match self.appended_after(from, to) {
                Some((key, Some(first), second)) => format!(
                    "{a} appended {} to {}, {b} appended {} after it",
                    txns.value(first),
                    txns.key(key),
                    txns.value(second)
                ),
                _ => format!("{a} appended before {b}"),
            },
            Dep::Wr => match self.read_from(from, to) {
                Some((key, list)) => format!(
                    "{a} appended the last element of {} = {}, which {b} read",
                    txns.key(key),
                    txns.list_text(list)
                ),
                None => format!("{b} read what {a} appended"),
            },
            _ => match self.missed(from, to) {
                Some((key, list, element)) => format!(
                    "{a} read {} = {}, without {} that {b} appended",
                    txns.key(key),
                    txns.list_text(list),
                    txns.value(element)
                ),
                None => format!("{a} did not read what {b} appended"),
            },
        }
    }

    fn lists_read(self, txn: u32) -> impl Iterator<Item = (u32, &'h [Word])> {
        let reads = self.txns.mops(txn).iter();
        let reads = reads.filter(|mop| mop.kind() == MopKind::Read);
        reads.map(move |mop| {
            let list = match mop.value() {
                MopValue::List { start, len } => self.txns.list(start, len),
                _ => &[][..],
            };
            (self.txns.keys.number(mop.key()), list)
        })
    }

    fn appends(self, txn: u32) -> impl Iterator<Item = (u32, Word)> {
        let appends = self.txns.mops(txn).iter();
        let appends = appends.filter(|mop| mop.kind() == MopKind::Append);
        appends.filter_map(move |mop| match mop.value() {
            MopValue::One(word) => Some((self.txns.keys.number(mop.key()), word)),
            _ => None,
        })
    }

    fn longest(self, key: u32) -> &'h [Word] {
        let (start, len) = self.lists.longest(key);
        self.txns.list(start, len)
    }

    /// An element that was appended by `to` right after one of `from`: key, that one, and it.
    fn appended_after(self, from: u32, to: u32) -> Option<(u32, Option<Word>, Word)> {
        self.appends(to).find_map(|(key, word)| {
            let list = self.longest(key);
            let place = list.iter().position(|&other| other == word);
            let place = place.unwrap_or(list.len());
            let writers = &self.lists.writers(key)[..place];
            let before = writers
                .iter()
                .rposition(|writer| writer.happened().is_some())?;
            let is_from = writers[before].happened() == Some(from);
            is_from.then(|| (key, Some(list[before]), word))
        })
    }

    /// A list that `to` read and that ends with an element of `from`.
    fn read_from(self, from: u32, to: u32) -> Option<(u32, &'h [Word])> {
        self.lists_read(to).find(|&(key, list)| {
            let last = list.last().map(|&word| (key, word));
            let fits = self.longest(key).starts_with(list);
            let by_place =
                fits && self.lists.last(key, u32::try_from(list.len()).unwrap_or(0)) == Some(from);
            by_place || last.is_some_and(|last| self.appends(from).any(|other| other == last))
        })
    }

    /// A list that `from` read, and the next element, which `to` appended.
    fn missed(self, from: u32, to: u32) -> Option<(u32, &'h [Word], Word)> {
        self.lists_read(from).find_map(|(key, list)| {
            let longest = self.longest(key);
            if !longest.starts_with(list) {
                return None;
            }
            let writers = &self.lists.writers(key)[list.len()..];
            let element = match writers
                .iter()
                .position(|writer| writer.happened().is_some())
            {
                Some(at) if writers[at].happened() == Some(to) => longest[list.len() + at],
                Some(_) => return None,
                None => {
                    let unseen =
                        |&(other, word): &(u32, Word)| other == key && !longest.contains(&word);
                    self.appends(to).find(unseen)?.1
                }
            };
            Some((key, list, element))
        })
    }
}
