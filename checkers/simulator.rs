//! A database of lists in one process, perfect or broken on purpose, and the history that its
//! clients record: for tests and benches of the checkers of transactions.
//!
//! As Elle's generator does: ten keys at a time, the more popular twice as likely as the next, a
//! new one when a key has its number of appends, one to four micro-operations a transaction, ten
//! clients.

use history::{Event, History, HistoryBuilder, Kind, Process};
use serde_json::{Value, json};

/// How the database behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// A transaction takes effect at one moment between its invocation and its answer.
    StrictSerializable,
    /// A transaction reads as of its invocation and fails if another has written what it writes.
    SnapshotIsolation,
    /// Micro-operations take effect one by one, and what fails stays.
    ReadUncommitted,
    /// One transaction in a hundred that only reads does so as of an earlier moment.
    StaleReads,
    /// One append in a thousand is acknowledged and forgotten.
    LostAppends,
}

/// What is run.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub database: Database,
    pub txns: u64,
    pub clients: u64,
    pub appends_per_key: u64,
    pub seed: u64,
}

impl Load {
    /// The load of Elle's own measurements.
    pub fn of(database: Database, txns: u64) -> Load {
        Load {
            database,
            txns,
            clients: 10,
            appends_per_key: 32,
            seed: 42,
        }
    }
}

const KEYS: usize = 10;

/// A micro-operation: a key, and the element to append if it does not read.
type Asked = Vec<(u64, Option<u64>)>;
type List = Vec<u64>;

struct Open {
    asked: Asked,
    /// Lists as they were when it began, and what it has read so far.
    snapshot: Vec<(u64, List)>,
    read: Vec<Option<List>>,
}

struct Simulator {
    load: Load,
    random: u64,
    time: u64,
    /// The keys in use, the next element of each, and how many lists there have been.
    keys: Vec<(u64, u64)>,
    next_key: u64,
    lists: Vec<List>,
    builder: HistoryBuilder,
}

/// The history of a run.
pub fn history(load: Load) -> History {
    let mut simulator = Simulator {
        load,
        random: load.seed,
        time: 0,
        keys: (0..KEYS as u64).map(|key| (key, 1)).collect(),
        next_key: KEYS as u64,
        lists: vec![Vec::new(); KEYS],
        builder: HistoryBuilder::new(history::Header::new("append", &["append"])),
    };
    simulator.run();
    simulator.builder.finish()
}

impl Simulator {
    fn below(&mut self, limit: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    fn run(&mut self) {
        let mut open: Vec<Option<Open>> = (0..self.load.clients).map(|_| None).collect();
        let mut begun = 0;
        while begun < self.load.txns || open.iter().any(Option::is_some) {
            let client = self.below(self.load.clients) as usize;
            if let Some(txn) = open[client].take() {
                self.end(client, txn);
            } else if begun < self.load.txns {
                begun += 1;
                open[client] = Some(self.begin(client));
            }
        }
    }

    fn push(&mut self, client: usize, kind: Kind, value: Value) {
        self.time += 1_000;
        let process = Process::Number(client as u64);
        let event = Event::new(self.time, process, kind, "txn", value);
        self.builder.push(&event).expect("a consistent history");
    }

    fn begin(&mut self, client: usize) -> Open {
        let asked: Asked = (0..=self.below(4)).map(|_| self.ask()).collect();
        let value = asked.iter().map(|&(key, append)| match append {
            Some(element) => json!(["append", key, element]),
            None => json!(["r", key, null]),
        });
        self.push(client, Kind::Invoke, value.collect());
        let is_snapshot = self.load.database == Database::SnapshotIsolation;
        let keys = asked.iter().filter(|_| is_snapshot).map(|&(key, _)| key);
        let snapshot = keys
            .map(|key| (key, self.lists[key as usize].clone()))
            .collect();
        let mut open = Open {
            read: vec![None; asked.len()],
            snapshot,
            asked,
        };
        if self.load.database == Database::ReadUncommitted {
            self.execute(&mut open, |at| at % 2 == 0);
        }
        if self.load.database == Database::StrictSerializable && self.below(2) == 0 {
            self.execute(&mut open, |_| true);
        }
        open
    }

    fn ask(&mut self) -> (u64, Option<u64>) {
        let mut slot = KEYS - 1;
        while slot > 0 && self.below(2) == 0 {
            slot -= 1;
        }
        let (key, element) = self.keys[slot];
        if self.below(2) == 0 {
            return (key, None);
        }
        self.keys[slot].1 += 1;
        if element == self.load.appends_per_key {
            self.keys[slot] = (self.next_key, 1);
            self.next_key += 1;
            self.lists.push(Vec::new());
        }
        (key, Some(element))
    }

    /// Does the micro-operations that are chosen by their place and not done yet.
    fn execute(&mut self, open: &mut Open, chosen: impl Fn(usize) -> bool) {
        for (at, &(key, append)) in open.asked.iter().enumerate() {
            if !chosen(at) || open.read[at].is_some() {
                continue;
            }
            let forgotten = self.load.database == Database::LostAppends && self.below(1_000) == 0;
            let list = &mut self.lists[key as usize];
            match append {
                Some(element) if !forgotten => list.push(element),
                _ => {}
            }
            open.read[at] = Some(list.clone());
        }
    }

    fn end(&mut self, client: usize, mut open: Open) {
        let fails = match self.load.database {
            Database::SnapshotIsolation => !self.commit(&mut open),
            Database::ReadUncommitted => {
                self.execute(&mut open, |_| true);
                self.below(20) == 0
            }
            _ => {
                self.execute(&mut open, |_| true);
                false
            }
        };
        let reads_only = open.asked.iter().all(|(_, append)| append.is_none());
        if self.load.database == Database::StaleReads && reads_only && self.below(100) == 0 {
            for list in open.read.iter_mut().flatten() {
                list.truncate(list.len().saturating_sub(3));
            }
        }
        let value = open
            .asked
            .iter()
            .zip(&open.read)
            .map(|(&(key, append), read)| match append {
                Some(element) => json!(["append", key, element]),
                None => json!(["r", key, read]),
            });
        let kind = if fails { Kind::Fail } else { Kind::Ok };
        self.push(client, kind, value.collect());
    }

    /// Reads from the snapshot and what it wrote itself; writes if nobody else has since.
    fn commit(&mut self, open: &mut Open) -> bool {
        let mut seen: Vec<(u64, List)> = open.snapshot.clone();
        for (at, &(key, append)) in open.asked.iter().enumerate() {
            let list = seen.iter_mut().find(|(other, _)| *other == key);
            let list = &mut list.expect("every key is in the snapshot").1;
            list.extend(append);
            open.read[at] = Some(list.clone());
        }
        let writes = open.asked.iter().filter(|(_, append)| append.is_some());
        let unchanged = |&(key, _): &(u64, Option<u64>)| {
            let before = open.snapshot.iter().find(|(other, _)| *other == key);
            before.is_some_and(|(_, list)| *list == self.lists[key as usize])
        };
        if !writes.clone().all(unchanged) {
            return false;
        }
        for &(key, append) in writes {
            self.lists[key as usize].extend(append);
        }
        true
    }
}
