//! The tokens and values of EDN and JSON, read straight into packed values.
//!
//! What EDN has and JSON has not is kept as what comes nearest: keywords and symbols are strings
//! without their colon, sets are lists, ratios and decimals are the text of them, a tagged value is
//! the value, `nil` is `null`, and the key of a map is its text. Nesting is limited to 128, as in
//! `serde_json`.

mod values;

use std::borrow::Cow;

pub(crate) use values::ValueReader;

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
        let end = memchr::memchr2(b'\n', b'\r', &self.text[self.at..]);
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
