//! What is done to the cluster: faults, targets, plans and the ledger.
//!
//! A [`Fault`] is one kind of harm with a target and a duration. It is installed, verified, healed
//! and verified healed, and each step leaves its evidence in the ledger. A nemesis never knows
//! which system it hurts: it asks for a target ("the leader", "a minority", "the link n1 -> n3")
//! through [`Targets`]. [`FAULTS`] is the list. To add a fault, add its file and its line there.
//!
//! The way of a plan: `plan.rs` checks what was written ([`RawFault`]) or `random.rs` draws it,
//! `capability.rs` refuses what the cluster cannot do, `engine.rs` runs it through [`ClusterAccess`].

mod access;
mod capability;
mod claims;
mod docs;
mod engine;
mod error;
mod event;
mod fault;
mod faults;
mod installed;
mod ledger;
mod links;
mod live;
mod majority;
mod plan;
mod probe;
mod processes;
mod random;
mod resolve;
mod shapes;
mod site;
mod stream;
mod target;

pub use access::{ClusterAccess, DropCounts, Targets};
pub use capability::{Capabilities, Capability, Lack, Refused, refuse};
pub use docs::markdown;
pub use engine::{Finished, Nemesis};
pub use error::Error;
pub use event::{NemesisEvent, Phase};
pub use fault::{Evidence, Fault, Harm, Proof, Strike};
pub use faults::{COMMON, FAULTS, declared, find};
pub use installed::Unhealed;
pub use ledger::{Entry, FaultOutcome, Ledger, Step, read_ledger};
pub use live::{OnCluster, Restart};
pub use plan::{Plan, PlannedFault, RawFault, Timing};
pub use random::{Choices, random};
pub use site::{Clock, OnEvent};
pub use target::{Roster, TargetKind};
