//! A register whose every write has a revision, such as a key of etcd.

use history::{Header, ValueRef};
use rustc_hash::FxHashMap;

use super::append_log::known_order;
use super::{Asked, Model, NEVER, NULL, Numbers, Shortcut, Timed};
use crate::linearizable::order::{self, Clash, FIRST, Placed};

/// A register whose every write has a larger revision than all before.
pub struct VersionedRegister;

impl Model for VersionedRegister {
    const NAME: &'static str = "versioned-register";
    const ABOUT: &'static str = "A register whose every write has a larger revision than all before, \
        as etcd's `mod_revision`. `write` of a value, which returns `{\"revision\": r}`; `read`, which \
        returns `{\"value\": v, \"revision\": r}`, or null or revision 0 before the first write; `cas` \
        of `[old, new]` or of `{\"revision\": r, \"value\": new}`, which returns as a write does.";
    const METHOD: &'static str = "By the order of revisions, which nothing may contradict: O(n log n), \
        exact but where an unanswered cas, or a value between two revisions that nobody saw, could \
        explain what is wrong; then by search.";

    /// The value, and its revision or what that is at least.
    type State = (u32, Revision);
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

    fn step(&self, &(value, revision): &Self::State, op: &VersionedOp) -> Option<Self::State> {
        match *op {
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

    fn shortcut(&self, ops: &[Timed<VersionedOp>]) -> Shortcut {
        Versions::default().decide(ops)
    }
}

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

/// What is known of one revision.
#[derive(Debug, Clone, Copy)]
struct Version {
    revision: u64,
    value: u32,
    /// The place of an operation that says so.
    seen: usize,
    /// Whether that is its write.
    written: bool,
}

/// The revisions that were seen.
#[derive(Default)]
struct Versions {
    sorted: Vec<Version>,
}

impl Versions {
    fn decide(mut self, ops: &[Timed<VersionedOp>]) -> Shortcut {
        // Writes without an answer, by value; the last of each first.
        let mut unanswered: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        let mut any_cas = false;
        for (place, timed) in ops.iter().enumerate() {
            let (revision, value, written) = match timed.op {
                VersionedOp::Read(value, revision) => (revision, value, false),
                VersionedOp::Write(value, Some(revision))
                | VersionedOp::Cas(_, value, Some(revision)) => (revision, value, true),
                VersionedOp::Write(value, None) => {
                    unanswered.entry(value).or_default().push(place);
                    continue;
                }
                VersionedOp::Cas(_, _, None) => {
                    any_cas = true;
                    continue;
                }
            };
            self.sorted.push(Version {
                revision,
                value,
                seen: place,
                written,
            });
        }
        let unsure = any_cas || !unanswered.is_empty();
        let search_if_unsure = |core: Shortcut| if unsure { Shortcut::None } else { core };
        self.sorted
            .sort_unstable_by_key(|version| (version.revision, !version.written, version.seen));
        if let Some(core) = self.contradiction() {
            return core;
        }
        self.sorted.dedup_by_key(|version| version.revision);
        for places in unanswered.values_mut() {
            places.reverse();
        }
        let mut placed: Vec<Placed> = Vec::with_capacity(ops.len());
        for (stage, version) in (0u32..).step_by(2).zip(&self.sorted) {
            let is_beginning = version.revision == 0 && version.value == NULL;
            if version.written || is_beginning {
                continue;
            }
            let writer = unanswered.get_mut(&version.value).and_then(Vec::pop);
            match writer {
                Some(writer) => placed.push(at_stage(stage, writer, &ops[writer])),
                None if any_cas => return Shortcut::None,
                None => {
                    return Shortcut::no_order(vec![version.seen], |told| {
                        format!(
                            "{} returned a value and revision that nobody can have written",
                            told[0]
                        )
                    });
                }
            }
        }
        if let Some(wrong) = self.place(ops, &mut placed) {
            return search_if_unsure(wrong);
        }
        match order::clash(&mut placed) {
            None => Shortcut::Order,
            Some(_) if any_cas => Shortcut::None,
            Some(clash) => {
                let evidence = self.who_saw(clash, ops);
                known_order(clash, evidence)
            }
        }
    }

    /// Those that saw what operations without an answer must have written.
    fn who_saw(&self, clash: Clash, ops: &[Timed<VersionedOp>]) -> Vec<usize> {
        let Clash::Stages(later, earlier) = clash else {
            return Vec::new();
        };
        let unanswered = |op: &Placed| ops[op.place as usize].ret == NEVER;
        let seen = |op: Placed| self.sorted[op.stage as usize / 2].seen;
        [later, earlier]
            .into_iter()
            .filter(unanswered)
            .map(seen)
            .collect()
    }

    /// Two operations that say different things of one revision, or both wrote it.
    fn contradiction(&self) -> Option<Shortcut> {
        let zero = self.sorted.first().filter(|first| first.revision == 0);
        if let Some(first) = zero.filter(|first| first.written || first.value != NULL) {
            return Some(Shortcut::no_order(vec![first.seen], |told| {
                format!(
                    "{} speaks of revision 0, which is before all writes",
                    told[0]
                )
            }));
        }
        self.sorted.windows(2).find_map(|pair| {
            let [one, other] = pair else { return None };
            let differs = one.value != other.value || other.written;
            (one.revision == other.revision && differs).then(|| {
                Shortcut::no_order(vec![one.seen, other.seen], |told| {
                    format!(
                        "{} and {} say different things of one revision",
                        told[0], told[1]
                    )
                })
            })
        })
    }

    /// Puts every operation at the stage of its revision; what is wrong with a cas, if anything.
    fn place(&self, ops: &[Timed<VersionedOp>], placed: &mut Vec<Placed>) -> Option<Shortcut> {
        for (place, timed) in ops.iter().enumerate() {
            let (revision, reads) = match timed.op {
                VersionedOp::Read(_, revision) => (revision, 1),
                VersionedOp::Write(_, Some(revision)) | VersionedOp::Cas(_, _, Some(revision)) => {
                    (revision, 0)
                }
                VersionedOp::Write(_, None) | VersionedOp::Cas(_, _, None) => continue,
            };
            let at = self
                .sorted
                .partition_point(|version| version.revision < revision);
            let stage = u32::try_from(2 * at + reads).unwrap_or(NEVER);
            placed.push(at_stage(stage, place, timed));
            let VersionedOp::Cas(expected, ..) = timed.op else {
                continue;
            };
            let before = at.checked_sub(1).map(|at| self.sorted[at]);
            let (known, value) = before.map_or((0, NULL), |before| (before.revision, before.value));
            let as_expected = match expected {
                Expected::Value(old) => old == value,
                Expected::Revision(old) => old == known,
            };
            if !as_expected {
                let mut places = vec![place];
                places.extend(before.map(|before| before.seen));
                return Some(Shortcut::no_order(places, |told| {
                    format!(
                        "{} succeeded, although what it expected was not there",
                        told[0]
                    )
                }));
            }
        }
        None
    }
}

fn at_stage(stage: u32, place: usize, timed: &Timed<VersionedOp>) -> Placed {
    Placed {
        block: FIRST,
        stage,
        call: timed.call,
        ret: timed.ret,
        place: u32::try_from(place).unwrap_or(NEVER),
    }
}
