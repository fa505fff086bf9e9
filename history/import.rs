//! Operations as other tools record them, made into a history.
//!
//! Other tools leave out what they think is clear. Here is decided what it means:
//!
//! - Events stand in the order in which they happened. Their times are kept where they agree with
//!   that; where one is missing, or is not after that of the event before, it is set one
//!   nanosecond after it.
//! - A completion without a value has that of its invocation, and so has every `info`: what an
//!   operation returned of which nobody knows whether it happened means nothing.
//! - A process that goes on after an `info` is a new one.
//! - An operation without a process has a session of its own. Its completion is the one that can
//!   belong to it; where it might belong to several, that is an error.
//! - The nemesis only ever says `info`.

use rustc_hash::FxHashMap;

use crate::builder::{HistoryBuilder, Row, TXN};
use crate::event::{Kind, Process};
use crate::header::Header;
use crate::history::History;
use crate::symbols::Symbols;
use crate::txn::{Mop, MopKind, MopValue};
use crate::values::{Packed, Values};

/// An event as far as it was given.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) time: Option<i64>,
    pub(crate) process: Option<Who>,
    pub(crate) kind: Option<Kind>,
    pub(crate) function: Option<u32>,
    pub(crate) node: Option<u32>,
    pub(crate) key: Option<Packed>,
    pub(crate) error: Option<u32>,
    pub(crate) value: Option<Packed>,
}

/// Who is named as the process of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    Number(u64),
    /// A name: its number among the names of the importer.
    Name(u32),
}

/// A process as it is named, and under which number it goes on now.
#[derive(Debug, Clone, Copy)]
struct Seat {
    process: u32,
    /// How often it went on after an `info`.
    lives: u32,
    is_gone: bool,
    is_nemesis: bool,
}

/// Builds a history from the events of another tool.
#[derive(Debug)]
pub(crate) struct Importer {
    builder: HistoryBuilder,
    names: Symbols,
    numbered: Vec<Option<Seat>>,
    far: FxHashMap<u64, Seat>,
    named: FxHashMap<u32, Seat>,
    /// The processes given to open invocations that have none, by what they call.
    nameless: FxHashMap<Call, Vec<u32>>,
    last_time: Option<u64>,
    shape: Shape,
}

/// What an invocation and its completion have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Call {
    Of(Option<u32>),
    Txn(Vec<Mop>),
}

/// What the operations seen so far have in common.
#[derive(Debug)]
struct Shape {
    /// Whether the values of all operations of clients are pairs, as far as they are known.
    pairs: bool,
    /// Whether a read asked for a key without a value.
    keyed_read: bool,
}

/// The number below which the seats of processes stand in a table.
const NEAR: u64 = 1 << 16;

impl Importer {
    pub(crate) fn new() -> Importer {
        Importer {
            builder: HistoryBuilder::new(Header::new("", &[])),
            names: Symbols::default(),
            numbered: Vec::new(),
            far: FxHashMap::default(),
            named: FxHashMap::default(),
            nameless: FxHashMap::default(),
            last_time: None,
            shape: Shape {
                pairs: true,
                keyed_read: false,
            },
        }
    }

    /// The number of the next event.
    pub(crate) fn len(&self) -> usize {
        self.builder.history().len()
    }

    pub(crate) fn builder(&mut self) -> &mut HistoryBuilder {
        &mut self.builder
    }

    pub(crate) fn values(&mut self) -> &mut Values {
        self.builder.values()
    }

    /// Who has this name.
    pub(crate) fn who(&mut self, name: &str) -> Who {
        Who::Name(self.names.intern(name))
    }

    /// Appends an event.
    ///
    /// # Errors
    /// Why it cannot be one, in words.
    pub(crate) fn push(&mut self, draft: &Draft) -> Result<(), String> {
        let kind = draft.kind.ok_or("an operation without a type")?;
        let (process, kind) = match draft.process {
            Some(who) => self.seat(who, kind),
            None if kind == Kind::Invoke => (self.nameless_process(draft), kind),
            None => match self.nameless_completed(draft, kind)? {
                Some(process) => (process, kind),
                None => return Ok(()),
            },
        };
        let open = match kind {
            Kind::Invoke => None,
            _ => self.builder.open_of(process),
        };
        let function = self.function(draft, open)?;
        let value = self.as_txn(draft.value, function);
        let key = draft.key.map(|key| self.builder.key(key));
        let asked = open.and_then(|open| self.builder.history().keys.get(open));
        let key = key.or(asked);
        let value = match (open, kind) {
            (Some(_), Kind::Info) => None,
            _ => value,
        };
        let time = self.time(draft.time);
        if open.is_some() || kind == Kind::Invoke {
            self.observe(kind, value);
        }
        let row = Row {
            time,
            process,
            kind,
            function,
            node: draft.node,
            key,
            error: draft.error,
            value: value.or((open.is_none()).then_some(Packed::NULL)),
        };
        self.builder.append(row).map_err(|error| match error {
            crate::Error::Inconsistent { message, .. } => message,
            other => other.to_string(),
        })
    }

    /// The process that sits where this one is named. One that is gone has a successor.
    fn seat(&mut self, who: Who, kind: Kind) -> (u32, Kind) {
        let known = match who {
            Who::Number(number) if number < NEAR => {
                self.numbered.get(number as usize).copied().flatten()
            }
            Who::Number(number) => self.far.get(&number).copied(),
            Who::Name(name) => self.named.get(&name).copied(),
        };
        let mut seat = match known {
            Some(seat) if !(seat.is_gone && kind == Kind::Invoke) => seat,
            other => {
                let lives = other.map_or(0, |seat| seat.lives + 1);
                let seat = self.sit(who, lives);
                self.keep(who, seat);
                seat
            }
        };
        if seat.is_nemesis {
            return (seat.process, Kind::Info);
        }
        if kind == Kind::Info && self.builder.open_of(seat.process).is_some() {
            seat.is_gone = true;
            self.keep(who, seat);
        }
        (seat.process, kind)
    }

    fn keep(&mut self, who: Who, seat: Seat) {
        match who {
            Who::Number(number) if number < NEAR => {
                let number = number as usize;
                if self.numbered.len() <= number {
                    self.numbered.resize(number + 1, None);
                }
                self.numbered[number] = Some(seat);
            }
            Who::Number(number) => {
                self.far.insert(number, seat);
            }
            Who::Name(name) => {
                self.named.insert(name, seat);
            }
        }
    }

    fn sit(&mut self, who: Who, lives: u32) -> Seat {
        let process = match who {
            Who::Number(number) => Process::Number(number),
            Who::Name(name) => Process::Name(self.names.name(name).to_owned()),
        };
        let is_nemesis = process == Process::nemesis();
        let process = match lives {
            0 => process,
            _ => Process::Name(format!("{process}/{}", lives + 1)),
        };
        Seat {
            process: self.builder.process_id(&process),
            lives,
            is_gone: false,
            is_nemesis,
        }
    }

    /// A process of its own for an invocation that names none.
    fn nameless_process(&mut self, draft: &Draft) -> u32 {
        let name = Process::Name(format!("op{}", self.len()));
        let process = self.builder.process_id(&name);
        let call = self.call(draft);
        self.nameless.entry(call).or_default().push(process);
        process
    }

    /// The process of the one open invocation without a process that a completion can belong to;
    /// `None` if none can and the completion says nothing.
    fn nameless_completed(&mut self, draft: &Draft, kind: Kind) -> Result<Option<u32>, String> {
        let call = self.call(draft);
        let open = self.nameless.entry(call).or_default();
        match (open.pop(), open.is_empty()) {
            (Some(process), true) => Ok(Some(process)),
            (Some(process), false) => {
                open.push(process);
                Err(
                    "a completion without a process that may belong to several invocations"
                        .to_owned(),
                )
            }
            (None, _) if kind == Kind::Info => Ok(None),
            (None, _) => Err(
                "a completion without a process that belongs to no invocation before it".to_owned(),
            ),
        }
    }

    /// What an invocation and its completion have in common: of transactions what they do but not
    /// what they read, of other operations the function.
    fn call(&mut self, draft: &Draft) -> Call {
        let Some(txn) = draft.value.filter(|value| value.is_txn()) else {
            return Call::Of(draft.function);
        };
        let blank = |&mop: &Mop| match mop.kind() {
            MopKind::Read => Mop::new(MopKind::Read, mop.key(), MopValue::Nil),
            _ => mop,
        };
        Call::Txn(self.values().mops_of(txn).iter().map(blank).collect())
    }

    fn function(&mut self, draft: &Draft, open: Option<usize>) -> Result<u32, String> {
        if let Some(function) = draft.function {
            return Ok(function);
        }
        if let Some(open) = open {
            return Ok(self.builder.history().fs.get(open) as u32);
        }
        if draft.value.is_some_and(Packed::is_txn) {
            return Ok(self.builder.function(TXN));
        }
        Err("an operation without a function whose value is no transaction".to_owned())
    }

    /// The empty list as a transaction, where it is one.
    fn as_txn(&mut self, value: Option<Packed>, function: u32) -> Option<Packed> {
        let value = value?;
        let values = &self.builder.history().values;
        let is_empty = value.is_list() && values.items(value).is_empty();
        if is_empty && self.builder.history().function_names.name(function) == TXN {
            let values = self.builder.values();
            let start = values.mops_len();
            return Some(values.end_txn(start));
        }
        Some(value)
    }

    fn time(&mut self, given: Option<i64>) -> u64 {
        let least = self.last_time.map_or(0, |last| last.saturating_add(1));
        let given = given.and_then(|time| u64::try_from(time).ok());
        let time = given.unwrap_or(0).max(least);
        self.last_time = Some(time);
        time
    }

    /// Looks whether values may still be pairs of a key and a value.
    fn observe(&mut self, kind: Kind, value: Option<Packed>) {
        let Some(value) = value else {
            return;
        };
        if !self.shape.pairs {
            return;
        }
        let values = &self.builder.history().values;
        let pair = value.is_list().then(|| values.items(value));
        match pair {
            Some([_, second]) => {
                self.shape.keyed_read |= kind == Kind::Invoke && second.is_null();
            }
            _ => self.shape.pairs = false,
        }
    }

    /// The finished history. `keyed` says whether values are pairs of a key and a value; where
    /// nothing is said, they are if all of them are pairs and a read asked for a key alone.
    ///
    /// # Errors
    /// If they shall be pairs and are not.
    pub(crate) fn finish(self, keyed: Option<bool>) -> Result<History, String> {
        let certain = self.shape.pairs && self.shape.keyed_read;
        if keyed == Some(true) && !self.shape.pairs {
            return Err("values are not all pairs of a key and a value".to_owned());
        }
        let mut history = if keyed.unwrap_or(certain) {
            self.builder.finish_keyed()
        } else {
            self.builder.finish()
        };
        history.header.workload = workload(&history).to_owned();
        Ok(history)
    }
}

/// The workload whose vocabulary a history certainly uses; nothing where it may be several.
fn workload(history: &History) -> &'static str {
    let mut is_called = vec![false; history.function_names.len()];
    for op in history.ops() {
        is_called[history.fs.get(op.invoke.index()) as usize] = true;
    }
    let names = history.functions().zip(is_called);
    let functions: Vec<&str> = names
        .filter(|&(_, called)| called)
        .map(|(name, _)| name)
        .collect();
    let only = |known: &[&str]| functions.iter().all(|name| known.contains(name));
    let any = |known: &[&str]| functions.iter().any(|name| known.contains(name));
    match () {
        () if functions.is_empty() => "",
        () if only(&[TXN]) => "txn",
        () if only(&["read", "write", "cas"]) && any(&["write", "cas"]) => "register",
        () if only(&["get", "put", "append", "delete"]) && any(&["put", "append"]) => "kv",
        () if only(&["acquire", "release"]) && any(&["acquire"]) => "mutex",
        () if only(&["enqueue", "dequeue", "drain"]) => "queue",
        () if only(&["read", "transfer"]) && any(&["transfer"]) => "bank",
        () => "",
    }
}
