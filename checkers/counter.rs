//! `counter`: every read lies between what was certainly added and what may have been.
//!
//! Necessary, not exact: each read is judged by itself. `linearizable` with the model `counter`
//! judges all of them together.

use history::{EventRef, History, Kind, NONE, Outcome, ValueRef};

use crate::elements::{at, key, place};
use crate::ident::integer;
use crate::params::{self, Param};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

const READS: &[&str] = &["read", "final-read"];

/// Every read lies between what was certainly added and what may have been.
pub struct Counter;

impl Checker for Counter {
    fn name(&self) -> &'static str {
        "counter"
    }

    fn promise(&self) -> &'static str {
        "A read of a counter returns a number that the additions before and beside it allow."
    }

    fn method(&self) -> &'static str {
        "Every addition that was acknowledged before the read began counts; every other that was \
         asked for before it was answered may count, or not. The least that these can add up to and \
         the most are the bounds of the read; additions may be negative. One that failed never \
         counts, unless `fails` is `uncertain`. The bounds are necessary, not exact: each read is \
         judged by itself, and for arbitrary additions not every number between them can be reached. \
         O(n). Source: the checker `counter` of Jepsen, and its issue 303."
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                default: "0",
                about: "the number before the first addition; a read of null returned it",
                ..params::INITIAL
            },
            params::FAILS,
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("additions", "additions that were acknowledged"),
            ("reads", "reads that returned a number"),
            ("wrong", "reads that returned a number beyond their bounds"),
            ("exact_reads", "reads that could return one number only"),
            ("width_max", "the most that the bounds of a read were apart"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        if history.ops_of(&["add"]).next().is_none() {
            return Checked::unknown(Reason::NotApplicable("nothing was added".to_owned()));
        }
        let mut found = match Found::of(history) {
            Ok(found) => found,
            Err(reason) => return Checked::unknown(reason),
        };
        let result = match found.first.take() {
            Some(wrong) => wrong.tell(history),
            None if found.reads == 0 => {
                Checked::unknown(Reason::Coverage("the counter was never read".to_owned()))
            }
            None => Checked::valid().note(
                "bounds are necessary, not exact: each read was judged by itself; `linearizable` \
                 with the model `counter` judges them together",
            ),
        };
        result
            .count("additions", found.additions)
            .count("reads", found.reads)
            .count("wrong", found.wrong)
            .count("exact_reads", found.exact_reads)
            .count("width_max", found.width_max)
    }
}

/// Sums of additions: of all that are positive, and of all that are negative.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    up: i128,
    down: i128,
}

impl Sums {
    fn add(&mut self, by: i128) {
        self.up += by.max(0);
        self.down += by.min(0);
    }
}

/// A counter as it stands at some event.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// What may have been added: everything asked for that did not certainly fail.
    asked: Sums,
    /// What was acknowledged.
    certain: Sums,
}

/// A read that returned what it cannot return.
struct Wrong<'h> {
    read: EventRef<'h>,
    value: i128,
    low: i128,
    high: i128,
}

#[derive(Default)]
struct Found<'h> {
    additions: u64,
    reads: u64,
    wrong: u64,
    exact_reads: u64,
    width_max: u64,
    first: Option<Wrong<'h>>,
}

/// How much an addition adds: one where it does not say.
fn amount(value: ValueRef<'_>) -> Option<i128> {
    if value.is_null() {
        return Some(1);
    }
    integer(value)
}

impl<'h> Found<'h> {
    fn of(history: &'h History) -> Result<Found<'h>, Reason> {
        let header = &history.header;
        let initial = header.params.get("initial").filter(|v| !v.is_null());
        let initial = initial.map_or(Some(0), serde_json::Value::as_i64);
        let initial = i128::from(initial.ok_or_else(|| {
            Reason::Parameter("`initial` of a counter: expected a whole number".to_owned())
        })?);
        let fail_is_certain = params::FAILS.word(header) == "certain";
        let mut states: Vec<State> = Vec::new();
        // What was certain when the open read of each process began.
        let mut before: Vec<Sums> = vec![Sums::default(); history.process_count()];
        let mut found = Found::default();
        for event in history.events() {
            let state = place(key(event));
            match (event.f(), event.kind()) {
                ("add", Kind::Invoke)
                    if !(fail_is_certain && event.op().outcome() == Outcome::Fail) =>
                {
                    let by = amount(event.value()).ok_or_else(|| not_a_number(event))?;
                    at(&mut states, state).asked.add(by);
                }
                ("add", Kind::Ok) => {
                    let asked = event.partner().unwrap_or(event);
                    let by = amount(asked.value()).ok_or_else(|| not_a_number(asked))?;
                    at(&mut states, state).certain.add(by);
                    found.additions += 1;
                }
                (f, Kind::Invoke) if READS.contains(&f) => {
                    before[event.process_id() as usize] = at(&mut states, state).certain;
                }
                (f, Kind::Ok) if READS.contains(&f) => {
                    let value = match event.value() {
                        value if value.is_null() => Some(initial),
                        value => integer(value),
                    };
                    let value = value.ok_or_else(|| not_a_number(event))?;
                    let certain = before[event.process_id() as usize];
                    let asked = at(&mut states, state).asked;
                    found.judge(Wrong {
                        read: event,
                        value,
                        low: initial + certain.up + asked.down,
                        high: initial + asked.up + certain.down,
                    });
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn judge(&mut self, read: Wrong<'h>) {
        let width = u64::try_from(read.high - read.low).unwrap_or(u64::MAX);
        self.reads += 1;
        self.exact_reads += u64::from(width == 0);
        self.width_max = self.width_max.max(width);
        if !(read.low..=read.high).contains(&read.value) {
            self.wrong += 1;
            if self.first.is_none() {
                self.first = Some(read);
            }
        }
    }
}

fn not_a_number(event: EventRef<'_>) -> Reason {
    Reason::NotApplicable(format!(
        "event {}: `{}` of {}, which is no whole number",
        event.index(),
        event.f(),
        words::value(event.value())
    ))
}

impl Wrong<'_> {
    fn tell(&self, history: &History) -> Checked {
        let mut story = Story::default();
        let Wrong {
            read,
            value,
            low,
            high,
        } = *self;
        let who = words::who(read);
        let asked = read.partner().unwrap_or(read);
        let of = words::of_key(history, key(read).unwrap_or(NONE));
        story.tell(asked, format!("{who} asks for the number{of}"));
        story.tell(read, format!("{who} reads {value}"));
        let is_add = |event: &EventRef<'_>| event.f() == "add" && key(*event) == key(read);
        let is_low = value < low;
        // The last addition that sets the bound, and the last ones that failed and set none.
        let adds = |until: usize| (0..until).map(|index| history.event(index)).filter(is_add);
        let bound = adds(if is_low { asked.index() } else { read.index() }).rfind(|event| {
            if is_low {
                event.kind() == Kind::Ok
            } else {
                event.kind() == Kind::Invoke && event.op().outcome() != Outcome::Fail
            }
        });
        if let Some(event) = bound {
            let note = if is_low {
                format!("the last addition to be acknowledged before: at least {low} by now")
            } else {
                format!("the last addition to be asked for before: at most {high} by now")
            };
            story.tell(event, note);
        }
        let failed = adds(read.index())
            .filter(|event| event.kind() == Kind::Invoke && event.op().outcome() == Outcome::Fail);
        for event in failed.rev().take(3) {
            let by = words::value(event.value());
            story.tell(event, format!("an addition of {by}, which fails"));
        }
        story.tell_faults_within(history);
        let bounds = if low == high {
            format!("only {low} is possible")
        } else {
            format!("{low} to {high} is possible")
        };
        Checked::invalid(story.finish(format!("{who} read {value}{of}, and {bounds}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        Counter.check(&script::history("counter", text), &Budget::unlimited())
    }

    const GOOD: &str = r#"
        0-1 A add - 2 -> 2
        2-9 B add - 3 -> info timeout
        4-5 A add - -1 -> fail refused
        6-7 C read - null -> 2
        8-9 C read - null -> 5"#;

    #[test]
    fn a_read_beyond_its_bounds_is_convicted() {
        let good = check(GOOD);
        assert_eq!(good.verdict, Verdict::Valid);
        assert_eq!(good.counted("width_max"), Some(3));
        assert!(good.notes[0].contains("not exact"));
        for (from, to) in [("-> 5", "-> 6"), ("-> 2\n        8", "-> 1\n        8")] {
            let bad = check(&GOOD.replace(from, to));
            assert_eq!(bad.verdict, Verdict::Invalid, "{to}");
            assert_eq!(bad.counted("wrong"), Some(1));
        }
        let low = GOOD.replace("-> 5", "-> 1");
        assert_eq!(
            check(&low).counterexample.unwrap().summary,
            "C read 1, and 2 to 5 is possible"
        );
        let uncertain = check(&format!("param fails \"uncertain\"\n{low}"));
        assert_eq!(uncertain.verdict, Verdict::Valid);
    }

    #[test]
    fn null_is_the_number_before_all_additions() {
        let text = "0-1 A read - null -> null\n2-3 A add - 1 -> 1";
        assert_eq!(check(text).verdict, Verdict::Valid);
        let late = format!("{text}\n4-5 A read - null -> null");
        assert_eq!(check(&late).verdict, Verdict::Invalid);
        let seven = format!("param initial 7\n{text}\n4-5 A read - null -> 8");
        assert_eq!(check(&seven).verdict, Verdict::Valid);
    }
}
