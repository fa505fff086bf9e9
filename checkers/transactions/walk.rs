//! The shortest cycle of a class within one component: breadth first from each edge that such a
//! cycle must have, less far each time, until no shorter one is possible.

use super::anomalies::{Base, Needs};
use super::cycles::Cycle;
use super::graph::{Dep, Deps, Edge, Graph};
use crate::{Budget, Exhausted};

/// No transaction, no place.
pub(crate) const NONE: u32 = u32::MAX;

/// Edges that are looked at for one class before a search for a shorter cycle, or for any, ends.
const LOOKS_MAX: u64 = 1 << 26;
/// Edges that are looked at for short cycles, before any cycle will do.
const LOOKS_SHORT_MAX: u64 = 1 << 22;
/// Edges between two looks at the budget.
const SPEND_EVERY: u64 = 1 << 14;

/// What a cycle is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Write dependencies.
    G0,
    /// Write and read dependencies, at least one of them a read dependency.
    G1c,
    /// One anti-dependency.
    GSingle,
    /// At least two anti-dependencies, none following another.
    GNonadjacent,
    /// Two anti-dependencies following each other.
    G2Item,
}

impl Class {
    /// The anomaly.
    pub(crate) fn base(self) -> Base {
        match self {
            Class::G0 => Base::G0,
            Class::G1c => Base::G1c,
            Class::GSingle => Base::GSingle,
            Class::GNonadjacent => Base::GNonadjacent,
            Class::G2Item => Base::G2Item,
        }
    }

    /// A dependency that every such cycle has; the search begins with it.
    fn start(self) -> Dep {
        match self {
            Class::G0 => Dep::Ww,
            Class::G1c => Dep::Wr,
            Class::GSingle | Class::GNonadjacent | Class::G2Item => Dep::Rw,
        }
    }

    /// How many steps its shortest cycle may have at least.
    fn shortest(self) -> usize {
        if self == Class::GNonadjacent { 4 } else { 2 }
    }

    /// How many modes a walk can be in; it begins in the first.
    fn modes(self) -> u32 {
        match self {
            Class::G0 | Class::G1c | Class::GSingle => 1,
            Class::G2Item => 2,
            Class::GNonadjacent => 4,
        }
    }

    /// The mode after one more dependency, if it may follow.
    fn step(self, mode: u32, dep: Dep) -> Option<u32> {
        let anti = dep == Dep::Rw;
        match self {
            Class::G0 | Class::G1c => Some(0),
            Class::GSingle => (!anti).then_some(0),
            Class::G2Item => (mode == 1 || anti).then_some(1),
            // 0 and 2: after the first, a later anti-dependency. 1 and 3: after something else.
            Class::GNonadjacent if anti => (mode % 2 == 1).then_some(2),
            Class::GNonadjacent => Some(mode | 1),
        }
    }

    /// Whether a walk that is back where it began is a cycle of this class.
    fn accepts(self, mode: u32) -> bool {
        mode + 1 == self.modes()
    }

    /// Whether these two dependencies and one in real time make such a cycle.
    fn has_triangle(self, first: Dep, second: Dep) -> bool {
        let rws = [first, second]
            .iter()
            .filter(|&&dep| dep == Dep::Rw)
            .count();
        match self {
            Class::G0 => true,
            Class::G1c => first == Dep::Wr || second == Dep::Wr,
            Class::GSingle => rws == 1,
            Class::G2Item => rws == 2,
            Class::GNonadjacent => false,
        }
    }
}

/// What came of a search.
#[derive(Debug)]
pub(crate) enum Sought {
    Found { cycle: Cycle, is_shortest: bool },
    None,
    GaveUp,
}

/// How much may be looked at.
pub(crate) struct Limits<'b> {
    budget: &'b Budget,
    looks: u64,
    unpaid: u64,
}

impl<'b> Limits<'b> {
    /// A new share for one class.
    pub(crate) fn new(budget: &'b Budget) -> Limits<'b> {
        Limits {
            budget,
            looks: 0,
            unpaid: 0,
        }
    }

    fn look(&mut self, edges: usize) -> Result<(), Exhausted> {
        self.looks += edges as u64;
        self.unpaid += edges as u64;
        if self.unpaid >= SPEND_EVERY {
            self.budget.spend(self.unpaid)?;
            self.unpaid = 0;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.looks > LOOKS_MAX
    }
}

/// A strongly connected component by itself.
pub(crate) struct Component<'d> {
    pub(crate) graph: Graph,
    /// The transaction of each vertex, [`NONE`] for one that stands for a set.
    pub(crate) txns: Vec<u32>,
    /// For each transaction of the history the first that began after it had ended.
    pub(crate) after: &'d [u32],
}

impl Component<'_> {
    /// A shortest cycle of this class.
    ///
    /// # Errors
    /// When the budget is used up.
    pub(crate) fn seek(
        &self,
        class: Class,
        needs: Needs,
        limits: &mut Limits<'_>,
    ) -> Result<Sought, Exhausted> {
        if needs == Needs::Realtime
            && let Some(cycle) = self.short(class, limits)?
        {
            return Ok(Sought::Found {
                cycle,
                is_shortest: true,
            });
        }
        let starts = self.starts(class);
        if starts.is_empty() {
            return Ok(Sought::None);
        }
        Seeker::new(self, class).run(&starts, limits)
    }

    fn edges(&self) -> impl Iterator<Item = (u32, Edge)> {
        let vertices = (0..).zip(&self.txns).filter(|(_, txn)| **txn != NONE);
        vertices.flat_map(|(from, _)| self.graph.from(from).iter().map(move |&edge| (from, edge)))
    }

    /// The edges with which a cycle of this class can begin.
    fn starts(&self, class: Class) -> Vec<(u32, Edge)> {
        let starts = self.edges().filter(|(_, edge)| edge.dep() == class.start());
        match class {
            Class::GSingle | Class::GNonadjacent => {
                let closed = self.nonadjacent();
                let within = |&(from, edge): &(u32, Edge)| {
                    closed[2 * from as usize] == closed[2 * edge.target() as usize + 1]
                };
                starts.filter(within).collect()
            }
            _ => starts.collect(),
        }
    }

    /// Components of the walks on which no anti-dependency follows another: of each vertex as
    /// reached by anything else, and as reached by an anti-dependency. Decides in linear time
    /// whether there are such walks: snapshot isolation (Cerone and Gotsman 2018, theorem 4.1).
    fn nonadjacent(&self) -> Vec<u32> {
        let product = Graph::build(2 * self.graph.len(), |edges| {
            for from in (0..).take(self.graph.len()) {
                for edge in self.graph.from(from) {
                    let (to, dep) = (2 * edge.target(), edge.dep());
                    match dep {
                        Dep::Rw => edges.add(2 * from, to + 1, dep),
                        Dep::Pass => {
                            edges.add(2 * from, to, dep);
                            edges.add(2 * from + 1, to + 1, dep);
                        }
                        _ => {
                            edges.add(2 * from, to, dep);
                            edges.add(2 * from + 1, to, dep);
                        }
                    }
                }
            }
        });
        let all = [Dep::Ww, Dep::Wr, Dep::Rw, Dep::Session, Dep::Realtime];
        product.components(Deps::of(&all)).of
    }

    /// A cycle of two or three transactions with one step in real time. Nearly all anomalies of
    /// real time are so short, and are found without following real time, which leads everywhere.
    fn short(&self, class: Class, limits: &mut Limits<'_>) -> Result<Option<Cycle>, Exhausted> {
        let before = |a: u32, b: u32| {
            let (a, b) = (self.txns[a as usize], self.txns[b as usize]);
            a != NONE && b != NONE && self.after[a as usize] <= b
        };
        let is_data = |edge: &Edge| edge.dep() <= Dep::Rw;
        for (a, edge) in self.edges().filter(|(_, edge)| edge.dep() == class.start()) {
            limits.look(1)?;
            if class.accepts(0) && before(edge.target(), a) {
                let steps = vec![(a, edge.dep()), (edge.target(), Dep::Realtime)];
                return Ok(Some(self.cycle(steps)));
            }
        }
        for (a, first) in self.edges().filter(|(_, edge)| is_data(edge)) {
            let next = self.graph.from(first.target());
            limits.look(next.len())?;
            if limits.is_over() {
                return Ok(None);
            }
            for second in next.iter().filter(|edge| is_data(edge)) {
                let (b, c) = (first.target(), second.target());
                if class.has_triangle(first.dep(), second.dep()) && before(c, a) {
                    let steps = vec![(a, first.dep()), (b, second.dep()), (c, Dep::Realtime)];
                    return Ok(Some(self.cycle(steps)));
                }
            }
        }
        Ok(None)
    }

    /// A cycle of vertices as one of transactions, beginning with the earliest.
    fn cycle(&self, steps: Vec<(u32, Dep)>) -> Cycle {
        let txn = |(vertex, dep): (u32, Dep)| (self.txns[vertex as usize], dep);
        let mut steps: Vec<(u32, Dep)> = steps.into_iter().map(txn).collect();
        let earliest = (0..steps.len()).min_by_key(|&at| steps[at].0);
        steps.rotate_left(earliest.unwrap_or(0));
        Cycle { steps }
    }
}

/// A search for the shortest cycle of a class.
struct Seeker<'c> {
    component: &'c Component<'c>,
    class: Class,
    /// The round in which a state (vertex and mode) was last reached, and from where.
    rounds: Vec<u32>,
    from: Vec<Edge>,
    round: u32,
    /// States at the present distance, and at the next.
    here: Vec<u32>,
    next: Vec<u32>,
    /// For G-single: what a vertex can reach by anything but anti-dependencies has a number that
    /// is not greater.
    ranks: Vec<u32>,
}

impl<'c> Seeker<'c> {
    fn new(component: &'c Component<'c>, class: Class) -> Seeker<'c> {
        let states = component.graph.len() * class.modes() as usize;
        let ranks = match class {
            Class::GSingle => {
                let others = Deps::of(&[Dep::Ww, Dep::Wr, Dep::Session, Dep::Realtime]);
                component.graph.components(others).of
            }
            _ => Vec::new(),
        };
        Seeker {
            component,
            class,
            rounds: vec![0; states],
            from: vec![Edge::new(0, Dep::Pass); states],
            round: 0,
            here: Vec::new(),
            next: Vec::new(),
            ranks,
        }
    }

    /// Goes one step, then twice as far and so on from each of the edges, until a cycle is found
    /// that cannot be shorter.
    fn run(mut self, starts: &[(u32, Edge)], limits: &mut Limits<'_>) -> Result<Sought, Exhausted> {
        let mut best: Option<Vec<(u32, Dep)>> = None;
        let shortest = self.class.shortest();
        let is_minimal = |best: &Option<Vec<(u32, Dep)>>| {
            best.as_ref().is_some_and(|steps| steps.len() == shortest)
        };
        let mut far = self.class.shortest() - 1;
        let longest = self.rounds.len();
        let short_until = limits.looks + LOOKS_SHORT_MAX;
        loop {
            let whole_round = far;
            for &(begin, first) in starts {
                let limit = best.as_ref().map_or(far, |steps| far.min(steps.len() - 2));
                if let Some(steps) = self.walk(begin, first, limit, limits)? {
                    best = Some(steps);
                }
                if is_minimal(&best) || limits.is_over() {
                    break;
                }
                if best.is_none() && limits.looks > short_until {
                    far = longest;
                }
            }
            if is_minimal(&best) || limits.is_over() {
                break;
            }
            if far > whole_round {
                // It began to go further within the round: those before it are to come as well.
                continue;
            }
            if best.is_some() || far >= longest {
                break;
            }
            far *= 2;
        }
        let is_shortest = !limits.is_over() || is_minimal(&best);
        Ok(match best {
            Some(steps) => Sought::Found {
                is_shortest,
                cycle: self.component.cycle(steps),
            },
            None if limits.is_over() => Sought::GaveUp,
            None => Sought::None,
        })
    }

    /// The shortest way back to `begin`, after the edge `first`, of at most so many steps.
    fn walk(
        &mut self,
        begin: u32,
        first: Edge,
        far: usize,
        limits: &mut Limits<'_>,
    ) -> Result<Option<Vec<(u32, Dep)>>, Exhausted> {
        if far == 0 {
            return Ok(None);
        }
        self.round += 1;
        self.here.clear();
        self.next.clear();
        let second = first.target();
        let root = second * self.class.modes();
        self.reach(root, Edge::new(root, Dep::Pass));
        // A cycle does not come back to its second transaction; to a set it may.
        let is_set = self.component.txns[second as usize] == NONE;
        let ends = (begin, if is_set { NONE } else { second });
        for distance in 0..=far {
            std::mem::swap(&mut self.here, &mut self.next);
            if let Some(back) = self.pass_on(ends, limits)? {
                return Ok(self.told(begin, first, back));
            }
            if distance == far {
                break;
            }
            if let Some(back) = self.go_on(ends, limits)? {
                return Ok(self.told(begin, first, back));
            }
            if self.next.is_empty() {
                break;
            }
        }
        Ok(None)
    }

    fn reach(&mut self, state: u32, from: Edge) {
        let at = state as usize;
        if self.rounds[at] != self.round {
            self.rounds[at] = self.round;
            self.from[at] = from;
            self.next.push(state);
        }
    }

    fn is_useful(&self, vertex: u32, begin: u32) -> bool {
        self.ranks.is_empty() || self.ranks[vertex as usize] >= self.ranks[begin as usize]
    }

    /// Adds what is reached by passing on, which is no step. The edge by which `begin` is
    /// reached, if it is.
    fn pass_on(
        &mut self,
        (begin, second): (u32, u32),
        limits: &mut Limits<'_>,
    ) -> Result<Option<Edge>, Exhausted> {
        let modes = self.class.modes();
        let mut at = 0;
        while let Some(&state) = self.here.get(at) {
            at += 1;
            let (vertex, mode) = (state / modes, state % modes);
            if self.component.txns[vertex as usize] != NONE {
                continue;
            }
            let edges = self.component.graph.from(vertex);
            limits.look(edges.len())?;
            for edge in edges {
                let target = edge.target();
                if target == begin {
                    if self.class.accepts(mode) {
                        return Ok(Some(Edge::new(state, Dep::Pass)));
                    }
                } else if target != second && self.is_useful(target, begin) {
                    let to = target * modes + mode;
                    if self.rounds[to as usize] != self.round {
                        self.rounds[to as usize] = self.round;
                        self.from[to as usize] = Edge::new(state, Dep::Pass);
                        self.here.push(to);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Goes one step on from all states. The edge by which `begin` is reached, if it is.
    fn go_on(
        &mut self,
        (begin, second): (u32, u32),
        limits: &mut Limits<'_>,
    ) -> Result<Option<Edge>, Exhausted> {
        let modes = self.class.modes();
        let component = self.component;
        for at in 0..self.here.len() {
            let state = self.here[at];
            let (vertex, mode) = (state / modes, state % modes);
            if component.txns[vertex as usize] == NONE {
                continue;
            }
            let edges = component.graph.from(vertex);
            limits.look(edges.len())?;
            for edge in edges {
                let Some(mode) = self.class.step(mode, edge.dep()) else {
                    continue;
                };
                let target = edge.target();
                if target == begin {
                    if self.class.accepts(mode) {
                        return Ok(Some(Edge::new(state, edge.dep())));
                    }
                } else if target != second && self.is_useful(target, begin) {
                    self.reach(target * modes + mode, Edge::new(state, edge.dep()));
                }
            }
        }
        self.here.clear();
        Ok(None)
    }

    /// The steps of the cycle that was found, unless it meets a vertex twice: then a part of it is
    /// a shorter cycle of a worse class, which is found as such.
    fn told(&self, begin: u32, first: Edge, back: Edge) -> Option<Vec<(u32, Dep)>> {
        let modes = self.class.modes();
        let root = first.target() * modes;
        let mut steps = Vec::new();
        let mut edge = back;
        loop {
            let state = edge.target();
            if edge.dep() != Dep::Pass {
                steps.push((state / modes, edge.dep()));
            }
            if state == root {
                break;
            }
            edge = self.from[state as usize];
        }
        steps.push((begin, first.dep()));
        steps.reverse();
        let mut vertices: Vec<u32> = steps.iter().map(|&(vertex, _)| vertex).collect();
        vertices.sort_unstable();
        vertices.dedup();
        (vertices.len() == steps.len()).then_some(steps)
    }
}
