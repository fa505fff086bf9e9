//! `total-queue`: what goes into a queue comes out.
//!
//! Accounts for each element in the end. When it came out is the matter of `queue`.

use history::{EventRef, History, Kind, NONE, Op, Outcome};

use crate::deliveries::{self, DELIVERY, FUNCTIONS, Promised};
use crate::elements::{self, Elements};
use crate::params::{self, Param};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// Errors of a `dequeue` that found the queue empty.
const EMPTY: &[&str] = &["empty", "exhausted"];

/// What goes into a queue comes out.
pub struct TotalQueue;

impl Checker for TotalQueue {
    fn name(&self) -> &'static str {
        "total-queue"
    }

    fn promise(&self) -> &'static str {
        "Every element whose enqueue was acknowledged is delivered, unless delivery is \
         `at-most-once`; none is delivered more often than it was enqueued, unless delivery is \
         `at-least-once`; and nothing is delivered that nobody enqueued."
    }

    fn method(&self) -> &'static str {
        "Counts, for each value, the enqueues that were acknowledged and those that may have \
         happened, and how often it was delivered. An element counts as lost only if the queue was \
         found empty afterwards: by a `drain`, or by a `dequeue` that returned null or failed with \
         `empty` or `exhausted`. A crashed `dequeue` may have taken any one element and a crashed \
         `drain` any number of them: that many missing elements are unknown, not lost, and what is \
         left is judged. O(n). Source: the checker `total-queue` of Jepsen, which lets duplicates \
         pass and fails on crashed drains (yugabyte/jepsen issue 135, jepsen issue 282)."
    }

    fn params(&self) -> &'static [Param] {
        &[DELIVERY, params::FAILS]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("acknowledged", "enqueues that were acknowledged"),
            ("delivered", "elements delivered"),
            (
                "lost",
                "elements that were acknowledged and certainly never come out",
            ),
            ("unexpected", "elements delivered that nobody enqueued"),
            (
                "duplicated",
                "deliveries beyond the number of enqueues of an element",
            ),
            (
                "recovered",
                "elements delivered whose enqueue was never acknowledged",
            ),
            (
                "unaccounted",
                "missing elements that a crashed dequeue or drain may have taken",
            ),
            (
                "undrained",
                "missing elements acknowledged after the queue was last found empty",
            ),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let promised = Promised::of(&history.header);
        let mut queues = queues(history);
        let mut elements = Elements::of(history, FUNCTIONS);
        let accounts = accounts(history, promised, &queues, &mut elements);
        let sums = settle(&accounts, &mut queues);
        let is_wrong = |account: &Account| {
            account.asked < account.delivered && (account.asked == 0 || promised.no_repeat)
        };
        let wrong = accounts.iter().position(is_wrong);
        let leaking = queues.iter().position(|queue| queue.lost() > 0);
        let result = match (wrong, leaking) {
            (Some(element), _) => {
                let account = accounts[element];
                tell_excess(history, &mut elements, element, account)
            }
            (None, Some(place)) if promised.no_loss => {
                let element = accounts
                    .iter()
                    .position(|account| account.place == place && account.lost() > 0);
                tell_loss(history, &mut elements, &queues[place], element.unwrap_or(0))
            }
            _ => verdict(history, promised, &sums),
        };
        result
            .count("acknowledged", sums.acknowledged)
            .count("delivered", sums.delivered)
            .count("lost", sums.lost)
            .count("unexpected", sums.unexpected)
            .count("duplicated", sums.duplicated)
            .count("recovered", sums.recovered)
            .count("unaccounted", sums.unaccounted)
            .count("undrained", sums.undrained)
    }
}

/// What happened to a queue as a whole.
#[derive(Clone, Copy, Default)]
struct Queue {
    /// The invocation of the last operation that found it empty.
    emptied: Option<usize>,
    crashed_dequeues: u64,
    crashed_drains: u64,
    /// Elements that were acknowledged before it was found empty and never came out.
    missing: u64,
}

impl Queue {
    fn may_be_taken(&self) -> u64 {
        match self.crashed_drains {
            0 => self.crashed_dequeues.min(self.missing),
            _ => self.missing,
        }
    }

    fn lost(&self) -> u64 {
        self.missing - self.may_be_taken()
    }
}

fn finds_empty(op: Op<'_>) -> bool {
    match (op.f(), op.outcome()) {
        ("drain", Outcome::Ok) => true,
        ("dequeue", Outcome::Ok) => op.output().is_some_and(|value| value.is_null()),
        ("dequeue", Outcome::Fail) => op.error().is_some_and(|error| EMPTY.contains(&error)),
        _ => false,
    }
}

/// The queues by place.
fn queues(history: &History) -> Vec<Queue> {
    let mut queues: Vec<Queue> = Vec::new();
    for op in history.ops_of(FUNCTIONS) {
        let queue = elements::at(&mut queues, elements::place(op.key_id()));
        if finds_empty(op) {
            queue.emptied = Some(op.invoke.index());
        }
        if op.outcome() == Outcome::Info {
            queue.crashed_dequeues += u64::from(op.f() == "dequeue");
            queue.crashed_drains += u64::from(op.f() == "drain");
        }
    }
    queues
}

/// What is known of one element.
#[derive(Clone, Copy, Default)]
struct Account {
    /// The place of its queue.
    place: usize,
    /// Enqueues that may have happened, and those that were acknowledged.
    asked: u32,
    acknowledged: u32,
    /// Those acknowledged before the queue was last found empty.
    due: u32,
    delivered: u32,
}

impl Account {
    /// How often it should have come out and did not, whoever took it.
    fn lost(self) -> u32 {
        self.due.saturating_sub(self.delivered)
    }
}

fn accounts(
    history: &History,
    promised: Promised,
    queues: &[Queue],
    elements: &mut Elements,
) -> Vec<Account> {
    let mut accounts: Vec<Account> = Vec::new();
    for event in history.events() {
        let key = elements::key(event);
        let place = elements::place(key);
        if event.kind() == Kind::Invoke {
            if event.f() == "enqueue" && promised.may_count(event) {
                let element = elements.number(key.unwrap_or(NONE), event.value());
                let account = elements::at(&mut accounts, element);
                let answer = event.partner().filter(|answer| answer.kind() == Kind::Ok);
                let is_due = |answer: EventRef<'_>| Some(answer.index()) < queues[place].emptied;
                account.place = place;
                account.asked += 1;
                account.acknowledged += u32::from(answer.is_some());
                account.due += u32::from(answer.is_some_and(is_due));
            }
            continue;
        }
        deliveries::delivered(event, |value| {
            let element = elements.number(key.unwrap_or(NONE), value);
            let account = elements::at(&mut accounts, element);
            account.place = place;
            account.delivered += 1;
        });
    }
    accounts
}

#[derive(Default)]
struct Sums {
    acknowledged: u64,
    delivered: u64,
    lost: u64,
    unexpected: u64,
    duplicated: u64,
    recovered: u64,
    unaccounted: u64,
    undrained: u64,
}

fn settle(accounts: &[Account], queues: &mut [Queue]) -> Sums {
    let mut sums = Sums::default();
    for account in accounts {
        let (asked, delivered) = (account.asked, account.delivered);
        let missing = account.acknowledged.saturating_sub(delivered);
        let excess = u64::from(delivered.saturating_sub(asked));
        sums.acknowledged += u64::from(account.acknowledged);
        sums.delivered += u64::from(delivered);
        sums.recovered += u64::from(asked.min(delivered).saturating_sub(account.acknowledged));
        sums.undrained += u64::from(missing - account.lost());
        if asked == 0 {
            sums.unexpected += excess;
        } else {
            sums.duplicated += excess;
        }
        if let Some(queue) = queues.get_mut(account.place) {
            queue.missing += u64::from(account.lost());
        }
    }
    for queue in queues {
        sums.lost += queue.lost();
        sums.unaccounted += queue.may_be_taken();
    }
    sums
}

/// What is said where nothing is wrong for certain.
fn verdict(history: &History, promised: Promised, sums: &Sums) -> Checked {
    if history.ops_of(&["enqueue"]).next().is_none() {
        return Checked::unknown(Reason::NotApplicable("nothing was enqueued".to_owned()));
    }
    if sums.acknowledged == 0 && sums.delivered == 0 {
        let nothing = "no enqueue was acknowledged and nothing was delivered";
        return Checked::unknown(Reason::Coverage(nothing.to_owned()));
    }
    let mut open = Vec::new();
    if promised.no_loss && sums.unaccounted > 0 {
        open.push(format!(
            "{} elements are missing, which a crashed dequeue or drain may have taken",
            sums.unaccounted
        ));
    }
    if promised.no_loss && sums.undrained > 0 {
        open.push(format!(
            "{} elements are missing, and the queue was not found empty after they were acknowledged",
            sums.undrained
        ));
    }
    match open.is_empty() {
        true => Checked::valid(),
        false => Checked::unknown(Reason::Coverage(open.join("; "))),
    }
}

fn tell_excess(
    history: &History,
    elements: &mut Elements,
    element: usize,
    account: Account,
) -> Checked {
    let mut story = Story::default();
    let mut value = String::new();
    let last = last_delivery(history, elements, element, &mut value);
    deliveries::tell(&mut story, history, elements, element, last);
    story.tell_faults_within(history);
    Checked::invalid(story.finish(match account.asked {
        0 => format!("{value} was delivered, and nobody had enqueued it"),
        asked => format!(
            "{value} was enqueued at most {asked} times and delivered {} times",
            account.delivered
        ),
    }))
}

/// The event that delivers an element for the last time.
fn last_delivery(
    history: &History,
    elements: &mut Elements,
    element: usize,
    name: &mut String,
) -> usize {
    for event in history.events().rev() {
        let key = elements::key(event).unwrap_or(NONE);
        let mut is_here = false;
        deliveries::delivered(event, |value| {
            if elements.number(key, value) == element {
                is_here = true;
                *name = words::value(value);
            }
        });
        if is_here {
            return event.index();
        }
    }
    0
}

fn tell_loss(history: &History, elements: &mut Elements, queue: &Queue, element: usize) -> Checked {
    let mut story = Story::default();
    let end = queue.emptied.unwrap_or(0);
    let is_it = |op: &Op<'_>, elements: &mut Elements| {
        elements.number(op.key_id().unwrap_or(NONE), op.input()) == element
    };
    let mut enqueues = history.ops_of(&["enqueue"]).filter(|op| op.is_ok());
    let enqueue = enqueues.find(|op| is_it(op, elements));
    let value = enqueue.map_or_else(String::new, |op| words::value(op.input()));
    let empty = history.event(end).op();
    deliveries::tell(&mut story, history, elements, element, history.len() - 1);
    story.tell(
        empty.completion.unwrap_or(empty.invoke),
        match empty.f() {
            "drain" => format!("a drain that begins later has not got {value}"),
            _ => "a dequeue that begins later finds the queue empty".to_owned(),
        },
    );
    story.tell_faults_within(history);
    let others = match queue.may_be_taken() {
        0 => String::new(),
        taken => format!(
            " ({} elements are missing, and only {taken} of them may have been taken by crashed dequeues)",
            queue.missing
        ),
    };
    Checked::invalid(story.finish(format!(
        "the enqueue of {value} was acknowledged, and it never came out{others}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        TotalQueue.check(&script::history("queue", text), &Budget::unlimited())
    }

    const GOOD: &str = r#"
        0-1 A enqueue - 1 -> 1
        2-3 A enqueue - 2 -> info timeout
        4-5 A enqueue - 3 -> 3
        6-7 B dequeue - null -> 2
        8-9 B drain - null -> [1,3]"#;

    #[test]
    fn an_element_that_never_comes_out_is_convicted() {
        let good = check(GOOD);
        assert_eq!(good.verdict, Verdict::Valid);
        assert_eq!(good.counted("recovered"), Some(1));
        let lost = GOOD.replace("[1,3]", "[1]");
        let bad = check(&lost);
        assert_eq!(bad.verdict, Verdict::Invalid);
        assert_eq!(bad.counted("lost"), Some(1));
        assert_eq!(
            bad.counterexample.unwrap().summary,
            "the enqueue of 3 was acknowledged, and it never came out"
        );
        let allowed = check(&format!("param delivery \"at-most-once\"\n{lost}"));
        assert_eq!(allowed.verdict, Verdict::Valid);
    }

    #[test]
    fn what_may_still_be_inside_is_not_lost() {
        let open = GOOD.replace("drain - null -> [1,3]", "dequeue - null -> 1");
        let found = check(&open);
        assert!(matches!(
            found.verdict,
            Verdict::Unknown(Reason::Coverage(_))
        ));
        assert_eq!(found.counted("undrained"), Some(1));
        let empty = format!("{open}\n10-11 B dequeue - null -> fail empty");
        assert_eq!(check(&empty).verdict, Verdict::Invalid);
    }

    #[test]
    fn a_crash_explains_as_much_as_it_may_have_taken() {
        let two_lost = GOOD.replace("[1,3]", "[]");
        assert_eq!(check(&two_lost).counted("lost"), Some(2));
        let one_taken = check(&format!("{two_lost}\n2-3 C dequeue - null -> info timeout"));
        assert_eq!(one_taken.verdict, Verdict::Invalid);
        assert_eq!(one_taken.counted("lost"), Some(1));
        assert_eq!(one_taken.counted("unaccounted"), Some(1));
    }
}
