//! Registers whose writes are distinct, which are decided without search, against all orders.
//!
//! The clients are those of a perfect register, but for some answers.

use checkers::Verdict;
use history::{Event, History, Kind};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::registers::linearizable;
use super::{check, convicts};
use crate::made::{Step, build, cases, events, header, register_steps};

/// Whether each operation takes effect when it is asked for, or if at all when it is answered, and
/// whether its answer is wrong.
type Luck = Vec<(bool, bool)>;

fn luck() -> impl Strategy<Value = Luck> {
    let wrong = prop::bool::weighted(0.04);
    prop::collection::vec((any::<bool>(), wrong), 20)
}

/// What was asked of a register.
struct Open {
    at: usize,
    input: Value,
    /// What it found there, or that it found another value than it wanted, once it has happened.
    happened: Option<Option<Value>>,
}

fn happen(f: &str, state: &mut Value, open: &mut Open) {
    open.happened.get_or_insert_with(|| match f {
        "read" => Some(state.clone()),
        "write" => Some(std::mem::replace(state, open.input.clone())),
        _ if *state == open.input[0] => Some(std::mem::replace(state, open.input[1].clone())),
        _ => None,
    });
}

/// The events of clients of one register: each write and cas leaves a value of its own.
fn played(params: &Value, mut steps: Vec<Step>, luck: &Luck) -> Vec<Event> {
    let initial = params.get("initial").cloned().unwrap_or(Value::Null);
    let mut written = vec![initial.clone()];
    for step in &mut steps {
        let next = json!(written.len() + 1);
        match step.f {
            "write" => step.input = next.clone(),
            "cas" => {
                let back = step.input[0].as_u64().unwrap_or(0) as usize;
                let old = written[written.len().saturating_sub(1 + back)].clone();
                step.input = json!([old, next]);
            }
            _ => continue,
        }
        written.push(next);
    }
    let mut state = initial;
    let mut open: [Option<Open>; 4] = [const { None }; 4];
    let mut all = events(&steps);
    let mut asked = 0;
    for event in &mut all {
        let process = event.process.to_string().parse::<usize>().unwrap_or(0);
        if event.kind == Kind::Invoke {
            let mut one = Open {
                at: asked,
                input: event.value.clone(),
                happened: None,
            };
            asked += 1;
            if luck[one.at].0 {
                happen(&event.f, &mut state, &mut one);
            }
            open[process] = Some(one);
            continue;
        }
        let Some(mut one) = open[process].take() else {
            continue;
        };
        let is_wrong = luck[one.at].1;
        match event.kind {
            Kind::Ok => happen(&event.f, &mut state, &mut one),
            // What failed on the way back is told as not answered.
            Kind::Fail if one.happened.is_some() => event.kind = Kind::Info,
            _ => {}
        }
        match (event.kind, one.happened) {
            _ if is_wrong => {}
            (Kind::Ok, Some(None)) => event.kind = Kind::Fail,
            (Kind::Ok, Some(Some(found))) if event.f == "read" => event.value = found,
            _ => {}
        }
    }
    all
}

fn made(params: &Value, steps: Vec<Step>, luck: &Luck) -> History {
    let events = played(params, steps, luck);
    build(header("register", params.clone()), events)
}

fn params() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        Just(json!({"initial": 1})),
        Just(json!({"fails": "uncertain"})),
        Just(json!({"nil_reads": "unknown"})),
    ]
}

/// The checker says what all orders say, without search.
fn agrees(history: &History) -> Result<(), TestCaseError> {
    let found = check("linearizable", history);
    if !matches!(found.verdict, Verdict::Unknown(_)) {
        prop_assert_eq!(found.verdict == Verdict::Invalid, !linearizable(history));
        prop_assert_eq!(found.counted("keys_by_shortcut"), Some(1));
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn registers_with_distinct_writes(
        params in params(),
        mut steps in register_steps(14),
        luck in luck(),
    ) {
        steps.retain(|step| step.f != "cas");
        agrees(&made(&params, steps, &luck))?;
    }

    #[test]
    fn registers_with_distinct_writes_and_cas(
        params in params(),
        mut steps in register_steps(14),
        luck in luck(),
        more in any::<u16>(),
    ) {
        // More of them are cas, so that they follow each other.
        for (at, step) in steps.iter_mut().enumerate().filter(|(_, step)| step.f == "write") {
            if more >> at & 1 == 1 {
                step.f = "cas";
                step.input = json!([step.input, null]);
            }
        }
        agrees(&made(&params, steps, &luck))?;
    }

    /// A failed cas saw another value: that may take a search.
    #[test]
    fn registers_with_distinct_writes_and_failed_cas(
        steps in register_steps(14),
        luck in luck(),
    ) {
        let params = json!({"cas_fail": "observation"});
        let history = made(&params, steps, &luck);
        prop_assert_eq!(convicts("linearizable", &history), !linearizable(&history));
    }

    /// What is counted of one register does not depend on how it is decided.
    #[test]
    fn counts_are_those_of_any_register(
        params in params(),
        mut steps in register_steps(20),
        luck in luck(),
    ) {
        steps.retain(|step| step.f != "cas");
        let one = made(&params, steps, &luck);
        // A second key with one write, so that events are not enough.
        let mut events: Vec<Event> = one.events().map(|event| event.to_event()).collect();
        for kind in [Kind::Invoke, Kind::Ok] {
            let write = Event::new(u64::MAX, history::Process::Number(9), kind, "write", json!(99));
            events.push(write.with_key("y"));
        }
        let two = build(one.header.clone(), events);
        let (one, two) = (check("linearizable", &one), check("linearizable", &two));
        if one.verdict == Verdict::Valid {
            prop_assert_eq!(&one.verdict, &two.verdict);
            for (name, more) in [("keys", 1), ("ops:write", 1), ("ops:read", 0), ("unanswered", 0)] {
                let count = |found: &checkers::Checked| found.counted(name).unwrap_or(0);
                prop_assert_eq!(count(&one) + more, count(&two), "{}", name);
            }
            let most = one.counted("concurrent_max").map(|most| most.max(1));
            prop_assert_eq!(most, two.counted("concurrent_max"));
        }
    }
}

/// What is far apart is told in a few lines all the same.
#[test]
fn an_old_value_is_told_by_what_overwrote_it() {
    let round = |at: u64| {
        let value = at + 1;
        format!(
            "{}-{} A write x {value} -> {value}\n{}-{} B read x null -> {value}\n",
            4 * at,
            4 * at + 1,
            4 * at + 2,
            4 * at + 3
        )
    };
    let rounds: String = (0..2_000).map(round).collect();
    let made = crate::script::history("register", &format!("{rounds}9000-9001 C read x null -> 1"));
    let told = check("linearizable", &made).counterexample;
    let told = told.expect("a counterexample");
    assert_eq!(told.rows.len(), 3, "{told:?}");
}
