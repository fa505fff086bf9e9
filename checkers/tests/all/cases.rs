//! The histories of `tests/cases` get the verdicts of their index.
//!
//! Each row names the checkers that must give the verdict; on a good history no other checker may
//! convict either.

use std::path::Path;

use checkers::{Budget, CHECKERS, Checked, Reason, Verdict, find};
use history::History;

struct Case {
    file: String,
    expected: String,
    checkers: Vec<String>,
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"))
}

fn cases() -> Vec<Case> {
    let index = std::fs::read_to_string(folder().join("INDEX.tsv")).expect("an index");
    index
        .lines()
        .skip(1)
        .map(|line| {
            let mut columns = line.split('\t').map(str::to_owned);
            let mut column = || columns.next().expect("three columns");
            Case {
                file: column(),
                expected: column(),
                checkers: column().split(',').map(str::to_owned).collect(),
            }
        })
        .collect()
}

fn read(file: &str) -> History {
    let read = history::read_path(&folder().join(file)).expect("a history");
    assert!(read.warnings.is_empty(), "{file}: {:?}", read.warnings);
    read.history
}

fn check(name: &str, history: &History) -> Checked {
    let checker = find(name).unwrap_or_else(|| panic!("no checker {name}"));
    checkers::run(checker, history, &Budget::unlimited())
}

#[test]
fn every_case_gets_its_verdict_from_each_of_its_checkers() {
    let cases = cases();
    assert_eq!(cases.len(), 40);
    for case in cases {
        let history = read(&case.file);
        assert_eq!(history.header.checkers, case.checkers, "{}", case.file);
        for name in &case.checkers {
            let found = check(name, &history);
            let verdict = match found.verdict {
                Verdict::Valid => "valid",
                Verdict::Invalid => "invalid",
                Verdict::Unknown(Reason::Coverage(_)) => "inconclusive",
                Verdict::Unknown(_) => "unknown",
            };
            assert_eq!(verdict, case.expected, "{} {name}: {found:?}", case.file);
            if let Some(told) = found.counterexample {
                assert!(
                    (1..=10).contains(&told.rows.len()),
                    "{}: {told:?}",
                    case.file
                );
                assert!(!told.summary.is_empty() && !told.summary.ends_with('.'));
                assert!(told.rows.is_sorted_by_key(|row| row.event));
                assert!(told.rows.iter().all(|row| row.event < history.len()));
            }
        }
    }
}

#[test]
fn no_checker_convicts_a_good_case() {
    for case in cases().iter().filter(|case| case.expected == "valid") {
        let history = read(&case.file);
        for checker in CHECKERS {
            let found = check(checker.name(), &history);
            assert_ne!(
                found.verdict,
                Verdict::Invalid,
                "{} {}: {found:?}",
                case.file,
                checker.name()
            );
        }
    }
}

/// What a person reads first says what happened.
#[test]
fn counterexamples_are_told_in_words() {
    for (file, checker, summary) in [
        (
            "u01-bad.jsonl",
            "stale-writes",
            "put by A with token 33 was accepted on r after token 34 had been accepted",
        ),
        (
            "u04-bad.jsonl",
            "lease-early",
            "B got the lease of L at least 2.1 s before that of A was over",
        ),
        (
            "u05-bad.jsonl",
            "mutual-exclusion",
            "B got the lock of L while A certainly held it: two holders for 6.8 s",
        ),
        (
            "u07-bad.jsonl",
            "linearizable",
            "key x: read by c3 began after write 2 was acknowledged to c2, and returned 1",
        ),
        (
            "u12-bad.jsonl",
            "loss-notice",
            "A went on for 154.4 s after it had lost the lock of L: B got it at 31.100 s",
        ),
        (
            "u13-bad.jsonl",
            "lost-writes",
            "b1 was acknowledged to b and is missing from the final read",
        ),
        (
            "u24-bad.jsonl",
            "split-brain",
            "term 1195 had two leaders, n1 and n2",
        ),
    ] {
        let told = check(checker, &read(file)).counterexample;
        assert_eq!(told.expect("a counterexample").summary, summary, "{file}");
    }
}
