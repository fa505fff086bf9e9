//! The direct serialization graph of a history (Adya 1999), with the order of real time.
//!
//! Real time alone would be quadratic. Transactions are numbered by their invocations, so that
//! "ended before that one began" is a suffix: one number for each transaction says from where on
//! all others are later. [`Dsg::leftover`] works on these numbers; where a graph is needed, each
//! suffix that occurs becomes a vertex that passes on to the next one:
//!
//! ```text
//! a --realtime--> [from 4 on] --pass--> [from 7 on] --pass--> ...
//!                   |  |  |               |
//!                   4  5  6               7 ...
//! ```

use super::graph::{Dep, Edge, Edges, Graph};
use crate::{Budget, Exhausted};

/// Dependencies and real time.
pub(crate) struct Dsg {
    /// Vertices below [`Dsg::txns`] are transactions, others stand for sets of them.
    pub(crate) graph: Graph,
    /// For each transaction the first that began after it had ended; see
    /// [`super::input::Transactions::first_after`].
    pub(crate) after: Vec<u32>,
}

/// No local vertex.
const NONE: u32 = u32::MAX;

/// How many vertices are looked at between two looks at the budget.
const SPEND_EVERY: usize = 1 << 14;

impl Dsg {
    /// How many transactions there are.
    pub(crate) fn txns(&self) -> usize {
        self.after.len()
    }

    /// What is left when every vertex is taken away that has nothing left before it (Kahn 1962),
    /// in real time as well: all cycles, and what comes after them. Empty if there is no cycle.
    ///
    /// # Errors
    /// When the budget is used up.
    pub(crate) fn leftover(&self, budget: &Budget) -> Result<Vec<u32>, Exhausted> {
        let mut kahn = Kahn::new(self);
        kahn.release(0, true);
        for set in self.txns()..self.graph.len() {
            kahn.offer(set);
        }
        let mut taken = 0;
        while let Some(vertex) = kahn.ready.pop() {
            kahn.take(vertex);
            taken += 1;
            if taken % SPEND_EVERY == 0 {
                budget.spend(SPEND_EVERY as u64)?;
            }
        }
        if taken == self.graph.len() {
            return Ok(Vec::new());
        }
        let vertices = kahn.missing.iter().enumerate();
        let left = vertices.filter(|&(_, &missing)| missing != NONE);
        Ok(left.map(|(vertex, _)| number(vertex)).collect())
    }

    /// The graph of these vertices alone, in order, with a vertex for each suffix in real time and
    /// for each rest of a session.
    pub(crate) fn part(&self, members: Vec<u32>) -> Part {
        let mut local = vec![NONE; self.graph.len()];
        for (at, &member) in members.iter().enumerate() {
            local[member as usize] = number(at);
        }
        let txn_count = members.partition_point(|&member| (member as usize) < self.txns());
        // Where each suffix begins among the members, for those that are not empty.
        let suffix_of = |txn: usize| {
            let from = self.after[members[txn] as usize];
            members[..txn_count].partition_point(|&member| member < from)
        };
        let mut suffixes: Vec<usize> = (0..txn_count)
            .map(suffix_of)
            .filter(|&at| at < txn_count)
            .collect();
        suffixes.sort_unstable();
        suffixes.dedup();
        // The rest of a session from each transaction on that has an earlier one.
        let is_session = |edge: &&Edge| edge.dep() == Dep::Session;
        let next = |member: u32| self.graph.from(member).iter().find(is_session);
        let first_rest = members.len() + suffixes.len();
        let mut rests = vec![NONE; members.len()];
        let mut rest_count = 0;
        for edge in members.iter().filter_map(|&member| next(member)) {
            let later = local[edge.target() as usize];
            if later != NONE {
                rests[later as usize] = number(first_rest + rest_count);
                rest_count += 1;
            }
        }
        let graph = Graph::build(first_rest + rest_count, |edges| {
            for (at, &member) in (0..).zip(&members) {
                for edge in self.graph.from(member) {
                    let to = local[edge.target() as usize];
                    if to == NONE {
                        continue;
                    }
                    if edge.dep() != Dep::Session {
                        edges.add(at, to, edge.dep());
                        continue;
                    }
                    let rest = rests[to as usize];
                    edges.add(at, rest, Dep::Session);
                    edges.add(rest, to, Dep::Pass);
                    if rests[at as usize] != NONE {
                        edges.add(rests[at as usize], rest, Dep::Pass);
                    }
                }
            }
            for txn in 0..txn_count {
                if let Ok(place) = suffixes.binary_search(&suffix_of(txn)) {
                    edges.add(number(txn), number(members.len() + place), Dep::Realtime);
                }
            }
            pass_on(edges, &suffixes, members.len(), txn_count);
        });
        Part {
            members,
            graph: graph.without_parallels(),
        }
    }
}

/// The edges of suffix vertices: each to the next one, and to what lies between them.
fn pass_on(edges: &mut Edges, suffixes: &[usize], first: usize, txn_count: usize) {
    for (place, &begin) in suffixes.iter().enumerate() {
        let from = number(first + place);
        let end = suffixes.get(place + 1).copied().unwrap_or(txn_count);
        if place + 1 < suffixes.len() {
            edges.add(from, from + 1, Dep::Pass);
        }
        for txn in begin..end {
            edges.add(from, number(txn), Dep::Pass);
        }
    }
}

/// Some of the vertices of a [`Dsg`].
pub(crate) struct Part {
    /// Which vertices they are; those beyond stand for suffixes in real time and of sessions.
    pub(crate) members: Vec<u32>,
    pub(crate) graph: Graph,
}

struct Kahn<'d> {
    dsg: &'d Dsg,
    /// How many edges into a vertex come from vertices that are left; [`NONE`] once it is taken.
    missing: Vec<u32>,
    /// How many transactions are left whose suffix begins here.
    waiting: Vec<u32>,
    /// Transactions from here on have something left before them in real time.
    limit: usize,
    ready: Vec<u32>,
}

impl<'d> Kahn<'d> {
    fn new(dsg: &'d Dsg) -> Kahn<'d> {
        let mut missing = vec![0; dsg.graph.len()];
        for edge in dsg.graph.all() {
            missing[edge.target() as usize] += 1;
        }
        let mut waiting = vec![0; dsg.txns() + 1];
        for &from in &dsg.after {
            waiting[from as usize] += 1;
        }
        Kahn {
            dsg,
            missing,
            waiting,
            limit: 0,
            ready: Vec::new(),
        }
    }

    fn offer(&mut self, vertex: usize) {
        if self.missing[vertex] == 0 {
            self.ready.push(number(vertex));
        }
    }

    /// One transaction less waits at the beginning of a suffix: whatever begins before the first
    /// at which one waits may go.
    fn release(&mut self, at: usize, is_start: bool) {
        if !is_start {
            self.waiting[at] -= 1;
        }
        if at != self.limit {
            return;
        }
        while self.limit < self.dsg.txns() && self.waiting[self.limit] == 0 {
            self.offer(self.limit);
            self.limit += 1;
        }
    }

    fn take(&mut self, vertex: u32) {
        self.missing[vertex as usize] = NONE;
        for edge in self.dsg.graph.from(vertex) {
            let target = edge.target() as usize;
            self.missing[target] -= 1;
            if target < self.limit || target >= self.dsg.txns() {
                self.offer(target);
            }
        }
        if (vertex as usize) < self.dsg.txns() {
            self.release(self.dsg.after[vertex as usize] as usize, false);
        }
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^29 vertices")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transactions::graph::Deps;
    use proptest::prelude::*;

    const ALL: Deps = Deps::of(&[Dep::Ww, Dep::Wr, Dep::Rw, Dep::Session, Dep::Realtime]);

    fn dsg(after: Vec<u32>, sets: usize, edges: &[(u32, u32)]) -> Dsg {
        let graph = Graph::build(after.len() + sets, |graph| {
            for &(from, to) in edges {
                graph.add(from, to, Dep::Ww);
            }
        });
        Dsg { graph, after }
    }

    /// What reaches each other by edges and by real time, looking at all pairs.
    fn cyclic(after: &[u32], vertices: usize, edges: &[(u32, u32)]) -> Vec<bool> {
        let mut reach = vec![vec![false; vertices]; vertices];
        for &(from, to) in edges {
            reach[from as usize][to as usize] |= from != to;
        }
        for (from, &first) in after.iter().enumerate() {
            reach[from][first as usize..after.len()].fill(true);
        }
        for by in 0..vertices {
            for from in 0..vertices {
                for to in 0..vertices {
                    reach[from][to] |= reach[from][by] && reach[by][to];
                }
            }
        }
        (0..vertices).map(|vertex| reach[vertex][vertex]).collect()
    }

    proptest! {
        #[test]
        fn cycles_are_left_over_and_are_components(
            lengths in prop::collection::vec(1u32..5, 7),
            edges in prop::collection::vec((0u32..9, 0u32..9), 0..9),
        ) {
            let after: Vec<u32> = (0..7).zip(&lengths).map(|(at, length)| (at + length).min(7)).collect();
            let expected = cyclic(&after, 9, &edges);
            let made = dsg(after, 2, &edges);
            let left = made.leftover(&Budget::unlimited()).unwrap();
            for (vertex, &is_cyclic) in expected.iter().enumerate() {
                prop_assert!(!is_cyclic || left.contains(&(vertex as u32)));
            }
            prop_assert_eq!(left.is_empty(), !expected.contains(&true));
            let part = made.part(left);
            let mut found = [false; 9];
            for members in part.graph.components(ALL).cyclic() {
                for member in members {
                    if let Some(&vertex) = part.members.get(member as usize) {
                        found[vertex as usize] = true;
                    }
                }
            }
            prop_assert_eq!(&found[..], &expected);
        }
    }

    #[test]
    fn a_budget_ends_it() {
        let after = (1..=100_000).collect();
        let made = dsg(after, 0, &[]);
        assert!(made.leftover(&Budget::new(10, 1)).is_err());
        assert_eq!(made.leftover(&Budget::unlimited()), Ok(Vec::new()));
    }
}
