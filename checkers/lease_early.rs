//! `lease-early`: a lease lasts as long as was promised to its holder.

use std::collections::BTreeSet;

use history::{EventRef, History};
use rustc_hash::FxHashMap;

use crate::actors;
use crate::holds::{self, ClockError, Drift, Hold, Holds};
use crate::params::Param;
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// A lease lasts as long as was promised.
pub struct LeaseEarly;

impl Checker for LeaseEarly {
    fn name(&self) -> &'static str {
        "lease-early"
    }

    fn promise(&self) -> &'static str {
        "Nobody else gets a lease, and its holder is not told that it is gone, before the \
         holder's own ttl has passed since its last acknowledged renewal."
    }

    fn method(&self) -> &'static str {
        "A lease must last until ttl minus drift after the last renewal (else the acquire) that \
         was acknowledged was asked for; the ttl is the holder's own. Where that is compared with \
         the grant to another, the error of their clocks is taken off. It ended early if another \
         process is told of its own grant before that, or if a renewal is refused as `not-held` \
         before that. A holder that asked for its release or was killed is no longer owed the \
         lease; that it said `lost` is no excuse. One sweep with an ordered set of deadlines per \
         lock: O(n log n). Source: etcd issues 15247, 12528 and 6700, Kubernetes issue 47671."
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                default: "it is not a lease",
                ..holds::TTL
            },
            Drift::PARAM,
            ClockError::PARAM,
            actors::THREADS,
            actors::CLIENTS,
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("leases", "grants with a time to live"),
            ("renewals", "renewals of them that were acknowledged"),
            ("given_early", "grants to another before the lease was over"),
            (
                "refused_early",
                "renewals refused as not held before the lease was over",
            ),
            ("early_ms_max", "how much too early at most"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let holds = Holds::of(history);
        let drift = Drift::of_header(history);
        let leases = holds.holds.iter().filter(|hold| hold.ttl.is_some()).count();
        if leases == 0 {
            return Checked::unknown(Reason::NotApplicable(
                "no lease with a time to live was granted".to_owned(),
            ));
        }
        let found = sweep(&holds, drift, ClockError::of_header(history));
        let given = found.iter().filter(|early| early.to.is_some()).count();
        let early_max = found
            .iter()
            .map(|early| early.deadline - early.event.time())
            .max();
        let result = match found.first() {
            None => Checked::valid(),
            Some(early) => tell(history, &holds, early),
        };
        result
            .count("leases", leases as u64)
            .count(
                "renewals",
                holds
                    .holds
                    .iter()
                    .map(|hold| hold.renewals.len() as u64)
                    .sum(),
            )
            .count("given_early", given as u64)
            .count("refused_early", (found.len() - given) as u64)
            .count("early_ms_max", words::ms(early_max.unwrap_or(0)))
    }
}

/// A lease that ended too early.
struct Early<'h> {
    hold: usize,
    /// The hold of the one who got it; `None` if the holder was refused its renewal.
    to: Option<usize>,
    /// The answer that shows it.
    event: EventRef<'h>,
    deadline: u64,
}

#[derive(Clone, Copy)]
enum Point {
    Granted,
    Renewed(usize),
    /// The holder is no longer owed the lease.
    GivenUp,
    Refused,
}

/// The live leases of one lock by deadline, and the deadline of each thread.
#[derive(Default)]
struct Owed {
    by_deadline: BTreeSet<(u64, u32, usize)>,
    of_owner: FxHashMap<u32, (u64, usize)>,
}

impl Owed {
    fn set(&mut self, owner: u32, deadline: Option<u64>, hold: usize) {
        if let Some((old, old_hold)) = self.of_owner.remove(&owner) {
            self.by_deadline.remove(&(old, owner, old_hold));
        }
        if let Some(deadline) = deadline {
            self.of_owner.insert(owner, (deadline, hold));
            self.by_deadline.insert((deadline, owner, hold));
        }
    }

    /// Forgets a lease, if it is still the one that its owner is owed.
    fn drop_hold(&mut self, owner: u32, hold: usize) {
        if self
            .of_owner
            .get(&owner)
            .is_some_and(|&(_, owed)| owed == hold)
        {
            self.set(owner, None, hold);
        }
    }

    /// The lease that lasts longest among those of others; a thread has one at most.
    fn longest_of_others(&self, owner: u32) -> Option<(u64, usize)> {
        let mut others = self.by_deadline.iter().rev();
        others
            .find(|&&(_, other, _)| other != owner)
            .map(|&(deadline, _, hold)| (deadline, hold))
    }
}

fn points(holds: &[Hold<'_>]) -> Vec<(usize, usize, Point)> {
    let mut points = Vec::with_capacity(holds.len() * 2);
    for (index, hold) in holds.iter().enumerate() {
        points.push((hold.granted.index(), index, Point::Granted));
        for (at, renewal) in hold.renewals.iter().enumerate() {
            if let Some(answer) = renewal.op.completion {
                points.push((answer.index(), index, Point::Renewed(at)));
            }
        }
        // That it is lost or was refused a token makes the holder no less entitled to its lease.
        if let Some(event) = hold.refused {
            points.push((event.index(), index, Point::Refused));
        }
        if let Some(event) = hold.given_up {
            points.push((event.index(), index, Point::GivenUp));
        }
    }
    points.sort_by_key(|&(event, hold, _)| (event, hold));
    points
}

fn sweep<'h>(holds: &Holds<'h>, drift: Drift, clocks: ClockError) -> Vec<Early<'h>> {
    let holds = &holds.holds;
    let mut owed: FxHashMap<u32, Owed> = FxHashMap::default();
    let mut found = Vec::new();
    for (_, index, point) in points(holds) {
        let hold = &holds[index];
        let owed = owed.entry(hold.key).or_default();
        match point {
            Point::Granted => {
                let now = hold.granted.time();
                if let Some((deadline, other)) = owed.longest_of_others(hold.owner)
                    && let deadline = clocks.sooner(deadline)
                    && deadline > now
                {
                    found.push(Early {
                        hold: other,
                        to: Some(index),
                        event: hold.granted,
                        deadline,
                    });
                }
                owed.set(hold.owner, hold.deadline_after(None, drift), index);
            }
            Point::Renewed(at) => {
                let deadline = hold.deadline_after(Some(&hold.renewals[at]), drift);
                owed.set(hold.owner, deadline, index);
            }
            Point::GivenUp => owed.drop_hold(hold.owner, index),
            Point::Refused => {
                owed.drop_hold(hold.owner, index);
                if let (Some(deadline), Some(event)) = (hold.deadline(drift), hold.refused)
                    && deadline > event.time()
                {
                    found.push(Early {
                        hold: index,
                        to: None,
                        event,
                        deadline,
                    });
                }
            }
        }
    }
    found
}

fn tell(history: &History, holds: &Holds<'_>, early: &Early<'_>) -> Checked {
    let hold = &holds.holds[early.hold];
    let holder = words::who(hold.granted);
    let of = words::of_key(history, hold.key);
    let mut story = Story::default();
    let ttl = |ttl: Option<u64>| words::span(ttl.unwrap_or(0));
    story.tell(
        hold.granted,
        format!("{holder} gets the lease{of} for {}", ttl(hold.ttl)),
    );
    let renewed = hold.renewals.iter().rfind(|renewal| {
        renewal
            .op
            .completion
            .is_some_and(|answer| answer.index() < early.event.index())
    });
    if let Some(renewal) = renewed {
        story.tell(
            renewal.op.invoke,
            format!("{holder} asks for a renewal of {}", ttl(renewal.ttl)),
        );
        if let Some(answer) = renewal.op.completion {
            story.tell(
                answer,
                format!(
                    "it is acknowledged: the lease lasts until {} at least",
                    words::span(early.deadline)
                ),
            );
        }
    }
    let by = words::span(early.deadline - early.event.time());
    let summary = match early.to {
        Some(to) => {
            let other = &holds.holds[to];
            let taker = words::who(other.granted);
            story.tell(
                other.acquire.invoke,
                format!("{taker} asks for the lease{of}"),
            );
            story.tell(other.granted, format!("{taker} gets it, {by} too early"));
            format!("{taker} got the lease{of} at least {by} before that of {holder} was over")
        }
        None => {
            story.tell(
                early.event,
                format!("a renewal is refused as not held, {by} before the lease was over"),
            );
            format!("the lease{of} of {holder} was gone at least {by} before it was over")
        }
    };
    story.tell_faults(history, hold.granted.index()..early.event.index());
    Checked::invalid(story.finish(summary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        LeaseEarly.check(&script::history("lock", text), &Budget::unlimited())
    }

    const RENEWED: &str = r#"
        param drift_ms 500
        0-100 A acquire L {"ttl_ms":4000} -> {"token":1}
        2000-2200 A renew L {"ttl_ms":4000} -> null
        5000-5600 B acquire L {"ttl_ms":4000} -> {"token":2}"#;

    #[test]
    fn a_lease_given_away_too_early_is_convicted() {
        assert_eq!(check(RENEWED).verdict, Verdict::Valid);
        let found = check(&RENEWED.replace("5600", "5400"));
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(found.counted("early_ms_max"), Some(100));
        let told = found.counterexample.unwrap();
        assert_eq!(
            told.summary,
            "B got the lease of L at least 100 ms before that of A was over"
        );
        assert_eq!(told.rows.len(), 5);
    }

    #[test]
    fn clocks_that_differ_excuse_as_much() {
        let early = RENEWED.replace("5600", "5400");
        let by_clocks = |error: u64| check(&format!("param clock_error_ms {error}\n{early}"));
        assert_eq!(by_clocks(99).verdict, Verdict::Invalid);
        assert_eq!(by_clocks(99).counted("early_ms_max"), Some(1));
        assert_eq!(by_clocks(100).verdict, Verdict::Valid);
    }

    #[test]
    fn the_holder_s_own_ttl_counts() {
        let text = r#"
            0-100 A acquire L {"ttl_ms":30000} -> {"token":1}
            10500-10600 B acquire L {"ttl_ms":10000} -> {"token":2}"#;
        assert_eq!(check(text).verdict, Verdict::Invalid);
        assert_eq!(
            check(&text.replace("-> {\"token\":1}", "-> {\"token\":1,\"ttl_ms\":10000}")).verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn a_renewal_refused_in_time_is_convicted() {
        let text = r#"
            param drift_ms 0
            0-100 A acquire L {"ttl_ms":4000} -> {"token":1}
            2000-2200 A renew L {"ttl_ms":4000} -> null
            3000-3100 A renew L {"ttl_ms":4000} -> fail not-held"#;
        assert_eq!(check(text).counted("refused_early"), Some(1));
        assert_eq!(
            check(&text.replace("3000-3100", "6000-6100")).verdict,
            Verdict::Valid
        );
        assert_eq!(
            check(&text.replace("not-held", "not-leader")).verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn a_client_that_says_lost_while_it_is_refused_hides_nothing() {
        let text = r#"
            param threads 2
            param drift_ms 0
            0-100 0 acquire L {"ttl_ms":4000} -> {"token":1}
            3000-3100 0 renew L {"ttl_ms":4000,"token":1} -> fail not-held
            3050 0 lost L {"token":1}"#;
        assert_eq!(check(text).counted("refused_early"), Some(1));
        // It had said so before: what is refused then may be the client's own matter.
        assert_eq!(check(&text.replace("3050", "2000")).verdict, Verdict::Valid);
    }

    #[test]
    fn who_releases_or_dies_is_owed_nothing_and_who_loses_is() {
        let text = |end: &str| format!("{}\n{end}", RENEWED.replace("5000-5600", "4000-4100"));
        assert_eq!(
            check(&text("3000-3100 A release L")).verdict,
            Verdict::Valid
        );
        assert_eq!(
            check(&text("3000 nemesis die - {\"target\":\"A\"}")).verdict,
            Verdict::Valid
        );
        assert_eq!(check(&text("3000 A lost L")).verdict, Verdict::Invalid);
        let gave_up = text("3000 A lost L\n3100-3200 A release L");
        assert_eq!(check(&gave_up).verdict, Verdict::Valid);
    }
}
