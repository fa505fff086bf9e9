//! The agent: what runs on every node and does what the controller asks. This is what
//! `schism agent` runs; on the local backend it is pid 1 of the node's pid namespace. What can be
//! asked is in `protocol.rs`; each kind of doing has a file here.
//!
//! If the channel ends, for whatever reason, the agent thaws everything, kills everything it started,
//! and ends itself: a controller that dies leaves no broken node behind.

pub(crate) mod clock;
mod files;
mod freeze;
mod http;
mod measure;
mod probe;
mod service;
mod shim;
mod tree;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

use crate::channel::Wire;
use crate::error::{Refusal, RefusalKind};
use crate::local::node_addr;
use crate::protocol::{AgentEvent, FromPeer, NodeEventKind, Reply, Request, ToPeer};

/// The hidden subcommand by which a program becomes an agent.
pub const SUBCOMMAND: &str = "agent";

/// Runs the agent: `schism agent NODE INDEX CHANNEL_FD DIR`. Returns when the channel has ended.
#[must_use]
pub fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(2).collect();
    let [name, index, channel, dir] = &args[..] else {
        eprintln!("schism agent is started by schism itself");
        return ExitCode::from(2);
    };
    let (Ok(index), Ok(channel)) = (index.parse::<u8>(), channel.parse::<i32>()) else {
        eprintln!("schism agent: not an index and a descriptor: {index} {channel}");
        return ExitCode::from(2);
    };
    let addr = IpAddr::V4(node_addr(usize::from(index)));
    match run(name, addr, channel, dir.into()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("agent {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, addr: IpAddr, channel: i32, dir: PathBuf) -> std::io::Result<()> {
    prctl::set_name(c"schism-agent")?;
    // Orphans of services come to us even where we are not pid 1.
    prctl::set_child_subreaper(true)?;
    // SAFETY: the descriptor was passed to this process to be its channel; nothing else uses it.
    let channel = unsafe { OwnedFd::from_raw_fd(channel) };
    fcntl(&channel, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let channel = StdUnixStream::from(channel);
    channel.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let (wire, read, _) = Wire::new(UnixStream::from_std(channel)?);
        let waits = Arc::new(tokio::sync::Mutex::new(()));
        let agent = Arc::new(Agent {
            name: name.to_owned(),
            dir,
            services: service::Services::new(Arc::clone(&wire), Arc::clone(&waits)),
            probes: probe::Probes::open(addr).await?,
            wire: Arc::clone(&wire),
        });
        tokio::spawn(reap(signal(SignalKind::child())?, waits));
        let keeper = Arc::clone(&agent);
        tokio::spawn(async move { keeper.services.keep_clocks().await });
        agent.event(&AgentEvent::Ready {
            pid: std::process::id(),
        });
        let reason = wire
            .pump(read, |json, blob| {
                let message: ToPeer<Request> =
                    serde_json::from_slice(&json).map_err(|error| error.to_string())?;
                tokio::spawn(Arc::clone(&agent).answer(message, blob));
                Ok(())
            })
            .await;
        eprintln!("agent {}: the channel ended: {reason}", agent.name);
        agent.services.end_all();
        Ok(())
    });
    // Work that still blocks must not keep a node alive that nobody controls.
    runtime.shutdown_background();
    served
}

/// Collects the shims of services, and, as pid 1, whatever was orphaned past them; but not while
/// somebody else waits for a process that it has stopped, for the kernel reports both alike.
async fn reap(mut deaths: tokio::signal::unix::Signal, waits: Arc<tokio::sync::Mutex<()>>) {
    while deaths.recv().await.is_some() {
        let _waits = waits.lock().await;
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => break,
                _ => {}
            }
        }
    }
}

/// What the agent of one node knows.
struct Agent {
    name: String,
    dir: PathBuf,
    services: service::Services,
    probes: probe::Probes,
    wire: Arc<Wire>,
}

type Answer = Result<(Reply, Bytes), Refusal>;

impl Agent {
    fn event(&self, event: &AgentEvent) {
        self.wire.message(FromPeer::event(event), Bytes::new());
    }

    async fn answer(self: Arc<Self>, message: ToPeer<Request>, blob: Bytes) {
        let (result, blob) = match self.act(message.call, blob).await {
            Ok((reply, blob)) => (Ok(reply), blob),
            Err(refusal) => (Err(refusal), Bytes::new()),
        };
        self.wire
            .message(FromPeer::answer(message.id, result), blob);
    }

    async fn act(self: &Arc<Self>, request: Request, blob: Bytes) -> Answer {
        let services = &self.services;
        let reply = match request {
            Request::PutFile {
                path,
                offset,
                total,
                mode,
            } => {
                let path = files::inside(&self.dir, &path)?;
                blocking(move || files::put(&path, offset, total, mode, &blob)).await?;
                Reply::Done
            }
            Request::Start { spec } => Reply::Pid(services.start(&self.dir, spec, None).await?),
            Request::Spawn { spec, stream } => {
                Reply::Pid(services.start(&self.dir, spec, Some(stream)).await?)
            }
            Request::Freeze { service } => Reply::Frozen(services.freeze(&service).await?),
            Request::Thaw { service } => Reply::Thawed(services.thaw(&service).await?),
            Request::Skew { service, offset_ns } => {
                Reply::Clocks(services.skew(&service, offset_ns).await?)
            }
            Request::Unskew { service } => Reply::Clocks(services.unskew(&service).await?),
            Request::Clocks { service } => Reply::Clocks(services.clocks(&service).await?),
            Request::Kill { service, signal } => {
                Reply::Killed(services.kill(&service, signal).await?)
            }
            Request::Stop { service, grace } => {
                Reply::Killed(services.stop(&service, grace).await?)
            }
            Request::Processes { service } => Reply::Processes(services.processes(&service).await?),
            Request::Http(head) => return http::perform(head, blob).await,
            Request::Fetch { path, offset, len } => {
                let path = files::inside(&self.dir, &path)?;
                let bytes = blocking(move || files::read(&path, offset, len)).await?;
                return Ok((Reply::Bytes, bytes));
            }
            Request::Tail { path, lines } => {
                let path = files::inside(&self.dir, &path)?;
                Reply::Text(blocking(move || files::tail(&path, lines)).await?)
            }
            Request::ListFiles => {
                let dir = self.dir.clone();
                Reply::Files(blocking(move || files::list(&dir)).await?)
            }
            Request::SendProbe { to, nonce, count } => {
                self.probes
                    .send(SocketAddr::new(to, probe::PORT), nonce, count)
                    .await?;
                Reply::Done
            }
            Request::ProbeCount { nonce } => Reply::Count(self.probes.count(nonce)),
            Request::Measure(measurement) => {
                Reply::Measured(blocking(move || measure::perform(&measurement)).await?)
            }
        };
        Ok((reply, Bytes::new()))
    }
}

/// Does something that blocks without holding up the streams.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Refusal::new(RefusalKind::Io, error.to_string())))
}

fn report(wire: &Wire, kind: NodeEventKind) {
    wire.message(FromPeer::event(&AgentEvent::Node(kind)), Bytes::new());
}
