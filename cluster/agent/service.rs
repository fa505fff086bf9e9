//! Services and client processes of a node: started, watched, signalled. How their trees are kept
//! together is in `shim.rs`, how they are frozen in `freeze.rs`.

mod clocks;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::unistd::pipe2;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::shim::{self, Launched, Program, Stdio};
use super::{blocking, files, freeze, report, tree};
use crate::channel::{PipeReader, PipeWriter, Wire, lock};
use crate::clock::monotonic_ns;
use crate::error::{Refusal, RefusalKind};
use crate::evidence::{FreezeEvidence, KillEvidence, ProcessState, ThawEvidence};
use crate::protocol::{Exit, NodeEventKind, ServiceSpec};

/// How long a tree may take to disappear after SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// How much is read from a client's standard output at once.
const READ_BYTES: usize = 64 << 10;

#[derive(Clone)]
struct Service {
    shim: i32,
    gone: watch::Receiver<bool>,
}

enum Entry {
    /// Being executed; nobody else may take the name.
    Starting,
    Started(Service),
}

/// All services of a node, by name.
pub(super) struct Services {
    table: Mutex<HashMap<String, Entry>>,
    wire: Arc<Wire>,
    skews: clocks::Skews,
}

impl Services {
    pub(super) fn new(wire: Arc<Wire>, waits: Arc<tokio::sync::Mutex<()>>) -> Self {
        Self {
            table: Mutex::default(),
            wire,
            skews: clocks::Skews::new(waits),
        }
    }

    /// Starts a service; with a stream, its standard input and output are relayed.
    pub(super) async fn start(
        &self,
        dir: &Path,
        spec: ServiceSpec,
        stream: Option<u32>,
    ) -> Result<i32, Refusal> {
        let name = spec.name.clone();
        self.settle(&name).await?;
        self.reserve(&name)?;
        // The ends exist before the answer is sent: what the client says first must find them.
        let relay = stream.map(|id| self.wire.stream(id));
        let log = files::inside(dir, &spec.log);
        let launched = blocking(move || launch(&spec, &log?, stream.is_some())).await;
        let (launched, ours) = match launched {
            Ok(launched) => launched,
            Err(refusal) => {
                lock(&self.table).remove(&name);
                return Err(refusal);
            }
        };
        if let (Some((writer, reader)), Some((stdin, stdout))) = (relay, ours) {
            tokio::spawn(relay_out(stdout, writer));
            tokio::spawn(relay_in(reader, stdin));
        }
        let (is_gone, gone) = watch::channel(false);
        let Launched { shim, pid, status } = launched;
        lock(&self.table).insert(name.clone(), Entry::Started(Service { shim, gone }));
        tokio::spawn(watch_status(
            name,
            pid,
            status,
            is_gone,
            Arc::clone(&self.wire),
        ));
        Ok(pid)
    }

    /// When no process of an earlier service of this name is left, waits until its shim has seen
    /// that, too: whoever looked and saw none may start it again.
    async fn settle(&self, name: &str) -> Result<(), Refusal> {
        if let Ok(mut service) = self.find(name)
            && blocking({
                let service = service.clone();
                move || service.look()
            })
            .await?
            .is_empty()
        {
            let _ = tokio::time::timeout(KILL_LIMIT, service.ended()).await;
        }
        Ok(())
    }

    fn reserve(&self, name: &str) -> Result<(), Refusal> {
        let mut table = lock(&self.table);
        let free = match table.get(name) {
            None => true,
            Some(Entry::Starting) => false,
            Some(Entry::Started(service)) => *service.gone.borrow(),
        };
        if !free {
            let message = format!("`{name}` has living processes on this node");
            return Err(Refusal::new(RefusalKind::AlreadyRunning, message));
        }
        table.insert(name.to_owned(), Entry::Starting);
        Ok(())
    }

    fn find(&self, name: &str) -> Result<Service, Refusal> {
        match lock(&self.table).get(name) {
            Some(Entry::Started(service)) => Ok(service.clone()),
            _ => {
                let message = format!("no service `{name}` was started on this node");
                Err(Refusal::new(RefusalKind::NoSuchService, message))
            }
        }
    }

    pub(super) async fn processes(&self, name: &str) -> Result<Vec<ProcessState>, Refusal> {
        let service = self.find(name)?;
        blocking(move || service.look()).await
    }

    pub(super) async fn freeze(&self, name: &str) -> Result<FreezeEvidence, Refusal> {
        let service = self.find(name)?;
        let name = name.to_owned();
        blocking(move || freeze::freeze(&name, &|| service.look())).await
    }

    pub(super) async fn thaw(&self, name: &str) -> Result<ThawEvidence, Refusal> {
        let service = self.find(name)?;
        let name = name.to_owned();
        blocking(move || freeze::thaw(&name, &|| service.look())).await
    }

    pub(super) async fn kill(&self, name: &str, signal: i32) -> Result<KillEvidence, Refusal> {
        let Ok(signal) = Signal::try_from(signal) else {
            let message = format!("{signal} is not a signal");
            return Err(Refusal::new(RefusalKind::BadRequest, message));
        };
        let service = self.find(name)?;
        let target = service.clone();
        let evidence = blocking(move || target.signal(signal)).await?;
        if evidence.processes.is_empty() {
            let message = format!("`{name}` has no living process to signal");
            return Err(Refusal::new(RefusalKind::NotRunning, message));
        }
        if signal != Signal::SIGKILL {
            return Ok(evidence);
        }
        self.see_the_end(name, service, evidence).await
    }

    pub(super) async fn stop(&self, name: &str, grace: Duration) -> Result<KillEvidence, Refusal> {
        let mut service = self.find(name)?;
        let target = service.clone();
        let owned = name.to_owned();
        let evidence = blocking(move || {
            let evidence = target.signal(Signal::SIGTERM)?;
            // A stopped process would only get the signal when it continues.
            freeze::thaw(&owned, &|| target.look())?;
            Ok(evidence)
        })
        .await?;
        if tokio::time::timeout(grace, service.ended()).await.is_ok() {
            return Ok(evidence.after(Signal::SIGTERM));
        }
        let target = service.clone();
        let killed = blocking(move || target.signal(Signal::SIGKILL)).await?;
        self.see_the_end(
            name,
            service,
            KillEvidence {
                signal: killed.signal,
                ..evidence
            },
        )
        .await
    }

    /// Waits until nothing of a killed service is left. What is born meanwhile is killed too.
    async fn see_the_end(
        &self,
        name: &str,
        mut service: Service,
        evidence: KillEvidence,
    ) -> Result<KillEvidence, Refusal> {
        let target = service.clone();
        let all_killed = async {
            while tokio::time::timeout(Duration::from_millis(2), service.ended())
                .await
                .is_err()
            {
                let target = target.clone();
                blocking(move || target.signal(Signal::SIGKILL)).await?;
            }
            Ok::<_, Refusal>(())
        };
        match tokio::time::timeout(KILL_LIMIT, all_killed).await {
            Ok(result) => result.map(|()| evidence.after(Signal::SIGKILL)),
            Err(_) => {
                let message = format!("`{name}` still lives {KILL_LIMIT:?} after SIGKILL");
                Err(Refusal::new(RefusalKind::NotVerified, message))
            }
        }
    }

    /// Thaws and kills everything; called when the controller is gone.
    pub(super) fn end_all(&self) {
        for (name, entry) in lock(&self.table).iter() {
            if let Entry::Started(service) = entry {
                let killed = service.signal(Signal::SIGKILL);
                let thawed = freeze::thaw(name, &|| service.look());
                if let Some(refusal) = killed.err().or(thawed.err()) {
                    eprintln!("agent: {refusal}");
                }
            }
        }
    }
}

impl Service {
    /// Its living processes. The number of a shim that has ended may belong to another by now.
    fn look(&self) -> Result<Vec<ProcessState>, Refusal> {
        if *self.gone.borrow() {
            return Ok(Vec::new());
        }
        tree::descendants(self.shim).map_err(Refusal::io("read /proc"))
    }

    fn signal(&self, signal: Signal) -> Result<KillEvidence, Refusal> {
        let asked_ns = monotonic_ns();
        let processes = self.look()?;
        for process in &processes {
            freeze::send(process.pid, signal)?;
        }
        let evidence = KillEvidence {
            signal: signal as i32,
            asked_ns,
            at_ns: 0,
            processes,
            gone: false,
        };
        Ok(evidence.after(signal))
    }

    async fn ended(&mut self) {
        // The watcher only goes away after it has said so.
        let _ = self.gone.wait_for(|gone| *gone).await;
    }
}

impl KillEvidence {
    /// The same, with another look at what was signalled.
    fn after(self, signal: Signal) -> Self {
        let gone = !self.processes.iter().any(tree::exists);
        Self {
            signal: signal as i32,
            at_ns: monotonic_ns(),
            gone,
            ..self
        }
    }
}

/// Our ends of a client's standard input and output.
type Ends = Option<(OwnedFd, OwnedFd)>;

fn launch(spec: &ServiceSpec, log: &Path, piped: bool) -> Result<(Launched, Ends), Refusal> {
    let program = Program::new(&spec.argv, &spec.env)?;
    files::make_parents(log)?;
    let log: OwnedFd = OpenOptions::new()
        .append(true)
        .create(true)
        .open(log)
        .map_err(Refusal::io(format!("open the log of `{}`", spec.name)))?
        .into();
    let again = |fd: &OwnedFd| {
        fd.as_fd()
            .try_clone_to_owned()
            .map_err(Refusal::io("copy a log"))
    };
    let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|error| Refusal::io("make a pipe")(error.into()));
    let (stdio, ends) = if piped {
        let ((stdin, to_stdin), (from_stdout, stdout)) = (pipe()?, pipe()?);
        (
            Stdio {
                stdin,
                stdout,
                stderr: log,
            },
            Some((to_stdin, from_stdout)),
        )
    } else {
        let stdin = File::open("/dev/null")
            .map_err(Refusal::io("open /dev/null"))?
            .into();
        (
            Stdio {
                stdin,
                stdout: again(&log)?,
                stderr: log,
            },
            None,
        )
    };
    Ok((shim::launch(&program, stdio)?, ends))
}

/// Hears from the shim how the main process ended, and that all have.
async fn watch_status(
    service: String,
    pid: i32,
    status: OwnedFd,
    is_gone: watch::Sender<bool>,
    wire: Arc<Wire>,
) {
    if let Ok(mut status) = pipe::Receiver::from_owned_fd(status) {
        let mut word = [0; 4];
        if status.read_exact(&mut word).await.is_ok() {
            let exit = decode_exit(i32::from_ne_bytes(word));
            let at_ns = monotonic_ns();
            let service = service.clone();
            report(
                &wire,
                NodeEventKind::ServiceExit {
                    service,
                    pid,
                    exit,
                    at_ns,
                },
            );
        }
        let _ = status.read(&mut word).await;
    }
    is_gone.send_replace(true);
    report(&wire, NodeEventKind::ServiceGone { service });
}

fn decode_exit(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
}

/// From a client's standard output to the controller.
async fn relay_out(stdout: OwnedFd, writer: PipeWriter) {
    let Ok(mut stdout) = pipe::Receiver::from_owned_fd(stdout) else {
        return;
    };
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(READ_BYTES);
        match stdout.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                if writer.write(buffer.split().freeze()).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// From the controller to a client's standard input.
async fn relay_in(mut reader: PipeReader, stdin: OwnedFd) {
    let Ok(mut stdin) = pipe::Sender::from_owned_fd(stdin) else {
        return;
    };
    while let Some(first) = reader.read().await {
        // Small pieces that are here already go into one system call.
        let mut bytes: Bytes = first;
        if bytes.len() < READ_BYTES / 4 {
            let mut gathered = BytesMut::from(&bytes[..]);
            while gathered.len() < READ_BYTES
                && let Some(next) = reader.read_ready()
            {
                gathered.extend_from_slice(&next);
            }
            bytes = gathered.freeze();
        }
        if stdin.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
