//! A serial order of transactions, if there is one: exact, where it ends.
//!
//! Transactions are placed one after the other. One may be placed when what is before it by the
//! orders that count is placed, when it reads what is current, and when everybody has read what it
//! overwrites. Nothing is lost by placing at once what only overwrites what it read, or what nobody
//! reads, and what only reads: whatever order there is, there is one that goes on like this. Only a
//! blind write that somebody reads is a choice:
//!
//! 1. [`Board::greedy`] takes the one that has to be over first, and never comes back: O(n log n). It
//!    suffices where every write of a transaction follows a read of the key (mini-transactions, MTC
//!    2025), and mostly elsewhere.
//! 2. [`search`] tries all, within limits, on what is left when the first choice was met.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::transactions::anomalies::Needs;
use crate::transactions::input::NEVER;
use crate::transactions::number;
use crate::transactions::registers::{INIT, Registers};
use crate::{Budget, Exhausted, shrink};

/// The transactions to be ordered, and what counts.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) registers: &'a Registers,
    pub(super) needs: Needs,
    /// For each transaction the first that began after it had ended.
    pub(super) after: &'a [u32],
}

/// Whether there is a serial order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Serial {
    Order(Vec<u32>),
    /// There is none.
    None,
    /// It is not known.
    GaveUp,
}

/// The most transactions that all orders are tried of, and how often it is looked at what may be
/// placed: of all, and of each set that is tried to tell a violation.
const SEARCHED_MAX: usize = 4_000;
const LOOKS_MAX: u64 = 1 << 25;
const LOOKS_MAX_TOLD: u64 = 1 << 17;

/// Looks for a serial order.
///
/// # Errors
/// When the budget is used up.
pub(super) fn find(asked: Asked<'_>, budget: &Budget) -> Result<Serial, Exhausted> {
    let all: Vec<u32> = (0..).take(asked.registers.len()).collect();
    let mut greedy = Board::new(asked, &all);
    budget.hold(asked.registers.heap_bytes() + greedy.heap_bytes())?;
    if greedy.greedy(budget)? {
        return Ok(Serial::Order(greedy.order));
    }
    let Some(forced) = greedy.first_choice else {
        return Ok(Serial::None);
    };
    if greedy.count - forced > SEARCHED_MAX {
        return Ok(Serial::GaveUp);
    }
    let mut board = Board::new(asked, &all);
    for &txn in &greedy.order[..forced] {
        board.place(txn);
    }
    search(board, LOOKS_MAX, budget)
}

/// What has been placed so far.
struct Board<'a> {
    asked: Asked<'a>,
    /// Which are to be placed, how many they are, and those that are.
    is_member: Vec<bool>,
    count: usize,
    is_placed: Vec<bool>,
    order: Vec<u32>,
    /// Who wrote last to each key.
    current: Vec<u32>,
    /// For each version how many are still to read it; behind them those before the first writes.
    left: Vec<u32>,
    /// How many are not placed before each suffix in real time, and the first with some.
    waiting: Vec<u32>,
    limit: usize,
    /// For each session predecessor what follows, and for each key what waits to overwrite it.
    waiters: Waiters,
    /// How much had been placed when there was a choice for the first time.
    first_choice: Option<usize>,
}

/// What transactions that cannot be placed yet wait for.
struct Waiters {
    by_txn: Vec<u32>,
    by_key: Vec<u32>,
    next: Vec<u32>,
}

/// Why a transaction cannot be placed yet.
enum Waits {
    Txn(u32),
    Key(u32),
    RealTime,
    /// What it reads is not current any more.
    Never,
}

impl<'a> Board<'a> {
    fn new(asked: Asked<'a>, txns: &[u32]) -> Board<'a> {
        let registers = asked.registers;
        let mut is_member = vec![false; registers.len()];
        for &txn in txns {
            is_member[txn as usize] = registers.happened[txn as usize];
        }
        let mut board = Board {
            asked,
            count: is_member.iter().filter(|&&is| is).count(),
            is_member,
            is_placed: vec![false; registers.len()],
            order: Vec::new(),
            current: vec![INIT; registers.key_count()],
            left: vec![0; registers.version_count() + registers.key_count()],
            waiting: vec![0; registers.len() + 1],
            limit: 0,
            waiters: Waiters {
                by_txn: vec![NEVER; registers.len()],
                by_key: vec![NEVER; registers.key_count()],
                next: vec![NEVER; registers.len()],
            },
            first_choice: None,
        };
        for &txn in txns {
            if !board.is_member[txn as usize] {
                continue;
            }
            for version in board.versions_read(txn) {
                board.left[version as usize] += 1;
            }
            board.waiting[asked.after[txn as usize] as usize] += 1;
        }
        board.advance();
        board
    }

    fn heap_bytes(&self) -> u64 {
        let numbers = 6 * self.is_placed.len() + 2 * self.current.len() + self.left.len();
        4 * numbers as u64
    }

    /// The versions that a transaction reads, each once, of members and before the first writes.
    fn versions_read(&self, txn: u32) -> Vec<u32> {
        let registers = self.asked.registers;
        let version = |read: &crate::transactions::registers::Read| match read.writer {
            INIT => Some(number(registers.version_count()) + read.key),
            writer if self.is_member[writer as usize] => registers.version(writer, read.key),
            _ => None,
        };
        let mut versions: Vec<u32> = registers.reads(txn).iter().filter_map(version).collect();
        versions.sort_unstable();
        versions.dedup();
        versions
    }

    fn version(&self, key: u32) -> u32 {
        let registers = self.asked.registers;
        match self.current[key as usize] {
            INIT => number(registers.version_count()) + key,
            writer => registers.version(writer, key).expect("the writer wrote it"),
        }
    }

    fn advance(&mut self) {
        while self.limit < self.is_placed.len() && self.waiting[self.limit] == 0 {
            self.limit += 1;
        }
    }

    fn is_over(&self) -> bool {
        self.order.len() == self.count
    }

    /// Why a transaction cannot be placed now; `None` if it can.
    fn waits(&self, txn: u32) -> Option<Waits> {
        let registers = self.asked.registers;
        let is_missing = |other: u32| {
            other != NEVER && self.is_member[other as usize] && !self.is_placed[other as usize]
        };
        if self.asked.needs == Needs::Realtime && txn as usize >= self.limit {
            return Some(Waits::RealTime);
        }
        if self.asked.needs > Needs::Data {
            let mut previous = registers.previous[txn as usize];
            // Of what is left out of a session the one before counts.
            while previous != NEVER && !self.is_member[previous as usize] {
                previous = registers.previous[previous as usize];
            }
            if is_missing(previous) {
                return Some(Waits::Txn(previous));
            }
        }
        for read in registers.reads(txn) {
            let is_known = read.writer == INIT || self.is_member[read.writer as usize];
            if is_known && self.current[read.key as usize] != read.writer {
                return Some(match is_missing(read.writer) {
                    true => Waits::Txn(read.writer),
                    false => Waits::Never,
                });
            }
        }
        let mine = registers.reads(txn);
        for &key in registers.writes(txn) {
            let left = self.left[self.version(key) as usize];
            let current = self.current[key as usize];
            let is_mine = mine
                .iter()
                .any(|read| read.key == key && read.writer == current);
            if left > u32::from(is_mine) {
                return Some(Waits::Key(key));
            }
        }
        None
    }

    /// Whether placing it now, if it can be placed, loses no order.
    fn is_safe(&self, txn: u32) -> bool {
        let registers = self.asked.registers;
        let reads = registers.reads(txn);
        let versions = registers.writes(txn).iter().zip(registers.versions(txn));
        let mut versions = versions.filter(|(_, version)| self.left[*version as usize] > 0);
        versions.all(|(key, _)| {
            let current = self.current[*key as usize];
            reads
                .iter()
                .any(|read| read.key == *key && read.writer == current)
        })
    }

    fn place(&mut self, txn: u32) {
        for version in self.versions_read(txn) {
            self.left[version as usize] -= 1;
        }
        for &key in self.asked.registers.writes(txn) {
            self.current[key as usize] = txn;
        }
        self.is_placed[txn as usize] = true;
        self.order.push(txn);
        let after = self.asked.after[txn as usize] as usize;
        self.waiting[after] -= 1;
        self.advance();
    }

    /// Takes the last one back; `before` is who had written its keys before.
    fn take_back(&mut self, before: &[u32]) {
        let txn = self.order.pop().expect("something was placed");
        self.is_placed[txn as usize] = false;
        for version in self.versions_read(txn) {
            self.left[version as usize] += 1;
        }
        for (&key, &writer) in self.asked.registers.writes(txn).iter().zip(before) {
            self.current[key as usize] = writer;
        }
        let after = self.asked.after[txn as usize] as usize;
        self.waiting[after] += 1;
        self.limit = self.limit.min(after);
    }

    /// For each transaction when it or somebody who reads what it wrote has to be over: the first
    /// transaction that began after that.
    fn due(&self) -> Vec<u32> {
        let mut due = self.asked.after.to_vec();
        for reader in (0..).take(self.is_placed.len()) {
            for read in self.asked.registers.reads(reader) {
                if read.writer != INIT {
                    let due = &mut due[read.writer as usize];
                    *due = (*due).min(self.asked.after[reader as usize]);
                }
            }
        }
        due
    }

    /// Places what can be placed, of blind writes the one that has to be over first. Whether all
    /// are placed in the end.
    fn greedy(&mut self, budget: &Budget) -> Result<bool, Exhausted> {
        let due = self.due();
        let mut open: Vec<u32> = Vec::new();
        let mut choices: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
        let (mut begun, mut paid) = (0, 0);
        loop {
            let limit = match self.asked.needs {
                Needs::Realtime => self.limit,
                _ => self.is_placed.len(),
            };
            let begin = (begun..number(limit)).rev();
            open.extend(begin.filter(|&txn| self.is_member[txn as usize]));
            begun = begun.max(number(limit));
            let (txn, is_choice) = match (open.pop(), choices.peek()) {
                (Some(txn), _) => (txn, false),
                (None, Some(Reverse((_, txn)))) => (*txn, true),
                (None, None) => return Ok(self.is_over()),
            };
            if is_choice {
                choices.pop();
            }
            match self.waits(txn) {
                Some(Waits::Never) => return Ok(false),
                Some(waits) => self.waiters.add(txn, &waits),
                None if is_choice || self.is_safe(txn) => {
                    if is_choice {
                        self.first_choice.get_or_insert(self.order.len());
                    }
                    self.place(txn);
                    self.wake(txn, &mut open);
                }
                None => choices.push(Reverse((due[txn as usize], txn))),
            }
            if self.order.len() >= paid + SPEND_EVERY {
                budget.spend(SPEND_EVERY as u64)?;
                paid = self.order.len();
            }
        }
    }

    /// Those that waited for a transaction that has just been placed.
    fn wake(&mut self, txn: u32, open: &mut Vec<u32>) {
        let registers = self.asked.registers;
        self.waiters.take_txn(txn, open);
        let read = registers.reads(txn).iter().map(|read| read.key);
        for key in read.chain(registers.writes(txn).iter().copied()) {
            // One that is left may be the one that waits.
            if self.left[self.version(key) as usize] <= 1 {
                self.waiters.take_key(key, open);
            }
        }
    }
}

/// How many transactions are placed between two looks at the budget.
const SPEND_EVERY: usize = 1 << 14;

impl Waiters {
    fn add(&mut self, txn: u32, waits: &Waits) {
        let first = match waits {
            Waits::Txn(other) => &mut self.by_txn[*other as usize],
            Waits::Key(key) => &mut self.by_key[*key as usize],
            Waits::RealTime | Waits::Never => return,
        };
        self.next[txn as usize] = std::mem::replace(first, txn);
    }

    fn take_txn(&mut self, txn: u32, open: &mut Vec<u32>) {
        let first = std::mem::replace(&mut self.by_txn[txn as usize], NEVER);
        self.take(first, open);
    }

    fn take_key(&mut self, key: u32, open: &mut Vec<u32>) {
        let first = std::mem::replace(&mut self.by_key[key as usize], NEVER);
        self.take(first, open);
    }

    fn take(&self, first: u32, open: &mut Vec<u32>) {
        let mut at = first;
        while at != NEVER {
            open.push(at);
            at = self.next[at as usize];
        }
    }
}

/// What can be placed after what has been placed, and how much of it was tried.
struct Choice {
    moves: Vec<u32>,
    tried: usize,
    /// Who had written the keys of what was placed here last.
    before: Vec<u32>,
}

/// Tries all orders that go on from what is placed.
fn search(mut board: Board<'_>, looks_max: u64, budget: &Budget) -> Result<Serial, Exhausted> {
    let due = board.due();
    let members = (0..).take(board.is_placed.len());
    let mut rest: Vec<u32> = members
        .filter(|&txn| board.is_member[txn as usize] && !board.is_placed[txn as usize])
        .collect();
    rest.sort_by_key(|&txn| (due[txn as usize], txn));
    let mut path: Vec<Choice> = Vec::new();
    let mut looks = 0;
    while !board.is_over() {
        looks += rest.len() as u64;
        budget.spend(rest.len() as u64)?;
        if looks > looks_max {
            return Ok(Serial::GaveUp);
        }
        path.push(Choice {
            moves: board.moves(&rest),
            tried: 0,
            before: Vec::new(),
        });
        while let Some(choice) = path.last_mut() {
            if let Some(&txn) = choice.moves.get(choice.tried) {
                choice.tried += 1;
                let keys = board.asked.registers.writes(txn).iter();
                choice.before = keys.map(|&key| board.current[key as usize]).collect();
                board.place(txn);
                break;
            }
            path.pop();
            match path.last() {
                Some(choice) => board.take_back(&choice.before),
                None => return Ok(Serial::None),
            }
        }
    }
    Ok(Serial::Order(board.order))
}

impl Board<'_> {
    /// What may be placed next without losing an order: one that is safe, or all.
    fn moves(&self, rest: &[u32]) -> Vec<u32> {
        let mut moves = Vec::new();
        for &txn in rest {
            if self.is_placed[txn as usize] {
                continue;
            }
            match self.waits(txn) {
                None if self.is_safe(txn) => return vec![txn],
                None => moves.push(txn),
                Some(Waits::Never) => return Vec::new(),
                Some(_) => {}
            }
        }
        moves
    }
}

/// A small set of transactions that have no order, where all have none: none can be left out
/// without that being so, as far as that was found out.
pub(super) fn core(asked: Asked<'_>, budget: &Budget) -> Vec<u32> {
    const TESTS_MAX: usize = 500;
    let all = (0..).take(asked.registers.len());
    let all: Vec<u32> = all
        .filter(|&txn| asked.registers.happened[txn as usize])
        .collect();
    shrink::ddmin(all, TESTS_MAX, |txns| {
        let board = Board::new(asked, txns);
        let found = search(board, LOOKS_MAX_TOLD, budget);
        matches!(found, Ok(Serial::None)).then(|| txns.to_vec())
    })
}
