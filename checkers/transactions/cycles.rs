//! The cycles of a direct serialization graph: which anomalies there are, and the shortest cycle
//! of each.
//!
//! What [`Dsg::leftover`] leaves is cut into strongly connected components, for each choice of
//! dependencies by itself: write dependencies alone for G0, read dependencies as well for G1c, all
//! for the others; first without, then with the order of sessions, then with that of real time. An
//! anomaly is named with the weakest of these that shows it. Within a component [`walk`] looks for
//! the shortest cycle.

use super::anomalies::{Anomaly, Base, Needs};
use super::dsg::{Dsg, Part};
use super::graph::{Dep, Deps, Graph};
use super::walk::{Class, Component, Limits, Sought};
use crate::{Budget, Exhausted};

/// A cycle: transactions, each with why it is before the next one, the last before the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cycle {
    pub(crate) steps: Vec<(u32, Dep)>,
}

/// An anomaly that is a cycle.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) anomaly: Anomaly,
    /// In how many components there is one.
    pub(crate) components: u64,
    /// A shortest one.
    pub(crate) cycle: Cycle,
    /// Whether it is known that there is no shorter one.
    pub(crate) is_shortest: bool,
}

/// All cycles, one for each anomaly.
#[derive(Debug, Default)]
pub(crate) struct Cycles {
    pub(crate) found: Vec<Found>,
    /// Anomalies of which it is not known whether there are any, because looking was given up.
    pub(crate) undecided: Vec<Anomaly>,
    /// The limit that ended it before its end.
    pub(crate) exhausted: Option<Exhausted>,
}

/// Classes that live in the same components.
const GROUPS: [(&[Dep], &[Class]); 3] = [
    (&[Dep::Ww], &[Class::G0]),
    (&[Dep::Ww, Dep::Wr], &[Class::G1c]),
    (
        &[Dep::Ww, Dep::Wr, Dep::Rw],
        &[Class::GSingle, Class::GNonadjacent, Class::G2Item],
    ),
];

/// The orders that count beside data.
pub(crate) fn orders(needs: Needs) -> Deps {
    match needs {
        Needs::Data => Deps::of(&[]),
        Needs::Process => Deps::of(&[Dep::Session]),
        Needs::Realtime => Deps::of(&[Dep::Session, Dep::Realtime]),
    }
}

/// Looks for cycles.
pub(crate) fn find(dsg: &Dsg, budget: &Budget) -> Cycles {
    let mut cycles = Cycles::default();
    if let Err(exhausted) = look(dsg, budget, &mut cycles) {
        cycles.exhausted = Some(exhausted);
    }
    cycles
        .found
        .sort_unstable_by_key(|found: &Found| found.anomaly);
    cycles
}

fn look(dsg: &Dsg, budget: &Budget, cycles: &mut Cycles) -> Result<(), Exhausted> {
    let leftover = dsg.leftover(budget)?;
    if leftover.is_empty() {
        return Ok(());
    }
    let all = Deps::of(&[Dep::Ww, Dep::Wr, Dep::Rw]).and(orders(Needs::Realtime));
    let part = dsg.part(leftover);
    budget.hold(dsg.graph.heap_bytes() + 4 * part.graph.heap_bytes())?;
    budget.spend(part.graph.len() as u64)?;
    // Most of what is left over only comes after a cycle.
    let cyclic = part.graph.components(all).cyclic();
    let vertex = |member: &u32| part.members.get(*member as usize).copied();
    let mut members: Vec<u32> = cyclic.iter().flatten().filter_map(vertex).collect();
    members.sort_unstable();
    drop((cyclic, part.graph));
    let part = dsg.part(members);
    let mut places = vec![super::walk::NONE; part.graph.len()];
    for needs in Needs::ALL {
        for (deps, classes) in GROUPS {
            let is_new = |class: &&Class| !cycles.has(class.base());
            let sought: Vec<Class> = classes.iter().filter(is_new).copied().collect();
            if sought.is_empty() {
                continue;
            }
            let deps = Deps::of(deps).and(orders(needs));
            budget.spend(part.graph.len() as u64)?;
            let mut limits = Limits::new(budget);
            for members in part.graph.components(deps).cyclic() {
                let component = component(dsg, &part, &members, deps, &mut places);
                for &class in &sought {
                    let result = component.seek(class, needs, &mut limits)?;
                    cycles.add(class.base().with(needs), result);
                }
            }
        }
    }
    Ok(())
}

/// The component of these members by itself.
fn component<'d>(
    dsg: &'d Dsg,
    part: &Part,
    members: &[u32],
    deps: Deps,
    places: &mut [u32],
) -> Component<'d> {
    for (at, &member) in (0..).zip(members) {
        places[member as usize] = at;
    }
    let graph = Graph::build(members.len(), |edges| {
        for (at, &member) in (0..).zip(members) {
            for edge in part.graph.from(member) {
                let to = places[edge.target() as usize];
                if to != super::walk::NONE && deps.has(edge.dep()) {
                    edges.add(at, to, edge.dep());
                }
            }
        }
    });
    for &member in members {
        places[member as usize] = super::walk::NONE;
    }
    let txn = |&member: &u32| match part.members.get(member as usize) {
        Some(&vertex) if (vertex as usize) < dsg.txns() => vertex,
        _ => super::walk::NONE,
    };
    Component {
        graph,
        txns: members.iter().map(txn).collect(),
        after: &dsg.after,
    }
}

impl Cycles {
    fn has(&self, base: Base) -> bool {
        self.found.iter().any(|found| found.anomaly.base == base)
    }

    fn add(&mut self, anomaly: Anomaly, result: Sought) {
        let (cycle, is_shortest) = match result {
            Sought::None => return,
            Sought::GaveUp => {
                if !self.undecided.contains(&anomaly) {
                    self.undecided.push(anomaly);
                }
                return;
            }
            Sought::Found { cycle, is_shortest } => (cycle, is_shortest),
        };
        let before = self.found.iter_mut().find(|found| found.anomaly == anomaly);
        let Some(found) = before else {
            self.found.push(Found {
                anomaly,
                components: 1,
                cycle,
                is_shortest,
            });
            return;
        };
        found.components += 1;
        if cycle.steps.len() < found.cycle.steps.len() {
            found.cycle = cycle;
            found.is_shortest = is_shortest;
        }
    }
}
