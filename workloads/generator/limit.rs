//! `limit` and `time_limit`: an end after some operations, or after some time.

use super::{Context, Generator, Next, Update};

/// At most so many operations; see [`Generator::limit`].
#[derive(Debug, Clone)]
pub struct Limit<G> {
    inner: G,
    left: u64,
}

impl<G> Limit<G> {
    pub(super) fn new(inner: G, count: u64) -> Limit<G> {
        Limit { inner, left: count }
    }
}

impl<G: Generator + Clone + 'static> Generator for Limit<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.left == 0 {
            return Next::Done;
        }
        self.inner.next(context)
    }

    fn accept(&mut self) {
        self.left -= 1;
        self.inner.accept();
    }

    fn update(&mut self, update: &Update<'_>) {
        self.inner.update(update);
    }
}

/// Operations of the first so many nanoseconds; see [`Generator::time_limit`].
#[derive(Debug, Clone)]
pub struct TimeLimit<G> {
    inner: G,
    ns: u64,
    end: Option<u64>,
}

impl<G> TimeLimit<G> {
    pub(super) fn new(inner: G, ns: u64) -> TimeLimit<G> {
        TimeLimit {
            inner,
            ns,
            end: None,
        }
    }
}

impl<G: Generator + Clone + 'static> Generator for TimeLimit<G> {
    fn next(&mut self, context: &Context) -> Next {
        let ns = self.ns;
        let end = *self
            .end
            .get_or_insert_with(|| context.time.saturating_add(ns));
        if context.time >= end {
            return Next::Done;
        }
        match self.inner.next(context) {
            // It may have something sooner after the next event: only time ends this.
            Next::Op { at, .. } if at >= end => Next::Pending { until: end },
            Next::Pending { until } => Next::Pending {
                until: until.min(end),
            },
            next => next,
        }
    }

    fn accept(&mut self) {
        self.inner.accept();
    }

    fn update(&mut self, update: &Update<'_>) {
        self.inner.update(update);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{op, sequence};
    use crate::simulate::tests::trace;

    #[test]
    fn a_limit_counts_operations() {
        assert_eq!(
            trace(2, 10, op("a").repeat().limit(3)),
            ["0 0 a", "0 1 a", "10 0 a"]
        );
        assert!(trace(2, 10, op("a").limit(0)).is_empty());
        assert_eq!(trace(2, 10, op("a").limit(3)), ["0 0 a"]);
    }

    #[test]
    fn a_time_limit_begins_when_it_is_first_asked() {
        let generator = sequence([
            op("a").repeat().time_limit(15).boxed(),
            op("b").repeat().delay(6).time_limit(12).boxed(),
            op("c").boxed(),
        ]);
        assert_eq!(
            trace(1, 5, generator),
            ["0 0 a", "5 0 a", "10 0 a", "15 0 b", "21 0 b", "27 0 c"]
        );
    }
}
