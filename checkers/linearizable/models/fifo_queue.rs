//! A queue: what goes in first comes out first.

use history::Header;

use super::{Asked, Core, Model, Numbers, Shortcut, Timed, Why};
use crate::linearizable::queues::{Answer, Pattern, Queue, Span};

/// A queue from which values come in the order in which they went in.
pub struct FifoQueue;

impl Model for FifoQueue {
    const NAME: &'static str = "fifo-queue";
    const ABOUT: &'static str = "A queue from which values come in the order in which they went in. \
        `enqueue` of a value; `dequeue`, which returns the value, or null if it found nothing. An \
        unanswered dequeue may have taken whatever was first.";
    const METHOD: &'static str = "Where the values are distinct, by the four patterns that must not \
        occur (a value from nowhere, one that comes twice, one that overtakes another, nothing \
        found while something was there; Henzinger, Sezgin and Vafeiadis 2013): O(n log n), exact \
        but where dequeues that were not answered could have emptied the queue in several ways. \
        Then, and where a value is enqueued twice, by search.";

    type State = Vec<u32>;
    type Op = QueueOp;

    fn of_header(_: &Header) -> Result<FifoQueue, String> {
        Ok(FifoQueue)
    }

    fn read(&self, asked: &Asked<'_>, numbers: &mut Numbers) -> Result<Option<QueueOp>, String> {
        QueueOp::read(asked, numbers)
    }

    fn initial(&self) -> Vec<u32> {
        Vec::new()
    }

    fn step(&self, state: &Vec<u32>, op: &QueueOp) -> Option<Vec<u32>> {
        match op {
            QueueOp::Enqueue(value) => Some(state.iter().copied().chain([*value]).collect()),
            QueueOp::Dequeue(value) => (state.first() == Some(value)).then(|| state[1..].to_vec()),
            QueueOp::FindEmpty => state.is_empty().then(Vec::new),
            QueueOp::MaybeDequeue => (!state.is_empty()).then(|| state[1..].to_vec()),
        }
    }

    fn shortcut(&self, ops: &[Timed<QueueOp>]) -> Shortcut {
        shortcut(ops, Queue::new(true))
    }
}

/// What is done with a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueueOp {
    /// Puts this in.
    Enqueue(u32),
    /// Takes this out.
    Dequeue(u32),
    /// Takes nothing out, because there is nothing.
    FindEmpty,
    /// Takes something out, and nobody knows what.
    MaybeDequeue,
}

impl QueueOp {
    pub(super) fn read(
        asked: &Asked<'_>,
        numbers: &mut Numbers,
    ) -> Result<Option<QueueOp>, String> {
        let op = match asked.f {
            "enqueue" if asked.input.is_null() => return Err("it enqueues null".to_owned()),
            "enqueue" => QueueOp::Enqueue(numbers.of(asked.input)),
            "dequeue" => match asked.output() {
                None => QueueOp::MaybeDequeue,
                Some(value) if value.is_null() => QueueOp::FindEmpty,
                Some(value) => QueueOp::Dequeue(numbers.of(value)),
            },
            _ => return asked.unknown("`enqueue` and `dequeue`"),
        };
        Ok((!asked.failed()).then_some(op))
    }
}

/// Decides by patterns.
pub(super) fn shortcut(ops: &[Timed<QueueOp>], mut queue: Queue) -> Shortcut {
    for (place, timed) in (0u32..).zip(ops) {
        let span = Span {
            call: timed.call,
            ret: timed.ret,
            place,
        };
        match timed.op {
            QueueOp::Enqueue(value) => queue.put(value, span),
            QueueOp::Dequeue(value) => queue.take(value, span),
            QueueOp::FindEmpty => queue.find_empty(span),
            QueueOp::MaybeDequeue => queue.maybe_take(span),
        }
    }
    match queue.decide() {
        Answer::Order => Shortcut::Order,
        Answer::Undecided => Shortcut::None,
        Answer::None(pattern) => Shortcut::NoOrder(core(pattern)),
    }
}

fn core(pattern: Pattern) -> Core {
    let (places, why): (Vec<u32>, Why) = match pattern {
        Pattern::Unknown { taken, put: None } => (vec![taken], |told| {
            format!("{} returned what nobody enqueued", told[0])
        }),
        Pattern::Unknown {
            taken,
            put: Some(put),
        } => (vec![taken, put], |told| {
            format!(
                "{} returned the value of {} before that was asked for",
                told[0], told[1]
            )
        }),
        Pattern::Twice { first, second } => (vec![first, second], |told| {
            format!(
                "{} and {} took the same value, which was enqueued once",
                told[0], told[1]
            )
        }),
        Pattern::Overtaken {
            first_put,
            first_taken,
            second_put,
            second_taken,
        } => {
            let mut places = vec![first_put, second_put, second_taken];
            places.extend(first_taken);
            if first_taken.is_some() {
                (places, |told| {
                    format!(
                        "{} came out before {} was asked for, although {} was over before {} began",
                        told[2], told[3], told[0], told[1]
                    )
                })
            } else {
                (places, |told| {
                    format!(
                        "{} came out and nothing can have taken what went in first: {} was over \
                         before {} began",
                        told[2], told[0], told[1]
                    )
                })
            }
        }
        Pattern::NotEmpty { found, inside } => {
            let mut places = vec![found];
            for (put, taken) in inside {
                places.push(put);
                places.extend(taken);
            }
            (places, |told| {
                format!(
                    "{} found nothing, although something was there all the time",
                    told[0]
                )
            })
        }
    };
    Core {
        places: places.into_iter().map(|place| place as usize).collect(),
        why,
    }
}
