//! The command line of schism.

mod report;
mod result;

fn main() {}
