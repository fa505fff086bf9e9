//! `writes-follow-reads`: a write comes after what its session had read.

use history::History;

use crate::params::Param;
use crate::registers;
use crate::sessions::{self, Guarantee};
use crate::{Budget, Checked, Checker};

/// A write comes after what its session had read.
pub struct WritesFollowReads;

impl Checker for WritesFollowReads {
    fn name(&self) -> &'static str {
        "writes-follow-reads"
    }

    fn promise(&self) -> &'static str {
        "A write of a key comes, for all sessions, after the value of that key that its \
         session had read before: no session reads the write and then what it was \
         made after."
    }

    fn method(&self) -> &'static str {
        "Each key by itself; across keys see `causal`. A read and a later write of one session put \
         what the read saw before the write. What became of the order is seen by sessions that \
         read: two reads of a session put what the first saw before what the second saw. The \
         guarantee is kept if and only if no cycle of these comes up: O(n). Where already the reads \
         by themselves have no order, it is `monotonic-reads` that is broken, and this is unknown \
         for that key. A read of what nobody wrote is a violation. Where a value that was read was \
         written twice, the read is left out, and the verdict is unknown unless the rest convicts. \
         Source: Terry et al., Session Guarantees for Weakly Consistent Replicated Data (1994); \
         Viotti and Vukolic, Consistency in Non-Transactional Distributed Storage Systems (2016)."
    }

    fn params(&self) -> &'static [Param] {
        registers::PARAMS
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        sessions::COUNTS
    }

    fn check(&self, history: &History, budget: &Budget) -> Checked {
        sessions::judge(history, budget, Guarantee::WritesFollowReads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        WritesFollowReads.check(&script::history("register", text), &Budget::unlimited())
    }

    const TWIN: &str = r#"
        0-1 A write x 1 -> 1
        2-3 B read x null -> 1
        4-5 B write x 2 -> 2
        6-7 C read x null -> 1
        8-9 C read x null -> 2"#;

    #[test]
    fn an_answer_seen_before_its_question_is_convicted() {
        assert_eq!(check(TWIN).verdict, Verdict::Valid);
        let mutant = check(&TWIN.replace("6-7 C", "10-11 C"));
        assert_eq!(mutant.verdict, Verdict::Invalid);
        let told = mutant.counterexample.unwrap();
        assert_eq!(
            told.summary,
            "C read 1 of key x after it had read 2, although B had read 1 when it wrote 2"
        );
        assert_eq!(told.rows.len(), 4);
        // Without the read, nothing says that the second write was made after the first.
        assert_eq!(
            check(&format!(
                "{}\n20-21 D read y null -> null\n22-23 D write y 1 -> 1",
                TWIN.replace("6-7 C", "10-11 C").replace("2-3 B", "2-3 D")
            ))
            .verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn a_cas_comes_after_what_it_replaced() {
        let text = r#"
            0-1 A write x 1 -> 1
            2-3 B cas x [1,2] -> [1,2]
            4-5 C read x null -> 2
            6-7 C read x null -> 1"#;
        assert_eq!(check(text).verdict, Verdict::Invalid);
        assert_eq!(
            check(&text.replace("6-7 C", "6-7 D")).verdict,
            Verdict::Valid
        );
    }
}
