//! What `linearizable` can be held against: one file per model, and the list of them.
//!
//! A [`Model`] is a sequential machine that says how the operations of a history are read and what
//! each does to a state. To add one, write its file here and its line in [`MODELS`]; one that is not in
//! the list is judged by [`judge()`]. Any model is decided by search; one for which something faster is
//! known says so in [`Model::shortcut`].

pub(super) mod append_log;
mod counter;
mod fenced_mutex;
mod fifo_queue;
pub(super) mod kv;
mod multi_register;
mod mutex;
mod owner_aware_mutex;
mod reentrant_mutex;
pub mod register;
mod semaphore;
mod set;
mod unordered_queue;
mod versioned_register;

pub use super::judge::{Counts, has_order, judge};

pub use append_log::AppendLog;
pub use counter::Counter;
pub use fenced_mutex::FencedMutex;
pub use fifo_queue::FifoQueue;
pub use kv::Kv;
pub use multi_register::MultiRegister;
pub use mutex::Mutex;
pub(super) use owner_aware_mutex::OwnedOp;
pub use owner_aware_mutex::OwnerAwareMutex;
pub use reentrant_mutex::ReentrantMutex;
pub use register::Register;
pub use semaphore::Semaphore;
pub use set::Set;
pub use unordered_queue::UnorderedQueue;
pub use versioned_register::VersionedRegister;
pub(super) use versioned_register::{Expected, Revision, State, VersionedOp};

use std::hash::Hash;
use std::sync::LazyLock;

use history::{Header, History, ValueRef};
use rustc_hash::FxHashMap;

use crate::ident::Ident;
use crate::params::{self, Param, Takes};
use crate::{Budget, Checked};

pub use super::machine::{Effect, NEVER};

/// A sequential machine, and how it reads a history.
pub trait Model: Sized + Sync {
    /// The name by which users choose it: `fifo-queue`.
    const NAME: &'static str;
    /// Other names under which it is known.
    const ALIASES: &'static [&'static str] = &[];
    /// What it promises, what its operations and their values look like, and what an unanswered
    /// one may have done; for the docs.
    const ABOUT: &'static str;
    /// How it is decided without search and when, and where that comes from; for the docs.
    const METHOD: &'static str;
    /// The header parameters that its verdict depends on, besides `fails`, which all have.
    const PARAMS: &'static [Param] = &[];

    /// What there is between two operations.
    type State: Clone + Eq + Hash;
    /// What an operation does and says.
    type Op: Clone + Eq + Hash + Send + Sync;

    /// The model with the parameters of a header.
    ///
    /// # Errors
    /// What is wrong with a parameter.
    fn of_header(header: &Header) -> Result<Self, String>;

    /// What an operation of a history does; nothing if it need not be looked at, because it did
    /// not happen, or because it changed nothing and was not answered.
    ///
    /// # Errors
    /// What is wrong with it: its function is not one of the model, or its value has another shape.
    fn read(&self, asked: &Asked<'_>, numbers: &mut Numbers) -> Result<Option<Self::Op>, String>;

    /// Whether an operation that failed did not happen even where failures are declared uncertain.
    fn is_certain(&self, _asked: &Asked<'_>) -> bool {
        false
    }

    /// The state at the beginning.
    fn initial(&self) -> Self::State;

    /// The state after an operation; nothing if it cannot happen in this one.
    fn step(&self, state: &Self::State, op: &Self::Op) -> Option<Self::State>;

    /// What an operation does, as far as that is known without looking at a state: the more is
    /// known, the less has to be searched. It must agree with [`Model::step`].
    fn effect(&self, _op: &Self::Op) -> Effect<Self::State> {
        Effect::Any
    }

    /// Which part of the object it works on, if that is independent of all others. The operations
    /// of one key are one part or all have one.
    fn part(&self, _op: &Self::Op) -> Option<u32> {
        None
    }

    /// Finds out that all of a history has an order, where looking at its events once can show it;
    /// nothing if there may be none.
    fn glance(&self, _history: &History) -> Option<Counts> {
        None
    }

    /// Whether there is an order, where that can be known without search. Operations come in the
    /// order of their calls.
    fn shortcut(&self, _ops: &[Timed<Self::Op>]) -> Shortcut {
        Shortcut::None
    }

    /// Why these operations have no order, in one sentence, if they are as usual. They come in the
    /// order of their returns; besides them there are all operations, in the order of their calls.
    fn why(&self, _told: &[Told<Self::Op>], _all: &[Timed<Self::Op>]) -> Option<String> {
        None
    }
}

/// An operation and when it was open, as indices of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed<O> {
    /// What it does and says.
    pub op: O,
    /// When it was called.
    pub call: u32,
    /// When it returned; [`NEVER`] if it was not answered: then it may take effect at any later
    /// time, or not at all.
    pub ret: u32,
}

/// What could be said without search.
#[derive(Debug, Clone)]
pub enum Shortcut {
    /// Nothing.
    None,
    /// There is an order.
    Order,
    /// There is none.
    NoOrder(Core),
    /// The operation at this place cannot be explained, given what was called before it returned.
    At(usize),
    /// The answers of the operations at these places cannot be explained together, whatever became
    /// of all others that were called before the last of them returned.
    Answers(Vec<usize>),
}

/// Operations that have no order by themselves, by their places, and why.
#[derive(Debug, Clone)]
pub struct Core {
    /// Places of the operations.
    pub places: Vec<usize>,
    /// The reason, given the words for these operations in the same order.
    pub why: Why,
}

/// A sentence about operations, given the words for them.
pub type Why = fn(&[String]) -> String;

impl Shortcut {
    /// These operations have no order by themselves, and why.
    pub fn no_order(places: Vec<usize>, why: Why) -> Shortcut {
        Shortcut::NoOrder(Core { places, why })
    }
}

/// An operation of a counterexample.
#[derive(Debug, Clone)]
pub struct Told<O> {
    /// What it does and says.
    pub op: O,
    /// When it was called, as an index of events.
    pub call: u32,
    /// When it returned.
    pub ret: u32,
    /// The same in words: `A dequeue -> 4`.
    pub words: String,
    /// The client.
    pub who: String,
    /// The function.
    pub f: String,
    /// The argument in words.
    pub input: String,
    /// The result in words.
    pub output: String,
}

/// An operation of a history, as a model reads it.
#[derive(Clone, Copy)]
pub struct Asked<'h> {
    /// The function.
    pub f: &'h str,
    /// The argument.
    pub input: ValueRef<'h>,
    /// What became of it.
    pub answer: Answer<'h>,
    /// The reason why it failed.
    pub error: Option<&'h str>,
    /// The thread of the process that asked: an owner of locks.
    pub owner: u32,
}

/// What became of an operation.
#[derive(Clone, Copy)]
pub enum Answer<'h> {
    /// It happened, with this result.
    Ok(ValueRef<'h>),
    /// It did not happen.
    Fail,
    /// It may have happened, and may yet.
    Unknown,
}

impl<'h> Asked<'h> {
    /// The result of an operation that happened.
    pub fn output(&self) -> Option<ValueRef<'h>> {
        match self.answer {
            Answer::Ok(value) => Some(value),
            Answer::Fail | Answer::Unknown => None,
        }
    }

    /// Whether it certainly did not happen.
    pub fn failed(&self) -> bool {
        matches!(self.answer, Answer::Fail)
    }

    /// For a function that the model does not know.
    ///
    /// # Errors
    /// Always.
    pub fn unknown<T>(&self, known: &str) -> Result<T, String> {
        Err(format!("the model has no such function; it has {known}"))
    }
}

/// Small numbers for values, in order of first use. `null` is 0.
#[derive(Debug, Default)]
pub struct Numbers {
    /// Of integers that are not negative and not large, plus one; 0 for none.
    small: Vec<u32>,
    others: FxHashMap<Ident, u32>,
    count: u32,
}

/// The number of `null`.
pub const NULL: u32 = 0;

/// Integers below this have their numbers in a table.
const SMALL: usize = 1 << 22;

impl Numbers {
    /// The number of a value.
    pub fn of(&mut self, value: ValueRef<'_>) -> u32 {
        if value.is_null() {
            return NULL;
        }
        let int = value.packed().as_int();
        let small = int.and_then(|int| usize::try_from(int).ok());
        match small.filter(|&at| at < SMALL) {
            Some(at) => {
                if self.small.len() <= at {
                    self.small.resize((at + 1).next_power_of_two(), NULL);
                }
                if self.small[at] == NULL {
                    self.count += 1;
                    self.small[at] = self.count;
                }
                self.small[at]
            }
            None => *self.others.entry(Ident::of(value)).or_insert_with(|| {
                self.count += 1;
                self.count
            }),
        }
    }
}

impl Numbers {
    /// The number of a value that stands within another. A model numbers all of its values in this way,
    /// or none.
    pub fn of_json(&mut self, value: &serde_json::Value) -> u32 {
        if value.is_null() {
            return NULL;
        }
        let ident = Ident::Text(value.to_string());
        *self.others.entry(ident).or_insert_with(|| {
            self.count += 1;
            self.count
        })
    }
}

/// A parameter that is a count.
fn count_param(header: &Header, name: &str, default: u64) -> Result<u64, String> {
    match header.params.get(name) {
        None => Ok(default),
        Some(value) => value
            .as_u64()
            .ok_or_else(|| format!("the parameter `{name}` is no count")),
    }
}

/// A model of the list.
pub struct Entry {
    /// The name by which users choose it.
    pub name: &'static str,
    /// Other names under which it is known.
    pub aliases: &'static [&'static str],
    /// What it promises, and what its operations look like.
    pub about: &'static str,
    /// How it is decided without search, and when.
    pub method: &'static str,
    /// The header parameters that its verdict depends on.
    pub params: &'static [Param],
    /// Judges a history.
    pub(super) judge: fn(&History, &Budget) -> Checked,
}

impl Entry {
    const fn of<M: Model>() -> Entry {
        Entry {
            name: M::NAME,
            aliases: M::ALIASES,
            about: M::ABOUT,
            method: M::METHOD,
            params: M::PARAMS,
            judge: judge::<M>,
        }
    }
}

/// All models, in the order in which they are listed.
pub static MODELS: &[Entry] = &[
    Entry::of::<Register>(),
    Entry::of::<MultiRegister>(),
    Entry::of::<VersionedRegister>(),
    Entry::of::<Kv>(),
    Entry::of::<Mutex>(),
    Entry::of::<OwnerAwareMutex>(),
    Entry::of::<ReentrantMutex>(),
    Entry::of::<FencedMutex>(),
    Entry::of::<Semaphore>(),
    Entry::of::<FifoQueue>(),
    Entry::of::<UnorderedQueue>(),
    Entry::of::<Set>(),
    Entry::of::<Counter>(),
    Entry::of::<AppendLog>(),
];

/// The word for the model that is named like the workload, or else a register.
const BY_WORKLOAD: &str = "workload";

impl Entry {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// The model that a header asks for.
pub(super) fn of_header(header: &Header) -> &'static Entry {
    let name = match header.param_str("model") {
        None | Some(BY_WORKLOAD) => &header.workload,
        Some(name) => name,
    };
    let named = MODELS.iter().find(|entry| entry.is_called(name));
    named.unwrap_or(&MODELS[0])
}

/// What a verdict may depend on, of all models.
pub(super) fn all_params() -> &'static [Param] {
    static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
        let names = MODELS
            .iter()
            .flat_map(|entry| std::iter::once(&entry.name).chain(entry.aliases));
        std::iter::once(BY_WORKLOAD).chain(names.copied()).collect()
    });
    static PARAMS: LazyLock<Vec<Param>> = LazyLock::new(|| {
        let model = Param {
            name: "model",
            takes: Takes::Word(&NAMES),
            default: BY_WORKLOAD,
            about: "what the operations work on; `workload`: the model that is named like the workload, or \
                    else a register",
        };
        let mut all = vec![model, params::FAILS];
        let of_models = MODELS.iter().flat_map(|entry| entry.params).copied();
        for param in of_models {
            if all.iter().all(|known| known.name != param.name) {
                all.push(param);
            }
        }
        all
    });
    &PARAMS
}
