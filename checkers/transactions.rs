//! What the checkers of transactions share.
//!
//! [`input`] numbers the transactions of a history, [`registers`] says who wrote what they read,
//! [`graph`] holds the dependencies between them and finds its cycles' components, [`anomalies`]
//! names what can be wrong, and [`levels`] says which isolation levels forbid what. [`weak`] decides
//! weak levels of transactions over registers.

pub(crate) mod anomalies;
pub(crate) mod cycles;
pub(crate) mod dsg;
pub(crate) mod graph;
pub(crate) mod input;
pub(crate) mod levels;
pub(crate) mod registers;
pub(crate) mod report;
pub(crate) mod tell;
mod walk;
pub(crate) mod weak;

/// An index as one of the numbers of transactions, keys and versions.
pub(crate) fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 micro-operations")
}
