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
