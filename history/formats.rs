//! The formats in which histories are read, one file each, and which of them a text is in.

mod awdit;
mod edn;
mod json;
mod log;
mod plume;
mod schism;

use std::path::{Path, PathBuf};

use crate::Error;
use crate::history::History;
use crate::source::Source;
use crate::syntax::excerpt;

/// A way to write a history down.
pub trait Format: Sync {
    /// Its name, as users write it.
    fn name(&self) -> &'static str;

    /// What it is and who writes it, in one sentence.
    fn about(&self) -> &'static str;

    /// Whether a text that begins like this is in this format.
    fn recognises(&self, begin: &[u8]) -> bool;
}

/// What a format can do besides being described.
trait Reader: Format {
    fn read(&self, source: &mut Source<'_>, options: &Options) -> Result<History, Error>;
}

/// All formats. A text is in the first one that recognises it.
static READERS: &[&dyn Reader] = &[
    &schism::Schism,
    &json::Json,
    &edn::Edn,
    &log::Log,
    &awdit::Awdit,
    &plume::Plume,
];

/// All formats, in the order in which they are tried.
pub fn formats() -> impl Iterator<Item = &'static dyn Format> + Clone {
    READERS.iter().map(|&reader| reader as &dyn Format)
}

/// How a history shall be read.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The name of the format; found out by the content if it is not given.
    pub format: Option<String>,
    /// Whether the values are pairs of a key and a value, as `jepsen.independent` makes them. Found
    /// out if it is not said: they are if all are pairs and a read asked for a key alone.
    pub independent: Option<bool>,
}

/// A history as read, with what the reader has to say about the file.
#[derive(Debug)]
pub struct Read {
    /// The events.
    pub history: History,
    /// The name of the format that was found.
    pub format: &'static str,
    /// What was dropped, in words; empty for an undamaged file.
    pub warnings: Vec<String>,
}

/// Reads a history file, or the history in the directory of a run or of a Jepsen test.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, otherwise as [`read_bytes`].
pub fn read_path(path: &Path) -> Result<Read, Error> {
    read_path_with(path, &Options::default())
}

/// Reads a history file as it is told to.
///
/// # Errors
/// As [`read_path`], and [`Error::Unrecognised`] if there is no format of the given name.
pub fn read_path_with(path: &Path, options: &Options) -> Result<Read, Error> {
    read(Source::open(&history_in(path)?)?, options)
}

/// Reads a history from memory.
///
/// # Errors
/// [`Error::Unrecognised`] if the text is in no known format, [`Error::Header`] if the first line is no
/// header of a known version, [`Error::Malformed`] for a place at which there is no event where one
/// is expected, or one that contradicts those before it.
pub fn read_bytes(bytes: &[u8]) -> Result<Read, Error> {
    read_bytes_with(bytes, &Options::default())
}

/// Reads a history from memory as it is told to.
///
/// # Errors
/// As [`read_bytes`].
pub fn read_bytes_with(bytes: &[u8], options: &Options) -> Result<Read, Error> {
    read(Source::of_bytes(bytes)?, options)
}

fn read(mut source: Source<'_>, options: &Options) -> Result<Read, Error> {
    let reader = match &options.format {
        Some(name) => READERS
            .iter()
            .find(|reader| reader.name() == name)
            .ok_or_else(|| {
                Error::Unrecognised(format!("no format `{name}`; known: {}", names()))
            })?,
        None => READERS
            .iter()
            .find(|reader| reader.recognises(source.text()))
            .ok_or_else(|| unrecognised(source.text()))?,
    };
    let history = reader.read(&mut source, options)?;
    Ok(Read {
        history,
        format: reader.name(),
        warnings: std::mem::take(source.warnings()),
    })
}

fn names() -> String {
    let names: Vec<&str> = formats().map(Format::name).collect();
    names.join(", ")
}

fn unrecognised(text: &[u8]) -> Error {
    if text.is_empty() {
        return Error::Unrecognised("the file is empty; expected a history".to_owned());
    }
    Error::Unrecognised(format!(
        "expected a history in one of the formats {}, found {}",
        names(),
        excerpt(text)
    ))
}

/// The files that hold the history in the directory of a run or of a Jepsen test.
const FILES: &[&str] = &[
    "history.jsonl.zst",
    "history.jsonl",
    "history.edn",
    "history.txt",
];

/// A directory stands for the history in it.
fn history_in(path: &Path) -> Result<PathBuf, Error> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let found = FILES
        .iter()
        .map(|file| path.join(file))
        .find(|file| file.exists());
    found.ok_or_else(|| Error::Io {
        path: path.display().to_string(),
        source: std::io::Error::new(
            std::io::ErrorKind::NotFound,
            format!(
                "a directory without a history; expected {}",
                FILES.join(" or ")
            ),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_registered() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("formats");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                entry
                    .unwrap()
                    .path()
                    .file_stem()
                    .unwrap()
                    .display()
                    .to_string()
            })
            .collect();
        files.sort();
        let mut names: Vec<&str> = formats().map(Format::name).collect();
        names.sort_unstable();
        assert_eq!(files, names);
    }
}
