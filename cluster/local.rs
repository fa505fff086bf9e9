//! The local backend, controller's side: starts the sandbox and connects to it. What the sandbox does
//! is in `sandbox.rs`; the switch it runs is in `switch.rs`.
//!
//! Two things tie the sandbox to the controller: it gets SIGKILL from the kernel when the thread that
//! started it ends (so that thread does nothing but wait for it), and it ends itself when its control
//! channel is closed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::setsid;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use crate::backend::{Backend, Fabric, MadeNode};
use crate::channel::{Peer, Unasked};
use crate::cluster::ClusterSpec;
use crate::error::Error;
use crate::network::{Applied, LinkCounters, LinkMatrix};
use crate::protocol::{SandboxReply, SandboxRequest, Setup, SetupNode};
use crate::sandbox;

/// How long the sandbox may take to end once it was told to. The kernel has to kill every process in
/// it, which takes as long as the slowest of them needs to leave the kernel.
const DESTROY_LIMIT: Duration = Duration::from_secs(30);

/// The address of the node with this index.
pub(crate) fn node_addr(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, index as u8 + 1)
}

/// What to execute: the given program or this one. A process always finds itself under this name,
/// even when its file was replaced by a newer build.
pub(crate) fn program(exe: Option<&Path>) -> PathBuf {
    exe.unwrap_or(Path::new("/proc/self/exe")).to_path_buf()
}

/// The address at the end of the direct pair, for the first two nodes of a cluster that has one.
pub(crate) fn direct_addr(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 1, index as u8 + 1)
}

#[derive(Debug)]
pub(crate) struct Local {
    switch: Arc<Switch>,
    /// The controller's end of the control channel once more: shutting it down is what ends the
    /// sandbox.
    control: StdUnixStream,
    exited: Option<oneshot::Receiver<io::Result<ExitStatus>>>,
    log: PathBuf,
}

impl Local {
    pub(crate) async fn make(
        spec: &ClusterSpec,
        direct_pair: bool,
    ) -> Result<(Self, Vec<MadeNode>), Error> {
        let io = |what: &str| Error::io(format!("{what} for the sandbox"));
        let exe = program(spec.exe.as_deref());
        std::fs::create_dir_all(&spec.dir).map_err(io("make the directory"))?;
        let dir = spec.dir.canonicalize().map_err(io("find the directory"))?;
        let log = dir.join("sandbox.log");

        let (control, control_peer) = StdUnixStream::pair().map_err(io("make a channel"))?;
        let (mut made, mut setup, mut inherited) = (Vec::new(), Vec::new(), Vec::new());
        for (index, name) in spec.nodes.iter().enumerate() {
            let node_dir = dir.join(name);
            std::fs::create_dir_all(&node_dir).map_err(io("make a node's directory"))?;
            let (ours, theirs) = StdUnixStream::pair().map_err(io("make a channel"))?;
            setup.push(SetupNode {
                name: name.clone(),
                dir: node_dir.to_string_lossy().into_owned(),
                channel: theirs.as_raw_fd(),
            });
            inherited.push(theirs);
            made.push(MadeNode {
                name: name.clone(),
                addr: IpAddr::V4(node_addr(index)),
                dir: node_dir,
                channel: to_tokio(ours)?,
            });
        }
        inherited.push(control_peer);
        let exited = start(&exe, &dir, &log, inherited).await?;

        let ours = control.try_clone().map_err(io("make a channel"))?;
        let peer = Peer::connect("sandbox", to_tokio(ours)?, |_: Unasked| {});
        let local = Self {
            switch: Arc::new(Switch {
                peer: Arc::clone(&peer),
            }),
            control,
            exited: Some(exited),
            log,
        };
        let request = SandboxRequest::Setup(Setup {
            seed: spec.seed,
            nodes: setup,
            direct_pair,
        });
        match peer.call::<_, SandboxReply>(request, Bytes::new()).await {
            Ok((SandboxReply::Ready { .. }, _)) => Ok((local, made)),
            Ok((other, _)) => Err(peer.broken(format!("answered with {other:?}"))),
            Err(error) => Err(local.explain(error)),
        }
    }

    /// Adds what the sandbox wrote to its log before it died.
    fn explain(&self, error: Error) -> Error {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let tail: Vec<&str> = said.lines().rev().take(5).collect();
        let tail: String = tail
            .into_iter()
            .rev()
            .map(|line| format!("\n  {line}"))
            .collect();
        match error {
            Error::Refused { refusal, .. } => Error::Sandbox {
                stage: "it was set up".to_owned(),
                cause: refusal.message,
            },
            Error::Closed(_) => Error::Sandbox {
                stage: "it was started".to_owned(),
                cause: format!("it ended early{tail}"),
            },
            other => other,
        }
    }
}

fn to_tokio(socket: StdUnixStream) -> Result<UnixStream, Error> {
    let adopt = |socket: StdUnixStream| {
        socket.set_nonblocking(true)?;
        UnixStream::from_std(socket)
    };
    adopt(socket).map_err(Error::io("adopt a channel"))
}

/// Executes the sandbox from a thread of its own, which then waits for it.
async fn start(
    exe: &Path,
    dir: &Path,
    log: &Path,
    inherited: Vec<StdUnixStream>,
) -> Result<oneshot::Receiver<io::Result<ExitStatus>>, Error> {
    let (started, starting) = oneshot::channel();
    let (ended, exited) = oneshot::channel();
    let log = std::fs::File::create(log).map_err(Error::io("make the sandbox's log"))?;
    let control = inherited.last().map_or(-1, AsRawFd::as_raw_fd);
    #[expect(
        clippy::disallowed_methods,
        reason = "this is where the sandbox is started"
    )]
    let mut command = std::process::Command::new(exe);
    command
        .arg0("schism")
        .arg(sandbox::SUBCOMMAND)
        .arg(control.to_string())
        .arg(std::process::id().to_string())
        .arg(dir)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let fds: Vec<RawFd> = inherited.iter().map(AsRawFd::as_raw_fd).collect();
    let inherit = move || {
        for &fd in &fds {
            // SAFETY: the descriptor is open: this is the child of the process that made it.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        // A Ctrl-C for the controller must reach the controller alone: it heals first.
        setsid()?;
        sandbox::die_with_parent()
    };
    // SAFETY: the closure makes system calls only; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(inherit) };
    std::thread::Builder::new()
        .name("sandbox-parent".to_owned())
        .spawn(move || match command.spawn() {
            Ok(mut child) => {
                // Only the sandbox may hold its ends, so that its death is seen as end of file.
                drop(inherited);
                let _ = started.send(Ok(()));
                let _ = ended.send(child.wait());
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        })
        .map_err(Error::io("start a thread"))?;
    match starting.await {
        Ok(Ok(())) => Ok(exited),
        Ok(Err(error)) => Err(Error::io(format!("execute {}", exe.display()))(error)),
        Err(_) => Err(Error::Closed("sandbox".to_owned())),
    }
}

#[async_trait]
impl Backend for Local {
    fn fabric(&self) -> Arc<dyn Fabric> {
        Arc::clone(&self.switch) as Arc<dyn Fabric>
    }

    async fn destroy(&mut self) -> Result<(), Error> {
        let gone = |cause: String| Error::Sandbox {
            stage: "it was destroyed".to_owned(),
            cause,
        };
        self.control
            .shutdown(Shutdown::Both)
            .map_err(|error| gone(format!("its channel cannot be closed: {error}")))?;
        let Some(exited) = self.exited.take() else {
            return Ok(());
        };
        match tokio::time::timeout(DESTROY_LIMIT, exited).await {
            Ok(Ok(Ok(_))) => Ok(()),
            Ok(Ok(Err(error))) => Err(gone(error.to_string())),
            Ok(Err(_)) => Err(gone("nobody waited for it".to_owned())),
            Err(_) => Err(gone(format!("it still lives after {DESTROY_LIMIT:?}"))),
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Already shut down when `destroy` came first.
        let _ = self.control.shutdown(Shutdown::Both);
    }
}

/// The switch inside the sandbox, reached over the control channel.
#[derive(Debug)]
struct Switch {
    peer: Arc<Peer>,
}

#[async_trait]
impl Fabric for Switch {
    async fn apply(&self, matrix: &LinkMatrix) -> Result<Applied, Error> {
        let request = SandboxRequest::Apply {
            links: matrix.harmed()?,
        };
        match self.peer.call(request, Bytes::new()).await?.0 {
            SandboxReply::Applied { at_ns, generation } => Ok(Applied { at_ns, generation }),
            other => Err(self.peer.broken(format!("answered with {other:?}"))),
        }
    }

    async fn counters(&self) -> Result<LinkCounters, Error> {
        match self
            .peer
            .call(SandboxRequest::Counters, Bytes::new())
            .await?
            .0
        {
            SandboxReply::Counters(counters) => Ok(counters),
            other => Err(self.peer.broken(format!("answered with {other:?}"))),
        }
    }
}
