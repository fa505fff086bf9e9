//! Consequences of everything that is before a transaction: causal consistency.
//!
//! A vector clock says how much of each session is before a transaction. Rows are kept only as
//! long as somebody is to read of the transaction or to follow it in its session. For each read the
//! last write of the key in each session is looked up that the reader sees and the writer did not:
//!
//! ```text
//! key x   [ session 0: 3 9 | session 2: 1 4 7 ]    numbers within the session, with a place each
//!                        ^                ^        where the last search ended
//! ```
//!
//! Sessions and reads make chains of at most k sessions. Without the order of sessions there are no
//! such chains; [`walk`] then goes back from each reader, which is not linear, but is only asked
//! where the history is not causal with sessions.

use super::ready::{Ready, SPEND_EVERY};
use super::{Asked, Before};
use crate::transactions::anomalies::Needs;
use crate::transactions::input::NEVER;
use crate::transactions::number;
use crate::transactions::registers::{INIT, Registers};
use crate::{Budget, Exhausted};

/// All consequences that are not already so by reads and orders, at least the last one of each
/// session. `None` if reads and orders are circular.
pub(super) fn consequences(
    asked: Asked<'_>,
    budget: &Budget,
) -> Result<Option<Vec<Before>>, Exhausted> {
    let mut run = Run::new(asked, budget)?;
    let mut ends: Vec<u32> = Vec::new();
    if asked.needs == Needs::Realtime {
        let happened = &asked.registers.happened;
        let ended = |&txn: &u32| {
            happened[txn as usize] && (asked.after[txn as usize] as usize) < happened.len()
        };
        ends.extend((0..number(happened.len())).filter(ended));
        ends.sort_by_key(|&txn| asked.after[txn as usize]);
        run.rows.keep(&ends);
    }
    let mut ready = Ready::new(asked.registers, true);
    let mut ends = ends.into_iter().peekable();
    for txn in (0..).take(asked.registers.len()) {
        if txn % SPEND_EVERY == 0 {
            run.pay(budget)?;
        }
        while let Some(end) = ends.next_if(|&end| asked.after[end as usize] <= txn) {
            if !ready.is_given(end) {
                return Ok(None);
            }
            run.ended(end);
        }
        if asked.registers.happened[txn as usize] && !ready.offer(txn) {
            run.waits(txn);
        }
        while let Some(txn) = ready.give() {
            run.take(txn);
        }
    }
    Ok(Some(run.found))
}

struct Run<'a> {
    asked: Asked<'a>,
    sessions: Sessions,
    writes: Writes,
    rows: Rows,
    /// What had ended before the present transaction began, and the clock that is being made.
    ended: Vec<u32>,
    clock: Vec<u32>,
    steps: u64,
    found: Vec<Before>,
}

impl<'a> Run<'a> {
    fn new(asked: Asked<'a>, budget: &Budget) -> Result<Run<'a>, Exhausted> {
        let sessions = Sessions::of(asked.registers, asked.session);
        let width = sessions.starts.len() - 1;
        let writes = Writes::of(asked.registers, &sessions);
        budget.hold(asked.registers.heap_bytes() + 12 * writes.places.len() as u64)?;
        Ok(Run {
            asked,
            writes,
            rows: Rows::new(asked.registers, width),
            ended: vec![0; width],
            clock: vec![0; width],
            sessions,
            steps: 0,
            found: Vec::new(),
        })
    }

    fn pay(&mut self, budget: &Budget) -> Result<(), Exhausted> {
        budget.spend(std::mem::take(&mut self.steps) + u64::from(SPEND_EVERY))?;
        let rows = 4 * self.rows.numbers.len() as u64;
        let found = 12 * self.found.capacity() as u64;
        budget.hold(self.asked.registers.heap_bytes() + rows + found)
    }

    fn ended(&mut self, txn: u32) {
        join(&mut self.ended, self.rows.of(txn));
        self.rows.release(txn);
    }

    /// A transaction is not ready yet: what had ended before it began is kept for later.
    fn waits(&mut self, txn: u32) {
        if self.asked.needs == Needs::Realtime {
            self.rows.set(txn, &self.ended);
        }
    }

    fn take(&mut self, txn: u32) {
        let registers = self.asked.registers;
        if self.rows.has(txn) {
            self.clock.copy_from_slice(self.rows.of(txn));
        } else {
            self.clock.copy_from_slice(&self.ended);
        }
        let previous = registers.previous[txn as usize];
        if previous != NEVER {
            join(&mut self.clock, self.rows.of(previous));
        }
        let reads = registers.reads(txn);
        let others = || {
            reads
                .iter()
                .map(|read| read.writer)
                .filter(|&writer| writer != INIT)
        };
        for writer in others() {
            join(&mut self.clock, self.rows.of(writer));
        }
        self.steps += (self.clock.len() * (reads.len() + 1)) as u64;
        for read in reads {
            self.seen(txn, read.key, read.writer);
        }
        if previous != NEVER {
            self.rows.release(previous);
        }
        for writer in others() {
            self.rows.release(writer);
        }
        let (session, place) = self.sessions.place(self.asked.session, txn);
        self.clock[session] = place + 1;
        self.rows.set(txn, &self.clock);
        self.rows.drop_if_unused(txn);
    }

    /// What a reader sees of a key beyond what the writer that it read of had before it.
    fn seen(&mut self, reader: u32, key: u32, writer: u32) {
        let known = (writer != INIT).then(|| self.rows.of(writer));
        self.steps += 1;
        for block in self.writes.blocks_of(key) {
            let block = &mut self.writes.blocks[block];
            let session = block.session as usize;
            let (upto, from) = (self.clock[session], known.map_or(0, |row| row[session]));
            if upto <= from {
                continue;
            }
            let places = &self.writes.places[block.start as usize..block.end as usize];
            let Some(place) = block
                .last_before(places, upto)
                .filter(|&place| place >= from)
            else {
                continue;
            };
            self.found.push(Before {
                first: self.sessions.txn(session, place),
                second: writer,
                reader,
            });
        }
    }
}

fn join(clock: &mut [u32], other: &[u32]) {
    for (mine, theirs) in clock.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}

/// The transactions that happened, by session.
struct Sessions {
    starts: Vec<u32>,
    txns: Vec<u32>,
    /// The place of each within its session.
    places: Vec<u32>,
}

impl Sessions {
    fn of(registers: &Registers, session: &[u32]) -> Sessions {
        let happened = || {
            (0..)
                .zip(session)
                .filter(|(txn, _)| registers.happened[*txn as usize])
        };
        let count = session.iter().max().map_or(0, |most| *most as usize + 1);
        let mut starts = vec![0; count + 1];
        let mut places = vec![0; session.len()];
        for (txn, &session) in happened() {
            let session: u32 = session;
            places[txn as usize] = starts[session as usize + 1];
            starts[session as usize + 1] += 1;
        }
        for at in 0..count {
            starts[at + 1] += starts[at];
        }
        let mut txns = vec![0; starts[count] as usize];
        for (txn, &session) in happened() {
            txns[(starts[session as usize] + places[txn as usize]) as usize] = txn;
        }
        Sessions {
            starts,
            txns,
            places,
        }
    }

    fn place(&self, session: &[u32], txn: u32) -> (usize, u32) {
        (session[txn as usize] as usize, self.places[txn as usize])
    }

    fn txn(&self, session: usize, place: u32) -> u32 {
        self.txns[(self.starts[session] + place) as usize]
    }
}

/// The writes of one key in one session.
struct Block {
    session: u32,
    start: u32,
    end: u32,
    /// Where the last search ended.
    hint: u32,
}

impl Block {
    /// The last place before a limit.
    fn last_before(&mut self, places: &[u32], limit: u32) -> Option<u32> {
        let at = self.hint as usize;
        let count = if places[at] < limit {
            let mut step = 1;
            while at + step < places.len() && places[at + step] < limit {
                step *= 2;
            }
            let end = (at + step).min(places.len());
            at + places[at..end].partition_point(|&place| place < limit)
        } else {
            places[..at].partition_point(|&place| place < limit)
        };
        self.hint = number(count.saturating_sub(1));
        count.checked_sub(1).map(|at| places[at])
    }
}

/// Who wrote each key: by session, in its order.
struct Writes {
    /// The first block of each key.
    starts: Vec<u32>,
    blocks: Vec<Block>,
    places: Vec<u32>,
}

impl Writes {
    fn of(registers: &Registers, sessions: &Sessions) -> Writes {
        let keys = registers.key_count();
        let mut ends = vec![0u32; keys + 1];
        for &key in sessions.txns.iter().flat_map(|&txn| registers.writes(txn)) {
            ends[key as usize + 1] += 1;
        }
        for key in 0..keys {
            ends[key + 1] += ends[key];
        }
        // Each write as its session and its place in it, keys apart.
        let mut written = vec![(0u32, 0u32); ends[keys] as usize];
        for (session, range) in (0..).zip(sessions.starts.windows(2)) {
            let txns = &sessions.txns[range[0] as usize..range[1] as usize];
            for (place, &txn) in (0..).zip(txns) {
                for &key in registers.writes(txn) {
                    written[ends[key as usize] as usize] = (session, place);
                    ends[key as usize] += 1;
                }
            }
        }
        let mut writes = Writes {
            starts: vec![0],
            blocks: Vec::new(),
            places: written.iter().map(|&(_, place)| place).collect(),
        };
        let mut start = 0;
        for end in ends.iter().take(keys) {
            let mut from = start;
            for block in written[start as usize..*end as usize].chunk_by(|a, b| a.0 == b.0) {
                writes.blocks.push(Block {
                    session: block[0].0,
                    start: from,
                    end: from + number(block.len()),
                    hint: 0,
                });
                from += number(block.len());
            }
            writes.starts.push(number(writes.blocks.len()));
            start = *end;
        }
        writes
    }

    fn blocks_of(&self, key: u32) -> std::ops::Range<usize> {
        self.starts[key as usize] as usize..self.starts[key as usize + 1] as usize
    }
}

/// Clocks of the transactions that are still to be looked at.
struct Rows {
    width: usize,
    numbers: Vec<u32>,
    free: Vec<u32>,
    /// The row of each transaction.
    row: Vec<u32>,
    /// How often each is still to be looked at.
    uses: Vec<u32>,
}

impl Rows {
    fn new(registers: &Registers, width: usize) -> Rows {
        let mut uses = vec![0; registers.len()];
        let writers = registers.all_reads().iter().map(|read| read.writer);
        for other in writers.chain(registers.previous.iter().copied()) {
            if other != NEVER {
                uses[other as usize] += 1;
            }
        }
        Rows {
            width,
            numbers: Vec::new(),
            free: Vec::new(),
            row: vec![NEVER; registers.len()],
            uses,
        }
    }

    fn keep(&mut self, txns: &[u32]) {
        for &txn in txns {
            self.uses[txn as usize] += 1;
        }
    }

    fn has(&self, txn: u32) -> bool {
        self.row[txn as usize] != NEVER
    }

    fn of(&self, txn: u32) -> &[u32] {
        let start = self.row[txn as usize] as usize * self.width;
        &self.numbers[start..start + self.width]
    }

    fn set(&mut self, txn: u32, clock: &[u32]) {
        let row = &mut self.row[txn as usize];
        if *row == NEVER {
            *row = self.free.pop().unwrap_or_else(|| {
                let next = number(self.numbers.len() / self.width);
                self.numbers.resize(self.numbers.len() + self.width, 0);
                next
            });
        }
        let start = *row as usize * self.width;
        self.numbers[start..start + self.width].copy_from_slice(clock);
    }

    fn release(&mut self, txn: u32) {
        self.uses[txn as usize] -= 1;
        self.drop_if_unused(txn);
    }

    fn drop_if_unused(&mut self, txn: u32) {
        if self.uses[txn as usize] == 0 {
            self.free.push(self.row[txn as usize]);
            self.row[txn as usize] = NEVER;
        }
    }
}

/// Steps back that are taken before it is given up.
const STEPS_MAX: u64 = 1 << 30;

/// The same without sessions: what is before each reader by reads alone, looked at one by one.
pub(super) fn walk(registers: &Registers, budget: &Budget) -> Result<Vec<Before>, Exhausted> {
    let mut found = Vec::new();
    let mut seen = vec![NEVER; registers.len()];
    let (mut open, mut steps, mut paid) = (Vec::new(), 0, 0);
    for reader in (0..).take(registers.len()) {
        open.push(reader);
        while let Some(txn) = open.pop() {
            for read in registers.reads(txn) {
                steps += 1;
                let other = read.writer;
                if other == INIT || seen[other as usize] == reader || other == reader {
                    continue;
                }
                seen[other as usize] = reader;
                open.push(other);
                steps += registers.writes(other).len() as u64;
                let writes_it = |key: u32| registers.writes(other).binary_search(&key).is_ok();
                for missed in registers.reads(reader) {
                    if missed.writer != other && writes_it(missed.key) {
                        found.push(Before {
                            first: other,
                            second: missed.writer,
                            reader,
                        });
                    }
                }
                steps += registers.reads(reader).len() as u64;
            }
            if steps - paid > u64::from(SPEND_EVERY) {
                budget.spend(steps - paid)?;
                budget.hold(registers.heap_bytes() + 12 * found.len() as u64)?;
                paid = steps;
            }
            if steps > STEPS_MAX {
                return Err(Exhausted::Steps);
            }
        }
    }
    Ok(found)
}
