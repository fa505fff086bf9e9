//! What a run leaves behind as `result.json`: three separate answers and how to get them again.
//!
//! *Properties* (was each promise kept), *coverage* (did anything happen) and *harness* (did every
//! stage do its work) are never mixed. [`Exit`] folds them into the one number that CI sees. How
//! runs are executed is in `run/`; how this is shown to people is in `report/`.

use std::collections::BTreeMap;

use checkers::{Checked, Verdict};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// Version of `result.json`.
pub const RESULT_SCHEMA: u32 = 1;

/// Everything that is known about one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunResult {
    /// Version of this format, [`RESULT_SCHEMA`].
    pub schema: u32,
    /// Short id of the run, unique among results.
    pub id: String,
    /// The suite that it belongs to.
    pub suite: String,
    /// Stable id of the cell of the suite: `frozen-holder/naive`.
    pub cell: String,
    /// The workload.
    pub workload: String,
    /// The system under test.
    pub system: SystemInfo,
    /// What the nodes were made of: `local`.
    pub backend: String,
    /// The seed of everything random in this run.
    pub seed: u64,
    /// When it began, by the wall clock of the controller.
    pub started: DateTime<Utc>,
    /// How long it took, checks included.
    pub duration_ms: u64,
    /// What came out, by the precedence of [`Exit`].
    pub outcome: Outcome,
    /// What the cell was expected to give, if it said so: `invalid:stale-writes`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expect: Option<String>,
    /// Whether it came out as expected; only with `expect`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub as_expected: Option<bool>,
    /// What came out, in one plain sentence.
    pub sentence: String,
    /// Each property that was checked.
    pub properties: Vec<Property>,
    /// Whether enough happened for a verdict to mean something.
    pub coverage: Checked,
    /// Each stage of the run.
    pub harness: Vec<Stage>,
    /// What was done to the cluster.
    pub faults: Vec<FaultOutcome>,
    /// The nodes.
    pub nodes: Vec<NodeInfo>,
    /// Where it ran: kernel, processors, versions.
    pub environment: BTreeMap<String, String>,
    /// How schism was called.
    pub argv: Vec<String>,
    /// The command that runs the same plan again.
    pub replay: String,
    /// SHA-256 of the files beside this one, by name.
    pub digests: BTreeMap<String, String>,
    /// What else a reader should know.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// The system under test.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SystemInfo {
    /// Its name.
    pub name: String,
    /// Its version as it says it.
    pub version: String,
    /// The parameters that it ran with.
    pub params: spec::Params,
}

/// One property and what its checker said.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Property {
    /// The name of the checker.
    pub name: String,
    /// Whether the system promises it; if not, a violation is reported but does not turn the run
    /// red.
    pub claimed: bool,
    /// How long the check took.
    pub took_ms: u64,
    /// The verdict, its counts and its counterexample.
    #[serde(flatten)]
    pub checked: Checked,
}

/// One stage of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stage {
    /// Its name: `cluster`, `system`, `clients`, `drive`, `heal`, `settle`, `final-reads`, `logs`,
    /// `teardown`, `check`.
    pub name: String,
    /// How long it took.
    pub took_ms: u64,
    /// Why it failed, with the node and what was seen; `None` if it did its work.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// One fault of the plan and what became of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultOutcome {
    /// Its number in the plan.
    pub id: u64,
    /// The fault: `freeze`.
    pub fault: String,
    /// The target as the plan names it: `holder`.
    pub target: String,
    /// What the target was when the fault struck: `c2`.
    pub resolved: String,
    /// When it was installed, ms since the run began.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub begin_ms: Option<u64>,
    /// When it was healed, ms since the run began.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end_ms: Option<u64>,
    /// Whether the evidence says that it landed.
    pub landed: bool,
    /// Whether the evidence says that it is gone.
    pub healed: bool,
    /// The evidence, or why it did not land, in words.
    pub evidence: String,
}

/// One node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Its name: `n1`, `c1`, `vault`.
    pub name: String,
    /// `server`, `client` or `vault`.
    pub role: String,
    /// Its address in the test network.
    pub addr: String,
}

/// What came out of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every claimed property held, and enough happened.
    Held,
    /// A claimed property was broken.
    Violation,
    /// A claimed property could not be decided, or too little happened.
    Inconclusive,
    /// A stage of the harness failed.
    HarnessFailed,
    /// Somebody ended it.
    Interrupted,
}

impl Outcome {
    /// The word that people see.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Held => "held",
            Outcome::Violation => "VIOLATION",
            Outcome::Inconclusive => "inconclusive",
            Outcome::HarnessFailed => "harness failed",
            Outcome::Interrupted => "interrupted",
        }
    }

    /// Folds the three answers: a violation outranks a harness failure, which outranks an
    /// undecided property, or that there was none to decide, which outranks a pass.
    pub fn of(properties: &[Property], coverage: &Checked, harness: &[Stage]) -> Outcome {
        let claimed = || properties.iter().filter(|property| property.claimed);
        if claimed().any(|property| property.checked.verdict == Verdict::Invalid) {
            Outcome::Violation
        } else if harness.iter().any(|stage| stage.error.is_some()) {
            Outcome::HarnessFailed
        } else if coverage.verdict != Verdict::Valid
            || claimed().next().is_none()
            || claimed().any(|property| property.checked.verdict != Verdict::Valid)
        {
            Outcome::Inconclusive
        } else {
            Outcome::Held
        }
    }
}

/// The exit code of `run`, `check` and what will follow them. Part of the public interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Every claimed property held and coverage was met.
    Held = 0,
    /// A violation, somewhere.
    Violation = 1,
    /// The command line or the spec is wrong.
    Usage = 2,
    /// A checker gave up within its budget, or coverage was not met.
    Inconclusive = 3,
    /// The harness or its environment failed.
    Harness = 4,
    /// Nothing was selected.
    Nothing = 5,
    /// Interrupted by SIGINT; faults healed, partial results kept.
    Interrupted = 130,
    /// Interrupted by SIGTERM; faults healed, partial results kept.
    Terminated = 143,
}

impl Exit {
    /// All codes with what they mean and what CI should do, for the docs.
    pub const ALL: &'static [(Exit, &'static str, &'static str)] = &[
        (
            Exit::Held,
            "every claimed property held and coverage was met",
            "go on",
        ),
        (
            Exit::Violation,
            "a violation, somewhere",
            "stop; never retry it away",
        ),
        (Exit::Usage, "usage or spec error", "fix it"),
        (
            Exit::Inconclusive,
            "a checker gave up, or coverage was not met",
            "not a pass",
        ),
        (Exit::Harness, "harness or environment failed", "retry"),
        (Exit::Nothing, "nothing was selected", "fail"),
        (
            Exit::Interrupted,
            "interrupted; healed, partial results kept",
            "retry",
        ),
        (
            Exit::Terminated,
            "terminated; healed, partial results kept",
            "retry",
        ),
    ];

    /// The worst of several outcomes: 1 > 4 > 3 > 0.
    pub fn of(outcomes: impl IntoIterator<Item = Outcome>) -> Exit {
        let rank = |exit: Exit| match exit {
            Exit::Violation => 5,
            Exit::Interrupted | Exit::Terminated => 4,
            Exit::Harness => 3,
            Exit::Inconclusive => 2,
            Exit::Held => 1,
            Exit::Usage | Exit::Nothing => 0,
        };
        outcomes
            .into_iter()
            .map(|outcome| match outcome {
                Outcome::Held => Exit::Held,
                Outcome::Violation => Exit::Violation,
                Outcome::Inconclusive => Exit::Inconclusive,
                Outcome::HarnessFailed => Exit::Harness,
                Outcome::Interrupted => Exit::Interrupted,
            })
            .max_by_key(|&exit| rank(exit))
            .unwrap_or(Exit::Nothing)
    }
}

/// How a cell with an expectation counts: a canary that is convicted as expected is held, one that
/// is not is a violation of the harness's own promise. A harness failure or an interruption is
/// what it is, whatever was expected.
pub fn judged(outcome: Outcome, as_expected: Option<bool>) -> Outcome {
    match (outcome, as_expected) {
        (Outcome::HarnessFailed | Outcome::Interrupted, _) | (_, None) => outcome,
        (_, Some(true)) => Outcome::Held,
        (_, Some(false)) => Outcome::Violation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkers::{Counterexample, Reason};

    fn property(claimed: bool, checked: Checked) -> Property {
        Property {
            name: "p".to_owned(),
            claimed,
            took_ms: 0,
            checked,
        }
    }

    fn invalid() -> Checked {
        Checked::invalid(Counterexample {
            summary: "s".to_owned(),
            rows: Vec::new(),
        })
    }

    fn unknown() -> Checked {
        Checked::unknown(Reason::Budget("b".to_owned()))
    }

    #[test]
    fn a_violation_outranks_everything_and_unknown_is_never_held() {
        let failed = [Stage {
            name: "x".to_owned(),
            took_ms: 0,
            error: Some("e".to_owned()),
        }];
        let valid = Checked::valid();
        assert_eq!(
            Outcome::of(&[property(true, invalid())], &valid, &failed),
            Outcome::Violation
        );
        assert_eq!(
            Outcome::of(&[property(true, unknown())], &valid, &failed),
            Outcome::HarnessFailed
        );
        assert_eq!(
            Outcome::of(&[property(true, unknown())], &valid, &[]),
            Outcome::Inconclusive
        );
        let held = [property(true, Checked::valid()), property(false, invalid())];
        assert_eq!(Outcome::of(&held, &valid, &[]), Outcome::Held);
        assert_eq!(Outcome::of(&held[1..], &valid, &[]), Outcome::Inconclusive);
        assert_eq!(Outcome::of(&[], &unknown(), &[]), Outcome::Inconclusive);
    }

    #[test]
    fn the_worst_outcome_decides_the_exit_code() {
        use Outcome::{HarnessFailed, Held, Inconclusive, Violation};
        assert_eq!(
            Exit::of([Held, Inconclusive, HarnessFailed, Violation]),
            Exit::Violation
        );
        assert_eq!(Exit::of([Held, Inconclusive, HarnessFailed]), Exit::Harness);
        assert_eq!(Exit::of([Held, Inconclusive]), Exit::Inconclusive);
        assert_eq!(Exit::of([Held]), Exit::Held);
        assert_eq!(Exit::of([]), Exit::Nothing);
    }

    #[test]
    fn a_canary_that_is_not_convicted_is_red() {
        assert_eq!(judged(Outcome::Violation, Some(true)), Outcome::Held);
        assert_eq!(judged(Outcome::Held, Some(false)), Outcome::Violation);
        assert_eq!(
            judged(Outcome::HarnessFailed, Some(false)),
            Outcome::HarnessFailed
        );
    }
}
