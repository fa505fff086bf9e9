//! What must follow when a history of registers is changed in a way whose meaning is known.

use checkers::{Budget, Checked, Verdict, find};
use history::{Event, History, Kind, Process};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::made::{Step, build, cases, events, header, register_steps};

fn linearizable(history: &History, threads: usize) -> Checked {
    let budget = Budget::unlimited().on_threads(threads);
    checkers::run(find("linearizable").expect("the checker"), history, &budget)
}

fn made(events: &[Event]) -> History {
    build(header("register", Value::Null), events.to_vec())
}

fn verdict(events: &[Event]) -> Verdict {
    linearizable(&made(events), 1).verdict
}

/// Steps on three keys.
fn keyed_steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = prop::collection::vec(prop::sample::select(vec!["x", "y", "z"]), 24);
    (register_steps(24), keys).prop_map(|(mut steps, keys)| {
        for (step, key) in steps.iter_mut().zip(keys) {
            step.key = Some(key);
        }
        steps
    })
}

/// Places of completions that may come later, because another process has the next event.
fn may_come_later(events: &[Event]) -> Vec<usize> {
    let pairs = events.windows(2).enumerate();
    let later = pairs.filter(|(_, pair)| {
        pair[0].kind != Kind::Invoke
            && pair[1].kind == Kind::Invoke
            && pair[0].process != pair[1].process
    });
    later.map(|(at, _)| at).collect()
}

proptest! {
    #![proptest_config(cases())]

    /// The verdict of a history is that of its keys.
    #[test]
    fn keys_are_independent(steps in keyed_steps()) {
        let all = events(&steps);
        let of_key = |key: &str| {
            let own: Vec<Event> = all
                .iter()
                .filter(|event| event.key == Some(Value::from(key)))
                .cloned()
                .collect();
            verdict(&own) == Verdict::Invalid
        };
        let any = ["x", "y", "z"].into_iter().any(of_key);
        prop_assert_eq!(verdict(&all) == Verdict::Invalid, any);
    }

    /// On many threads the same is said, word for word, as on one.
    #[test]
    fn threads_change_nothing(steps in keyed_steps()) {
        let history = made(&events(&steps));
        prop_assert_eq!(linearizable(&history, 1), linearizable(&history, 5));
    }

    /// What has an order when an operation is over early has one when it is over later.
    #[test]
    fn an_operation_may_take_longer(steps in register_steps(14), pick in any::<prop::sample::Index>()) {
        let all = events(&steps);
        let places = may_come_later(&all);
        if places.is_empty() || verdict(&all) != Verdict::Valid {
            return Ok(());
        }
        let at = places[pick.index(places.len())];
        let mut wider = all.clone();
        wider.swap(at, at + 1);
        let early = wider[at + 1].time;
        wider[at + 1].time = wider[at].time;
        wider[at].time = early;
        prop_assert_eq!(verdict(&wider), Verdict::Valid);
    }

    /// Names of processes and values mean nothing.
    #[test]
    fn names_mean_nothing(steps in register_steps(14)) {
        fn renamed(value: &Value) -> Value {
            match value {
                Value::Number(number) => json!(format!("v{}", 7 - number.as_i64().unwrap_or(0))),
                Value::Array(items) => items.iter().map(renamed).collect(),
                other => other.clone(),
            }
        }
        let all = events(&steps);
        let others: Vec<Event> = all
            .iter()
            .cloned()
            .map(|mut event| {
                if let Process::Number(number) = event.process {
                    event.process = Process::Name(format!("p{}", 31 - number));
                }
                event.value = renamed(&event.value);
                event
            })
            .collect();
        prop_assert_eq!(verdict(&all), verdict(&others));
    }

    /// Without an operation that was not answered less can be explained; a read of that kind, or
    /// any operation that failed, explains nothing.
    #[test]
    fn what_was_not_answered_can_only_explain(steps in register_steps(14), pick in any::<prop::sample::Index>()) {
        let history = made(&events(&steps));
        let unsure: Vec<usize> = history
            .ops()
            .filter(|op| !op.is_ok())
            .map(|op| op.invoke.index())
            .collect();
        if unsure.is_empty() {
            return Ok(());
        }
        let gone = history.event(unsure[pick.index(unsure.len())]);
        let partner = gone.partner().map(|partner| partner.index());
        let left: Vec<Event> = history
            .events()
            .filter(|event| event.index() != gone.index() && Some(event.index()) != partner)
            .map(|event| event.to_event())
            .collect();
        let (before, after) = (linearizable(&history, 1).verdict, verdict(&left));
        let explains = gone.f() != "read" && gone.op().outcome() == history::Outcome::Info;
        // The last operation may have been the only one.
        if matches!(after, Verdict::Unknown(_)) {
            return Ok(());
        }
        prop_assert!(before == after || (explains && before == Verdict::Valid));
    }
}

/// More memory than it may have is never a verdict, on one thread or on many.
#[test]
fn too_little_memory_is_unknown() {
    // On each key fourteen writes at once, each of a register of its own and of one that all write.
    let event = |client: u64, kind| {
        let time = client + if kind == Kind::Ok { 100 } else { 0 };
        let value = json!([["w", client, 1], ["w", 100, client]]);
        let event = Event::new(time, Process::Number(client), kind, "txn", value);
        event.with_key(["x", "y", "z"][client as usize % 3])
    };
    let asked = (0..42).map(|client| event(client, Kind::Invoke));
    let all = asked.chain((0..42).map(|client| event(client, Kind::Ok)));
    let params = json!({"model": "multi-register"});
    let history = build(header("register", params), all.collect());
    let checker = find("linearizable").expect("the checker");
    let told = [1, 4].map(|threads| {
        checkers::run(
            checker,
            &history,
            &Budget::new(u64::MAX, 64).on_threads(threads),
        )
    });
    assert_eq!(told[0], told[1]);
    let verdict = &told[0].verdict;
    assert!(
        matches!(verdict, Verdict::Unknown(checkers::Reason::Memory(_))),
        "{verdict:?}"
    );
}
