//! Freezing and thawing a process tree, with proof. Which processes the tree has is the caller's to say.
//!
//! The method is SIGSTOP to every process until `/proc` shows every thread stopped. It works for every
//! user on every machine, and SIGKILL still works on what it stopped. The freezers of cgroups offer
//! less here: under version 1 SIGKILL waits until a process is thawed, so that killing the controller
//! would leave processes that cannot die; under version 2 it would leave a directory behind, which no
//! namespace takes along when it goes, and an ordinary user rarely may make one.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::tree;
use crate::clock::monotonic_ns;
use crate::error::{Refusal, RefusalKind};
use crate::evidence::{FreezeEvidence, FreezeMethod, ProcessState, ThawEvidence};

/// How long a tree may take to reach the state that was asked for.
const LIMIT_NS: u64 = 5_000_000_000;

/// How long an uninterruptible process is waited for before its stopped children are suspected.
const VFORK_PATIENCE_NS: u64 = 2_000_000;

/// How a tree is looked at: all its living processes.
type Look<'a> = &'a dyn Fn() -> Result<Vec<ProcessState>, Refusal>;

/// Stops every process of a tree.
pub(super) fn freeze(name: &str, look: Look<'_>) -> Result<FreezeEvidence, Refusal> {
    let asked_ns = monotonic_ns();
    let mut stopped_before: Option<Vec<(i32, u64)>> = None;
    loop {
        let at_ns = monotonic_ns();
        let processes = look()?;
        if processes.is_empty() {
            let message = format!("`{name}` has no living process to freeze");
            return Err(Refusal::new(RefusalKind::NotRunning, message));
        }
        let running: Vec<&ProcessState> = processes
            .iter()
            .filter(|process| !all_threads(process.pid, is_stopped))
            .collect();
        if running.is_empty() {
            // One look is not enough: a process may have been born, and its parent stopped, while
            // the list was read. Once all parents are stopped, a second look cannot miss any.
            let identities: Vec<(i32, u64)> = processes
                .iter()
                .map(|process| (process.pid, process.start_time))
                .collect();
            if stopped_before.as_ref() == Some(&identities) {
                let processes = look_again(processes);
                let method = FreezeMethod::Sigstop;
                return Ok(FreezeEvidence {
                    method,
                    asked_ns,
                    at_ns,
                    processes,
                });
            }
            stopped_before = Some(identities);
            continue;
        }
        stopped_before = None;
        if at_ns - asked_ns > VFORK_PATIENCE_NS {
            release_vfork(&processes, &running)?;
        }
        for process in running {
            send(process.pid, Signal::SIGSTOP)?;
        }
        if at_ns - asked_ns > LIMIT_NS {
            // Half a freeze is not a freeze: what was stopped runs again.
            thaw(name, look)?;
            let message = format!("`{name}` did not stop within 5 s: {processes:?}");
            return Err(Refusal::new(RefusalKind::NotVerified, message));
        }
        pause();
    }
}

/// Continues every process of a tree.
pub(super) fn thaw(name: &str, look: Look<'_>) -> Result<ThawEvidence, Refusal> {
    let asked_ns = monotonic_ns();
    loop {
        let at_ns = monotonic_ns();
        let processes = look()?;
        let stopped: Vec<&ProcessState> = processes
            .iter()
            .filter(|process| any_thread(process.pid, is_stopped))
            .collect();
        if stopped.is_empty() {
            return Ok(ThawEvidence {
                method: FreezeMethod::Sigstop,
                asked_ns,
                at_ns,
                processes,
            });
        }
        // Parents may be told of it before children are; the order does not matter to us.
        for process in stopped {
            send(process.pid, Signal::SIGCONT)?;
        }
        if at_ns - asked_ns > LIMIT_NS {
            let message = format!("`{name}` did not continue within 5 s: {processes:?}");
            return Err(Refusal::new(RefusalKind::NotVerified, message));
        }
        pause();
    }
}

/// A parent in `vfork` sleeps uninterruptibly until its child executes something; a child that was
/// stopped in between keeps it from ever reaching its own stop. Such children go on for a moment, and
/// the next look stops them again.
fn release_vfork(all: &[ProcessState], running: &[&ProcessState]) -> Result<(), Refusal> {
    let asleep = |pid| {
        running.iter().any(|process| process.pid == pid) && any_thread(pid, |state| state == 'D')
    };
    for process in all {
        if tree::parent(process.pid).is_some_and(asleep) && all_threads(process.pid, is_stopped) {
            send(process.pid, Signal::SIGCONT)?;
        }
    }
    Ok(())
}

/// The states as they are now: the list was read before the threads were.
fn look_again(mut processes: Vec<ProcessState>) -> Vec<ProcessState> {
    for process in &mut processes {
        if let Some(&state) = tree::thread_states(process.pid).first() {
            process.state = state;
        }
    }
    processes
}

/// Sends a signal; that the process is gone already is no error.
pub(super) fn send(pid: i32, signal: impl Into<Option<Signal>>) -> Result<(), Refusal> {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(Refusal::io(format!("signal process {pid}"))(error.into())),
    }
}

fn is_stopped(state: char) -> bool {
    matches!(state, 'T' | 't')
}

fn all_threads(pid: i32, is: impl Fn(char) -> bool) -> bool {
    tree::thread_states(pid)
        .into_iter()
        .all(|state| is(state) || matches!(state, 'Z' | 'X'))
}

fn any_thread(pid: i32, is: impl Fn(char) -> bool) -> bool {
    tree::thread_states(pid).into_iter().any(is)
}

/// Lets the kernel act before the next look.
pub(super) fn pause() {
    #[expect(
        clippy::disallowed_methods,
        reason = "no event tells that a process has stopped"
    )]
    std::thread::sleep(Duration::from_micros(200));
}
