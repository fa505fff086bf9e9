//! What went wrong with registers, in words.

use history::{MopKind, MopValue};

use super::versions::{Sources, Versions};
use crate::transactions::anomalies::{Anomaly, Base, Needs};
use crate::transactions::graph::Dep;
use crate::transactions::input::Transactions;
use crate::transactions::registers::{Ambiguous, INIT, Registers};
use crate::transactions::report::Case;
use crate::transactions::tell::{Names, written};
use crate::verdict::Counterexample;
use crate::words::{self, ROWS_MAX, Story};

/// Tells of the transactions of a history.
#[derive(Clone, Copy)]
pub(super) struct Teller<'a, 'h> {
    pub(super) txns: &'a Transactions<'h>,
    pub(super) registers: &'a Registers,
    pub(super) versions: Option<&'a Versions<'a>>,
}

impl Teller<'_, '_> {
    /// Tells a case of an anomaly that is no cycle.
    pub(super) fn case(self, base: Base, case: &Case) -> Counterexample {
        let mut names = Names::default();
        let (txn, other) = (names.of(case.txn), case.other.map(|other| names.of(other)));
        let other = other.unwrap_or_else(|| "nobody".to_owned());
        let key = self.txns.key(case.key);
        let value = case
            .element
            .map_or_else(|| "null".to_owned(), |word| self.txns.value(word));
        let (said, of_other) = match base {
            Base::GarbageRead => (
                format!("read {key} = {value}, which nobody wrote"),
                String::new(),
            ),
            Base::G1a => (
                format!("read {key} = {value}, which {other} wrote, which failed"),
                format!("failed, and {txn} read its {key} = {value}"),
            ),
            Base::G1b => (
                format!("read {key} = {value}, after which {other} wrote {key} again"),
                format!("wrote {key} again after {key} = {value}, which {txn} read"),
            ),
            Base::FutureRead => (
                format!("read {key} = {value} before it wrote it itself"),
                String::new(),
            ),
            _ => (
                format!("read {key} = {value}, against what it read or wrote before"),
                String::new(),
            ),
        };
        let mut story = Story::default();
        let mut row = |at: u32, text: String| {
            let event = self.txns.event(at);
            story.tell(
                event,
                format!("{} ({}) {text}", names.of(at), words::who(event)),
            );
        };
        row(case.txn, said.clone());
        if let Some(second) = case.other {
            row(second, of_other);
        }
        story.finish(format!("{}: {txn} {said}", Anomaly::from(base)))
    }

    /// What the order of versions shows by itself: updates that were lost, and, where an order was
    /// declared, versions before each other. Each with how many there are and one of them.
    pub(super) fn of_versions(
        self,
        versions: &Versions<'_>,
        sources: Sources,
    ) -> Vec<(Base, u64, Counterexample)> {
        let mut found = Vec::new();
        let updates = versions.updates.chunk_by(|a, b| a.0 == b.0);
        let mut lost = updates.filter(|group| group.len() > 1);
        if let Some(group) = lost.next() {
            let told = self.lost_update(versions.key(group[0].0), group);
            found.push((Base::LostUpdate, 1 + lost.count() as u64, told));
        }
        let shortest = versions.cycles.iter().min_by_key(|cycle| cycle.len());
        if let Some(cycle) = shortest.filter(|_| sources.any()) {
            let told = self.cyclic(versions, cycle, sources);
            found.push((Base::CyclicVersions, versions.cycles.len() as u64, told));
        }
        found
    }

    fn lost_update(self, key: u32, group: &[(u32, u32)]) -> Counterexample {
        let (first, second) = (group[0].1, group[1].1);
        let mut names = Names::default();
        let mut story = Story::default();
        let (a, b) = (names.of(first), names.of(second));
        let what = match self
            .registers
            .reads(first)
            .iter()
            .find(|read| read.key == key)
        {
            Some(read) if read.writer != INIT => written(self.txns, read.writer, key),
            _ => format!("the initial value of {}", self.txns.key(key)),
        };
        for (txn, name, other) in [(first, &a, &b), (second, &b, &a)] {
            let event = self.txns.event(txn);
            let wrote = written(self.txns, txn, key);
            let who = words::who(event);
            let said = format!("{name} ({who}) read {what}, as {other} did, and wrote {wrote}");
            story.tell(event, said);
        }
        story.finish(format!(
            "{}: {a} and {b} both read {what} and wrote to it",
            Anomaly::from(Base::LostUpdate)
        ))
    }

    fn cyclic(self, versions: &Versions<'_>, cycle: &[u32], sources: Sources) -> Counterexample {
        let mut story = Story::default();
        let mut told = Vec::new();
        for &version in cycle.iter().take(ROWS_MAX) {
            let key = versions.key(version);
            let Some(writer) = versions.writer(version) else {
                told.push(format!("the initial value of {}", self.txns.key(key)));
                continue;
            };
            let event = self.txns.event(writer);
            let wrote = written(self.txns, writer, key);
            story.tell(event, format!("{} wrote {wrote}", words::who(event)));
            told.push(wrote);
        }
        let of = match (sources.linearizable, sources.sequential) {
            (true, _) => "real time, sessions and transactions",
            (false, true) => "sessions and transactions",
            (false, false) => "transactions",
        };
        story.finish(format!(
            "{}: {of} met {} each before the other",
            Anomaly::from(Base::CyclicVersions),
            told.join(" and ")
        ))
    }

    /// Why one transaction is before another.
    pub(super) fn why(self, names: &mut Names, from: u32, to: u32, dep: Dep) -> String {
        let (a, b) = (names.of(from), names.of(to));
        match dep {
            Dep::Wr => {
                let mut reads = self.registers.reads(to).iter();
                match reads.find(|read| read.writer == from) {
                    Some(read) => format!(
                        "{a} wrote {}, which {b} read",
                        written(self.txns, from, read.key)
                    ),
                    None => format!("{b} read what {a} wrote"),
                }
            }
            Dep::Ww => match self.overwritten(from, to) {
                Some(key) => format!(
                    "{a} wrote {}, {b} wrote {} after it",
                    written(self.txns, from, key),
                    written(self.txns, to, key)
                ),
                None => format!("{b} overwrote what {a} wrote"),
            },
            _ => match self.missed(from, to) {
                Some((key, INIT)) => format!(
                    "{a} read the initial value of {}, not {} of {b}",
                    self.txns.key(key),
                    written(self.txns, to, key)
                ),
                Some((key, writer)) => format!(
                    "{a} read {}, which {b} overwrote with {}",
                    written(self.txns, writer, key),
                    written(self.txns, to, key)
                ),
                None => format!("{b} overwrote what {a} read"),
            },
        }
    }

    fn is_before(self, key: u32, first: u32, second: u32) -> bool {
        let Some(versions) = self.versions else {
            return false;
        };
        match (
            versions.read(key, first),
            self.registers.version(second, key),
        ) {
            (Some(first), Some(second)) => {
                let mut later = versions.order.from(first).iter();
                later.any(|edge| edge.target() == second)
            }
            _ => false,
        }
    }

    fn overwritten(self, from: u32, to: u32) -> Option<u32> {
        let mut keys = self.registers.writes(from).iter().copied();
        keys.find(|&key| self.is_before(key, from, to))
    }

    fn missed(self, from: u32, to: u32) -> Option<(u32, u32)> {
        let mut reads = self.registers.reads(from).iter();
        let missed = reads.find(|read| self.is_before(read.key, read.writer, to));
        missed.map(|read| (read.key, read.writer))
    }
}

/// Tells that some transactions have no order one after the other.
pub(super) fn no_order(txns: &Transactions<'_>, needs: Needs, core: &[u32]) -> Counterexample {
    let mut story = Story::default();
    for &txn in core.iter().take(ROWS_MAX) {
        let event = txns.event(txn);
        let mops: Vec<String> = txns
            .mops(txn)
            .iter()
            .map(|mop| mop_text(txns, *mop))
            .collect();
        story.tell(event, format!("{}: {}", words::who(event), mops.join(", ")));
    }
    let kept = match needs {
        Needs::Data => "",
        Needs::Process => " that keeps the order of sessions",
        Needs::Realtime => " that keeps the order of real time",
    };
    story.finish(format!(
        "{}: these {} transactions have no order{kept} in which each reads what was written last",
        Base::NoSerialOrder.with(needs),
        core.len()
    ))
}

fn mop_text(txns: &Transactions<'_>, mop: history::Mop) -> String {
    let value = match mop.value() {
        MopValue::One(word) => txns.value(word),
        _ => "null".to_owned(),
    };
    let did = if mop.kind() == MopKind::Read {
        "read"
    } else {
        "wrote"
    };
    format!("{did} {} = {value}", txns.value(mop.key()))
}

/// That a value that was read does not name its write.
pub(super) fn ambiguous(txns: &Transactions<'_>, ambiguous: &Ambiguous) -> String {
    let value = match ambiguous.mop.value() {
        MopValue::One(word) => txns.value(word),
        _ => "null".to_owned(),
    };
    let key = txns.key(ambiguous.key);
    let event = |txn: u32| txns.event(txn).index();
    let (first, second) = ambiguous.writers;
    let first = match first {
        INIT => format!("{key} was {value} before the first write, and"),
        first => format!(
            "{key} = {value} was written by the transaction of event {} and",
            event(first)
        ),
    };
    format!(
        "{first} by that of event {}, so that it is not known which of them the transaction of event \
         {} read",
        event(second),
        event(ambiguous.reader)
    )
}
