//! `split-brain`: one term has one leader.
//!
//! Judged is only what cannot be explained: two leaders of the *same* term. How long two
//! processes merely believed that they lead is counted beside it; with leases and without fencing
//! nothing can prevent that altogether, and `stale-writes` says whether it did harm.

use history::{EventRef, History, NONE};
use rustc_hash::FxHashMap;

use crate::actors;
use crate::holds::{Hold, Holds};
use crate::ident::Ident;
use crate::intervals::{Interval, Overlap, overlap};
use crate::observations::views;
use crate::params::Param;
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// One term has one leader.
pub struct SplitBrain;

impl Checker for SplitBrain {
    fn name(&self) -> &'static str {
        "split-brain"
    }

    fn promise(&self) -> &'static str {
        "No two nodes or processes lead in the same term."
    }

    fn method(&self) -> &'static str {
        "Groups what observers saw (`leader` events) by term, and in the workload `leader` the \
         grants by key and term (or token, where no term is told); two leaders in one group are a \
         violation. Two believe at once where two processes are between the grant and the end of \
         their holds: a release asked for, `lost`, a renewal refused as not held, a token refused \
         as stale, death; that is counted, not judged. O(n log n). Source: Ongaro and Ousterhout, \
         In Search of an Understandable Consensus Algorithm (2014), Election Safety."
    }

    fn params(&self) -> &'static [Param] {
        &[actors::THREADS, actors::CLIENTS]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("observations", "leaders seen by observers"),
            ("terms", "terms in which somebody led"),
            ("grants", "locks or leaderships granted"),
            ("split_terms", "terms with two leaders"),
            (
                "two_believed_ms",
                "time in which two processes believed that they hold one lock",
            ),
            ("two_believed_episodes", "stretches of such time"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let holds = Holds::of(history);
        let mut terms = Terms::default();
        let mut observations = 0;
        for view in views(history) {
            let (Some(leader), Some(term)) = (view.leader, view.term) else {
                continue;
            };
            observations += 1;
            let group = (Group::Observed, view.event.key_id().unwrap_or(NONE), term);
            terms.add(group, leader, view.event);
        }
        if history.header.workload == "leader" {
            for hold in &holds.holds {
                if let Some(group) = group_of(hold) {
                    let leader = Ident::Word(u64::from(hold.owner));
                    terms.add(group, leader, hold.granted);
                }
            }
        }
        let grants = holds.holds.len() as u64;
        if observations == 0 && grants == 0 {
            return Checked::unknown(Reason::NotApplicable(
                "nobody was seen to lead and no lock was granted".to_owned(),
            ));
        }
        let believed = two_believed(history, &holds);
        terms
            .verdict(history)
            .count("observations", observations)
            .count("terms", terms.first.len() as u64)
            .count("grants", grants)
            .count("split_terms", terms.split.len() as u64)
            .count("two_believed_ms", words::ms(believed.ns))
            .count("two_believed_episodes", believed.episodes)
    }
}

/// What a term number belongs to: observed terms, terms of grants, tokens of grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Group {
    Observed,
    Granted,
    Token,
}

type Term = (Group, u32, i128);

fn group_of(hold: &Hold<'_>) -> Option<Term> {
    match (hold.term, hold.token) {
        (Some(term), _) => Some((Group::Granted, hold.key, term)),
        (None, Some(token)) => Some((Group::Token, hold.key, token)),
        (None, None) => None,
    }
}

#[derive(Default)]
struct Terms<'h> {
    first: FxHashMap<Term, (Ident, EventRef<'h>)>,
    /// Terms with two leaders: the first two events that name different ones.
    split: Vec<(Term, EventRef<'h>, EventRef<'h>)>,
    split_terms: rustc_hash::FxHashSet<Term>,
}

impl<'h> Terms<'h> {
    fn add(&mut self, term: Term, leader: Ident, event: EventRef<'h>) {
        let (known, first) = self
            .first
            .entry(term)
            .or_insert_with(|| (leader.clone(), event));
        if *known != leader && self.split_terms.insert(term) {
            self.split.push((term, *first, event));
        }
    }

    fn verdict(&self, history: &History) -> Checked {
        let Some(&((group, _, term), first, second)) = self
            .split
            .iter()
            .min_by_key(|(_, _, second)| second.index())
        else {
            return Checked::valid();
        };
        let mut story = Story::default();
        let word = if group == Group::Token {
            "token"
        } else {
            "term"
        };
        let name = |event: EventRef<'_>| match event.value().get("leader") {
            Some(leader) if group == Group::Observed => words::value(leader),
            _ => words::who(event),
        };
        for event in [first, second] {
            let source = event
                .node()
                .map_or_else(String::new, |node| format!(", as {node} says"));
            story.tell(
                event,
                format!("{} leads in {word} {term}{source}", name(event)),
            );
        }
        story.tell_faults(history, first.index()..second.index());
        Checked::invalid(story.finish(format!(
            "{word} {term} had two leaders, {} and {}",
            name(first),
            name(second)
        )))
    }
}

/// How long two processes believed that they hold the same lock, summed over locks.
fn two_believed(history: &History, holds: &Holds<'_>) -> Overlap {
    let mut total = Overlap::default();
    for group in holds.by_key() {
        let intervals: Vec<Interval> = group
            .into_iter()
            .map(|index| {
                let hold = &holds.holds[index];
                Interval {
                    start: hold.granted.time(),
                    end: hold.end_time().min(history.end()),
                    owner: hold.owner,
                    tag: index,
                }
            })
            .collect();
        let found = overlap(&intervals);
        total.ns += found.ns;
        total.episodes += found.episodes;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(workload: &str, text: &str) -> Checked {
        SplitBrain.check(&script::history(workload, text), &Budget::unlimited())
    }

    #[test]
    fn two_observed_leaders_of_one_term_are_convicted() {
        let good = r#"
            0 observer leader - {"leader":"n1","term":5} @n1
            1 observer leader - {"leader":"n2","term":6} @n2
            2 observer leader - {"leader":null,"term":6} @n3
            3 observer leader - {"leader":"n1","term":5} @n1"#;
        assert_eq!(check("leader", good).verdict, Verdict::Valid);
        let bad = good.replace("\"n2\",\"term\":6", "\"n2\",\"term\":5");
        let found = check("leader", &bad);
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(
            found.counterexample.unwrap().summary,
            "term 5 had two leaders, n1 and n2"
        );
    }

    #[test]
    fn two_grants_of_one_token_are_two_leaders() {
        let text = r#"
            0-1 A acquire L {"ttl_ms":100} -> {"token":7}
            500-501 B acquire L {"ttl_ms":100} -> {"token":7}"#;
        assert_eq!(check("leader", text).verdict, Verdict::Invalid);
        assert_eq!(
            check("leader", &text.replace("501 B", "501 A")).verdict,
            Verdict::Valid
        );
        assert_eq!(check("lock", text).verdict, Verdict::Valid);
    }

    #[test]
    fn two_who_believe_are_counted_and_not_judged() {
        let found = check(
            "lock",
            r#"
            0-100 A acquire L {"ttl_ms":1000} -> {"token":1}
            2000-2100 B acquire L {"ttl_ms":1000} -> {"token":2}
            13100-13200 A put r {"v":1,"token":1} -> fail stale-token
            14000-14100 B release L null -> null
            "#,
        );
        assert_eq!(found.verdict, Verdict::Valid);
        assert_eq!(found.counted("two_believed_ms"), Some(11_100));
        assert_eq!(found.counted("two_believed_episodes"), Some(1));
    }

    #[test]
    fn a_history_of_something_else_is_not_judged() {
        let found = check("register", "0-1 A read x null -> 1");
        assert!(matches!(
            found.verdict,
            Verdict::Unknown(Reason::NotApplicable(_))
        ));
    }
}
