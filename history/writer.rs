//! Writes the history file, one whole line an event, so that a crash tears at most the last one.
//!
//! Lines are collected in memory and handed to the system by [`HistoryWriter::flush`], which the
//! recorder calls whenever it is idle and at least every few milliseconds. A controller that is
//! killed loses what it had not flushed; a machine that loses power may lose more, down to the
//! last [`HistoryWriter::sync`].

use std::fs::File;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use crate::event::{Event, Process};
use crate::header::Header;

const FLUSH_AT: usize = 256 * 1024;

/// Appends events to a history file.
#[derive(Debug)]
pub struct HistoryWriter<W: Write> {
    out: W,
    buffer: Vec<u8>,
    next_index: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    i: u64,
    t: u64,
    p: &'a Process,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    r#type: crate::Kind,
    f: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a Value>,
    value: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl<W: Write> HistoryWriter<W> {
    /// Begins a history with its header.
    ///
    /// # Errors
    /// What the system said when the header was written.
    pub fn new(out: W, header: &Header) -> io::Result<HistoryWriter<W>> {
        let mut writer = HistoryWriter {
            out,
            buffer: Vec::with_capacity(FLUSH_AT + 4096),
            next_index: 0,
        };
        serde_json::to_writer(&mut writer.buffer, header)?;
        writer.buffer.push(b'\n');
        writer.flush()?;
        Ok(writer)
    }

    /// Appends one event and returns its index. It reaches the system at the next flush.
    ///
    /// # Errors
    /// What the system said, if the buffer was full and had to be written. The event is then kept
    /// in the buffer, and a later flush tries again.
    pub fn append(&mut self, event: &Event) -> io::Result<u64> {
        let index = self.next_index;
        let line = Line {
            i: index,
            t: event.time,
            p: &event.process,
            node: event.node.as_deref(),
            r#type: event.kind,
            f: &event.f,
            key: event.key.as_ref(),
            value: &event.value,
            error: event.error.as_deref(),
        };
        serde_json::to_writer(&mut self.buffer, &line)?;
        self.buffer.push(b'\n');
        self.next_index += 1;
        if self.buffer.len() >= FLUSH_AT {
            self.flush()?;
        }
        Ok(index)
    }

    /// Hands everything to the system.
    ///
    /// # Errors
    /// What the system said; what was not written stays in the buffer.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            match self.out.write(&self.buffer[written..]) {
                Ok(0) if written < self.buffer.len() => {
                    break Err(io::ErrorKind::WriteZero.into());
                }
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
            if written == self.buffer.len() {
                break self.out.flush();
            }
        };
        self.buffer.drain(..written);
        result
    }

    /// How many events were appended.
    pub fn count(&self) -> u64 {
        self.next_index
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    /// What the system said.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.out)
    }
}

impl HistoryWriter<File> {
    /// Flushes, and waits until the disk has it.
    ///
    /// # Errors
    /// What the system said.
    pub fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.out.sync_data()
    }
}
