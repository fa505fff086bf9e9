//! A register with revisions: the order of what was seen is known.
//!
//! Every answered operation says to which revision it belongs. Its write comes first, then its
//! reads, then the next revision that was seen: these are the stages of one block ([`order`]).
//! What an answered operation cannot have done is a *gap*: a revision that only reads saw, and a
//! cas that did not expect what was seen before it. Operations without an answer must have
//! filled it, [`unseen`] says how. O(n) where there are about as many revisions as operations, or
//! else with a sort of them.
//!
//! [`order`]: super::order

use super::models::append_log::known_order;
use super::models::{Expected, NEVER, NULL, Revision, Shortcut, State, Timed, VersionedOp};
use super::order::Stages;
use super::unseen::{Filled, Gap, Unanswered};

/// What is known of one revision.
#[derive(Debug, Clone, Copy)]
struct Version {
    value: u32,
    /// The place of an operation that says so, its write if that is known; [`NEVER`] if nobody
    /// saw this revision.
    seen: u32,
    written: bool,
}

const UNSEEN: Version = Version {
    value: NULL,
    seen: NEVER,
    written: false,
};

/// Whether there is an order.
pub(crate) fn decide(ops: &[Timed<VersionedOp>]) -> Shortcut {
    let slots = Slots::of(ops);
    let mut versions = vec![UNSEEN; slots.count()];
    let mut stages = Stages::new(ops, 2 * slots.count());
    for (place, timed) in (0u32..).zip(ops) {
        let Some((revision, value, written)) = said(&timed.op) else {
            continue;
        };
        if revision == 0 && (written || value != NULL) {
            return Shortcut::no_order(vec![place as usize], |told| {
                format!(
                    "{} speaks of revision 0, which is before all writes",
                    told[0]
                )
            });
        }
        let slot = slots.of_revision(revision);
        let version = &mut versions[slot as usize];
        if version.seen != NEVER && (version.value != value || version.written && written) {
            return Shortcut::no_order(vec![version.seen as usize, place as usize], |told| {
                format!(
                    "{} and {} say different things of one revision",
                    told[0], told[1]
                )
            });
        }
        if version.seen == NEVER || written {
            *version = Version {
                value,
                seen: place,
                written,
            };
        }
        stages.put(2 * slot + u32::from(!written), place);
    }
    if let Some(clash) = stages.clash() {
        return known_order(clash, None);
    }
    let gaps = gaps(ops, &slots, &versions, &stages);
    fill(ops, &gaps)
}

/// The revision and the value of which an operation speaks, and whether it wrote them.
fn said(op: &VersionedOp) -> Option<(u64, u32, bool)> {
    match *op {
        VersionedOp::Read(value, revision) => Some((revision, value, false)),
        VersionedOp::Write(value, revision) | VersionedOp::Cas(_, value, revision) => {
            revision.map(|revision| (revision, value, true))
        }
    }
}

/// What answered operations leave open, in the order of revisions.
fn gaps(
    ops: &[Timed<VersionedOp>],
    slots: &Slots,
    versions: &[Version],
    stages: &Stages<'_, VersionedOp>,
) -> Vec<Gap> {
    let mut gaps: Vec<(u32, Gap)> = Vec::new();
    let mut before: State = (NULL, Revision::Is(0));
    let mut before_seen = None;
    for (slot, version) in (0u32..).zip(versions) {
        let revision = slots.revision(slot);
        if version.seen == NEVER || revision == 0 {
            continue;
        }
        let seen = version.seen as usize;
        let is_gap = match ops[seen].op {
            VersionedOp::Read(..) => true,
            VersionedOp::Write(..) => false,
            until @ VersionedOp::Cas(..) => until.after(before).is_none(),
        };
        if is_gap {
            let gap = Gap {
                before,
                before_seen,
                until: ops[seen].op,
                seen,
                deadline: NEVER,
            };
            gaps.push((2 * slot, gap));
        }
        before = (version.value, Revision::Is(revision));
        before_seen = Some(seen);
    }
    if !gaps.is_empty() {
        let deadlines = stages.deadlines();
        for (stage, gap) in &mut gaps {
            gap.deadline = deadlines[*stage as usize];
        }
    }
    gaps.into_iter().map(|(_, gap)| gap).collect()
}

fn fill(ops: &[Timed<VersionedOp>], gaps: &[Gap]) -> Shortcut {
    if gaps.is_empty() {
        return Shortcut::Order;
    }
    let unanswered = Unanswered::of(ops);
    if let Some(gap) = unanswered.hopeless(gaps) {
        return told(gap);
    }
    match unanswered.fill(gaps) {
        Filled::All => Shortcut::Order,
        Filled::Undecided => Shortcut::None,
        Filled::Not => {
            let answered = (0..ops.len()).filter(|&place| ops[place].ret != NEVER);
            let last = answered.max_by_key(|&place| ops[place].ret);
            last.map_or(Shortcut::None, Shortcut::At)
        }
    }
}

/// Why nothing fills a gap.
fn told(gap: &Gap) -> Shortcut {
    match gap.until {
        VersionedOp::Cas(Expected::Value(_) | Expected::Revision(_), ..) => {
            let mut places = vec![gap.seen];
            places.extend(gap.before_seen);
            Shortcut::no_order(places, |told| {
                format!(
                    "{} succeeded, although what it expected was not there",
                    told[0]
                )
            })
        }
        VersionedOp::Read(..) | VersionedOp::Write(..) => {
            Shortcut::no_order(vec![gap.seen], |told| {
                format!(
                    "{} returned a value and revision that nobody can have written",
                    told[0]
                )
            })
        }
    }
}

/// Small numbers for revisions, in their order.
enum Slots {
    /// There are about as many as operations: each has a number from the least one on.
    From(u64, usize),
    /// Each that was seen has one.
    Of(Vec<u64>),
}

impl Slots {
    fn of(ops: &[Timed<VersionedOp>]) -> Slots {
        let seen = ops.iter().filter_map(|timed| said(&timed.op));
        let revisions = seen.map(|(revision, ..)| revision);
        let Some((least, most)) = revisions.clone().min().zip(revisions.clone().max()) else {
            return Slots::Of(Vec::new());
        };
        match usize::try_from(most - least) {
            Ok(range) if range <= ops.len() => Slots::From(least, range + 1),
            _ => {
                let mut revisions: Vec<u64> = revisions.collect();
                revisions.sort_unstable();
                revisions.dedup();
                Slots::Of(revisions)
            }
        }
    }

    fn count(&self) -> usize {
        match self {
            Slots::From(_, count) => *count,
            Slots::Of(revisions) => revisions.len(),
        }
    }

    fn revision(&self, slot: u32) -> u64 {
        match self {
            Slots::From(least, _) => least + u64::from(slot),
            Slots::Of(revisions) => revisions[slot as usize],
        }
    }

    fn of_revision(&self, revision: u64) -> u32 {
        let slot = match self {
            Slots::From(least, _) => (revision - least) as usize,
            Slots::Of(revisions) => revisions.partition_point(|&other| other < revision),
        };
        u32::try_from(slot).unwrap_or(NEVER)
    }
}
