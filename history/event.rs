//! One event of a history: who, when, what, and how it went.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What an event says about its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Kind {
    /// The operation is about to be sent.
    Invoke,
    /// It happened.
    Ok,
    /// It did not happen and never will.
    Fail,
    /// It may have happened, and may yet; or something that nobody asked for (a fault, an
    /// observation, a lock that a client reports as lost).
    Info,
}

impl Kind {
    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Invoke => "invoke",
            Kind::Ok => "ok",
            Kind::Fail => "fail",
            Kind::Info => "info",
        }
    }
}

/// Who did something: a logically single-threaded client, the nemesis, or the observer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Process {
    /// A client process of a generated workload.
    Number(u64),
    /// A client process with a name, or [`Process::NEMESIS`] or [`Process::OBSERVER`].
    Name(String),
}

impl Process {
    /// The name under which faults are recorded.
    pub const NEMESIS: &'static str = "nemesis";
    /// The name under which observations of the cluster are recorded.
    pub const OBSERVER: &'static str = "observer";

    /// The process under which faults are recorded.
    pub fn nemesis() -> Process {
        Process::Name(Process::NEMESIS.to_owned())
    }

    /// The process under which observations of the cluster are recorded.
    pub fn observer() -> Process {
        Process::Name(Process::OBSERVER.to_owned())
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Process::Number(n) => write!(f, "{n}"),
            Process::Name(name) => f.write_str(name),
        }
    }
}

/// One line of the history file, owned. In memory a history is columns: see [`crate::History`].
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Nanoseconds since the run began.
    pub time: u64,
    /// Who.
    pub process: Process,
    /// The node that the event is about or was answered by, where that means something.
    pub node: Option<String>,
    /// Invocation, completion, or something unasked.
    pub kind: Kind,
    /// The function: `read`, `acquire`, `pause`, ...
    pub f: String,
    /// The key that the function works on: a string or an integer.
    pub key: Option<Value>,
    /// Argument of an invocation, result of a completion; `null` where there is none.
    pub value: Value,
    /// Why an operation failed or is indeterminate.
    pub error: Option<String>,
}

impl Event {
    /// An event with no node, key or error.
    pub fn new(time: u64, process: Process, kind: Kind, f: &str, value: Value) -> Event {
        Event {
            time,
            process,
            node: None,
            kind,
            f: f.to_owned(),
            key: None,
            value,
            error: None,
        }
    }

    /// The same event, about a key.
    pub fn with_key(mut self, key: impl Into<Value>) -> Event {
        self.key = Some(key.into());
        self
    }

    /// The same event, about a node.
    pub fn with_node(mut self, node: impl Into<String>) -> Event {
        self.node = Some(node.into());
        self
    }

    /// The same event, with a reason.
    pub fn with_error(mut self, error: impl Into<String>) -> Event {
        self.error = Some(error.into());
        self
    }
}
