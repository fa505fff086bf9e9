//! The log that a node writes to standard error: one line an event, time first, then the level, the
//! node and the message. Raft's own messages ("became leader at term 3") arrive through slog.

use crate::clock::timestamp;
use slog::{Drain, KV, Level, Logger, OwnedKVList, Record, o};
use std::fmt::{Arguments, Write as _};
use std::io::{self, Write as _};

/// A logger that writes lines of level info and above for the node of this name.
pub fn logger(node: &str) -> Logger {
    Logger::root(
        Lines {
            node: node.to_owned(),
        }
        .ignore_res(),
        o!(),
    )
}

struct Lines {
    node: String,
}

impl Drain for Lines {
    type Ok = ();
    type Err = io::Error;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> io::Result<()> {
        if !record.level().is_at_least(Level::Info) {
            return Ok(());
        }
        let level = record.level().as_str();
        let mut line = format!("{} {level} {} {}", timestamp(), self.node, record.msg());
        record
            .kv()
            .serialize(record, &mut Pairs(&mut line))
            .map_err(io::Error::other)?;
        line.push('\n');
        // One write, so that lines of several processes in one file do not mix.
        io::stderr().write_all(line.as_bytes())
    }
}

struct Pairs<'a>(&'a mut String);

impl slog::Serializer for Pairs<'_> {
    fn emit_arguments(&mut self, key: slog::Key, value: &Arguments<'_>) -> slog::Result {
        write!(self.0, " {key}={value}").map_err(slog::Error::from)
    }
}
