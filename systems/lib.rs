//! What is tested: how each system is configured, started, asked who leads, and talked to.
//!
//! A [`System`] is a description. It says which processes run on which node, with which files and
//! arguments, how to see that they are ready and who they think leads, and which properties the
//! system promises. It starts nothing itself: the controller does, through the nodes' agents. Its
//! client side runs in another process, `schism client`, on a client node: [`ClientProgram`] makes
//! one worker's [`client::Client`], and [`run_client`] runs them.
//!
//! [`SYSTEMS`] is the list. To add a system, add its file and its line there. What the parts are:
//! [`protocol`] is what the harness and any client program say to each other; [`client`] is what
//! our own clients have in common, [`driver`] their main loop, [`http`] their connections, and
//! [`holder`] the lock holders of all systems; [`vault`] describes the protected resource;
//! [`conformance`] tests client programs that others write.

pub mod client;
mod conclave;
pub mod conformance;
pub mod docs;
pub mod driver;
mod etcd;
pub mod holder;
pub mod http;
pub mod loopback;
pub mod protocol;
pub mod vault;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde_json::Value;
use spec::{Param, Params};

pub use crate::client::ClientProgram;
pub use crate::driver::run_client;

/// All systems, in the order in which they are listed.
pub static SYSTEMS: &[&dyn System] = &[&conclave::Conclave, &etcd::Etcd];

/// The system with this name.
pub fn find(name: &str) -> Option<&'static dyn System> {
    SYSTEMS.iter().copied().find(|system| system.name() == name)
}

/// A system under test.
pub trait System: ClientProgram {
    /// What it is and which versions were tried, in one sentence.
    fn about(&self) -> &'static str;

    /// The parameters that a spec may give it.
    fn params(&self) -> &'static [Param];

    /// The version that is installed here.
    ///
    /// # Errors
    /// [`Error::Missing`] if it is not installed, with what to install.
    fn version(&self) -> Result<String, Error>;

    /// The workloads that its client can do.
    fn workloads(&self) -> &'static [&'static str];

    /// The properties that it promises under a workload. Others are reported but do not turn a
    /// run red.
    fn claims(&self, workload: &str, params: &Params) -> Vec<&'static str>;

    /// How long it takes to notice and to repair, as far as its parameters say.
    fn timing(&self, params: &Params) -> Timing;

    /// The processes of the system on one server node.
    ///
    /// # Errors
    /// If the system cannot run with these parameters or nodes.
    fn services(
        &self,
        server: &Server,
        cluster: &[Server],
        params: &Params,
    ) -> Result<Vec<Service>, Error>;

    /// The address that clients on other nodes use.
    fn client_addr(&self, server: &Server) -> String;

    /// The request that a ready node answers well.
    fn ready_probe(&self, server: &Server) -> Probe;

    /// Whether the answer to [`System::ready_probe`] means that the node can be used.
    fn is_ready(&self, status: u16, body: &[u8]) -> bool;

    /// The request that shows who leads, as this node sees it.
    fn leader_probe(&self, server: &Server) -> Probe;

    /// What the answer to [`System::leader_probe`] says; `None` if it says nothing that can be
    /// read.
    fn leadership(&self, cluster: &[Server], status: u16, body: &[u8]) -> Option<Leadership>;
}

/// The address of a port of a server node.
fn http_addr(server: &Server, port: u16) -> String {
    SocketAddr::new(server.addr, port).to_string()
}

/// A server node of the cluster under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// `n1`, `n2`, ...
    pub name: String,
    /// Its address in the test network.
    pub addr: IpAddr,
    /// The folder on the node where its data and configuration go.
    pub dir: PathBuf,
}

/// A process that runs on a node for as long as the test does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name, unique on the node: `etcd`.
    pub name: String,
    /// Program and arguments. The program `schism` stands for the running executable.
    pub argv: Vec<String>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// Files that must be there before it starts: path below the node's folder, and content.
    pub files: Vec<(String, Vec<u8>)>,
}

/// An HTTP request that an agent makes on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// Address and port.
    pub addr: String,
    /// Path and query.
    pub path: String,
    /// The body; empty for none. JSON where there is one.
    pub body: Vec<u8>,
}

/// Who leads, as one node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The leader's node name, if the node knows one.
    pub leader: Option<String>,
    /// The term in which that node leads, if the node says one that can be trusted.
    pub term: Option<u64>,
    /// The term of the last log entry that the node applied, where that is all that it says. It
    /// lags behind the leader's term, so that two leaders may show the same one without harm.
    pub applied_term: Option<u64>,
}

/// How long a system takes to notice that something is gone, and to repair it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The longest time after which a follower that hears nothing asks for an election, in ns.
    pub election_timeout: u64,
}

impl Service {
    /// A service with no environment and no files.
    pub fn new(name: &str, argv: impl IntoIterator<Item = impl Into<String>>) -> Service {
        Service {
            name: name.to_owned(),
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            files: Vec::new(),
        }
    }
}

impl Leadership {
    /// The value of the observer's `leader` event.
    pub fn to_value(&self) -> Value {
        let mut value = serde_json::json!({ "leader": self.leader, "term": self.term });
        if let Some(term) = self.applied_term {
            value["applied_term"] = Value::from(term);
        }
        value
    }
}

impl Probe {
    /// A `GET`.
    pub fn get(addr: String, path: &str) -> Probe {
        Probe {
            method: "GET",
            addr,
            path: path.to_owned(),
            body: Vec::new(),
        }
    }

    /// A `POST` of a JSON text.
    pub fn post(addr: String, path: &str, body: &str) -> Probe {
        Probe {
            method: "POST",
            addr,
            path: path.to_owned(),
            body: body.as_bytes().to_vec(),
        }
    }
}

/// Why a system cannot be tested here, or why its client had to give up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program that it needs is not installed.
    #[error("{program} is not installed; {remedy}")]
    Missing {
        /// The program.
        program: String,
        /// What to install.
        remedy: String,
    },
    /// The parameters contradict each other or the cluster.
    #[error("{0}")]
    Unsupported(String),
    /// A line that the protocol does not allow.
    #[error(transparent)]
    Protocol(protocol::Malformed),
    /// A client program cannot go on.
    #[error("{0}")]
    Client(String),
}

impl Error {
    /// A workload that the client of a system cannot do.
    fn workload(system: &dyn System, workload: &str) -> Error {
        let (name, known) = (system.name(), system.workloads().join(", "));
        Error::Unsupported(format!(
            "{name} has no client for the workload `{workload}` (it has {known})"
        ))
    }
}
