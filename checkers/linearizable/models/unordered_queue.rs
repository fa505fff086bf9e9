//! A queue without an order: what goes in comes out once.

use std::collections::BTreeSet;

use history::Header;
use rustc_hash::FxHashMap;

use super::fifo_queue::{self, QueueOp};
use super::{Asked, Model, Numbers, Shortcut, Timed, Told};
use crate::linearizable::permits::{self, Kind, Unit};
use crate::linearizable::queues::Queue;

/// A queue from which values come in any order.
pub struct UnorderedQueue;

impl Model for UnorderedQueue {
    const NAME: &'static str = "unordered-queue";
    const ABOUT: &'static str = "A queue from which values come in any order, each as often as it \
        went in. Operations as for `fifo-queue`; an unanswered dequeue may have taken anything.";
    const METHOD: &'static str = "Where nothing is ever found empty, each value by itself, like the \
        permits of a semaphore; where the values are distinct, by patterns as for `fifo-queue`: \
        O(n log n), exact. Otherwise by search.";

    /// All that may be inside, each as a sorted list: it is not known what an unanswered dequeue took.
    type State = BTreeSet<Vec<u32>>;
    type Op = QueueOp;

    fn of_header(_: &Header) -> Result<UnorderedQueue, String> {
        Ok(UnorderedQueue)
    }

    fn read(&self, asked: &Asked<'_>, numbers: &mut Numbers) -> Result<Option<QueueOp>, String> {
        QueueOp::read(asked, numbers)
    }

    fn initial(&self) -> Self::State {
        BTreeSet::from([Vec::new()])
    }

    fn step(&self, state: &Self::State, op: &QueueOp) -> Option<Self::State> {
        let next: Self::State = state.iter().flat_map(|inside| after(inside, *op)).collect();
        (!next.is_empty()).then_some(next)
    }

    fn shortcut(&self, ops: &[Timed<QueueOp>]) -> Shortcut {
        if ops.iter().any(|timed| timed.op == QueueOp::FindEmpty) {
            return fifo_queue::shortcut(ops, Queue::new(false));
        }
        match fifo_queue::shortcut(ops, Queue::new(false)) {
            Shortcut::None => first_wrong(ops).map_or(Shortcut::Order, Shortcut::At),
            decided => decided,
        }
    }

    fn why(&self, ops: &[Told<QueueOp>], _: &[Timed<QueueOp>]) -> Option<String> {
        let dequeues = ops
            .iter()
            .all(|told| matches!(told.op, QueueOp::Dequeue(_)));
        let last = ops.last()?;
        dequeues.then(|| format!("{} took a value more often than it was put in", last.words))
    }
}

/// What may be inside after an operation.
fn after(inside: &[u32], op: QueueOp) -> Vec<Vec<u32>> {
    let without = |at: usize| [&inside[..at], &inside[at + 1..]].concat();
    match op {
        QueueOp::Enqueue(value) => {
            let at = inside.partition_point(|&other| other < value);
            vec![[&inside[..at], &[value], &inside[at..]].concat()]
        }
        QueueOp::Dequeue(value) => {
            let at = inside.binary_search(&value);
            at.into_iter().map(without).collect()
        }
        QueueOp::FindEmpty if inside.is_empty() => vec![Vec::new()],
        QueueOp::FindEmpty => Vec::new(),
        QueueOp::MaybeDequeue => (0..inside.len()).map(without).collect(),
    }
}

/// The first dequeue that cannot be explained by what was enqueued of its value. A dequeue that was
/// not answered need not have happened.
fn first_wrong(ops: &[Timed<QueueOp>]) -> Option<usize> {
    let mut by_value: FxHashMap<u32, Vec<(usize, Unit)>> = FxHashMap::default();
    for (place, timed) in ops.iter().enumerate() {
        let (kind, value) = match timed.op {
            QueueOp::Enqueue(value) => (Kind::Take, value),
            QueueOp::Dequeue(value) => (Kind::Give, value),
            QueueOp::FindEmpty | QueueOp::MaybeDequeue => continue,
        };
        let unit = Unit {
            kind,
            call: timed.call,
            ret: timed.ret,
        };
        by_value.entry(value).or_default().push((place, unit));
    }
    let wrong = by_value.values().filter_map(|of_value| {
        let units: Vec<Unit> = of_value.iter().map(|(_, unit)| *unit).collect();
        permits::first_wrong(&units, u64::MAX).map(|at| of_value[at].0)
    });
    wrong.min_by_key(|&place| ops[place].ret)
}
