//! Targets as users write them: the grammar, and what can be said about a target before the run.
//!
//! ```text
//! nodes   leader | follower | one | minority | majority | all | holder | clients | n1 | n1,n3
//! links   a>b (one way) | a-b (both ways), a and b being nodes as above: n1>n2, leader-n1
//!         halves | isolate | majority-ring | bridge | partial | one-way | leader-minority
//!         nodes as above: they are cut from the rest
//!         flapping, alone or before any of these: flapping halves
//! ```
//!
//! Who these are is decided when the fault strikes, in `resolve.rs`.

use std::fmt;

use crate::Error;

/// Which nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeTarget {
    Leader,
    Follower,
    One,
    Minority,
    Majority,
    All,
    Holder,
    Clients,
    Named(Vec<String>),
}

/// Which links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkTarget {
    /// Links between two groups of nodes each.
    Between(Vec<Between>),
    /// These nodes are cut from the rest.
    Apart(NodeTarget),
    /// A shape among the servers.
    Shape(Shape),
}

/// The links from one group of nodes to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Between {
    pub(crate) from: NodeTarget,
    pub(crate) to: NodeTarget,
    pub(crate) both_ways: bool,
}

/// A named shape of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Halves,
    Isolate,
    MajorityRing,
    Bridge,
    Partial,
    OneWay,
    LeaderMinority,
}

/// What a fault is aimed at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Nodes(NodeTarget),
    Links { links: LinkTarget, flapping: bool },
}

/// What kind of target a fault takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// Nodes.
    Nodes,
    /// Links between nodes, which do not come and go.
    Links,
    /// Links, also flapping ones.
    FlappingLinks,
}

/// The nodes of a cluster by what they are for, known before the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roster {
    /// The server nodes.
    pub servers: Vec<String>,
    /// The client nodes.
    pub clients: Vec<String>,
    /// Nodes that are neither, such as that of the protected resource.
    pub others: Vec<String>,
}

impl Roster {
    /// Every node's name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let all = self.servers.iter().chain(&self.clients).chain(&self.others);
        all.map(String::as_str)
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    pub(crate) fn is_server(&self, name: &str) -> bool {
        self.servers.iter().any(|server| server == name)
    }
}

static ROLES: [(&str, NodeTarget); 8] = [
    ("leader", NodeTarget::Leader),
    ("follower", NodeTarget::Follower),
    ("one", NodeTarget::One),
    ("minority", NodeTarget::Minority),
    ("majority", NodeTarget::Majority),
    ("all", NodeTarget::All),
    ("holder", NodeTarget::Holder),
    ("clients", NodeTarget::Clients),
];

/// Each shape with its name and what it does, for the parser and the documentation.
pub(crate) static SHAPES: [(&str, Shape, &str); 7] = [
    (
        "halves",
        Shape::Halves,
        "the servers fall into two halves that cannot reach each other",
    ),
    (
        "isolate",
        Shape::Isolate,
        "one server (`node`, by default the leader) reaches no other",
    ),
    (
        "majority-ring",
        Shape::MajorityRing,
        "every server reaches a majority, and no two the same one",
    ),
    (
        "bridge",
        Shape::Bridge,
        "two halves reach each other only through one server (`node`, by default any)",
    ),
    (
        "partial",
        Shape::Partial,
        "one link is cut: a server and `node` (by default the leader) cannot reach each other, \
         both reach the others",
    ),
    (
        "one-way",
        Shape::OneWay,
        "`node` (by default the leader) no longer hears the other servers, or with \
         `direction = \"from\"` they no longer hear it; the way back is clear",
    ),
    (
        "leader-minority",
        Shape::LeaderMinority,
        "the leader is on the smaller side of a partition",
    ),
];

/// Each word for nodes and what it means, for the documentation.
pub(crate) static ROLE_DOCS: [(&str, &str); 9] = [
    (
        "leader",
        "the server that leads, as most servers see it when the fault strikes",
    ),
    ("follower", "a server that does not lead"),
    ("one", "any one server"),
    ("minority", "the most servers that still leave a majority"),
    ("majority", "the fewest servers that are more than half"),
    ("all", "all servers"),
    ("holder", "the client node whose process holds the lock"),
    ("clients", "all client nodes"),
    ("`n1`, `n1,n3`", "nodes by name"),
];

/// The word before a link target that makes it come and go.
const FLAPPING: &str = "flapping";

impl Target {
    /// Reads a target for a fault that takes this kind, and checks it against the nodes that there
    /// are.
    pub(crate) fn parse(
        text: &str,
        kind: TargetKind,
        fault: &'static str,
        roster: &Roster,
    ) -> Result<Target, Error> {
        let no_target = |why: &str| Error::Target {
            fault,
            target: text.to_owned(),
            why: why.to_owned(),
        };
        let target = Parser { text, roster }.target()?;
        match (&target, kind) {
            (Target::Links { .. }, TargetKind::Nodes) => {
                return Err(no_target("it takes nodes, and this names links"));
            }
            (Target::Links { flapping: true, .. }, TargetKind::Links) => {
                return Err(no_target("only cuts can flap"));
            }
            _ => {}
        }
        let target = match (target, kind) {
            (Target::Nodes(nodes), TargetKind::Links | TargetKind::FlappingLinks) => {
                Target::Links {
                    links: LinkTarget::Apart(nodes),
                    flapping: false,
                }
            }
            (target, _) => target,
        };
        target.needs(roster).map_err(|why| Error::MatchesNothing {
            target: text.to_owned(),
            why,
        })?;
        Ok(target)
    }

    /// Whether the nodes that there are suffice for this target ever to match something.
    fn needs(&self, roster: &Roster) -> Result<(), String> {
        match self {
            Target::Nodes(nodes) => nodes.needs(roster),
            Target::Links {
                links: LinkTarget::Shape(shape),
                ..
            } => shape.needs(roster),
            Target::Links {
                links: LinkTarget::Apart(nodes),
                ..
            } => {
                nodes.needs(roster)?;
                if *nodes == NodeTarget::All {
                    return Err("no server is left that these could be cut from".to_owned());
                }
                enough_servers(roster, 2).or_else(|why| match nodes {
                    NodeTarget::Clients | NodeTarget::Holder => Ok(()),
                    _ => Err(why),
                })
            }
            Target::Links {
                links: LinkTarget::Between(list),
                ..
            } => list.iter().try_for_each(|between| {
                between.from.needs(roster)?;
                between.to.needs(roster)?;
                match between.from {
                    NodeTarget::One | NodeTarget::Follower => Ok(()),
                    _ if between.from != between.to => Ok(()),
                    _ => Err("both ends are the same".to_owned()),
                }
            }),
        }
    }
}

impl NodeTarget {
    /// One node's target: a role or a name.
    pub(crate) fn parse(text: &str, roster: &Roster) -> Result<NodeTarget, Error> {
        Parser { text, roster }
            .nodes(text)
            .ok_or_else(|| Parser { text, roster }.unknown(text))
    }

    /// Whether it can only ever mean one node.
    pub(crate) fn is_single(&self) -> bool {
        match self {
            NodeTarget::Leader | NodeTarget::Follower | NodeTarget::One | NodeTarget::Holder => {
                true
            }
            NodeTarget::Named(names) => names.len() == 1,
            NodeTarget::Minority | NodeTarget::Majority | NodeTarget::All | NodeTarget::Clients => {
                false
            }
        }
    }

    /// Whether it means servers only.
    pub(crate) fn are_servers(&self, roster: &Roster) -> bool {
        match self {
            NodeTarget::Holder | NodeTarget::Clients => false,
            NodeTarget::Named(names) => names.iter().all(|name| roster.is_server(name)),
            _ => true,
        }
    }

    fn needs(&self, roster: &Roster) -> Result<(), String> {
        match self {
            NodeTarget::Leader | NodeTarget::One | NodeTarget::Majority | NodeTarget::All => {
                enough_servers(roster, 1)
            }
            NodeTarget::Follower => enough_servers(roster, 2),
            NodeTarget::Minority => enough_servers(roster, 3),
            NodeTarget::Holder | NodeTarget::Clients if roster.clients.is_empty() => {
                Err("there are no client nodes".to_owned())
            }
            NodeTarget::Holder | NodeTarget::Clients | NodeTarget::Named(_) => Ok(()),
        }
    }
}

impl Shape {
    fn needs(self, roster: &Roster) -> Result<(), String> {
        match self {
            Shape::Halves | Shape::Isolate | Shape::Partial | Shape::OneWay => {
                enough_servers(roster, 2)
            }
            Shape::MajorityRing | Shape::Bridge | Shape::LeaderMinority => {
                enough_servers(roster, 3)
            }
        }
    }

    /// Whether the servers fall into two sides that clients can be put on.
    pub(crate) fn has_sides(self) -> bool {
        match self {
            Shape::Halves | Shape::Isolate | Shape::LeaderMinority => true,
            Shape::MajorityRing | Shape::Bridge | Shape::Partial | Shape::OneWay => false,
        }
    }

    /// Whether one server has a part of its own in it, and which one can be chosen.
    pub(crate) fn turns_around_a_node(self) -> bool {
        match self {
            Shape::Isolate | Shape::Bridge | Shape::Partial | Shape::OneWay => true,
            Shape::Halves | Shape::MajorityRing | Shape::LeaderMinority => false,
        }
    }

    pub(crate) fn is_one_way(self) -> bool {
        self == Shape::OneWay
    }

    fn name(self) -> &'static str {
        let entry = SHAPES.iter().find(|(_, shape, _)| *shape == self);
        entry.map_or("", |(name, ..)| name)
    }
}

fn enough_servers(roster: &Roster, least: usize) -> Result<(), String> {
    match roster.servers.len() {
        have if have < least => Err(format!("it needs {least} servers, and there are {have}")),
        _ => Ok(()),
    }
}

struct Parser<'a> {
    text: &'a str,
    roster: &'a Roster,
}

impl Parser<'_> {
    fn target(&self) -> Result<Target, Error> {
        let text = self.text.trim();
        if let Some(rest) = text.strip_prefix(FLAPPING)
            && (rest.is_empty() || rest.starts_with(' '))
        {
            let links = match rest.trim() {
                "" => LinkTarget::Shape(Shape::Partial),
                rest => self.links(rest).ok_or_else(|| self.unknown(rest))?,
            };
            return Ok(Target::Links {
                links,
                flapping: true,
            });
        }
        if let Some(nodes) = self.nodes(text) {
            return Ok(Target::Nodes(nodes));
        }
        let links = self.links(text).ok_or_else(|| self.unknown(text))?;
        Ok(Target::Links {
            links,
            flapping: false,
        })
    }

    fn nodes(&self, text: &str) -> Option<NodeTarget> {
        if let Some((_, role)) = ROLES.iter().find(|(word, _)| *word == text) {
            return Some(role.clone());
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        let distinct = (1..names.len()).all(|at| !names[..at].contains(&names[at]));
        let known = names.iter().all(|name| self.roster.knows(name));
        (known && distinct).then_some(NodeTarget::Named(names))
    }

    fn links(&self, text: &str) -> Option<LinkTarget> {
        if let Some((_, shape, _)) = SHAPES.iter().find(|(name, ..)| *name == text) {
            return Some(LinkTarget::Shape(*shape));
        }
        if let Some(nodes) = self.nodes(text) {
            return Some(LinkTarget::Apart(nodes));
        }
        let list: Option<Vec<Between>> = text
            .split(',')
            .map(|part| self.between(part.trim()))
            .collect();
        list.map(LinkTarget::Between)
    }

    /// A name may hold a `-` itself, so that every place where the text could be divided is tried.
    fn between(&self, text: &str) -> Option<Between> {
        text.match_indices(['>', '-']).find_map(|(at, sign)| {
            let from = self.nodes(text[..at].trim())?;
            let to = self.nodes(text[at + 1..].trim())?;
            Some(Between {
                from,
                to,
                both_ways: sign == "-",
            })
        })
    }

    fn unknown(&self, part: &str) -> Error {
        let words = ROLES.iter().map(|(word, _)| *word);
        let shapes = SHAPES.iter().map(|(name, ..)| *name);
        let all = words
            .chain(shapes)
            .chain([FLAPPING])
            .chain(self.roster.names());
        let all: Vec<&str> = all.collect();
        let known = |piece: &str| all.contains(&piece);
        let suggest = |piece: &str| spec::closest(piece, all.iter().copied());
        // In a link or a list the part that nobody knows is the one to report. Names may hold a
        // `-`, so that the text is divided there last.
        let coarse = part.split(['>', ',', ' ']);
        let fine = part.split(['>', '-', ',', ' ']);
        let pieces = std::iter::once(part)
            .chain(coarse)
            .chain(fine)
            .map(str::trim);
        let strangers: Vec<&str> = pieces
            .filter(|piece| !piece.is_empty() && !known(piece))
            .collect();
        let probable = strangers.iter().find(|piece| suggest(piece).is_some());
        let culprit = *probable.or(strangers.get(1)).unwrap_or(&part);
        let named = suggest(culprit);
        spec::Error::Unknown {
            what: "target",
            name: culprit.to_owned(),
            suggestion: named.filter(|&name| name != culprit).map(str::to_owned),
        }
        .into()
    }
}

impl fmt::Display for NodeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let NodeTarget::Named(names) = self {
            return f.write_str(&names.join(","));
        }
        let word = ROLES.iter().find(|(_, role)| role == self);
        f.write_str(word.map_or("", |(word, _)| word))
    }
}

impl fmt::Display for LinkTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkTarget::Shape(shape) => f.write_str(shape.name()),
            LinkTarget::Apart(nodes) => nodes.fmt(f),
            LinkTarget::Between(list) => {
                for (
                    at,
                    Between {
                        from,
                        to,
                        both_ways,
                    },
                ) in list.iter().enumerate()
                {
                    let comma = if at > 0 { "," } else { "" };
                    let sign = if *both_ways { '-' } else { '>' };
                    write!(f, "{comma}{from}{sign}{to}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Nodes(nodes) => nodes.fmt(f),
            Target::Links {
                links,
                flapping: false,
            } => links.fmt(f),
            Target::Links {
                links,
                flapping: true,
            } => write!(f, "{FLAPPING} {links}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster() -> Roster {
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        Roster {
            servers: names(&["n1", "n2", "n3"]),
            clients: names(&["c1", "c-2"]),
            others: names(&["vault"]),
        }
    }

    fn parse(text: &str, kind: TargetKind) -> Result<Target, Error> {
        Target::parse(text, kind, "test", &roster())
    }

    #[test]
    fn what_is_read_is_written_the_same() {
        for text in [
            "leader", "holder", "n1", "n1,n3", "c-2", "all", "clients", "vault",
        ] {
            assert_eq!(parse(text, TargetKind::Nodes).unwrap().to_string(), text);
        }
        for text in [
            "n1>n2",
            "n1-n2,n2>n3",
            "leader-n1",
            "n1-leader",
            "c-2-n1",
            "c-2>vault",
            "clients>leader",
            "halves",
            "leader-minority",
            "majority-ring",
            "one-way",
            "n1,n2",
            "holder",
            "flapping partial",
            "flapping n1-n3",
        ] {
            let target = parse(text, TargetKind::FlappingLinks).unwrap();
            assert!(matches!(target, Target::Links { .. }), "{text}");
            assert_eq!(target.to_string(), text);
        }
    }

    #[test]
    fn flapping_alone_is_the_partial_cut() {
        let target = parse("flapping", TargetKind::FlappingLinks).unwrap();
        assert_eq!(target.to_string(), "flapping partial");
    }

    #[test]
    fn unknown_targets_come_with_a_suggestion() {
        for (text, says) in [
            ("leeder", "unknown target `leeder`; did you mean `leader`?"),
            ("n1-leadr", "unknown target `leadr`; did you mean `leader`?"),
            ("halvs", "did you mean `halves`?"),
            ("flapping bridg", "did you mean `bridge`?"),
            ("n1>n33", "did you mean `n3`?"),
            ("n1>nowhere", "unknown target `nowhere`"),
            ("", "unknown target"),
            ("n1>", "unknown target"),
        ] {
            let error = parse(text, TargetKind::FlappingLinks)
                .unwrap_err()
                .to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_target_of_the_wrong_kind_is_refused() {
        let error = parse("n1>n2", TargetKind::Nodes).unwrap_err();
        assert!(matches!(error, Error::Target { .. }), "{error}");
        let error = parse("flapping", TargetKind::Links).unwrap_err();
        assert!(error.to_string().contains("only cuts can flap"), "{error}");
    }

    #[test]
    fn what_can_never_match_is_told_apart_from_what_is_unknown() {
        let lonely = Roster {
            servers: vec!["n1".to_owned()],
            ..Roster::default()
        };
        for text in [
            "follower", "minority", "holder", "clients", "halves", "bridge", "n1", "all",
        ] {
            let error = Target::parse(text, TargetKind::Links, "cut", &lonely).unwrap_err();
            assert!(
                matches!(error, Error::MatchesNothing { .. }),
                "{text}: {error}"
            );
        }
        let error = parse("n1-n1", TargetKind::Links).unwrap_err();
        assert!(matches!(error, Error::MatchesNothing { .. }), "{error}");
    }
}
