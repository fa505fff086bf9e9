//! What is known of the order of versions, and the dependencies that follow.
//!
//! A version is the last write of a transaction to a key, or the value before the first write. One
//! is before another if a transaction read the one and wrote the other (from read committed up: with
//! any other order the reads and writes would be circular), and, where that is declared, if a session, or everybody in
//! real time, met them in that order. The value before the first write is before all others; it
//! is enough to say so of those that have nothing else before them.
//!
//! "All who read a version come before all who wrote a later one" is a product. Where it is large,
//! sets stand for the second part:
//!
//! ```text
//! reader --rw--> [from w1 on] --pass--> w1, [from w2 on] --pass--> w2, ...
//! reader w2 --rw--> [up to w1] --pass--> w1        and [from w3 on]: not before itself
//! ```

use std::ops::Range;

use history::Header;

use crate::params::{Param, Takes};
use crate::transactions::graph::{Dep, Deps, Edges, Graph};
use crate::transactions::input::NEVER;
use crate::transactions::number;
use crate::transactions::registers::{INIT, Registers};

const fn flag(name: &'static str, about: &'static str) -> Param {
    Param {
        name,
        takes: Takes::Flag,
        default: "false",
        about,
    }
}

/// Whether writes follow reads.
pub(super) const WFR_KEYS: Param = flag(
    "wfr_keys",
    "whether a version that a transaction reads is before the one that it writes, also below read \
     committed, where it need not be",
);

/// Whether keys are sequentially consistent.
pub(super) const SEQUENTIAL_KEYS: Param = flag(
    "sequential_keys",
    "whether each session meets the versions of a key in their order",
);

/// Whether keys are linearizable.
pub(super) const LINEARIZABLE_KEYS: Param = flag(
    "linearizable_keys",
    "whether transactions meet the versions of a key in their order in real time",
);

/// Where the order of versions comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sources {
    pub(super) wfr: bool,
    pub(super) sequential: bool,
    pub(super) linearizable: bool,
}

impl Sources {
    /// What the header declares.
    pub(super) fn of(header: &Header) -> Sources {
        let given = |param: Param| {
            header
                .params
                .get(param.name)
                .and_then(serde_json::Value::as_bool)
        };
        let given = |param| given(param).unwrap_or(false);
        Sources {
            wfr: given(WFR_KEYS),
            sequential: given(SEQUENTIAL_KEYS),
            linearizable: given(LINEARIZABLE_KEYS),
        }
    }

    /// Whether something is declared that transactions need not keep.
    pub(super) fn any(self) -> bool {
        self.wfr || self.sequential || self.linearizable
    }
}

/// The order of versions, as far as it is known.
pub(super) struct Versions<'r> {
    registers: &'r Registers,
    /// Edges from versions to later ones; the value before the first write of a key is a version
    /// behind all others.
    pub(super) order: Graph,
    /// Who wrote each version.
    writers: Vec<u32>,
    /// For each version the transactions that read it.
    reader_starts: Vec<u32>,
    readers: Vec<u32>,
    /// Versions on cycles, by cycle.
    pub(super) cycles: Vec<Vec<u32>>,
    /// Whether write dependencies say more than reads do.
    has_ww: bool,
    /// Versions that transactions read and overwrote, each with such a transaction.
    pub(super) updates: Vec<(u32, u32)>,
}

impl<'r> Versions<'r> {
    pub(super) fn of(
        registers: &'r Registers,
        sources: Sources,
        after: &[u32],
        session: &[u32],
    ) -> Versions<'r> {
        let mut writers = vec![NEVER; registers.version_count()];
        for txn in (0..).take(registers.len()) {
            let versions: Range<u32> = registers.versions(txn);
            writers[versions.start as usize..versions.end as usize].fill(txn);
        }
        let mut versions = Versions {
            registers,
            order: Graph::build(0, |_| {}),
            writers,
            reader_starts: Vec::new(),
            readers: Vec::new(),
            cycles: Vec::new(),
            has_ww: sources.any(),
            updates: Vec::new(),
        };
        versions.find_readers();
        let mut pairs = Vec::new();
        versions.updated(&mut pairs);
        if sources.sequential {
            versions.in_sessions(session, &mut pairs);
        }
        if sources.linearizable {
            versions.in_real_time(after, &mut pairs);
        }
        versions.link(&pairs);
        versions
    }

    /// How many versions there are, those before the first writes included.
    fn len(&self) -> usize {
        self.writers.len() + self.registers.key_count()
    }

    /// The version that was read.
    pub(super) fn read(&self, key: u32, writer: u32) -> Option<u32> {
        match writer {
            INIT => Some(number(self.writers.len()) + key),
            _ => self.registers.version(writer, key),
        }
    }

    /// Who wrote a version; `None` for the value before the first write.
    pub(super) fn writer(&self, version: u32) -> Option<u32> {
        self.writers.get(version as usize).copied()
    }

    fn readers(&self, version: u32) -> &[u32] {
        let version = version as usize;
        let range = self.reader_starts[version]..self.reader_starts[version + 1];
        &self.readers[range.start as usize..range.end as usize]
    }

    fn find_readers(&mut self) {
        let registers = self.registers;
        let all = |this: &Self| {
            let txns = (0..).take(registers.len());
            let reads =
                txns.flat_map(|txn| registers.reads(txn).iter().map(move |read| (txn, *read)));
            let version = |(txn, read): (u32, crate::transactions::registers::Read)| {
                Some((txn, this.read(read.key, read.writer)?))
            };
            reads.filter_map(version).collect::<Vec<(u32, u32)>>()
        };
        let reads = all(self);
        let mut starts = vec![0u32; self.len() + 1];
        for &(_, version) in &reads {
            starts[version as usize + 1] += 1;
        }
        for at in 0..self.len() {
            starts[at + 1] += starts[at];
        }
        let mut next = starts.clone();
        let mut readers = vec![0; reads.len()];
        for (txn, version) in reads {
            let place = &mut next[version as usize];
            readers[*place as usize] = txn;
            *place += 1;
        }
        self.reader_starts = starts;
        self.readers = readers;
    }

    /// The first and the last version of each key that a transaction meets.
    fn meets(&self, txn: u32, mut each: impl FnMut(u32, u32, u32)) {
        let reads = self.registers.reads(txn);
        for (at, read) in reads.iter().enumerate() {
            let is_first = reads[..at].iter().all(|other| other.key != read.key);
            let Some(first) = self.read(read.key, read.writer).filter(|_| is_first) else {
                continue;
            };
            let last = self.registers.version(txn, read.key).or_else(|| {
                let last = reads.iter().rfind(|other| other.key == read.key)?;
                self.read(read.key, last.writer)
            });
            each(read.key, first, last.unwrap_or(first));
        }
        for (&key, version) in self
            .registers
            .writes(txn)
            .iter()
            .zip(self.registers.versions(txn))
        {
            if reads.iter().all(|read| read.key != key) {
                each(key, version, version);
            }
        }
    }

    fn updated(&mut self, pairs: &mut Vec<(u32, u32)>) {
        for txn in (0..).take(self.registers.len()) {
            for (&key, version) in self
                .registers
                .writes(txn)
                .iter()
                .zip(self.registers.versions(txn))
            {
                let mut reads = self.registers.reads(txn).iter();
                let read = reads.find(|read| read.key == key);
                if let Some(read) = read.and_then(|read| self.read(key, read.writer)) {
                    pairs.push((read, version));
                    self.updates.push((read, txn));
                }
            }
        }
        self.updates.sort_unstable();
        self.updates.dedup();
    }

    /// Each version that a session meets after the one that it met before.
    fn in_sessions(&self, session: &[u32], pairs: &mut Vec<(u32, u32)>) {
        let mut txns: Vec<u32> = (0..).take(self.registers.len()).collect();
        txns.retain(|&txn| self.registers.happened[txn as usize]);
        txns.sort_by_key(|&txn| session[txn as usize]);
        let mut met = vec![(NEVER, NEVER); self.registers.key_count()];
        for txn in txns {
            let session = session[txn as usize];
            self.meets(txn, |key, first, last| {
                let (of, before) = std::mem::replace(&mut met[key as usize], (session, last));
                if of == session && before != first {
                    pairs.push((before, first));
                }
                if first != last {
                    pairs.push((first, last));
                }
            });
        }
    }

    /// Each version that a transaction meets after what others had met that ended before it began,
    /// but for what others of those had ended before.
    fn in_real_time(&self, after: &[u32], pairs: &mut Vec<(u32, u32)>) {
        // By key: transaction, first and last version.
        let mut meets: Vec<(u32, u32, u32, u32)> = Vec::new();
        for txn in (0..).take(self.registers.len()) {
            if self.registers.happened[txn as usize] {
                self.meets(txn, |key, first, last| meets.push((key, txn, first, last)));
            }
        }
        meets.sort_unstable();
        for of_key in meets.chunk_by(|a, b| a.0 == b.0) {
            // Those that nothing is known to come after, each with the first it is before.
            let mut latest: Vec<(u32, u32)> = Vec::new();
            let mut ends: Vec<usize> = (0..of_key.len()).collect();
            ends.sort_by_key(|&at| after[of_key[at].1 as usize]);
            let mut ends = ends.into_iter().peekable();
            for &(_, txn, first, met_last) in of_key {
                while let Some(end) = ends.next_if(|&end| after[of_key[end].1 as usize] <= txn) {
                    let (_, ended, _, last) = of_key[end];
                    latest.retain(|&(before, _)| before > ended);
                    latest.push((after[ended as usize], last));
                }
                if first != met_last {
                    pairs.push((first, met_last));
                }
                let others = latest.iter().filter(|&&(_, before)| before != first);
                pairs.extend(others.map(|&(_, before)| (before, first)));
            }
        }
    }

    /// Makes the order of these pairs, without keys on which it is circular.
    fn link(&mut self, pairs: &[(u32, u32)]) {
        let all = Graph::build(self.len(), |edges| {
            for &(from, to) in pairs {
                edges.add(from, to, Dep::Ww);
            }
        });
        self.cycles = all.components(Deps::of(&[Dep::Ww])).cyclic();
        let mut is_circular = vec![false; self.registers.key_count()];
        for &version in self.cycles.iter().flatten() {
            is_circular[self.key(version) as usize] = true;
        }
        let kept = |version: u32| !is_circular[self.key(version) as usize];
        let mut has_earlier = vec![false; self.len()];
        for edge in all.all() {
            has_earlier[edge.target() as usize] = true;
        }
        let order = Graph::build(self.len(), |edges| {
            for from in (0..).take(self.len()).filter(|&version| kept(version)) {
                for edge in all.from(from) {
                    edges.add(from, edge.target(), Dep::Ww);
                }
            }
            for (version, &writer) in (0..).zip(&self.writers) {
                let is_first = !has_earlier[version as usize] && kept(version);
                if is_first && self.registers.happened[writer as usize] {
                    let initial = number(self.writers.len()) + self.key(version);
                    edges.add(initial, version, Dep::Ww);
                }
            }
        });
        self.order = order.without_parallels();
    }

    /// The key of a version.
    pub(super) fn key(&self, version: u32) -> u32 {
        match self.writer(version) {
            None => version - number(self.writers.len()),
            Some(writer) => {
                let place = version - self.registers.versions(writer).start;
                self.registers.writes(writer)[place as usize]
            }
        }
    }

    /// The versions whose readers and later writers make a large product, each with its first set.
    fn products(&self) -> (Vec<(u32, u32)>, usize) {
        let mut first_set = Vec::new();
        let mut sets = 0;
        for version in (0..).take(self.len()) {
            let (before, after) = (self.readers(version).len(), self.order.from(version).len());
            if after * before > PAIRS_MAX.max(4 * (after + before)) {
                first_set.push((version, number(self.registers.len() + sets)));
                sets += 2 * after;
            }
        }
        (first_set, sets)
    }

    /// How many vertices the graph of dependencies has, and what is to be added to it.
    pub(super) fn dependencies(&self) -> (usize, impl Fn(&mut Edges)) {
        let (first_set, sets) = self.products();
        (sets, move |edges: &mut Edges| {
            let mut large = first_set.iter().peekable();
            for version in (0..).take(self.len()) {
                let later = self.order.from(version);
                let later = || later.iter().filter_map(|edge| self.writer(edge.target()));
                if let Some(writer) = self.writer(version).filter(|_| self.has_ww) {
                    later().for_each(|other| edges.add(writer, other, Dep::Ww));
                }
                match large.next_if(|large| large.0 == version) {
                    Some(&(_, first)) => {
                        let mut later: Vec<u32> = later().collect();
                        later.sort_unstable();
                        add_product(edges, self.readers(version), &later, first);
                    }
                    None => {
                        for &reader in self.readers(version) {
                            later().for_each(|other| edges.add(reader, other, Dep::Rw));
                        }
                    }
                }
            }
        })
    }

    /// Bytes that it holds.
    pub(super) fn heap_bytes(&self) -> u64 {
        let numbers = self.writers.capacity() + self.reader_starts.capacity();
        let numbers = numbers + self.readers.capacity() + 2 * self.updates.capacity();
        self.order.heap_bytes() + 4 * numbers as u64
    }
}

/// Products of more pairs than this, and than four times their parts, are written with sets.
const PAIRS_MAX: usize = 64;

/// All readers before all writers but themselves, by sets from `first` on.
fn add_product(edges: &mut Edges, readers: &[u32], writers: &[u32], first: u32) {
    let count = number(writers.len());
    for (at, &writer) in (0..).zip(writers) {
        let (onward, back) = (first + at, first + count + at);
        edges.add(onward, writer, Dep::Pass);
        edges.add(back, writer, Dep::Pass);
        if at + 1 < count {
            edges.add(onward, onward + 1, Dep::Pass);
            edges.add(back + 1, back, Dep::Pass);
        }
    }
    for &reader in readers {
        match writers.binary_search(&reader) {
            Err(_) => edges.add(reader, first, Dep::Rw),
            Ok(at) => {
                let at = number(at);
                if at + 1 < count {
                    edges.add(reader, first + at + 1, Dep::Rw);
                }
                if at > 0 {
                    edges.add(reader, first + count + at - 1, Dep::Rw);
                }
            }
        }
    }
}
