//! `until_ok`: operations until one of them succeeds.

use super::{Context, Generator, Next, Outcome, Threads, Update};

/// Operations until one is ok; see [`Generator::until_ok`].
#[derive(Debug, Clone)]
pub struct UntilOk<G> {
    inner: G,
    /// The thread of the operation that was said last.
    proposed: usize,
    /// Threads with an operation of this generator; what others do is not its success.
    mine: Threads,
    done: bool,
}

impl<G> UntilOk<G> {
    pub(super) fn new(inner: G) -> UntilOk<G> {
        UntilOk {
            inner,
            proposed: 0,
            mine: Threads::default(),
            done: false,
        }
    }
}

impl<G: Generator + Clone + 'static> Generator for UntilOk<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.done {
            return Next::Done;
        }
        let next = self.inner.next(context);
        if let Next::Op { op, .. } = &next {
            self.proposed = op.thread;
        }
        next
    }

    fn accept(&mut self) {
        self.mine.insert(self.proposed);
        self.inner.accept();
    }

    fn update(&mut self, update: &Update<'_>) {
        if update.outcome.is_completion() && self.mine.remove(update.thread) {
            self.done |= update.outcome == Outcome::Ok;
        }
        self.inner.update(update);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{any, op};
    use crate::simulate::tests::{outcomes, trace_with};

    #[test]
    fn it_ends_with_the_first_success() {
        let generator = op("a").repeat().until_ok();
        let model = outcomes(10, &[Outcome::Fail, Outcome::Info, Outcome::Ok]);
        assert_eq!(
            trace_with(1, model, generator),
            ["0 0 a", "10 0 a", "20 0 a"]
        );
    }

    #[test]
    fn several_may_be_under_way() {
        let generator = op("a").repeat().until_ok();
        let model = outcomes(10, &[Outcome::Fail, Outcome::Fail, Outcome::Ok]);
        assert_eq!(
            trace_with(2, model, generator),
            ["0 0 a", "0 1 a", "10 0 a", "10 1 a"]
        );
    }

    #[test]
    fn the_success_of_others_does_not_count() {
        let generator = any([
            op("mine").repeat().until_ok().boxed(),
            op("other").repeat().limit(3).boxed(),
        ]);
        let fails = |_, op: &crate::generator::Invocation| {
            let outcome = if op.f == "mine" {
                Outcome::Fail
            } else {
                Outcome::Ok
            };
            crate::simulate::Completion::after(10, outcome)
        };
        let trace = trace_with(1, fails, generator.limit(8));
        assert_eq!(
            trace.iter().filter(|line| line.ends_with("mine")).count(),
            5
        );
    }
}
