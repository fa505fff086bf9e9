//! Tests of conclave as its users meet it: real processes on loopback addresses, killed, stopped and
//! cut off from each other. One file for each kind of promise; [`support`] runs the processes.

mod cluster;
mod sessions;
mod soak;
mod speed;
mod support;
mod switches;
mod vault;
mod watches;
