//! The versions of every list: the longest read of it, and who appended each of its elements.
//!
//! ```text
//! key x   longest read   [ 3  | 1  | 4  ]     elements of the history
//!         writers        [ T2 | T0 | T7 ]     four bytes each
//! ```
//!
//! Every other read of `x` should be a beginning of it, so that its length alone says who wrote
//! what it ends with and who wrote the next element: nothing is looked up by value after this.

use history::{MopKind, MopValue, Outcome, Word};

use crate::transactions::graph::VERTICES_MAX;
use crate::transactions::input::Transactions;

/// Who appended an element, and whether that is the last word on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writer(u32);

impl Writer {
    /// Nobody did, or the element is in the list for a second time.
    pub(crate) const NOBODY: Writer = Writer(u32::MAX);

    fn new(txn: u32, is_intermediate: bool, is_failed: bool) -> Writer {
        Writer(txn << 2 | u32::from(is_failed) << 1 | u32::from(is_intermediate))
    }

    /// The transaction.
    pub(crate) fn txn(self) -> Option<u32> {
        (self != Writer::NOBODY).then_some(self.0 >> 2)
    }

    /// The transaction, if it did not fail.
    pub(crate) fn happened(self) -> Option<u32> {
        self.txn().filter(|_| !self.is_failed())
    }

    /// Whether the transaction failed.
    pub(crate) fn is_failed(self) -> bool {
        self != Writer::NOBODY && self.0 & 2 != 0
    }

    /// Whether the transaction appended to the same list again later.
    pub(crate) fn is_intermediate(self) -> bool {
        self != Writer::NOBODY && self.0 & 1 != 0
    }
}

/// All lists of a history.
#[derive(Debug)]
pub(crate) struct Lists {
    /// The longest read of each key, as a range of the elements of the history.
    longest: Vec<(u32, u32)>,
    /// Where the writers of each key begin.
    starts: Vec<u32>,
    writers: Vec<Writer>,
    /// Appends that nobody read, of transactions that happened: key and transaction, in order.
    unseen: Vec<(u32, u32)>,
    /// Unanswered transactions that happened, in order.
    pub(crate) seen_info: Vec<u32>,
    /// Keys and places of elements that nobody appended.
    pub(crate) garbage: Vec<(u32, u32)>,
    /// Keys and places of elements that are in the list for a second time.
    pub(crate) repeated: Vec<(u32, u32)>,
    /// Keys and places of elements that are in the list after one that their transaction appended
    /// later.
    pub(crate) turned: Vec<(u32, u32)>,
}

/// Why a history cannot be judged.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// A micro-operation that lists do not have.
    #[error(
        "the transaction of event {event} has a micro-operation `{found}`; lists have `append` of a value and `r` of a list"
    )]
    Mop { event: u32, found: &'static str },
    /// An element that was appended twice, so that nobody can say which was read.
    #[error(
        "the transactions of events {first} and {second} append the same element to the same list; each must be distinct"
    )]
    Twice { first: u32, second: u32 },
}

/// An append as it is looked up: its element, and its transaction.
type Append = (Word, u32);

impl Lists {
    /// The lists of these transactions; [`Lists::settle`] is to follow.
    ///
    /// # Errors
    /// If they are no transactions of lists, or append an element twice.
    pub(crate) fn of(txns: &Transactions<'_>) -> Result<Lists, Malformed> {
        assert!(txns.len() < VERTICES_MAX, "{} transactions", txns.len());
        let (longest, mut ends) = survey(txns)?;
        let appends = by_key(txns, &mut ends);
        let mut starts = Vec::with_capacity(longest.len() + 1);
        let mut total = 0;
        for &(_, len) in &longest {
            starts.push(total);
            total += len;
        }
        starts.push(total);
        let mut lists = Lists {
            longest,
            starts,
            writers: Vec::with_capacity(total as usize),
            unseen: Vec::new(),
            seen_info: Vec::new(),
            garbage: Vec::new(),
            repeated: Vec::new(),
            turned: Vec::new(),
        };
        let mut places = Places::default();
        let mut begin = 0;
        for key in (0..).take(lists.longest.len()) {
            let end = ends[key as usize] as usize;
            lists.join(txns, key, &appends[begin..end], &mut places)?;
            begin = end;
        }
        Ok(lists)
    }

    /// Settles which unanswered transactions happened: those of which something is in the longest
    /// reads, and these others of which something was read. What one of the rest appended may not
    /// have happened, or may yet.
    pub(crate) fn settle(&mut self, txns: &Transactions<'_>, others: &[u32]) {
        self.seen_info.extend_from_slice(others);
        self.seen_info.sort_unstable();
        self.seen_info.dedup();
        let seen = &self.seen_info;
        self.unseen.retain(|&(_, txn)| {
            txns.outcome[txn as usize] == Outcome::Ok || seen.binary_search(&txn).is_ok()
        });
        self.unseen.dedup();
    }

    /// Finds out who appended each element of the longest read of a key.
    fn join(
        &mut self,
        txns: &Transactions<'_>,
        key: u32,
        appends: &[Append],
        places: &mut Places,
    ) -> Result<(), Malformed> {
        places
            .fill(appends)
            .map_err(|(first, second)| Malformed::Twice {
                first: txns.invoke[first as usize],
                second: txns.invoke[second as usize],
            })?;
        let (start, len) = self.longest[key as usize];
        for (at, &word) in (0..).zip(txns.list(start, len)) {
            let writer = match places.take(appends, word, at) {
                Taken::Now(place) => {
                    let txn = appends[place].1;
                    let again = appends.get(place + 1).is_some_and(|next| next.1 == txn);
                    let outcome = txns.outcome[txn as usize];
                    if outcome == Outcome::Info {
                        self.seen_info.push(txn);
                    }
                    Writer::new(txn, again, outcome == Outcome::Fail)
                }
                Taken::Before => {
                    self.repeated.push((key, at));
                    Writer::NOBODY
                }
                Taken::Never => {
                    self.garbage.push((key, at));
                    Writer::NOBODY
                }
            };
            self.writers.push(writer);
        }
        let mut last = (u32::MAX, 0);
        for (&(_, txn), &at) in appends.iter().zip(&places.taken) {
            if at == NOWHERE {
                if txns.outcome[txn as usize] != Outcome::Fail {
                    self.unseen.push((key, txn));
                }
                continue;
            }
            if last.0 == txn && at < last.1 {
                self.turned.push((key, last.1));
            } else {
                last = (txn, at);
            }
        }
        Ok(())
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.longest.len()
    }

    /// The longest read of a key, as a range of the elements of the history.
    pub(crate) fn longest(&self, key: u32) -> (u32, u32) {
        self.longest[key as usize]
    }

    /// Who appended the elements of the longest read of a key.
    pub(crate) fn writers(&self, key: u32) -> &[Writer] {
        let key = key as usize;
        &self.writers[self.starts[key] as usize..self.starts[key + 1] as usize]
    }

    /// The last transaction that had happened and appended to the first `len` elements.
    pub(crate) fn last(&self, key: u32, len: u32) -> Option<u32> {
        let before = &self.writers(key)[..len as usize];
        before.iter().rev().find_map(|writer| writer.happened())
    }

    /// The first transaction that happened and appended after the first `len` elements.
    pub(crate) fn next(&self, key: u32, len: u32) -> Option<u32> {
        let after = &self.writers(key)[len as usize..];
        after.iter().find_map(|writer| writer.happened())
    }

    /// Transactions that appended to a key what nobody read, in order.
    pub(crate) fn unseen(&self, key: u32) -> &[(u32, u32)] {
        let start = self.unseen.partition_point(|&(other, _)| other < key);
        let len = self.unseen[start..].partition_point(|&(other, _)| other == key);
        &self.unseen[start..start + len]
    }

    /// All appends that nobody read: key and transaction, in order.
    pub(crate) fn all_unseen(&self) -> &[(u32, u32)] {
        &self.unseen
    }

    /// Bytes that they hold.
    pub(crate) fn heap_bytes(&self) -> u64 {
        (self.longest.capacity() * 12 + self.writers.capacity() * 4 + self.unseen.capacity() * 8)
            as u64
    }
}

/// The longest read of each key, and how often each is appended to.
type Survey = (Vec<(u32, u32)>, Vec<u32>);

fn survey(txns: &Transactions<'_>) -> Result<Survey, Malformed> {
    let mut longest = vec![(0, 0); txns.keys.len()];
    let mut counts = vec![0; txns.keys.len()];
    for txn in (0..).take(txns.len()) {
        let is_ok = txns.outcome[txn as usize] == Outcome::Ok;
        for mop in txns.mops(txn) {
            let key = txns.keys.number(mop.key()) as usize;
            match (mop.kind(), mop.value()) {
                (MopKind::Append, MopValue::One(_)) => counts[key] += 1,
                (MopKind::Read, MopValue::List { start, len }) if is_ok => {
                    if len > longest[key].1 {
                        longest[key] = (start, len);
                    }
                }
                (MopKind::Read, MopValue::Nil | MopValue::List { .. }) => {}
                (kind, _) => {
                    return Err(Malformed::Mop {
                        event: txns.invoke[txn as usize],
                        found: kind.name(),
                    });
                }
            }
        }
    }
    Ok((longest, counts))
}

/// All appends, those of one key together, in the order of their transactions. The counts become
/// the ends of the keys.
fn by_key(txns: &Transactions<'_>, counts: &mut [u32]) -> Vec<Append> {
    let mut total: u32 = 0;
    for count in counts.iter_mut() {
        let begin = total;
        total += *count;
        *count = begin;
    }
    let mut appends: Vec<Append> = Vec::new();
    for txn in (0..).take(txns.len()) {
        for mop in txns.mops(txn) {
            if let (MopKind::Append, MopValue::One(word)) = (mop.kind(), mop.value()) {
                if appends.is_empty() {
                    appends = vec![(word, 0); total as usize];
                }
                let place = &mut counts[txns.keys.number(mop.key()) as usize];
                appends[*place as usize] = (word, txn);
                *place += 1;
            }
        }
    }
    appends
}

/// A table from the elements that were appended to one key to their places; used for one key after
/// the other.
#[derive(Default)]
struct Places {
    /// Place + 1, 0 where there is none.
    table: Vec<u32>,
    /// Where in the list each was found; [`NOWHERE`] if it was not.
    taken: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

enum Taken {
    Now(usize),
    Before,
    Never,
}

impl Places {
    /// The pair of transactions that append the same, if there is one.
    fn fill(&mut self, appends: &[Append]) -> Result<(), (u32, u32)> {
        self.table.clear();
        self.table
            .resize((2 * appends.len()).next_power_of_two(), 0);
        self.taken.clear();
        self.taken.resize(appends.len(), NOWHERE);
        for (place, &(word, txn)) in (1..).zip(appends) {
            let slot = self.slot(appends, word);
            let found = &mut self.table[slot];
            if *found != 0 {
                return Err((appends[*found as usize - 1].1, txn));
            }
            *found = place;
        }
        Ok(())
    }

    /// Where an element is, or would be.
    fn slot(&self, appends: &[Append], word: Word) -> usize {
        let mask = self.table.len() - 1;
        // The upper half of a product with the golden ratio spreads integers that follow each
        // other as well as those that do not.
        let hash = u64::from(word.bits()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let mut slot = hash as usize & mask;
        while self.table[slot] != 0 && appends[self.table[slot] as usize - 1].0 != word {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn take(&mut self, appends: &[Append], word: Word, at: u32) -> Taken {
        match self.table[self.slot(appends, word)] {
            0 => Taken::Never,
            found => {
                let place = found as usize - 1;
                if self.taken[place] != NOWHERE {
                    return Taken::Before;
                }
                self.taken[place] = at;
                Taken::Now(place)
            }
        }
    }
}
