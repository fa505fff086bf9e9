//! `flip_flop`: two generators in turn.

use super::{Context, Generator, Next, Update};

/// Two generators in turn; see [`flip_flop`].
#[derive(Debug, Clone)]
pub struct FlipFlop<A, B> {
    one: A,
    other: B,
    flipped: bool,
}

/// An operation of `one`, then one of `other`, and so on. Done as soon as the one whose turn it
/// is is done.
pub fn flip_flop<A: Generator, B: Generator>(one: A, other: B) -> FlipFlop<A, B> {
    FlipFlop {
        one,
        other,
        flipped: false,
    }
}

impl<A, B> Generator for FlipFlop<A, B>
where
    A: Generator + Clone + 'static,
    B: Generator + Clone + 'static,
{
    fn next(&mut self, context: &Context) -> Next {
        if self.flipped {
            self.other.next(context)
        } else {
            self.one.next(context)
        }
    }

    fn accept(&mut self) {
        if self.flipped {
            self.other.accept();
        } else {
            self.one.accept();
        }
        self.flipped = !self.flipped;
    }

    fn update(&mut self, update: &Update<'_>) {
        self.one.update(update);
        self.other.update(update);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::op;
    use crate::simulate::tests::trace;

    #[test]
    fn they_take_turns_until_one_is_done() {
        let generator = flip_flop(op("a").repeat(), op("b").repeat().limit(2));
        assert_eq!(
            trace(1, 10, generator),
            ["0 0 a", "10 0 b", "20 0 a", "30 0 b", "40 0 a"]
        );
    }
}
