//! Reports of a run for people: one HTML file, Markdown, and tables for a terminal.
//!
//! A report only shows. It judges nothing: what came out is in the [`RunResult`], and the history
//! gives the picture. What is not known is said to be unknown, and nothing is green without the
//! counts that it rests on.
//!
//! ```text
//! RunResult + History --> timeline, samples, story --> plot --> html
//!          RunResult ------------------------------------------> markdown, index, terminal
//! ```

pub mod html;
pub mod index;
pub mod markdown;
mod plot;
mod samples;
mod sentence;
mod story;
pub mod terminal;
mod timeline;
mod words;

#[cfg(test)]
mod fixtures;

pub use sentence::sentence;
pub use words::plural;

use crate::result::{Outcome, RunResult};

/// A run of a suite and where it lies.
#[derive(Clone, Copy)]
pub struct Cell<'a> {
    /// What it left.
    pub run: &'a RunResult,
    /// Its directory: for an index page relative to that page, for a terminal as a user types it.
    pub dir: &'a str,
}

/// How an outcome is shown: its sign, its words and its style. Against an expectation, a
/// violation may be what was wanted, and a pass may be alarming.
fn judgement(run: &RunResult) -> (&'static str, String, &'static str) {
    let word = run.outcome.word();
    match (run.outcome, run.as_expected) {
        (Outcome::HarnessFailed, _) => ("!", word.to_uppercase(), "dull"),
        (Outcome::Interrupted, _) => ("!", word.to_uppercase(), "dull"),
        (Outcome::Violation, Some(true)) => ("✓", format!("{word}, as expected"), "expected"),
        (_, Some(false)) => ("✗", format!("NOT AS EXPECTED: {word}"), "bad"),
        (Outcome::Held, _) => ("✓", "held".to_owned(), "good"),
        (Outcome::Violation, None) => ("✗", word.to_owned(), "bad"),
        (Outcome::Inconclusive, _) => ("?", word.to_uppercase(), "warn"),
    }
}
