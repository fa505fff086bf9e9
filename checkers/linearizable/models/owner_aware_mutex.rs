//! A lock that only its holder may release.

use history::Header;

use super::mutex::took_nothing;
use super::{Answer, Asked, Core, Model, NEVER, Numbers, Shortcut, Timed, Why};
use crate::linearizable::cores::{self, Kind, Wrong};

/// A lock with owners, who may not take it twice.
pub struct OwnerAwareMutex;

impl Model for OwnerAwareMutex {
    const NAME: &'static str = "owner-aware-mutex";
    const ABOUT: &'static str = "A lock that one may hold at a time, that its holder alone may \
        release, and that nobody takes twice. `acquire` and `release`; an acquire that returns \
        `{\"token\": null}` took nothing. The owner is the thread that asks, or what the argument \
        `{\"owner\": ...}` or `{\"client\": ...}` says.";
    const METHOD: &'static str = "By cores, the times from the return of an acquire to the call of \
        its release: there is an order if and only if no two of different holds overlap. What was not \
        answered is used where what its owner did later shows that it happened. O(n log n), exact; \
        only where a hold that overlaps may have been interrupted by a release and an acquire \
        without answers, by search.";

    type State = Option<u32>;
    type Op = OwnedOp;

    fn of_header(_: &Header) -> Result<OwnerAwareMutex, String> {
        Ok(OwnerAwareMutex)
    }

    fn read(&self, asked: &Asked<'_>, numbers: &mut Numbers) -> Result<Option<OwnedOp>, String> {
        OwnedOp::read(asked, numbers, Tokens::Ignored)
    }

    fn initial(&self) -> Option<u32> {
        None
    }

    fn step(&self, &holder: &Option<u32>, op: &OwnedOp) -> Option<Option<u32>> {
        match op.kind {
            Kind::Acquire(_) => holder.is_none().then_some(Some(op.owner)),
            Kind::Release => (holder == Some(op.owner)).then_some(None),
        }
    }

    fn shortcut(&self, ops: &[Timed<OwnedOp>]) -> Shortcut {
        shortcut(ops, 1)
    }
}

/// What is done with a lock that has owners, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnedOp {
    pub(in crate::linearizable) owner: u32,
    pub(in crate::linearizable) kind: Kind,
}

/// Whether grants carry tokens that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tokens {
    Ignored,
    Read,
}

impl OwnedOp {
    pub(super) fn read(
        asked: &Asked<'_>,
        numbers: &mut Numbers,
        tokens: Tokens,
    ) -> Result<Option<OwnedOp>, String> {
        let kind = match (asked.f, asked.answer) {
            ("acquire", Answer::Ok(answer)) if tokens == Tokens::Read && !took_nothing(asked) => {
                let token = answer.get("token").unwrap_or(answer).as_i64();
                Kind::Acquire(Some(
                    token.ok_or("it was granted without a token that is an integer")?,
                ))
            }
            ("acquire", _) => Kind::Acquire(None),
            ("release", _) => Kind::Release,
            _ => return asked.unknown("`acquire` and `release`"),
        };
        let named = asked
            .input
            .get("owner")
            .or_else(|| asked.input.get("client"));
        // Names and threads are numbered apart: even ones and odd ones.
        let owner = named.map_or(asked.owner * 2, |name| numbers.of(name) * 2 + 1);
        Ok((!asked.failed() && !took_nothing(asked)).then_some(OwnedOp { owner, kind }))
    }
}

/// Decides by cores.
pub(super) fn shortcut(ops: &[Timed<OwnedOp>], depth_max: u64) -> Shortcut {
    match cores::decide(ops, depth_max) {
        cores::Answer::Order => Shortcut::Order,
        cores::Answer::Undecided => Shortcut::None,
        cores::Answer::None(wrong) => Shortcut::NoOrder(core(ops, wrong)),
    }
}

fn core(ops: &[Timed<OwnedOp>], wrong: Wrong) -> Core {
    match wrong {
        Wrong::NotHeld {
            release,
            last: Some(last),
        } => Core {
            places: vec![last, release],
            why: |told| {
                format!(
                    "{} although its owner had nothing after {}",
                    told[1], told[0]
                )
            },
        },
        Wrong::NotHeld {
            release,
            last: None,
        } => Core {
            places: vec![release],
            why: |told| format!("{} although its owner never took it", told[0]),
        },
        Wrong::TooOften { held, again } => Core {
            places: std::iter::once(again).chain(held).collect(),
            why: |told| {
                format!(
                    "{} was granted although its owner held it as often as it may, since {}",
                    told[0], told[1]
                )
            },
        },
        Wrong::Overlap { first, second } if ops[second.acquire].ret == NEVER => {
            let mut places = vec![first.acquire];
            places.extend(second.release);
            places.push(second.acquire);
            places.extend(first.release);
            Core {
                places,
                why: |told| format!("{} gave back what {} held all the time", told[1], told[0]),
            }
        }
        Wrong::Overlap { first, second } => {
            let mut places = vec![first.acquire, second.acquire];
            places.extend(first.release);
            places.extend(second.release.filter(|&place| ops[place].ret != NEVER));
            let why: Why = if first.release.is_some() {
                |told| {
                    format!(
                        "{} was granted while {} held: {} had not been asked for",
                        told[1], told[0], told[2]
                    )
                }
            } else {
                |told| {
                    format!(
                        "{} was granted while {} held, which was never given back",
                        told[1], told[0]
                    )
                }
            };
            Core { places, why }
        }
        Wrong::Token { earlier, later } => Core {
            places: vec![earlier, later],
            why: |told| {
                format!(
                    "{} got a token that is not larger than that of {}",
                    told[1], told[0]
                )
            },
        },
    }
}
