//! What clients do: workloads and the generator algebra.
