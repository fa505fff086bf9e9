//! The same history gets the same verdict byte for byte: again, on another thread, and beside all
//! other checkers at once. What a verdict depends on besides is repeated, and a checker that fails
//! fails alone.

use checkers::{Budget, CHECKERS, Checked, Checker, Reason, Verdict, find};
use history::History;
use proptest::prelude::*;
use serde_json::json;

use crate::made::{build, cases, events, header, lock_steps, register_steps};
use crate::script;

fn said(checker: &dyn Checker, history: &History) -> String {
    let found = checkers::run(checker, history, &Budget::unlimited());
    serde_json::to_string(&found).expect("a result is JSON")
}

/// What all checkers say, each on a thread of its own.
fn said_at_once(history: &History) -> Vec<String> {
    std::thread::scope(|scope| {
        let running: Vec<_> = CHECKERS
            .iter()
            .map(|checker| scope.spawn(|| said(*checker, history)))
            .collect();
        let join =
            |thread: std::thread::ScopedJoinHandle<'_, String>| thread.join().expect("no panic");
        running.into_iter().map(join).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases().cases / 20, ..cases() })]

    #[test]
    fn a_verdict_is_the_same_on_every_thread(
        steps in prop_oneof![lock_steps().boxed(), register_steps(16).boxed()],
    ) {
        let events = events(&steps);
        // Built twice: the tables of a history are hashed with seeds of their own.
        let one = build(header("lock", json!({"drift_ms": 0})), events.clone());
        let other = build(header("lock", json!({"drift_ms": 0})), events);
        let alone: Vec<String> = CHECKERS.iter().map(|checker| said(*checker, &one)).collect();
        prop_assert_eq!(&alone, &said_at_once(&one));
        prop_assert_eq!(&alone, &said_at_once(&other));
    }
}

/// No map of a checker is hashed with a seed of the process.
#[test]
fn no_checker_hashes_by_chance() {
    let mut folders = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a file");
                for seeded in [
                    "collections::HashMap",
                    "collections::HashSet",
                    "RandomState",
                ] {
                    assert!(!text.contains(seeded), "{} in {}", seeded, path.display());
                }
            }
        }
    }
}

struct Panics;

impl Checker for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn promise(&self) -> &'static str {
        "None."
    }

    fn method(&self) -> &'static str {
        "It panics."
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        panic!("{} events are too many", history.len())
    }
}

#[test]
fn a_checker_that_panics_is_its_own_bug() {
    let history = script::history("register", "0-1 A read x null -> 1");
    let found = checkers::run(&Panics, &history, &Budget::unlimited());
    let bug = Reason::Bug("2 events are too many".to_owned());
    assert_eq!(found.verdict, Verdict::Unknown(bug));
}

#[test]
fn what_a_verdict_depends_on_is_repeated() {
    for checker in CHECKERS {
        let history = script::history("register", "0-1 A read x null -> 1");
        let found = checkers::run(*checker, &history, &Budget::unlimited());
        for param in checker.params() {
            let repeated = format!("{} = {} (default)", param.name, param.default);
            assert!(
                found.notes.iter().any(|note| note.contains(&repeated)),
                "{repeated}: {found:?}"
            );
        }
    }
    let given = script::history(
        "register",
        "param nil_reads \"unknown\"\n0-1 A read x null -> 1",
    );
    let linearizable = find("linearizable").expect("the checker");
    let found = checkers::run(linearizable, &given, &Budget::unlimited());
    assert!(
        found
            .notes
            .iter()
            .any(|note| note.contains("nil_reads = unknown (given)")),
        "{found:?}"
    );
}

#[test]
fn a_parameter_that_cannot_be_taken_is_never_a_default() {
    for checker in CHECKERS {
        for param in checker.params() {
            let mut history = script::history("register", "0-1 A read x null -> 1");
            history
                .header
                .params
                .insert(param.name.to_owned(), json!({"odd": [1.5, null]}));
            let found = checkers::run(*checker, &history, &Budget::unlimited());
            let refused = matches!(&found.verdict, Verdict::Unknown(Reason::Parameter(why)) if why.contains(param.name));
            assert!(
                refused || param.takes == checkers::params::Takes::Any,
                "{}: {found:?}",
                param.name
            );
        }
    }
    let text = "param nil_reads \"foo\"\n0-1 A read x null -> 1";
    let found = checkers::run(
        find("linearizable").expect("the checker"),
        &script::history("register", text),
        &Budget::unlimited(),
    );
    assert_eq!(
        found.verdict.describe(),
        "unknown(parameter `nil_reads`: expected one of value, unknown, found foo)"
    );
}

#[test]
fn what_failed_may_have_happened_if_that_is_declared() {
    let text = "0-1 A write x 1 -> fail refused\n2-3 A read x null -> 1";
    let verdict = |text: &str| {
        let history = script::history("register", text);
        let linearizable = find("linearizable").expect("the checker");
        checkers::run(linearizable, &history, &Budget::unlimited()).verdict
    };
    assert_eq!(verdict(text), Verdict::Invalid);
    assert_eq!(
        verdict(&format!("param fails \"uncertain\"\n{text}")),
        Verdict::Valid
    );
    // A read that failed says nothing either way.
    let read = format!(
        "param fails \"uncertain\"\n{}",
        text.replace("read x null -> 1", "read x null -> fail x")
    );
    assert_eq!(verdict(&read), Verdict::Valid);
}
