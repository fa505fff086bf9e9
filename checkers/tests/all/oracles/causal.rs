//! `causal` against its definitions: all orders of the writes, and causal pasts by closure.

use checkers::{Reason, Verdict};
use history::{History, Op, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::sessions::{Did, INITIAL, did, some_order, steps};
use super::{answered, check, convicts, ops};
use crate::made::{Answer, Step, cases, header, history};

/// What is in the past of what: session order, reads and their writes, and all that follows.
pub(super) fn past(did: &[Did]) -> Vec<Vec<bool>> {
    let count = did.len();
    let mut before = vec![vec![false; count]; count];
    for b in 0..count {
        for a in 0..count {
            let session = a < b && did[a].session == did[b].session;
            let saw = did[a].writes
                && !did[b].writes
                && did[a].key == did[b].key
                && did[a].value == did[b].value;
            before[a][b] = session || saw;
        }
    }
    for by in 0..count {
        for a in 0..count {
            for b in 0..count {
                before[a][b] |= before[a][by] && before[by][b];
            }
        }
    }
    before
}

/// Whether values of all keys are distinct from each other, as [`some_order`] wants them.
fn number(did: &[Did], at: usize) -> usize {
    let of = |key: &str, value: usize| {
        did.iter()
            .position(|one| one.writes && one.key == key && one.value == value)
    };
    of(&did[at].key, did[at].value).map_or(INITIAL, |place| place + 1)
}

/// The definition: `None` of the reads returns anything but the last write of its key in its past,
/// in an order of all writes that keeps causes first; of one order for all, or one for each.
fn kept(did: &[Did], one_for_all: bool) -> bool {
    let before = past(did);
    if (0..did.len()).any(|at| before[at][at]) {
        return false;
    }
    let writes: Vec<usize> = (0..did.len()).filter(|&at| did[at].writes).collect();
    let numbers: Vec<usize> = writes.iter().map(|&at| at + 1).collect();
    let explains = |read: usize, at: &dyn Fn(usize) -> usize| {
        let seen = number(did, read);
        writes
            .iter()
            .filter(|&&write| before[write][read] && did[write].key == did[read].key)
            .all(|&write| at(write + 1) <= at(seen))
    };
    let causes_first = |at: &dyn Fn(usize) -> usize| {
        writes.iter().all(|&a| {
            writes
                .iter()
                .all(|&b| !before[a][b] || at(a + 1) < at(b + 1))
        })
    };
    let reads: Vec<usize> = (0..did.len()).filter(|&at| !did[at].writes).collect();
    if one_for_all {
        return some_order(&numbers, &|at| {
            causes_first(at) && reads.iter().all(|&read| explains(read, at))
        });
    }
    reads
        .iter()
        .all(|&read| some_order(&numbers, &|at| causes_first(at) && explains(read, at)))
}

fn judge(steps: &[Step], level: &str) -> Result<(), TestCaseError> {
    let made = history(header("register", json!({"causal": level})), steps);
    let all = did(&made);
    prop_assume!(all.iter().filter(|one| one.writes).count() <= 6);
    let writers = |one: &Did| {
        let of = all
            .iter()
            .filter(|other| other.writes && other.key == one.key && other.value == one.value);
        of.count() + usize::from(one.value == INITIAL)
    };
    prop_assume!(
        all.iter()
            .filter(|one| one.writes)
            .all(|one| writers(one) == 1)
    );
    let garbage = all.iter().any(|one| writers(one) == 0);
    let found = check("causal", &made);
    if garbage || !kept(&all, level == "ccv") {
        prop_assert_eq!(found.verdict, Verdict::Invalid, "{:?}", all);
        prop_assert!(
            found
                .counterexample
                .is_some_and(|told| !told.summary.is_empty())
        );
    } else {
        let empty =
            matches!(found.verdict, Verdict::Unknown(Reason::NotApplicable(_))) && all.is_empty();
        prop_assert!(
            found.verdict == Verdict::Valid || empty,
            "{:?} {:?}",
            found,
            all
        );
    }
    Ok(())
}

/// Whether some read shows a value without one that was acknowledged before it was asked for.
fn reversed(history: &History) -> bool {
    let writes = ops(history, &["write"]);
    ops(history, &["read"])
        .iter()
        .filter_map(|read| read.output())
        .any(|list| {
            let seen = list.to_json();
            let has = |op: &Op<'_>| {
                seen.as_array()
                    .expect("a list")
                    .contains(&op.input().to_json())
            };
            writes
                .iter()
                .filter(|later| later.outcome() != Outcome::Fail && has(later))
                .any(|later| {
                    writes
                        .iter()
                        .filter(|earlier| earlier.is_ok() && !has(earlier))
                        .any(|earlier| answered(*earlier) < later.invoke.index())
                })
        })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn one_order_for_all_decides_convergence(steps in steps(14)) {
        judge(&steps, "ccv")?;
    }

    #[test]
    fn an_order_for_each_decides_consistency(steps in steps(14)) {
        judge(&steps, "cc")?;
    }

    #[test]
    fn no_later_value_is_seen_without_an_earlier_one(
        steps in prop::collection::vec((0u64..4, 0u64..4, 1u64..6, 0u32..2, 0u32..8, prop::collection::vec(1u64..8, 0..8)), 1..12),
    ) {
        let mut written = 0;
        let steps = steps.into_iter().map(|(process, gap, length, pick, luck, seen)| {
            let (f, input, output) = if pick == 0 {
                ("read", Value::Null, json!(seen))
            } else {
                written += 1;
                ("write", json!(written), json!(written))
            };
            let answer = match luck {
                0 => Answer::Fail(None),
                1 => Answer::Info,
                _ => Answer::Ok(output),
            };
            Step { process, gap, length, f, key: None, node: None, input, answer }
        });
        let made = history(header("set", Value::Null), &steps.collect::<Vec<_>>());
        prop_assert_eq!(convicts("causal-reverse", &made), reversed(&made));
    }
}
