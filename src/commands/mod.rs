//! The commands: each reads its arguments, does its work through the rest of the controller, and
//! says which exit code that gives.

pub mod check;
pub mod client;
pub mod doctor;
pub mod list;
pub mod run;
