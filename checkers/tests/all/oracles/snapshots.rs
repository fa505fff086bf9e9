//! `append` at the levels of snapshot isolation against all orders of commits and all snapshots.
//!
//! A history is of the level if its transactions can commit in some order so that each reads what
//! some first of them had appended, and its own, and nobody after that snapshot and before it
//! appended to a list to which it appends itself (Adya 1999; Elnikety et al. 2005). At the strong
//! levels the snapshot holds what was before it in its session, or in real time.

use std::collections::BTreeMap;

use checkers::Verdict;
use history::Outcome;
use proptest::prelude::*;

use super::appends::{Lists, Mop, Txn, apply, at_level, history_of, made, precedes, shown, txns};
use super::check;
use crate::made::cases;

/// Which orders count.
#[derive(Clone, Copy)]
struct Orders {
    sessions: bool,
    realtime: bool,
}

fn appends_to(txn: &Txn, key: u64) -> bool {
    let appends = |mop: &Mop| matches!(mop, Mop::Append(other, _) if *other == key);
    txn.mops.iter().any(appends)
}

/// Whether two transactions append to one list.
fn collide(a: &Txn, b: &Txn) -> bool {
    a.mops.iter().any(|mop| match mop {
        Mop::Append(key, _) => appends_to(b, *key),
        Mop::Read(..) => false,
    })
}

/// Whether a transaction can have read what it read after these had committed.
fn reads_from(txns: &[Txn], committed: &[usize], txn: usize) -> bool {
    let mut state = BTreeMap::new();
    for &before in committed {
        for mop in &txns[before].mops {
            if let Mop::Append(key, element) = mop {
                state.entry(*key).or_insert_with(Vec::new).push(*element);
            }
        }
    }
    apply(&txns[txn], &mut state)
}

fn has_order(txns: &[Txn], committed: &mut Vec<usize>, orders: Orders) -> bool {
    let left = |at: &usize| txns[*at].outcome != Outcome::Fail && !committed.contains(at);
    let left: Vec<usize> = (0..txns.len()).filter(left).collect();
    if left.iter().all(|&at| txns[at].outcome == Outcome::Info) {
        return true;
    }
    left.iter().any(|&txn| {
        let is_before = |other: usize| {
            other != txn && precedes(txns, other, txn, orders.sessions, orders.realtime)
        };
        if left.iter().any(|&other| is_before(other)) {
            return false;
        }
        let needed = committed.iter().rposition(|&other| is_before(other));
        let first = needed.map_or(0, |at| at + 1);
        let possible = (first..=committed.len()).any(|snapshot| {
            let (seen, concurrent) = committed.split_at(snapshot);
            !concurrent
                .iter()
                .any(|&other| collide(&txns[other], &txns[txn]))
                && reads_from(txns, seen, txn)
        });
        if !possible {
            return false;
        }
        committed.push(txn);
        let found = has_order(txns, committed, orders);
        committed.pop();
        found
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn snapshot_isolation_is_that_there_are_snapshots(input in made()) {
        let history = history_of(&input);
        let txns = txns(&history);
        let lists = Lists::of(&txns);
        // Which of two appends that nobody read was first is not known, and not guessed.
        let is_known = (0..txns.len()).filter(|&txn| lists.happened(txn)).all(|txn| {
            let appends = lists.appends(txn);
            appends.into_iter().all(|(key, element)| lists.longest(key).contains(&element))
        });
        for (level, sessions, realtime) in [
            ("snapshot-isolation", false, false),
            ("strong-session-snapshot-isolation", true, false),
            ("strong-snapshot-isolation", true, true),
        ] {
            let found = check("append", &at_level(&history, level));
            let convicted = found.verdict == Verdict::Invalid;
            let possible = has_order(&txns, &mut Vec::new(), Orders { sessions, realtime });
            prop_assert!(!(convicted && possible), "{} {:?} {}", level, found, shown(&history));
            prop_assert!(convicted || possible || !is_known, "{} {:?} {}", level, found, shown(&history));
        }
    }
}
