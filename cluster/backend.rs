//! What a backend must be able to do: make nodes, open the channel to each node's agent, carry one
//! matrix of link policies, and destroy everything. The backend for namespaces on this machine is in
//! `local.rs`. Everything else that is done to a node goes through its agent and is the same for all.

use std::fmt::Debug;
use std::net::IpAddr;
use std::path::PathBuf;

use async_trait::async_trait;
use tokio::net::UnixStream;

use crate::error::Error;
use crate::network::{Applied, LinkCounters, LinkMatrix};

/// A node that a backend has made: a place with an address, and an agent that runs on it.
#[derive(Debug)]
pub(crate) struct MadeNode {
    pub name: String,
    pub addr: IpAddr,
    /// Where the node's files are, as seen from the controller.
    pub dir: PathBuf,
    /// Standard input and output of `schism agent` on that node, or what stands for them.
    pub channel: UnixStream,
}

/// What nodes are made of.
#[async_trait]
pub(crate) trait Backend: Debug + Send + Sync {
    /// The network between the nodes.
    fn fabric(&self) -> std::sync::Arc<dyn Fabric>;

    /// Takes everything down and waits until it is gone.
    async fn destroy(&mut self) -> Result<(), Error>;
}

/// What carries out a link matrix.
#[async_trait]
pub(crate) trait Fabric: Debug + Send + Sync {
    /// Replaces the whole matrix.
    async fn apply(&self, matrix: &LinkMatrix) -> Result<Applied, Error>;

    /// Reads all counters.
    async fn counters(&self) -> Result<LinkCounters, Error>;
}
