//! `reserve` and `each_thread`: threads that belong to a generator of their own.

use super::parts::Parts;
use super::{Context, Generator, Next, Threads, Update};

/// Threads partitioned among generators; see [`reserve`].
#[derive(Debug, Clone)]
pub struct Reserve {
    /// What was asked for, until the first context says which threads there are.
    shares: Vec<(usize, Box<dyn Generator>)>,
    rest: Option<Box<dyn Generator>>,
    parts: Option<Parts>,
}

/// The first `n` threads for the first generator, the next for the second, and so on; all others
/// for `rest`. Each sees its own threads only, and what happens on them.
pub fn reserve(
    shares: impl IntoIterator<Item = (usize, Box<dyn Generator>)>,
    rest: impl Generator + 'static,
) -> Reserve {
    Reserve {
        shares: shares.into_iter().collect(),
        rest: Some(rest.boxed()),
        parts: None,
    }
}

impl Reserve {
    fn parts(&mut self, all: &Threads) -> &mut Parts {
        self.parts.get_or_insert_with(|| {
            let mut threads = all.iter();
            let mut parts: Vec<(Threads, Box<dyn Generator>)> = Vec::new();
            for (count, generator) in self.shares.drain(..) {
                parts.push((threads.by_ref().take(count).collect(), generator));
            }
            parts.extend(self.rest.take().map(|rest| (threads.collect(), rest)));
            // A part without threads could never do anything, nor be done.
            parts.retain(|(threads, _)| !threads.is_empty());
            Parts::partitioned(parts)
        })
    }
}

impl Generator for Reserve {
    fn next(&mut self, context: &Context) -> Next {
        self.parts(&context.all).next(context)
    }

    fn accept(&mut self) {
        if let Some(parts) = &mut self.parts {
            parts.accept();
        }
    }

    fn update(&mut self, update: &Update<'_>) {
        if let Some(parts) = &mut self.parts {
            parts.update(update);
        }
    }
}

/// A copy of a generator for each thread; see [`Generator::each_thread`].
#[derive(Debug, Clone)]
pub struct EachThread<G> {
    model: G,
    parts: Option<Parts>,
}

impl<G> EachThread<G> {
    pub(super) fn new(model: G) -> EachThread<G> {
        EachThread { model, parts: None }
    }
}

impl<G: Generator + Clone + 'static> Generator for EachThread<G> {
    fn next(&mut self, context: &Context) -> Next {
        let parts = self.parts.get_or_insert_with(|| {
            let copies = context.all.iter();
            Parts::partitioned(
                copies.map(|thread| (Threads::from_iter([thread]), self.model.boxed_clone())),
            )
        });
        parts.next(context)
    }

    fn accept(&mut self) {
        if let Some(parts) = &mut self.parts {
            parts.accept();
        }
    }

    fn update(&mut self, update: &Update<'_>) {
        if let Some(parts) = &mut self.parts {
            parts.update(update);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{op, sequence};
    use crate::simulate::tests::trace;

    #[test]
    fn reserved_threads_do_their_own_generator_only() {
        let generator = reserve(
            [
                (2, op("a").repeat().boxed()),
                (1, op("b").repeat().delay(25).boxed()),
            ],
            op("c").repeat(),
        )
        .limit(9);
        assert_eq!(
            trace(5, 10, generator),
            [
                "0 0 a", "0 2 b", "0 3 c", "0 1 a", "0 4 c", "10 0 a", "10 3 c", "10 1 a", "10 4 c"
            ]
        );
    }

    #[test]
    fn shares_without_threads_do_not_hold_up_the_end() {
        let generator = reserve([(1, op("a").boxed()), (1, op("b").boxed())], op("c"));
        assert_eq!(trace(1, 10, generator), ["0 0 a"]);
    }

    #[test]
    fn each_thread_does_everything_once() {
        let generator = sequence([op("a").boxed(), op("b").boxed()]).each_thread();
        assert_eq!(
            trace(3, 10, generator),
            ["0 0 a", "0 1 a", "0 2 a", "10 0 b", "10 1 b", "10 2 b"]
        );
    }

    #[test]
    fn each_thread_of_reserved_threads_uses_those_only() {
        let generator = reserve([(1, op("a").limit(1).boxed())], op("b").each_thread());
        assert_eq!(trace(3, 10, generator), ["0 0 a", "0 1 b", "0 2 b"]);
    }
}
