//! conclave: a small replicated coordination service (registers, sessions, locks, leader election,
//! sets, ids, watches) on Raft, and the vault, a protected resource that checks fencing tokens.
//!
//! It is the system that schism demonstrates itself on. It is honest: with no switch set it keeps
//! every promise that [`api`] makes under crashes, freezes and partitions. And it can be broken on
//! purpose: each switch in [`faults`] is one real mistake, so that a checker can be shown to catch
//! it. It is not a database to put data into: its state lives in memory and in one snapshot file.
//!
//! Where to look: [`api`] is what clients see; [`machine`] is what the log means; [`node`] runs
//! Raft; [`storage`] is what survives a crash; [`peers`] carries messages between nodes;
//! [`leases`] decides when a session is over; [`mod@vault`] is the other process.

pub mod api;
pub mod clock;
pub mod faults;
pub mod frames;
pub mod handle;
pub mod leases;
pub mod machine;
pub mod node;
pub mod peers;
pub mod pending;
pub mod routes;
pub mod serve;
pub mod storage;
pub mod trace;
pub mod vault;
pub mod web;

use std::io;
use std::path::PathBuf;

pub use serve::{ServeArgs, serve};
pub use vault::{VaultArgs, vault};

/// What can stop a node or the vault.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line contradicts itself.
    #[error("{0}")]
    Config(String),
    /// A file of the data directory could not be read, written or synced. A node never goes on
    /// after this: what the kernel did with the pages is unknown.
    #[error("cannot {action} {path}")]
    File {
        /// What was attempted.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file was damaged after it had been synced: this is not the torn tail of a crash.
    #[error("{path} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// What was found there.
        what: String,
    },
    /// Another process holds the data directory.
    #[error("data directory {0} is in use by another process")]
    InUse(PathBuf),
    /// An address could not be bound.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address asked for.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// The Raft library refused its configuration or its storage.
    #[error(transparent)]
    Raft(#[from] raft::Error),
    /// A thread or a runtime could not be started.
    #[error("cannot start {what}")]
    Start {
        /// The thread or runtime.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The thread that runs the node ended without an error of its own: it panicked.
    #[error("the {0} thread died")]
    Died(&'static str),
}

impl Error {
    /// Says which action on which file failed; for `map_err`.
    pub(crate) fn file<'a>(
        action: &'static str,
        path: impl Into<PathBuf> + 'a,
    ) -> impl FnOnce(io::Error) -> Error + 'a {
        move |source| Error::File {
            action,
            path: path.into(),
            source,
        }
    }
}
