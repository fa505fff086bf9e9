//! `coverage`: enough happened for the other verdicts to mean something.
//!
//! It never says `invalid`. A run in which nothing worked breaks no promise and proves nothing.

use history::{EventRef, History, Kind, Outcome, ValueRef};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use crate::faults::{Fault, Spans, faults, join};
use crate::ident::Ident;
use crate::observations::changes;
use crate::params::{self, Param, Takes};
use crate::{Budget, Checked, Checker, Reason};

/// Functions whose answers are observations of the state.
const READS: &[&str] = &["read", "get", "final-read", "dequeue", "drain"];

/// Enough happened for the other verdicts to mean something.
pub struct Coverage;

impl Checker for Coverage {
    fn name(&self) -> &'static str {
        "coverage"
    }

    fn promise(&self) -> &'static str {
        "Enough operations happened, before, during and after the faults, and what the test \
         requires took place."
    }

    fn method(&self) -> &'static str {
        "Counts the operations that happened by function and by whether a fault was on when they \
         were answered, the distinct values that reads returned, the faults that landed (one whose \
         `verified` is false did not) and the changes of the leader, and compares them with the \
         parameters. What is missing makes the verdict `unknown`. O(n log n). Source: etcd issue \
         16759, RedisRaft issue 292, the `Set was never read` of RabbitMQ's Jepsen test."
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: "min_ok",
                takes: Takes::Count,
                default: "1",
                about: "operations that must have happened",
            },
            Param {
                name: "min_ok_during_faults",
                takes: Takes::Count,
                default: "0",
                about: "of these, while a fault was on",
            },
            Param {
                name: "required",
                takes: Takes::Names,
                default: "none",
                about: "names of functions that must have happened and of faults that must have landed",
            },
            Param {
                name: "min_values_read",
                takes: Takes::Count,
                default: "0",
                about: "distinct values that reads must have returned",
            },
            Param {
                name: "min_leader_changes",
                takes: Takes::Count,
                default: "0",
                about: "changes of the leader that must have been seen",
            },
            Param {
                about: "functions that read, besides read, get, final-read, dequeue and drain",
                ..params::READS
            },
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("ok", "operations that happened"),
            ("fail", "operations that did not happen"),
            ("info", "operations whose outcome is unknown"),
            ("ok_before_faults", "happened before the first fault"),
            ("ok_during_faults", "happened while a fault was on"),
            (
                "ok_after_faults",
                "happened after a fault, while none was on",
            ),
            ("values_read", "distinct values that reads returned"),
            ("faults_landed", "faults that began and were not unverified"),
            ("faults_unverified", "faults without evidence"),
            ("leader_changes", "changes of the leader seen by observers"),
            ("final_reads", "final reads that were answered"),
            ("ok_before:FUNCTION", "`ok_before_faults` of one function"),
            ("ok_during:FUNCTION", "`ok_during_faults` of one function"),
            ("ok_after:FUNCTION", "`ok_after_faults` of one function"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let seen = Seen::of(history);
        let missing = seen.missing(history);
        let result = if missing.is_empty() {
            Checked::valid()
        } else {
            Checked::unknown(Reason::Coverage(missing.join("; ")))
        };
        seen.count(result)
    }
}

#[derive(Clone, Copy, Default)]
struct Phases {
    before: u64,
    during: u64,
    after: u64,
}

impl Phases {
    fn total(self) -> u64 {
        self.before + self.during + self.after
    }
}

struct Seen<'h> {
    /// Operations that happened, by function in order of first use.
    by_function: Vec<(&'h str, Phases)>,
    fail: u64,
    info: u64,
    values_read: u64,
    landed: FxHashSet<&'h str>,
    faults_landed: u64,
    faults_unverified: u64,
    leader_changes: u64,
}

impl<'h> Seen<'h> {
    fn of(history: &'h History) -> Seen<'h> {
        let faults = faults(history);
        let (landed, unverified): (Vec<&Fault<'_>>, Vec<&Fault<'_>>) =
            faults.iter().partition(|fault| fault.verified);
        let hurt = join(
            landed
                .iter()
                .map(|fault| (fault.begin.time(), fault.end_time()))
                .collect(),
        );
        let mut seen = Seen {
            by_function: Vec::new(),
            fail: 0,
            info: 0,
            values_read: 0,
            landed: landed.iter().map(|fault| fault.begin.f()).collect(),
            faults_landed: landed.len() as u64,
            faults_unverified: unverified.len() as u64,
            leader_changes: changes(history).leaders.len() as u64,
        };
        seen.operations(history, &hurt);
        seen
    }

    fn operations(&mut self, history: &'h History, hurt: &Spans) {
        let more_reads = history.header.params.get("reads").and_then(Value::as_array);
        let is_read = |f: &str| {
            READS.contains(&f)
                || more_reads.is_some_and(|names| names.iter().any(|name| name.as_str() == Some(f)))
        };
        let mut place: FxHashMap<&str, usize> = FxHashMap::default();
        let mut values: FxHashSet<Ident> = FxHashSet::default();
        for op in history.ops() {
            match op.outcome() {
                Outcome::Fail => self.fail += 1,
                Outcome::Info => self.info += 1,
                Outcome::Ok => {
                    let next = self.by_function.len();
                    let at = *place.entry(op.f()).or_insert(next);
                    if at == next {
                        self.by_function.push((op.f(), Phases::default()));
                    }
                    let answered = op.completion.map_or(0, EventRef::time);
                    let phases = &mut self.by_function[at].1;
                    *phase(phases, hurt, answered) += 1;
                    if let Some(value) = op.output().filter(|_| is_read(op.f())) {
                        values.insert(Ident::of(value));
                    }
                }
            }
        }
        self.values_read = values.len() as u64;
    }

    fn sum(&self, of: impl Fn(Phases) -> u64) -> u64 {
        self.by_function.iter().map(|&(_, phases)| of(phases)).sum()
    }

    fn happened(&self, f: &str) -> u64 {
        let mut functions = self.by_function.iter();
        functions
            .find(|(name, _)| *name == f)
            .map_or(0, |(_, phases)| phases.total())
    }

    /// What the header requires and the history lacks, in words.
    fn missing(&self, history: &History) -> Vec<String> {
        let header = &history.header;
        let mut missing = Vec::new();
        let limits = [
            ("min_ok", 1, self.sum(Phases::total), "operations happened"),
            (
                "min_ok_during_faults",
                0,
                self.sum(|phases| phases.during),
                "operations happened while a fault was on",
            ),
            (
                "min_values_read",
                0,
                self.values_read,
                "distinct values were read",
            ),
            (
                "min_leader_changes",
                0,
                self.leader_changes,
                "changes of the leader were seen",
            ),
        ];
        for (param, default, number, what) in limits {
            let min = header.param_u64(param).unwrap_or(default);
            if number < min {
                missing.push(format!("{number} {what}, {min} are required"));
            }
        }
        let required = header.params.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            let observed = || {
                history
                    .events()
                    .any(|event| stands_alone(event) && event.f() == name)
            };
            if self.happened(name) == 0 && !self.landed.contains(name) && !observed() {
                missing.push(format!("`{name}` is required and never took place"));
            }
        }
        missing
    }

    fn count(&self, result: Checked) -> Checked {
        let mut result = result
            .count("ok", self.sum(Phases::total))
            .count("fail", self.fail)
            .count("info", self.info)
            .count("ok_before_faults", self.sum(|phases| phases.before))
            .count("ok_during_faults", self.sum(|phases| phases.during))
            .count("ok_after_faults", self.sum(|phases| phases.after))
            .count("values_read", self.values_read)
            .count("faults_landed", self.faults_landed)
            .count("faults_unverified", self.faults_unverified)
            .count("leader_changes", self.leader_changes)
            .count("final_reads", self.happened("final-read"));
        let mut functions = self.by_function.clone();
        functions.sort_unstable_by_key(|&(name, _)| name);
        for (f, phases) in functions {
            result = result
                .count(&format!("ok_before:{f}"), phases.before)
                .count(&format!("ok_during:{f}"), phases.during)
                .count(&format!("ok_after:{f}"), phases.after);
        }
        result
    }
}

/// An observation, something that a client said unasked, or a deed of the nemesis that has no
/// beginning and end.
fn stands_alone(event: EventRef<'_>) -> bool {
    let value = event.value();
    let is_deed = event.is_nemesis()
        && value.get("phase").is_none()
        && value.get("verified").and_then(ValueRef::as_bool) != Some(false);
    event.kind() == Kind::Info && (event.is_observer() || event.is_unasked() || is_deed)
}

fn phase<'a>(phases: &'a mut Phases, hurt: &Spans, time: u64) -> &'a mut u64 {
    let begun = hurt.partition_point(|span| span.0 <= time);
    match begun.checked_sub(1).map(|at| hurt[at]) {
        None => &mut phases.before,
        Some((_, end)) if time <= end => &mut phases.during,
        Some(_) => &mut phases.after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(params: &str) -> Checked {
        let text = format!(
            "{params}\n{}",
            r#"
            0-1 A write x 1 -> 1
            10 nemesis cut - {"id":1,"phase":"begin","target":"n1"}
            11-12 A read x null -> 1
            13-14 A read x null -> 1
            15 nemesis cut - {"id":1,"phase":"end","target":"n1"}
            16 nemesis kill - {"id":2,"phase":"begin","target":"n1","verified":false}
            20-21 A read x null -> 2
            22-23 A read x null -> fail refused
            24-25 A read x null -> info timeout"#
        );
        Coverage.check(&script::history("register", &text), &Budget::unlimited())
    }

    #[test]
    fn everything_is_counted() {
        let found = check("");
        assert_eq!(found.verdict, Verdict::Valid);
        for (name, number) in [
            ("ok", 4),
            ("fail", 1),
            ("info", 1),
            ("ok_before_faults", 1),
            ("ok_during:read", 2),
            ("ok_after:read", 1),
            ("values_read", 2),
            ("faults_landed", 1),
            ("faults_unverified", 1),
        ] {
            assert_eq!(found.counted(name), Some(number), "{name}");
        }
    }

    #[test]
    fn what_is_required_and_missing_is_named() {
        for (params, missing) in [
            ("param min_ok 5", "4 operations happened, 5 are required"),
            (
                "param min_ok_during_faults 3",
                "2 operations happened while a fault was on, 3 are required",
            ),
            (
                "param required [\"cut\",\"kill\"]",
                "`kill` is required and never took place",
            ),
            (
                "param required [\"final-read\"]",
                "`final-read` is required and never took place",
            ),
            (
                "param min_values_read 3",
                "2 distinct values were read, 3 are required",
            ),
            (
                "param min_leader_changes 1",
                "0 changes of the leader were seen, 1 are required",
            ),
        ] {
            assert_eq!(
                check(params).verdict,
                Verdict::Unknown(Reason::Coverage(missing.to_owned()))
            );
        }
        assert_eq!(
            check("param required [\"cut\",\"read\"]").verdict,
            Verdict::Valid
        );
    }
}
