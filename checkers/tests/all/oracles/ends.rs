//! What is looked at in the end, or value by value: ids, jobs, sets, registers.

use history::{History, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{answered, are_sums, convicts, ops};
use crate::made::{Answer, Step, cases, header, history};

fn answer(luck: u32, output: Value) -> Answer {
    match luck {
        0 => Answer::Fail(Some("refused")),
        1 => Answer::Info,
        _ => Answer::Ok(output),
    }
}

fn small_steps() -> impl Strategy<Value = Vec<Step>> {
    let node = prop_oneof![Just(Some("n1")), Just(Some("n2")), Just(None)];
    let read = prop::collection::vec(0i64..6, 0..6);
    let step = (
        0u64..3,
        0u64..4,
        1u64..4,
        0u32..8,
        0i64..6,
        node,
        0u32..10,
        read,
    );
    let step = step.prop_map(|(process, gap, length, pick, value, node, luck, read)| {
        let (f, key, input, output) = match pick {
            0 | 1 => ("generate", None, Value::Null, json!(value)),
            2 => ("run", Some("j"), json!(value), json!(value)),
            3 | 4 => ("add", None, json!(value), json!(value)),
            5 => ("write", Some("x"), json!(value), json!(value)),
            6 => ("final-read", None, Value::Null, json!(read)),
            _ => ("final-read", Some("x"), Value::Null, json!(value)),
        };
        Step {
            process,
            gap,
            length,
            f,
            key,
            node,
            input,
            answer: answer(luck, output),
        }
    });
    prop::collection::vec(step, 1..14)
}

fn outputs(history: &History, f: &str) -> Vec<Value> {
    ops(history, &[f])
        .iter()
        .filter_map(|op| Some(op.output()?.to_json()))
        .collect()
}

/// Writes that some final read lacks, and values that nobody wrote: sets and registers.
fn loses(history: &History) -> bool {
    let reads = ops(history, &["final-read"])
        .into_iter()
        .filter(|op| op.is_ok());
    reads.into_iter().any(|read| {
        let value = read.output().expect("answered").to_json();
        if read.key_id().is_none() {
            set_loses(history, read.invoke.index(), &value)
        } else {
            register_loses(history, read.invoke.index(), answered(read), &value)
        }
    })
}

fn set_loses(history: &History, asked: usize, value: &Value) -> bool {
    let adds = ops(history, &["add"]);
    if adds.is_empty() {
        return false;
    }
    let items = value.as_array().expect("a list");
    let lacks = adds.iter().any(|add| {
        add.is_ok() && answered(*add) < asked && !items.contains(&add.input().to_json())
    });
    let invents = items
        .iter()
        .any(|item| adds.iter().all(|add| add.input().to_json() != *item));
    lacks || invents
}

fn register_loses(history: &History, asked: usize, done: usize, value: &Value) -> bool {
    let writes = ops(history, &["write"]);
    let writes: Vec<_> = writes
        .iter()
        .filter(|op| op.outcome() != Outcome::Fail)
        .collect();
    if writes.is_empty() {
        return false;
    }
    let of_value =
        |op: &&&history::Op<'_>| op.input().to_json() == *value && op.invoke.index() < done;
    let writers: Vec<_> = writes.iter().filter(of_value).collect();
    let overwritten = |since: usize| {
        writes
            .iter()
            .any(|op| op.is_ok() && op.invoke.index() > since && answered(**op) < asked)
    };
    // A write that was never answered may be the last one at any time.
    let survives = writers
        .iter()
        .any(|op| !op.is_ok() || !overwritten(answered(***op)));
    !survives
}

fn diverges(history: &History) -> bool {
    let reads: Vec<_> = ops(history, &["final-read"])
        .into_iter()
        .filter(|op| op.is_ok() && op.node().is_some())
        .collect();
    let last = |op: &history::Op<'_>| {
        reads.iter().all(|other| {
            other.node() != op.node()
                || other.key_id() != op.key_id()
                || other.invoke.index() <= op.invoke.index()
        })
    };
    let content = |op: &history::Op<'_>| {
        let mut value = op.output().expect("answered").to_json();
        if let Some(items) = value.as_array_mut() {
            items.sort_by_key(Value::to_string);
        }
        value
    };
    reads.iter().filter(|op| last(op)).any(|a| {
        reads
            .iter()
            .filter(|op| last(op))
            .any(|b| a.key_id() == b.key_id() && content(a) != content(b))
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn unique_ids(steps in small_steps()) {
        let made = history(header("ids", Value::Null), &steps);
        let ids = outputs(&made, "generate");
        let twice = (0..ids.len()).any(|a| (0..a).any(|b| ids[a] == ids[b]));
        prop_assert_eq!(convicts("unique-ids", &made), twice);
    }

    #[test]
    fn job_once(steps in small_steps()) {
        let made = history(header("job", Value::Null), &steps);
        let runs = outputs(&made, "run");
        let twice = (0..runs.len()).any(|a| (0..a).any(|b| runs[a] == runs[b]));
        prop_assert_eq!(convicts("job-once", &made), twice);
    }

    #[test]
    fn lost_writes(steps in small_steps()) {
        let made = history(header("set", Value::Null), &steps);
        prop_assert_eq!(convicts("lost-writes", &made), loses(&made));
    }

    /// What is counted of several registers is the sum of what is counted of each.
    #[test]
    fn registers_are_judged_apart(
        mut steps in small_steps(),
        keys in prop::collection::vec(any::<bool>(), 14),
    ) {
        steps.retain(|step| step.key == Some("x"));
        for (step, is_first) in steps.iter_mut().zip(keys) {
            step.key = Some(if is_first { "x" } else { "y" });
        }
        let made = history(header("register", Value::Null), &steps);
        are_sums("lost-writes", &made, &["lost", "unexpected"])?;
    }

    #[test]
    fn convergence(steps in small_steps()) {
        let made = history(header("set", Value::Null), &steps);
        prop_assert_eq!(convicts("convergence", &made), diverges(&made));
    }
}
