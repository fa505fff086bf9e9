//! The four session guarantees against all orders of the writes of each key.

use std::collections::BTreeMap;

use checkers::{Reason, Verdict};
use history::{History, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{answered, check};
use crate::made::{Answer, Step, cases, header, history};

/// The value `null`; others are small integers.
pub(super) const INITIAL: usize = 0;

/// A read or a write of one session, in its order.
#[derive(Debug, Clone)]
pub(super) struct Did {
    pub(super) session: usize,
    pub(super) key: String,
    pub(super) value: usize,
    pub(super) writes: bool,
    /// It certainly happened.
    pub(super) sure: bool,
    pub(super) call: usize,
    pub(super) ret: usize,
}

/// What each session did; a process is a new session after an operation without an answer.
pub(super) fn did(history: &History) -> Vec<Did> {
    let mut session_of: BTreeMap<String, usize> = BTreeMap::new();
    let mut sessions = 0;
    let mut all = Vec::new();
    for op in history.ops() {
        let process = op.invoke.process().to_string();
        let session = *session_of.entry(process.clone()).or_insert_with(|| {
            sessions += 1;
            sessions
        });
        if op.outcome() == Outcome::Info {
            session_of.remove(&process);
        }
        let key = op
            .invoke
            .key()
            .map_or_else(String::new, |key| key.to_json().to_string());
        let mut push = |value: &Value, writes: bool| {
            all.push(Did {
                session,
                key: key.clone(),
                value: value.as_u64().map_or(INITIAL, |value| value as usize),
                writes,
                sure: op.is_ok(),
                call: op.invoke.index(),
                ret: answered(op),
            });
        };
        let input = op.input().to_json();
        match (op.f(), op.outcome()) {
            ("read", Outcome::Ok) => push(&op.output().expect("an answer").to_json(), false),
            ("write", Outcome::Ok | Outcome::Info) => push(&input, true),
            ("cas", Outcome::Ok) => {
                push(&input[0], false);
                push(&input[1], true);
            }
            ("cas", Outcome::Info) => push(&input[1], true),
            _ => {}
        }
    }
    all
}

/// Where each value stands in an order.
pub(super) type At<'a> = &'a dyn Fn(usize) -> usize;

/// Whether some order of the writes, the initial value first, does what is asked.
pub(super) fn some_order(writes: &[usize], good: &dyn Fn(At<'_>) -> bool) -> bool {
    fn go(chosen: &mut Vec<usize>, left: &[usize], good: &dyn Fn(&[usize]) -> bool) -> bool {
        if left.is_empty() {
            return good(chosen);
        }
        (0..left.len()).any(|at| {
            let mut rest = left.to_vec();
            chosen.push(rest.remove(at));
            let found = go(chosen, &rest, good);
            chosen.pop();
            found
        })
    }
    go(&mut vec![INITIAL], writes, &|order| {
        good(&|value| {
            order
                .iter()
                .position(|&other| other == value)
                .expect("it was written")
        })
    })
}

const NAMES: [&str; 4] = [
    "read-your-writes",
    "monotonic-reads",
    "monotonic-writes",
    "writes-follow-reads",
];

/// What the definition says of one key: `None` where it does not say.
fn kept(name: &str, order: &str, did: &[&Did]) -> Option<bool> {
    let writes: Vec<usize> = did
        .iter()
        .filter(|one| one.writes)
        .map(|one| one.value)
        .collect();
    let pairs = || (0..did.len()).flat_map(move |b| (0..b).map(move |a| (did[a], did[b])));
    let same = |a: &Did, b: &Did| a.session == b.session;
    let reads_monotonic = |at: At<'_>| {
        pairs().all(|(a, b)| a.writes || b.writes || !same(a, b) || at(a.value) <= at(b.value))
    };
    let known = |at: At<'_>| {
        order == "any"
            || pairs().all(|(a, b)| {
                let of_session = same(a, b) && a.writes && b.writes && a.sure;
                let replaced = a.call == b.call && !a.writes && b.writes;
                let earlier =
                    order == "realtime" && a.writes && b.writes && a.sure && a.ret < b.call;
                !(of_session || replaced || earlier) || at(a.value) < at(b.value)
            })
    };
    let own_read = |at: At<'_>| {
        pairs().all(|(a, b)| {
            !(same(a, b) && a.writes && a.sure && !b.writes) || at(a.value) <= at(b.value)
        })
    };
    let written_in_order = |at: At<'_>| {
        pairs().all(|(a, b)| {
            !(same(a, b) && a.writes && a.sure && b.writes) || at(a.value) < at(b.value)
        })
    };
    let written_after = |at: At<'_>| {
        pairs().all(|(a, b)| !(same(a, b) && !a.writes && b.writes) || at(a.value) < at(b.value))
    };
    if name.contains("writes")
        && name != "read-your-writes"
        && !some_order(&writes, &reads_monotonic)
    {
        return None;
    }
    Some(some_order(&writes, &|at| match name {
        "read-your-writes" => known(at) && own_read(at),
        "monotonic-reads" => known(at) && reads_monotonic(at),
        "monotonic-writes" => written_in_order(at) && reads_monotonic(at),
        _ => written_after(at) && reads_monotonic(at),
    }))
}

/// Steps that write each value once and read what is written somewhere, or nothing.
pub(super) fn steps(ops: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (
        0u64..3,
        0u64..3,
        1u64..6,
        0u32..8,
        0i64..12,
        0u32..16,
        0usize..3,
    );
    prop::collection::vec(step, 1..ops).prop_map(|raw| {
        // Reads mostly return what is written somewhere in the history, before or after.
        let writes = |of: usize| {
            let of_key = raw
                .iter()
                .filter(|step| usize::from(step.6 == 0) == of && step.3 > 4);
            i64::try_from(of_key.count().min(5)).expect("few")
        };
        let total = [writes(0), writes(1)];
        let mut written = [0i64; 2];
        let mut steps: Vec<Step> = Vec::new();
        for (process, gap, length, pick, value, luck, key) in raw {
            let key = usize::from(key == 0);
            let seen = match if value == 11 {
                9
            } else {
                value % (total[key] + 1)
            } {
                0 => Value::Null,
                value => json!(value),
            };
            let changes = pick > 4 && written[key] < 5;
            written[key] += i64::from(changes);
            let (f, input, output) = match pick {
                _ if !changes => ("read", Value::Null, seen),
                5 | 6 => ("write", json!(written[key]), json!(written[key])),
                _ => {
                    let new = json!([seen, written[key]]);
                    ("cas", new.clone(), new)
                }
            };
            steps.push(Step {
                process,
                gap,
                length,
                f,
                key: Some(["x", "y"][key]),
                node: None,
                input,
                answer: match luck {
                    0 => Answer::Fail(None),
                    1 => Answer::Info,
                    2 if length == 1 => Answer::Never,
                    _ => Answer::Ok(output),
                },
            });
        }
        steps
    })
}

fn judge(steps: &[Step], order: &str) -> Result<(), TestCaseError> {
    let made = history(header("register", json!({"write_order": order})), steps);
    let all = did(&made);
    let mut keys: Vec<&str> = all.iter().map(|one| one.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    let writers = |read: &Did| {
        let of = all
            .iter()
            .filter(|one| one.writes && one.key == read.key && one.value == read.value);
        of.count() + usize::from(read.value == INITIAL)
    };
    let reads = || all.iter().filter(|one| !one.writes);
    // Which write was seen must be known; that it is not is tested elsewhere.
    prop_assume!(
        all.iter()
            .filter(|one| one.writes)
            .all(|one| writers(one) == 1)
    );
    let garbage = reads().any(|read| writers(read) == 0);
    for name in NAMES {
        let found = check(name, &made);
        let says = keys.iter().map(|key| {
            let of: Vec<&Did> = all.iter().filter(|one| one.key == *key).collect();
            if garbage {
                Some(false)
            } else {
                kept(name, order, &of)
            }
        });
        let says: Vec<Option<bool>> = says.collect();
        let not_applicable = matches!(found.verdict, Verdict::Unknown(Reason::NotApplicable(_)));
        if says.contains(&Some(false)) {
            prop_assert_eq!(found.verdict, Verdict::Invalid, "{} {:?}", name, all);
        } else if says.contains(&None) {
            prop_assert!(
                matches!(found.verdict, Verdict::Unknown(Reason::Coverage(_))),
                "{} {:?}",
                name,
                found
            );
        } else {
            prop_assert!(
                found.verdict == Verdict::Valid || not_applicable,
                "{} {:?} {:?}",
                name,
                found,
                all
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn an_order_of_the_writes_decides(steps in steps(14)) {
        judge(&steps, "session")?;
    }

    #[test]
    fn so_it_does_if_nothing_is_known_of_it(steps in steps(14)) {
        judge(&steps, "any")?;
    }

    #[test]
    fn and_if_time_is_known(steps in steps(14)) {
        judge(&steps, "realtime")?;
    }
}
