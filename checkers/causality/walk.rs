//! Goes through the accesses in an order in which causes come first, with a clock for each
//! session: how many accesses of each other session are in its past.
//!
//! A session that reads what is not written yet waits until it is; sessions that still wait at the
//! end wait for each other. The clock of a write is kept until its last reader has come.

use rustc_hash::FxHashMap;

use super::{Broken, Found, Level, Link};
use crate::constraints::{Before, Constraints};
use crate::registers::{Access, INITIAL, Registers};
use crate::{Budget, Exhausted};

/// The accesses of each session, in its order.
pub(crate) struct Sessions {
    starts: Vec<u32>,
    places: Vec<u32>,
    session: Vec<u32>,
    /// Of each access, how many of its session are before it.
    position: Vec<u32>,
}

impl Sessions {
    /// Those of all accesses.
    pub(crate) fn of(registers: &Registers) -> Sessions {
        let count = registers.sessions as usize;
        let session: Vec<u32> = registers
            .accesses
            .iter()
            .map(|access| access.session)
            .collect();
        let mut starts = vec![0u32; count + 1];
        for &session in &session {
            starts[session as usize + 1] += 1;
        }
        for at in 0..count {
            starts[at + 1] += starts[at];
        }
        let mut next = starts.clone();
        let mut places = vec![0u32; session.len()];
        let mut position = vec![0u32; session.len()];
        for (place, &session) in (0u32..).zip(&session) {
            let at = &mut next[session as usize];
            places[*at as usize] = place;
            position[place as usize] = *at - starts[session as usize];
            *at += 1;
        }
        Sessions {
            starts,
            places,
            session,
            position,
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The places of the accesses of one, in order.
    pub(crate) fn places(&self, session: u32) -> &[u32] {
        let session = session as usize;
        &self.places[self.starts[session] as usize..self.starts[session + 1] as usize]
    }

    /// How many accesses of its session are before this one.
    pub(crate) fn position(&self, place: u32) -> u32 {
        self.position[place as usize]
    }

    /// The session of an access.
    pub(crate) fn session(&self, place: u32) -> u32 {
        self.session[place as usize]
    }

    /// What its session did next.
    pub(crate) fn after(&self, place: u32) -> Option<u32> {
        let next = self.position(place) as usize + 1;
        self.places(self.session(place)).get(next).copied()
    }
}

/// The writes of one key by one session, in its order.
struct Writer {
    session: u32,
    /// Positions in the session, and places.
    writes: Vec<(u32, u32)>,
    /// Where the last search ended: the next one ends near it.
    hint: usize,
    /// The last order that a read told of one of these: the place of it, and of the other write.
    told: (u32, u32),
}

impl Writer {
    /// The last write among the first `count` accesses of the session.
    fn last_of(&mut self, count: u32) -> Option<u32> {
        let mut at = self.hint.min(self.writes.len());
        while at < self.writes.len() && self.writes[at].0 < count {
            at += 1;
        }
        while at > 0 && self.writes[at - 1].0 >= count {
            at -= 1;
        }
        self.hint = at;
        at.checked_sub(1).map(|last| self.writes[last].1)
    }
}

/// A clock: how many accesses of each session are in the past.
type Clock = Box<[u32]>;

struct Walk<'r> {
    registers: &'r Registers,
    sessions: &'r Sessions,
    budget: &'r Budget,
    level: Level,
    /// How many accesses of each session were gone through.
    done: Vec<u32>,
    clocks: Vec<Option<Clock>>,
    /// By version, the clock of its write.
    of_write: Vec<Option<Clock>>,
    /// By version, how many reads of other sessions have not come yet.
    readers: Vec<u32>,
    /// Sessions that wait for a version to be written.
    waiting: FxHashMap<u32, Vec<u32>>,
    waits: Vec<bool>,
    /// The writers of each key.
    writers: Vec<Vec<Writer>>,
    clocks_alive: u64,
    looks: u64,
    constraints: Constraints<Link>,
    missed: u64,
    broken: Option<Broken>,
}

/// See [`super::explore`].
pub(crate) fn walk(
    registers: &Registers,
    sessions: &Sessions,
    level: Level,
    budget: &Budget,
) -> Result<Found, Exhausted> {
    let mut walk = Walk::new(registers, sessions, level, budget);
    for (place, access) in (0u32..).zip(&registers.accesses) {
        walk.go_on(access.session, place)?;
        if walk.broken.is_some() {
            break;
        }
    }
    if walk.broken.is_none() {
        walk.broken = walk.wait_in_a_circle();
    }
    Ok(Found {
        constraints: walk.constraints,
        missed: walk.missed,
        broken: walk.broken,
    })
}

impl<'r> Walk<'r> {
    fn new(
        registers: &'r Registers,
        sessions: &'r Sessions,
        level: Level,
        budget: &'r Budget,
    ) -> Walk<'r> {
        let versions = registers.writes.len() + 1;
        let mut readers = vec![0; versions];
        let mut writers: Vec<Vec<Writer>> = Vec::new();
        writers.resize_with(registers.key_count(), Vec::new);
        let mut of_key_and_session: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        for (place, access) in (0u32..).zip(&registers.accesses) {
            if !access.is_write {
                let write = registers.write_of(access.version);
                let own = write.is_none_or(|write| sessions.session(write) == access.session);
                readers[access.version as usize] += u32::from(!own);
                continue;
            }
            let of_key = &mut writers[access.key as usize];
            let at = *of_key_and_session
                .entry((access.key, access.session))
                .or_insert_with(|| {
                    of_key.push(Writer {
                        session: access.session,
                        writes: Vec::new(),
                        hint: 0,
                        told: (u32::MAX, u32::MAX),
                    });
                    of_key.len() - 1
                });
            of_key[at].writes.push((sessions.position(place), place));
        }
        let mut clocks = Vec::new();
        clocks.resize_with(sessions.count(), || None);
        let mut of_write = Vec::new();
        of_write.resize_with(versions, || None);
        Walk {
            registers,
            sessions,
            budget,
            level,
            done: vec![0; sessions.count()],
            clocks,
            of_write,
            readers,
            waiting: FxHashMap::default(),
            waits: vec![false; sessions.count()],
            writers,
            clocks_alive: 0,
            looks: 0,
            constraints: Constraints::new(
                u32::try_from(registers.accesses.len()).unwrap_or(u32::MAX),
            ),
            missed: 0,
            broken: None,
        }
    }

    /// Goes on with a session up to this place of the history, and with all that waited for it.
    fn go_on(&mut self, session: u32, upto: u32) -> Result<(), Exhausted> {
        let mut awake = vec![session];
        while let Some(session) = awake.pop() {
            while let Some(place) = self.next(session).filter(|&place| place <= upto) {
                let access = self.registers.accesses[place as usize];
                if !self.is_written(&access) {
                    if !std::mem::replace(&mut self.waits[session as usize], true) {
                        self.waiting
                            .entry(access.version)
                            .or_default()
                            .push(session);
                    }
                    break;
                }
                self.step(place, access)?;
                if self.broken.is_some() {
                    return Ok(());
                }
                if access.is_write
                    && let Some(waited) = self.waiting.remove(&access.version)
                {
                    for &session in &waited {
                        self.waits[session as usize] = false;
                    }
                    awake.extend(waited);
                }
            }
        }
        Ok(())
    }

    fn next(&self, session: u32) -> Option<u32> {
        let done = self.done[session as usize] as usize;
        self.sessions.places(session).get(done).copied()
    }

    /// Whether a read can be explained by now.
    fn is_written(&self, access: &Access) -> bool {
        access.is_write
            || self.registers.write_of(access.version).is_none_or(|write| {
                self.sessions.position(write) < self.done[self.sessions.session(write) as usize]
            })
    }

    fn step(&mut self, place: u32, access: Access) -> Result<(), Exhausted> {
        let (session, version) = (access.session as usize, access.version as usize);
        let count = self.sessions.count();
        let mut clock = self.clocks[session].take().unwrap_or_else(|| {
            self.clocks_alive += 1;
            vec![0; count].into_boxed_slice()
        });
        if let Some(past) = self.of_write[version].as_ref().filter(|_| !access.is_write) {
            self.looks += count as u64;
            for (own, &other) in clock.iter_mut().zip(past.iter()) {
                *own = (*own).max(other);
            }
        }
        self.done[session] += 1;
        clock[session] = self.done[session];
        if access.is_write {
            if self.readers[version] > 0 || self.level == Level::Causal {
                self.clocks_alive += 1;
                self.of_write[version] = Some(clock.clone());
            }
        } else {
            self.look_back(place, access, &clock);
            let writer = self.registers.write_of(access.version);
            if writer.is_some_and(|write| self.sessions.session(write) != access.session) {
                self.readers[version] -= 1;
                if self.readers[version] == 0 && self.level != Level::Causal {
                    self.of_write[version] = None;
                    self.clocks_alive -= 1;
                }
            }
        }
        if self.done[session] as usize == self.sessions.places(access.session).len() {
            self.clocks_alive -= 1;
        } else {
            self.clocks[session] = Some(clock);
        }
        if place.is_multiple_of(1024) || self.looks > 1 << 16 {
            self.budget.spend(1024 + std::mem::take(&mut self.looks))?;
            self.budget
                .hold(self.clocks_alive * 4 * count as u64 + self.constraints.bytes())?;
        }
        Ok(())
    }

    /// The writes of the key in the past of a read come before the one that it saw.
    fn look_back(&mut self, place: u32, access: Access, clock: &[u32]) {
        let registers = self.registers;
        let sessions = self.sessions;
        let seen = registers.write_of(access.version);
        let seen_clock = self.of_write[access.version as usize].as_deref();
        self.looks += self.writers[access.key as usize].len() as u64;
        for writer in &mut self.writers[access.key as usize] {
            let Some(write) = writer.last_of(clock[writer.session as usize]) else {
                continue;
            };
            let Some(seen) = seen else {
                self.broken = Some(Broken::Initial { write, read: place });
                return;
            };
            let is_before = |one: u32, other: u32, clock: Option<&[u32]>| {
                let session = sessions.session(one);
                if session == sessions.session(other) {
                    return sessions.position(one) <= sessions.position(other);
                }
                clock.is_some_and(|clock| clock[session as usize] > sessions.position(one))
            };
            if is_before(write, seen, seen_clock) || writer.told == (write, seen) {
                continue;
            }
            writer.told = (write, seen);
            self.missed += 1;
            if self.level == Level::Convergent {
                self.constraints.add(write, seen, Link::Missed(place));
                continue;
            }
            let version = registers.accesses[write as usize].version;
            if is_before(seen, write, self.of_write[version as usize].as_deref()) {
                self.broken = Some(Broken::Cycle(vec![
                    Before {
                        from: seen,
                        to: write,
                        why: Link::Past,
                    },
                    Before {
                        from: write,
                        to: seen,
                        why: Link::Missed(place),
                    },
                ]));
                return;
            }
        }
        debug_assert!(access.version != INITIAL || seen.is_none());
    }

    /// Sessions that wait for each other: each reads what another writes after what it waits for.
    fn wait_in_a_circle(&self) -> Option<Broken> {
        let first = (0..self.done.len()).find(|&session| self.waits[session])?;
        let mut reads: Vec<u32> = Vec::new();
        let mut at = u32::try_from(first).ok()?;
        let mut seen = vec![false; self.done.len()];
        while !std::mem::replace(&mut seen[at as usize], true) {
            let read = self.next(at)?;
            reads.push(read);
            at = self.sessions.session(self.write_seen(read)?);
        }
        let start = reads
            .iter()
            .position(|&read| self.sessions.session(read) == at)?;
        let circle = &reads[start..];
        let mut cycle = Vec::new();
        for (index, &read) in circle.iter().enumerate().rev() {
            let write = self.write_seen(read)?;
            let from = circle[(index + 1) % circle.len()];
            cycle.push(Before {
                from,
                to: write,
                why: Link::Session,
            });
            cycle.push(Before {
                from: write,
                to: read,
                why: Link::Saw,
            });
        }
        Some(Broken::Cycle(cycle))
    }

    fn write_seen(&self, read: u32) -> Option<u32> {
        self.registers
            .write_of(self.registers.accesses[read as usize].version)
    }
}
