//! A fast reader for the lines that [`crate::writer`] writes.
//!
//! It knows the order of the fields and that there is no space between them, and takes strings
//! without escapes and whole numbers of up to 18 digits. Whatever else may stand in a history it
//! leaves to `serde_json`; what it takes means the same there.

use crate::builder::{HistoryBuilder, Row, TXN};
use crate::event::{Kind, Process};
use crate::symbols::Symbols;
use crate::txn::{Mop, MopKind, MopValue, Word};
use crate::values::{Packed, Values};

/// Deeper values are left to `serde_json`.
const DEPTH_MAX: usize = 16;

/// Reads lines, and remembers the names that it saw.
#[derive(Debug, Default)]
pub(crate) struct LineReader {
    functions: Names,
    nodes: Names,
    /// The numbers of the processes that are named by a number, at the place of that number.
    numbered: Vec<Option<u32>>,
    items: Vec<Packed>,
}

/// An event as read: its index, its columns, and how many bytes of text it took with its end.
pub(crate) struct Scanned {
    pub(crate) index: u64,
    pub(crate) row: Row,
    pub(crate) taken: usize,
}

impl LineReader {
    /// Reads the line at the front of a text; `None` if it is unusual or not whole.
    #[inline]
    pub(crate) fn read(&mut self, text: &[u8], builder: &mut HistoryBuilder) -> Option<Scanned> {
        let mark = builder.values().mark();
        let scanned = self.line(text, builder);
        if scanned.is_none() {
            builder.values().back_to(mark);
            self.items.clear();
        }
        scanned
    }

    fn line(&mut self, text: &[u8], builder: &mut HistoryBuilder) -> Option<Scanned> {
        let mut at = Scan { text, at: 0 };
        at.literal(b"{\"i\":")?;
        let index = at.natural()?;
        at.literal(b",\"t\":")?;
        let time = at.natural()?;
        at.literal(b",\"p\":")?;
        let process = self.process(&mut at, builder)?;
        let node = match at.has(b",\"node\":") {
            true => Some(self.nodes.id(at.string()?, |name| builder.node(name))),
            false => None,
        };
        at.literal(b",\"type\":")?;
        let kind = match at.string()? {
            "invoke" => Kind::Invoke,
            "ok" => Kind::Ok,
            "fail" => Kind::Fail,
            "info" => Kind::Info,
            _ => return None,
        };
        at.literal(b",\"f\":")?;
        let name = at.string()?;
        let function = self.functions.id(name, |name| builder.function(name));
        let key = match at.has(b",\"key\":") {
            true => Some(self.value(&mut at, builder.values(), 0)?),
            false => None,
        };
        at.literal(b",\"value\":")?;
        let value = match name == TXN {
            true => self.txn(&mut at, builder.values())?,
            false => self.value(&mut at, builder.values(), 0)?,
        };
        let error = match at.has(b",\"error\":") {
            true => Some(builder.error(at.string()?)),
            false => None,
        };
        at.literal(b"}\n")?;
        let row = Row {
            time,
            process,
            kind,
            function,
            node,
            // A key of null is no key.
            key: key.filter(|key| !key.is_null()).map(|key| builder.key(key)),
            error,
            value: Some(value),
        };
        Some(Scanned {
            index,
            row,
            taken: at.at,
        })
    }

    fn process(&mut self, at: &mut Scan<'_>, builder: &mut HistoryBuilder) -> Option<u32> {
        if at.byte() == Some(b'"') {
            let name = at.string()?;
            return Some(builder.process_id(&Process::Name(name.to_owned())));
        }
        let number = at.natural()?;
        let near = usize::try_from(number)
            .ok()
            .filter(|&number| number < 1 << 16);
        let Some(near) = near else {
            return Some(builder.process_id(&Process::Number(number)));
        };
        if self.numbered.len() <= near {
            self.numbered.resize(near + 1, None);
        }
        let place = &mut self.numbered[near];
        Some(*place.get_or_insert_with(|| builder.process_id(&Process::Number(number))))
    }

    fn value(&mut self, at: &mut Scan<'_>, values: &mut Values, depth: usize) -> Option<Packed> {
        match at.byte()? {
            b'n' => at.literal(b"null").map(|()| Packed::NULL),
            b't' => at.literal(b"true").map(|()| Packed::bool(true)),
            b'f' => at.literal(b"false").map(|()| Packed::bool(false)),
            b'"' => Some(values.pack_str(at.string()?)),
            b'[' if depth < DEPTH_MAX => self.list(at, values, depth),
            b'{' if depth < DEPTH_MAX => self.map(at, values, depth),
            b'-' => {
                at.at += 1;
                let number = at.natural().filter(|&number| number > 0)?;
                Some(values.pack_integer(-i128::from(number)))
            }
            _ => Some(values.pack_integer(i128::from(at.natural()?))),
        }
    }

    fn list(&mut self, at: &mut Scan<'_>, values: &mut Values, depth: usize) -> Option<Packed> {
        let base = self.items.len();
        at.literal(b"[")?;
        if !at.has(b"]") {
            loop {
                let item = self.value(at, values, depth + 1)?;
                self.items.push(item);
                if !at.has(b",") {
                    break;
                }
            }
            at.literal(b"]")?;
        }
        let list = values.pack_list(&self.items[base..]);
        self.items.truncate(base);
        Some(list)
    }

    fn map(&mut self, at: &mut Scan<'_>, values: &mut Values, depth: usize) -> Option<Packed> {
        let base = self.items.len();
        at.literal(b"{")?;
        if !at.has(b"}") {
            loop {
                let key = values.pack_str(at.string()?);
                at.literal(b":")?;
                self.items.push(key);
                let item = self.value(at, values, depth + 1)?;
                self.items.push(item);
                if !at.has(b",") {
                    break;
                }
            }
            at.literal(b"}")?;
        }
        let map = values.pack_map(&self.items[base..]);
        self.items.truncate(base);
        Some(map)
    }

    /// A transaction; another value of the function is left to `serde_json`.
    fn txn(&mut self, at: &mut Scan<'_>, values: &mut Values) -> Option<Packed> {
        let start = values.mops_len();
        at.literal(b"[")?;
        while !at.has(b"]") {
            if values.mops_len() > start {
                at.literal(b",")?;
            }
            at.literal(b"[")?;
            let kind = MopKind::of(at.string()?)?;
            at.literal(b",")?;
            let key = self.word(at, values)?;
            at.literal(b",")?;
            let value = match at.byte()? {
                b'n' => at.literal(b"null").map(|()| MopValue::Nil)?,
                b'[' if kind == MopKind::Read => self.elements(at, values)?,
                _ => MopValue::One(self.word(at, values)?),
            };
            at.literal(b"]")?;
            values.push_mop(Mop::new(kind, key, value));
        }
        Some(values.end_txn(start))
    }

    fn elements(&mut self, at: &mut Scan<'_>, values: &mut Values) -> Option<MopValue> {
        let start = values.elements_len();
        at.literal(b"[")?;
        while !at.has(b"]") {
            if values.elements_len() > start {
                at.literal(b",")?;
            }
            let word = self.word(at, values)?;
            values.push_element(word);
        }
        Some(values.end_list(start))
    }

    fn word(&mut self, at: &mut Scan<'_>, values: &mut Values) -> Option<Word> {
        let packed = self.value(at, values, 0)?;
        Some(values.word_of_packed(packed))
    }
}

/// The first names of a column, to find them without hashing.
#[derive(Debug, Default)]
struct Names {
    first: Symbols,
    ids: Vec<u32>,
}

impl Names {
    fn id(&mut self, name: &str, mut intern: impl FnMut(&str) -> u32) -> u32 {
        if let Some(place) = self.first.iter().position(|known| known == name) {
            return self.ids[place];
        }
        let id = intern(name);
        if self.ids.len() < 8 {
            self.first.intern(name);
            self.ids.push(id);
        }
        id
    }
}

/// A text and how far it was read.
struct Scan<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Scan<'t> {
    #[inline]
    fn byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Takes these bytes, if they stand here.
    #[inline]
    fn has<const N: usize>(&mut self, bytes: &[u8; N]) -> bool {
        let is_here = self.text[self.at..].first_chunk::<N>() == Some(bytes);
        if is_here {
            self.at += N;
        }
        is_here
    }

    #[inline]
    fn literal<const N: usize>(&mut self, bytes: &[u8; N]) -> Option<()> {
        self.has(bytes).then_some(())
    }

    /// A number of at most 18 digits, followed by something that no number has.
    #[inline]
    fn natural(&mut self) -> Option<u64> {
        let rest = &self.text[self.at..];
        let mut value: u64 = 0;
        let mut length = 0;
        while let Some(digit) = rest.get(length).map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
        {
            if length == 18 {
                return None;
            }
            value = value * 10 + u64::from(digit);
            length += 1;
        }
        let is_plain = length == 1 || length > 1 && rest[0] != b'0';
        let is_whole = matches!(rest.get(length), Some(b',' | b']' | b'}'));
        if !is_plain || !is_whole {
            return None;
        }
        self.at += length;
        Some(value)
    }

    /// A string without escapes.
    #[inline]
    fn string(&mut self) -> Option<&'t str> {
        let start = self.at + 1;
        if self.byte() != Some(b'"') {
            return None;
        }
        let rest = &self.text[start..];
        let ends = |byte: u8| byte == b'"' || byte == b'\\' || byte < b' ';
        let length = rest.iter().position(|&byte| ends(byte))?;
        if rest[length] != b'"' {
            return None;
        }
        self.at = start + length + 1;
        std::str::from_utf8(&rest[..length]).ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::read_bytes;
    use crate::{Event, Header, HistoryWriter, Kind, Process};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3i64..30).prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z\"\\\\\n\u{e9}]{0,4}".prop_map(Value::from),
            Just(json!([["r", 1, [2, 3]], ["append", "k", -1]])),
            Just(json!([["r", 1, null], ["w", 0, [5]]])),
            Just(json!([["pop", 1, null]])),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]{1,2}", inner, 0..4)
                    .prop_map(|map| map.into_iter().collect::<Value>()),
            ]
        })
    }

    prop_compose! {
        fn event()(
            process in prop_oneof![
                (0u64..3).prop_map(Process::Number),
                any::<u64>().prop_map(Process::Number),
                "[a-c\"]{1,2}".prop_map(Process::Name),
            ],
            f in prop_oneof![Just("txn".to_owned()), "[a-z\\\\]{0,3}"],
            key in prop::option::of(value()),
            node in prop::option::of("n[0-9]{0,2}"),
            error in prop::option::of("[a-z \"]{0,3}"),
            value in value(),
        ) -> Event {
            Event { time: 0, process, node, kind: Kind::Info, f, key, value, error }
        }
    }

    proptest! {
        /// The same lines, and the same with spaces that only `serde_json` takes.
        #[test]
        fn lines_mean_what_they_mean_to_serde(events in prop::collection::vec(event(), 0..8)) {
            let mut writer = HistoryWriter::new(Vec::new(), &Header::new("", &[])).unwrap();
            for event in &events {
                writer.append(event).unwrap();
            }
            let usual = writer.into_inner().unwrap();
            let unusual = String::from_utf8(usual.clone()).unwrap().replace("{\"i\":", "{ \"i\":");
            let read = |text: &[u8]| -> Vec<Event> {
                let history = read_bytes(text).unwrap().history;
                history.events().map(|event| event.to_event()).collect()
            };
            prop_assert_eq!(read(&usual), read(unusual.as_bytes()));
        }
    }

    /// A line that is given up half-way has given numbers to words; they go on to mean the same.
    #[test]
    fn words_of_a_line_that_is_given_up_keep_their_meaning() {
        let event = |key: Value, value: Value| {
            let txn = json!([["w", 0, value]]);
            Event::new(0, Process::Name("a".to_owned()), Kind::Info, "txn", txn)
                .with_key(key)
                .with_error("\"")
        };
        let events = [
            event(json!([null]), json!([5])),
            event(json!([7, 8]), json!([5])),
        ];
        let mut writer = HistoryWriter::new(Vec::new(), &Header::new("", &[])).unwrap();
        for event in &events {
            writer.append(event).unwrap();
        }
        let history = read_bytes(&writer.into_inner().unwrap()).unwrap().history;
        let back: Vec<Event> = history.events().map(|event| event.to_event()).collect();
        assert_eq!(back, events);
    }
}
