//! The one monotonic clock of a run: nanoseconds since the run began.
//!
//! Everything that a run records is stamped here. Wall time, for people, is not kept here.

use std::time::Instant;

/// A clock that began at some instant and never goes back. Copies share the beginning.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Starts a clock: `now` is zero at this moment.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the module that the rule points to"
    )]
    pub fn start() -> Clock {
        Clock {
            origin: Instant::now(),
        }
    }

    /// Nanoseconds since the clock was started.
    pub fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The instant at which this clock reads `at` nanoseconds.
    pub fn instant(&self, at: u64) -> Instant {
        self.origin + std::time::Duration::from_nanos(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_goes_back() {
        let clock = Clock::start();
        let mut last = 0;
        for _ in 0..1000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn instants_are_offsets_from_the_start() {
        let clock = Clock::start();
        assert_eq!(
            clock.instant(1_500).duration_since(clock.instant(500)),
            std::time::Duration::from_nanos(1_000)
        );
    }
}
