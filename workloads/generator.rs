//! The generator algebra: values that say what to do next.
//!
//! A generator is asked for the next operation with [`Generator::next`], told with
//! [`Generator::accept`] that the operation is being done, and told of every event with
//! [`Generator::update`]. It knows no clock and no client; time and free threads are in the
//! [`Context`], and all randomness comes from a seed. That is what lets
//! [`simulate`](crate::simulate) run it without a cluster.
//!
//! Small generators are [`op`] (one operation), [`from_fn`], [`sleep`] and [`each_ok`]; the
//! methods of [`Generator`] and the functions of this module make large ones of them, each in a
//! file of its own. Names and meanings are those of Jepsen where it has them. A workload with a
//! state of its own implements the trait: see `register.rs`.
//!
//! Asking changes nothing: until it is accepted, an operation may be asked for again, at another
//! time or with other threads free, and then another one may be the answer. That makes
//! [`any`] possible, which asks several generators and does what is soonest, and it makes what a
//! generator does depend on the events and the seed, but not on how often it was asked.

mod any;
mod cycle;
mod each_ok;
mod filter;
mod flip_flop;
mod from_fn;
mod limit;
mod map;
mod mix;
mod on_threads;
mod op;
mod paced;
mod parts;
mod phases;
mod repeat;
mod reserve;
mod sleep;
mod threads;
mod until_ok;

use std::fmt::Debug;

use serde_json::Value;

pub use any::{Any, any};
pub use cycle::Cycle;
pub use each_ok::{EachOk, each_ok};
pub use filter::Filter;
pub use flip_flop::{FlipFlop, flip_flop};
pub use from_fn::{FromFn, from_fn};
pub use limit::{Limit, TimeLimit};
pub use map::Map;
pub use mix::{Mix, mix};
pub use on_threads::OnThreads;
pub use op::{Op, op};
pub use paced::Paced;
pub use phases::{Sequence, Synchronized, phases, sequence};
pub use repeat::Repeat;
pub use reserve::{EachThread, Reserve, reserve};
pub use sleep::{Sleep, sleep};
pub use threads::Threads;
pub use until_ok::UntilOk;

use crate::random::Seed;

/// An operation that a generator wants done.
#[derive(Debug, Clone, PartialEq)]
pub struct Invocation {
    /// The client thread that is to do it. After an indeterminate operation the thread goes on
    /// as another process; generators speak of threads only.
    pub thread: usize,
    /// The function.
    pub f: &'static str,
    /// The key, `null` for none: a string or an integer.
    pub key: Value,
    /// The argument.
    pub value: Value,
    /// The server (an index into the servers' list) that is to be asked; `None` leaves it to the
    /// client.
    pub server: Option<usize>,
}

/// What a generator says when it is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Do this at its time.
    Op {
        /// When, in nanoseconds since the run began; never before the time of the context.
        at: u64,
        /// What to do, on a thread that is free.
        op: Invocation,
    },
    /// Nothing now.
    Pending {
        /// Ask again after the next event, and at this time at the latest. [`u64::MAX`] where
        /// only an event can bring something new.
        until: u64,
    },
    /// Nothing ever again.
    Done,
}

impl Next {
    /// Nothing before the next event.
    pub const PENDING: Next = Next::Pending { until: u64::MAX };
}

/// How an operation ended, as a generator sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was just invoked.
    Invoked,
    /// It happened.
    Ok,
    /// It did not happen.
    Fail,
    /// It may have happened.
    Info,
    /// Nobody asked for it: a lock was lost, a watch event came. `value` says what.
    Unasked,
}

impl Outcome {
    /// Whether it ends an operation, so that its thread is free again.
    pub fn is_completion(self) -> bool {
        matches!(self, Outcome::Ok | Outcome::Fail | Outcome::Info)
    }
}

/// An event as a generator sees it.
#[derive(Debug, Clone, Copy)]
pub struct Update<'a> {
    /// When, in nanoseconds since the run began.
    pub time: u64,
    /// On which thread.
    pub thread: usize,
    /// The function.
    pub f: &'a str,
    /// The key, `null` for none.
    pub key: &'a Value,
    /// Argument of an invocation, result of a completion.
    pub value: &'a Value,
    /// The reason of a failure.
    pub error: Option<&'a str>,
    /// How it went.
    pub outcome: Outcome,
}

/// What a generator may look at when it is asked.
#[derive(Debug, Clone)]
pub struct Context {
    /// Nanoseconds since the run began.
    pub time: u64,
    /// The threads that have no open operation.
    pub free: Threads,
    /// The threads that the generator may use at all. They stay the same for its whole life.
    pub all: Threads,
    /// The thread that did the last operation, so that threads can take turns.
    pub last: usize,
}

impl Context {
    /// The beginning: `threads` threads, all free.
    pub fn new(threads: usize) -> Context {
        Context {
            time: 0,
            free: Threads::first(threads),
            all: Threads::first(threads),
            last: threads.saturating_sub(1),
        }
    }

    /// The free thread whose turn it is.
    pub fn some_free(&self) -> Option<usize> {
        self.free.next_after(self.last)
    }

    /// Makes this the same context as `whole`, but with the threads in `threads` only.
    fn restrict(&mut self, whole: &Context, threads: &Threads) {
        self.time = whole.time;
        self.last = whole.last;
        self.free.set_intersection(&whole.free, threads);
        self.all.set_intersection(&whole.all, threads);
    }
}

/// A value that says what to do next.
pub trait Generator: BoxedClone + Debug + Send {
    /// The next operation, given the time and the free threads. Nothing is done yet: the caller
    /// may ask again, and what was said before is then void.
    fn next(&mut self, context: &Context) -> Next;

    /// The operation that [`Generator::next`] said last is being done. Called only if it said
    /// one, and once.
    fn accept(&mut self);

    /// Learns of an event: first the invocation of an accepted operation, then its completion;
    /// events of other generators' operations may be seen too.
    fn update(&mut self, update: &Update<'_>);

    /// The same generator behind a pointer.
    fn boxed(self) -> Box<dyn Generator>
    where
        Self: Sized + 'static,
    {
        Box::new(self)
    }

    /// At most `count` operations.
    fn limit(self, count: u64) -> Limit<Self>
    where
        Self: Sized,
    {
        Limit::new(self, count)
    }

    /// Only the first operation.
    fn once(self) -> Limit<Self>
    where
        Self: Sized,
    {
        self.limit(1)
    }

    /// Operations that begin less than `ns` nanoseconds after this generator was first asked.
    fn time_limit(self, ns: u64) -> TimeLimit<Self>
    where
        Self: Sized,
    {
        TimeLimit::new(self, ns)
    }

    /// Operations exactly `ns` nanoseconds apart, on all threads together.
    fn delay(self, ns: u64) -> Paced<Self>
    where
        Self: Sized,
    {
        Paced::fixed(self, ns)
    }

    /// Operations about `ns` nanoseconds apart, on all threads together: each gap from 0 to
    /// twice that is as likely.
    fn stagger(self, ns: u64, seed: Seed) -> Paced<Self>
    where
        Self: Sized,
    {
        Paced::uniform(self, ns, seed)
    }

    /// Operations at random, independent times, `per_second` of them a second on all threads
    /// together: what many users who do not know of each other do. With 0 it holds nothing back.
    fn rate(self, per_second: u64, seed: Seed) -> Paced<Self>
    where
        Self: Sized,
    {
        Paced::exponential(
            self,
            1_000_000_000_u64.checked_div(per_second).unwrap_or(0),
            seed,
        )
    }

    /// The next operation of this generator as it is now, again and again.
    fn repeat(self) -> Repeat<Self>
    where
        Self: Sized,
    {
        Repeat::new(self)
    }

    /// This generator from its beginning, whenever it is done. Each round is the same, also in
    /// what is random in it.
    fn cycle(self) -> Cycle<Self>
    where
        Self: Sized + Clone,
    {
        Cycle::new(self)
    }

    /// Operations until one of them is ok. Those that are under way then are not waited for.
    fn until_ok(self) -> UntilOk<Self>
    where
        Self: Sized,
    {
        UntilOk::new(self)
    }

    /// Operations that pass; the others are left out.
    fn filter<F>(self, passes: F) -> Filter<Self, F>
    where
        Self: Sized,
        F: Fn(&Invocation) -> bool + Clone + Send + 'static,
    {
        Filter::new(self, passes)
    }

    /// Operations as `change` makes them. It may be called several times for one operation.
    fn map<F>(self, change: F) -> Map<Self, F>
    where
        Self: Sized,
        F: Fn(Invocation) -> Invocation + Clone + Send + 'static,
    {
        Map::new(self, change)
    }

    /// Operations on these threads only; this generator sees no other threads and no events of
    /// others.
    fn on_threads(self, threads: Threads) -> OnThreads<Self>
    where
        Self: Sized,
    {
        OnThreads::new(self, threads)
    }

    /// A copy of this generator for each thread. Done when all are.
    fn each_thread(self) -> EachThread<Self>
    where
        Self: Sized + Clone + 'static,
    {
        EachThread::new(self)
    }

    /// This generator once all its threads are free.
    fn synchronize(self) -> Synchronized<Self>
    where
        Self: Sized,
    {
        Synchronized::new(self)
    }

    /// This generator; then, when all threads are free, `other`.
    fn then(self, other: impl Generator + Clone + 'static) -> Sequence
    where
        Self: Sized + 'static,
    {
        sequence([self.boxed(), other.synchronize().boxed()])
    }
}

/// What makes boxed generators cloneable. Every generator that is [`Clone`] has it.
pub trait BoxedClone {
    /// A copy with the same future.
    fn boxed_clone(&self) -> Box<dyn Generator>;
}

impl<G: Generator + Clone + 'static> BoxedClone for G {
    fn boxed_clone(&self) -> Box<dyn Generator> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Generator> {
    fn clone(&self) -> Self {
        (**self).boxed_clone()
    }
}

impl Generator for Box<dyn Generator> {
    fn next(&mut self, context: &Context) -> Next {
        (**self).next(context)
    }

    fn accept(&mut self) {
        (**self).accept();
    }

    fn update(&mut self, update: &Update<'_>) {
        (**self).update(update);
    }

    fn boxed(self) -> Box<dyn Generator> {
        self
    }
}

#[cfg(test)]
mod laws;
