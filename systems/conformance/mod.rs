//! The conformance test of client programs: `schism client-test COMMAND...`.
//!
//! First the protocol, without any system: the program is started, spoken to, led before servers
//! that misbehave, and ended (`dialogue.rs`). Then, against one real conclave node and the vault on
//! loopback, whether its operations do what their names say (`semantics.rs`). Each check says what
//! the program printed, what was expected, and where that is written. It is not a test of a system:
//! no fault is injected, and nothing is concluded about conclave.

mod dialogue;
pub mod program;
mod semantics;
mod servers;

use std::path::PathBuf;

use tokio::task::LocalSet;

use crate::Error;
use program::Program;

/// Where the rules are written.
pub const DOCUMENT: &str = "docs/client-protocol.md";

/// What to test.
#[derive(Debug, Clone)]
pub struct Conformance {
    /// The client program and its arguments.
    pub command: Vec<String>,
    /// The system that the hello names.
    pub system: String,
    /// The workloads to try it with.
    pub workloads: Vec<String>,
    /// Whether to leave out what needs a real conclave.
    pub protocol_only: bool,
    /// The executable of schism, which runs that conclave.
    pub exe: PathBuf,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The workload of the hello.
    pub workload: String,
    /// What was checked.
    pub name: &'static str,
    /// How it came out.
    pub outcome: Outcome,
}

/// How a check came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As it must be.
    Passed,
    /// Not as it must be.
    Failed {
        /// What the program did.
        found: String,
        /// What it should have done.
        expected: String,
        /// The section of [`DOCUMENT`] that says so.
        section: &'static str,
    },
}

impl Outcome {
    fn failed(found: impl ToString, expected: impl ToString, section: &'static str) -> Outcome {
        Outcome::Failed {
            found: found.to_string(),
            expected: expected.to_string(),
            section,
        }
    }
}

/// The workloads that the test knows.
pub const WORKLOADS: &[&str] = &["lock", "leader", "register", "set", "ids"];

/// Runs all checks.
///
/// # Errors
/// [`Error::Client`] if the program cannot be started, or conclave cannot.
pub fn run(conformance: &Conformance) -> Result<Vec<Check>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Client(format!("cannot start a runtime: {error}")))?;
    LocalSet::new().block_on(&runtime, async {
        let mut checks = Vec::new();
        for workload in &conformance.workloads {
            dialogue::run(conformance, workload, &mut checks).await?;
        }
        // A program that does not keep to the protocol would only produce more of the same.
        let sound = checks
            .iter()
            .all(|check: &Check| check.outcome == Outcome::Passed);
        if sound && !conformance.protocol_only {
            semantics::run(conformance, &mut checks).await?;
        }
        Ok(checks)
    })
}

/// Whether nothing failed.
pub fn passed(checks: &[Check]) -> bool {
    !checks
        .iter()
        .any(|check| matches!(check.outcome, Outcome::Failed { .. }))
}

/// What a program said that it must not have said.
fn violations(program: &Program) -> Option<Outcome> {
    let first = program.violations.first()?;
    let more = match program.violations.len() {
        1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    Some(Outcome::failed(
        format!("{first}{more}"),
        "only lines of the protocol, and each id answered once",
        "The channel",
    ))
}
