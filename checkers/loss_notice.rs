//! `loss-notice`: a holder notices in time that it lost its lock.
//!
//! Time in which the holder's process was frozen does not count: it cannot notice anything then.
//! What it does in the moment after it wakes is the matter of `stale-writes`.

use history::{EventRef, History};

use crate::actors;
use crate::holds::{self, ClockError, Drift, End, Hold, Holds};
use crate::params::{Param, Takes};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

const BOUND_DEFAULT: u64 = 10_000_000_000;

/// A holder notices in time that it lost its lock.
pub struct LossNotice;

impl Checker for LossNotice {
    fn name(&self) -> &'static str {
        "loss-notice"
    }

    fn promise(&self) -> &'static str {
        "A holder stops to believe and to act within a bound after another was granted its lock \
         or its lease expired."
    }

    fn method(&self) -> &'static str {
        "A lock is lost where another process is told of its own grant of it, or ttl plus drift \
         after the holder's last attempt to renew that may have worked. The holder goes on where \
         it says `lost`, has a renewal refused as not held or its token refused as stale, or \
         does something under the lock that does not fail. More time between the two than the \
         bound, without the time in which the holder's process was frozen, convicts. A holder \
         that only releases, or is never heard of again, is not convicted. O(n). Source: Consul \
         issues 18271 and 1843."
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: "loss_bound_ms",
                takes: Takes::Ms,
                default: "`bound_ms`, else the ttl of the lease, else 10 s",
                about: "the bound",
            },
            Param {
                name: "bound_ms",
                takes: Takes::Ms,
                default: "none",
                about: "see `loss_bound_ms`",
            },
            holds::TTL,
            Drift::PARAM,
            ClockError::PARAM,
            actors::THREADS,
            actors::CLIENTS,
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("grants", "locks granted"),
            ("lost", "holds that were lost while their holder went on"),
            ("noticed_late", "of these, longer than the bound"),
            ("notice_ms_max", "longest time that a holder went on, awake"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let holds = Holds::of(history);
        if holds.holds.is_empty() {
            return Checked::unknown(Reason::NotApplicable("no lock was granted".to_owned()));
        }
        let header = &history.header;
        let bound = header
            .param_ms("loss_bound_ms")
            .or_else(|| header.param_ms("bound_ms"));
        let drift = Drift::of_header(history);
        let clocks = ClockError::of_header(history);
        let successors = successors(&holds);
        let mut first: Option<Late<'_>> = None;
        let (mut lost, mut late, mut longest) = (0, 0, 0);
        for (index, hold) in holds.holds.iter().enumerate() {
            let successor = successors[index].map(|next| &holds.holds[next]);
            let Some(found) = went_on(hold, successor, (drift, clocks), &holds) else {
                continue;
            };
            lost += 1;
            longest = longest.max(found.awake);
            if found.awake > bound.or(hold.ttl).unwrap_or(BOUND_DEFAULT) {
                late += 1;
                let earlier = |first: &Late<'_>| first.evidence.index() <= found.evidence.index();
                if !first.as_ref().is_some_and(earlier) {
                    first = Some(found);
                }
            }
        }
        let result = match first {
            None => Checked::valid(),
            Some(found) => tell(history, &found),
        };
        result
            .count("grants", holds.holds.len() as u64)
            .count("lost", lost)
            .count("noticed_late", late)
            .count("notice_ms_max", words::ms(longest))
    }
}

/// A holder that went on after its lock was lost.
struct Late<'h> {
    granted: EventRef<'h>,
    key: u32,
    /// The grant to another, if there was one before the holder stopped.
    successor: Option<EventRef<'h>>,
    lost_at: u64,
    /// What shows that it went on.
    evidence: EventRef<'h>,
    acts: bool,
    awake: u64,
}

/// For each hold, the next grant of the same lock to another process.
fn successors(holds: &Holds<'_>) -> Vec<Option<usize>> {
    let mut next: Vec<Option<usize>> = vec![None; holds.holds.len()];
    for group in holds.by_key() {
        for pair in group.windows(2).rev() {
            let (this, after) = (pair[0], pair[1]);
            let same = holds.holds[this].owner == holds.holds[after].owner;
            next[this] = if same { next[after] } else { Some(after) };
        }
    }
    next
}

fn went_on<'h>(
    hold: &Hold<'h>,
    successor: Option<&Hold<'h>>,
    (drift, clocks): (Drift, ClockError),
    holds: &Holds<'h>,
) -> Option<Late<'h>> {
    let noticed = match hold.end {
        // After these nothing shows that it believed on.
        Some((_, End::Released | End::Replaced | End::Died)) => return None,
        Some((event, End::Lost | End::RenewRefused | End::TokenRefused)) => Some(event),
        None => None,
    };
    let act = hold.last_act.map(|op| op.invoke);
    let evidence = noticed
        .into_iter()
        .chain(act)
        .max_by_key(|event| event.index())?;
    let granted_to_another = successor.map(|next| next.granted);
    let expired = hold.expired(drift).unwrap_or(u64::MAX);
    let lost_at =
        granted_to_another.map_or(expired, |event| clocks.later(event.time()).min(expired));
    if evidence.time() <= lost_at {
        return None;
    }
    Some(Late {
        granted: hold.granted,
        key: hold.key,
        successor: granted_to_another.filter(|event| event.index() < evidence.index()),
        lost_at,
        evidence,
        acts: act.is_some_and(|act| act.index() == evidence.index()),
        awake: holds.fates.awake(hold.owner, lost_at, evidence.time()),
    })
}

fn tell(history: &History, late: &Late<'_>) -> Checked {
    let mut story = Story::default();
    let holder = words::who(late.granted);
    let of = words::of_key(history, late.key);
    story.tell(late.granted, format!("{holder} gets the lock{of}"));
    let lost = match late.successor {
        Some(grant) => {
            let taker = words::who(grant);
            story.tell(grant, format!("{taker} gets it"));
            format!("{taker} got it at {}", words::at(grant.time()))
        }
        None => "its lease was over".to_owned(),
    };
    let awake = words::span(late.awake);
    let total = late.evidence.time().saturating_sub(late.lost_at);
    let frozen = if total > late.awake {
        format!(" (and {} frozen)", words::span(total - late.awake))
    } else {
        String::new()
    };
    let goes_on = if late.acts {
        format!("{holder} still does {} under the lock", late.evidence.f())
    } else {
        format!(
            "only now {holder} learns that it is lost ({})",
            late.evidence.f()
        )
    };
    story.tell(late.evidence, goes_on);
    story.tell_faults(history, late.granted.index()..late.evidence.index());
    Checked::invalid(story.finish(format!(
        "{holder} went on for {awake}{frozen} after it had lost the lock{of}: {lost}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        LossNotice.check(&script::history("lock", text), &Budget::unlimited())
    }

    const LATE: &str = r#"
        param bound_ms 2000
        param drift_ms 0
        param clients {"A":"c1"}
        0-100 A acquire L {"ttl_ms":5000} -> {"token":1}
        20000-20100 B acquire L {"ttl_ms":5000} -> {"token":2}
        40000-40100 A act L null -> null"#;

    #[test]
    fn a_holder_that_acts_on_is_convicted() {
        let found = check(LATE);
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(found.counted("notice_ms_max"), Some(34_900));
        assert_eq!(
            found.counterexample.unwrap().summary,
            "A went on for 34.9 s after it had lost the lock of L: B got it at 20.100 s"
        );
        assert_eq!(
            check(&LATE.replace("40000-40100", "7000-7100")).verdict,
            Verdict::Valid
        );
        assert_eq!(
            check(&LATE.replace("A act L null -> null", "A act L null -> fail expired")).verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn time_frozen_does_not_count() {
        let text = format!(
            "{LATE}\n{}",
            r#"3000 nemesis freeze - {"id":1,"phase":"begin","target":"c1","verified":true}
               39000 nemesis freeze - {"id":1,"phase":"end","target":"c1"}"#
        );
        assert_eq!(check(&text).verdict, Verdict::Valid);
        assert_eq!(
            check(&text.replace("39000", "37000")).verdict,
            Verdict::Invalid
        );
    }

    #[test]
    fn noticing_late_is_going_on() {
        let text = LATE.replace("40000-40100 A act L null -> null", "40000 A lost L");
        assert_eq!(check(&text).verdict, Verdict::Invalid);
        assert_eq!(
            check(&text.replace("40000", "6000")).verdict,
            Verdict::Valid
        );
        assert_eq!(
            check(&text.replace("40000 A lost L", "40000-40100 A release L")).verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn one_s_own_next_grant_is_no_loss() {
        let text = r#"
            param bound_ms 2000
            param drift_ms 0
            0-100 A acquire L {"ttl_ms":10000} -> {"token":1}
            200 A lost L
            300-400 A acquire L {"ttl_ms":10000} -> {"token":2}
            5000-5100 A put r {"v":1,"token":1} -> {"v":1}"#;
        assert_eq!(check(text).verdict, Verdict::Valid);
        let by_another = text.replace("300-400 A", "300-400 B");
        assert_eq!(check(&by_another).verdict, Verdict::Invalid);
    }
}
