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
//!
//! A compare-and-set writes its new value right after its old one, so that clusters follow each
//! other in *blocks*: a write, its reads, the cas of its value, the reads of what that left, and so
//! on. There is an order if and only if no value had two such successors, no operation of a block
//! returned before one of an earlier cluster of it was called, and the zones of blocks are as
//! above, from the earliest return to the latest call of all of a block: see [`super::order`]. A
//! cas that was never answered happened if and only if what it left was seen.

use rustc_hash::FxHashMap;

use super::models::register::{Action, INITIAL, Val};
use super::models::{NEVER, Shortcut, Timed};

/// Decides a register whose writes and cas leave values that are distinct from each other and from
/// the initial value; says nothing of another.
pub(super) fn decide(ops: &[Timed<Action>]) -> Shortcut {
    let Some(mut clusters) = Clusters::of(ops) else {
        return Shortcut::None;
    };
    let forked = clusters.link();
    let clash = clusters
        .unwritten()
        .or(forked)
        .or_else(|| clusters.clash_within())
        .or_else(|| clusters.clash_between());
    match clash {
        Some(places) => Shortcut::Answers(places),
        None if clusters.others_fit() => Shortcut::Order,
        None => Shortcut::None,
    }
}

/// The operations of one value that bound its zone.
#[derive(Debug, Clone, Copy)]
struct Cluster {
    /// The place of what wrote the value.
    write: u32,
    first_return: Bound,
    last_call: Bound,
    /// The cluster of the value that a cas found, if a cas wrote this one.
    before: u32,
    /// The cluster of the value that a cas made of this one.
    after: u32,
    /// The place of an answered operation without which it need not have happened.
    proof: u32,
}

/// A moment, and the place of the operation that sets it, if one does. Moments are one more than
/// the index of the event, so that the write of the initial value is over at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Bound {
    at: u32,
    place: u32,
}

/// No operation, and no cluster.
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
    before: NOBODY,
    after: NOBODY,
    proof: NOBODY,
};

/// The cluster of the initial value.
const FIRST: u32 = 0;

/// The zone of a block, and the cluster with which that begins.
#[derive(Debug, Clone, Copy)]
struct Zone {
    from: u32,
    to: u32,
    forward: bool,
    root: u32,
}

struct Clusters<'o> {
    ops: &'o [Timed<Action>],
    all: Vec<Cluster>,
    /// Where the cluster of a value is, if values are too far apart to be places in a table.
    places: Option<FxHashMap<Val, u32>>,
}

impl<'o> Clusters<'o> {
    /// None if two writes are not distinct.
    fn of(ops: &'o [Timed<Action>]) -> Option<Clusters<'o>> {
        let last = ops.iter().map(|timed| match timed.op {
            Action::Read(value) | Action::Write(value) | Action::NotValue(value) => value,
            Action::Cas(old, new) => old.max(new),
        });
        let last = last.max().unwrap_or(INITIAL) as usize;
        let dense = last < 4 * ops.len() + 64;
        let mut clusters = Clusters {
            ops,
            all: vec![EMPTY; if dense { last + 1 } else { 1 }],
            places: (!dense).then(|| FxHashMap::from_iter([(INITIAL, FIRST)])),
        };
        clusters.all[FIRST as usize].first_return.at = 0;
        for (place, timed) in (0..NOBODY).zip(ops) {
            let (value, before) = match timed.op {
                Action::Read(value) => (value, None),
                Action::Cas(old, new) if old == new && timed.ret == NEVER => continue,
                Action::Cas(old, new) if old == new => (old, None),
                Action::Cas(old, new) => (new, Some(clusters.entry(old))),
                Action::Write(value) => (value, Some(NOBODY)),
                Action::NotValue(_) => continue,
            };
            let cluster = clusters.entry(value);
            let cluster = &mut clusters.all[cluster as usize];
            if let Some(before) = before {
                if cluster.write != NOBODY || value == INITIAL {
                    return None;
                }
                cluster.write = place;
                cluster.before = before;
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

    fn entry(&mut self, value: Val) -> u32 {
        match &mut self.places {
            None => value,
            Some(places) => *places.entry(value).or_insert_with(|| {
                self.all.push(EMPTY);
                u32::try_from(self.all.len() - 1).unwrap_or(NOBODY)
            }),
        }
    }

    fn find(&self, value: Val) -> Option<&Cluster> {
        let place = match &self.places {
            None => value,
            Some(places) => *places.get(&value)?,
        };
        self.all.get(place as usize)
    }

    fn ret(&self, place: u32) -> u32 {
        self.ops[place as usize].ret
    }

    /// An answered operation that shows that this one happened, which may be itself.
    fn proof(&self, place: u32) -> u32 {
        let Timed { op, ret, .. } = self.ops[place as usize];
        match op {
            Action::Write(value) | Action::Cas(_, value) if ret == NEVER => {
                self.find(value).map_or(place, |cluster| cluster.proof)
            }
            _ => place,
        }
    }

    /// Finds out which clusters happened, and links those that a cas leads to. Returns what shows that
    /// two cas found one value, for the first to be known.
    fn link(&mut self) -> Option<Vec<usize>> {
        let mut forked: Option<[u32; 2]> = None;
        for certain in 0..self.all.len() as u32 {
            let mut proof = self.all[certain as usize].first_return.place;
            let mut at = certain;
            while proof != NOBODY && self.all[at as usize].proof == NOBODY {
                let cluster = &mut self.all[at as usize];
                if cluster.first_return.place != NOBODY {
                    proof = cluster.first_return.place;
                }
                cluster.proof = proof;
                let before = cluster.before;
                if before == NOBODY {
                    break;
                }
                let after = self.all[before as usize].after;
                if after == NOBODY {
                    self.all[before as usize].after = at;
                } else {
                    let both = [self.all[after as usize].proof, proof];
                    let known =
                        |both: [u32; 2]| both.map(|place| self.ret(place)).into_iter().max();
                    let first = forked.filter(|&first| known(first) < known(both));
                    forked = first.or(Some(both));
                }
                at = before;
            }
        }
        forked.map(|both| self.proofs(both))
    }

    /// The first operation to return that shows a value that nobody had been asked to write.
    fn unwritten(&self) -> Option<Vec<usize>> {
        let happened = self.all[1..]
            .iter()
            .filter(|cluster| cluster.proof != NOBODY);
        let unwritten = happened.filter(|cluster| match self.ops.get(cluster.write as usize) {
            None => true,
            Some(write) => cluster.first_return.at <= write.call,
        });
        let shown = unwritten.map(|cluster| cluster.proof);
        let first = shown.min_by_key(|&place| self.ret(place));
        first.map(|place| self.proofs([place]))
    }

    /// The clusters of the block that begins with this one.
    fn block(&self, root: u32) -> impl Iterator<Item = &Cluster> {
        let at = |at: u32| self.all.get(at as usize);
        std::iter::successors(at(root), move |cluster| at(cluster.after))
    }

    /// The clusters with which blocks begin: that of the initial value, and those of writes.
    fn roots(&self) -> impl Iterator<Item = u32> {
        let all = (FIRST..NOBODY).zip(&self.all);
        let roots = all.filter(|&(at, cluster)| {
            at == FIRST || (cluster.write != NOBODY && cluster.before == NOBODY)
        });
        roots.map(|(at, _)| at)
    }

    /// What shows that something of a block returned before something of an earlier cluster of it was
    /// called, or that values were made of each other in a circle.
    fn clash_within(&self) -> Option<Vec<usize>> {
        let mut linked = 0;
        for root in self.roots() {
            let mut last_call = EMPTY.last_call;
            for (stage, cluster) in self.block(root).enumerate() {
                if stage > 0 && cluster.first_return.at < last_call.at {
                    let ends = [cluster.first_return.place, last_call.place];
                    return Some(self.proofs(ends));
                }
                last_call = last_call.max(cluster.last_call);
                linked += usize::from(stage > 0);
            }
        }
        let is_linked = |cluster: &&Cluster| cluster.before != NOBODY && cluster.proof != NOBODY;
        if self.all.iter().filter(is_linked).count() == linked {
            return None;
        }
        let mut in_circle: Vec<bool> = self.all.iter().map(|cluster| is_linked(&cluster)).collect();
        for root in self.roots() {
            for cluster in self.block(root) {
                if let Some(after) = in_circle.get_mut(cluster.after as usize) {
                    *after = false;
                }
            }
        }
        let all = self.all.iter().zip(in_circle).filter(|&(_, is)| is);
        Some(self.proofs(all.map(|(cluster, _)| cluster.proof)))
    }

    /// What shows that two blocks were there at the same time.
    fn clash_between(&self) -> Option<Vec<usize>> {
        let mut open: Option<Zone> = None;
        let zones = self.zones();
        let order = order(&zones);
        for &zone in order.iter().filter_map(|&place| zones.get(place as usize)) {
            if let Some(around) = open
                && zone.from < around.to
                && (zone.forward || zone.to < around.to)
            {
                let bounds = [self.bounds(around.root), self.bounds(zone.root)];
                let bounds = bounds.as_flattened().iter().map(|bound| bound.place);
                return Some(self.proofs(bounds));
            }
            if zone.forward {
                open = Some(zone);
            }
        }
        None
    }

    /// All zones. A write that was neither answered nor seen has none, nor has an initial value that
    /// nobody saw.
    fn zones(&self) -> Vec<Zone> {
        let zones = self.roots().filter_map(|root| {
            let [first_return, last_call] = self.bounds(root).map(|bound| bound.at);
            (first_return != NEVER && last_call != 0).then(|| Zone {
                from: first_return.min(last_call),
                to: first_return.max(last_call),
                forward: first_return < last_call,
                root,
            })
        });
        let mut all = Vec::with_capacity(self.roots().count());
        all.extend(zones);
        all
    }

    /// The first return and the last call of a block.
    fn bounds(&self, root: u32) -> [Bound; 2] {
        let bounds = [EMPTY.first_return, EMPTY.last_call];
        self.block(root)
            .fold(bounds, |[first_return, last_call], cluster| {
                [
                    first_return.min(cluster.first_return),
                    last_call.max(cluster.last_call),
                ]
            })
    }

    /// The answered operations that show that these happened, and the writes of their values that
    /// were answered by then, which make a better story.
    fn proofs(&self, places: impl IntoIterator<Item = u32>) -> Vec<usize> {
        let places = places.into_iter().filter(|&place| place != NOBODY);
        let mut proofs: Vec<u32> = places.map(|place| self.proof(place)).collect();
        let last = proofs.iter().map(|&place| self.ret(place)).max();
        let writes = proofs.iter().filter_map(|&place| {
            let (Action::Read(value) | Action::Write(value) | Action::Cas(_, value)) =
                self.ops[place as usize].op
            else {
                return None;
            };
            let write = self.find(value)?.write;
            (write != NOBODY && Some(self.ret(write)) <= last).then_some(write)
        });
        proofs.extend(writes.collect::<Vec<u32>>());
        proofs.sort_unstable();
        proofs.dedup();
        proofs.into_iter().map(|place| place as usize).collect()
    }

    /// Whether each operation that says that the value was not this one was open, in every order,
    /// at a time when it was not.
    fn others_fit(&self) -> bool {
        let others = self.ops.iter().filter_map(|timed| match timed.op {
            Action::NotValue(INITIAL) => Some((&self.all[FIRST as usize], timed)),
            Action::NotValue(value) => {
                let happened = |cluster: &&Cluster| cluster.proof != NOBODY;
                Some((self.find(value).filter(happened)?, timed))
            }
            _ => None,
        });
        let mut others = others.peekable();
        if others.peek().is_none() {
            return true;
        }
        let overwritten = self.overwritten();
        others.all(|(cluster, other)| {
            let (began, ended) = (other.call + 1, other.ret + 1);
            let write = self.ops.get(cluster.write as usize);
            let after = self.all.get(cluster.after as usize);
            let there = match self.ops.get(cluster.proof as usize) {
                Some(proof) => proof.ret + 1,
                None => 0,
            };
            let later = overwritten.partition_point(|&(call, _)| call <= there);
            let later = overwritten.get(later);
            write.is_some_and(|write| began <= write.call)
                || after.is_some_and(|after| after.first_return.at < ended)
                || later.is_some_and(|&(_, first_return)| first_return < ended)
        })
    }

    /// When the write of a block was called, in order, and when something of it or of any later one
    /// first returned.
    fn overwritten(&self) -> Vec<(u32, u32)> {
        let blocks = self.roots().filter(|&root| root != FIRST).map(|root| {
            let write = self.all[root as usize].write;
            let [first_return, _] = self.bounds(root);
            (self.ops[write as usize].call + 1, first_return.at)
        });
        let mut blocks: Vec<(u32, u32)> = blocks.collect();
        blocks.sort_unstable();
        let mut first = NEVER;
        for (_, first_return) in blocks.iter_mut().rev() {
            first = first.min(*first_return);
            *first_return = first;
        }
        blocks
    }
}

/// The places of zones in the order in which they begin, which is an event of its own for each, with
/// [`NOBODY`] between them.
fn order(zones: &[Zone]) -> Vec<u32> {
    let last = zones.iter().map(|zone| zone.from).max().unwrap_or(0) as usize;
    let places = (0..NOBODY).zip(zones);
    if last > 8 * zones.len() {
        let mut order: Vec<u32> = places.map(|(place, _)| place).collect();
        order.sort_unstable_by_key(|&place| zones[place as usize].from);
        return order;
    }
    let mut order = vec![NOBODY; last + 1];
    for (place, zone) in places {
        order[zone.from as usize] = place;
    }
    order
}
