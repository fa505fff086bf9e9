//! `cycle`: from the beginning again.

use super::{Context, Generator, Next, Update};

/// A generator that begins again; see [`Generator::cycle`].
#[derive(Debug, Clone)]
pub struct Cycle<G> {
    first: G,
    round: G,
    /// Whether this round had anything, be it only a pause. A round that is done at once would be
    /// so for ever.
    had_something: bool,
}

impl<G: Clone> Cycle<G> {
    pub(super) fn new(inner: G) -> Cycle<G> {
        Cycle {
            first: inner.clone(),
            round: inner,
            had_something: false,
        }
    }
}

impl<G: Generator + Clone + 'static> Generator for Cycle<G> {
    fn next(&mut self, context: &Context) -> Next {
        let mut next = self.round.next(context);
        if next == Next::Done && self.had_something {
            self.round = self.first.clone();
            self.had_something = false;
            next = self.round.next(context);
        }
        self.had_something |= matches!(next, Next::Pending { .. });
        next
    }

    fn accept(&mut self) {
        self.had_something = true;
        self.round.accept();
    }

    fn update(&mut self, update: &Update<'_>) {
        self.round.update(update);
    }
}

#[cfg(test)]
mod tests {
    use crate::generator::{Generator, op, sequence, sleep};
    use crate::simulate::tests::trace;

    #[test]
    fn a_sequence_begins_again() {
        let generator = sequence([op("a").boxed(), sleep(5).boxed(), op("b").boxed()])
            .cycle()
            .limit(5);
        assert_eq!(
            trace(1, 10, generator),
            ["0 0 a", "15 0 b", "25 0 a", "40 0 b", "50 0 a"]
        );
    }

    #[test]
    fn nothing_is_not_cycled_for_ever() {
        assert!(trace(1, 10, op("a").limit(0).cycle()).is_empty());
        assert!(trace(1, 10, sleep(0).cycle()).is_empty());
    }
}
