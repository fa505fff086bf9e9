//! The transactions of a history, as the algorithms on them want them: numbered, with dense
//! sessions and keys, their micro-operations where the history keeps them.

use std::ops::Range;

use history::{EventRef, History, Kind, Mop, MopKind, Outcome, Word};
use rustc_hash::FxHashMap;

pub(crate) use crate::ties::{CLOCK_ERROR, TIES, Ties};

/// The completion of a transaction that was never answered; no session, no key.
pub(crate) const NEVER: u32 = u32::MAX;

/// The transactions of a history in the order of their invocations.
pub(crate) struct Transactions<'h> {
    pub(crate) history: &'h History,
    /// Event that begins each.
    pub(crate) invoke: Vec<u32>,
    /// Event that ends each: [`NEVER`] if it may be at any later time.
    pub(crate) complete: Vec<u32>,
    pub(crate) outcome: Vec<Outcome>,
    /// The session of each, from 0: a logical process. After an unanswered transaction the same
    /// process is a new session.
    pub(crate) session: Vec<u32>,
    pub(crate) session_count: u32,
    /// Where its micro-operations begin in the history's, and how many they are: as completed if
    /// it happened, as invoked otherwise.
    mops: Vec<(u32, u32)>,
    pub(crate) keys: Keys,
}

impl<'h> Transactions<'h> {
    /// All transactions of a history.
    ///
    /// # Errors
    /// Which operation has a value that is no transaction, or an answer that is not an answer to
    /// what was asked.
    pub(crate) fn of(history: &'h History) -> Result<Transactions<'h>, String> {
        let likely = history.len().div_ceil(2);
        let mut all = Transactions {
            history,
            invoke: Vec::with_capacity(likely),
            complete: Vec::with_capacity(likely),
            outcome: Vec::with_capacity(likely),
            session: Vec::with_capacity(likely),
            session_count: 0,
            mops: Vec::with_capacity(likely),
            keys: Keys::default(),
        };
        let mut session_of: Vec<u32> = vec![NEVER; history.process_count()];
        for event in history.events() {
            if event.kind() == Kind::Invoke && event.f() == "txn" {
                all.add(event, &mut session_of)?;
            }
        }
        all.number_keys();
        Ok(all)
    }

    fn add(&mut self, event: EventRef<'h>, session_of: &mut [u32]) -> Result<(), String> {
        let op = event.op();
        let (outcome, index) = (op.outcome(), event.index());
        let asked = op.input().txn_range();
        let asked = asked.ok_or_else(|| malformed(index, "asks for no transaction"))?;
        let answered = match op.output() {
            Some(output) => {
                let range = output.txn_range().ok_or_else(|| {
                    malformed(index, "has something else than a transaction as its answer")
                })?;
                if !answers(self.history.mops(), &asked, &range) {
                    let what = "is answered with other micro-operations than it asked for";
                    return Err(malformed(index, what));
                }
                range
            }
            None => asked,
        };
        let session = &mut session_of[op.process_id() as usize];
        if *session == NEVER {
            *session = self.session_count;
            self.session_count += 1;
        }
        self.session.push(*session);
        if outcome == Outcome::Info {
            *session = NEVER;
        }
        self.invoke.push(number(index));
        self.complete.push(match outcome {
            Outcome::Info => NEVER,
            _ => op.completion.map_or(NEVER, |end| number(end.index())),
        });
        self.outcome.push(outcome);
        self.mops
            .push((number(answered.start), number(answered.len())));
        Ok(())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.invoke.len()
    }

    /// The micro-operations of a transaction.
    pub(crate) fn mops(&self, txn: u32) -> &'h [Mop] {
        let (start, len) = self.mops[txn as usize];
        &self.history.mops()[start as usize..(start + len) as usize]
    }

    /// The elements of a list that was read.
    pub(crate) fn list(&self, start: u32, len: u32) -> &'h [Word] {
        &self.history.elements()[start as usize..(start + len) as usize]
    }

    /// For each transaction that happened the first one that began after it had ended, and with it
    /// all later ones. The number of transactions if there is none, and for a transaction that is
    /// not known to have ended or that did not happen.
    pub(crate) fn first_after(&self, ties: Ties) -> Vec<u32> {
        let event = |index: u32| self.history.event(index as usize);
        let mut found = Vec::with_capacity(self.len());
        for (txn, &end) in self.complete.iter().enumerate() {
            let after = |&begin: &u32| ties.begin(event(begin)) > ties.end(event(end));
            found.push(if self.outcome[txn] != Outcome::Ok {
                number(self.len())
            } else {
                number(gallop(&self.invoke, txn + 1, after))
            });
        }
        found
    }

    /// Bytes that these columns hold.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let each = 4 + 4 + 1 + 4 + 8;
        (self.invoke.capacity() * each + self.keys.heap_bytes()) as u64
    }

    fn number_keys(&mut self) {
        let most = self.history.mops().len();
        for txn in 0..number(self.len()) {
            for mop in self.mops(txn) {
                self.keys.add(mop.key(), most);
            }
        }
    }
}

/// The keys of transactions, numbered from 0 in order of first use.
#[derive(Default)]
pub(crate) struct Keys {
    words: Vec<Word>,
    /// The numbers of small integers, [`NEVER`] where there is none.
    small: Vec<u32>,
    others: FxHashMap<Word, u32>,
}

impl Keys {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    /// The key with this number.
    pub(crate) fn word(&self, key: u32) -> Word {
        self.words[key as usize]
    }

    /// The number of a key that was used.
    pub(crate) fn number(&self, word: Word) -> u32 {
        match word.as_small() {
            Some(int) if (int as usize) < self.small.len() && self.small[int as usize] != NEVER => {
                self.small[int as usize]
            }
            _ => self.others[&word],
        }
    }

    /// Integers below `most` are looked up in a table, others by hash.
    fn add(&mut self, word: Word, most: usize) {
        let next = number(self.words.len());
        let place = match word.as_small() {
            Some(int) if (int as usize) < most => {
                let int = int as usize;
                if self.small.len() <= int {
                    self.small.resize(int + 1, NEVER);
                }
                &mut self.small[int]
            }
            _ => self.others.entry(word).or_insert(NEVER),
        };
        if *place == NEVER {
            *place = next;
            self.words.push(word);
        }
    }

    fn heap_bytes(&self) -> usize {
        (self.words.capacity() + self.small.capacity() + 4 * self.others.capacity()) * 4
    }
}

/// Whether an answer has the functions and keys that were asked for, in their order, and writes
/// what it was asked to write.
fn answers(mops: &[Mop], asked: &Range<usize>, answer: &Range<usize>) -> bool {
    let (asked, answer) = (&mops[asked.clone()], &mops[answer.clone()]);
    let same = |(a, b): (&Mop, &Mop)| {
        let writes = a.kind() != MopKind::Read;
        a.kind() == b.kind() && a.key() == b.key() && (!writes || a.value() == b.value())
    };
    asked.len() == answer.len() && asked.iter().zip(answer).all(same)
}

/// The first place from `start` on where `found` holds, which is false up to some place and true
/// from there on: O(log of the distance).
fn gallop<T>(items: &[T], start: usize, found: impl Fn(&T) -> bool) -> usize {
    let mut step = 1;
    let mut low = start;
    while low + step <= items.len() && !found(&items[low + step - 1]) {
        low += step;
        step *= 2;
    }
    let high = (low + step - 1).min(items.len());
    low + items[low..high].partition_point(|item| !found(item))
}

fn malformed(index: usize, what: &str) -> String {
    format!("the operation of event {index} {what}")
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 events and micro-operations")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script;
    use history::MopValue;

    #[test]
    fn transactions_sessions_and_keys_are_numbered() {
        let history = script::history(
            "append",
            r#"
            0-10 A txn - [["append","x",1],["r",7,null]] -> [["append","x",1],["r",7,[3,4]]]
            1-2 B txn - [["r",7,null]] -> info timeout
            3-4 B txn - [["w",7,1]] -> fail refused
            11-12 A txn - [["r","x",null]] -> [["r","x",[]]]"#,
        );
        let all = Transactions::of(&history).unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all.session, [0, 1, 2, 0]);
        assert_eq!(all.session_count, 3);
        assert_eq!(all.keys.len(), 2);
        let read = all.mops(0)[1];
        assert_eq!(all.keys.number(read.key()), 1);
        assert_eq!(all.keys.word(1), read.key());
        let MopValue::List { start, len } = read.value() else {
            panic!("a list")
        };
        assert_eq!(all.list(start, len).len(), 2);
        assert_eq!(all.complete[1], NEVER);
        assert_eq!(all.first_after(Ties::Ordered), [3, 4, 4, 4]);
        let close = Ties::Concurrent {
            error_ns: 1_000_000,
        };
        assert_eq!(all.first_after(close), [4, 4, 4, 4]);
    }

    #[test]
    fn an_answer_answers_what_was_asked() {
        for (asked, answer, says) in [
            (
                r#"[["r",1,null],["w",2,1]]"#,
                r#"[["r",1,null]]"#,
                "other micro",
            ),
            (r#"[["w",2,1]]"#, r#"[["w",2,3]]"#, "other micro"),
            (r#"[["r",1,null]]"#, "7", "something else"),
            ("7", r#"[["r",1,null]]"#, "no transaction"),
        ] {
            let text = format!("0-1 A txn - {asked} -> {answer}");
            let history = script::history("append", &text);
            let error = Transactions::of(&history).err().expect("an error");
            assert!(error.contains(says) && error.contains("event 0"), "{error}");
        }
    }

    #[test]
    fn galloping_finds_the_first() {
        let items: Vec<u32> = (0..100).collect();
        for start in 0..100 {
            for limit in 0..110 {
                let found = gallop(&items, start, |&item| item >= limit);
                assert_eq!(found, (limit as usize).clamp(start, 100));
            }
        }
    }
}
