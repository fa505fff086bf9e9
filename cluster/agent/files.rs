//! Files of a node, below its directory and nowhere else.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use crate::error::{Refusal, RefusalKind};
use crate::protocol::FileEntry;

/// How much of the end of a file is searched for lines.
const TAIL_BYTES: u64 = 256 << 10;

/// The full path of a relative one that does not leave the directory.
pub(super) fn inside(dir: &Path, path: &str) -> Result<PathBuf, Refusal> {
    let plain = Path::new(path)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if path.is_empty() || !plain {
        let message = format!("`{path}` is not a plain path below the node's directory");
        return Err(Refusal::new(RefusalKind::BadRequest, message));
    }
    Ok(dir.join(path))
}

fn failed(verb: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Refusal {
    Refusal::io(format!("{verb} {}", path.display()))
}

/// Makes the folders above a file.
pub(super) fn make_parents(path: &Path) -> Result<(), Refusal> {
    match path.parent() {
        Some(parent) => fs::create_dir_all(parent).map_err(failed("make", parent)),
        None => Ok(()),
    }
}

/// Writes one piece; with the last one the file appears under its name, replacing what was there.
pub(super) fn put(
    path: &Path,
    offset: u64,
    total: u64,
    mode: u32,
    bytes: &[u8],
) -> Result<(), Refusal> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    make_parents(path)?;
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(offset == 0)
            .open(&part)?;
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(bytes)?;
        if offset + bytes.len() as u64 >= total {
            file.set_permissions(Permissions::from_mode(mode))?;
            fs::rename(&part, path)?;
        }
        Ok(())
    };
    write().map_err(failed("write", path))
}

/// Up to `len` bytes from `offset`.
pub(super) fn read(path: &Path, offset: u64, len: u64) -> Result<Bytes, Refusal> {
    let read = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(len).read_to_end(&mut bytes)?;
        Ok(Bytes::from(bytes))
    };
    read().map_err(failed("read", path))
}

/// The last lines of a file.
pub(super) fn tail(path: &Path, lines: usize) -> Result<String, Refusal> {
    let len = fs::metadata(path).map_err(failed("read", path))?.len();
    let bytes = read(path, len.saturating_sub(TAIL_BYTES), TAIL_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    Ok(all[all.len().saturating_sub(lines)..].join("\n"))
}

/// All regular files below a directory, sorted.
pub(super) fn list(dir: &Path) -> Result<Vec<FileEntry>, Refusal> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(failed("list", &folder))? {
            let entry = entry.map_err(failed("list", &folder))?;
            let path = entry.path();
            // A file may vanish between being listed and being looked at: logs are rotated.
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                folders.push(path);
            } else if meta.is_file()
                && let Ok(relative) = path.strip_prefix(dir)
            {
                let path = relative.to_string_lossy().into_owned();
                files.push(FileEntry {
                    path,
                    bytes: meta.len(),
                });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_do_not_leave_the_directory() {
        let dir = Path::new("/node");
        assert_eq!(
            inside(dir, "data/log").unwrap(),
            Path::new("/node/data/log")
        );
        for bad in ["", "/etc/passwd", "../up", "a/../../b", "./a"] {
            assert!(inside(dir, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_appear_whole_and_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        put(&path, 0, 6, 0o755, b"abc").unwrap();
        assert!(!path.exists());
        put(&path, 3, 6, 0o755, b"def").unwrap();
        assert_eq!(&read(&path, 1, 3).unwrap()[..], b"bcd");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o755
        );
        let listed = list(dir.path()).unwrap();
        assert_eq!(
            listed,
            [FileEntry {
                path: "a/b".to_owned(),
                bytes: 6
            }]
        );
        put(&path, 0, 0, 0o644, b"").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }

    #[test]
    fn tail_gives_the_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(tail(&path, 2).unwrap(), "two\nthree");
        assert_eq!(tail(&path, 9).unwrap(), "one\ntwo\nthree");
    }
}
