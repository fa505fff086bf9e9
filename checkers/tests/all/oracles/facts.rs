//! What the run saw beside the operations: how many worked, what ended, what logs say.

use checkers::{Reason, Verdict};
use history::{Event, History, Kind, Process};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::check;
use crate::made::{build, cases, header};

fn stamped(events: Vec<Event>) -> Vec<Event> {
    let mut events = events;
    for (time, event) in (0..).zip(&mut events) {
        event.time = time;
    }
    events
}

fn observer(f: &str, node: &str, value: Value) -> Event {
    Event::new(0, Process::observer(), Kind::Info, f, value).with_node(node)
}

fn node() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("n1"), Just("n2")]
}

fn life() -> impl Strategy<Value = Vec<Event>> {
    let service = prop_oneof![Just("db"), Just("client")];
    let event = (0u32..6, node(), service, 0u32..4).prop_map(|(pick, node, service, how)| {
        let how = if how == 0 {
            "exit status 1"
        } else {
            "signal 9"
        };
        match pick {
            0 => observer("start", node, json!({"service": service})),
            1..=3 => observer("exit", node, json!({"service": service, "how": how})),
            4 => nemesis(json!(node)),
            _ => nemesis(json!(["n1", "n2"])),
        }
    });
    prop::collection::vec(event, 0..10).prop_map(stamped)
}

fn nemesis(target: Value) -> Event {
    let value = json!({"target": target, "phase": "begin"});
    Event::new(0, Process::nemesis(), Kind::Info, "kill", value)
}

/// How many exits have no kill of their node before them, or share the last one with an earlier
/// exit of the same service.
fn crashes(history: &History) -> u64 {
    let events: Vec<Event> = history.events().map(|event| event.to_event()).collect();
    let last_kill = |until: usize, node: &Value| {
        events[..until].iter().rposition(|event| {
            let target = &event.value["target"];
            let is_hit = target == node || target.as_array().is_some_and(|all| all.contains(node));
            event.f == "kill" && is_hit
        })
    };
    let is_exit = |event: &Event, of: &Event| {
        event.f == "exit" && event.node == of.node && event.value["service"] == of.value["service"]
    };
    let mut crashes = 0;
    for (at, exit) in events
        .iter()
        .enumerate()
        .filter(|(_, event)| event.f == "exit")
    {
        let node = json!(exit.node);
        let kill = last_kill(at, &node);
        let is_used = kill.is_some_and(|kill| {
            events[kill..at]
                .iter()
                .any(|other| is_exit(other, exit) && other.value["how"] == "signal 9")
        });
        let is_explained = exit.value["how"] == "signal 9" && kill.is_some() && !is_used;
        crashes += u64::from(!is_explained);
    }
    crashes
}

/// A log: its node, its length, and which of the patterns `a` and `b` were looked for and found.
type Log = (&'static str, u64, [bool; 2], [bool; 2]);

fn logs() -> impl Strategy<Value = Vec<Log>> {
    let often = || prop_oneof![5 => Just(true), 1 => Just(false)];
    let log = (
        node(),
        prop_oneof![1 => Just(0u64), 6 => Just(9u64)],
        [often(), often()],
        [any::<bool>(), any::<bool>()],
    );
    prop::collection::vec(log, 0..4)
}

fn log_event((at, log): (usize, &Log)) -> Event {
    let (node, lines, looked, found) = log;
    let patterns = ["a", "b"];
    let chosen = |which: &[bool; 2]| -> Vec<&str> {
        let both = patterns.iter().zip(which);
        both.filter(|(_, is)| **is).map(|(name, _)| *name).collect()
    };
    let found: Vec<Value> = chosen(found)
        .into_iter()
        .map(|name| json!({"pattern": name, "count": 1, "line": 1, "text": "x"}))
        .collect();
    let value = json!({
        "file": format!("{at}.log"), "lines": lines, "looked_for": chosen(looked), "found": found,
    });
    observer("log", node, value)
}

/// What the promise says of these logs, where `a` must not be there and `b` must: broken, kept, or open.
fn logs_say(logs: &[Log]) -> Option<bool> {
    let of = |node: &str| -> Vec<&Log> { logs.iter().filter(|log| log.0 == node).collect() };
    let mut is_open = false;
    let mut is_broken = logs.iter().any(|log| log.3[0]);
    for node in ["n1", "n2"] {
        let own = of(node);
        let is_there = own.iter().any(|log| log.1 > 0);
        let all_looked = |at: usize| own.iter().all(|log| log.2[at]);
        is_open |= !is_there || !all_looked(0) || !all_looked(1);
        is_broken |= is_there && all_looked(1) && own.iter().all(|log| !log.3[1]);
    }
    match (is_broken, is_open) {
        (true, _) => Some(false),
        (false, true) => None,
        (false, false) => Some(true),
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn crash(events in life()) {
        let made = build(header("lock", Value::Null), events);
        let found = check("crash", &made);
        let crashes = crashes(&made);
        prop_assert_eq!(found.counted("crashes"), Some(crashes));
        prop_assert_eq!(found.verdict == Verdict::Invalid, crashes > 0);
        let is_watched = made.events().any(|event| event.f() == "start");
        prop_assert!(crashes > 0 || (found.verdict == Verdict::Valid) == is_watched);
    }

    #[test]
    fn log_pattern(logs in logs()) {
        let params = json!({"log_must_not": ["a"], "log_must": ["b"]});
        let mut head = header("lock", params);
        head.nodes = vec!["n1".to_owned(), "n2".to_owned()];
        let made = build(head, stamped(logs.iter().enumerate().map(log_event).collect()));
        let found = check("log-pattern", &made).verdict;
        match logs_say(&logs) {
            Some(true) => prop_assert_eq!(found, Verdict::Valid),
            Some(false) => prop_assert_eq!(found, Verdict::Invalid),
            None => prop_assert!(matches!(found, Verdict::Unknown(Reason::Coverage(_)))),
        }
    }

    #[test]
    fn stats(outcomes in prop::collection::vec((0usize..2, 0u32..3), 0..12), least in 0u64..3) {
        let kinds = [Kind::Ok, Kind::Fail, Kind::Info];
        let mut events = Vec::new();
        for (f, outcome) in &outcomes {
            let f = ["read", "write"][*f];
            for kind in [Kind::Invoke, kinds[*outcome as usize]] {
                events.push(Event::new(0, Process::Number(1), kind, f, json!(1)));
            }
        }
        let params = json!({"min_ok_per_function": least});
        let made = build(header("register", params), stamped(events));
        let found = check("stats", &made);
        let is_short = |f: usize| {
            let own = || outcomes.iter().filter(move |(of, _)| *of == f);
            own().count() > 0 && (own().filter(|(_, outcome)| *outcome == 0).count() as u64) < least
        };
        let is_enough = !outcomes.is_empty() && !is_short(0) && !is_short(1);
        prop_assert_eq!(found.verdict == Verdict::Valid, is_enough);
        prop_assert_ne!(found.verdict, Verdict::Invalid);
    }
}
