//! Builds a [`History`] event by event, pairing every completion with its invocation.
//!
//! All readers write through [`HistoryBuilder::append`], with names already turned into numbers.
//! The micro-operations of a transaction that was invoked are held back until it is answered: an
//! answer that is the same transaction with its reads filled is then the only copy.

use rustc_hash::FxHashMap;

use crate::Error;
use crate::columns::{Narrow, Sparse};
use crate::event::{Event, Kind, Process};
use crate::header::Header;
use crate::history::{History, NONE};
use crate::symbols::Symbols;
use crate::txn::{Mop, MopKind, MopValue};
use crate::values::{Packed, Values};

/// The function whose values are transactions.
pub(crate) const TXN: &str = "txn";

/// Takes events in order and makes a history of them.
#[derive(Debug)]
pub struct HistoryBuilder {
    history: History,
    process_ids: FxHashMap<Process, u32>,
    key_ids: FxHashMap<KeyName, u32>,
    /// The open invocation of each process, [`NONE`] if it has none.
    open: Vec<u32>,
    /// What the open transactions ask for, by the slot that their value names.
    asked: Vec<Vec<Mop>>,
    free_slots: Vec<usize>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum KeyName {
    Packed(u64),
    Text(String),
}

/// An event whose names are numbers of the builder's tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) time: u64,
    pub(crate) process: u32,
    pub(crate) kind: Kind,
    pub(crate) function: u32,
    pub(crate) node: Option<u32>,
    pub(crate) key: Option<u32>,
    pub(crate) error: Option<u32>,
    /// Argument or result; `None` if it is that of the invocation. A transaction is made of the
    /// last micro-operations that there are.
    pub(crate) value: Option<Packed>,
}

impl HistoryBuilder {
    /// An empty history with this header.
    pub fn new(header: Header) -> HistoryBuilder {
        HistoryBuilder {
            history: History {
                header,
                times: Narrow::default(),
                kinds: Vec::new(),
                fs: Narrow::default(),
                processes: Narrow::default(),
                nodes: Sparse::default(),
                keys: Sparse::default(),
                packed: Narrow::default(),
                errors: Sparse::default(),
                partners: Vec::new(),
                function_names: Symbols::default(),
                process_names: Vec::new(),
                node_names: Symbols::default(),
                key_values: Vec::new(),
                error_names: Symbols::default(),
                values: Values::default(),
            },
            process_ids: FxHashMap::default(),
            key_ids: FxHashMap::default(),
            open: Vec::new(),
            asked: Vec::new(),
            free_slots: Vec::new(),
        }
    }

    /// Appends an event.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] if time goes back, an answer has no question, or a process asks
    /// while an earlier operation of it is open.
    pub fn push(&mut self, event: &Event) -> Result<(), Error> {
        let txn = (event.f == TXN).then(|| self.history.values.pack_txn(&event.value));
        let row = Row {
            time: event.time,
            process: self.process_id(&event.process),
            kind: event.kind,
            function: self.function(&event.f),
            node: event.node.as_deref().map(|node| self.node(node)),
            key: event.key.as_ref().map(|key| {
                let packed = self.history.values.pack(key);
                self.key(packed)
            }),
            error: event.error.as_deref().map(|error| self.error(error)),
            value: Some(
                txn.flatten()
                    .unwrap_or_else(|| self.history.values.pack(&event.value)),
            ),
        };
        self.append(row)
    }

    /// Appends an event whose names are numbers.
    ///
    /// # Errors
    /// As [`HistoryBuilder::push`].
    pub(crate) fn append(&mut self, row: Row) -> Result<(), Error> {
        let index = self.history.len();
        let inconsistent = |message: String| Error::Inconsistent { index, message };
        if row.time < self.history.end() {
            return Err(inconsistent(format!(
                "time goes back from {} to {} ns",
                self.history.end(),
                row.time
            )));
        }
        let this =
            u32::try_from(index).map_err(|_| inconsistent("more than 2^32 events".to_owned()))?;
        let partner = self
            .pair(this, &row)
            .map_err(|message| Error::Inconsistent { index, message })?;
        let value = self.value(&row, partner);
        let history = &mut self.history;
        history.times.push(row.time);
        history.kinds.push(row.kind);
        history.fs.push(u64::from(row.function));
        history.processes.push(u64::from(row.process));
        history.nodes.put(index, row.node);
        history.keys.put(index, row.key);
        history.packed.push(value.bits());
        history.errors.put(index, row.error);
        history.partners.push(partner);
        Ok(())
    }

    /// Appends a transaction that happened, at the time of the event before it.
    ///
    /// # Errors
    /// As [`HistoryBuilder::push`].
    pub(crate) fn append_committed(&mut self, process: u32, txn: Packed) -> Result<(), Error> {
        let invoke = Row {
            time: self.history.end(),
            process,
            kind: Kind::Invoke,
            function: self.function(TXN),
            node: None,
            key: None,
            error: None,
            value: Some(txn.asked()),
        };
        self.append(invoke)?;
        self.append(Row {
            kind: Kind::Ok,
            value: Some(txn),
            ..invoke
        })
    }

    /// The finished history. Operations that are still open stay without a completion.
    pub fn finish(mut self) -> History {
        let mut open: Vec<u32> = self.open.iter().copied().filter(|&at| at != NONE).collect();
        open.sort_unstable();
        for at in open {
            self.settle(at);
        }
        let mut history = self.history;
        for column in [
            &mut history.times,
            &mut history.fs,
            &mut history.processes,
            &mut history.packed,
        ] {
            column.shrink_to_fit();
        }
        for column in [&mut history.nodes, &mut history.keys, &mut history.errors] {
            column.shrink_to_fit();
        }
        history.kinds.shrink_to_fit();
        history.partners.shrink_to_fit();
        history.values.shrink_to_fit();
        history
    }

    /// The finished history, in which every value of a client's operation is a pair of a key and
    /// the value proper.
    pub(crate) fn finish_keyed(mut self) -> History {
        let unasked = |history: &History, index: usize| {
            let event = history.event(index);
            event.is_nemesis() || event.is_observer() || event.is_unasked()
        };
        let mut keys = Sparse::default();
        let mut packed = Narrow::default();
        for index in 0..self.history.len() {
            let value = Packed::from_bits(self.history.packed.get(index));
            let pair = value.is_list().then(|| self.history.values.items(value));
            match pair {
                Some(&[key, value]) if !unasked(&self.history, index) => {
                    let key = self.key(key);
                    keys.put(index, Some(key));
                    packed.push(value.bits());
                }
                _ => {
                    keys.put(index, self.history.keys.get(index));
                    packed.push(value.bits());
                }
            }
        }
        self.history.keys = keys;
        self.history.packed = packed;
        self.finish()
    }

    /// The table behind the values.
    pub(crate) fn values(&mut self) -> &mut Values {
        &mut self.history.values
    }

    /// What was read so far. The values of open transactions are not there yet.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// The number of a function.
    pub(crate) fn function(&mut self, name: &str) -> u32 {
        self.history.function_names.intern(name)
    }

    /// The number of a node.
    pub(crate) fn node(&mut self, name: &str) -> u32 {
        self.history.node_names.intern(name)
    }

    /// The number of an error.
    pub(crate) fn error(&mut self, text: &str) -> u32 {
        self.history.error_names.intern(text)
    }

    /// The open invocation of a process.
    pub(crate) fn open_of(&self, process: u32) -> Option<usize> {
        let open = self.open[process as usize];
        (open != NONE).then_some(open as usize)
    }

    /// Finds the invocation that an event completes, and links it to the event.
    fn pair(&mut self, this: u32, row: &Row) -> Result<u32, String> {
        let history = &self.history;
        let process = &history.process_names[row.process as usize];
        let is_client = !matches!(process, Process::Name(name)
            if name == Process::NEMESIS || name == Process::OBSERVER);
        if !is_client {
            return Ok(NONE);
        }
        let open = &mut self.open[row.process as usize];
        let at = *open;
        let function = history.function_names.name(row.function);
        match row.kind {
            Kind::Invoke if at == NONE => {
                *open = this;
                Ok(NONE)
            }
            Kind::Invoke => Err(format!(
                "process {process} invokes `{function}` while its operation of event {at} is open"
            )),
            Kind::Ok | Kind::Fail | Kind::Info => {
                if at != NONE && history.fs.get(at as usize) == u64::from(row.function) {
                    *open = NONE;
                    self.history.partners[at as usize] = this;
                    return Ok(at);
                }
                if row.kind == Kind::Info {
                    return Ok(NONE);
                }
                Err(format!(
                    "process {process} completes `{function}`, which it has not invoked"
                ))
            }
        }
    }

    /// The value that a row shows. That of an invoked transaction waits for its answer.
    fn value(&mut self, row: &Row, partner: u32) -> Packed {
        let Some(value) = row.value else {
            return match partner {
                NONE => Packed::NULL,
                _ => self.settle(partner),
            };
        };
        if row.kind == Kind::Invoke {
            return if value.is_txn() && !value.is_asked() && self.is_open(row.process) {
                self.hold_back(value)
            } else {
                value
            };
        }
        let awaited = (partner != NONE).then(|| self.packed(partner).as_awaited());
        let Some(slot) = awaited.flatten() else {
            return value;
        };
        let asked = value.is_txn().then(|| self.as_asked(slot, value, row.kind));
        match asked.flatten() {
            Some(asked) => {
                self.free_slots.push(slot);
                self.history.packed.set(partner as usize, asked.bits());
            }
            None => {
                self.settle(partner);
            }
        }
        value
    }

    fn is_open(&self, process: u32) -> bool {
        self.open[process as usize] != NONE
    }

    fn packed(&self, event: u32) -> Packed {
        Packed::from_bits(self.history.packed.get(event as usize))
    }

    /// What a slot asks for, told by the answer: the answer itself if it is the same, or the answer
    /// with nothing read. What is read by an operation that may not have happened is not taken.
    fn as_asked(&self, slot: usize, answer: Packed, kind: Kind) -> Option<Packed> {
        let (asked, answered) = (&self.asked[slot][..], self.history.values.mops_of(answer));
        if asked == answered {
            return Some(answer);
        }
        let is_blank = |mop: &Mop| mop.kind() != MopKind::Read || mop.value() == MopValue::Nil;
        let is_filled = kind == Kind::Ok
            && asked.len() == answered.len()
            && asked.iter().all(is_blank)
            && asked
                .iter()
                .zip(answered)
                .all(|(a, b)| a.is_answered_by(*b));
        is_filled.then(|| answer.asked())
    }

    /// Moves the last micro-operations to a slot.
    fn hold_back(&mut self, txn: Packed) -> Packed {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.asked.push(Vec::new());
            self.asked.len() - 1
        });
        let mops = self.history.values.mops_of(txn);
        self.asked[slot].clear();
        self.asked[slot].extend_from_slice(mops);
        let rest = self.history.values.mops_len() - mops.len();
        self.history.values.truncate_mops(rest);
        Packed::awaited(slot)
    }

    /// Gives an invocation its value if that was held back, and returns it.
    fn settle(&mut self, event: u32) -> Packed {
        let packed = self.packed(event);
        let Some(slot) = packed.as_awaited() else {
            return packed;
        };
        let values = &mut self.history.values;
        let start = values.mops_len();
        for &mop in &self.asked[slot] {
            values.push_mop(mop);
        }
        let txn = values.end_txn(start);
        self.free_slots.push(slot);
        self.history.packed.set(event as usize, txn.bits());
        txn
    }

    /// The number of a process.
    pub(crate) fn process_id(&mut self, process: &Process) -> u32 {
        if let Some(&id) = self.process_ids.get(process) {
            return id;
        }
        let id = u32::try_from(self.open.len()).expect("fewer than 2^32 processes");
        self.process_ids.insert(process.clone(), id);
        self.history.process_names.push(process.clone());
        self.open.push(NONE);
        id
    }

    /// The number of a key.
    pub(crate) fn key(&mut self, packed: Packed) -> u32 {
        let name = if packed.is_scalar() {
            KeyName::Packed(packed.bits())
        } else {
            KeyName::Text(self.history.values.view(packed).to_string())
        };
        let next = u32::try_from(self.history.key_values.len()).expect("fewer than 2^32 keys");
        let key_values = &mut self.history.key_values;
        *self.key_ids.entry(name).or_insert_with(|| {
            key_values.push(packed);
            next
        })
    }
}

/// Builds a history from events that are known to be consistent; for tests and examples.
///
/// # Panics
/// If they are not.
impl FromIterator<Event> for History {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> History {
        let mut builder = HistoryBuilder::new(Header::new("", &[]));
        for event in events {
            builder
                .push(&event)
                .expect("events of a literal history are consistent");
        }
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Outcome;
    use serde_json::{Value, json};

    fn client(time: u64, process: u64, kind: Kind, f: &str, value: Value) -> Event {
        Event::new(time, Process::Number(process), kind, f, value)
    }

    #[test]
    fn completions_find_their_invocations() {
        let history: History = [
            client(0, 1, Kind::Invoke, "write", json!(1)).with_key("x"),
            client(1, 2, Kind::Invoke, "read", Value::Null).with_key("x"),
            client(2, 2, Kind::Ok, "read", json!(1)).with_key("x"),
            client(3, 1, Kind::Info, "lost", Value::Null),
            client(4, 1, Kind::Info, "write", json!(1)).with_error("timeout"),
            client(5, 2, Kind::Invoke, "read", Value::Null).with_key(7),
        ]
        .into_iter()
        .collect();
        let ops: Vec<_> = history.ops().collect();
        assert_eq!(
            ops.iter().map(|op| op.outcome()).collect::<Vec<_>>(),
            [Outcome::Info, Outcome::Ok, Outcome::Info]
        );
        assert_eq!(ops[1].output().and_then(|value| value.as_i64()), Some(1));
        assert_eq!(ops[0].error(), Some("timeout"));
        assert_eq!(ops[0].end(), None);
        assert!(ops[2].completion.is_none());
        assert!(history.event(3).is_unasked());
        assert!(!history.event(4).is_unasked());
        assert_eq!(history.key_count(), 2);
        assert_eq!(
            history.event(0).key().and_then(|key| key.as_str()),
            Some("x")
        );
    }

    #[test]
    fn contradictions_are_refused_with_their_place() {
        let cases = [
            (
                vec![client(0, 1, Kind::Ok, "read", Value::Null)],
                0,
                "has not invoked",
            ),
            (
                vec![
                    client(0, 1, Kind::Invoke, "read", Value::Null),
                    client(1, 1, Kind::Invoke, "read", Value::Null),
                ],
                1,
                "is open",
            ),
            (
                vec![
                    client(5, 1, Kind::Invoke, "read", Value::Null),
                    client(4, 1, Kind::Ok, "read", Value::Null),
                ],
                1,
                "time goes back",
            ),
        ];
        for (events, at, says) in cases {
            let mut builder = HistoryBuilder::new(Header::new("register", &[]));
            let error = events.iter().find_map(|event| builder.push(event).err());
            match error {
                Some(Error::Inconsistent { index, message }) => {
                    assert_eq!(index, at);
                    assert!(message.contains(says), "{message}");
                }
                other => panic!("expected a contradiction, got {other:?}"),
            }
        }
    }

    #[test]
    fn a_process_may_go_on_after_an_indeterminate_operation() {
        let history: History = [
            client(0, 1, Kind::Invoke, "cas", json!([2, 0])),
            client(1, 1, Kind::Info, "cas", Value::Null),
            client(2, 1, Kind::Invoke, "read", Value::Null),
            client(3, 1, Kind::Ok, "read", json!(0)),
        ]
        .into_iter()
        .collect();
        assert_eq!(history.ops().count(), 2);
    }
}
