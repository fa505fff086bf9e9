//! `from_fn`: operations that a function makes.

use std::fmt::Debug;

use super::{Context, Generator, Next, Op, Update};

/// Operations that a function makes; see [`from_fn`].
#[derive(Clone)]
pub struct FromFn<F> {
    function: F,
    made: Option<Op>,
    done: bool,
}

/// Operations as a function makes them, until it makes none. It is called once an operation, when
/// a thread is free. What it captures (a counter, a random stream) is its state; a copy of the
/// generator copies it.
pub fn from_fn<F>(function: F) -> FromFn<F>
where
    F: FnMut(&Context) -> Option<Op> + Clone + Send + 'static,
{
    FromFn {
        function,
        made: None,
        done: false,
    }
}

impl<F> Debug for FromFn<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FromFn")
            .field("made", &self.made)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl<F> Generator for FromFn<F>
where
    F: FnMut(&Context) -> Option<Op> + Clone + Send + 'static,
{
    fn next(&mut self, context: &Context) -> Next {
        if self.done {
            return Next::Done;
        }
        if self.made.is_none() {
            if context.free.is_empty() {
                return Next::PENDING;
            }
            self.made = (self.function)(context);
        }
        match &mut self.made {
            Some(op) => op.next(context),
            None => {
                self.done = true;
                Next::Done
            }
        }
    }

    fn accept(&mut self) {
        self.made = None;
    }

    fn update(&mut self, _: &Update<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::op;
    use crate::simulate::tests::trace_values;

    #[test]
    fn a_function_is_called_once_an_operation_until_it_has_none() {
        let mut n = 0;
        let generator = from_fn(move |_| {
            n += 1;
            (n <= 3).then(|| op("add").value(n))
        })
        // Held back for a while, so that it is asked often.
        .delay(10);
        assert_eq!(
            trace_values(1, 25, generator),
            ["0 0 add 1", "25 0 add 2", "50 0 add 3"]
        );
    }
}
