//! Random decisions of a plan: one seed, one stream per name, the same on every machine and in
//! every later version (a golden test pins them).
//!
//! The draws are written here, on the raw output of ChaCha, because the sampling algorithms of
//! general libraries may change between their versions.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A sequence of random decisions that belongs to one name under one seed.
#[derive(Debug)]
pub(crate) struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream of this name. Streams of different names do not disturb each other.
    pub(crate) fn new(seed: u64, name: &str) -> Stream {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(fnv1a(name));
        Stream(rng)
    }

    /// A number below `bound`, each equally likely; 0 when `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Values from the last, incomplete round would make small numbers likelier.
        let rounds = u64::MAX / bound * bound;
        loop {
            let drawn = self.0.next_u64();
            if drawn < rounds {
                return drawn % bound;
            }
        }
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// One of some things; `None` if there is none.
    pub(crate) fn pick<'a, T>(&mut self, things: &'a [T]) -> Option<&'a T> {
        things.get(self.below(things.len() as u64) as usize)
    }

    /// The same things in a random order.
    pub(crate) fn shuffled<T: Clone>(&mut self, things: &[T]) -> Vec<T> {
        let mut things = things.to_vec();
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last as u64 + 1) as usize);
        }
        things
    }
}

fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draws_of_a_seed_never_change() {
        let mut stream = Stream::new(7, "golden");
        let draws: Vec<u64> = (0..6).map(|_| stream.below(1000)).collect();
        assert_eq!(draws, [593, 403, 22, 54, 655, 874]);
        assert_eq!(stream.shuffled(&[1, 2, 3, 4, 5]), [4, 3, 2, 1, 5]);
    }

    #[test]
    fn names_are_streams_of_their_own() {
        let draw = |name| Stream::new(7, name).below(u64::MAX);
        assert_eq!(draw("a"), draw("a"));
        assert_ne!(draw("a"), draw("b"));
    }

    #[test]
    fn every_value_is_reached_and_none_beyond() {
        let mut stream = Stream::new(1, "range");
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[stream.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|&times| times > 120), "{seen:?}");
        assert_eq!(stream.below(0), 0);
        assert!((10..=12).contains(&stream.between(10, 12)));
    }
}
