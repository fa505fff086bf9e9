//! The one recorder of a run: stamps every event on the run's clock and appends it to the history.
//!
//! Because there is one, the history is totally ordered, and time never goes back in it. Trouble
//! with the file (a full disk) is kept and reported at the end: what fits is on the disk, the rest
//! waits in memory for room, and nothing is lost silently.

use std::fs::File;
use std::io;
use std::path::Path;

use history::clock::Clock;
use history::{Event, Header, HistoryWriter};

/// How long an event may wait in memory before it is handed to the system, in nanoseconds.
const FLUSH_EVERY: u64 = 20_000_000;

/// Writes the history of a run.
pub struct Recorder {
    writer: HistoryWriter<File>,
    clock: Clock,
    flushed_at: u64,
    trouble: Option<io::Error>,
}

impl Recorder {
    /// Creates the history file with its header.
    pub fn create(path: &Path, header: &Header, clock: Clock) -> io::Result<Recorder> {
        let file = File::create(path)?;
        let writer = HistoryWriter::new(file, header)?;
        Ok(Recorder {
            writer,
            clock,
            flushed_at: 0,
            trouble: None,
        })
    }

    /// Stamps an event with the present time, appends it, and returns the time.
    pub fn record(&mut self, event: &mut Event) -> u64 {
        event.time = self.clock.now();
        let result = self.writer.append(event);
        self.note(result.map(|_| ()));
        event.time
    }

    /// Hands events to the system if they have waited long enough.
    pub fn tick(&mut self) {
        let now = self.clock.now();
        if now.saturating_sub(self.flushed_at) >= FLUSH_EVERY {
            self.flushed_at = now;
            let result = self.writer.flush();
            self.note(result);
        }
    }

    /// Whether the file could not be written at some time.
    pub fn trouble(&self) -> Option<&io::Error> {
        self.trouble.as_ref()
    }

    /// Writes everything to the disk.
    ///
    /// # Errors
    /// What the system said, now or, if it never recovered, earlier.
    pub fn finish(mut self) -> io::Result<u64> {
        self.writer.sync()?;
        Ok(self.writer.count())
    }

    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.trouble = Some(error);
        }
    }
}
