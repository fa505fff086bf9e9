//! Causality among the reads and writes of registers: what was in the past of what.
//!
//! The causal past of an access is what its session did before, the write that it saw, and all
//! that was in the past of these. If a read saw the write `b` of a key while another write `a` of
//! it was in its past, `a` comes before `b` in the order of writes: else the read would have
//! returned `a`.
//!
//! ```text
//! session 1   write a --.
//! session 2              read a --- write y ------.
//! session 3      write b --------------------.    |
//! session 4                            read y --- read b       so a comes before b
//! ```
//!
//! [`walk`] finds these pasts and what they say of the order, [`story`] tells what contradicts
//! itself. Sources: Ahamad et al., Causal Memory (1995); Bouajjani et al., On Verifying Causal
//! Consistency (2017), whose bad patterns these are.

mod story;
mod walk;

use history::History;

use crate::constraints::{Before, Constraints};
use crate::registers::Registers;
use crate::{Budget, Checked, Exhausted};

pub(crate) use walk::Sessions;

/// Why one access comes before another; all by their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// The session went on to it.
    Session,
    /// It is a read of that write.
    Saw,
    /// It is in its causal past.
    Past,
    /// It was in the past of this read, which saw the other write of the same key.
    Missed(u32),
}

/// What contradicts causality.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A read saw the initial value, and a write of its key is in its past.
    Initial { write: u32, read: u32 },
    /// Each of these comes before the next, and the last before the first.
    Cycle(Vec<Before<Link>>),
}

/// How much is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// No read returns a value of which an overwritten one is in the past of the overwriting one,
    /// and that in its own: causal consistency.
    Causal,
    /// One order of writes besides, for all sessions: causal convergence.
    Convergent,
}

/// What causality says of the order of accesses.
pub(crate) struct Found {
    /// All of it, by places; only with [`Level::Convergent`].
    pub(crate) constraints: Constraints<Link>,
    /// How many times a read told the order of two writes.
    pub(crate) missed: u64,
    /// What contradicts itself.
    pub(crate) broken: Option<Broken>,
}

/// Finds out what is before what: O(n s) for s sessions, and as much again for the writes of a key
/// that a read looks at.
///
/// # Errors
/// If the budget is used up.
pub(crate) fn explore(
    registers: &Registers,
    sessions: &Sessions,
    level: Level,
    budget: &Budget,
) -> Result<Found, Exhausted> {
    let mut found = walk::walk(registers, sessions, level, budget)?;
    if found.broken.is_some() || level == Level::Causal {
        return Ok(found);
    }
    for (place, access) in (0u32..).zip(&registers.accesses) {
        if let Some(next) = sessions.after(place) {
            found.constraints.add(place, next, Link::Session);
        }
        if let Some(write) = registers
            .write_of(access.version)
            .filter(|_| !access.is_write)
        {
            found.constraints.add(write, place, Link::Saw);
        }
    }
    found.broken = found.constraints.cycle(budget)?.map(Broken::Cycle);
    Ok(found)
}

/// Tells what contradicts causality.
pub(crate) fn tell(
    history: &History,
    registers: &Registers,
    sessions: &Sessions,
    broken: &Broken,
) -> Checked {
    story::tell(history, registers, sessions, broken)
}
