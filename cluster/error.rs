//! What can go wrong with a cluster. Errors that an agent reports come back as [`Refusal`], with the
//! node's name added on the way.

use std::io;

use serde::{Deserialize, Serialize};

/// Why a cluster, a node or the network did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The [`ClusterSpec`](crate::ClusterSpec) cannot be made into a cluster.
    #[error("this cluster cannot be made: {0}")]
    Spec(String),
    /// The sandbox or one of its nodes did not come up.
    #[error("the sandbox failed while {stage}: {cause}")]
    Sandbox {
        /// What was being done.
        stage: String,
        /// What the kernel or the sandbox said, with the end of its log when there is one.
        cause: String,
    },
    /// No node or link of the cluster has this name.
    #[error("no node is called `{0}`")]
    UnknownNode(String),
    /// An agent, or the sandbox, understood the request and did not do it.
    #[error("{peer}: {refusal}")]
    Refused {
        /// The node, or `sandbox`.
        peer: String,
        /// What it said.
        refusal: Refusal,
    },
    /// The channel is gone, and whatever was at the other end with it.
    #[error("the channel to {0} is closed")]
    Closed(String),
    /// The peer sent something that is not in the protocol.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// The node, or `sandbox`.
        peer: String,
        /// What was wrong with it.
        what: String,
    },
    /// The operating system refused something on the controller's side.
    #[error("cannot {what}")]
    Io {
        /// What was being done.
        what: String,
        /// What the operating system said.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// The agent's answer, when this is one.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            _ => None,
        }
    }
}

/// What kind of thing an agent did not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// No service of that name was ever started on this node.
    NoSuchService,
    /// A service of that name has living processes.
    AlreadyRunning,
    /// The program could not be executed.
    CannotStart,
    /// The service has no living process to act on.
    NotRunning,
    /// It was tried, and looking at `/proc` afterwards showed that it did not happen in time.
    NotVerified,
    /// No answer within the timeout.
    Timeout,
    /// The peer of an HTTP request or datagram could not be reached, or did not speak HTTP.
    Unreachable,
    /// A path that leaves the node's directory, or a malformed request.
    BadRequest,
    /// It cannot be done to this process, or on this machine.
    Unsupported,
    /// The node's file system or kernel refused.
    Io,
}

/// An agent's refusal: a kind for programs and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of refusal it is.
    pub kind: RefusalKind,
    /// What happened, for a person.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::new(RefusalKind::Io, format!("cannot {what}: {error}"))
    }
}
