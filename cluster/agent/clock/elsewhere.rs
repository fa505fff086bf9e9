//! Other processors than x86_64: no clock is moved there, and who asks is told why.

use super::Trouble;
use crate::evidence::{ProcessClock, ProcessState};

fn refused<T>() -> Result<T, Trouble> {
    let why = "the wall clock of a process can be moved on x86_64 only".to_owned();
    Err(Trouble::Never(why))
}

/// Refuses.
pub(super) fn skew(_process: &ProcessState, _offset_ns: i64) -> Result<ProcessClock, Trouble> {
    refused()
}

/// There is none.
pub(super) fn manner() -> &'static str {
    "no clock is moved here"
}

/// Nothing was ever moved.
pub(super) fn unskew(process: &ProcessState) -> Result<ProcessClock, Trouble> {
    look(process)
}

/// None was moved.
pub(super) fn is_moved(_pid: i32) -> Result<bool, Trouble> {
    Ok(false)
}

/// Every clock is its own.
pub(super) fn look(process: &ProcessState) -> Result<ProcessClock, Trouble> {
    Ok(ProcessClock::own(process.clone()))
}
