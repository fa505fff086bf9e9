//! Every model of `linearizable` against all orders of a few operations.
//!
//! An object here is plain JSON, and an operation leads from one of it to all that may follow;
//! [`objects`] has them. Histories come from [`simulated`] clients of such an object, with some
//! answers lost and some changed.

mod objects;
mod simulated;

use std::collections::HashSet;

use checkers::Verdict;
use history::{Event, History, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{answered, check, convicts};
use crate::made::{build, cases, header};
use objects::Call;
use simulated::{Play, plays};

struct Timed {
    call: Call,
    from: usize,
    to: usize,
}

fn calls(history: &History) -> Vec<Timed> {
    let happened = history.ops().filter(|op| op.outcome() != Outcome::Fail);
    let timed = happened.map(|op| Timed {
        call: Call {
            f: op.f().to_owned(),
            input: op.input().to_json(),
            output: op.output().map(|value| value.to_json()),
            owner: op.invoke.process().to_string(),
        },
        from: op.invoke.index(),
        to: if op.outcome() == Outcome::Ok {
            answered(op)
        } else {
            usize::MAX
        },
    });
    timed.collect()
}

/// Which operations happened, and what is there then.
type Reached = (Vec<bool>, String);

struct Orders<'o> {
    object: &'o str,
    params: &'o Value,
    ops: &'o [Timed],
    /// From where all was tried.
    tried: HashSet<Reached>,
}

impl Orders<'_> {
    /// Tries every order that real time allows, and everything that may follow.
    fn exist(&mut self, done: &mut Vec<bool>, state: &Value) -> bool {
        let left = || (0..self.ops.len()).filter(|&at| !done[at]);
        if left().all(|at| self.ops[at].to == usize::MAX) {
            return true;
        }
        if !self.tried.insert((done.clone(), state.to_string())) {
            return false;
        }
        let first = left().map(|at| self.ops[at].to).min().unwrap_or(usize::MAX);
        let next: Vec<usize> = left().filter(|&at| self.ops[at].from < first).collect();
        next.into_iter().any(|at| {
            done[at] = true;
            let found = objects::after(self.object, self.params, state, &self.ops[at].call)
                .iter()
                .any(|state| self.exist(done, state));
            done[at] = false;
            found
        })
    }
}

fn linearizable(object: &str, params: &Value, history: &History) -> bool {
    let ops = calls(history);
    let mut orders = Orders {
        object,
        params,
        ops: &ops,
        tried: HashSet::new(),
    };
    orders.exist(&mut vec![false; ops.len()], &objects::initial(object))
}

fn made(object: &str, params: &Value, events: Vec<Event>) -> History {
    let mut all = params.clone();
    all["model"] = json!(object);
    build(header("", all), events)
}

/// The checker and all orders say the same, and what is told convicts by itself.
fn agrees(object: &str, params: Value, play: &Play) -> Result<(), TestCaseError> {
    let history = made(object, &params, simulated::events(object, &params, play));
    let expected = linearizable(object, &params, &history);
    let found = check("linearizable", &history);
    match &found.verdict {
        Verdict::Valid => prop_assert!(expected, "accepted"),
        Verdict::Invalid => prop_assert!(!expected, "convicted: {:?}", found.counterexample),
        Verdict::Unknown(reason) => {
            prop_assert!(reason.to_string().contains("no operation"), "{reason}");
        }
    }
    let Some(told) = found.counterexample else {
        return Ok(());
    };
    prop_assert!(told.rows.len() <= 10);
    let mut events: Vec<usize> = Vec::new();
    for row in &told.rows {
        events.push(row.event);
        events.extend(
            history
                .event(row.event)
                .partner()
                .map(|partner| partner.index()),
        );
    }
    events.sort_unstable();
    events.dedup();
    let part = events
        .into_iter()
        .map(|at| history.event(at).to_event())
        .collect();
    let part = made(object, &params, part);
    prop_assert!(!linearizable(object, &params, &part), "{told:?}");
    prop_assert!(convicts("linearizable", &part), "{told:?}");
    Ok(())
}

macro_rules! oracle {
    ($($test:ident: $object:literal, $params:tt, $vocabulary:literal;)*) => {
        proptest! {
            // There are many models: together they are tried on more than ten times `cases`.
            #![proptest_config(ProptestConfig { cases: cases().cases.div_ceil(2), ..cases() })]
            $(
                #[test]
                fn $test(play in plays($vocabulary)) {
                    agrees($object, json!($params), &play)?;
                }
            )*
        }
    };
}

oracle! {
    mutex: "mutex", {}, "lock";
    semaphore: "semaphore", {"permits": 2}, "lock";
    semaphore_of_several: "semaphore", {"permits": 3}, "permits";
    owner_aware_mutex: "owner-aware-mutex", {}, "lock";
    reentrant_mutex: "reentrant-mutex", {"depth_max": 2}, "lock";
    fenced_mutex: "fenced-mutex", {}, "lock";
    fifo_queue: "fifo-queue", {}, "queue-distinct";
    fifo_queue_of_few_values: "fifo-queue", {}, "queue";
    unordered_queue: "unordered-queue", {}, "queue-distinct";
    unordered_queue_of_few_values: "unordered-queue", {}, "queue";
    growing_set: "set", {}, "set-growing";
    set_without_reads: "set", {}, "set-asked";
    set: "set", {}, "set";
    counter_of_ones: "counter", {"initial": 1}, "ones";
    counter: "counter", {}, "counter";
    append_log: "append-log", {}, "log-distinct";
    append_log_of_few_values: "append-log", {}, "log";
    versioned_register: "versioned-register", {}, "versioned";
    versioned_register_with_cas: "versioned-register", {}, "versioned-cas";
    kv: "kv", {}, "kv-distinct";
    kv_with_equal_appends: "kv", {}, "kv-equal";
    kv_without_appends: "kv", {}, "kv-put-distinct";
    kv_with_everything: "kv", {}, "kv";
    multi_register: "multi-register", {}, "txn";
}
