//! `any`: the soonest of several generators.

use super::parts::Parts;
use super::{Context, Generator, Next, Update};

/// Does what is soonest; see [`any`].
#[derive(Debug, Clone)]
pub struct Any(Parts);

/// Whatever one of several generators does soonest. Where two are equally soon they take turns.
/// All of them see all events. Done when all are.
pub fn any(generators: impl IntoIterator<Item = Box<dyn Generator>>) -> Any {
    Any(Parts::sharing(generators))
}

impl Generator for Any {
    fn next(&mut self, context: &Context) -> Next {
        self.0.next(context)
    }

    fn accept(&mut self) {
        self.0.accept();
    }

    fn update(&mut self, update: &Update<'_>) {
        self.0.update(update);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{op, sleep};
    use crate::simulate::tests::trace;

    #[test]
    fn the_soonest_goes_first() {
        let generator = any([
            op("slow").repeat().delay(30).limit(3).boxed(),
            op("fast").repeat().delay(20).limit(4).boxed(),
        ]);
        assert_eq!(
            trace(2, 5, generator),
            [
                "0 0 slow",
                "0 1 fast",
                "20 0 fast",
                "30 1 slow",
                "40 0 fast",
                "60 1 slow",
                "60 0 fast"
            ]
        );
    }

    #[test]
    fn one_that_waits_is_asked_again_in_time() {
        let sleeper = op("woke").once();
        let generator = any([
            crate::generator::sequence([sleep(10).boxed(), sleeper.boxed()]).boxed(),
            crate::generator::sequence([sleep(50).boxed(), op("late").boxed()])
                .delay(0)
                .boxed(),
        ]);
        assert_eq!(trace(1, 5, generator), ["10 0 woke", "50 0 late"]);
    }

    #[test]
    fn nothing_of_nothing_is_done() {
        assert!(trace(1, 5, any([])).is_empty());
    }
}
