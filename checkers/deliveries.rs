//! What goes into queues and what comes out, as `queue` and `total-queue` read it.

use history::{EventRef, Header, History, Kind, NONE, Outcome, ValueRef};

use crate::elements::{self, Elements};
use crate::params::{self, Param, Takes};
use crate::words::{self, Story};

/// Functions that work on queues.
pub(crate) const FUNCTIONS: &[&str] = &["enqueue", "dequeue", "drain"];

/// Rows of one kind in a story.
const TOLD_MAX: usize = 4;

/// What a queue promises of each element.
pub(crate) const DELIVERY: Param = Param {
    name: "delivery",
    takes: Takes::Word(&["exactly-once", "at-most-once", "at-least-once"]),
    default: "exactly-once",
    about: "`exactly-once`: no element is lost or delivered twice; `at-most-once`: it may be lost; \
            `at-least-once`: it may be delivered again",
};

/// What the header says is promised.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promised {
    /// No element is lost.
    pub(crate) no_loss: bool,
    /// No element is delivered more often than it was enqueued.
    pub(crate) no_repeat: bool,
    /// What failed did not happen.
    fail_is_certain: bool,
}

impl Promised {
    pub(crate) fn of(header: &Header) -> Promised {
        let delivery = DELIVERY.word(header);
        Promised {
            no_loss: delivery != "at-most-once",
            no_repeat: delivery != "at-least-once",
            fail_is_certain: params::FAILS.word(header) == "certain",
        }
    }

    /// Whether an invoked enqueue may have happened.
    pub(crate) fn may_count(self, invoke: EventRef<'_>) -> bool {
        !(self.fail_is_certain && invoke.op().outcome() == Outcome::Fail)
    }
}

/// Calls `each` for every element that this answer to a client delivers.
pub(crate) fn delivered<'h>(answer: EventRef<'h>, mut each: impl FnMut(ValueRef<'h>)) {
    if answer.kind() != Kind::Ok {
        return;
    }
    match answer.f() {
        "dequeue" if !answer.value().is_null() => each(answer.value()),
        "drain" => answer
            .value()
            .as_list()
            .into_iter()
            .flatten()
            .for_each(each),
        _ => {}
    }
}

/// Tells what happened to one element, up to an event: the enqueues that may have put it there,
/// and the last deliveries.
pub(crate) fn tell(
    story: &mut Story,
    history: &History,
    elements: &mut Elements,
    element: usize,
    until: usize,
) {
    let mut asked: Vec<EventRef<'_>> = Vec::new();
    let mut got: Vec<EventRef<'_>> = Vec::new();
    for event in history.events().take(until + 1) {
        let key = elements::key(event).unwrap_or(NONE);
        if event.kind() == Kind::Invoke && event.f() == "enqueue" {
            if asked.len() < TOLD_MAX && elements.number(key, event.value()) == element {
                asked.push(event);
            }
        } else {
            let mut is_here = false;
            delivered(event, |value| {
                is_here |= elements.number(key, value) == element;
            });
            if is_here {
                got.push(event);
            }
        }
    }
    for event in asked {
        let value = words::value(event.value());
        let note = match event.op().outcome() {
            Outcome::Ok => "which is acknowledged",
            Outcome::Fail => "which fails",
            Outcome::Info => "of which nobody knows whether it happened",
        };
        let who = words::who(event);
        story.tell(event, format!("{who} asks to enqueue {value}, {note}"));
    }
    for event in got.iter().rev().take(TOLD_MAX) {
        let who = words::who(*event);
        let note = match event.f() {
            "drain" => format!("a drain by {who} has it"),
            _ => format!("it is delivered to {who}"),
        };
        story.tell(*event, note);
    }
}
