//! Registers whose writes are distinct, decided by zones, in O(n log n).
//!
//! A value's *cluster* is its write and the reads that returned it. Between the earliest return
//! and the latest call of a cluster the register certainly held that value: a *forward* zone. If
//! the latest call comes before the earliest return, all of the cluster overlaps, and it fits
//! into any one moment between the two: a *backward* zone.
//!
//! ```text
//!  write 1 |---|                            forward zone of 1: from the return of its write
//!                 read 1 |----|             to the call of its last read
//!              <-------->
//!  write 2   |---------------|              backward zone of 2: its one moment must not lie
//!            <--------------->              within the forward zone of another value
//! ```
//!
//! The register is linearizable if and only if every value that was read had been asked to be
//! written before the read returned, no two forward zones overlap, and no backward zone lies
//! within a forward one (Gibbons and Korach, Testing Shared Memories, 1997). A write that was
//! never answered returns never if it was read, and never happened if it was not.

use rustc_hash::FxHashMap;

use super::models::register::{Action, INITIAL, Val};
use super::models::{NEVER, Shortcut, Timed};

/// The operations of one value that bound its zone, by their places.
#[derive(Debug, Clone, Copy)]
struct Cluster {
    write: u32,
    first_return: Bound,
    last_call: Bound,
}

/// A moment, and the place of the operation that sets it, if one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Bound {
    at: u32,
    place: u32,
}

/// No operation.
const NOBODY: u32 = u32::MAX;

const EMPTY: Cluster = Cluster {
    write: NOBODY,
    first_return: Bound {
        at: NEVER,
        place: NOBODY,
    },
    last_call: Bound {
        at: 0,
        place: NOBODY,
    },
};

/// A zone, and the value whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Zone {
    from: u32,
    to: u32,
    forward: bool,
    value: Val,
}

/// Decides a register without cas whose writes are distinct from each other and from the initial
/// value; says nothing of another.
pub(super) fn decide(ops: &[Timed<Action>]) -> Shortcut {
    let Some(clusters) = Clusters::of(ops) else {
        return Shortcut::None;
    };
    if let Some(place) = clusters.read_too_early(ops) {
        return Shortcut::At(place);
    }
    let mut open: Option<Zone> = None;
    for zone in clusters.zones() {
        if let Some(around) = open
            && zone.from < around.to
            && (zone.forward || zone.to < around.to)
        {
            return Shortcut::At(clusters.last_of(ops, around.value, zone.value));
        }
        if zone.forward {
            open = Some(zone);
        }
    }
    Shortcut::Order
}

/// The clusters of a register, by value. Moments are one more than the index of the event, so that
/// the write of the initial value is over at 0.
struct Clusters {
    all: Vec<Cluster>,
    /// For values that are too far apart to be places in a table.
    places: Option<FxHashMap<Val, u32>>,
}

impl Clusters {
    /// None if there is a cas, or if two writes are not distinct.
    fn of(ops: &[Timed<Action>]) -> Option<Clusters> {
        let mut last = INITIAL;
        for timed in ops {
            match timed.op {
                Action::Read(value) | Action::Write(value) => last = last.max(value),
                Action::Cas(..) | Action::NotValue(_) => return None,
            }
        }
        let dense = (last as usize) < 4 * ops.len() + 64;
        let mut clusters = Clusters {
            all: vec![EMPTY; if dense { last as usize + 1 } else { 1 }],
            places: (!dense).then(|| FxHashMap::from_iter([(INITIAL, 0)])),
        };
        clusters.all[INITIAL as usize].first_return.at = 0;
        for (place, timed) in ops.iter().enumerate() {
            let place = u32::try_from(place).unwrap_or(NOBODY);
            let (Action::Read(value)
            | Action::Write(value)
            | Action::Cas(_, value)
            | Action::NotValue(value)) = timed.op;
            let cluster = clusters.entry(value);
            if matches!(timed.op, Action::Write(_)) {
                if cluster.write != NOBODY || value == INITIAL {
                    return None;
                }
                cluster.write = place;
            }
            let (call, ret) = (timed.call + 1, timed.ret.saturating_add(1));
            if ret < cluster.first_return.at {
                cluster.first_return = Bound { at: ret, place };
            }
            if call > cluster.last_call.at {
                cluster.last_call = Bound { at: call, place };
            }
        }
        Some(clusters)
    }

    fn entry(&mut self, value: Val) -> &mut Cluster {
        let place = match &mut self.places {
            None => value,
            Some(places) => *places.entry(value).or_insert_with(|| {
                self.all.push(EMPTY);
                u32::try_from(self.all.len() - 1).unwrap_or(NOBODY)
            }),
        };
        &mut self.all[place as usize]
    }

    fn get(&self, value: Val) -> &Cluster {
        let place = self.places.as_ref().map_or(value, |places| places[&value]);
        &self.all[place as usize]
    }

    /// The first read that returned before its value was asked to be written, by its return.
    fn read_too_early(&self, ops: &[Timed<Action>]) -> Option<usize> {
        let early = ops.iter().enumerate().filter(|(_, timed)| {
            let Action::Read(value) = timed.op else {
                return false;
            };
            let write = self.get(value).write;
            let known = ops.get(write as usize);
            value != INITIAL && known.is_none_or(|write| timed.ret < write.call)
        });
        early
            .min_by_key(|(_, timed)| timed.ret)
            .map(|(place, _)| place)
    }

    /// All zones in order. A write that was neither answered nor read has none, nor has an initial
    /// value that nobody read.
    fn zones(&self) -> Vec<Zone> {
        let zone = |(value, cluster): (Val, &Cluster)| {
            let (first_return, last_call) = (cluster.first_return.at, cluster.last_call.at);
            (first_return != NEVER && last_call != 0).then(|| Zone {
                from: first_return.min(last_call),
                to: first_return.max(last_call),
                forward: first_return < last_call,
                value,
            })
        };
        let mut zones = Vec::with_capacity(self.all.len());
        match &self.places {
            None => zones.extend((0..).zip(&self.all).filter_map(zone)),
            Some(places) => {
                let all = places.iter();
                let all = all.map(|(&value, &place)| (value, &self.all[place as usize]));
                zones.extend(all.filter_map(zone));
            }
        }
        sorted(zones)
    }

    /// The last to return of the operations that bound two zones: with it they cannot both be.
    fn last_of(&self, ops: &[Timed<Action>], a: Val, b: Val) -> usize {
        let bounds = [a, b].map(|value| {
            let cluster = self.get(value);
            [
                cluster.write,
                cluster.first_return.place,
                cluster.last_call.place,
            ]
        });
        let places = bounds.as_flattened().iter().map(|&place| place as usize);
        let answered = places.filter(|&place| ops.get(place).is_some_and(|op| op.ret != NEVER));
        answered.max_by_key(|&place| ops[place].ret).unwrap_or(0)
    }
}

/// Zones in order of where they begin, which is an event of its own for each.
fn sorted(mut zones: Vec<Zone>) -> Vec<Zone> {
    let last = zones.iter().map(|zone| zone.from).max().unwrap_or(0) as usize;
    if last > 8 * zones.len() {
        zones.sort_unstable();
        return zones;
    }
    let mut at = vec![NOBODY; last + 1];
    for (place, zone) in zones.iter().enumerate() {
        at[zone.from as usize] = u32::try_from(place).unwrap_or(NOBODY);
    }
    let in_order = at.into_iter().filter(|&place| place != NOBODY);
    in_order.map(|place| zones[place as usize]).collect()
}
