//! Changes to a history that must not change what is said of it, or only to the better.

use checkers::{Budget, CHECKERS, Checker, Verdict, find};
use history::{Event, History, Kind, Process};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::made::{Step, build, cases, events, header, lock_steps, register_steps};

/// What each checker says; of an unknown only of what kind it is, since its reason may name a key.
fn verdicts(history: &History) -> Vec<(&'static str, String)> {
    let said = |checker: &dyn Checker| match checker.check(history, &Budget::unlimited()).verdict {
        Verdict::Unknown(reason) => format!("{:?}", std::mem::discriminant(&reason)),
        verdict => verdict.describe(),
    };
    let named = CHECKERS
        .iter()
        .map(|checker| (checker.name(), said(*checker)));
    named.collect()
}

fn convicts(name: &str, history: &History) -> bool {
    let checker = find(name).expect("a checker of this name");
    checker.check(history, &Budget::unlimited()).verdict == Verdict::Invalid
}

fn params() -> Value {
    json!({"drift_ms": 0, "ttl_ms": 100, "slack_ms": 2, "bound_ms": 5})
}

fn renamed(events: &[Event]) -> Vec<Event> {
    events
        .iter()
        .cloned()
        .map(|mut event| {
            if let Process::Number(number) = event.process {
                event.process = Process::Number(number * 13 + 5);
            }
            event.key = event.key.map(|key| json!(format!("renamed {key}")));
            event
        })
        .collect()
}

/// Numbers of a register become strings; null stays the initial value.
fn revalued(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(format!("value {number}")),
        Value::Array(items) => items.iter().map(revalued).collect(),
        other => other.clone(),
    }
}

/// Moves one event away from its partner, as far as its process and others allow: `by` places.
fn widened(events: &[Event], pick: usize, by: usize) -> Vec<Event> {
    let mut moved = events.to_vec();
    let at = pick % moved.len();
    let event = moved.remove(at);
    let earlier = event.kind == Kind::Invoke;
    let mut to = at;
    for _ in 0..by {
        let next = if earlier { to.checked_sub(1) } else { Some(to) };
        match next.and_then(|next| moved.get(next)) {
            Some(other) if other.process != event.process => {
                to = if earlier { to - 1 } else { to + 1 };
            }
            _ => break,
        }
    }
    let time = if to == at {
        event.time
    } else if earlier {
        moved[to].time
    } else {
        moved[to - 1].time
    };
    moved.insert(to, Event { time, ..event });
    moved
}

fn is_operation(event: &Event, events: &[Event]) -> bool {
    let own = events
        .iter()
        .filter(|other| other.process == event.process && other.f == event.f);
    event.f != "lost" && own.count() > 0
}

/// One more operation, of a process of its own, that is never answered.
fn with_unanswered(events: &[Event], f: &str, key: &str, value: Value, at: usize) -> Vec<Event> {
    let at = at % (events.len() + 1);
    let time = at.checked_sub(1).map_or(0, |before| events[before].time);
    let event = Event::new(time, Process::Number(99), Kind::Invoke, f, value).with_key(key);
    let mut more = events.to_vec();
    more.insert(at, event);
    more
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn names_do_not_matter(steps in prop_oneof![lock_steps().boxed(), register_steps(12).boxed()]) {
        let events = events(&steps);
        let before = verdicts(&build(header("lock", params()), events.clone()));
        let after = verdicts(&build(header("lock", params()), renamed(&events)));
        prop_assert_eq!(before, after);
    }

    #[test]
    fn values_of_a_register_do_not_matter(steps in register_steps(12)) {
        let events = events(&steps);
        let other = events.iter().cloned().map(|mut event| {
            event.value = revalued(&event.value);
            event
        });
        let before = convicts("linearizable", &build(header("register", Value::Null), events.clone()));
        let after = convicts("linearizable", &build(header("register", Value::Null), other.collect()));
        prop_assert_eq!(before, after);
    }

    /// Less is known of when a widened operation took effect, so that it can only excuse. Nobody
    /// shows a token here: one that is shown before its grant is answered would belong to no hold.
    #[test]
    fn widening_never_convicts(
        steps in prop_oneof![lock_steps().boxed(), register_steps(12).boxed()],
        pick in any::<prop::sample::Index>(),
        by in 1usize..6,
    ) {
        let steps: Vec<Step> = steps
            .into_iter()
            .filter(|step| step.input.get("token").is_none())
            .collect();
        prop_assume!(!steps.is_empty());
        let events = events(&steps);
        let at = pick.index(events.len());
        prop_assume!(is_operation(&events[at], &events));
        let wide = widened(&events, at, by);
        let (before, after) = (build(header("lock", params()), events), build(header("lock", params()), wide));
        for name in ["linearizable", "mutual-exclusion", "lost-writes", "unique-ids"] {
            prop_assert!(convicts(name, &before) || !convicts(name, &after), "{}", name);
        }
    }

    /// What was never answered need not have happened.
    #[test]
    fn an_unanswered_operation_never_convicts(
        steps in prop_oneof![lock_steps().boxed(), register_steps(12).boxed()],
        at in any::<usize>(),
        value in 0i64..3,
        pick in 0u32..5,
    ) {
        let events = events(&steps);
        let (f, key, value) = match pick {
            0 => ("write", "x", json!(value)),
            1 => ("cas", "x", json!([value, 1])),
            2 => ("acquire", "L", json!({"ttl_ms": 50})),
            3 => ("put", "L", json!({"v": 77, "token": value})),
            _ => ("act", "L", Value::Null),
        };
        let more = with_unanswered(&events, f, key, value, at);
        let (before, after) = (build(header("lock", params()), events), build(header("lock", params()), more));
        for name in ["linearizable", "mutual-exclusion", "lease-early", "lease-stuck", "stale-writes", "lost-writes"] {
            prop_assert!(convicts(name, &before) || !convicts(name, &after), "{}", name);
        }
    }

    /// A read that is left out, answered or not, takes evidence away.
    #[test]
    fn a_read_left_out_never_convicts(steps in register_steps(14), pick in any::<prop::sample::Index>()) {
        let reads: Vec<usize> = (0..steps.len()).filter(|&at| steps[at].f == "read").collect();
        prop_assume!(!reads.is_empty());
        let mut fewer: Vec<Step> = steps.clone();
        let gone = fewer[reads[pick.index(reads.len())]].clone();
        let before = events(&steps);
        // The time that it took stays.
        for step in &mut fewer {
            if step.process == gone.process && step.f == "read" && step.gap == gone.gap {
                step.f = "idle";
            }
        }
        let after = build(header("register", Value::Null), events(&fewer));
        let before = build(header("register", Value::Null), before);
        prop_assert!(convicts("linearizable", &before) || !convicts("linearizable", &after));
    }
}
