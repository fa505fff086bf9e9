//! What is done to the cluster: faults, targets, plans and the ledger.
//!
//! A [`Fault`] is one kind of harm with a target and a duration. It is installed, verified, healed
//! and verified healed, and each step leaves its evidence in the ledger. A nemesis never knows
//! which system it hurts: it asks for a target ("the leader", "a minority", "the link n1 -> n3")
//! through [`Targets`]. [`FAULTS`] is the list. To add a fault, add its file and its line there.

use async_trait::async_trait;
use spec::Param;

/// All faults, in the order in which they are listed.
pub static FAULTS: &[&dyn Fault] = &[];

/// The fault with this name.
pub fn find(name: &str) -> Option<&'static dyn Fault> {
    FAULTS.iter().copied().find(|fault| fault.name() == name)
}

/// One kind of harm. How it is done is the matter of its file.
pub trait Fault: Sync {
    /// Its name, as users write it.
    fn name(&self) -> &'static str;

    /// What it does, in one sentence.
    fn about(&self) -> &'static str;

    /// The parameters that a plan may give it.
    fn params(&self) -> &'static [Param];
}

/// Finds the nodes that a target names, at the moment when the fault strikes.
#[async_trait]
pub trait Targets: Send + Sync {
    /// The server nodes.
    fn servers(&self) -> Vec<String>;

    /// The client nodes.
    fn clients(&self) -> Vec<String>;

    /// The server that leads, as most nodes see it now.
    async fn leader(&self) -> Option<String>;

    /// The client node whose process holds the lock now.
    async fn holder(&self) -> Option<String>;

    /// The processes on a node that a fault may hit: names of its services or client programs.
    fn processes(&self, node: &str) -> Vec<String>;
}
