//! What the program says of the machine, of itself and of how a run goes.

use std::path::Path;

use serde_json::Value;

use crate::support::schism;

const LISTS: &[&str] = &["workloads", "faults", "checkers", "systems", "exit-codes"];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The first column of a list.
fn names(what: &str) -> Vec<String> {
    let ran = schism(here(), &["list", what, "--markdown"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows = ran.stdout.lines().skip(2);
    rows.map(|row| row.split(" | ").next().unwrap().trim_start_matches("| "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_doctor_finds_this_machine_fit() {
    let ran = schism(here(), &["doctor", "--json"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let all: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(all["usable"], true);
    assert_eq!(all["faults"], serde_json::json!(names("faults")));
    let systems = all["systems"].as_array().unwrap().iter();
    let found: Vec<&str> = systems.map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(found, names("systems"));
    for capability in all["capabilities"].as_array().unwrap() {
        let works = capability["works"] == true || capability["optional"] == true;
        assert!(works, "{capability}");
        assert_ne!(capability["found"], "", "{capability}");
    }
    let told = schism(here(), &["doctor"]);
    assert_eq!(told.code, 0);
    for fault in names("faults") {
        assert!(told.stdout.contains(&fault), "{fault} is missing");
    }
}

#[test]
fn every_list_can_be_printed() {
    for what in LISTS {
        let names = names(what);
        assert!(!names.is_empty(), "{what} is empty");
        let ran = schism(here(), &["list", what]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(!ran.stdout.contains('\u{1b}'), "colour without a terminal");
        for name in names {
            assert!(ran.stdout.contains(&name), "{name} is missing in {what}");
        }
    }
}

#[test]
fn every_checker_fault_workload_and_system_has_its_place_in_the_docs() {
    for what in ["checkers", "faults", "workloads", "systems"] {
        let page = std::fs::read_to_string(here().join(format!("docs/{what}.md"))).unwrap();
        for name in names(what) {
            let headed = page
                .lines()
                .any(|line| line.starts_with('#') && line.contains(&name));
            assert!(headed, "docs/{what}.md has no section on {name}");
        }
    }
}

#[test]
fn the_readme_has_the_exit_codes_as_they_are() {
    let readme = std::fs::read_to_string(here().join("README.md")).unwrap();
    let table = schism(here(), &["list", "exit-codes", "--markdown"]).stdout;
    assert!(
        readme.contains(&table),
        "write this into README.md:\n{table}"
    );
}

#[test]
fn steps_go_to_stderr_one_a_line_and_the_table_to_stdout() {
    let dir = tempfile::tempdir().unwrap();
    let spec = r#"
name = "t"
about = "nothing happens"
[[cell]]
id = "quiet"
workload = "register"
system = "conclave"
nodes = 1
time-limit = "2s"
settle = "2s"
checker-params = { max_terms = 3 }
"#;
    std::fs::write(dir.path().join("s.toml"), spec).unwrap();
    let ran = schism(dir.path(), &["run", "s.toml", "--seed", "1"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    for text in [&ran.stdout, &ran.stderr] {
        assert!(
            !text.contains(['\u{1b}', '\r']),
            "a terminal's codes:\n{text}"
        );
    }
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let begins = [
        "suite t, nothing happens: 1 cell, 1 at once",
        "quiet: starting",
        "quiet: driving",
        "quiet: held in ",
    ];
    assert_eq!(lines.len(), begins.len(), "{}", ran.stderr);
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line} instead of {begin}");
    }
    assert!(ran.stdout.contains("quiet") && ran.stdout.contains("held"));
    assert!(!ran.stdout.contains("driving"), "{}", ran.stdout);
    let last = ran.stdout.lines().last().unwrap();
    let report = last.rsplit(' ').next().unwrap();
    assert!(last.starts_with("suite t: report in results/t/"), "{last}");
    assert!(dir.path().join(report).exists(), "{report} is not there");
}
