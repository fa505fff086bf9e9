//! Evidence: what was seen after something was done to a node's processes. The agent reads it from
//! `/proc`; a fault without it did not land. Times are `CLOCK_MONOTONIC` nanoseconds.

use serde::{Deserialize, Serialize};

/// One process as `/proc` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    /// Process id in the node's own pid namespace.
    pub pid: i32,
    /// The kernel's letter: `R`, `S`, `D`, `T` (stopped), `Z`, ...
    pub state: char,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22): with the pid it names the
    /// process for good.
    pub start_time: u64,
    /// The kernel's name of the program (at most 15 bytes).
    pub command: String,
}

/// How a process tree was frozen. One method today; a fault's record names it all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FreezeMethod {
    /// SIGSTOP to every process of the tree until a scan finds every thread stopped.
    Sigstop,
}

/// A process tree was frozen, and this is how it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeEvidence {
    /// What froze it.
    pub method: FreezeMethod,
    /// When the agent began.
    pub asked_ns: u64,
    /// When the look that found everything frozen began: nothing ran from here on.
    pub at_ns: u64,
    /// Every process of the tree, as that look saw it.
    pub processes: Vec<ProcessState>,
}

/// A process tree was thawed, and this is how it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThawEvidence {
    /// What had frozen it.
    pub method: FreezeMethod,
    /// When the agent began: nothing ran before.
    pub asked_ns: u64,
    /// When a look found nothing stopped any more.
    pub at_ns: u64,
    /// Every process of the tree, as that look saw it.
    pub processes: Vec<ProcessState>,
}

/// A signal was sent to a process tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillEvidence {
    /// The signal's number.
    pub signal: i32,
    /// When the agent began.
    pub asked_ns: u64,
    /// When the last look was made.
    pub at_ns: u64,
    /// Everything that was signalled, as it was seen before.
    pub processes: Vec<ProcessState>,
    /// Whether none of these processes (pid and start time) exists any more.
    pub gone: bool,
}

/// The wall clock of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessClock {
    /// The process.
    pub process: ProcessState,
    /// Whether the functions by which it reads clocks are the kernel's own, byte for byte.
    pub own: bool,
    /// What its wall clock said, asked in the process itself and compared with the machine's: by so
    /// many nanoseconds it is ahead. Not asked where nothing of ours ever was.
    pub ahead_ns: Option<i64>,
    /// How far off that may be, in nanoseconds: the machine's clock went on meanwhile.
    pub within_ns: u64,
    /// How many of its threads were held still for it.
    pub threads: usize,
    /// For how long, in nanoseconds, from the first to the last of them.
    pub held_ns: u64,
}

impl ProcessClock {
    /// The clock of a process that was not touched.
    pub(crate) fn own(process: ProcessState) -> Self {
        Self {
            process,
            own: true,
            ahead_ns: None,
            within_ns: 0,
            threads: 0,
            held_ns: 0,
        }
    }
}

/// The wall clocks of a process tree were moved, moved back, or looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockEvidence {
    /// When the agent began.
    pub asked_ns: u64,
    /// When a look found all of them done.
    pub at_ns: u64,
    /// Every process of the tree.
    pub processes: Vec<ProcessClock>,
    /// How many of them began with their own clocks after the others were moved, because a program
    /// was executed, and were moved as soon as they were found.
    pub late: usize,
}
