//! What came out of a run, in one plain sentence.

use checkers::{Checked, Verdict};

use super::words;
use crate::result::{FaultOutcome, Outcome, Property, Stage};

/// The sentence, from the parts of a result. `operations_ok` and `leader_changes` are read from
/// the counts of the coverage; what it did not count is not mentioned.
pub fn sentence(
    outcome: Outcome,
    properties: &[Property],
    coverage: &Checked,
    harness: &[Stage],
    faults: &[FaultOutcome],
) -> String {
    match outcome {
        Outcome::Violation => violation(properties),
        Outcome::Held => held(properties, coverage, faults),
        Outcome::Inconclusive => inconclusive(properties, coverage),
        Outcome::HarnessFailed => harness_failed(harness),
        Outcome::Interrupted => format!(
            "The run was interrupted after {}; nothing follows from it.",
            evidence(coverage, faults)
        ),
    }
}

/// How many operations were ok, if the coverage counted them.
pub fn operations_ok(coverage: &Checked) -> Option<u64> {
    ["ok_ops", "ops_ok", "ok"]
        .into_iter()
        .find_map(|name| coverage.counted(name))
}

/// `48,210 ok operations, 3 of 3 faults landed, 5 leader changes`.
pub fn evidence(coverage: &Checked, faults: &[FaultOutcome]) -> String {
    let ok = operations_ok(coverage).map_or_else(
        || "an unknown number of ok operations".to_owned(),
        |ok| words::plural(ok, "ok operation"),
    );
    let mut parts = vec![ok, faults_landed(faults)];
    if let Some(changes) = coverage.counted("leader_changes") {
        parts.push(words::plural(changes, "leader change"));
    }
    parts.join(", ")
}

/// `3 of 3 faults landed`, or `no fault was planned`.
pub fn faults_landed(faults: &[FaultOutcome]) -> String {
    if faults.is_empty() {
        return "no fault was planned".to_owned();
    }
    let landed = faults.iter().filter(|fault| fault.landed).count();
    let noun = if faults.len() == 1 { "fault" } else { "faults" };
    format!("{landed} of {} {noun} landed", faults.len())
}

fn violation(properties: &[Property]) -> String {
    let broken: Vec<&Property> = properties
        .iter()
        .filter(|property| property.claimed && property.checked.verdict == Verdict::Invalid)
        .collect();
    let Some(first) = broken.first() else {
        return "A promise was broken, but no property says which.".to_owned();
    };
    let told = match &first.checked.counterexample {
        Some(told) => end_with_stop(&words::capitalised(&told.summary)),
        None => format!(
            "{} was broken; the checker gave no counterexample.",
            first.name
        ),
    };
    let others: Vec<&str> = broken[1..]
        .iter()
        .map(|property| property.name.as_str())
        .collect();
    if others.is_empty() {
        return told;
    }
    format!("{told} Also broken: {}.", others.join(", "))
}

fn held(properties: &[Property], coverage: &Checked, faults: &[FaultOutcome]) -> String {
    let unclaimed: Vec<&str> = properties
        .iter()
        .filter(|property| !property.claimed && property.checked.verdict == Verdict::Invalid)
        .map(|property| property.name.as_str())
        .collect();
    let found = format!("No violation found in {}.", evidence(coverage, faults));
    if unclaimed.is_empty() {
        return found;
    }
    format!(
        "{found} Broken, but not promised by this system: {}.",
        unclaimed.join(", ")
    )
}

fn inconclusive(properties: &[Property], coverage: &Checked) -> String {
    let mut whys: Vec<String> = Vec::new();
    match &coverage.verdict {
        Verdict::Unknown(reason) => {
            whys.push(format!("too little happened for a verdict: {reason}"));
        }
        Verdict::Invalid => whys.push(match &coverage.counterexample {
            Some(told) => format!("too little happened for a verdict: {}", told.summary),
            None => "too little happened for a verdict".to_owned(),
        }),
        Verdict::Valid => {}
    }
    for property in properties.iter().filter(|property| property.claimed) {
        if let Verdict::Unknown(reason) = &property.checked.verdict {
            whys.push(format!("{} could not be decided: {reason}", property.name));
        }
    }
    match whys.as_slice() {
        [] => "Nothing could be decided, and nobody said why.".to_owned(),
        whys => end_with_stop(&words::capitalised(&words::clip(&whys.join("; ")))),
    }
}

fn harness_failed(harness: &[Stage]) -> String {
    let failed = harness
        .iter()
        .find_map(|stage| Some((stage, stage.error.as_ref()?)));
    match failed {
        Some((stage, error)) => end_with_stop(&format!(
            "The harness failed in stage {}: {}",
            stage.name,
            words::clip(error.trim().lines().next().unwrap_or("nobody says why"))
        )),
        None => "The harness failed, but no stage says why.".to_owned(),
    }
}

fn end_with_stop(text: &str) -> String {
    let text = text.trim_end();
    if text.ends_with(['.', '!', '?']) {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    fn sentence_of(run: &crate::result::RunResult) -> String {
        sentence(
            run.outcome,
            &run.properties,
            &run.coverage,
            &run.harness,
            &run.faults,
        )
    }

    #[test]
    fn a_violation_is_told_by_its_first_claimed_counterexample() {
        let (run, _) = fixtures::frozen_holder();
        let said = sentence_of(&run);
        assert!(
            said.starts_with("Client c1's write with token 33"),
            "{said}"
        );
        assert!(said.ends_with('.'), "{said}");
    }

    #[test]
    fn what_held_is_told_with_counts() {
        let (run, _) = fixtures::register_held();
        assert_eq!(
            sentence_of(&run),
            "No violation found in 5,800 ok operations, 3 of 3 faults landed, 2 leader changes."
        );
    }

    #[test]
    fn what_is_not_known_is_told_with_the_reason() {
        let (run, _) = fixtures::inconclusive();
        assert!(
            sentence_of(&run).contains("could not be decided: budget"),
            "{}",
            sentence_of(&run)
        );
        let (run, _) = fixtures::harness_failed();
        assert!(sentence_of(&run).starts_with("The harness failed in stage system: n2"));
        let mut run = run;
        run.outcome = Outcome::Interrupted;
        assert!(sentence_of(&run).contains("nothing follows from it"));
    }
}
