//! What can be wrong with a plan, before anything is done to a cluster.

/// Why a plan cannot be run as it is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name, a value or a duration that cannot be taken.
    #[error(transparent)]
    Spec(#[from] spec::Error),
    /// A target that is no target of this fault.
    #[error("`{target}` is no target for {fault}: {why}")]
    Target {
        /// The fault.
        fault: &'static str,
        /// The target as written.
        target: String,
        /// What it would have to be.
        why: String,
    },
    /// A target that no node or link of this cluster can ever match.
    #[error("the target `{target}` matches nothing: {why}")]
    MatchesNothing {
        /// The target as written.
        target: String,
        /// What the cluster lacks.
        why: String,
    },
    /// A combination of parameters that means nothing.
    #[error("{fault}: {why}")]
    Contradiction {
        /// The fault.
        fault: &'static str,
        /// What contradicts what.
        why: String,
    },
    /// More servers would be harmed at once than the quorum budget permits.
    #[error("{faults} would harm {harmed} servers at once, and `max-harmed` is {max}")]
    Budget {
        /// The faults that together exceed it, in words.
        faults: String,
        /// How many servers they would harm.
        harmed: usize,
        /// The budget.
        max: usize,
    },
    /// Faults to choose from, of which there are none.
    #[error("a random plan needs at least one fault to choose from, and time for it: {0}")]
    NothingToDraw(String),
}
