//! `sleep`: nothing for a while.

use super::{Context, Generator, Next, Update};

/// A pause; see [`sleep`].
#[derive(Debug, Clone)]
pub struct Sleep {
    ns: u64,
    end: Option<u64>,
}

/// Nothing until `ns` nanoseconds after it was first asked; then it is done. It uses no thread.
pub fn sleep(ns: u64) -> Sleep {
    Sleep { ns, end: None }
}

impl Generator for Sleep {
    fn next(&mut self, context: &Context) -> Next {
        let ns = self.ns;
        let until = *self
            .end
            .get_or_insert_with(|| context.time.saturating_add(ns));
        if context.time < until {
            Next::Pending { until }
        } else {
            Next::Done
        }
    }

    fn accept(&mut self) {}

    fn update(&mut self, _: &Update<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{op, phases};
    use crate::simulate::tests::trace;

    #[test]
    fn a_pause_begins_when_it_is_its_turn() {
        let generator = phases([op("a").boxed(), sleep(100).boxed(), op("b").boxed()]);
        assert_eq!(trace(1, 10, generator), ["0 0 a", "110 0 b"]);
    }
}
