//! A violation of a weak level in words.

use super::{Sees, Step, Why};
use crate::transactions::anomalies::Needs;
use crate::transactions::graph::Dep;
use crate::transactions::input::{NEVER, Transactions};
use crate::transactions::registers::{INIT, Registers};
use crate::transactions::tell::Names;
use crate::verdict::Counterexample;
use crate::words::{self, ROWS_MAX, Story};

/// Tells of the transactions of a history.
#[derive(Clone, Copy)]
pub(crate) struct Teller<'a, 'h> {
    pub(crate) txns: &'a Transactions<'h>,
    pub(crate) registers: &'a Registers,
    pub(crate) after: &'a [u32],
}

/// Transactions between two are told if they are no more than this.
const BETWEEN_MAX: usize = 4;

impl Teller<'_, '_> {
    /// Tells a cycle of transactions that would have to commit before each other.
    pub(crate) fn broken(self, sees: Sees, needs: Needs, steps: &[Step]) -> Counterexample {
        let anomaly = sees.base().with(needs);
        let mut names = Names::default();
        let mut story = Story::default();
        if let [step] = steps {
            let Why::Seen(reader) = step.why else {
                unreachable!("only a read of the initial value needs no other transaction");
            };
            let said = self.seen(&mut names, needs, step.txn, INIT, reader);
            self.row(&mut story, &mut names, step.txn, "wrote first");
            let note = self.row(&mut story, &mut names, reader, &said);
            return story.finish(format!("{anomaly}: {note}"));
        }
        let order: Vec<String> = steps.iter().map(|step| names.of(step.txn)).collect();
        for (at, step) in steps.iter().enumerate() {
            let next = steps[(at + 1) % steps.len()].txn;
            let (a, b) = (names.of(step.txn), names.of(next));
            let (txn, said) = match step.why {
                Why::Seen(reader) => {
                    let said = self.seen(&mut names, needs, step.txn, next, reader);
                    (reader, format!("{said}, so {a} commits before {b}"))
                }
                Why::Dep(dep) => (step.txn, self.dependency(dep, &a, &b, step.txn, next)),
            };
            if at + 1 < ROWS_MAX || at + 1 == steps.len() {
                self.row(&mut story, &mut names, txn, &said);
            }
        }
        let first = order[0].clone();
        let mut order = order;
        if order.len() > ROWS_MAX {
            order.splice(ROWS_MAX - 1..order.len() - 1, ["...".to_owned()]);
        }
        story.finish(format!(
            "{anomaly}: each would have to commit before the next: {} < {first}",
            order.join(" < ")
        ))
    }

    /// Adds a transaction and what is said of it. What it says.
    fn row(self, story: &mut Story, names: &mut Names, txn: u32, said: &str) -> String {
        let event = self.txns.event(txn);
        let note = format!("{} ({}) {said}", names.of(txn), words::who(event));
        story.tell(event, note.clone());
        note
    }

    fn dependency(self, dep: Dep, a: &str, b: &str, from: u32, to: u32) -> String {
        match dep {
            Dep::Session => format!("is earlier than {b} in the same session, so {a} < {b}"),
            Dep::Realtime => format!("had ended before {b} began, so {a} < {b}"),
            _ => {
                let mut reads = self.registers.reads(to).iter();
                let read = reads.find(|read| read.writer == from);
                let what = read.map_or_else(String::new, |read| self.written(from, read.key));
                format!("wrote {what}, which {b} read, so {a} < {b}")
            }
        }
    }

    /// That a reader read a key of `second` though it saw `first`, which wrote it too.
    fn seen(self, names: &mut Names, needs: Needs, first: u32, second: u32, reader: u32) -> String {
        let writes = self.registers.writes(first);
        let mut reads = self.registers.reads(reader).iter();
        let read = reads
            .rfind(|read| read.writer == second && writes.binary_search(&read.key).is_ok())
            .expect("a key that one wrote and the other read");
        let what = match second {
            INIT => format!("the initial value of {}", self.txns.key(read.key)),
            _ => format!("{} of {}", self.written(second, read.key), names.of(second)),
        };
        let sight = self.sight(names, needs, first, reader);
        format!(
            "read {what}, though {sight} {}, which wrote {}",
            names.of(first),
            self.written(first, read.key)
        )
    }

    /// How a reader sees another transaction.
    fn sight(self, names: &mut Names, needs: Needs, first: u32, reader: u32) -> String {
        let mut reads = self.registers.reads(reader).iter();
        if let Some(read) = reads.find(|read| read.writer == first) {
            return format!("it read {} of", self.written(first, read.key));
        }
        let path = self.path(needs, first, reader);
        match path.as_deref() {
            Some([]) => "it is later in its session or began after".to_owned(),
            Some(between) if between.len() <= BETWEEN_MAX => {
                let between: Vec<String> = between.iter().map(|&txn| names.of(txn)).collect();
                format!("by way of {} it comes after", between.join(", "))
            }
            _ => "it comes after".to_owned(),
        }
    }

    /// The fewest transactions between two by reads, sessions, and real time once.
    fn path(self, needs: Needs, first: u32, reader: u32) -> Option<Vec<u32>> {
        let mut later = vec![NEVER; self.registers.len()];
        let mut open = std::collections::VecDeque::from([reader]);
        while let Some(txn) = open.pop_front() {
            let ended = needs == Needs::Realtime && self.after[first as usize] <= txn;
            if ended || txn == first {
                let mut between = Vec::new();
                let mut at = if txn == first {
                    later[txn as usize]
                } else {
                    txn
                };
                while at != reader && at != NEVER {
                    between.push(at);
                    at = later[at as usize];
                }
                return Some(between);
            }
            let previous = self.registers.previous[txn as usize];
            let previous = Some(previous).filter(|_| needs > Needs::Data);
            let writers = self.registers.reads(txn).iter().map(|read| read.writer);
            for other in writers.chain(previous) {
                if other != NEVER && other != reader && later[other as usize] == NEVER {
                    later[other as usize] = txn;
                    open.push_back(other);
                }
            }
        }
        None
    }

    /// A key and what a transaction wrote to it last.
    fn written(self, txn: u32, key: u32) -> String {
        crate::transactions::tell::written(self.txns, txn, key)
    }
}
