//! Reads and writes of registers by session, with the write that each read saw.
//!
//! Where written values are distinct, the value that a read returned says which write it saw, and
//! what remains of a history are small numbers:
//!
//! ```text
//! access   session  key  what   version
//!   0         0      0   write     1      the first write of the history
//!   1         1      0   read      1      it saw that write
//!   2         1      1   read      0      it saw the initial value
//! ```
//!
//! A session is a process until an operation of it has no answer; what it does after that is a new
//! session, unless the header says that a session goes on. An operation that failed is left out, and so is a read that was not answered. An
//! unanswered write may have happened, at any later time; an unanswered cas is one. A cas that
//! happened is a read of the old value and a write of the new one.

use history::{EventRef, History, NONE, Op, Outcome, ValueRef};
use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::Checked;
use crate::actors::{self, Actors};
use crate::budget::{Budget, Exhausted};
use crate::ident::Ident;
use crate::params::{self, Param, Takes};
use crate::words;

/// Which write a read saw, or which write this is: numbers from 1 in the order of invocation.
pub(crate) type Version = u32;

/// The value before the first write of a key.
pub(crate) const INITIAL: Version = 0;

/// What is known of a version only after all writes were seen.
const UNWRITTEN: Version = u32::MAX;

/// What is a session.
pub(crate) const SESSIONS: Param = Param {
    name: "sessions",
    takes: Takes::Word(&["process", "thread"]),
    default: "process",
    about: "`process`: a session is a process, up to its first unanswered operation; `thread`: it \
            goes on as the next process of its thread, and what was not answered is a session of \
            its own",
};

/// The parameters of whoever reads registers by session.
pub(crate) const PARAMS: &[Param] = &[
    SESSIONS,
    params::INITIAL,
    params::READS,
    params::NIL_READS,
    params::FAILS,
    actors::THREADS,
];

/// One read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    /// The index of its invocation.
    pub(crate) event: u32,
    pub(crate) session: u32,
    /// A number from 0 in order of first use; see [`Registers::key`].
    pub(crate) key: u32,
    pub(crate) version: Version,
    pub(crate) is_write: bool,
    /// Whether it certainly happened; only a write may not have.
    pub(crate) answered: bool,
}

/// All accesses in the order of their invocations, which is also that of each session.
pub(crate) struct Registers {
    pub(crate) accesses: Vec<Access>,
    /// The place of each write; that of version `v` is at `v - 1`.
    pub(crate) writes: Vec<u32>,
    pub(crate) sessions: u32,
    /// The number of each key in the history, [`NONE`] for one without a name.
    keys: Vec<u32>,
    /// Keys of which a value was read that two writes wrote, with the events of both; one is
    /// [`NONE`] where the value is the initial one. Such reads are left out.
    pub(crate) ambiguous: Vec<Option<[u32; 2]>>,
    /// The place of the first read of a value that nobody wrote; such reads are left out too.
    pub(crate) unwritten: Option<Access>,
}

/// One value of one key: who wrote it, and who read it first.
#[derive(Clone, Copy)]
struct Slot {
    version: Version,
    writers: [u32; 2],
    is_read: bool,
}

struct Reader<'h> {
    reads: Vec<&'h str>,
    initial: Option<&'h Value>,
    nil_unknown: bool,
    fails_uncertain: bool,
    actors: Option<Actors>,
    /// The session of each process or thread now.
    session_of: Vec<u32>,
    key_of: FxHashMap<u32, u32>,
    texts: FxHashMap<Ident, u64>,
    slot_of: FxHashMap<(u32, u64), u32>,
    slots: Vec<Slot>,
    versions: Version,
    found: Registers,
}

impl Registers {
    /// Reads them off a history: one pass, and one over the reads.
    ///
    /// # Errors
    /// If the budget is used up.
    pub(crate) fn of(history: &History, budget: &Budget) -> Result<Registers, Exhausted> {
        let header = &history.header;
        let more = header
            .params
            .get(params::READS.name)
            .and_then(Value::as_array);
        let more = more.into_iter().flatten().filter_map(Value::as_str);
        let by_thread = SESSIONS.word(header) == "thread";
        let mut reader = Reader {
            reads: ["read", "read-init"].into_iter().chain(more).collect(),
            initial: header.params.get(params::INITIAL.name),
            nil_unknown: params::NIL_READS.word(header) == "unknown",
            fails_uncertain: params::FAILS.word(header) == "uncertain",
            actors: by_thread.then(|| Actors::of(history)),
            session_of: vec![NONE; history.process_count()],
            key_of: FxHashMap::default(),
            texts: FxHashMap::default(),
            slot_of: FxHashMap::default(),
            slots: Vec::new(),
            versions: 0,
            found: Registers {
                accesses: Vec::new(),
                writes: Vec::new(),
                sessions: 0,
                keys: Vec::new(),
                ambiguous: Vec::new(),
                unwritten: None,
            },
        };
        for (count, op) in history.ops().enumerate() {
            if count.is_multiple_of(4096) {
                budget.spend(4096)?;
                budget.hold(reader.bytes())?;
            }
            reader.read(op);
        }
        Ok(reader.finish())
    }

    /// Whether nothing was read or written.
    pub(crate) fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// How many keys there are.
    pub(crate) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// The place of the write of a version; `None` for the initial value.
    pub(crate) fn write_of(&self, version: Version) -> Option<u32> {
        let at = version.checked_sub(1)?;
        self.writes.get(at as usize).copied()
    }

    /// Counts what there is: keys, sessions, reads, writes, unanswered writes, and reads that saw
    /// a write of another session.
    pub(crate) fn count(&self, result: Checked) -> Checked {
        let count = |is: &dyn Fn(&Access) -> bool| {
            self.accesses.iter().filter(|&access| is(access)).count() as u64
        };
        let of_other = |access: &Access| {
            let write = self.write_of(access.version).filter(|_| !access.is_write);
            write.is_some_and(|write| self.accesses[write as usize].session != access.session)
        };
        result
            .count("keys", self.keys.len() as u64)
            .count("sessions", u64::from(self.sessions))
            .count("reads", count(&|access| !access.is_write))
            .count(
                "writes",
                count(&|access| access.is_write && access.answered),
            )
            .count(
                "unanswered",
                count(&|access| access.is_write && !access.answered),
            )
            .count("seen_of_others", count(&of_other))
    }

    /// Some of the accesses by themselves: those at these places, in order, but no unanswered write
    /// that none of them saw, which need not have happened. What the accesses saw must be there.
    pub(crate) fn part(&self, places: &[u32]) -> Registers {
        let mut seen = vec![false; self.writes.len() + 1];
        for &place in places {
            let access = &self.accesses[place as usize];
            seen[access.version as usize] |= !access.is_write;
        }
        let mut version_of = vec![INITIAL; self.writes.len() + 1];
        let mut part = Registers {
            accesses: Vec::with_capacity(places.len()),
            writes: Vec::new(),
            sessions: self.sessions,
            keys: self.keys.clone(),
            ambiguous: Vec::new(),
            unwritten: None,
        };
        for &place in places {
            let access = self.accesses[place as usize];
            if !access.is_write || access.answered || seen[access.version as usize] {
                if access.is_write {
                    part.writes
                        .push(u32::try_from(part.accesses.len()).unwrap_or(NONE));
                    version_of[access.version as usize] =
                        u32::try_from(part.writes.len()).unwrap_or(NONE);
                }
                part.accesses.push(access);
            }
        }
        for access in &mut part.accesses {
            access.version = version_of[access.version as usize];
        }
        part
    }

    /// These places and those of the writes that they saw, sorted.
    pub(crate) fn with_what_was_read(&self, places: &[u32]) -> Vec<u32> {
        let read = places.iter().filter_map(|&place| {
            let access = self.accesses[place as usize];
            self.write_of(access.version).filter(|_| !access.is_write)
        });
        let mut all: Vec<u32> = places.iter().copied().chain(read).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The places of the accesses of each key, in order.
    pub(crate) fn by_key(&self) -> ByKey {
        let mut starts = vec![0u32; self.keys.len() + 1];
        for access in &self.accesses {
            starts[access.key as usize + 1] += 1;
        }
        for key in 0..self.keys.len() {
            starts[key + 1] += starts[key];
        }
        let mut next = starts.clone();
        let mut places = vec![0u32; self.accesses.len()];
        for (place, access) in (0u32..).zip(&self.accesses) {
            let at = &mut next[access.key as usize];
            places[*at as usize] = place;
            *at += 1;
        }
        ByKey { starts, places }
    }

    /// The key in words: `key x`, or `the register`.
    pub(crate) fn key(&self, history: &History, key: u32) -> String {
        match self.keys[key as usize] {
            NONE => "the register".to_owned(),
            id => format!("key {}", words::value(history.key_value(id))),
        }
    }

    /// The value of an access in words.
    pub(crate) fn value(&self, history: &History, access: &Access) -> String {
        let op = history.event(access.event as usize).op();
        if !access.is_write {
            let read = op.output().filter(|_| op.f() != "cas");
            return words::value(read.unwrap_or_else(|| part(op.input(), 0)));
        }
        words::value(written(op))
    }

    /// Why it is not known what some reads saw, in words; `None` if it is known of all.
    pub(crate) fn why_ambiguous(&self, history: &History) -> Option<String> {
        let (key, events) = (0u32..)
            .zip(&self.ambiguous)
            .find_map(|(key, events)| Some((key, (*events)?)))?;
        let writer = |event: u32| match event {
            NONE => "it is the initial value".to_owned(),
            event => format!("event {event}"),
        };
        let last = history.event(events[1] as usize).op();
        Some(format!(
            "{} of {} keys: {} had {} written to it twice ({}, {}) and read, so that it is not known \
             which write was seen",
            self.ambiguous.iter().flatten().count(),
            self.keys.len(),
            self.key(history, key),
            words::value(written(last)),
            writer(events[0]),
            writer(events[1]),
        ))
    }
}

/// The places of accesses, by key.
pub(crate) struct ByKey {
    starts: Vec<u32>,
    places: Vec<u32>,
}

impl ByKey {
    /// Those of one key, in order.
    pub(crate) fn of(&self, key: usize) -> &[u32] {
        &self.places[self.starts[key] as usize..self.starts[key + 1] as usize]
    }
}

/// An item of the argument of a cas; the whole if it is no list.
fn part(value: ValueRef<'_>, at: usize) -> ValueRef<'_> {
    value
        .as_list()
        .and_then(|mut items| items.nth(at))
        .unwrap_or(value)
}

/// What an operation writes.
fn written(op: Op<'_>) -> ValueRef<'_> {
    if op.f() == "cas" {
        part(op.input(), 1)
    } else {
        op.input()
    }
}

impl<'h> Reader<'h> {
    fn bytes(&self) -> u64 {
        let slots = self.slots.len() * (size_of::<Slot>() + 2 * size_of::<((u32, u64), u32)>());
        (self.found.accesses.capacity() * size_of::<Access>() + slots) as u64
    }

    fn read(&mut self, op: Op<'h>) {
        let outcome = match op.outcome() {
            Outcome::Fail if self.fails_uncertain => Outcome::Info,
            outcome => outcome,
        };
        let f = op.f();
        let is_cas = f == "cas";
        let is_change = is_cas || f == "write";
        if is_change || self.reads.contains(&f) {
            let answered = outcome == Outcome::Ok;
            if is_change && outcome != Outcome::Fail {
                if is_cas && answered {
                    self.access(op, part(op.input(), 0), false, true);
                }
                self.access(op, written(op), true, answered);
            } else if let Some(value) = op
                .output()
                .filter(|value| !(self.nil_unknown && value.is_null()))
                && !is_change
            {
                self.access(op, value, false, true);
            }
        }
        if outcome == Outcome::Info && self.actors.is_none() {
            self.session_of[op.process_id() as usize] = NONE;
        }
    }

    /// The session that goes on with this invocation; one of its own for what is not answered,
    /// where the thread does not wait for it.
    fn session(&mut self, invoke: EventRef<'_>, answered: bool) -> u32 {
        let process = invoke.process_id();
        let owner = match &self.actors {
            Some(_) if !answered => None,
            Some(actors) => Some(actors.of_process(process)),
            None => Some(process),
        };
        let next = self.found.sessions;
        if let Some(owner) = owner {
            let known = &mut self.session_of[owner as usize];
            if *known != NONE {
                return *known;
            }
            *known = next;
        }
        self.found.sessions = next + 1;
        next
    }

    fn access(&mut self, op: Op<'h>, value: ValueRef<'h>, is_write: bool, answered: bool) {
        let id = op.key_id().unwrap_or(NONE);
        let next = u32::try_from(self.found.keys.len()).unwrap_or(NONE);
        let key = *self.key_of.entry(id).or_insert(next);
        if key == next {
            self.found.keys.push(id);
            self.found.ambiguous.push(None);
        }
        let slot = self.slot(key, value);
        let event = u32::try_from(op.invoke.index()).unwrap_or(NONE);
        let session = self.session(op.invoke, answered);
        let mut version = slot;
        let seen = &mut self.slots[slot as usize];
        if is_write {
            self.versions += 1;
            version = self.versions;
            if seen.version == UNWRITTEN {
                seen.version = version;
                seen.writers[0] = event;
            } else if seen.writers[1] == NONE {
                seen.writers[1] = event;
            }
        } else {
            seen.is_read = true;
        }
        self.found.accesses.push(Access {
            event,
            session,
            key,
            // Of a read, the slot until all writes are known.
            version,
            is_write,
            answered,
        });
    }

    /// The number of a value of a key.
    fn slot(&mut self, key: u32, value: ValueRef<'_>) -> u32 {
        let bits = match Ident::of(value) {
            Ident::Word(bits) => bits,
            text @ Ident::Text(_) => {
                // No packed word has all its three lowest bits set.
                let next = (self.texts.len() as u64) << 3 | 7;
                *self.texts.entry(text).or_insert(next)
            }
        };
        let next = u32::try_from(self.slots.len()).unwrap_or(NONE);
        let slot = *self.slot_of.entry((key, bits)).or_insert(next);
        if slot == next {
            let is_initial = match self.initial {
                None => value.is_null(),
                Some(initial) => value.to_json() == *initial,
            };
            self.slots.push(Slot {
                version: if is_initial { INITIAL } else { UNWRITTEN },
                writers: [NONE; 2],
                is_read: false,
            });
        }
        slot
    }

    fn finish(mut self) -> Registers {
        let found = &mut self.found;
        for (&(key, _), &slot) in &self.slot_of {
            let Slot {
                writers, is_read, ..
            } = self.slots[slot as usize];
            if is_read && writers[1] != NONE {
                // The earliest, so that the order of the map is not seen.
                let first = &mut found.ambiguous[key as usize];
                if first.is_none_or(|[_, event]| writers[1] < event) {
                    *first = Some(writers);
                }
            }
        }
        let slots = &self.slots;
        found.accesses.retain_mut(|access| {
            if access.is_write {
                return true;
            }
            let slot = slots[access.version as usize];
            access.version = slot.version;
            if slot.version == UNWRITTEN {
                found.unwritten.get_or_insert(*access);
            }
            slot.version != UNWRITTEN && slot.writers[1] == NONE
        });
        let places = (0u32..).zip(&found.accesses);
        found.writes = places
            .filter(|(_, access)| access.is_write)
            .map(|(place, _)| place)
            .collect();
        self.found
    }
}
