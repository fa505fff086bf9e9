//! Moves the wall clock of one process: puts our code in front of the vDSO's functions, takes it
//! away again, and asks the process's clocks what they say. The code is in `stub.rs`; how a process
//! is held still is in `tracee.rs`; whole services are the matter of `clock.rs`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;

use super::super::tree;
use super::Trouble;
use super::stub::{self, ANSWER, JUMP, MAGIC, PAGE, SEQUENCE, SLOT, SLOTS, Stub};
use super::tracee::{Borrowed, Tracee};
use super::vdso::{self, Mapping, Vdso};
use crate::clock::monotonic_ns;
use crate::evidence::{ProcessClock, ProcessState};

const SECOND_NS: i64 = 1_000_000_000;
/// The addresses that a process may have.
const ADDRESSES: u64 = 0x7fff_ffff_f000;
/// How far a stack may grow, more or less: the kernel keeps twice as much free below it.
const STACK_BYTES_MAX: u64 = 64 << 20;
/// How far a clock that was asked may be from what it should say, beyond what asking took.
const TOLERANCE_NS: u64 = 1_000_000;
/// How coarse the clock is that `time` reads: a tick of the slowest kernel.
const TICK_NS: i64 = 10_000_000;

/// Moves the wall clock of a process to this many nanoseconds ahead of the true one.
pub(super) fn skew(process: &ProcessState, offset_ns: i64) -> Result<ProcessClock, Trouble> {
    let none = || {
        let why = "it has no vDSO like that of this program: it is none of 64 bits, or asks the \
                   kernel for the time";
        Trouble::Never(why.to_owned())
    };
    let place = Place::of(process.pid)?.ok_or_else(none)?;
    match place.sight()? {
        Sight::Own => {}
        Sight::Moved(pages) => {
            place.set(pages, offset_ns)?;
            return look(process);
        }
        Sight::Foreign => return Err(foreign()),
    }
    let held = Held::all(process)?;
    let Some((place, Sight::Own)) = held.sight()? else {
        return Err(changing());
    };
    let pieces = place.entries().map(|at| at..at + JUMP as u64);
    held.tracee
        .leave(&pieces, |at, stack| place.read_some(at, stack))?;
    let borrowed = held.tracee.borrow()?;
    let pages = match place.left_behind() {
        Some(pages) => pages,
        None => place.make_pages(&borrowed)?,
    };
    place.set(pages, offset_ns)?;
    let moved = place
        .divert(pages)
        .and_then(|()| place.ask(&borrowed, pages));
    if moved.is_err() {
        place.restore()?;
    }
    drop(borrowed);
    Ok(held.release(false, moved?))
}

/// Gives a process its true clock back. The pages of our code stay in it, where nothing leads to them
/// any more: one of its threads may be in the middle of a call.
pub(super) fn unskew(process: &ProcessState) -> Result<ProcessClock, Trouble> {
    if !is_moved(process.pid)? {
        return Ok(ProcessClock::own(process.clone()));
    }
    let held = Held::all(process)?;
    let Some((place, Sight::Moved(pages))) = held.sight()? else {
        return Err(changing());
    };
    place.set(pages, 0)?;
    // A jump is one instruction: no thread can be in the middle of it.
    place.restore()?;
    let asked = place.ask(&held.tracee.borrow()?, pages)?;
    let (ahead_ns, within_ns) = asked;
    if ahead_ns.unsigned_abs() > within_ns + TOLERANCE_NS {
        let why = format!("it was moved back and still is {ahead_ns} ns ahead");
        return Err(Trouble::Never(why));
    }
    Ok(held.release(true, asked))
}

/// Whether the wall clock of a process is moved. Nothing is stopped.
pub(super) fn is_moved(pid: i32) -> Result<bool, Trouble> {
    match Place::of(pid)? {
        Some(place) => Ok(matches!(place.sight()?, Sight::Moved(_))),
        None => Ok(false),
    }
}

/// What the wall clock of a process says: it is asked in the process if it was moved.
pub(super) fn look(process: &ProcessState) -> Result<ProcessClock, Trouble> {
    if !is_moved(process.pid)? {
        return Ok(ProcessClock::own(process.clone()));
    }
    let held = Held::one(process)?;
    let Some((place, Sight::Moved(pages))) = held.sight()? else {
        return Err(changing());
    };
    let asked = place.ask(&held.tracee.borrow()?, pages)?;
    Ok(held.release(false, asked))
}

/// How processes with a moved clock read the true one.
pub(super) fn manner() -> &'static str {
    let prologue = |vdso: &Vdso| stub::movable(&vdso.image[vdso.entries[0]..]);
    match Vdso::own().ok().and_then(prologue) {
        Some(_) => "moved clocks are read as fast as others",
        None => {
            "moved clocks are read by system calls: this kernel's vDSO begins in an unknown way"
        }
    }
}

/// A process that is held still, and cannot become another program meanwhile.
struct Held {
    process: ProcessState,
    asked_ns: u64,
    tracee: Tracee,
}

impl Held {
    fn all(process: &ProcessState) -> Result<Self, Trouble> {
        Self::by(process, Tracee::stop)
    }

    fn one(process: &ProcessState) -> Result<Self, Trouble> {
        Self::by(process, Tracee::stop_one)
    }

    fn by(
        process: &ProcessState,
        stop: impl Fn(i32) -> Result<Tracee, Trouble>,
    ) -> Result<Self, Trouble> {
        let asked_ns = monotonic_ns();
        let tracee = stop(process.pid)?;
        if !tree::exists(process) {
            return Err(Trouble::Gone);
        }
        Ok(Self {
            process: process.clone(),
            asked_ns,
            tracee,
        })
    }

    /// Its memory, and what is in front of its vDSO now.
    fn sight(&self) -> Result<Option<(Place, Sight)>, Trouble> {
        let Some(place) = Place::of(self.process.pid)? else {
            return Ok(None);
        };
        let sight = place.sight()?;
        Ok(Some((place, sight)))
    }

    /// Lets it go on, and tells what its clock said.
    fn release(self, own: bool, (ahead_ns, within_ns): (i64, u64)) -> ProcessClock {
        let threads = self.tracee.threads();
        drop(self.tracee);
        ProcessClock {
            process: self.process,
            own,
            ahead_ns: Some(ahead_ns),
            within_ns,
            threads,
            held_ns: monotonic_ns() - self.asked_ns,
        }
    }
}

/// The two pages that we have in a process.
#[derive(Debug, Clone, Copy)]
struct Pages {
    stub: Stub,
    params: u64,
}

/// What a process's vDSO is.
enum Sight {
    /// As the kernel made it.
    Own,
    /// The same with our jumps in it.
    Moved(Pages),
    /// Something else, and nothing of ours in it.
    Foreign,
}

/// The memory of a process that has the kernel's vDSO, and where it is.
struct Place {
    vdso: &'static Vdso,
    memory: File,
    maps: Vec<Mapping>,
    /// Where the vDSO begins there.
    base: u64,
}

impl Place {
    /// Nothing if the process has no vDSO, or one of another size.
    fn of(pid: i32) -> Result<Option<Self>, Trouble> {
        let vdso = Vdso::own().map_err(Trouble::Never)?;
        let gone = |error: std::io::Error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Trouble::Gone,
            _ => Trouble::Never(format!("cannot reach the memory of {pid}: {error}")),
        };
        let path = format!("/proc/{pid}/mem");
        let memory = OpenOptions::new().read(true).write(true).open(path);
        let memory = memory.map_err(gone)?;
        let maps = vdso::mappings(pid).map_err(gone)?;
        if maps.is_empty() {
            return Err(Trouble::Gone);
        }
        let len = vdso.image.len() as u64;
        let mapping = vdso::find(&maps).filter(|mapping| mapping.end - mapping.start == len);
        let Some(base) = mapping.map(|mapping| mapping.start) else {
            return Ok(None);
        };
        Ok(Some(Self {
            vdso,
            memory,
            maps,
            base,
        }))
    }

    fn entries(&self) -> [u64; 3] {
        self.vdso.entries.map(|entry| self.base + entry as u64)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Trouble> {
        self.memory.read_exact_at(bytes, at).map_err(unreadable)
    }

    /// As much as can be read.
    fn read_some(&self, at: u64, bytes: &mut [u8]) -> usize {
        self.memory.read_at(bytes, at).unwrap_or(0)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Trouble> {
        self.memory.write_all_at(bytes, at).map_err(|error| {
            Trouble::Never(format!("cannot write the memory of a process: {error}"))
        })
    }

    /// Whose the vDSO is. One that has some of our jumps in it, but not all or not only them, is
    /// refused.
    fn sight(&self) -> Result<Sight, Trouble> {
        let mut image = vec![0; self.vdso.image.len()];
        self.read(self.base, &mut image)?;
        if image == self.vdso.image {
            return Ok(Sight::Own);
        }
        let entries = self.vdso.entries.into_iter().zip(self.entries());
        let mut pages = Vec::new();
        for (entry, at) in entries {
            let target = stub::target(at, &image[entry..]);
            let stub = target.map(|target| Stub {
                page: target - target % PAGE,
            });
            let Some(ours) = stub.and_then(|stub| self.pages(stub)) else {
                continue;
            };
            pages.push((target, ours));
            image[entry..entry + JUMP].copy_from_slice(&self.vdso.image[entry..entry + JUMP]);
        }
        let Some(&(_, ours)) = pages.first() else {
            return Ok(Sight::Foreign);
        };
        let targets = pages.iter().filter_map(|&(target, _)| target);
        match image == self.vdso.image && targets.eq(ours.stub.entries()) {
            true => Ok(Sight::Moved(ours)),
            false => Err(foreign()),
        }
    }

    /// Our pages, if this is our code page.
    fn pages(&self, stub: Stub) -> Option<Pages> {
        let mut head = [[0; 8]; 2];
        self.read(stub.page, head.as_flattened_mut()).ok()?;
        let [magic, params] = head;
        (magic == MAGIC).then(|| Pages {
            stub,
            params: u64::from_le_bytes(params),
        })
    }

    /// The pages of an earlier time, which stayed because somebody may still have been in them.
    fn left_behind(&self) -> Option<Pages> {
        self.maps
            .iter()
            .filter(|mapping| mapping.permissions == "r-xp" && mapping.name.is_empty())
            .filter(|mapping| mapping.end - mapping.start == PAGE)
            .find_map(|mapping| {
                self.pages(Stub {
                    page: mapping.start,
                })
            })
    }

    fn make_pages(&self, borrowed: &Borrowed) -> Result<Pages, Trouble> {
        let gadget = self.base + self.vdso.gadget as u64;
        let map = |at: u64, protection: i32, flags: i32| {
            let flags = flags | libc::MAP_ANONYMOUS;
            let nowhere = u64::MAX;
            let args = [at, PAGE, protection as u64, flags as u64, nowhere, 0];
            let mapped = borrowed.syscall(gadget, libc::SYS_mmap, args)?;
            mapped.map_err(|error: Errno| {
                Trouble::Never(format!("a process may not map a page: {error}"))
            })
        };
        let room = room(&self.maps, self.base).ok_or_else(|| {
            Trouble::Never("there is no room near the vDSO of a process".to_owned())
        })?;
        let params = map(0, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)?;
        let page = map(
            room,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE,
        )?;
        let stub = Stub { page };
        let [entry, ..] = self.vdso.entries;
        let code = &self.vdso.image[entry..];
        let prologue =
            stub::movable(code).map(|len| (&code[..len], self.base + entry as u64 + len as u64));
        self.write(page, &stub.bytes(params, prologue))?;
        Ok(Pages { stub, params })
    }

    /// Changes the offset: the process sees the old one or the new one, also while it runs.
    fn set(&self, pages: Pages, offset_ns: i64) -> Result<(), Trouble> {
        let mut sequence = [0];
        self.read(pages.params + SEQUENCE, &mut sequence)?;
        let next = sequence[0].wrapping_add(1);
        let slot = pages.params + SLOTS + SLOT * u64::from(next & 1);
        let offset = [
            offset_ns.div_euclid(SECOND_NS).to_le_bytes(),
            offset_ns.rem_euclid(SECOND_NS).to_le_bytes(),
        ];
        self.write(slot, offset.as_flattened())?;
        self.write(pages.params + SEQUENCE, &[next])
    }

    /// Puts the jumps to our code in place.
    fn divert(&self, pages: Pages) -> Result<(), Trouble> {
        for (from, to) in self.entries().into_iter().zip(pages.stub.entries()) {
            let jump = stub::jump(from, to)
                .ok_or_else(|| Trouble::Never("our page is too far away".to_owned()))?;
            self.write(from, &jump)?;
        }
        Ok(())
    }

    /// Takes the jumps away, and sees that the vDSO is the kernel's own again.
    fn restore(&self) -> Result<(), Trouble> {
        for (entry, at) in self.vdso.entries.into_iter().zip(self.entries()) {
            self.write(at, &self.vdso.image[entry..entry + JUMP])?;
        }
        match self.sight()? {
            Sight::Own => Ok(()),
            Sight::Moved(_) | Sight::Foreign => Err(foreign()),
        }
    }

    /// Asks all clocks of the process, by calling what it calls. Returns how far its wall clock is
    /// ahead, and how far off that may be. The functions must agree, and the monotonic clock must be
    /// true.
    fn ask(&self, borrowed: &Borrowed, pages: Pages) -> Result<(i64, u64), Trouble> {
        let [gettime, timeofday, time] = self.entries();
        let answer = pages.params + ANSWER;
        // As a call would leave it: 8 below a multiple of 16.
        let stack = pages.params + PAGE - 56;
        self.write(stack, &pages.stub.landing().to_le_bytes())?;
        let call = |function, args| borrowed.call(function, args, stack, pages.stub.landing());
        let told = |unit: i64| -> Result<i64, Trouble> {
            let mut told = [[0; 8]; 2];
            self.read(answer, told.as_flattened_mut())?;
            let [seconds, rest] = told.map(i64::from_le_bytes);
            Ok(seconds * SECOND_NS + rest * unit)
        };
        let wall = libc::CLOCK_REALTIME as u64;
        let monotonic = libc::CLOCK_MONOTONIC as u64;

        let (mono_from, from) = (monotonic_ns().cast_signed(), wall_ns());
        call(gettime, [wall, answer])?;
        let until = wall_ns();
        let by_gettime = told(1)?;
        call(timeofday, [answer, 0])?;
        let by_timeofday = told(1000)?;
        // The answer is an integer of 64 bits.
        let by_time = call(time, [0, 0])?.cast_signed() * SECOND_NS;
        call(gettime, [monotonic, answer])?;
        let by_monotonic = told(1)?;
        let (mono_until, last) = (monotonic_ns().cast_signed(), wall_ns());

        let half = (until - from) / 2;
        let ahead = by_gettime - (from + half);
        let later = last - until;
        let agree = (by_gettime - 1000..=by_gettime + half * 2 + later).contains(&by_timeofday)
            && (by_gettime - TICK_NS - SECOND_NS..=by_timeofday + later).contains(&by_time);
        if !agree {
            let why = format!(
                "clock_gettime says {by_gettime} ns, gettimeofday {by_timeofday} ns and time \
                 {by_time} ns"
            );
            return Err(Trouble::Never(why));
        }
        if !(mono_from..=mono_until).contains(&by_monotonic) {
            let why = format!("the monotonic clock says {by_monotonic} ns at {mono_from} ns");
            return Err(Trouble::Never(why));
        }
        Ok((ahead, half.cast_unsigned() + 1))
    }
}

fn unreadable(error: std::io::Error) -> Trouble {
    // A process without memory is one that ends.
    match error.raw_os_error() {
        Some(libc::ESRCH) | None => Trouble::Gone,
        _ => Trouble::Never(format!("cannot read the memory of a process: {error}")),
    }
}

fn changing() -> Trouble {
    Trouble::Later("its vDSO is being changed".to_owned())
}

fn foreign() -> Trouble {
    Trouble::Never("somebody else has changed the vDSO of a process".to_owned())
}

/// The true wall clock, in nanoseconds since 1970.
fn wall_ns() -> i64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME);
    let now = now.expect("CLOCK_REALTIME exists");
    now.tv_sec() * SECOND_NS + now.tv_nsec()
}

/// Where a page fits that jumps can reach from `base`: behind some mapping, with a page in between,
/// and where no heap or stack will grow.
fn room(maps: &[Mapping], base: u64) -> Option<u64> {
    let reach = i32::MAX as u64 - 16 * PAGE;
    let end_of_gap = |at: usize| match maps.get(at + 1) {
        Some(next) if next.name == "[stack]" => next.start.saturating_sub(STACK_BYTES_MAX),
        Some(next) => next.start.min(ADDRESSES),
        None => ADDRESSES,
    };
    (0..maps.len())
        .filter(|&at| maps[at].name != "[heap]")
        .map(|at| (maps[at].end + PAGE, end_of_gap(at)))
        .filter(|&(page, end)| page + 2 * PAGE <= end && page.abs_diff(base) < reach)
        .map(|(page, _)| page)
        .min_by_key(|page| page.abs_diff(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(list: &[(u64, u64, &str)]) -> Vec<Mapping> {
        let mapping = |&(start, end, name): &(u64, u64, &str)| Mapping {
            start: start * PAGE,
            end: end * PAGE,
            permissions: "r--p".to_owned(),
            name: name.to_owned(),
        };
        list.iter().map(mapping).collect()
    }

    #[test]
    fn room_is_found_near_by_and_never_below_a_stack() {
        let near = maps(&[(100, 200, "/lib"), (203, 205, "[vdso]"), (206, 209, "")]);
        assert_eq!(room(&near, 203 * PAGE), Some(201 * PAGE));
        let tight = maps(&[(100, 200, "/lib"), (202, 205, "[vdso]"), (206, 209, "")]);
        assert_eq!(room(&tight, 202 * PAGE), Some(210 * PAGE));
        // Right below a stack nothing may be in its way.
        let stack = maps(&[
            (100, 102, "[vdso]"),
            (900, 1000, "[stack]"),
            (1004, 1005, ""),
        ]);
        assert_eq!(room(&stack, 100 * PAGE), Some(1001 * PAGE));
        let deep = maps(&[(100, 102, "[vdso]"), (100_000, 100_100, "[stack]")]);
        assert_eq!(room(&deep, 100 * PAGE), Some(103 * PAGE));
        // Behind the last address of a process there is none.
        let end = 0x7_ffff_ffff;
        let full = maps(&[(100, 101, ""), (end - 10, end - 2, "[vdso]")]);
        assert_eq!(room(&full, (end - 10) * PAGE), None);
        assert_eq!(room(&[], 0), None);
    }
}
