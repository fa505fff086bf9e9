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
        cursor.peek("a key")?;
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
mod tests {
    use crate::formats::{Options, read_bytes, read_bytes_with};
    use crate::{Error, History, Outcome};
    use serde_json::{Value, json};

    fn read(text: &str) -> History {
        let read = read_bytes(text.as_bytes());
        read.unwrap_or_else(|error| panic!("{text}: {error}"))
            .history
    }

    /// The value of a single operation.
    fn value(text: &str) -> Value {
        let history = read(&format!(
            "{{:type :invoke, :process 0, :f :x, :value {text}}}"
        ));
        history.event(0).value().to_json()
    }

    #[test]
    fn values_of_edn_come_as_near_as_json_can() {
        for (text, expected) in [
            ("nil", json!(null)),
            ("true", json!(true)),
            ("-17", json!(-17)),
            ("+17", json!(17)),
            ("-0", json!(0)),
            ("9007199254740993", json!(9_007_199_254_740_993_i64)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("12N", json!(12)),
            (
                "123456789012345678901234567890N",
                json!("123456789012345678901234567890"),
            ),
            ("1.5", json!(1.5)),
            ("1.5e3", json!(1500.0)),
            ("1.5M", json!("1.5M")),
            ("2/4", json!("1/2")),
            ("-4/2", json!(-2)),
            (":a", json!("a")),
            (":jepsen.control/node", json!("jepsen.control/node")),
            ("foo", json!("foo")),
            ("-", json!("-")),
            (
                r#""a\n\"\\\u00e9\ud83d\ude00\101""#,
                json!("a\n\"\\\u{e9}\u{1f600}A"),
            ),
            (r"[\a \newline \u0041 \(]", json!(["a", "\n", "A", "("])),
            ("(1 [2, 3] #{4})", json!([1, [2, 3], [4]])),
            (
                "{0 10, :a {\"b\" nil}, [1 2] 3}",
                json!({"0": 10, "a": {"b": null}, "[1 2]": 3}),
            ),
            ("#inst \"2026-12-01\"", json!("2026-12-01")),
            ("#foo.Bar{:a 1}", json!({"a": 1})),
            ("^{:doc \"x\"} [1]", json!([1])),
            ("[1 #_2 #_#_ 3 [4] ; five\n 6]", json!([1, 6])),
            ("[##NaN ##-Inf]", json!(["NaN", "-Inf"])),
            (
                "[[:r 1 [2 3]] [:append 1 4]]",
                json!([["r", 1, [2, 3]], ["append", 1, 4]]),
            ),
            (
                "[[:r 1 nil] [:pop 1 4]]",
                json!([["r", 1, null], ["pop", 1, 4]]),
            ),
            (
                "[[:r :x nil] [:w \"y\" [1 2]]]",
                json!([["r", "x", null], ["w", "y", [1, 2]]]),
            ),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn operations_stand_in_a_list_or_one_after_the_other() {
        let ops = "{:type :invoke :f :read :process 0} {:type :ok :f :read :process 0 :value 1}";
        let tagged = ops.replace('{', "#jepsen.history.Op{");
        for text in [
            ops.to_owned(),
            format!("; a comment\n[{ops}]\n"),
            format!("({ops}) ; the end"),
            format!("[{tagged}]"),
        ] {
            let history = read(&text);
            assert_eq!(
                history.ops().next().unwrap().outcome(),
                Outcome::Ok,
                "{text}"
            );
        }
        let json =
            r#"{"type":"invoke","f":"read","process":0}{"type":"ok","f":"read","process":0}"#;
        assert_eq!(read(json).len(), 2);
        assert_eq!(read(&format!("[{}]", json.replace("}{", "},\n{"))).len(), 2);
        assert_eq!(read("[]").len(), 0);
    }

    #[test]
    fn what_is_left_out_is_taken_from_the_invocation() {
        let history = read(
            "{:type :invoke :f :cas :value [1 2] :process 0 :time 7}
             {:type :info :f :cas :value :timed-out :error [:net \"down\"] :process 0 :time 5}
             {:type :invoke :f :write :value 3 :process 0}
             {:type :ok :process 0}
             {:type :info :f :start :process :nemesis :value :majority}",
        );
        let events: Vec<_> = history.events().collect();
        assert_eq!(events[1].value().to_json(), json!([1, 2]));
        assert_eq!(events[1].error(), Some("[:net \"down\"]"));
        assert_eq!(events[2].process().to_string(), "0/2");
        assert_eq!(
            (events[3].f(), events[3].value().as_i64()),
            ("write", Some(3))
        );
        assert!(events[4].is_nemesis());
        assert!(
            events
                .iter()
                .map(|event| event.time())
                .eq([7, 8, 9, 10, 11])
        );
    }

    #[test]
    fn an_operation_without_a_process_has_a_session_of_its_own() {
        let history = read(
            "{:type :invoke :value [[:append 1 1] [:r 2 nil]]}
             {:type :invoke :value [[:append 1 2] [:r 2 nil]]}
             {:type :ok :value [[:append 1 1] [:r 2 [5]]]}
             {:type :ok :value [[:append 1 2] [:r 2 [5]]]}",
        );
        let ends: Vec<_> = history
            .ops()
            .map(|op| op.completion.unwrap().index())
            .collect();
        assert_eq!(ends, [2, 3]);
        assert_eq!(history.process_count(), 2);
        assert_eq!(history.event(0).f(), "txn");
        assert_eq!(
            history.event(0).value().to_json(),
            json!([["append", 1, 1], ["r", 2, null]])
        );
        let twins =
            "{:type :invoke :f :read} {:type :invoke :f :read} {:type :ok :f :read :value 1}";
        assert!(refused(twins).contains("operation 2: a completion without a process"));
    }

    #[test]
    fn pairs_of_jepsen_independent_are_told_apart() {
        let text = "{:type :invoke :f :read :value [:x nil] :process 0}
            {:type :ok :f :read :value [:x 3] :process 0}
            {:type :info :f :kill :value nil :process :nemesis}
            {:type :invoke :f :cas :value [:y [1 2]] :process 1}";
        let history = read(text);
        let event = history.event(3);
        assert_eq!(event.key().unwrap().as_str(), Some("y"));
        assert_eq!(event.value().to_json(), json!([1, 2]));
        assert_eq!(history.event(1).value().as_i64(), Some(3));
        let keyed = |independent| {
            let options = Options {
                independent: Some(independent),
                ..Options::default()
            };
            read_bytes_with(text.as_bytes(), &options)
        };
        assert!(keyed(false).unwrap().history.event(1).key().is_none());
        let other = text.replace("[:y [1 2]]", "7");
        assert!(read(&other).event(1).key().is_none());
    }

    fn refused(text: &str) -> String {
        match read_bytes(text.as_bytes()) {
            Err(error) => error.to_string(),
            Ok(read) => panic!(
                "{text}: {:?}",
                read.history
                    .events()
                    .map(|event| event.to_event())
                    .collect::<Vec<_>>()
            ),
        }
    }

    #[test]
    fn errors_say_where_and_what() {
        for (text, says) in [
            (
                "{:type :okay}",
                "line 1, column 8: expected invoke, ok, fail or info, found `:okay}`",
            ),
            (
                "\n{:type :ok, :process 1.5}",
                "line 2, column 22: expected a process",
            ),
            (
                "{:type :invoke :f :read :process 0 :value [1 2}",
                "line 1, column 47: expected a value",
            ),
            (
                "{:type :invoke :f :read :process 0 :value \"a",
                "the text ends; expected the end of a string",
            ),
            ("[{:type :invoke :f :read :process 0}", "and in the end `]`"),
            (
                "{:type :invoke :f :read :process 0}\n{:type :invoke :f :read :process 0}",
                "line 2, column 1: operation 1: process 0 invokes `read`",
            ),
            (
                "{:type :ok :f :read :process 0}",
                "operation 0: process 0 completes `read`, which it has not invoked",
            ),
            ("{:f :read}", "without a type"),
            ("{:type :invoke :value 1}", "without a function"),
            (
                "[{:type :invoke :f :x}] 7",
                "expected an operation, which is a map, found `7`",
            ),
            (r#"[{"type":"invoke" "f":"x" "process" 0}]"#, "expected `:`"),
        ] {
            let error = refused(text);
            assert!(error.contains(says), "{text}: {error}");
        }
        let deep = format!("{{:type :invoke :f :x :value {}", "[".repeat(100_000));
        assert!(refused(&deep).contains("nested less than 128 deep"));
        let skipped = format!(
            "{{:other {}{} :type :invoke :f :x}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert_eq!(read(&skipped).len(), 1);
        assert!(matches!(
            read_bytes(b"{:type :ok :f :\xff :process 1}"),
            Err(Error::Malformed { .. })
        ));
    }

    #[test]
    fn a_text_of_many_pieces_is_read_as_one() {
        let mut text = "[".to_owned();
        for i in 0..20_000 {
            let list: Vec<String> = (0..i % 50).map(|at| (at + i).to_string()).collect();
            text += &format!("{{:type :invoke :f :txn :process {i} :value [[:r {i} nil]]}}\n");
            text += &format!(
                "{{:type :ok :f :txn :process {i} :value [[:r {i} [{}]]]}}",
                list.join(" ")
            );
        }
        text += "]";
        let history = read(&text);
        assert_eq!(history.len(), 40_000);
        for (i, op) in history.ops().enumerate() {
            let txn = op.output().unwrap().as_txn().unwrap();
            let crate::MopValue::List { start, len } = txn.mops[0].value() else {
                panic!("no list");
            };
            let list: Vec<u32> = txn
                .list(start, len)
                .iter()
                .filter_map(|word| word.as_small())
                .collect();
            let expected: Vec<u32> = (0..i % 50).map(|at| (at + i) as u32).collect();
            assert_eq!(list, expected);
            assert_eq!(op.input().to_json(), json!([["r", i, null]]));
        }
    }
}
