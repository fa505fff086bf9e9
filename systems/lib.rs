//! What is tested: how each system is configured, started, asked who leads, and talked to.
