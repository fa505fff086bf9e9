//! What a checker may use up: steps, bytes, and the time that somebody else watches.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

/// How many cores there are. To ask the system costs more than to judge a short history.
static CORES: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, NonZero::get));

/// Limits on one checker. The checker counts what it does; time is watched from outside, by
/// whoever calls [`Budget::cancel`].
#[derive(Debug)]
pub struct Budget {
    steps_left: Arc<AtomicU64>,
    bytes_max: u64,
    threads: usize,
    cancelled: Arc<AtomicBool>,
}

/// A limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// The steps were used up.
    #[error("step limit reached")]
    Steps,
    /// The time was used up.
    #[error("time limit reached")]
    Time,
    /// The memory was used up.
    #[error("memory limit of {0} bytes reached")]
    Memory(u64),
}

impl Budget {
    /// The default limit on memory: 1 GiB.
    pub const DEFAULT_BYTES: u64 = 1 << 30;

    /// No limit on steps, and the default limit on memory.
    pub fn unlimited() -> Budget {
        Budget::new(u64::MAX, Budget::DEFAULT_BYTES)
    }

    /// Limits on steps and on bytes.
    pub fn new(steps: u64, bytes_max: u64) -> Budget {
        Budget {
            steps_left: Arc::new(AtomicU64::new(steps)),
            bytes_max,
            threads: *CORES,
            cancelled: Arc::default(),
        }
    }

    /// The same for a check that uses so many threads instead of as many as there are cores. The
    /// verdict does not depend on it.
    #[must_use]
    pub fn on_threads(mut self, threads: usize) -> Budget {
        self.threads = threads.max(1);
        self
    }

    /// How many threads a check may use: one where steps are limited, because which of several
    /// would use the last is chance.
    pub fn threads(&self) -> usize {
        if self.steps_left.load(Ordering::Relaxed) == u64::MAX {
            self.threads
        } else {
            1
        }
    }

    /// The same steps and time, and the part of the memory that one of so many threads may hold.
    pub fn divided(&self, threads: usize) -> Budget {
        Budget {
            steps_left: self.steps_left.clone(),
            bytes_max: self.bytes_max / threads as u64,
            threads: 1,
            cancelled: self.cancelled.clone(),
        }
    }

    /// Ends the check at its next step. Called by whoever watches the time.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Uses up some steps. Call it every few thousand steps of a search, not at each.
    ///
    /// # Errors
    /// When steps or time have run out.
    pub fn spend(&self, steps: u64) -> Result<(), Exhausted> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Exhausted::Time);
        }
        if self.steps_left.load(Ordering::Relaxed) == u64::MAX {
            return Ok(());
        }
        let spent = self
            .steps_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(steps)
            });
        spent.map(|_| ()).map_err(|_| Exhausted::Steps)
    }

    /// Says how many bytes a search holds now.
    ///
    /// # Errors
    /// When that is more than it may.
    pub fn hold(&self, bytes: u64) -> Result<(), Exhausted> {
        if bytes > self.bytes_max {
            Err(Exhausted::Memory(self.bytes_max))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_kept() {
        let budget = Budget::new(10, 100);
        assert_eq!(budget.spend(10), Ok(()));
        assert_eq!(budget.spend(1), Err(Exhausted::Steps));
        assert_eq!(budget.hold(100), Ok(()));
        assert_eq!(budget.hold(101), Err(Exhausted::Memory(100)));
        budget.cancel();
        assert_eq!(budget.spend(0), Err(Exhausted::Time));
    }
}
