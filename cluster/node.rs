//! A node as the controller sees it: every method asks the node's agent and returns what it saw.
//! What the agent does is in `agent/`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::channel::{Peer, PipeReader, PipeWriter};
use crate::error::Error;
use crate::evidence::{ClockEvidence, FreezeEvidence, KillEvidence, ProcessState, ThawEvidence};
use crate::protocol::{
    FileEntry, HttpHead, Measured, Measurement, NodeEventKind, Reply, Request, ServiceSpec,
};

/// How much of a file travels in one message.
const CHUNK_BYTES: usize = 1 << 20;
/// How long [`Node::stop`] lets a service end by itself.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Something that happened on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvent {
    /// The node's name.
    pub node: String,
    /// What happened.
    pub kind: NodeEventKind,
}

/// An HTTP/1.1 request, made from inside the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// `GET`, `POST`, ...
    pub method: String,
    /// Whom to connect to.
    pub addr: SocketAddr,
    /// The path with its query.
    pub path: String,
    /// Further header fields; `host` and `content-length` are set.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// For connecting, sending and receiving together.
    pub timeout: Duration,
}

/// The answer to an [`HttpRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The whole body.
    pub body: Bytes,
}

/// A client process and its standard input and output. Its standard error goes to its log.
#[derive(Debug)]
pub struct Pipe {
    /// Its process id, in the node's pid namespace.
    pub pid: i32,
    /// To its standard input; dropping this is end of file.
    pub stdin: PipeWriter,
    /// From its standard output.
    pub stdout: PipeReader,
}

/// One node of a cluster. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    index: usize,
    addr: IpAddr,
    dir: PathBuf,
    peer: Arc<Peer>,
}

impl Node {
    pub(crate) fn new(
        name: String,
        index: usize,
        addr: IpAddr,
        dir: PathBuf,
        peer: Arc<Peer>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                name,
                index,
                addr,
                dir,
                peer,
            }),
        }
    }

    /// The node's name, which is also its host name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its place in the cluster, and in a [`LinkMatrix`](crate::LinkMatrix).
    #[must_use]
    pub fn index(&self) -> usize {
        self.inner.index
    }

    /// Its address in the emulated network.
    #[must_use]
    pub fn addr(&self) -> IpAddr {
        self.inner.addr
    }

    /// Its directory. On the local backend nodes see it under the same path, and their processes
    /// have it as working directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    async fn ask(&self, request: Request, blob: Bytes) -> Result<(Reply, Bytes), Error> {
        self.inner.peer.call(request, blob).await
    }

    async fn ask_plain(&self, request: Request) -> Result<Reply, Error> {
        Ok(self.ask(request, Bytes::new()).await?.0)
    }

    fn unexpected(&self, reply: &Reply) -> Error {
        self.inner.peer.broken(format!("answered with {reply:?}"))
    }

    pub(crate) fn close(&self) {
        self.inner.peer.close();
    }

    /// Writes a file, relative to the node's directory, making its folders. It appears whole.
    ///
    /// # Errors
    /// [`Error::Refused`] when the path leaves the directory or the file system refuses.
    pub async fn put_file(
        &self,
        path: &str,
        bytes: impl Into<Bytes>,
        mode: u32,
    ) -> Result<(), Error> {
        let mut rest = bytes.into();
        let total = rest.len() as u64;
        let mut offset = 0;
        loop {
            let piece = rest.split_to(rest.len().min(CHUNK_BYTES));
            let len = piece.len() as u64;
            let request = Request::PutFile {
                path: path.to_owned(),
                offset,
                total,
                mode,
            };
            self.ask(request, piece).await?;
            offset += len;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Starts a service and returns the id of its main process, in the node's pid namespace.
    ///
    /// # Errors
    /// [`Error::Refused`] when it cannot be executed, or one of that name is still alive.
    pub async fn start(&self, spec: &ServiceSpec) -> Result<i32, Error> {
        match self
            .ask_plain(Request::Start { spec: spec.clone() })
            .await?
        {
            Reply::Pid(pid) => Ok(pid),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Starts a client process with its standard input and output connected to the controller.
    /// In everything else it is a service: it can be frozen, killed and stopped by its name.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub async fn spawn(&self, spec: &ServiceSpec) -> Result<Pipe, Error> {
        let (stream, stdin, stdout) = self.inner.peer.open_stream();
        match self
            .ask_plain(Request::Spawn {
                spec: spec.clone(),
                stream,
            })
            .await?
        {
            Reply::Pid(pid) => Ok(Pipe { pid, stdin, stdout }),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Freezes every process of a service and returns when a look at `/proc` found all of them
    /// frozen.
    ///
    /// # Errors
    /// [`Error::Refused`] when it does not run, or did not freeze in time (then it is thawed).
    pub async fn freeze(&self, service: &str) -> Result<FreezeEvidence, Error> {
        match self
            .ask_plain(Request::Freeze {
                service: service.to_owned(),
            })
            .await?
        {
            Reply::Frozen(evidence) => Ok(evidence),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Thaws what [`Node::freeze`] froze. A service that is not frozen stays as it is.
    ///
    /// # Errors
    /// [`Error::Refused`] when a process did not wake in time.
    pub async fn thaw(&self, service: &str) -> Result<ThawEvidence, Error> {
        match self
            .ask_plain(Request::Thaw {
                service: service.to_owned(),
            })
            .await?
        {
            Reply::Thawed(evidence) => Ok(evidence),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Moves the wall clock that a service's processes read to so many nanoseconds ahead of the true
    /// time, or behind it if they are negative, and returns when each of them was asked and said so.
    /// What the service executes later, also after another start under its name, is moved within
    /// some tens of milliseconds. Monotonic clocks, timers and the machine's clock are not touched;
    /// a program that asks the kernel past its vDSO is not deceived.
    ///
    /// # Errors
    /// [`Error::Refused`] when it does not run, did not obey in time, or with `Unsupported` when its
    /// clock cannot be moved. Then no process of it is moved.
    pub async fn skew(&self, service: &str, offset_ns: i64) -> Result<ClockEvidence, Error> {
        let service = service.to_owned();
        self.ask_clocks(Request::Skew { service, offset_ns }).await
    }

    /// Gives a service its true clock back. One whose clock was not moved stays as it is.
    ///
    /// # Errors
    /// [`Error::Refused`] when a process of it could not be changed in time.
    pub async fn unskew(&self, service: &str) -> Result<ClockEvidence, Error> {
        let service = service.to_owned();
        self.ask_clocks(Request::Unskew { service }).await
    }

    /// What the wall clocks of a service's processes say.
    ///
    /// # Errors
    /// [`Error::Refused`] when no service of that name was ever started, or the clock of what it
    /// executed could not be moved as that of the others.
    pub async fn clocks(&self, service: &str) -> Result<ClockEvidence, Error> {
        let service = service.to_owned();
        self.ask_clocks(Request::Clocks { service }).await
    }

    async fn ask_clocks(&self, request: Request) -> Result<ClockEvidence, Error> {
        match self.ask_plain(request).await? {
            Reply::Clocks(evidence) => Ok(evidence),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Sends a signal to every process of a service. After SIGKILL it returns when all are gone.
    ///
    /// # Errors
    /// [`Error::Refused`] when it does not run, or SIGKILL did not end it in time.
    pub async fn kill(&self, service: &str, signal: i32) -> Result<KillEvidence, Error> {
        let request = Request::Kill {
            service: service.to_owned(),
            signal,
        };
        match self.ask_plain(request).await? {
            Reply::Killed(evidence) => Ok(evidence),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Ends a service: thaws it, SIGTERM, five seconds of grace, then SIGKILL to what is left.
    ///
    /// # Errors
    /// [`Error::Refused`] when even SIGKILL did not end it in time.
    pub async fn stop(&self, service: &str) -> Result<KillEvidence, Error> {
        let request = Request::Stop {
            service: service.to_owned(),
            grace: STOP_GRACE,
        };
        match self.ask_plain(request).await? {
            Reply::Killed(evidence) => Ok(evidence),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Every living process of a service: its main process, its children, and its orphans.
    ///
    /// # Errors
    /// [`Error::Refused`] when no service of that name was ever started.
    pub async fn processes(&self, service: &str) -> Result<Vec<ProcessState>, Error> {
        match self
            .ask_plain(Request::Processes {
                service: service.to_owned(),
            })
            .await?
        {
            Reply::Processes(processes) => Ok(processes),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Makes an HTTP request from inside the node, once: it is never retried.
    ///
    /// # Errors
    /// [`Error::Refused`] with `Timeout` or `Unreachable`.
    pub async fn http(&self, request: &HttpRequest) -> Result<HttpResponse, Error> {
        let head = HttpHead {
            method: request.method.clone(),
            addr: request.addr,
            path: request.path.clone(),
            headers: request.headers.clone(),
            timeout: request.timeout,
        };
        match self.ask(Request::Http(head), request.body.clone()).await? {
            (Reply::Http { status }, body) => Ok(HttpResponse { status, body }),
            (other, _) => Err(self.unexpected(&other)),
        }
    }

    /// Reads a file from its beginning, at most `bytes_max` of it.
    ///
    /// # Errors
    /// [`Error::Refused`] when it cannot be read.
    pub async fn fetch(&self, path: &str, bytes_max: u64) -> Result<Bytes, Error> {
        let mut file = Vec::new();
        loop {
            let offset = file.len() as u64;
            let len = (bytes_max - offset).min(CHUNK_BYTES as u64);
            let request = Request::Fetch {
                path: path.to_owned(),
                offset,
                len,
            };
            let (reply, piece) = self.ask(request, Bytes::new()).await?;
            let Reply::Bytes = reply else {
                return Err(self.unexpected(&reply));
            };
            file.extend_from_slice(&piece);
            if (piece.len() as u64) < len || file.len() as u64 >= bytes_max {
                return Ok(file.into());
            }
        }
    }

    /// The last lines of a file (of its last 256 KiB, if they are long).
    ///
    /// # Errors
    /// [`Error::Refused`] when it cannot be read.
    pub async fn tail(&self, path: &str, lines: usize) -> Result<String, Error> {
        match self
            .ask_plain(Request::Tail {
                path: path.to_owned(),
                lines,
            })
            .await?
        {
            Reply::Text(text) => Ok(text),
            other => Err(self.unexpected(&other)),
        }
    }

    /// All files below the node's directory, sorted by path.
    ///
    /// # Errors
    /// [`Error::Refused`] when the directory cannot be read.
    pub async fn list_files(&self) -> Result<Vec<FileEntry>, Error> {
        match self.ask_plain(Request::ListFiles).await? {
            Reply::Files(files) => Ok(files),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Sends datagrams to the agent at an address, to see whether a link carries them. Count them
    /// there with [`Node::probe_count`] under the same nonce.
    ///
    /// # Errors
    /// [`Error::Refused`] when the node's own kernel refuses to send.
    pub async fn send_probe(&self, to: IpAddr, nonce: u64, count: u32) -> Result<(), Error> {
        match self
            .ask_plain(Request::SendProbe { to, nonce, count })
            .await?
        {
            Reply::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// How many probes with this nonce have arrived here so far.
    ///
    /// # Errors
    /// [`Error::Closed`] when the node is gone.
    pub async fn probe_count(&self, nonce: u64) -> Result<u64, Error> {
        match self.ask_plain(Request::ProbeCount { nonce }).await? {
            Reply::Count(count) => Ok(count),
            other => Err(self.unexpected(&other)),
        }
    }

    pub(crate) async fn measure(&self, measurement: Measurement) -> Result<Measured, Error> {
        match self.ask_plain(Request::Measure(measurement)).await? {
            Reply::Measured(measured) => Ok(measured),
            other => Err(self.unexpected(&other)),
        }
    }
}
