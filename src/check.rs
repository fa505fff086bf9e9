//! Runs checkers over a history, each within its own limits of time and memory, in parallel.
//!
//! Shared by `schism run` and `schism check`: a verdict does not depend on where a history comes
//! from.

use std::sync::Arc;
use std::time::Duration;

use checkers::{Budget, Checked, Checker, Reason};
use history::History;
use history::clock::Clock;

use crate::result::Property;

/// What one checker may use up.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time.
    pub time: Duration,
    /// Memory, in bytes.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            time: Duration::from_secs(60),
            bytes: Budget::DEFAULT_BYTES,
        }
    }
}

/// Looks names up; aliases are accepted.
///
/// # Errors
/// The first name that no checker has, with a suggestion.
pub fn select(names: &[String]) -> Result<Vec<&'static dyn Checker>, String> {
    let find = |name: &String| {
        checkers::find(name).ok_or_else(|| {
            let known = checkers::CHECKERS.iter().map(|checker| checker.name());
            let hint = match spec::closest(name, known.clone()) {
                Some(close) => format!("did you mean `{close}`?"),
                None => format!("known: {}", known.collect::<Vec<_>>().join(", ")),
            };
            format!("unknown checker `{name}`; {hint}")
        })
    };
    names.iter().map(find).collect()
}

/// Runs the checkers; the results stand in the order in which the checkers were given.
pub async fn run(
    history: &Arc<History>,
    selected: &[&'static dyn Checker],
    limits: Limits,
    claims: &[String],
) -> Vec<Property> {
    let clock = Clock::start();
    let mut running = Vec::new();
    for &checker in selected {
        let budget = Arc::new(Budget::new(u64::MAX, limits.bytes));
        let history = history.clone();
        let own = budget.clone();
        let task = tokio::task::spawn_blocking(move || {
            let begin = clock.now();
            let checked = checkers::run(checker, &history, &own);
            (checked, clock.now() - begin)
        });
        let watchdog = tokio::spawn(async move {
            tokio::time::sleep(limits.time).await;
            budget.cancel();
        });
        running.push((checker, task, watchdog));
    }
    let mut properties = Vec::new();
    for (checker, task, watchdog) in running {
        let (checked, took) = task
            .await
            .unwrap_or_else(|error| (Checked::unknown(Reason::Bug(error.to_string())), 0));
        watchdog.abort();
        properties.push(Property {
            name: checker.name().to_owned(),
            claimed: claims.iter().any(|claim| claim == checker.name()),
            took_ms: took / 1_000_000,
            checked,
        });
    }
    properties
}
