//! `schism check`: verdicts, counts and exit codes of histories whose verdict is known.

use std::path::{Path, PathBuf};

use crate::support::schism;

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("checkers/tests/cases")
}

#[test]
fn every_known_history_gets_its_exit_code() {
    let index = std::fs::read_to_string(cases().join("INDEX.tsv")).unwrap();
    let mut count = 0;
    for line in index.lines().skip(1) {
        let mut fields = line.split('\t');
        let (file, expected) = (fields.next().unwrap(), fields.next().unwrap());
        let ran = schism(&cases(), &["check", file]);
        let code = match expected {
            "valid" => 0,
            "invalid" => 1,
            "inconclusive" => 3,
            other => panic!("{file}: unknown verdict {other}"),
        };
        assert_eq!(ran.code, code, "{file}\n{}{}", ran.stdout, ran.stderr);
        count += 1;
    }
    assert_eq!(count, 40);
}

#[test]
fn a_violation_is_told_with_its_operations() {
    let ran = schism(&cases(), &["check", "u01-bad.jsonl"]);
    assert_eq!(ran.code, 1);
    for word in ["stale-writes", "VIOLATED", "33", "34"] {
        assert!(
            ran.stdout.contains(word),
            "{word} is missing in\n{}",
            ran.stdout
        );
    }
    assert!(!ran.stdout.contains('\u{1b}'), "colour without a terminal");
}

#[test]
fn json_holds_verdict_counts_and_counterexample() {
    let ran = schism(&cases(), &["check", "u01-bad.jsonl", "--json"]);
    assert_eq!(ran.code, 1);
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let property = &value["properties"][0];
    assert_eq!(property["verdict"], "invalid");
    assert!(property["counterexample"]["rows"].as_array().unwrap().len() <= 10);
    assert!(!property["counts"].as_array().unwrap().is_empty());
}

#[test]
fn an_unknown_checker_is_refused_with_a_suggestion() {
    let ran = schism(
        &cases(),
        &["check", "u01-bad.jsonl", "--checker", "stale-write"],
    );
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("did you mean `stale-writes`?"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_parameter_is_an_input_and_a_wrong_one_an_error() {
    let check = |param: &str| {
        schism(
            &cases(),
            &[
                "check",
                "u01-good.jsonl",
                "--json",
                "--checker",
                "linearizable",
                "--param",
                param,
            ],
        )
    };
    let ran = check("nil_reads=unknown");
    assert!(
        ran.stdout.contains("nil_reads = unknown (given)"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("cas_fail = no-op (default)"),
        "{}",
        ran.stdout
    );
    for (param, says) in [
        ("nil_reads=unknwon", "did you mean `unknown`?"),
        ("nil_read=unknown", "did you mean `nil_reads`?"),
        ("nil_reads", "NAME=VALUE"),
    ] {
        let ran = check(param);
        assert_eq!(ran.code, 2, "{param}");
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
}
