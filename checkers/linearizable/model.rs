//! From a history to one partition per key: operations with small numbers for values.

use history::{EventRef, History, Op, Outcome, ValueRef};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use super::machine::{Class, Effect, Machine, START, State, Timed};
use super::needs;
use crate::ident::Ident;
use crate::params;

/// A value of one partition: a small number, in order of first use. The initial value is
/// [`INITIAL`].
pub(crate) type Val = State;

/// The value before the first write.
pub(crate) const INITIAL: Val = START;

pub(crate) use super::machine::NEVER;

/// What an operation does and says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Action {
    /// The value was this.
    Read(Val),
    /// The value becomes this.
    Write(Val),
    /// The value was the first and becomes the second.
    Cas(Val, Val),
    /// The value was anything but this.
    NotValue(Val),
}

impl Action {
    /// The value that must be there for it to take effect.
    pub(crate) fn needs(self) -> Option<Val> {
        match self {
            Action::Read(value) | Action::Cas(value, _) => Some(value),
            Action::Write(_) | Action::NotValue(_) => None,
        }
    }

    /// The value that it leaves behind, if it changes anything.
    pub(crate) fn leaves(self) -> Option<Val> {
        match self {
            Action::Write(value) | Action::Cas(_, value) => Some(value),
            Action::Read(_) | Action::NotValue(_) => None,
        }
    }

    /// The value after it took effect on `value`; `None` if it cannot.
    pub(crate) fn apply(self, value: Val) -> Option<Val> {
        match self {
            Action::Read(read) => (read == value).then_some(value),
            Action::Write(written) => Some(written),
            Action::Cas(old, new) => (old == value).then_some(new),
            Action::NotValue(not) => (not != value).then_some(value),
        }
    }
}

/// An operation of one partition. Call and return are indices of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegisterOp {
    pub(crate) action: Action,
    pub(crate) call: u32,
    /// [`NEVER`] if it may take effect at any later time, or not at all.
    pub(crate) ret: u32,
}

impl RegisterOp {
    /// Whether it may take effect at any later time, or not at all.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.ret == NEVER
    }
}

/// The operations of one key, in the order of their calls.
#[derive(Debug, Clone)]
pub(crate) struct Partition {
    pub(crate) key: Option<u32>,
    pub(crate) ops: Vec<RegisterOp>,
}

impl Partition {
    /// Whether it is a register, without cas, whose writes are distinct from each other and from
    /// the initial value.
    pub(crate) fn is_unique(&self) -> bool {
        let mut written: FxHashSet<Val> = FxHashSet::from_iter([INITIAL]);
        self.ops.iter().all(|op| match op.action {
            Action::Read(_) => true,
            Action::Write(value) => written.insert(value),
            Action::Cas(..) | Action::NotValue(_) => false,
        })
    }

    /// The most answered operations that are open at once.
    pub(crate) fn concurrency(&self) -> usize {
        needs::concurrency(self.ops.iter().map(|op| (op.call, op.ret)))
    }

    /// A guess of how hard it is to decide, to do easy ones first; ties by key.
    pub(crate) fn cost(&self) -> (bool, u128, Option<u32>) {
        if self.is_unique() {
            return (false, self.ops.len() as u128, self.key);
        }
        let unanswered = self.ops.iter().filter(|op| op.is_unanswered()).count();
        let width = self.concurrency() + unanswered.min(32);
        let cost = (self.ops.len() as u128) << width.min(64);
        (true, cost, self.key)
    }
}

/// The register as a machine: its states are the values, each distinct action is a class.
pub(crate) struct Actions(Vec<Action>);

impl Actions {
    /// The actions of a partition, and its operations by their classes.
    pub(crate) fn of(partition: &Partition) -> (Actions, Vec<Timed>) {
        let mut classes: FxHashMap<Action, Class> = FxHashMap::default();
        let mut actions = Vec::new();
        let timed = partition.ops.iter().map(|op| {
            let class = *classes.entry(op.action).or_insert_with(|| {
                actions.push(op.action);
                Class::try_from(actions.len() - 1).unwrap_or(Class::MAX)
            });
            Timed {
                class,
                call: op.call,
                ret: op.ret,
            }
        });
        let timed = timed.collect();
        (Actions(actions), timed)
    }
}

impl Machine for Actions {
    fn effect(&self, class: Class) -> Effect {
        match self.0[class as usize] {
            Action::Read(value) => Effect::Observes(value),
            Action::Write(value) => Effect::Overwrites(value),
            Action::Cas(old, new) if old == new => Effect::Observes(old),
            Action::Cas(old, new) => Effect::Moves(old, new),
            Action::NotValue(_) => Effect::Passive,
        }
    }

    fn step(&mut self, state: State, class: Class) -> Option<State> {
        self.0[class as usize].apply(state)
    }
}

/// How operations are read.
pub(crate) struct Model<'h> {
    reads: Vec<&'h str>,
    initial: Option<&'h Value>,
    nil_reads_unknown: bool,
    failed_cas_observes: bool,
    fails_uncertain: bool,
}

impl<'h> Model<'h> {
    /// The semantics that the header declares.
    pub(crate) fn of_header(history: &'h History) -> Model<'h> {
        let header = &history.header;
        let more = header.params.get("reads").and_then(Value::as_array);
        let more = more.into_iter().flatten().filter_map(Value::as_str);
        Model {
            reads: std::iter::once("read").chain(more).collect(),
            initial: header.params.get("initial"),
            nil_reads_unknown: params::NIL_READS.word(header) == "unknown",
            failed_cas_observes: params::CAS_FAIL.word(header) == "observation",
            fails_uncertain: params::FAILS.word(header) == "uncertain",
        }
    }

    /// One partition for each key that is read or written, in order of first use.
    ///
    /// # Errors
    /// What is wrong with an operation whose argument cannot be understood.
    pub(crate) fn partitions(&self, history: &History) -> Result<Vec<Partition>, String> {
        let mut place: FxHashMap<Option<u32>, usize> = FxHashMap::default();
        let mut found: Vec<(Partition, FxHashMap<Ident, Val>)> = Vec::new();
        for op in history.ops() {
            let Some(parts) = self.parts(op)? else {
                continue;
            };
            let next = found.len();
            let at = *place.entry(op.key_id()).or_insert(next);
            if at == next {
                let partition = Partition {
                    key: op.key_id(),
                    ops: Vec::new(),
                };
                found.push((partition, FxHashMap::default()));
            }
            let (partition, values) = &mut found[at];
            let mut number = |value: ValueRef<'_>| self.number(value, values);
            let action = match parts {
                Parts::Read(value) => Action::Read(number(value)),
                Parts::Write(value) => Action::Write(number(value)),
                Parts::Cas(old, new) => Action::Cas(number(old), number(new)),
                Parts::NotValue(value) => Action::NotValue(number(value)),
            };
            let ret = match self.outcome(op) {
                Outcome::Info => NEVER,
                _ => op.completion.map_or(NEVER, rank),
            };
            partition.ops.push(RegisterOp {
                action,
                call: rank(op.invoke),
                ret,
            });
        }
        Ok(found.into_iter().map(|(partition, _)| partition).collect())
    }

    fn parts<'a>(&self, op: Op<'a>) -> Result<Option<Parts<'a>>, String> {
        let f = op.f();
        if f == "write" {
            return Ok((self.outcome(op) != Outcome::Fail).then(|| Parts::Write(op.input())));
        }
        if f == "cas" {
            let (old, new) = old_and_new(op)?;
            return Ok(match self.outcome(op) {
                Outcome::Ok | Outcome::Info => Some(Parts::Cas(old, new)),
                Outcome::Fail => self.failed_cas(op).then_some(Parts::NotValue(old)),
            });
        }
        if !self.reads.contains(&f) {
            return Ok(None);
        }
        let answer = op
            .output()
            .filter(|answer| !(self.nil_reads_unknown && answer.is_null()));
        Ok(answer.map(Parts::Read))
    }

    /// What became of an operation; what failed may have happened, if that is declared. A failed
    /// cas that saw another value did not.
    fn outcome(&self, op: Op<'_>) -> Outcome {
        match op.outcome() {
            Outcome::Fail if self.fails_uncertain && !(op.f() == "cas" && self.failed_cas(op)) => {
                Outcome::Info
            }
            outcome => outcome,
        }
    }

    /// Whether a failed cas says that the value was another.
    fn failed_cas(&self, op: Op<'_>) -> bool {
        self.failed_cas_observes && matches!(op.error(), None | Some("mismatch"))
    }

    fn number(&self, value: ValueRef<'_>, values: &mut FxHashMap<Ident, Val>) -> Val {
        let is_initial = match self.initial {
            None => value.is_null(),
            Some(initial) => value.to_json() == *initial,
        };
        if is_initial {
            return INITIAL;
        }
        let next = Val::try_from(values.len() + 1).unwrap_or(Val::MAX);
        *values.entry(Ident::of(value)).or_insert(next)
    }
}

enum Parts<'h> {
    Read(ValueRef<'h>),
    Write(ValueRef<'h>),
    Cas(ValueRef<'h>, ValueRef<'h>),
    NotValue(ValueRef<'h>),
}

/// The argument of a cas, from its invocation; the completion of an unanswered one says nothing.
fn old_and_new(op: Op<'_>) -> Result<(ValueRef<'_>, ValueRef<'_>), String> {
    let pair = op.input().as_list().and_then(|mut items| {
        let (old, new) = (items.next()?, items.next()?);
        items.next().is_none().then_some((old, new))
    });
    pair.ok_or_else(|| {
        format!(
            "the cas of event {} has no [old, new] as its argument",
            op.invoke.index()
        )
    })
}

fn rank(event: EventRef<'_>) -> u32 {
    u32::try_from(event.index()).unwrap_or(NEVER - 1)
}
