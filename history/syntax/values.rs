//! Values of EDN and JSON, read straight into packed values.

use super::{Cursor, Dialect, Parsed, ends_atom};
use crate::values::{Packed, Values};

const DEPTH_MAX: usize = 128;

/// Reads values into the tables of a history.
#[derive(Debug, Default)]
pub(crate) struct ValueReader {
    items: Vec<Packed>,
}

impl ValueReader {
    /// Reads one value.
    pub(crate) fn read(&mut self, cursor: &mut Cursor<'_>, values: &mut Values) -> Parsed<Packed> {
        self.items.clear();
        self.value(cursor, values, 0)
    }

    fn value(
        &mut self,
        cursor: &mut Cursor<'_>,
        values: &mut Values,
        depth: usize,
    ) -> Parsed<Packed> {
        if depth > DEPTH_MAX {
            return Err(cursor.wrong("a value that is nested less than 128 deep"));
        }
        let byte = cursor.peek("a value")?;
        let is_edn = cursor.dialect == Dialect::Edn;
        match byte {
            b'"' => Ok(values.pack_str(&cursor.string()?)),
            b'[' => self.list(cursor, values, depth, b']'),
            b'{' => self.map(cursor, values, depth),
            b'(' if is_edn => self.list(cursor, values, depth, b')'),
            b':' if is_edn => Ok(values.pack_str(&cursor.name("a keyword")?)),
            b'\\' if is_edn => Ok(values.pack_str(&cursor.character()?)),
            b'#' if is_edn => self.marked(cursor, values, depth),
            b'^' if is_edn => {
                cursor.take();
                cursor.skip_value()?;
                self.value(cursor, values, depth + 1)
            }
            b'0'..=b'9' | b'-' | b'+' => number(cursor, values),
            _ if ends_atom(byte) => Err(cursor.wrong("a value")),
            _ => symbol(cursor, values),
        }
    }

    fn list(
        &mut self,
        cursor: &mut Cursor<'_>,
        values: &mut Values,
        depth: usize,
        end: u8,
    ) -> Parsed<Packed> {
        let base = self.items.len();
        cursor.take();
        while cursor.peek("a value or the end of a list")? != end {
            let item = self.value(cursor, values, depth + 1)?;
            self.items.push(item);
        }
        cursor.take();
        let list = values.pack_list(&self.items[base..]);
        self.items.truncate(base);
        Ok(list)
    }

    fn map(
        &mut self,
        cursor: &mut Cursor<'_>,
        values: &mut Values,
        depth: usize,
    ) -> Parsed<Packed> {
        let base = self.items.len();
        cursor.take();
        while cursor.peek("a key or the end of a map")? != b'}' {
            let key = self.key(cursor, values)?;
            self.items.push(key);
            cursor.colon()?;
            let item = self.value(cursor, values, depth + 1)?;
            self.items.push(item);
        }
        cursor.take();
        let map = values.pack_map(&self.items[base..]);
        self.items.truncate(base);
        Ok(map)
    }

    /// The key of a map: a name, or the text of whatever it is.
    fn key(&mut self, cursor: &mut Cursor<'_>, values: &mut Values) -> Parsed<Packed> {
        let byte = cursor.peek("a key")?;
        if byte == b'"' || byte == b':' && cursor.dialect == Dialect::Edn {
            return Ok(values.pack_str(&cursor.name("a key")?));
        }
        if cursor.dialect == Dialect::Json {
            return Err(cursor.wrong("a key in quotes"));
        }
        let start = cursor.at();
        cursor.skip_value()?;
        let text = String::from_utf8_lossy(&cursor.text[start..cursor.at()]);
        Ok(values.pack_str(&text))
    }

    /// A set, a tagged value, or a number that is none (`##NaN`).
    fn marked(
        &mut self,
        cursor: &mut Cursor<'_>,
        values: &mut Values,
        depth: usize,
    ) -> Parsed<Packed> {
        cursor.take();
        match cursor.byte("a value")? {
            b'{' => self.list(cursor, values, depth, b'}'),
            b'#' => {
                cursor.take();
                Ok(values.pack_str(&cursor.word("NaN, Inf or -Inf")?))
            }
            _ => {
                cursor.word("a tag")?;
                self.value(cursor, values, depth + 1)
            }
        }
    }
}

/// `nil`, `true`, `false`, or a symbol as a string.
fn symbol(cursor: &mut Cursor<'_>, values: &mut Values) -> Parsed<Packed> {
    let start = cursor.at();
    let word = cursor.word("a value")?;
    match &*word {
        "true" => Ok(Packed::bool(true)),
        "false" => Ok(Packed::bool(false)),
        word if word == cursor.nil_name() => Ok(Packed::NULL),
        word if cursor.dialect == Dialect::Edn => Ok(values.pack_str(word)),
        _ => Err(cursor.wrong_at(start, "a value")),
    }
}

/// A number, or in EDN a symbol that begins with a sign.
fn number(cursor: &mut Cursor<'_>, values: &mut Values) -> Parsed<Packed> {
    if let Some(small) = cursor.small() {
        return Ok(Packed::int(i64::from(small)));
    }
    let start = cursor.at();
    let atom = cursor.word("a number")?;
    let is_edn = cursor.dialect == Dialect::Edn;
    let sign = usize::from(atom.starts_with(['+', '-']));
    let digits = &atom[sign..];
    if is_edn && !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(values.pack_str(&atom));
    }
    let wrong = || cursor.wrong_at(start, "a number");
    if !is_edn && atom.starts_with('+') {
        return Err(wrong());
    }
    let whole = digits.bytes().take_while(u8::is_ascii_digit).count();
    if whole == 0 || whole > 1 && digits.starts_with('0') {
        return Err(wrong());
    }
    let integer = &atom[..sign + whole];
    match &digits[whole..] {
        "" => Ok(pack_digits(integer, values)),
        "N" if is_edn => Ok(pack_digits(integer, values)),
        rest if is_edn && rest.starts_with('/') => {
            ratio(integer, &rest[1..], values).ok_or_else(wrong)
        }
        rest if is_edn && rest.ends_with('M') => match atom[..atom.len() - 1].parse::<f64>() {
            Ok(_) => Ok(values.pack_str(&atom)),
            Err(_) => Err(wrong()),
        },
        rest if is_fraction(rest, is_edn) => {
            let float: f64 = atom.parse().map_err(|_| wrong())?;
            let number = serde_json::Number::from_f64(float).ok_or_else(wrong)?;
            Ok(values.pack_number(&number))
        }
        _ => Err(wrong()),
    }
}

/// Whether what follows the whole part of a number is a fraction, an exponent, or both.
fn is_fraction(rest: &str, is_edn: bool) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut rest = rest;
    if let Some(after) = rest.strip_prefix('.') {
        let count = digits(after);
        if count == 0 && !is_edn {
            return false;
        }
        rest = &after[count..];
    }
    if let Some(after) = rest.strip_prefix(['e', 'E']) {
        let after = after.strip_prefix(['+', '-']).unwrap_or(after);
        let count = digits(after);
        return count > 0 && count == after.len();
    }
    rest.is_empty()
}

/// An integer of any size.
fn pack_digits(integer: &str, values: &mut Values) -> Packed {
    match integer.parse::<i128>() {
        Ok(integer) => values.pack_integer(integer),
        Err(_) => {
            let sign = if integer.starts_with('-') { "-" } else { "" };
            let digits = integer.trim_start_matches(['+', '-']);
            values.pack_str(&format!("{sign}{digits}"))
        }
    }
}

/// A ratio in lowest terms, as text; an integer if it is one.
fn ratio(numerator: &str, denominator: &str, values: &mut Values) -> Option<Packed> {
    if !denominator.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (Ok(n), Ok(d)) = (numerator.parse::<i64>(), denominator.parse::<i64>()) else {
        return Some(values.pack_str(&format!("{numerator}/{denominator}")));
    };
    if d == 0 {
        return None;
    }
    let (mut a, mut b) = (n.unsigned_abs(), d.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let (n, d) = (i128::from(n) / i128::from(a), i128::from(d) / i128::from(a));
    Some(match d {
        1 => values.pack_integer(n),
        _ => values.pack_str(&format!("{n}/{d}")),
    })
}
