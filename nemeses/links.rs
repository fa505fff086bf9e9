//! What faults of links have in common: the parameters that say which links are meant, and the
//! state of one such fault while it lasts. How a link is probed is in `probe.rs`.

use std::collections::BTreeSet;

use cluster::LinkPolicy;
use serde_json::json;
use spec::{Param, ParamKind, Params};

use crate::Error;
use crate::fault::{Evidence, Proof, Strike};
use crate::probe::{self, Claimed};
use crate::resolve::Victims;
use crate::target::{LinkTarget, NodeTarget, Roster, Target};

/// Whom a shape turns around.
pub(crate) const NODE: Param = Param {
    name: "node",
    kind: ParamKind::Text(""),
    about: "the server that the shapes isolate, bridge, partial and one-way turn around; \
            empty for the leader, or for any server with bridge",
};

/// Which way a one-way shape goes.
pub(crate) const DIRECTION: Param = Param {
    name: "direction",
    kind: ParamKind::Choice(&["to", "from"]),
    about: "whether one-way hits what goes to the node or what comes from it",
};

/// Where the clients are when the servers fall into two sides.
pub(crate) const CLIENTS: Param = Param {
    name: "clients",
    kind: ParamKind::Choice(&["all", "with-minority", "with-majority"]),
    about: "which servers the clients reach: all, or only one side of those into which they fall",
};

/// Which side the clients are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Both,
    Minority,
    Majority,
}

pub(crate) fn clients_side(params: &Params) -> Side {
    match params.text(CLIENTS.name) {
        "with-minority" => Side::Minority,
        "with-majority" => Side::Majority,
        _ => Side::Both,
    }
}

pub(crate) fn direction_is_from(params: &Params) -> bool {
    params.text(DIRECTION.name) == "from"
}

/// The server that a shape is to turn around, if one was given.
pub(crate) fn shape_node(params: &Params, roster: &Roster) -> Option<NodeTarget> {
    match params.text(NODE.name) {
        "" => None,
        text => NodeTarget::parse(text, roster).ok(),
    }
}

/// Checks that the parameters of a link fault mean something with its target.
pub(crate) fn check(
    fault: &'static str,
    target: &Target,
    params: &Params,
    roster: &Roster,
) -> Result<(), Error> {
    let Target::Links { links, .. } = target else {
        return Ok(());
    };
    let contradiction = |why: String| Err(Error::Contradiction { fault, why });
    let (turns, one_way, sides) = match links {
        LinkTarget::Shape(shape) => (
            shape.turns_around_a_node(),
            shape.is_one_way(),
            shape.has_sides(),
        ),
        LinkTarget::Apart(nodes) => (false, false, nodes.are_servers(roster)),
        LinkTarget::Between(_) => (false, false, false),
    };
    let given = params.text(NODE.name);
    if !given.is_empty() {
        let node = NodeTarget::parse(given, roster)?;
        if !turns {
            return contradiction(format!("`node` means nothing with the target `{target}`"));
        }
        if !node.is_single() || !node.are_servers(roster) {
            return contradiction(format!("`node` is one server, and `{given}` is not"));
        }
    }
    if direction_is_from(params) && !one_way {
        return contradiction(format!(
            "`direction` means nothing with the target `{target}`"
        ));
    }
    if clients_side(params) != Side::Both && !sides {
        let side = params.text(CLIENTS.name);
        return contradiction(format!(
            "`{target}` has no two sides for clients = \"{side}\""
        ));
    }
    Ok(())
}

/// One policy on the links of one fault, while it lasts.
pub(crate) struct LinkHold {
    pub(crate) strike: Strike,
    links: BTreeSet<(String, String)>,
    policy: LinkPolicy,
}

impl LinkHold {
    pub(crate) fn new(strike: Strike, policy: LinkPolicy) -> LinkHold {
        let links = match strike.victims() {
            Victims::Links(links) => links.clone(),
            Victims::Nodes(_) => BTreeSet::new(),
        };
        LinkHold {
            strike,
            links,
            policy,
        }
    }

    /// Puts the policy on all links, together with those of other faults, in one step.
    pub(crate) async fn install(&self) -> Proof {
        let installed = self.strike.installed();
        let policies = self
            .links
            .iter()
            .map(|link| (link.clone(), self.policy))
            .collect();
        match installed.set_links(self.strike.id(), policies).await {
            Ok(applied) => Ok(Evidence::new(
                format!("{} directed links changed at once", self.links.len()),
                json!({ "generation": applied.generation, "at_ns": applied.at_ns }),
            )),
            Err(error) => Err(Evidence::says(format!(
                "the network did not take it: {error}"
            ))),
        }
    }

    /// Takes the policy away and leaves those of other faults.
    pub(crate) async fn heal(&self) -> Proof {
        match self.strike.installed().clear_links(self.strike.id()).await {
            Ok(Some(applied)) => Ok(Evidence::new(
                "links cleared at once".to_owned(),
                json!({ "generation": applied.generation, "at_ns": applied.at_ns }),
            )),
            Ok(None) => Ok(Evidence::says("nothing was installed".to_owned())),
            Err(error) => Err(Evidence::says(format!(
                "the network did not take it: {error}"
            ))),
        }
    }

    /// Looks for evidence for a claim about all its links.
    pub(crate) async fn prove(&self, claimed: Claimed) -> Proof {
        probe::prove(self.strike.installed(), &self.links, claimed).await
    }
}
