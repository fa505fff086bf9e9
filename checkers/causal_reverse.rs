//! `causal-reverse`: what was written later is not seen without what was written before.

use history::{EventRef, History, NONE, Op, Outcome, ValueRef};
use rustc_hash::FxHashMap;

use crate::ident::Ident;
use crate::params::{self, Param};
use crate::ties::{self, Ties};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// What was written later is not seen without what was written before.
pub struct CausalReverse;

const WRITES: &[&str] = &["write", "insert", "add"];

impl Checker for CausalReverse {
    fn name(&self) -> &'static str {
        "causal-reverse"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["comments"]
    }

    fn promise(&self) -> &'static str {
        "A read of all values that returns one of them returns all whose writes were acknowledged \
         before that one was asked to be written."
    }

    fn method(&self) -> &'static str {
        "For each `read` that returns a list, and each key by itself: the latest time at which a \
         value that it returned was asked to be written; every value whose `write` (`insert`, `add`) \
         was acknowledged before that must be in the list, and if fewer are, one is missing. Values \
         are written once; of one that was written more often the first request and the first \
         acknowledgement count, which excuses. Values that nobody wrote are counted. Linear in what \
         was read, and O(n log n) in the writes. Source: Jepsen's causal-reverse, and the comments \
         test of CockroachDB: a write that is visible without one before it is no strict \
         serializability."
    }

    fn params(&self) -> &'static [Param] {
        &[params::READS, params::FAILS, ties::TIES, ties::CLOCK_ERROR]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("writes", "values that were written, or may have been"),
            ("acknowledged", "of these, acknowledged"),
            ("reads", "reads that returned a list"),
            ("values_read", "values in these lists"),
            ("unwritten", "of these, values that nobody wrote"),
            ("reversed", "reads in which an earlier value is missing"),
        ]
    }

    fn check(&self, history: &History, budget: &Budget) -> Checked {
        let header = &history.header;
        let more = header
            .params
            .get(params::READS.name)
            .and_then(serde_json::Value::as_array);
        let more = more
            .into_iter()
            .flatten()
            .filter_map(serde_json::Value::as_str);
        let names: Vec<&str> = std::iter::once("read").chain(more).collect();
        let uncertain = params::FAILS.word(header) == "uncertain";
        let written = Written::of(history, uncertain);
        let mut seen = Seen::new(&written);
        let reads = history.ops().filter(|op| names.contains(&op.f()));
        for op in reads {
            let Some(list) = op.output().filter(|output| output.as_list().is_some()) else {
                continue;
            };
            if let Err(limit) =
                budget.spend(1 + list.as_list().map_or(0, |items| items.len() as u64))
            {
                let text = format!("{} reads judged", seen.reads);
                return Checked::unknown(Reason::exhausted(limit, text));
            }
            seen.read(op, list);
        }
        if seen.reads == 0 || written.values.is_empty() {
            return Checked::unknown(Reason::NotApplicable(
                "no read returned a list of what was written".to_owned(),
            ));
        }
        let result = match seen.first {
            None => Checked::valid(),
            Some(broken) => tell(history, &broken),
        };
        let acknowledged = written
            .values
            .iter()
            .filter(|value| value.end.is_some())
            .count();
        result
            .count("writes", written.values.len() as u64)
            .count("acknowledged", acknowledged as u64)
            .count("reads", seen.reads)
            .count("values_read", seen.values)
            .count("unwritten", seen.unwritten)
            .count("reversed", seen.reversed)
    }
}

/// A value, with the first request to write it and the first acknowledgement.
struct Value<'h> {
    begin: u64,
    asked: EventRef<'h>,
    end: Option<(u64, EventRef<'h>)>,
}

/// All values, and for each key those that were acknowledged.
struct Written<'h> {
    values: Vec<Value<'h>>,
    of: FxHashMap<(u32, Ident), u32>,
    /// In the order of their acknowledgements.
    acknowledged: FxHashMap<u32, Vec<(u64, u32)>>,
}

impl<'h> Written<'h> {
    fn of(history: &'h History, uncertain: bool) -> Written<'h> {
        let ties = Ties::of(&history.header);
        let mut written = Written {
            values: Vec::new(),
            of: FxHashMap::default(),
            acknowledged: FxHashMap::default(),
        };
        for op in history.ops_of(WRITES) {
            if op.outcome() == Outcome::Fail && !uncertain {
                continue;
            }
            let key = op.key_id().unwrap_or(NONE);
            let next = u32::try_from(written.values.len()).unwrap_or(NONE);
            let at = *written
                .of
                .entry((key, Ident::of(op.input())))
                .or_insert(next);
            if at == next {
                written.values.push(Value {
                    begin: ties.begin(op.invoke),
                    asked: op.invoke,
                    end: None,
                });
            }
            if let Some(answer) = op.completion.filter(|_| op.is_ok()) {
                let end = ties.end(answer);
                let known = &mut written.values[at as usize].end;
                if known.is_none_or(|(earlier, _)| end < earlier) {
                    *known = Some((end, answer));
                }
            }
        }
        for (&(key, _), &at) in &written.of {
            if let Some((end, _)) = written.values[at as usize].end {
                written.acknowledged.entry(key).or_default().push((end, at));
            }
        }
        for list in written.acknowledged.values_mut() {
            list.sort_unstable();
        }
        written
    }
}

/// A read that returned a value without one that was there before.
struct Broken<'h> {
    read: EventRef<'h>,
    /// Where the missing value and the one that was read were asked to be written.
    asked: [EventRef<'h>; 2],
    answered: EventRef<'h>,
}

struct Seen<'w, 'h> {
    written: &'w Written<'h>,
    /// By value, the last read that returned it.
    by: Vec<u64>,
    reads: u64,
    values: u64,
    unwritten: u64,
    reversed: u64,
    first: Option<Broken<'h>>,
}

impl<'w, 'h> Seen<'w, 'h> {
    fn new(written: &'w Written<'h>) -> Seen<'w, 'h> {
        Seen {
            written,
            by: vec![0; written.values.len()],
            reads: 0,
            values: 0,
            unwritten: 0,
            reversed: 0,
            first: None,
        }
    }

    fn read(&mut self, op: Op<'h>, list: ValueRef<'h>) {
        self.reads += 1;
        let key = op.key_id().unwrap_or(NONE);
        let mut latest: Option<u32> = None;
        let mut ends: Vec<u64> = Vec::new();
        for value in list.as_list().into_iter().flatten() {
            self.values += 1;
            let Some(&at) = self.written.of.get(&(key, Ident::of(value))) else {
                self.unwritten += 1;
                continue;
            };
            if std::mem::replace(&mut self.by[at as usize], self.reads) == self.reads {
                continue;
            }
            let value = &self.written.values[at as usize];
            ends.extend(value.end.map(|(end, _)| end));
            let begin = |at: u32| self.written.values[at as usize].begin;
            if latest.is_none_or(|latest| begin(latest) < value.begin) {
                latest = Some(at);
            }
        }
        let Some(latest) = latest else { return };
        let begin = self.written.values[latest as usize].begin;
        let before = self
            .written
            .acknowledged
            .get(&key)
            .map_or(&[][..], Vec::as_slice);
        let before = &before[..before.partition_point(|&(end, _)| end < begin)];
        if ends.iter().filter(|&&end| end < begin).count() == before.len() {
            return;
        }
        self.reversed += 1;
        let missing = before
            .iter()
            .find(|&&(_, at)| self.by[at as usize] != self.reads);
        if let (Some(&(_, missing)), None, Some(read)) = (missing, &self.first, op.completion) {
            let value = |at: u32| &self.written.values[at as usize];
            if let Some((_, answered)) = value(missing).end {
                self.first = Some(Broken {
                    read,
                    asked: [value(missing).asked, value(latest).asked],
                    answered,
                });
            }
        }
    }
}

fn tell(history: &History, broken: &Broken<'_>) -> Checked {
    let mut story = Story::default();
    let [missing, seen] = broken.asked;
    let (reader, writer) = (words::who(broken.read), words::who(seen));
    let (first, second) = (words::value(missing.value()), words::value(seen.value()));
    story.tell(
        missing,
        format!("{} asks to write {first}", words::who(missing)),
    );
    story.tell(
        broken.answered,
        format!("the write of {first} is acknowledged"),
    );
    story.tell(seen, format!("{writer} asks to write {second}"));
    story.tell(
        broken.read,
        format!("{reader} reads {second}, and not {first}"),
    );
    story.tell_faults_within(history);
    Checked::invalid(story.finish(format!(
        "{reader} read {second} and not {first}, which had been acknowledged before {second} was \
         asked to be written"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        CausalReverse.check(&script::history("set", text), &Budget::unlimited())
    }

    const TWIN: &str = r#"
        0-1 A write - 1 -> 1
        2-3 B write - 2 -> 2
        2-5 C read - null -> [1,2]"#;

    #[test]
    fn a_later_value_without_an_earlier_one_is_convicted() {
        assert_eq!(check(TWIN).verdict, Verdict::Valid);
        assert_eq!(check(&TWIN.replace("[1,2]", "[1]")).verdict, Verdict::Valid);
        let mutant = check(&TWIN.replace("[1,2]", "[2]"));
        assert_eq!(mutant.verdict, Verdict::Invalid);
        let told = mutant.counterexample.unwrap();
        assert_eq!(
            told.summary,
            "C read 2 and not 1, which had been acknowledged before 2 was asked to be written"
        );
        assert_eq!(told.rows.len(), 4);
    }

    #[test]
    fn what_was_not_acknowledged_or_is_tied_excuses() {
        let mutant = TWIN.replace("[1,2]", "[2]");
        assert_eq!(
            check(&mutant.replace("0-1 A write - 1 -> 1", "0-1 A write - 1 -> info x")).verdict,
            Verdict::Valid
        );
        assert_eq!(
            check(&mutant.replace("0-1 A", "0-4 A")).verdict,
            Verdict::Valid
        );
        let tied = mutant
            .replace("0-1 A", "0-2 A")
            .replace("2-3 B", "2-6 B")
            .replace("2-5 C", "2-9 C");
        assert_eq!(check(&tied).verdict, Verdict::Invalid);
        assert_eq!(
            check(&format!("param ties \"concurrent\"\n{tied}")).verdict,
            Verdict::Valid
        );
    }
}
