//! The generator algebra: values that say what to do next.
//!
//! A generator is asked for the next operation with [`Generator::next`] and told of every event
//! with [`Generator::update`]. It knows no clock and no client; time and free threads are in the
//! [`Context`], and all randomness comes from a seed. That is what lets `simulate` run it without
//! a cluster.

use serde_json::Value;

/// An operation that a generator wants done.
#[derive(Debug, Clone, PartialEq)]
pub struct Invocation {
    /// The client thread that is to do it.
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
    /// Do this now, or when its time has come.
    Op {
        /// Nanoseconds since the run began; not before this.
        at: u64,
        /// What to do.
        op: Invocation,
    },
    /// Nothing now; ask again when a thread becomes free or time has passed.
    Pending,
    /// Nothing ever again.
    Done,
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
    /// Threads that have no open operation, as bits of words, thread 0 first.
    pub free: Vec<u64>,
    /// How many threads there are.
    pub threads: usize,
}

/// A value that says what to do next.
pub trait Generator: Send {
    /// The next operation, given the time and the free threads. A generator that returned an
    /// operation must assume that it is done: the caller that cannot use it yet keeps it.
    fn next(&mut self, context: &Context) -> Next;

    /// Learns of an event.
    fn update(&mut self, update: &Update<'_>);

    /// A copy with the same future.
    fn boxed_clone(&self) -> Box<dyn Generator>;
}
