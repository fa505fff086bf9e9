//! What is before what in real time: by the order of the history, or by times and their error.

use history::{EventRef, Header};

use crate::params::{Param, Takes};

/// How events with equal times are ordered in real time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ties {
    /// As they stand in the history, which was written by one recorder.
    Ordered,
    /// Not at all: one operation precedes another only if it ended more than `error_ns` before
    /// the other began.
    Concurrent {
        /// Error of the clocks, in nanoseconds.
        error_ns: u64,
    },
}

/// Whether events at the same time are ordered.
pub(crate) const TIES: Param = Param {
    name: "ties",
    takes: Takes::Word(&["ordered", "concurrent"]),
    default: "ordered",
    about: "`ordered`: events are ordered as they stand in the history; `concurrent`: by their \
            times alone, so that equal ones are not",
};

/// How wrong the times of events may be.
pub(crate) const CLOCK_ERROR: Param = Param {
    name: "clock_error_ms",
    takes: Takes::Ms,
    default: "0",
    about: "with `ties` = `concurrent`, what ended less than this before something else began is \
            not before it",
};

impl Ties {
    /// What the header declares.
    pub(crate) fn of(header: &Header) -> Ties {
        if TIES.word(header) == "ordered" {
            return Ties::Ordered;
        }
        Ties::Concurrent {
            error_ns: header.param_ms(CLOCK_ERROR.name).unwrap_or(0),
        }
    }

    /// A number for an end that can be compared with those of begins.
    pub(crate) fn end(self, event: EventRef<'_>) -> u64 {
        match self {
            Ties::Ordered => event.index() as u64,
            Ties::Concurrent { error_ns } => event.time().saturating_add(error_ns),
        }
    }

    /// A number for a begin; larger than that of an end only if that was before it.
    pub(crate) fn begin(self, event: EventRef<'_>) -> u64 {
        match self {
            Ties::Ordered => event.index() as u64,
            Ties::Concurrent { .. } => event.time(),
        }
    }
}
