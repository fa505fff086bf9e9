//! A register whose every write has a revision, such as a key of etcd.

use history::{Header, ValueRef};

use super::{Asked, Model, NULL, Numbers, Shortcut, Timed};
use crate::linearizable::revisions;

/// A register whose every write has a larger revision than all before.
pub struct VersionedRegister;

impl Model for VersionedRegister {
    const NAME: &'static str = "versioned-register";
    const ABOUT: &'static str = "A register whose every write has a larger revision than all before, \
        as etcd's `mod_revision`. `write` of a value, which returns `{\"revision\": r}`; `read`, which \
        returns `{\"value\": v, \"revision\": r}`, or null or revision 0 before the first write; `cas` \
        of `[old, new]` or of `{\"revision\": r, \"value\": new}`, which returns as a write does.";
    const METHOD: &'static str = "By the order of revisions, which nothing may contradict: O(n). What \
        was seen and what no answered operation can have written is given to operations without an \
        answer, each of which is used once; exact. Only where these have too many ways to do it, by \
        search.";

    type State = State;
    type Op = VersionedOp;

    fn of_header(_: &Header) -> Result<VersionedRegister, String> {
        Ok(VersionedRegister)
    }

    fn read(
        &self,
        asked: &Asked<'_>,
        numbers: &mut Numbers,
    ) -> Result<Option<VersionedOp>, String> {
        let revision = |answer: ValueRef<'_>| {
            let revision = answer.get("revision").and_then(ValueRef::as_u64);
            revision.ok_or_else(|| "its result has no `revision` that is a count".to_owned())
        };
        let written = || asked.output().map(revision).transpose();
        let op = match (asked.f, asked.output()) {
            ("read", Some(answer)) if answer.is_null() => Some(VersionedOp::Read(NULL, 0)),
            ("read", Some(answer)) => {
                let value = answer.get("value").map_or(NULL, |value| numbers.of(value));
                Some(VersionedOp::Read(value, revision(answer)?))
            }
            ("read", None) => None,
            ("write", _) => Some(VersionedOp::Write(numbers.of(asked.input), written()?)),
            ("cas", _) => {
                let (expected, new) = expected(asked.input, numbers).ok_or(
                    "its argument is neither [old, new] nor {\"revision\": r, \"value\": new}",
                )?;
                Some(VersionedOp::Cas(expected, new, written()?))
            }
            _ => return asked.unknown("`read`, `write` and `cas`"),
        };
        Ok(op.filter(|_| !asked.failed()))
    }

    fn initial(&self) -> Self::State {
        (NULL, Revision::Is(0))
    }

    fn step(&self, state: &Self::State, op: &VersionedOp) -> Option<Self::State> {
        op.after(*state)
    }

    fn shortcut(&self, ops: &[Timed<VersionedOp>]) -> Shortcut {
        revisions::decide(ops)
    }
}

/// The value, and its revision or what that is at least.
pub(in crate::linearizable) type State = (u32, Revision);

/// What is known of a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Revision {
    /// It is this.
    Is(u64),
    /// It is this or larger: that of a write without an answer.
    AtLeast(u64),
}

impl Revision {
    fn may_be(self, revision: u64) -> bool {
        match self {
            Revision::Is(known) => known == revision,
            Revision::AtLeast(least) => least <= revision,
        }
    }

    /// The revision of the next write, if it can be this.
    fn followed_by(self, next: Option<u64>) -> Option<Revision> {
        let (Revision::Is(known) | Revision::AtLeast(known)) = self;
        match next {
            None => Some(Revision::AtLeast(known.checked_add(1)?)),
            Some(next) => (next > known).then_some(Revision::Is(next)),
        }
    }
}

/// What is done with a register with revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VersionedOp {
    /// It is this, since this revision.
    Read(u32, u64),
    /// It becomes this, at this revision if that is known.
    Write(u32, Option<u64>),
    /// If it is as expected it becomes this, at this revision if that is known.
    Cas(Expected, u32, Option<u64>),
}

impl VersionedOp {
    /// The state after it; nothing if it cannot happen in this one.
    pub(in crate::linearizable) fn after(self, (value, revision): State) -> Option<State> {
        match self {
            VersionedOp::Read(read, at) => {
                (read == value && revision.may_be(at)).then_some((value, Revision::Is(at)))
            }
            VersionedOp::Write(new, at) => Some((new, revision.followed_by(at)?)),
            VersionedOp::Cas(Expected::Value(old), new, at) => {
                (old == value).then_some((new, revision.followed_by(at)?))
            }
            VersionedOp::Cas(Expected::Revision(old), new, at) => {
                let known = revision.may_be(old).then_some(Revision::Is(old))?;
                Some((new, known.followed_by(at)?))
            }
        }
    }
}

/// What a cas expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expected {
    /// This value.
    Value(u32),
    /// This revision.
    Revision(u64),
}

fn expected(input: ValueRef<'_>, numbers: &mut Numbers) -> Option<(Expected, u32)> {
    if let Some(mut pair) = input.as_list() {
        let (old, new) = (numbers.of(pair.next()?), numbers.of(pair.next()?));
        return pair.next().is_none().then_some((Expected::Value(old), new));
    }
    let revision = input.get("revision")?.as_u64()?;
    Some((
        Expected::Revision(revision),
        numbers.of(input.get("value")?),
    ))
}
