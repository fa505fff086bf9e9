//! Sets, queues, counters, banks and forks: each element, number, total or pair by itself.

use checkers::Verdict;
use history::{EventRef, History, Kind, Op, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{answered, are_sums, check, convicts, ops};
use crate::made::{Answer, Step, cases, header, history};

/// One operation: function, node, argument and answer.
type Call = (&'static str, Option<&'static str>, Value, Answer);

fn answer(luck: u32, output: Value) -> Answer {
    match luck {
        0 => Answer::Fail(Some("refused")),
        1 => Answer::Info,
        2 => Answer::Never,
        _ => Answer::Ok(output),
    }
}

/// Steps of three processes, or of as many as there are steps.
fn steps(calls: impl Strategy<Value = Call>, most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (0u64..3, 0u64..3, 1u64..5, calls);
    let step = step.prop_map(|(process, gap, length, (f, node, input, answer))| Step {
        process,
        gap,
        length,
        f,
        key: None,
        node,
        input,
        answer,
    });
    prop::collection::vec(step, 1..most)
}

fn any_fails() -> impl Strategy<Value = &'static str> {
    prop_oneof![3 => Just("certain"), 1 => Just("uncertain")]
}

fn has_happened(op: Op<'_>, fails: &str) -> bool {
    op.outcome() != Outcome::Fail || fails == "uncertain"
}

// Sets.

fn set_calls() -> impl Strategy<Value = Call> {
    let node = prop_oneof![Just(Some("n1")), Just(Some("n2")), Just(None)];
    let items = prop_oneof![
        5 => prop::sample::subsequence(vec![0i64, 1, 2, 3], 0..5),
        1 => prop::collection::vec(0i64..5, 0..4),
    ];
    (0u32..8, node, 0i64..4, items, 0u32..12).prop_map(
        |(pick, node, value, items, luck)| match pick {
            0..=3 => ("add", None, json!(value), answer(luck, json!(value))),
            4..=6 => ("read", None, Value::Null, answer(luck, json!(items))),
            _ => ("final-read", node, Value::Null, answer(luck, json!(items))),
        },
    )
}

fn items(read: Op<'_>) -> Vec<Value> {
    let output = read.output().expect("answered").to_json();
    output.as_array().expect("a list").clone()
}

/// What becomes of each element that somebody asked to add.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fates {
    stable: u64,
    stale: u64,
    lost: u64,
    never_read: u64,
}

fn fates(adds: &[Op<'_>], reads: &[Op<'_>]) -> Fates {
    let mut fates = Fates::default();
    for value in (0i64..5).map(Value::from) {
        let own: Vec<_> = adds
            .iter()
            .filter(|op| op.input().to_json() == value)
            .collect();
        let having: Vec<_> = reads
            .iter()
            .filter(|read| items(**read).contains(&value))
            .collect();
        let acknowledged = own.iter().filter(|op| op.is_ok()).map(|op| answered(**op));
        let seen = having.iter().map(|read| answered(**read));
        let known = acknowledged.chain(seen).min();
        let (Some(known), false) = (known, own.is_empty()) else {
            continue;
        };
        let lacking: Vec<_> = reads
            .iter()
            .filter(|read| read.invoke.index() > known && !items(**read).contains(&value))
            .collect();
        let is_gone = |read: &&&Op<'_>| {
            having
                .iter()
                .all(|other| answered(**other) < read.invoke.index())
        };
        if lacking.iter().any(|read| is_gone(&read)) {
            fates.lost += 1;
        } else if having.is_empty() {
            fates.never_read += 1;
        } else {
            fates.stable += 1;
            fates.stale += u64::from(!lacking.is_empty());
        }
    }
    fates
}

/// Whether the last final read of some node lacks what was acknowledged before it began.
fn a_node_lacks(adds: &[Op<'_>], reads: &[Op<'_>]) -> bool {
    let named = |read: &&Op<'_>| read.f() == "final-read" && read.node().is_some();
    let is_last = |read: &&Op<'_>| {
        reads
            .iter()
            .filter(named)
            .all(|other| other.node() != read.node() || other.invoke.index() <= read.invoke.index())
    };
    reads.iter().filter(named).filter(is_last).any(|read| {
        adds.iter().any(|add| {
            add.is_ok()
                && answered(*add) < read.invoke.index()
                && !items(*read).contains(&add.input().to_json())
        })
    })
}

fn is_strange(adds: &[Op<'_>], reads: &[Op<'_>], fails: &str) -> bool {
    reads.iter().any(|read| {
        let items = items(*read);
        let is_added = |item: &Value| {
            let own: Vec<_> = adds
                .iter()
                .filter(|add| add.input().to_json() == *item)
                .collect();
            own.iter().any(|add| has_happened(**add, fails))
                && own.iter().any(|add| add.invoke.index() < answered(*read))
        };
        let is_twice = |item: &Value| items.iter().filter(|other| *other == item).count() > 1;
        items.iter().any(|item| !is_added(item) || is_twice(item))
    })
}

// Queues.

fn queue_calls() -> impl Strategy<Value = Call> {
    let drained = prop::collection::vec(0i64..3, 0..3);
    (0u32..7, 0i64..3, drained, 0u32..9).prop_map(|(pick, value, drained, luck)| match pick {
        0..=2 => ("enqueue", None, json!(value), answer(luck, json!(value))),
        3 | 4 => ("dequeue", None, Value::Null, answer(luck, json!(value))),
        5 => {
            let nothing = match luck % 3 {
                0 => Answer::Ok(Value::Null),
                1 => Answer::Fail(Some("empty")),
                _ => Answer::Fail(Some("exhausted")),
            };
            ("dequeue", None, Value::Null, nothing)
        }
        _ => ("drain", None, Value::Null, answer(luck, json!(drained))),
    })
}

/// What this event delivers.
fn deliveries(event: EventRef<'_>) -> Vec<Value> {
    match (event.kind(), event.f(), event.value().to_json()) {
        (Kind::Ok, "dequeue", value) if !value.is_null() => vec![value],
        (Kind::Ok, "drain", Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn enqueues<'h>(history: &'h History, fails: &str) -> Vec<Op<'h>> {
    let all = ops(history, &["enqueue"]);
    all.into_iter()
        .filter(|op| has_happened(*op, fails))
        .collect()
}

/// Whether something is delivered too early or too often, as far as the history goes by then.
fn delivers_too_much(history: &History, delivery: &str, fails: &str) -> bool {
    (0..history.len()).any(|end| {
        (0i64..3).map(Value::from).any(|value| {
            let delivered = (0..=end)
                .flat_map(|index| deliveries(history.event(index)))
                .filter(|other| *other == value)
                .count();
            let asked = enqueues(history, fails)
                .iter()
                .filter(|op| op.invoke.index() < end && op.input().to_json() == value)
                .count();
            let most = match delivery {
                "at-least-once" if asked > 0 => usize::MAX,
                _ => asked,
            };
            delivered > most
        })
    })
}

/// What was enqueued and acknowledged before the queue was found empty, and that nobody got; and
/// how much of it may have gone to those that crashed.
fn missing(history: &History) -> (Vec<Value>, usize) {
    let all = ops(history, &["dequeue", "drain"]);
    let emptied = all.iter().filter(|op| match op.outcome() {
        Outcome::Ok => op.f() == "drain" || op.output().is_some_and(|value| value.is_null()),
        Outcome::Fail => op.f() == "dequeue" && matches!(op.error(), Some("empty" | "exhausted")),
        Outcome::Info => false,
    });
    let emptied = emptied.map(|op| op.invoke.index()).max().unwrap_or(0);
    let due = ops(history, &["enqueue"]);
    let due = due
        .iter()
        .filter(|op| op.is_ok() && answered(**op) < emptied);
    let mut missing: Vec<Value> = due.map(|op| op.input().to_json()).collect();
    for value in history.events().flat_map(deliveries) {
        if let Some(place) = missing.iter().position(|other| *other == value) {
            missing.remove(place);
        }
    }
    let crashed = |f: &str| {
        let crashed = all.iter().filter(|op| op.outcome() == Outcome::Info);
        crashed.filter(|op| op.f() == f).count()
    };
    let taken = match crashed("drain") {
        0 => crashed("dequeue"),
        _ => usize::MAX,
    };
    (missing, taken)
}

/// Whether more of something came out in all than went in.
fn is_more(history: &History, delivery: &str, fails: &str) -> bool {
    (0i64..3).map(Value::from).any(|value| {
        let out = history.events().flat_map(deliveries);
        let out = out.filter(|other| *other == value).count();
        let into = enqueues(history, fails);
        let into = into.iter().filter(|op| op.input().to_json() == value);
        match into.count() {
            0 => out > 0,
            into => out > into && delivery != "at-least-once",
        }
    })
}

// Counters.

fn counter_calls() -> impl Strategy<Value = Call> {
    (0u32..5, -2i64..4, -3i64..7, 0u32..8).prop_map(|(pick, by, value, luck)| match pick {
        0 => ("add", None, Value::Null, answer(luck, Value::Null)),
        1 | 2 => ("add", None, json!(by), answer(luck, json!(by))),
        _ => ("read", None, Value::Null, answer(luck, json!(value))),
    })
}

/// Whether some read is beyond the sums of all choices of what may count.
fn miscounts(history: &History, fails: &str) -> bool {
    let adds = ops(history, &["add"]);
    let by = |op: Op<'_>| match op.input().to_json() {
        Value::Null => 1,
        value => value.as_i64().expect("an integer"),
    };
    let reads = ops(history, &["read"]).into_iter().filter(|op| op.is_ok());
    reads.into_iter().any(|read| {
        let value = read.output().and_then(|value| value.as_i64());
        let (begin, end) = (read.invoke.index(), answered(read));
        let is_certain = |op: &Op<'_>| op.is_ok() && answered(*op) < begin;
        let certain: i64 = adds
            .iter()
            .filter(|op| is_certain(op))
            .map(|op| by(*op))
            .sum();
        let open: Vec<i64> = adds
            .iter()
            .filter(|op| !is_certain(op) && has_happened(**op, fails) && op.invoke.index() < end)
            .map(|op| by(*op))
            .collect();
        let sums: Vec<i64> = (0u32..1 << open.len())
            .map(|chosen| {
                let chosen = (0..open.len()).filter(|at| chosen >> at & 1 == 1);
                certain + chosen.map(|at| open[at]).sum::<i64>()
            })
            .collect();
        value < sums.iter().min().copied() || value > sums.iter().max().copied()
    })
}

// Banks.

fn bank_calls() -> impl Strategy<Value = Call> {
    let balance = prop_oneof![
        12 => (0i64..3).prop_map(Value::from),
        1 => Just(json!(-1)),
        1 => Just(Value::Null),
    ];
    let account = prop_oneof![12 => Just(true), 1 => Just(false)];
    (0u32..5, balance, 0i64..2, account, 0u32..9).prop_map(|(pick, a, off, has_b, luck)| {
        if pick == 0 {
            let moved = json!({"from": "a", "to": "b", "amount": 1});
            return ("transfer", None, moved, answer(luck, Value::Null));
        }
        // Mostly the same total.
        let off = if luck < 8 { 0 } else { off };
        let b = json!(3 - a.as_i64().unwrap_or(0) + off);
        let mut read = json!({"a": a, "b": b});
        if !has_b {
            read = json!({"a": a, "c": b});
        }
        ("read", None, Value::Null, answer(luck, read))
    })
}

/// Whether two reads disagree, or one shows what cannot be.
fn is_fraud(history: &History, negative: bool, named: bool) -> bool {
    let reads = ops(history, &["read"]);
    let reads: Vec<Value> = reads
        .iter()
        .filter_map(|op| Some(op.output()?.to_json()))
        .collect();
    let balances = |read: &Value| -> Vec<Value> {
        let map = read.as_object().expect("a map");
        map.values().cloned().collect()
    };
    let is_odd = |read: &Value| {
        balances(read).iter().any(Value::is_null) || named && read.get("b").is_none()
    };
    let is_negative = |read: &Value| {
        let negative_ones = |balance: &Value| balance.as_i64().is_some_and(|is| is < 0);
        balances(read).iter().any(negative_ones)
    };
    let total = |read: &Value| -> i64 { balances(read).iter().filter_map(Value::as_i64).sum() };
    let whole: Vec<&Value> = reads.iter().filter(|read| !is_odd(read)).collect();
    let differ = whole
        .iter()
        .any(|a| whole.iter().any(|b| total(a) != total(b)));
    differ
        || reads
            .iter()
            .any(|read| is_odd(read) || !negative && is_negative(read))
}

// Forks.

fn fork_calls() -> impl Strategy<Value = Call> {
    let seen = prop::collection::vec(prop_oneof![9 => Just(true), 6 => Just(false)], 3);
    (0u32..6, 0usize..3, seen, any::<bool>(), 0u32..20).prop_map(
        |(pick, key, seen, is_short, luck)| {
            if pick == 0 {
                let write = json!([["w", key, 1]]);
                return ("txn", None, write.clone(), answer(luck, write));
            }
            let value = |key: usize| match (seen[key], luck) {
                (true, 19) => json!(7),
                (true, _) => json!(1),
                (false, _) => Value::Null,
            };
            let keys = || (0..if is_short { 2 } else { 3 }).map(|at| (key + at) % 3);
            let asked: Value = keys().map(|key| json!(["r", key, null])).collect();
            let read: Value = keys().map(|key| json!(["r", key, value(key)])).collect();
            ("txn", None, asked, answer(luck, read))
        },
    )
}

/// Whether two reads of the same keys disagree on the order of two writes, or one is of nothing
/// that was written.
fn is_forked(history: &History) -> bool {
    let parts = |value: &Value| value.as_array().expect("a list").clone();
    let txns = ops(history, &["txn"]);
    let may = txns.iter().filter(|op| op.outcome() != Outcome::Fail);
    let written: Vec<Value> = may
        .flat_map(|op| parts(&op.input().to_json()))
        .filter(|mop| mop[0] == "w")
        .map(|mop| json!([mop[1], mop[2]]))
        .collect();
    let reads: Vec<Vec<Value>> = txns
        .iter()
        .filter_map(|op| Some(parts(&op.output()?.to_json())))
        .filter(|mops| mops.iter().all(|mop| mop[0] == "r"))
        .map(|mut mops| {
            mops.sort_by_key(|mop| mop[1].as_i64());
            mops
        })
        .collect();
    let is_strange = |mop: &Value| !mop[2].is_null() && !written.contains(&json!([mop[1], mop[2]]));
    let clash = |a: &[Value], b: &[Value]| {
        let is_same = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a[1] == b[1]);
        let more = |a: &[Value], b: &[Value]| {
            let pairs = a.iter().zip(b);
            pairs
                .into_iter()
                .any(|(a, b)| !a[2].is_null() && b[2].is_null())
        };
        is_same && more(a, b) && more(b, a)
    };
    reads.iter().flatten().any(is_strange)
        || reads.iter().any(|a| reads.iter().any(|b| clash(a, b)))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn set_full(steps in steps(set_calls(), 14), fails in any_fails(), strict in any::<bool>()) {
        let word = if strict { "violation" } else { "allowed" };
        let params = json!({"fails": fails, "stale_reads": word});
        let made = history(header("set", params), &steps);
        let adds = ops(&made, &["add"]);
        prop_assume!(!adds.is_empty());
        let reads = ops(&made, &["read", "final-read"]);
        let reads: Vec<_> = reads.into_iter().filter(|op| op.is_ok()).collect();
        let expected = fates(&adds, &reads);
        let found = check("set-full", &made);
        let counted = |name: &str| found.counted(name).expect("counted");
        let said = Fates {
            stable: counted("stable"),
            stale: counted("stale"),
            lost: counted("lost"),
            never_read: counted("never_read"),
        };
        prop_assert_eq!(&said, &expected);
        let wrong = expected.lost > 0
            || a_node_lacks(&adds, &reads)
            || is_strange(&adds, &reads, fails)
            || strict && expected.stale > 0;
        prop_assert_eq!(found.verdict == Verdict::Invalid, wrong);
        prop_assert!(wrong || (found.verdict == Verdict::Valid) == (expected.stable > 0));
    }

    /// What is counted of several sets is the sum of what is counted of each.
    #[test]
    fn sets_are_judged_apart(
        mut steps in steps(set_calls(), 18),
        keys in prop::collection::vec(any::<bool>(), 18),
        fails in any_fails(),
    ) {
        for (step, is_first) in steps.iter_mut().zip(keys) {
            step.key = Some(if is_first { "x" } else { "y" });
        }
        let made = history(header("set", json!({"fails": fails})), &steps);
        let names = ["stable", "stale", "lost", "never_read", "recovered", "duplicated", "unexpected"];
        are_sums("set-full", &made, &names)?;
    }

    #[test]
    fn queue(
        steps in steps(queue_calls(), 12),
        fails in any_fails(),
        delivery in prop::sample::select(vec!["exactly-once", "at-most-once", "at-least-once"]),
    ) {
        let params = json!({"fails": fails, "delivery": delivery});
        let made = history(header("queue", params), &steps);
        let wrong = delivers_too_much(&made, delivery, fails);
        prop_assert_eq!(convicts("queue", &made), wrong);
    }

    #[test]
    fn total_queue(
        steps in steps(queue_calls(), 12),
        fails in any_fails(),
        delivery in prop::sample::select(vec!["exactly-once", "at-most-once", "at-least-once"]),
    ) {
        let params = json!({"fails": fails, "delivery": delivery});
        let made = history(header("queue", params), &steps);
        let (missing, taken) = missing(&made);
        let leaks = missing.len() > taken && delivery != "at-most-once";
        let found = check("total-queue", &made);
        let wrong = leaks || is_more(&made, delivery, fails);
        prop_assert_eq!(found.verdict == Verdict::Invalid, wrong);
        let lost = missing.len().saturating_sub(taken) as u64;
        prop_assert_eq!(found.counted("lost"), Some(lost));
        if found.verdict == Verdict::Valid && delivery != "at-most-once" {
            prop_assert_eq!(missing, Vec::<Value>::new());
        }
    }

    #[test]
    fn counter(steps in steps(counter_calls(), 10), fails in any_fails()) {
        let made = history(header("counter", json!({"fails": fails})), &steps);
        prop_assume!(!ops(&made, &["add"]).is_empty());
        let found = check("counter", &made);
        prop_assert_eq!(found.verdict == Verdict::Invalid, miscounts(&made, fails));
        if found.verdict == Verdict::Invalid {
            let params = json!({"fails": fails, "model": "counter"});
            let exact = history(header("counter", params), &steps);
            prop_assert_ne!(check("linearizable", &exact).verdict, Verdict::Valid);
        }
    }

    #[test]
    fn bank(steps in steps(bank_calls(), 9), negative in any::<bool>(), named in any::<bool>()) {
        let mut params = json!({"negative_balances": negative});
        if named {
            params["accounts"] = json!(["a", "b"]);
        }
        let made = history(header("bank", params), &steps);
        prop_assert_eq!(convicts("bank", &made), is_fraud(&made, negative, named));
    }

    #[test]
    fn long_fork(steps in steps(fork_calls(), 10)) {
        let made = history(header("txn", Value::Null), &steps);
        prop_assert_eq!(convicts("long-fork", &made), is_forked(&made));
    }
}
