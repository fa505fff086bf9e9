//! The clocks of a node. Leases use [`Clock::Monotonic`]; the wall clock is for log lines, and for
//! the switch `--wall-clock-leases`. No other module of this crate reads a clock for itself.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// What a lease's time is measured with.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// Time since the node began, from a clock that nobody can set.
    Monotonic(Instant),
    /// Time of day, which an administrator or NTP may move: a mistake.
    Wall,
}

impl Clock {
    /// A monotonic clock that begins now.
    pub fn monotonic() -> Clock {
        Clock::Monotonic(Instant::now())
    }

    /// The reading of the clock, since its own origin.
    pub fn now(&self) -> Duration {
        match self {
            Clock::Monotonic(origin) => origin.elapsed(),
            Clock::Wall => wall(),
        }
    }
}

/// The time of day, since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place of this program that asks for the time of day"
)]
fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The time of day as log lines show it.
pub fn timestamp() -> impl std::fmt::Display {
    let now = wall();
    let date = chrono::DateTime::from_timestamp(now.as_secs() as i64, now.subsec_nanos());
    date.unwrap_or_default().format("%Y-%m-%dT%H:%M:%S%.3fZ")
}
