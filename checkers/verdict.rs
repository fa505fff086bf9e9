//! What a checker says: a verdict, the counts that it rests on, and a counterexample.

use serde::{Deserialize, Serialize};

use crate::budget::Exhausted;

/// Whether a property was kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "verdict", content = "reason")]
pub enum Verdict {
    /// No violation was found in this history, by a method that finds every one that it can judge.
    Valid,
    /// The history breaks the promise; the counterexample says where.
    Invalid,
    /// It could not be decided.
    Unknown(Reason),
}

impl Verdict {
    /// `valid`, `invalid`, or `unknown(reason)`.
    pub fn describe(&self) -> String {
        match self {
            Verdict::Valid => "valid".to_owned(),
            Verdict::Invalid => "invalid".to_owned(),
            Verdict::Unknown(reason) => format!("unknown({reason})"),
        }
    }
}

/// Why a property could not be decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "why", content = "detail")]
pub enum Reason {
    /// The time or steps that it was given were used up; the text says how far it got.
    #[error("budget: {0}")]
    Budget(String),
    /// The memory that it was given was used up; the text says how far it got.
    #[error("memory: {0}")]
    Memory(String),
    /// The history does not hold what the property speaks of, or too little of it.
    #[error("{0}")]
    Coverage(String),
    /// The history does not use the vocabulary that this checker reads.
    #[error("not applicable: {0}")]
    NotApplicable(String),
    /// The header gives a parameter that the checker cannot take.
    #[error("parameter {0}")]
    Parameter(String),
    /// The checker itself failed. Please report it.
    #[error("bug in the checker: {0}")]
    Bug(String),
}

impl Reason {
    /// That a limit was reached; the text says how far the checker got.
    pub fn exhausted(limit: Exhausted, text: String) -> Reason {
        let text = format!("{limit}; {text}");
        match limit {
            Exhausted::Memory(_) => Reason::Memory(text),
            Exhausted::Steps | Exhausted::Time => Reason::Budget(text),
        }
    }
}

/// The result of one checker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// What was counted, in a fixed order: a name with its unit (`overlap_ms`) and a number.
    pub counts: Vec<(String, u64)>,
    /// What shows the violation; only with [`Verdict::Invalid`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counterexample: Option<Counterexample>,
    /// What a reader of the verdict should know besides: assumptions made, things left out.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// The events that show a violation, told in at most ten rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counterexample {
    /// One sentence: what happened that must not happen.
    pub summary: String,
    /// The events, in order of the history.
    pub rows: Vec<Row>,
}

/// One event of a counterexample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Index of the event in the history.
    pub event: usize,
    /// What it means here, in words.
    pub note: String,
}

impl Checked {
    /// A result without a violation.
    pub fn valid() -> Checked {
        Checked::new(Verdict::Valid)
    }

    /// A result that could not be decided.
    pub fn unknown(reason: Reason) -> Checked {
        Checked::new(Verdict::Unknown(reason))
    }

    /// A violation.
    pub fn invalid(counterexample: Counterexample) -> Checked {
        Checked {
            counterexample: Some(counterexample),
            ..Checked::new(Verdict::Invalid)
        }
    }

    fn new(verdict: Verdict) -> Checked {
        Checked {
            verdict,
            counts: Vec::new(),
            counterexample: None,
            notes: Vec::new(),
        }
    }

    /// The same result with a count added.
    #[must_use]
    pub fn count(mut self, name: &str, number: u64) -> Checked {
        self.counts.push((name.to_owned(), number));
        self
    }

    /// The same result with a remark added.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Checked {
        self.notes.push(note.into());
        self
    }

    /// The number that was counted under this name.
    pub fn counted(&self, name: &str) -> Option<u64> {
        self.counts
            .iter()
            .find(|(counted, _)| counted == name)
            .map(|&(_, number)| number)
    }
}
