//! Queues whose values are distinct, decided by the patterns that must not occur.
//!
//! A queue of distinct values has an order if and only if none of these occurs (Henzinger, Sezgin
//! and Vafeiadis, Aspect-Oriented Linearizability Proofs, 2013; Abdulla and others, 2025):
//! - a value is dequeued that nobody had asked to enqueue before,
//! - a value is dequeued twice,
//! - one value was enqueued before another, and dequeued after it or never (only where the order
//!   matters),
//! - a dequeue finds nothing, although at every moment while it was open some value was certainly
//!   in the queue: enqueued already, and not yet asked for.
//!
//! A dequeue that was not answered may have taken any value that nobody else did, or nothing. Each
//! value that must have been taken by such a one has a moment before which that must have been
//! asked for; the most pressing value gets the one that was asked for first. Where that also
//! explains those that found nothing it shows an order, and where not even all values together get
//! theirs, or what was answered alone breaks a rule, there is none. What lies between is not
//! decided here. O(n) and a sort of what was not answered.

use super::models::NEVER;
use super::ranks;

/// When an operation was open, and what the caller knows it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) call: u32,
    pub(crate) ret: u32,
    pub(crate) place: u32,
}

/// What was done with one value.
#[derive(Debug, Clone, Copy, Default)]
struct Life {
    put: Option<Span>,
    /// By a dequeue that was answered, or that is assumed to have taken it.
    taken: Option<Span>,
}

impl Life {
    fn put_ret(&self) -> u32 {
        self.put.map_or(NEVER, |span| span.ret)
    }

    fn taken_call(&self) -> u32 {
        self.taken.map_or(NEVER, |span| span.call)
    }

    fn taken_ret(&self) -> u32 {
        self.taken.map_or(NEVER, |span| span.ret)
    }
}

/// A pattern that must not occur, with the places of its operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// A dequeue of what nobody enqueued, or only later.
    Unknown { taken: u32, put: Option<u32> },
    /// Two dequeues of one value.
    Twice { first: u32, second: u32 },
    /// The first value was enqueued before the second was asked to be, and the second was
    /// dequeued before the first was asked for, if it ever was.
    Overtaken {
        first_put: u32,
        first_taken: Option<u32>,
        second_put: u32,
        second_taken: u32,
    },
    /// A dequeue that found nothing, and the enqueues of what was in the queue meanwhile, with
    /// their dequeues.
    NotEmpty {
        found: u32,
        inside: Vec<(u32, Option<u32>)>,
    },
}

/// Whether there is an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Order,
    None(Pattern),
    /// The patterns do not tell: a value was enqueued twice, or dequeues that were not answered may
    /// have emptied the queue in several ways.
    Undecided,
}

/// What is known of a queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// By value.
    lives: Vec<Life>,
    /// The values by the calls of their enqueues.
    values: Vec<u32>,
    /// Dequeues that found nothing, by their calls.
    empty: Vec<Span>,
    /// Dequeues that were not answered, by their calls.
    unanswered: Vec<Span>,
    /// Whether values come out in the order in which they went in.
    ordered: bool,
    twice: Option<Pattern>,
    repeated: bool,
}

impl Queue {
    /// A queue of which nothing is known yet. Operations are added in the order of their calls.
    pub(crate) fn new(ordered: bool) -> Queue {
        Queue {
            ordered,
            ..Queue::default()
        }
    }

    /// Adds an enqueue.
    pub(crate) fn put(&mut self, value: u32, span: Span) {
        self.repeated |= self.life(value).put.replace(span).is_some();
        self.values.push(value);
    }

    /// Adds a dequeue that found a value.
    pub(crate) fn take(&mut self, value: u32, span: Span) {
        if let Some(other) = self.life(value).taken.replace(span) {
            self.twice.get_or_insert(Pattern::Twice {
                first: other.place,
                second: span.place,
            });
        }
    }

    /// Adds a dequeue that found nothing.
    pub(crate) fn find_empty(&mut self, span: Span) {
        self.empty.push(span);
    }

    /// Adds a dequeue that was not answered.
    pub(crate) fn maybe_take(&mut self, span: Span) {
        self.unanswered.push(span);
    }

    fn life(&mut self, value: u32) -> &mut Life {
        let at = value as usize;
        if self.lives.len() <= at {
            self.lives.resize(at + 1, Life::default());
        }
        &mut self.lives[at]
    }

    /// Whether there is an order.
    pub(crate) fn decide(mut self) -> Answer {
        if self.repeated {
            return Answer::Undecided;
        }
        if let Some(pattern) = self.unknown().or(self.twice.take()) {
            return Answer::None(pattern);
        }
        // An enqueue that was not answered, of a value that nobody dequeued, need not have happened.
        let lives = &self.lives;
        self.values.retain(|&value| {
            let life = &lives[value as usize];
            life.taken.is_some() || life.put_ret() != NEVER
        });
        match self.wrong() {
            None => Answer::Order,
            Some(wrong) if self.unanswered.is_empty() => Answer::None(wrong),
            Some(_) => self.decide_with_unanswered(),
        }
    }

    /// Gives what must have been taken to the dequeues that were not answered.
    fn decide_with_unanswered(&mut self) -> Answer {
        let mut pressing = self.deadlines();
        pressing.sort_unstable();
        let mut given = 0;
        for (&(deadline, value), span) in pressing.iter().zip(&self.unanswered) {
            if span.call > deadline {
                break;
            }
            self.lives[value as usize].taken = Some(*span);
            given += 1;
        }
        match self.wrong() {
            None => Answer::Order,
            Some(wrong) if given < pressing.len() => Answer::None(wrong),
            Some(_) => {
                let lives = &self.lives;
                self.values
                    .retain(|&value| lives[value as usize].taken_ret() != NEVER);
                self.wrong().map_or(Answer::Undecided, Answer::None)
            }
        }
    }

    /// The values that were not dequeued but must have been, each with the return before which the
    /// dequeue must have been asked for: that of a later value, or of a dequeue that found nothing.
    fn deadlines(&self) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        let mut empty = self.empty.iter().rev().peekable();
        let mut others = self.values.iter().rev().peekable();
        let mut deadline = NEVER;
        for &(ret, value) in self.put_returns().iter().rev() {
            while let Some(span) = empty.next_if(|span| span.call > ret) {
                deadline = deadline.min(span.ret);
            }
            let called_later = |other: &&u32| {
                let put = self.lives[**other as usize].put;
                put.is_some_and(|put| put.call > ret)
            };
            while let Some(&other) = others.next_if(called_later) {
                if self.ordered {
                    deadline = deadline.min(self.lives[other as usize].taken_ret());
                }
            }
            if deadline != NEVER && self.lives[value as usize].taken.is_none() {
                found.push((deadline, value));
            }
        }
        found
    }

    /// The returns of the enqueues, with their values, in order.
    fn put_returns(&self) -> Vec<(u32, u32)> {
        let ret = |&value: &u32| (self.lives[value as usize].put_ret(), value);
        let mut returns: Vec<(u32, u32)> = self.values.iter().map(ret).collect();
        returns.retain(|&(ret, _)| ret != NEVER);
        ranks::sort(&mut returns);
        returns
    }

    fn unknown(&self) -> Option<Pattern> {
        let wrong = |life: &&Life| {
            let asked = life.put.map_or(NEVER, |put| put.call);
            life.taken_ret() < asked
        };
        let found = self.lives.iter().filter(wrong);
        let first = found.min_by_key(|life| life.taken_ret())?;
        Some(Pattern::Unknown {
            taken: first.taken?.place,
            put: first.put.map(|put| put.place),
        })
    }

    fn wrong(&self) -> Option<Pattern> {
        let overtaken = self.ordered.then(|| self.overtaken()).flatten();
        overtaken.or_else(|| self.not_empty())
    }

    /// For each enqueue in order: of the values that were in before, the one that was asked for last.
    fn overtaken(&self) -> Option<Pattern> {
        let returns = self.put_returns();
        let mut before = returns.iter().peekable();
        let mut latest: Option<&Life> = None;
        for &value in &self.values {
            let second = &self.lives[value as usize];
            let second_put = second.put?;
            while let Some(&(_, value)) = before.next_if(|(ret, _)| *ret < second_put.call) {
                let life = &self.lives[value as usize];
                if latest.is_none_or(|latest| latest.taken_call() < life.taken_call()) {
                    latest = Some(life);
                }
            }
            if let (Some(first), Some(second_taken)) = (latest, second.taken)
                && second_taken.ret < first.taken_call()
            {
                return Some(Pattern::Overtaken {
                    first_put: first.put?.place,
                    first_taken: first.taken.map(|taken| taken.place),
                    second_put: second_put.place,
                    second_taken: second_taken.place,
                });
            }
        }
        None
    }

    /// A dequeue that found nothing while there always was something.
    fn not_empty(&self) -> Option<Pattern> {
        if self.empty.is_empty() {
            return None;
        }
        let returns = self.put_returns();
        // Stretches of time without an empty moment.
        let mut busy: Vec<(u32, u32)> = Vec::new();
        for &(from, value) in &returns {
            let to = self.lives[value as usize].taken_call();
            match busy.last_mut() {
                _ if to < from => {}
                Some(last) if from < last.1 => last.1 = last.1.max(to),
                _ => busy.push((from, to)),
            }
        }
        let wrong = |span: &&Span| {
            let begun = busy.partition_point(|&(from, _)| from < span.call);
            begun > 0 && busy[begun - 1].1 > span.ret
        };
        let found = self.empty.iter().find(wrong)?;
        Some(self.what_was_inside(*found, &returns))
    }

    /// As few values as possible that together stayed as long as the dequeue was open.
    fn what_was_inside(&self, found: Span, returns: &[(u32, u32)]) -> Pattern {
        let mut inside = Vec::new();
        let mut reached = found.call;
        while reached < found.ret {
            let stays = returns.iter().take_while(|(from, _)| *from < reached);
            let longest = stays.max_by_key(|(_, value)| self.lives[*value as usize].taken_call());
            let Some(&(_, value)) = longest else { break };
            let life = &self.lives[value as usize];
            let Some(put) = life.put.filter(|_| life.taken_call() > reached) else {
                break;
            };
            inside.push((put.place, life.taken.map(|taken| taken.place)));
            reached = life.taken_call();
        }
        Pattern::NotEmpty {
            found: found.place,
            inside,
        }
    }
}
