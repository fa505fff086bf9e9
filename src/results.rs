//! The results directory: where runs leave their files, and how they are named.
//!
//! ```text
//! results/<suite>/<UTC time>-<id>/          one call of `schism run`
//!     <cell>/                               one run: result.json, plan.toml, history.jsonl,
//!                                           faults.jsonl, nodes/<node>/*.log, report.html, report.md
//!     index.html, summary.json, summary.md
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

use crate::result::RunResult;

/// The wall clock, for people. The only place where it is read.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the module that the rule points to"
)]
pub fn wall_clock() -> DateTime<Utc> {
    DateTime::from(std::time::SystemTime::now())
}

/// A short random name: eight characters that are easy to type.
pub fn short_id() -> String {
    const LETTERS: &[u8] = b"0123456789abcdefghjkmnpqrstvwxyz";
    (0..8)
        .map(|_| char::from(LETTERS[rand::random_range(0..LETTERS.len())]))
        .collect()
}

/// The folder of one call of `schism run`.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Where it is.
    pub dir: PathBuf,
}

impl Batch {
    /// Makes the folder, and proves that it can be written to.
    ///
    /// # Errors
    /// The folder and what the system said.
    pub fn create(root: &Path, suite: &str) -> Result<Batch, String> {
        let started = wall_clock();
        let stamp = started.format("%Y%m%dT%H%M%SZ");
        let dir = root.join(suite).join(format!("{stamp}-{}", short_id()));
        let said = |error: io::Error| format!("{}: {error}", dir.display());
        fs::create_dir_all(&dir).map_err(said)?;
        let dir = fs::canonicalize(&dir).map_err(said)?;
        let probe = dir.join(".probe");
        fs::write(&probe, b"schism").map_err(said)?;
        fs::remove_file(&probe).map_err(said)?;
        Ok(Batch { dir })
    }

    /// The folder of a cell.
    pub fn cell_dir(&self, cell: &str) -> PathBuf {
        self.dir.join(cell)
    }
}

/// SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// What the system said.
pub fn digest(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut fs::File::open(path)?, &mut hash)?;
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Writes a file whole or not at all: beside it first, then renamed.
///
/// # Errors
/// The file and what the system said.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), String> {
    let said = |error: io::Error| format!("{}: {error}", path.display());
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    fs::write(&beside, content).map_err(said)?;
    fs::rename(&beside, path).map_err(said)
}

/// Writes `result.json`.
///
/// # Errors
/// The file and what went wrong.
pub fn write_result(dir: &Path, result: &RunResult) -> Result<(), String> {
    let path = dir.join("result.json");
    let mut text = serde_json::to_vec_pretty(result).map_err(|error| error.to_string())?;
    text.push(b'\n');
    write_whole(&path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_whole_and_its_digest_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        write_whole(&path, b"abc").unwrap();
        assert_eq!(
            digest(&path).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, b"").unwrap();
        let error = Batch::create(&file, "suite").unwrap_err();
        assert!(error.contains("file"), "{error}");
    }
}
