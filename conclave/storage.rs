//! What a node keeps on disk, and Raft's view of it.
//!
//! | file | content |
//! |---|---|
//! | `log` | frames ([`crate::frames`]) of records: where the log starts, entries, hard state |
//! | `snapshot` | one frame: the state machine at a log index |
//! | `lock` | held by the process that uses the directory |
//!
//! The log file is appended to and synced before any message that depends on it is sent. Now and
//! then a snapshot takes the place of most of it: the snapshot is renamed into place first, then a
//! shorter log, so that a crash between the two leaves a log that is merely longer than needed.
//! All entries that the file holds are in memory too; compaction bounds both.

use crate::Error;
use crate::faults::Switches;
use crate::frames::{FrameFile, Sync, lock_directory, read_single, replace};
use protobuf::Message as _;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// How many entries below a snapshot stay in the log, for followers that lag a little.
const ENTRIES_KEPT: u64 = 2_000;

const ENTRY: u8 = 1;
const HARD_STATE: u8 = 2;
const START: u8 = 3;

/// The log and the newest snapshot of a node.
#[derive(Debug)]
pub struct DiskLog {
    directory: PathBuf,
    file: FrameFile,
    sync: Sync,
    /// Index and term of the entry before the first one that is kept.
    start: (u64, u64),
    entries: VecDeque<Entry>,
    hard: HardState,
    voters: ConfState,
    /// Index of the newest snapshot; 0 when there is none.
    snapshot: u64,
    buffer: Vec<u8>,
    _lock: File,
}

/// What [`DiskLog::open`] found.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub log: DiskLog,
    /// The newest snapshot, if there is one.
    pub snapshot: Option<Snapshot>,
    /// Bytes of a torn tail that were cut off.
    pub torn: u64,
}

impl DiskLog {
    /// Opens the data directory of a node, or makes it.
    ///
    /// # Errors
    /// Another process has it open; a file cannot be read, or was damaged.
    pub fn open(directory: &Path, voters: Vec<u64>, switches: Switches) -> Result<Opened, Error> {
        let lock = lock_directory(directory)?;
        let sync = if switches.no_fsync {
            Sync::Never
        } else {
            Sync::Always
        };
        remove_leftovers(directory)?;
        let snapshot = read_snapshot(&directory.join("snapshot"))?;
        let path = directory.join("log");
        let mut records = Records::default();
        if !path.exists() {
            let mut file = FrameFile::create(&directory.join("log.new"), sync)?;
            file.append(&start_record((0, 0)))?;
            replace(file, &path)?;
        }
        let (file, torn) = FrameFile::open(&path, sync, |frame| records.read(frame, &path))?;
        let voters = ConfState {
            voters,
            ..ConfState::default()
        };
        let mut log = DiskLog {
            directory: directory.to_owned(),
            file,
            sync,
            start: records.start,
            entries: records.entries,
            hard: records.hard,
            voters,
            snapshot: 0,
            buffer: Vec::new(),
            _lock: lock,
        };
        if let Some(snapshot) = &snapshot {
            log.adopt(snapshot)?;
        }
        if switches.forget_vote {
            // The mistake: term and vote count as memory, so a restarted node may vote again in a
            // term in which it has voted.
            log.hard.term = 0;
            log.hard.vote = 0;
        }
        Ok(Opened {
            log,
            snapshot,
            torn,
        })
    }

    /// Fits the log that was read to the snapshot that was read: a crash may have come between the
    /// two renames.
    fn adopt(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let (index, term) = (snapshot.get_metadata().index, snapshot.get_metadata().term);
        self.snapshot = index;
        if self.last() < index {
            self.entries.clear();
            self.start = (index, term);
        } else if self.start.0 > index {
            let what = format!(
                "it starts after entry {}, the snapshot is of {index}",
                self.start.0
            );
            return Err(Error::Damaged {
                path: self.directory.join("log"),
                offset: 0,
                what,
            });
        }
        self.hard.commit = self.hard.commit.max(index);
        Ok(())
    }

    /// Appends entries (replacing those from the first one's index on) and the hard state, and
    /// syncs them.
    pub fn append(&mut self, entries: &[Entry], hard: Option<&HardState>) -> Result<(), Error> {
        self.buffer.clear();
        for entry in entries {
            put(&mut self.buffer, ENTRY, entry);
        }
        if let Some(hard) = hard {
            put(&mut self.buffer, HARD_STATE, hard);
            self.hard = hard.clone();
        }
        self.file.append(&self.buffer)?;
        for entry in entries {
            push(&mut self.entries, self.start.0, entry.clone());
        }
        Ok(())
    }

    /// Remembers the commit index until the next append; it need not be durable by itself.
    pub fn note_commit(&mut self, commit: u64) {
        self.hard.commit = commit;
    }

    /// Takes a snapshot that the leader sent in the place of the whole log.
    pub fn install(&mut self, snapshot: &Snapshot, hard: Option<&HardState>) -> Result<(), Error> {
        let staged = stage_snapshot(&self.directory, snapshot, self.sync)?;
        replace(staged, &self.directory.join("snapshot"))?;
        let (index, term) = (snapshot.get_metadata().index, snapshot.get_metadata().term);
        self.snapshot = index;
        self.start = (index, term);
        self.entries.clear();
        if let Some(hard) = hard {
            self.hard = hard.clone();
        }
        self.hard.commit = self.hard.commit.max(index);
        self.rewrite()
    }

    /// Puts a snapshot that was written beside ([`stage_snapshot`]) into place and drops the entries
    /// that it makes superfluous. A snapshot that is older than the present one is ignored.
    pub fn compact(&mut self, index: u64, staged: FrameFile) -> Result<(), Error> {
        if index <= self.snapshot {
            return staged.discard();
        }
        replace(staged, &self.directory.join("snapshot"))?;
        self.snapshot = index;
        let drop_to = index.saturating_sub(ENTRIES_KEPT);
        if drop_to > self.start.0 {
            let count = (drop_to - self.start.0) as usize;
            let term = self.entries[count - 1].term;
            self.entries.drain(..count);
            self.start = (drop_to, term);
        }
        self.rewrite()
    }

    fn rewrite(&mut self) -> Result<(), Error> {
        let path = self.directory.join("log");
        let mut file = FrameFile::create(&self.directory.join("log.new"), self.sync)?;
        self.buffer = start_record(self.start);
        put(&mut self.buffer, HARD_STATE, &self.hard);
        for entry in &self.entries {
            put(&mut self.buffer, ENTRY, entry);
        }
        file.append(&self.buffer)?;
        self.file = replace(file, &path)?;
        Ok(())
    }

    /// Index of the newest snapshot; 0 when there is none.
    pub fn snapshot_index(&self) -> u64 {
        self.snapshot
    }

    /// The data directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether this log is synced.
    pub fn sync(&self) -> Sync {
        self.sync
    }

    /// The voters, as they go into a snapshot.
    pub fn voters(&self) -> &ConfState {
        &self.voters
    }

    fn last(&self) -> u64 {
        self.start.0 + self.entries.len() as u64
    }
}

impl Storage for DiskLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.voters.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.start.0 {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        let (from, to) = (
            (low - self.start.0 - 1) as usize,
            (high - self.start.0 - 1) as usize,
        );
        let (max_size, mut size) = (max_size.into().unwrap_or(u64::MAX), 0);
        let fitting = self.entries.range(from..to).take_while(|entry| {
            let first = size == 0;
            size += u64::from(entry.compute_size());
            first || size <= max_size
        });
        Ok(fitting.cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match index.checked_sub(self.start.0) {
            None => Err(raft::Error::Store(StorageError::Compacted)),
            Some(0) => Ok(self.start.1),
            Some(n) => match self.entries.get(n as usize - 1) {
                Some(entry) => Ok(entry.term),
                None => Err(raft::Error::Store(StorageError::Unavailable)),
            },
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.start.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _: u64) -> raft::Result<Snapshot> {
        let unavailable = raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable);
        let read = read_snapshot(&self.directory.join("snapshot"));
        match read.map_err(|e| raft::Error::Store(StorageError::Other(Box::new(e))))? {
            Some(snapshot) if snapshot.get_metadata().index >= request_index => Ok(snapshot),
            _ => Err(unavailable),
        }
    }
}

/// Writes a snapshot beside the present one, synced; [`DiskLog::compact`] puts it into place.
pub fn stage_snapshot(
    directory: &Path,
    snapshot: &Snapshot,
    sync: Sync,
) -> Result<FrameFile, Error> {
    let index = snapshot.get_metadata().index;
    let mut file = FrameFile::create(&directory.join(format!("snapshot.{index}")), sync)?;
    let bytes = snapshot.write_to_bytes().map_err(raft::Error::from)?;
    file.append(&bytes)?;
    Ok(file)
}

fn read_snapshot(path: &Path) -> Result<Option<Snapshot>, Error> {
    let parsed = read_single(path)?
        .map(|bytes| Snapshot::parse_from_bytes(&bytes))
        .transpose();
    parsed.map_err(|e| Error::Damaged {
        path: path.to_owned(),
        offset: 0,
        what: e.to_string(),
    })
}

/// Removes what a crash left unfinished: files that never got their final name.
fn remove_leftovers(directory: &Path) -> Result<(), Error> {
    for file in fs::read_dir(directory).map_err(Error::file("read", directory))? {
        let path = file.map_err(Error::file("read", directory))?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name == "log.new" || name.starts_with("snapshot.") {
            fs::remove_file(&path).map_err(Error::file("remove", &path))?;
        }
    }
    Ok(())
}

/// Appends `entry`, dropping those that it replaces.
fn push(entries: &mut VecDeque<Entry>, start: u64, entry: Entry) {
    entries.truncate((entry.index - start - 1) as usize);
    entries.push_back(entry);
}

/// The record that says which entry, by index and term, comes before the first one of a log.
fn start_record((index, term): (u64, u64)) -> Vec<u8> {
    let mut record = vec![START];
    record.extend_from_slice(&16u32.to_le_bytes());
    record.extend_from_slice(&index.to_le_bytes());
    record.extend_from_slice(&term.to_le_bytes());
    record
}

fn put(buffer: &mut Vec<u8>, kind: u8, message: &impl protobuf::Message) {
    buffer.push(kind);
    buffer.extend_from_slice(&message.compute_size().to_le_bytes());
    // Writing to memory fails only for messages of 2 GiB.
    message
        .write_to_vec(buffer)
        .expect("a message fits into memory");
}

/// The records of a log file, read one after the other.
#[derive(Default)]
struct Records {
    start: (u64, u64),
    entries: VecDeque<Entry>,
    hard: HardState,
}

impl Records {
    fn read(&mut self, mut frame: &[u8], path: &Path) -> Result<(), Error> {
        let damaged = |what: &str| {
            let what = format!("a frame with a valid checksum holds {what}");
            Error::Damaged {
                path: path.to_owned(),
                offset: 0,
                what,
            }
        };
        while let Some((head, rest)) = frame.split_at_checked(5) {
            let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let (body, rest) = rest
                .split_at_checked(length)
                .ok_or_else(|| damaged("a record that is cut off"))?;
            frame = rest;
            match head[0] {
                START => {
                    let number = |at: usize| body.get(at..at + 8)?.try_into().ok();
                    let (Some(index), Some(term)) = (number(0), number(8)) else {
                        return Err(damaged("a short start record"));
                    };
                    self.start = (u64::from_le_bytes(index), u64::from_le_bytes(term));
                }
                HARD_STATE => {
                    let hard = HardState::parse_from_bytes(body);
                    self.hard = hard.map_err(|_| damaged("an unreadable hard state"))?;
                }
                ENTRY => {
                    let entry = Entry::parse_from_bytes(body);
                    let entry = entry.map_err(|_| damaged("an unreadable entry"))?;
                    let next = self.start.0 + self.entries.len() as u64 + 1;
                    if entry.index <= self.start.0 || entry.index > next {
                        return Err(damaged("an entry out of order"));
                    }
                    push(&mut self.entries, self.start.0, entry);
                }
                _ => return Err(damaged("a record of an unknown kind")),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(index: u64, term: u64) -> Entry {
        let data = format!("{index} at {term}").into_bytes().into();
        Entry {
            index,
            term,
            data,
            ..Entry::default()
        }
    }

    fn hard(term: u64, vote: u64, commit: u64) -> HardState {
        HardState {
            term,
            vote,
            commit,
            ..HardState::default()
        }
    }

    fn snapshot(index: u64, term: u64) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.mut_metadata().index = index;
        snapshot.mut_metadata().term = term;
        snapshot.data = b"state".to_vec().into();
        snapshot
    }

    fn open(directory: &Path) -> Opened {
        DiskLog::open(directory, vec![1, 2, 3], Switches::default()).unwrap()
    }

    fn all(log: &DiskLog) -> Vec<(u64, u64)> {
        log.entries
            .iter()
            .map(|entry| (entry.index, entry.term))
            .collect()
    }

    /// Copies the files of a log, cutting `name` to `length` bytes, as a crash might leave them.
    fn crashed(from: &Path, name: &str, length: usize) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        for file in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let mut bytes = fs::read(file.path()).unwrap();
            if file.file_name() == name {
                bytes.truncate(length);
            }
            fs::write(copy.path().join(file.file_name()), bytes).unwrap();
        }
        copy
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Entries from this far before the end on, so many, in a new term or not.
        Append {
            back: u64,
            count: u64,
            newer: bool,
        },
        Vote,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..3u64, 1..4u64, any::<bool>())
                .prop_map(|(back, count, newer)| Step::Append { back, count, newer }),
            1 => Just(Step::Vote),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6))]

        #[test]
        fn a_log_torn_at_any_byte_is_as_it_was_after_a_whole_append(
            steps in prop::collection::vec(step(), 1..5),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let mut log = open(directory.path()).log;
            let path = directory.path().join("log");
            let length = || fs::metadata(&path).unwrap().len() as usize;
            let mut states = vec![(length(), all(&log), log.hard.clone())];
            let mut term = 1;
            for step in steps {
                match step {
                    Step::Append { back, count, newer } => {
                        term += u64::from(newer);
                        let first = log.last().saturating_sub(back).max(1);
                        let entries: Vec<_> = (first..first + count).map(|i| entry(i, term)).collect();
                        log.append(&entries, Some(&hard(term, 0, 0))).unwrap();
                    }
                    Step::Vote => {
                        term += 1;
                        log.append(&[], Some(&hard(term, 2, 0))).unwrap();
                    }
                }
                states.push((length(), all(&log), log.hard.clone()));
            }
            for cut in states[0].0..=length() {
                let copy = crashed(directory.path(), "log", cut);
                let found = open(copy.path()).log;
                let (_, entries, hard) = states.iter().rfind(|(end, ..)| *end <= cut).unwrap();
                prop_assert_eq!(&all(&found), entries);
                prop_assert_eq!(&found.hard, hard);
            }
        }
    }

    /// A log of 5,000 entries, and the same after its compaction at 4,500.
    fn compacted(directory: &Path) -> (Vec<u8>, DiskLog) {
        let mut log = open(directory).log;
        let entries: Vec<_> = (1..=5000).map(|index| entry(index, 1)).collect();
        log.append(&entries, Some(&hard(1, 3, 4800))).unwrap();
        let before = fs::read(directory.join("log")).unwrap();
        let staged = stage_snapshot(directory, &snapshot(4500, 1), Sync::Always).unwrap();
        log.compact(4500, staged).unwrap();
        (before, log)
    }

    #[test]
    fn compaction_keeps_a_tail_and_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let (before, mut log) = compacted(directory.path());
        assert_eq!(
            (log.first_index().unwrap(), log.last_index().unwrap()),
            (2501, 5000)
        );
        assert_eq!(log.term(2500).unwrap(), 1);
        assert!(log.term(2499).is_err());
        assert!(fs::metadata(directory.path().join("log")).unwrap().len() < before.len() as u64);
        log.append(&[entry(5001, 2)], None).unwrap();
        let expected = (all(&log), log.hard.clone());
        drop(log);
        let opened = open(directory.path());
        assert_eq!((all(&opened.log), opened.log.hard.clone()), expected);
        assert_eq!(opened.snapshot.unwrap().get_metadata().index, 4500);
    }

    #[test]
    fn a_crash_between_snapshot_and_log_loses_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (before, log) = compacted(directory.path());
        drop(log);
        // The snapshot has its name, the shorter log has not.
        fs::write(directory.path().join("log"), before).unwrap();
        fs::write(directory.path().join("log.new"), "half of a lo").unwrap();
        fs::write(directory.path().join("snapshot.4700"), "half of a snaps").unwrap();
        let opened = open(directory.path());
        assert_eq!(opened.log.last_index().unwrap(), 5000);
        assert_eq!(opened.log.hard, hard(1, 3, 4800));
        assert_eq!(opened.log.snapshot_index(), 4500);
        assert!(!directory.path().join("log.new").exists());
        assert!(!directory.path().join("snapshot.4700").exists());
    }

    #[test]
    fn the_leaders_snapshot_takes_the_place_of_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = open(directory.path()).log;
        log.append(&[entry(1, 1), entry(2, 1)], Some(&hard(1, 0, 1)))
            .unwrap();
        let before = fs::read(directory.path().join("log")).unwrap();
        log.install(&snapshot(50, 3), Some(&hard(3, 0, 50)))
            .unwrap();
        log.append(&[entry(51, 3)], None).unwrap();
        drop(log);
        let log = open(directory.path()).log;
        assert_eq!(
            (all(&log), log.hard.clone()),
            (vec![(51, 3)], hard(3, 0, 50))
        );
        drop(log);
        // A crash before the log was replaced: what the old one held is contained in the snapshot.
        fs::write(directory.path().join("log"), before).unwrap();
        let log = open(directory.path()).log;
        assert_eq!((all(&log), log.hard.clone()), (vec![], hard(1, 0, 50)));
        assert_eq!(
            (log.first_index().unwrap(), log.last_index().unwrap()),
            (51, 50)
        );
        assert_eq!(log.term(50).unwrap(), 3);
    }

    #[test]
    fn a_damaged_snapshot_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        drop(compacted(directory.path()));
        let path = directory.path().join("snapshot");
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        let refused = DiskLog::open(directory.path(), vec![1], Switches::default());
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    }

    #[test]
    fn a_directory_has_one_owner() {
        let directory = tempfile::tempdir().unwrap();
        let _first = open(directory.path());
        let second = DiskLog::open(directory.path(), vec![1], Switches::default());
        assert!(matches!(second, Err(Error::InUse(_))), "{second:?}");
    }

    #[test]
    fn switches_forget_the_vote_and_do_not_sync() {
        let directory = tempfile::tempdir().unwrap();
        open(directory.path())
            .log
            .append(&[entry(1, 7)], Some(&hard(7, 2, 1)))
            .unwrap();
        let switches = Switches {
            forget_vote: true,
            no_fsync: true,
            ..Switches::default()
        };
        let log = DiskLog::open(directory.path(), vec![1], switches)
            .unwrap()
            .log;
        assert_eq!((all(&log), log.hard.clone()), (vec![(1, 7)], hard(0, 0, 1)));
        assert_eq!(log.sync(), Sync::Never);
        drop(log);
        assert_eq!(open(directory.path()).log.hard, hard(7, 2, 1));
    }
}
