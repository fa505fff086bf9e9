//! Each checker against a naive statement of its definition.
//!
//! An oracle looks at all pairs, all instants or all orders; it shares no code with the checker.

mod appends;
mod causal;
mod collections;
mod distinct;
mod ends;
mod facts;
mod locks;
mod models;
mod registers;
mod sequential;
mod sessions;
mod snapshots;
mod times;
mod watches;
mod wr;

use checkers::{Budget, Checked, Verdict, find};
use history::{EventRef, History, Kind, Op};
use proptest::prelude::*;
use serde_json::Value;

use crate::made::build;

/// What the checker of this name says.
fn check(name: &str, history: &History) -> Checked {
    find(name)
        .expect("a checker of this name")
        .check(history, &Budget::unlimited())
}

/// Whether it convicts; the oracles decide everything that applies.
fn convicts(name: &str, history: &History) -> bool {
    check(name, history).verdict == Verdict::Invalid
}

/// All answered and unanswered operations that call one of these.
fn ops<'h>(history: &'h History, functions: &[&str]) -> Vec<Op<'h>> {
    history
        .ops()
        .filter(|op| functions.contains(&op.f()))
        .collect()
}

/// What a checker counts of the keys `x` and `y` is the sum of what it counts of each by itself, and
/// it convicts if it convicts one.
fn are_sums(name: &str, history: &History, counts: &[&str]) -> Result<(), TestCaseError> {
    let parts = ["x", "y"].map(|key| {
        let own = history.events().map(|event| event.to_event());
        let own = own.filter(|event| event.key == Some(Value::from(key)));
        check(name, &build(history.header.clone(), own.collect()))
    });
    let both = check(name, history);
    let is_invalid = |found: &Checked| found.verdict == Verdict::Invalid;
    prop_assert_eq!(is_invalid(&both), parts.iter().any(is_invalid));
    for count in counts {
        let counted = |found: &Checked| found.counted(count).unwrap_or(0);
        let sum: u64 = parts.iter().map(counted).sum();
        prop_assert_eq!(counted(&both), sum, "{}", count);
    }
    Ok(())
}

/// Where an operation was answered, in the order of the history; `usize::MAX` if never.
fn answered(op: Op<'_>) -> usize {
    op.completion.map_or(usize::MAX, EventRef::index)
}

/// The entry of a map as an integer.
fn int(value: history::ValueRef<'_>, name: &str) -> Option<i64> {
    value.get(name)?.as_i64()
}

/// Whether the event is the answer to an operation.
fn is_answer(event: EventRef<'_>) -> bool {
    event.kind() != Kind::Invoke && event.partner().is_some()
}
