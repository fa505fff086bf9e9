//! The counterexample of any model: made small, and told in words.
//!
//! An operation is never left out of the proof, it is only forgotten what was answered, and that it
//! was: then it may take effect at any time after it was asked for, or never. Whatever has an order
//! has one after that, so what has none then, had none before, whatever the model is. What is told
//! is the operations whose answers cannot be forgotten.

use history::{History, Op};

use super::judge::{Decision, Part, Reader, decide};
use super::models::{Answer, Asked, Model, NEVER, Numbers, Timed, Told};
use crate::shrink::ddmin;
use crate::words::{self, ROWS_MAX, Story};
use crate::{Budget, Checked};

/// How many sets of answers are tried to make a counterexample small.
const TESTS_MAX: usize = 1_000;
/// How many steps each of them may take, and all together.
const STEPS_MAX: u64 = 200_000;
const STEPS_MAX_ALL: u64 = 20_000_000;
/// How many answers before the failure are looked at first.
const WINDOW_FIRST: usize = 8;

/// Tells why a part has no order.
pub(super) fn tell<M: Model>(
    history: &History,
    model: &M,
    part: &Part<M::Op>,
    failure: &Decision,
    budget: &Budget,
) -> Checked {
    let (places, why) = match failure {
        Decision::NoOrder(core) => {
            let words: Vec<String> = core
                .places
                .iter()
                .map(|&place| in_words(op(history, &part.ops[place])))
                .collect();
            (core.places.clone(), (core.why)(&words))
        }
        Decision::At(_) | Decision::Answers(_) => {
            let known = match failure {
                Decision::Answers(places) => places.clone(),
                Decision::At(place) => vec![*place],
                _ => Vec::new(),
            };
            let last = known
                .iter()
                .copied()
                .max_by_key(|&place| part.ops[place].ret);
            let places =
                Forgetting::new(history, model, part, last.unwrap_or(0)).smallest(known, budget);
            let told: Vec<Told<M::Op>> = places
                .iter()
                .map(|&place| told(history, &part.ops[place]))
                .collect();
            let why = model
                .why(&told, &part.ops)
                .unwrap_or_else(|| no_order(&told));
            (places, why)
        }
        Decision::Order | Decision::Exhausted { .. } => (Vec::new(), String::new()),
    };
    write_down(history, part, &places, &why)
}

fn no_order<O>(told: &[Told<O>]) -> String {
    match told {
        [] => "no order explains the answers".to_owned(),
        [one] => format!("nothing explains {}", one.words),
        [.., last] => format!(
            "{} cannot be explained: no order of these {} operations has all their answers",
            last.words,
            told.len()
        ),
    }
}

fn told<O: Clone>(history: &History, timed: &Timed<O>) -> Told<O> {
    let op = op(history, timed);
    Told {
        op: timed.op.clone(),
        call: timed.call,
        ret: timed.ret,
        words: in_words(op),
        who: words::who(op.invoke),
        f: op.f().to_owned(),
        input: words::value(op.input()),
        output: op.output().map_or_else(String::new, words::value),
    }
}

fn op<'h, O>(history: &'h History, timed: &Timed<O>) -> Op<'h> {
    history.event(timed.call as usize).op()
}

/// An operation in words: `A dequeue -> 4`.
fn in_words(op: Op<'_>) -> String {
    let mut text = format!("{} {}", words::who(op.invoke), op.f());
    if !op.input().is_null() {
        text += &format!(" {}", words::value(op.input()));
    }
    match op.output() {
        Some(output) if output != op.input() => text += &format!(" -> {}", words::value(output)),
        Some(output) if output.is_null() && !is_change(op.f()) => text += " -> null",
        _ => {}
    }
    text
}

/// Whether it is plain that nothing is returned.
fn is_change(f: &str) -> bool {
    matches!(f, "acquire" | "release" | "add" | "delete" | "remove")
}

fn write_down<O>(history: &History, part: &Part<O>, places: &[usize], why: &str) -> Checked {
    let mut story = Story::default();
    let mut in_order: Vec<usize> = places.to_vec();
    in_order.sort_unstable();
    in_order.dedup();
    // The last ones first, should there be more than fit.
    for &place in in_order.iter().rev() {
        let timed = &part.ops[place];
        let op = op(history, timed);
        match op.completion.filter(|_| timed.ret != NEVER) {
            Some(completion) => {
                // Without times, or within the first millisecond, only the order can be told.
                let since = match completion.time() {
                    0..1_000_000 => format!("event {}", op.invoke.index()),
                    _ => words::at(op.start()),
                };
                story.tell(completion, format!("asked for at {since}"));
            }
            None => story.tell(
                op.invoke,
                "no answer: it may take effect from here on, or never".to_owned(),
            ),
        }
    }
    let ends = in_order.iter().map(|&place| &part.ops[place]);
    let from = ends.clone().map(|timed| timed.call).min().unwrap_or(0);
    let to = ends
        .map(|timed| {
            if timed.ret == NEVER {
                timed.call
            } else {
                timed.ret
            }
        })
        .max();
    story.tell_faults(history, from as usize..to.unwrap_or(0) as usize);
    let result = Checked::invalid(story.finish(format!("{}: {why}", part.name(history))));
    if in_order.len() > ROWS_MAX {
        result.note(format!(
            "of the {} operations that have no order together, the last {ROWS_MAX} are shown",
            in_order.len()
        ))
    } else {
        result
    }
}

/// What was known when an operation returned, and the same without its answers.
struct Forgetting<'p, M: Model> {
    model: &'p M,
    key: Option<u32>,
    /// Each operation that was called by then.
    ops: Vec<Timed<M::Op>>,
    /// What is left of each without an answer.
    without: Vec<Option<M::Op>>,
    /// The places of those that were answered, in the order of their answers.
    answered: Vec<usize>,
}

impl<'p, M: Model> Forgetting<'p, M> {
    fn new(history: &History, model: &'p M, part: &Part<M::Op>, last: usize) -> Self {
        let end = part.ops[last].ret;
        let reader = Reader::of(history);
        // All operations are read again, so that values get the numbers that they had.
        let mut numbers = Numbers::default();
        let mut known = part
            .ops
            .iter()
            .take_while(|timed| timed.call < end)
            .peekable();
        let (mut ops, mut left) = (Vec::new(), Vec::new());
        for op in history.ops() {
            let asked = reader.asked(model, op);
            let _ = model.read(&asked, &mut numbers);
            let is_next = |timed: &&Timed<M::Op>| timed.call as usize == op.invoke.index();
            let Some(timed) = known.next_if(is_next) else {
                continue;
            };
            let without = Asked {
                answer: Answer::Unknown,
                ..asked
            };
            let without = model.read(&without, &mut numbers).ok().flatten();
            ops.push(timed.clone());
            left.push(without);
        }
        let mut answered: Vec<usize> = (0..ops.len()).filter(|&at| ops[at].ret <= end).collect();
        answered.sort_unstable_by_key(|&at| ops[at].ret);
        Forgetting {
            model,
            key: part.key,
            ops,
            without: left,
            answered,
        }
    }

    /// The places of as few operations as possible whose answers have no order, which may be among
    /// these.
    fn smallest(&self, known: Vec<usize>, budget: &Budget) -> Vec<usize> {
        let all = Budget::new(STEPS_MAX_ALL, Budget::DEFAULT_BYTES);
        let fails = |kept: &[usize]| {
            budget.spend(0).ok()?;
            all.spend(self.ops.len() as u64).ok()?;
            let limits = Budget::new(STEPS_MAX, Budget::DEFAULT_BYTES);
            let decision = decide(self.model, &self.part(kept), &limits);
            let failed = !matches!(decision, Decision::Order | Decision::Exhausted { .. });
            failed.then(|| kept.to_vec())
        };
        let mut length = WINDOW_FIRST;
        let mut window = known;
        while fails(&window).is_none() {
            let start = self.answered.len().saturating_sub(length);
            window = self.answered[start..].to_vec();
            if start == 0 {
                break;
            }
            length *= 2;
        }
        // What only looks is forgotten first: a story is better told by what was done.
        window.sort_by_key(|&at| !self.model.effect(&self.ops[at].op).is_passive());
        let mut smallest = ddmin(window, TESTS_MAX, fails);
        smallest.sort_unstable_by_key(|&at| self.ops[at].ret);
        smallest
    }

    /// The part in which only these answers are known.
    fn part(&self, kept: &[usize]) -> Part<M::Op> {
        let kept = rustc_hash::FxHashSet::from_iter(kept.iter().copied());
        let ops = self.ops.iter().zip(&self.without).enumerate();
        let ops = ops.filter_map(|(at, (timed, without))| {
            if kept.contains(&at) {
                return Some(timed.clone());
            }
            without.as_ref().map(|op| Timed {
                op: op.clone(),
                call: timed.call,
                ret: NEVER,
            })
        });
        Part {
            key: self.key,
            ops: ops.collect(),
        }
    }
}
