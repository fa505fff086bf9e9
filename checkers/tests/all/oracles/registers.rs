//! `linearizable` against all orders of up to twenty operations.

use std::collections::HashSet;

use checkers::{Budget, Verdict, find};
use history::{History, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{answered, check, convicts};
use crate::made::{Answer, cases, header, history, register_steps};

/// What an operation does to the value; `None` if it cannot happen there.
type Effect = Box<dyn Fn(&Value) -> Option<Value>>;

struct Register {
    call: usize,
    ret: usize,
    effect: Effect,
}

fn register_ops(history: &History) -> Vec<Register> {
    let is = |param: &str, word: &str| history.header.param_str(param) == Some(word);
    let failed_cas_observes = is("cas_fail", "observation");
    let mut found = Vec::new();
    for op in history.ops() {
        let input = op.input().to_json();
        let outcome = match op.outcome() {
            Outcome::Fail if op.f() == "cas" && failed_cas_observes => Outcome::Fail,
            Outcome::Fail if is("fails", "uncertain") => Outcome::Info,
            outcome => outcome,
        };
        let effect: Effect = match (op.f(), outcome) {
            ("read", Outcome::Ok) => {
                let output = op.output().map(|value| value.to_json());
                if output == Some(Value::Null) && is("nil_reads", "unknown") {
                    continue;
                }
                Box::new(move |value| (Some(value) == output.as_ref()).then(|| value.clone()))
            }
            ("write", Outcome::Ok | Outcome::Info) => Box::new(move |_| Some(input.clone())),
            ("cas", Outcome::Ok | Outcome::Info) => {
                Box::new(move |value| (*value == input[0]).then(|| input[1].clone()))
            }
            ("cas", Outcome::Fail) if failed_cas_observes => {
                Box::new(move |value| (*value != input[0]).then(|| value.clone()))
            }
            _ => continue,
        };
        let ret = if outcome == Outcome::Info {
            usize::MAX
        } else {
            answered(op)
        };
        found.push(Register {
            call: op.invoke.index(),
            ret,
            effect,
        });
    }
    found
}

/// Tries every order that real time allows; `dead` remembers what led nowhere.
fn has_order(
    ops: &[Register],
    done: &mut Vec<bool>,
    value: &Value,
    dead: &mut HashSet<(Vec<bool>, String)>,
) -> bool {
    let place = (done.clone(), value.to_string());
    if dead.contains(&place) {
        return false;
    }
    let left = || (0..ops.len()).filter(|&at| !done[at]);
    if left().all(|at| ops[at].ret == usize::MAX) {
        return true;
    }
    let first_return = left().map(|at| ops[at].ret).min().unwrap_or(usize::MAX);
    let next: Vec<usize> = left().filter(|&at| ops[at].call < first_return).collect();
    let found = next.into_iter().any(|at| {
        (ops[at].effect)(value).is_some_and(|value| {
            done[at] = true;
            let found = has_order(ops, done, &value, dead);
            done[at] = false;
            found
        })
    });
    if !found {
        dead.insert(place);
    }
    found
}

pub fn linearizable(history: &History) -> bool {
    let ops = register_ops(history);
    let done = &mut vec![false; ops.len()];
    let initial = history.header.params.get("initial");
    has_order(
        &ops,
        done,
        initial.unwrap_or(&Value::Null),
        &mut HashSet::new(),
    )
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn registers_with_few_values(steps in register_steps(9)) {
        let made = history(header("register", Value::Null), &steps);
        prop_assert_eq!(convicts("linearizable", &made), !linearizable(&made));
    }

    /// The same with more of them at once.
    #[test]
    fn registers_with_many_operations(steps in register_steps(20)) {
        let made = history(header("register", Value::Null), &steps);
        prop_assert_eq!(convicts("linearizable", &made), !linearizable(&made));
    }

    #[test]
    fn a_failed_cas_that_observes(steps in register_steps(14)) {
        let made = history(header("register", json!({"cas_fail": "observation"})), &steps);
        prop_assert_eq!(convicts("linearizable", &made), !linearizable(&made));
    }

    /// The same with most writes and cas unanswered.
    #[test]
    fn registers_with_few_answers(mut steps in register_steps(14)) {
        for step in steps.iter_mut().filter(|step| step.f != "read" && step.length != 1) {
            step.answer = Answer::Info;
        }
        let made = history(header("register", Value::Null), &steps);
        prop_assert_eq!(convicts("linearizable", &made), !linearizable(&made));
    }

    /// What failed may have happened, if that is declared: it is as if nobody had answered.
    #[test]
    fn an_uncertain_failure_is_no_answer(steps in register_steps(10)) {
        let made = history(header("register", json!({"fails": "uncertain"})), &steps);
        prop_assert_eq!(convicts("linearizable", &made), !linearizable(&made));
    }

    /// The events that a counterexample names are enough to convict by themselves.
    #[test]
    fn a_counterexample_convicts(steps in register_steps(16)) {
        let made = history(header("register", Value::Null), &steps);
        let found = check("linearizable", &made);
        let Some(told) = found.counterexample else { return Ok(()) };
        let keep: Vec<usize> = told.rows.iter().flat_map(|row| {
            let event = made.event(row.event);
            let partner = event.partner().map(|partner| partner.index());
            std::iter::once(row.event).chain(partner)
        }).collect();
        let events = keep.iter().copied().collect::<std::collections::BTreeSet<_>>();
        let part = crate::made::build(
            header("register", Value::Null),
            events.into_iter().map(|at| made.event(at).to_event()).collect(),
        );
        prop_assert!(convicts("linearizable", &part), "{told:?}");
        prop_assert!(!linearizable(&part));
    }

    /// Out of steps is never valid, and never a wrong conviction.
    #[test]
    fn a_small_budget_is_honoured(steps in register_steps(14), limit in 0u64..40) {
        let made = history(header("register", Value::Null), &steps);
        let checker = find("linearizable").expect("the checker");
        let limited = checker.check(&made, &Budget::new(limit, Budget::DEFAULT_BYTES)).verdict;
        let full = check("linearizable", &made).verdict;
        prop_assert!(limited == full || matches!(limited, Verdict::Unknown(_)));
    }
}

/// Hundreds of operations at once, which need more than one word of slots.
#[test]
fn many_operations_at_once() {
    for width in [63, 64, 65, 130, 600] {
        let write = |at: u64| format!("0-1000 {at} write x 7 -> 7\n");
        let reads = |value: u64| format!("1001-1002 0 read x null -> {value}\n");
        let writes: String = (0..width).map(write).collect();
        for (value, convicted) in [(7, false), (8, true)] {
            let made = crate::script::history("register", &(writes.clone() + &reads(value)));
            assert_eq!(
                convicts("linearizable", &made),
                convicted,
                "{width} {value}"
            );
        }
    }
}

/// Of two equal writes at once, the one that need not return yet may still come late.
#[test]
fn the_one_that_must_return_first_goes_first() {
    let text = r#"
        0-10 A write x 1 -> 1
        1-100 B write x 1 -> 1
        11-20 C write x 2 -> 2
        21-30 C read x null -> 2
        31-40 C read x null -> 1"#;
    let made = crate::script::history("register", text);
    assert!(!convicts("linearizable", &made));
    let early = crate::script::history("register", &text.replace("1-100 B", "1-10 B"));
    assert!(convicts("linearizable", &early));
}

/// Two ways lead to one value, and each uses up another unanswered cas: both must be remembered.
#[test]
fn what_was_used_on_the_way_is_remembered() {
    let text = r#"
        0-1 A cas x [0,5] -> info timeout
        0-1 B cas x [1,5] -> info timeout
        10-20 C write x 0 -> 0
        10-20 D write x 1 -> 1
        30-31 C read x null -> 5
        40-41 C write x 0 -> 0
        50-51 C read x null -> 5"#;
    for (value, reads, convicted) in [(0, 1, false), (1, 1, false), (0, 2, true), (1, 2, true)] {
        let mut text = text.replace(
            "write x 0 -> 0\n        50",
            &format!("write x {value} -> {value}\n        50"),
        );
        for round in 1..reads {
            let at = 60 + round * 20;
            text += &format!("\n{at}-{} C write x {value} -> {value}", at + 1);
            text += &format!("\n{}-{} C read x null -> 5", at + 10, at + 11);
        }
        let made = crate::script::history("register", &text);
        assert_eq!(
            convicts("linearizable", &made),
            convicted,
            "{value} {reads}"
        );
    }
}
