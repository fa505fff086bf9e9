//! A register that is read, written, and compared and set.

use history::{Header, History, ValueRef};
use serde_json::Value;

use super::{Asked, Counts, Effect, Model, Numbers, Shortcut, Timed, Told};
use crate::linearizable::glance::{self, Role, Rules};
use crate::linearizable::zones;
use crate::params::{self, Param};

/// A value: a small number in order of first use. The initial value is [`INITIAL`].
pub type Val = u32;

/// The value before the first write.
pub(crate) const INITIAL: Val = 0;

/// A register, as Knossos' `register` and `cas-register`.
pub struct Register {
    reads: Vec<String>,
    initial: Value,
    nil_reads_unknown: bool,
    failed_cas_observes: bool,
}

/// What an operation does and says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
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
    fn needs(self) -> Option<Val> {
        match self {
            Action::Read(value) | Action::Cas(value, _) => Some(value),
            Action::Write(_) | Action::NotValue(_) => None,
        }
    }

    /// The value that it leaves behind, if it changes anything.
    fn leaves(self) -> Option<Val> {
        match self {
            Action::Write(value) | Action::Cas(_, value) => Some(value),
            Action::Read(_) | Action::NotValue(_) => None,
        }
    }
}

impl Model for Register {
    const NAME: &'static str = "register";
    const ALIASES: &'static [&'static str] = &["cas-register"];
    const ABOUT: &'static str = "One value that is read, written, and compared and set. `read` \
        returns the value, `write` of a value, `cas` of `[old, new]`. An unanswered read says \
        nothing; other functions are not looked at.";
    const METHOD: &'static str = "A register whose writes and cas leave distinct values is decided by \
        zones (Gibbons and Korach, Testing Shared Memories, 1997); what cas made of each other has one \
        zone together: O(n log n), exact. One without cas alone in a history, whose values are small \
        numbers: O(n). By search if a failed cas says that the value was another, and it may have \
        been that one all the time.";
    const PARAMS: &'static [Param] = &[
        params::INITIAL,
        params::READS,
        params::NIL_READS,
        params::CAS_FAIL,
    ];

    type State = Val;
    type Op = Action;

    fn of_header(header: &Header) -> Result<Register, String> {
        let more = header.params.get("reads").and_then(Value::as_array);
        let more = more.into_iter().flatten().filter_map(Value::as_str);
        Ok(Register {
            reads: std::iter::once("read")
                .chain(more)
                .map(str::to_owned)
                .collect(),
            initial: header.params.get("initial").cloned().unwrap_or(Value::Null),
            nil_reads_unknown: params::NIL_READS.word(header) == "unknown",
            failed_cas_observes: params::CAS_FAIL.word(header) == "observation",
        })
    }

    fn read(&self, asked: &Asked<'_>, numbers: &mut Numbers) -> Result<Option<Action>, String> {
        if asked.f == "write" {
            let written = (!asked.failed()).then(|| self.number(asked.input, numbers));
            return Ok(written.map(Action::Write));
        }
        if asked.f == "cas" {
            let (old, new) = old_and_new(asked.input)?;
            let (old, new) = (self.number(old, numbers), self.number(new, numbers));
            return Ok(match asked.failed() {
                false => Some(Action::Cas(old, new)),
                true => self.observes(asked).then_some(Action::NotValue(old)),
            });
        }
        if !self.is_read(asked.f) {
            return Ok(None);
        }
        let answer = asked.output();
        let answer = answer.filter(|answer| !(self.nil_reads_unknown && answer.is_null()));
        Ok(answer.map(|answer| Action::Read(self.number(answer, numbers))))
    }

    /// A failed cas that saw another value certainly did not happen, whatever `fails` says.
    fn is_certain(&self, asked: &Asked<'_>) -> bool {
        asked.f == "cas" && self.observes(asked)
    }

    fn initial(&self) -> Val {
        INITIAL
    }

    fn step(&self, &value: &Val, op: &Action) -> Option<Val> {
        match *op {
            Action::Read(read) => (read == value).then_some(value),
            Action::Write(written) => Some(written),
            Action::Cas(old, new) => (old == value).then_some(new),
            Action::NotValue(not) => (not != value).then_some(value),
        }
    }

    fn effect(&self, op: &Action) -> Effect<Val> {
        match *op {
            Action::Read(value) => Effect::Observes(value),
            Action::Write(value) => Effect::Overwrites(value),
            Action::Cas(old, new) => Effect::Moves(old, new),
            Action::NotValue(_) => Effect::Passive,
        }
    }

    fn glance(&self, history: &History) -> Option<Counts> {
        let initial = match &self.initial {
            Value::Null => None,
            initial => Some(initial.as_i64()?),
        };
        let role = |f: &str| match f {
            "write" => Role::Write,
            "cas" => Role::Other,
            _ if self.is_read(f) => Role::Read,
            _ => Role::Nothing,
        };
        let rules = Rules {
            roles: history.functions().map(role).collect(),
            initial,
            nil_reads_unknown: self.nil_reads_unknown,
            fails_uncertain: params::FAILS.word(&history.header) == "uncertain",
        };
        glance::order(history, &rules)
    }

    fn shortcut(&self, ops: &[Timed<Action>]) -> Shortcut {
        zones::decide(ops)
    }

    fn why(&self, told: &[Told<Action>], all: &[Timed<Action>]) -> Option<String> {
        let readers = || told.iter().rev().filter(|one| one.op.needs().is_some());
        readers()
            .find_map(|reader| unwritten(reader, all))
            .or_else(|| readers().find_map(|reader| overwritten(told, reader, all)))
            .or_else(|| readers().find_map(|reader| taken(told, reader, all)))
            .or_else(|| went_back(told))
    }
}

impl Register {
    fn is_read(&self, f: &str) -> bool {
        self.reads.iter().any(|known| known == f)
    }

    fn number(&self, value: ValueRef<'_>, numbers: &mut Numbers) -> Val {
        let is_initial = match &self.initial {
            Value::Null => value.is_null(),
            Value::Number(initial) if initial.as_i64().is_some() => {
                value.as_i64() == initial.as_i64()
            }
            initial => value.to_json() == *initial,
        };
        if is_initial {
            INITIAL
        } else {
            numbers.of(value) + 1
        }
    }

    /// Whether a failed cas says that the value was another.
    fn observes(&self, asked: &Asked<'_>) -> bool {
        self.failed_cas_observes && matches!(asked.error, None | Some("mismatch"))
    }
}

/// The argument of a cas, from its invocation; the completion of an unanswered one says nothing.
fn old_and_new(input: ValueRef<'_>) -> Result<(ValueRef<'_>, ValueRef<'_>), String> {
    let pair = input.as_list().and_then(|mut items| {
        let pair = (items.next()?, items.next()?);
        items.next().is_none().then_some(pair)
    });
    pair.ok_or_else(|| format!("takes {input}, expected [old, new]"))
}

/// A read or cas in words, without its result: `read by c3`.
fn what(told: &Told<Action>) -> String {
    let Told { f, input, who, .. } = told;
    match told.op {
        Action::Read(_) => format!("{f} by {who}"),
        _ => format!("{f} of {input} by {who}"),
    }
}

/// The value that it saw had not been written.
fn unwritten(reader: &Told<Action>, all: &[Timed<Action>]) -> Option<String> {
    let value = reader.op.needs().filter(|&value| value != INITIAL)?;
    let writers = all
        .iter()
        .filter(|timed| timed.op.leaves() == Some(value))
        .map(|timed| timed.call);
    let first = writers.min();
    if first.is_some_and(|call| call < reader.ret) {
        return None;
    }
    let (what, output) = (what(reader), &reader.output);
    Some(match (reader.op, first) {
        (Action::Read(_), None) => format!("{what} returned {output}, which nobody wrote"),
        (Action::Read(_), Some(_)) => {
            format!("{what} returned {output} before anybody had been asked to write it")
        }
        (_, None) => format!("{what} succeeded on a value that nobody wrote"),
        (_, Some(_)) => {
            format!("{what} succeeded on a value before anybody had been asked to write it")
        }
    })
}

/// The value that it saw was certainly overwritten before it began.
fn overwritten(
    told: &[Told<Action>],
    reader: &Told<Action>,
    all: &[Timed<Action>],
) -> Option<String> {
    let value = reader.op.needs()?;
    let over = told.iter().rev().find(|one| {
        let changes = one.op.leaves().is_some_and(|left| left != value);
        changes && one.ret < reader.call
    })?;
    // Whoever may have left the value must have been done with it before.
    let mut writers = all
        .iter()
        .filter(|timed| timed.op.leaves() == Some(value) && timed.call < reader.ret);
    if !writers.all(|timed| timed.ret < over.call) {
        return None;
    }
    let done = match over.op {
        Action::Write(_) => "was acknowledged to",
        _ => "succeeded for",
    };
    let Told { f, input, who, .. } = over;
    let ends = match reader.op {
        Action::Read(_) => format!("returned {}", reader.output),
        _ => "succeeded".to_owned(),
    };
    Some(format!(
        "{} began after {f} {input} {done} {who}, and {ends}",
        what(reader)
    ))
}

/// Another cas had found the same value, which was there only once.
fn taken(told: &[Told<Action>], reader: &Told<Action>, all: &[Timed<Action>]) -> Option<String> {
    let value = reader.op.needs()?;
    let takes = |op: Action| matches!(op, Action::Cas(old, new) if old == value && new != value);
    let other = told
        .iter()
        .find(|one| takes(one.op) && takes(reader.op) && one.call != reader.call)?;
    let mut writers = all.iter().filter(|timed| timed.op.leaves() == Some(value));
    let is_once = match value {
        INITIAL => writers.next().is_none(),
        _ => writers.nth(1).is_none(),
    };
    let (other, reader) = (what(other), what(reader));
    is_once.then(|| format!("{other} and {reader} both succeeded on a value that was there once"))
}

/// A later read saw an older value than an earlier one.
fn went_back(told: &[Told<Action>]) -> Option<String> {
    let reads = || {
        let reads = told.iter().rev();
        reads.filter(|one| matches!(one.op, Action::Read(_)))
    };
    let last = reads().next()?;
    let before = reads().find(|one| one.ret < last.call && one.op != last.op)?;
    Some(format!(
        "{} returned {} after {} had returned {}, and no order of the writes explains both",
        what(last),
        last.output,
        what(before),
        before.output
    ))
}
