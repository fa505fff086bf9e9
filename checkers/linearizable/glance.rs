//! One register whose writes are distinct, decided while the events of a history are looked at
//! once: O(n), with eight bytes for each value and one bit for each event.
//!
//! The rule is that of [`super::zones`]. Nothing need be sorted, because events come in order: the
//! first answer of a cluster is its first return, and a read is too early if its value has no
//! write yet when it is answered. Forward zones are runs in a bitmap of the time between events;
//! those of two values overlap if a bit is to be set twice, and a backward zone lies within one if
//! all its bits are set.
//!
//! Says only that there is an order. If there is none, or if the history has more to it, it says
//! nothing, and the operations are looked at as usual.

use history::{EventRef, History, Kind, ValueRef};

use super::judge::Counts;

/// What a function does to a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It returns the value.
    Read,
    /// It overwrites the value.
    Write,
    /// It is not looked at.
    Nothing,
    /// It does something else.
    Other,
}

/// How a history is read.
pub(super) struct Rules {
    /// By the number of the function.
    pub(super) roles: Vec<Role>,
    /// The value at the beginning, if it is not null.
    pub(super) initial: Option<i64>,
    pub(super) nil_reads_unknown: bool,
    pub(super) fails_uncertain: bool,
}

impl Rules {
    /// The place of a value, which is 0 for the one at the beginning; none for a value that is not
    /// such a number as `end` values could have.
    #[inline]
    fn place(&self, value: ValueRef<'_>, end: usize) -> Option<usize> {
        let packed = value.packed();
        match packed.as_int() {
            Some(int) if Some(int) == self.initial => Some(0),
            Some(int) => usize::try_from(int)
                .ok()
                .filter(|&int| int < end - 1)
                .map(|int| int + 1),
            None => (packed.is_null() && self.initial.is_none()).then_some(0),
        }
    }

    fn says_nothing(&self, value: ValueRef<'_>) -> bool {
        self.nil_reads_unknown && value.packed().is_null()
    }
}

/// The first return and the last call of the operations of a value, as moments: one more than the
/// index of the event, 0 for none.
type Cluster = [u32; 2];

/// What was counted, if all of the history is one register with distinct writes that has an order.
pub(super) fn order(history: &History, rules: &Rules) -> Option<Counts> {
    let mut register = Register {
        rules,
        key: None,
        clusters: vec![[0; 2]; history.len() + 1],
        end: 1,
        open: 0,
        counts: Counts::of_one(history),
    };
    for (moment, event) in (1..NEVER).zip(history.events()) {
        let role = rules.roles[event.f_id() as usize];
        match (event.kind(), role) {
            (Kind::Invoke, Role::Read | Role::Write) => register.call(event, role, moment)?,
            (Kind::Ok, Role::Read | Role::Write) => register.answer(event, role, moment)?,
            (Kind::Invoke, Role::Other) => return None,
            _ => {}
        }
    }
    register.key?;
    register.clusters.truncate(register.end);
    let fits = fit(&register.clusters, history.len() + 1);
    fits.then_some(register.counts)
}

const NEVER: u32 = u32::MAX;

struct Register<'r> {
    rules: &'r Rules,
    /// Of all operations that count, once there is one.
    key: Option<Option<u32>>,
    clusters: Vec<Cluster>,
    /// One more than the last place of a value.
    end: usize,
    /// How many operations are open that will be answered.
    open: u64,
    counts: Counts,
}

impl Register<'_> {
    /// None if there is another key, or if the write is not distinct.
    #[inline]
    fn call(&mut self, event: EventRef<'_>, role: Role, moment: u32) -> Option<()> {
        let answer = event.partner();
        let answered = match answer.map(|answer| (answer.kind(), role)) {
            Some((Kind::Ok, Role::Read)) => {
                !answer.is_some_and(|answer| self.rules.says_nothing(answer.value()))
            }
            Some((Kind::Ok, _)) => true,
            Some((Kind::Fail, _)) if !self.rules.fails_uncertain => return Some(()),
            _ => false,
        };
        if role == Role::Read && !answered {
            return Some(());
        }
        if *self.key.get_or_insert(event.key_id()) != event.key_id() {
            return None;
        }
        if role == Role::Write {
            let place = self.rules.place(event.value(), self.clusters.len())?;
            let [_, last_call] = &mut self.clusters[place];
            if place == 0 || *last_call != 0 {
                return None;
            }
            *last_call = moment;
            self.end = self.end.max(place + 1);
            self.counts.unanswered += u64::from(!answered);
        }
        if answered {
            self.counts.happened[event.f_id() as usize] += 1;
            self.open += 1;
            self.counts.concurrent_max = self.counts.concurrent_max.max(self.open);
        }
        Some(())
    }

    /// None if a read was answered before anybody had asked to write its value.
    #[inline]
    fn answer(&mut self, event: EventRef<'_>, role: Role, moment: u32) -> Option<()> {
        let Some(invoke) = event.partner() else {
            return Some(());
        };
        let is_read = role == Role::Read;
        let value = if is_read {
            event.value()
        } else {
            invoke.value()
        };
        if is_read && self.rules.says_nothing(value) {
            return Some(());
        }
        self.open -= 1;
        let place = self.rules.place(value, self.clusters.len())?;
        let [first_return, last_call] = &mut self.clusters[place];
        if place > 0 {
            if *last_call == 0 {
                return None;
            }
            if *first_return == 0 {
                *first_return = moment;
            }
        }
        let called = u32::try_from(invoke.index() + 1).unwrap_or(NEVER);
        *last_call = called.max(*last_call);
        Some(())
    }
}

/// Whether no two forward zones overlap, and no backward zone lies within one.
fn fit(clusters: &[Cluster], moments: usize) -> bool {
    let zones = || {
        let zones = clusters.iter().enumerate();
        // Only the value at the beginning was there before any answer; another that none returned
        // was never answered and never read.
        zones.filter(|&(place, &[first_return, last_call])| {
            last_call != 0 && (place == 0 || first_return != 0)
        })
    };
    let mut cover = Cover::new(moments);
    for (_, &[first_return, last_call]) in zones() {
        if first_return < last_call && !cover.add(first_return, last_call) {
            return false;
        }
    }
    cover.find_holes();
    zones().all(|(_, &[first_return, last_call])| {
        first_return < last_call || cover.hole(last_call) < first_return
    })
}

/// The times between moments that zones cover.
struct Cover {
    words: Vec<u64>,
    /// The first time from the beginning of each word on that is not covered.
    holes: Vec<u32>,
}

impl Cover {
    fn new(moments: usize) -> Cover {
        Cover {
            words: vec![0; moments / 64 + 1],
            holes: Vec::new(),
        }
    }

    /// Covers the time between two moments; says whether none of it was covered before.
    fn add(&mut self, from: u32, to: u32) -> bool {
        let (first, last) = (from / 64, (to - 1) / 64);
        let mut was_free = true;
        for word in first..=last {
            let mut bits = u64::MAX;
            if word == first {
                bits &= u64::MAX << (from % 64);
            }
            if word == last {
                bits &= u64::MAX >> (63 - (to - 1) % 64);
            }
            let covered = &mut self.words[word as usize];
            was_free &= *covered & bits == 0;
            *covered |= bits;
        }
        was_free
    }

    fn find_holes(&mut self) {
        let mut hole = NEVER;
        self.holes.resize(self.words.len() + 1, hole);
        for (word, &bits) in self.words.iter().enumerate().rev() {
            if bits != u64::MAX {
                hole = (word as u32) * 64 + bits.trailing_ones();
            }
            self.holes[word] = hole;
        }
    }

    /// The first time from a moment on that is not covered.
    fn hole(&self, from: u32) -> u32 {
        let word = (from / 64) as usize;
        let free = !self.words[word] & u64::MAX << (from % 64);
        match free {
            0 => self.holes[word + 1],
            free => from / 64 * 64 + free.trailing_zeros(),
        }
    }
}
