//! Sets, queues, counters, and what worked of each function.

use checkers::Verdict;

use super::{check, linearizable};

/// jepsen#303: an addition that failed explains nothing, even while it was open.
#[test]
fn a_failed_addition_is_not_counted() {
    let text = r#"
        0-9 A read - null -> 1
        1-2 B add - 1 -> fail refused"#;
    assert_eq!(check("counter", text).verdict, Verdict::Invalid);
    let open = text.replace("fail refused", "info timeout");
    assert_eq!(check("counter", &open).verdict, Verdict::Valid);
    let uncertain = format!("param fails \"uncertain\"\n{text}");
    assert_eq!(check("counter", &uncertain).verdict, Verdict::Valid);
}

/// jepsen#303: where additions differ, the bounds of a read are necessary and not exact, which the
/// result says: 1 lies between them and no choice of additions gives it.
#[test]
fn bounds_of_a_counter_are_not_exact() {
    let text = r#"
        0-9 A read - null -> 1
        1-9 B add - 2 -> 2
        2-9 C add - -2 -> -2"#;
    let found = check("counter", text);
    assert_eq!(found.verdict, Verdict::Valid);
    assert!(found.notes.iter().any(|note| note.contains("not exact")));
    let exact = format!("param model \"counter\"\n{text}");
    assert_eq!(linearizable(&exact), Verdict::Invalid);
}

/// yugabyte/jepsen#135: what was delivered twice is a failure, unless the queue promises less.
#[test]
fn a_duplicate_is_no_success() {
    let text = r#"
        0-1 A enqueue - 1 -> 1
        2-3 B dequeue - null -> 1
        4-5 B dequeue - null -> 1"#;
    for name in ["queue", "total-queue"] {
        assert_eq!(check(name, text).verdict, Verdict::Invalid, "{name}");
        let most = format!("param delivery \"at-most-once\"\n{text}");
        assert_eq!(check(name, &most).verdict, Verdict::Invalid, "{name}");
        let least = format!("param delivery \"at-least-once\"\n{text}");
        assert_eq!(check(name, &least).verdict, Verdict::Valid, "{name}");
    }
}

/// jepsen#282: a crashed drain leaves open what became of its elements, and of nothing else.
#[test]
fn a_crashed_drain_leaves_its_elements_open() {
    let text = r#"
        0-1 A enqueue - 1 -> 1
        2-3 A enqueue - 2 -> 2
        4-5 B drain - null -> info crashed
        6-7 B drain - null -> [2]"#;
    let found = check("total-queue", text);
    assert_eq!(
        found.verdict.describe(),
        "unknown(1 elements are missing, which a crashed dequeue or drain may have taken)"
    );
    assert_eq!(found.counted("lost"), Some(0));
    let all = check("total-queue", &text.replace("[2]", "[1,2]"));
    assert_eq!(all.verdict, Verdict::Valid);
    let strange = check("total-queue", &text.replace("[2]", "[7]"));
    assert_eq!(strange.verdict, Verdict::Invalid);
}

/// scalar-jepsen#222: a run in which nearly nothing worked does not look good.
#[test]
fn nearly_nothing_is_not_enough() {
    let mut text = "param min_ok_percent 10\n0-1 A write x 0 -> 0\n".to_owned();
    for time in 1..40 {
        text.push_str(&format!(
            "{}-{} A write x 1 -> fail x\n",
            time * 2,
            time * 2 + 1
        ));
    }
    assert_eq!(
        check("stats", &text).verdict.describe(),
        "unknown(1 of 40 `write` happened, 10 % are required)"
    );
}
