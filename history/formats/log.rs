//! Operations as lines of text, `PROCESS :type :f value error`: Jepsen's `history.txt`, and the lines
//! that `jepsen.util` writes to a log, between those of others.

use super::{Format, Options, Reader};
use crate::Error;
use crate::event::Kind;
use crate::history::History;
use crate::import::{Draft, Importer, Who};
use crate::source::Source;
use crate::syntax::{Cursor, Dialect, Parsed, Trouble, ValueReader};

pub(super) struct Log;

impl Format for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn about(&self) -> &'static str {
        "operations as lines `PROCESS :type :f value error`: Jepsen's history.txt, and its log, as \
         Porcupine's etcd histories"
    }

    fn recognises(&self, begin: &[u8]) -> bool {
        let mut lines = begin.split(|&byte| byte == b'\n').take(1000);
        lines.any(|line| operation(line).is_some())
    }
}

/// Where in a line an operation begins; `None` if it holds none.
fn operation(line: &[u8]) -> Option<usize> {
    let start = match memchr::memmem::find(line, b"jepsen.util") {
        Some(at) => {
            let after = at + b"jepsen.util".len();
            let mark = line[after..]
                .iter()
                .position(|byte| !b" -:".contains(byte))?;
            after + mark
        }
        None => 0,
    };
    let mut words = line[start..]
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let process = words.next()?;
    let is_process = process.starts_with(b":") || process.iter().all(u8::is_ascii_digit);
    let is_type = matches!(words.next()?, b":invoke" | b":ok" | b":fail" | b":info");
    (is_process && is_type).then_some(start)
}

impl Reader for Log {
    fn read(&self, source: &mut Source<'_>, options: &Options) -> Result<History, Error> {
        let mut importer = Importer::new();
        let mut values = ValueReader::default();
        while let Some(line) = source.line()? {
            let text = &source.text()[..line.len];
            if let Some(start) = operation(text) {
                // A line end closes the last word.
                let whole = [&text[start..], b"\n"].concat();
                let mut cursor = Cursor::new(&whole, Dialect::Edn);
                let read = draft(&mut cursor, &mut importer, &mut values);
                let pushed = read.and_then(|draft| {
                    let index = importer.len();
                    let told = |message| {
                        Trouble::Wrong(Box::new((0, format!("operation {index}: {message}"))))
                    };
                    importer.push(&draft).map_err(told)
                });
                match pushed {
                    Ok(()) => {}
                    Err(Trouble::Wrong(wrong)) => {
                        return Err(source.malformed(start + wrong.0, wrong.1));
                    }
                    Err(Trouble::Short(expected)) => {
                        let message = format!("the line ends; expected {expected}");
                        return Err(source.malformed(line.len, message));
                    }
                }
            }
            source.take(line.whole());
        }
        importer
            .finish(options.independent)
            .map_err(|message| source.malformed(0, message))
    }
}

fn draft(
    cursor: &mut Cursor<'_>,
    importer: &mut Importer,
    values: &mut ValueReader,
) -> Parsed<Draft> {
    let process = match cursor.peek("a process")? {
        b':' => importer.who(&cursor.name("a process")?),
        _ => match cursor.integer_or_nil("a process")?.map(u64::try_from) {
            Some(Ok(number)) => Who::Number(number),
            _ => return Err(cursor.wrong_at(0, "a process")),
        },
    };
    let kind = match &*cursor.name("a type")? {
        "invoke" => Kind::Invoke,
        "ok" => Kind::Ok,
        "fail" => Kind::Fail,
        _ => Kind::Info,
    };
    cursor.peek("a function")?;
    let function = importer.builder().function(&cursor.name("a function")?);
    let mut draft = Draft {
        process: Some(process),
        kind: Some(kind),
        function: Some(function),
        ..Draft::default()
    };
    let mut error = None;
    if let Ok(byte) = cursor.peek("a value") {
        // A word in the place of the value of what did not happen says why.
        if byte == b':' && matches!(kind, Kind::Fail | Kind::Info) {
            error = Some(cursor.name("an error")?.into_owned());
        } else {
            draft.value = Some(values.read(cursor, importer.values())?);
        }
    }
    if error.is_none() && cursor.peek("an error").is_ok() {
        error = Some(cursor.rest());
    }
    draft.error = error.map(|error| importer.builder().error(&error));
    Ok(draft)
}

#[cfg(test)]
mod tests {
    use crate::formats::read_bytes;
    use crate::{Outcome, formats::Read};
    use serde_json::json;

    fn read(text: &str) -> Read {
        read_bytes(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn lines_of_operations_are_found_between_others() {
        let found = read(
            "2026-12-01 INFO  jepsen.core - Running test\n\
             INFO  jepsen.util - 0\t:invoke\t:cas\t[1 2]\n\
             INFO [worker 1] jepsen.util: 1\t:invoke\t:read\tnil\n\
             INFO  jepsen.util - :nemesis\t:info\t:start\tnil\n\
             INFO  jepsen.util - 1\t:fail\t:read\t:timed-out\n\
             INFO  jepsen.util - 0\t:info\t:cas\t[1 2]\tconnection reset\n",
        );
        assert_eq!(found.format, "log");
        let ops: Vec<_> = found.history.ops().collect();
        assert_eq!(ops.len(), 2);
        assert_eq!(ops[0].error(), Some("connection reset"));
        assert_eq!(ops[0].input().to_json(), json!([1, 2]));
        assert_eq!(ops[1].outcome(), Outcome::Fail);
        assert_eq!(ops[1].error(), Some("timed-out"));
        assert!(ops[1].completion.unwrap().value().is_null());
    }

    #[test]
    fn a_line_that_is_no_operation_is_refused_with_its_place() {
        let text = "0 :invoke :write 1\n0 :ok :write [1\n";
        let error = read_bytes(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("line 2"), "{error}");
        let busy = "0 :invoke :write 1\n0 :invoke :write 2\n";
        let error = read_bytes(busy.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("operation 1: process 0 invokes"), "{error}");
    }
}
