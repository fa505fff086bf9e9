//! What a cluster must be able to do for a fault, and the refusal of faults that need more: before
//! the run, with the reason, and never by leaving a fault out.

use std::collections::BTreeMap;
use std::fmt;

use spec::Params;

use crate::fault::Fault;

/// Something that a cluster may or may not be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// Freeze and thaw a service's processes.
    Freeze,
    /// Kill a service's processes.
    Kill,
    /// Start a killed service again.
    Restart,
    /// Move the time of day that processes read.
    Clock,
    /// Cut directed links, and probe them.
    Cut,
    /// Delay what goes over links.
    Delay,
    /// Lose some of what goes over links.
    Loss,
}

impl Capability {
    /// All of them.
    pub const ALL: [Capability; 7] = [
        Capability::Freeze,
        Capability::Kill,
        Capability::Restart,
        Capability::Clock,
        Capability::Cut,
        Capability::Delay,
        Capability::Loss,
    ];
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Capability::Freeze => "freeze processes",
            Capability::Kill => "kill processes",
            Capability::Restart => "start services again",
            Capability::Clock => "move wall clocks",
            Capability::Cut => "cut links",
            Capability::Delay => "delay links",
            Capability::Loss => "lose frames on links",
        })
    }
}

/// Why a cluster cannot do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// What is missing.
    pub reason: String,
    /// What a user can change so that it is not.
    pub change: String,
}

/// What a cluster can do, and why it cannot do the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities(BTreeMap<Capability, Lack>);

impl Capabilities {
    /// A cluster that can do everything, such as one of the local backend.
    pub fn all() -> Capabilities {
        Capabilities::default()
    }

    /// The same cluster without one of its abilities.
    #[must_use]
    pub fn without(
        mut self,
        capability: Capability,
        reason: impl Into<String>,
        change: impl Into<String>,
    ) -> Capabilities {
        self.0.insert(
            capability,
            Lack {
                reason: reason.into(),
                change: change.into(),
            },
        );
        self
    }

    /// Why the cluster lacks something; `None` if it does not.
    pub fn lack(&self, capability: Capability) -> Option<&Lack> {
        self.0.get(&capability)
    }
}

/// A fault that the cluster cannot do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the fault `{fault}` cannot {capability} here: {}; {}", lack.reason, lack.change)]
pub struct Refused {
    /// The fault.
    pub fault: &'static str,
    /// What it needs.
    pub capability: Capability,
    /// Why that is missing, and what to change.
    pub lack: Lack,
}

/// What a fault with these parameters needs that this cluster lacks.
pub fn refuse(fault: &dyn Fault, params: &Params, capabilities: &Capabilities) -> Vec<Refused> {
    let refused = |capability| {
        let lack = capabilities.lack(capability)?.clone();
        let fault = fault.name();
        Some(Refused {
            fault,
            capability,
            lack,
        })
    };
    fault
        .needs(params)
        .into_iter()
        .filter_map(refused)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{declared, find};

    #[test]
    fn what_the_cluster_cannot_do_is_refused_with_what_to_change() {
        let lacking = Capabilities::all().without(
            Capability::Delay,
            "this kernel has no netem",
            "load sch_netem or use the local backend",
        );
        let refused = |name, capabilities: &Capabilities| {
            let fault = find(name).unwrap();
            let params = Params::resolve(&declared(fault), []).unwrap();
            refuse(fault, &params, capabilities)
        };
        assert_eq!(refused("cut", &lacking), []);
        assert_eq!(refused("slow", &Capabilities::all()), []);
        let slow = refused("slow", &lacking);
        assert_eq!(
            slow[0].to_string(),
            "the fault `slow` cannot delay links here: this kernel has no netem; load sch_netem or \
             use the local backend"
        );
    }
}
