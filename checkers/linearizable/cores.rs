//! Holds of a lock by known owners, each by its *core*: from the return of the acquire to the call
//! of the release, the time during which it was certainly held.
//!
//! ```text
//!  A acquire |---|              release |----|
//!                <---- core of A ------>
//! ```
//!
//! An owner does one thing after the other, so its holds are known; nothing but their cores need
//! be apart, because a hold can begin when its acquire returns and end when its release is called.
//! A lock has an order if and only if no two cores of different holds overlap, each owner releases
//! what it holds and no more, and takes it no more often than allowed; if grants carry tokens, they
//! grow with the cores. O(n) and a sort of the holds.
//!
//! What was not answered need not have happened, and may happen at any time after it was called. It
//! is used only where what its owner did later shows that it did happen:
//! - who takes what it holds already has given it back before, and may have done so at once. The
//!   core ends when that release was called, or fits into the moment of the acquire if that was
//!   even before;
//! - who gives back what it does not hold has taken it before, and may have done so just then: the
//!   core fits into a moment of the release.
//!
//! Cores that fit into a moment are like the zones of Gibbons and Korach (1997): they must not lie
//! within another core. A hold was interrupted if another owner shows up within it and what was not
//! answered can explain that. What has a release and an acquire left may have been interrupted
//! without a sign: then a failure that depends on it decides nothing.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::models::{NEVER, OwnedOp, Timed};

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Takes the lock once more, and gets this token, where there are tokens.
    Acquire(Option<i64>),
    /// Gives it back once.
    Release,
}

/// What must not be, with the places of the operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A release of what its owner does not hold; what its owner did last, if anything.
    NotHeld { release: usize, last: Option<usize> },
    /// An acquire by an owner that holds it as often as it may, by these acquires.
    TooOften { held: Vec<usize>, again: usize },
    /// The second hold was within the core of the first.
    Overlap { first: Ends, second: Ends },
    /// A later grant with a token that is not larger.
    Token { earlier: usize, later: usize },
}

/// The first acquire and the last release of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) acquire: usize,
    pub(crate) release: Option<usize>,
}

/// Whether there is an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Order,
    None(Wrong),
    Undecided,
}

/// A hold and its core, which fits into a moment between its ends if it ends before it begins.
#[derive(Debug, Clone, Copy)]
struct Hold {
    ends: Ends,
    token: Option<i64>,
    from: u32,
    to: u32,
    /// From when on its owner may have been without the lock in the meantime; [`NEVER`] if it was
    /// not.
    sure_to: u32,
}

impl Hold {
    fn is_moment(&self) -> bool {
        self.to < self.from
    }

    /// What is certain of it, if anything is.
    fn sure(mut self) -> Option<Hold> {
        if self.sure_to != NEVER {
            self.to = self.to.min(self.sure_to);
        }
        (self.sure_to > self.from).then_some(self)
    }

    fn start(&self) -> u32 {
        self.from.min(self.to)
    }

    fn end(&self) -> u32 {
        self.from.max(self.to)
    }
}

/// What is known of an owner.
#[derive(Debug, Clone, Default)]
struct Owner {
    /// The acquires of what it holds.
    held: Vec<usize>,
    /// Its last hold.
    hold: usize,
    last: Option<usize>,
    free_from: u32,
    /// What was not answered and need not have happened yet, in the order of calls.
    acquires: VecDeque<usize>,
    releases: VecDeque<usize>,
}

/// Decides a lock that an owner may hold at most so many times at once.
pub(crate) fn decide(ops: &[Timed<OwnedOp>], depth_max: u64) -> Answer {
    let mut walk = Walk {
        ops,
        depth_max,
        owners: FxHashMap::default(),
        holds: Vec::with_capacity(ops.len() / 2),
    };
    for place in 0..ops.len() {
        match walk.step(place) {
            Ok(()) => {}
            Err(Some(wrong)) => return Answer::None(wrong),
            Err(None) => return Answer::Undecided,
        }
    }
    walk.finish();
    let mut holds = walk.holds;
    holds.sort_unstable_by_key(Hold::start);
    if overlap(&holds).or_else(|| token(&holds)).is_none() {
        let moment_among_tokens =
            holds.iter().any(Hold::is_moment) && holds.iter().any(|hold| hold.token.is_some());
        return if moment_among_tokens {
            Answer::Undecided
        } else {
            Answer::Order
        };
    }
    let mut sure: Vec<Hold> = holds.into_iter().filter_map(Hold::sure).collect();
    sure.sort_unstable_by_key(Hold::start);
    let wrong = overlap(&sure).or_else(|| token(&sure));
    wrong.map_or(Answer::Undecided, Answer::None)
}

struct Walk<'o> {
    ops: &'o [Timed<OwnedOp>],
    depth_max: u64,
    owners: FxHashMap<u32, Owner>,
    holds: Vec<Hold>,
}

impl Walk<'_> {
    /// Takes the next operation into account.
    ///
    /// # Errors
    /// What must not be; nothing if the owner does more than one thing at once.
    fn step(&mut self, place: usize) -> Result<(), Option<Wrong>> {
        let timed = &self.ops[place];
        let owner = self.owners.entry(timed.op.owner).or_default();
        if timed.call < owner.free_from {
            return Err(None);
        }
        if timed.ret == NEVER {
            match timed.op.kind {
                Kind::Acquire(_) => owner.acquires.push_back(place),
                Kind::Release => owner.releases.push_back(place),
            }
            return Ok(());
        }
        let needs_acquire = timed.op.kind == Kind::Release;
        if (1..=owner.releases.len()).contains(&owner.held.len())
            && !(needs_acquire && owner.acquires.is_empty())
            && is_interrupted(&self.holds[owner.hold..], timed.call, self.ops)
        {
            owner.end_by_unanswered(&mut self.holds, self.ops);
        }
        match timed.op.kind {
            Kind::Acquire(token) => {
                if owner.held.len() as u64 == self.depth_max {
                    owner
                        .give_back_once(&mut self.holds, self.ops, place)
                        .map_err(Some)?;
                }
                if owner.held.is_empty() {
                    owner.hold = self.holds.len();
                    self.holds.push(Hold {
                        ends: Ends {
                            acquire: place,
                            release: None,
                        },
                        token,
                        from: timed.ret,
                        to: NEVER,
                        sure_to: NEVER,
                    });
                }
                owner.held.push(place);
            }
            Kind::Release if owner.held.pop().is_none() => {
                let Some(acquire) = owner.acquires.pop_front() else {
                    return Err(Some(Wrong::NotHeld {
                        release: place,
                        last: owner.last,
                    }));
                };
                self.holds.push(Hold {
                    ends: Ends {
                        acquire,
                        release: Some(place),
                    },
                    token: None,
                    from: timed.ret,
                    to: timed.call,
                    sure_to: NEVER,
                });
            }
            Kind::Release => {
                if owner.held.is_empty() {
                    let hold = &mut self.holds[owner.hold];
                    hold.ends.release = Some(place);
                    hold.to = timed.call;
                    if self.depth_max > 1 || !owner.acquires.is_empty() {
                        hold.sure_to = owner.first_release(self.ops).min(hold.sure_to);
                    }
                }
            }
        }
        owner.free_from = timed.ret;
        owner.last = Some(place);
        Ok(())
    }

    /// Ends what may have ended by releases that were not answered.
    fn finish(&mut self) {
        for owner in self
            .owners
            .values_mut()
            .filter(|owner| !owner.held.is_empty())
        {
            if self.depth_max > 1 {
                let hold = &mut self.holds[owner.hold];
                hold.sure_to = owner.first_release(self.ops).min(hold.sure_to);
            }
            if owner.held.len() <= owner.releases.len() {
                owner.end_by_unanswered(&mut self.holds, self.ops);
            }
        }
    }
}

impl Owner {
    /// Ends its hold as soon as its releases without an answer may have ended it, of which there are
    /// enough.
    fn end_by_unanswered(&mut self, holds: &mut [Hold], ops: &[Timed<OwnedOp>]) {
        let last_call = self.last.map_or(0, |last| ops[last].call);
        let hold = &mut holds[self.hold];
        hold.ends.release = self.releases.drain(..self.held.len()).next_back();
        let release = hold.ends.release.map_or(NEVER, |release| ops[release].call);
        hold.to = release.max(last_call);
        self.held.clear();
    }

    /// The first call of a release that may have happened at any time since.
    fn first_release(&self, ops: &[Timed<OwnedOp>]) -> u32 {
        self.releases
            .front()
            .map_or(NEVER, |&release| ops[release].call)
    }

    /// Uses one release without an answer, since its owner holds the lock as often as it may.
    fn give_back_once(
        &mut self,
        holds: &mut [Hold],
        ops: &[Timed<OwnedOp>],
        again: usize,
    ) -> Result<(), Wrong> {
        if self.releases.is_empty() {
            return Err(Wrong::TooOften {
                held: self.held.clone(),
                again,
            });
        }
        if self.held.len() == 1 {
            self.end_by_unanswered(holds, ops);
        } else {
            let hold = &mut holds[self.hold];
            hold.sure_to = self.first_release(ops).min(hold.sure_to);
            self.releases.pop_front();
            self.held.pop();
        }
        Ok(())
    }
}

/// Whether another owner certainly had the lock at some moment after a hold began and before `now`.
/// `holds` are that hold and those that were seen later, which are of others.
fn is_interrupted(holds: &[Hold], now: u32, ops: &[Timed<OwnedOp>]) -> bool {
    let Some((hold, others)) = holds.split_first() else {
        return false;
    };
    others.iter().rev().any(|other| {
        let acquire = &ops[other.ends.acquire];
        let shown_by = match other.ends.release {
            Some(release) if acquire.ret == NEVER => &ops[release],
            _ => acquire,
        };
        hold.from < shown_by.call && shown_by.ret < now
    })
}

/// A hold within the core of another. `holds` are sorted by their starts.
fn overlap(holds: &[Hold]) -> Option<Wrong> {
    let mut core: Option<&Hold> = None;
    for hold in holds {
        if let Some(first) = core
            && hold.start() < first.end()
            && (!hold.is_moment() || hold.end() < first.end())
        {
            return Some(Wrong::Overlap {
                first: first.ends,
                second: hold.ends,
            });
        }
        if !hold.is_moment() {
            core = Some(hold);
        }
    }
    None
}

/// A token that is not larger than that of an earlier core.
fn token(holds: &[Hold]) -> Option<Wrong> {
    let mut earlier: Option<&Hold> = None;
    for hold in holds
        .iter()
        .filter(|hold| hold.token.is_some() && !hold.is_moment())
    {
        if let Some(earlier) = earlier.filter(|earlier| hold.token <= earlier.token) {
            return Some(Wrong::Token {
                earlier: earlier.ends.acquire,
                later: hold.ends.acquire,
            });
        }
        earlier = Some(hold);
    }
    None
}
