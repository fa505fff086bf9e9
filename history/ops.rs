//! Operations as maps, `{:type :invoke, :f :read, ...}`, in EDN or JSON: what Jepsen, Knossos, Elle
//! and elle-cli write, and Porcupine's tests read. They stand in one list or one after the other.

use crate::Error;
use crate::event::Kind;
use crate::formats::Options;
use crate::history::History;
use crate::import::{Draft, Importer, Who};
use crate::source::Source;
use crate::syntax::{Cursor, Dialect, Parsed, Trouble, ValueReader};
use crate::txn::{Mop, MopKind, MopValue, Word};
use crate::values::{Packed, Values};

/// Reads all operations of a text.
///
/// # Errors
/// The first place at which there is no operation, or one that contradicts those before it.
pub(crate) fn read(
    source: &mut Source<'_>,
    dialect: Dialect,
    options: &Options,
) -> Result<History, Error> {
    let mut reader = OpReader {
        importer: Importer::new(),
        values: ValueReader::default(),
        functions: Vec::new(),
    };
    let mut end = None;
    loop {
        let mut cursor = Cursor::new(source.text(), dialect);
        let mut taken = 0;
        let stopped = loop {
            match reader.next(&mut cursor, &mut end) {
                Ok(()) => taken = cursor.at(),
                Err(trouble) => break trouble,
            }
        };
        source.take(taken);
        match stopped {
            Trouble::Wrong(wrong) => {
                let (at, message) = *wrong;
                return Err(source.malformed(at.saturating_sub(taken), message));
            }
            Trouble::Short(expected) if source.is_over() => {
                return finish(source, reader.importer, end, expected, options);
            }
            Trouble::Short(_) => source.more()?,
        }
    }
}

/// The history, if the text may end here.
fn finish(
    source: &Source<'_>,
    importer: Importer,
    end: Option<u8>,
    expected: &str,
    options: &Options,
) -> Result<History, Error> {
    let len = source.text().len();
    match end {
        Some(end) => {
            let end = char::from(end);
            let message = format!("the text ends; expected {expected}, and in the end `{end}`");
            Err(source.malformed(len, message))
        }
        None if expected == BETWEEN => importer
            .finish(options.independent)
            .map_err(|message| source.malformed(len, message)),
        None => Err(source.malformed(len, format!("the text ends; expected {expected}"))),
    }
}

/// What may stand between operations.
const BETWEEN: &str = "an operation";

struct OpReader {
    importer: Importer,
    values: ValueReader,
    /// The first functions, to find them fast.
    functions: Vec<(String, u32)>,
}

impl OpReader {
    /// Reads on to the end of an operation, or of a bracket around all of them.
    fn next(&mut self, cursor: &mut Cursor<'_>, end: &mut Option<u8>) -> Parsed<()> {
        let byte = cursor.peek(BETWEEN)?;
        match byte {
            b'{' => self.op(cursor)?,
            b'[' | b'(' if end.is_none() && self.importer.len() == 0 => {
                *end = Some(if byte == b'[' { b']' } else { b')' });
                cursor.take();
            }
            _ if Some(byte) == *end => {
                *end = None;
                cursor.take();
            }
            b'#' => {
                cursor.take();
                cursor.name("a tag")?;
                if cursor.peek("a tagged operation")? != b'{' {
                    return Err(cursor.wrong("an operation, which is a map"));
                }
                self.op(cursor)?;
            }
            _ => return Err(cursor.wrong("an operation, which is a map")),
        }
        Ok(())
    }

    fn op(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let mark = self.importer.values().mark();
        let result = self.map(cursor);
        if result.is_err() {
            self.importer.values().back_to(mark);
        }
        result
    }

    fn map(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let start = cursor.at();
        cursor.take();
        let mut draft = Draft::default();
        while cursor.peek("a key or the end of the operation")? != b'}' {
            let key = cursor.name("a key of an operation")?;
            cursor.colon()?;
            match &*key {
                "type" => draft.kind = Some(kind(cursor)?),
                "f" => draft.function = self.function(cursor)?,
                "process" => draft.process = self.process(cursor)?,
                "time" => draft.time = cursor.integer_or_nil("a time in whole nanoseconds")?,
                "value" => draft.value = Some(self.value(cursor)?),
                "key" => draft.key = Some(self.values.read(cursor, self.importer.values())?),
                "error" => draft.error = self.error(cursor)?,
                _ => {
                    cursor.peek("a value")?;
                    cursor.skip_value()?;
                }
            }
        }
        cursor.take();
        let index = self.importer.len();
        let told =
            |message| Trouble::Wrong(Box::new((start, format!("operation {index}: {message}"))));
        self.importer.push(&draft).map_err(told)
    }

    fn function(&mut self, cursor: &mut Cursor<'_>) -> Parsed<Option<u32>> {
        cursor.peek("a function")?;
        if cursor.nil() {
            return Ok(None);
        }
        let name = cursor.name("a function")?;
        if let Some((_, id)) = self.functions.iter().find(|(known, _)| *known == name) {
            return Ok(Some(*id));
        }
        let id = self.importer.builder().function(&name);
        if self.functions.len() < 8 {
            self.functions.push((name.into_owned(), id));
        }
        Ok(Some(id))
    }

    fn process(&mut self, cursor: &mut Cursor<'_>) -> Parsed<Option<Who>> {
        let byte = cursor.peek("a process")?;
        if byte.is_ascii_digit() || byte == b'-' {
            let number = cursor.integer_or_nil("a process, which is a whole number or a name")?;
            return Ok(number.map(|number| match u64::try_from(number) {
                Ok(number) => Who::Number(number),
                Err(_) => self.importer.who(&number.to_string()),
            }));
        }
        if cursor.nil() {
            return Ok(None);
        }
        let name = cursor.name("a process, which is a whole number or a name")?;
        Ok(Some(self.importer.who(&name)))
    }

    fn value(&mut self, cursor: &mut Cursor<'_>) -> Parsed<Packed> {
        if cursor.peek("a value")? == b'[' {
            let start = cursor.at();
            let values = self.importer.values();
            let mark = values.mark();
            if let Some(txn) = txn(cursor, values, &mut self.values)? {
                return Ok(txn);
            }
            values.back_to(mark);
            cursor.back_to(start);
        }
        self.values.read(cursor, self.importer.values())
    }

    /// An error as text.
    fn error(&mut self, cursor: &mut Cursor<'_>) -> Parsed<Option<u32>> {
        let byte = cursor.peek("an error")?;
        if cursor.nil() {
            return Ok(None);
        }
        if matches!(byte, b'"' | b':') {
            let name = cursor.name("an error")?;
            return Ok(Some(self.importer.builder().error(&name)));
        }
        let start = cursor.at();
        cursor.skip_value()?;
        let text = String::from_utf8_lossy(cursor.since(start));
        Ok(Some(self.importer.builder().error(&text)))
    }
}

fn kind(cursor: &mut Cursor<'_>) -> Parsed<Kind> {
    const EXPECTED: &str = "invoke, ok, fail or info";
    cursor.peek(EXPECTED)?;
    let start = cursor.at();
    match &*cursor.name(EXPECTED)? {
        "invoke" => Ok(Kind::Invoke),
        "ok" => Ok(Kind::Ok),
        "fail" => Ok(Kind::Fail),
        "info" => Ok(Kind::Info),
        _ => Err(cursor.wrong_at(start, EXPECTED)),
    }
}

/// A value that is a transaction; `None`, at any place, if it is not one.
fn txn(
    cursor: &mut Cursor<'_>,
    values: &mut Values,
    reader: &mut ValueReader,
) -> Parsed<Option<Packed>> {
    let start = values.mops_len();
    cursor.take();
    loop {
        match cursor.peek("a micro-operation or the end of a transaction")? {
            b'[' => cursor.take(),
            b']' if values.mops_len() > start => break,
            _ => return Ok(None),
        }
        let Some(kind) = mop_kind(cursor)? else {
            return Ok(None);
        };
        if cursor.peek("a key")? == b']' {
            return Ok(None);
        }
        let key = word(cursor, values, reader)?;
        let value = match cursor.peek("a value or the end of a micro-operation")? {
            b']' => return Ok(None),
            b'[' if kind == MopKind::Read => list(cursor, values, reader)?,
            _ if cursor.nil() => MopValue::Nil,
            _ => MopValue::One(word(cursor, values, reader)?),
        };
        if cursor.peek("the end of a micro-operation")? != b']' {
            return Ok(None);
        }
        cursor.take();
        values.push_mop(Mop::new(kind, key, value));
    }
    cursor.take();
    Ok(Some(values.end_txn(start)))
}

fn mop_kind(cursor: &mut Cursor<'_>) -> Parsed<Option<MopKind>> {
    match cursor.peek("the function of a micro-operation")? {
        b':' | b'"' => Ok(MopKind::of(
            &cursor.name("the function of a micro-operation")?,
        )),
        _ => Ok(None),
    }
}

/// A list that was read.
fn list(
    cursor: &mut Cursor<'_>,
    values: &mut Values,
    reader: &mut ValueReader,
) -> Parsed<MopValue> {
    let start = values.elements_len();
    cursor.take();
    while cursor.peek("an element or the end of a list")? != b']' {
        let element = word(cursor, values, reader)?;
        values.push_element(element);
    }
    cursor.take();
    Ok(values.end_list(start))
}

fn word(cursor: &mut Cursor<'_>, values: &mut Values, reader: &mut ValueReader) -> Parsed<Word> {
    if let Some(small) = cursor.small() {
        return Ok(Word::small(small));
    }
    let packed = reader.read(cursor, values)?;
    Ok(values.word_of_packed(packed))
}

/// Whether a text begins as operations in this language do.
pub(crate) fn begins(text: &[u8], dialect: Dialect) -> bool {
    let mut cursor = Cursor::new(text, dialect);
    begins_with_op(&mut cursor, dialect).unwrap_or(false)
}

fn begins_with_op(cursor: &mut Cursor<'_>, dialect: Dialect) -> Parsed<bool> {
    let mut byte = cursor.peek(BETWEEN)?;
    if byte == b'[' || byte == b'(' && dialect == Dialect::Edn {
        cursor.take();
        byte = cursor.peek(BETWEEN)?;
        if matches!(byte, b']' | b')') {
            return Ok(true);
        }
    }
    if byte == b'#' {
        cursor.take();
        cursor.name("a tag")?;
        byte = cursor.peek(BETWEEN)?;
    }
    if byte != b'{' {
        return Ok(false);
    }
    cursor.take();
    Ok(match cursor.peek("a key")? {
        b':' => dialect == Dialect::Edn,
        b'"' => dialect == Dialect::Json,
        _ => false,
    })
}

#[cfg(test)]
mod tests;
