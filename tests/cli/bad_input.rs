//! What a user gets who writes something wrong: the exit code, the place, and what to do.

use crate::support::schism;

const GOOD: &str = r#"
name = "t"
[[cell]]
id = "a"
workload = "register"
system = "conclave"
time-limit = "2s"
faults = [{ at = "1s", fault = "freeze", target = "n1", for = "500ms" }]
"#;

/// Runs a spec that must be refused, and returns what was said.
fn refused(spec: &str, code: i32) -> String {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("s.toml"), spec).unwrap();
    let ran = schism(dir.path(), &["run", "s.toml"]);
    assert_eq!(ran.code, code, "{}", ran.stderr);
    assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    assert!(
        !dir.path().join("results").exists(),
        "something was started"
    );
    ran.stderr
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_a_suggestion() {
    let said = refused(&GOOD.replace("time-limit", "time-limt"), 2);
    assert!(said.contains("s.toml:7"), "{said}");
    assert!(
        said.contains("time-limt") && said.contains("did you mean `time-limit`?"),
        "{said}"
    );
}

#[test]
fn a_wrong_unit_is_named_with_the_units_that_exist() {
    let said = refused(&GOOD.replace("\"2s\"", "\"2sec\""), 2);
    assert!(
        said.contains("s.toml:7") && said.contains("unknown unit `sec`"),
        "{said}"
    );
}

#[test]
fn unknown_workloads_systems_faults_and_targets_are_refused() {
    for (from, to, says) in [
        ("\"register\"", "\"registre\"", "did you mean `register`?"),
        ("\"conclave\"", "\"conclav\"", "did you mean `conclave`?"),
        ("\"freeze\"", "\"freze\"", "did you mean `freeze`?"),
        ("\"n1\"", "\"laeder\"", "laeder"),
    ] {
        let said = refused(&GOOD.replace(from, to), 2);
        assert!(said.contains(says) && said.contains("s.toml:"), "{said}");
    }
}

#[test]
fn an_unknown_parameter_is_refused_where_it_stands() {
    let spec = GOOD.replace("time-limit", "workload-params = { kays = 3 }\ntime-limit");
    let said = refused(&spec, 2);
    assert!(
        said.contains("s.toml:7") && said.contains("did you mean `keys`?"),
        "{said}"
    );
}

#[test]
fn a_suite_without_cells_selects_nothing() {
    let said = refused("name = \"t\"\n", 5);
    assert!(said.contains("no cell"), "{said}");
}

#[test]
fn a_filter_that_matches_nothing_selects_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("s.toml"), GOOD).unwrap();
    let ran = schism(dir.path(), &["run", "s.toml", "--cell", "zzz"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stderr.contains("zzz"), "{}", ran.stderr);
}

#[test]
fn a_missing_file_is_a_usage_error() {
    let dir = tempfile::tempdir().unwrap();
    let ran = schism(dir.path(), &["run", "nowhere.toml"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("nowhere.toml"), "{}", ran.stderr);
}

#[test]
fn an_unwritable_results_folder_is_a_failure_of_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("s.toml"), GOOD).unwrap();
    std::fs::write(dir.path().join("results"), "in the way").unwrap();
    let ran = schism(dir.path(), &["run", "s.toml"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("results"), "{}", ran.stderr);
}

#[test]
fn a_damaged_history_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let header =
        r#"{"schism":1,"kind":"history","workload":"register","checkers":["linearizable"]}"#;
    let event = r#"{"t":0,"p":1,"type":"invoke","f":"read","value":null}"#;
    std::fs::write(
        dir.path().join("h.jsonl"),
        format!("{header}\ngarbage\n{event}\n"),
    )
    .unwrap();
    let ran = schism(dir.path(), &["check", "h.jsonl"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("line 2"), "{}", ran.stderr);
}

#[test]
fn a_torn_tail_is_dropped_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let header =
        r#"{"schism":1,"kind":"history","workload":"register","checkers":["linearizable"]}"#;
    let event = r#"{"t":0,"p":1,"type":"invoke","f":"read","key":"x","value":null}"#;
    std::fs::write(
        dir.path().join("h.jsonl"),
        format!("{header}\n{event}\n{{\"t\":1,\"p\""),
    )
    .unwrap();
    let ran = schism(dir.path(), &["check", "h.jsonl"]);
    assert!(ran.stderr.contains("torn"), "{}", ran.stderr);
    assert_ne!(ran.code, 2, "{}", ran.stderr);
}

#[test]
fn a_random_plan_without_time_for_it_is_refused() {
    let spec =
        GOOD.replace("faults = [", "# faults = [") + "random-faults = { faults = [\"freeze\"] }\n";
    let said = refused(&spec, 2);
    assert!(
        said.contains("random plan") && said.contains("s.toml:9"),
        "{said}"
    );
}

#[test]
fn a_killed_client_cannot_be_promised_to_come_back() {
    let said = refused(
        &GOOD.replace("\"freeze\", target = \"n1\"", "\"kill\", target = \"c1\""),
        2,
    );
    assert!(said.contains("restart = false"), "{said}");
}
