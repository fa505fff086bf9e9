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
        (
            "required=[\"read\"]",
            "no selected checker reads a parameter `required`; `coverage` would",
        ),
        ("nil_reads", "NAME=VALUE"),
    ] {
        let ran = check(param);
        assert_eq!(ran.code, 2, "{param}");
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
}

fn public(file: &str, args: &[&str]) -> crate::support::Ran {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("checkers/tests/public");
    schism(&folder, &[&["check", file], args].concat())
}

#[test]
fn a_history_of_another_tool_is_judged_by_what_fits_it() {
    let ran = public("porcupine/jepsen/etcd_000.log", &[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("note: chosen by the operations: --checker linearizable")
    );
    assert!(ran.stdout.contains("format: log"), "{}", ran.stdout);
    let ran = public("porcupine/jepsen/etcd_002.log", &["--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(value["format"], "log");
    for (file, code) in [
        ("porcupine/kv/c01-ok.txt", 0),
        ("porcupine/kv/c01-bad.txt", 1),
    ] {
        assert_eq!(public(file, &[]).code, code, "{file}");
    }
}

#[test]
fn models_levels_and_formats_are_named_on_the_command_line() {
    let kv = "porcupine/kv/c01-bad.txt";
    let ran = public(
        kv,
        &["--checker", "linearizable", "--model", "kv", "--json"],
    );
    assert!(ran.stdout.contains("model = kv (given)"), "{}", ran.stdout);
    let lists = "generated/txn/la-si-16-1.edn";
    let ran = public(
        lists,
        &[
            "--checker",
            "list-append",
            "--level",
            "snapshot-isolation",
            "--json",
        ],
    );
    assert!(
        ran.stdout.contains("level = snapshot-isolation (given)"),
        "{}",
        ran.stdout
    );
    for (args, says) in [
        (
            &["--model", "kvs", "--checker", "linearizable"][..],
            "did you mean `kv`?",
        ),
        (
            &["--level", "serializable", "--checker", "linearizable"],
            "`append` would",
        ),
        (
            &["--format", "ednn"],
            "no format `ednn`; known: schism, json, edn, log",
        ),
        (
            &["--format", "plume"],
            "line 1, column 1: expected `r(KEY,VALUE,SESSION,TRANSACTION)`",
        ),
    ] {
        let ran = public(kv, args);
        assert_eq!(ran.code, 2, "{args:?}");
        assert!(ran.stderr.contains(says), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn the_folder_of_a_jepsen_test_stands_for_its_history() {
    let dir = tempfile::tempdir().unwrap();
    let ran = schism(dir.path(), &["check", "."]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("expected history.jsonl.zst or"),
        "{}",
        ran.stderr
    );
    let ops = [
        "{:type :invoke, :f :write, :value [:x 1], :process 0}",
        "{:type :ok, :f :write, :value [:x 1], :process 0}",
        "{:type :invoke, :f :read, :value [:x nil], :process 0}",
        "{:type :ok, :f :read, :value [:x 2], :process 0}",
    ];
    std::fs::write(dir.path().join("history.edn"), ops.join("\n")).unwrap();
    let ran = schism(dir.path(), &["check", "."]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stdout.contains("key x"), "{}", ran.stdout);
    let ran = schism(dir.path(), &["check", ".", "--independent=false"]);
    assert!(!ran.stdout.contains("key x"), "{}", ran.stdout);
}
