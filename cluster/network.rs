//! The emulated network as the controller sees it: one matrix of link policies, applied as a whole,
//! and counters of what became of the frames. The local backend's `switch.rs` does the work.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use crate::policy::{LinkMatrix, LinkPolicy};

use crate::backend::Fabric;
use crate::error::Error;

/// A matrix took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// From this `CLOCK_MONOTONIC` nanosecond on, every frame was judged by the new matrix.
    pub at_ns: u64,
    /// How many matrices were applied since the cluster was made, this one included.
    pub generation: u64,
}

/// What became of the frames of one directed link. A frame of a TCP stream may be a whole segment
/// train of up to 64 KiB (segmentation is offloaded, as between virtual machines).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCount {
    /// Handed to the receiving node.
    pub delivered: u64,
    /// Dropped by policy: cut, or lost by chance.
    pub dropped: u64,
    /// Delayed, and under way at this moment.
    pub held: u64,
    /// Could not be handed over because the receiving side had no room.
    pub overflowed: u64,
    /// Bytes of the delivered frames, Ethernet heads included.
    pub bytes: u64,
}

/// The counters of all directed links since the cluster was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounters {
    nodes: usize,
    links: Vec<LinkCount>,
    /// Frames that a node sent faster than the switch could read, per node: lost unintended.
    pub overruns: Vec<u64>,
    /// When they were read.
    pub at_ns: u64,
}

impl LinkCounters {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            nodes,
            links: vec![LinkCount::default(); nodes * nodes],
            overruns: vec![0; nodes],
            at_ns: 0,
        }
    }

    /// The counters from one node to another, by index.
    ///
    /// # Panics
    /// When an index is out of range.
    #[must_use]
    pub fn at(&self, from: usize, to: usize) -> &LinkCount {
        &self.links[from * self.nodes + to]
    }

    pub(crate) fn at_mut(&mut self, from: usize, to: usize) -> &mut LinkCount {
        &mut self.links[from * self.nodes + to]
    }
}

/// The network of a cluster. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Network {
    fabric: Arc<dyn Fabric>,
    names: Arc<[String]>,
}

impl Network {
    pub(crate) fn new(fabric: Arc<dyn Fabric>, names: Arc<[String]>) -> Self {
        Self { fabric, names }
    }

    /// A matrix for this cluster with all links clear.
    #[must_use]
    pub fn clear_matrix(&self) -> LinkMatrix {
        LinkMatrix::clear(&self.names)
    }

    /// Replaces the whole matrix at once: no frame ever sees half of it.
    ///
    /// # Errors
    /// [`Error::Spec`] when a policy is impossible or the matrix is of another cluster;
    /// [`Error::Closed`] when the cluster is gone.
    pub async fn apply(&self, matrix: &LinkMatrix) -> Result<Applied, Error> {
        if *matrix.names() != *self.names {
            return Err(Error::Spec("a link matrix of another cluster".to_owned()));
        }
        self.fabric.apply(matrix).await
    }

    /// Reads the counters of all links.
    ///
    /// # Errors
    /// [`Error::Closed`] when the cluster is gone.
    pub async fn counters(&self) -> Result<LinkCounters, Error> {
        self.fabric.counters().await
    }
}
