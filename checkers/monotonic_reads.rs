//! `monotonic-reads`: a session never reads an older value of a key than it has read.

use history::History;

use crate::params::Param;
use crate::sessions::{self, Guarantee};
use crate::{Budget, Checked, Checker};

/// A session never reads an older value of a key than it has read.
pub struct MonotonicReads;

impl Checker for MonotonicReads {
    fn name(&self) -> &'static str {
        "monotonic-reads"
    }

    fn promise(&self) -> &'static str {
        "Once a session has read a value of a key, it reads that or one that comes later in \
         the order of the writes of the key, and never an older one."
    }

    fn method(&self) -> &'static str {
        "Each key by itself. Where the values that were read were written once, a read tells which \
         write it saw. Two reads of a session, one after the other, put what the first saw before \
         what the second saw, unless it is the same; with what is known of the order of writes \
         besides (`write_order`), the guarantee is kept if and only if no cycle of these comes \
         up: O(n). A read of what nobody wrote is a violation. Where a value that was read was \
         written twice, the read is left out, and the verdict is unknown unless the rest convicts. \
         Source: Terry et al., Session Guarantees for Weakly Consistent Replicated Data (1994); \
         Viotti and Vukolic, Consistency in Non-Transactional Distributed Storage Systems (2016)."
    }

    fn params(&self) -> &'static [Param] {
        sessions::PARAMS_WITH_ORDER
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        sessions::COUNTS
    }

    fn check(&self, history: &History, budget: &Budget) -> Checked {
        sessions::judge(history, budget, Guarantee::MonotonicReads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        MonotonicReads.check(&script::history("register", text), &Budget::unlimited())
    }

    const TWIN: &str = r#"
        0-1 A write x 1 -> 1
        2-3 A write x 2 -> 2
        4-5 B read x null -> 1
        6-7 B read x null -> 2
        8-9 C read x null -> 1"#;

    #[test]
    fn a_read_that_goes_back_is_convicted() {
        assert_eq!(check(TWIN).verdict, Verdict::Valid);
        let mutant = check(&TWIN.replace("8-9 C", "8-9 B"));
        assert_eq!(mutant.verdict, Verdict::Invalid);
        let told = mutant.counterexample.unwrap();
        assert_eq!(
            told.summary,
            "B read 1 of key x after it had read 2, although A wrote 2 after 1"
        );
        let other = check(&TWIN.replace("4-5 B", "4-5 D").replace("8-9 C", "8-9 B"));
        assert_eq!(
            other.counterexample.unwrap().summary,
            "B read 1 of key x after it had read 2, although A wrote 2 after 1"
        );
    }

    #[test]
    fn two_sessions_must_agree_on_one_order() {
        let text = r#"
            0-9 A write x 1 -> 1
            0-9 B write x 2 -> 2
            10-11 C read x null -> 1
            12-13 C read x null -> 2
            10-11 D read x null -> 2
            12-13 D read x null -> 1"#;
        let found = check(text);
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(found.counterexample.unwrap().rows.len(), 4);
        assert_eq!(
            check(&text.replace("12-13 D", "12-13 E")).verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn nothing_is_assumed_of_writes_if_that_is_asked_for() {
        let text = r#"
            0-1 A write x 1 -> 1
            2-3 A write x 2 -> 2
            4-5 B read x null -> 2
            6-7 B read x null -> 1"#;
        assert_eq!(check(text).verdict, Verdict::Invalid);
        assert_eq!(
            check(&format!("param write_order \"any\"\n{text}")).verdict,
            Verdict::Valid
        );
    }
}
