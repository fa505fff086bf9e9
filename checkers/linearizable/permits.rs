//! Permits that all are alike: mutexes without owners, semaphores, and values that may be taken
//! out as often as they were put in.
//!
//! A *taking* needs a permit that is free, a *giving* one that is taken (or room for another).
//! Operations of one kind differ only in when they must be over, so the only question is which of
//! them happened by when. Nothing happens before it must: when an operation returns it happens
//! then, unless it has happened already. If it cannot, for want of a permit or of room, one of the
//! other kind that is open must have happened just before, and of those the one that must return
//! first, since the others can do later whatever it can. If there is none, there is no order: no
//! other choice could have left more of the other kind open. Unanswered operations are those that
//! never must return. O(n log n).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::models::NEVER;
use super::ranks;

/// What an operation does to the number of permits that are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One more is taken.
    Take,
    /// One less is.
    Give,
}

/// An operation: what it does, and when it was open. [`NEVER`] if it was not answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    pub(crate) kind: Kind,
    pub(crate) call: u32,
    pub(crate) ret: u32,
}

/// The place of the first operation, by its return, that no order explains if at most `most`
/// permits may be taken at once, and none is at the beginning. `units` are sorted by their calls.
pub(crate) fn first_wrong(units: &[Unit], most: u64) -> Option<usize> {
    let answered = (0u32..).zip(units).filter(|(_, unit)| unit.ret != NEVER);
    let mut returns: Vec<(u32, u32)> = answered.map(|(place, unit)| (unit.ret, place)).collect();
    ranks::sort(&mut returns);
    let mut happened = vec![false; units.len()];
    let mut open = [BinaryHeap::new(), BinaryHeap::new()];
    let mut calls = (0u32..).zip(units).peekable();
    let mut taken = 0;
    for (ret, place) in returns {
        while let Some((called, unit)) = calls.next_if(|(_, unit)| unit.call < ret) {
            open[unit.kind as usize].push(Reverse((unit.ret, called)));
        }
        if std::mem::replace(&mut happened[place as usize], true) {
            continue;
        }
        let kind = units[place as usize].kind;
        let (possible, other) = match kind {
            Kind::Take => (taken < most, Kind::Give),
            Kind::Give => (taken > 0, Kind::Take),
        };
        if possible {
            match kind {
                Kind::Take => taken += 1,
                Kind::Give => taken -= 1,
            }
            continue;
        }
        // The two of them leave as many taken as there were.
        let others = &mut open[other as usize];
        let helps = std::iter::from_fn(|| others.pop())
            .map(|Reverse((_, helper))| helper as usize)
            .find(|&helper| !happened[helper]);
        match helps {
            Some(helper) => happened[helper] = true,
            None => return Some(place as usize),
        }
    }
    None
}
