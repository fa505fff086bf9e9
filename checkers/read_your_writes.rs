//! `read-your-writes`: a session that wrote a key never reads an older value of it.

use history::History;

use crate::params::Param;
use crate::sessions::{self, Guarantee};
use crate::{Budget, Checked, Checker};

/// A session that wrote a key never reads an older value of it.
pub struct ReadYourWrites;

impl Checker for ReadYourWrites {
    fn name(&self) -> &'static str {
        "read-your-writes"
    }

    fn promise(&self) -> &'static str {
        "A session that wrote a key reads that value afterwards, or one that comes later in \
         the order of the writes of the key."
    }

    fn method(&self) -> &'static str {
        "Each key by itself. Where the values that were read were written once, a read tells which \
         write it saw. Each read after an acknowledged write of its session puts that write before \
         the one that it saw, or is of it; with what is known of the order of writes besides \
         (`write_order`), the guarantee is kept if and only if no cycle of these comes up: O(n). A \
         read of what nobody wrote is a violation. Where a value that was read was written twice, \
         the read is left out, and the verdict is unknown unless the rest convicts. Source: Terry \
         et al., Session Guarantees for Weakly Consistent Replicated Data (1994); Viotti and \
         Vukolic, Consistency in Non-Transactional Distributed Storage Systems (2016)."
    }

    fn params(&self) -> &'static [Param] {
        sessions::PARAMS_WITH_ORDER
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        sessions::COUNTS
    }

    fn check(&self, history: &History, budget: &Budget) -> Checked {
        sessions::judge(history, budget, Guarantee::ReadYourWrites)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        ReadYourWrites.check(&script::history("register", text), &Budget::unlimited())
    }

    const TWIN: &str = r#"
        0-1 A write x 1 -> 1
        2-3 A write x 2 -> 2
        4-5 A read x null -> 2"#;

    #[test]
    fn an_older_value_than_the_own_is_convicted() {
        assert_eq!(check(TWIN).verdict, Verdict::Valid);
        let mutant = check(&TWIN.replace("null -> 2", "null -> 1"));
        assert_eq!(mutant.verdict, Verdict::Invalid);
        let told = mutant.counterexample.unwrap();
        assert_eq!(
            told.summary,
            "A read 1 of key x after it had written 2, although A wrote 2 after 1"
        );
        assert_eq!(told.rows.len(), 3);
        let initial = check(&TWIN.replace("null -> 2", "null -> null"));
        assert_eq!(
            initial.counterexample.unwrap().summary,
            "A read null of key x after it had written 2, the initial value"
        );
    }

    #[test]
    fn a_value_of_another_is_older_only_if_that_is_known() {
        let text = r#"
            0-1 B write x 7 -> 7
            2-3 A write x 1 -> 1
            4-5 A read x null -> 7"#;
        assert_eq!(check(text).verdict, Verdict::Valid);
        let known = format!("param write_order \"realtime\"\n{text}");
        let found = check(&known);
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(
            found.counterexample.unwrap().summary,
            "A read 7 of key x after it had written 1, although the write of 7 was acknowledged \
             before that of 1 was asked for"
        );
    }

    #[test]
    fn times_that_are_equal_are_ordered_or_not() {
        let text = r#"
            param write_order "realtime"
            0-1 B write x 7 -> 7
            1-3 A write x 1 -> 1
            4-5 A read x null -> 7"#;
        assert_eq!(check(text).verdict, Verdict::Invalid);
        let tied = format!("param ties \"concurrent\"\n{text}");
        assert_eq!(check(&tied).verdict, Verdict::Valid);
        let later = tied.replace("1-3 A", "2-3 A");
        assert_eq!(check(&later).verdict, Verdict::Invalid);
        let by_clocks = format!("param clock_error_ms 1\n{later}");
        assert_eq!(check(&by_clocks).verdict, Verdict::Valid);
    }

    #[test]
    fn what_had_no_answer_ends_the_session() {
        let text = r#"
            0-1 0 write x 1 -> 1
            2-3 0 write x 2 -> info timeout
            4-5 0 read x null -> 1"#;
        assert!(matches!(check(text).verdict, Verdict::Unknown(_)));
        let by_thread = format!(
            "param sessions \"thread\"\nparam threads 4\n{text}\n6-7 4 read x null -> null"
        );
        assert_eq!(check(&by_thread).verdict, Verdict::Invalid);
        assert_eq!(
            check(&by_thread.replace("thread\"", "process\"")).verdict,
            Verdict::Unknown(crate::Reason::NotApplicable(
                "no session read a key after it had written it".to_owned()
            ))
        );
    }

    #[test]
    fn a_value_written_twice_is_unknown_and_one_never_written_a_violation() {
        let twice = check(&TWIN.replace("x 1 -> 1", "x 2 -> 2"));
        assert!(
            matches!(twice.verdict, Verdict::Unknown(crate::Reason::Coverage(_))),
            "{twice:?}"
        );
        let never = check(&TWIN.replace("null -> 2", "null -> 9"));
        assert_eq!(
            never.counterexample.unwrap().summary,
            "A read 9 of key x, which nobody wrote"
        );
    }
}
