//! `sequential` against all interleavings of the sessions.

use std::collections::BTreeMap;

use checkers::{Budget, Reason, Verdict, find};
use history::{History, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::check;
use super::sessions::{INITIAL, did, steps};
use crate::made::{Step, cases, header, history};

/// What an operation does: it needs a value, leaves a value, and certainly happened.
#[derive(Debug, Clone)]
struct Act {
    key: String,
    needs: Option<Value>,
    leaves: Option<Value>,
    sure: bool,
}

/// The acts of each session, in its order; a process is a new one after it had no answer.
fn sessions(history: &History) -> Vec<Vec<Act>> {
    let mut of_process: BTreeMap<String, usize> = BTreeMap::new();
    let mut sessions: Vec<Vec<Act>> = Vec::new();
    for op in history.ops() {
        let process = op.invoke.process().to_string();
        let at = *of_process.entry(process.clone()).or_insert_with(|| {
            sessions.push(Vec::new());
            sessions.len() - 1
        });
        if op.outcome() == Outcome::Info {
            of_process.remove(&process);
        }
        let input = op.input().to_json();
        let (needs, leaves) = match (op.f(), op.outcome()) {
            ("read", Outcome::Ok) => (op.output().map(|value| value.to_json()), None),
            ("write", Outcome::Ok | Outcome::Info) => (None, Some(input)),
            ("cas", Outcome::Ok) => (Some(input[0].clone()), Some(input[1].clone())),
            // Of what it saw nothing is known.
            ("cas", Outcome::Info) => (None, Some(input[1].clone())),
            _ => continue,
        };
        let key = op
            .invoke
            .key()
            .map_or_else(String::new, |key| key.to_json().to_string());
        sessions[at].push(Act {
            key,
            needs,
            leaves,
            sure: op.is_ok(),
        });
    }
    sessions
}

/// Tries all interleavings from here.
fn some_interleaving(
    sessions: &[Vec<Act>],
    done: &mut Vec<usize>,
    state: &BTreeMap<String, Value>,
) -> bool {
    if sessions
        .iter()
        .zip(done.iter())
        .all(|(acts, &done)| acts.len() == done)
    {
        return true;
    }
    for at in 0..sessions.len() {
        let Some(act) = sessions[at].get(done[at]) else {
            continue;
        };
        let value = state.get(&act.key).unwrap_or(&Value::Null);
        let happens = act.needs.as_ref().is_none_or(|needs| needs == value);
        done[at] += 1;
        let mut found = false;
        if happens {
            let mut next = state.clone();
            if let Some(leaves) = &act.leaves {
                next.insert(act.key.clone(), leaves.clone());
            }
            found = some_interleaving(sessions, done, &next);
        }
        // What had no answer may not have happened.
        found = found || !act.sure && some_interleaving(sessions, done, state);
        done[at] -= 1;
        if found {
            return true;
        }
    }
    false
}

fn sequential(history: &History, by_key: bool) -> bool {
    let all = sessions(history);
    let judge = |sessions: &[Vec<Act>]| {
        some_interleaving(sessions, &mut vec![0; sessions.len()], &BTreeMap::new())
    };
    if !by_key {
        return judge(&all);
    }
    ["\"x\"", "\"y\""].iter().all(|key| {
        let of_key = |acts: &Vec<Act>| acts.iter().filter(|act| act.key == *key).cloned().collect();
        judge(&all.iter().map(of_key).collect::<Vec<_>>())
    })
}

fn judge(steps: &[Step], scope: &str) -> Result<(), TestCaseError> {
    let made = history(header("register", json!({"scope": scope})), steps);
    let all = did(&made);
    let writers = |value: usize, key: &str| {
        let of = all
            .iter()
            .filter(|one| one.writes && one.key == key && one.value == value);
        of.count() + usize::from(value == INITIAL)
    };
    prop_assume!(
        all.iter()
            .filter(|one| one.writes)
            .all(|one| writers(one.value, &one.key) == 1)
    );
    let found = check("sequential", &made);
    if sequential(&made, scope == "key") {
        let empty =
            matches!(found.verdict, Verdict::Unknown(Reason::NotApplicable(_))) && all.is_empty();
        prop_assert!(
            found.verdict == Verdict::Valid || empty,
            "{:?} {:?}",
            found,
            all
        );
    } else {
        prop_assert_eq!(found.verdict, Verdict::Invalid, "{:?}", all);
        let told = found.counterexample.expect("it is invalid");
        prop_assert!((1..=10).contains(&told.rows.len()) && !told.summary.is_empty());
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn an_interleaving_of_all_keys_decides(steps in steps(12)) {
        judge(&steps, "all")?;
    }

    #[test]
    fn an_interleaving_of_each_key_decides(steps in steps(12)) {
        judge(&steps, "key")?;
    }

    /// Out of steps is never valid, and never a wrong conviction.
    #[test]
    fn a_small_budget_is_honoured(steps in steps(14), limit in 4_096u64..4_400) {
        let made = history(header("register", Value::Null), &steps);
        let checker = find("sequential").expect("the checker");
        let limited = checker.check(&made, &Budget::new(limit, Budget::DEFAULT_BYTES)).verdict;
        let full = check("sequential", &made).verdict;
        prop_assert!(limited == full || matches!(limited, Verdict::Unknown(_)));
    }

    /// What is linearizable is sequential, what is sequential is causal, and what is causal keeps
    /// the session guarantees.
    #[test]
    fn the_stronger_implies_the_weaker(steps in steps(20)) {
        let convicted = |name: &str, params: Value| {
            check(name, &history(header("register", params), &steps)).verdict == Verdict::Invalid
        };
        let plain = |name: &str| convicted(name, Value::Null);
        let linearizable = check("linearizable", &history(header("register", Value::Null), &steps));
        prop_assert!(linearizable.verdict != Verdict::Valid || !plain("sequential"));
        prop_assert!(plain("sequential") || !plain("causal"));
        let by_key = convicted("sequential", json!({"scope": "key"}));
        prop_assert!(plain("sequential") || !by_key);
        let consistent = !convicted("causal", json!({"causal": "cc"}));
        prop_assert!(plain("causal") || consistent);
        for name in ["read-your-writes", "monotonic-reads", "monotonic-writes", "writes-follow-reads"] {
            prop_assert!(plain("causal") || !plain(name), "{}", name);
            prop_assert!(plain(name) || !convicted(name, json!({"write_order": "any"})), "{}", name);
            prop_assert!(linearizable.verdict != Verdict::Valid || !convicted(name, json!({"write_order": "realtime"})), "{}", name);
        }
    }

    /// The operations that a counterexample names are enough to convict by themselves.
    #[test]
    fn a_counterexample_convicts(steps in steps(14)) {
        let made = history(header("register", Value::Null), &steps);
        let found = check("sequential", &made);
        let Some(told) = found.counterexample else { return Ok(()) };
        if told.summary.contains("nobody wrote") {
            return Ok(());
        }
        let keep: Vec<usize> = told.rows.iter().flat_map(|row| {
            let event = made.event(row.event);
            [Some(row.event), event.partner().map(history::EventRef::index)]
        }).flatten().collect();
        let events = (0..made.len()).filter(|at| keep.contains(at)).map(|at| made.event(at).to_event());
        let part = crate::made::build(header("register", Value::Null), events.collect());
        prop_assert_eq!(check("sequential", &part).verdict, Verdict::Invalid, "{:?}", told);
    }
}
