//! The one clock of this crate: `CLOCK_MONOTONIC` in nanoseconds, the same on the controller and in
//! every node of the local backend. It is not wall time, and it is not relative to a run: whoever
//! records a history subtracts the start of the run.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC` now.
///
/// # Panics
/// Never on Linux: the clock always exists.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC exists");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}
