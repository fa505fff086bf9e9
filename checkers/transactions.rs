//! What the checkers of transactions share.
//!
//! [`input`] numbers the transactions of a history, [`graph`] holds the dependencies between them
//! and finds its cycles' components, [`anomalies`] names what can be wrong, and [`levels`] says
//! which isolation levels forbid what.

pub(crate) mod anomalies;
pub(crate) mod graph;
pub(crate) mod input;
pub(crate) mod levels;
