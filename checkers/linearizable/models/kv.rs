//! A map of keys to values, each key by itself.

use std::sync::Arc;

use history::{Header, ValueRef};
use rustc_hash::FxHashMap;

use super::register::{Action, INITIAL, Val};
use super::{Asked, Effect, Model, Numbers, Shortcut, Timed};
use crate::linearizable::{strings, zones};

/// A map of keys to values.
pub struct Kv;

impl Model for Kv {
    const NAME: &'static str = "kv";
    const ABOUT: &'static str = "A map of keys, at first without values. `get`, which returns the \
        value, null if there is none; an empty string is as good as none. `put` of a value; `append` of \
        a string to what is there; `cas` of `[old, new]`, where an old of null means none; `delete`, \
        whether there is one or not.";
    const METHOD: &'static str = "Each key by itself. Without `append` and `delete`, and with distinct \
        values, as a register. Without `cas` and `delete`, where no string that was put or appended is \
        the beginning of another: what a get returns tells which strings were appended to which put, \
        and in which order. Values and all that was appended to them are blocks that follow each other \
        (Gibbons and Korach 1997): O(n log n) and reading what was returned, exact; where equal strings \
        were appended more than once, only if taking the first for the first leads to an order. \
        Otherwise by search.";

    type State = Option<Datum>;
    type Op = KvOp;

    fn of_header(_: &Header) -> Result<Kv, String> {
        Ok(Kv)
    }

    fn read(&self, asked: &Asked<'_>, numbers: &mut Numbers) -> Result<Option<KvOp>, String> {
        let op = match (asked.f, asked.output()) {
            ("get", None) => None,
            ("get", Some(answer)) => Some(KvOp::Get(Datum::of(answer, numbers))),
            ("put", _) => {
                let value = Datum::of(asked.input, numbers).ok_or("it puts null")?;
                Some(KvOp::Put(value))
            }
            ("append", _) => {
                let text = asked.input.as_shared_str();
                Some(KvOp::Append(text.ok_or("its argument is no string")?))
            }
            ("cas", _) => {
                let pair = asked
                    .input
                    .as_list()
                    .map(Iterator::collect::<Vec<ValueRef<'_>>>);
                let Some([old, new]) = pair.as_deref() else {
                    return Err("its argument is no [old, new]".to_owned());
                };
                let new = Datum::of(*new, numbers).ok_or("its new value is null")?;
                Some(KvOp::Cas(Box::new((Datum::of(*old, numbers), new))))
            }
            ("delete", _) => Some(KvOp::Delete),
            _ => return asked.unknown("`get`, `put`, `append`, `cas` and `delete`"),
        };
        Ok(op.filter(|_| !asked.failed()))
    }

    fn initial(&self) -> Self::State {
        None
    }

    fn effect(&self, op: &KvOp) -> Effect<Self::State> {
        match op {
            KvOp::Put(value) => Effect::Overwrites(Some(value.clone())),
            KvOp::Delete => Effect::Overwrites(None),
            KvOp::Get(_) => Effect::Passive,
            KvOp::Append(_) | KvOp::Cas(..) => Effect::Any,
        }
    }

    fn step(&self, state: &Self::State, op: &KvOp) -> Option<Self::State> {
        match op {
            KvOp::Get(value) => same(state, value).then(|| state.clone()),
            KvOp::Put(value) => Some(Some(value.clone())),
            KvOp::Append(text) => match state {
                None => Some(Some(Datum::Text(text.clone()))),
                Some(Datum::Text(before)) => {
                    Some(Some(Datum::Text([&**before, &**text].concat().into())))
                }
                Some(Datum::Other(_)) => None,
            },
            KvOp::Cas(values) => same(state, &values.0).then(|| Some(values.1.clone())),
            KvOp::Delete => Some(None),
        }
    }

    fn shortcut(&self, ops: &[Timed<KvOp>]) -> Shortcut {
        let known = register(ops).map_or(Shortcut::None, |ops| zones::decide(&ops));
        if matches!(known, Shortcut::Order) {
            return known;
        }
        match strings::decide(ops) {
            Shortcut::None => known,
            decided => decided,
        }
    }
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Datum {
    /// A string, to which more can be appended.
    Text(Arc<str>),
    /// Anything else.
    Other(u32),
}

impl Datum {
    fn of(value: ValueRef<'_>, numbers: &mut Numbers) -> Option<Datum> {
        match value.as_shared_str() {
            Some(text) => Some(Datum::Text(text)),
            None if value.is_null() => None,
            None => Some(Datum::Other(numbers.of(value))),
        }
    }
}

/// What is done with a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KvOp {
    /// It has this value.
    Get(Option<Datum>),
    /// It gets this value.
    Put(Datum),
    /// This comes to the end of its value.
    Append(Arc<str>),
    /// If it has the first value it gets the second.
    Cas(Box<(Option<Datum>, Datum)>),
    /// It has no value any more.
    Delete,
}

/// Whether a value is the one that was returned or expected.
fn same(state: &Option<Datum>, seen: &Option<Datum>) -> bool {
    let is_empty = |value: &Option<Datum>| match value {
        None => true,
        Some(Datum::Text(text)) => text.is_empty(),
        Some(Datum::Other(_)) => false,
    };
    // A value that is an empty string can be told from none only by an answer of null.
    state == seen || (seen.is_some() && is_empty(seen) && is_empty(state))
}

/// The operations as those of a register, if nothing is appended or deleted and nothing is empty
/// but at the beginning.
fn register(ops: &[Timed<KvOp>]) -> Option<Vec<Timed<Action>>> {
    let mut numbers: FxHashMap<&Datum, Val> = FxHashMap::default();
    let mut actions = Vec::with_capacity(ops.len());
    for timed in ops {
        let (old, new) = match &timed.op {
            KvOp::Get(value) => (Some(value.as_ref()), None),
            KvOp::Put(value) => (None, Some(value)),
            KvOp::Cas(values) => (Some(values.0.as_ref()), Some(&values.1)),
            KvOp::Append(_) | KvOp::Delete => return None,
        };
        let [old, new] = [old, new.map(Some)].map(|value| {
            Some(match value? {
                None => INITIAL,
                Some(Datum::Text(text)) if text.is_empty() => INITIAL,
                Some(value) => {
                    let next = INITIAL + 1 + numbers.len() as Val;
                    *numbers.entry(value).or_insert(next)
                }
            })
        });
        let op = match (old, new) {
            (_, Some(INITIAL)) => return None,
            (Some(old), Some(new)) => Action::Cas(old, new),
            (Some(value), None) => Action::Read(value),
            (None, new) => Action::Write(new?),
        };
        actions.push(Timed {
            op,
            call: timed.call,
            ret: timed.ret,
        });
    }
    Some(actions)
}
