//! `append`: transactions of appends to lists and reads of lists are of an isolation level.
//!
//! [`lists`] finds the order of versions, [`reads`] what reads show by themselves, [`edges`] the
//! dependencies between transactions, and [`crate::transactions`] their cycles and what they rule
//! out; [`tell`] says it in words.

mod edges;
mod lists;
mod reads;
mod tell;

use history::{History, Outcome};

use crate::params::Param;
use crate::transactions::dsg::Dsg;
use crate::transactions::input::Transactions;
use crate::transactions::report::{Demand, Report, SESSION_ORDER};
use crate::transactions::{cycles, input, levels};
use crate::{Budget, Checked, Checker, Exhausted, Reason, Verdict};

use lists::Lists;
use tell::Teller;

/// Transactions over lists are of an isolation level.
pub struct Append;

impl Checker for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["list-append", "elle-list-append"]
    }

    fn promise(&self) -> &'static str {
        "Transactions that append to lists and read them are isolated from each other as the level \
         says: by default strictly serializable."
    }

    fn method(&self) -> &'static str {
        "The longest read of a list is the order of its versions, of which every other read must be \
         a beginning; that gives the dependencies ww, wr and rw of every pair of transactions \
         (Kingsbury and Alvaro, Elle, VLDB 2020), to which the orders of sessions and of real time \
         are added. What is left when everything is taken away that has nothing before it is cut \
         into strongly connected components; within them the shortest cycle of each kind is sought \
         (Adya 1999; Cerone and Gotsman 2018 for snapshot isolation). O(n) in micro-operations and \
         elements, but for the search within components. An unanswered transaction happened if \
         somebody read what it appended; otherwise it proves nothing. Elements of a list must be \
         distinct. An anomaly is counted once for each read, version or component that shows it; \
         those that the level allows are noted."
    }

    fn params(&self) -> &'static [Param] {
        &[
            levels::LEVEL,
            SESSION_ORDER,
            input::TIES,
            input::CLOCK_ERROR,
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("transactions", "transactions that happened for certain"),
            ("failed", "transactions that did not happen"),
            ("unanswered", "transactions whose outcome is unknown"),
            ("keys", "lists that were appended to or read"),
            ("reads", "reads judged"),
            (
                "dependencies",
                "dependencies found, without those of real time",
            ),
            (
                "anomalies:NAME",
                "reads, versions or components that show this anomaly",
            ),
        ]
    }

    fn check(&self, history: &History, budget: &Budget) -> Checked {
        let txns = match Transactions::of(history) {
            Ok(txns) => txns,
            Err(malformed) => return Checked::unknown(Reason::Coverage(malformed)),
        };
        if txns.len() == 0 {
            return Checked::unknown(Reason::NotApplicable(
                "there are no transactions".to_owned(),
            ));
        }
        match judge(&txns, budget) {
            Ok(checked) => checked,
            Err(Stopped::Malformed(malformed)) => {
                Checked::unknown(Reason::Coverage(malformed.to_string()))
            }
            Err(Stopped::Exhausted(limit @ Exhausted::Memory(_))) => {
                Checked::unknown(Reason::Memory(limit.to_string()))
            }
            Err(Stopped::Exhausted(limit)) => {
                let text = format!("{limit} while dependencies were sought");
                Checked::unknown(Reason::Budget(text))
            }
        }
    }
}

/// Levels of which the anomalies that are looked for are not all: a history without them may still
/// not be of the level.
const JUDGED_IN_PART: &[&str] = &[
    "monotonic-view",
    "monotonic-snapshot-read",
    "monotonic-atomic-view",
    "cursor-stability",
    "forward-consistent-view",
    "update-serializable",
    "read-atomic",
    "causal-cerone",
    "ROLA",
    "prefix",
];

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error(transparent)]
    Malformed(#[from] lists::Malformed),
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

fn judge(txns: &Transactions<'_>, budget: &Budget) -> Result<Checked, Stopped> {
    budget.spend(txns.len() as u64)?;
    budget.hold(txns.heap_bytes())?;
    let mut lists = Lists::of(txns)?;
    let shown = reads::look(txns, &lists);
    lists.settle(txns, &shown.seen_info);
    budget.spend(shown.reads)?;
    let dsg = Dsg {
        graph: edges::graph(txns, &lists, &shown.incompatible),
        after: txns.first_after(input::Ties::of(&txns.history.header)),
    };
    let held = txns.heap_bytes() + lists.heap_bytes() + dsg.graph.heap_bytes();
    budget.hold(held + 16 * txns.len() as u64)?;
    let cycles = cycles::find(&dsg, budget);
    let teller = Teller {
        txns,
        lists: &lists,
    };
    let mut report = Report::default();
    for (&base, cases) in &shown.cases {
        report.add(base.into(), cases.count, teller.case(base, &cases.first));
    }
    report.add_cycles(&cycles, |found| {
        crate::transactions::tell::cycle(txns, found, |names, from, to, dep| {
            teller.why(names, from, to, dep)
        })
    });
    let outcomes = |wanted: Outcome| {
        let same = txns.outcome.iter().filter(|&&outcome| outcome == wanted);
        same.count() as u64
    };
    let demand = Demand::of(&txns.history.header);
    let mut judged = report.judge(demand);
    let level = demand.level().name;
    if judged.verdict == Verdict::Valid && JUDGED_IN_PART.contains(&level) {
        judged = judged.note(format!(
            "{level} forbids more than is looked for in lists: G0, G1, and what reads show by \
             themselves"
        ));
    }
    let counted = judged
        .count("transactions", outcomes(Outcome::Ok))
        .count("failed", outcomes(Outcome::Fail))
        .count("unanswered", outcomes(Outcome::Info))
        .count("keys", txns.keys.len() as u64)
        .count("reads", shown.reads)
        .count("dependencies", dsg.graph.edge_count() as u64);
    Ok(counted)
}
