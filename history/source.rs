//! The text of a history, read piece by piece.
//!
//! A reader looks at [`Source::text`], takes off the front what it understood, and asks for
//! [`Source::more`] where that ends too early. The text is never held as a whole, and the place of
//! every byte is known. A text that begins with the magic number of zstd is unpacked on the way.

use std::io::Read;
use std::path::Path;

use crate::Error;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Small enough to stay in the cache of a core between being read and being parsed.
const PIECE: usize = 256 * 1024;

/// A text, and how far it was taken.
pub(crate) struct Source<'r> {
    name: String,
    input: Box<dyn Read + 'r>,
    is_packed: bool,
    is_over: bool,
    buffer: Vec<u8>,
    /// How much of the buffer was taken.
    taken: usize,
    /// How many lines were taken as a whole, and how many bytes of the one after them.
    lines: usize,
    column: usize,
    warnings: Vec<String>,
}

impl<'r> Source<'r> {
    /// A file.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Source<'static>, Error> {
        let name = path.display().to_string();
        match std::fs::File::open(path) {
            Ok(file) => Source::new(name, Box::new(file)),
            Err(source) => Err(Error::Io { path: name, source }),
        }
    }

    /// A text in memory.
    ///
    /// # Errors
    /// [`Error::Io`] if it is compressed and cannot be unpacked.
    pub(crate) fn of_bytes(bytes: &'r [u8]) -> Result<Source<'r>, Error> {
        Source::new("text".to_owned(), Box::new(bytes))
    }

    fn new(name: String, input: Box<dyn Read + 'r>) -> Result<Source<'r>, Error> {
        let mut source = Source {
            name,
            input,
            is_packed: false,
            is_over: false,
            buffer: Vec::new(),
            taken: 0,
            lines: 0,
            column: 0,
            warnings: Vec::new(),
        };
        source.fill()?;
        if source.buffer.starts_with(&ZSTD_MAGIC) {
            let begin = std::io::Cursor::new(std::mem::take(&mut source.buffer));
            let rest = std::mem::replace(&mut source.input, Box::new(std::io::empty()));
            let unpacked = zstd::stream::read::Decoder::new(begin.chain(rest));
            source.input = Box::new(unpacked.map_err(|error| source.io(error))?);
            source.is_packed = true;
            source.is_over = false;
            source.fill()?;
        }
        Ok(source)
    }

    fn io(&self, source: std::io::Error) -> Error {
        Error::Io {
            path: self.name.clone(),
            source,
        }
    }

    /// What follows, as far as it was read.
    pub(crate) fn text(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    /// Whether nothing follows what was read.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes so many bytes off the front.
    pub(crate) fn take(&mut self, count: usize) {
        let (lines, column) = self.ahead(count);
        self.lines = lines;
        self.column = column;
        self.taken += count;
    }

    /// Reads on, so that the text is longer or over.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read.
    pub(crate) fn more(&mut self) -> Result<(), Error> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.fill()
    }

    fn fill(&mut self) -> Result<(), Error> {
        let goal = (self.buffer.len() * 2).max(PIECE);
        let mut length = self.buffer.len();
        self.buffer.resize(goal, 0);
        while length < goal && !self.is_over {
            match self.input.read(&mut self.buffer[length..]) {
                Ok(0) => self.is_over = true,
                Ok(count) => length += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if self.is_packed && (length > 0 || self.lines + self.column > 0) => {
                    self.warnings
                        .push(format!("the compressed file ends early ({error})"));
                    self.is_over = true;
                }
                Err(error) => return Err(self.io(error)),
            }
        }
        self.buffer.truncate(length);
        Ok(())
    }

    /// Lines and column so many bytes further on.
    fn ahead(&self, count: usize) -> (usize, usize) {
        let text = &self.text()[..count];
        let ends = memchr::memchr_iter(b'\n', text).count();
        match memchr::memrchr(b'\n', text) {
            Some(last) => (self.lines + ends, count - last - 1),
            None => (self.lines, self.column + count),
        }
    }

    /// The one-based line of what is so many bytes further on.
    pub(crate) fn line_at(&self, ahead: usize) -> usize {
        self.ahead(ahead).0 + 1
    }

    /// An error at a place so many bytes further on.
    pub(crate) fn malformed(&self, ahead: usize, message: String) -> Error {
        let (lines, column) = self.ahead(ahead.min(self.text().len()));
        Error::Malformed {
            line: lines + 1,
            column: column + 1,
            message,
        }
    }

    /// The next line, without its end, and how many bytes it takes with it.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read.
    pub(crate) fn line(&mut self) -> Result<Option<Line>, Error> {
        let mut searched = 0;
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.text()[searched..]) {
                let len = searched + end;
                return Ok(Some(Line { len, ended: true }));
            }
            if self.is_over {
                let len = self.text().len();
                return Ok((len > 0).then_some(Line { len, ended: false }));
            }
            searched = self.text().len();
            self.more()?;
        }
    }

    /// What there is to say about the text so far.
    pub(crate) fn warnings(&mut self) -> &mut Vec<String> {
        &mut self.warnings
    }
}

/// A line at the front of the text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    /// Its length without its end.
    pub(crate) len: usize,
    /// Whether it has an end.
    pub(crate) ended: bool,
}

impl Line {
    /// Its length with its end.
    pub(crate) fn whole(self) -> usize {
        self.len + usize::from(self.ended)
    }
}
