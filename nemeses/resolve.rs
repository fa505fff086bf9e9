//! Who a target is when the fault strikes: pure, from what is known at that moment and the dice of
//! the plan.

use std::collections::BTreeSet;
use std::fmt;

use spec::Params;

use crate::links::{Side, clients_side, direction_is_from, shape_node};
use crate::shapes::{self, Cut};
use crate::stream::Stream;
use crate::target::{Between, LinkTarget, NodeTarget, Roster, Shape, Target};

/// What is known about the cluster at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Situation {
    pub(crate) leader: Option<String>,
    pub(crate) holder: Option<String>,
}

/// What a fault hits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Victims {
    /// These nodes.
    Nodes(Vec<String>),
    /// These directed links, from one node to another.
    Links(BTreeSet<(String, String)>),
}

/// Why a target matches nothing at this moment.
pub(crate) type Missing = String;

/// What has to be known about the cluster before a target can be resolved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Questions {
    pub(crate) leader: bool,
    pub(crate) holder: bool,
}

/// What to ask before [`resolve`]: asking takes time while servers are harmed, and a fault that
/// names its victims is not to wait for it.
pub(crate) fn questions(target: &Target, params: &Params, roster: &Roster) -> Questions {
    let nodes: Vec<NodeTarget> = match target {
        Target::Nodes(nodes) => vec![nodes.clone()],
        Target::Links { links, .. } => match links {
            LinkTarget::Apart(nodes) => vec![nodes.clone()],
            LinkTarget::Between(list) => list
                .iter()
                .flat_map(|between| [between.from.clone(), between.to.clone()])
                .collect(),
            LinkTarget::Shape(shape) => turns_around(*shape, params, roster).into_iter().collect(),
        },
    };
    Questions {
        leader: nodes
            .iter()
            .any(|n| matches!(n, NodeTarget::Leader | NodeTarget::Follower)),
        holder: nodes.contains(&NodeTarget::Holder),
    }
}

/// The server that has a part of its own in a shape.
fn turns_around(shape: Shape, params: &Params, roster: &Roster) -> Option<NodeTarget> {
    let given = shape_node(params, roster);
    match shape {
        Shape::Halves | Shape::MajorityRing => None,
        Shape::LeaderMinority => Some(NodeTarget::Leader),
        Shape::Bridge => Some(given.unwrap_or(NodeTarget::One)),
        Shape::Isolate | Shape::Partial | Shape::OneWay => {
            Some(given.unwrap_or(NodeTarget::Leader))
        }
    }
}

/// Finds the victims of a target.
pub(crate) fn resolve(
    target: &Target,
    params: &Params,
    roster: &Roster,
    now: &Situation,
    dice: &mut Stream,
) -> Result<Victims, Missing> {
    let mut resolver = Resolver { roster, now, dice };
    match target {
        Target::Nodes(nodes) => resolver.nodes(nodes, &[]).map(Victims::Nodes),
        Target::Links { links, .. } => {
            let links = match links {
                LinkTarget::Between(list) => resolver.between(list)?,
                LinkTarget::Apart(nodes) => resolver.apart(nodes, params)?,
                LinkTarget::Shape(shape) => resolver.shape(*shape, params)?,
            };
            match links.is_empty() {
                true => Err("no link is left to be hit".to_owned()),
                false => Ok(Victims::Links(links)),
            }
        }
    }
}

struct Resolver<'a> {
    roster: &'a Roster,
    now: &'a Situation,
    dice: &'a mut Stream,
}

impl Resolver<'_> {
    fn leader(&self) -> Result<String, Missing> {
        let known = |leader: &&String| self.roster.is_server(leader);
        let leader = self.now.leader.as_ref().filter(known);
        leader
            .cloned()
            .ok_or_else(|| "no server is known to lead".to_owned())
    }

    /// The nodes of a target, none of them among `taken`.
    fn nodes(&mut self, target: &NodeTarget, taken: &[String]) -> Result<Vec<String>, Missing> {
        let servers = &self.roster.servers;
        let free = |except: Option<&String>| -> Vec<String> {
            let free = servers
                .iter()
                .filter(|&name| Some(name) != except && !taken.contains(name));
            free.cloned().collect()
        };
        let n = servers.len();
        let (from, count) = match target {
            NodeTarget::Leader => (vec![self.leader()?], 1),
            NodeTarget::Follower => (free(Some(&self.leader()?)), 1),
            NodeTarget::One => (free(None), 1),
            NodeTarget::Minority => (free(None), n.saturating_sub(1) / 2),
            NodeTarget::Majority => (free(None), n / 2 + 1),
            NodeTarget::All => (free(None), n),
            NodeTarget::Holder => {
                let holder = self
                    .now
                    .holder
                    .clone()
                    .filter(|name| self.roster.knows(name));
                (
                    vec![holder.ok_or_else(|| "no client is known to hold the lock".to_owned())?],
                    1,
                )
            }
            NodeTarget::Clients => return Ok(self.roster.clients.clone()),
            NodeTarget::Named(names) => return Ok(names.clone()),
        };
        let mut chosen = self.dice.shuffled(&from);
        chosen.retain(|name| !taken.contains(name));
        chosen.truncate(count);
        // In the order of the cluster, so that what is recorded does not depend on the dice.
        chosen.sort_by_key(|name| servers.iter().position(|server| server == name));
        match chosen.is_empty() {
            true => Err(format!("no {target} is left beside {}", taken.join(","))),
            false => Ok(chosen),
        }
    }

    fn between(&mut self, list: &[Between]) -> Result<BTreeSet<(String, String)>, Missing> {
        let mut links = BTreeSet::new();
        for Between {
            from,
            to,
            both_ways,
        } in list
        {
            // The end with the narrower meaning is found first: of `one-leader` the leader.
            let (a, b) = match (from, to) {
                (NodeTarget::Named(_) | NodeTarget::Leader | NodeTarget::Holder, _) => {
                    let a = self.nodes(from, &[])?;
                    let b = self.nodes(to, &a)?;
                    (a, b)
                }
                _ => {
                    let b = self.nodes(to, &[])?;
                    (self.nodes(from, &b)?, b)
                }
            };
            for (x, y) in a
                .iter()
                .flat_map(|x| b.iter().map(move |y| (x, y)))
                .filter(|(x, y)| x != y)
            {
                links.insert((x.clone(), y.clone()));
                if *both_ways {
                    links.insert((y.clone(), x.clone()));
                }
            }
        }
        Ok(links)
    }

    fn apart(
        &mut self,
        nodes: &NodeTarget,
        params: &Params,
    ) -> Result<BTreeSet<(String, String)>, Missing> {
        let group = self.nodes(nodes, &[])?;
        let rest = self
            .roster
            .servers
            .iter()
            .filter(|&server| !group.contains(server));
        let rest: Vec<String> = rest.cloned().collect();
        let mut links = BTreeSet::new();
        both_ways(&mut links, &group, &rest);
        if group.iter().all(|name| self.roster.is_server(name)) {
            let mut sides = [group, rest];
            sides.sort_by_key(Vec::len);
            self.put_clients(&mut links, &sides, params);
        }
        Ok(links)
    }

    fn shape(
        &mut self,
        shape: Shape,
        params: &Params,
    ) -> Result<BTreeSet<(String, String)>, Missing> {
        let first = turns_around(shape, params, self.roster);
        let order = self.order(first.as_ref())?;
        let Cut { links, sides } = match shape {
            Shape::Halves => shapes::halves(&order),
            Shape::Isolate => shapes::isolate(&order),
            Shape::MajorityRing => shapes::majority_ring(&order),
            Shape::Bridge => shapes::bridge(&order),
            Shape::Partial => shapes::partial(&order),
            Shape::OneWay if direction_is_from(params) => shapes::mute(&order),
            Shape::OneWay => shapes::deaf(&order),
            Shape::LeaderMinority => shapes::minority(&order),
        };
        let name = |at: usize| self.roster.servers[at].clone();
        let mut links = links.into_iter().map(|(a, b)| (name(a), name(b))).collect();
        if let Some(sides) = sides {
            let sides = sides.map(|side| side.into_iter().map(name).collect());
            self.put_clients(&mut links, &sides, params);
        }
        Ok(links)
    }

    /// The servers in a random order, by index, with a given one at the front.
    fn order(&mut self, first: Option<&NodeTarget>) -> Result<Vec<usize>, Missing> {
        let first = first
            .map(|target| self.nodes(target, &[]))
            .transpose()?
            .unwrap_or_default();
        let all: Vec<usize> = (0..self.roster.servers.len()).collect();
        let mut order = self.dice.shuffled(&all);
        order.sort_by_key(|&at| !first.contains(&self.roster.servers[at]));
        Ok(order)
    }

    fn put_clients(
        &self,
        links: &mut BTreeSet<(String, String)>,
        [small, large]: &[Vec<String>; 2],
        params: &Params,
    ) {
        match clients_side(params) {
            Side::Both => {}
            Side::Minority => both_ways(links, &self.roster.clients, large),
            Side::Majority => both_ways(links, &self.roster.clients, small),
        }
    }
}

fn both_ways(links: &mut BTreeSet<(String, String)>, a: &[String], b: &[String]) {
    for x in a {
        for y in b.iter().filter(|&y| y != x) {
            links.insert((x.clone(), y.clone()));
            links.insert((y.clone(), x.clone()));
        }
    }
}

/// The links as a target: `n1-n2,n3>n1`.
pub(crate) fn link_list(links: &BTreeSet<(String, String)>) -> String {
    let mut text = Vec::new();
    for (a, b) in links {
        let back = links.contains(&(b.clone(), a.clone()));
        match (back, a < b) {
            (true, true) => text.push(format!("{a}-{b}")),
            (true, false) => {}
            (false, _) => text.push(format!("{a}>{b}")),
        }
    }
    text.join(",")
}

impl fmt::Display for Victims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Victims::Nodes(nodes) => f.write_str(&nodes.join(",")),
            Victims::Links(links) => f.write_str(&link_list(links)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::{PlannedFault, RawFault, Timing};

    fn asked(fault: &str, target: &str, params: serde_json::Value) -> (bool, bool) {
        let servers = (1..=3).map(|at| format!("n{at}")).collect();
        let roster = Roster {
            servers,
            clients: vec!["c1".to_owned()],
            others: Vec::new(),
        };
        let raw = RawFault {
            at: "0s".to_owned(),
            fault: fault.to_owned(),
            target: Some(target.to_owned()),
            lasts: None,
            params: serde_json::from_value(params).unwrap(),
        };
        let planned = PlannedFault::resolve(raw, &roster, &Timing::default()).unwrap();
        let Questions { leader, holder } = questions(&planned.target, &planned.params, &roster);
        (leader, holder)
    }

    #[test]
    fn only_what_a_target_depends_on_is_asked() {
        for target in ["n1", "one", "minority", "all", "clients"] {
            assert_eq!(
                asked("freeze", target, json!({})),
                (false, false),
                "{target}"
            );
        }
        for target in [
            "halves",
            "majority-ring",
            "bridge",
            "n1-n2",
            "flapping n1>n2",
            "n1,n2",
        ] {
            assert_eq!(asked("cut", target, json!({})), (false, false), "{target}");
        }
        for target in [
            "isolate",
            "partial",
            "one-way",
            "leader-minority",
            "n1-leader",
            "follower",
        ] {
            assert_eq!(asked("cut", target, json!({})), (true, false), "{target}");
        }
        assert_eq!(
            asked("cut", "isolate", json!({ "node": "n2" })),
            (false, false)
        );
        assert_eq!(asked("cut", "holder>leader", json!({})), (true, true));
        assert_eq!(asked("kill", "holder", json!({})), (false, true));
    }
}
