//! Moves the wall clock that a service's processes read, and proves it. The machine's own clock is
//! never set: the functions of the vDSO through which programs read it are diverted, in each process
//! of the service, to code that adds an offset. Monotonic clocks stay true, and so do the kernel's
//! timers and the times of files.
//!
//! How one process is changed is in `clock/patch.rs`. Children that are forked inherit the change; a
//! program that is executed begins with a vDSO of its own, and is found and changed soon after.

#[cfg(target_arch = "x86_64")]
mod patch;
#[cfg(not(target_arch = "x86_64"))]
#[path = "clock/elsewhere.rs"]
mod patch;
#[cfg(target_arch = "x86_64")]
mod stub;
#[cfg(target_arch = "x86_64")]
mod tracee;
#[cfg(target_arch = "x86_64")]
mod vdso;

use super::freeze::pause;
use super::tree;
use crate::clock::monotonic_ns;
use crate::error::{Refusal, RefusalKind};
use crate::evidence::{ClockEvidence, ProcessClock, ProcessState};

/// How long it may take until every process of a tree is as it was asked to be.
const LIMIT_NS: u64 = 5_000_000_000;

/// How a tree is looked at: all its living processes.
type Look<'a> = &'a dyn Fn() -> Result<Vec<ProcessState>, Refusal>;

/// Why something was not done to a process.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "there is one reason for all processes")
)]
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trouble {
    /// The process is gone, or another program was executed in it.
    Gone,
    /// It is in a state in which it cannot be done, and will leave it.
    Later(String),
    /// It cannot be done.
    Never(String),
}

/// Moves the wall clocks of a tree to this many nanoseconds ahead of the true time; negative ones are
/// behind it. What could not be moved as a whole is moved back.
pub(super) fn skew(name: &str, look: Look<'_>, offset_ns: i64) -> Result<ClockEvidence, Refusal> {
    let asked_ns = monotonic_ns();
    let moved = each(
        name,
        look,
        |process| patch::skew(process, offset_ns),
        is_moved,
    );
    let moved = match moved {
        Ok(moved) => moved,
        Err(refusal) => {
            let left = |also| {
                let message = format!("{refusal}; and what was moved stays so: {also}");
                Refusal::new(refusal.kind, message)
            };
            unskew(name, look).map_err(left)?;
            return Err(refusal);
        }
    };
    if moved.is_empty() {
        let message = format!("`{name}` has no living process whose clock could be moved");
        return Err(Refusal::new(RefusalKind::NotRunning, message));
    }
    Ok(evidence(asked_ns, moved))
}

/// Moves the clocks of those processes of a moved tree that still have their own, and says how many
/// they were.
pub(super) fn keep(name: &str, look: Look<'_>, offset_ns: i64) -> Result<usize, Refusal> {
    let change = |process: &ProcessState| {
        let late = !is_moved(process)?;
        if late {
            patch::skew(process, offset_ns)?;
        }
        Ok(late)
    };
    let kept = each(name, look, change, is_moved)?;
    Ok(kept.iter().filter(|(_, late)| *late).count())
}

/// Gives every process of a tree the true clock back.
pub(super) fn unskew(name: &str, look: Look<'_>) -> Result<ClockEvidence, Refusal> {
    let asked_ns = monotonic_ns();
    let is_not = |process: &ProcessState| Ok(!is_moved(process)?);
    let moved = each(name, look, patch::unskew, is_not)?;
    Ok(evidence(asked_ns, moved))
}

/// What the wall clocks of a tree say.
pub(super) fn read(name: &str, look: Look<'_>) -> Result<ClockEvidence, Refusal> {
    let asked_ns = monotonic_ns();
    let read = each(name, look, patch::look, |_| Ok(true))?;
    Ok(evidence(asked_ns, read))
}

/// Whether there are processes in the tree whose clocks are not moved.
pub(super) fn any_is_not_moved(look: Look<'_>) -> Result<bool, Refusal> {
    let processes = look()?;
    Ok(processes
        .iter()
        .any(|process| is_moved(process) == Ok(false)))
}

/// Moves the clocks of this process's children by a minute and back, and says how they are read
/// meanwhile. Nobody else may wait for children as long as it takes.
pub(crate) fn try_children() -> Result<String, Refusal> {
    const MINUTE_NS: i64 = 60_000_000_000;
    let look = || {
        let own = std::process::id().cast_signed();
        tree::descendants(own).map_err(Refusal::io("read /proc"))
    };
    skew("child", &look, MINUTE_NS)?;
    unskew("child", &look)?;
    Ok(format!("it said so; {}", patch::manner()))
}

fn is_moved(process: &ProcessState) -> Result<bool, Trouble> {
    patch::is_moved(process.pid)
}

fn evidence(asked_ns: u64, clocks: Vec<(ProcessState, ProcessClock)>) -> ClockEvidence {
    ClockEvidence {
        asked_ns,
        at_ns: monotonic_ns(),
        processes: clocks.into_iter().map(|(_, clock)| clock).collect(),
        late: 0,
    }
}

/// Does something to every process of a tree until a second look finds the same processes, and all of
/// them done. Returns what came of each.
fn each<T: Send>(
    name: &str,
    look: Look<'_>,
    act: impl Fn(&ProcessState) -> Result<T, Trouble> + Sync,
    is_done: impl Fn(&ProcessState) -> Result<bool, Trouble>,
) -> Result<Vec<(ProcessState, T)>, Refusal> {
    let began_ns = monotonic_ns();
    let is_same =
        |a: &ProcessState, b: &ProcessState| (a.pid, a.start_time) == (b.pid, b.start_time);
    let mut done: Vec<(ProcessState, T)> = Vec::new();
    loop {
        let processes = look()?;
        done.retain(|(known, _)| processes.iter().any(|process| is_same(known, process)));
        let (mut settled, mut waiting, mut never) = (true, None, None);
        for process in processes {
            let known = done.iter().position(|(known, _)| is_same(known, &process));
            if known.is_some() && is_done(&process) == Ok(true) {
                continue;
            }
            settled = false;
            match on_its_own_thread(|| act(&process)) {
                Ok(came) => {
                    if let Some(at) = known {
                        done.swap_remove(at);
                    }
                    done.push((process, came));
                }
                Err(Trouble::Gone) => waiting = Some("it is ending".to_owned()),
                Err(Trouble::Later(why)) => waiting = Some(why),
                Err(Trouble::Never(why)) => {
                    let message = format!("the clock of `{name}` ({}): {why}", process.command);
                    never.get_or_insert(Refusal::new(RefusalKind::Unsupported, message));
                }
            }
        }
        // The others have had their turn.
        if let Some(refusal) = never {
            return Err(refusal);
        }
        if settled {
            done.sort_by_key(|(process, _)| process.pid);
            return Ok(done);
        }
        if monotonic_ns() - began_ns > LIMIT_NS {
            let why = waiting.unwrap_or_else(|| "new processes come all the time".to_owned());
            let message = format!("the clock of `{name}` was not as asked within 5 s: {why}");
            return Err(Refusal::new(RefusalKind::NotVerified, message));
        }
        if waiting.is_some() {
            pause();
        }
    }
}

/// The kernel ties a process that is stopped to the thread that stops it, and lets it go at the latest
/// when that thread ends: also one that did not stop in time, and also after a panic.
fn on_its_own_thread<T: Send>(
    act: impl FnOnce() -> Result<T, Trouble> + Send,
) -> Result<T, Trouble> {
    let panicked = |_| Err(Trouble::Never("the agent panicked".to_owned()));
    std::thread::scope(|scope| scope.spawn(act).join().unwrap_or_else(panicked))
}
