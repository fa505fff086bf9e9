//! `each_ok`: each of some operations until it succeeds.

use std::collections::VecDeque;

use super::{Context, Generator, Next, Op, Outcome, Update};

/// Each of some operations until it is ok; see [`each_ok`].
#[derive(Debug, Clone)]
pub struct EachOk {
    /// In the order in which they are due.
    waiting: VecDeque<Attempt>,
    open: Vec<Option<Attempt>>,
    pause_ns: u64,
    proposed: (usize, usize),
}

#[derive(Debug, Clone)]
struct Attempt {
    op: Op,
    due: u64,
    left: u64,
}

/// Each of some operations until it is ok, but no more than `tries` times, with a pause of at
/// least `pause_ns` after one that was not. As many at once as threads are free: what a final
/// read of every node needs.
pub fn each_ok(ops: impl IntoIterator<Item = Op>, tries: u64, pause_ns: u64) -> EachOk {
    let ops = ops.into_iter().filter(|_| tries > 0);
    EachOk {
        waiting: ops
            .map(|op| Attempt {
                op,
                due: 0,
                left: tries,
            })
            .collect(),
        open: Vec::new(),
        pause_ns,
        proposed: (0, 0),
    }
}

impl Generator for EachOk {
    fn next(&mut self, context: &Context) -> Next {
        if self.waiting.is_empty() && self.open.iter().all(Option::is_none) {
            return Next::Done;
        }
        for (index, attempt) in self.waiting.iter().enumerate() {
            if let Some(thread) = attempt.op.thread_in(context) {
                self.proposed = (index, thread);
                return Next::Op {
                    at: attempt.due.max(context.time),
                    op: attempt.op.invocation(thread),
                };
            }
        }
        Next::PENDING
    }

    fn accept(&mut self) {
        let (index, thread) = self.proposed;
        if self.open.len() <= thread {
            self.open.resize(thread + 1, None);
        }
        self.open[thread] = self.waiting.remove(index);
    }

    fn update(&mut self, update: &Update<'_>) {
        if !update.outcome.is_completion() {
            return;
        }
        let Some(mut attempt) = self.open.get_mut(update.thread).and_then(Option::take) else {
            return;
        };
        attempt.left -= 1;
        if update.outcome != Outcome::Ok && attempt.left > 0 {
            attempt.due = update.time.saturating_add(self.pause_ns);
            self.waiting.push_back(attempt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::op;
    use crate::simulate::tests::{outcomes, trace_with};

    #[test]
    fn each_is_tried_until_it_is_ok_or_has_no_tries_left() {
        let ops = ["a", "b", "c"].map(op);
        let generator = each_ok(ops, 2, 100);
        // a: fail, then ok; b: ok; c: info twice.
        let model = outcomes(
            10,
            &[
                Outcome::Fail,
                Outcome::Ok,
                Outcome::Info,
                Outcome::Ok,
                Outcome::Info,
            ],
        );
        assert_eq!(
            trace_with(2, model, generator),
            ["0 0 a", "0 1 b", "10 0 c", "110 1 a", "120 0 c"]
        );
    }

    #[test]
    fn no_tries_are_no_operations() {
        assert!(trace_with(1, outcomes(10, &[Outcome::Ok]), each_ok([op("a")], 0, 1)).is_empty());
    }
}
