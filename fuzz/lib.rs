//! What all targets ask of a reader: it never panics, it ends, and an error has a place in the text.

use history::{Error, Event, History, Options, Read};

/// Reads a text in a format, or in the one that it is found to be in.
pub fn read(format: Option<&str>, text: &[u8]) -> Option<Read> {
    let options = Options {
        format: format.map(str::to_owned),
        ..Options::default()
    };
    match history::read_bytes_with(text, &options) {
        Ok(read) => {
            use_all(&read.history);
            Some(read)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            place(&error, text);
            None
        }
    }
}

/// An error has a place that is in the text, unless the text was compressed.
fn place(error: &Error, text: &[u8]) {
    match error {
        Error::Malformed { line, column, .. } => {
            let is_packed = text.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
            let mut lines = text.split(|&byte| byte == b'\n');
            let found = lines.nth(line.checked_sub(1).expect("lines are counted from 1"));
            let length = found.map(<[u8]>::len);
            assert!(is_packed || length.is_some_and(|length| *column <= length + 1), "{error}");
        }
        Error::Inconsistent { .. } => panic!("no line and column: {error}"),
        Error::Io { .. } | Error::Header(_) | Error::Unrecognised(_) => {}
    }
}

/// Looks at everything that a history shows.
fn use_all(history: &History) {
    let events: Vec<Event> = history.events().map(|event| event.to_event()).collect();
    assert!(events.is_sorted_by_key(|event| event.time));
    for op in history.ops() {
        assert!(op.completion.is_none_or(|end| end.index() > op.invoke.index()));
    }
    assert!(history.elements().len() <= history.heap_bytes());
}
