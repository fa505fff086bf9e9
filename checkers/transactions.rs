//! What the checkers of transactions share.
//!
//! [`input`] numbers the transactions of a history, [`graph`] holds the dependencies between them
//! and finds its cycles' components, [`anomalies`] names what can be wrong, and [`levels`] says
//! which isolation levels forbid what.

pub(crate) mod anomalies;
pub(crate) mod cycles;
pub(crate) mod dsg;
pub(crate) mod graph;
pub(crate) mod input;
pub(crate) mod levels;
pub(crate) mod report;
pub(crate) mod tell;
mod walk;
