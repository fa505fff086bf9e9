//! A program one of whose processes is stopped in the middle of the very instructions that are
//! overwritten when its clock is moved: a victim of the tests in `clocks.rs`.

use std::io::BufRead;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::ptrace;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pause, pipe, write};
use std::os::fd::AsRawFd;

/// What a handler waits for.
static GATE: AtomicI32 = AtomicI32::new(-1);

/// Forks a child that reads the wall clock once and prints it, and leaves it behind the first
/// instruction of the vDSO's function: stopped, or in a signal handler that ends when this program
/// reads a line.
pub(crate) fn run(how: &str) {
    extern "C" fn handler(_signal: libc::c_int) {
        let mut byte = 0_u8;
        // SAFETY: reads one byte to this stack.
        unsafe { libc::read(GATE.load(Ordering::SeqCst), (&raw mut byte).cast(), 1) };
    }
    let (gate, open) = pipe().expect("a pipe");
    GATE.store(gate.as_raw_fd(), Ordering::SeqCst);
    let empty = SigSet::empty();
    let action = SigAction::new(SigHandler::Handler(handler), SaFlags::SA_RESTART, empty);
    // SAFETY: the handler only makes a system call; this process has one thread.
    let forked = unsafe {
        sigaction(Signal::SIGUSR1, &action).expect("a handler");
        fork().expect("a child")
    };
    let ForkResult::Parent { child } = forked else {
        ptrace::traceme().expect("traced");
        raise(Signal::SIGSTOP).expect("stopped");
        println!("{}", crate::hammer::clock(libc::CLOCK_REALTIME));
        loop {
            pause();
        }
    };
    step_inside(child);
    let signal = match how {
        "stopped" => Signal::SIGSTOP,
        _ => Signal::SIGUSR1,
    };
    ptrace::detach(child, signal).expect("detached");
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        line.expect("a line");
        write(&open, b".").expect("written");
    }
}

/// Lets the child go on until it has done one instruction of the function.
fn step_inside(child: Pid) {
    // SAFETY: both are names; the vDSO is mapped already, and in the child at the same place.
    let entry = unsafe {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        let vdso = libc::dlopen(c"linux-vdso.so.1".as_ptr(), flags);
        libc::dlsym(vdso, c"__vdso_clock_gettime".as_ptr()).addr() as u64
    };
    assert_ne!(entry, 0);
    waitpid(child, None).expect("it stops");
    loop {
        ptrace::step(child, None).expect("a step");
        waitpid(child, None).expect("it stops");
        let at = ptrace::getregs(child).expect("registers").rip;
        if (entry + 1..entry + 5).contains(&at) {
            return;
        }
    }
}
