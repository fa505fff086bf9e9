//! How transactions are told: names, values, and cycles in at most ten rows.

use history::{EventRef, MopKind, MopValue, Outcome, Word};

use super::anomalies::{Base, Needs};
use super::cycles::Found;
use super::graph::Dep;
use super::input::{NEVER, Transactions};
use crate::verdict::Counterexample;
use crate::words::{self, ROWS_MAX, Story};

/// Elements of a list that are told, the last ones.
const ELEMENTS_MAX: usize = 6;

/// Names transactions in the order in which they are told: T1, T2, ...
#[derive(Default)]
pub(crate) struct Names {
    txns: Vec<u32>,
}

impl Names {
    /// The name of a transaction, now and later.
    pub(crate) fn of(&mut self, txn: u32) -> String {
        let known = self.txns.iter().position(|&other| other == txn);
        let at = known.unwrap_or_else(|| {
            self.txns.push(txn);
            self.txns.len() - 1
        });
        format!("T{}", at + 1)
    }
}

impl<'h> Transactions<'h> {
    /// The event that says most of a transaction: its answer, if it has one.
    pub(crate) fn event(&self, txn: u32) -> EventRef<'h> {
        let txn = txn as usize;
        let answered = self.outcome[txn] != Outcome::Info && self.complete[txn] != NEVER;
        let event = if answered {
            self.complete[txn]
        } else {
            self.invoke[txn]
        };
        self.history.event(event as usize)
    }

    /// A key or an element in words.
    pub(crate) fn value(&self, word: Word) -> String {
        words::value(self.history.word(word))
    }

    /// A key by its number, in words.
    pub(crate) fn key(&self, key: u32) -> String {
        self.value(self.keys.word(key))
    }

    /// A list in words, of a long one the end.
    pub(crate) fn list_text(&self, list: &[Word]) -> String {
        let first = list.len().saturating_sub(ELEMENTS_MAX);
        let dots = if first > 0 { "... " } else { "" };
        let last: Vec<String> = list[first..].iter().map(|&word| self.value(word)).collect();
        format!("[{dots}{}]", last.join(" "))
    }
}

/// Tells a cycle; `why` says in words why one transaction is before another, given their names.
pub(crate) fn cycle(
    txns: &Transactions<'_>,
    found: &Found,
    why: impl Fn(&mut Names, u32, u32, Dep) -> String,
) -> Counterexample {
    let steps = &found.cycle.steps;
    let mut names = Names::default();
    let order: Vec<String> = steps.iter().map(|&(txn, _)| names.of(txn)).collect();
    let mut story = Story::default();
    for (at, &(txn, dep)) in steps.iter().enumerate() {
        // Of a cycle that is too long the end is told too.
        if at + 1 >= ROWS_MAX && at + 1 < steps.len() {
            continue;
        }
        let (next, _) = steps[(at + 1) % steps.len()];
        let reason = match dep {
            Dep::Session => format!(
                "{} is earlier than {} in the same session",
                names.of(txn),
                names.of(next)
            ),
            Dep::Realtime => {
                format!(
                    "{} had ended before {} began",
                    names.of(txn),
                    names.of(next)
                )
            }
            Dep::Ww | Dep::Wr | Dep::Rw | Dep::Pass => why(&mut names, txn, next, dep),
        };
        let event = txns.event(txn);
        let note = format!(
            "{} ({}): {reason}, so {} < {}",
            names.of(txn),
            words::who(event),
            names.of(txn),
            names.of(next)
        );
        story.tell(event, note);
    }
    let mut order = order;
    if order.len() > ROWS_MAX {
        order.splice(ROWS_MAX - 1..order.len() - 1, ["...".to_owned()]);
    }
    let first = order[0].clone();
    story.finish(format!(
        "{}: {}; {} < {first}",
        found.anomaly,
        describe(found),
        order.join(" < "),
    ))
}

/// What the cycle is, in words.
fn describe(found: &Found) -> String {
    let made_of = match found.anomaly.base {
        Base::G0 => "writes",
        Base::G1c => "writes and reads",
        Base::GSingle => "dependencies and one anti-dependency",
        Base::GNonadjacent => "dependencies and anti-dependencies apart",
        _ => "dependencies and anti-dependencies",
    };
    let orders = match found.anomaly.needs {
        Needs::Data => "",
        Needs::Process => " in the order of sessions",
        Needs::Realtime => " in the order of real time",
    };
    let count = found.cycle.steps.len();
    format!("a cycle of {count} transactions by {made_of}{orders}")
}

/// A register and what a transaction wrote to it last: `x = 3`.
pub(crate) fn written(txns: &Transactions<'_>, txn: u32, key: u32) -> String {
    let (word, mut mops) = (txns.keys.word(key), txns.mops(txn).iter());
    let last = mops.rfind(|mop| mop.kind() == MopKind::Write && mop.key() == word);
    let value = match last.map(|mop| mop.value()) {
        Some(MopValue::One(word)) => txns.value(word),
        _ => "null".to_owned(),
    };
    format!("{} = {value}", txns.key(key))
}
