//! How the rest of the process talks to its node: inputs in, answers and beliefs out. What the node
//! does with them is in [`crate::node`].

use crate::Error;
use crate::frames::FrameFile;
use crate::machine::{Command, Machine, Outcome};
use crate::pending::{ReadReply, Refusal, WriteReply};
use raft::StateRole;
use raft::eraftpb::Message;
use std::sync::{Arc, RwLock};
use tokio::sync::{mpsc, oneshot, watch};

/// Something that happens to a node.
#[derive(Debug)]
pub enum Input {
    /// A message from another node.
    Peer(Box<Message>),
    /// Messages to this node are being lost.
    Unreachable(u64),
    /// A snapshot was sent to a node, or could not be.
    SnapshotSent {
        /// The node.
        to: u64,
        /// Whether it was sent.
        ok: bool,
    },
    /// A snapshot of the state machine was written beside the present one.
    SnapshotStaged {
        /// The log index that it contains.
        index: u64,
        /// The file.
        file: Result<FrameFile, Error>,
    },
    /// A client wants something written.
    Write(Command, WriteReply),
    /// A client wants to read something linearizably.
    Read(ReadReply),
}

/// What a node believes; published after every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    /// Its role.
    pub role: StateRole,
    /// The Raft id of the node it takes for the leader.
    pub leader: Option<u64>,
    /// Its term.
    pub term: u64,
    /// The highest index it knows to be committed.
    pub commit: u64,
    /// The highest index that it has applied.
    pub applied: u64,
    /// The last index of its log.
    pub last_index: u64,
}

/// How the rest of the process talks to its node.
#[derive(Clone, Debug)]
pub struct Handle {
    inputs: mpsc::UnboundedSender<Input>,
    belief: watch::Receiver<Belief>,
    machine: Arc<RwLock<Machine>>,
}

impl Handle {
    /// A handle on the node that takes these inputs.
    pub fn new(
        inputs: mpsc::UnboundedSender<Input>,
        belief: watch::Receiver<Belief>,
        machine: Arc<RwLock<Machine>>,
    ) -> Handle {
        Handle {
            inputs,
            belief,
            machine,
        }
    }

    /// Proposes a command and waits for what it does.
    pub async fn write(&self, command: Command) -> Result<Outcome, Refusal> {
        let (reply, answer) = oneshot::channel();
        // A node that is stopping drops its inputs: whether it had proposed this one is not known.
        let _ = self.inputs.send(Input::Write(command, reply));
        answer.await.unwrap_or(Err(Refusal::Unknown))
    }

    /// Waits until [`Handle::look`] shows every write acknowledged before this call.
    pub async fn confirm(&self) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        let _ = self.inputs.send(Input::Read(reply));
        answer
            .await
            .unwrap_or(Err(Refusal::Unavailable("the node is stopping")))
    }

    /// Looks at what this node has applied.
    pub fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(
            &self
                .machine
                .read()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }

    /// What the node believes.
    pub fn belief(&self) -> Belief {
        *self.belief.borrow()
    }

    /// What the node believes, and to be told when that changes.
    pub fn beliefs(&self) -> watch::Receiver<Belief> {
        self.belief.clone()
    }
}
