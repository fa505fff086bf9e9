//! Latencies and rates of a run in bounded space: exact points of a small run, bins of a large one.
//!
//! One pass, a few hundred kilobytes, whatever the number of operations. Latencies go to bins of a
//! logarithmic scale, sixteen a decade from one microsecond to a thousand seconds, so a quantile
//! is right to within 16 %.

use history::{History, Outcome};

/// Runs with at most so many operations show each of them.
const POINTS_MAX: u64 = 3000;
/// Bins of the time axis.
pub const TIME_BINS: usize = 220;
/// How many bins of time are joined to one of rates, the first that gives enough operations each.
const RATE_JOINS: [usize; 4] = [1, 2, 4, 5];
const RATE_OPERATIONS_MIN: u64 = 6;
/// Bins of a decade of latency.
const DECADE_BINS: usize = 16;
const DECADES: usize = 9;
const LATENCY_BINS: usize = DECADE_BINS * DECADES;
const LATENCY_MIN_NS: f64 = 1e3;

/// The three outcomes, in the order of every array here.
pub const OUTCOMES: [Outcome; 3] = [Outcome::Ok, Outcome::Fail, Outcome::Info];

/// An operation that is drawn as itself.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// When it was invoked, ns.
    pub at: u64,
    /// How long it took, ns; `None` if it was never answered.
    pub latency: Option<u64>,
    /// Index into [`OUTCOMES`].
    pub outcome: usize,
}

/// What the operations of one function came to.
#[derive(Debug, Clone)]
pub struct FunctionStats {
    /// The function.
    pub f: String,
    /// How many ended how.
    pub counts: [u64; 3],
    /// The longest latency of an `ok`, ns.
    pub max: u64,
    latencies: Vec<u32>,
}

impl FunctionStats {
    /// The latency, ns, below which this share of the `ok` operations lies.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        quantile(&self.latencies, share).map(|ns| ns.min(self.max))
    }
}

/// Latencies and rates over time.
pub struct Samples {
    /// The end of the time axis, ns.
    pub end: u64,
    /// Every operation, if there are few.
    pub points: Vec<Point>,
    /// Completions in each bin of time; joined by [`Samples::rates`].
    rates: Vec<[u32; 3]>,
    /// Operations that were never answered, in each bin of time by invocation.
    pub unanswered: Vec<u32>,
    /// One entry for each function, in order of first use.
    pub functions: Vec<FunctionStats>,
    /// `cells[outcome][time * LATENCY_BINS + latency]`.
    cells: [Vec<u32>; 3],
}

impl Samples {
    /// Collects the operations of a history.
    pub fn of(history: &History, end: u64) -> Samples {
        let end = end.max(1);
        let cells = || vec![0; TIME_BINS * LATENCY_BINS];
        let mut samples = Samples {
            end,
            points: Vec::new(),
            rates: vec![[0; 3]; TIME_BINS],
            unanswered: vec![0; TIME_BINS],
            functions: Vec::new(),
            cells: [cells(), cells(), cells()],
        };
        let mut total: u64 = 0;
        for op in history.ops() {
            total += 1;
            let outcome = match op.outcome() {
                Outcome::Ok => 0,
                Outcome::Fail => 1,
                Outcome::Info => 2,
            };
            let start = op.start();
            let latency = op
                .completion
                .map(|event| event.time().saturating_sub(start));
            samples.add_to_function(op.f(), outcome, latency);
            let at = samples.time_bin(start);
            match latency {
                Some(ns) => {
                    let done = samples.time_bin(start + ns);
                    samples.rates[done][outcome] += 1;
                    samples.cells[outcome][at * LATENCY_BINS + latency_bin(ns)] += 1;
                }
                None => samples.unanswered[at] += 1,
            }
            if total <= POINTS_MAX {
                samples.points.push(Point {
                    at: start,
                    latency,
                    outcome,
                });
            }
        }
        if total > POINTS_MAX {
            samples.points = Vec::new();
        }
        samples
    }

    /// How many operations there are of each outcome.
    pub fn totals(&self) -> [u64; 3] {
        let mut totals = [0; 3];
        for function in &self.functions {
            for (total, count) in totals.iter_mut().zip(function.counts) {
                *total += count;
            }
        }
        totals
    }

    /// Bins of time and latency with how many operations of an outcome are in them, joined to
    /// `per_decade` bins a decade: begin of the bin of time, latency in its middle, number.
    pub fn cells(&self, outcome: usize) -> impl Iterator<Item = (u64, u64, u32)> + '_ {
        const JOIN: usize = 2;
        let joined = LATENCY_BINS / JOIN;
        (0..TIME_BINS * joined).filter_map(move |cell| {
            let (time, latency) = (cell / joined, cell % joined * JOIN);
            let from = time * LATENCY_BINS + latency;
            let number: u32 = self.cells[outcome][from..from + JOIN].iter().sum();
            (number > 0).then(|| (self.bin_middle(time), bin_ns(latency as f64 + 0.5), number))
        })
    }

    /// Quantile of the `ok` latencies in each bin of time that has at least `least` of them.
    pub fn quantiles(&self, share: f64, least: u32) -> Vec<Option<u64>> {
        self.cells[0]
            .chunks(LATENCY_BINS)
            .map(|bins| {
                let number: u32 = bins.iter().sum();
                (number >= least).then(|| quantile(bins, share)).flatten()
            })
            .collect()
    }

    /// The decades (powers of ten in ns) that hold all latencies; `None` if there is none.
    pub fn decades(&self) -> Option<(i32, i32)> {
        let used = |bin: usize| {
            self.cells
                .iter()
                .any(|cells| cells[bin..].iter().step_by(LATENCY_BINS).any(|&n| n > 0))
        };
        let low = (0..LATENCY_BINS).find(|&bin| used(bin))?;
        let high = (0..LATENCY_BINS).rev().find(|&bin| used(bin))?;
        let decade = |bin: usize| i32::try_from(bin / DECADE_BINS).unwrap_or(0) + 3;
        Some((decade(low), decade(high) + 1))
    }

    /// Completions by outcome in bins of equal length, long enough to hold a few each.
    pub fn rates(&self) -> Vec<[u32; 3]> {
        let total: u64 = self.totals().iter().sum();
        let enough =
            |join: &&usize| total * **join as u64 >= RATE_OPERATIONS_MIN * TIME_BINS as u64;
        let join = RATE_JOINS
            .iter()
            .find(enough)
            .unwrap_or(&RATE_JOINS[RATE_JOINS.len() - 1]);
        self.rates
            .chunks(*join)
            .map(|bins| {
                let mut sums = [0; 3];
                for bin in bins {
                    for (sum, number) in sums.iter_mut().zip(bin) {
                        *sum += number;
                    }
                }
                sums
            })
            .collect()
    }

    /// The length of a bin of time, ns.
    pub fn bin_len(&self) -> u64 {
        (self.end / TIME_BINS as u64).max(1)
    }

    /// The middle of a bin of time, ns.
    pub fn bin_middle(&self, bin: usize) -> u64 {
        let end = u128::from(self.end);
        u64::try_from((2 * bin as u128 + 1) * end / (2 * TIME_BINS as u128)).unwrap_or(u64::MAX)
    }

    fn time_bin(&self, at: u64) -> usize {
        let bin = u128::from(at) * TIME_BINS as u128 / u128::from(self.end);
        usize::try_from(bin)
            .unwrap_or(usize::MAX)
            .min(TIME_BINS - 1)
    }

    fn add_to_function(&mut self, f: &str, outcome: usize, latency: Option<u64>) {
        let at = self
            .functions
            .iter()
            .position(|stats| stats.f == f)
            .unwrap_or_else(|| {
                self.functions.push(FunctionStats {
                    f: f.to_owned(),
                    counts: [0; 3],
                    max: 0,
                    latencies: vec![0; LATENCY_BINS],
                });
                self.functions.len() - 1
            });
        let stats = &mut self.functions[at];
        stats.counts[outcome] += 1;
        if let (0, Some(ns)) = (outcome, latency) {
            stats.max = stats.max.max(ns);
            stats.latencies[latency_bin(ns)] += 1;
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a float cast saturates, and a bin needs no more than a few digits"
)]
fn latency_bin(ns: u64) -> usize {
    let bin = ((ns as f64 / LATENCY_MIN_NS).log10() * DECADE_BINS as f64).floor();
    (bin as usize).min(LATENCY_BINS - 1)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most a thousand seconds, never negative"
)]
fn bin_ns(bin: f64) -> u64 {
    (LATENCY_MIN_NS * 10f64.powf((bin + 0.5) / DECADE_BINS as f64)) as u64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "counts are far below 2^53"
)]
fn quantile(bins: &[u32], share: f64) -> Option<u64> {
    let number: u64 = bins.iter().copied().map(u64::from).sum();
    let rank = ((number as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    let bin = bins.iter().position(|&count| {
        seen += u64::from(count);
        seen >= rank
    })?;
    Some(bin_ns(bin as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use history::{Event, Kind, Process};
    use serde_json::Value;

    #[test]
    fn quantiles_are_right_to_a_bin_and_the_unanswered_are_counted() {
        let mut events = Vec::new();
        for at in 0..1000u64 {
            let start = at * 10_000_000;
            let event =
                |time, kind| Event::new(time, Process::Number(at), kind, "read", Value::Null);
            events.push(event(start, Kind::Invoke));
            if at % 10 != 9 {
                events.push(event(start + 1_000 * (at + 1), Kind::Ok));
            }
        }
        let history: History = events.into_iter().collect();
        let samples = Samples::of(&history, history.end());
        assert_eq!(samples.totals(), [900, 0, 100]);
        assert_eq!(samples.unanswered.iter().sum::<u32>(), 100);
        assert_eq!(samples.points.len(), 1000);
        let stats = &samples.functions[0];
        for (share, exact) in [(0.5, 500_000f64), (0.99, 990_000.0)] {
            let ns = stats.quantile(share).expect("there are operations");
            let off = (ns as f64 / exact).ln().abs();
            assert!(off < 0.16, "{share}: {ns}");
        }
        assert_eq!(samples.decades(), Some((3, 6)));
        let in_cells: u32 = samples.cells(0).map(|(_, _, number)| number).sum();
        assert_eq!(in_cells, 900);
    }

    #[test]
    fn the_extremes_have_bins() {
        assert_eq!(latency_bin(0), 0);
        assert_eq!(latency_bin(1_000), 0);
        assert_eq!(latency_bin(u64::MAX), LATENCY_BINS - 1);
        assert_eq!(latency_bin(999_999), DECADE_BINS * 3 - 1);
        assert_eq!(latency_bin(1_000_000), DECADE_BINS * 3);
    }
}
