//! `repeat`: the same again and again.

use super::{Context, Generator, Next, Update};

/// The next operation, again and again; see [`Generator::repeat`].
#[derive(Debug, Clone)]
pub struct Repeat<G>(G);

impl<G> Repeat<G> {
    pub(super) fn new(inner: G) -> Repeat<G> {
        Repeat(inner)
    }
}

impl<G: Generator + Clone + 'static> Generator for Repeat<G> {
    fn next(&mut self, context: &Context) -> Next {
        self.0.next(context)
    }

    // The generator never learns that its operation was accepted, so it says it again.
    fn accept(&mut self) {}

    fn update(&mut self, update: &Update<'_>) {
        self.0.update(update);
    }
}

#[cfg(test)]
mod tests {
    use crate::generator::{Generator, op, sequence};
    use crate::simulate::tests::trace;

    #[test]
    fn only_the_next_operation_is_repeated() {
        let generator = sequence([op("a").boxed(), op("b").boxed()])
            .repeat()
            .limit(3);
        assert_eq!(trace(1, 10, generator), ["0 0 a", "10 0 a", "20 0 a"]);
    }
}
