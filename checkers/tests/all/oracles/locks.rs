//! The checkers of locks and leases against their definitions, over all pairs.

use history::{EventRef, History, Kind, Op, Outcome};
use proptest::prelude::*;
use serde_json::json;

use super::{answered, check, convicts, int, is_answer, ops};
use crate::made::{cases, header, history, lock_steps};

const GUARDED: [&str; 4] = ["put", "delete", "act", "fence"];

/// A grant, with where and why it ended for its holder.
struct Grant<'h> {
    op: Op<'h>,
    event: EventRef<'h>,
    token: Option<i64>,
    end: Option<(EventRef<'h>, &'static str)>,
}

fn is_grant(op: &Op<'_>) -> bool {
    op.f() == "acquire"
        && op
            .output()
            .is_some_and(|answer| answer.get("token").is_none_or(|token| !token.is_null()))
}

fn same_key(a: EventRef<'_>, b: EventRef<'_>) -> bool {
    a.key_id() == b.key_id()
}

fn grants(history: &History) -> Vec<Grant<'_>> {
    let mut answers: Vec<EventRef<'_>> = history
        .events()
        .filter(|event| is_answer(*event) && is_grant(&event.partner().expect("asked").op()))
        .collect();
    answers.sort_by_key(|event| event.index());
    answers
        .iter()
        .enumerate()
        .map(|(at, &event)| Grant {
            op: event.partner().expect("asked").op(),
            event,
            token: int(event.value(), "token"),
            end: history
                .events()
                .skip(event.index() + 1)
                .find_map(|later| Some((later, ends(&answers, at, later)?))),
        })
        .collect()
}

/// The grant, by its place, under which an invocation or an unasked event is done.
fn under(answers: &[EventRef<'_>], event: EventRef<'_>) -> Option<usize> {
    let before = |at: &usize| answers[*at].index() < event.index();
    let places = || (0..answers.len()).rev().filter(before);
    let own = |at: &usize| answers[*at].process_id() == event.process_id();
    let Some(token) = int(event.value(), "token") else {
        return places().find(|at| own(at) && same_key(answers[*at], event));
    };
    let with_token = |at: &usize| int(answers[*at].value(), "token") == Some(token);
    places()
        .find(|at| with_token(at) && same_key(answers[*at], event))
        .or_else(|| places().find(|at| with_token(at) && own(at)))
}

/// Whether an event ends the grant at this place, and why.
fn ends(answers: &[EventRef<'_>], at: usize, event: EventRef<'_>) -> Option<&'static str> {
    let grant = answers[at];
    let replaced = answers[at + 1..].iter().any(|later| {
        later.index() == event.index()
            && later.process_id() == grant.process_id()
            && same_key(*later, grant)
    });
    if replaced {
        return Some("replaced");
    }
    let asked = if is_answer(event) {
        event.partner()?
    } else {
        event
    };
    let under = if event.is_unasked() || event.kind() == Kind::Invoke {
        under(answers, event)
    } else {
        under_at(answers, asked, event.index())
    };
    if under != Some(at) {
        return None;
    }
    match (event.f(), event.kind(), event.error()) {
        ("lost", Kind::Info, _) => Some("lost"),
        ("release", Kind::Invoke, _) => Some("released"),
        ("renew", Kind::Fail, None | Some("not-held")) => Some("refused"),
        (f, Kind::Fail, Some("stale-token")) if GUARDED.contains(&f) => Some("stale"),
        (f, Kind::Fail, Some("not-held" | "deadline-passed")) if GUARDED.contains(&f) => {
            Some("lost")
        }
        _ => None,
    }
}

/// As [`under`], judged by what had been granted when the answer came.
fn under_at(answers: &[EventRef<'_>], asked: EventRef<'_>, now: usize) -> Option<usize> {
    let known = answers.partition_point(|event| event.index() < now);
    let places = || (0..known).rev();
    let own = |at: &usize| answers[*at].process_id() == asked.process_id();
    let Some(token) = int(asked.value(), "token") else {
        return places().find(|at| own(at) && same_key(answers[*at], asked));
    };
    let with_token = |at: &usize| int(answers[*at].value(), "token") == Some(token);
    places()
        .find(|at| with_token(at) && same_key(answers[*at], asked))
        .or_else(|| places().find(|at| with_token(at) && own(at)))
}

impl<'h> Grant<'h> {
    fn end_index(&self) -> usize {
        self.end.map_or(usize::MAX, |(event, _)| event.index())
    }

    /// The last renewal that was acknowledged to it before an event.
    fn renewal(&self, history: &'h History, all: &[Grant<'h>], before: usize) -> Option<Op<'h>> {
        let answers: Vec<EventRef<'h>> = all.iter().map(|grant| grant.event).collect();
        let this = all
            .iter()
            .position(|grant| grant.event.index() == self.event.index());
        ops(history, &["renew"])
            .into_iter()
            .filter(|op| op.is_ok() && answered(*op) < before.min(self.end_index()))
            .filter(|op| under_at(&answers, op.invoke, answered(*op)) == this)
            .max_by_key(|op| answered(*op))
    }

    /// When its lease ends at the earliest, by what was acknowledged before an event; ms.
    fn deadline(&self, history: &'h History, all: &[Grant<'h>], before: usize) -> u64 {
        let renewal = self.renewal(history, all, before);
        let own = int(self.op.input(), "ttl_ms").unwrap_or(100);
        let deadline = match renewal {
            Some(op) => op.start() / 1_000_000 + int(op.input(), "ttl_ms").unwrap_or(own) as u64,
            None => self.op.start() / 1_000_000 + own as u64,
        };
        deadline.min(self.shortened(history, all))
    }

    /// When a request of its owner, after the last renewal that was acknowledged to it, may have
    /// ended its lease; ms.
    fn shortened(&self, history: &'h History, all: &[Grant<'h>]) -> u64 {
        let answers: Vec<EventRef<'h>> = all.iter().map(|grant| grant.event).collect();
        let this = all
            .iter()
            .position(|grant| grant.event.index() == self.event.index());
        let last = self.renewal(history, all, usize::MAX);
        let since = last.map_or(self.event.index(), answered);
        let own = int(self.op.input(), "ttl_ms").unwrap_or(100);
        ops(history, &["acquire", "renew"])
            .into_iter()
            .filter(|op| match op.outcome() {
                Outcome::Ok => op.f() == "renew" || is_grant(op),
                Outcome::Fail => false,
                Outcome::Info => true,
            })
            .filter(|op| since < op.invoke.index() && op.invoke.index() < self.end_index())
            .filter(|op| under(&answers, op.invoke) == this)
            .map(|op| {
                let default = if op.f() == "renew" { own } else { 100 };
                ms(op.invoke) + int(op.input(), "ttl_ms").unwrap_or(default) as u64
            })
            .min()
            .unwrap_or(u64::MAX)
    }
}

fn ms(event: EventRef<'_>) -> u64 {
    event.time() / 1_000_000
}

fn made(steps: &[crate::made::Step]) -> History {
    made_by_clocks(steps, 0)
}

/// The same, stamped by clocks that may be so many milliseconds apart.
fn made_by_clocks(steps: &[crate::made::Step], error: u64) -> History {
    let params = json!({
        "drift_ms": 0, "ttl_ms": 100, "slack_ms": 2, "loss_bound_ms": 2, "clock_error_ms": error,
    });
    history(header("lock", params), steps)
}

fn clock_error(history: &History) -> u64 {
    history.header.params["clock_error_ms"]
        .as_u64()
        .expect("it is given")
}

/// The certain hold of a grant, in ms: from, to.
fn certain<'h>(history: &'h History, all: &[Grant<'h>], grant: &Grant<'h>) -> (u64, u64) {
    let deadline = grant.deadline(history, all, usize::MAX);
    let end = grant
        .end
        .map_or(u64::MAX, |(event, _)| ms(event))
        .min(deadline);
    let next = grant
        .end
        .filter(|(_, why)| *why == "replaced")
        .map(|(event, _)| event);
    match next.and_then(|event| all.iter().find(|next| next.event.index() == event.index())) {
        // It goes on in the next one, if it lasted so long.
        Some(next) if end == ms(next.event) => {
            (ms(grant.event), certain(history, all, next).1.max(end))
        }
        _ => (ms(grant.event), end),
    }
}

fn two_hold(history: &History) -> bool {
    let error = clock_error(history);
    let all = grants(history);
    let other = |a: &Grant<'_>, b: &Grant<'_>| {
        same_key(a.event, b.event) && a.event.process_id() != b.event.process_id()
    };
    let clash = all.iter().any(|a| {
        all.iter().any(|b| {
            let (of_a, of_b) = (certain(history, &all, a), certain(history, &all, b));
            other(a, b) && (of_a.0.max(of_b.0)).saturating_add(error) < of_a.1.min(of_b.1)
        })
    });
    let acts = ops(history, &["act"]).into_iter().filter(Op::is_ok_ref);
    clash
        || acts.into_iter().any(|act| {
            let (from, to) = (ms(act.invoke), ms(act.completion.expect("answered")));
            all.iter().any(|grant| {
                let (since, until) = certain(history, &all, grant);
                same_key(grant.event, act.invoke)
                    && grant.event.process_id() != act.process_id()
                    && since + error <= from
                    && (to + error <= until || until == u64::MAX)
                    && since + error < until
            })
        })
}

/// `Op::is_ok` takes the operation by value, which a filter cannot.
trait IsOk {
    fn is_ok_ref(&self) -> bool;
}

impl IsOk for Op<'_> {
    fn is_ok_ref(&self) -> bool {
        self.is_ok()
    }
}

fn given_early(history: &History) -> u64 {
    let all = grants(history);
    let entitled = |a: &Grant<'_>, b: &Grant<'_>| {
        let given_up = history.events().take(b.event.index()).any(|event| {
            event.kind() == Kind::Invoke && event.f() == "release" && {
                let answers: Vec<EventRef<'_>> = all.iter().map(|grant| grant.event).collect();
                under(&answers, event).is_some_and(|at| all[at].event.index() == a.event.index())
            }
        });
        let replaced = all.iter().any(|c| {
            same_key(c.event, a.event)
                && c.event.process_id() == a.event.process_id()
                && a.event.index() < c.event.index()
                && c.event.index() < b.event.index()
        });
        let refused =
            refusal(history, &all, a).is_some_and(|event| event.index() < b.event.index());
        !given_up && !replaced && !refused
    };
    all.iter()
        .filter(|b| {
            all.iter().any(|a| {
                same_key(a.event, b.event)
                    && a.event.process_id() != b.event.process_id()
                    && a.event.index() < b.event.index()
                    && entitled(a, b)
                    && a.deadline(history, &all, b.event.index())
                        > ms(b.event) + clock_error(history)
            })
        })
        .count() as u64
}

/// Where a renewal of a hold was refused as not held while nothing else had ended it but `lost`.
fn refusal<'h>(history: &'h History, all: &[Grant<'h>], grant: &Grant<'h>) -> Option<EventRef<'h>> {
    let answers: Vec<EventRef<'h>> = all.iter().map(|grant| grant.event).collect();
    let mut found = None;
    for op in ops(history, &["renew"]) {
        let under = under_at(&answers, op.invoke, answered(op));
        let this = under.is_some_and(|at| all[at].event.index() == grant.event.index());
        if !this || op.outcome() != Outcome::Fail || op.error() != Some("not-held") {
            continue;
        }
        let counts = match grant.end {
            None => true,
            Some((event, why)) => {
                event.index() == answered(op)
                    || event.index() > answered(op)
                    || (why == "lost" && event.index() > op.invoke.index())
            }
        };
        if counts {
            found = op.completion;
        }
    }
    found
}

fn refused_early(history: &History) -> u64 {
    let all = grants(history);
    all.iter()
        .filter(|grant| {
            refusal(history, &all, grant)
                .is_some_and(|event| grant.deadline(history, &all, usize::MAX) > ms(event))
        })
        .count() as u64
}

/// Attempts that were refused though whatever may have held the lock was over.
fn refused_late(history: &History) -> u64 {
    let asks = ops(history, &["acquire", "renew"]);
    let says_held = |op: &Op<'_>| match op.outcome() {
        Outcome::Ok => !is_grant(op),
        Outcome::Fail => matches!(op.error(), None | Some("held")),
        Outcome::Info => false,
    };
    let gives = |op: &Op<'_>| match op.f() {
        "renew" => op.outcome() != Outcome::Fail,
        _ => is_grant(op) || op.outcome() == Outcome::Info,
    };
    asks.iter()
        .filter(|attempt| attempt.f() == "acquire" && says_held(attempt))
        .filter(|attempt| {
            let before: Vec<&Op<'_>> = asks
                .iter()
                .filter(|op| {
                    same_key(op.invoke, attempt.invoke)
                        && op.invoke.index() < answered(**attempt)
                        && gives(op)
                })
                .collect();
            let over = before.iter().map(|op| match op.completion {
                None => u64::MAX,
                Some(event) => ms(event) + int(op.input(), "ttl_ms").unwrap_or(100) as u64 + 2,
            });
            before.iter().any(|op| is_grant(op))
                && over.max().is_some_and(|over| {
                    ms(attempt.invoke) > over.saturating_add(clock_error(history))
                })
        })
        .count() as u64
}

/// Holders that went on for more than 2 ms after their lock was lost.
fn noticed_late(history: &History) -> u64 {
    let all = grants(history);
    let answers: Vec<EventRef<'_>> = all.iter().map(|grant| grant.event).collect();
    let late = |at: &usize| {
        let grant = &all[*at];
        let noticed = match grant.end {
            Some((_, "released" | "replaced")) => return false,
            Some((event, _)) => Some(event.index()),
            None => None,
        };
        let acted = ops(history, &GUARDED)
            .into_iter()
            .filter(|op| op.outcome() != Outcome::Fail && under(&answers, op.invoke) == Some(*at))
            .map(|op| op.invoke.index())
            .max();
        let Some(evidence) = noticed.max(acted) else {
            return false;
        };
        let successor = all
            .iter()
            .filter(|other| {
                same_key(other.event, grant.event)
                    && other.event.process_id() != grant.event.process_id()
                    && other.event.index() > grant.event.index()
            })
            .map(|other| ms(other.event) + clock_error(history))
            .min();
        let attempts = ops(history, &["renew"]).into_iter().filter(|op| {
            let ended_before = grant.end_index() < op.invoke.index();
            let ok_in_time = op.is_ok() && answered(*op) < grant.end_index();
            let info = op.completion.is_some() && op.outcome() == Outcome::Info;
            under_at(&answers, op.invoke, answered(*op)) == Some(*at)
                && !ended_before
                && (ok_in_time || info)
        });
        let last = attempts
            .map(|op| ms(op.completion.expect("answered")))
            .max();
        let ttl = match grant.renewal(history, &all, usize::MAX) {
            Some(op) => int(op.input(), "ttl_ms"),
            None => None,
        };
        let ttl = ttl.or(int(grant.op.input(), "ttl_ms")).unwrap_or(100) as u64;
        let expired = last.unwrap_or(0).max(ms(grant.event)) + ttl;
        let lost = successor.unwrap_or(u64::MAX).min(expired);
        ms(history.event(evidence)) > lost.saturating_add(2)
    };
    (0..all.len()).filter(late).count() as u64
}

/// Accepted guarded operations that were stale, and whether tokens were granted out of order.
fn stale(history: &History) -> (u64, bool) {
    let guarded: Vec<Op<'_>> = ops(history, &GUARDED);
    let token = |op: &Op<'_>| int(op.input(), "token");
    let accepted: Vec<&Op<'_>> = guarded
        .iter()
        .filter(|op| op.is_ok() && token(op).is_some())
        .collect();
    let gets: Vec<Op<'_>> = ops(history, &["get"])
        .into_iter()
        .filter(Op::is_ok_ref)
        .collect();
    let newer_before = |op: &Op<'_>| {
        let by_op = accepted.iter().any(|other| {
            same_key(other.invoke, op.invoke)
                && token(other) > token(op)
                && answered(**other) < op.invoke.index()
        });
        let by_get = gets.iter().any(|get| {
            same_key(get.invoke, op.invoke)
                && get.output().and_then(|answer| int(answer, "token")) > token(op)
                && answered(*get) < op.invoke.index()
        });
        by_op || by_get
    };
    let seq = |op: &Op<'_>| op.output().and_then(|answer| int(answer, "seq"));
    let order_holds = |key: Option<u32>| {
        let with_seq: Vec<&&Op<'_>> = accepted
            .iter()
            .filter(|op| op.key_id() == key && seq(op).is_some())
            .collect();
        with_seq.iter().all(|a| {
            with_seq.iter().all(|b| {
                let same = a.invoke.index() == b.invoke.index();
                same || (seq(a) != seq(b) && (answered(***a) > b.invoke.index() || seq(a) < seq(b)))
            })
        })
    };
    let by_seq = |op: &Op<'_>| {
        seq(op).is_some()
            && order_holds(op.key_id())
            && accepted.iter().any(|other| {
                same_key(other.invoke, op.invoke)
                    && seq(other).is_some()
                    && seq(other) < seq(op)
                    && token(other) > token(op)
            })
    };
    let proven = |op: &Op<'_>| {
        let (v, shown) = (op.input().get("v").map(|v| v.to_json()), token(op));
        op.f() == "put"
            && op.outcome() == Outcome::Info
            && gets.iter().any(|get| {
                let answer = get.output().expect("answered");
                let alone = guarded
                    .iter()
                    .filter(|other| {
                        other.f() == "put"
                            && same_key(other.invoke, op.invoke)
                            && token(other) == shown
                            && other.input().get("v").map(|v| v.to_json()) == v
                            && other.invoke.index() < answered(*get)
                    })
                    .count()
                    == 1;
                alone
                    && same_key(get.invoke, op.invoke)
                    && op.invoke.index() < answered(*get)
                    && int(answer, "token") == shown
                    && answer.get("v").map(|v| v.to_json()) == v
            })
    };
    let count = guarded
        .iter()
        .filter(|op| token(op).is_some())
        .filter(|op| {
            (op.is_ok() && (newer_before(op) || by_seq(op))) || (proven(op) && newer_before(op))
        })
        .count();
    let all = grants(history);
    let disorder = all.iter().any(|a| {
        all.iter().any(|b| {
            let twice = a.token.is_some()
                && a.token == b.token
                && a.event.process_id() != b.event.process_id();
            let back =
                a.event.index() < b.op.invoke.index() && a.token > b.token && b.token.is_some();
            same_key(a.event, b.event) && (twice || back)
        })
    });
    (count as u64, disorder)
}

/// Milliseconds in which two believed that they hold one lock.
fn two_believed(history: &History) -> u64 {
    let all = grants(history);
    let end = history.end() / 1_000_000;
    let keys: Vec<Option<u32>> = (0..history.key_count() as u32).map(Some).collect();
    let mut total = 0;
    for key in keys {
        for instant in 0..end {
            let mut who: Vec<u32> = all
                .iter()
                .filter(|grant| {
                    let until = grant.end.map_or(u64::MAX, |(event, _)| ms(event));
                    grant.event.key_id() == key && ms(grant.event) <= instant && instant < until
                })
                .map(|grant| grant.event.process_id())
                .collect();
            who.sort_unstable();
            who.dedup();
            total += u64::from(who.len() > 1);
        }
    }
    total
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn mutual_exclusion(steps in lock_steps(), error in 0u64..4) {
        let made = made_by_clocks(&steps, error);
        prop_assert_eq!(convicts("mutual-exclusion", &made), two_hold(&made));
    }

    #[test]
    fn lease_early(steps in lock_steps(), error in 0u64..4) {
        let made = made_by_clocks(&steps, error);
        let found = check("lease-early", &made);
        prop_assert_eq!(found.counted("given_early").unwrap_or(0), given_early(&made));
        prop_assert_eq!(found.counted("refused_early").unwrap_or(0), refused_early(&made));
        prop_assert_eq!(
            found.verdict == checkers::Verdict::Invalid,
            given_early(&made) + refused_early(&made) > 0
        );
    }

    #[test]
    fn lease_stuck(steps in lock_steps(), error in 0u64..4) {
        let made = made_by_clocks(&steps, error);
        let found = check("lease-stuck", &made);
        prop_assert_eq!(found.counted("refused_too_late").unwrap_or(0), refused_late(&made));
    }

    #[test]
    fn loss_notice(steps in lock_steps(), error in 0u64..4) {
        let made = made_by_clocks(&steps, error);
        let found = check("loss-notice", &made);
        prop_assert_eq!(found.counted("noticed_late").unwrap_or(0), noticed_late(&made));
    }

    #[test]
    fn stale_writes(steps in lock_steps()) {
        let made = made(&steps);
        let found = check("stale-writes", &made);
        let (count, disorder) = stale(&made);
        prop_assert_eq!(found.counted("stale_accepted").unwrap_or(0), count);
        prop_assert_eq!(found.counted("tokens_out_of_order").unwrap_or(0) > 0, disorder);
        prop_assert_eq!(found.verdict == checkers::Verdict::Invalid, count > 0 || disorder);
    }

    #[test]
    fn belief_is_counted(steps in lock_steps()) {
        let made = made(&steps);
        let found = check("split-brain", &made);
        prop_assert_eq!(found.counted("two_believed_ms").unwrap_or(0), two_believed(&made));
    }
}
