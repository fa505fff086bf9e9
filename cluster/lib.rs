//! Where a test runs: nodes, the agent on each of them, and the emulated network between them.
//!
//! ```text
//! controller                       sandbox (user, net, mount, pid, ipc namespaces)
//!   Cluster, Node, Network           pid 1: supervisor and switch
//!        |  one channel per node       |-- n1: net, mount, uts, pid, ipc; pid 1 = agent -- services
//!        +---------------------------- |-- n2: ...
//! ```
//!
//! The controller executes its own program again as `sandbox`, which executes it as `agent` for every
//! node: [`dispatch`] must be the first thing in `main`. Everything below the sandbox's pid 1 dies
//! with it, and it dies with the controller.
//!
//! This crate does not know what a workload, a fault plan or a checker is. Start reading in
//! `cluster.rs`; what happens on a node is in `agent/`, on the wire in `switch.rs`.

pub mod agent;
mod backend;
pub mod bench;
mod capabilities;
mod channel;
pub mod clock;
mod cluster;
mod error;
mod evidence;
mod frame;
mod local;
mod netlink;
mod network;
mod node;
mod policy;
mod protocol;
pub mod sandbox;
mod switch;

use std::process::ExitCode;

pub use capabilities::{Capability, WALL_CLOCKS, capabilities};
pub use channel::{PipeReader, PipeWriter};
pub use cluster::{Cluster, ClusterSpec, Events, create};
pub use error::{Error, Refusal, RefusalKind};
pub use evidence::{
    ClockEvidence, FreezeEvidence, FreezeMethod, KillEvidence, ProcessClock, ProcessState,
    ThawEvidence,
};
pub use network::{Applied, LinkCount, LinkCounters, LinkMatrix, LinkPolicy, Network};
pub use node::{HttpRequest, HttpResponse, Node, NodeEvent, Pipe};
pub use protocol::{Exit, FileEntry, NodeEventKind, ServiceSpec};

/// Becomes a sandbox or an agent when this process was executed as one. Call it first in `main`,
/// before any thread exists, and return its answer if there is one.
#[must_use]
pub fn dispatch() -> Option<ExitCode> {
    match std::env::args().nth(1).as_deref() {
        Some(sandbox::SUBCOMMAND) => Some(sandbox::main()),
        Some(agent::SUBCOMMAND) => Some(agent::main()),
        _ => None,
    }
}
