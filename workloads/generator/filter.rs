//! `filter`: operations left out.

use std::fmt::Debug;

use super::{Context, Generator, Invocation, Next, Update};

/// Operations that pass; see [`Generator::filter`].
#[derive(Clone)]
pub struct Filter<G, F> {
    inner: G,
    passes: F,
}

/// How many operations in a row are left out before it says that there is nothing now, so that a
/// filter which nothing passes cannot hang a run: a time limit around it still ends it.
const MISSES_MAX: usize = 1000;

impl<G, F> Filter<G, F> {
    pub(super) fn new(inner: G, passes: F) -> Filter<G, F> {
        Filter { inner, passes }
    }
}

impl<G: Debug, F> Debug for Filter<G, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Filter").field(&self.inner).finish()
    }
}

impl<G, F> Generator for Filter<G, F>
where
    G: Generator + Clone + 'static,
    F: Fn(&Invocation) -> bool + Clone + Send + 'static,
{
    fn next(&mut self, context: &Context) -> Next {
        for _ in 0..MISSES_MAX {
            match self.inner.next(context) {
                Next::Op { op, .. } if !(self.passes)(&op) => self.inner.accept(),
                next => return next,
            }
        }
        Next::Pending {
            until: context.time + 1_000_000,
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
    use crate::generator::{from_fn, op};
    use crate::simulate::tests::{trace, trace_values};

    #[test]
    fn what_does_not_pass_is_left_out() {
        let mut n = 0;
        let generator = from_fn(move |_| {
            n += 1;
            (n <= 6).then(|| op("add").value(n))
        })
        .filter(|op| op.value.as_u64().is_some_and(|n| n % 3 == 0));
        assert_eq!(trace_values(1, 10, generator), ["0 0 add 3", "10 0 add 6"]);
    }

    #[test]
    fn a_filter_that_nothing_passes_does_not_hang() {
        let generator = op("a").repeat().filter(|_| false).time_limit(5_000_000);
        assert!(trace(1, 10, generator).is_empty());
    }
}
