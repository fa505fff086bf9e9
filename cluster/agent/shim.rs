//! The shim: a tiny process between the agent and each service. It is the subreaper of everything the
//! service starts, so that the service's process tree is exact: also what was orphaned, has left its
//! session or has cleared its environment stays below the shim, and nothing else is.
//!
//! ```text
//! agent -- shim -- main process -- children
//!            `---- orphans
//! ```
//!
//! The shim is a fork of the agent that executes nothing. It closes every descriptor, waits, writes
//! two records on a pipe (the id of the main process, then its wait status) and ends when no
//! descendant is left, which closes the pipe.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{AccessFlags, access, pipe2};

use crate::error::{Refusal, RefusalKind};

/// A program that is ready to be executed; nothing needs to be allocated after the fork.
pub(super) struct Program {
    path: CString,
    argv: Vec<CString>,
    envp: Vec<CString>,
}

impl Program {
    /// Finds the program and lays out its arguments and environment.
    pub(super) fn new(argv: &[String], env: &[(String, String)]) -> Result<Self, Refusal> {
        let cannot = |what: &str| Refusal::new(RefusalKind::CannotStart, what);
        let name = argv
            .first()
            .ok_or_else(|| cannot("there is no program to start"))?;
        let zero = |_| cannot("a zero byte in an argument or variable");
        let mut variables: Vec<(Vec<u8>, Vec<u8>)> = std::env::vars_os()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect();
        for (name, value) in env {
            variables.retain(|(known, _)| known != name.as_bytes());
            variables.push((name.clone().into_bytes(), value.clone().into_bytes()));
        }
        let envp = variables
            .into_iter()
            .map(|(name, value)| [name, value].join(&b'='));
        Ok(Self {
            path: find(name)?,
            argv: argv
                .iter()
                .map(|arg| CString::new(arg.as_str()))
                .collect::<Result<_, _>>()
                .map_err(zero)?,
            envp: envp
                .map(CString::new)
                .collect::<Result<_, _>>()
                .map_err(zero)?,
        })
    }
}

/// Looks a program up as `execvp` would.
fn find(name: &str) -> Result<CString, Refusal> {
    let executable = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    let found = if name.contains('/') {
        Some(Path::new(name).to_path_buf()).filter(|path| executable(path))
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|dir| dir.join(name))
            .find(|path| executable(path))
    };
    let missing = || {
        let message = format!("`{name}` is not a program on this node");
        Refusal::new(RefusalKind::CannotStart, message)
    };
    let found = found.ok_or_else(missing)?;
    CString::new(found.as_os_str().as_bytes()).map_err(|_| missing())
}

/// The standard descriptors of a new process.
pub(super) struct Stdio {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// A service that was executed.
pub(super) struct Launched {
    /// The root of its tree, itself not part of the service.
    pub shim: i32,
    /// Its main process.
    pub pid: i32,
    /// Four bytes of wait status when the main process ends, end of file when all have.
    pub status: OwnedFd,
}

/// Forks the shim and the service below it; returns when the service was executed.
pub(super) fn launch(program: &Program, stdio: Stdio) -> Result<Launched, Refusal> {
    let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|error| Refusal::io("make a pipe")(error.into()));
    let (status, status_out) = pipe()?;
    let (failure, failure_out) = pipe()?;
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([ptr::null()])
            .collect()
    };
    let exec = Exec {
        path: &program.path,
        argv: &pointers(&program.argv),
        envp: &pointers(&program.envp),
        fds: [
            stdio.stdin.as_raw_fd(),
            stdio.stdout.as_raw_fd(),
            stdio.stderr.as_raw_fd(),
            status_out.as_raw_fd(),
            failure_out.as_raw_fd(),
        ],
    };
    // SAFETY: the child calls `become_shim` at once, which makes system calls only: it does not
    // allocate, lock or unwind, and so does not care what other threads held at the fork.
    let shim = match unsafe { raw_fork() } {
        // SAFETY: this is the child, and nothing it would have to clean up is its own.
        0 => unsafe { become_shim(&exec) },
        pid => Errno::result(pid).map_err(|error| Refusal::io("fork")(error.into()))?,
    };
    drop((stdio, status_out, failure_out));
    let mut status = File::from(status);
    let mut pid = [0; 4];
    status
        .read_exact(&mut pid)
        .map_err(Refusal::io("hear from a new process"))?;
    let mut errno = Vec::new();
    File::from(failure)
        .read_to_end(&mut errno)
        .map_err(Refusal::io("hear from a new process"))?;
    if let Ok(errno) = errno.try_into().map(i32::from_ne_bytes) {
        let error = io::Error::from_raw_os_error(errno);
        let message = format!("cannot execute {}: {error}", program.path.to_string_lossy());
        return Err(Refusal::new(RefusalKind::CannotStart, message));
    }
    Ok(Launched {
        shim,
        pid: i32::from_ne_bytes(pid),
        status: status.into(),
    })
}

/// Everything the shim and the service need, all of it allocated before the fork.
struct Exec<'a> {
    path: &'a CStr,
    argv: &'a [*const libc::c_char],
    envp: &'a [*const libc::c_char],
    /// Standard input, output and error; the pipes for status and for a failed execution.
    fds: [i32; 5],
}

const STATUS_FD: i32 = 3;
const FAILURE_FD: i32 = 4;

/// Forks without the C library's handlers.
///
/// # Safety
/// The child must restrict itself to system calls: locks may be held by threads it does not have.
unsafe fn raw_fork() -> i32 {
    // SAFETY: without flags this is plain fork; no memory is shared and no pointer is passed.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
}

/// The shim's life.
///
/// # Safety
/// Only in the child of a fork: it replaces the process's descriptors and never returns.
unsafe fn become_shim(exec: &Exec<'_>) -> ! {
    // SAFETY: system calls on descriptors, signal sets and buffers that live on this stack or were
    // made before the fork. Nothing here allocates, locks or unwinds.
    unsafe {
        let name = c"schism-shim";
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        libc::setsid();
        // A service that signals everything it sees must not hit the shim.
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        // First out of the way of the final numbers, then into place.
        let mut high = [0; 5];
        for (at, fd) in exec.fds.into_iter().enumerate() {
            high[at] = libc::fcntl(fd, libc::F_DUPFD, 16);
        }
        for (at, fd) in high.into_iter().enumerate() {
            libc::dup2(fd, at as i32);
        }
        libc::close_range(FAILURE_FD as u32 + 1, u32::MAX, 0);
        let main = raw_fork();
        if main == 0 {
            become_service(exec);
        }
        // The service's standard descriptors must close when the service closes them.
        libc::close_range(0, 2, 0);
        libc::close(FAILURE_FD);
        libc::write(STATUS_FD, (&raw const main).cast(), 4);
        loop {
            let mut status = 0;
            let pid = libc::waitpid(-1, &raw mut status, 0);
            if pid == main {
                libc::write(STATUS_FD, (&raw const status).cast(), 4);
            } else if pid < 0 && *libc::__errno_location() != libc::EINTR {
                libc::_exit(0);
            }
        }
    }
}

/// Becomes the service, or says why not.
///
/// # Safety
/// As [`become_shim`].
unsafe fn become_service(exec: &Exec<'_>) -> ! {
    // SAFETY: as in `become_shim`; the pointers end with null and point to strings that the parent
    // made before the fork.
    unsafe {
        libc::close(STATUS_FD);
        libc::fcntl(FAILURE_FD, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::setsid();
        // The Rust runtime ignores SIGPIPE, and ignoring survives execution.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::execve(exec.path.as_ptr(), exec.argv.as_ptr(), exec.envp.as_ptr());
        let errno = *libc::__errno_location();
        libc::write(FAILURE_FD, (&raw const errno).cast(), 4);
        libc::_exit(127)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_like_a_shell_does() {
        let program = |argv: &[&str]| {
            let argv: Vec<String> = argv.iter().map(|&arg| arg.to_owned()).collect();
            Program::new(&argv, &[("PATH".to_owned(), "/x".to_owned())])
        };
        let shell = program(&["sh", "-c", "true"]).unwrap();
        assert!(shell.path.to_bytes().ends_with(b"/sh"));
        assert_eq!(
            shell
                .envp
                .iter()
                .filter(|v| v.to_bytes().starts_with(b"PATH="))
                .count(),
            1
        );
        for bad in [&["no-such-program"][..], &["/etc/passwd"], &["/"], &[]] {
            let refusal = program(bad).err().unwrap();
            assert_eq!(refusal.kind, RefusalKind::CannotStart, "{bad:?}");
        }
    }
}
