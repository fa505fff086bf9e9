//! Public histories of transactions over registers, level by level.

use checkers::{Budget, Checked, Verdict, find, run};
use history::History;
use serde_json::{Value, json};

use crate::public::histories;

/// What `wr` says, by these parameters.
fn judged(history: &History, params: Value) -> Checked {
    let mut history = history.clone();
    for (name, value) in params.as_object().expect("parameters") {
        history.header.params.insert(name.clone(), value.clone());
    }
    let checker = find("rw-register").expect("a checker of this name");
    run(checker, &history, &Budget::unlimited())
}

/// AWDIT counts the order of sessions at every level, and its read committed is the one of Biswas
/// and Enea.
#[test]
fn weak_levels_are_those_of_awdit() {
    let levels = [
        ("read-committed", "monotonic-atomic-view"),
        ("read-atomic", "read-atomic"),
        ("causal", "causal-cerone"),
    ];
    let mut judged_count = 0;
    for public in histories() {
        let Some(name) = public.name.strip_prefix("awdit/") else {
            continue;
        };
        let folder = name.split('/').next().unwrap_or_default();
        let kept = levels
            .iter()
            .position(|(folder_name, _)| *folder_name == folder);
        let kept = kept.map_or(0, |at| at + 1);
        let history = public.read();
        for (at, (_, level)) in levels.iter().enumerate() {
            let found = judged(&history, json!({"level": level, "session_order": "always"}));
            let expected = if at < kept {
                Verdict::Valid
            } else {
                Verdict::Invalid
            };
            assert_eq!(found.verdict, expected, "{name} {level} {found:?}");
            judged_count += 1;
        }
    }
    assert!(judged_count > 30, "{judged_count}");
}

/// IsoVista names the level at which a bug was found; the exact ones are these. The writes of the
/// values before the first reads are transactions of their own there.
#[test]
fn bugs_of_databases_are_found_at_their_levels() {
    let cases = [
        // Read atomic also by AWDIT; causality is broken even without sessions.
        ("dgraph_si", "read-atomic", "always", Verdict::Valid),
        ("dgraph_si", "causal-cerone", "level", Verdict::Invalid),
        ("dgraph_si", "snapshot-isolation", "level", Verdict::Invalid),
        // Two transactions that read what the other overwrites.
        ("pg_ser_bug", "causal-cerone", "always", Verdict::Valid),
        ("pg_ser_bug", "serializable", "level", Verdict::Invalid),
        // A session reads what is older than its own write: causal only where sessions count.
        ("yugabyte_tcc", "causal-cerone", "level", Verdict::Valid),
        ("yugabyte_tcc", "causal-cerone", "always", Verdict::Invalid),
    ];
    let all = histories();
    for (name, level, session_order, expected) in cases {
        let path = format!("isovista/{name}.txt");
        let public = all
            .iter()
            .find(|public| public.name == path)
            .expect("a history");
        let params = json!({"level": level, "session_order": session_order});
        let found = judged(&public.read(), params);
        assert_eq!(found.verdict, expected, "{name} {level} {found:?}");
    }
}

/// What Elle convicts is convicted, at the same levels, by these tables: `:ssi` is serializable, and
/// what Elle found nothing in is either shown to be of the level or convicted by another method:
/// Elle does not look for an order of the transactions, and knows no order of versions that nobody
/// read and overwrote.
#[test]
fn what_elle_convicts_is_convicted() {
    let levels = [
        "read-committed",
        "read-atomic",
        "causal-cerone",
        "snapshot-isolation",
        "repeatable-read",
        "serializable",
        "strong-session-serializable",
        "strict-serializable",
    ];
    let mut convicted = 0;
    for public in histories() {
        if public.model != "rw-register txn (wfr-keys)" {
            continue;
        }
        let history = public.read();
        let violated = public.violated_levels();
        for level in levels {
            let expected = violated.contains(&level);
            let is_serializable = public.name.contains("rw-ssi");
            if !expected && !is_serializable {
                continue;
            }
            let found = judged(&history, json!({"level": level, "wfr_keys": true}));
            let verdict = if expected {
                Verdict::Invalid
            } else {
                Verdict::Valid
            };
            assert_eq!(found.verdict, verdict, "{} {level} {found:?}", public.name);
            convicted += usize::from(expected);
        }
    }
    assert!(convicted > 20, "{convicted}");
}
