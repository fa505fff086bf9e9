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
//! An acquire that was not answered need not have happened, and a release that was not answered
//! ends the core when it is called. That is all there is to it if the owner does nothing more. If
//! it does, an order found in this way is one, but there may be others: then a failure decides
//! nothing.

use rustc_hash::FxHashMap;

use super::models::NEVER;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Takes the lock once more, and gets this token, where there are tokens.
    Acquire(Option<i64>),
    /// Gives it back once.
    Release,
}

/// An operation on a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) owner: u32,
    pub(crate) kind: Kind,
    pub(crate) call: u32,
    /// [`NEVER`] if it was not answered.
    pub(crate) ret: u32,
}

/// What must not be, with the places of the operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A release of what its owner does not hold; what its owner did last, if anything.
    NotHeld { release: usize, last: Option<usize> },
    /// An acquire by an owner that holds it as often as it may, by these acquires.
    TooOften { held: Vec<usize>, again: usize },
    /// An acquire within the core of another owner's hold.
    Overlap {
        first: usize,
        first_release: Option<usize>,
        second: usize,
        second_release: Option<usize>,
    },
    /// A later grant with a token that is not larger.
    Token { earlier: usize, later: usize },
}

/// Whether there is an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Order,
    None(Wrong),
    Undecided,
}

/// A hold: its first acquire, its last release, and its core.
#[derive(Debug, Clone, Copy)]
struct Hold {
    acquire: usize,
    release: Option<usize>,
    token: Option<i64>,
    from: u32,
    to: u32,
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
    /// Whether one of its operations was not answered.
    unsure: bool,
}

/// Decides a lock that an owner may hold at most so many times at once. `steps` are sorted by their
/// calls.
pub(crate) fn decide(steps: &[Step], depth_max: u64) -> Answer {
    let mut walk = Walk {
        steps,
        depth_max,
        owners: FxHashMap::default(),
        holds: Vec::with_capacity(steps.len() / 2),
        guessed: false,
    };
    let mut wrong = None;
    for place in 0..steps.len() {
        match walk.step(place) {
            Ok(()) => {}
            Err(Some(found)) => {
                wrong = Some(found);
                break;
            }
            Err(None) => return Answer::Undecided,
        }
    }
    match wrong.or_else(|| clash(walk.holds)) {
        None => Answer::Order,
        Some(_) if walk.guessed => Answer::Undecided,
        Some(wrong) => Answer::None(wrong),
    }
}

struct Walk<'s> {
    steps: &'s [Step],
    depth_max: u64,
    owners: FxHashMap<u32, Owner>,
    holds: Vec<Hold>,
    /// Whether an owner went on after something that was not answered.
    guessed: bool,
}

impl Walk<'_> {
    /// Takes the next operation into account.
    ///
    /// # Errors
    /// What must not be; nothing if the owner does more than one thing at once.
    fn step(&mut self, place: usize) -> Result<(), Option<Wrong>> {
        let step = self.steps[place];
        let owner = self.owners.entry(step.owner).or_default();
        if step.call < owner.free_from {
            return Err(None);
        }
        self.guessed |= owner.unsure;
        if step.ret == NEVER {
            owner.unsure = true;
            if step.kind == Kind::Release && owner.held.len() == 1 {
                let hold = &mut self.holds[owner.hold];
                if hold.release.is_none() {
                    hold.release = Some(place);
                    hold.to = step.call;
                }
            }
            return Ok(());
        }
        owner.free_from = step.ret;
        let last = owner.last.replace(place);
        match step.kind {
            Kind::Acquire(token) => {
                let released = !owner.held.is_empty() && self.holds[owner.hold].release.is_some();
                if owner.held.len() as u64 == self.depth_max && !released {
                    return Err(Some(Wrong::TooOften {
                        held: owner.held.clone(),
                        again: place,
                    }));
                }
                if released {
                    owner.held.clear();
                }
                if owner.held.is_empty() {
                    owner.hold = self.holds.len();
                    self.holds.push(Hold {
                        acquire: place,
                        release: None,
                        token,
                        from: step.ret,
                        to: NEVER,
                    });
                }
                owner.held.push(place);
            }
            Kind::Release => {
                if owner.held.pop().is_none() {
                    return Err(Some(Wrong::NotHeld {
                        release: place,
                        last,
                    }));
                }
                let hold = &mut self.holds[owner.hold];
                if owner.held.is_empty() {
                    hold.release = Some(place);
                    hold.to = step.call;
                }
            }
        }
        Ok(())
    }
}

fn clash(mut holds: Vec<Hold>) -> Option<Wrong> {
    holds.sort_unstable_by_key(|hold| hold.from);
    for (first, second) in holds.iter().zip(&holds[1.min(holds.len())..]) {
        if second.from < first.to {
            return Some(Wrong::Overlap {
                first: first.acquire,
                first_release: first.release,
                second: second.acquire,
                second_release: second.release,
            });
        }
        if second.token.is_some() && second.token <= first.token {
            return Some(Wrong::Token {
                earlier: first.acquire,
                later: second.acquire,
            });
        }
    }
    None
}
