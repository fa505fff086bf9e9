//! Runs a generator without a cluster and without waiting: for tests of generators and workloads.
//!
//! Time is a number that jumps from event to event. How operations end is said by a model: a
//! function from the time and the operation to a [`Completion`]. [`perfect`], [`failing`],
//! [`crashing`] and [`imperfect`] are such models; a system that remembers something is a closure
//! that does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde_json::Value;

use crate::driver::{Driver, Step};
use crate::generator::{Generator, Invocation, Outcome, Update};

/// How an operation ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// Nanoseconds from the invocation to this.
    pub after: u64,
    /// [`Outcome::Ok`], [`Outcome::Fail`] or [`Outcome::Info`].
    pub outcome: Outcome,
    /// The result; `None` repeats the argument.
    pub value: Option<Value>,
    /// The reason of a failure.
    pub error: Option<&'static str>,
}

impl Completion {
    /// An end with neither result nor reason.
    pub fn after(after: u64, outcome: Outcome) -> Completion {
        Completion {
            after,
            outcome,
            value: None,
            error: None,
        }
    }

    /// The same with a result.
    #[must_use]
    pub fn value(mut self, value: Value) -> Completion {
        self.value = Some(value);
        self
    }

    /// The same with a reason.
    #[must_use]
    pub fn error(mut self, error: &'static str) -> Completion {
        self.error = Some(error);
        self
    }
}

/// An event of a simulated run.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Nanoseconds since the run began.
    pub time: u64,
    /// The client thread.
    pub thread: usize,
    /// The process that the thread ran: the thread's number at first, and the number of threads
    /// more after each operation of it that ended with [`Outcome::Info`].
    pub process: usize,
    /// The function.
    pub f: &'static str,
    /// The key, `null` for none.
    pub key: Value,
    /// Argument or result.
    pub value: Value,
    /// The server that was to be asked.
    pub server: Option<usize>,
    /// The reason of a failure.
    pub error: Option<&'static str>,
    /// Invocation or completion.
    pub outcome: Outcome,
}

impl std::fmt::Display for Event {
    /// One line: time, process, outcome, function, key, value, server, reason.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Event { time, process, .. } = self;
        write!(f, "{time} {process} {:?} {}", self.outcome, self.f)?;
        if !self.key.is_null() {
            write!(f, " {}", self.key)?;
        }
        write!(f, " {}", self.value)?;
        if let Some(server) = self.server {
            write!(f, " at server {server}")?;
        }
        if let Some(error) = self.error {
            write!(f, " {error}")?;
        }
        writeln!(f)
    }
}

/// Why a simulation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The generator was done and all operations had ended.
    Done,
    /// The time was up.
    TimeUp,
    /// The generator waited for an event that could not come any more.
    Stuck,
}

/// What happened in a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// All events in their order.
    pub events: Vec<Event>,
    /// Why it ended.
    pub ended: Ended,
}

impl Trace {
    /// The invocations only.
    pub fn invocations(&self) -> impl Iterator<Item = &Event> {
        self.events
            .iter()
            .filter(|event| event.outcome == Outcome::Invoked)
    }
}

/// Every operation is ok after the same latency.
pub fn perfect(latency: u64) -> impl FnMut(u64, &Invocation) -> Completion + Clone {
    move |_, _| Completion::after(latency, Outcome::Ok)
}

/// Every operation fails after the same latency.
pub fn failing(latency: u64) -> impl FnMut(u64, &Invocation) -> Completion + Clone {
    move |_, _| Completion::after(latency, Outcome::Fail).error("refused")
}

/// Every operation is indeterminate after the same latency.
pub fn crashing(latency: u64) -> impl FnMut(u64, &Invocation) -> Completion + Clone {
    move |_, _| Completion::after(latency, Outcome::Info).error("timeout")
}

/// Operations of each thread fail, are indeterminate, and are ok, in turn, with the same latency.
pub fn imperfect(latency: u64) -> impl FnMut(u64, &Invocation) -> Completion + Clone {
    let mut turns: Vec<usize> = Vec::new();
    move |_, op| {
        if turns.len() <= op.thread {
            turns.resize(op.thread + 1, 0);
        }
        turns[op.thread] += 1;
        let outcomes = [Outcome::Ok, Outcome::Fail, Outcome::Info];
        Completion::after(latency, outcomes[turns[op.thread] % 3])
    }
}

/// Runs a generator with `threads` client threads until it is done or `end` nanoseconds have
/// passed; what is open then still ends. At the same time completions come before invocations.
///
/// # Panics
/// If the generator wants a busy thread, or says that it is to be asked again at a time that has
/// passed.
pub fn simulate(
    generator: impl Generator + 'static,
    threads: usize,
    end: u64,
    model: impl FnMut(u64, &Invocation) -> Completion,
) -> Trace {
    let mut simulation = Simulation {
        driver: Driver::new(generator.boxed(), threads),
        threads,
        model,
        processes: (0..threads).collect(),
        due: BinaryHeap::new(),
        open: Vec::new(),
        events: Vec::new(),
    };
    let ended = simulation.run(end);
    simulation.complete_until(u64::MAX);
    Trace {
        events: simulation.events,
        ended,
    }
}

struct Simulation<M> {
    driver: Driver,
    threads: usize,
    model: M,
    /// The process of each thread.
    processes: Vec<usize>,
    /// When open operations end, as places in `open`; earlier invocations first where two end
    /// together.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    open: Vec<(Invocation, Completion)>,
    events: Vec<Event>,
}

impl<M: FnMut(u64, &Invocation) -> Completion> Simulation<M> {
    fn run(&mut self, end: u64) -> Ended {
        let mut now = 0;
        while now < end {
            self.complete_until(now);
            let until = match self.driver.step(now) {
                Step::Invoke(op) => {
                    self.invoke(now, op);
                    continue;
                }
                Step::Wait(until) => until,
                Step::Done => return Ended::Done,
            };
            let completion = self.due.peek().map(|&Reverse((time, _))| time);
            let next = completion.unwrap_or(u64::MAX).min(until);
            if next == u64::MAX {
                return Ended::Stuck;
            }
            assert!(next > now, "asked at {now} it wants to be asked at {next}");
            now = next;
        }
        Ended::TimeUp
    }

    fn invoke(&mut self, now: u64, op: Invocation) {
        let completion = (self.model)(now, &op);
        self.events.push(Event {
            time: now,
            thread: op.thread,
            process: self.processes[op.thread],
            f: op.f,
            key: op.key.clone(),
            value: op.value.clone(),
            server: op.server,
            error: None,
            outcome: Outcome::Invoked,
        });
        let ends = now.saturating_add(completion.after);
        self.due.push(Reverse((ends, self.open.len())));
        self.open.push((op, completion));
    }

    fn complete_until(&mut self, now: u64) {
        while let Some(&Reverse((time, place))) = self.due.peek()
            && time <= now
        {
            self.due.pop();
            let (op, completion) = &self.open[place];
            let event = Event {
                time,
                thread: op.thread,
                process: self.processes[op.thread],
                f: op.f,
                key: op.key.clone(),
                value: completion.value.clone().unwrap_or_else(|| op.value.clone()),
                server: op.server,
                error: completion.error,
                outcome: completion.outcome,
            };
            if completion.outcome == Outcome::Info {
                self.processes[op.thread] += self.threads;
            }
            self.driver.report(&Update {
                time,
                thread: event.thread,
                f: event.f,
                key: &event.key,
                value: &event.value,
                error: event.error,
                outcome: event.outcome,
            });
            self.events.push(event);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::generator::op;

    /// Long after any trace of the tests.
    pub(crate) const END: u64 = 1_000_000_000_000;

    /// What is invoked when every operation is ok after `latency`: time, thread, function.
    pub(crate) fn trace(
        threads: usize,
        latency: u64,
        generator: impl Generator + 'static,
    ) -> Vec<String> {
        trace_with(threads, perfect(latency), generator)
    }

    /// What is invoked under a model: time, thread, function.
    pub(crate) fn trace_with(
        threads: usize,
        model: impl FnMut(u64, &Invocation) -> Completion,
        generator: impl Generator + 'static,
    ) -> Vec<String> {
        let trace = done(simulate(generator, threads, END, model));
        trace
            .invocations()
            .map(|event| format!("{} {} {}", event.time, event.thread, event.f))
            .collect()
    }

    /// As [`trace`], with the values.
    pub(crate) fn trace_values(
        threads: usize,
        latency: u64,
        generator: impl Generator + 'static,
    ) -> Vec<String> {
        let trace = done(simulate(generator, threads, END, perfect(latency)));
        trace
            .invocations()
            .map(|e| format!("{} {} {} {}", e.time, e.thread, e.f, e.value))
            .collect()
    }

    /// When operations are invoked.
    pub(crate) fn times(
        threads: usize,
        latency: u64,
        generator: impl Generator + 'static,
    ) -> Vec<u64> {
        times_with(threads, perfect(latency), generator)
    }

    /// When operations are invoked under a model.
    pub(crate) fn times_with(
        threads: usize,
        model: impl FnMut(u64, &Invocation) -> Completion,
        generator: impl Generator + 'static,
    ) -> Vec<u64> {
        let trace = done(simulate(generator, threads, END, model));
        trace.invocations().map(|event| event.time).collect()
    }

    /// The n-th operation ends with the n-th outcome, from the first again after the last.
    pub(crate) fn outcomes(
        latency: u64,
        outcomes: &'static [Outcome],
    ) -> impl FnMut(u64, &Invocation) -> Completion + Clone {
        let mut outcomes = outcomes.iter().copied().cycle();
        move |_, _| Completion::after(latency, outcomes.next().unwrap_or(Outcome::Ok))
    }

    fn done(trace: Trace) -> Trace {
        assert_eq!(trace.ended, Ended::Done, "{:?}", trace.events);
        trace
    }

    #[test]
    fn a_thread_goes_on_as_another_process_after_info() {
        let generator = op("a").repeat().limit(8);
        let trace = simulate(generator, 2, END, imperfect(10));
        let seen: Vec<(u64, usize, usize, Outcome)> = trace
            .events
            .iter()
            .filter(|event| event.thread == 1)
            .map(|event| (event.time, event.thread, event.process, event.outcome))
            .collect();
        assert_eq!(
            seen,
            [
                (0, 1, 1, Outcome::Invoked),
                (10, 1, 1, Outcome::Fail),
                (10, 1, 1, Outcome::Invoked),
                (20, 1, 1, Outcome::Info),
                (20, 1, 3, Outcome::Invoked),
                (30, 1, 3, Outcome::Ok),
                (30, 1, 3, Outcome::Invoked),
                (40, 1, 3, Outcome::Fail),
            ]
        );
    }

    #[test]
    fn it_ends_when_the_time_is_up_or_nothing_can_come() {
        let trace = simulate(op("a").repeat(), 1, 25, perfect(10));
        assert_eq!(trace.ended, Ended::TimeUp);
        assert_eq!(trace.invocations().count(), 3);
        assert_eq!(trace.events.len(), 6);

        let stuck = simulate(op("a").on_thread(9), 1, 25, perfect(10));
        assert_eq!(stuck.ended, Ended::Stuck);
    }

    #[test]
    fn models_say_how_operations_end() {
        for (trace, outcome, error) in [
            (
                simulate(op("a"), 1, END, failing(5)),
                Outcome::Fail,
                Some("refused"),
            ),
            (
                simulate(op("a"), 1, END, crashing(5)),
                Outcome::Info,
                Some("timeout"),
            ),
            (simulate(op("a"), 1, END, perfect(5)), Outcome::Ok, None),
        ] {
            assert_eq!(trace.events[1].outcome, outcome);
            assert_eq!(trace.events[1].error, error);
            assert_eq!(trace.events[1].time, 5);
        }
    }
}
