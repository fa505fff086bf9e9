//! What a cluster must be able to do for a fault, and the refusal of plans that ask for more: before
//! the run, with the reason, and never by leaving a fault out.

use std::collections::BTreeMap;
use std::fmt;

use crate::plan::Plan;

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

/// A fault of a plan that the cluster cannot do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fault {id} ({fault}) cannot {capability} here: {}; {}", lack.reason, lack.change)]
pub struct Refused {
    /// Its number in the plan.
    pub id: u64,
    /// The fault.
    pub fault: &'static str,
    /// What it needs.
    pub capability: Capability,
    /// Why that is missing, and what to change.
    pub lack: Lack,
}

/// All faults of a plan that this cluster cannot do.
pub fn refuse(plan: &Plan, capabilities: &Capabilities) -> Vec<Refused> {
    let mut refused = Vec::new();
    for (id, planned) in plan.numbered() {
        for capability in planned.fault.needs(&planned.params) {
            if let Some(lack) = capabilities.lack(capability) {
                let (fault, lack) = (planned.fault.name(), lack.clone());
                refused.push(Refused {
                    id,
                    fault,
                    capability,
                    lack,
                });
            }
        }
    }
    refused
}
