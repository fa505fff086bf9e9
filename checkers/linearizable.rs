//! `linearizable`: an object behaves as if there were one copy, and every operation took effect
//! at one moment between its invocation and its completion.
//!
//! For registers, [`model`] turns a history into one partition per key, [`zones`] decides those
//! whose writes are distinct, [`frontier`] the rest by search, and [`explain`] makes the
//! counterexample small and tells it. Any other object is one of [`models`]: [`judge`] reads and
//! decides it, by [`permits`], [`cores`], [`queues`], [`order`] or [`search`], and [`tell`] tells
//! the counterexample.

mod configs;
mod cores;
mod explain;
mod frontier;
mod judge;
mod machine;
mod model;
pub mod models;
mod needs;
mod order;
mod permits;
mod queues;
mod search;
mod tell;
mod zones;

use history::History;

use crate::params::Param;
use crate::words;
use crate::{Budget, Checked, Checker, Exhausted, Reason};

use frontier::Found;
use model::{Model, Partition};

/// A register behaves as if there were one copy of it.
pub struct Linearizable;

impl Checker for Linearizable {
    fn name(&self) -> &'static str {
        "linearizable"
    }

    fn promise(&self) -> &'static str {
        "Each key behaves as one register, or as one object of another model: every operation takes \
         effect at one moment between its invocation and its completion."
    }

    fn method(&self) -> &'static str {
        "Each key by itself. A register whose writes are distinct is decided by zones (Gibbons and \
         Korach, Testing Shared Memories, 1997): O(n log n). Any other by just-in-time \
         linearization (Wing and Gong 1993, Lowe 2017): the set of configurations (value, which \
         pending operations have taken effect) is followed from completion to completion; \
         unanswered operations of equal effect are one class with a count, and a configuration is \
         dropped if another reached the same with fewer of them. Exponential only in the number of \
         distinct operations at once. An unanswered read says nothing and is dropped; a failed \
         operation did not happen. Exact; out of budget is unknown. Other models are listed below."
    }

    fn params(&self) -> &'static [Param] {
        models::all_params()
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            (
                "keys",
                "registers, or independent parts of another model, judged",
            ),
            ("ops", "operations of another model that happened"),
            ("reads", "reads judged"),
            ("writes", "writes that happened"),
            ("cas", "compare-and-sets that happened"),
            (
                "unanswered",
                "operations that change something and whose outcome is unknown",
            ),
            (
                "concurrent_max",
                "most operations of one key open at once, unanswered ones not counted",
            ),
            ("keys_by_zones", "registers decided by zones"),
            (
                "keys_by_shortcut",
                "parts of another model decided without search",
            ),
            ("keys_by_search", "parts of another model decided by search"),
            (
                "keys_undecided",
                "registers or parts not decided within the budget",
            ),
        ]
    }

    fn check(&self, history: &History, budget: &Budget) -> Checked {
        if let Some(entry) = models::of_header(&history.header) {
            return (entry.judge)(history, budget);
        }
        let model = Model::of_header(history);
        let mut partitions = match model.partitions(history) {
            Ok(partitions) => partitions,
            Err(malformed) => return Checked::unknown(Reason::Coverage(malformed)),
        };
        if partitions.is_empty() {
            return Checked::unknown(Reason::NotApplicable(
                "no register was read or written".to_owned(),
            ));
        }
        // Cheap ones first, so that a hard key takes the budget of as few others as possible.
        partitions.sort_by_cached_key(Partition::cost);
        let by_zones = partitions
            .iter()
            .filter(|partition| partition.is_unique())
            .count();
        let mut result = Checked::valid();
        let mut undecided = 0;
        for (at, partition) in partitions.iter().enumerate() {
            match decide(partition, budget) {
                Decision::Linearizable => {}
                Decision::Not(failure) => {
                    result = explain::tell(history, partition, &failure, budget);
                    break;
                }
                Decision::Exhausted { limit, decided } => {
                    undecided = (partitions.len() - at) as u64;
                    let reached = partition.reached(history, decided);
                    let text = format!(
                        "{limit}; {at} of {} keys decided, {reached}",
                        partitions.len()
                    );
                    result = Checked::unknown(match limit {
                        Exhausted::Memory(_) => Reason::Memory(text),
                        Exhausted::Steps | Exhausted::Time => Reason::Budget(text),
                    });
                    break;
                }
            }
        }
        count(result, &partitions)
            .count("keys_by_zones", by_zones as u64)
            .count("keys_undecided", undecided)
    }
}

/// What was found out about one key.
pub(crate) enum Decision {
    /// There is an order that explains every answer.
    Linearizable,
    /// There is none.
    Not(Failure),
    /// A limit was reached.
    Exhausted {
        /// Which.
        limit: Exhausted,
        /// So many of the operations had been decided, by their completion.
        decided: usize,
    },
}

/// Why there is no order, as a start for the explanation.
pub(crate) enum Failure {
    /// These operations alone (places in the partition) have none.
    Core(Vec<usize>),
    /// The completion of this operation cannot be explained, given what was invoked before it.
    At(usize),
}

/// Decides one key by the cheapest method that can.
pub(crate) fn decide(partition: &Partition, budget: &Budget) -> Decision {
    if partition.is_unique() {
        if let Err(limit) = budget.spend(partition.ops.len() as u64) {
            return Decision::Exhausted { limit, decided: 0 };
        }
        zones::decide(partition)
    } else {
        let (mut machine, ops) = model::Actions::of(partition);
        match frontier::decide(&mut machine, &ops, budget) {
            Found::Order => Decision::Linearizable,
            Found::At(place) => Decision::Not(Failure::At(place)),
            Found::Exhausted { limit, decided } => Decision::Exhausted { limit, decided },
        }
    }
}

fn count(result: Checked, partitions: &[Partition]) -> Checked {
    let mut sums = [0u64; 4];
    for op in partitions.iter().flat_map(|partition| &partition.ops) {
        let at = match op.action {
            model::Action::Read(_) | model::Action::NotValue(_) => 0,
            _ if op.is_unanswered() => 3,
            model::Action::Write(_) => 1,
            model::Action::Cas(..) => 2,
        };
        sums[at] += 1;
    }
    let concurrent = partitions.iter().map(Partition::concurrency).max();
    result
        .count("keys", partitions.len() as u64)
        .count("reads", sums[0])
        .count("writes", sums[1])
        .count("cas", sums[2])
        .count("unanswered", sums[3])
        .count("concurrent_max", concurrent.unwrap_or(0) as u64)
}

impl Partition {
    /// The key in words.
    fn name(&self, history: &History) -> String {
        match self.key {
            Some(key) => format!("key {}", words::value(history.key_value(key))),
            None => "the register".to_owned(),
        }
    }

    fn reached(&self, history: &History, decided: usize) -> String {
        format!(
            "then {} up to its completion {decided} of {}",
            self.name(history),
            self.ops.iter().filter(|op| !op.is_unanswered()).count()
        )
    }
}
