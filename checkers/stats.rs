//! `stats`: enough of every function worked.
//!
//! Like `coverage`, it never says `invalid`: a run in which nothing worked breaks no promise.
//! `coverage` looks at faults and phases; this at each function by itself.

use history::{History, Outcome};

use crate::params::{Param, Takes};
use crate::{Budget, Checked, Checker, Reason};

/// Enough of every function worked.
pub struct Stats;

const MIN_OK: &str = "min_ok_per_function";
const MIN_SHARE: &str = "min_ok_percent";

impl Checker for Stats {
    fn name(&self) -> &'static str {
        "stats"
    }

    fn promise(&self) -> &'static str {
        "Of every function that was called, enough operations happened."
    }

    fn method(&self) -> &'static str {
        "Counts how the operations of each function ended, and compares those that happened with \
         the parameters. Too few make the verdict `unknown`, never `valid`. O(n). Source: the \
         checker `stats` of Jepsen; scalar-jepsen issue 222."
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: MIN_OK,
                takes: Takes::Count,
                default: "1",
                about: "operations of each function that must have happened",
            },
            Param {
                name: MIN_SHARE,
                takes: Takes::Count,
                default: "0",
                about: "how many of a hundred operations of each function must have happened",
            },
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("ok", "operations that happened"),
            ("fail", "operations that did not happen"),
            ("info", "operations whose outcome is unknown"),
            ("ok:FUNCTION", "`ok` of one function"),
            ("fail:FUNCTION", "`fail` of one function"),
            ("info:FUNCTION", "`info` of one function"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let mut by_function: Vec<(&str, [u64; 3])> = Vec::new();
        for op in history.ops() {
            let known = by_function.iter().position(|(f, _)| *f == op.f());
            let place = known.unwrap_or_else(|| {
                by_function.push((op.f(), [0; 3]));
                by_function.len() - 1
            });
            let outcome = match op.outcome() {
                Outcome::Ok => 0,
                Outcome::Fail => 1,
                Outcome::Info => 2,
            };
            by_function[place].1[outcome] += 1;
        }
        by_function.sort_unstable_by_key(|&(f, _)| f);
        let few = too_few(history, &by_function);
        let mut result = if by_function.is_empty() {
            Checked::unknown(Reason::Coverage("nothing was called".to_owned()))
        } else if few.is_empty() {
            Checked::valid()
        } else {
            Checked::unknown(Reason::Coverage(few.join("; ")))
        };
        for (name, outcome) in [("ok", 0), ("fail", 1), ("info", 2)] {
            let sum = by_function.iter().map(|(_, ended)| ended[outcome]).sum();
            result = result.count(name, sum);
        }
        for (f, [ok, fail, info]) in by_function {
            result = result
                .count(&format!("ok:{f}"), ok)
                .count(&format!("fail:{f}"), fail)
                .count(&format!("info:{f}"), info);
        }
        result
    }
}

/// Of which functions too few operations happened, in words.
fn too_few(history: &History, by_function: &[(&str, [u64; 3])]) -> Vec<String> {
    let least = history.header.param_u64(MIN_OK).unwrap_or(1);
    let percent = history.header.param_u64(MIN_SHARE).unwrap_or(0);
    let mut few = Vec::new();
    for (f, ended) in by_function {
        let (ok, all) = (ended[0], ended.iter().sum::<u64>());
        if ok < least {
            few.push(format!(
                "{ok} of {all} `{f}` happened, {least} are required"
            ));
        } else if u128::from(ok) * 100 < u128::from(percent) * u128::from(all) {
            few.push(format!(
                "{ok} of {all} `{f}` happened, {percent} % are required"
            ));
        }
    }
    few
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(params: &str) -> Checked {
        let text = r#"
            0-1 A write x 1 -> 1
            2-3 A write x 2 -> fail refused
            4-5 A write x 3 -> fail refused
            6-7 A read x null -> 1
            8- A read x"#;
        let history = script::history("register", &format!("{params}\n{text}"));
        Stats.check(&history, &Budget::unlimited())
    }

    #[test]
    fn too_little_is_not_a_pass() {
        let found = check("");
        assert_eq!(found.verdict, Verdict::Valid);
        assert_eq!(found.counted("fail:write"), Some(2));
        assert_eq!(found.counted("info:read"), Some(1));
        for (params, few) in [
            (
                "param min_ok_per_function 2",
                "1 of 2 `read` happened, 2 are required; 1 of 3 `write` happened, 2 are required",
            ),
            (
                "param min_ok_percent 50",
                "1 of 3 `write` happened, 50 % are required",
            ),
        ] {
            let few = Reason::Coverage(few.to_owned());
            assert_eq!(check(params).verdict, Verdict::Unknown(few));
        }
    }
}
