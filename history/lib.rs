//! The op and event model of schism, the history file, and the history in memory.
//!
//! A history is the append-only, totally ordered record of a run: every invocation and completion
//! of every client process, every fault, and every observation of who leads. It is written by one
//! recorder ([`writer::HistoryWriter`]), read back into compact columns ([`History`]) by
//! [`formats`], and judged by the `checkers` crate. This crate knows nothing about clusters.

pub mod builder;
pub mod clock;
mod columns;
pub mod event;
pub mod formats;
pub mod header;
mod history;
mod import;
mod line;
mod ops;
mod source;
pub mod symbols;
mod syntax;
pub mod txn;
pub mod values;
pub mod writer;

pub use builder::HistoryBuilder;
pub use event::{Event, Kind, Process};
pub use formats::{Options, Read, read_bytes, read_bytes_with, read_path, read_path_with};
pub use header::Header;
pub use history::{EventRef, History, NONE, Op, Outcome};
pub use txn::{Mop, MopKind, MopValue, Txn, Word};
pub use values::{Packed, ValueRef};
pub use writer::HistoryWriter;

/// What can go wrong when a history is read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be opened, read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file as it was named.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line of the file is not what it should be.
    #[error("line {line}, column {column}: {message}")]
    Malformed {
        /// One-based line of the file.
        line: usize,
        /// One-based column (in bytes) of that line; 0 where the whole line is meant.
        column: usize,
        /// What was found and what was expected.
        message: String,
    },
    /// The text is in no format that is known.
    #[error("{0}")]
    Unrecognised(String),
    /// The first line is not the header of a history that this version can read.
    #[error("line 1: {0}")]
    Header(String),
    /// The events contradict each other (an answer without a question, a process with two open ops).
    #[error("event {index}: {message}")]
    Inconsistent {
        /// Zero-based index of the event.
        index: usize,
        /// The contradiction.
        message: String,
    },
}
