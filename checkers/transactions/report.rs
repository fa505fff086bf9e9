//! What was found, and what that says of an isolation level.

use std::collections::BTreeMap;

use history::{Header, Word};

use super::anomalies::{Anomaly, Base, Needs};
use super::cycles::Cycles;
use super::levels::{self, LEVEL, Level};
use crate::params::{Param, Takes};
use crate::verdict::Counterexample;
use crate::{Checked, Exhausted, Reason};

/// A case of an anomaly that reads show by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    /// The transaction that shows it.
    pub(crate) txn: u32,
    /// The other transaction, if there is one.
    pub(crate) other: Option<u32>,
    pub(crate) key: u32,
    /// The element or value that is wrong, if it is one.
    pub(crate) element: Option<Word>,
}

/// All cases of an anomaly: how many, and the first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cases {
    pub(crate) count: u64,
    pub(crate) first: Case,
}

/// Whether the order within sessions counts at every level.
pub(crate) const SESSION_ORDER: Param = Param {
    name: "session_order",
    takes: Takes::Word(&["level", "always"]),
    default: "level",
    about: "`level`: the order of transactions within a session counts where the name of the level \
            says so; `always`: it counts at every level",
};

/// What transactions are judged by.
#[derive(Clone, Copy)]
pub(crate) struct Demand {
    level: &'static Level,
    sessions: bool,
}

impl Demand {
    /// What the header demands.
    pub(crate) fn of(header: &Header) -> Demand {
        let name = LEVEL.word(header);
        Demand {
            level: levels::find(name).expect("the parameter takes levels"),
            sessions: SESSION_ORDER.word(header) == "always",
        }
    }

    /// An anomaly as it counts here: where sessions count, their order is as good as data.
    fn counted(self, anomaly: Anomaly) -> Anomaly {
        match anomaly.needs {
            Needs::Process if self.sessions => anomaly.base.with(Needs::Data),
            _ => anomaly,
        }
    }

    /// The strongest order that counts.
    pub(crate) fn needs(self) -> Needs {
        let orders = Needs::ALL.into_iter().rev();
        let mut counts = orders.filter(|&needs| self.forbids(Base::G0.with(needs)));
        counts.next().unwrap_or(Needs::Data)
    }

    /// Its level.
    pub(crate) fn level(self) -> &'static Level {
        self.level
    }

    /// Whether an anomaly breaks what is demanded.
    pub(crate) fn forbids(self, anomaly: Anomaly) -> bool {
        self.level.forbids(self.counted(anomaly))
    }
}

struct Entry {
    count: u64,
    told: Counterexample,
}

/// All anomalies of a history.
#[derive(Default)]
pub(crate) struct Report {
    entries: BTreeMap<Anomaly, Entry>,
    undecided: Vec<Anomaly>,
    exhausted: Option<Exhausted>,
    notes: Vec<String>,
}

impl Report {
    /// Adds an anomaly, how often there is one, and how one of them is told.
    pub(crate) fn add(&mut self, anomaly: Anomaly, count: u64, told: Counterexample) {
        self.entries.insert(anomaly, Entry { count, told });
    }

    /// Adds cycles, each told by `tell`.
    pub(crate) fn add_cycles(
        &mut self,
        cycles: &Cycles,
        tell: impl Fn(&super::cycles::Found) -> Counterexample,
    ) {
        for found in &cycles.found {
            self.add(found.anomaly, found.components, tell(found));
            if !found.is_shortest {
                self.notes.push(format!(
                    "{}: looking for a shorter cycle was given up",
                    found.anomaly
                ));
            }
        }
        self.undecided.clone_from(&cycles.undecided);
        self.exhausted = cycles.exhausted;
    }

    /// Whether something was found that breaks what is demanded, or looking was given up.
    pub(crate) fn is_settled(&self, demand: Demand) -> bool {
        self.exhausted.is_some() || self.entries.keys().any(|&anomaly| demand.forbids(anomaly))
    }

    /// The verdict.
    pub(crate) fn judge(self, demand: Demand) -> Checked {
        let broken = |anomaly: &Anomaly| demand.forbids(*anomaly);
        let worst = self.entries.keys().copied().find(broken);
        let mut result = match worst {
            Some(worst) => Checked::invalid(self.entries[&worst].told.clone()),
            None => self.without_violation(demand),
        };
        for (anomaly, entry) in &self.entries {
            result = result.count(&format!("anomalies:{anomaly}"), entry.count);
            if Some(*anomaly) != worst {
                result = result.note(entry.told.summary.clone());
            }
        }
        let counted: Vec<Anomaly> = self
            .entries
            .keys()
            .map(|&anomaly| demand.counted(anomaly))
            .collect();
        let out = levels::weakest_ruled_out(&counted);
        if !out.is_empty() {
            let names: Vec<&str> = out.iter().map(|level| level.name).collect();
            result = result.note(format!(
                "not {}, nor any stronger level",
                names.join(", not ")
            ));
        }
        if let (Some(exhausted), Some(_)) = (self.exhausted, worst) {
            result = result.note(format!("{exhausted}; there may be more anomalies"));
        }
        self.notes.into_iter().fold(result, Checked::note)
    }

    fn without_violation(&self, demand: Demand) -> Checked {
        match self.exhausted {
            Some(limit @ Exhausted::Memory(_)) => {
                return Checked::unknown(Reason::Memory(limit.to_string()));
            }
            Some(limit) => {
                let text = format!("{limit} while cycles were sought");
                return Checked::unknown(Reason::Budget(text));
            }
            None => {}
        }
        let open = self.undecided.iter().find(|open| demand.forbids(**open));
        match open {
            Some(open) => Checked::unknown(Reason::Budget(format!(
                "whether there is a {open} was given up"
            ))),
            None => Checked::valid(),
        }
    }
}
