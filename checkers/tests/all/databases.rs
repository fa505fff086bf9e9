//! Databases of lists that are broken in known ways are convicted of what they do, a perfect one is
//! not, and changes to a history that take evidence away never convict.

use checkers::{Budget, Checked, Verdict, find};
use history::{Event, History, Kind, Process};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::made::{build, cases, header};
use crate::simulator::{self, Database, Load};

fn check(history: &History, level: &str) -> Checked {
    let mut history = history.clone();
    let params = &mut history.header.params;
    params.insert("level".to_owned(), level.into());
    let checker = find("append").expect("the checker");
    checkers::run(checker, &history, &Budget::unlimited())
}

/// Judges some thousand transactions of a database: a level that it keeps and one that it breaks,
/// with the anomalies that show it.
fn is_convicted(database: Database, kept: Option<&str>, broken: &str, anomalies: &[&str]) {
    let made = simulator::history(Load::of(database, 5_000));
    if let Some(kept) = kept {
        let found = check(&made, kept);
        assert_eq!(
            found.verdict,
            Verdict::Valid,
            "{database:?} {kept} {found:?}"
        );
    }
    let found = check(&made, broken);
    assert_eq!(found.verdict, Verdict::Invalid, "{database:?} {broken}");
    for anomaly in anomalies {
        let name = format!("anomalies:{anomaly}");
        assert!(
            found.counted(&name).is_some(),
            "{database:?} {anomaly} {found:?}"
        );
    }
    let told = found.counterexample.expect("a counterexample");
    assert!((1..=10).contains(&told.rows.len()), "{told:?}");
}

#[test]
fn a_perfect_database_is_valid() {
    for (seed, clients) in [(1, 1), (2, 3), (3, 10), (4, 50)] {
        let load = Load::of(Database::StrictSerializable, 3_000);
        let found = check(
            &simulator::history(Load {
                seed,
                clients,
                ..load
            }),
            "strict-serializable",
        );
        assert_eq!(found.verdict, Verdict::Valid, "{found:?}");
        assert_eq!(found.counted("transactions"), Some(3_000));
    }
}

#[test]
fn snapshot_isolation_is_not_serializable() {
    let kept = Some("strong-snapshot-isolation");
    is_convicted(
        Database::SnapshotIsolation,
        kept,
        "serializable",
        &["G2-item"],
    );
}

#[test]
fn stale_reads_are_not_strict() {
    is_convicted(
        Database::StaleReads,
        None,
        "strict-serializable",
        &["G-single"],
    );
}

#[test]
fn lost_appends_are_not_serializable() {
    is_convicted(Database::LostAppends, None, "serializable", &["G-single"]);
}

#[test]
fn uncommitted_reads_are_not_committed() {
    let anomalies = [
        "G0",
        "G1a",
        "G1b",
        "G1c",
        "G-single",
        "dirty-update",
        "lost-update",
    ];
    is_convicted(
        Database::ReadUncommitted,
        None,
        "read-committed",
        &anomalies,
    );
}

const ALL: [Database; 5] = [
    Database::StrictSerializable,
    Database::SnapshotIsolation,
    Database::ReadUncommitted,
    Database::StaleReads,
    Database::LostAppends,
];

const LEVELS: [&str; 6] = [
    "read-committed",
    "read-atomic",
    "snapshot-isolation",
    "serializable",
    "strong-session-serializable",
    "strict-serializable",
];

fn load() -> impl Strategy<Value = Load> {
    (0usize..5, 5u64..80, 1u64..8, 2u64..9, any::<u64>()).prop_map(
        |(database, txns, clients, appends_per_key, seed)| Load {
            database: ALL[database],
            txns,
            clients,
            appends_per_key,
            seed,
        },
    )
}

fn events(history: &History) -> Vec<Event> {
    history.events().map(|event| event.to_event()).collect()
}

fn rebuilt(events: Vec<Event>) -> History {
    build(header("append", Value::Null), events)
}

fn convicts(history: &History, level: &str) -> bool {
    check(history, level).verdict == Verdict::Invalid
}

/// Another name for a key or an element.
fn renamed(value: &Value, name: &str) -> Value {
    match value {
        Value::Number(number) => json!(format!("{name}{number}")),
        Value::Array(items) => items.iter().map(|item| renamed(item, name)).collect(),
        other => other.clone(),
    }
}

fn with_names(mut event: Event) -> Event {
    if let Process::Number(number) = event.process {
        event.process = Process::Number(number * 7 + 3);
    }
    let mops = event.value.as_array().into_iter().flatten();
    let mops = mops.map(|mop| json!([mop[0], renamed(&mop[1], "key "), renamed(&mop[2], "")]));
    event.value = mops.collect();
    event
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases().cases / 20, ..cases() })]

    #[test]
    fn names_do_not_matter(load in load()) {
        let made = simulator::history(load);
        let other = rebuilt(events(&made).into_iter().map(with_names).collect());
        for level in LEVELS {
            let (one, two) = (check(&made, level), check(&other, level));
            prop_assert_eq!(one.verdict, two.verdict);
            prop_assert_eq!(one.counts, two.counts);
        }
    }

    /// A transaction of which nobody saw anything, and that was not answered, need not have been.
    #[test]
    fn an_unanswered_transaction_that_nobody_saw_changes_nothing(load in load(), at in any::<prop::sample::Index>()) {
        let made = simulator::history(load);
        let mut more = events(&made);
        let at = at.index(more.len());
        let value = json!([["append", 0, 1_000_000], ["r", 1, null], ["append", 77, 1_000_001]]);
        let event = Event::new(more[at].time, Process::Number(999), Kind::Invoke, "txn", value);
        more.insert(at, event);
        for level in LEVELS {
            prop_assert_eq!(convicts(&made, level), convicts(&rebuilt(more.clone()), level), "{}", level);
        }
    }

    /// Less is known of when a transaction took effect that was answered later, or never.
    #[test]
    fn later_answers_never_convict(load in load(), pick in any::<prop::sample::Index>()) {
        let made = simulator::history(load);
        let before = events(&made);
        let answers: Vec<usize> = (0..before.len()).filter(|&at| before[at].kind == Kind::Ok).collect();
        prop_assume!(!answers.is_empty());
        let from = answers[pick.index(answers.len())];
        let process = before[from].process.clone();
        let rest = before[from + 1..].iter().position(|event| event.process == process);
        let to = rest.map_or(before.len() - 1, |rest| from + rest);
        let mut after = before.clone();
        let mut moved = after.remove(from);
        moved.time = before[to].time;
        after.insert(to, moved);
        for level in LEVELS {
            let (was, is) = (convicts(&made, level), convicts(&rebuilt(after.clone()), level));
            prop_assert!(was || !is, "{}", level);
        }
    }

    /// The order in real time that is not known convicts nobody.
    #[test]
    fn ties_and_clock_errors_never_convict(load in load(), error in 0u64..20) {
        let made = simulator::history(load);
        let mut loose = made.clone();
        let params = &mut loose.header.params;
        params.insert("ties".to_owned(), json!("concurrent"));
        params.insert("clock_error_ms".to_owned(), json!(error as f64 / 1e3));
        for level in LEVELS {
            prop_assert!(convicts(&made, level) || !convicts(&loose, level), "{}", level);
        }
    }

    /// A level that is kept is kept by all that it implies.
    #[test]
    fn stronger_levels_convict_more(load in load()) {
        let made = simulator::history(load);
        let verdicts: Vec<bool> = LEVELS[2..].iter().map(|level| convicts(&made, level)).collect();
        prop_assert!(verdicts.is_sorted(), "{:?}", verdicts);
    }

    /// The same on many threads at once as on one, byte for byte.
    #[test]
    fn threads_do_not_matter(load in load()) {
        let made = simulator::history(load);
        let said = |history: &History| serde_json::to_string(&check(history, "strict-serializable")).expect("JSON");
        let alone = said(&made);
        let at_once: Vec<String> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..4).map(|_| scope.spawn(|| said(&made))).collect();
            running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        prop_assert!(at_once.iter().all(|other| *other == alone));
        prop_assert_eq!(said(&simulator::history(load)), alone);
    }
}

/// Many read a list whose many last appends nobody read: that is no product of the two.
#[test]
fn appends_that_nobody_read_cost_no_product() {
    let count = 20_000u64;
    let mut events = Vec::new();
    let mut push = |kind, value: Value| {
        let time = events.len() as u64;
        events.push(Event::new(time, Process::Number(1), kind, "txn", value));
    };
    for element in 0..count {
        push(Kind::Invoke, json!([["r", "x", null]]));
        push(Kind::Ok, json!([["r", "x", []]]));
        push(
            Kind::Invoke,
            json!([["r", "y", null], ["append", "y", element]]),
        );
        push(Kind::Ok, json!([["r", "y", []], ["append", "y", element]]));
    }
    for element in 0..count {
        push(Kind::Invoke, json!([["append", "x", element]]));
        push(Kind::Ok, json!([["append", "x", element]]));
    }
    let made = rebuilt(events);
    let found = check(&made, "strict-serializable");
    assert!(
        found
            .counted("dependencies")
            .is_some_and(|edges| edges < 20 * count)
    );
    assert_eq!(found.verdict, Verdict::Invalid);
    // Each updated the same version of y, and the sessions of x are in order.
    assert_eq!(found.counted("anomalies:lost-update"), Some(1));
    assert_eq!(found.counted("anomalies:G2-item"), Some(1));
}
