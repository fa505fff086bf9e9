//! A counterexample as a table of at most ten rows: what a person must see to believe it.
//!
//! The checker chose the events and says what each means. Here they get times, words and context:
//! who led as that node saw it, which faults were in force, and, where there is room, the faults
//! that began or ended in between.

use checkers::Counterexample;
use history::{EventRef, History, Kind, Outcome, ValueRef};

use super::timeline::Timeline;
use super::words;

/// A person reads ten rows.
const ROWS_MAX: usize = 10;
/// The result of an invocation whose completion has a row of its own.
const ASKED: &str = "asked";

/// The table.
pub struct Story {
    /// One sentence: what happened that must not happen.
    pub summary: String,
    /// The rows, in order of time.
    pub rows: Vec<StoryRow>,
    /// How many events the checker named beyond those that are shown.
    pub left_out: usize,
    /// The time of the event that breaks the promise, ns.
    pub broken_at: Option<u64>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoryRow {
    /// Index of the event in the history; `None` for a fault that was added as context.
    pub event: Option<usize>,
    /// When, ns.
    pub at: u64,
    /// Who, and through which server.
    pub who: String,
    /// What was asked or done.
    pub operation: String,
    /// What came of it.
    pub result: String,
    /// Who led, as the server of the operation last said.
    pub leader: String,
    /// Faults in force.
    pub fault: String,
    /// What it means here.
    pub note: String,
    /// Whether this is the row that breaks the promise.
    pub breaks: bool,
}

impl Story {
    /// Tells a counterexample; a timeline adds leaders and faults to it.
    pub fn of(told: &Counterexample, history: &History, timeline: Option<&Timeline>) -> Story {
        let mut rows: Vec<StoryRow> = Vec::new();
        let events: Vec<usize> = told.rows.iter().map(|row| row.event).collect();
        for row in &told.rows {
            if row.event >= history.len() {
                continue;
            }
            let event = history.event(row.event);
            let completion = event.partner().filter(|_| event.kind() == Kind::Invoke);
            let completed_too = completion.filter(|done| events.contains(&done.index()));
            rows.push(tell(
                history,
                event,
                &row.note,
                completed_too.is_some(),
                timeline,
            ));
        }
        let breaking = rows
            .iter()
            .rposition(|row| row.event.is_some_and(|at| !history.event(at).is_nemesis()));
        if let Some(breaking) = breaking {
            rows[breaking].breaks = true;
        }
        let broken_at = breaking.map(|at| rows[at].at);
        let left_out = cut(&mut rows);
        if let Some(timeline) = timeline {
            add_faults(&mut rows, history, timeline);
        }
        Story {
            summary: words::capitalised(&told.summary),
            rows,
            left_out,
            broken_at,
        }
    }

    /// What happened to a lock as a story of whole sentences; `None` where no lock is involved.
    pub fn prose(&self, history: &History) -> Option<String> {
        let events = || {
            self.rows
                .iter()
                .filter_map(|row| Some(history.event(row.event?)))
        };
        if !events().any(|event| matches!(event.f(), "acquire" | "lead" | "lost" | "put")) {
            return None;
        }
        let mut sentences = Vec::new();
        for row in &self.rows {
            let event = row.event.map(|at| history.event(at));
            let told = match event {
                Some(_) if row.result == ASKED => {
                    format!("{} asked: {}", row.who, row.operation)
                }
                Some(event) => prose(history, event),
                None => row.operation.clone(),
            };
            sentences.push(format!("At {} s {told}.", words::clock(row.at)));
        }
        Some(sentences.join(" "))
    }

    /// The rows as lines of text, without leaders and faults: for terminals. Where times, as
    /// they are shown, tell nothing apart, the numbers of the events stand in their place.
    pub fn lines(&self) -> Vec<String> {
        let is_timed = self
            .rows
            .iter()
            .any(|row| words::clock(row.at) != words::clock(0));
        self.rows
            .iter()
            .map(|row| {
                let result = match row.result.as_str() {
                    "" => String::new(),
                    result => format!(" → {result}"),
                };
                let note = match row.note.as_str() {
                    "" => String::new(),
                    note => format!("  ({note})"),
                };
                let mark = if row.breaks { "✗" } else { " " };
                let at = match row.event.filter(|_| !is_timed) {
                    Some(event) => format!("event {event:>6}"),
                    None => format!("{:>8} s", words::clock(row.at)),
                };
                format!("{mark} {at}  {}: {}{result}{note}", row.who, row.operation)
            })
            .collect()
    }
}

fn tell(
    history: &History,
    event: EventRef<'_>,
    note: &str,
    completion_follows: bool,
    timeline: Option<&Timeline>,
) -> StoryRow {
    let result = match event.kind() {
        Kind::Invoke if completion_follows => ASKED.to_owned(),
        Kind::Invoke => match event.partner() {
            Some(done) => format!(
                "{} (after {})",
                words::result(event),
                words::span(done.time().saturating_sub(event.time()))
            ),
            None => words::result(event),
        },
        _ => words::result(event),
    };
    let node = event
        .node()
        .or_else(|| event.partner().and_then(EventRef::node));
    let seen = timeline.filter(|_| !event.is_nemesis() && !event.is_observer());
    StoryRow {
        event: Some(event.index()),
        at: event.time(),
        who: words::who(history, event),
        operation: words::operation(event),
        result,
        leader: seen
            .map(|timeline| {
                timeline
                    .leader_seen(node, event.time())
                    .unwrap_or_else(|| "unknown".to_owned())
            })
            .unwrap_or_default(),
        fault: timeline
            .map(|timeline| timeline.faults_at(event.time()))
            .unwrap_or_default(),
        // What a checker says of a fault is what the operation says.
        note: if event.is_nemesis() && note.starts_with("fault: ") {
            String::new()
        } else {
            words::clip(note)
        },
        breaks: false,
    }
}

/// What an event is in the story of a lock, without its time and its full stop.
fn prose(history: &History, event: EventRef<'_>) -> String {
    if event.is_nemesis() {
        return words::operation(event);
    }
    if event.is_observer() {
        return format!("{}: {}", words::who(history, event), words::result(event));
    }
    let who = words::who(history, event);
    let who = who.split(" via ").next().unwrap_or(&who);
    let op = match event.kind() {
        Kind::Invoke => Some(event.op()),
        _ => event.partner().map(EventRef::op),
    };
    let Some(op) = op else {
        return format!("{who} {}", words::operation(event));
    };
    let key = op.invoke.key().map(words::value).unwrap_or_default();
    let part = |value: Option<ValueRef<'_>>, name: &str| {
        value.and_then(|value| value.get(name)).map(words::value)
    };
    let with_token = |token: Option<String>| {
        token
            .map(|token| format!(" with token {token}"))
            .unwrap_or_default()
    };
    let came = match op.outcome() {
        Outcome::Ok => "and it was accepted".to_owned(),
        Outcome::Fail => {
            format!(
                "and it was refused ({})",
                op.error().unwrap_or("no reason given")
            )
        }
        Outcome::Info => "and nobody knows whether it happened".to_owned(),
    };
    match (op.f(), op.is_ok()) {
        ("acquire" | "lead", true) => {
            format!("{who} took {key}{}", with_token(part(op.output(), "token")))
        }
        ("acquire" | "lead", false) => format!("{who} asked for {key}, {came}"),
        ("release", true) => format!("{who} gave {key} back"),
        ("put", _) => {
            let v = part(Some(op.input()), "v").unwrap_or_default();
            let token = with_token(part(Some(op.input()), "token"));
            format!("{who} wrote {key} = {v}{token}, {came}")
        }
        _ => format!(
            "{who}: {}, {}",
            words::operation(event),
            words::result(event)
        ),
    }
}

/// Keeps the first rows and the last ones, and always the breaking one, which is near the end.
fn cut(rows: &mut Vec<StoryRow>) -> usize {
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    if left_out > 0 {
        let head = ROWS_MAX / 3;
        rows.drain(head..head + left_out);
    }
    left_out
}

/// Adds beginnings and ends of faults between the first row and the last, as far as there is room.
fn add_faults(rows: &mut Vec<StoryRow>, history: &History, timeline: &Timeline) {
    let (Some(first), Some(last)) = (
        rows.first().map(|row| row.at),
        rows.last().map(|row| row.at),
    ) else {
        return;
    };
    let told: Vec<(Option<u64>, &str)> = rows
        .iter()
        .filter_map(|row| Some(history.event(row.event?)))
        .filter(|event| event.is_nemesis())
        .map(|event| {
            let value = event.value();
            let phase = value
                .get("phase")
                .and_then(ValueRef::as_str)
                .unwrap_or_default();
            (value.get("id").and_then(ValueRef::as_u64), phase)
        })
        .collect();
    for band in timeline.bands.iter().filter(|band| band.landed) {
        let end = band.end.map(|end| (end, "end", "is healed"));
        for (at, phase, word) in [Some((band.begin, "begin", "begins")), end]
            .into_iter()
            .flatten()
        {
            let is_told = told.contains(&(Some(band.id), phase));
            if rows.len() >= ROWS_MAX || at < first || at > last || is_told {
                continue;
            }
            rows.push(StoryRow {
                event: None,
                at,
                who: "harness".to_owned(),
                operation: format!("{} of {} {word}", band.fault, band.target),
                result: "verified".to_owned(),
                leader: String::new(),
                fault: format!("#{}", band.id),
                note: String::new(),
                breaks: false,
            });
        }
    }
    rows.sort_by_key(|row| row.at);
}
