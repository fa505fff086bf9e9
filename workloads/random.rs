//! Random numbers that are the same on every machine and in every later version.
//!
//! A [`Seed`] is split by name and by position, so that each part of a workload has a stream of
//! its own and adding a part changes no other. The bits come from `ChaCha8`; what is made of them
//! is written here, with integers and exact comparisons only, because neither the distributions
//! of the `rand` crate nor the logarithms of libraries are promised to stay the same. The tests
//! pin the streams.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(u64);

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random(ChaCha8Rng);

impl Seed {
    /// The seed of a run or of a part of it.
    pub fn new(seed: u64) -> Seed {
        Seed(seed)
    }

    /// The seed of the part with this name.
    #[must_use]
    pub fn named(self, name: &str) -> Seed {
        // FNV-1a, then mixed so that neighbouring names and seeds are far apart.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Seed(scramble(scramble(self.0) ^ hash))
    }

    /// The seed of the part at this position.
    #[must_use]
    pub fn at(self, position: usize) -> Seed {
        Seed(scramble(
            scramble(self.0).wrapping_add((position as u64).wrapping_add(1)),
        ))
    }

    /// The stream that begins here.
    pub fn stream(self) -> Random {
        let mut key = [0; 32];
        for (word, bytes) in (1..).zip(key.chunks_exact_mut(8)) {
            let word = scramble(self.0.wrapping_add(GOLDEN.wrapping_mul(word)));
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Random(ChaCha8Rng::from_seed(key))
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection without visible structure.
fn scramble(word: u64) -> u64 {
    let word = word.wrapping_add(GOLDEN);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Random {
    /// A number below `bound`, each as likely as the others up to one part in 2^64 / `bound`.
    /// Below 0 there is only 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 bits fit a float exactly, and so does the division by a power of two.
        let unit = (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        unit < probability
    }

    /// A number with this mean, each from 0 to just below twice the mean as likely.
    pub fn uniform(&mut self, mean: u64) -> u64 {
        self.below(mean.saturating_mul(2))
    }

    /// The time to the next event of a Poisson process with this mean time between events.
    ///
    /// By von Neumann's method of comparisons (Various techniques used in connection with random
    /// digits, 1951): exact, and without a logarithm.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let mut whole: u64 = 0;
        loop {
            let first = self.0.next_u64();
            let mut last = first;
            let mut length = 1;
            loop {
                let drawn = self.0.next_u64();
                if drawn >= last {
                    break;
                }
                last = drawn;
                length += 1;
            }
            if length % 2 == 1 {
                let part = (u128::from(first) * u128::from(mean)) >> 64;
                return whole.saturating_mul(mean).saturating_add(part as u64);
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_are_pinned() {
        let seed = Seed::new(7).named("lock").at(3);
        let mut random = seed.stream();
        let drawn: Vec<u64> = (0..4).map(|_| random.below(1_000_000)).collect();
        assert_eq!(drawn, GOLDEN_BELOW);
        let gaps: Vec<u64> = (0..4).map(|_| random.exponential(1_000_000)).collect();
        assert_eq!(gaps, GOLDEN_GAPS);
        let heads: Vec<bool> = (0..8).map(|_| random.chance(0.3)).collect();
        assert_eq!(heads, GOLDEN_HEADS);
    }

    const GOLDEN_BELOW: [u64; 4] = [40126, 251419, 491007, 365385];
    const GOLDEN_GAPS: [u64; 4] = [837706, 661851, 1003734, 723058];
    const GOLDEN_HEADS: [bool; 8] = [false, false, false, false, false, false, true, false];

    #[test]
    fn parts_have_streams_of_their_own() {
        let seed = Seed::new(1);
        let parts = [
            seed,
            Seed::new(2),
            seed.named("a"),
            seed.named("b"),
            seed.at(0),
            seed.at(1),
            seed.named("a").at(0),
            seed.at(0).named("a"),
        ];
        let firsts: std::collections::BTreeSet<u64> = parts
            .iter()
            .map(|part| part.stream().below(u64::MAX))
            .collect();
        assert_eq!(firsts.len(), parts.len());
    }

    #[test]
    fn spacings_have_the_mean_and_spread_that_they_promise() {
        let mut random = Seed::new(5).stream();
        let n = 200_000;
        let mean = 1_000_000;
        let gaps: Vec<u64> = (0..n).map(|_| random.exponential(mean)).collect();
        let average = gaps.iter().sum::<u64>() / n;
        assert!(average.abs_diff(mean) < mean / 100, "{average}");
        // A share of 1/e is longer than the mean, and of 1/e^3 longer than three times the mean.
        let longer = |than: u64| gaps.iter().filter(|&&gap| gap > than).count() as f64 / n as f64;
        assert!((longer(mean) - (-1.0_f64).exp()).abs() < 0.01);
        assert!((longer(3 * mean) - (-3.0_f64).exp()).abs() < 0.005);

        let uniform: Vec<u64> = (0..n).map(|_| random.uniform(mean)).collect();
        let average = uniform.iter().sum::<u64>() / n;
        assert!(average.abs_diff(mean) < mean / 100, "{average}");
        assert!(uniform.iter().all(|&gap| gap < 2 * mean));

        let heads = (0..n).filter(|_| random.chance(0.25)).count() as f64 / n as f64;
        assert!((heads - 0.25).abs() < 0.01);
    }
}
