//! `log-pattern`: the logs of the nodes say what they must and do not say what they must not.
//!
//! The checker reads no file: whoever fetched the logs looked for the patterns, and recorded for
//! each log what it found.

use history::{EventRef, History, ValueRef};
use serde_json::Value;

use crate::params::{Param, Takes};
use crate::words::Story;
use crate::{Budget, Checked, Checker, Reason};

/// The logs of the nodes say what they must and do not say what they must not.
pub struct LogPattern;

/// Patterns that must be found in no log.
pub const MUST_NOT: &str = "log_must_not";
/// Patterns that must be found in the logs of every node.
pub const MUST: &str = "log_must";

impl Checker for LogPattern {
    fn name(&self) -> &'static str {
        "log-pattern"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["log-file-pattern"]
    }

    fn promise(&self) -> &'static str {
        "What must not stand in the logs of the nodes is not there, and what must is in those of \
         every node."
    }

    fn method(&self) -> &'static str {
        "Reads the observer's events `log`, one for each log of a node: `{\"file\": ..., \"lines\": \
         ..., \"looked_for\": [pattern], \"found\": [{\"pattern\": ..., \"count\": ..., \"line\": \
         ..., \"text\": ...}]}`, where line and text are those of the first match. Every node of \
         the header must have a log that is not empty and in which all patterns were looked for; \
         one that has not is `unknown`, not a pass. O(n). Source: the checker `log-file-pattern` \
         of Jepsen."
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: MUST_NOT,
                takes: Takes::Names,
                default: "none",
                about: "regular expressions that no line of a log may match",
            },
            Param {
                name: MUST,
                takes: Takes::Names,
                default: "none",
                about: "regular expressions that a line in the logs of every node must match",
            },
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("logs", "logs that were looked at"),
            ("lines", "lines of these"),
            ("patterns", "patterns that were looked for"),
            ("matches", "lines that match what must not be there"),
            ("nodes_without_log", "nodes of which no log was looked at"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let (must_not, must) = (patterns(history, MUST_NOT), patterns(history, MUST));
        if must_not.is_empty() && must.is_empty() {
            let none = "no pattern is given".to_owned();
            return Checked::unknown(Reason::NotApplicable(none));
        }
        let logs = logs(history);
        let nodes = nodes(history, &logs);
        let mut first: Option<Checked> = None;
        let mut matches = 0;
        let mut open: Vec<String> = Vec::new();
        for log in &logs {
            for found in log
                .found()
                .filter(|found| must_not.contains(&found.pattern))
            {
                matches += found.count;
                first.get_or_insert_with(|| log.tell(history, &found));
            }
        }
        let mut without = 0;
        for node in nodes {
            let own: Vec<&Log<'_>> = logs.iter().filter(|log| log.node == node).collect();
            if own.iter().all(|log| log.lines == 0) {
                without += 1;
                open.push(format!("there is no log of {node}"));
                continue;
            }
            for &pattern in must_not.iter().chain(&must) {
                if own.iter().any(|log| !log.looked_for(pattern)) {
                    open.push(format!("`{pattern}` was not looked for on {node}"));
                } else if must.contains(&pattern) && !own.iter().any(|log| log.has(pattern)) {
                    first.get_or_insert_with(|| tell_missing(node, pattern, &own));
                }
            }
        }
        if logs.is_empty() && open.is_empty() {
            open.push("there are no logs".to_owned());
        }
        let result = match first {
            Some(wrong) => wrong,
            None if open.is_empty() => Checked::valid(),
            None => Checked::unknown(Reason::Coverage(open.join("; "))),
        };
        result
            .count("logs", logs.len() as u64)
            .count("lines", logs.iter().map(|log| log.lines).sum())
            .count("patterns", (must_not.len() + must.len()) as u64)
            .count("matches", matches)
            .count("nodes_without_log", without)
    }
}

fn patterns<'h>(history: &'h History, param: &str) -> Vec<&'h str> {
    let given = history.header.params.get(param).and_then(Value::as_array);
    given
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// What was found in one log.
struct Log<'h> {
    event: EventRef<'h>,
    node: &'h str,
    file: &'h str,
    lines: u64,
}

/// The matches of one pattern.
struct Found<'h> {
    pattern: &'h str,
    count: u64,
    line: u64,
    text: &'h str,
}

/// The logs, each as it was last looked at.
fn logs(history: &History) -> Vec<Log<'_>> {
    let mut logs: Vec<Log<'_>> = Vec::new();
    let events = history.events().filter(|event| event.is_observer());
    for event in events.filter(|event| event.f() == "log") {
        let value = event.value();
        let log = Log {
            event,
            node: event.node().unwrap_or("?"),
            file: value.get("file").and_then(ValueRef::as_str).unwrap_or("?"),
            lines: value.get("lines").and_then(ValueRef::as_u64).unwrap_or(0),
        };
        let known = logs
            .iter_mut()
            .find(|known| known.node == log.node && known.file == log.file);
        match known {
            Some(known) => *known = log,
            None => logs.push(log),
        }
    }
    logs
}

/// The nodes that must have logs: those of the header, or those that have some.
fn nodes<'h>(history: &'h History, logs: &[Log<'h>]) -> Vec<&'h str> {
    if !history.header.nodes.is_empty() {
        return history.header.nodes.iter().map(String::as_str).collect();
    }
    let mut nodes: Vec<&str> = logs.iter().map(|log| log.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

impl<'h> Log<'h> {
    fn list(&self, name: &str) -> impl Iterator<Item = ValueRef<'h>> + use<'h> {
        let list = self.event.value().get(name).and_then(ValueRef::as_list);
        list.into_iter().flatten()
    }

    fn looked_for(&self, pattern: &str) -> bool {
        self.list("looked_for")
            .any(|known| known.as_str() == Some(pattern))
    }

    fn found(&self) -> impl Iterator<Item = Found<'h>> + use<'h> {
        let text = |found: ValueRef<'h>, name| found.get(name).and_then(ValueRef::as_str);
        let number = |found: ValueRef<'h>, name| found.get(name).and_then(ValueRef::as_u64);
        self.list("found").map(move |found| Found {
            pattern: text(found, "pattern").unwrap_or("?"),
            count: number(found, "count").unwrap_or(1),
            line: number(found, "line").unwrap_or(0),
            text: text(found, "text").unwrap_or(""),
        })
    }

    fn has(&self, pattern: &str) -> bool {
        self.found().any(|found| found.pattern == pattern)
    }

    fn tell(&self, history: &History, found: &Found<'_>) -> Checked {
        let mut story = Story::default();
        let (node, file) = (self.node, self.file);
        story.tell(
            self.event,
            format!("line {} of {file} on {node}: {}", found.line, found.text),
        );
        story.tell_faults(history, 0..self.event.index());
        let times = match found.count {
            1 => "in one line".to_owned(),
            count => format!("in {count} lines"),
        };
        Checked::invalid(story.finish(format!(
            "`{}` stands in {file} of {node}, {times}",
            found.pattern
        )))
    }
}

fn tell_missing(node: &str, pattern: &str, own: &[&Log<'_>]) -> Checked {
    let mut story = Story::default();
    for log in own {
        let note = format!("{} of {node}: {} lines, none matches", log.file, log.lines);
        story.tell(log.event, note);
    }
    Checked::invalid(story.finish(format!("`{pattern}` stands in no log of {node}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(params: &str, text: &str) -> Checked {
        let text = format!("nodes n1 n2\n{params}\n{text}");
        LogPattern.check(&script::history("register", &text), &Budget::unlimited())
    }

    const MUST_NOT: &str = r#"param log_must_not ["panicked"]"#;
    const MUST: &str = r#"param log_must ["ready"]"#;
    const LOGS: &str = r#"
        8 observer log - {"file":"db.log","lines":90,"looked_for":["panicked","ready"],"found":[{"pattern":"ready","count":2,"line":3,"text":"ready now"}]} @n1
        9 observer log - {"file":"db.log","lines":80,"looked_for":["panicked","ready"],"found":[]} @n2"#;

    #[test]
    fn what_must_not_be_there_is_convicted() {
        let good = check(MUST_NOT, LOGS);
        assert_eq!(good.verdict, Verdict::Valid);
        assert_eq!(good.counted("lines"), Some(170));
        let bad = LOGS.replace("\"pattern\":\"ready\"", "\"pattern\":\"panicked\"");
        assert_eq!(
            check(MUST_NOT, &bad).counterexample.unwrap().summary,
            "`panicked` stands in db.log of n1, in 2 lines"
        );
    }

    #[test]
    fn what_must_be_there_is_missed() {
        let bad = check(MUST, LOGS);
        assert_eq!(
            bad.counterexample.unwrap().summary,
            "`ready` stands in no log of n2"
        );
    }

    #[test]
    fn a_missing_log_is_not_a_pass() {
        let one = LOGS.lines().take(2).collect::<Vec<_>>().join("\n");
        let open = |params: &str, text: &str| match check(params, text).verdict {
            Verdict::Unknown(reason) => reason.to_string(),
            other => other.describe(),
        };
        assert_eq!(open(MUST_NOT, &one), "there is no log of n2");
        let empty = LOGS.replace("\"lines\":80", "\"lines\":0");
        assert_eq!(open(MUST_NOT, &empty), "there is no log of n2");
        assert_eq!(
            open("param log_must_not [\"other\"]", LOGS),
            "`other` was not looked for on n1; `other` was not looked for on n2"
        );
        assert_eq!(open("", LOGS), "not applicable: no pattern is given");
    }
}
