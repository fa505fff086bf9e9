//! `lease-stuck`: a lock whose holder stopped can be had again.
//!
//! A lock that nobody asked for is not stuck; only refusals convict. Where an unanswered request
//! may hold the lock, or no majority of servers was connected, nobody is convicted.

use history::{EventRef, History, Kind, NONE, Op, Outcome};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::faults::{Spans, faults, join, outages};
use crate::holds::{self, ACQUIRES, ClockError, is_grant, says_held, ttl_of};
use crate::observations::changes;
use crate::params::{Param, Takes};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

const SLACK_DEFAULT: u64 = 10_000_000_000;

/// A lock whose holder stopped can be had again.
pub struct LeaseStuck;

impl Checker for LeaseStuck {
    fn name(&self) -> &'static str {
        "lease-stuck"
    }

    fn promise(&self) -> &'static str {
        "Once its holder released it, died or stopped to renew it, a lock can be had again after \
         ttl plus slack at the latest."
    }

    fn method(&self) -> &'static str {
        "The last sign of life of a lock is the latest grant or renewal of it that happened or \
         may have happened (an unanswered one until the faults are over under which it was given \
         up); a new leader and the end of an outage of the majority count as one, since a service \
         may then begin to count anew. An acquire that is asked for later than \
         ttl, slack and the error of clocks after that, and is refused because the lock is held, \
         convicts. One pass: \
         O(n). Source: etcd issues 12291, 13019 and 12381."
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                default: "it never expires and is not judged before it is released",
                ..holds::TTL
            },
            Param {
                name: "slack_ms",
                takes: Takes::Ms,
                default: "once more its ttl (10 s without one)",
                about: "how much later than its ttl a lease may end",
            },
            ClockError::PARAM,
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("grants", "locks granted"),
            ("refused", "acquires refused because the lock was held"),
            (
                "refused_too_late",
                "refused though the lock must have been free",
            ),
            (
                "refused_after_ms_max",
                "longest time from the last sign of life of a lock to a refusal",
            ),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let mut sweep = Sweep::new(history);
        for event in history.events() {
            sweep.read(event);
        }
        if sweep.grants == 0 {
            return Checked::unknown(Reason::NotApplicable("no lock was granted".to_owned()));
        }
        let result = match &sweep.first {
            None => Checked::valid(),
            Some(stuck) => tell(history, stuck),
        };
        result
            .count("grants", sweep.grants)
            .count("refused", sweep.refused)
            .count("refused_too_late", sweep.refused_late)
            .count("refused_after_ms_max", words::ms(sweep.refused_after_max))
    }
}

/// What is known of one lock so far.
#[derive(Default)]
struct Lock<'h> {
    /// The last request that gave or may have given the lock, and when its lease is over.
    last: Option<Op<'h>>,
    last_time: u64,
    over: u64,
    /// The longest time to live that was asked for or granted.
    ttl: u64,
    /// Processes that hold the lock without a time to live.
    forever: FxHashSet<u32>,
    granted: bool,
}

struct Stuck<'h> {
    key: u32,
    last: Option<Op<'h>>,
    since: u64,
    refused: Op<'h>,
    ttl: u64,
    slack: u64,
}

struct Sweep<'h> {
    ttl_default: Option<u64>,
    slack: Option<u64>,
    clocks: ClockError,
    /// When a leader was replaced, and the outages of the majority.
    leaders: Vec<u64>,
    outages: Spans,
    /// When any fault was on.
    hurt: Spans,
    locks: FxHashMap<u32, Lock<'h>>,
    grants: u64,
    refused: u64,
    refused_late: u64,
    refused_after_max: u64,
    first: Option<Stuck<'h>>,
}

impl<'h> Sweep<'h> {
    fn new(history: &'h History) -> Sweep<'h> {
        let seen = changes(history);
        let mut leaders: Vec<u64> = seen.leaders.iter().map(|event| event.time()).collect();
        leaders.extend(seen.terms.iter().skip(1).map(|(_, event)| event.time()));
        leaders.sort_unstable();
        let faults = faults(history);
        let spans = faults
            .iter()
            .map(|fault| (fault.begin_time(), fault.end_time()));
        Sweep {
            ttl_default: history.header.param_ms("ttl_ms"),
            slack: history.header.param_ms("slack_ms"),
            clocks: ClockError::of_header(history),
            leaders,
            outages: outages(&faults),
            hurt: join(spans.collect()),
            locks: FxHashMap::default(),
            grants: 0,
            refused: 0,
            refused_late: 0,
            refused_after_max: 0,
            first: None,
        }
    }

    fn read(&mut self, event: EventRef<'h>) {
        let (invoke, f) = match event.kind() {
            Kind::Invoke => (event, event.f()),
            _ => match event.partner() {
                Some(invoke) => (invoke, event.f()),
                None => return,
            },
        };
        let op = invoke.op();
        let asks = event.kind() == Kind::Invoke;
        if ACQUIRES.contains(&f) {
            let granted = op.output().is_some_and(is_grant);
            if asks && (granted || op.outcome() == Outcome::Info) {
                self.sign(op, granted);
            } else if !asks && says_held(&op) {
                self.judge(op, event.time());
            }
        } else if f == "renew" && asks && op.outcome() != Outcome::Fail {
            self.sign(op, false);
        } else if f == "release" && op.is_ok() {
            let lock = self.locks.entry(op.key_id().unwrap_or(NONE)).or_default();
            lock.forever.remove(&op.process_id());
        }
    }

    /// A request that gave or may have given the lock. It counts from where it was asked for,
    /// because another may be refused for its sake before it is answered.
    fn sign(&mut self, op: Op<'h>, granted: bool) {
        let answered = self.over(&op);
        let lock = self.locks.entry(op.key_id().unwrap_or(NONE)).or_default();
        let ttl = op
            .output()
            .and_then(ttl_of)
            .or_else(|| ttl_of(op.input()))
            .or(self.ttl_default);
        let renews = op.f() == "renew";
        match ttl {
            Some(ttl) => {
                lock.ttl = lock.ttl.max(ttl);
                lock.over = lock.over.max(answered.saturating_add(ttl));
            }
            None if renews => lock.over = lock.over.max(answered.saturating_add(lock.ttl)),
            None if granted => {
                lock.forever.insert(op.process_id());
            }
            None => lock.over = u64::MAX,
        }
        if granted {
            self.grants += 1;
            lock.granted = true;
        }
        lock.last = Some(op);
        lock.last_time = lock.last_time.max(answered);
    }

    /// When a request can no longer take effect: at its answer; without one, when it was given
    /// up, but not before the faults under which it was given up are over, since it may have
    /// waited at a server that was frozen or cut off.
    fn over(&self, op: &Op<'h>) -> u64 {
        let Some(end) = op.completion.map(EventRef::time) else {
            return u64::MAX;
        };
        if op.outcome() != Outcome::Info {
            return end;
        }
        let begun = self.hurt.partition_point(|span| span.0 <= end);
        let last = begun.checked_sub(1).map(|at| self.hurt[at]);
        last.filter(|span| span.1 >= op.start())
            .map_or(end, |span| span.1.max(end))
    }

    fn judge(&mut self, op: Op<'h>, now: u64) {
        self.refused += 1;
        let key = op.key_id().unwrap_or(NONE);
        let lock = self.locks.entry(key).or_default();
        if !lock.granted || !lock.forever.is_empty() {
            return;
        }
        let after = now.saturating_sub(lock.last_time);
        self.refused_after_max = self.refused_after_max.max(after);
        let leader = self.leaders.partition_point(|&time| time <= now);
        let outage = self.outages.partition_point(|span| span.0 <= now);
        let anew = [
            leader.checked_sub(1).map(|at| self.leaders[at]),
            outage.checked_sub(1).map(|at| self.outages[at].1),
        ];
        let anew = anew.into_iter().flatten().max();
        let counted = anew.map_or(0, |time| time.saturating_add(lock.ttl));
        let default = if lock.ttl == 0 {
            SLACK_DEFAULT
        } else {
            lock.ttl
        };
        let slack = self.slack.unwrap_or(default);
        let free = lock.over.max(counted).saturating_add(slack);
        if op.start() > self.clocks.later(free) {
            self.refused_late += 1;
            self.first.get_or_insert(Stuck {
                key,
                last: lock.last,
                since: lock.last_time,
                refused: op,
                ttl: lock.ttl,
                slack,
            });
        }
    }
}

fn tell(history: &History, stuck: &Stuck<'_>) -> Checked {
    let mut story = Story::default();
    let of = words::of_key(history, stuck.key);
    let mut from = stuck.refused.invoke.index();
    if let Some(last) = stuck.last {
        from = last.invoke.index();
        let event = last.completion.unwrap_or(last.invoke);
        story.tell(
            event,
            format!(
                "{} of {}{of}: the last sign of life of the lock",
                last.f(),
                words::who(event)
            ),
        );
    }
    let who = words::who(stuck.refused.invoke);
    let late = words::span(stuck.refused.start().saturating_sub(stuck.since));
    story.tell(
        stuck.refused.invoke,
        format!("{who} asks for the lock, {late} later"),
    );
    if let Some(refusal) = stuck.refused.completion {
        story.tell(refusal, "it is refused: the lock is said to be held");
    }
    for event in history
        .events()
        .take(stuck.refused.invoke.index())
        .skip(from)
    {
        if event.kind() == Kind::Invoke
            && event.f() == "release"
            && event.key_id().unwrap_or(NONE) == stuck.key
        {
            story.tell(event, format!("{} asks for its release", words::who(event)));
        }
    }
    story.tell_faults(history, from..stuck.refused.invoke.index());
    Checked::invalid(story.finish(format!(
        "the lock{of} was refused to {who} as held {late} after its last sign of life, with a ttl of {} and a slack of {}",
        words::span(stuck.ttl),
        words::span(stuck.slack)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        LeaseStuck.check(&script::history("lock", text), &Budget::unlimited())
    }

    const STUCK: &str = r#"
        0-100 A acquire L {"ttl_ms":10000} -> {"token":1}
        30000-30100 B acquire L {"ttl_ms":10000} -> fail held"#;

    #[test]
    fn a_lock_that_stays_taken_is_convicted() {
        let found = check(STUCK);
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(found.counted("refused_after_ms_max"), Some(30_000));
        assert_eq!(
            check(&STUCK.replace("30000-30100", "20000-20100")).verdict,
            Verdict::Valid
        );
        assert_eq!(
            check(&format!("param slack_ms 25000\n{STUCK}")).verdict,
            Verdict::Valid
        );
        assert_eq!(
            check(&STUCK.replace("held", "not-leader")).verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn whatever_may_hold_the_lock_excuses() {
        for excuse in [
            "15000-15100 A renew L {\"ttl_ms\":10000} -> info timeout",
            "25000-25100 C acquire L {\"ttl_ms\":10000} -> info timeout",
            "25000- C acquire L {\"ttl_ms\":10000}",
            "500-600 C acquire L {\"ttl_ms\":10000} -> info timeout\n550 nemesis freeze - {\"id\":1,\"phase\":\"begin\",\"target\":\"n1\"}\n12000 nemesis freeze - {\"id\":1,\"phase\":\"end\"}",
            "30050-30200 C acquire L {\"ttl_ms\":10000} -> {\"token\":2}",
            "1 observer leader - {\"leader\":\"n1\",\"term\":1}\n15000 observer leader - {\"leader\":\"n2\",\"term\":2}",
            "500 nemesis cut - {\"id\":1,\"phase\":\"begin\",\"majority\":false}\n20000 nemesis cut - {\"id\":1,\"phase\":\"end\"}",
        ] {
            let found = check(&format!("{STUCK}\n{excuse}"));
            assert_eq!(found.verdict, Verdict::Valid, "{excuse}");
        }
        let failed = "15000-15100 A renew L {\"ttl_ms\":10000} -> fail not-held";
        assert_eq!(
            check(&format!("{STUCK}\n{failed}")).verdict,
            Verdict::Invalid
        );
    }

    #[test]
    fn a_lock_without_ttl_is_judged_once_it_is_released() {
        let text = STUCK.replace("{\"ttl_ms\":10000}", "null");
        assert_eq!(check(&text).verdict, Verdict::Valid);
        let released = format!("{text}\n200-300 A release L null -> null");
        assert_eq!(check(&released).verdict, Verdict::Invalid);
    }
}
