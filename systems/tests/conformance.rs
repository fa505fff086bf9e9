//! The conformance test of clients: it passes what is right and convicts what is wrong.

use std::path::PathBuf;

use systems::conformance::{self, Check, Conformance, Outcome, WORKLOADS};

const HARNESS: &str = env!("CARGO_BIN_EXE_systems-harness");

fn run(command: &[&str], workloads: &[&str], protocol_only: bool) -> Vec<Check> {
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let conformance = Conformance {
        command: owned(command),
        system: "conclave".to_owned(),
        workloads: owned(workloads),
        protocol_only,
        exe: PathBuf::from(HARNESS),
    };
    conformance::run(&conformance).unwrap()
}

fn failed(checks: &[Check]) -> Vec<(&'static str, String)> {
    let failed = checks.iter().filter_map(|check| match &check.outcome {
        Outcome::Failed { found, .. } => Some((check.name, found.clone())),
        _ => None,
    });
    failed.collect()
}

#[test]
fn the_built_in_client_passes() {
    let checks = run(
        &[HARNESS, "client", "--system", "conclave"],
        WORKLOADS,
        false,
    );
    assert_eq!(failed(&checks), []);
    assert!(checks.len() > 70, "{} checks", checks.len());
}

#[test]
fn the_example_in_python_passes() {
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../examples/conclave_client.py"
    );
    let checks = run(&["python3", example], &["lock", "register"], false);
    assert_eq!(failed(&checks), []);
    assert!(checks.len() > 40, "{} checks", checks.len());
}

/// A client in a few lines of shell: it says hello and does `$1` with each id.
fn shell(each: &str) -> Vec<Check> {
    let script = format!(
        r#"read -r hello
        echo '{{"x":"hello","client":"sh","can":["read","write","cas"],"max_in_flight":2}}'
        while read -r line; do
            id=${{line#*\"id\":}}; id=${{id%%[!0-9]*}}
            case $line in *'}}') ;; *) echo "cannot read: $line" >&2; exit 1 ;; esac
            {each}
        done"#
    );
    run(&["sh", "-c", &script], &["register"], true)
}

#[track_caller]
fn convicted(checks: &[Check], name: &str, says: &str) {
    let failed = failed(checks);
    let found = failed.iter().find(|(failed, _)| *failed == name);
    let (_, found) = found.unwrap_or_else(|| panic!("`{name}` is not among {failed:?}"));
    assert!(found.contains(says), "{found}");
}

#[test]
fn a_client_that_calls_a_timeout_a_failure_is_convicted() {
    let checks = shell(r#"echo "{\"x\":\"fail\",\"id\":$id,\"error\":\"timeout\"}""#);
    convicted(&checks, "no answer: info in time", "`fail`: timeout");
    convicted(&checks, "a broken connection: info", "`fail`: timeout");
}

#[test]
fn a_client_that_prints_is_convicted_and_quoted() {
    let checks = shell(
        r#"echo "doing $id"; echo "{\"x\":\"fail\",\"id\":$id,\"error\":\"unknown-function\"}""#,
    );
    convicted(&checks, "prints nothing else", "in the line `doing 1`");
}

#[test]
fn a_client_that_answers_twice_is_convicted() {
    let answer = r#"echo "{\"x\":\"fail\",\"id\":$id,\"error\":\"no\"}""#;
    let checks = shell(&format!("{answer}; {answer}"));
    convicted(&checks, "prints nothing else", "id 1 was answered before");
}

#[test]
fn a_client_that_never_sends_is_convicted() {
    let checks = shell(r#"echo "{\"x\":\"info\",\"id\":$id,\"error\":\"timeout\"}""#);
    convicted(&checks, "no answer: info in time", "nothing was sent");
    convicted(&checks, "fails an unknown function", "`info`: timeout");
}

#[test]
fn a_program_that_is_no_client_is_told_what_was_expected() {
    let checks = run(
        &["sh", "-c", "echo hello world; cat > /dev/null"],
        &["register"],
        true,
    );
    convicted(&checks, "answers the hello", "in the line `hello world`");
    let checks = run(
        &["sh", "-c", "echo no such module >&2; exit 3"],
        &["register"],
        true,
    );
    convicted(&checks, "answers the hello", "exit status: 3");
    convicted(&checks, "answers the hello", "no such module");
}
