//! A number of permits, taken and given back by anyone.

use history::{Header, ValueRef};

use super::mutex::{self, LockOp};
use super::{Asked, Model, Numbers, Shortcut, Timed, Told};
use crate::params::{Param, Takes};

/// A semaphore with so many permits.
pub struct Semaphore {
    permits: u64,
}

impl Model for Semaphore {
    const NAME: &'static str = "semaphore";
    const ABOUT: &'static str = "So many permits, which anyone may give back. `acquire` and \
        `release`, each of as many permits as its argument says, or of one. No more are given back \
        than were taken.";
    const METHOD: &'static str = "Where all take and give one permit, as for `mutex`: O(n log n), \
        exact. Otherwise by search.";
    const PARAMS: &'static [Param] = &[Param {
        name: "permits",
        takes: Takes::Count,
        default: "1",
        about: "how many permits a semaphore has",
    }];

    type State = u64;
    type Op = (LockOp, u64);

    fn of_header(header: &Header) -> Result<Semaphore, String> {
        super::count_param(header, "permits", 1).map(|permits| Semaphore { permits })
    }

    fn read(&self, asked: &Asked<'_>, _: &mut Numbers) -> Result<Option<(LockOp, u64)>, String> {
        let count = match asked.input {
            value if value.is_null() => 1,
            value if value.as_map().is_some() => value
                .get("permits")
                .map_or(Some(1), ValueRef::as_u64)
                .ok_or("its `permits` is no count")?,
            value => value
                .as_u64()
                .ok_or("its argument is no count of permits")?,
        };
        Ok(LockOp::read(asked)?.map(|op| (op, count)))
    }

    fn initial(&self) -> u64 {
        0
    }

    fn step(&self, &taken: &u64, &(op, count): &(LockOp, u64)) -> Option<u64> {
        match op {
            LockOp::Acquire => taken
                .checked_add(count)
                .filter(|&taken| taken <= self.permits),
            LockOp::Release => taken.checked_sub(count),
        }
    }

    fn shortcut(&self, ops: &[Timed<(LockOp, u64)>]) -> Shortcut {
        if ops.iter().any(|timed| timed.op.1 != 1) {
            return Shortcut::None;
        }
        mutex::shortcut(ops, self.permits, |op| op.0)
    }

    fn why(&self, ops: &[Told<(LockOp, u64)>], _: &[Timed<(LockOp, u64)>]) -> Option<String> {
        mutex::why(ops, |op| op.0)
    }
}
