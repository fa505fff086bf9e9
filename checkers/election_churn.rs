//! `election-churn`: terms and leaders change seldom.

use history::{EventRef, History};

use crate::observations::{changes, views};
use crate::params::{Param, Takes};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

const MINUTE: u64 = 60_000_000_000;

/// Terms and leaders change seldom.
pub struct ElectionChurn;

impl Checker for ElectionChurn {
    fn name(&self) -> &'static str {
        "election-churn"
    }

    fn promise(&self) -> &'static str {
        "In no minute are there more new terms, or more changes of the leader, than the limits."
    }

    fn method(&self) -> &'static str {
        "Follows the highest term that any node named; every rise counts by how much it rose, \
         since a term may begin and end between two looks. A change of the leader is a leader \
         other than the last, in a term no older. The largest sums over any sixty seconds are \
         compared with the limits. O(n). Source: etcd issue 9241 and Consul issue 4084."
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: "max_terms",
                takes: Takes::Count,
                default: "counted, not judged",
                about: "new terms allowed in a minute",
            },
            Param {
                name: "max_leader_changes",
                takes: Takes::Count,
                default: "counted, not judged",
                about: "changes of the leader allowed in a minute",
            },
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("observations", "leaders and terms seen by observers"),
            ("terms", "new terms in all, the first included"),
            (
                "terms_per_minute_max",
                "most new terms in any sixty seconds",
            ),
            ("leader_changes", "changes of the leader in all"),
            (
                "leader_changes_per_minute_max",
                "most changes of the leader in any sixty seconds",
            ),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let observations = views(history).count() as u64;
        if observations == 0 {
            return Checked::unknown(Reason::NotApplicable(
                "nobody observed who leads".to_owned(),
            ));
        }
        let seen = changes(history);
        let leaders: Vec<(u64, EventRef<'_>)> =
            seen.leaders.iter().map(|&event| (1, event)).collect();
        let terms = busiest(&seen.terms);
        let changed = busiest(&leaders);
        let max_terms = history.header.param_u64("max_terms");
        let max_changes = history.header.param_u64("max_leader_changes");
        let result = if let Some(max) = max_terms.filter(|&max| terms.sum > max) {
            tell(history, &seen.terms, &terms, "new terms", max)
        } else if let Some(max) = max_changes.filter(|&max| changed.sum > max) {
            tell(history, &leaders, &changed, "changes of the leader", max)
        } else if max_terms.is_none() && max_changes.is_none() {
            Checked::unknown(Reason::NotApplicable(
                "neither max_terms nor max_leader_changes was given".to_owned(),
            ))
        } else {
            Checked::valid()
        };
        result
            .count("observations", observations)
            .count("terms", sum(&seen.terms))
            .count("terms_per_minute_max", terms.sum)
            .count("leader_changes", leaders.len() as u64)
            .count("leader_changes_per_minute_max", changed.sum)
    }
}

fn sum(weighted: &[(u64, EventRef<'_>)]) -> u64 {
    weighted
        .iter()
        .fold(0, |sum, &(weight, _)| sum.saturating_add(weight))
}

/// The sixty seconds with the largest sum.
#[derive(Default)]
struct Busiest {
    from: usize,
    to: usize,
    sum: u64,
}

fn busiest(weighted: &[(u64, EventRef<'_>)]) -> Busiest {
    let mut found = Busiest::default();
    let (mut from, mut sum) = (0, 0u128);
    for (to, &(weight, event)) in weighted.iter().enumerate() {
        sum += u128::from(weight);
        while event.time() - weighted[from].1.time() >= MINUTE {
            sum -= u128::from(weighted[from].0);
            from += 1;
        }
        let capped = u64::try_from(sum).unwrap_or(u64::MAX);
        if capped > found.sum {
            found = Busiest {
                from,
                to: to + 1,
                sum: capped,
            };
        }
    }
    found
}

fn tell(
    history: &History,
    weighted: &[(u64, EventRef<'_>)],
    busiest: &Busiest,
    what: &str,
    max: u64,
) -> Checked {
    let mut story = Story::default();
    let within = &weighted[busiest.from..busiest.to];
    for &(_, event) in within.iter().take(4).chain(within.iter().rev().take(4)) {
        let leader = event
            .value()
            .get("leader")
            .filter(|leader| !leader.is_null());
        let leader = leader.map_or("nobody".to_owned(), words::value);
        let term = event
            .value()
            .get("term")
            .map_or("?".to_owned(), words::value);
        let node = event.node().unwrap_or("a node");
        story.tell(
            event,
            format!("{node} says that {leader} leads in term {term}"),
        );
    }
    let (first, last) = (within[0].1, within[within.len() - 1].1);
    story.tell_faults(history, first.index()..last.index());
    Checked::invalid(story.finish(format!(
        "{} {what} within {}; the limit is {max} in a minute",
        busiest.sum,
        words::span(last.time() - first.time())
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};
    use std::fmt::Write as _;

    fn check(params: &str, gap_ms: u64) -> Checked {
        let mut text = params.to_owned();
        for term in 0..10u64 {
            let (at, leader) = (term * gap_ms, term % 2);
            let _ = write!(
                text,
                "\n{at} observer leader - {{\"leader\":\"n{leader}\",\"term\":{}}} @n1",
                term + 3
            );
        }
        ElectionChurn.check(&script::history("register", &text), &Budget::unlimited())
    }

    #[test]
    fn applied_terms_count_where_nodes_tell_no_others() {
        let views = [
            (0, 2, "n3"),
            (1_000, 12, "n3"),
            (2_000, 2, "n1"),
            (3_000, 14, "n1"),
        ];
        let text: String = views
            .iter()
            .map(|(at, applied, leader)| {
                format!(
                    "\n{at} observer leader - {{\"leader\":\"{leader}\",\"term\":null,\
                     \"applied_term\":{applied}}} @n1"
                )
            })
            .collect();
        let history = script::history("register", &format!("param max_terms 5{text}"));
        let found = ElectionChurn.check(&history, &Budget::unlimited());
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(found.counted("terms"), Some(13));
        assert_eq!(found.counted("leader_changes"), Some(1));
    }

    #[test]
    fn more_terms_than_allowed_in_a_minute_are_convicted() {
        let found = check("param max_terms 5", 4_000);
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(found.counted("terms"), Some(10));
        assert_eq!(found.counted("leader_changes"), Some(9));
        assert_eq!(check("param max_terms 10", 4_000).verdict, Verdict::Valid);
        let slow = check("param max_terms 5", 15_000);
        assert_eq!(slow.verdict, Verdict::Valid);
        assert_eq!(slow.counted("terms_per_minute_max"), Some(4));
        assert_eq!(
            check("param max_leader_changes 5", 4_000).verdict,
            Verdict::Invalid
        );
        assert!(matches!(check("", 4_000).verdict, Verdict::Unknown(_)));
    }
}
