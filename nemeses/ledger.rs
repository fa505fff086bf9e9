//! The ledger of faults, `faults.jsonl`: one line for each step of each fault, with its evidence,
//! written and flushed when it happens.
//!
//! A line that was torn by a crash is the last one, and the reader leaves it out. Trouble in writing
//! is kept and reported at the end; it never stops a fault from being healed.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::{Evidence, Proof};

/// A step in the life of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Its time has come.
    Asked,
    /// It has to wait for another fault to end.
    Postponed,
    /// It never struck, for the reason given.
    NotLanded,
    /// It was put in place.
    Installed,
    /// It was looked whether it is there.
    Verified,
    /// A flapping link became clear.
    FlapUp,
    /// A flapping link was cut again.
    FlapDown,
    /// It was looked whether it was still there, before it was healed.
    Held,
    /// It was undone.
    Healed,
    /// It was looked whether it is gone.
    VerifiedHealed,
    /// Everything that might still have been there was undone, whatever became of single faults.
    HealedAll,
}

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When it was written, in nanoseconds since the run began.
    pub t: u64,
    /// The fault's number in the plan; absent for what concerns all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The fault's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The target as the plan has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// What it was when the fault struck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<String>,
    /// What was done.
    pub step: Step,
    /// Whether it was done; for looks: whether it was as it should be.
    pub ok: bool,
    /// What was seen, in words.
    pub says: String,
    /// The facts behind the words.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub facts: Value,
}

/// What became of one fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultOutcome {
    /// Its number in the plan.
    pub id: u64,
    /// Its name.
    pub fault: String,
    /// The target as the plan has it.
    pub target: String,
    /// What it was when the fault struck; empty if it did not.
    pub resolved: String,
    /// When it was installed, in nanoseconds since the run began.
    pub begin_ns: Option<u64>,
    /// When its undoing began, in nanoseconds since the run began.
    pub end_ns: Option<u64>,
    /// Whether the evidence says that it landed and stayed.
    pub landed: bool,
    /// Whether the evidence says that nothing of it is left.
    pub healed: bool,
    /// The evidence, or why there is none, in words.
    pub evidence: String,
}

/// Writes the ledger.
pub struct Ledger {
    out: Box<dyn Write + Send>,
    trouble: Option<io::Error>,
}

impl Ledger {
    /// A ledger that goes to a file or anywhere else. Each line is flushed.
    pub fn new(out: impl Write + Send + 'static) -> Ledger {
        Ledger {
            out: Box::new(out),
            trouble: None,
        }
    }

    pub(crate) fn write(&mut self, entry: &Entry) {
        let line = serde_json::to_vec(entry)
            .map_err(io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.out.write_all(&line)?;
                self.out.flush()
            });
        if let Err(error) = line {
            self.trouble.get_or_insert(error);
        }
    }

    /// The first error in writing, if there was one.
    pub(crate) fn take_trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }
}

/// Reads a ledger. A last line without its end was torn by a crash and is left out.
///
/// # Errors
/// The number of a line, beginning with 1, that is not one of a ledger, and why.
pub fn read_ledger(text: &str) -> Result<Vec<Entry>, (usize, serde_json::Error)> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().enumerate();
    lines
        .map(|(at, line)| serde_json::from_str(line).map_err(|error| (at + 1, error)))
        .collect()
}

/// Whether a proof is for or against, and the evidence.
pub(crate) fn judged(proof: &Proof) -> (bool, &Evidence) {
    match proof {
        Ok(evidence) => (true, evidence),
        Err(evidence) => (false, evidence),
    }
}
