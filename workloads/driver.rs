//! Turns a generator into a stream of invocations: who is free, what is due, what happened.
//!
//! It has no clock and starts nothing. The runner of a test and [`simulate`](crate::simulate)
//! both ask a [`Driver`] for the next step at a time of theirs, and report to it what became of
//! the operations.

use crate::generator::{Context, Generator, Invocation, Next, Outcome, Update};

/// A generator together with its threads.
#[derive(Debug, Clone)]
pub struct Driver {
    generator: Box<dyn Generator>,
    context: Context,
    threads: usize,
    open: usize,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Invoke this now. Its thread counts as busy from here on.
    Invoke(Invocation),
    /// Ask again after the next event, and at this time (nanoseconds since the run began) at the
    /// latest. [`u64::MAX`] where only an event can bring something new; if then no operation is
    /// open either, nothing ever will.
    Wait(u64),
    /// Nothing ever again; operations may still be open.
    Done,
}

impl Driver {
    /// A generator at its beginning, with this many client threads.
    pub fn new(generator: Box<dyn Generator>, threads: usize) -> Driver {
        Driver {
            generator,
            context: Context::new(threads),
            threads,
            open: 0,
        }
    }

    /// The next step, at the time `now` in nanoseconds since the run began. Times that go back
    /// are taken as the latest so far.
    ///
    /// # Panics
    /// If the generator wants a thread that is busy: that is a mistake of the generator.
    pub fn step(&mut self, now: u64) -> Step {
        self.context.time = self.context.time.max(now);
        if self.open == self.threads && self.threads > 0 {
            // Whatever is said now could not be done before one of them is free.
            return Step::Wait(u64::MAX);
        }
        match self.generator.next(&self.context) {
            Next::Op { at, op } if at <= self.context.time => {
                self.begin(&op);
                Step::Invoke(op)
            }
            Next::Op { at: until, .. } | Next::Pending { until } => Step::Wait(until),
            Next::Done => Step::Done,
        }
    }

    /// Reports an event: a completion, or something unasked. A completion frees its thread.
    pub fn report(&mut self, update: &Update<'_>) {
        if update.outcome.is_completion() {
            let was_free = self.context.free.contains(update.thread);
            assert!(
                !was_free && update.thread < self.threads,
                "thread {} completed `{}` but had no open operation",
                update.thread,
                update.f
            );
            self.context.free.insert(update.thread);
            self.open -= 1;
        }
        self.generator.update(update);
    }

    /// How many operations are open.
    pub fn open(&self) -> usize {
        self.open
    }

    fn begin(&mut self, op: &Invocation) {
        assert!(
            self.context.free.remove(op.thread),
            "the generator wants `{}` done by thread {}, which is not free: {:#?}",
            op.f,
            op.thread,
            self.generator
        );
        self.open += 1;
        self.context.last = op.thread;
        self.generator.accept();
        self.generator.update(&Update {
            time: self.context.time,
            thread: op.thread,
            f: op.f,
            key: &op.key,
            value: &op.value,
            error: None,
            outcome: Outcome::Invoked,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::op;
    use serde_json::Value;

    fn completion(thread: usize, outcome: Outcome) -> Update<'static> {
        Update {
            time: 5,
            thread,
            f: "a",
            key: &Value::Null,
            value: &Value::Null,
            error: None,
            outcome,
        }
    }

    #[test]
    fn a_thread_is_busy_until_its_completion() {
        let mut driver = Driver::new(op("a").repeat().delay(3).boxed(), 1);
        assert!(matches!(driver.step(0), Step::Invoke(_)));
        assert_eq!(driver.step(4), Step::Wait(u64::MAX));
        driver.report(&completion(0, Outcome::Unasked));
        assert_eq!(driver.open(), 1);
        driver.report(&completion(0, Outcome::Info));
        assert_eq!(driver.open(), 0);
        assert!(matches!(driver.step(5), Step::Invoke(_)));
        driver.report(&completion(0, Outcome::Ok));
        assert_eq!(driver.step(5), Step::Wait(6));
    }

    #[test]
    #[should_panic(expected = "had no open operation")]
    fn a_completion_without_an_operation_is_a_mistake() {
        Driver::new(op("a").boxed(), 1).report(&completion(0, Outcome::Ok));
    }
}
