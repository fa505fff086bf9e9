//! `sequential`: some order of all operations explains every answer and keeps that of each session.
//!
//! [`search`] looks for the order where neither linearizability shows that there is one nor
//! causality that there is none.

mod search;

use history::History;

use crate::causality::{self, Level, Sessions};
use crate::linearizable::Linearizable;
use crate::params::{Param, Takes};
use crate::registers::{self, Registers};
use crate::shrink::ddmin;
use crate::words::{self, ROWS_MAX, Story};
use crate::{Budget, Checked, Checker, Exhausted, Reason, Verdict, sessions};

/// Some order explains every answer and keeps that of each session.
pub struct Sequential;

const SCOPE: Param = Param {
    name: "scope",
    takes: Takes::Word(&["all", "key"]),
    default: "all",
    about: "`all`: one order of the operations on all keys; `key`: one of those on each key",
};

/// How many steps the attempt to show linearizability may take: it is a short cut.
const SHORT_CUT_STEPS: u64 = 4_000_000;
/// How many parts are tried to make a counterexample small, and how many steps each may take.
const TESTS_MAX: usize = 2_000;
const STEPS_MAX: u64 = 200_000;
/// How many operations before the failure are looked at first.
const WINDOW_FIRST: usize = 8;
/// A longer part than this is not made smaller.
const SMALL: usize = 256;

impl Checker for Sequential {
    fn name(&self) -> &'static str {
        "sequential"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["sequential-consistency"]
    }

    fn promise(&self) -> &'static str {
        "There is one order of all operations that keeps the order of each session and in which \
         every read returns the last write of its key. Real time does not count."
    }

    fn method(&self) -> &'static str {
        "What is linearizable is sequential, and is shown to be so in near-linear time where its \
         writes are distinct. Else a read must tell which write it saw: values that were read were \
         written once. What breaks causal convergence (see `causal`) is not sequential: O(n s) for \
         s sessions. Else the order is searched: reads of the present value go first, a write only \
         once all have read what it overwrites, one whose readers can all follow at once without \
         another choice, and the other choices by depth first, with the states that failed \
         remembered by a fingerprint of 128 bits. For one key without cas no choice is ever wrong; for \
         all keys the problem is NP-complete (Gibbons \
         and Korach, Testing Shared Memories, 1997), and out of budget is unknown. A cas reads and \
         writes at one moment. Source: Lamport, How to Make a Multiprocessor Computer That \
         Correctly Executes Multiprocess Programs (1979)."
    }

    fn params(&self) -> &'static [Param] {
        &[
            SCOPE,
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
                "by_linearizability",
                "1 if it was decided by its being linearizable",
            ),
            (
                "choices",
                "writes that were tried where another might have come first",
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
        let mut choices = 0;
        let is_linearizable = registers.unwritten.is_none() && is_linearizable(history, budget);
        let result = if let Some(read) = &registers.unwritten {
            sessions::unwritten(history, &registers, read)
        } else if registers.is_empty() {
            return Checked::unknown(Reason::NotApplicable(
                "no register was read or written".to_owned(),
            ));
        } else if is_linearizable {
            Checked::valid()
        } else {
            judge(history, &registers, budget, &mut choices)
        };
        registers
            .count(result)
            .count("by_linearizability", u64::from(is_linearizable))
            .count("choices", choices)
    }
}

/// Whether it can be shown at little cost that there is an order even in real time, where it is
/// sure that the other checker reads registers too.
fn is_linearizable(history: &History, budget: &Budget) -> bool {
    let header = &history.header;
    let of_registers = matches!(header.workload.as_str(), "" | "register" | "cas-register");
    if budget.spend(0).is_err() || !of_registers || header.params.contains_key("model") {
        return false;
    }
    let limits = Budget::new(SHORT_CUT_STEPS, Budget::DEFAULT_BYTES);
    Linearizable.check(history, &limits).verdict == Verdict::Valid
}

/// What was found out about some accesses.
enum Decision {
    /// There is an order.
    Sequential,
    /// Causality alone rules it out.
    Causality(causality::Broken),
    /// No order was found, and all were tried.
    NoOrder,
}

fn decide(
    history: &History,
    part: &Registers,
    budget: &Budget,
    choices: &mut u64,
) -> Result<Decision, Exhausted> {
    let sessions = Sessions::of(part);
    let found = causality::explore(part, &sessions, Level::Convergent, budget)?;
    if let Some(broken) = found.broken {
        return Ok(Decision::Causality(broken));
    }
    let is_found = search::search(
        history,
        part,
        &sessions,
        &found.constraints,
        budget,
        choices,
    )?;
    Ok(if is_found {
        Decision::Sequential
    } else {
        Decision::NoOrder
    })
}

fn judge(history: &History, registers: &Registers, budget: &Budget, choices: &mut u64) -> Checked {
    let by_key = SCOPE.word(&history.header) == "key";
    let parts: Vec<Registers> = if by_key {
        let places = registers.by_key();
        (0..registers.key_count())
            .map(|key| registers.part(places.of(key)))
            .collect()
    } else {
        let all: Vec<u32> =
            (0..u32::try_from(registers.accesses.len()).unwrap_or(u32::MAX)).collect();
        vec![registers.part(&all)]
    };
    for (at, part) in parts.iter().enumerate() {
        match decide(history, part, budget, choices) {
            Ok(Decision::Sequential) => {}
            Ok(Decision::Causality(broken)) => {
                return causality::tell(history, part, &Sessions::of(part), &broken);
            }
            Ok(Decision::NoOrder) => return tell(history, part, budget),
            Err(limit) => {
                let of = if by_key {
                    format!("{at} of {} keys decided", parts.len())
                } else {
                    "not decided".to_owned()
                };
                return Checked::unknown(Reason::exhausted(
                    limit,
                    format!("{of}, {choices} choices tried"),
                ));
            }
        }
    }
    match registers.why_ambiguous(history) {
        Some(why) => Checked::unknown(Reason::Coverage(why)),
        None => Checked::valid(),
    }
}

/// Makes the part that has no order small, and tells it. What is left out only takes constraints
/// away, as long as the writes that were read stay.
fn tell(history: &History, part: &Registers, budget: &Budget) -> Checked {
    let fails_in = |part: &Registers, places: &[u32]| {
        budget.spend(0).ok()?;
        let closed = part.with_what_was_read(places);
        let limits = Budget::new(STEPS_MAX, Budget::DEFAULT_BYTES);
        let decided = decide(history, &part.part(&closed), &limits, &mut 0);
        matches!(decided, Ok(Decision::NoOrder | Decision::Causality(_))).then_some(closed)
    };
    let all = |part: &Registers| {
        (0..u32::try_from(part.accesses.len()).unwrap_or(u32::MAX)).collect::<Vec<u32>>()
    };
    let mut fails = |places: &[u32]| fails_in(part, places);
    let first = shortest_beginning(all(part), &mut fails);
    let first = last_that_fail(&first, &mut fails).unwrap_or(first);
    let part = &part.part(&first);
    let first = all(part);
    let small = if first.len() <= SMALL {
        ddmin(first, TESTS_MAX, |places| fails_in(part, places))
    } else {
        first
    };
    let mut story = Story::default();
    for &place in small.iter().rev() {
        let access = part.accesses[place as usize];
        let op = history.event(access.event as usize).op();
        let who = words::who(op.invoke);
        let (value, key) = (part.value(history, &access), part.key(history, access.key));
        let note = if access.is_write {
            format!("{who} writes {value} to {key}")
        } else {
            format!("{who} reads {value} of {key}")
        };
        story.tell(
            op.completion
                .filter(|_| access.answered)
                .unwrap_or(op.invoke),
            note,
        );
    }
    story.tell_faults_within(history);
    let result = Checked::invalid(story.finish(format!(
        "no order of these {} operations keeps that of each session and explains what was read",
        small.len()
    )));
    if small.len() > ROWS_MAX {
        result.note(format!(
            "of the {} operations, the last {ROWS_MAX} are shown",
            small.len()
        ))
    } else {
        result
    }
}

/// The shortest beginning that fails, as far as that can be told: a longer one fails as well.
fn shortest_beginning(
    places: Vec<u32>,
    fails: &mut impl FnMut(&[u32]) -> Option<Vec<u32>>,
) -> Vec<u32> {
    let (mut low, mut high) = (0, places.len());
    let mut found = None;
    while low < high {
        let middle = low + (high - low) / 2;
        match fails(&places[..middle]) {
            Some(failing) => {
                found = Some(failing);
                high = middle;
            }
            None => low = middle + 1,
        }
    }
    found.unwrap_or(places)
}

/// The shortest end, of doubling length, that fails.
fn last_that_fail(
    places: &[u32],
    fails: &mut impl FnMut(&[u32]) -> Option<Vec<u32>>,
) -> Option<Vec<u32>> {
    let mut length = WINDOW_FIRST;
    while length < places.len() {
        if let Some(failing) = fails(&places[places.len() - length..]) {
            return Some(failing);
        }
        length *= 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script;

    fn check(text: &str) -> Checked {
        Sequential.check(&script::history("register", text), &Budget::unlimited())
    }

    /// Each of two sessions writes and then does not see the write of the other.
    const MUTANT: &str = r#"
        0-1 A write x 1 -> 1
        0-1 B write y 2 -> 2
        2-3 A read y null -> null
        2-3 B read x null -> null"#;

    #[test]
    fn two_sessions_that_miss_each_other_are_convicted() {
        let found = check(MUTANT);
        assert_eq!(found.verdict, Verdict::Invalid);
        let told = found.counterexample.unwrap();
        assert_eq!(told.rows.len(), 4);
        assert_eq!(
            told.summary,
            "no order of these 4 operations keeps that of each session and explains what was read"
        );
        let twin = check(&MUTANT.replace("read x null -> null", "read x null -> 1"));
        assert_eq!(twin.verdict, Verdict::Valid);
        // Each key by itself is in order.
        assert_eq!(
            check(&format!("param scope \"key\"\n{MUTANT}")).verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn real_time_does_not_count() {
        let stale = r#"
            0-1 A write x 1 -> 1
            2-3 A write x 2 -> 2
            4-5 B read x null -> 1
            6-7 B read x null -> 2"#;
        let found = check(stale);
        assert_eq!(found.counted("by_linearizability"), Some(0));
        assert_eq!(found.verdict, Verdict::Valid);
        let found = check(&stale.replace("4-5 B read x null -> 1", "4-5 B read x null -> 2"));
        assert_eq!(found.counterexample, None);
        let back = check(&stale.replace("read x null -> 2", "read x null -> null"));
        assert_eq!(back.verdict, Verdict::Invalid);
    }

    #[test]
    fn two_cas_do_not_replace_the_same_value() {
        let text = r#"
            0-1 A write x 1 -> 1
            2-3 B cas x [1,2] -> [1,2]
            2-3 C cas x [1,3] -> [1,3]"#;
        assert_eq!(check(text).verdict, Verdict::Invalid);
        assert_eq!(
            check(&text.replace("[1,3]", "[2,3]")).verdict,
            Verdict::Valid
        );
    }

    /// Linearizable as something else is not sequential as registers.
    #[test]
    fn another_model_proves_nothing() {
        for workload in ["mutex", "lock", "set", "register"] {
            let found = Sequential.check(&script::history(workload, MUTANT), &Budget::unlimited());
            assert_eq!(found.verdict, Verdict::Invalid, "{workload}");
        }
    }

    #[test]
    fn what_is_too_much_is_unknown() {
        let history = script::history("register", MUTANT);
        let found = Sequential.check(&history, &Budget::new(4_100, Budget::DEFAULT_BYTES));
        assert!(
            matches!(found.verdict, Verdict::Unknown(Reason::Budget(_))),
            "{found:?}"
        );
    }
}
