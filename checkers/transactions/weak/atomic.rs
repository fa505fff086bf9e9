//! Consequences of what transactions read of each other directly: monotonic atomic view and read
//! atomic.
//!
//! For each pair of a reader and a transaction that it read of, the keys are sought that the one
//! reads and the other writes, from the side that has fewer: O(n sqrt n) over all pairs.

use super::ready::SPEND_EVERY;
use super::{Asked, Before, Sees};
use crate::transactions::anomalies::Needs;
use crate::transactions::input::NEVER;
use crate::transactions::registers::{INIT, Read, Registers};
use crate::{Budget, Exhausted};

pub(super) fn consequences(asked: Asked<'_>, budget: &Budget) -> Result<Vec<Before>, Exhausted> {
    let registers = asked.registers;
    let mut scan = Scan {
        registers,
        reader: 0,
        by_key: Vec::new(),
        observed: Vec::new(),
        found: Vec::new(),
    };
    let mut steps = 0;
    for txn in (0..).take(registers.len()) {
        steps += scan.transaction(txn, asked.sees);
        if txn % SPEND_EVERY == 0 {
            budget.spend(steps + u64::from(SPEND_EVERY))?;
            budget.hold(registers.heap_bytes() + 12 * scan.found.capacity() as u64)?;
            steps = 0;
        }
    }
    if asked.sees == Sees::Read && asked.needs > Needs::Data {
        scan.sessions(asked.session);
    }
    Ok(scan.found)
}

struct Scan<'r> {
    registers: &'r Registers,
    reader: u32,
    /// The reads of the present transaction with their places, by key.
    by_key: Vec<(u32, u32)>,
    /// The transactions that it read of, each with the place of the first such read.
    observed: Vec<(u32, u32)>,
    found: Vec<Before>,
}

impl Scan<'_> {
    /// How many steps it took.
    fn transaction(&mut self, txn: u32, sees: Sees) -> u64 {
        let reads = self.registers.reads(txn);
        if reads.len() < 2 {
            return 1;
        }
        self.reader = txn;
        let places = || (0..).zip(reads);
        self.by_key.clear();
        self.by_key
            .extend(places().map(|(at, read)| (read.key, at)));
        self.by_key.sort_unstable();
        self.observed.clear();
        let others = places().filter(|(_, read)| read.writer != INIT);
        self.observed
            .extend(others.map(|(at, read)| (read.writer, at)));
        self.observed.sort_unstable();
        self.observed.dedup_by_key(|(writer, _)| *writer);
        let mut steps = reads.len() as u64;
        for at in 0..self.observed.len() {
            let (other, since) = self.observed[at];
            let since = if sees == Sees::Observed { since + 1 } else { 0 };
            steps += self.pair(reads, other, since);
        }
        // Two values of one key are in the order in which they were read.
        for pair in 1..self.by_key.len() {
            let ((key, first), (other, second)) = (self.by_key[pair - 1], self.by_key[pair]);
            let first = reads[first as usize].writer;
            if key == other && first != INIT {
                self.add(first, reads[second as usize].writer);
            }
        }
        steps
    }

    /// The reads from a place on of keys that the other wrote, of each key the first.
    fn pair(&mut self, reads: &[Read], other: u32, since: u32) -> u64 {
        let registers = self.registers;
        let writes = registers.writes(other);
        if writes.len() <= self.by_key.len() {
            for &key in writes {
                let place = self.by_key.partition_point(|&read| read < (key, since));
                if let Some(&(_, at)) = self.by_key.get(place).filter(|read| read.0 == key) {
                    self.add(other, reads[at as usize].writer);
                }
            }
            return writes.len() as u64;
        }
        for at in 0..self.by_key.len() {
            let (key, place) = self.by_key[at];
            if place >= since && writes.binary_search(&key).is_ok() {
                self.add(other, reads[place as usize].writer);
            }
        }
        self.by_key.len() as u64
    }

    fn add(&mut self, first: u32, second: u32) {
        if first != second && first != self.reader {
            self.found.push(Before {
                first,
                second,
                reader: self.reader,
            });
        }
    }

    /// The last write of each key earlier in the session of a read.
    fn sessions(&mut self, session: &[u32]) {
        let registers = self.registers;
        let mut by_session: Vec<u32> = (0..).take(registers.len()).collect();
        by_session.retain(|&txn| registers.happened[txn as usize]);
        by_session.sort_by_key(|&txn| session[txn as usize]);
        // Who wrote a key last, of which session.
        let mut last = vec![(NEVER, NEVER); registers.key_count()];
        for txn in by_session {
            self.reader = txn;
            let session = session[txn as usize];
            for read in registers.reads(txn) {
                let (of, writer) = last[read.key as usize];
                if of == session {
                    self.add(writer, read.writer);
                }
            }
            for &key in registers.writes(txn) {
                last[key as usize] = (session, txn);
            }
        }
    }
}
