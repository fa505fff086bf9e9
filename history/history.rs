//! A history in memory: compact columns, and views of single events and whole operations.
//!
//! ```text
//! event      0        1        2        3     ...
//! times    [ 0      | 100ms  | 1s     | 1.1s  ]   as wide as the last one needs
//! kinds    [ invoke | ok     | invoke | ok    ]   one byte
//! partner  [ 1      | 0      | 3      | 2     ]   u32, NONE where an event stands alone
//! f, process, node, key, value, error: numbers into the tables beside them, in columns that are
//! as narrow as what they hold, and empty where nothing was said
//! ```

use crate::columns::{Narrow, Sparse};
use crate::event::{Kind, Process};
use crate::header::Header;
use crate::symbols::Symbols;
use crate::txn::{Mop, Word};
use crate::values::{Packed, ValueRef, Values};

/// Marks "no such event" in a column.
pub const NONE: u32 = u32::MAX;

/// All events of a run, in order, read-only. Made by [`crate::HistoryBuilder`].
#[derive(Debug, Clone)]
pub struct History {
    /// The first line of the file.
    pub header: Header,
    pub(crate) times: Narrow,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) fs: Narrow,
    pub(crate) processes: Narrow,
    pub(crate) nodes: Sparse,
    pub(crate) keys: Sparse,
    pub(crate) packed: Narrow,
    pub(crate) errors: Sparse,
    pub(crate) partners: Vec<u32>,
    pub(crate) function_names: Symbols,
    pub(crate) process_names: Vec<Process>,
    pub(crate) node_names: Symbols,
    pub(crate) key_values: Vec<Packed>,
    pub(crate) error_names: Symbols,
    pub(crate) values: Values,
}

impl History {
    /// How many events there are.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The event with this index.
    #[inline]
    pub fn event(&self, index: usize) -> EventRef<'_> {
        assert!(index < self.len(), "event {index} of {}", self.len());
        EventRef {
            history: self,
            index,
        }
    }

    /// All events in order.
    #[inline]
    pub fn events(&self) -> impl DoubleEndedIterator<Item = EventRef<'_>> {
        (0..self.len()).map(|index| EventRef {
            history: self,
            index,
        })
    }

    /// The operations of clients in the order of their invocations. Faults, observations and
    /// unasked events are not among them.
    #[inline]
    pub fn ops(&self) -> impl DoubleEndedIterator<Item = Op<'_>> {
        self.events()
            .filter(|event| event.kind() == Kind::Invoke)
            .map(|event| event.op())
    }

    /// The operations that call one of these functions.
    pub fn ops_of<'h>(&'h self, functions: &[&str]) -> impl DoubleEndedIterator<Item = Op<'h>> {
        let functions = self.functions().map(|name| functions.contains(&name));
        let are_wanted: Vec<bool> = functions.collect();
        self.ops()
            .filter(move |op| are_wanted[op.invoke.f_id() as usize])
    }

    /// The time of the last event, 0 if there is none.
    pub fn end(&self) -> u64 {
        self.times.last().unwrap_or(0)
    }

    /// How many distinct keys there are; keys are numbered from 0 in order of first use.
    pub fn key_count(&self) -> usize {
        self.key_values.len()
    }

    /// The key with this number.
    pub fn key_value(&self, id: u32) -> ValueRef<'_> {
        self.values.view(self.key_values[id as usize])
    }

    /// How many distinct processes there are; numbered from 0 in order of first use.
    pub fn process_count(&self) -> usize {
        self.process_names.len()
    }

    /// The process with this number.
    pub fn process_name(&self, id: u32) -> &Process {
        &self.process_names[id as usize]
    }

    /// The functions that were called or observed, in order of first use.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.function_names.iter()
    }

    /// The view of a packed value of this history.
    #[inline]
    pub fn view(&self, packed: Packed) -> ValueRef<'_> {
        self.values.view(packed)
    }

    /// The micro-operations of all transactions; those of one are a part of them.
    pub fn mops(&self) -> &[Mop] {
        &self.values.txns.mops
    }

    /// The elements of all lists that transactions read.
    pub fn elements(&self) -> &[Word] {
        &self.values.txns.elements
    }

    /// The value that a word of a transaction stands for.
    pub fn word(&self, word: Word) -> ValueRef<'_> {
        self.values.view_word(word)
    }

    /// Bytes that this history holds, for the budget of a checker.
    pub fn heap_bytes(&self) -> usize {
        let narrow = [&self.times, &self.fs, &self.processes, &self.packed];
        let sparse = [&self.nodes, &self.keys, &self.errors];
        narrow
            .iter()
            .map(|column| column.heap_bytes())
            .sum::<usize>()
            + sparse
                .iter()
                .map(|column| column.heap_bytes())
                .sum::<usize>()
            + self.kinds.capacity()
            + self.partners.capacity() * size_of::<u32>()
            + self.process_names.capacity() * size_of::<Process>()
            + self.key_values.capacity() * size_of::<Packed>()
            + self.values.heap_bytes()
    }
}

/// One event of a history.
#[derive(Clone, Copy)]
pub struct EventRef<'h> {
    history: &'h History,
    index: usize,
}

impl<'h> EventRef<'h> {
    /// Its place in the history.
    #[inline]
    pub fn index(self) -> usize {
        self.index
    }

    /// Nanoseconds since the run began.
    #[inline]
    pub fn time(self) -> u64 {
        self.history.times.get(self.index)
    }

    /// Invocation, completion, or something unasked.
    #[inline]
    pub fn kind(self) -> Kind {
        self.history.kinds[self.index]
    }

    /// The function.
    #[inline]
    pub fn f(self) -> &'h str {
        self.history.function_names.name(self.f_id())
    }

    /// The number of the function, in the order of [`History::functions`].
    #[inline]
    pub fn f_id(self) -> u32 {
        self.history.fs.get(self.index) as u32
    }

    /// The number of the process; see [`History::process_name`].
    #[inline]
    pub fn process_id(self) -> u32 {
        self.history.processes.get(self.index) as u32
    }

    /// The process.
    #[inline]
    pub fn process(self) -> &'h Process {
        self.history.process_name(self.process_id())
    }

    /// The node, where one is named.
    #[inline]
    pub fn node(self) -> Option<&'h str> {
        let node = self.history.nodes.get(self.index)?;
        Some(self.history.node_names.name(node))
    }

    /// The number of the key, where one is named; see [`History::key_value`].
    #[inline]
    pub fn key_id(self) -> Option<u32> {
        self.history.keys.get(self.index)
    }

    /// The key, where one is named.
    #[inline]
    pub fn key(self) -> Option<ValueRef<'h>> {
        self.key_id().map(|id| self.history.key_value(id))
    }

    /// Argument or result.
    #[inline]
    pub fn value(self) -> ValueRef<'h> {
        self.history
            .values
            .view(Packed::from_bits(self.history.packed.get(self.index)))
    }

    /// The reason of a failure or an indeterminate result.
    #[inline]
    pub fn error(self) -> Option<&'h str> {
        let error = self.history.errors.get(self.index)?;
        Some(self.history.error_names.name(error))
    }

    /// Whether the nemesis did this.
    #[inline]
    pub fn is_nemesis(self) -> bool {
        matches!(self.process(), Process::Name(name) if name == Process::NEMESIS)
    }

    /// Whether an observer saw this.
    #[inline]
    pub fn is_observer(self) -> bool {
        matches!(self.process(), Process::Name(name) if name == Process::OBSERVER)
    }

    /// Whether a client said this without being asked: a lost lock, a watch event.
    #[inline]
    pub fn is_unasked(self) -> bool {
        self.kind() == Kind::Info
            && self.history.partners[self.index] == NONE
            && !self.is_nemesis()
            && !self.is_observer()
    }

    /// The completion of an invocation, or the invocation of a completion.
    #[inline]
    pub fn partner(self) -> Option<EventRef<'h>> {
        let partner = self.history.partners[self.index];
        (partner != NONE).then_some(EventRef {
            history: self.history,
            index: partner as usize,
        })
    }

    /// The operation that this event, an invocation, begins.
    ///
    /// # Panics
    /// If the event is not an invocation.
    #[inline]
    pub fn op(self) -> Op<'h> {
        assert_eq!(
            self.kind(),
            Kind::Invoke,
            "event {} is no invocation",
            self.index
        );
        Op {
            invoke: self,
            completion: self.partner(),
        }
    }

    /// The event as it stands in the file.
    pub fn to_event(self) -> crate::Event {
        crate::Event {
            time: self.time(),
            process: self.process().clone(),
            node: self.node().map(str::to_owned),
            kind: self.kind(),
            f: self.f().to_owned(),
            key: self.key().map(ValueRef::to_json),
            value: self.value().to_json(),
            error: self.error().map(str::to_owned),
        }
    }
}

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It happened.
    Ok,
    /// It did not happen and never will.
    Fail,
    /// It may have happened, and may yet. An operation without an answer is one of these.
    Info,
}

/// An invocation with its completion, if it has one.
#[derive(Clone, Copy)]
pub struct Op<'h> {
    /// Where it begins.
    pub invoke: EventRef<'h>,
    /// Where it ends; `None` if it was never answered.
    pub completion: Option<EventRef<'h>>,
}

impl<'h> Op<'h> {
    /// The function.
    #[inline]
    pub fn f(self) -> &'h str {
        self.invoke.f()
    }

    /// What became of it.
    #[inline]
    pub fn outcome(self) -> Outcome {
        match self.completion.map(EventRef::kind) {
            Some(Kind::Ok) => Outcome::Ok,
            Some(Kind::Fail) => Outcome::Fail,
            _ => Outcome::Info,
        }
    }

    /// Whether it certainly happened.
    #[inline]
    pub fn is_ok(self) -> bool {
        self.outcome() == Outcome::Ok
    }

    /// When it was invoked.
    #[inline]
    pub fn start(self) -> u64 {
        self.invoke.time()
    }

    /// When it was over for certain: `None` for an indeterminate one, which may take effect at
    /// any later time.
    #[inline]
    pub fn end(self) -> Option<u64> {
        self.completion
            .filter(|event| event.kind() != Kind::Info)
            .map(EventRef::time)
    }

    /// The argument.
    #[inline]
    pub fn input(self) -> ValueRef<'h> {
        self.invoke.value()
    }

    /// The result of an operation that happened.
    #[inline]
    pub fn output(self) -> Option<ValueRef<'h>> {
        self.completion
            .filter(|event| event.kind() == Kind::Ok)
            .map(EventRef::value)
    }

    /// The reason why it failed or is indeterminate.
    #[inline]
    pub fn error(self) -> Option<&'h str> {
        self.completion.and_then(EventRef::error)
    }

    /// The number of its key.
    #[inline]
    pub fn key_id(self) -> Option<u32> {
        self.invoke.key_id()
    }

    /// The number of its process.
    #[inline]
    pub fn process_id(self) -> u32 {
        self.invoke.process_id()
    }

    /// The node that answered, or that was asked.
    #[inline]
    pub fn node(self) -> Option<&'h str> {
        self.completion
            .and_then(EventRef::node)
            .or_else(|| self.invoke.node())
    }
}
