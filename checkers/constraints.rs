//! Constraints of the form "this before that": whether an order keeps them all, and if none does,
//! a short cycle of them.

use std::collections::VecDeque;

use crate::budget::{Budget, Exhausted};

/// One constraint, with whatever its maker wants to find again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Before<W> {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) why: W,
}

/// Constraints between things that have numbers from 0.
#[derive(Debug)]
pub(crate) struct Constraints<W> {
    list: Vec<Before<W>>,
    count: u32,
}

/// So many constraints are looked at to find a shorter cycle than the first.
const LOOKS_MAX: usize = 4_000_000;

impl<W: Copy> Constraints<W> {
    /// None yet, between so many things.
    pub(crate) fn new(count: u32) -> Constraints<W> {
        Constraints {
            list: Vec::new(),
            count,
        }
    }

    /// One more.
    pub(crate) fn add(&mut self, from: u32, to: u32, why: W) {
        self.list.push(Before { from, to, why });
    }

    /// One more thing; its number.
    pub(crate) fn node(&mut self) -> u32 {
        self.count += 1;
        self.count - 1
    }

    /// All of them, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Before<W>> {
        self.list.iter()
    }

    /// Bytes that they hold, and that the search for a cycle will.
    pub(crate) fn bytes(&self) -> u64 {
        (self.list.capacity() * size_of::<Before<W>>() + self.list.len() * 4) as u64
            + u64::from(self.count) * 12
    }

    /// A cycle of these constraints, a shortest one as far as that can be found out at little
    /// cost; `None` if there is an order that keeps them all. O(n) if there is.
    ///
    /// # Errors
    /// If the budget is used up.
    pub(crate) fn cycle(&self, budget: &Budget) -> Result<Option<Vec<Before<W>>>, Exhausted> {
        budget.spend(self.list.len() as u64 + u64::from(self.count))?;
        budget.hold(self.bytes())?;
        let rows = Rows::of(self);
        let left = rows.without_what_comes_first();
        if !left.contains(&true) {
            return Ok(None);
        }
        let first = rows.any_cycle(&left);
        let mut looks = 0;
        let mut best = first.clone();
        let rest = (0..self.count).filter(|&node| left[node as usize]);
        for start in first.iter().map(|&at| self.list[at].from).chain(rest) {
            if looks > LOOKS_MAX || best.len() <= 1 {
                break;
            }
            if let Some(shorter) = rows.cycle_through(start, best.len(), &left, &mut looks) {
                best = shorter;
            }
        }
        Ok(Some(best.iter().map(|&at| self.list[at]).collect()))
    }
}

/// The constraints by where they begin.
struct Rows<'c, W> {
    list: &'c [Before<W>],
    starts: Vec<u32>,
    /// Places in the list.
    edges: Vec<u32>,
}

impl<'c, W: Copy> Rows<'c, W> {
    fn of(constraints: &'c Constraints<W>) -> Rows<'c, W> {
        let count = constraints.count as usize;
        let mut starts = vec![0u32; count + 1];
        for edge in &constraints.list {
            starts[edge.from as usize + 1] += 1;
        }
        for node in 0..count {
            starts[node + 1] += starts[node];
        }
        let mut edges = vec![0u32; constraints.list.len()];
        let mut next = starts.clone();
        for (place, edge) in (0u32..).zip(&constraints.list) {
            let at = &mut next[edge.from as usize];
            edges[*at as usize] = place;
            *at += 1;
        }
        Rows {
            list: &constraints.list,
            starts,
            edges,
        }
    }

    fn from(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.edges[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// Takes away what nothing is before, again and again; what is left has cycles before it.
    fn without_what_comes_first(&self) -> Vec<bool> {
        let count = self.starts.len() - 1;
        let mut before = vec![0u32; count];
        for edge in self.list {
            before[edge.to as usize] += 1;
        }
        let nodes = 0..u32::try_from(count).unwrap_or(u32::MAX);
        let mut open: Vec<u32> = nodes.filter(|&node| before[node as usize] == 0).collect();
        let mut left = vec![true; count];
        while let Some(node) = open.pop() {
            left[node as usize] = false;
            for &edge in self.from(node) {
                let to = self.list[edge as usize].to;
                before[to as usize] -= 1;
                if before[to as usize] == 0 {
                    open.push(to);
                }
            }
        }
        left
    }

    /// Goes back from something left until it comes to where it was.
    fn any_cycle(&self, left: &[bool]) -> Vec<usize> {
        let mut back = vec![usize::MAX; left.len()];
        for (place, edge) in self.list.iter().enumerate() {
            let known = &mut back[edge.to as usize];
            if left[edge.from as usize] && *known == usize::MAX {
                *known = place;
            }
        }
        let mut node = left.iter().position(|&left| left).unwrap_or(0);
        let mut seen = vec![false; left.len()];
        while !std::mem::replace(&mut seen[node], true) {
            node = self.list[back[node]].from as usize;
        }
        let mut cycle = Vec::new();
        let start = node;
        loop {
            cycle.push(back[node]);
            node = self.list[back[node]].from as usize;
            if node == start {
                cycle.reverse();
                return cycle;
            }
        }
    }

    /// A shortest cycle through this, if it is shorter than `limit`.
    fn cycle_through(
        &self,
        start: u32,
        limit: usize,
        left: &[bool],
        looks: &mut usize,
    ) -> Option<Vec<usize>> {
        let mut came_by: rustc_hash::FxHashMap<u32, (usize, usize)> =
            rustc_hash::FxHashMap::default();
        let mut open = VecDeque::from([(start, 0)]);
        while let Some((node, depth)) = open.pop_front() {
            if depth + 1 >= limit {
                return None;
            }
            for &place in self.from(node) {
                *looks += 1;
                let place = place as usize;
                let to = self.list[place].to;
                if to == start {
                    let mut cycle = vec![place];
                    let mut at = node;
                    while at != start {
                        let (by, _) = came_by[&at];
                        cycle.push(by);
                        at = self.list[by].from;
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if left[to as usize] && !came_by.contains_key(&to) {
                    came_by.insert(to, (place, depth));
                    open.push_back((to, depth + 1));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The length of the shortest cycle, by trying all walks of each length.
    fn shortest(count: usize, edges: &[(u32, u32)]) -> Option<usize> {
        let mut walks: Vec<Vec<bool>> = (0..count)
            .map(|at| (0..count).map(|to| at == to).collect())
            .collect();
        for length in 1..=count {
            let mut longer = vec![vec![false; count]; count];
            for &(from, to) in edges {
                for start in 0..count {
                    longer[start][to as usize] |= walks[start][from as usize];
                }
            }
            if (0..count).any(|at| longer[at][at]) {
                return Some(length);
            }
            walks = longer;
        }
        None
    }

    proptest! {
        #[test]
        fn a_shortest_cycle_is_found_if_there_is_one(
            edges in prop::collection::vec((0u32..8, 0u32..8), 0..16),
        ) {
            let mut constraints = Constraints::new(8);
            for (at, &(from, to)) in edges.iter().enumerate() {
                constraints.add(from, to, at);
            }
            let found = constraints.cycle(&Budget::unlimited()).expect("no limit");
            prop_assert_eq!(found.as_ref().map(Vec::len), shortest(8, &edges));
            for (at, edge) in found.iter().flatten().enumerate() {
                let cycle = found.as_ref().expect("there is one");
                prop_assert_eq!(edge.to, cycle[(at + 1) % cycle.len()].from);
                prop_assert_eq!(edges[edge.why], (edge.from, edge.to));
            }
        }
    }

    #[test]
    fn a_long_cycle_needs_no_stack() {
        let mut constraints = Constraints::new(1_000_000);
        for node in 0..1_000_000 {
            constraints.add(node, (node + 1) % 1_000_000, ());
        }
        let found = constraints.cycle(&Budget::unlimited()).expect("no limit");
        assert_eq!(found.map(|cycle| cycle.len()), Some(1_000_000));
    }
}
