//! Counting who can still work: is there a majority, and how many servers are harmed.
//!
//! Both are questions to one picture of the servers: which of them are up, and which directed links
//! between them carry packets. Clients and other nodes do not appear in it.

/// The servers and the links between them, by index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Picture {
    up: Vec<bool>,
    /// Row `a` holds, for each `b`, whether packets from `a` reach `b`.
    reaches: Vec<Vec<bool>>,
}

impl Picture {
    /// Every server up, every link clear.
    pub(crate) fn whole(servers: usize) -> Picture {
        Picture {
            up: vec![true; servers],
            reaches: vec![vec![true; servers]; servers],
        }
    }

    /// A server that is frozen or killed.
    pub(crate) fn set_down(&mut self, server: usize) {
        self.up[server] = false;
    }

    /// A directed link that is cut.
    pub(crate) fn set_cut(&mut self, from: usize, to: usize) {
        self.reaches[from][to] = false;
    }

    fn linked(&self, a: usize, b: usize) -> bool {
        a == b || (self.reaches[a][b] && self.reaches[b][a])
    }

    fn servers_up(&self) -> Vec<usize> {
        (0..self.up.len())
            .filter(|&server| self.up[server])
            .collect()
    }

    /// Whether more than half of all servers are up and one of them, a possible leader, has links
    /// in both directions to the others.
    pub(crate) fn has_majority(&self) -> bool {
        let up = self.servers_up();
        up.iter().any(|&leader| {
            let followers = up
                .iter()
                .filter(|&&other| self.linked(leader, other))
                .count();
            followers > self.up.len() / 2
        })
    }

    /// The fewest servers that must be set aside so that the rest are all up and all linked to each
    /// other: what a quorum budget counts.
    pub(crate) fn harmed(&self) -> usize {
        self.up.len() - self.largest_clique(&self.servers_up(), 0)
    }

    /// The size of the largest set of `candidates` that are all linked to each other, if it is
    /// larger than `known`. Branches on one candidate at a time; clusters have few servers, and
    /// those without cuts take no branch at all.
    fn largest_clique(&self, candidates: &[usize], known: usize) -> usize {
        if candidates.len() <= known {
            return known;
        }
        let worst = candidates
            .iter()
            .copied()
            .max_by_key(|&a| self.unlinked(a, candidates));
        let Some(worst) = worst.filter(|&a| self.unlinked(a, candidates) > 0) else {
            return candidates.len();
        };
        let without: Vec<usize> = candidates.iter().copied().filter(|&a| a != worst).collect();
        let known = self.largest_clique(&without, known);
        let beside: Vec<usize> = without
            .into_iter()
            .filter(|&other| self.linked(worst, other))
            .collect();
        known.max(1 + self.largest_clique(&beside, known.saturating_sub(1)))
    }

    fn unlinked(&self, a: usize, candidates: &[usize]) -> usize {
        candidates.iter().filter(|&&b| !self.linked(a, b)).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definitions, by trying every set of servers.
    fn by_brute_force(picture: &Picture) -> (bool, usize) {
        let n = picture.up.len();
        let (mut majority, mut clean) = (false, 0);
        for set in 0_u32..1 << n {
            let set: Vec<usize> = (0..n).filter(|at| set >> at & 1 == 1).collect();
            if set.iter().any(|&server| !picture.up[server]) {
                continue;
            }
            let star = |&leader: &usize| set.iter().all(|&other| picture.linked(leader, other));
            majority |= set.len() > n / 2 && set.iter().any(star);
            if set.iter().all(star) {
                clean = clean.max(set.len());
            }
        }
        (majority, n - clean)
    }

    fn pictures() -> impl Strategy<Value = Picture> {
        (1_usize..=7).prop_flat_map(|n| {
            let up = proptest::collection::vec(prop::bool::weighted(0.8), n);
            let row = proptest::collection::vec(prop::bool::weighted(0.8), n);
            (up, proptest::collection::vec(row, n))
                .prop_map(|(up, reaches)| Picture { up, reaches })
        })
    }

    proptest! {
        #[test]
        fn both_counts_agree_with_brute_force(picture in pictures()) {
            let counted = (picture.has_majority(), picture.harmed());
            prop_assert_eq!(counted, by_brute_force(&picture));
        }
    }

    #[test]
    fn a_hub_is_enough_for_a_majority_but_not_for_the_budget() {
        // n1 and n3 cannot reach each other, both reach n2: n2 may lead all three.
        let mut picture = Picture::whole(3);
        picture.set_cut(0, 2);
        assert!(picture.has_majority());
        assert_eq!(picture.harmed(), 1);
        picture.set_down(1);
        assert!(!picture.has_majority());
        assert_eq!(picture.harmed(), 2);
    }
}
