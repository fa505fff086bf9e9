//! What must hold: one checker per property, each a pure function from a history to a verdict.
//!
//! A checker sees a [`History`] and a [`Budget`], never a clock, a file or a cluster. It says
//! `valid`, `invalid` with a counterexample, or `unknown` with a reason; running out of budget is
//! `unknown`, never `valid`. [`CHECKERS`] is the list that the command line and the docs show; to
//! add a checker, add its file and its line there.

mod budget;
mod verdict;

use history::History;

pub use budget::{Budget, Exhausted};
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

    /// The header parameters that it reads, each with its unit and default.
    fn params(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Judges a history.
    fn check(&self, history: &History, budget: &Budget) -> Checked;
}

/// All checkers, in the order in which they are listed.
pub static CHECKERS: &[&dyn Checker] = &[];

/// The checker with this name or alias.
pub fn find(name: &str) -> Option<&'static dyn Checker> {
    CHECKERS
        .iter()
        .copied()
        .find(|checker| checker.name() == name || checker.aliases().contains(&name))
}

/// Runs one checker; a panic inside it becomes its own `unknown(bug)` and hides nothing else.
pub fn run(checker: &dyn Checker, history: &History, budget: &Budget) -> Checked {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        checker.check(history, budget)
    }));
    result.unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Checked::unknown(Reason::Bug(message.to_owned()))
    })
}
