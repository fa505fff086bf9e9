//! The command line of schism.

fn main() {}
