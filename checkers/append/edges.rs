//! The dependencies that lists show.
//!
//! An element depends on the one before it (ww), a read on the last element that it saw (wr), and
//! the next element on a read that did not see it (rw). An append that nobody read comes after all
//! that anybody read. Elements of transactions that failed are stepped over.
//!
//! "All who read the whole list come before all whose appends nobody read" is a product; where it
//! is large, sets stand for the second part. Two for each append, since a transaction can be one of
//! both and is not before itself:
//!
//! ```text
//! reader u2 --rw--> [up to u1] --pass--> u1          other readers --rw--> [from u1 on]
//! reader u2 --rw--> [from u3 on] --pass--> u3, [from u4 on], ...
//! ```

use history::{MopKind, MopValue, Outcome};
use rustc_hash::FxHashMap;

use super::lists::Lists;
use super::reads::Incompatible;
use crate::transactions::graph::{Dep, Edges, Graph};
use crate::transactions::input::{NEVER, Transactions};

/// Products of more pairs than this, and than four times their parts, are written with sets.
const PAIRS_MAX: usize = 64;

/// The graph of the dependencies between these transactions.
pub(crate) fn graph(
    txns: &Transactions<'_>,
    lists: &Lists,
    incompatible: &[Incompatible],
) -> Graph {
    let tails = Tails::of(txns, lists, incompatible);
    Graph::build(txns.len() + tails.sets, |edges| {
        appended(lists, edges);
        tails.add(lists, edges);
        sessions(txns, lists, edges);
        for read in incompatible {
            if let Some(writer) = read.last {
                edges.add(writer, read.txn, Dep::Wr);
            }
        }
        for_all_reads(txns, incompatible, |txn, key, len| {
            if let Some(writer) = lists.last(key, len) {
                edges.add(writer, txn, Dep::Wr);
            }
            match lists.next(key, len) {
                Some(writer) => edges.add(txn, writer, Dep::Rw),
                None => tails.read(lists, txn, key, edges),
            }
        });
    })
}

/// Calls `each` with transaction, key and length of every read that is a beginning of the longest.
fn for_all_reads(
    txns: &Transactions<'_>,
    incompatible: &[Incompatible],
    mut each: impl FnMut(u32, u32, u32),
) {
    let mut others = incompatible.iter().peekable();
    for txn in (0..).take(txns.len()) {
        if txns.outcome[txn as usize] != Outcome::Ok {
            continue;
        }
        for (at, mop) in (0..).zip(txns.mops(txn)) {
            if mop.kind() != MopKind::Read {
                continue;
            }
            if others
                .peek()
                .is_some_and(|read| (read.txn, read.at) == (txn, at))
            {
                others.next();
                continue;
            }
            let len = match mop.value() {
                MopValue::List { len, .. } => len,
                _ => 0,
            };
            each(txn, txns.keys.number(mop.key()), len);
        }
    }
}

/// Each element after the one before it.
fn appended(lists: &Lists, edges: &mut Edges) {
    for key in (0..).take(lists.len()) {
        let writers = lists.writers(key).iter();
        let mut last: Option<u32> = None;
        for writer in writers.filter_map(|writer| writer.happened()) {
            if let Some(last) = last {
                edges.add(last, writer, Dep::Ww);
            }
            last = Some(writer);
        }
    }
    for &(key, writer) in lists.all_unseen() {
        let len = lists.longest(key).1;
        if let Some(last) = lists.last(key, len) {
            edges.add(last, writer, Dep::Ww);
        }
    }
}

/// Each transaction that happened after the one before it in its session.
fn sessions(txns: &Transactions<'_>, lists: &Lists, edges: &mut Edges) {
    let mut last = vec![NEVER; txns.session_count as usize];
    for txn in (0..).take(txns.len()) {
        let happened = match txns.outcome[txn as usize] {
            Outcome::Ok => true,
            Outcome::Fail => false,
            Outcome::Info => lists.seen_info.binary_search(&txn).is_ok(),
        };
        if happened {
            let last = &mut last[txns.session[txn as usize] as usize];
            if *last != NEVER {
                edges.add(*last, txn, Dep::Session);
            }
            *last = txn;
        }
    }
}

/// What comes after whole lists: for each key with appends that nobody read, whether its readers
/// are before them one by one or by sets, and where those sets begin.
struct Tails {
    first_set: FxHashMap<u32, Option<u32>>,
    /// How many sets there are.
    sets: usize,
}

impl Tails {
    fn of(txns: &Transactions<'_>, lists: &Lists, incompatible: &[Incompatible]) -> Tails {
        let mut readers: FxHashMap<u32, usize> = FxHashMap::default();
        let mut keys: Vec<u32> = lists.all_unseen().iter().map(|&(key, _)| key).collect();
        keys.dedup();
        readers.extend(keys.iter().map(|&key| (key, 0)));
        if !keys.is_empty() {
            for_all_reads(txns, incompatible, |_, key, len| {
                if lists.next(key, len).is_none()
                    && let Some(count) = readers.get_mut(&key)
                {
                    *count += 1;
                }
            });
        }
        let mut tails = Tails {
            first_set: FxHashMap::default(),
            sets: 0,
        };
        for key in keys {
            let (after, before) = (lists.unseen(key).len(), readers[&key]);
            let is_large = after * before > PAIRS_MAX.max(4 * (after + before));
            let first = is_large.then(|| number(txns.len() + tails.sets));
            tails.first_set.insert(key, first);
            if is_large {
                tails.sets += 2 * after;
            }
        }
        tails
    }

    /// The edges of the sets: first those from each append on, then those up to each.
    fn add(&self, lists: &Lists, edges: &mut Edges) {
        let mut keys: Vec<(u32, u32)> = self
            .first_set
            .iter()
            .filter_map(|(&key, &first)| Some((key, first?)))
            .collect();
        keys.sort_unstable();
        for (key, first) in keys {
            let unseen = lists.unseen(key);
            let count = number(unseen.len());
            for (at, &(_, writer)) in (0..).zip(unseen) {
                let (onward, back) = (first + at, first + count + at);
                edges.add(onward, writer, Dep::Pass);
                edges.add(back, writer, Dep::Pass);
                if at + 1 < count {
                    edges.add(onward, onward + 1, Dep::Pass);
                    edges.add(back + 1, back, Dep::Pass);
                }
            }
        }
    }

    /// The edges of a transaction that read a whole list.
    fn read(&self, lists: &Lists, txn: u32, key: u32, edges: &mut Edges) {
        let Some(&first) = self.first_set.get(&key) else {
            return;
        };
        let unseen = lists.unseen(key);
        let Some(first) = first else {
            for &(_, writer) in unseen {
                edges.add(txn, writer, Dep::Rw);
            }
            return;
        };
        let count = number(unseen.len());
        match unseen.binary_search(&(key, txn)) {
            Err(_) => edges.add(txn, first, Dep::Rw),
            Ok(at) => {
                let at = number(at);
                if at + 1 < count {
                    edges.add(txn, first + at + 1, Dep::Rw);
                }
                if at > 0 {
                    edges.add(txn, first + count + at - 1, Dep::Rw);
                }
            }
        }
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^29 vertices")
}
