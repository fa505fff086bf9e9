//! `queue`: what comes out of a queue was put in before.
//!
//! What was put in and does not come out is the matter of `total-queue`; the order in which it
//! comes out that of `linearizable` with the model `fifo-queue`.

use history::{History, Kind, NONE};

use crate::deliveries::{self, DELIVERY, FUNCTIONS, Promised};
use crate::elements::{self, Elements};
use crate::params::{self, Param};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// What comes out of a queue was put in before.
pub struct Queue;

impl Checker for Queue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn promise(&self) -> &'static str {
        "No element is delivered before somebody asked to enqueue it, and none more often than it \
         was enqueued, unless delivery is `at-least-once`."
    }

    fn method(&self) -> &'static str {
        "Goes through the history once. At every answer of `dequeue` or `drain`, each element in it \
         must have been asked for by more `enqueue`s so far than it was delivered before; an \
         enqueue that failed does not count unless `fails` is `uncertain`, one without an answer \
         does. A `dequeue` of null found the queue empty. O(n). Source: the checker `queue` of \
         Jepsen, over its unordered queue."
    }

    fn params(&self) -> &'static [Param] {
        &[DELIVERY, params::FAILS]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("enqueues", "enqueues that may have happened"),
            ("delivered", "elements delivered"),
            (
                "unexpected",
                "elements delivered that nobody had asked to enqueue",
            ),
            (
                "repeated",
                "elements delivered more often than enqueued so far",
            ),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let promised = Promised::of(&history.header);
        let mut elements = Elements::of(history, FUNCTIONS);
        let mut inside: Vec<(u32, u32)> = Vec::new();
        let mut found = Found::default();
        for event in history.events() {
            let key = elements::key(event).unwrap_or(NONE);
            if event.kind() == Kind::Invoke {
                found.tried |= FUNCTIONS.contains(&event.f());
                if event.f() == "enqueue" && promised.may_count(event) {
                    let element = elements.number(key, event.value());
                    elements::at(&mut inside, element).0 += 1;
                    found.enqueues += 1;
                }
                continue;
            }
            deliveries::delivered(event, |value| {
                let element = elements.number(key, value);
                let (asked, delivered) = elements::at(&mut inside, element);
                *delivered += 1;
                found.delivered += 1;
                let is_wrong = if *asked == 0 {
                    found.unexpected += 1;
                    true
                } else {
                    let again = *delivered > *asked;
                    found.repeated += u64::from(again);
                    again && promised.no_repeat
                };
                if is_wrong && found.first.is_none() {
                    found.first = Some(Wrong {
                        event: event.index(),
                        element,
                        value: words::value(value),
                        asked: *asked,
                        delivered: *delivered,
                    });
                }
            });
        }
        found.judge(history, &mut elements)
    }
}

/// A delivery that must not be.
struct Wrong {
    event: usize,
    element: usize,
    value: String,
    /// How often it had been enqueued at most, and delivered, this time included.
    asked: u32,
    delivered: u32,
}

#[derive(Default)]
struct Found {
    tried: bool,
    enqueues: u64,
    delivered: u64,
    unexpected: u64,
    repeated: u64,
    first: Option<Wrong>,
}

impl Found {
    fn judge(&self, history: &History, elements: &mut Elements) -> Checked {
        let result = match &self.first {
            Some(wrong) => wrong.tell(history, elements),
            None if !self.tried => {
                Checked::unknown(Reason::NotApplicable("there is no queue".to_owned()))
            }
            None if self.delivered == 0 => {
                Checked::unknown(Reason::Coverage("nothing was delivered".to_owned()))
            }
            None => Checked::valid(),
        };
        result
            .count("enqueues", self.enqueues)
            .count("delivered", self.delivered)
            .count("unexpected", self.unexpected)
            .count("repeated", self.repeated)
    }
}

impl Wrong {
    fn tell(&self, history: &History, elements: &mut Elements) -> Checked {
        let mut story = Story::default();
        deliveries::tell(&mut story, history, elements, self.element, self.event);
        story.tell_faults_within(history);
        let who = words::who(history.event(self.event));
        let value = &self.value;
        Checked::invalid(story.finish(if self.asked == 0 {
            format!("{value} was delivered to {who}, and nobody had enqueued it")
        } else {
            format!(
                "{value} was delivered to {who}: {} times in all, but enqueued at most {}",
                self.delivered,
                times(self.asked)
            )
        }))
    }
}

fn times(number: u32) -> String {
    match number {
        1 => "once".to_owned(),
        _ => format!("{number} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        Queue.check(&script::history("queue", text), &Budget::unlimited())
    }

    const GOOD: &str = r#"
        0-1 A enqueue - 1 -> 1
        2-3 A enqueue - 2 -> info timeout
        4-5 B dequeue - null -> 2
        6-7 B dequeue - null -> null
        8-9 B drain - null -> [1]"#;

    #[test]
    fn a_delivery_of_nothing_is_convicted() {
        assert_eq!(check(GOOD).verdict, Verdict::Valid);
        let bad = check(&GOOD.replace("[1]", "[7]"));
        assert_eq!(bad.verdict, Verdict::Invalid);
        assert_eq!(
            bad.counterexample.unwrap().summary,
            "7 was delivered to B, and nobody had enqueued it"
        );
        let failed = GOOD.replace("info timeout", "fail full");
        assert_eq!(check(&failed).verdict, Verdict::Invalid);
        let uncertain = format!("param fails \"uncertain\"\n{failed}");
        assert_eq!(check(&uncertain).verdict, Verdict::Valid);
        // Before anybody asked is too early, even if somebody asks later.
        assert_eq!(
            check(&GOOD.replace("0-1", "20-21")).verdict,
            Verdict::Invalid
        );
    }

    #[test]
    fn a_second_delivery_is_convicted_unless_it_is_allowed() {
        let twice = GOOD.replace("[1]", "[1,1]");
        let found = check(&twice);
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(found.counted("repeated"), Some(1));
        assert_eq!(
            found.counterexample.unwrap().summary,
            "1 was delivered to B: 2 times in all, but enqueued at most once"
        );
        let allowed = check(&format!("param delivery \"at-least-once\"\n{twice}"));
        assert_eq!(allowed.verdict, Verdict::Valid);
    }
}
