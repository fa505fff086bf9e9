//! Histories as short scripts, for tests: one operation or one event a line.
//!
//! ```text
//! 0-100 A acquire L {"ttl_ms":3000} -> {"token":1}     an operation that happened
//! 200-300 A put r {"token":1} -> fail stale-token      one that did not
//! 400-500 A release L null -> info timeout             one that may have
//! 600- A read x                                        one without an answer
//! 700 A lost L                                         something unasked
//! 800 observer leader - {"leader":"n1","term":5} @n1   an observation, about a node
//! ```
//!
//! Times are milliseconds, `-` is no key, the default value is `null`. A header parameter is a
//! line `param name value`.

use history::{Event, Header, History, HistoryBuilder, Kind, Process};
use serde_json::Value;

/// The history that a script describes.
///
/// # Panics
/// If the script is not well-formed, or its events contradict each other.
pub fn history(workload: &str, script: &str) -> History {
    let mut header = Header::new(workload, &[]);
    let mut events: Vec<Event> = Vec::new();
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        if let Some(param) = line.strip_prefix("param ") {
            let (name, value) = param.split_once(' ').expect("param name value");
            header.params.insert(name.to_owned(), json(value));
        } else if let Some(nodes) = line.strip_prefix("nodes ") {
            header.nodes = nodes.split(' ').map(str::to_owned).collect();
        } else {
            parse_line(line, &mut events);
        }
    }
    events.sort_by_key(|event| event.time);
    let mut builder = HistoryBuilder::new(header);
    for event in &events {
        builder.push(event).expect("a consistent script");
    }
    builder.finish()
}

fn parse_line(line: &str, events: &mut Vec<Event>) {
    let (line, node) = match line.rsplit_once(" @") {
        Some((line, node)) => (line, Some(node.to_owned())),
        None => (line, None),
    };
    let (asked, answer) = match line.split_once(" -> ") {
        Some((asked, answer)) => (asked, Some(answer.trim())),
        None => (line, None),
    };
    let mut words = asked.splitn(5, ' ');
    let times = words.next().expect("times");
    let process = words.next().expect("process");
    let f = words.next().expect("function");
    let key = words.next().unwrap_or("-");
    let value = words.next().map_or(Value::Null, json);
    let event = |time: &str, kind, value| Event {
        time: time.parse::<u64>().expect("milliseconds") * 1_000_000,
        process: process
            .parse()
            .map_or_else(|_| Process::Name(process.to_owned()), Process::Number),
        node: node.clone(),
        kind,
        f: f.to_owned(),
        key: (key != "-").then(|| Value::from(key)),
        value,
        error: None,
    };
    let Some((from, to)) = times.split_once('-') else {
        events.push(event(times, Kind::Info, value));
        return;
    };
    events.push(event(from, Kind::Invoke, value.clone()));
    let Some(answer) = answer else { return };
    let (word, error) = answer.split_once(' ').unwrap_or((answer, ""));
    let kind = match word {
        "fail" => Kind::Fail,
        "info" => Kind::Info,
        _ => Kind::Ok,
    };
    if kind == Kind::Ok {
        events.push(event(to, kind, json(answer)));
    } else {
        let mut completion = event(to, kind, value);
        completion.error = (!error.is_empty()).then(|| error.to_owned());
        events.push(completion);
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("`{text}`: {error}"))
}
