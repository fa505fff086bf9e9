//! Where a test runs: nodes, agents, backends and the emulated network.
