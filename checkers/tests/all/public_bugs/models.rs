//! Locks, queues, counters and revisions, held against their models.

use checkers::Verdict;
use history::{Event, Header, HistoryBuilder, Kind, Process};
use serde_json::{Value, json};

use crate::models::check;

/// Knossos' mutex has no owners: whether another may give it back is a matter of the model.
#[test]
fn a_lock_that_another_gave_back() {
    let text = r#"
        0-1 P1 acquire L null -> null
        2-3 P2 release L null -> null
        4-5 P3 acquire L null -> null"#;
    assert_eq!(check("mutex", text).verdict, Verdict::Valid);
    for model in ["owner-aware-mutex", "reentrant-mutex"] {
        let found = check(model, text);
        assert_eq!(found.verdict, Verdict::Invalid, "{model}");
        let told = found.counterexample.expect("a counterexample");
        assert_eq!(
            told.summary,
            "key L: P2 release although its owner never took it"
        );
    }
}

/// maelstrom#36 ignored what was not answered, and took the order of answers for that of events.
#[test]
fn a_lock_that_was_perhaps_not_taken() {
    let unanswered = r#"
        0-1 P1 acquire L null -> info timeout
        2-3 P2 acquire L null -> null"#;
    let answered_late = r#"
        0-9 P1 acquire L null -> null
        1-2 P2 acquire L null -> null
        3-4 P2 release L null -> null"#;
    for model in ["mutex", "owner-aware-mutex", "reentrant-mutex", "semaphore"] {
        for text in [unanswered, answered_late] {
            assert_eq!(check(model, text).verdict, Verdict::Valid, "{model}");
        }
    }
}

/// jepsen#303: an addition that failed explains nothing, and which sums are possible is exact.
#[test]
fn a_counter_that_shows_what_was_not_added() {
    let text = r#"
        0-9 A read - null -> 1
        1-2 B add - 1 -> fail refused"#;
    assert_eq!(check("counter", text).verdict, Verdict::Invalid);
    let open = text.replace("fail refused", "info timeout");
    assert_eq!(check("counter", &open).verdict, Verdict::Valid);
    let different = r#"
        0-9 A read - null -> 1
        1-9 B add - 2 -> 2
        2-9 C add - -1 -> -1"#;
    assert_eq!(check("counter", different).verdict, Verdict::Valid);
    let impossible = different.replace("-1 -> -1", "-2 -> -2");
    assert_eq!(check("counter", &impossible).verdict, Verdict::Invalid);
}

/// yugabyte/jepsen#135: what comes out twice was not put in twice.
#[test]
fn a_queue_that_delivers_twice() {
    let text = r#"
        0-1 A enqueue q 1 -> null
        2-3 B dequeue q null -> 1
        4-5 B dequeue q null -> 1"#;
    for model in ["fifo-queue", "unordered-queue"] {
        let found = check(model, text);
        assert_eq!(found.verdict, Verdict::Invalid, "{model}");
        let told = found.counterexample.expect("a counterexample");
        assert!(
            told.summary.contains("took the same value"),
            "{}",
            told.summary
        );
    }
}

/// jepsen#282: what a dequeue took that was not answered is open, and nothing else.
#[test]
fn a_dequeue_without_an_answer() {
    let text = r#"
        0-1 A enqueue q 1 -> null
        2-3 A enqueue q 2 -> null
        4-5 B dequeue q null -> info crashed
        6-7 C dequeue q null -> 2
        8-9 C dequeue q null -> null"#;
    for model in ["fifo-queue", "unordered-queue"] {
        assert_eq!(check(model, text).verdict, Verdict::Valid, "{model}");
        let answered = text.replace("null -> info crashed", "null -> null");
        assert_eq!(check(model, &answered).verdict, Verdict::Invalid, "{model}");
    }
}

/// porcupine#35: three writes at once, whose revisions say in which order they were.
#[test]
fn revisions_say_in_which_order_writes_were() {
    let text = r#"
        0-9 A write k 1 -> {"revision":4}
        0-9 B write k 2 -> {"revision":2}
        0-9 C write k 3 -> {"revision":3}
        10-11 D read k null -> {"value":1,"revision":4}"#;
    let found = check("versioned-register", text);
    assert_eq!(found.verdict, Verdict::Valid);
    assert_eq!(found.counted("keys_by_shortcut"), Some(1));
    let other = text.replace(r#"{"value":1,"#, r#"{"value":2,"#);
    assert_eq!(
        check("versioned-register", &other).verdict,
        Verdict::Invalid
    );
}

/// porcupine#35, as large as it comes: no search, although hundreds of writes and cas have no
/// answer and half of them happened.
#[test]
fn revisions_leave_nothing_to_search() {
    let good = unanswered_revisions(None);
    assert_eq!(good.verdict, Verdict::Valid);
    assert_eq!(good.counted("keys_by_shortcut"), Some(1));
    assert_eq!(good.counted("unanswered"), Some(667));
    let bad = unanswered_revisions(Some(1_500));
    assert_eq!(bad.verdict, Verdict::Invalid);
    let told = bad.counterexample.expect("a counterexample");
    assert!(told.rows.len() <= 10, "{told:?}");
}

/// Clients of a register whose every third change is not answered, and every other of those happened;
/// the read after so many changes is of a value that nobody wrote.
fn unanswered_revisions(wrong: Option<u64>) -> checkers::Checked {
    let mut builder = HistoryBuilder::new(Header::new("versioned-register", &[]));
    let (mut value, mut revision, mut time) = (Value::Null, 0u64, 0);
    let mut push = |process: u64, kind, f: &str, value: Value| {
        time += 1;
        let event = Event::new(time, Process::Number(process), kind, f, value);
        builder.push(&event).expect("a consistent history");
    };
    for change in 0..2_000u64 {
        let process = 10 + change;
        let new = json!(change % 5);
        let (f, input) = match change % 2 {
            0 => ("write", new.clone()),
            _ => ("cas", json!([value, new])),
        };
        let (is_answered, happens) = (change % 3 != 1, change % 6 != 1);
        push(process, Kind::Invoke, f, input);
        if happens {
            (value, revision) = (new, revision + 1);
        }
        let answer = json!({"revision": revision});
        match is_answered {
            true => push(process, Kind::Ok, f, answer),
            false => push(process, Kind::Info, f, Value::Null),
        }
        let seen = match wrong {
            Some(wrong) if wrong == change => json!(7),
            _ => value.clone(),
        };
        push(0, Kind::Invoke, "read", Value::Null);
        let seen = json!({"value": seen, "revision": revision});
        push(0, Kind::Ok, "read", seen);
    }
    let checker = checkers::find("linearizable").expect("the checker");
    checkers::run(checker, &builder.finish(), &checkers::Budget::unlimited())
}
