//! Holds a history against a model: reads it, splits it into independent parts, decides each by the
//! cheapest method that can, and tells what was found.

use std::sync::atomic::{AtomicUsize, Ordering};

use history::{EventRef, History, Op, Outcome};
use rustc_hash::FxHashMap;

use super::frontier::Found;
use super::models::{Answer, Asked, Core, Model, NEVER, Numbers, Shortcut, Timed};
use super::{search, tell};
use crate::actors::Actors;
use crate::params;
use crate::words;
use crate::{Budget, Checked, Exhausted, Reason};

/// The operations of one independent part, in the order of their calls.
pub(super) struct Part<O> {
    pub(super) key: Option<u32>,
    pub(super) ops: Vec<Timed<O>>,
}

/// What was found out about one part.
pub(super) enum Decision {
    /// There is an order that explains every answer.
    Order,
    /// These operations alone have none.
    NoOrder(Core),
    /// The completion of this operation cannot be explained, given what was called before it.
    At(usize),
    /// The answers of these operations cannot be explained together, whatever became of all others.
    Answers(Vec<usize>),
    /// A limit was reached after so many operations.
    Exhausted { limit: Exhausted, decided: usize },
}

/// Judges a history by a model: one of the list, or any other.
pub fn judge<M: Model>(history: &History, budget: &Budget) -> Checked {
    let valid = || Checked::valid().note(format!("the model is `{}`", M::NAME));
    let model = match M::of_header(&history.header) {
        Ok(model) => model,
        Err(wrong) => return Checked::unknown(Reason::Coverage(wrong)),
    };
    if let Some(counts) = model.glance(history) {
        return counts.add_to(history, valid());
    }
    let parts = match read(&model, history) {
        Ok(parts) => parts,
        Err(unknown) => return Checked::unknown(unknown),
    };
    let decided = all(&model, &parts, budget);
    let counts = Counts::of(history, &parts, &decided);
    let result = match decided.last {
        None => valid(),
        Some((at, Decision::Exhausted { limit, decided })) => {
            let part = &parts[at];
            let text = format!(
                "{limit}; {} of {} keys decided, then {} up to its completion {decided} of {}",
                counts.known + counts.searched,
                parts.len(),
                part.name(history),
                part.ops.iter().filter(|timed| timed.ret != NEVER).count()
            );
            Checked::unknown(match limit {
                Exhausted::Memory(_) => Reason::Memory(text),
                Exhausted::Steps | Exhausted::Time => Reason::Budget(text),
            })
        }
        Some((at, failure)) => tell::tell(history, &model, &parts[at], &failure, budget),
    };
    counts.add_to(history, result)
}

/// Whether a history has an order by a model, without telling why not; nothing if that cannot be
/// found out.
pub fn has_order<M: Model>(history: &History, budget: &Budget) -> Option<bool> {
    let model = M::of_header(&history.header).ok()?;
    if model.glance(history).is_some() {
        return Some(true);
    }
    let parts = read(&model, history).ok()?;
    match all(&model, &parts, budget).last {
        None => Some(true),
        Some((_, Decision::Exhausted { .. })) => None,
        Some(_) => Some(false),
    }
}

/// The parts of a history as a model reads them.
fn read<M: Model>(model: &M, history: &History) -> Result<Vec<Part<M::Op>>, Reason> {
    let parts = parts(model, history).map_err(Reason::Coverage)?;
    if parts.is_empty() {
        let nothing = format!("no operation that `{}` speaks of", M::NAME);
        return Err(Reason::NotApplicable(nothing));
    }
    Ok(parts)
}

/// What was found out about the parts of a history.
struct Decided {
    /// How many were decided without search, and by it.
    known: u64,
    searched: u64,
    /// The first of which there is more to tell than that it has an order.
    last: Option<(usize, Decision)>,
}

/// Decides parts, those that need no search first, up to the first of which there is more to tell
/// than that it has an order.
fn all<M: Model>(model: &M, parts: &[Part<M::Op>], budget: &Budget) -> Decided {
    let places: Vec<usize> = (0..parts.len()).collect();
    let known = on_threads(&places, budget.threads(), |place| {
        shortcut(model, &parts[place]).map(|decision| decision.unless_order())
    });
    let mut decided = Decided {
        known: 0,
        searched: 0,
        last: None,
    };
    let mut hard = Vec::new();
    for (place, known) in known {
        match known {
            None => hard.push(place),
            Some(failure) => {
                decided.known += 1;
                decided.last = failure.map(|failure| (place, failure));
            }
        }
    }
    if decided.last.is_some() {
        return decided;
    }
    hard.sort_by_key(|&place| parts[place].ops.len());
    let threads = budget.threads().min(hard.len().max(1));
    let mut left = &hard[..];
    for (threads, budget) in [(threads, &budget.divided(threads)), (1, budget)] {
        let searched = on_threads(left, threads, |place| {
            Some(search(model, &parts[place], budget).unless_order())
        });
        decided.last = None;
        for (place, found) in searched {
            decided.searched += 1;
            decided.last = found.flatten().map(|found| (place, found));
        }
        let Some((at, Decision::Exhausted { limit, .. })) = &decided.last else {
            break;
        };
        decided.searched -= 1;
        // What did not fit beside others may fit alone.
        if threads == 1 || !matches!(limit, Exhausted::Memory(_)) {
            break;
        }
        let from = left.iter().position(|place| place == at);
        left = &left[from.unwrap_or(0)..];
    }
    decided
}

/// Does something at places in their order on some threads, and returns what one thread would have
/// found: all up to the first where something was found that is more than nothing.
fn on_threads<T: Send>(
    places: &[usize],
    threads: usize,
    find: impl Fn(usize) -> Option<Option<T>> + Sync,
) -> Vec<(usize, Option<Option<T>>)> {
    let next = AtomicUsize::new(0);
    let end = AtomicUsize::new(places.len());
    let work = || {
        let mut mine = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= end.load(Ordering::Relaxed) {
                return mine;
            }
            let found = find(places[at]);
            if matches!(found, Some(Some(_))) {
                end.fetch_min(at + 1, Ordering::Relaxed);
            }
            mine.push((at, found));
        }
    };
    let mut all = if threads <= 1 || places.len() <= 1 {
        work()
    } else {
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut all = work();
            for other in others {
                match other.join() {
                    Ok(theirs) => all.extend(theirs),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            all
        })
    };
    all.sort_by_key(|&(at, _)| at);
    all.truncate(end.into_inner());
    all.into_iter()
        .map(|(at, found)| (places[at], found))
        .collect()
}

impl Decision {
    /// Nothing, if there is an order.
    fn unless_order(self) -> Option<Decision> {
        match self {
            Decision::Order => None,
            other => Some(other),
        }
    }
}

/// Decides a part without search, if that can be.
fn shortcut<M: Model>(model: &M, part: &Part<M::Op>) -> Option<Decision> {
    match model.shortcut(&part.ops) {
        Shortcut::Order => Some(Decision::Order),
        Shortcut::NoOrder(core) => Some(Decision::NoOrder(core)),
        Shortcut::At(place) => Some(Decision::At(place)),
        Shortcut::Answers(places) => Some(Decision::Answers(places)),
        Shortcut::None => None,
    }
}

fn search<M: Model>(model: &M, part: &Part<M::Op>, budget: &Budget) -> Decision {
    if let Err(limit) = budget.spend(part.ops.len() as u64) {
        return Decision::Exhausted { limit, decided: 0 };
    }
    match search::decide(model, &part.ops, budget) {
        Found::Order => Decision::Order,
        Found::At(place) => Decision::At(place),
        Found::Exhausted { limit, decided } => Decision::Exhausted { limit, decided },
    }
}

/// Decides one part by the cheapest method that can.
pub(super) fn decide<M: Model>(model: &M, part: &Part<M::Op>, budget: &Budget) -> Decision {
    shortcut(model, part).unwrap_or_else(|| search(model, part, budget))
}

/// What there was to decide, and how it was decided.
pub struct Counts {
    pub(super) keys: u64,
    /// By the number of the function, the operations that happened.
    pub(super) happened: Vec<u64>,
    pub(super) unanswered: u64,
    pub(super) concurrent_max: u64,
    known: u64,
    searched: u64,
}

impl Counts {
    /// Nothing yet of one object that is decided without search.
    pub(super) fn of_one(history: &History) -> Counts {
        Counts {
            keys: 1,
            happened: vec![0; history.functions().count()],
            unanswered: 0,
            concurrent_max: 0,
            known: 1,
            searched: 0,
        }
    }

    fn of<O>(history: &History, parts: &[Part<O>], decided: &Decided) -> Counts {
        let mut counts = Counts {
            keys: parts.len() as u64,
            known: decided.known,
            searched: decided.searched,
            ..Counts::of_one(history)
        };
        for timed in parts.iter().flat_map(|part| &part.ops) {
            if timed.ret == NEVER {
                counts.unanswered += 1;
            } else {
                counts.happened[history.event(timed.call as usize).f_id() as usize] += 1;
            }
        }
        let concurrent = parts.iter().map(|part| search::concurrency(&part.ops));
        counts.concurrent_max = concurrent.max().unwrap_or(0) as u64;
        counts
    }

    fn add_to(&self, history: &History, mut result: Checked) -> Checked {
        result = result.count("keys", self.keys);
        for (f, &count) in history.functions().zip(&self.happened) {
            if count > 0 {
                result = result.count(&format!("ops:{f}"), count);
            }
        }
        result
            .count("unanswered", self.unanswered)
            .count("concurrent_max", self.concurrent_max)
            .count("keys_by_shortcut", self.known)
            .count("keys_by_search", self.searched)
            .count("keys_undecided", self.keys - self.known - self.searched)
    }
}

/// The history as a model reads it, split by key and by what the model says is independent.
fn parts<M: Model>(model: &M, history: &History) -> Result<Vec<Part<M::Op>>, String> {
    let mut numbers = Numbers::default();
    let reader = Reader::of(history);
    let mut by_key: Vec<Part<M::Op>> = Vec::new();
    // For each key, and last for none, where its part is, and how many operations it may have.
    let place = |key: Option<u32>| key.map_or(history.key_count(), |key| key as usize);
    let mut at_key: Vec<Option<usize>> = vec![None; history.key_count() + 1];
    let mut counts = vec![0usize; history.key_count() + 1];
    for op in history.ops() {
        counts[place(op.key_id())] += 1;
    }
    for op in history.ops() {
        let asked = reader.asked(model, op);
        let read = model
            .read(&asked, &mut numbers)
            .map_err(|wrong| format!("`{}` of event {}: {wrong}", op.f(), op.invoke.index()))?;
        let Some(read) = read else { continue };
        let key = place(op.key_id());
        let at = *at_key[key].get_or_insert_with(|| {
            by_key.push(Part {
                key: op.key_id(),
                ops: Vec::with_capacity(counts[key]),
            });
            by_key.len() - 1
        });
        by_key[at].ops.push(Timed {
            op: read,
            call: rank(op.invoke),
            ret: match asked.answer {
                Answer::Unknown => NEVER,
                Answer::Ok(_) | Answer::Fail => op.completion.map_or(NEVER, rank),
            },
        });
    }
    Ok(by_key
        .into_iter()
        .flat_map(|part| split(model, part))
        .collect())
}

/// Splits the operations of a key, if each of them belongs to one independent part.
fn split<M: Model>(model: &M, part: Part<M::Op>) -> Vec<Part<M::Op>> {
    if part.ops.iter().any(|timed| model.part(&timed.op).is_none()) {
        return vec![part];
    }
    let mut parts: Vec<Part<M::Op>> = Vec::new();
    let mut at: FxHashMap<Option<u32>, usize> = FxHashMap::default();
    for timed in part.ops {
        let place = *at.entry(model.part(&timed.op)).or_insert_with(|| {
            parts.push(Part {
                key: part.key,
                ops: Vec::new(),
            });
            parts.len() - 1
        });
        parts[place].ops.push(timed);
    }
    parts
}

/// Shows models the operations of a history.
pub(super) struct Reader {
    actors: Actors,
    fails_uncertain: bool,
}

impl Reader {
    pub(super) fn of(history: &History) -> Reader {
        Reader {
            actors: Actors::of(history),
            fails_uncertain: params::FAILS.word(&history.header) == "uncertain",
        }
    }

    /// An operation as models see it.
    pub(super) fn asked<'h, M: Model>(&self, model: &M, op: Op<'h>) -> Asked<'h> {
        let mut asked = Asked {
            f: op.f(),
            input: op.input(),
            answer: match (op.outcome(), op.output()) {
                (Outcome::Ok, Some(value)) => Answer::Ok(value),
                (Outcome::Fail, _) => Answer::Fail,
                _ => Answer::Unknown,
            },
            error: op.error(),
            owner: self.actors.of_process(op.process_id()),
        };
        if self.fails_uncertain && asked.failed() && !model.is_certain(&asked) {
            asked.answer = Answer::Unknown;
        }
        asked
    }
}

fn rank(event: EventRef<'_>) -> u32 {
    u32::try_from(event.index()).unwrap_or(NEVER - 1)
}

impl<O> Part<O> {
    /// The key in words.
    pub(super) fn name(&self, history: &History) -> String {
        match self.key {
            Some(key) => format!("key {}", words::value(history.key_value(key))),
            None => "the object".to_owned(),
        }
    }
}
