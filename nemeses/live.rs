//! A real cluster as the nemesis sees it: every method is one question to a node's agent or to the
//! network. Times in evidence become those of the run.

use std::sync::Arc;

use async_trait::async_trait;
use cluster::{
    Applied, ClockEvidence, Cluster, Error, FreezeEvidence, KillEvidence, LinkMatrix, Network,
    Node, ProcessState, ThawEvidence,
};

use crate::access::{ClusterAccess, DropCounts};
use crate::site::Clock;

const SIGKILL: i32 = 9;

/// Knows how the services and clients of a run are started, which the nemesis does not.
#[async_trait]
pub trait Restart: Send + Sync {
    /// Starts a service or client program again that was killed, as it was started before.
    ///
    /// # Errors
    /// What the node's agent said.
    async fn restart(&self, node: &Node, process: &str) -> Result<(), Error>;
}

/// [`ClusterAccess`] to a cluster that runs.
pub struct OnCluster {
    nodes: Vec<Node>,
    network: Network,
    restart: Arc<dyn Restart>,
    /// What the monotonic clock read when the run began.
    began_ns: u64,
}

impl OnCluster {
    /// Access to this cluster, with the clock of the run.
    pub fn new(cluster: &Cluster, restart: Arc<dyn Restart>, clock: &Clock) -> OnCluster {
        OnCluster {
            nodes: cluster.nodes().to_vec(),
            network: cluster.network().clone(),
            restart,
            began_ns: cluster::clock::monotonic_ns().saturating_sub(clock()),
        }
    }

    fn node(&self, name: &str) -> Result<&Node, Error> {
        let unknown = || Error::UnknownNode(name.to_owned());
        self.nodes
            .iter()
            .find(|node| node.name() == name)
            .ok_or_else(unknown)
    }

    /// A time of the monotonic clock as a time of the run.
    fn in_run(&self, at_ns: &mut u64) {
        *at_ns = at_ns.saturating_sub(self.began_ns);
    }

    fn clocks_in_run(&self, mut evidence: ClockEvidence) -> ClockEvidence {
        self.in_run(&mut evidence.asked_ns);
        self.in_run(&mut evidence.at_ns);
        evidence
    }
}

#[async_trait]
impl ClusterAccess for OnCluster {
    fn nodes(&self) -> Vec<String> {
        self.nodes
            .iter()
            .map(|node| node.name().to_owned())
            .collect()
    }

    async fn apply(&self, matrix: &LinkMatrix) -> Result<Applied, Error> {
        let mut applied = self.network.apply(matrix).await?;
        self.in_run(&mut applied.at_ns);
        Ok(applied)
    }

    async fn drops(&self) -> Result<DropCounts, Error> {
        let counters = self.network.counters().await?;
        Ok(DropCounts::new(self.nodes.len(), |from, to| {
            counters.at(from, to).dropped
        }))
    }

    async fn send_probes(&self, from: &str, to: &str, nonce: u64, count: u32) -> Result<(), Error> {
        self.node(from)?
            .send_probe(self.node(to)?.addr(), nonce, count)
            .await
    }

    async fn probes_received(&self, at: &str, nonce: u64) -> Result<u64, Error> {
        self.node(at)?.probe_count(nonce).await
    }

    async fn freeze(&self, node: &str, process: &str) -> Result<FreezeEvidence, Error> {
        let mut frozen = self.node(node)?.freeze(process).await?;
        self.in_run(&mut frozen.asked_ns);
        self.in_run(&mut frozen.at_ns);
        Ok(frozen)
    }

    async fn thaw(&self, node: &str, process: &str) -> Result<ThawEvidence, Error> {
        let mut thawed = self.node(node)?.thaw(process).await?;
        self.in_run(&mut thawed.asked_ns);
        self.in_run(&mut thawed.at_ns);
        Ok(thawed)
    }

    async fn skew(
        &self,
        node: &str,
        process: &str,
        offset_ns: i64,
    ) -> Result<ClockEvidence, Error> {
        let moved = self.node(node)?.skew(process, offset_ns).await?;
        Ok(self.clocks_in_run(moved))
    }

    async fn unskew(&self, node: &str, process: &str) -> Result<ClockEvidence, Error> {
        let moved = self.node(node)?.unskew(process).await?;
        Ok(self.clocks_in_run(moved))
    }

    async fn clocks(&self, node: &str, process: &str) -> Result<ClockEvidence, Error> {
        let read = self.node(node)?.clocks(process).await?;
        Ok(self.clocks_in_run(read))
    }

    async fn kill(&self, node: &str, process: &str) -> Result<KillEvidence, Error> {
        let mut killed = self.node(node)?.kill(process, SIGKILL).await?;
        self.in_run(&mut killed.asked_ns);
        self.in_run(&mut killed.at_ns);
        Ok(killed)
    }

    async fn restart(&self, node: &str, process: &str) -> Result<(), Error> {
        self.restart.restart(self.node(node)?, process).await
    }

    async fn processes(&self, node: &str, process: &str) -> Result<Vec<ProcessState>, Error> {
        self.node(node)?.processes(process).await
    }
}
