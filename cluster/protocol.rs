//! What controller and agents say to each other: typed requests with ids, their replies, and events
//! that nobody asked for. How they travel is in `channel.rs`; who acts on them is in `agent/` and
//! `sandbox.rs`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::Refusal;
use crate::evidence::{ClockEvidence, FreezeEvidence, KillEvidence, ProcessState, ThawEvidence};
use crate::network::{LinkCounters, LinkPolicy};

/// What to run on a node, as a service or as a client process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSpec {
    /// The name by which it is frozen, killed and reported; unique among what lives on the node.
    pub name: String,
    /// The program and its arguments. A program without a slash is looked up in `PATH`.
    pub argv: Vec<String>,
    /// Variables added to the agent's own environment.
    pub env: Vec<(String, String)>,
    /// Where its output goes, relative to the node's directory; appended to.
    pub log: String,
}

/// An HTTP/1.1 request to be made from inside a node. The body travels beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HttpHead {
    pub method: String,
    pub addr: SocketAddr,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub timeout: Duration,
}

/// What the controller asks of a node's agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Writes the blob at `offset`; the file appears under its name when `total` bytes are there.
    PutFile {
        path: String,
        offset: u64,
        total: u64,
        mode: u32,
    },
    Start {
        spec: ServiceSpec,
    },
    Spawn {
        spec: ServiceSpec,
        stream: u32,
    },
    Freeze {
        service: String,
    },
    Thaw {
        service: String,
    },
    /// Moves the wall clock of a service, and keeps it moved in what it executes.
    Skew {
        service: String,
        offset_ns: i64,
    },
    Unskew {
        service: String,
    },
    Clocks {
        service: String,
    },
    Kill {
        service: String,
        signal: i32,
    },
    Stop {
        service: String,
        grace: Duration,
    },
    Processes {
        service: String,
    },
    Http(HttpHead),
    /// Answered with up to `len` bytes from `offset` as a blob.
    Fetch {
        path: String,
        offset: u64,
        len: u64,
    },
    Tail {
        path: String,
        lines: usize,
    },
    ListFiles,
    SendProbe {
        to: IpAddr,
        nonce: u64,
        count: u32,
    },
    ProbeCount {
        nonce: u64,
    },
    Measure(Measurement),
}

/// Traffic that an agent makes or answers so that the network can be measured from inside nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measurement {
    /// Echoes datagrams and swallows TCP streams on these ports until the agent ends.
    Serve { udp: u16, tcp: u16 },
    /// Sends datagrams one after another, each after the answer to the one before.
    PingPong {
        to: SocketAddr,
        count: u32,
        gap: Duration,
    },
    /// Sends as much as fits over one TCP connection for this long.
    Bulk { to: SocketAddr, lasting: Duration },
    /// Sends numbered datagrams at this interval for this long, to a node that logs them.
    Blast {
        to: SocketAddr,
        interval: Duration,
        lasting: Duration,
    },
    /// Receives numbered datagrams on this port for this long.
    Listen { port: u16, lasting: Duration },
}

/// What came of a [`Measurement`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// One entry per answered datagram, in nanoseconds.
    pub rtt_ns: Vec<u64>,
    pub sent: u64,
    pub received: u64,
    pub bytes: u64,
    pub elapsed_ns: u64,
    /// When the last datagram arrived.
    pub last_ns: u64,
}

/// An agent's answer to a [`Request`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    Done,
    Pid(i32),
    Frozen(FreezeEvidence),
    Thawed(ThawEvidence),
    Clocks(ClockEvidence),
    Killed(KillEvidence),
    Processes(Vec<ProcessState>),
    /// The body is the blob.
    Http {
        status: u16,
    },
    /// The bytes are the blob.
    Bytes,
    Text(String),
    Files(Vec<FileEntry>),
    Count(u64),
    Measured(Measured),
}

/// One file in a node's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Relative to the node's directory, with `/` between parts.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// It returned this status.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// What an agent reports without being asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeEventKind {
    /// The main process of a service ended. Its children may live on, and the last of its output may
    /// still be under way.
    ServiceExit {
        /// The service's name.
        service: String,
        /// The process id that [`Node::start`](crate::Node::start) returned.
        pid: i32,
        /// How it ended.
        exit: Exit,
        /// When the agent learnt of it, in `CLOCK_MONOTONIC` nanoseconds.
        at_ns: u64,
    },
    /// No process of the service is left.
    ServiceGone {
        /// The service's name.
        service: String,
    },
    /// The agent is gone, and with it everything that ran on the node.
    AgentLost {
        /// What the controller saw.
        reason: String,
    },
}

/// The first message of an agent, as an event, and everything that follows.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AgentEvent {
    Ready { pid: u32 },
    Node(NodeEventKind),
}

/// What the sandbox must make, sent to it as its first message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub seed: u64,
    pub nodes: Vec<SetupNode>,
    /// Whether the first two nodes get a pair of devices past the switch, to measure against.
    pub direct_pair: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SetupNode {
    pub name: String,
    pub dir: String,
    /// The descriptor of the agent's end of its channel, inherited by the sandbox.
    pub channel: i32,
}

/// What the controller asks of the sandbox.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SandboxRequest {
    Setup(Setup),
    /// Replaces the whole matrix; links that are not named become clear.
    Apply {
        links: Vec<(u16, u16, LinkPolicy)>,
    },
    Counters,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SandboxReply {
    /// The nodes' namespaces are there and their agents were executed.
    Ready {
        /// Process ids of the agents as the sandbox sees them.
        pids: Vec<i32>,
    },
    Applied {
        at_ns: u64,
        generation: u64,
    },
    Counters(LinkCounters),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SandboxEvent {
    AgentExit { node: usize, status: i32 },
}

/// A message to an agent or to the sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ToPeer<T> {
    pub id: u64,
    pub call: T,
}

/// A message from an agent or from the sandbox: an answer or an event.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FromPeer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ok: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<Box<RawValue>>,
}

impl FromPeer {
    pub(crate) fn answer<T: Serialize>(id: u64, result: Result<T, Refusal>) -> Vec<u8> {
        let mut message = Self {
            id: Some(id),
            ..Self::default()
        };
        match result {
            Ok(value) => message.ok = Some(raw(&value)),
            Err(refusal) => message.refused = Some(refusal),
        }
        serde_json::to_vec(&message).expect("messages are plain data")
    }

    pub(crate) fn event<T: Serialize>(event: &T) -> Vec<u8> {
        let message = Self {
            event: Some(raw(event)),
            ..Self::default()
        };
        serde_json::to_vec(&message).expect("messages are plain data")
    }
}

fn raw<T: Serialize>(value: &T) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("messages are plain data")
}
