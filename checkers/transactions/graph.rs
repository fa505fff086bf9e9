//! Dependencies between transactions as compressed rows of edges, four bytes each, and the
//! strongly connected components of any choice of them.
//!
//! ```text
//! starts  [ 0 | 2 | 2 | 3 ]             vertex v has edges[starts[v]..starts[v + 1]]
//! edges   [ 1 ww | 2 rw | 0 wr ]        29 bits of target, 3 bits of what it is
//! ```
//!
//! Vertices are transactions; a graph may have further ones that stand for sets of transactions,
//! so that "all of these before all of those" takes as many edges as there are transactions, and
//! not as many as there are pairs. They are entered by the edge that they pass on, and left by
//! [`Dep::Pass`].

/// Why one transaction is before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dep {
    /// It wrote a version, the other the next one.
    Ww,
    /// It wrote what the other read.
    Wr,
    /// It read a version, the other wrote the next one.
    Rw,
    /// It was earlier in the same session.
    Session,
    /// It ended before the other began.
    Realtime,
    /// Not a dependency by itself: it goes on from a vertex that stands for a set.
    Pass,
}

impl Dep {
    const ALL: [Dep; 6] = [
        Dep::Ww,
        Dep::Wr,
        Dep::Rw,
        Dep::Session,
        Dep::Realtime,
        Dep::Pass,
    ];
}

/// Some kinds of dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deps(u8);

impl Deps {
    /// These, and whatever passes them on.
    pub(crate) const fn of(deps: &[Dep]) -> Deps {
        let mut bits = 1 << Dep::Pass as u8;
        let mut at = 0;
        while at < deps.len() {
            bits |= 1 << deps[at] as u8;
            at += 1;
        }
        Deps(bits)
    }

    /// Those of either.
    pub(crate) const fn and(self, other: Deps) -> Deps {
        Deps(self.0 | other.0)
    }

    /// Whether this kind is among them.
    pub(crate) const fn has(self, dep: Dep) -> bool {
        self.0 & 1 << dep as u8 != 0
    }
}

/// An edge, as its source keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge(u32);

/// A graph has fewer vertices than this.
pub(crate) const VERTICES_MAX: usize = 1 << 29;

impl Edge {
    /// An edge to a vertex.
    pub(crate) fn new(target: u32, dep: Dep) -> Edge {
        Edge(target << 3 | dep as u32)
    }

    /// Where it goes.
    pub(crate) fn target(self) -> u32 {
        self.0 >> 3
    }

    /// What it is.
    pub(crate) fn dep(self) -> Dep {
        Dep::ALL[(self.0 & 7) as usize]
    }
}

/// A directed graph.
#[derive(Debug)]
pub(crate) struct Graph {
    starts: Vec<u32>,
    edges: Vec<Edge>,
}

/// Takes the edges of a graph that is being built: twice the same, the first time to count them.
pub(crate) struct Edges {
    starts: Vec<u32>,
    edges: Vec<Edge>,
    counting: bool,
}

impl Edges {
    /// An edge; one from a vertex to itself is none.
    pub(crate) fn add(&mut self, from: u32, to: u32, dep: Dep) {
        if from == to {
            return;
        }
        let place = &mut self.starts[from as usize + 1];
        if !self.counting {
            self.edges[*place as usize] = Edge::new(to, dep);
        }
        *place += 1;
    }
}

impl Graph {
    /// The graph of all edges that `add_all` adds, which is called twice and must do the same
    /// both times.
    pub(crate) fn build(vertices: usize, mut add_all: impl FnMut(&mut Edges)) -> Graph {
        assert!(vertices < VERTICES_MAX, "{vertices} vertices");
        let mut edges = Edges {
            starts: vec![0; vertices + 1],
            edges: Vec::new(),
            counting: true,
        };
        add_all(&mut edges);
        // Each vertex gets the place of its first edge, and moves it on to that of the next.
        let mut sum: u32 = 0;
        for start in &mut edges.starts {
            let count = *start;
            *start = sum;
            sum = sum.checked_add(count).expect("fewer than 2^32 edges");
        }
        edges.edges = vec![Edge(0); sum as usize];
        // What is counted at `v + 1` begins where all before `v + 1` end.
        edges.counting = false;
        add_all(&mut edges);
        Graph {
            starts: edges.starts,
            edges: edges.edges,
        }
    }

    /// How many vertices it has.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many edges it has.
    pub(crate) fn edge_count(&self) -> usize {
        self.edges.len()
    }

    /// The edges from a vertex.
    pub(crate) fn from(&self, vertex: u32) -> &[Edge] {
        let vertex = vertex as usize;
        &self.edges[self.starts[vertex] as usize..self.starts[vertex + 1] as usize]
    }

    /// All edges, by their sources.
    pub(crate) fn all(&self) -> &[Edge] {
        &self.edges
    }

    /// The same graph, its edges sorted, without those that say nothing new: of equal ones one
    /// is kept, and beside a ww or wr edge all others between the same two vertices are left out,
    /// so that a cycle is named by the strongest dependencies that make it.
    pub(crate) fn without_parallels(mut self) -> Graph {
        let mut kept = 0;
        for vertex in 0..self.len() {
            let range = self.starts[vertex] as usize..self.starts[vertex + 1] as usize;
            self.edges[range.clone()].sort_unstable();
            self.starts[vertex] = u32::try_from(kept).expect("no more edges than before");
            let first = kept;
            for at in range {
                let edge = self.edges[at];
                let last = (kept > first).then(|| self.edges[kept - 1]);
                let is_new = last.is_none_or(|last| {
                    last.target() != edge.target() || last != edge && last.dep() > Dep::Wr
                });
                if is_new {
                    self.edges[kept] = edge;
                    kept += 1;
                }
            }
        }
        *self
            .starts
            .last_mut()
            .expect("one start more than vertices") =
            u32::try_from(kept).expect("no more edges than before");
        self.edges.truncate(kept);
        self
    }

    /// Bytes that it holds.
    pub(crate) fn heap_bytes(&self) -> u64 {
        4 * (self.starts.capacity() + self.edges.capacity()) as u64
    }

    /// The strongly connected components by edges of these kinds: Tarjan 1972, without recursion.
    pub(crate) fn components(&self, deps: Deps) -> Components {
        Tarjan::new(self, deps).run()
    }
}

/// Which component each vertex belongs to.
#[derive(Debug)]
pub(crate) struct Components {
    /// Component of each vertex. An edge between two of them goes to the one of lower number.
    pub(crate) of: Vec<u32>,
    /// How many there are.
    pub(crate) count: u32,
}

impl Components {
    /// The vertices of each component of at least two, in order; components in the order of their
    /// first vertices.
    pub(crate) fn cyclic(&self) -> Vec<Vec<u32>> {
        let mut sizes = vec![0u32; self.count as usize];
        for &component in &self.of {
            sizes[component as usize] += 1;
        }
        const UNSEEN: u32 = u32::MAX;
        let mut places = vec![UNSEEN; self.count as usize];
        let mut found: Vec<Vec<u32>> = Vec::new();
        for (vertex, &component) in self.of.iter().enumerate() {
            let size = sizes[component as usize];
            if size < 2 {
                continue;
            }
            let place = &mut places[component as usize];
            if *place == UNSEEN {
                *place = u32::try_from(found.len()).expect("at most as many as vertices");
                found.push(Vec::with_capacity(size as usize));
            }
            let vertex = u32::try_from(vertex).expect("fewer than 2^29 vertices");
            found[*place as usize].push(vertex);
        }
        found
    }
}

struct Tarjan<'g> {
    graph: &'g Graph,
    deps: Deps,
    /// 0: not seen. Otherwise the lowest number that is reached; [`DONE`] in a finished component.
    low: Vec<u32>,
    of: Vec<u32>,
    /// Vertices of components that are not finished, in the order in which they were seen.
    open: Vec<u32>,
    /// The path that is being followed: a vertex, its number, and its next edge.
    path: Vec<(u32, u32, u32)>,
    seen: u32,
    count: u32,
}

const DONE: u32 = u32::MAX;

impl<'g> Tarjan<'g> {
    fn new(graph: &'g Graph, deps: Deps) -> Tarjan<'g> {
        Tarjan {
            graph,
            deps,
            low: vec![0; graph.len()],
            of: vec![0; graph.len()],
            open: Vec::new(),
            path: Vec::new(),
            seen: 0,
            count: 0,
        }
    }

    fn run(mut self) -> Components {
        for root in 0..self.graph.len() {
            if self.low[root] == 0 {
                self.enter(u32::try_from(root).expect("fewer than 2^29 vertices"));
                self.follow();
            }
        }
        Components {
            of: self.of,
            count: self.count,
        }
    }

    fn enter(&mut self, vertex: u32) {
        self.seen += 1;
        self.low[vertex as usize] = self.seen;
        self.open.push(vertex);
        let first = self.graph.starts[vertex as usize];
        self.path.push((vertex, self.seen, first));
    }

    fn follow(&mut self) {
        while let Some((vertex, number, next)) = self.path.last_mut() {
            let at = *vertex as usize;
            if *next == self.graph.starts[at + 1] {
                let (vertex, number) = (*vertex, *number);
                self.path.pop();
                self.leave(vertex, number);
                continue;
            }
            let edge = self.graph.edges[*next as usize];
            *next += 1;
            if !self.deps.has(edge.dep()) {
                continue;
            }
            let target = edge.target();
            match self.low[target as usize] {
                0 => self.enter(target),
                DONE => {}
                low => self.low[at] = self.low[at].min(low),
            }
        }
    }

    fn leave(&mut self, vertex: u32, number: u32) {
        let low = self.low[vertex as usize];
        if low == number {
            while let Some(member) = self.open.pop() {
                self.low[member as usize] = DONE;
                self.of[member as usize] = self.count;
                if member == vertex {
                    break;
                }
            }
            self.count += 1;
        } else if let Some(&(parent, _, _)) = self.path.last() {
            let parent = &mut self.low[parent as usize];
            *parent = (*parent).min(low);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Deps = Deps::of(&[Dep::Ww, Dep::Wr, Dep::Rw]);

    fn graph(vertices: usize, edges: &[(u32, u32, usize)]) -> Graph {
        Graph::build(vertices, |graph| {
            for &(from, to, dep) in edges {
                graph.add(from, to, Dep::ALL[dep]);
            }
        })
    }

    fn reaches(edges: &[(u32, u32, usize)], vertices: usize) -> Vec<Vec<bool>> {
        let mut reach = vec![vec![false; vertices]; vertices];
        for &(from, to, dep) in edges {
            if dep < 3 {
                reach[from as usize][to as usize] = true;
            }
        }
        for by in 0..vertices {
            for from in 0..vertices {
                for to in 0..vertices {
                    reach[from][to] |= reach[from][by] && reach[by][to];
                }
            }
        }
        reach
    }

    proptest! {
        #[test]
        fn components_are_what_reaches_each_other(
            edges in prop::collection::vec((0u32..9, 0u32..9, 0usize..4), 0..24),
        ) {
            let made = graph(9, &edges);
            let found = made.components(ALL);
            let reach = reaches(&edges, 9);
            for (a, row) in reach.iter().enumerate() {
                for (b, &there) in row.iter().enumerate() {
                    let both = a == b || there && reach[b][a];
                    prop_assert_eq!(found.of[a] == found.of[b], both);
                    prop_assert!(!there || found.of[a] >= found.of[b]);
                }
            }
            for members in found.cyclic() {
                prop_assert!(members.len() > 1 && members.is_sorted());
            }
        }

        #[test]
        fn a_graph_has_the_edges_that_were_added(
            edges in prop::collection::vec((0u32..9, 0u32..9, 0usize..6), 0..24),
        ) {
            let made = graph(9, &edges);
            for vertex in 0..9 {
                let added = edges.iter().filter(|&&(from, to, _)| from == vertex && to != vertex);
                let added: Vec<Edge> = added.map(|&(_, to, dep)| Edge::new(to, Dep::ALL[dep])).collect();
                prop_assert_eq!(made.from(vertex), &added);
            }
        }
    }

    /// One component can hold every transaction; a recursive search would overflow.
    #[test]
    fn a_long_cycle_is_one_component() {
        let count = 1_000_000;
        let made = Graph::build(count as usize, |graph| {
            for vertex in 0..count {
                graph.add(vertex, (vertex + 1) % count, Dep::Ww);
            }
        });
        let found = made.components(ALL);
        assert_eq!(found.count, 1);
        assert_eq!(found.cyclic()[0].len(), count as usize);
    }
}
