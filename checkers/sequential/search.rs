//! The search for one order of reads and writes that keeps that of each session.
//!
//! A state is how far each session got and which version each key has. It goes on by moves that
//! cannot be wrong as long as there are any:
//!
//! - a read of the present version: it changes nothing;
//! - a cas of the present version, once nobody else has to read that: nothing may come between;
//! - a write whose readers are all next in their sessions (or none): afterwards its key is as free
//!   as before, and whatever came in between can come now.
//!
//! A write may go once nobody has to read what it overwrites. Where only writes are left that keep
//! others waiting, one is chosen, and the choice is taken back if it leads nowhere.

use history::{EventRef, History};
use rustc_hash::FxHashSet;

use crate::causality::{Link, Sessions};
use crate::constraints::Constraints;
use crate::registers::{INITIAL, Registers};
use crate::{Budget, Exhausted};

/// One step of one session.
#[derive(Debug, Clone, Copy)]
struct Move {
    session: u32,
    key: u32,
    /// What it reads, if it does.
    reads: Option<u32>,
    /// The place and version that it writes, if it does.
    writes: Option<(u32, u32)>,
}

struct Frame {
    /// The sessions that may go next, and how many of them were tried.
    options: Vec<u32>,
    tried: usize,
    /// How many moves had been made.
    moves: usize,
    fingerprint: u128,
}

struct Search<'r> {
    part: &'r Registers,
    sessions: &'r Sessions,
    /// How many accesses of each session were made.
    done: Vec<u32>,
    /// The version of each key now.
    present: Vec<u32>,
    /// How many reads of each version are still to come; of the initial one, by key.
    readers: Vec<u32>,
    initial_readers: Vec<u32>,
    /// By place of a write: which writes come after it, and how many before it are still to come.
    after: Vec<Vec<u32>>,
    before: Vec<u32>,
    /// By place of a write: when it must have happened, by its answer and those of its readers.
    due: Vec<u32>,
    made: Vec<(Move, u32)>,
    left: usize,
    fingerprint: u128,
}

/// Whether there is an order.
pub(super) fn search(
    history: &History,
    part: &Registers,
    sessions: &Sessions,
    constraints: &Constraints<Link>,
    budget: &Budget,
    choices: &mut u64,
) -> Result<bool, Exhausted> {
    let mut search = Search::new(history, part, sessions, constraints);
    let mut frames: Vec<Frame> = Vec::new();
    let mut failed: FxHashSet<u128> = FxHashSet::default();
    loop {
        budget.hold(64 * (part.accesses.len() + failed.len() + frames.len()) as u64)?;
        let options = search.go_on(budget)?;
        if search.left == 0 {
            return Ok(true);
        }
        if !options.is_empty() && !failed.contains(&search.fingerprint) {
            frames.push(Frame {
                options,
                tried: 0,
                moves: search.made.len(),
                fingerprint: search.fingerprint,
            });
        }
        loop {
            let Some(frame) = frames.last_mut() else {
                return Ok(false);
            };
            search.take_back(frame.moves);
            if let Some(&session) = frame.options.get(frame.tried) {
                frame.tried += 1;
                *choices += 1;
                search.make_next(session);
                break;
            }
            failed.insert(frame.fingerprint);
            frames.pop();
        }
    }
}

impl<'r> Search<'r> {
    fn new(
        history: &History,
        part: &'r Registers,
        sessions: &'r Sessions,
        constraints: &Constraints<Link>,
    ) -> Search<'r> {
        let count = part.accesses.len();
        let mut search = Search {
            part,
            sessions,
            done: vec![0; sessions.count()],
            present: vec![INITIAL; part.key_count()],
            readers: vec![0; part.writes.len() + 1],
            initial_readers: vec![0; part.key_count()],
            after: vec![Vec::new(); count],
            before: vec![0; count],
            due: vec![u32::MAX; count],
            made: Vec::new(),
            left: count,
            fingerprint: 0,
        };
        for edge in constraints.iter() {
            if matches!(edge.why, Link::Missed(_)) {
                search.after[edge.from as usize].push(edge.to);
                search.before[edge.to as usize] += 1;
            }
        }
        for (place, access) in (0u32..).zip(&part.accesses) {
            let write = if access.is_write {
                Some(place)
            } else {
                part.write_of(access.version)
            };
            let answer = history
                .event(access.event as usize)
                .partner()
                .filter(|_| access.answered);
            let answered = answer.map_or(usize::MAX, EventRef::index);
            if let Some(write) = write {
                let due = &mut search.due[write as usize];
                *due = (*due).min(u32::try_from(answered).unwrap_or(u32::MAX));
            }
            if !access.is_write {
                *search.readers_of(access.version, access.key) += 1;
            }
        }
        search
    }

    fn readers_of(&mut self, version: u32, key: u32) -> &mut u32 {
        if version == INITIAL {
            &mut self.initial_readers[key as usize]
        } else {
            &mut self.readers[version as usize]
        }
    }

    /// What a session would do next; a cas is one move.
    fn next(&self, session: u32) -> Option<Move> {
        let places = self.sessions.places(session);
        let done = self.done[session as usize] as usize;
        let place = *places.get(done)?;
        let access = self.part.accesses[place as usize];
        let of_write = |place: u32| (place, self.part.accesses[place as usize].version);
        if access.is_write {
            return Some(Move {
                session,
                key: access.key,
                reads: None,
                writes: Some(of_write(place)),
            });
        }
        let cas = places.get(done + 1).filter(|&&next| {
            let next = self.part.accesses[next as usize];
            next.is_write && next.event == access.event
        });
        Some(Move {
            session,
            key: access.key,
            reads: Some(access.version),
            writes: cas.map(|&write| of_write(write)),
        })
    }

    fn may(&mut self, step: Move) -> bool {
        let present = self.present[step.key as usize];
        if step.reads.is_some_and(|version| version != present) {
            return false;
        }
        let own = u32::from(step.reads.is_some());
        step.writes.is_none_or(|(place, _)| {
            self.before[place as usize] == 0 && *self.readers_of(present, step.key) == own
        })
    }

    fn make(&mut self, step: Move) {
        let key = step.key as usize;
        let before = self.present[key];
        self.fingerprint ^= self.print(step.session);
        if let Some(version) = step.reads {
            *self.readers_of(version, step.key) -= 1;
            self.done[step.session as usize] += 1;
            self.left -= 1;
        }
        if let Some((place, version)) = step.writes {
            self.fingerprint ^= print(step.key, before, 1) ^ print(step.key, version, 1);
            self.present[key] = version;
            for at in 0..self.after[place as usize].len() {
                let later = self.after[place as usize][at];
                self.before[later as usize] -= 1;
            }
            self.done[step.session as usize] += 1;
            self.left -= 1;
        }
        self.fingerprint ^= self.print(step.session);
        self.made.push((step, before));
    }

    fn make_next(&mut self, session: u32) {
        if let Some(step) = self.next(session) {
            self.make(step);
        }
    }

    /// Takes back all but so many moves.
    fn take_back(&mut self, moves: usize) {
        while self.made.len() > moves {
            let Some((step, before)) = self.made.pop() else {
                return;
            };
            self.fingerprint ^= self.print(step.session);
            if let Some((place, version)) = step.writes {
                self.fingerprint ^= print(step.key, before, 1) ^ print(step.key, version, 1);
                self.present[step.key as usize] = before;
                for at in 0..self.after[place as usize].len() {
                    let later = self.after[place as usize][at];
                    self.before[later as usize] += 1;
                }
                self.done[step.session as usize] -= 1;
                self.left += 1;
            }
            if let Some(version) = step.reads {
                *self.readers_of(version, step.key) += 1;
                self.done[step.session as usize] -= 1;
                self.left += 1;
            }
            self.fingerprint ^= self.print(step.session);
        }
    }

    fn print(&self, session: u32) -> u128 {
        print(session, self.done[session as usize], 0)
    }

    /// Makes all moves that cannot be wrong. What is left are sessions that may write, the one
    /// whose write is due first at the front.
    fn go_on(&mut self, budget: &Budget) -> Result<Vec<u32>, Exhausted> {
        let count = u32::try_from(self.sessions.count()).unwrap_or(u32::MAX);
        loop {
            budget.spend(u64::from(count))?;
            let mut moved = self.read_all(count);
            let mut options: Vec<(u32, u32)> = Vec::new();
            for session in 0..count {
                let Some(step) = self.next(session) else {
                    continue;
                };
                let Some((place, version)) = step.writes.filter(|_| self.may(step)) else {
                    continue;
                };
                let moves = self.made.len();
                self.make(step);
                if step.reads.is_some() || self.readers[version as usize] == 0 {
                    moved = true;
                    continue;
                }
                budget.spend(u64::from(count))?;
                self.read_all(count);
                if self.readers[version as usize] == 0 {
                    moved = true;
                } else {
                    self.take_back(moves);
                    options.push((self.due[place as usize], session));
                }
            }
            if !moved {
                options.sort_unstable();
                return Ok(options.into_iter().map(|(_, session)| session).collect());
            }
        }
    }

    /// Makes all reads of present versions; whether there was any.
    fn read_all(&mut self, count: u32) -> bool {
        let mut moved = false;
        for session in 0..count {
            while let Some(step) = self.next(session) {
                if step.writes.is_some() || !self.may(step) {
                    break;
                }
                self.make(step);
                moved = true;
            }
        }
        moved
    }
}

/// A fingerprint of one part of a state: well-mixed bits of three numbers.
fn print(what: u32, number: u32, kind: u64) -> u128 {
    let mix = |seed: u64| {
        let mut bits = (u64::from(what) << 32 | u64::from(number)) ^ seed.wrapping_add(kind << 7);
        for _ in 0..2 {
            bits = (bits ^ bits >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            bits = (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        bits ^ bits >> 32
    };
    u128::from(mix(0x2545_f491_4f6c_dd1d)) << 64 | u128::from(mix(0x6a09_e667_f3bc_c908))
}
