//! `delay`, `stagger` and `rate`: operations spaced in time.

use super::{Context, Generator, Next, Update};
use crate::random::{Random, Seed};

/// Operations spaced in time; see [`Generator::delay`], [`Generator::stagger`] and
/// [`Generator::rate`].
///
/// The times are a schedule: an operation that takes long does not move those after it. What was
/// missed is made up for if it is less than [`CATCH_UP_NS`] ago, so that a caller with a coarse
/// timer keeps the rate, but not more: an outage is not followed by a burst.
#[derive(Debug, Clone)]
pub struct Paced<G> {
    inner: G,
    spacing: Spacing,
    random: Random,
    /// When the next operation is due; `None` before the first, which is due at once.
    due: Option<u64>,
    proposed: u64,
}

/// How far back missed operations are made up for, in nanoseconds.
pub const CATCH_UP_NS: u64 = 10_000_000;

#[derive(Debug, Clone, Copy)]
enum Spacing {
    Fixed(u64),
    Uniform(u64),
    Exponential(u64),
}

impl<G> Paced<G> {
    pub(super) fn fixed(inner: G, ns: u64) -> Paced<G> {
        Paced::new(inner, Spacing::Fixed(ns), Seed::new(0))
    }

    pub(super) fn uniform(inner: G, ns: u64, seed: Seed) -> Paced<G> {
        Paced::new(inner, Spacing::Uniform(ns), seed.named("stagger"))
    }

    pub(super) fn exponential(inner: G, ns: u64, seed: Seed) -> Paced<G> {
        Paced::new(inner, Spacing::Exponential(ns), seed.named("rate"))
    }

    fn new(inner: G, spacing: Spacing, seed: Seed) -> Paced<G> {
        Paced {
            inner,
            spacing,
            random: seed.stream(),
            due: None,
            proposed: 0,
        }
    }

    fn gap(&mut self) -> u64 {
        match self.spacing {
            Spacing::Fixed(ns) => ns,
            Spacing::Uniform(mean) => self.random.uniform(mean),
            Spacing::Exponential(mean) => self.random.exponential(mean),
        }
    }
}

impl<G: Generator + Clone + 'static> Generator for Paced<G> {
    fn next(&mut self, context: &Context) -> Next {
        match self.inner.next(context) {
            Next::Op { at, op } => {
                let at = at.max(self.due.unwrap_or(0));
                self.proposed = at;
                Next::Op { at, op }
            }
            next => next,
        }
    }

    fn accept(&mut self) {
        self.inner.accept();
        let at = self.proposed;
        let from = match self.due {
            Some(due) => due.max(at.saturating_sub(CATCH_UP_NS)),
            None => at,
        };
        self.due = Some(from.saturating_add(self.gap()));
    }

    fn update(&mut self, update: &Update<'_>) {
        self.inner.update(update);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::op;
    use crate::simulate::tests::{times, trace};

    const MS: u64 = 1_000_000;

    #[test]
    fn a_delay_is_exact_and_shared_by_all_threads() {
        assert_eq!(
            trace(2, 3, op("a").repeat().delay(10).limit(3)),
            ["0 0 a", "10 1 a", "20 0 a"]
        );
    }

    #[test]
    fn what_was_missed_lately_is_made_up_for() {
        assert_eq!(
            trace(1, 25, op("a").repeat().delay(10).limit(5)),
            ["0 0 a", "25 0 a", "50 0 a", "75 0 a", "100 0 a"]
        );
    }

    #[test]
    fn an_outage_is_not_followed_by_a_burst() {
        let mut first = true;
        let outage = move |_, _: &crate::generator::Invocation| {
            let after = if std::mem::take(&mut first) {
                1000 * MS
            } else {
                0
            };
            crate::simulate::Completion::after(after, crate::generator::Outcome::Ok)
        };
        let generator = op("a").repeat().delay(5 * MS).limit(6);
        let begun: Vec<u64> = crate::simulate::tests::times_with(1, outage, generator)
            .iter()
            .map(|ns| ns / MS)
            .collect();
        // Two are made up for, the third is in time again.
        assert_eq!(begun, [0, 1000, 1000, 1000, 1005, 1010]);
    }

    #[test]
    fn a_stagger_has_its_mean_and_its_seed() {
        let run = |seed| {
            times(
                10,
                1,
                op("a").repeat().stagger(100, Seed::new(seed)).limit(2000),
            )
        };
        let begun = run(1);
        assert!(begun[1999].abs_diff(199_900) < 5_000, "{}", begun[1999]);
        assert!(begun.windows(2).all(|pair| pair[1] - pair[0] < 200));
        assert_eq!(run(1), begun);
        assert_ne!(run(2), begun);
    }

    #[test]
    fn a_rate_is_kept_by_its_seed() {
        let run = |seed| {
            times(
                10,
                1,
                op("a").repeat().rate(1000, Seed::new(seed)).limit(2000),
            )
        };
        let begun = run(1);
        assert!(
            begun[1999].abs_diff(2000 * MS) < 100 * MS,
            "{}",
            begun[1999]
        );
        assert_eq!(run(1), begun);
        assert_ne!(run(2), begun);
    }

    #[test]
    fn rate_zero_holds_nothing_back() {
        let generator = op("a").repeat().rate(0, Seed::new(1)).limit(3);
        assert_eq!(trace(1, 10, generator), ["0 0 a", "10 0 a", "20 0 a"]);
    }
}
