//! `causal`: whoever sees an effect sees its causes.

use history::History;

use crate::causality::{self, Level, Sessions};
use crate::params::{Param, Takes};
use crate::registers::{self, Registers};
use crate::{Budget, Checked, Checker, Reason, sessions};

/// Whoever sees an effect sees its causes.
pub struct Causal;

const CAUSAL: Param = Param {
    name: "causal",
    takes: Takes::Word(&["ccv", "cc"]),
    default: "ccv",
    about: "`ccv`: causal convergence, all sessions agree on one order of the writes of a key; \
            `cc`: causal consistency, they need not",
};

impl Checker for Causal {
    fn name(&self) -> &'static str {
        "causal"
    }

    fn promise(&self) -> &'static str {
        "A read returns no value that was overwritten in its causal past: what its session did \
         before, the writes that it saw, and whatever was in their past; and sessions agree on one \
         order of concurrent writes."
    }

    fn method(&self) -> &'static str {
        "All keys together. Where the values that were read were written once, a read tells which \
         write it saw. The bad patterns of Bouajjani et al. (On Verifying Causal Consistency, 2017), \
         which for such histories are exact: a read of what nobody wrote, a circle of causes, a \
         read of the initial value or of an overwritten one with an overwriting write in its \
         causal past, and, for causal convergence, a circle of causes and of the orders of writes \
         that reads tell. One clock for each session: O(n s) for s sessions; clocks beyond the \
         memory are unknown. A cas is a read and a write. Where a value that was read was written \
         twice, the read is left out, and the verdict is unknown unless the rest convicts. Real \
         time does not count. Jepsen's causal register is the case of one process for each key, \
         with `initial` 0 and `nil_reads` `unknown`; its `read-init` is a read."
    }

    fn params(&self) -> &'static [Param] {
        &[
            CAUSAL,
            registers::SESSIONS,
            crate::params::INITIAL,
            crate::params::READS,
            crate::params::NIL_READS,
            crate::params::FAILS,
            crate::actors::THREADS,
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("keys", "registers read or written"),
            ("sessions", "sessions that read or wrote"),
            ("reads", "reads judged"),
            ("writes", "writes that happened"),
            ("unanswered", "writes whose outcome is unknown"),
            (
                "seen_of_others",
                "reads that saw a write of another session",
            ),
            (
                "orders_told",
                "times that a read told which of two writes came first",
            ),
        ]
    }

    fn check(&self, history: &History, budget: &Budget) -> Checked {
        let registers = match Registers::of(history, budget) {
            Ok(registers) => registers,
            Err(limit) => {
                return Checked::unknown(Reason::exhausted(
                    limit,
                    "reading the history".to_owned(),
                ));
            }
        };
        let level = match CAUSAL.word(&history.header) {
            "cc" => Level::Causal,
            _ => Level::Convergent,
        };
        let mut orders = 0;
        let result = if let Some(read) = &registers.unwritten {
            sessions::unwritten(history, &registers, read)
        } else if registers.is_empty() {
            return Checked::unknown(Reason::NotApplicable(
                "no register was read or written".to_owned(),
            ));
        } else {
            let of = Sessions::of(&registers);
            match causality::explore(&registers, &of, level, budget) {
                Err(limit) => Checked::unknown(Reason::exhausted(
                    limit,
                    format!(
                        "{} sessions, {} reads and writes",
                        of.count(),
                        registers.accesses.len()
                    ),
                )),
                Ok(found) => {
                    orders = found.missed;
                    match (&found.broken, registers.why_ambiguous(history)) {
                        (Some(broken), _) => causality::tell(history, &registers, &of, broken),
                        (None, Some(why)) => Checked::unknown(Reason::Coverage(why)),
                        (None, None) => Checked::valid(),
                    }
                }
            }
        };
        registers.count(result).count("orders_told", orders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        Causal.check(&script::history("register", text), &Budget::unlimited())
    }

    /// A question, its answer, and a third who sees the answer first.
    const TWIN: &str = r#"
        0-1 A write q 1 -> 1
        2-3 B read q null -> 1
        4-5 B write a 2 -> 2
        6-7 C read a null -> 2
        8-9 C read q null -> 1"#;

    #[test]
    fn an_effect_without_its_cause_is_convicted() {
        assert_eq!(check(TWIN).verdict, Verdict::Valid);
        let mutant = check(&TWIN.replace("8-9 C read q null -> 1", "8-9 C read q null -> null"));
        assert_eq!(mutant.verdict, Verdict::Invalid);
        let told = mutant.counterexample.unwrap();
        assert_eq!(
            told.summary,
            "C read null of key q, the initial value, although the write of 1 was in its causal past"
        );
        assert_eq!(told.rows.len(), 5);
    }

    #[test]
    fn an_overwritten_value_is_convicted() {
        let text = r#"
            0-1 A write q 1 -> 1
            2-3 B read q null -> 1
            4-5 B write q 2 -> 2
            6-7 B write a 3 -> 3
            8-9 C read a null -> 3
            10-11 C read q null -> 1"#;
        for level in ["cc", "ccv"] {
            let text = format!("param causal \"{level}\"\n{text}");
            let found = check(&text);
            assert_eq!(found.verdict, Verdict::Invalid);
            assert_eq!(
                found.counterexample.unwrap().summary,
                "C read 1 of key q, although 2, which was written after it, was in its causal past"
            );
            assert_eq!(
                check(&text.replace("10-11 C", "10-11 D")).verdict,
                Verdict::Valid
            );
        }
    }

    #[test]
    fn sessions_that_disagree_on_concurrent_writes_do_not_converge() {
        let text = r#"
            0-1 A write x 1 -> 1
            0-1 B write x 2 -> 2
            2-3 C read x null -> 1
            4-5 C read x null -> 2
            2-3 D read x null -> 2
            4-5 D read x null -> 1"#;
        let found = check(text);
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(
            found.counterexample.unwrap().summary,
            "sessions read the writes of key x in orders that contradict each other"
        );
        assert_eq!(
            check(&format!("param causal \"cc\"\n{text}")).verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn causes_that_go_in_a_circle_are_convicted() {
        let text = r#"
            0-9 A read x null -> 1
            0-9 B read y null -> 2
            10-11 A write y 2 -> 2
            10-11 B write x 1 -> 1"#;
        let found = check(text);
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(found.counterexample.unwrap().rows.len(), 4);
    }

    /// Jepsen's causal register: one process for each key reads, writes 1, reads, writes 2, reads.
    #[test]
    fn the_causal_register_of_jepsen_is_judged() {
        let text = r#"
            param initial 0
            param nil_reads "unknown"
            0-1 A read-init x null -> 0
            2-3 A write x 1 -> 1
            4-5 A read x null -> 1
            6-7 A write x 2 -> 2
            8-9 A read x null -> 2"#;
        assert_eq!(check(text).verdict, Verdict::Valid);
        assert_eq!(
            check(&text.replace("null -> 2", "null -> null")).verdict,
            Verdict::Valid
        );
        assert_eq!(
            check(&text.replace("null -> 2", "null -> 1")).verdict,
            Verdict::Invalid
        );
        assert_eq!(
            check(&text.replace("null -> 0", "null -> 5")).verdict,
            Verdict::Invalid
        );
    }

    #[test]
    fn what_was_written_twice_leaves_it_open() {
        let text = TWIN
            .replace("write a 2 -> 2", "write q 1 -> 1")
            .replace("read a null -> 2", "read a null -> null");
        assert!(matches!(
            check(&text).verdict,
            Verdict::Unknown(Reason::Coverage(_))
        ));
    }
}
