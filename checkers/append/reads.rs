//! What reads show by themselves, without a graph: of aborted and intermediate appends, of
//! elements that nobody appended or that are there twice, of orders that contradict each other,
//! of a transaction that contradicts itself, and of updates that were lost.

use std::collections::BTreeMap;

use history::{Mop, MopKind, MopValue, Outcome, Word};
use rustc_hash::FxHashMap;

use super::lists::{Lists, Writer};
use crate::transactions::anomalies::Base;
use crate::transactions::input::{NEVER, Transactions};
use crate::transactions::report::{Case, Cases};

/// A read that is no beginning of the longest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Incompatible {
    pub(crate) txn: u32,
    /// Which of its micro-operations.
    pub(crate) at: u32,
    pub(crate) key: u32,
    /// Who appended its last element, if that happened.
    pub(crate) last: Option<u32>,
}

/// What the reads of a history show.
#[derive(Default)]
pub(crate) struct Shown {
    pub(crate) cases: BTreeMap<Base, Cases>,
    /// In the order of transactions and their micro-operations.
    pub(crate) incompatible: Vec<Incompatible>,
    /// Unanswered transactions of which these have elements.
    pub(crate) seen_info: Vec<u32>,
    pub(crate) reads: u64,
}

/// Looks at all reads.
pub(crate) fn look(txns: &Transactions<'_>, lists: &Lists) -> Shown {
    let mut scan = Scan {
        txns,
        lists,
        shown: Shown::default(),
        failed: FxHashMap::default(),
        garbage: FxHashMap::default(),
        before: Vec::new(),
        latest: FxHashMap::default(),
        updates: Vec::new(),
    };
    scan.versions();
    for txn in (0..).take(txns.len()) {
        if txns.outcome[txn as usize] == Outcome::Ok {
            scan.transaction(txn);
        }
    }
    scan.lost_updates();
    scan.incompatible();
    scan.shown
}

struct Scan<'a, 'h> {
    txns: &'a Transactions<'h>,
    lists: &'a Lists,
    shown: Shown,
    /// The first place of each key whose element an aborted transaction appended.
    failed: FxHashMap<u32, u32>,
    /// The first place of each key whose element nobody appended.
    garbage: FxHashMap<u32, u32>,
    /// For each micro-operation of the present transaction the one before it on the same key.
    before: Vec<u32>,
    latest: FxHashMap<u32, u32>,
    /// Key, length and transaction where one appended after it read that length, and somebody
    /// else, or nobody, appended the next element.
    updates: Vec<(u32, u32, u32)>,
}

/// Transactions of more micro-operations than this are indexed by key.
const SHORT: usize = 16;

impl<'h> Scan<'_, 'h> {
    fn add(&mut self, base: Base, case: Case) {
        let cases = self.shown.cases.entry(base).or_insert(Cases {
            count: 0,
            first: case,
        });
        cases.count += 1;
    }

    fn list(&self, mop: Mop) -> &'h [Word] {
        match mop.value() {
            MopValue::List { start, len } => self.txns.list(start, len),
            _ => &[],
        }
    }

    fn longest(&self, key: u32) -> &'h [Word] {
        let (start, len) = self.lists.longest(key);
        self.txns.list(start, len)
    }

    /// What the longest reads show: repeated elements, those that nobody appended, and committed
    /// appends on top of aborted ones.
    fn versions(&mut self) {
        for &(key, at) in &self.lists.garbage {
            self.garbage.entry(key).or_insert(at);
        }
        for &(key, at) in &self.lists.repeated {
            let element = self.longest(key)[at as usize];
            let txn = self.reader_of_longest(key);
            let case = Case {
                txn,
                other: None,
                key,
                element: Some(element),
            };
            self.add(Base::DuplicateElements, case);
        }
        for &(key, at) in &self.lists.turned {
            let Some(txn) = self.lists.writers(key)[at as usize].txn() else {
                continue;
            };
            let case = Case {
                txn,
                other: None,
                key,
                element: Some(self.longest(key)[at as usize]),
            };
            self.add(Base::IncompatibleOrder, case);
        }
        for key in (0..).take(self.lists.len()) {
            let mut aborted: Option<(u32, Writer)> = None;
            for (at, &writer) in (0..).zip(self.lists.writers(key)) {
                if writer.is_failed() {
                    self.failed.entry(key).or_insert(at);
                    aborted = Some((at, writer));
                } else if let (Some(txn), Some((place, dirty))) = (writer.txn(), aborted)
                    && self.txns.outcome[txn as usize] == Outcome::Ok
                {
                    let case = Case {
                        txn,
                        other: dirty.txn(),
                        key,
                        element: Some(self.longest(key)[place as usize]),
                    };
                    self.add(Base::DirtyUpdate, case);
                    aborted = None;
                }
            }
        }
    }

    fn reader_of_longest(&self, key: u32) -> u32 {
        let (start, len) = self.lists.longest(key);
        let reads = |mop: &Mop| mop.value() == MopValue::List { start, len };
        (0..)
            .take(self.txns.len())
            .find(|&txn| self.txns.mops(txn).iter().any(reads))
            .unwrap_or(NEVER)
    }

    fn transaction(&mut self, txn: u32) {
        let mops = self.txns.mops(txn);
        self.link(mops);
        for (at, &mop) in mops.iter().enumerate() {
            let key = self.txns.keys.number(mop.key());
            if mop.kind() == MopKind::Append {
                self.update(txn, mops, at, key);
            } else {
                self.read(txn, mops, at, key);
            }
        }
    }

    /// Finds for each micro-operation the one before it on the same key.
    fn link(&mut self, mops: &[Mop]) {
        self.before.clear();
        self.latest.clear();
        for (at, mop) in mops.iter().enumerate() {
            let before = if mops.len() <= SHORT {
                let same = |before: &usize| mops[*before].key() == mop.key();
                (0..at).rev().find(same).map_or(NEVER, number)
            } else {
                let key = mop.key().bits();
                self.latest.insert(key, number(at)).unwrap_or(NEVER)
            };
            self.before.push(before);
        }
    }

    fn before<'m>(&self, mops: &'m [Mop], at: usize) -> Option<(usize, &'m Mop)> {
        let before = self.before[at] as usize;
        mops.get(before).map(|mop| (before, mop))
    }

    /// If this is the first append to a list that the transaction has read: of what it read.
    fn update(&mut self, txn: u32, mops: &[Mop], at: usize, key: u32) {
        let mut first = None;
        let mut place = at;
        while let Some((before, mop)) = self.before(mops, place) {
            if mop.kind() == MopKind::Append {
                return;
            }
            first = Some(mop);
            place = before;
        }
        let Some(&read) = first else { return };
        let list = self.list(read);
        let fits = self.longest(key).starts_with(list);
        if fits && self.lists.next(key, number(list.len())) != Some(txn) {
            self.updates.push((key, number(list.len()), txn));
        }
    }

    fn read(&mut self, txn: u32, mops: &[Mop], at: usize, key: u32) {
        self.shown.reads += 1;
        let list = self.list(mops[at]);
        let case = |other, element| Case {
            txn,
            other,
            key,
            element,
        };
        if self.contradicts(mops, at, list) {
            self.add(Base::Internal, case(None, list.last().copied()));
        }
        if !self.longest(key).starts_with(list) {
            self.shown.incompatible.push(Incompatible {
                txn,
                at: number(at),
                key,
                last: None,
            });
            return;
        }
        let len = number(list.len());
        if !self.failed.is_empty()
            && let Some(&place) = self.failed.get(&key).filter(|&&place| place < len)
        {
            let writer = self.lists.writers(key)[place as usize].txn();
            self.add(Base::G1a, case(writer, Some(list[place as usize])));
        }
        if !self.garbage.is_empty()
            && let Some(&place) = self.garbage.get(&key).filter(|&&place| place < len)
        {
            self.add(Base::GarbageRead, case(None, Some(list[place as usize])));
        }
        if let Some(&last) = list.last() {
            let writer = self.lists.writers(key)[list.len() - 1];
            self.ending(txn, mops, at, case(writer.txn(), Some(last)), writer);
        }
    }

    /// What the last element of a read shows.
    fn ending(&mut self, txn: u32, mops: &[Mop], at: usize, case: Case, writer: Writer) {
        if writer.txn() == Some(txn) {
            let append = case.element.map(MopValue::One);
            let appends_it = |mop: &Mop| {
                mop.kind() == MopKind::Append
                    && mop.key() == mops[at].key()
                    && Some(mop.value()) == append
            };
            // Most often it has just appended it; only otherwise is the rest looked through.
            let before = self.before(mops, at);
            if !before.is_some_and(|(_, mop)| appends_it(mop)) && mops[at..].iter().any(appends_it)
            {
                self.add(Base::FutureRead, case);
            }
        } else if writer.is_intermediate() && !writer.is_failed() {
            self.add(Base::G1b, case);
        }
    }

    /// Whether a read is not what its transaction read before, followed by what it appended since.
    fn contradicts(&self, mops: &[Mop], at: usize, list: &[Word]) -> bool {
        let mut rest = list;
        let mut place = at;
        while let Some((before, mop)) = self.before(mops, place) {
            if mop.kind() == MopKind::Read {
                return self.list(*mop) != rest;
            }
            match rest.split_last() {
                Some((&last, others)) if MopValue::One(last) == mop.value() => rest = others,
                _ => return true,
            }
            place = before;
        }
        false
    }

    /// Groups transactions that read the same version of a list and appended to it.
    fn lost_updates(&mut self) {
        let mut updates = std::mem::take(&mut self.updates);
        updates.sort_unstable();
        updates.dedup();
        for group in updates.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (key, len, txn) = group[0];
            let winner = self.lists.next(key, len);
            let winner = winner.filter(|&winner| self.updates_from(winner, key, len));
            let Some(other) = winner.or(group.get(1).map(|&(_, _, other)| other)) else {
                continue;
            };
            let element = len.checked_sub(1).map(|at| self.longest(key)[at as usize]);
            let case = Case {
                txn,
                other: Some(other),
                key,
                element,
            };
            self.add(Base::LostUpdate, case);
        }
    }

    /// Whether a transaction read this version of a list before it appended to it.
    fn updates_from(&self, txn: u32, key: u32, len: u32) -> bool {
        let word = self.txns.keys.word(key);
        let mut mops = self.txns.mops(txn).iter().filter(|mop| mop.key() == word);
        self.txns.outcome[txn as usize] == Outcome::Ok
            && mops.next().is_some_and(|mop| {
                let version = &self.longest(key)[..len as usize];
                mop.kind() == MopKind::Read && self.list(*mop) == version
            })
    }

    /// Looks the elements of reads up that are no beginnings of the longest ones.
    fn incompatible(&mut self) {
        if self.shown.incompatible.is_empty() {
            return;
        }
        let mut reads = std::mem::take(&mut self.shown.incompatible);
        let writers = self.writers_of(&reads);
        for read in &mut reads {
            let list = self.list(self.txns.mops(read.txn)[read.at as usize]);
            let case = |other, element| Case {
                txn: read.txn,
                other,
                key: read.key,
                element,
            };
            let longest = self.reader_of_longest(read.key);
            let differ = self.longest(read.key).iter().zip(list);
            let differing = differ.into_iter().find(|(a, b)| a != b).map(|(_, b)| *b);
            self.add(Base::IncompatibleOrder, case(Some(longest), differing));
            let mut sorted = list.to_vec();
            sorted.sort_unstable();
            if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                self.add(Base::DuplicateElements, case(None, Some(twice[0])));
            }
            let writer = |word: &Word| writers.get(&(read.key, *word)).copied();
            if let Some(element) = list.iter().find(|word| writer(word).is_none()) {
                self.add(Base::GarbageRead, case(None, Some(*element)));
            }
            let outcome = |txn: u32| self.txns.outcome[txn as usize];
            let seen = list.iter().filter_map(writer).map(|(txn, _)| txn);
            let seen = seen.filter(|&txn| outcome(txn) == Outcome::Info);
            self.shown.seen_info.extend(seen);
            let aborted = |word: &Word| {
                let (txn, _) = writer(word)?;
                (self.txns.outcome[txn as usize] == Outcome::Fail).then_some((txn, *word))
            };
            if let Some((txn, word)) = list.iter().find_map(aborted) {
                self.add(Base::G1a, case(Some(txn), Some(word)));
            }
            let last = list.last().and_then(|word| Some((writer(word)?, *word)));
            let Some(((txn, is_intermediate), word)) = last else {
                continue;
            };
            if self.txns.outcome[txn as usize] != Outcome::Fail {
                read.last = Some(txn);
                let is_repeated = list[..list.len() - 1].contains(&word);
                if is_intermediate && txn != read.txn && !is_repeated {
                    self.add(Base::G1b, case(Some(txn), Some(word)));
                }
            }
        }
        self.shown.incompatible = reads;
    }

    /// Who appended each element to the keys of these reads, and whether it appended to them
    /// again.
    fn writers_of(&self, reads: &[Incompatible]) -> FxHashMap<(u32, Word), (u32, bool)> {
        let mut wanted = vec![false; self.lists.len()];
        for read in reads {
            wanted[read.key as usize] = true;
        }
        let mut writers: FxHashMap<(u32, Word), (u32, bool)> = FxHashMap::default();
        for txn in (0..).take(self.txns.len()) {
            let mut last: FxHashMap<u32, Word> = FxHashMap::default();
            for mop in self.txns.mops(txn) {
                let key = self.txns.keys.number(mop.key());
                if let (true, MopKind::Append, MopValue::One(word)) =
                    (wanted[key as usize], mop.kind(), mop.value())
                {
                    writers.insert((key, word), (txn, false));
                    let earlier = last.insert(key, word);
                    let earlier = earlier.and_then(|word| writers.get_mut(&(key, word)));
                    if let Some((_, is_intermediate)) = earlier {
                        *is_intermediate = true;
                    }
                }
            }
        }
        writers
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 elements")
}
