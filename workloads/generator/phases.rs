//! `sequence`, `phases` and `synchronize`: one generator after another.

use std::collections::VecDeque;

use super::{Context, Generator, Next, Update};

/// One generator after another; see [`sequence`].
#[derive(Debug, Clone)]
pub struct Sequence(VecDeque<Box<dyn Generator>>);

/// One generator after another, each from when the one before is done. Operations of the one
/// before may still be under way; events are seen by the one whose turn it is.
pub fn sequence(generators: impl IntoIterator<Item = Box<dyn Generator>>) -> Sequence {
    Sequence(generators.into_iter().collect())
}

/// One generator after another, each when the one before is done and all threads are free.
pub fn phases(generators: impl IntoIterator<Item = Box<dyn Generator>>) -> Sequence {
    let generators = generators.into_iter();
    sequence(generators.map(|generator| generator.synchronize().boxed()))
}

impl Generator for Sequence {
    fn next(&mut self, context: &Context) -> Next {
        while let Some(generator) = self.0.front_mut() {
            match generator.next(context) {
                Next::Done => self.0.pop_front(),
                next => return next,
            };
        }
        Next::Done
    }

    fn accept(&mut self) {
        if let Some(generator) = self.0.front_mut() {
            generator.accept();
        }
    }

    fn update(&mut self, update: &Update<'_>) {
        if let Some(generator) = self.0.front_mut() {
            generator.update(update);
        }
    }
}

/// A generator that waits for all its threads; see [`Generator::synchronize`].
#[derive(Debug, Clone)]
pub struct Synchronized<G> {
    inner: G,
    begun: bool,
}

impl<G> Synchronized<G> {
    pub(super) fn new(inner: G) -> Synchronized<G> {
        Synchronized {
            inner,
            begun: false,
        }
    }
}

impl<G: Generator + Clone + 'static> Generator for Synchronized<G> {
    fn next(&mut self, context: &Context) -> Next {
        self.begun = self.begun || context.free.contains_all(&context.all);
        if self.begun {
            self.inner.next(context)
        } else {
            Next::PENDING
        }
    }

    fn accept(&mut self) {
        self.inner.accept();
    }

    fn update(&mut self, update: &Update<'_>) {
        self.inner.update(update);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{Invocation, op};
    use crate::simulate::Completion;
    use crate::simulate::tests::{trace, trace_with};

    /// Even threads take 10 ns, odd ones 50.
    fn uneven(_: u64, op: &Invocation) -> Completion {
        Completion::after([10, 50][op.thread % 2], crate::generator::Outcome::Ok)
    }

    #[test]
    fn a_sequence_does_not_wait_for_what_is_under_way() {
        let generator = sequence([op("a").repeat().limit(3).boxed(), op("b").boxed()]);
        assert_eq!(
            trace_with(2, uneven, generator),
            ["0 0 a", "0 1 a", "10 0 a", "20 0 b"]
        );
    }

    #[test]
    fn a_phase_waits_until_all_threads_are_free() {
        let generator = phases([
            op("a").repeat().limit(3).boxed(),
            op("b").repeat().limit(2).boxed(),
            op("c").boxed(),
        ]);
        assert_eq!(
            trace_with(2, uneven, generator),
            ["0 0 a", "0 1 a", "10 0 a", "50 1 b", "50 0 b", "100 1 c"]
        );
    }

    #[test]
    fn then_is_a_phase() {
        let generator = op("a").repeat().limit(2).then(op("b"));
        assert_eq!(
            trace_with(2, uneven, generator),
            ["0 0 a", "0 1 a", "50 0 b"]
        );
    }

    #[test]
    fn within_reserved_threads_only_those_are_waited_for() {
        let generator = op("a").then(op("b")).on_threads([0].into_iter().collect());
        let generator = crate::generator::any([
            generator.boxed(),
            op("long")
                .repeat()
                .limit(1)
                .on_threads([1].into_iter().collect())
                .boxed(),
        ]);
        assert_eq!(
            trace_with(2, uneven, generator),
            ["0 0 a", "0 1 long", "10 0 b"]
        );
    }

    #[test]
    fn an_empty_sequence_is_done() {
        assert!(trace(1, 1, sequence([])).is_empty());
    }
}
