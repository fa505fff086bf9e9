//! What faults need of a cluster, and nothing more: the engine and every fault are written against
//! [`ClusterAccess`], so that their logic can be tested with a cluster that fails or lies. The real
//! one is in `live.rs`.

use async_trait::async_trait;
use cluster::{
    Applied, ClockEvidence, Error, FreezeEvidence, KillEvidence, LinkMatrix, ProcessState,
    ThawEvidence,
};

/// The frames that were dropped on purpose on each directed link since the cluster was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropCounts {
    nodes: usize,
    dropped: Vec<u64>,
}

impl DropCounts {
    /// Counts for a cluster of so many nodes, as a function of the indices of the link's ends.
    pub fn new(nodes: usize, mut count: impl FnMut(usize, usize) -> u64) -> DropCounts {
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        let dropped = pairs.map(|(from, to)| count(from, to)).collect();
        DropCounts { nodes, dropped }
    }

    /// The count of one link.
    ///
    /// # Panics
    /// When an index is out of range.
    pub fn at(&self, from: usize, to: usize) -> u64 {
        self.dropped[from * self.nodes + to]
    }
}

/// A cluster as the nemesis sees it. Every method asks once and never retries.
#[async_trait]
pub trait ClusterAccess: Send + Sync {
    /// The names of all nodes, in the order of the link matrix.
    fn nodes(&self) -> Vec<String>;

    /// Replaces the whole link matrix at once.
    async fn apply(&self, matrix: &LinkMatrix) -> Result<Applied, Error>;

    /// How many frames were dropped on purpose so far, per link.
    async fn drops(&self) -> Result<DropCounts, Error>;

    /// Sends numbered datagrams from one node to the agent of another.
    async fn send_probes(&self, from: &str, to: &str, nonce: u64, count: u32) -> Result<(), Error>;

    /// How many datagrams with this number have arrived at a node.
    async fn probes_received(&self, at: &str, nonce: u64) -> Result<u64, Error>;

    /// Freezes a service or client program on a node, with its children.
    async fn freeze(&self, node: &str, process: &str) -> Result<FreezeEvidence, Error>;

    /// Thaws what was frozen.
    async fn thaw(&self, node: &str, process: &str) -> Result<ThawEvidence, Error>;

    /// Moves the time of day that a service or client program reads, with its children, to so many
    /// nanoseconds ahead of the true one.
    async fn skew(&self, node: &str, process: &str, offset_ns: i64)
    -> Result<ClockEvidence, Error>;

    /// Gives what was moved its true time back.
    async fn unskew(&self, node: &str, process: &str) -> Result<ClockEvidence, Error>;

    /// What the clocks of a service or client program say.
    async fn clocks(&self, node: &str, process: &str) -> Result<ClockEvidence, Error>;

    /// Ends a service or client program on a node with SIGKILL, with its children.
    async fn kill(&self, node: &str, process: &str) -> Result<KillEvidence, Error>;

    /// Starts again what was killed, as it was started before.
    async fn restart(&self, node: &str, process: &str) -> Result<(), Error>;

    /// The living processes of a service or client program.
    async fn processes(&self, node: &str, process: &str) -> Result<Vec<ProcessState>, Error>;
}

/// Finds the nodes that a target names, at the moment when the fault strikes. The nemesis never
/// knows which system it hurts.
#[async_trait]
pub trait Targets: Send + Sync {
    /// The server that leads, as most nodes see it now.
    async fn leader(&self) -> Option<String>;

    /// The client node whose process holds the lock now.
    async fn holder(&self) -> Option<String>;

    /// The processes on a node that a fault may hit: names of its services or client programs.
    fn processes(&self, node: &str) -> Vec<String>;
}
