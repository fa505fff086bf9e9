//! `mix`: several generators at random.

use super::{Context, Generator, Next, Update};
use crate::random::{Random, Seed};

/// Several generators at random; see [`mix`].
#[derive(Debug, Clone)]
pub struct Mix {
    parts: Vec<(u32, Box<dyn Generator>)>,
    random: Random,
    /// Whose turn it is; drawn anew when an operation of that one was accepted.
    chosen: Option<usize>,
    proposed: usize,
}

/// Operations of several generators, each chosen with its weight. One that is done is left out
/// from then on. Where the chosen one has nothing now, another one may go before it. Generators
/// of weight 0 are never chosen.
pub fn mix(seed: Seed, generators: impl IntoIterator<Item = (u32, Box<dyn Generator>)>) -> Mix {
    let parts = generators.into_iter().filter(|&(weight, _)| weight > 0);
    Mix {
        parts: parts.collect(),
        random: seed.named("mix").stream(),
        chosen: None,
        proposed: 0,
    }
}

impl Mix {
    fn draw(&mut self) -> usize {
        let total = self
            .parts
            .iter()
            .map(|&(weight, _)| u64::from(weight))
            .sum();
        let mut drawn = self.random.below(total);
        for (index, &(weight, _)) in self.parts.iter().enumerate() {
            match drawn.checked_sub(u64::from(weight)) {
                Some(rest) => drawn = rest,
                None => return index,
            }
        }
        unreachable!("drawn below the sum of the weights")
    }

    /// What those have that were not chosen, when the chosen one must wait until `until`.
    fn next_of_others(&mut self, chosen: usize, context: &Context, mut until: u64) -> Next {
        let count = self.parts.len();
        for index in (chosen + 1..count).chain(0..chosen) {
            match self.parts[index].1.next(context) {
                Next::Op { at, op } if at <= context.time => {
                    self.proposed = index;
                    return Next::Op { at, op };
                }
                Next::Op { at, .. } => until = until.min(at),
                Next::Pending { until: when } => until = until.min(when),
                Next::Done => {}
            }
        }
        Next::Pending { until }
    }
}

impl Generator for Mix {
    fn next(&mut self, context: &Context) -> Next {
        while !self.parts.is_empty() {
            let chosen = match self.chosen {
                Some(chosen) => chosen,
                None => self.draw(),
            };
            self.chosen = Some(chosen);
            self.proposed = chosen;
            match self.parts[chosen].1.next(context) {
                Next::Pending { until } => return self.next_of_others(chosen, context, until),
                Next::Done => {
                    self.parts.remove(chosen);
                    self.chosen = None;
                }
                next => return next,
            }
        }
        Next::Done
    }

    fn accept(&mut self) {
        self.parts[self.proposed].1.accept();
        if self.chosen == Some(self.proposed) {
            self.chosen = None;
        }
    }

    fn update(&mut self, update: &Update<'_>) {
        for (_, generator) in &mut self.parts {
            generator.update(update);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{op, sequence, sleep};
    use crate::simulate::tests::trace;

    fn count(trace: &[String], f: &str) -> usize {
        trace.iter().filter(|line| line.ends_with(f)).count()
    }

    #[test]
    fn weights_are_kept() {
        let generator = mix(
            Seed::new(1),
            [
                (3, op("a").repeat().boxed()),
                (1, op("b").repeat().boxed()),
                (0, op("never").repeat().boxed()),
            ],
        );
        let trace = trace(2, 10, generator.limit(4000));
        assert_eq!(count(&trace, "a") + count(&trace, "b"), 4000);
        assert!(
            count(&trace, "a").abs_diff(3000) < 100,
            "{}",
            count(&trace, "a")
        );
    }

    #[test]
    fn what_is_done_is_left_out() {
        let generator = mix(
            Seed::new(1),
            [
                (1, op("a").repeat().limit(3).boxed()),
                (1, op("b").repeat().limit(5).boxed()),
            ],
        );
        let trace = trace(1, 10, generator);
        assert_eq!((count(&trace, "a"), count(&trace, "b")), (3, 5));
    }

    #[test]
    fn one_that_waits_holds_up_no_other() {
        let late = sequence([sleep(1000).boxed(), op("late").boxed()]);
        let generator = mix(
            Seed::new(1),
            [
                (1_000_000, late.boxed()),
                (1, op("b").repeat().limit(2).boxed()),
            ],
        );
        assert_eq!(trace(1, 10, generator), ["0 0 b", "10 0 b", "1000 0 late"]);
    }
}
