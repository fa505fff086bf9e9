//! Weak isolation of transactions over registers, decided exactly.
//!
//! A history is of such a level if its transactions can be put in a commit order that keeps the
//! order of sessions, that has every write before its reads, and in which what the level lets a
//! transaction see of a key is never later than what it read (Biswas and Enea, OOPSLA 2019):
//!
//! ```text
//! t3 reads x from t1, t2 writes x as well, and t3 sees t2   =>   t2 commits before t1
//! ```
//!
//! | level | t3 sees t2 when |
//! |---|---|
//! | monotonic atomic view (their read committed) | t3 read something of t2 before it read x |
//! | read atomic | t3 reads something of t2, or t2 is earlier in its session |
//! | causal | t2 is before t3 by reads and sessions, over any number of steps |
//!
//! Because values are unique these consequences are all known, and the history is of the level if
//! and only if they make no cycle: [`atomic`] finds them for the first two in O(n sqrt n), [`causal`]
//! for the third in O(n k) for k sessions (after AWDIT, Moldrup and Pavlogiannis, PLDI 2025).
//! [`tell`] says a cycle in words.

mod atomic;
mod causal;
mod ready;
mod tell;

pub(crate) use tell::Teller;

use super::anomalies::{Base, Needs};
use super::cycles;
use super::dsg::Dsg;
use super::graph::{Dep, Graph};
use super::input::NEVER;
use super::registers::{INIT, Registers};
use crate::{Budget, Exhausted};

/// What a transaction sees of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sees {
    /// What it has read something of before.
    Observed,
    /// What it reads something of, and its session.
    Read,
    /// What is before it by reads and sessions.
    Past,
}

impl Sees {
    /// The anomaly of a history that is not of the level.
    pub(crate) fn base(self) -> Base {
        match self {
            Sees::Observed => Base::ObservedVanishes,
            Sees::Read => Base::FracturedRead,
            Sees::Past => Base::CausalityViolation,
        }
    }
}

/// What is asked of a history.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) registers: &'a Registers,
    pub(crate) sees: Sees,
    /// Whether the order of sessions counts, and that of real time, which only counts for the past.
    pub(crate) needs: Needs,
    pub(crate) session: &'a [u32],
    /// For each transaction the first that began after it had ended.
    pub(crate) after: &'a [u32],
}

/// One transaction has to commit before another, because a third read the other's write of a key
/// though it saw the first's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) first: u32,
    /// [`INIT`] if the third read the value before the first write, which is a violation already.
    pub(crate) second: u32,
    pub(crate) reader: u32,
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The history is of the level.
    Kept,
    /// It is not, as these steps show: each transaction has to commit before the next, the last
    /// before the first.
    Broken(Vec<Step>),
    /// Reads and orders alone make a cycle, which is known by the name of G1c.
    Circular,
}

/// A transaction, and why it has to commit before the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) txn: u32,
    pub(crate) why: Why,
}

/// Why one transaction has to commit before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Dep(Dep),
    /// This transaction saw it, and read what the other wrote.
    Seen(u32),
}

/// Judges a history.
///
/// # Errors
/// When the budget is used up.
pub(crate) fn judge(asked: Asked<'_>, budget: &Budget) -> Result<Outcome, Exhausted> {
    if (asked.sees, asked.needs) == (Sees::Past, Needs::Data) {
        return without_sessions(asked, budget);
    }
    let in_sessions = asked.needs > Needs::Data;
    let places = match ready::places(asked.registers, in_sessions, budget)? {
        Some(places) => places,
        None => return Ok(Outcome::Circular),
    };
    let found = match asked.sees {
        Sees::Past => causal::consequences(asked, budget)?,
        _ => Some(atomic::consequences(asked, budget)?),
    };
    let Some(found) = found else {
        return Ok(Outcome::Circular);
    };
    conclude(asked, &places, found, budget)
}

/// Whether a history is causal without the order of sessions: if it is with it, it is without.
fn without_sessions(asked: Asked<'_>, budget: &Budget) -> Result<Outcome, Exhausted> {
    let needs = Needs::Process;
    if judge(Asked { needs, ..asked }, budget)? == Outcome::Kept {
        return Ok(Outcome::Kept);
    }
    match ready::places(asked.registers, false, budget)? {
        None => Ok(Outcome::Circular),
        Some(places) => {
            let found = causal::walk(asked.registers, budget)?;
            conclude(asked, &places, found, budget)
        }
    }
}

fn conclude(
    asked: Asked<'_>,
    places: &[u32],
    found: Vec<Before>,
    budget: &Budget,
) -> Result<Outcome, Exhausted> {
    if let Some(initial) = found.iter().find(|before| before.second == INIT) {
        return Ok(Outcome::Broken(vec![Step {
            txn: initial.first,
            why: Why::Seen(initial.reader),
        }]));
    }
    // In the order in which reads and sessions stand nothing goes back, most often nothing at all.
    let place = |txn: u32| places[txn as usize];
    if found
        .iter()
        .all(|before| place(before.first) < place(before.second))
    {
        return Ok(Outcome::Kept);
    }
    cycle(asked, found, budget)
}

/// A shortest cycle of reads, orders and consequences.
fn cycle(asked: Asked<'_>, mut found: Vec<Before>, budget: &Budget) -> Result<Outcome, Exhausted> {
    let registers = asked.registers;
    found.sort_unstable_by_key(|before| (before.first, before.second, before.reader));
    found.dedup_by_key(|before| (before.first, before.second));
    let graph = Graph::build(registers.len(), |edges| {
        for before in &found {
            edges.add(before.first, before.second, Dep::Ww);
        }
        for txn in (0..).take(registers.len()) {
            for read in registers.reads(txn) {
                if read.writer != INIT {
                    edges.add(read.writer, txn, Dep::Wr);
                }
            }
            let previous = registers.previous[txn as usize];
            if asked.needs > Needs::Data && previous != NEVER {
                edges.add(previous, txn, Dep::Session);
            }
        }
    });
    let nothing_after = super::number(registers.len());
    let after = match asked.needs {
        Needs::Realtime => asked.after.to_vec(),
        _ => vec![nothing_after; registers.len()],
    };
    let dsg = Dsg { graph, after };
    budget.hold(registers.heap_bytes() + dsg.graph.heap_bytes() + 12 * found.len() as u64)?;
    let cycles = cycles::find(&dsg, budget);
    let shortest = cycles.found.iter();
    let shortest = shortest.min_by_key(|found| (found.cycle.steps.len(), found.anomaly));
    let Some(shortest) = shortest else {
        return match cycles.exhausted {
            Some(exhausted) => Err(exhausted),
            None if cycles.undecided.is_empty() => Ok(Outcome::Kept),
            None => Err(Exhausted::Steps),
        };
    };
    let steps = &shortest.cycle.steps;
    let step = |at: usize| {
        let (txn, dep) = steps[at];
        let (next, _) = steps[(at + 1) % steps.len()];
        let place = found.binary_search_by_key(&(txn, next), |one| (one.first, one.second));
        let why = match (dep, place) {
            (Dep::Ww, Ok(place)) => Why::Seen(found[place].reader),
            _ => Why::Dep(dep),
        };
        Step { txn, why }
    };
    Ok(Outcome::Broken((0..steps.len()).map(step).collect()))
}
