//! Several generators of which the soonest goes first: what `any`, `reserve` and `each_thread`
//! have in common.

use super::{Context, Generator, Next, Threads, Update};

/// Generators side by side, each with threads of its own or with all of them.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    parts: Vec<Part>,
    /// Who is asked first, so that parts take turns where none is sooner.
    turn: usize,
    proposed: usize,
    scratch: Context,
}

#[derive(Debug, Clone)]
struct Part {
    generator: Box<dyn Generator>,
    threads: Option<Threads>,
    done: bool,
}

impl Parts {
    /// Generators that share all threads.
    pub(super) fn sharing(generators: impl IntoIterator<Item = Box<dyn Generator>>) -> Parts {
        Parts::new(generators.into_iter().map(|generator| (None, generator)))
    }

    /// Generators that each see only threads of their own.
    pub(super) fn partitioned(
        generators: impl IntoIterator<Item = (Threads, Box<dyn Generator>)>,
    ) -> Parts {
        let parts = generators.into_iter();
        Parts::new(parts.map(|(threads, generator)| (Some(threads), generator)))
    }

    fn new(parts: impl Iterator<Item = (Option<Threads>, Box<dyn Generator>)>) -> Parts {
        let parts = parts.map(|(threads, generator)| Part {
            generator,
            threads,
            done: false,
        });
        Parts {
            parts: parts.collect(),
            turn: 0,
            proposed: 0,
            scratch: Context::new(0),
        }
    }

    pub(super) fn next(&mut self, context: &Context) -> Next {
        let mut soonest: Option<(u64, super::Invocation)> = None;
        let mut until = u64::MAX;
        let mut alive = false;
        let count = self.parts.len();
        for index in (self.turn..count).chain(0..self.turn) {
            let part = &mut self.parts[index];
            if part.done {
                continue;
            }
            match part.next(context, &mut self.scratch) {
                Next::Op { at, op } if soonest.as_ref().is_none_or(|&(best, _)| at < best) => {
                    self.proposed = index;
                    if at <= context.time {
                        return Next::Op { at, op };
                    }
                    soonest = Some((at, op));
                }
                Next::Op { .. } => {}
                Next::Pending { until: when } => {
                    alive = true;
                    until = until.min(when);
                }
                Next::Done => part.done = true,
            }
        }
        match soonest {
            // Before that time another part may have something sooner.
            Some((at, _)) if until < at => Next::Pending { until },
            Some((at, op)) => Next::Op { at, op },
            None if alive => Next::Pending { until },
            None => Next::Done,
        }
    }

    pub(super) fn accept(&mut self) {
        self.parts[self.proposed].generator.accept();
        self.turn = self.proposed + 1;
    }

    pub(super) fn update(&mut self, update: &Update<'_>) {
        for part in &mut self.parts {
            let concerned = part
                .threads
                .as_ref()
                .is_none_or(|threads| threads.contains(update.thread));
            if concerned && !part.done {
                part.generator.update(update);
            }
        }
    }
}

impl Part {
    fn next(&mut self, context: &Context, scratch: &mut Context) -> Next {
        let Some(threads) = &self.threads else {
            return self.generator.next(context);
        };
        scratch.restrict(context, threads);
        if scratch.free.is_empty() {
            // Whatever it would say, it could not be done before one of its threads is free.
            return Next::PENDING;
        }
        self.generator.next(scratch)
    }
}
