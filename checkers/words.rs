//! How a counterexample is told: names, values and times in words, and a story of at most ten rows.

use std::ops::Range;

use history::{EventRef, History, NONE, ValueRef};

use crate::verdict::{Counterexample, Row};

/// A story has at most so many rows.
pub(crate) const ROWS_MAX: usize = 10;

const VALUE_CHARS_MAX: usize = 60;

/// Who did it: `A`, or `process 3` for a number.
pub(crate) fn who(event: EventRef<'_>) -> String {
    process(event.process())
}

/// A process in words.
pub(crate) fn process(process: &history::Process) -> String {
    match process {
        history::Process::Number(number) => format!("process {number}"),
        history::Process::Name(name) => name.clone(),
    }
}

/// A value as short JSON text.
pub(crate) fn value(value: ValueRef<'_>) -> String {
    let text = match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_json().to_string(),
    };
    if text.chars().count() <= VALUE_CHARS_MAX {
        return text;
    }
    let head: String = text.chars().take(VALUE_CHARS_MAX).collect();
    format!("{head}...")
}

/// ` of L` for a key, nothing for none.
pub(crate) fn of_key(history: &History, key: u32) -> String {
    if key == NONE {
        String::new()
    } else {
        format!(" of {}", value(history.key_value(key)))
    }
}

/// ` 33` for a number, nothing for none.
pub(crate) fn number(number: Option<i128>) -> String {
    number.map_or_else(String::new, |number| format!(" {number}"))
}

/// A duration in words: `11.2 s` or `350 ms`.
pub(crate) fn span(ns: u64) -> String {
    if ns >= 1_000_000_000 {
        format!("{}.{} s", ns / 1_000_000_000, ns / 100_000_000 % 10)
    } else {
        format!("{} ms", ns / 1_000_000)
    }
}

/// A moment in words: `15.100 s`.
pub(crate) fn at(ns: u64) -> String {
    format!("{}.{:03} s", ns / 1_000_000_000, ns / 1_000_000 % 1_000)
}

/// Whole milliseconds.
pub(crate) fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}

/// A fault in words: `fault: freeze of c1 begins`.
pub(crate) fn fault(event: EventRef<'_>) -> String {
    let target = event
        .value()
        .get("target")
        .map_or_else(String::new, |target| format!(" of {}", value(target)));
    let phase = match event.value().get("phase").and_then(ValueRef::as_str) {
        Some("begin") => " begins",
        Some("end") => " ends",
        _ => "",
    };
    format!("fault: {}{target}{phase}", event.f())
}

/// Collects the rows of a counterexample in any order.
#[derive(Default)]
pub(crate) struct Story {
    rows: Vec<Row>,
}

impl Story {
    /// Adds an event and what it means here.
    pub(crate) fn tell(&mut self, event: EventRef<'_>, note: impl Into<String>) {
        if self.rows.len() < ROWS_MAX && self.rows.iter().all(|row| row.event != event.index()) {
            self.rows.push(Row {
                event: event.index(),
                note: note.into(),
            });
        }
    }

    /// Adds the faults among these events, the last ones first, as far as there is room. At most
    /// the last thousand events are looked at.
    pub(crate) fn tell_faults(&mut self, history: &History, events: Range<usize>) {
        let start = events.start.max(events.end.saturating_sub(1000));
        for index in (start..events.end.min(history.len())).rev() {
            if self.rows.len() >= ROWS_MAX {
                return;
            }
            let event = history.event(index);
            if event.is_nemesis() {
                self.tell(event, fault(event));
            }
        }
    }

    /// Adds the faults between its first and its last event, as far as there is room.
    pub(crate) fn tell_faults_within(&mut self, history: &History) {
        let events = || self.rows.iter().map(|row| row.event);
        if let (Some(from), Some(to)) = (events().min(), events().max()) {
            self.tell_faults(history, from..to);
        }
    }

    /// The counterexample, its rows in the order of the history.
    pub(crate) fn finish(mut self, summary: impl Into<String>) -> Counterexample {
        self.rows.sort_by_key(|row| row.event);
        Counterexample {
            summary: summary.into(),
            rows: self.rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        assert_eq!(span(350_000_000), "350 ms");
        assert_eq!(span(11_250_000_000), "11.2 s");
        assert_eq!(span(0), "0 ms");
    }

    #[test]
    fn a_story_has_at_most_ten_rows_in_order() {
        let history = crate::script::history(
            "register",
            "0 nemesis cut - {\"target\":\"n1\"}\n".repeat(20).as_str(),
        );
        let mut story = Story::default();
        story.tell(history.event(19), "the end");
        story.tell_faults(&history, 0..20);
        let told = story.finish("x");
        assert_eq!(told.rows.len(), ROWS_MAX);
        assert!(told.rows.is_sorted_by_key(|row| row.event));
        assert_eq!(told.rows[9].note, "the end");
        assert_eq!(told.rows[0].note, "fault: cut of n1");
    }
}
