//! The text of AWDIT's tests: `w KEY VALUE` and `r KEY VALUE`, one micro-operation a line; a line of
//! dashes ends a transaction, one of equals signs a session.
//!
//! Sessions say nothing about each other's time, so all events have the same one.

use super::{Format, Options, Reader};
use crate::Error;
use crate::builder::{HistoryBuilder, TXN};
use crate::event::Process;
use crate::header::Header;
use crate::history::History;
use crate::source::Source;
use crate::txn::{Mop, MopKind, MopValue};
use crate::values::Values;

pub(super) struct Awdit;

impl Format for Awdit {
    fn name(&self) -> &'static str {
        "awdit"
    }

    fn about(&self) -> &'static str {
        "transactions as lines `w KEY VALUE`, ended by `-----`, sessions by `=====`: AWDIT's tests"
    }

    fn recognises(&self, begin: &[u8]) -> bool {
        let mut lines = begin.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let first = lines.find(|line| !line.is_empty());
        first.is_some_and(|line| matches!(parse(line), Ok(Some(_))))
    }
}

/// What a line says.
enum Said {
    Mop(MopKind, i64, i64),
    EndOfTxn,
    EndOfSession,
}

fn parse(line: &[u8]) -> Result<Option<Said>, (usize, &'static str)> {
    let all = |mark: u8| line.len() >= 3 && line.iter().all(|&byte| byte == mark);
    let kind = match line.first() {
        None => return Ok(None),
        Some(b'-') if all(b'-') => return Ok(Some(Said::EndOfTxn)),
        Some(b'=') if all(b'=') => return Ok(Some(Said::EndOfSession)),
        Some(b'r') => MopKind::Read,
        Some(b'w') => MopKind::Write,
        Some(_) => return Err((0, "`w KEY VALUE`, `r KEY VALUE`, `-----` or `=====`")),
    };
    let text = std::str::from_utf8(&line[1..]).map_err(|_| (1, "a key and a value"))?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<i64>);
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(key)), Some(Ok(value)), None) if text.starts_with([' ', '\t']) => {
            Ok(Some(Said::Mop(kind, key, value)))
        }
        _ => Err((1, "a key and a value, which are whole numbers")),
    }
}

impl Reader for Awdit {
    fn read(&self, source: &mut Source<'_>, _: &Options) -> Result<History, Error> {
        let mut builder = HistoryBuilder::new(Header::new(TXN, &[]));
        let (mut session, mut start) = (0, 0);
        while let Some(line) = source.line()? {
            let text = source.text()[..line.len].trim_ascii_end();
            match parse(text) {
                Ok(None) => {}
                Ok(Some(Said::Mop(kind, key, value))) => push(builder.values(), kind, key, value),
                Ok(Some(end)) => {
                    commit(&mut builder, session, &mut start)?;
                    session += u64::from(matches!(end, Said::EndOfSession));
                }
                Err((at, expected)) => {
                    let found = crate::syntax::excerpt(&text[at..]);
                    return Err(source.malformed(at, format!("expected {expected}, found {found}")));
                }
            }
            source.take(line.whole());
        }
        commit(&mut builder, session, &mut start)?;
        let mut history = builder.finish();
        declare_no_times(&mut history);
        Ok(history)
    }
}

/// Says that the order in which transactions stand is none of real time.
pub(super) fn declare_no_times(history: &mut History) {
    let ties = "concurrent".into();
    history.header.params.insert("ties".to_owned(), ties);
}

/// Adds a micro-operation to the transaction that is being built.
pub(super) fn push(values: &mut Values, kind: MopKind, key: i64, value: i64) {
    let mut word = |number: i64| {
        let packed = values.pack_integer(i128::from(number));
        values.word_of_packed(packed)
    };
    let mop = Mop::new(kind, word(key), MopValue::One(word(value)));
    values.push_mop(mop);
}

/// Ends the transaction that began at `start`, if there is anything in it.
fn commit(builder: &mut HistoryBuilder, session: u64, start: &mut usize) -> Result<(), Error> {
    if builder.values().mops_len() > *start {
        let txn = builder.values().end_txn(*start);
        let process = builder.process_id(&Process::Number(session));
        builder.append_committed(process, txn)?;
        *start = builder.values().mops_len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::formats::read_bytes;
    use serde_json::json;

    #[test]
    fn sessions_and_transactions_are_told_apart() {
        let read = read_bytes(b"w 0 0\nr 1 -3\n-----\nw 0 1\n=====\nr 0 1\n").unwrap();
        assert_eq!(read.format, "awdit");
        let ops: Vec<_> = read.history.ops().collect();
        let sessions: Vec<u32> = ops.iter().map(|op| op.process_id()).collect();
        assert_eq!(sessions, [0, 0, 1]);
        assert_eq!(
            ops[0].input().to_json(),
            json!([["w", 0, 0], ["r", 1, null]])
        );
        assert_eq!(
            ops[0].output().unwrap().to_json(),
            json!([["w", 0, 0], ["r", 1, -3]])
        );
        assert_eq!(read.history.end(), 0);
        assert_eq!(read.history.header.params["ties"], "concurrent");
        let error = read_bytes(b"w 0 0\nr 1\n").unwrap_err().to_string();
        assert!(
            error.starts_with("line 2, column 2: expected a key and a value"),
            "{error}"
        );
    }
}
