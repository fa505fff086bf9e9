//! `monotonic-writes`: all sessions see the writes of one session in its order.

use history::History;

use crate::params::Param;
use crate::registers;
use crate::sessions::{self, Guarantee};
use crate::{Budget, Checked, Checker};

/// All sessions see the writes of one session in its order.
pub struct MonotonicWrites;

impl Checker for MonotonicWrites {
    fn name(&self) -> &'static str {
        "monotonic-writes"
    }

    fn promise(&self) -> &'static str {
        "The writes of a session to a key take effect in its order: no session reads a later \
         one of them and then an earlier one."
    }

    fn method(&self) -> &'static str {
        "Each key by itself. Two writes of a session, the first of them acknowledged, put the first \
         before the second. What became of the order is seen by sessions that read: two reads of a \
         session put what the first saw before what the second saw. The guarantee is kept if and \
         only if no cycle of these comes up: O(n). Where already the reads by themselves have no \
         order, it is `monotonic-reads` that is broken, and this is unknown for that key. A read of \
         what nobody wrote is a violation. Where a value that was read was written twice, the read \
         is left out, and the verdict is unknown unless the rest convicts. Source: Terry et al., \
         Session Guarantees for Weakly Consistent Replicated Data (1994); Viotti and Vukolic, \
         Consistency in Non-Transactional Distributed Storage Systems (2016)."
    }

    fn params(&self) -> &'static [Param] {
        registers::PARAMS
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        sessions::COUNTS
    }

    fn check(&self, history: &History, budget: &Budget) -> Checked {
        sessions::judge(history, budget, Guarantee::MonotonicWrites)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        MonotonicWrites.check(&script::history("register", text), &Budget::unlimited())
    }

    const TWIN: &str = r#"
        0-1 A write x 1 -> 1
        2-3 A write x 2 -> 2
        4-5 B read x null -> 1
        6-7 B read x null -> 2"#;

    #[test]
    fn writes_seen_in_another_order_are_convicted() {
        assert_eq!(check(TWIN).verdict, Verdict::Valid);
        let mutant = check(
            &TWIN
                .replace("A write x 1 -> 1", "A write x 9 -> 9")
                .replace("x 2 -> 2", "x 1 -> 1")
                .replace("x 9 -> 9", "x 2 -> 2"),
        );
        assert_eq!(mutant.verdict, Verdict::Invalid);
        let told = mutant.counterexample.unwrap();
        assert_eq!(
            told.summary,
            "B read 2 of key x after it had read 1, although A wrote 1 after 2"
        );
        assert_eq!(told.rows.len(), 4);
    }

    #[test]
    fn reads_that_go_back_by_themselves_say_nothing_of_writes() {
        let text = format!("{TWIN}\n8-9 B read x null -> 1");
        let found = check(&text);
        assert!(
            matches!(found.verdict, Verdict::Unknown(crate::Reason::Coverage(_))),
            "{found:?}"
        );
        assert_eq!(found.counted("keys_undecided"), Some(1));
    }
}
