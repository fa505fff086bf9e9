//! `op`: a single operation.

use serde_json::Value;

use super::{Context, Generator, Invocation, Next, Update};

/// One operation, done once; see [`op`].
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    f: &'static str,
    key: Value,
    value: Value,
    server: Option<usize>,
    thread: Option<usize>,
    done: bool,
}

/// One operation with this function and no key or value, done once on the free thread whose turn
/// it is.
pub fn op(f: &'static str) -> Op {
    Op {
        f,
        key: Value::Null,
        value: Value::Null,
        server: None,
        thread: None,
        done: false,
    }
}

impl Op {
    /// The same on a key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Value>) -> Op {
        self.key = key.into();
        self
    }

    /// The same with an argument.
    #[must_use]
    pub fn value(mut self, value: impl Into<Value>) -> Op {
        self.value = value.into();
        self
    }

    /// The same, asked of this server (an index into the servers' list).
    #[must_use]
    pub fn on_server(mut self, server: usize) -> Op {
        self.server = Some(server);
        self
    }

    /// The same, on this thread as soon as it is free.
    #[must_use]
    pub fn on_thread(mut self, thread: usize) -> Op {
        self.thread = Some(thread);
        self
    }

    /// The thread that would do it now.
    pub(super) fn thread_in(&self, context: &Context) -> Option<usize> {
        match self.thread {
            Some(thread) => context.free.contains(thread).then_some(thread),
            None => context.some_free(),
        }
    }

    /// What it is when `thread` does it.
    pub(super) fn invocation(&self, thread: usize) -> Invocation {
        Invocation {
            thread,
            f: self.f,
            key: self.key.clone(),
            value: self.value.clone(),
            server: self.server,
        }
    }
}

impl Generator for Op {
    fn next(&mut self, context: &Context) -> Next {
        if self.done {
            return Next::Done;
        }
        match self.thread_in(context) {
            Some(thread) => Next::Op {
                at: context.time,
                op: self.invocation(thread),
            },
            None => Next::PENDING,
        }
    }

    fn accept(&mut self) {
        self.done = true;
    }

    fn update(&mut self, _: &Update<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::sequence;
    use crate::simulate::tests::trace;

    #[test]
    fn an_operation_is_done_once_and_carries_what_it_was_given() {
        let mut generator = op("write").key(3).value(7).on_server(1).on_thread(2);
        let context = Context::new(3);
        let Next::Op { at: 0, op } = generator.next(&context) else {
            panic!("not ready");
        };
        assert_eq!(
            op,
            Invocation {
                thread: 2,
                f: "write",
                key: Value::from(3),
                value: Value::from(7),
                server: Some(1),
            }
        );
        generator.accept();
        assert_eq!(generator.next(&context), Next::Done);
    }

    #[test]
    fn it_waits_for_its_thread() {
        let generator = sequence([
            op("a").on_thread(1).boxed(),
            op("b").on_thread(1).boxed(),
            op("c").boxed(),
        ]);
        assert_eq!(trace(2, 10, generator), ["0 1 a", "10 1 b", "10 0 c"]);
    }

    #[test]
    fn threads_take_turns() {
        assert_eq!(
            trace(3, 1, op("a").repeat().delay(10).limit(4)),
            ["0 0 a", "10 1 a", "20 2 a", "30 0 a"]
        );
    }
}
