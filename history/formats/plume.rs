//! The text of Plume and IsoVista: `r(KEY,VALUE,SESSION,TRANSACTION)` and `w(...)`, one
//! micro-operation a line.
//!
//! Sessions say nothing about each other's time, so all events have the same one. A value of 0 that
//! nobody writes is the initial one.

use super::awdit::{declare_no_times, push};
use super::{Format, Options, Reader};
use crate::Error;
use crate::builder::{HistoryBuilder, TXN};
use crate::event::Process;
use crate::header::Header;
use crate::history::History;
use crate::source::Source;
use crate::txn::MopKind;
use crate::values::Packed;

pub(super) struct Plume;

impl Format for Plume {
    fn name(&self) -> &'static str {
        "plume"
    }

    fn about(&self) -> &'static str {
        "micro-operations as lines `w(KEY,VALUE,SESSION,TRANSACTION)`: Plume, IsoVista"
    }

    fn recognises(&self, begin: &[u8]) -> bool {
        let mut lines = begin.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let first = lines.find(|line| !line.is_empty());
        first.is_some_and(|line| parse(line).is_ok())
    }
}

/// A line: what is done, then key, value, session and transaction.
type Said = (MopKind, [i64; 4]);

fn parse(line: &[u8]) -> Result<Said, (usize, &'static str)> {
    let kind = match line {
        [b'r', b'(', ..] => MopKind::Read,
        [b'w', b'(', ..] => MopKind::Write,
        _ => return Err((0, "`r(KEY,VALUE,SESSION,TRANSACTION)` or `w(...)`")),
    };
    let mut at = 2;
    let mut numbers = [0; 4];
    for (place, number) in numbers.iter_mut().enumerate() {
        let end = if place == 3 { b')' } else { b',' };
        let length = line[at..].iter().position(|&byte| byte == end);
        let field = length.and_then(|length| std::str::from_utf8(&line[at..at + length]).ok());
        *number = field
            .and_then(|field| field.trim_ascii().parse().ok())
            .ok_or((at, "a whole number"))?;
        at += length.unwrap_or_default() + 1;
    }
    match line.len() == at {
        true => Ok((kind, numbers)),
        false => Err((at, "the end of the line")),
    }
}

/// Micro-operations of one transaction that follow each other.
struct Run {
    session: i64,
    txn: i64,
    start: usize,
}

impl Reader for Plume {
    fn read(&self, source: &mut Source<'_>, _: &Options) -> Result<History, Error> {
        let mut builder = HistoryBuilder::new(Header::new(TXN, &[]));
        let mut runs: Vec<Run> = Vec::new();
        let mut writes_zero = false;
        while let Some(line) = source.line()? {
            let text = source.text()[..line.len].trim_ascii_end();
            if !text.is_empty() {
                let (kind, [key, value, session, txn]) =
                    parse(text).map_err(|(at, expected)| {
                        let found = crate::syntax::excerpt(&text[at.min(text.len())..]);
                        source.malformed(at, format!("expected {expected}, found {found}"))
                    })?;
                let goes_on = |run: &Run| run.session == session && run.txn == txn;
                if !runs.last().is_some_and(goes_on) {
                    let start = builder.values().mops_len();
                    runs.push(Run {
                        session,
                        txn,
                        start,
                    });
                }
                writes_zero |= kind == MopKind::Write && value == 0;
                push(builder.values(), kind, key, value);
            }
            source.take(line.whole());
        }
        for (session, txn) in transactions(&mut builder, &runs) {
            let process = match u64::try_from(session) {
                Ok(number) => Process::Number(number),
                Err(_) => Process::Name(session.to_string()),
            };
            let process = builder.process_id(&process);
            builder.append_committed(process, txn)?;
        }
        let mut history = builder.finish();
        declare_no_times(&mut history);
        if !writes_zero {
            history.header.params.insert("initial".to_owned(), 0.into());
        }
        Ok(history)
    }
}

/// The transactions in the order in which they begin, each with its session. One whose
/// micro-operations stand apart is put together.
fn transactions(builder: &mut HistoryBuilder, runs: &[Run]) -> Vec<(i64, Packed)> {
    let values = builder.values();
    let all = values.mops_len();
    let end_of = |at: usize| runs.get(at + 1).map_or(all, |next| next.start);
    let packed = |at: usize| Packed::txn(runs[at].start, end_of(at) - runs[at].start);
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by_key(|&at| (runs[at].session, runs[at].txn));
    let is_same =
        |a: usize, b: usize| (runs[a].session, runs[a].txn) == (runs[b].session, runs[b].txn);
    let mut found: Vec<(usize, Packed)> = Vec::new();
    for parts in order.chunk_by(|&a, &b| is_same(a, b)) {
        let txn = match parts {
            &[only] => packed(only),
            parts => {
                let start = values.mops_len();
                for &part in parts {
                    values.repeat_mops(packed(part));
                }
                values.end_txn(start)
            }
        };
        found.push((parts[0], txn));
    }
    found.sort_by_key(|&(first, _)| first);
    found
        .iter()
        .map(|&(first, txn)| (runs[first].session, txn))
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::formats::read_bytes;
    use serde_json::json;

    #[test]
    fn a_transaction_in_parts_is_put_together() {
        let read = read_bytes(b"w(1,5,0,0)\nr(1,5,1,1)\nw(2,6,0,0)\nr(2,0,1,2)\n").unwrap();
        assert_eq!(read.format, "plume");
        assert_eq!(read.history.header.params["ties"], "concurrent");
        let txns: Vec<_> = read
            .history
            .ops()
            .map(|op| (op.process_id(), op.output().unwrap().to_json()))
            .collect();
        assert_eq!(
            txns,
            [
                (0, json!([["w", 1, 5], ["w", 2, 6]])),
                (1, json!([["r", 1, 5]])),
                (1, json!([["r", 2, 0]])),
            ]
        );
        assert_eq!(read.history.header.params["initial"], 0);
        let error = read_bytes(b"w(1,5,0,0)\nr(1,5,1)\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("line 2, column 7: expected a whole number"),
            "{error}"
        );
    }
}
