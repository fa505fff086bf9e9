//! Bugs that were reported of other checkers, each as a small history with its right verdict.

mod collections;
mod models;

use checkers::{Budget, CHECKERS, Checked, Verdict, find};

use crate::script;

fn check(name: &str, text: &str) -> Checked {
    let checker = find(name).expect("a checker of this name");
    checkers::run(
        checker,
        &script::history("register", text),
        &Budget::unlimited(),
    )
}

fn linearizable(text: &str) -> Verdict {
    check("linearizable", text).verdict
}

/// knossos#5: whether a failed cas saw another value is a matter of what was declared.
#[test]
fn a_failed_cas_happened_not_or_observed() {
    let text = r#"
        0-1 A write x 0 -> 0
        2-3 A cas x [0,1] -> fail
        4-5 A read x null -> 0"#;
    assert_eq!(linearizable(text), Verdict::Valid);
    let observing = format!("param cas_fail \"observation\"\n{text}");
    assert_eq!(linearizable(&observing), Verdict::Invalid);
    assert_eq!(
        linearizable(&observing.replace("2-3 A", "0-3 B")),
        Verdict::Valid
    );
}

/// knossos#10: one crashed write cannot un-happen; a second one may bring the value back.
#[test]
fn a_crashed_write_happens_once() {
    let text = r#"
        0-1 A write x 4 -> 4
        2-3 B write x 0 -> info timeout
        4-5 A read x null -> 0
        6-7 A read x null -> 4"#;
    assert_eq!(linearizable(text), Verdict::Invalid);
    let second = format!("{text}\n2-3 C write x 4 -> info timeout");
    assert_eq!(linearizable(&second), Verdict::Valid);
}

/// knossos#31: a process that goes on after an unanswered operation is a new one in logic.
#[test]
fn a_process_may_go_on_after_an_unanswered_operation() {
    let text = r#"
        param initial 0
        0-1 P1 cas x [2,0] -> info timeout
        2-3 P1 read x null -> 0"#;
    assert_eq!(linearizable(text), Verdict::Valid);
}

/// knossos#36, maelstrom#92: the very first answer is impossible, and that can be told.
#[test]
fn the_first_answer_may_be_wrong() {
    let found = check(
        "linearizable",
        r#"
        param initial 0
        0-5 P1 read x null -> 3
        1-2 P2 write x 3 -> fail refused"#,
    );
    assert_eq!(found.verdict, Verdict::Invalid);
    let told = found.counterexample.expect("a counterexample");
    assert_eq!(
        told.summary,
        "key x: read by P1 returned 3, which nobody wrote"
    );
    assert_eq!(told.rows.len(), 1);
}

/// braft#57: a read of null is a read of null, unless it is declared to say nothing.
#[test]
fn a_read_of_null_is_not_a_wildcard() {
    let text = r#"
        param initial 0
        0-1 A write x 1 -> 1
        2-3 A read x null -> null"#;
    assert_eq!(linearizable(text), Verdict::Invalid);
    let declared = format!("param nil_reads \"unknown\"\n{text}");
    assert_eq!(linearizable(&declared), Verdict::Valid);
}

/// Knossos' mutex has no owners; maelstrom#36 ignored what was not answered.
#[test]
fn a_mutex_has_an_owner() {
    let released_by_another = r#"
        0-1 P1 acquire L null -> null
        2-3 P2 release L null -> null
        4-5 P3 acquire L null -> null"#;
    assert_eq!(
        check("mutual-exclusion", released_by_another).verdict,
        Verdict::Invalid
    );
    let released = released_by_another.replace("P2", "P1");
    assert_eq!(check("mutual-exclusion", &released).verdict, Verdict::Valid);
    let unanswered = r#"
        0-1 P1 acquire L null -> info timeout
        2-3 P2 acquire L null -> null"#;
    assert_eq!(
        check("mutual-exclusion", unanswered).verdict,
        Verdict::Valid
    );
}

/// porcupine#8: a crashed write may land late, and once it has it stays.
#[test]
fn a_crashed_write_may_land_late() {
    let text = r#"
        0-1 A write x 1 -> info timeout
        2-3 B read x null -> null
        4-5 B read x null -> 1"#;
    assert_eq!(linearizable(text), Verdict::Valid);
    let back = text
        .replace("-> null", "-> 2")
        .replace("-> 1", "-> null")
        .replace("-> 2", "-> 1");
    assert_eq!(linearizable(&back), Verdict::Invalid);
}

/// elasticsearch#101357, scalar-jepsen#222: nothing that ran out or did nothing is a pass.
#[test]
fn what_was_not_decided_is_not_valid() {
    let mut text = String::new();
    for client in 0..12 {
        text.push_str(&format!(
            "0-100 {client} write x {} -> {}\n",
            client % 4,
            client % 4
        ));
        text.push_str(&format!(
            "0-100 {} cas x [{},9] -> [0,9]\n",
            client + 20,
            client % 4
        ));
    }
    let history = script::history("register", &text);
    let checker = find("linearizable").expect("the checker");
    let found = checkers::run(checker, &history, &Budget::new(100, Budget::DEFAULT_BYTES));
    match found.verdict {
        Verdict::Unknown(checkers::Reason::Budget(text)) => {
            assert!(
                text.contains("0 of 1 keys decided, then key x up to"),
                "{text}"
            );
        }
        other => panic!("expected unknown(budget), got {other:?}"),
    }
    let nothing = script::history("register", "");
    for checker in CHECKERS {
        let verdict = checkers::run(*checker, &nothing, &Budget::unlimited()).verdict;
        assert!(matches!(verdict, Verdict::Unknown(_)), "{}", checker.name());
    }
}

/// A value that a chain of cas led to, read after it was overwritten: what is told is the stale read,
/// not that the chain begins with a value whose writer was left out.
#[test]
fn a_stale_read_of_what_cas_wrote_is_told_as_such() {
    let found = check(
        "linearizable",
        r#"
        0-1 P1 write x 215 -> 215
        2-3 P1 cas x [215,216] -> [215,216]
        4-5 P2 cas x [216,220] -> [216,220]
        6-7 P3 write x 249 -> 249
        8-9 P4 read x null -> 220"#,
    );
    assert_eq!(found.verdict, Verdict::Invalid);
    let told = found.counterexample.expect("a counterexample");
    assert!(told.summary.contains("read by P4"), "{}", told.summary);
    assert!(!told.summary.contains("nobody"), "{}", told.summary);
}

fn append(level: &str, text: &str) -> Checked {
    check("append", &format!("param level \"{level}\"\n{text}"))
}

/// elle#21: what one session did before the other's transaction began is seen by it.
#[test]
fn sessions_count_where_the_level_says_so() {
    let text = r#"
        0-1 A txn - [["r","x",null],["append","y",1]] -> [["r","x",[1]],["append","y",1]]
        0-1 B txn - [["r","y",null]] -> [["r","y",[1]]]
        2-3 B txn - [["append","x",1]] -> [["append","x",1]]"#;
    for (level, verdict) in [
        ("serializable", Verdict::Valid),
        ("causal-cerone", Verdict::Valid),
        ("strong-session-read-committed", Verdict::Invalid),
        ("strong-session-serializable", Verdict::Invalid),
        ("strict-serializable", Verdict::Invalid),
    ] {
        assert_eq!(append(level, text).verdict, verdict, "{level}");
    }
    let counting = format!("param session_order \"always\"\n{text}");
    assert_eq!(append("causal-cerone", &counting).verdict, Verdict::Invalid);
}

/// elle-cli#47, with lists: serializable, but not in the order of sessions.
#[test]
fn a_later_read_of_an_own_session_may_be_of_an_earlier_version() {
    let text = r#"
        0-1 P1 txn - [["append","x",1]] -> [["append","x",1]]
        2-3 P2 txn - [["append","x",2]] -> [["append","x",2]]
        4-5 P1 txn - [["r","x",null]] -> [["r","x",[2]]]
        6-7 P2 txn - [["r","x",null]] -> [["r","x",[2,1]]]"#;
    assert_eq!(append("serializable", text).verdict, Verdict::Valid);
    for level in ["strong-session-serializable", "strict-serializable"] {
        assert_eq!(append(level, text).verdict, Verdict::Invalid, "{level}");
    }
}

/// elle#8, with lists: what nobody appended cannot be read.
#[test]
fn a_read_of_what_nobody_appended_is_convicted() {
    let text = r#"
        0-1 A txn - [["append","x",1]] -> [["append","x",1]]
        2-3 A txn - [["r","x",null]] -> [["r","x",[1,2]]]"#;
    assert_eq!(append("read-committed", text).verdict, Verdict::Invalid);
    let found = append("strict-serializable", text);
    let told = found.counterexample.expect("a counterexample");
    assert!(
        told.summary.contains("which nobody appended"),
        "{}",
        told.summary
    );
}

/// maelstrom#57: an answer that leaves micro-operations out is no answer.
#[test]
fn an_answer_without_all_micro_operations_is_refused() {
    let text = r#"0-1 A txn - [["r","a",null],["append","b",1]] -> [["r","a",null]]"#;
    match append("strict-serializable", text).verdict {
        Verdict::Unknown(checkers::Reason::Coverage(text)) => {
            assert!(text.contains("event 0"), "{text}");
        }
        other => panic!("expected unknown, got {other:?}"),
    }
}

/// yugabyte/jepsen#53: a transaction reads its own appends in the order in which it made them.
#[test]
fn own_appends_are_read_in_their_order() {
    let text = r#"0-1 A txn - [["r","x",null],["append","x",1],["append","x",2],["r","x",null]] -> [["r","x",null],["append","x",1],["append","x",2],["r","x",[1,2]]]"#;
    assert_eq!(append("strict-serializable", text).verdict, Verdict::Valid);
    let turned = text.replace("[1,2]", "[2,1]");
    assert_eq!(append("read-atomic", &turned).verdict, Verdict::Invalid);
}

/// An element that is appended twice belongs to nobody: both appends are named.
#[test]
fn elements_must_be_distinct() {
    let text = r#"
        0-1 A txn - [["append","x",1]] -> [["append","x",1]]
        2-3 A txn - [["append","x",1]] -> [["append","x",1]]
        4-5 A txn - [["r","x",null]] -> [["r","x",[1,1]]]"#;
    match append("strict-serializable", text).verdict {
        Verdict::Unknown(checkers::Reason::Coverage(text)) => {
            assert!(text.contains("events 0 and 2"), "{text}");
        }
        other => panic!("expected unknown, got {other:?}"),
    }
    // Appended once and there twice is another matter.
    let once = text.replace(
        "[[\"append\",\"x\",1]] -> [[\"append\",\"x\",1]]\n        4",
        "[] -> []\n        4",
    );
    let found = append("read-uncommitted", &once);
    assert_eq!(found.verdict, Verdict::Invalid);
    assert_eq!(found.counted("anomalies:duplicate-elements"), Some(1));
}

fn wr(level: &str, text: &str) -> Checked {
    check("wr", &format!("param level \"{level}\"\n{text}"))
}

/// elle#8: what nobody wrote cannot be read, from read committed up.
#[test]
fn a_read_of_what_nobody_wrote_is_convicted() {
    let text = r#"
        0-1 A txn - [["w","x",1]] -> [["w","x",1]]
        2-3 A txn - [["r","x",null]] -> [["r","x",2]]"#;
    assert_eq!(wr("read-uncommitted", text).verdict, Verdict::Valid);
    for level in ["read-committed", "causal", "strict-serializable"] {
        let found = wr(level, text);
        assert_eq!(found.verdict, Verdict::Invalid, "{level}");
        let told = found.counterexample.expect("a counterexample").summary;
        assert!(told.contains("x = 2, which nobody wrote"), "{told}");
    }
}

/// elle-cli#47: serializable, but not in the order of sessions.
#[test]
fn sessions_that_read_each_others_overwritten_values() {
    let text = r#"
        0-1 P1 txn - [["w","x",1]] -> [["w","x",1]]
        2-3 P2 txn - [["w","x",2]] -> [["w","x",2]]
        4-5 P1 txn - [["r","x",null]] -> [["r","x",2]]
        6-7 P2 txn - [["r","x",null]] -> [["r","x",1]]"#;
    for level in ["causal-cerone", "snapshot-isolation", "serializable"] {
        assert_eq!(wr(level, text).verdict, Verdict::Valid, "{level}");
    }
    for level in [
        "strong-session-snapshot-isolation",
        "strong-session-serializable",
        "strict-serializable",
    ] {
        assert_eq!(wr(level, text).verdict, Verdict::Invalid, "{level}");
    }
    for keys in ["sequential_keys", "linearizable_keys"] {
        let found = wr("serializable", &format!("param {keys} true\n{text}"));
        let told = found.counterexample.expect("a counterexample").summary;
        assert!(told.starts_with("cyclic-versions"), "{told}");
    }
}

/// elle#21, with registers.
#[test]
fn sessions_count_for_registers_where_the_level_says_so() {
    let text = r#"
        0-1 A txn - [["r","x",null],["w","y",1]] -> [["r","x",1],["w","y",1]]
        0-1 B txn - [["r","y",null]] -> [["r","y",1]]
        2-3 B txn - [["w","x",1]] -> [["w","x",1]]"#;
    for (level, verdict) in [
        ("serializable", Verdict::Valid),
        ("causal-cerone", Verdict::Valid),
        ("strong-session-read-committed", Verdict::Invalid),
        ("strong-session-serializable", Verdict::Invalid),
        ("strict-serializable", Verdict::Invalid),
    ] {
        assert_eq!(wr(level, text).verdict, verdict, "{level}");
    }
    for level in ["read-committed", "read-atomic", "causal-cerone"] {
        let counting = format!("param session_order \"always\"\n{text}");
        assert_eq!(wr(level, &counting).verdict, Verdict::Invalid, "{level}");
    }
}

/// elle#28: where the value before the first write is written too, a lost update is not proven.
#[test]
fn an_initial_value_that_is_written_makes_it_unknown() {
    let text = r#"
        0-9 A txn - [["r","x",null],["w","x",2]] -> [["r","x",2],["w","x",2]]
        0-9 B txn - [["r","x",null],["w","x",3]] -> [["r","x",2],["w","x",3]]"#;
    match wr("strict-serializable", &format!("param initial 2\n{text}")).verdict {
        Verdict::Unknown(checkers::Reason::Coverage(text)) => {
            assert!(text.contains("x was 2 before the first write"), "{text}");
        }
        other => panic!("expected unknown, got {other:?}"),
    }
    let other = text.replace(r#""x",2]]"#, r#""x",4]]"#);
    let found = wr("strict-serializable", &format!("param initial 2\n{other}"));
    let told = found.counterexample.expect("a counterexample").summary;
    assert!(told.starts_with("lost-update"), "{told}");
}

/// maelstrom#57, with registers.
#[test]
fn an_answer_without_all_reads_and_writes_is_refused() {
    let text = r#"0-1 A txn - [["r","a",null],["w","b",1]] -> [["r","a",null]]"#;
    match wr("strict-serializable", text).verdict {
        Verdict::Unknown(checkers::Reason::Coverage(text)) => {
            assert!(text.contains("event 0"), "{text}");
        }
        other => panic!("expected unknown, got {other:?}"),
    }
}

/// dbcop: a transaction may write again what it wrote and read.
#[test]
fn a_transaction_overwrites_what_it_read_of_itself() {
    let text = r#"0-1 A txn - [["w","a",1],["r","a",null],["w","a",2]] -> [["w","a",1],["r","a",1],["w","a",2]]"#;
    for level in [
        "read-committed",
        "read-atomic",
        "causal",
        "strict-serializable",
    ] {
        assert_eq!(wr(level, text).verdict, Verdict::Valid, "{level}");
    }
}

/// A value that two transactions wrote names neither: both are named.
#[test]
fn a_value_that_was_written_twice_makes_it_unknown() {
    let text = r#"
        0-1 A txn - [["w","x",1]] -> [["w","x",1]]
        2-3 B txn - [["w","x",1]] -> [["w","x",1]]"#;
    assert_eq!(wr("strict-serializable", text).verdict, Verdict::Valid);
    let text = format!("{text}\n4-5 A txn - [[\"r\",\"x\",null]] -> [[\"r\",\"x\",1]]");
    match wr("causal", &text).verdict {
        Verdict::Unknown(checkers::Reason::Coverage(text)) => {
            assert!(text.contains("event 1 and by that of event 3"), "{text}");
        }
        other => panic!("expected unknown, got {other:?}"),
    }
}
