//! What clients do: the workloads, and the generator algebra that they are made of.
//!
//! A [`Workload`] is a generator, the vocabulary of its operations, and the properties that its
//! histories can be checked for. [`WORKLOADS`] is the list. To add a workload, add its file and
//! its line there.

pub mod generator;

use spec::{Param, Params};

pub use generator::Generator;

/// All workloads, in the order in which they are listed.
pub static WORKLOADS: &[&dyn Workload] = &[];

/// The workload with this name.
pub fn find(name: &str) -> Option<&'static dyn Workload> {
    WORKLOADS
        .iter()
        .copied()
        .find(|workload| workload.name() == name)
}

/// What clients do, and what can be checked of it.
pub trait Workload: Sync {
    /// Its name, as users write it.
    fn name(&self) -> &'static str;

    /// What it does and what it is for, in one or two sentences.
    fn about(&self) -> &'static str;

    /// The functions that its operations call; a client must know them all.
    fn functions(&self, params: &Params) -> Vec<&'static str>;

    /// The parameters that a spec may give it.
    fn params(&self) -> &'static [Param];

    /// The properties that its histories are checked for.
    fn checkers(&self, params: &Params) -> Vec<&'static str>;

    /// Parameters of checkers and clients that follow from its own: they go into the history's
    /// header and to the clients (`ttl_ms`, `holder`, ...).
    fn header_params(&self, params: &Params) -> serde_json::Map<String, serde_json::Value>;

    /// How many client nodes it wants, and how many processes on each. A holder of a lock has a
    /// node and a process of its own, so that it can be frozen alone.
    fn placement(&self, params: &Params) -> Placement;

    /// Whether it needs the protected resource (`conclave`'s vault) on a node of its own, and
    /// whether that one checks fencing tokens.
    fn vault(&self, params: &Params) -> Option<Vault> {
        let _ = params;
        None
    }

    /// The operations of the run, until the time limit of the test ends it.
    fn generator(&self, params: &Params, setup: &Setup) -> Box<dyn Generator>;

    /// The operations after all faults were healed: final reads on every node.
    fn final_generator(&self, params: &Params, setup: &Setup) -> Option<Box<dyn Generator>> {
        let _ = (params, setup);
        None
    }
}

/// Where the clients of a workload run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Client nodes `c1`, `c2`, ...; each runs one client program.
    pub client_nodes: usize,
    /// Logical processes that each client program multiplexes.
    pub processes_per_node: usize,
}

/// The protected resource as a workload wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vault {
    /// Whether it refuses tokens older than one that it has seen.
    pub fencing: bool,
}

/// What a generator may know when it is made.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The server nodes by name.
    pub servers: Vec<String>,
    /// How many client threads there are; a thread runs one process at a time.
    pub threads: usize,
    /// The seed of the stream `workload`.
    pub seed: u64,
}
