//! What must hold: one checker per property, each a pure function from a history to a verdict.
//!
//! A checker sees a [`History`] and a [`Budget`], never a clock, a file or a cluster. It says
//! `valid`, `invalid` with a counterexample, or `unknown` with a reason; running out of budget is
//! `unknown`, never `valid`. [`CHECKERS`] is the list that the command line and the docs show; to
//! add a checker, add its file and its line there.
//!
//! What several checkers need is read off the history by [`holds`] (locks and leases), [`sets`],
//! [`deliveries`] (queues), [`faults`] and [`observations`] (who leads); [`words`] is how a counterexample is told.

mod actors;
mod budget;
mod causality;
mod constraints;
mod deliveries;
pub mod docs;
mod elements;
mod faults;
mod holds;
mod ident;
mod intervals;
mod observations;
pub mod params;
mod registers;
#[cfg(test)]
mod script;
mod sessions;
mod sets;
mod shrink;
mod suited;
mod ties;
mod transactions;
mod verdict;
mod words;

mod append;
mod availability;
mod bank;
mod causal;
mod causal_reverse;
mod convergence;
mod counter;
mod coverage;
mod crash;
mod election_churn;
mod job_once;
mod lease_early;
mod lease_stuck;
pub mod linearizable;
pub mod log_pattern;
mod long_fork;
mod loss_notice;
mod lost_writes;
mod monotonic_reads;
mod monotonic_writes;
mod mutual_exclusion;
mod queue;
mod read_your_writes;
mod sequential;
mod set_full;
mod split_brain;
mod stale_writes;
mod stats;
mod total_queue;
mod unique_ids;
mod watch;
mod wr;
mod writes_follow_reads;

use history::History;

pub use budget::{Budget, Exhausted};
pub use params::Param;
pub use suited::suited;
pub use verdict::{Checked, Counterexample, Reason, Row, Verdict};

/// A named promise, and the function that says whether a history kept it.
pub trait Checker: Sync {
    /// The name of the property, as users write it: `stale-writes`.
    fn name(&self) -> &'static str;

    /// Other names under which it is known.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// What the property promises, in one sentence.
    fn promise(&self) -> &'static str;

    /// How it is decided, at what cost, and where the rule comes from.
    fn method(&self) -> &'static str;

    /// The header parameters that its verdict depends on.
    fn params(&self) -> &'static [Param] {
        &[]
    }

    /// What it counts, each with what is counted; a name that ends in `:NODE` or `:FUNCTION`
    /// stands for one count for each of them.
    fn counts(&self) -> &'static [(&'static str, &'static str)];

    /// Judges a history.
    fn check(&self, history: &History, budget: &Budget) -> Checked;
}

/// All checkers, in the order in which they are listed.
pub static CHECKERS: &[&dyn Checker] = &[
    &split_brain::SplitBrain,
    &stale_writes::StaleWrites,
    &mutual_exclusion::MutualExclusion,
    &lease_early::LeaseEarly,
    &lease_stuck::LeaseStuck,
    &loss_notice::LossNotice,
    &linearizable::Linearizable,
    &read_your_writes::ReadYourWrites,
    &monotonic_reads::MonotonicReads,
    &monotonic_writes::MonotonicWrites,
    &writes_follow_reads::WritesFollowReads,
    &causal::Causal,
    &causal_reverse::CausalReverse,
    &sequential::Sequential,
    &append::Append,
    &wr::Wr,
    &lost_writes::LostWrites,
    &set_full::SetFull,
    &convergence::Convergence,
    &queue::Queue,
    &total_queue::TotalQueue,
    &counter::Counter,
    &bank::Bank,
    &long_fork::LongFork,
    &watch::Watch,
    &unique_ids::UniqueIds,
    &job_once::JobOnce,
    &availability::Availability,
    &election_churn::ElectionChurn,
    &crash::Crash,
    &log_pattern::LogPattern,
    &stats::Stats,
    &coverage::Coverage,
];

/// The checker with this name or alias.
pub fn find(name: &str) -> Option<&'static dyn Checker> {
    CHECKERS
        .iter()
        .copied()
        .find(|checker| checker.name() == name || checker.aliases().contains(&name))
}

/// Runs one checker: a parameter that it cannot take is `unknown`, the result says what it was
/// judged with, and a panic inside it becomes its own `unknown(bug)` and hides nothing else.
pub fn run(checker: &dyn Checker, history: &History, budget: &Budget) -> Checked {
    if let Err(refused) = params::check(checker, &history.header) {
        return Checked::unknown(Reason::Parameter(refused.to_string()));
    }
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        checker.check(history, budget)
    }));
    let result = result.unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Checked::unknown(Reason::Bug(message.to_owned()))
    });
    match params::in_force(checker, &history.header) {
        Some(in_force) => result.note(in_force),
        None => result,
    }
}
