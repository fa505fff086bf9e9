//! A file of checksummed frames, appended to and synced; what a crash may leave of it, and what not.
//!
//! ```text
//! frame:  magic "CNCL" | length u32 | sequence u64 | crc32 u32 | payload
//! ```
//!
//! Integers are little-endian; the checksum covers length, sequence and payload. A frame is written
//! with one call and synced before the next one is written, and a file gets its name only when its
//! first frame has been synced ([`replace`]): so a crash can tear the last frame, and never the first.
//! When a file is opened, an invalid frame at its end is a torn tail and is cut off. An invalid frame
//! that is the first, or has a valid later one behind it, was damaged *after* it had been synced: the
//! file is refused, for whoever trusted that frame would otherwise lose what it acknowledged. (Damage
//! to the last frame alone looks like a torn tail and cannot be told from it.)

use crate::Error;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = *b"CNCL";
const HEADER: usize = 20;

/// Whether frames reach the disk before they count as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Every append is synced.
    Always,
    /// Nothing is ever synced: the switch `--no-fsync`.
    Never,
}

/// A file of frames, open for appending.
#[derive(Debug)]
pub struct FrameFile {
    file: File,
    path: PathBuf,
    sequence: u64,
    length: u64,
    sync: Sync,
    buffer: Vec<u8>,
}

impl FrameFile {
    /// Makes an empty file, replacing what was there; it gets its final name from [`replace`].
    pub fn create(path: &Path, sync: Sync) -> Result<FrameFile, Error> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path);
        let file = file.map_err(Error::file("create", path))?;
        let path = path.to_owned();
        Ok(FrameFile {
            file,
            path,
            sequence: 0,
            length: 0,
            sync,
            buffer: Vec::new(),
        })
    }

    /// Opens a file, gives every payload in it to `each` and cuts a torn tail off. Returns how many
    /// bytes were cut.
    ///
    /// # Errors
    /// [`Error::Damaged`] when a frame is invalid that had once been synced; what `each` returns.
    pub fn open(
        path: &Path,
        sync: Sync,
        mut each: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(FrameFile, u64), Error> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let mut file = file.map_err(Error::file("open", path))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(Error::file("read", path))?;
        let (mut at, mut sequence) = (0, 0);
        while let Some(frame) = parse(&bytes[at..]).filter(|f| f.sequence == sequence) {
            each(frame.payload)?;
            at += HEADER + frame.payload.len();
            sequence += 1;
        }
        let torn = bytes.len() - at;
        if torn > 0 || at == 0 {
            // Without syncing the kernel may write frames in any order: then nothing can be told.
            let synced = at == 0 || later_frame(&bytes[at..], sequence);
            if sync == Sync::Always && synced {
                let what = format!("frame {sequence} is invalid, yet it had been synced");
                return Err(Error::Damaged {
                    path: path.to_owned(),
                    offset: at as u64,
                    what,
                });
            }
            file.set_len(at as u64)
                .map_err(Error::file("truncate", path))?;
            file.sync_all().map_err(Error::file("sync", path))?;
        }
        file.seek(SeekFrom::Start(at as u64))
            .map_err(Error::file("seek in", path))?;
        let (path, length) = (path.to_owned(), at as u64);
        let file = FrameFile {
            file,
            path,
            sequence,
            length,
            sync,
            buffer: Vec::new(),
        };
        Ok((file, torn as u64))
    }

    /// Appends one frame and syncs it.
    pub fn append(&mut self, payload: &[u8]) -> Result<(), Error> {
        encode(&mut self.buffer, self.sequence, payload);
        self.file
            .write_all(&self.buffer)
            .map_err(Error::file("write", &self.path))?;
        if self.sync == Sync::Always {
            self.file
                .sync_data()
                .map_err(Error::file("sync", &self.path))?;
        }
        self.sequence += 1;
        self.length += self.buffer.len() as u64;
        // One large frame must not keep its memory for ever.
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    /// Removes the file; for one that was written and is not wanted after all.
    pub fn discard(self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(Error::file("remove", &self.path))
    }

    /// The length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// Reads a file that holds exactly one frame; `None` when it does not exist.
pub fn read_single(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::file("read", path)(e)),
    };
    match parse(&bytes) {
        Some(frame) if HEADER + frame.payload.len() == bytes.len() => {
            Ok(Some(frame.payload.to_vec()))
        }
        _ => {
            let what = "it is not one whole frame".to_owned();
            Err(Error::Damaged {
                path: path.to_owned(),
                offset: 0,
                what,
            })
        }
    }
}

/// Puts `file`, written under another name, in the place of `path`, durably.
pub fn replace(mut file: FrameFile, path: &Path) -> Result<FrameFile, Error> {
    fs::rename(&file.path, path).map_err(Error::file("rename to", path))?;
    if file.sync == Sync::Always {
        sync_directory(path.parent().unwrap_or(Path::new(".")))?;
    }
    file.path = path.to_owned();
    Ok(file)
}

/// Makes a directory, and keeps other processes out of it for as long as the file that is returned
/// stays open.
pub fn lock_directory(directory: &Path) -> Result<File, Error> {
    fs::create_dir_all(directory).map_err(Error::file("create", directory))?;
    let path = directory.join("lock");
    let file = File::create(&path).map_err(Error::file("create", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(Error::File {
            action: "lock",
            path,
            source,
        }),
    }
}

/// Makes the names in a directory durable.
fn sync_directory(path: &Path) -> Result<(), Error> {
    let directory = File::open(path).map_err(Error::file("open", path))?;
    directory.sync_all().map_err(Error::file("sync", path))
}

struct Frame<'a> {
    sequence: u64,
    payload: &'a [u8],
}

fn encode(buffer: &mut Vec<u8>, sequence: u64, payload: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(&MAGIC);
    buffer.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    buffer.extend_from_slice(&sequence.to_le_bytes());
    buffer.extend_from_slice(&checksum(&buffer[4..16], payload).to_le_bytes());
    buffer.extend_from_slice(payload);
}

/// The frame at the beginning of `bytes`, when there is a valid one.
fn parse(bytes: &[u8]) -> Option<Frame<'_>> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    if header[..4] != MAGIC {
        return None;
    }
    let length = u32::from_le_bytes(header[4..8].try_into().ok()?) as usize;
    let sequence = u64::from_le_bytes(header[8..16].try_into().ok()?);
    let crc = u32::from_le_bytes(header[16..20].try_into().ok()?);
    let payload = rest.get(..length)?;
    (checksum(&header[4..16], payload) == crc).then_some(Frame { sequence, payload })
}

fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(head);
    crc.update(payload);
    crc.finalize()
}

/// Whether a valid frame with a higher sequence number than `sequence` begins anywhere in `bytes`.
fn later_frame(bytes: &[u8], sequence: u64) -> bool {
    let starts = bytes
        .windows(MAGIC.len())
        .enumerate()
        .filter(|(_, w)| *w == MAGIC);
    starts
        .map(|(at, _)| at)
        .any(|at| parse(&bytes[at..]).is_some_and(|f| f.sequence > sequence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(path: &Path) -> Result<(Vec<Vec<u8>>, FrameFile, u64), Error> {
        let mut payloads = Vec::new();
        let (file, torn) = FrameFile::open(path, Sync::Always, |p| {
            payloads.push(p.to_vec());
            Ok(())
        })?;
        Ok((payloads, file, torn))
    }

    fn write(path: &Path, payloads: &[Vec<u8>]) -> Vec<u64> {
        let mut file = FrameFile::create(path, Sync::Never).unwrap();
        let mut ends = vec![0];
        for payload in payloads {
            file.append(payload).unwrap();
            ends.push(file.length());
        }
        ends
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        #[test]
        fn a_file_torn_at_any_byte_keeps_every_whole_frame(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..5),
            garbage in prop::collection::vec(any::<u8>(), 0..30),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            let ends = write(&path, &payloads);
            let whole = fs::read(&path).unwrap();
            for cut in 0..=whole.len() {
                let mut torn = whole[..cut].to_vec();
                torn.extend_from_slice(&garbage);
                fs::write(&path, &torn).unwrap();
                // The garbage may happen to begin as the lost bytes did.
                let same = torn.iter().zip(&whole).take_while(|(a, b)| a == b).count();
                let kept = ends.iter().filter(|end| **end <= same as u64).count() - 1;
                if kept == 0 {
                    let refused = matches!(read(&path), Err(Error::Damaged { offset: 0, .. }));
                    prop_assert!(refused, "the first frame cannot be torn by a crash");
                    continue;
                }
                let (found, mut file, lost) = read(&path).unwrap();
                prop_assert_eq!(&found, &payloads[..kept]);
                prop_assert_eq!(lost, torn.len() as u64 - ends[kept]);
                // What is appended after the cut is found as well.
                file.append(b"next").unwrap();
                let (again, _, lost) = read(&path).unwrap();
                prop_assert_eq!(again.len(), kept + 1);
                prop_assert_eq!(lost, 0);
            }
        }

        #[test]
        fn a_flipped_bit_is_either_a_torn_tail_or_damage(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 2..6),
            position in any::<prop::sample::Index>(),
            bit in 0..8u8,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            let ends = write(&path, &payloads);
            let mut bytes = fs::read(&path).unwrap();
            let at = position.index(bytes.len());
            bytes[at] ^= 1 << bit;
            fs::write(&path, &bytes).unwrap();
            let hit = ends.iter().filter(|end| **end <= at as u64).count() - 1;
            match read(&path) {
                Ok((found, _, _)) => {
                    prop_assert!(hit > 0);
                    prop_assert_eq!(hit, payloads.len() - 1, "only the last frame may be cut");
                    prop_assert_eq!(&found, &payloads[..hit]);
                }
                Err(Error::Damaged { offset, .. }) => prop_assert_eq!(offset, ends[hit]),
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
    }
}
