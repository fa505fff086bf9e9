//! Intervals of time that belong to somebody, and where two different owners overlap.

use rustc_hash::FxHashMap;

/// A stretch of time, in nanoseconds, `start` before `end`, that belongs to `owner`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Interval {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) owner: u32,
    /// Whatever the caller wants to find again.
    pub(crate) tag: usize,
}

/// How much intervals of different owners overlap.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overlap {
    /// Time during which at least two owners had an interval, nanoseconds.
    pub(crate) ns: u64,
    /// Maximal stretches of such time.
    pub(crate) episodes: u64,
}

/// Measures the overlap by one sweep over the sorted ends: O(n log n).
pub(crate) fn overlap(intervals: &[Interval]) -> Overlap {
    let mut ends: Vec<(u64, bool, u32)> = Vec::with_capacity(intervals.len() * 2);
    for interval in intervals
        .iter()
        .filter(|interval| interval.start < interval.end)
    {
        ends.push((interval.start, true, interval.owner));
        ends.push((interval.end, false, interval.owner));
    }
    // At one instant, what ends comes before what begins: touching is not overlapping.
    ends.sort_unstable();
    let mut open: FxHashMap<u32, u32> = FxHashMap::default();
    let mut found = Overlap::default();
    let mut since = 0;
    for (time, begins, owner) in ends {
        let before = open.len();
        if begins {
            *open.entry(owner).or_insert(0) += 1;
        } else if let Some(count) = open.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                open.remove(&owner);
            }
        }
        if before < 2 && open.len() >= 2 {
            since = time;
            found.episodes += 1;
        } else if before >= 2 && open.len() < 2 {
            found.ns += time - since;
        }
    }
    found
}

/// The first two intervals of different owners that overlap, by the start of the later one.
/// `intervals` are sorted by start.
pub(crate) fn first_clash(intervals: &[Interval]) -> Option<(Interval, Interval)> {
    let mut furthest = Furthest::default();
    for &interval in intervals {
        if interval.start >= interval.end {
            continue;
        }
        if let Some(other) = furthest.other_than(interval.owner)
            && other.end > interval.start
        {
            return Some((other, interval));
        }
        furthest.add(interval);
    }
    None
}

/// The interval that reaches furthest, and the one that reaches furthest among other owners.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Furthest {
    first: Option<Interval>,
    second: Option<Interval>,
}

impl Furthest {
    /// Takes an interval into account.
    pub(crate) fn add(&mut self, interval: Interval) {
        match self.first {
            Some(first) if interval.end <= first.end => {
                let further = self.second.is_none_or(|second| interval.end > second.end);
                if interval.owner != first.owner && further {
                    self.second = Some(interval);
                }
            }
            Some(first) if interval.owner != first.owner => {
                self.second = Some(first);
                self.first = Some(interval);
            }
            _ => self.first = Some(interval),
        }
    }

    /// The interval that reaches furthest among those of other owners.
    pub(crate) fn other_than(&self, owner: u32) -> Option<Interval> {
        self.first
            .filter(|first| first.owner != owner)
            .or(self.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn intervals() -> impl Strategy<Value = Vec<Interval>> {
        prop::collection::vec((0u64..20, 0u64..8, 0u32..3), 0..12).prop_map(|raw| {
            let mut all: Vec<Interval> = raw
                .into_iter()
                .enumerate()
                .map(|(tag, (start, length, owner))| Interval {
                    start,
                    end: start + length,
                    owner,
                    tag,
                })
                .collect();
            all.sort_unstable();
            all
        })
    }

    proptest! {
        #[test]
        fn overlap_is_what_counting_instants_says(all in intervals()) {
            let busy: Vec<bool> = (0..40u64).map(|instant| {
                let mut owners: Vec<u32> = all.iter()
                    .filter(|interval| interval.start <= instant && instant < interval.end)
                    .map(|interval| interval.owner).collect();
                owners.sort_unstable();
                owners.dedup();
                owners.len() > 1
            }).collect();
            let ns = busy.iter().filter(|&&busy| busy).count() as u64;
            // An episode may end and another begin at one instant, which counting cannot see.
            let episodes = busy.windows(2).filter(|pair| !pair[0] && pair[1]).count() as u64
                + u64::from(busy[0]);
            let found = overlap(&all);
            prop_assert_eq!(found.ns, ns);
            prop_assert!(found.episodes >= episodes);
            prop_assert_eq!(first_clash(&all).is_some(), ns > 0);
        }

        #[test]
        fn furthest_keeps_the_best_of_two_owners(all in intervals(), owner in 0u32..3) {
            let mut furthest = Furthest::default();
            for &interval in &all {
                furthest.add(interval);
            }
            let best = all.iter().filter(|interval| interval.owner != owner)
                .map(|interval| interval.end).max();
            prop_assert_eq!(furthest.other_than(owner).map(|interval| interval.end), best);
        }
    }
}
