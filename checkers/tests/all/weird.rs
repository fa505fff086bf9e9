//! Histories that make no sense: every checker says something about them, and none panics.

use checkers::{Budget, CHECKERS, Verdict};
use history::{Event, Header, History, HistoryBuilder, Kind, Process};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::made::cases;

const FUNCTIONS: &[&str] = &[
    "acquire",
    "lead",
    "renew",
    "release",
    "put",
    "get",
    "delete",
    "act",
    "fence",
    "lost",
    "read",
    "write",
    "cas",
    "add",
    "final-read",
    "generate",
    "run",
    "event",
    "watch",
    "leader",
    "freeze",
    "kill",
    "resume",
    "heal",
    "cut",
    "enqueue",
    "dequeue",
    "drain",
    "transfer",
    "txn",
    "log",
    "exit",
    "start",
    "odd",
];
const PARAMS: &[&str] = &[
    "ttl_ms",
    "drift_ms",
    "slack_ms",
    "bound_ms",
    "loss_bound_ms",
    "leaderless_bound_ms",
    "majority_connected_ms",
    "max_terms",
    "max_leader_changes",
    "min_ok",
    "required",
    "clients",
    "threads",
    "committed_revisions",
    "initial",
    "reads",
    "writes",
    "nil_reads",
    "cas_fail",
    "ordered",
    "delivery",
    "fails",
    "stale_reads",
    "total_amount",
    "accounts",
    "negative_balances",
    "group_size",
    "log_must",
    "log_must_not",
    "min_ok_per_function",
    "min_ok_percent",
];
const ERRORS: &[&str] = &[
    "held",
    "not-held",
    "stale-token",
    "deadline-passed",
    "timeout",
];

fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        Just(json!(0)),
        Just(json!(1)),
        Just(json!(2)),
        Just(json!(-1)),
        Just(json!(i64::MIN)),
        Just(json!(i64::MAX)),
        Just(json!(u64::MAX)),
        Just(json!(1.5)),
        Just(json!(1e300)),
    ];
    let leaf = prop_oneof![
        4 => number,
        1 => Just(Value::Null),
        1 => Just(json!("n1")),
        1 => Just(json!("unknown")),
        1 => Just(json!("observation")),
        1 => any::<bool>().prop_map(Value::from),
    ];
    let field = prop::sample::select(vec![
        "token",
        "v",
        "seq",
        "ttl_ms",
        "term",
        "leader",
        "revision",
        "from",
        "target",
        "phase",
        "id",
        "majority",
        "verified",
        "compacted",
        "service",
        "how",
        "file",
        "lines",
        "looked_for",
        "found",
        "pattern",
        "0",
        "1",
    ]);
    let phase = prop_oneof![Just(json!("begin")), Just(json!("end"))];
    leaf.prop_recursive(2, 8, 4, move |inner| {
        let entry = (
            field.clone(),
            prop_oneof![5 => inner.clone(), 1 => phase.clone()],
        );
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            prop::collection::vec(entry, 0..5).prop_map(|entries| {
                entries
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect::<Map<_, _>>()
                    .into()
            }),
        ]
    })
}

fn event() -> impl Strategy<Value = Event> {
    let process = prop_oneof![
        8 => (0u64..4).prop_map(Process::Number),
        1 => Just(Process::nemesis()),
        1 => Just(Process::observer()),
    ];
    let kind = prop_oneof![
        3 => Just(Kind::Invoke), 3 => Just(Kind::Ok), 1 => Just(Kind::Fail), 1 => Just(Kind::Info),
    ];
    let time = prop_oneof![8 => Just(0u64), 8 => 0u64..10_000_000_000, 1 => Just(u64::MAX / 3)];
    let key = prop_oneof![Just(None), Just(Some(json!("L"))), Just(Some(json!(7)))];
    let node = prop::option::of(prop::sample::select(vec!["n1", "n2"]));
    let error = prop::option::of(prop::sample::select(ERRORS));
    let f = prop::sample::select(FUNCTIONS);
    (time, process, kind, f, key, value(), node, error).prop_map(
        |(time, process, kind, f, key, value, node, error)| Event {
            time,
            process,
            node: node.map(str::to_owned),
            kind,
            f: f.to_owned(),
            key,
            value,
            error: error.map(str::to_owned),
        },
    )
}

fn header() -> impl Strategy<Value = Header> {
    let workload = prop::sample::select(vec!["lock", "leader", "register", "set", ""]);
    let params = prop::collection::vec((prop::sample::select(PARAMS), value()), 0..6);
    (workload, params).prop_map(|(workload, params)| {
        let mut header = Header::new(workload, &[]);
        header.params = params
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        header
    })
}

/// The events as gaps in time; what contradicts the rest is made to fit or left out, most
/// operations are completed by what was invoked.
fn build(header: Header, events: Vec<Event>) -> History {
    let mut builder = HistoryBuilder::new(header);
    let mut time = 0u64;
    let mut open: std::collections::HashMap<Process, Event> = std::collections::HashMap::new();
    for mut event in events {
        event.time = time.saturating_add(event.time);
        if matches!(event.kind, Kind::Ok | Kind::Fail)
            && let Some(asked) = open.get(&event.process)
        {
            event.f.clone_from(&asked.f);
            event.key.clone_from(&asked.key);
        }
        if builder.push(&event).is_ok() {
            time = event.time;
            if event.kind == Kind::Invoke {
                open.insert(event.process.clone(), event);
            } else {
                open.remove(&event.process);
            }
        }
    }
    builder.finish()
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_checker_says_something_of_anything(
        header in header(),
        events in prop::collection::vec(event(), 0..40),
    ) {
        let history = build(header, events);
        for checker in CHECKERS {
            let name = checker.name();
            let found = checker.check(&history, &Budget::new(100_000, Budget::DEFAULT_BYTES));
            let again = checker.check(&history, &Budget::new(100_000, Budget::DEFAULT_BYTES));
            prop_assert_eq!(&found, &again, "{} is not deterministic", name);
            prop_assert_eq!(found.counterexample.is_some(), found.verdict == Verdict::Invalid, "{}", name);
            if let Some(told) = &found.counterexample {
                prop_assert!((1..=10).contains(&told.rows.len()), "{}: {:?}", name, told);
                prop_assert!(told.rows.is_sorted_by_key(|row| row.event));
                prop_assert!(told.rows.iter().all(|row| row.event < history.len()));
            }
            for (count, _) in &found.counts {
                let documented = checker.counts().iter().any(|(known, _)| {
                    let general = known.split_once(':').map(|(general, _)| general);
                    known == count || (general.is_some() && general == count.split_once(':').map(|(general, _)| general))
                });
                prop_assert!(documented, "{}: {} is not documented", name, count);
            }
        }
    }
}
