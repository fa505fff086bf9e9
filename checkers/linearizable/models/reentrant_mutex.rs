//! A lock that its holder may take again.

use history::Header;

use super::owner_aware_mutex::{self, OwnedOp, Tokens};
use super::{Asked, Model, Numbers, Shortcut, Timed};
use crate::linearizable::cores::Kind;
use crate::params::{Param, Takes};

/// A lock that its holder may take again, and must give back as often.
pub struct ReentrantMutex {
    depth_max: u64,
}

impl Model for ReentrantMutex {
    const NAME: &'static str = "reentrant-mutex";
    const ABOUT: &'static str = "A lock that one may hold at a time, that its holder may take again \
        and must release as often. Operations and owners as for `owner-aware-mutex`.";
    const METHOD: &'static str = "By cores, as for `owner-aware-mutex`; a core lasts from the first \
        acquire to the last release.";
    const PARAMS: &'static [Param] = &[Param {
        name: "depth_max",
        takes: Takes::Count,
        default: "any number",
        about: "how often its owner may hold a reentrant mutex at once",
    }];

    /// Who holds it, and how often.
    type State = Option<(u32, u64)>;
    type Op = OwnedOp;

    fn of_header(header: &Header) -> Result<ReentrantMutex, String> {
        super::count_param(header, "depth_max", u64::MAX)
            .map(|depth_max| ReentrantMutex { depth_max })
    }

    fn read(&self, asked: &Asked<'_>, numbers: &mut Numbers) -> Result<Option<OwnedOp>, String> {
        OwnedOp::read(asked, numbers, Tokens::Ignored)
    }

    fn initial(&self) -> Self::State {
        None
    }

    fn step(&self, state: &Self::State, op: &OwnedOp) -> Option<Self::State> {
        match (op.kind, *state) {
            (Kind::Acquire(_), None) => Some(Some((op.owner, 1))),
            (Kind::Acquire(_), Some((owner, depth))) => {
                (owner == op.owner && depth < self.depth_max).then_some(Some((owner, depth + 1)))
            }
            (Kind::Release, Some((owner, depth))) if owner == op.owner => {
                Some((depth > 1).then_some((owner, depth - 1)))
            }
            (Kind::Release, _) => None,
        }
    }

    fn shortcut(&self, ops: &[Timed<OwnedOp>]) -> Shortcut {
        owner_aware_mutex::shortcut(ops, self.depth_max)
    }
}
