//! Our own history file, `history.jsonl`: a header, then one event a line.
//!
//! A last line that is torn (no line end, or no whole JSON object) is dropped with a warning: that
//! is what a crash leaves. Anything else that is not an event is an error with line and column.
//! A torn last frame of a compressed file is treated like a torn last line.

use serde::Deserialize;
use serde_json::Value;

use super::{Format, Options, Reader};
use crate::Error;
use crate::builder::HistoryBuilder;
use crate::event::{Event, Kind, Process};
use crate::header::{FORMAT_VERSION, Header};
use crate::history::History;
use crate::line::LineReader;
use crate::source::{Line as TextLine, Source};

pub(super) struct Schism;

impl Format for Schism {
    fn name(&self) -> &'static str {
        "schism"
    }

    fn about(&self) -> &'static str {
        "our own history.jsonl: a header, then one event a line"
    }

    fn recognises(&self, begin: &[u8]) -> bool {
        let line = begin
            .split(|&byte| byte == b'\n')
            .next()
            .unwrap_or_default();
        line.trim_ascii_start().starts_with(b"{")
            && memchr::memmem::find(line, b"\"schism\"").is_some()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    i: Option<u64>,
    t: u64,
    p: Process,
    #[serde(default)]
    node: Option<String>,
    r#type: Kind,
    f: String,
    #[serde(default)]
    key: Option<Value>,
    #[serde(default)]
    value: Value,
    #[serde(default)]
    error: Option<String>,
}

impl Reader for Schism {
    fn read(&self, source: &mut Source<'_>, _: &Options) -> Result<History, Error> {
        let Some(line) = source.line()? else {
            return Err(Error::Header(
                "the file is empty; expected a header".to_owned(),
            ));
        };
        let header = parse_header(&source.text()[..line.len])?;
        source.take(line.whole());
        let mut builder = HistoryBuilder::new(header);
        let mut lines = LineReader::default();
        let mut index = 0;
        loop {
            read_usual(source, &mut lines, &mut index, &mut builder)?;
            let Some(line) = source.line()? else {
                return Ok(builder.finish());
            };
            if read_unusual(source, line, index, &mut builder)? {
                index += 1;
            }
            source.take(line.whole());
        }
    }
}

/// Reads lines as long as they are as our writer writes them and at hand as a whole.
fn read_usual(
    source: &mut Source<'_>,
    lines: &mut LineReader,
    index: &mut u64,
    builder: &mut HistoryBuilder,
) -> Result<(), Error> {
    let mut taken = 0;
    let mut result = Ok(());
    while let Some(scanned) = lines.read(&source.text()[taken..], builder) {
        result = check_index(Some(scanned.index), *index)
            .and_then(|()| builder.append(scanned.row).map_err(message));
        if result.is_err() {
            break;
        }
        taken += scanned.taken;
        *index += 1;
    }
    source.take(taken);
    result.map_err(|message| contradiction(source, message))
}

/// Reads any line; whether there is an event in it.
fn read_unusual(
    source: &mut Source<'_>,
    line: TextLine,
    index: u64,
    builder: &mut HistoryBuilder,
) -> Result<bool, Error> {
    let text = &source.text()[..line.len];
    if text.trim_ascii().is_empty() {
        return Ok(false);
    }
    let parsed: Line = match serde_json::from_slice(text) {
        Ok(parsed) => parsed,
        Err(error) if (error.is_eof() || !line.ended) && is_last(source, line.whole())? => {
            let number = source.line_at(0);
            source.warnings().push(format!(
                "line {number} is torn and was dropped ({} bytes)",
                line.len
            ));
            return Ok(false);
        }
        Err(error) => return Err(malformed(source.line_at(0), &error)),
    };
    check_index(parsed.i, index)
        .and_then(|()| builder.push(&into_event(parsed)).map_err(message))
        .map_err(|message| contradiction(source, message))?;
    Ok(true)
}

fn check_index(given: Option<u64>, index: u64) -> Result<(), String> {
    match given {
        Some(i) if i != index => Err(format!("event {i} stands where event {index} is expected")),
        _ => Ok(()),
    }
}

fn message(error: Error) -> String {
    match error {
        Error::Inconsistent { message, .. } => message,
        other => other.to_string(),
    }
}

/// An event that is one, and cannot follow those before it.
fn contradiction(source: &Source<'_>, message: String) -> Error {
    Error::Malformed {
        line: source.line_at(0),
        column: 0,
        message,
    }
}

/// Whether nothing follows the next bytes.
fn is_last(source: &mut Source<'_>, count: usize) -> Result<bool, Error> {
    if source.text().len() == count && !source.is_over() {
        source.more()?;
    }
    Ok(source.text().len() == count)
}

fn parse_header(text: &[u8]) -> Result<Header, Error> {
    let header: Header = serde_json::from_slice(text).map_err(|error| {
        Error::Header(format!(
            "expected a header like {{\"schism\":{FORMAT_VERSION},\"kind\":\"history\",...}}: {error}"
        ))
    })?;
    if header.kind != "history" {
        return Err(Error::Header(format!(
            "kind is `{}`, expected `history`",
            header.kind
        )));
    }
    if header.schism != FORMAT_VERSION {
        return Err(Error::Header(format!(
            "format version {}, this schism reads {FORMAT_VERSION}",
            header.schism
        )));
    }
    Ok(header)
}

fn malformed(line: usize, error: &serde_json::Error) -> Error {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text).to_owned();
    Error::Malformed {
        line,
        column: error.column(),
        message,
    }
}

fn into_event(line: Line) -> Event {
    Event {
        time: line.t,
        process: line.p,
        node: line.node,
        kind: line.r#type,
        f: line.f,
        key: line.key,
        value: line.value,
        error: line.error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::read_bytes;
    use crate::writer::HistoryWriter;
    use proptest::prelude::*;
    use serde_json::json;

    const HEADER: &str = r#"{"schism":1,"kind":"history","workload":"lock"}"#;

    fn sample() -> (Header, Vec<Event>) {
        let header = Header::new("lock", &["stale-writes"]);
        let events = vec![
            Event::new(
                0,
                Process::Number(1),
                Kind::Invoke,
                "acquire",
                json!({"ttl_ms": 3000}),
            )
            .with_key("L"),
            Event::new(
                7,
                Process::nemesis(),
                Kind::Info,
                "freeze",
                json!({"target": "c1"}),
            ),
            Event::new(
                9,
                Process::Number(1),
                Kind::Ok,
                "acquire",
                json!({"token": 33}),
            )
            .with_key("L")
            .with_node("n2"),
            Event::new(
                u64::MAX / 2,
                Process::observer(),
                Kind::Info,
                "leader",
                json!(null),
            )
            .with_error("no answer"),
        ];
        (header, events)
    }

    fn written() -> Vec<u8> {
        let (header, events) = sample();
        let mut writer = HistoryWriter::new(Vec::new(), &header).unwrap();
        for event in &events {
            writer.append(event).unwrap();
        }
        writer.into_inner().unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let (header, events) = sample();
        let read = read_bytes(&written()).unwrap();
        assert_eq!(read.history.header, header);
        assert!(read.warnings.is_empty());
        let back: Vec<Event> = read
            .history
            .events()
            .map(|event| event.to_event())
            .collect();
        assert_eq!(back, events);
    }

    #[test]
    fn compressed_files_are_read() {
        let packed = zstd::encode_all(&written()[..], 3).unwrap();
        assert_eq!(read_bytes(&packed).unwrap().history.len(), 4);
        let torn = read_bytes(&packed[..packed.len() - 8]);
        if let Ok(torn) = torn {
            assert!(!torn.warnings.is_empty());
        }
    }

    proptest! {
        #[test]
        fn a_tear_costs_at_most_the_last_line(cut in 0usize..2000) {
            let bytes = written();
            let header_end = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1;
            let cut = header_end + cut % (bytes.len() - header_end);
            let read = read_bytes(&bytes[..cut]).unwrap();
            let whole = bytes[header_end..cut].iter().filter(|&&byte| byte == b'\n').count();
            // A line whose only missing byte is its end is whole.
            prop_assert!(read.history.len() == whole || read.history.len() == whole + 1);
            let at_line_end = bytes[cut - 1] == b'\n';
            let complete = at_line_end || read.history.len() == whole + 1;
            prop_assert_eq!(read.warnings.is_empty(), complete);
        }
    }

    #[test]
    fn garbage_in_the_middle_is_refused_with_its_line() {
        let text = format!(
            "{HEADER}\n{}\n{}\n{}\n",
            r#"{"i":0,"t":0,"p":1,"type":"invoke","f":"read","value":null}"#,
            r#"{"i":1,"t":1,"p":1,"type":"okay","f":"read","value":1}"#,
            r#"{"i":2,"t":2,"p":1,"type":"invoke","f":"read","value":null}"#,
        );
        match read_bytes(text.as_bytes()) {
            Err(Error::Malformed {
                line: 3,
                column,
                message,
            }) => {
                assert!(column > 0);
                assert!(message.contains("okay"), "{message}");
            }
            other => panic!("expected a malformed line 3, got {other:?}"),
        }
    }

    #[test]
    fn a_whole_last_line_that_is_no_event_is_refused() {
        let text = format!("{HEADER}\n{{\"i\":0,\"t\":0,\"pp\":1}}\n");
        assert!(matches!(
            read_bytes(text.as_bytes()),
            Err(Error::Malformed { line: 2, .. })
        ));
    }

    #[test]
    fn a_missing_event_is_noticed() {
        let text = format!(
            "{HEADER}\n{}\n",
            r#"{"i":1,"t":0,"p":1,"type":"invoke","f":"read","value":null}"#
        );
        assert!(matches!(
            read_bytes(text.as_bytes()),
            Err(Error::Malformed { line: 2, .. })
        ));
    }

    #[test]
    fn other_files_and_versions_are_refused() {
        for text in ["", "hello\n"] {
            assert!(matches!(
                read_bytes(text.as_bytes()),
                Err(Error::Unrecognised(_))
            ));
        }
        for (text, says) in [
            (r#"{"schism":1,"kind":"result"}"#, "`result`"),
            (r#"{"schism":9,"kind":"history"}"#, "version 9"),
        ] {
            match read_bytes(text.as_bytes()) {
                Err(Error::Header(message)) => assert!(message.contains(says), "{message}"),
                other => panic!("{text}: expected a header error, got {other:?}"),
            }
        }
    }

    /// A disk with room for so many bytes, and what it holds.
    #[derive(Clone, Default)]
    struct Disk(std::rc::Rc<std::cell::RefCell<(usize, Vec<u8>)>>);

    impl std::io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let (room, file) = &mut *self.0.borrow_mut();
            let count = bytes.len().min(*room);
            if count == 0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            *room -= count;
            file.extend_from_slice(&bytes[..count]);
            Ok(count)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_loses_nothing_and_room_heals_it() {
        let disk = Disk::default();
        disk.0.borrow_mut().0 = 300;
        let (header, events) = sample();
        let mut writer = HistoryWriter::new(disk.clone(), &header).unwrap();
        for event in &events {
            writer.append(event).unwrap();
        }
        assert!(writer.flush().is_err());
        let torn = read_bytes(&disk.0.borrow().1).unwrap();
        assert!(torn.history.len() < events.len() && torn.warnings.len() == 1);
        disk.0.borrow_mut().0 = 10_000;
        writer.flush().unwrap();
        assert_eq!(disk.0.borrow().1, written());
    }
}
