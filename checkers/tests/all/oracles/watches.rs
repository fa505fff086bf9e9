//! `watch`: each of the nine guarantees against a naive statement of it, pair by pair.

use std::collections::BTreeSet;

use checkers::Verdict;
use history::History;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::check;
use crate::made::{Answer, Step, cases, header, history};

/// What a watcher got.
#[derive(Debug, Clone)]
enum Got {
    Event {
        revision: i64,
        change: Value,
        list: Option<usize>,
    },
    Progress(i64),
    Watch(Value),
}

fn got(history: &History, process: u32) -> Vec<Got> {
    let mut all = Vec::new();
    for event in history
        .events()
        .filter(|event| event.process_id() == process)
    {
        let value = event.value().to_json();
        let revision = |value: &Value| value["revision"].as_i64().expect("a revision");
        match event.f() {
            "event" => match value["events"].as_array() {
                Some(list) => all.extend(list.iter().map(|change| Got::Event {
                    revision: revision(change),
                    change: change.clone(),
                    list: Some(event.index()),
                })),
                None => all.push(Got::Event {
                    revision: revision(&value),
                    change: value,
                    list: None,
                }),
            },
            "progress" => all.push(Got::Progress(revision(&value))),
            _ if event.kind() == history::Kind::Ok => {
                let asked = event.partner().expect("it was asked for").value().to_json();
                all.push(Got::Watch(asked));
            }
            _ => {}
        }
    }
    all
}

/// The places since the last watch before this one.
fn since(all: &[Got], at: usize) -> std::ops::Range<usize> {
    let watch = all[..at]
        .iter()
        .rposition(|got| matches!(got, Got::Watch(_)));
    watch.map_or(0, |watch| watch + 1)..at
}

/// How far a stream had come before this place, with what it began from.
fn reached(all: &[Got], at: usize, with_begin: bool) -> Option<i64> {
    let segment = since(all, at);
    let begin = segment.start.checked_sub(1).map(|watch| match &all[watch] {
        Got::Watch(asked) => asked["from"].as_i64().expect("a revision") - 1,
        _ => unreachable!("a segment begins after a watch"),
    });
    let of = all[segment].iter().map(|got| match got {
        Got::Event { revision, .. } | Got::Progress(revision) => *revision,
        Got::Watch(_) => unreachable!("a segment has no watch"),
    });
    of.chain(begin.filter(|_| with_begin)).max()
}

fn wanted(asked: &Value, change: &Value) -> bool {
    let deletes = change["type"] == "delete";
    let prefix = asked["prefix"].as_str().unwrap_or("");
    change["key"]
        .as_str()
        .is_none_or(|key| key.starts_with(prefix))
        && asked["filter"] != json!(if deletes { "nodelete" } else { "noput" })
}

/// What the stream said last of this key before, as far as it can be relied on.
fn before(all: &[Got], at: usize, committed: &BTreeSet<i64>) -> Option<Value> {
    let Got::Event { change: now, .. } = &all[at] else {
        return None;
    };
    let mut known: Option<Value> = None;
    let mut come: Option<i64> = None;
    for (place, got) in all[..=at].iter().enumerate() {
        match got {
            Got::Progress(_) => {}
            Got::Watch(asked) => {
                if asked.get("filter").is_some() {
                    return None;
                }
                let from = asked["from"].as_i64().expect("a revision");
                if come != Some(from - 1) {
                    known = None;
                }
                come = Some(from - 1);
            }
            Got::Event {
                revision, change, ..
            } => {
                if come.is_some_and(|come| *revision < come) {
                    if place == at {
                        return None;
                    }
                    continue;
                }
                if committed
                    .iter()
                    .any(|&known| come.is_some_and(|come| come < known) && known < *revision)
                {
                    known = None;
                }
                come = Some(*revision);
                if place != at && change["key"] == now["key"] {
                    known = Some(change.clone());
                }
            }
        }
    }
    known
}

/// Whether something that came here breaks this guarantee.
fn breaks(count: &str, all: &[Got], at: usize, committed: &BTreeSet<i64>) -> bool {
    let missing = |after: i64, before: i64| {
        committed
            .iter()
            .any(|&known| after < known && known < before)
    };
    let segment = since(all, at);
    let earlier = || {
        all[segment.clone()].iter().filter_map(|got| match got {
            Got::Event {
                revision,
                change,
                list,
            } => Some((*revision, change, *list)),
            _ => None,
        })
    };
    let (revision, change, list) = match &all[at] {
        Got::Event {
            revision,
            change,
            list,
        } => (*revision, change, *list),
        Got::Progress(revision) => {
            let come = reached(all, at, true);
            return count == "progress_wrong"
                && come.is_some_and(|come| missing(come, revision + 1) || *revision < come);
        }
        Got::Watch(_) => return false,
    };
    match count {
        "out_of_order" => earlier().any(|(other, ..)| revision < other),
        "repeated" => earlier()
            .any(|(other, content, _)| revision == other && change["key"] == content["key"]),
        "gaps" => reached(all, at, false).is_some_and(|come| missing(come, revision)),
        "split" => {
            let last = earlier().rfind(|(_, _, other)| other.is_some());
            list.is_some()
                && last.is_some_and(|(other, _, before)| before != list && other == revision)
        }
        "not_resumed" => {
            let begin = at.checked_sub(1).map(|before| &all[before]);
            matches!(begin, Some(Got::Watch(asked)) if {
                let from = asked["from"].as_i64().expect("a revision");
                revision < from || missing(from - 1, revision)
            })
        }
        "progress_wrong" => all[segment]
            .iter()
            .any(|got| matches!(got, Got::Progress(to) if revision <= *to)),
        "not_asked_for" => {
            let watch = segment.start.checked_sub(1).map(|watch| &all[watch]);
            matches!(watch, Some(Got::Watch(asked)) if !wanted(asked, change))
        }
        "prev_wrong" => before(all, at, committed).is_some_and(|before| {
            let was = if before["type"] == "delete" {
                &Value::Null
            } else {
                &before["value"]
            };
            !change["prev"].is_null() && change["prev"] != *was
        }),
        _ => before(all, at, committed).is_some_and(|before| {
            change["type"] != "delete" && change["create"] == json!(before["type"] != "delete")
        }),
    }
}

const COUNTS: [&str; 9] = [
    "out_of_order",
    "repeated",
    "gaps",
    "split",
    "not_resumed",
    "progress_wrong",
    "not_asked_for",
    "prev_wrong",
    "create_wrong",
];

fn stream() -> impl Strategy<Value = Vec<Step>> {
    let change = (0i64..8, 0usize..3, any::<bool>(), 0i64..3, 0i64..5, 0u32..4).prop_map(
        |(revision, key, deletes, value, prev, create)| {
            let key = ["a", "a/b", "c"][key];
            let mut change = json!({"revision": revision, "key": key});
            change["type"] = json!(if deletes { "delete" } else { "put" });
            if !deletes {
                change["value"] = json!(value);
            }
            if prev < 3 {
                change["prev"] = json!(prev);
            }
            if create < 2 {
                change["create"] = json!(create == 0);
            }
            change
        },
    );
    let step = (
        0u64..2,
        0u32..10,
        prop::collection::vec(change, 1..4),
        0i64..8,
        0u32..6,
    );
    let step = step.prop_map(|(process, pick, changes, revision, filter)| {
        let (f, input, answer) = match pick {
            0..=4 => ("event", changes[0].clone(), Answer::Unasked),
            5..=7 => ("event", json!({"events": changes}), Answer::Unasked),
            8 => ("progress", json!({"revision": revision}), Answer::Unasked),
            _ => {
                let mut asked = json!({"from": revision});
                match filter {
                    0 => asked["prefix"] = json!("a"),
                    1 => asked["filter"] = json!("noput"),
                    2 => asked["filter"] = json!("nodelete"),
                    _ => {}
                }
                ("watch", asked, Answer::Ok(Value::Null))
            }
        };
        Step {
            process,
            gap: 1,
            length: 1,
            f,
            key: None,
            node: None,
            input,
            answer,
        }
    });
    prop::collection::vec(step, 1..10)
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn each_guarantee_is_judged_by_itself(
        steps in stream(),
        committed in prop::collection::btree_set(0i64..8, 0..6),
    ) {
        let params = json!({"committed_revisions": committed});
        let made = history(header("watch", params), &steps);
        let found = check("watch", &made);
        let streams: Vec<Vec<Got>> =
            (0..made.process_count() as u32).map(|process| got(&made, process)).collect();
        let seen = streams.iter().flatten().any(|got| matches!(got, Got::Event { .. }));
        let mut broken = false;
        for count in COUNTS {
            let any = streams.iter().any(|all| {
                // Which commits a filter leaves is told by no number.
                let filters = all.iter().any(|got| {
                    matches!(got, Got::Watch(asked) if asked.as_object().is_some_and(|asked| asked.len() > 1))
                });
                let none = BTreeSet::new();
                let committed = if filters { &none } else { &committed };
                (0..all.len()).any(|at| breaks(count, all, at, committed))
            });
            broken |= any;
            if seen {
                prop_assert_eq!(found.counted(count) > Some(0), any, "{} {:?} {:?}", count, streams, found);
            }
        }
        prop_assert_eq!(found.verdict == Verdict::Invalid, broken && seen);
    }
}
