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
use std::ops::Range;

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
    sweep(units, most, |_, _| {})
}

/// The same; after each return it is told how many of each kind must have happened by then.
fn sweep(units: &[Unit], most: u64, mut tell: impl FnMut(u32, [u64; 2])) -> Option<usize> {
    let answered = (0u32..).zip(units).filter(|(_, unit)| unit.ret != NEVER);
    let mut returns: Vec<(u32, u32)> = answered.map(|(place, unit)| (unit.ret, place)).collect();
    ranks::sort(&mut returns);
    let mut happened = vec![false; units.len()];
    let mut open = [BinaryHeap::new(), BinaryHeap::new()];
    let mut calls = (0u32..).zip(units).peekable();
    let mut counts = [0; 2];
    for (ret, place) in returns {
        while let Some((called, unit)) = calls.next_if(|(_, unit)| unit.call < ret) {
            open[unit.kind as usize].push(Reverse((unit.ret, called)));
        }
        if std::mem::replace(&mut happened[place as usize], true) {
            continue;
        }
        let kind = units[place as usize].kind;
        let taken = counts[0] - counts[1];
        let (possible, other) = match kind {
            Kind::Take => (taken < most, Kind::Give),
            Kind::Give => (taken > 0, Kind::Take),
        };
        if possible {
            counts[kind as usize] += 1;
            tell(ret, counts);
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
        counts = counts.map(|count| count + 1);
        tell(ret, counts);
    }
    None
}

/// Why an operation that [`first_wrong`] found cannot be explained: since some moment more of its
/// kind happened than can have been possible, given what must have happened before. O(n).
pub(crate) fn stretch(units: &[Unit], most: u64, wrong: usize) -> Option<Stretch> {
    let Unit { kind, ret: end, .. } = units[wrong];
    let mut least = Vec::new();
    sweep(units, most, |ret, counts| least.push((ret, counts)));
    let others_called = units
        .iter()
        .filter(|unit| unit.kind != kind && unit.call < end);
    let others_called = others_called.count() as u64;
    let mut happened = Vec::new();
    let known = (0..units.len())
        .rev()
        .filter(|&place| units[place].ret <= end);
    for place in known.filter(|&place| units[place].kind == kind) {
        happened.push(place);
        let moment = units[place].call;
        let before = least.partition_point(|&(ret, _)| ret < moment);
        let [taken, given] = before.checked_sub(1).map_or([0; 2], |last| least[last].1);
        let (possible, room) = match kind {
            Kind::Take => (others_called - given, most),
            Kind::Give => (others_called - taken, taken - given),
        };
        if happened.len() as u64 > room.saturating_add(possible) {
            let possible = usize::try_from(possible).unwrap_or(0);
            return Some(Stretch {
                happened,
                possible: others(units, kind, moment..end, possible),
            });
        }
    }
    None
}

/// So many operations of the other kind that were open in a stretch of time: what was called or
/// answered in it rather than what may have happened long ago.
fn others(units: &[Unit], kind: Kind, stretch: Range<u32>, count: usize) -> Vec<usize> {
    let is_open = |unit: &Unit| unit.call < stretch.end && unit.ret > stretch.start;
    let mut others: Vec<usize> = (0..units.len())
        .filter(|&place| units[place].kind != kind && is_open(&units[place]))
        .collect();
    others.sort_by_key(|&place| {
        let unit = &units[place];
        let is_old = unit.ret == NEVER && unit.call < stretch.start;
        (is_old, Reverse(unit.call))
    });
    others.truncate(count);
    others
}

/// What happened in a stretch of time, and what of the other kind may have.
#[derive(Debug)]
pub(crate) struct Stretch {
    pub(crate) happened: Vec<usize>,
    pub(crate) possible: Vec<usize>,
}
