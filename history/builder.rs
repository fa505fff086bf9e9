//! Builds a [`History`] event by event, pairing every completion with its invocation.

use std::collections::HashMap;

use serde_json::Value;

use crate::Error;
use crate::event::{Event, Kind, Process};
use crate::header::Header;
use crate::history::{History, NONE};
use crate::symbols::Symbols;
use crate::values::Values;

/// The function whose values are transactions.
const TXN: &str = "txn";

/// Takes events in order and makes a history of them.
#[derive(Debug)]
pub struct HistoryBuilder {
    history: History,
    process_ids: HashMap<Process, u32>,
    key_ids: HashMap<KeyName, u32>,
    /// The open invocation of each process, [`NONE`] if it has none.
    open: Vec<u32>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum KeyName {
    Packed(u64),
    Text(String),
}

impl HistoryBuilder {
    /// An empty history with this header.
    pub fn new(header: Header) -> HistoryBuilder {
        HistoryBuilder {
            history: History {
                header,
                times: Vec::new(),
                kinds: Vec::new(),
                fs: Vec::new(),
                processes: Vec::new(),
                nodes: Vec::new(),
                keys: Vec::new(),
                packed: Vec::new(),
                errors: Vec::new(),
                partners: Vec::new(),
                function_names: Symbols::default(),
                process_names: Vec::new(),
                node_names: Symbols::default(),
                key_values: Vec::new(),
                error_names: Symbols::default(),
                values: Values::default(),
            },
            process_ids: HashMap::new(),
            key_ids: HashMap::new(),
            open: Vec::new(),
        }
    }

    /// Appends an event.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] if time goes back, an answer has no question, or a process asks
    /// while an earlier operation of it is open.
    pub fn push(&mut self, event: &Event) -> Result<(), Error> {
        let index = self.history.len();
        let inconsistent = |message: String| Error::Inconsistent { index, message };
        if event.time < self.history.end() {
            return Err(inconsistent(format!(
                "time goes back from {} to {} ns",
                self.history.end(),
                event.time
            )));
        }
        let process = self.process_id(&event.process);
        let function = self.history.function_names.intern(&event.f);
        let function = u16::try_from(function)
            .map_err(|_| inconsistent("more than 65536 functions".to_owned()))?;
        let partner = self.pair(index, event, process, function)?;
        let history = &mut self.history;
        let node = event
            .node
            .as_deref()
            .map_or(NONE, |node| history.node_names.intern(node));
        let error = event
            .error
            .as_deref()
            .map_or(NONE, |error| history.error_names.intern(error));
        let txn = (event.f == TXN).then(|| history.values.pack_txn(&event.value));
        let packed = txn
            .flatten()
            .unwrap_or_else(|| history.values.pack(&event.value));
        let key = event.key.as_ref().map_or(NONE, |key| self.key_id(key));
        let history = &mut self.history;
        history.times.push(event.time);
        history.kinds.push(event.kind);
        history.fs.push(function);
        history.processes.push(process);
        history.nodes.push(node);
        history.keys.push(key);
        history.packed.push(packed);
        history.errors.push(error);
        history.partners.push(partner);
        Ok(())
    }

    /// The finished history. Operations that are still open stay without a completion.
    pub fn finish(self) -> History {
        self.history
    }

    /// Finds the partner of an event and links both ways.
    fn pair(
        &mut self,
        index: usize,
        event: &Event,
        process: u32,
        function: u16,
    ) -> Result<u32, Error> {
        let inconsistent = |message: String| Error::Inconsistent { index, message };
        let is_client = !matches!(&event.process, Process::Name(name)
            if name == Process::NEMESIS || name == Process::OBSERVER);
        if !is_client {
            return Ok(NONE);
        }
        let open = self.open[process as usize];
        let this =
            u32::try_from(index).map_err(|_| inconsistent("more than 2^32 events".to_owned()))?;
        match event.kind {
            Kind::Invoke if open == NONE => {
                self.open[process as usize] = this;
                Ok(NONE)
            }
            Kind::Invoke => Err(inconsistent(format!(
                "process {} invokes `{}` while its operation of event {open} is open",
                event.process, event.f
            ))),
            Kind::Ok | Kind::Fail | Kind::Info => {
                if open != NONE && self.history.fs[open as usize] == function {
                    self.open[process as usize] = NONE;
                    self.history.partners[open as usize] = this;
                    return Ok(open);
                }
                if event.kind == Kind::Info {
                    return Ok(NONE);
                }
                Err(inconsistent(format!(
                    "process {} completes `{}`, which it has not invoked",
                    event.process, event.f
                )))
            }
        }
    }

    fn process_id(&mut self, process: &Process) -> u32 {
        if let Some(&id) = self.process_ids.get(process) {
            return id;
        }
        let id = u32::try_from(self.open.len()).expect("fewer than 2^32 processes");
        self.process_ids.insert(process.clone(), id);
        self.history.process_names.push(process.clone());
        self.open.push(NONE);
        id
    }

    fn key_id(&mut self, key: &Value) -> u32 {
        let packed = self.history.values.pack(key);
        let name = if matches!(key, Value::Array(_) | Value::Object(_) | Value::Number(_))
            && packed.as_int().is_none()
        {
            KeyName::Text(key.to_string())
        } else {
            KeyName::Packed(packed.bits())
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
    use serde_json::json;

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
