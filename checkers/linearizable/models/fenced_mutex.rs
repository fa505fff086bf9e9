//! A lock whose grants carry tokens that grow.

use history::Header;

use super::owner_aware_mutex::{self, OwnedOp, Tokens};
use super::{Asked, Model, Numbers, Shortcut, Timed};
use crate::linearizable::cores::Kind;

/// A lock with owners, whose every grant carries a larger token than all before.
pub struct FencedMutex;

impl Model for FencedMutex {
    const NAME: &'static str = "fenced-mutex";
    const ABOUT: &'static str = "A lock as `owner-aware-mutex`, whose every grant carries a larger \
        token than the one before: `acquire` returns an integer, or `{\"token\": ...}`.";
    const METHOD: &'static str =
        "By cores, as for `owner-aware-mutex`; tokens must grow from each core to the next.";

    /// Who holds it, and the largest token of a grant so far, or the least that it can be.
    type State = (Option<u32>, Option<i64>);
    type Op = OwnedOp;

    fn of_header(_: &Header) -> Result<FencedMutex, String> {
        Ok(FencedMutex)
    }

    fn read(&self, asked: &Asked<'_>, numbers: &mut Numbers) -> Result<Option<OwnedOp>, String> {
        OwnedOp::read(asked, numbers, Tokens::Read)
    }

    fn initial(&self) -> Self::State {
        (None, None)
    }

    fn step(&self, &(holder, last): &Self::State, op: &OwnedOp) -> Option<Self::State> {
        match op.kind {
            Kind::Acquire(token) => {
                let grows = token.is_none() || last.is_none() || token > last;
                // An unanswered grant has some token, which is larger by at least one.
                let token = token.or_else(|| last.map(|last| last.saturating_add(1)));
                (holder.is_none() && grows).then_some((Some(op.owner), token))
            }
            Kind::Release => (holder == Some(op.owner)).then_some((None, last)),
        }
    }

    fn shortcut(&self, ops: &[Timed<OwnedOp>]) -> Shortcut {
        owner_aware_mutex::shortcut(ops, 1)
    }
}
