//! The four session guarantees: what each says of the order of the writes of a key, and whether
//! there is such an order.
//!
//! All servers settle on one order of the writes of a key (Terry et al. call it consistent
//! ordering), which nobody tells us. A read returned the last write that it saw in that order. So
//! if a session saw `a` and then read `b`, and had to see `a` still, `b` comes after `a`. Each
//! guarantee is a set of such constraints, and is kept if and only if some order keeps them all:
//!
//! ```text
//! read your writes       a session wrote a, and then read b              a before b
//! monotonic reads        a session read a, and then b                    a before b
//! monotonic writes       a session wrote a, and then b                   a before b
//! writes follow reads    a session read a, and then wrote b              a before b
//! ```
//!
//! The last two say nothing of reads, so that nothing could break them; they are judged by what
//! sessions see whose reads are monotonic.

mod story;

use history::{History, NONE};

use crate::constraints::{Before, Constraints};
use crate::params::{Param, Takes};
use crate::registers::{self, Access, INITIAL, Registers};
use crate::ties::{self, Ties};
use crate::words::{self, Story};
use crate::{Budget, Checked, Exhausted, Reason};

/// Which order of writes is taken as known.
pub(crate) const WRITE_ORDER: Param = Param {
    name: "write_order",
    takes: Takes::Word(&["session", "realtime", "any"]),
    default: "session",
    about: "what is taken as known of the order of writes: `session`: those of one session are in \
            its order, and a cas comes after what it replaced; `realtime`: besides, a write that \
            was acknowledged before another was asked for comes first; `any`: nothing",
};

/// The parameters of the guarantees that depend on the order of writes.
pub(crate) const PARAMS_WITH_ORDER: &[Param] = &[
    WRITE_ORDER,
    registers::PARAMS[0],
    registers::PARAMS[1],
    registers::PARAMS[2],
    registers::PARAMS[3],
    registers::PARAMS[4],
    registers::PARAMS[5],
    ties::TIES,
    ties::CLOCK_ERROR,
];

/// What all four count.
pub(crate) const COUNTS: &[(&str, &str)] = &[
    ("keys", "registers read or written"),
    ("sessions", "sessions that read or wrote"),
    ("reads", "reads judged"),
    ("writes", "writes that happened"),
    ("unanswered", "writes whose outcome is unknown"),
    (
        "seen_of_others",
        "reads that saw a write of another session",
    ),
    (
        "pairs",
        "pairs of operations of a session that the guarantee speaks of",
    ),
    (
        "keys_undecided",
        "registers of which it could not be told whether they kept it",
    ),
];

/// One of the four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guarantee {
    ReadYourWrites,
    MonotonicReads,
    MonotonicWrites,
    WritesFollowReads,
}

/// Why one version comes before another; places of accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// A session wrote the first and then the second.
    Wrote(u32, u32),
    /// A cas read the first and wrote the second; or a session did so by two operations.
    ReadThenWrote(u32, u32),
    /// A session wrote or read the first, and then read the second.
    ThenRead(u32, u32),
    /// The first was acknowledged before the second was asked for; by way of a moment between.
    Acknowledged(u32),
    Moment,
    AskedFor(u32),
    /// The initial value comes before all others.
    Initial,
}

/// How the writes of a key are known to be ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Any,
    Session,
    Realtime,
}

/// Judges one guarantee, key by key: O(n log n), with `write_order` `any` quadratic in the writes
/// of one session to one key.
pub(crate) fn judge(history: &History, budget: &Budget, guarantee: Guarantee) -> Checked {
    let registers = match Registers::of(history, budget) {
        Ok(registers) => registers,
        Err(limit) => {
            return Checked::unknown(Reason::exhausted(limit, "reading the history".to_owned()));
        }
    };
    if registers.is_empty() && registers.unwritten.is_none() {
        return Checked::unknown(Reason::NotApplicable(
            "no register was read or written".to_owned(),
        ));
    }
    let mut judge = Judge::new(history, &registers, budget, guarantee);
    let result = if let Some(read) = registers.unwritten {
        unwritten(history, &registers, &read)
    } else {
        judge.all_keys()
    };
    registers
        .count(result)
        .count("pairs", judge.pairs)
        .count("keys_undecided", judge.undecided)
}

struct Judge<'r> {
    history: &'r History,
    registers: &'r Registers,
    budget: &'r Budget,
    guarantee: Guarantee,
    order: Order,
    /// By session, the places of its last answered write and its last read of this key.
    last: Vec<[u32; 2]>,
    /// By session, all its answered writes of this key; only where no order is known.
    own: Vec<Vec<u32>>,
    /// The number of each version among those of its key.
    node: Vec<u32>,
    pairs: u64,
    undecided: u64,
}

const WRITE: usize = 0;
const READ: usize = 1;

impl<'r> Judge<'r> {
    fn new(
        history: &'r History,
        registers: &'r Registers,
        budget: &'r Budget,
        guarantee: Guarantee,
    ) -> Judge<'r> {
        let given = match WRITE_ORDER.word(&history.header) {
            "realtime" => Order::Realtime,
            "any" => Order::Any,
            _ => Order::Session,
        };
        let sessions = registers.sessions as usize;
        Judge {
            history,
            registers,
            budget,
            guarantee,
            order: match guarantee {
                Guarantee::ReadYourWrites | Guarantee::MonotonicReads => given,
                Guarantee::MonotonicWrites | Guarantee::WritesFollowReads => Order::Any,
            },
            last: vec![[NONE; 2]; sessions],
            own: vec![Vec::new(); sessions],
            node: vec![0; registers.writes.len() + 1],
            pairs: 0,
            undecided: 0,
        }
    }

    fn all_keys(&mut self) -> Checked {
        let by_key = self.registers.by_key();
        let mut result = Checked::valid();
        let mut why_not: Option<Reason> = None;
        for key in 0..self.registers.key_count() {
            if self.registers.ambiguous[key].is_some() {
                self.undecided += 1;
            }
            match self.key(by_key.of(key)) {
                Ok(None) => {}
                Ok(Some(Broken::Guarantee(cycle))) => {
                    if result.counterexample.is_none() {
                        result = story::tell(self.history, self.registers, &cycle);
                    }
                }
                Ok(Some(Broken::Reads)) => {
                    self.undecided += 1;
                    let name = self.registers.key(
                        self.history,
                        self.registers.accesses[by_key.of(key)[0] as usize].key,
                    );
                    why_not.get_or_insert(Reason::Coverage(format!(
                        "{name}: no order of its writes makes the reads of all sessions monotonic, by which this is judged"
                    )));
                }
                Err(limit) => {
                    let keys = self.registers.key_count();
                    self.undecided += (keys - key) as u64;
                    why_not = Some(Reason::exhausted(
                        limit,
                        format!("{key} of {keys} keys decided"),
                    ));
                    break;
                }
            }
        }
        if result.counterexample.is_some() {
            return result;
        }
        let ambiguous = self
            .registers
            .why_ambiguous(self.history)
            .map(Reason::Coverage);
        match why_not.or(ambiguous) {
            Some(reason) => Checked::unknown(reason),
            None if self.pairs == 0 => {
                Checked::unknown(Reason::NotApplicable(self.guarantee.never().to_owned()))
            }
            None => result,
        }
    }

    /// Whether the writes of a key have an order that keeps the guarantee.
    fn key(&mut self, places: &[u32]) -> Result<Option<Broken>, Exhausted> {
        let mut constraints = self.constraints(places, true)?;
        if self.order == Order::Realtime {
            self.realtime(places, &mut constraints);
        }
        let Some(cycle) = constraints.cycle(self.budget)? else {
            return Ok(None);
        };
        let by_reads = matches!(
            self.guarantee,
            Guarantee::MonotonicWrites | Guarantee::WritesFollowReads
        );
        if by_reads
            && self
                .constraints(places, false)?
                .cycle(self.budget)?
                .is_some()
        {
            return Ok(Some(Broken::Reads));
        }
        Ok(Some(Broken::Guarantee(cycle)))
    }

    /// The constraints on the versions of a key; without those of the guarantee itself only the
    /// reads by which it is judged.
    fn constraints(
        &mut self,
        places: &[u32],
        with_own: bool,
    ) -> Result<Constraints<Why>, Exhausted> {
        let mut nodes = 1;
        for &place in places {
            let access = self.registers.accesses[place as usize];
            if access.is_write {
                self.node[access.version as usize] = nodes;
                nodes += 1;
            }
        }
        let mut constraints = Constraints::new(nodes);
        for &place in places {
            let access = self.registers.accesses[place as usize];
            if access.is_write {
                self.write(place, access, with_own, &mut constraints);
            } else {
                self.read(place, access, with_own, &mut constraints)?;
            }
        }
        for &place in places {
            let session = self.registers.accesses[place as usize].session as usize;
            self.last[session] = [NONE; 2];
            self.own[session].clear();
        }
        Ok(constraints)
    }

    fn write(
        &mut self,
        place: u32,
        access: Access,
        with_own: bool,
        constraints: &mut Constraints<Why>,
    ) {
        let [wrote, read] = self.last[access.session as usize];
        let of_session = self.order != Order::Any;
        if wrote != NONE && with_own {
            let judged = self.guarantee == Guarantee::MonotonicWrites;
            self.pairs += u64::from(judged);
            if judged || of_session {
                self.before(wrote, place, Why::Wrote(wrote, place), constraints);
            }
        }
        if read != NONE && with_own {
            let judged = self.guarantee == Guarantee::WritesFollowReads;
            self.pairs += u64::from(judged);
            let is_cas = self.registers.accesses[read as usize].event == access.event;
            if judged || of_session && is_cas {
                self.before(read, place, Why::ReadThenWrote(read, place), constraints);
            }
        }
        if access.answered {
            self.last[access.session as usize][WRITE] = place;
            if self.order == Order::Any && self.guarantee == Guarantee::ReadYourWrites {
                self.own[access.session as usize].push(place);
            }
        }
    }

    fn read(
        &mut self,
        place: u32,
        access: Access,
        with_own: bool,
        constraints: &mut Constraints<Why>,
    ) -> Result<(), Exhausted> {
        let session = access.session as usize;
        let [wrote, read] = self.last[session];
        if self.guarantee == Guarantee::ReadYourWrites {
            self.pairs += u64::from(wrote != NONE);
            self.budget.spend(self.own[session].len() as u64)?;
            for at in 0..self.own[session].len() {
                let own = self.own[session][at];
                self.before(own, place, Why::ThenRead(own, place), constraints);
            }
            if self.order != Order::Any && wrote != NONE {
                self.before(wrote, place, Why::ThenRead(wrote, place), constraints);
            }
        } else if read != NONE {
            self.pairs += u64::from(with_own && self.guarantee == Guarantee::MonotonicReads);
            self.before(read, place, Why::ThenRead(read, place), constraints);
        }
        self.last[session][READ] = place;
        Ok(())
    }

    /// The version of one access comes before that of another, or is the same.
    fn before(&self, first: u32, second: u32, why: Why, constraints: &mut Constraints<Why>) {
        let version = |place: u32| self.registers.accesses[place as usize].version;
        let (from, to) = (version(first), version(second));
        if from == to {
            // To write what one has read of that very write is to read it too early.
            if !matches!(why, Why::ReadThenWrote(..)) {
                return;
            }
        }
        let (from, to) = (self.node[from as usize], self.node[to as usize]);
        constraints.add(from, to, why);
        if to == self.node[INITIAL as usize] {
            constraints.add(to, from, Why::Initial);
        }
    }

    /// Writes that were acknowledged before others were asked for. Each acknowledgement is a
    /// moment after all before it, so that there are as many constraints as writes, and not as
    /// many as pairs of them.
    fn realtime(&self, places: &[u32], constraints: &mut Constraints<Why>) {
        let accesses = &self.registers.accesses;
        let writes = || {
            places
                .iter()
                .copied()
                .filter(|&place| accesses[place as usize].is_write)
        };
        let ties = Ties::of(&self.history.header);
        let event = |place: u32| self.history.event(accesses[place as usize].event as usize);
        let mut acknowledged: Vec<(u64, u32)> = writes()
            .filter(|&place| accesses[place as usize].answered)
            .filter_map(|place| Some((ties.end(event(place).partner()?), place)))
            .collect();
        acknowledged.sort_unstable();
        let mut next = acknowledged.into_iter().peekable();
        let mut moment: Option<u32> = None;
        for place in writes() {
            let access = accesses[place as usize];
            let begin = ties.begin(event(place));
            while let Some((_, earlier)) = next.next_if(|(end, _)| *end < begin) {
                let now = constraints.node();
                let node = self.node[accesses[earlier as usize].version as usize];
                constraints.add(node, now, Why::Acknowledged(earlier));
                if let Some(before) = moment.replace(now) {
                    constraints.add(before, now, Why::Moment);
                }
            }
            if let Some(moment) = moment {
                constraints.add(
                    moment,
                    self.node[access.version as usize],
                    Why::AskedFor(place),
                );
            }
        }
    }
}

enum Broken {
    /// These constraints contradict each other.
    Guarantee(Vec<Before<Why>>),
    /// Already the reads by which it is judged contradict each other.
    Reads,
}

impl Guarantee {
    fn never(self) -> &'static str {
        match self {
            Guarantee::ReadYourWrites => "no session read a key after it had written it",
            Guarantee::MonotonicReads => "no session read a key twice",
            Guarantee::MonotonicWrites => "no session wrote a key twice",
            Guarantee::WritesFollowReads => "no session wrote a key after it had read it",
        }
    }
}

/// A read of what nobody wrote.
pub(crate) fn unwritten(history: &History, registers: &Registers, read: &Access) -> Checked {
    let mut story = Story::default();
    let op = history.event(read.event as usize).op();
    let who = words::who(op.invoke);
    let value = registers.value(history, read);
    let key = registers.key(history, read.key);
    story.tell(
        op.completion.unwrap_or(op.invoke),
        format!("{who} reads {value} of {key}"),
    );
    Checked::invalid(story.finish(format!("{who} read {value} of {key}, which nobody wrote")))
}
