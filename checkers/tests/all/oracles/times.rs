//! What is measured over time: availability, churn, coverage, leaders of terms.

use checkers::Verdict;
use history::{Event, History, Kind, Process};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::check;
use crate::made::{Answer, Step, build, cases, events, header};

fn writes() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u64..3, 0u64..6, 1u64..9, 0u32..3, 0u32..2);
    let step = step.prop_map(|(process, gap, length, luck, pick)| Step {
        process,
        gap,
        length,
        f: if pick == 0 { "write" } else { "read" },
        key: Some("x"),
        node: Some("n1"),
        input: json!(1),
        answer: match luck {
            0 => Answer::Fail(Some("refused")),
            1 => Answer::Info,
            _ => Answer::Ok(json!(1)),
        },
    });
    prop::collection::vec(step, 1..12)
}

/// Faults one after another: when each begins, how long it lasts, whether it left a majority, and
/// whether it was verified.
fn faults() -> impl Strategy<Value = Vec<(u64, u64, bool, bool)>> {
    let fault = (0u64..30, 0u64..12, any::<bool>(), any::<bool>());
    prop::collection::vec(fault, 0..3)
}

fn fault_events(faults: &[(u64, u64, bool, bool)]) -> Vec<Event> {
    let mut found = Vec::new();
    for (id, &(at, length, majority, verified)) in faults.iter().enumerate() {
        for (phase, at) in [("begin", at), ("end", at + length)] {
            let value = json!({"id": id, "phase": phase, "target": "n1", "majority": majority, "verified": verified});
            found.push(Event::new(
                at * 1_000_000,
                Process::nemesis(),
                Kind::Info,
                "cut",
                value,
            ));
        }
    }
    found
}

fn with_faults(steps: &[Step], faults: &[(u64, u64, bool, bool)], params: Value) -> History {
    let mut all = events(steps);
    all.extend(fault_events(faults));
    all.sort_by_key(|event| event.time);
    build(header("register", params), all)
}

/// The longest run of milliseconds without a write, among those with a majority, from the first
/// write asked for to the last event of one.
fn longest_gap(history: &History, faults: &[(u64, u64, bool, bool)]) -> u64 {
    let writes: Vec<_> = history.ops().filter(|op| op.f() == "write").collect();
    let ms = |time: u64| time / 1_000_000;
    let events = writes
        .iter()
        .flat_map(|op| [Some(op.invoke), op.completion])
        .flatten();
    let times: Vec<u64> = events.map(|event| ms(event.time())).collect();
    let (Some(&first), Some(&last)) = (times.iter().min(), times.iter().max()) else {
        return 0;
    };
    let out = |instant: u64| {
        faults
            .iter()
            .any(|&(at, length, majority, _)| !majority && at <= instant && instant < at + length)
    };
    let served = |instant: u64| {
        writes.iter().any(|op| {
            op.is_ok()
                && op
                    .completion
                    .is_some_and(|event| ms(event.time()) == instant)
        })
    };
    let (mut longest, mut run) = (0, 0);
    for instant in first..last {
        if out(instant) || served(instant) {
            run = 0;
        }
        if !out(instant) {
            run += 1;
            longest = longest.max(run);
        }
    }
    longest
}

fn looks() -> impl Strategy<Value = Vec<(u64, u32, Option<u32>, u64)>> {
    let look = (
        0u64..40_000,
        0u32..3,
        prop::option::weighted(0.8, 0u32..3),
        0u64..12,
    );
    prop::collection::vec(look, 1..12)
}

/// The longest run of milliseconds in which no leader had the votes of a majority of the nodes that
/// are ever looked at, as far as such a run is judged: see [`longest_gap`].
fn longest_leaderless(history: &History, faults: &[(u64, u64, bool, bool)]) -> u64 {
    let looks: Vec<_> = history
        .events()
        .filter(|event| event.is_observer())
        .collect();
    let writes = || history.events().filter(|event| event.f() == "write");
    let ms = |event: history::EventRef<'_>| event.time() / 1_000_000;
    let (Some(first), Some(last)) = (writes().map(ms).min(), writes().map(ms).max()) else {
        return 0;
    };
    let mut nodes: Vec<&str> = looks.iter().filter_map(|look| look.node()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let view = |node: &str, instant: u64| {
        let seen =
            |look: &&history::EventRef<'_>| look.node() == Some(node) && ms(**look) <= instant;
        let last = looks.iter().rev().find(seen)?;
        last.value().get("leader")?.as_str()
    };
    let led = |instant: u64| {
        let votes: Vec<&str> = nodes
            .iter()
            .filter_map(|node| view(node, instant))
            .collect();
        votes
            .iter()
            .any(|leader| votes.iter().filter(|other| *other == leader).count() > nodes.len() / 2)
    };
    let out = |instant: u64| {
        faults
            .iter()
            .any(|&(at, length, majority, _)| !majority && at <= instant && instant < at + length)
    };
    let (mut longest, mut run) = (0, 0);
    for instant in first..last {
        let looked = looks.iter().any(|look| ms(*look) <= instant);
        if looked && !out(instant) && !led(instant) {
            run += 1;
        } else {
            run = 0;
        }
        longest = longest.max(run);
    }
    longest
}

fn look_history(looks: &[(u64, u32, Option<u32>, u64)], params: Value) -> History {
    let mut time = 0;
    let all = looks.iter().map(|&(gap, node, leader, term)| {
        time += gap * 1_000_000;
        let leader = leader.map(|leader| format!("n{leader}"));
        let value = json!({"leader": leader, "term": term});
        Event::new(time, Process::observer(), Kind::Info, "leader", value)
            .with_node(format!("n{node}"))
    });
    build(header("register", params), all.collect())
}

/// The most new terms, and the most changes of the leader, that begin in any minute.
fn churn(history: &History) -> (u64, u64) {
    let mut rises: Vec<(u64, u64)> = Vec::new();
    let mut changes: Vec<(u64, u64)> = Vec::new();
    let mut top: Option<u64> = None;
    let mut last: Option<String> = None;
    for event in history.events() {
        let term = event
            .value()
            .get("term")
            .and_then(|term| term.as_u64())
            .expect("a term");
        if top.is_some_and(|top| term < top) {
            continue;
        }
        let rise = top.map_or(1, |top| term - top);
        rises.push((event.time(), rise));
        top = Some(term);
        let leader = event
            .value()
            .get("leader")
            .and_then(|leader| leader.as_str());
        if let Some(leader) = leader {
            if last.as_deref().is_some_and(|last| last != leader) {
                changes.push((event.time(), 1));
            }
            last = Some(leader.to_owned());
        }
    }
    let busiest = |all: &[(u64, u64)]| {
        all.iter()
            .map(|&(from, _)| {
                let within = all
                    .iter()
                    .filter(|(time, _)| *time >= from && time - from < 60_000_000_000);
                within.map(|(_, weight)| weight).sum()
            })
            .max()
            .unwrap_or(0)
    };
    (busiest(&rises), busiest(&changes))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn availability(steps in writes(), faults in faults(), bound in 1u64..20) {
        let made = with_faults(&steps, &faults, json!({"bound_ms": bound}));
        let found = check("availability", &made);
        let gap = longest_gap(&made, &faults);
        prop_assert_eq!(found.counted("gap_ms_max").unwrap_or(0), gap);
        prop_assert_eq!(found.verdict == Verdict::Invalid, gap > bound);
    }

    #[test]
    fn leaderless(steps in writes(), faults in faults(), looks in looks(), bound in 1u64..20) {
        let made = with_faults(&steps, &faults, json!({"leaderless_bound_ms": bound}));
        let mut all: Vec<Event> = made.events().map(|event| event.to_event()).collect();
        let close: Vec<_> = looks.iter().map(|&(gap, node, leader, term)| (gap % 5 + 1, node, leader, term)).collect();
        all.extend(look_history(&close, Value::Null).events().map(|event| event.to_event()));
        all.sort_by_key(|event| event.time);
        let made = build(made.header.clone(), all);
        let found = check("availability", &made);
        let gap = longest_leaderless(&made, &faults);
        prop_assert_eq!(found.counted("leaderless_ms_max").unwrap_or(0), gap);
        prop_assert_eq!(found.verdict == Verdict::Invalid, gap > bound);
    }

    #[test]
    fn election_churn(looks in looks(), max in 0u64..10) {
        let made = look_history(&looks, json!({"max_terms": max, "max_leader_changes": max}));
        let found = check("election-churn", &made);
        let (terms, changes) = churn(&made);
        prop_assert_eq!(found.counted("terms_per_minute_max"), Some(terms));
        prop_assert_eq!(found.counted("leader_changes_per_minute_max"), Some(changes));
        prop_assert_eq!(found.verdict == Verdict::Invalid, terms > max || changes > max);
    }

    #[test]
    fn split_brain(looks in looks()) {
        let made = look_history(&looks, Value::Null);
        let two = looks.iter().any(|&(_, _, a, term_a)| looks.iter().any(|&(_, _, b, term_b)| {
            a.is_some() && b.is_some() && a != b && term_a == term_b
        }));
        prop_assert_eq!(super::convicts("split-brain", &made), two);
    }

    #[test]
    fn coverage(steps in writes(), faults in faults(), min in 0u64..6) {
        let made = with_faults(&steps, &faults, json!({"min_ok_during_faults": min}));
        let landed = |at: u64| faults.iter().any(|&(from, length, _, verified)| {
            verified && from <= at && at <= from + length
        });
        let ok: Vec<u64> = made.ops().filter(|op| op.is_ok())
            .filter_map(|op| Some(op.completion?.time() / 1_000_000)).collect();
        let during = ok.iter().filter(|&&at| landed(at)).count() as u64;
        let found = check("coverage", &made);
        prop_assert_eq!(found.counted("ok_during_faults"), Some(during));
        prop_assert_eq!(found.counted("ok"), Some(ok.len() as u64));
        prop_assert_eq!(found.verdict == Verdict::Valid, during >= min && !ok.is_empty());
    }
}
