//! A lock that anyone may release.

use history::Header;

use super::{Asked, Model, Numbers, Shortcut, Timed, Told, Why};
use crate::linearizable::permits::{self, Kind, Stretch, Unit};

/// A lock without owners, as Knossos has it.
pub struct Mutex;

impl Model for Mutex {
    const NAME: &'static str = "mutex";
    const ABOUT: &'static str = "A lock that one may hold at a time and that anyone may release. \
        `acquire` and `release`, whatever their values; an acquire that returns `{\"token\": null}` \
        took nothing.";
    const METHOD: &'static str = "Each operation happens when it returns, and if it cannot, the open \
        one of the other kind that must return first happens before it: O(n log n), exact.";

    type State = bool;
    type Op = LockOp;

    fn of_header(_: &Header) -> Result<Mutex, String> {
        Ok(Mutex)
    }

    fn read(&self, asked: &Asked<'_>, _: &mut Numbers) -> Result<Option<LockOp>, String> {
        LockOp::read(asked)
    }

    fn initial(&self) -> bool {
        false
    }

    fn step(&self, &held: &bool, op: &LockOp) -> Option<bool> {
        match op {
            LockOp::Acquire => (!held).then_some(true),
            LockOp::Release => held.then_some(false),
        }
    }

    fn shortcut(&self, ops: &[Timed<LockOp>]) -> Shortcut {
        shortcut(ops, 1, |op| *op)
    }

    fn why(&self, ops: &[Told<LockOp>], _: &[Timed<LockOp>]) -> Option<String> {
        why(ops, |op| *op)
    }
}

/// What is done with a lock that has no owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockOp {
    /// Takes it.
    Acquire,
    /// Gives it back.
    Release,
}

impl LockOp {
    pub(super) fn read(asked: &Asked<'_>) -> Result<Option<LockOp>, String> {
        let op = match asked.f {
            "acquire" => LockOp::Acquire,
            "release" => LockOp::Release,
            _ => return asked.unknown("`acquire` and `release`"),
        };
        Ok((!asked.failed() && !took_nothing(asked)).then_some(op))
    }
}

/// Whether an acquire says that it was not granted.
pub(super) fn took_nothing(asked: &Asked<'_>) -> bool {
    let token = asked.output().and_then(|answer| answer.get("token"));
    asked.f == "acquire" && token.is_some_and(|token| token.is_null())
}

/// Why these have no order: the last takes what the others hold, or gives what nobody has.
pub(super) fn why<O>(ops: &[Told<O>], kind: impl Fn(&O) -> LockOp) -> Option<String> {
    let (last, others) = ops.split_last()?;
    let all_take = others.iter().all(|told| kind(&told.op) == LockOp::Acquire);
    let others: Vec<&str> = others.iter().map(|told| told.words.as_str()).collect();
    match kind(&last.op) {
        LockOp::Acquire if others.is_empty() => {
            Some(format!("{} took more than there is", last.words))
        }
        LockOp::Acquire if all_take => Some(format!(
            "{} was granted although {} had been and nothing was given back since",
            last.words,
            others.join(" and ")
        )),
        LockOp::Release if others.is_empty() => {
            Some(format!("{} gave back what nobody had taken", last.words))
        }
        LockOp::Acquire | LockOp::Release => None,
    }
}

/// Decides operations that take or give one permit each.
pub(super) fn shortcut<O>(ops: &[Timed<O>], permits: u64, kind: impl Fn(&O) -> LockOp) -> Shortcut {
    let unit = |timed: &Timed<O>| Unit {
        kind: match kind(&timed.op) {
            LockOp::Acquire => Kind::Take,
            LockOp::Release => Kind::Give,
        },
        call: timed.call,
        ret: timed.ret,
    };
    let units: Vec<Unit> = ops.iter().map(unit).collect();
    let Some(wrong) = permits::first_wrong(&units, permits) else {
        return Shortcut::Order;
    };
    permits::stretch(&units, permits, wrong).map_or(Shortcut::At(wrong), |stretch| {
        told(kind(&ops[wrong].op), wrong, stretch)
    })
}

/// Why an operation cannot be explained by what happened shortly before.
fn told(op: LockOp, wrong: usize, stretch: Stretch) -> Shortcut {
    let others = stretch.happened.iter().filter(|&&place| place != wrong);
    let mut places: Vec<usize> = others.copied().collect();
    places.sort_unstable();
    places.insert(0, wrong);
    let why: Why = match (op, stretch.possible.is_empty()) {
        _ if places.len() == 1 && stretch.possible.is_empty() => match op {
            LockOp::Acquire => |told| format!("{} took more than there is", told[0]),
            LockOp::Release => |told| format!("{} gave back what nobody had taken", told[0]),
        },
        (LockOp::Acquire, true) => |told| {
            format!(
                "{} was granted although {} had been and nothing was given back since",
                told[0],
                told[1..].join(" and ")
            )
        },
        (LockOp::Release, true) => |told| {
            format!(
                "{} gave back what nobody had taken since {}",
                told[0],
                told[1..].join(" and ")
            )
        },
        (LockOp::Acquire, false) => |told| {
            format!(
                "{} was granted although {} leave nothing to take",
                told[0],
                told[1..].join(" and ")
            )
        },
        (LockOp::Release, false) => |told| {
            format!(
                "{} gave back more than {} leave",
                told[0],
                told[1..].join(" and ")
            )
        },
    };
    places.extend(stretch.possible);
    Shortcut::no_order(places, why)
}
