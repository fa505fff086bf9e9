//! The tokens and values of EDN and JSON, read straight into packed values.
//!
//! What EDN has and JSON has not is kept as what comes nearest: keywords and symbols are strings
//! without their colon, sets are lists, ratios and decimals are the text of them, a tagged value is
//! the value, `nil` is `null`, and the key of a map is its text. Nesting is limited to 128, as in
//! `serde_json`.

use std::borrow::Cow;

use crate::values::{Packed, Values};

const DEPTH_MAX: usize = 128;

/// Which of the two languages a text is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Edn,
    Json,
}

/// Why a value could not be read.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The text ended first; more of it may help.
    Short(&'static str),
    /// What stands at this place is not what may stand there.
    Wrong(Box<(usize, String)>),
}

/// What was read, or why not.
pub(crate) type Parsed<T> = Result<T, Trouble>;

/// A text and a place in it.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'t> {
    text: &'t [u8],
    at: usize,
    dialect: Dialect,
}

/// The bytes that end an atom.
static ENDS_ATOM: [bool; 256] = {
    let mut ends = [false; 256];
    let list = b" ,\n\t\r\x0b\x0c}])[({\";";
    let mut at = 0;
    while at < list.len() {
        ends[list[at] as usize] = true;
        at += 1;
    }
    ends
};

/// Whether a byte ends an atom.
#[inline]
fn ends_atom(byte: u8) -> bool {
    ENDS_ATOM[usize::from(byte)]
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t [u8], dialect: Dialect) -> Cursor<'t> {
        Cursor {
            text,
            at: 0,
            dialect,
        }
    }

    /// How many bytes were read.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn back_to(&mut self, at: usize) {
        self.at = at;
    }

    /// An error at the present place, with the text that stands there.
    #[cold]
    pub(crate) fn wrong(&self, expected: &str) -> Trouble {
        self.wrong_at(self.at, expected)
    }

    #[cold]
    pub(crate) fn wrong_at(&self, at: usize, expected: &str) -> Trouble {
        let message = format!("expected {expected}, found {}", excerpt(&self.text[at..]));
        Trouble::Wrong(Box::new((at, message)))
    }

    /// The byte at the present place.
    #[inline]
    fn byte(&self, expected: &'static str) -> Parsed<u8> {
        match self.text.get(self.at) {
            Some(&byte) => Ok(byte),
            None => Err(Trouble::Short(expected)),
        }
    }

    /// The next byte that is no space and no comment.
    #[inline]
    pub(crate) fn peek(&mut self, expected: &'static str) -> Parsed<u8> {
        let plain = |byte: u8| byte > b' ' && byte != b',' && byte != b';' && byte != b'#';
        let byte = self.byte(expected)?;
        if plain(byte) {
            return Ok(byte);
        }
        // Nearly always it is one space.
        match self.text.get(self.at + 1) {
            Some(&next) if byte == b' ' && plain(next) => {
                self.at += 1;
                Ok(next)
            }
            _ => self.skip_space(expected),
        }
    }

    fn skip_space(&mut self, expected: &'static str) -> Parsed<u8> {
        loop {
            match self.byte(expected)? {
                b' ' | b',' | b'\n' | b'\t' | b'\r' => self.at += 1,
                0x0b | 0x0c if self.dialect == Dialect::Edn => self.at += 1,
                b';' if self.dialect == Dialect::Edn => {
                    self.skip_comment();
                    self.at += 1;
                }
                b'#' if self.dialect == Dialect::Edn => match self.text.get(self.at + 1) {
                    None => return Err(Trouble::Short(expected)),
                    Some(b'_') => {
                        self.at += 2;
                        self.skip_value()?;
                    }
                    Some(_) => return Ok(b'#'),
                },
                byte => return Ok(byte),
            }
        }
    }

    /// Skips a comment up to the end of its line.
    fn skip_comment(&mut self) {
        let end = memchr::memchr(b'\n', &self.text[self.at..]);
        self.at = end.map_or(self.text.len() - 1, |end| self.at + end);
    }

    /// Takes a byte that was peeked at.
    #[inline]
    pub(crate) fn take(&mut self) {
        self.at += 1;
    }

    /// Takes the colon that stands between a key and its value in JSON.
    #[inline]
    pub(crate) fn colon(&mut self) -> Parsed<()> {
        if self.dialect == Dialect::Edn {
            return Ok(());
        }
        match self.peek("`:`")? {
            b':' => {
                self.at += 1;
                Ok(())
            }
            _ => Err(self.wrong("`:`")),
        }
    }

    /// The bytes up to the end of an atom.
    #[inline]
    fn atom(&mut self) -> Parsed<&'t [u8]> {
        let start = self.at;
        let rest = &self.text[start..];
        let json = self.dialect == Dialect::Json;
        match rest
            .iter()
            .position(|&byte| ends_atom(byte) || json && byte == b':')
        {
            Some(len) => {
                self.at = start + len;
                Ok(&rest[..len])
            }
            None => Err(Trouble::Short("the end of a word")),
        }
    }

    /// A keyword, symbol or string as a name.
    #[inline]
    pub(crate) fn name(&mut self, expected: &'static str) -> Parsed<Cow<'t, str>> {
        let start = self.at;
        match self.peek(expected)? {
            b'"' => self.string(),
            b':' if self.dialect == Dialect::Edn => {
                self.at += 1;
                self.word(expected)
            }
            byte if self.dialect == Dialect::Edn && !byte.is_ascii_digit() && !ends_atom(byte) => {
                self.word(expected)
            }
            _ => Err(self.wrong_at(start, expected)),
        }
    }

    fn word(&mut self, expected: &str) -> Parsed<Cow<'t, str>> {
        let start = self.at;
        let atom = self.atom()?;
        match std::str::from_utf8(atom) {
            Ok(word) if !word.is_empty() => Ok(Cow::Borrowed(word)),
            _ => Err(self.wrong_at(start, expected)),
        }
    }

    /// A string that begins here.
    pub(crate) fn string(&mut self) -> Parsed<Cow<'t, str>> {
        let open = self.at;
        let start = open + 1;
        match memchr::memchr2(b'"', b'\\', &self.text[start..]) {
            None => Err(Trouble::Short("the end of a string")),
            Some(len) if self.text[start + len] == b'"' => {
                self.at = start + len + 1;
                match std::str::from_utf8(&self.text[start..start + len]) {
                    Ok(text) => Ok(Cow::Borrowed(text)),
                    Err(_) => Err(self.wrong_at(open, "a string in UTF-8")),
                }
            }
            Some(len) => self.escaped(start, start + len).map(Cow::Owned),
        }
    }

    /// The rest of a string whose first escape is at `at`.
    fn escaped(&mut self, start: usize, at: usize) -> Parsed<String> {
        let short = Trouble::Short("the end of a string");
        let mut bytes = self.text[start..at].to_vec();
        self.at = at;
        loop {
            let Some(len) = memchr::memchr2(b'"', b'\\', &self.text[self.at..]) else {
                return Err(short);
            };
            bytes.extend_from_slice(&self.text[self.at..self.at + len]);
            self.at += len;
            if self.text[self.at] == b'"' {
                self.at += 1;
                return String::from_utf8(bytes)
                    .map_err(|_| self.wrong_at(start - 1, "a string in UTF-8"));
            }
            let character = self.escape()?;
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    fn escape(&mut self) -> Parsed<char> {
        let start = self.at;
        let Some(&byte) = self.text.get(self.at + 1) else {
            return Err(Trouble::Short("an escape"));
        };
        self.at += 2;
        let character = match byte {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'"' => '"',
            b'\\' => '\\',
            b'/' if self.dialect == Dialect::Json => '/',
            b'u' => return self.unicode(start),
            b'0'..=b'7' if self.dialect == Dialect::Edn => return self.octal(start),
            _ => return Err(self.wrong_at(start, "an escape")),
        };
        Ok(character)
    }

    fn octal(&mut self, start: usize) -> Parsed<char> {
        let mut value = 0;
        self.at = start + 1;
        for _ in 0..3 {
            match self.byte("an escape")? {
                digit @ b'0'..=b'7' => value = value * 8 + u32::from(digit - b'0'),
                _ => break,
            }
            self.at += 1;
        }
        let character = char::from_u32(value).filter(|_| value < 256);
        character.ok_or_else(|| self.wrong_at(start, "an escape up to \\377"))
    }

    fn unicode(&mut self, start: usize) -> Parsed<char> {
        let high = self.hex(start)?;
        if !(0xd800..0xe000).contains(&high) {
            return char::from_u32(high).ok_or_else(|| self.wrong_at(start, "an escape"));
        }
        let next = self.text.get(self.at..self.at + 2);
        let next = next.ok_or(Trouble::Short("the second half of a surrogate pair"))?;
        if high >= 0xdc00 || next != b"\\u" {
            return Err(self.wrong_at(start, "a surrogate pair"));
        }
        self.at += 2;
        let low = self.hex(start)?;
        let pair = low
            .checked_sub(0xdc00)
            .filter(|&low| low < 0x400)
            .and_then(|low| char::from_u32(0x10000 + ((high - 0xd800) << 10) + low));
        pair.ok_or_else(|| self.wrong_at(start, "a surrogate pair"))
    }

    fn hex(&mut self, start: usize) -> Parsed<u32> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.ok_or(Trouble::Short("four hexadecimal digits"))?;
        let mut value = 0;
        for &digit in digits {
            let digit = char::from(digit).to_digit(16);
            value = value * 16
                + digit.ok_or_else(|| self.wrong_at(start, "four hexadecimal digits"))?;
        }
        self.at += 4;
        Ok(value)
    }

    /// A small integer that is not negative, if just that stands here.
    #[inline]
    pub(crate) fn small(&mut self) -> Option<u32> {
        self.digits(9).map(|value| value as u32)
    }

    /// An integer that is not negative and has at most 18 digits, if just that stands here.
    #[inline]
    fn plain_integer(&mut self) -> Option<i64> {
        self.digits(18).map(|value| value as i64)
    }

    #[inline]
    fn digits(&mut self, most: usize) -> Option<u64> {
        let rest = &self.text[self.at..];
        let mut value: u64 = 0;
        let mut length = 0;
        while let Some(digit) = rest.get(length).map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
        {
            if length == most {
                return None;
            }
            value = value * 10 + u64::from(digit);
            length += 1;
        }
        let is_alone = rest.get(length).is_some_and(|&byte| ends_atom(byte));
        let is_plain = length == 1 || length > 1 && rest[0] != b'0';
        if !is_plain || !is_alone {
            return None;
        }
        self.at += length;
        Some(value)
    }

    /// A whole number of up to 64 bits, or `nil`.
    pub(crate) fn integer_or_nil(&mut self, expected: &'static str) -> Parsed<Option<i64>> {
        self.peek(expected)?;
        if let Some(integer) = self.plain_integer() {
            return Ok(Some(integer));
        }
        let start = self.at;
        let atom = self.atom()?;
        let text = std::str::from_utf8(atom).unwrap_or_default();
        if text == self.nil_name() {
            return Ok(None);
        }
        match text.parse() {
            Ok(integer) => Ok(Some(integer)),
            Err(_) => Err(self.wrong_at(start, expected)),
        }
    }

    /// Takes `nil`, if that stands here.
    #[inline]
    pub(crate) fn nil(&mut self) -> bool {
        if self.text.get(self.at) != Some(&b'n') {
            return false;
        }
        let name = self.nil_name().as_bytes();
        let end = self.at + name.len();
        let is_nil = self.text[self.at..].starts_with(name)
            && self.text.get(end).is_some_and(|&byte| ends_atom(byte));
        if is_nil {
            self.at = end;
        }
        is_nil
    }

    /// The bytes read since a place.
    pub(crate) fn since(&self, start: usize) -> &'t [u8] {
        &self.text[start..self.at]
    }

    /// What follows, as text.
    pub(crate) fn rest(&self) -> String {
        String::from_utf8_lossy(&self.text[self.at..])
            .trim()
            .to_owned()
    }

    fn nil_name(&self) -> &'static str {
        match self.dialect {
            Dialect::Edn => "nil",
            Dialect::Json => "null",
        }
    }

    /// Skips one value, whatever it is, without recursion.
    pub(crate) fn skip_value(&mut self) -> Parsed<()> {
        let mut closers: Vec<u8> = Vec::new();
        let mut wanted = 1;
        while wanted > 0 || !closers.is_empty() {
            let byte = self.byte("a value")?;
            let top = closers.is_empty();
            match byte {
                b'(' if self.dialect == Dialect::Edn => closers.push(b')'),
                b'[' => closers.push(b']'),
                b'{' => closers.push(b'}'),
                b')' | b']' | b'}' => {
                    if closers.pop() != Some(byte) {
                        return Err(self.wrong("a value"));
                    }
                    wanted -= usize::from(closers.is_empty());
                }
                b'"' => {
                    self.string()?;
                    wanted -= usize::from(top);
                    continue;
                }
                b' ' | b',' | b'\n' | b'\t' | b'\r' | 0x0b | 0x0c => {}
                b':' if self.dialect == Dialect::Json => {}
                b';' if self.dialect == Dialect::Edn => self.skip_comment(),
                b'#' if self.dialect == Dialect::Edn => {
                    wanted += self.skip_mark(top)?;
                    continue;
                }
                b'^' if self.dialect == Dialect::Edn => wanted += usize::from(top),
                b'\\' if self.dialect == Dialect::Edn => {
                    self.character()?;
                    wanted -= usize::from(top);
                    continue;
                }
                _ => {
                    if self.atom()?.is_empty() {
                        return Err(self.wrong("a value"));
                    }
                    wanted -= usize::from(top);
                    continue;
                }
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Skips what begins with `#` up to the value that it belongs to; returns how many values more
    /// have to be skipped for it.
    fn skip_mark(&mut self, top: bool) -> Parsed<usize> {
        match self.text.get(self.at + 1) {
            None => Err(Trouble::Short("a value")),
            Some(b'_') => {
                self.at += 2;
                Ok(usize::from(top))
            }
            Some(b'{') => {
                self.at += 1;
                Ok(0)
            }
            Some(b'#') => {
                self.at += 2;
                Ok(0)
            }
            Some(_) => {
                self.at += 1;
                self.atom()?;
                Ok(0)
            }
        }
    }

    /// A character: `\a`, `\newline`, `\u0041`.
    fn character(&mut self) -> Parsed<String> {
        let start = self.at;
        self.at += 1;
        let rest = &self.text[self.at..];
        let chunk = rest[..rest.len().min(4)].utf8_chunks().next();
        let first = match chunk.and_then(|chunk| chunk.valid().chars().next()) {
            Some(first) => first,
            None if rest.len() < 4 => return Err(Trouble::Short("a character")),
            None => return Err(self.wrong_at(start, "a character in UTF-8")),
        };
        self.at += first.len_utf8();
        let more = self.atom()?;
        let name = &self.text[start + 1..start + 1 + first.len_utf8() + more.len()];
        let text = match name {
            b"newline" => "\n".to_owned(),
            b"space" => " ".to_owned(),
            b"tab" => "\t".to_owned(),
            b"return" => "\r".to_owned(),
            b"formfeed" => "\u{c}".to_owned(),
            b"backspace" => "\u{8}".to_owned(),
            _ if more.is_empty() => first.to_string(),
            _ if first == 'u' && more.len() == 4 => {
                self.at = start + 2;
                let code = self.hex(start)?;
                let character = char::from_u32(code);
                character
                    .ok_or_else(|| self.wrong_at(start, "a character"))?
                    .to_string()
            }
            _ => return Err(self.wrong_at(start, "a character")),
        };
        Ok(text)
    }
}

/// What stands at a place, for people.
pub(crate) fn excerpt(text: &[u8]) -> String {
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let shown = String::from_utf8_lossy(&line[..line.len().min(60)]);
    let shown: String = shown.chars().take(30).collect();
    match shown.trim_end() {
        "" if text.is_empty() => "the end".to_owned(),
        "" => "the end of the line".to_owned(),
        shown => format!("`{shown}`"),
    }
}

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
