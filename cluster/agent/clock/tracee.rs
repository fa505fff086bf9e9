//! Stops the threads of a process for a moment, and has one of them do something for us: `ptrace`, as
//! far as it is needed here. What is done to clocks is in `patch.rs`.
//!
//! The kernel ties a stopped thread to the thread that stopped it, so everything here happens on a
//! thread of its own, whose end also cleans up. And while it lasts nobody else in this program may
//! wait for children of any kind: the stops are reported in the same way.

use std::fs;
use std::io::ErrorKind;
use std::ptr;

use nix::errno::Errno;

use super::super::freeze;
use super::Trouble;
use crate::clock::monotonic_ns;

/// How long the threads of a process may take to stop. A parent in `vfork` stops only when its child
/// has executed something.
const STOP_LIMIT_NS: u64 = 500_000_000;
/// How often it is looked again at once, before the processor is left to others.
const EAGER_LOOKS: u32 = 50;
/// How many instructions a thread may take to leave the bytes that are overwritten.
const STEPS_MAX: u32 = 64;
/// How far above the top of a stack an interrupted handler's frame is looked for.
const STACK_BYTES: usize = 64 << 10;
/// The code segment of 64-bit programs, as every signal frame has it.
const USER_CS: u64 = 0x33;

/// Signals that the processor raises: blocking them would make the kernel forget their handlers.
const SYNCHRONOUS: [i32; 5] = [
    libc::SIGTRAP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
];

/// Registers of a thread.
pub(super) type Registers = libc::user_regs_struct;

/// A process some or all of whose threads are stopped.
pub(super) struct Tracee {
    stopped: Vec<i32>,
}

/// What a thread was seen to do.
enum Seen {
    /// It stopped because we, or a stop of its whole process, interrupted it.
    Interrupted,
    /// It is about to get this signal.
    Signal(i32),
    /// It is gone.
    Ended,
}

impl Tracee {
    /// Stops every thread of a process.
    pub(super) fn stop(pid: i32) -> Result<Self, Trouble> {
        let mut tracee = Tracee {
            stopped: Vec::new(),
        };
        let deadline_ns = monotonic_ns() + STOP_LIMIT_NS;
        let mut known = Vec::new();
        // A thread may be born while the list is read; once all are stopped, none can.
        loop {
            let threads = threads(pid)?;
            let mut interrupted = Vec::new();
            for thread in threads {
                if !known.contains(&thread) && interrupt(pid, thread)? {
                    interrupted.push(thread);
                }
            }
            if interrupted.is_empty() {
                break;
            }
            known.extend_from_slice(&interrupted);
            for thread in interrupted {
                if await_stop(thread, deadline_ns)? {
                    tracee.stopped.push(thread);
                }
            }
        }
        match tracee.stopped.is_empty() {
            true => Err(Trouble::Gone),
            false => Ok(tracee),
        }
    }

    /// Stops one thread of a process only.
    pub(super) fn stop_one(pid: i32) -> Result<Self, Trouble> {
        let deadline_ns = monotonic_ns() + STOP_LIMIT_NS;
        for thread in threads(pid)? {
            if interrupt(pid, thread)? && await_stop(thread, deadline_ns)? {
                let stopped = vec![thread];
                return Ok(Tracee { stopped });
            }
        }
        Err(Trouble::Gone)
    }

    pub(super) fn threads(&self) -> usize {
        self.stopped.len()
    }

    /// Lets every thread leave the inside of these pieces of code, whose first instruction may be
    /// replaced after that: none is in the middle, and none will come back there.
    pub(super) fn leave(
        &self,
        pieces: &[std::ops::Range<u64>],
        read: impl Fn(u64, &mut [u8]) -> usize,
    ) -> Result<(), Trouble> {
        let inside = |at: u64| {
            pieces
                .iter()
                .any(|piece| piece.start < at && at < piece.end)
        };
        for &thread in &self.stopped {
            let mut steps = 0;
            while inside(registers(thread)?.rip) {
                steps += 1;
                if steps > STEPS_MAX {
                    return Err(Trouble::Later(
                        "a thread does not leave the vDSO".to_owned(),
                    ));
                }
                let _quiet = Quiet::new(thread)?;
                step(thread)?;
            }
            // A handler that interrupted a thread inside will return there.
            let mut stack = vec![0; STACK_BYTES];
            let len = read(registers(thread)?.rsp, &mut stack);
            let words: Vec<u64> = stack[..len]
                .as_chunks::<8>()
                .0
                .iter()
                .map(|word| u64::from_le_bytes(*word))
                .collect();
            // In a signal frame the instruction pointer is followed by flags and the segment.
            let is_frame = |frame: &[u64]| inside(frame[0]) && frame[2] & 0xffff == USER_CS;
            if words.windows(3).any(is_frame) {
                let why = "a signal handler runs that interrupted the vDSO".to_owned();
                return Err(Trouble::Later(why));
            }
        }
        Ok(())
    }

    /// Takes one of the stopped threads to do something; when it is dropped the thread is as it was.
    pub(super) fn borrow(&self) -> Result<Borrowed, Trouble> {
        let thread = self.stopped[0];
        Ok(Borrowed {
            saved: registers(thread)?,
            _quiet: Quiet::new(thread)?,
            thread,
        })
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        for &thread in &self.stopped {
            // One that was killed meanwhile is gone.
            let _ = ptrace(libc::PTRACE_DETACH, thread, 0, 0);
        }
    }
}

/// A thread that acts for us.
pub(super) struct Borrowed {
    thread: i32,
    saved: Registers,
    // Dropped after the registers were set back.
    _quiet: Quiet,
}

impl Borrowed {
    /// Makes a system call through a `syscall` instruction of the process. Returns what the kernel
    /// returned.
    pub(super) fn syscall(
        &self,
        gadget: u64,
        number: libc::c_long,
        args: [u64; 6],
    ) -> Result<Result<u64, Errno>, Trouble> {
        let mut registers = self.saved;
        registers.rip = gadget;
        registers.rax = number.cast_unsigned();
        // Not in a system call: there is nothing to be restarted.
        registers.orig_rax = u64::MAX;
        [registers.rdi, registers.rsi, registers.rdx] = [args[0], args[1], args[2]];
        [registers.r10, registers.r8, registers.r9] = [args[3], args[4], args[5]];
        set_registers(self.thread, &registers)?;
        step(self.thread)?;
        let returned = self::registers(self.thread)?.rax.cast_signed();
        Ok(match returned {
            -4095..0 => Err(Errno::from_raw(-returned as i32)),
            _ => Ok(returned.cast_unsigned()),
        })
    }

    /// Calls a function on a stack of its own, which returns to a breakpoint. Returns what it
    /// returned.
    pub(super) fn call(
        &self,
        function: u64,
        args: [u64; 2],
        stack: u64,
        landing: u64,
    ) -> Result<u64, Trouble> {
        let mut registers = self.saved;
        registers.rip = function;
        registers.rsp = stack;
        registers.orig_rax = u64::MAX;
        [registers.rdi, registers.rsi] = args;
        set_registers(self.thread, &registers)?;
        run(self.thread)?;
        let after = self::registers(self.thread)?;
        if after.rip != landing + 1 {
            let why = format!("a call in it stopped at {:#x}", after.rip);
            return Err(Trouble::Never(why));
        }
        Ok(after.rax)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // A thread that was killed meanwhile has no registers any more.
        let _ = set_registers(self.thread, &self.saved);
    }
}

/// Keeps signals from a thread while it acts for us.
struct Quiet {
    thread: i32,
    mask: u64,
}

impl Quiet {
    fn new(thread: i32) -> Result<Self, Trouble> {
        let mut mask = 0_u64;
        let mut all = u64::MAX;
        for signal in SYNCHRONOUS {
            all &= !(1 << (signal - 1));
        }
        let len = size_of::<u64>();
        ptrace(
            PTRACE_GETSIGMASK,
            thread,
            len,
            (&raw mut mask).expose_provenance(),
        )?;
        ptrace(
            PTRACE_SETSIGMASK,
            thread,
            len,
            (&raw const all).expose_provenance(),
        )?;
        Ok(Self { thread, mask })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let mask = (&raw const self.mask).expose_provenance();
        let _ = ptrace(PTRACE_SETSIGMASK, self.thread, size_of::<u64>(), mask);
    }
}

const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;

/// One request of `ptrace`; a thread that is gone, or runs, is [`Trouble::Gone`].
fn ptrace(request: libc::c_uint, thread: i32, address: usize, data: usize) -> Result<(), Trouble> {
    // SAFETY: the requests of this file take no address, a length, a signal, or the address of a
    // value that lives on the caller's stack and is as large as the request says.
    let result = unsafe { libc::ptrace(request, thread, address, data) };
    match Errno::result(result) {
        Ok(_) => Ok(()),
        Err(Errno::ESRCH) => Err(Trouble::Gone),
        Err(error) => Err(Trouble::Never(format!("ptrace of {thread}: {error}"))),
    }
}

fn registers(thread: i32) -> Result<Registers, Trouble> {
    // SAFETY: registers are numbers, of which zero is one.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    let address = (&raw mut registers).expose_provenance();
    ptrace(libc::PTRACE_GETREGS, thread, 0, address)?;
    Ok(registers)
}

fn set_registers(thread: i32, registers: &Registers) -> Result<(), Trouble> {
    let address = ptr::from_ref(registers).expose_provenance();
    ptrace(libc::PTRACE_SETREGS, thread, 0, address)
}

fn threads(pid: i32) -> Result<Vec<i32>, Trouble> {
    let tasks = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(tasks) => tasks,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Trouble::Gone),
        Err(error) => return Err(Trouble::Never(format!("cannot read /proc: {error}"))),
    };
    let ids = tasks.flatten().map(|task| task.file_name());
    Ok(ids.filter_map(|id| id.to_str()?.parse().ok()).collect())
}

/// Asks a thread to stop; `false` if it has ended.
fn interrupt(pid: i32, thread: i32) -> Result<bool, Trouble> {
    match ptrace(libc::PTRACE_SEIZE, thread, 0, 0) {
        Ok(()) => {}
        Err(Trouble::Gone) => return Ok(false),
        // A main thread that has ended before the others is still listed, and cannot be seized.
        Err(_) if has_ended(pid, thread) => return Ok(false),
        Err(trouble) => return Err(trouble),
    }
    match ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0) {
        Err(Trouble::Gone) => Ok(false),
        done => done.map(|()| true),
    }
}

/// Whether a thread has ended, though it may still be listed.
fn has_ended(pid: i32, thread: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat"));
    let state = |stat: &str| Some(stat.rsplit_once(") ")?.1.starts_with(['Z', 'X']));
    stat.map_or(true, |stat| state(&stat) == Some(true))
}

/// Waits until a thread has stopped, and lets it have the signals that come in between; `false` if
/// it has ended.
fn await_stop(thread: i32, deadline_ns: u64) -> Result<bool, Trouble> {
    loop {
        match wait(thread, deadline_ns)? {
            Seen::Interrupted => return Ok(true),
            Seen::Ended => return Ok(false),
            Seen::Signal(signal) => match ptrace(libc::PTRACE_CONT, thread, 0, signal as usize) {
                Err(Trouble::Gone) => {}
                done => done?,
            },
        }
    }
}

/// For a thread that acts for us: it needs nothing but the processor. On a busy machine that may take
/// long, but a thread that was given up on its way would meet its breakpoint, or the end of its step,
/// when nobody holds it any more, and the trap would kill the whole process.
const NEVER_NS: u64 = u64::MAX;

/// Lets a stopped thread take one instruction.
fn step(thread: i32) -> Result<(), Trouble> {
    let mut signal = 0;
    loop {
        ptrace(libc::PTRACE_SINGLESTEP, thread, 0, signal as usize)?;
        signal = match wait(thread, NEVER_NS)? {
            Seen::Signal(libc::SIGTRAP) => return Ok(()),
            // A stop of the whole process comes before the instruction or after it. Then the trap is
            // still to come, and comes before another instruction: left behind, it would kill.
            Seen::Interrupted => 0,
            Seen::Signal(libc::SIGSTOP) => libc::SIGSTOP,
            Seen::Signal(signal) => {
                return Err(Trouble::Never(format!("signal {signal} in the vDSO")));
            }
            Seen::Ended => return Err(Trouble::Gone),
        };
    }
}

/// Lets a stopped thread run until it meets a breakpoint or goes wrong.
fn run(thread: i32) -> Result<(), Trouble> {
    let mut signal = 0;
    loop {
        ptrace(libc::PTRACE_CONT, thread, 0, signal as usize)?;
        signal = match wait(thread, NEVER_NS)? {
            Seen::Interrupted => 0,
            Seen::Signal(libc::SIGSTOP) => libc::SIGSTOP,
            Seen::Signal(_) => return Ok(()),
            Seen::Ended => return Err(Trouble::Gone),
        };
    }
}

/// Waits for the next thing that a thread does.
fn wait(thread: i32, deadline_ns: u64) -> Result<Seen, Trouble> {
    let mut looks = 0;
    loop {
        let mut status = 0;
        let flags = libc::__WALL | libc::WNOHANG;
        // SAFETY: waits for one thread, without blocking, with a status on this stack. The wrapper of
        // `nix` would lose real-time signals.
        match unsafe { libc::waitpid(thread, &raw mut status, flags) } {
            0 if monotonic_ns() > deadline_ns => {
                return Err(Trouble::Later(format!("thread {thread} does not stop")));
            }
            0 if looks < EAGER_LOOKS => {
                looks += 1;
                std::thread::yield_now();
            }
            0 => freeze::pause(),
            found if found == thread && libc::WIFSTOPPED(status) => {
                return Ok(match status >> 16 {
                    0 => Seen::Signal(libc::WSTOPSIG(status)),
                    _ => Seen::Interrupted,
                });
            }
            _ => return Ok(Seen::Ended),
        }
    }
}
