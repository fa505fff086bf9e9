//! `mutual-exclusion`: a lock has one holder at a time.
//!
//! Judged by what is certain. A holder that believes longer than its lease lasts is not convicted
//! for that (see `loss-notice`), unless it does something under the lock while another certainly
//! has it.

use history::{History, NONE, Op};
use rustc_hash::FxHashMap;

use crate::actors;
use crate::holds::{self, ClockError, Drift, End, Holds};
use crate::intervals::{Furthest, Interval, first_clash, overlap};
use crate::params::Param;
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// A lock has one holder at a time.
pub struct MutualExclusion;

impl Checker for MutualExclusion {
    fn name(&self) -> &'static str {
        "mutual-exclusion"
    }

    fn promise(&self) -> &'static str {
        "No two processes certainly hold the same lock at the same time, and none acts under it \
         while another certainly holds it."
    }

    fn method(&self) -> &'static str {
        "A hold is certain from the answer to its acquire until its release is asked for, its \
         holder learns that it is gone, or ttl minus drift after the last acknowledged renewal \
         (else the acquire) was asked for. Certain holds of one lock by different processes must \
         not overlap by more than the error of their clocks, and no `act` of one process may lie wholly within a certain hold of \
         another. An unanswered acquire holds nothing; an unanswered release ends the hold where \
         it was asked for. Sort and sweep, exact: O(n log n). Source: the cores of Knossos' \
         mutex with owners, and leases as in Gray and Cheriton, Leases (1989)."
    }

    fn params(&self) -> &'static [Param] {
        &[
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
            ("acts", "acts under a lock that happened"),
            (
                "overlaps",
                "stretches of time with two certain holders of one lock",
            ),
            ("overlap_ms", "how long they were in all"),
            (
                "acts_in_anothers_hold",
                "acts while another certainly held the lock",
            ),
            (
                "releases_not_owned",
                "releases acknowledged to a process that held nothing",
            ),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let holds = Holds::of(history);
        let acts = acts_by_key(&holds.acts);
        if holds.holds.is_empty() {
            return Checked::unknown(Reason::NotApplicable("no lock was granted".to_owned()));
        }
        let drift = Drift::of_header(history);
        let clocks = ClockError::of_header(history);
        let (mut overlaps, mut overlap_ns, mut intrusions) = (0, 0, 0);
        let mut first: Option<(usize, Violation<'_>)> = None;
        let mut keep = |at: usize, violation| {
            if first.as_ref().is_none_or(|&(earliest, _)| at < earliest) {
                first = Some((at, violation));
            }
        };
        for group in holds.by_key() {
            let certain = certain(&holds, &group, drift, clocks);
            let found = overlap(&within(&certain, history.end()));
            overlaps += found.episodes;
            overlap_ns += found.ns;
            if let Some((a, b)) = first_clash(&certain) {
                keep(
                    holds.holds[b.tag].granted.index(),
                    Violation::Holds(a.tag, b.tag),
                );
            }
            let key = holds.holds[group[0]].key;
            let prefixes = Prefixes::of(&certain);
            for &(act, actor) in acts.get(&key).into_iter().flatten() {
                if let Some(holder) = prefixes.around(act, actor, clocks) {
                    intrusions += 1;
                    keep(act.invoke.index(), Violation::Act((act, actor), holder));
                }
            }
        }
        let result = match first {
            None => Checked::valid(),
            Some((_, violation)) => tell(history, &holds, (drift, clocks), &violation),
        };
        result
            .count("grants", holds.holds.len() as u64)
            .count("acts", holds.acts.len() as u64)
            .count("overlaps", overlaps)
            .count("overlap_ms", words::ms(overlap_ns))
            .count("acts_in_anothers_hold", intrusions)
            .count("releases_not_owned", holds.releases_not_owned)
    }
}

enum Violation<'h> {
    /// Two holds, by their place among all holds.
    Holds(usize, usize),
    /// An act, and the hold in which it lies.
    Act(Act<'h>, usize),
}

/// An act that happened, and the thread that did it.
type Act<'h> = (Op<'h>, u32);

fn acts_by_key<'h>(acts: &[Act<'h>]) -> FxHashMap<u32, Vec<Act<'h>>> {
    let mut by_key: FxHashMap<u32, Vec<Act<'h>>> = FxHashMap::default();
    for &act in acts {
        let key = act.0.key_id().unwrap_or(NONE);
        by_key.entry(key).or_default().push(act);
    }
    by_key
}

/// The certain holds of one lock, sorted by start, and shorter by the error of clocks: by so much
/// must they overlap for certain. A hold that lasted until its owner was granted
/// the lock once more goes on in the next one.
fn certain(holds: &Holds<'_>, group: &[usize], drift: Drift, clocks: ClockError) -> Vec<Interval> {
    let mut next_of: FxHashMap<u32, Interval> = FxHashMap::default();
    let mut intervals: Vec<Interval> = Vec::with_capacity(group.len());
    for &index in group.iter().rev() {
        let hold = &holds.holds[index];
        let mut interval = Interval {
            start: hold.granted.time(),
            end: hold.certain_end(drift),
            owner: hold.owner,
            tag: index,
        };
        if let Some(next) = next_of.get(&hold.owner)
            && matches!(hold.end, Some((_, End::Replaced)))
            && interval.end == next.start
        {
            interval.end = next.end.max(interval.end);
        }
        next_of.insert(hold.owner, interval);
        intervals.push(interval);
    }
    for interval in &mut intervals {
        interval.end = clocks.sooner(interval.end);
    }
    intervals.reverse();
    intervals
}

/// The same intervals, none of them longer than the history. The instant of its last event is
/// still within it.
fn within(certain: &[Interval], end: u64) -> Vec<Interval> {
    let clip = |interval: &Interval| Interval {
        end: interval.end.min(end.saturating_add(1)),
        ..*interval
    };
    certain.iter().map(clip).collect()
}

/// The certain holds of one lock, ready to be asked what lasts longest among those begun so far.
struct Prefixes<'a> {
    certain: &'a [Interval],
    furthest: Vec<Furthest>,
}

impl<'a> Prefixes<'a> {
    fn of(certain: &'a [Interval]) -> Prefixes<'a> {
        let mut so_far = Furthest::default();
        let furthest = certain
            .iter()
            .map(|&interval| {
                so_far.add(interval);
                so_far
            })
            .collect();
        Prefixes { certain, furthest }
    }

    /// A certain hold of another process in which the whole act lies. The holds are in order of
    /// their grants, so that those that begin before the act are a prefix.
    fn around(&self, act: Op<'_>, actor: u32, clocks: ClockError) -> Option<usize> {
        let end = act.completion?.time();
        let begun = self
            .certain
            .partition_point(|interval| clocks.later(interval.start) <= act.start());
        self.furthest[begun.checked_sub(1)?]
            .other_than(actor)
            .filter(|other| other.end >= end && other.start < other.end)
            .map(|other| other.tag)
    }
}

fn tell(
    history: &History,
    holds: &Holds<'_>,
    (drift, clocks): (Drift, ClockError),
    violation: &Violation<'_>,
) -> Checked {
    let mut story = Story::default();
    let lasts = |index: usize| {
        let hold = &holds.holds[index];
        match hold.deadline(drift) {
            Some(deadline) => format!(
                "certain until {}",
                words::span(deadline.min(hold.end_time()))
            ),
            None if hold.end.is_some() => format!("until {}", words::span(hold.end_time())),
            None => "it never expires".to_owned(),
        }
    };
    let who = |index: usize| words::who(holds.holds[index].granted);
    let of = |index: usize| words::of_key(history, holds.holds[index].key);
    let mut told = |index: usize| {
        let hold = &holds.holds[index];
        let token = hold
            .token
            .map_or_else(String::new, |token| format!(" with token {token}"));
        story.tell(
            hold.granted,
            format!(
                "{} gets the lock{}{token}, {}",
                who(index),
                of(index),
                lasts(index)
            ),
        );
        if let Some(renewal) = hold.renewals.last() {
            story.tell(
                renewal.op.invoke,
                format!(
                    "{} asks for its last renewal that is acknowledged",
                    who(index)
                ),
            );
        }
    };
    match *violation {
        Violation::Holds(first, second) => {
            told(first);
            told(second);
            let (a, b) = (&holds.holds[first], &holds.holds[second]);
            story.tell_faults(history, a.granted.index()..b.granted.index());
            let certain = a.certain_end(drift).min(b.certain_end(drift));
            let end = if certain == u64::MAX {
                history.end()
            } else {
                certain
            };
            let both = clocks.sooner(end).saturating_sub(b.granted.time());
            Checked::invalid(story.finish(format!(
                "{} got the lock{} while {} certainly held it: two holders for {}",
                who(second),
                of(second),
                who(first),
                words::span(both)
            )))
        }
        Violation::Act((act, actor_id), holder) => {
            told(holder);
            let actor = words::who(act.invoke);
            let own = holds
                .holds
                .iter()
                .rev()
                .position(|hold| {
                    hold.owner == actor_id && hold.granted.index() < act.invoke.index()
                })
                .map(|back| holds.holds.len() - 1 - back);
            if let Some(own) = own {
                told(own);
            }
            story.tell(act.invoke, format!("{actor} begins to act under the lock"));
            if let Some(done) = act.completion {
                story.tell(
                    done,
                    format!("{actor} has acted, all within the hold of {}", who(holder)),
                );
            }
            let from = own.map_or(holder, |own| own.min(holder));
            story.tell_faults(
                history,
                holds.holds[from].granted.index()..act.invoke.index(),
            );
            Checked::invalid(story.finish(format!(
                "{actor} acted under the lock{} while {} certainly held it",
                of(holder),
                who(holder)
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        MutualExclusion.check(&script::history("lock", text), &Budget::unlimited())
    }

    #[test]
    fn two_certain_holders_are_convicted() {
        let text = r#"
            param drift_ms 0
            0-100 A acquire L {"ttl_ms":10000} -> {"token":1}
            10000-10100 B acquire L {"ttl_ms":10000} -> {"token":2}"#;
        assert_eq!(check(text).verdict, Verdict::Valid);
        let found = check(&text.replace("10000-10100", "9000-9500"));
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(found.counted("overlaps"), Some(1));
        assert!(
            found
                .counterexample
                .unwrap()
                .summary
                .contains("while A certainly held it")
        );
        // Another lock is another lock.
        assert_eq!(
            check(&text.replace("B acquire L", "B acquire M")).verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn a_release_ends_the_hold_where_it_was_asked_for() {
        let text = r#"
            0-100 A acquire L null -> {"token":1}
            1000-3000 A release L null -> info timeout
            2000-2200 B acquire L null -> {"token":2}
            4000-4200 A release L null -> null"#;
        assert_eq!(check(text).verdict, Verdict::Valid);
        assert_eq!(check(text).counted("releases_not_owned"), Some(1));
        assert_eq!(
            check(&text.replace("1000-3000 A release L", "1000-3000 A renew L")).verdict,
            Verdict::Invalid
        );
    }

    #[test]
    fn an_act_within_another_s_hold_is_convicted() {
        let text = r#"
            param ttl_ms 1000
            param drift_ms 0
            0-100 A acquire L null -> {"token":1}
            1500-1600 B acquire L null -> {"token":2}
            1700-1800 A act L null -> null"#;
        assert_eq!(check(text).verdict, Verdict::Invalid);
        // B's hold goes on in the next one that it is granted.
        let again = text.replace("1700-1800", "1700-2500").to_owned()
            + "\n2000-2100 B acquire L null -> {\"token\":3}";
        assert_eq!(check(&again).verdict, Verdict::Invalid);
        // It may have taken effect before B got the lock.
        assert_eq!(
            check(&text.replace("1700-1800", "900-1800")).verdict,
            Verdict::Valid
        );
        assert_eq!(
            check(&text.replace("A act", "B act")).verdict,
            Verdict::Valid
        );
        assert_eq!(
            check(&text.replace("A act L null -> null", "A act L null -> fail expired")).verdict,
            Verdict::Valid
        );
    }
}
