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

use super::model::{Action, INITIAL, NEVER, Partition, Val};
use super::{Decision, Failure};

/// The operations of one value that bound its zone, by their places in the partition.
#[derive(Debug, Clone, Copy)]
struct Cluster {
    write: Option<usize>,
    write_call: u64,
    first_return: (u64, Option<usize>),
    last_call: (u64, Option<usize>),
}

/// A zone, and the two operations that bound it.
#[derive(Debug, Clone, Copy)]
struct Zone {
    from: u64,
    to: u64,
    forward: bool,
    cluster: Cluster,
}

/// Ranks begin at 1, so that the write of the initial value is over at 0.
fn rank(event: u32) -> u64 {
    if event == NEVER {
        u64::MAX
    } else {
        u64::from(event) + 1
    }
}

/// Decides a partition for which [`Partition::is_unique`] holds.
pub(crate) fn decide(partition: &Partition) -> Decision {
    let clusters = clusters(partition);
    for (place, op) in partition.ops.iter().enumerate() {
        if let Action::Read(value) = op.action {
            let cluster = &clusters[&value];
            let written = cluster.write.is_some() || value == INITIAL;
            if !written {
                return Decision::Not(Failure::Core(vec![place]));
            }
            if rank(op.ret) < cluster.write_call {
                return core(&[Some(place), cluster.write]);
            }
        }
    }
    let mut zones: Vec<Zone> = clusters.into_values().filter_map(zone).collect();
    zones.sort_unstable_by_key(|zone| (zone.from, zone.to));
    let mut open: Option<Zone> = None;
    for zone in zones {
        if let Some(around) = open
            && zone.from < around.to
            && (zone.forward || zone.to < around.to)
        {
            let bounds = [around, zone].map(|zone| {
                let cluster = zone.cluster;
                [cluster.write, cluster.first_return.1, cluster.last_call.1]
            });
            return core(bounds.as_flattened());
        }
        if zone.forward {
            open = Some(zone);
        }
    }
    Decision::Linearizable
}

fn core(places: &[Option<usize>]) -> Decision {
    let mut places: Vec<usize> = places.iter().copied().flatten().collect();
    places.sort_unstable();
    places.dedup();
    Decision::Not(Failure::Core(places))
}

fn clusters(partition: &Partition) -> FxHashMap<Val, Cluster> {
    let empty = Cluster {
        write: None,
        write_call: 0,
        first_return: (u64::MAX, None),
        last_call: (0, None),
    };
    let initial = Cluster {
        first_return: (0, None),
        ..empty
    };
    let mut clusters: FxHashMap<Val, Cluster> = FxHashMap::default();
    clusters.insert(INITIAL, initial);
    for (place, op) in partition.ops.iter().enumerate() {
        let (Action::Read(value)
        | Action::Write(value)
        | Action::Cas(_, value)
        | Action::NotValue(value)) = op.action;
        let cluster = clusters.entry(value).or_insert(empty);
        let (call, ret) = (rank(op.call), rank(op.ret));
        if op.action.leaves().is_some() {
            cluster.write = Some(place);
            cluster.write_call = call;
        }
        if ret < cluster.first_return.0 {
            cluster.first_return = (ret, Some(place));
        }
        if call > cluster.last_call.0 {
            cluster.last_call = (call, Some(place));
        }
    }
    clusters
}

/// The zone of a cluster; none if nothing of it need have happened.
fn zone(cluster: Cluster) -> Option<Zone> {
    let (first_return, last_call) = (cluster.first_return.0, cluster.last_call.0);
    if first_return == u64::MAX || last_call == 0 {
        // A write that was neither answered nor read, or an initial value that nobody read.
        return None;
    }
    let forward = first_return < last_call;
    Some(Zone {
        from: first_return.min(last_call),
        to: first_return.max(last_call),
        forward,
        cluster,
    })
}
