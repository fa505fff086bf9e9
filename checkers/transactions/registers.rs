//! The transactions of a history as transactions over registers: who wrote what each of them read.
//!
//! Values are told apart by key, so that a value names its write; where two transactions wrote the
//! same value, and somebody read it, it does not, and the history is [`Registers::ambiguous`]. What
//! reads show by themselves (of aborted and intermediate writes, of what nobody wrote, of a
//! transaction that contradicts itself) is found on the way.

use std::collections::BTreeMap;

use history::{History, Mop, MopKind, MopValue, Outcome};
use rustc_hash::FxHashMap;

use super::anomalies::Base;
use super::input::{NEVER, Transactions};
use super::number;
use super::report::{Case, Cases};
use crate::params::{INITIAL, NIL_READS};

/// The writer of the value before the first write.
pub(crate) const INIT: u32 = NEVER;

/// A read of what another transaction wrote, or of the value before the first write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) key: u32,
    /// Who wrote it: [`INIT`] for the value before the first write.
    pub(crate) writer: u32,
}

/// A value that two transactions wrote and somebody read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ambiguous {
    pub(crate) reader: u32,
    pub(crate) key: u32,
    pub(crate) mop: Mop,
    /// [`INIT`] if the first is the value before the first write.
    pub(crate) writers: (u32, u32),
}

/// Transactions over registers.
pub(crate) struct Registers {
    /// Whether a transaction happened for certain: answered so, or somebody read what it wrote.
    pub(crate) happened: Vec<bool>,
    read_starts: Vec<u32>,
    reads: Vec<Read>,
    write_starts: Vec<u32>,
    writes: Vec<u32>,
    /// The last one before each in its session that happened; [`NEVER`] if there is none.
    pub(crate) previous: Vec<u32>,
    pub(crate) cases: BTreeMap<Base, Cases>,
    pub(crate) ambiguous: Option<Ambiguous>,
    /// How many reads were looked at.
    pub(crate) read_count: u64,
    key_count: usize,
}

/// Why a history is not one of registers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("the operation of event {0} appends to a list where registers are written")]
    Append(u32),
    #[error("the operation of event {0} reads a list where a register is read")]
    List(u32),
}

/// What stands for `null` among values, which are words otherwise.
const NIL: u32 = u32::MAX;

impl Registers {
    /// Finds who wrote what was read.
    ///
    /// # Errors
    /// Which operation is none on a register.
    pub(crate) fn of(txns: &Transactions<'_>) -> Result<Registers, Malformed> {
        let mut scan = Scan::new(txns);
        for txn in (0..).take(txns.len()) {
            scan.writes_of(txn)?;
        }
        for txn in (0..).take(txns.len()) {
            if txns.outcome[txn as usize] == Outcome::Ok {
                scan.reads_of(txn)?;
            }
            scan.found.read_starts.push(number(scan.found.reads.len()));
        }
        let mut found = scan.found;
        let mut last = vec![NEVER; txns.session_count as usize];
        for txn in (0..).take(txns.len()) {
            let last = &mut last[txns.session[txn as usize] as usize];
            let happened = found.happened[txn as usize];
            found.previous.push(if happened { *last } else { NEVER });
            if happened {
                *last = txn;
            }
        }
        Ok(found)
    }

    /// How many transactions there are.
    pub(crate) fn len(&self) -> usize {
        self.happened.len()
    }

    /// What a transaction read of others, in its order.
    pub(crate) fn reads(&self, txn: u32) -> &[Read] {
        let txn = txn as usize;
        &self.reads[self.read_starts[txn] as usize..self.read_starts[txn + 1] as usize]
    }

    /// All reads of others.
    pub(crate) fn all_reads(&self) -> &[Read] {
        &self.reads
    }

    /// The versions that a transaction wrote: a range of those of all.
    pub(crate) fn versions(&self, txn: u32) -> std::ops::Range<u32> {
        self.write_starts[txn as usize]..self.write_starts[txn as usize + 1]
    }

    /// How many versions there are.
    pub(crate) fn version_count(&self) -> usize {
        self.writes.len()
    }

    /// The keys that a transaction wrote, sorted.
    pub(crate) fn writes(&self, txn: u32) -> &[u32] {
        let versions = self.versions(txn);
        &self.writes[versions.start as usize..versions.end as usize]
    }

    /// The version of a key that a transaction wrote.
    pub(crate) fn version(&self, txn: u32, key: u32) -> Option<u32> {
        let place = self.writes(txn).binary_search(&key).ok()?;
        Some(self.versions(txn).start + number(place))
    }

    /// How many keys there are.
    pub(crate) fn key_count(&self) -> usize {
        self.key_count
    }

    /// Bytes that it holds.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let numbers = self.read_starts.capacity() + self.write_starts.capacity();
        let numbers = numbers + self.writes.capacity() + self.previous.capacity();
        (4 * numbers + self.happened.capacity() + 8 * self.reads.capacity()) as u64
    }
}

struct Scan<'a, 'h> {
    txns: &'a Transactions<'h>,
    writers: Writers,
    found: Registers,
    /// The value before the first write, and whether a read of null says nothing.
    initial: Option<u32>,
    nil_is_unknown: bool,
    /// The numbers of the keys of the present transaction.
    keys: Vec<u32>,
    /// For each of its micro-operations the one before it on the same key.
    before: Vec<u32>,
    latest: FxHashMap<u32, u32>,
}

/// Transactions of more micro-operations than this are indexed by key.
const SHORT: usize = 16;

impl<'a, 'h> Scan<'a, 'h> {
    fn new(txns: &'a Transactions<'h>) -> Scan<'a, 'h> {
        let count = txns.len();
        let mops = (0..number(count)).flat_map(|txn| txns.mops(txn));
        let writes = mops.filter(|mop| mop.kind() == MopKind::Write).count();
        let reads = (0..number(count)).map(|txn| txns.mops(txn).len());
        let reads = reads.sum::<usize>() - writes;
        let mut found = Registers {
            happened: Vec::with_capacity(count),
            read_starts: Vec::with_capacity(count + 1),
            reads: Vec::with_capacity(reads),
            write_starts: Vec::with_capacity(count + 1),
            writes: Vec::with_capacity(writes),
            previous: Vec::with_capacity(count),
            cases: BTreeMap::new(),
            ambiguous: None,
            read_count: 0,
            key_count: txns.keys.len(),
        };
        found.read_starts.push(0);
        found.write_starts.push(0);
        Scan {
            txns,
            writers: Writers::for_writes(writes),
            found,
            initial: initial(txns.history),
            nil_is_unknown: NIL_READS.word(&txns.history.header) == "unknown",
            keys: Vec::new(),
            before: Vec::new(),
            latest: FxHashMap::default(),
        }
    }

    fn add(&mut self, base: Base, case: Case) {
        let cases = self.found.cases.entry(base).or_insert(Cases {
            count: 0,
            first: case,
        });
        cases.count += 1;
    }

    /// Numbers the keys of a transaction, and links its micro-operations on the same key.
    fn link(&mut self, txn: u32) -> &'h [Mop] {
        let mops = self.txns.mops(txn);
        let keys = mops.iter().map(|mop| self.txns.keys.number(mop.key()));
        self.keys.clear();
        self.keys.extend(keys);
        self.before.clear();
        self.latest.clear();
        for (at, key) in self.keys.iter().enumerate() {
            let before = if mops.len() <= SHORT {
                let earlier = self.keys[..at].iter().rposition(|other| other == key);
                earlier.map_or(NEVER, number)
            } else {
                self.latest.insert(*key, number(at)).unwrap_or(NEVER)
            };
            self.before.push(before);
        }
        mops
    }

    /// Enters what a transaction wrote.
    fn writes_of(&mut self, txn: u32) -> Result<(), Malformed> {
        let outcome = self.txns.outcome[txn as usize];
        self.found.happened.push(outcome == Outcome::Ok);
        let mops = self.link(txn);
        if mops.iter().any(|mop| mop.kind() == MopKind::Append) {
            return Err(Malformed::Append(self.txns.invoke[txn as usize]));
        }
        let first = self.found.writes.len();
        for at in (0..mops.len()).rev() {
            let Some(value) = code(mops[at]).filter(|_| mops[at].kind() == MopKind::Write) else {
                continue;
            };
            let key = self.keys[at];
            let is_last = if mops.len() <= SHORT {
                !self.found.writes[first..].contains(&key)
            } else {
                self.latest.insert(key, NEVER) != Some(NEVER)
            };
            if is_last {
                self.found.writes.push(key);
            }
            let writer = Writer::of(txn, outcome, !is_last);
            self.writers.insert(key, value, writer);
        }
        if outcome == Outcome::Fail {
            self.found.writes.truncate(first);
        }
        self.found.writes[first..].sort_unstable();
        self.found
            .write_starts
            .push(number(self.found.writes.len()));
        Ok(())
    }

    fn reads_of(&mut self, txn: u32) -> Result<(), Malformed> {
        let mops = self.link(txn);
        for (at, mop) in mops.iter().enumerate() {
            if mop.kind() == MopKind::Read {
                self.found.read_count += 1;
                let list = Malformed::List(self.txns.invoke[txn as usize]);
                self.read(txn, mops, at, code(*mop).ok_or(list)?);
            }
        }
        Ok(())
    }

    fn read(&mut self, txn: u32, mops: &[Mop], at: usize, value: u32) {
        if value == NIL && self.nil_is_unknown {
            return;
        }
        let (mop, key) = (mops[at], self.keys[at]);
        let case = |other| Case {
            txn,
            other,
            key,
            element: word(mop),
        };
        if let Some(before) = mops.get(self.before[at] as usize) {
            let was_read = before.kind() == MopKind::Read;
            let says_nothing = was_read && code(*before) == Some(NIL) && self.nil_is_unknown;
            if code(*before) != Some(value) && !says_nothing {
                self.add(Base::Internal, case(None));
            } else if !was_read {
                return;
            }
        }
        let writer = self.writers.find(key, value);
        let ambiguous = |writers| Ambiguous {
            reader: txn,
            key,
            mop,
            writers,
        };
        let is_initial = self.initial == Some(value);
        match writer {
            None if is_initial => self.found.reads.push(Read { key, writer: INIT }),
            None => self.add(Base::GarbageRead, case(None)),
            Some(writer) if is_initial && !writer.is_failed() => {
                let found = ambiguous((INIT, writer.txn()));
                self.found.ambiguous.get_or_insert(found);
            }
            Some(_) if is_initial => self.found.reads.push(Read { key, writer: INIT }),
            Some(writer) if writer.is_twice() => {
                let writers = self.writers.twice[&(key, value)];
                self.found.ambiguous.get_or_insert(ambiguous(writers));
            }
            Some(writer) if writer.is_failed() => self.add(Base::G1a, case(Some(writer.txn()))),
            Some(writer) if writer.txn() == txn => {
                let writes_it = |other: &Mop| {
                    other.kind() == MopKind::Write
                        && other.key() == mop.key()
                        && other.value() == mop.value()
                };
                if !mops[..at].iter().any(writes_it) {
                    self.add(Base::FutureRead, case(None));
                }
            }
            Some(writer) => {
                let other = writer.txn();
                if writer.is_intermediate() {
                    self.add(Base::G1b, case(Some(other)));
                }
                self.found.happened[other as usize] = true;
                self.found.reads.push(Read { key, writer: other });
            }
        }
    }
}

/// A value as a number: equal ones are equal values of one history. `None` for a list.
fn code(mop: Mop) -> Option<u32> {
    match mop.value() {
        MopValue::Nil => Some(NIL),
        MopValue::One(word) => Some(word.bits()),
        MopValue::List { .. } => None,
    }
}

fn word(mop: Mop) -> Option<history::Word> {
    match mop.value() {
        MopValue::One(word) => Some(word),
        _ => None,
    }
}

/// The value before the first write; `None` if it occurs nowhere.
fn initial(history: &History) -> Option<u32> {
    let value = match history.header.params.get(INITIAL.name) {
        None => return Some(NIL),
        Some(value) if value.is_null() => return Some(NIL),
        Some(value) => value,
    };
    let mut words = history.mops().iter().filter_map(|mop| word(*mop));
    let is_it = |word: &history::Word| match word.as_small() {
        Some(small) => value.as_u64() == Some(u64::from(small)),
        None => history.word(*word).to_json() == *value,
    };
    words.find(is_it).map(history::Word::bits)
}

/// Who wrote a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Writer(u32);

/// Two transactions wrote the value, and both may have happened.
const TWICE: u32 = 1 << 31;
/// It was not the last write of its transaction on the key.
const INTERMEDIATE: u32 = 1 << 30;
const FAILED: u32 = 1 << 29;
const FLAGS: u32 = TWICE | INTERMEDIATE | FAILED;
/// No write: a slot that is free.
const FREE: Writer = Writer(u32::MAX);

impl Writer {
    fn of(txn: u32, outcome: Outcome, is_intermediate: bool) -> Writer {
        let failed = if outcome == Outcome::Fail { FAILED } else { 0 };
        let intermediate = if is_intermediate { INTERMEDIATE } else { 0 };
        Writer(txn | failed | intermediate)
    }

    fn txn(self) -> u32 {
        self.0 & !FLAGS
    }

    fn is_twice(self) -> bool {
        self.0 & TWICE != 0
    }

    fn is_intermediate(self) -> bool {
        self.0 & INTERMEDIATE != 0
    }

    fn is_failed(self) -> bool {
        self.0 & FAILED != 0
    }
}

/// Who wrote each value of each key: a table with open addressing.
struct Writers {
    slots: Vec<(u32, u32, Writer)>,
    shift: u32,
    twice: FxHashMap<(u32, u32), (u32, u32)>,
}

impl Writers {
    fn for_writes(writes: usize) -> Writers {
        let size = (writes + writes / 2 + 2).next_power_of_two();
        Writers {
            slots: vec![(0, 0, FREE); size],
            shift: 64 - size.trailing_zeros(),
            twice: FxHashMap::default(),
        }
    }

    /// The slot of a value, or the free one where it belongs.
    fn slot(&self, key: u32, value: u32) -> usize {
        let hash = (u64::from(key) << 32 | u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut at = (hash >> self.shift) as usize;
        loop {
            let (other_key, other_value, writer) = self.slots[at];
            if writer == FREE || (other_key, other_value) == (key, value) {
                return at;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn find(&self, key: u32, value: u32) -> Option<Writer> {
        let writer = self.slots[self.slot(key, value)].2;
        (writer != FREE).then_some(writer)
    }

    fn insert(&mut self, key: u32, value: u32, writer: Writer) {
        let at = self.slot(key, value);
        let old = self.slots[at].2;
        if old == FREE || old.is_failed() && !writer.is_failed() {
            self.slots[at] = (key, value, writer);
        } else if old.txn() == writer.txn() {
            if !writer.is_intermediate() {
                self.slots[at].2 = Writer(old.0 & !INTERMEDIATE);
            }
        } else if !writer.is_failed() {
            self.slots[at].2 = Writer(old.0 | TWICE);
            let both = (old.txn(), writer.txn());
            self.twice.entry((key, value)).or_insert(both);
        }
    }
}
