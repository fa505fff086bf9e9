//! Operations whose order is known, but for when it is: values that grow by what is appended,
//! revisions, sets that only grow.
//!
//! Operations come in *blocks*, each of which happened without anything of another block between:
//! a value and all that was appended to it until the next one was put. Within a block each
//! operation has a *stage*; all of a stage come before all of the next.
//!
//! ```text
//!  put a |--|                          block 1, stage 0
//!     get a |---|                               stage 1
//!  append b     |-----|                         stage 2
//!       get ab     |----|                       stage 3
//!  put c                  |---|        block 2, stage 0
//! ```
//!
//! The stages of a block can be kept if and only if nothing of a later stage returned before
//! something of an earlier one was called. The block then lasts at least from its first return to
//! its last call (or fits into a moment, if these are the other way round), and need not last
//! longer, because every operation of it is open at some time between the two. So blocks are the
//! clusters of Gibbons and Korach (Testing Shared Memories, 1997): they can be put one after the
//! other if and only if no two such zones overlap and none that fits into a moment lies within
//! another that does not. O(n log n) for sorting, O(n) where the operations come sorted.

use super::models::{NEVER, Timed};

/// The block of what was there at the beginning.
pub(crate) const FIRST: u32 = 0;

/// An operation whose place in its block is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Placed {
    pub(crate) block: u32,
    pub(crate) stage: u32,
    pub(crate) call: u32,
    /// [`NEVER`] if it was not answered.
    pub(crate) ret: u32,
    /// What the caller knows it by.
    pub(crate) place: u32,
}

/// Operations that cannot be in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clash {
    /// The first is of a later stage, and returned before the second was called.
    Stages(Placed, Placed),
    /// The first block had begun and had not ended while all of the second must have happened:
    /// for each, what returned first (if it is not what was there at the beginning) and what was
    /// called last.
    Blocks([(Option<Placed>, Placed); 2]),
}

/// Looks for operations that cannot be in order.
pub(crate) fn clash(ops: &mut [Placed]) -> Option<Clash> {
    if !ops.is_sorted() {
        ops.sort_unstable();
    }
    let mut zones: Vec<Zone> = Vec::new();
    for block in ops.chunk_by(|a, b| a.block == b.block) {
        if let Some(clash) = stages(block) {
            return Some(clash);
        }
        zones.extend(zone(block));
    }
    zones.sort_unstable_by_key(|zone| (zone.from, zone.to));
    let mut open: Option<Zone> = None;
    for zone in zones {
        if let Some(around) = open
            && zone.from < around.to
            && (zone.forward || zone.to < around.to)
        {
            return Some(Clash::Blocks([around.bounds, zone.bounds]));
        }
        if zone.forward {
            open = Some(zone);
        }
    }
    None
}

fn stages(block: &[Placed]) -> Option<Clash> {
    let mut latest: Option<Placed> = None;
    for stage in block.chunk_by(|a, b| a.stage == b.stage) {
        if let Some(earlier) = latest
            && let Some(later) = stage.iter().find(|op| op.ret < earlier.call)
        {
            return Some(Clash::Stages(*later, earlier));
        }
        if let Some(last) = stage.iter().max_by_key(|op| op.call)
            && latest.is_none_or(|earlier| earlier.call < last.call)
        {
            latest = Some(*last);
        }
    }
    None
}

/// When a block certainly lasted, or, if it fits into a moment, between what that moment is.
#[derive(Debug, Clone, Copy)]
struct Zone {
    from: u64,
    to: u64,
    forward: bool,
    bounds: (Option<Placed>, Placed),
}

fn zone(block: &[Placed]) -> Option<Zone> {
    let first = block.iter().min_by_key(|op| op.ret)?;
    let last = block.iter().max_by_key(|op| op.call)?;
    // Ranks begin at 1, so that the beginning is over at 0.
    let (returned, bound) = if first.block == FIRST {
        (0, None)
    } else {
        (u64::from(first.ret) + 1, Some(*first))
    };
    let called = u64::from(last.call) + 1;
    (first.block == FIRST || first.ret != NEVER).then_some(Zone {
        from: returned.min(called),
        to: returned.max(called),
        forward: returned < called,
        bounds: (bound, *last),
    })
}

/// Operations that are all of one block, in any order: what matters of each stage.
pub(crate) struct Stages<'o, O> {
    ops: &'o [Timed<O>],
    /// The places of what returned first in each stage and of what was called last; [`NEVER`] for
    /// none.
    first: Vec<u32>,
    last: Vec<u32>,
}

impl<'o, O> Stages<'o, O> {
    /// So many stages, in which there is nothing yet.
    pub(crate) fn new(ops: &'o [Timed<O>], count: usize) -> Self {
        Stages {
            ops,
            first: vec![NEVER; count],
            last: vec![NEVER; count],
        }
    }

    /// Puts the operation at this place into a stage.
    pub(crate) fn put(&mut self, stage: u32, place: u32) {
        let timed = &self.ops[place as usize];
        let first = &mut self.first[stage as usize];
        if *first == NEVER || timed.ret < self.ops[*first as usize].ret {
            *first = place;
        }
        let last = &mut self.last[stage as usize];
        if *last == NEVER || timed.call > self.ops[*last as usize].call {
            *last = place;
        }
    }

    /// The operation of a stage that returned first.
    pub(crate) fn first_of(&self, stage: u32) -> Option<usize> {
        let place = *self.first.get(stage as usize)?;
        (place != NEVER).then_some(place as usize)
    }

    /// Operations that returned before something of an earlier stage was called. O(stages).
    pub(crate) fn clash(&self) -> Option<Clash> {
        let mut latest: Option<Placed> = None;
        for stage in (0u32..).take(self.first.len()) {
            let Some(first) = self.first_of(stage) else {
                continue;
            };
            let (first, last) = (
                self.placed(stage, first),
                self.placed(stage, self.last[stage as usize] as usize),
            );
            if let Some(earlier) = latest.filter(|earlier| first.ret < earlier.call) {
                return Some(Clash::Stages(first, earlier));
            }
            if latest.is_none_or(|earlier| earlier.call < last.call) {
                latest = Some(last);
            }
        }
        None
    }

    /// For each stage the first return in it or after it.
    pub(crate) fn deadlines(&self) -> Vec<u32> {
        let mut deadlines = vec![NEVER; self.first.len()];
        let mut deadline = NEVER;
        for stage in (0..self.first.len()).rev() {
            if self.first[stage] != NEVER {
                deadline = deadline.min(self.ops[self.first[stage] as usize].ret);
            }
            deadlines[stage] = deadline;
        }
        deadlines
    }

    /// For each stage what was called last before it.
    pub(crate) fn last_before(&self) -> Vec<Option<Placed>> {
        let mut latest: Option<Placed> = None;
        let befores = (0u32..).zip(&self.last).map(|(stage, &last)| {
            let before = latest;
            let is_later = |placed: &Placed| latest.is_none_or(|other| other.call < placed.call);
            let here = (last != NEVER).then(|| self.placed(stage, last as usize));
            latest = here.filter(is_later).or(latest);
            before
        });
        befores.collect()
    }

    /// An operation as one of a stage.
    pub(crate) fn placed(&self, stage: u32, place: usize) -> Placed {
        Placed {
            block: FIRST,
            stage,
            call: self.ops[place].call,
            ret: self.ops[place].ret,
            place: u32::try_from(place).unwrap_or(NEVER),
        }
    }
}
