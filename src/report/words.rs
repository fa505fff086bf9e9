//! Numbers, times, operations and verdicts in words, for every kind of report.
//!
//! Nothing here knows HTML or Markdown: what it returns is plain text that the caller escapes.

use checkers::Verdict;
use history::{EventRef, History, Kind, Op, Outcome as OpOutcome, Process, ValueRef};
use serde_json::Value;

/// Longer texts of a run are cut, so that one huge error cannot make a report unreadable.
const TEXT_CHARS_MAX: usize = 600;
const VALUE_CHARS_MAX: usize = 60;

/// `48,210`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 fault`, `2 faults`.
pub fn plural(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", thousands(number))
}

/// A point in time since the run began, in seconds, as tables show it: `20.61`.
pub fn clock(ns: u64) -> String {
    format!("{}.{:02}", ns / 1_000_000_000, ns / 10_000_000 % 100)
}

/// A duration: `0.34 ms`, `350 ms`, `1.24 s`, `75 s`.
pub fn span(ns: u64) -> String {
    let ms = ns / 1_000_000;
    match ns {
        0 => "0 ms".to_owned(),
        1..1_000_000 => format!("0.{:02} ms", ns / 10_000),
        1_000_000..10_000_000 => format!("{ms}.{} ms", ns / 100_000 % 10),
        10_000_000..1_000_000_000 => format!("{ms} ms"),
        1_000_000_000..100_000_000_000 => format!("{}.{:02} s", ms / 1000, ms / 10 % 100),
        _ => format!("{} s", thousands(ms / 1000)),
    }
}

/// A duration in milliseconds, as [`span`] writes it.
pub fn span_ms(ms: u64) -> String {
    span(ms.saturating_mul(1_000_000))
}

/// The text, cut if it is very long, and the cut said.
pub fn clip(text: &str) -> String {
    clip_at(text, TEXT_CHARS_MAX)
}

fn clip_at(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}… ({} bytes in all)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// The name of a count without its unit, and the number with it: `overlap_ms_max`, 1240 gives
/// `overlap max` and `1.24 s`; `write_ok_percent:n1`, 97 gives `write ok, n1` and `97 %`.
pub fn count(name: &str, number: u64) -> (String, String) {
    let (stem, of) = name.split_once(':').unwrap_or((name, ""));
    let words: Vec<&str> = stem.split(['_', '-']).collect();
    let is_unit = |word: &&str| ["ms", "percent"].contains(word);
    let number = match words.iter().find(|word| is_unit(word)) {
        Some(&"ms") => span_ms(number),
        Some(_) => format!("{number} %"),
        None => thousands(number),
    };
    let named: Vec<&str> = words.into_iter().filter(|word| !is_unit(word)).collect();
    let comma = if of.is_empty() { "" } else { ", " };
    (format!("{}{comma}{of}", named.join(" ")), number)
}

/// The text with a capital letter, unless it begins with a name.
pub fn capitalised(text: &str) -> String {
    let first_word = text.split_whitespace().next().unwrap_or_default();
    let is_plain = first_word.len() > 1 && first_word.chars().all(|c| c.is_ascii_lowercase());
    if !is_plain {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

/// All counts in one line, those of one name together: `keys 2, ops (read 26, write 17)`.
pub fn counts(counts: &[(String, u64)]) -> String {
    let stem = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
    let parts: Vec<String> = counts
        .chunk_by(|(one, _), (other, _)| one.contains(':') && stem(one) == stem(other))
        .map(|group| match group[0].0.split_once(':') {
            Some((stem, _)) => {
                let each = group.iter().map(|(name, number)| {
                    let of = name.split_once(':').map_or("", |(_, of)| of);
                    format!("{of} {}", count(name, *number).1)
                });
                let each: Vec<String> = each.collect();
                format!("{} ({})", count(stem, 0).0, each.join(", "))
            }
            None => {
                let (name, number) = count(&group[0].0, group[0].1);
                format!("{name} {number}")
            }
        })
        .collect();
    parts.join(", ")
}

/// The sign of a verdict, so that colour is never the only one.
pub fn sign(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Valid => "✓",
        Verdict::Invalid => "✗",
        Verdict::Unknown(_) => "?",
    }
}

/// A value as short text: strings bare, everything else as JSON.
pub fn value(value: ValueRef<'_>) -> String {
    let text = match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_json().to_string(),
    };
    clip_at(&text, VALUE_CHARS_MAX)
}

/// The client node of a process: its own name if it is a node's, else what the header's `clients`
/// says; `None` if nobody says.
pub fn client_node<'h>(history: &'h History, process: &'h Process) -> Option<&'h str> {
    let clients = history
        .header
        .params
        .get("clients")
        .and_then(Value::as_object);
    match process {
        Process::Name(name) => {
            let node = clients.and_then(|clients| clients.get(name)?.as_str());
            Some(node.unwrap_or(name))
        }
        Process::Number(number) => clients?.get(&number.to_string())?.as_str(),
    }
}

/// Who did it and through which server: `c1 via n1`, `c1 (process 7)`, `harness`, `n2, observed`.
pub fn who(history: &History, event: EventRef<'_>) -> String {
    if event.is_nemesis() {
        return "harness".to_owned();
    }
    if event.is_observer() {
        return event
            .node()
            .map_or_else(|| "observer".to_owned(), |node| format!("{node}, observed"));
    }
    let process = event.process();
    let name = match (client_node(history, process), process) {
        (Some(node), Process::Name(name)) if node == name => node.to_owned(),
        (Some(node), Process::Name(name)) => format!("{node} ({name})"),
        (Some(node), Process::Number(number)) => format!("{node} (process {number})"),
        (None, process) => format!("process {process}"),
    };
    let via = match event.kind() {
        Kind::Invoke => event.op().node(),
        _ => event
            .node()
            .or_else(|| event.partner().and_then(EventRef::node)),
    };
    match via {
        Some(via) => format!("{name} via {via}"),
        None => name,
    }
}

/// What an event says or asks for: `acquire L, ttl 3 s`, `freeze of c1 begins`, `says leader n1`.
pub fn operation(event: EventRef<'_>) -> String {
    if event.is_nemesis() {
        return fault_event(event);
    }
    if event.is_observer() {
        return if event.f() == "leader" {
            "who leads?".to_owned()
        } else {
            event.f().to_owned()
        };
    }
    let asked = event
        .partner()
        .filter(|_| event.kind() != Kind::Invoke)
        .unwrap_or(event);
    let key = event.key().map(value).unwrap_or_default();
    let input = asked.value();
    let f = event.f();
    let text = match f {
        "acquire" | "lead" | "renew" => match input.get("ttl_ms").and_then(ValueRef::as_u64) {
            Some(ttl) => format!("{f} {key}, ttl {}", span_ms(ttl)),
            None => format!("{f} {key}"),
        },
        "put" | "delete" | "fence" | "act" => guarded(f, &key, input),
        "write" | "add" | "enqueue" if !key.is_empty() => format!("{f} {key} = {}", value(input)),
        "cas" => match input.as_list().map(Iterator::collect::<Vec<_>>).as_deref() {
            Some(&[old, new]) => format!("cas {key}: {} → {}", value(old), value(new)),
            _ => format!("cas {key} {}", value(input)),
        },
        "lost" if event.is_unasked() => format!("was told: {key} is lost"),
        _ if event.is_unasked() => format!("was told: {f} {key} {}", value(event.value())),
        _ if input.is_null() => format!("{f} {key}"),
        _ => format!("{f} {key} {}", value(input)),
    };
    tidy(&text)
}

fn guarded(f: &str, key: &str, input: ValueRef<'_>) -> String {
    let mut text = format!("{} {key}", if f == "put" { "write" } else { f });
    if let Some(v) = input.get("v") {
        text.push_str(&format!(" = {}", value(v)));
    }
    if let Some(token) = input.get("token") {
        text.push_str(&format!(", token {}", value(token)));
    }
    text
}

fn fault_event(event: EventRef<'_>) -> String {
    let target = event.value().get("target");
    let target = target
        .map(|target| format!("of {}", targets(target)))
        .unwrap_or_default();
    let phase = match event.value().get("phase").and_then(ValueRef::as_str) {
        Some("begin") => "begins",
        Some("end") => "is healed",
        _ => "",
    };
    tidy(&format!("{} {target} {phase}", event.f()))
}

/// The names of what a fault struck: `c1, n1`.
pub fn targets(target: ValueRef<'_>) -> String {
    match target.as_list() {
        Some(names) => names.map(value).collect::<Vec<_>>().join(", "),
        None => value(target),
    }
}

/// What came of it: `ok, token 33`, `refused: stale-token`, `leader n1, term 5`.
pub fn result(event: EventRef<'_>) -> String {
    if event.is_nemesis() {
        let verified = event.value().get("verified").and_then(ValueRef::as_bool);
        return match verified {
            Some(true) => "done, verified".to_owned(),
            Some(false) => "not verified: did not land".to_owned(),
            None => String::new(),
        };
    }
    if event.is_observer() {
        return observed(event);
    }
    if event.is_unasked() {
        return String::new();
    }
    let op = match event.kind() {
        Kind::Invoke => event.op(),
        _ => match event.partner() {
            Some(invoke) => invoke.op(),
            None => return String::new(),
        },
    };
    op_result(op)
}

fn observed(event: EventRef<'_>) -> String {
    if let Some(error) = event.error() {
        return format!("no answer: {}", clip_at(error, VALUE_CHARS_MAX));
    }
    if event.f() != "leader" {
        return value(event.value());
    }
    let leader = event
        .value()
        .get("leader")
        .filter(|leader| !leader.is_null())
        .map_or_else(
            || "no leader".to_owned(),
            |leader| format!("leader {}", value(leader)),
        );
    match event.value().get("term").filter(|term| !term.is_null()) {
        Some(term) => format!("{leader}, term {}", value(term)),
        None => leader,
    }
}

fn op_result(op: Op<'_>) -> String {
    let error = op.error().map(|error| clip_at(error, VALUE_CHARS_MAX));
    match op.outcome() {
        OpOutcome::Ok => match op.output().map(|output| answer(op, output)) {
            Some(text) if !text.is_empty() => format!("ok, {text}"),
            _ => "ok".to_owned(),
        },
        OpOutcome::Fail => match error {
            Some(error) if error.contains("stale") => format!("refused: {error}"),
            Some(error) => format!("failed: {error}"),
            None => "failed".to_owned(),
        },
        OpOutcome::Info => match error {
            Some(error) => format!("unknown: {error}"),
            None => "unknown: no answer".to_owned(),
        },
    }
}

/// The interesting part of an answer: what the question did not say already.
fn answer(op: Op<'_>, output: ValueRef<'_>) -> String {
    if output.is_null() {
        return if op.f() == "read" {
            "null".to_owned()
        } else {
            String::new()
        };
    }
    if op.f() != "read" && output == op.input() {
        return String::new();
    }
    let Some(entries) = output.as_map() else {
        return value(output);
    };
    let parts: Vec<String> = entries
        .filter(|(name, part)| op.input().get(name) != Some(*part))
        .map(|(name, part)| format!("{name} {}", value(part)))
        .collect();
    clip_at(&parts.join(", "), VALUE_CHARS_MAX)
}

fn tidy(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace(" ,", ",")
        .replace(" :", ":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use history::Event;
    use serde_json::json;

    #[test]
    fn counts_of_one_name_stand_together() {
        let counted = [
            ("keys", 2),
            ("ops:read", 26),
            ("ops:write", 1700),
            ("gap_ms", 12),
        ];
        let counted: Vec<(String, u64)> = counted.map(|(name, n)| (name.to_owned(), n)).into();
        assert_eq!(
            counts(&counted),
            "keys 2, ops (read 26, write 1,700), gap 12 ms"
        );
    }

    #[test]
    fn numbers_and_spans_are_readable() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(48_210), "48,210");
        assert_eq!(thousands(1_000_000), "1,000,000");
        assert_eq!(plural(1, "fault"), "1 fault");
        assert_eq!(clock(20_614_000_000), "20.61");
        assert_eq!(span(340_000), "0.34 ms");
        assert_eq!(span(9_870_000), "9.8 ms");
        assert_eq!(span(350_000_000), "350 ms");
        assert_eq!(span(1_240_000_000), "1.24 s");
        assert_eq!(span_ms(4_000_000), "4,000 s");
        assert_eq!(
            count("overlap_ms", 1240),
            ("overlap".to_owned(), "1.24 s".to_owned())
        );
        assert_eq!(
            count("stale_accepted", 3),
            ("stale accepted".to_owned(), "3".to_owned())
        );
        assert_eq!(
            count("gap_ms_max", 1240),
            ("gap max".to_owned(), "1.24 s".to_owned())
        );
        assert_eq!(
            count("write_ok_percent:n1", 97),
            ("write ok, n1".to_owned(), "97 %".to_owned())
        );
        assert_eq!(capitalised("no write"), "No write");
        assert_eq!(capitalised("c1's write"), "c1's write");
        assert!(clip(&"ä".repeat(2000)).ends_with("… (4000 bytes in all)"));
    }

    #[test]
    fn operations_are_told_in_words() {
        let process = || Process::Name("c1".to_owned());
        let event = |kind, f: &str, value| Event::new(0, process(), kind, f, value);
        let history: History = [
            event(Kind::Invoke, "acquire", json!({"ttl_ms": 3000}))
                .with_key("L")
                .with_node("n2"),
            event(Kind::Ok, "acquire", json!({"token": 33})).with_key("L"),
            event(Kind::Invoke, "put", json!({"v": 3, "token": 33})).with_key("x"),
            event(Kind::Fail, "put", json!(null))
                .with_key("x")
                .with_error("stale-token"),
            event(Kind::Invoke, "cas", json!([1, 2])).with_key("x"),
            event(Kind::Ok, "cas", json!([1, 2])).with_key("x"),
            event(Kind::Info, "lost", json!(null)).with_key("L"),
            event(Kind::Invoke, "read", json!(null)).with_key("x"),
            Event::new(
                0,
                Process::nemesis(),
                Kind::Info,
                "freeze",
                json!({"id": 1, "phase": "begin", "target": "c1", "verified": false}),
            ),
            Event::new(
                0,
                Process::observer(),
                Kind::Info,
                "leader",
                json!({"leader": "n1", "term": 4}),
            )
            .with_node("n3"),
        ]
        .into_iter()
        .collect();
        let told: Vec<(String, String, String)> = history
            .events()
            .map(|event| (who(&history, event), operation(event), result(event)))
            .collect();
        let expected = [
            ("c1 via n2", "acquire L, ttl 3.00 s", "ok, token 33"),
            ("c1 via n2", "acquire L, ttl 3.00 s", "ok, token 33"),
            ("c1", "write x = 3, token 33", "refused: stale-token"),
            ("c1", "write x = 3, token 33", "refused: stale-token"),
            ("c1", "cas x: 1 → 2", "ok"),
            ("c1", "cas x: 1 → 2", "ok"),
            ("c1", "was told: L is lost", ""),
            ("c1", "read x", "unknown: no answer"),
            (
                "harness",
                "freeze of c1 begins",
                "not verified: did not land",
            ),
            ("n3, observed", "who leads?", "leader n1, term 4"),
        ];
        for (told, expected) in told.iter().zip(expected) {
            assert_eq!(
                (told.0.as_str(), told.1.as_str(), told.2.as_str()),
                expected
            );
        }
    }
}
