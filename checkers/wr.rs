//! `wr`: transactions of reads and writes of registers are of an isolation level.
//!
//! [`crate::transactions::registers`] finds who wrote what was read, [`versions`] what is known of
//! the order of versions, and [`crate::transactions`] the cycles of the dependencies that follow.
//! That never convicts what is of the level, but it may miss what is not. So weak levels are
//! decided by [`crate::transactions::weak`], and for strong ones [`serial`] looks for an order of
//! the transactions that explains them; [`tell`] says it in words.

mod serial;
mod tell;
mod versions;

use history::{History, Outcome};

use crate::params::{INITIAL, NIL_READS, Param};
use crate::transactions::anomalies::{Base, Needs};
use crate::transactions::dsg::Dsg;
use crate::transactions::graph::{Dep, Edges, Graph};
use crate::transactions::input::{NEVER, Ties, Transactions};
use crate::transactions::registers::{INIT, Malformed, Registers};
use crate::transactions::report::{Demand, Report, SESSION_ORDER};
use crate::transactions::weak::{self, Sees};
use crate::transactions::{cycles, input, levels, number};
use crate::{Budget, Checked, Checker, Exhausted, Reason, Verdict};

use serial::Serial;
use tell::Teller;
use versions::{LINEARIZABLE_KEYS, SEQUENTIAL_KEYS, Sources, Versions, WFR_KEYS};

/// Transactions over registers are of an isolation level.
pub struct Wr;

impl Checker for Wr {
    fn name(&self) -> &'static str {
        "wr"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["rw-register", "elle-rw-register"]
    }

    fn promise(&self) -> &'static str {
        "Transactions that read and write registers are isolated from each other as the level says: \
         by default strictly serializable."
    }

    fn method(&self) -> &'static str {
        "Each value is written to a key once, so that a read names the write that it reads; a value \
         that two transactions wrote and somebody read makes the verdict unknown, unless something \
         else convicts. Read uncommitted and read committed (Adya's, without cycles of reads) are \
         decided by components in O(n). Monotonic atomic view (what Biswas and Enea, Plume and AWDIT \
         call read committed), read atomic and causal (`causal-cerone`) are decided by their axioms \
         (Biswas and Enea, OOPSLA 2019) in O(n sqrt n), O(n sqrt n) and O(n k) for k sessions (AWDIT, \
         PLDI 2025); those tools always count the order of sessions, which is `session_order` = `always` here. \
         Causal without sessions, where it is not causal with them, is quadratic. For stronger \
         levels the order of versions is inferred as by Elle (VLDB 2020) from initial values, from \
         transactions that read what they overwrite, and from `sequential_keys` and \
         `linearizable_keys` where they are declared; cycles are sought as for `append`, and causal \
         consistency is judged with the orders that the level keeps. What convicts is certain. If \
         nothing does, an order of the transactions is sought that explains all reads, in O(n log n) \
         where writes follow reads or one choice after the other turns out well, else by trying all \
         within limits. Only such an order makes the verdict valid; without one it is unknown, as it \
         also is for levels between causal and serializable that are not serializable."
    }

    fn params(&self) -> &'static [Param] {
        &[
            levels::LEVEL,
            SESSION_ORDER,
            INITIAL,
            NIL_READS,
            WFR_KEYS,
            SEQUENTIAL_KEYS,
            LINEARIZABLE_KEYS,
            input::TIES,
            input::CLOCK_ERROR,
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("transactions", "transactions that happened for certain"),
            ("failed", "transactions that did not happen"),
            ("unanswered", "transactions whose outcome is unknown"),
            ("keys", "registers that were written or read"),
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
            Err(Stopped::Exhausted(limit)) => Checked::unknown(Reason::exhausted(
                limit,
                "nothing was found before".to_owned(),
            )),
        }
    }
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

/// How a level is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// By cycles alone.
    Cycles,
    /// By what transactions see of others.
    Sight(Sees),
    /// By an order of the transactions.
    Order,
}

impl Method {
    fn of(demand: Demand) -> Method {
        match demand.level().name {
            "read-uncommitted"
            | "strong-session-read-uncommitted"
            | "strong-read-uncommitted"
            | "read-committed"
            | "strong-session-read-committed"
            | "strong-read-committed" => Method::Cycles,
            "monotonic-atomic-view" => Method::Sight(Sees::Observed),
            "read-atomic" => Method::Sight(Sees::Read),
            "causal-cerone" => Method::Sight(Sees::Past),
            _ => Method::Order,
        }
    }
}

struct Judge<'a, 'h> {
    txns: &'a Transactions<'h>,
    registers: &'a Registers,
    after: &'a [u32],
    demand: Demand,
    needs: Needs,
    budget: &'a Budget,
    report: Report,
}

fn judge(txns: &Transactions<'_>, budget: &Budget) -> Result<Checked, Stopped> {
    budget.spend(txns.len() as u64)?;
    budget.hold(txns.heap_bytes())?;
    let header = &txns.history.header;
    let (demand, sources) = (Demand::of(header), Sources::of(header));
    let (method, needs) = (Method::of(demand), demand.needs());
    let registers = Registers::of(txns)?;
    let in_real_time = method == Method::Order || needs == Needs::Realtime || sources.linearizable;
    let after = match in_real_time {
        true => txns.first_after(Ties::of(header)),
        false => vec![number(txns.len()); txns.len()],
    };
    let after = only_happened(after, &registers);
    let mut judge = Judge {
        txns,
        registers: &registers,
        after: &after,
        demand,
        needs,
        budget,
        report: Report::default(),
    };
    let dependencies = judge.cycles(method, sources)?;
    if !judge.report.is_settled(demand) {
        match method {
            Method::Cycles => {}
            Method::Sight(sees) => judge.sight(sees)?,
            Method::Order => judge.sight(Sees::Past)?,
        }
    }
    let mut open = None;
    if method == Method::Order && !judge.report.is_settled(demand) {
        open = judge.order()?;
    }
    let open = open.or(judge.ambiguous());
    let mut checked = judge.report.judge(demand);
    if let (Verdict::Valid, Some(reason)) = (&checked.verdict, open) {
        checked.verdict = Verdict::Unknown(reason);
    }
    Ok(count(checked, txns, &registers, dependencies))
}

/// What did not happen for certain is before nothing.
fn only_happened(mut after: Vec<u32>, registers: &Registers) -> Vec<u32> {
    let none = number(after.len());
    for (after, happened) in after.iter_mut().zip(&registers.happened) {
        if !happened {
            *after = none;
        }
    }
    after
}

fn count(checked: Checked, txns: &Transactions<'_>, registers: &Registers, edges: u64) -> Checked {
    let outcomes = |wanted: Outcome| {
        let same = txns.outcome.iter().filter(|&&outcome| outcome == wanted);
        same.count() as u64
    };
    checked
        .count("transactions", outcomes(Outcome::Ok))
        .count("failed", outcomes(Outcome::Fail))
        .count("unanswered", outcomes(Outcome::Info))
        .count("keys", txns.keys.len() as u64)
        .count("reads", registers.read_count)
        .count("dependencies", edges)
}

impl Judge<'_, '_> {
    /// Adds what reads show by themselves, and cycles. How many dependencies there are.
    fn cycles(&mut self, method: Method, sources: Sources) -> Result<u64, Exhausted> {
        let is_needed = method == Method::Order || sources.any();
        let versions = is_needed.then(|| {
            let session = &self.txns.session;
            Versions::of(self.registers, sources, self.after, session)
        });
        let dsg = Dsg {
            graph: graph(self.registers, versions.as_ref()),
            after: self.after.to_vec(),
        };
        let versions_bytes = versions.as_ref().map_or(0, Versions::heap_bytes);
        let held = self.txns.heap_bytes() + self.registers.heap_bytes() + versions_bytes;
        self.budget
            .hold(held + dsg.graph.heap_bytes() + 16 * self.txns.len() as u64)?;
        self.budget.spend(dsg.graph.edge_count() as u64)?;
        let cycles = cycles::find(&dsg, self.budget);
        let teller = Teller {
            txns: self.txns,
            registers: self.registers,
            versions: versions.as_ref(),
        };
        for (&base, cases) in &self.registers.cases {
            let told = teller.case(base, &cases.first);
            self.report.add(base.into(), cases.count, told);
        }
        if let Some(versions) = &versions {
            for (base, count, told) in teller.of_versions(versions, sources) {
                self.report.add(base.into(), count, told);
            }
        }
        let txns = self.txns;
        self.report.add_cycles(&cycles, |found| {
            crate::transactions::tell::cycle(txns, found, |names, from, to, dep| {
                teller.why(names, from, to, dep)
            })
        });
        Ok(dsg.graph.edge_count() as u64)
    }

    /// Judges a weak level exactly, or a strong one by what it implies.
    fn sight(&mut self, sees: Sees) -> Result<(), Exhausted> {
        // Where sessions count at every level they are as good as data.
        if !self.demand.forbids(sees.base().with(self.needs)) {
            return Ok(());
        }
        let asked = weak::Asked {
            registers: self.registers,
            sees,
            needs: self.needs,
            session: &self.txns.session,
            after: self.after,
        };
        if let weak::Outcome::Broken(steps) = weak::judge(asked, self.budget)? {
            let teller = weak::Teller {
                txns: self.txns,
                registers: self.registers,
                after: self.after,
            };
            let told = teller.broken(sees, self.needs, &steps);
            self.report.add(sees.base().with(self.needs), 1, told);
        }
        Ok(())
    }

    /// Looks for an order of the transactions. Why it is not known whether there is one.
    fn order(&mut self) -> Result<Option<Reason>, Exhausted> {
        let asked = serial::Asked {
            registers: self.registers,
            needs: self.needs,
            after: self.after,
        };
        let anomaly = Base::NoSerialOrder.with(self.needs);
        // What contradicts itself has no order, whatever the search makes of the rest.
        let is_clean = self.registers.cases.is_empty();
        let reason = match serial::find(asked, self.budget)? {
            Serial::Order(_) if is_clean => return Ok(None),
            Serial::None if self.demand.forbids(anomaly) => {
                let core = serial::core(asked, self.budget);
                let told = tell::no_order(self.txns, self.needs, &core);
                self.report.add(anomaly, 1, told);
                return Ok(None);
            }
            Serial::None | Serial::Order(_) => {
                "no anomaly was found, but the order of versions is not known, and the history is \
                 not serializable, which would settle it"
            }
            Serial::GaveUp => {
                "no anomaly was found, but the order of versions is not known, and the search for \
                 an order of the transactions was given up"
            }
        };
        Ok(Some(Reason::Budget(reason.to_owned())))
    }

    /// That a value does not name its write.
    fn ambiguous(&self) -> Option<Reason> {
        let ambiguous = self.registers.ambiguous.as_ref()?;
        Some(Reason::Coverage(tell::ambiguous(self.txns, ambiguous)))
    }
}

/// The graph of the dependencies that are known.
fn graph(registers: &Registers, versions: Option<&Versions<'_>>) -> Graph {
    let (sets, add_versions) = versions.map(Versions::dependencies).unzip();
    Graph::build(registers.len() + sets.unwrap_or(0), |edges: &mut Edges| {
        for txn in (0..).take(registers.len()) {
            let previous = registers.previous[txn as usize];
            if previous != NEVER {
                edges.add(previous, txn, Dep::Session);
            }
            for read in registers.reads(txn) {
                if read.writer != INIT {
                    edges.add(read.writer, txn, Dep::Wr);
                }
            }
        }
        if let Some(add) = &add_versions {
            add(edges);
        }
    })
}
