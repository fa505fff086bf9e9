//! `on_threads`: a generator for some of the threads.

use super::{Context, Generator, Next, Threads, Update};

/// A generator that sees some threads only; see [`Generator::on_threads`].
#[derive(Debug, Clone)]
pub struct OnThreads<G> {
    inner: G,
    threads: Threads,
    scratch: Context,
}

impl<G> OnThreads<G> {
    pub(super) fn new(inner: G, threads: Threads) -> OnThreads<G> {
        OnThreads {
            inner,
            threads,
            scratch: Context::new(0),
        }
    }
}

impl<G: Generator + Clone + 'static> Generator for OnThreads<G> {
    fn next(&mut self, context: &Context) -> Next {
        self.scratch.restrict(context, &self.threads);
        if self.scratch.all.is_empty() {
            return Next::Done;
        }
        if self.scratch.free.is_empty() {
            return Next::PENDING;
        }
        self.inner.next(&self.scratch)
    }

    fn accept(&mut self) {
        self.inner.accept();
    }

    fn update(&mut self, update: &Update<'_>) {
        if self.threads.contains(update.thread) {
            self.inner.update(update);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::op;
    use crate::simulate::tests::trace;

    #[test]
    fn only_those_threads_do_it() {
        let generator = op("a")
            .repeat()
            .limit(3)
            .on_threads([1, 3].into_iter().collect());
        assert_eq!(trace(4, 10, generator), ["0 1 a", "0 3 a", "10 1 a"]);
    }

    #[test]
    fn threads_that_do_not_exist_have_nothing_to_do() {
        let generator = op("a").on_threads([7].into_iter().collect());
        assert!(trace(2, 10, generator).is_empty());
    }
}
