//! `map`: operations changed on their way.

use std::fmt::Debug;

use super::{Context, Generator, Invocation, Next, Update};

/// Operations as a function changes them; see [`Generator::map`].
#[derive(Clone)]
pub struct Map<G, F> {
    inner: G,
    change: F,
}

impl<G, F> Map<G, F> {
    pub(super) fn new(inner: G, change: F) -> Map<G, F> {
        Map { inner, change }
    }
}

impl<G: Debug, F> Debug for Map<G, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Map").field(&self.inner).finish()
    }
}

impl<G, F> Generator for Map<G, F>
where
    G: Generator + Clone + 'static,
    F: Fn(Invocation) -> Invocation + Clone + Send + 'static,
{
    fn next(&mut self, context: &Context) -> Next {
        match self.inner.next(context) {
            Next::Op { at, op } => Next::Op {
                at,
                op: (self.change)(op),
            },
            next => next,
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
    use crate::generator::op;
    use crate::simulate::tests::trace;

    #[test]
    fn every_operation_is_changed() {
        let generator = op("a")
            .repeat()
            .limit(2)
            .map(|op| Invocation { f: "b", ..op });
        assert_eq!(trace(1, 10, generator), ["0 0 b", "10 0 b"]);
    }
}
