//! Tests of all checkers through the public interface: known verdicts, public bugs, oracles that
//! state each definition naively, and histories that make no sense.

mod cases;
mod databases;
mod determinism;
mod docs;
mod levels;
mod locks;
mod made;
mod metamorphic;
mod models;
mod oracles;
mod public;
mod public_bugs;
mod registry;
#[path = "../../script.rs"]
mod script;
#[path = "../../simulator.rs"]
mod simulator;
mod transactions;
mod twins;
mod weird;
