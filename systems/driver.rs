//! The main loop of a client program: lines in, operations done side by side, lines out.
//!
//! One worker, a task with a [`Client`] of its own, for each thread that invocations name. All of
//! them run on one operating system thread, so that a client process is frozen as a whole and has
//! no locks. Answers are gathered in one buffer that is written whenever the harness reads.
//!
//! The loop ends with success at the end of input, and with an error at a line that it cannot read:
//! the harness is broken then, and to guess would falsify a history.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::rc::Rc;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc};
use tokio::task::LocalSet;

use crate::Error;
use crate::client::{Client, ClientProgram, Failure, Op, Patience, Setup};
use crate::protocol::{ClientHello, Hello, Reply, Request, Unasked};

/// How many operations one client process has open at once; when there are more it stops reading.
pub const IN_FLIGHT_MAX: u32 = 4_096;

/// How much is read at a time, in bytes.
const READ_BYTES: usize = 64 << 10;

/// The variable that names the descriptor to talk on instead of standard input and output.
pub const CLIENT_FD: &str = "SCHISM_CLIENT_FD";

/// Runs `schism client --system NAME` until its input ends.
///
/// # Errors
/// [`Error::Client`] if the harness says what the protocol does not allow, asks for another system,
/// or cannot be read or written.
pub fn run_client(program: &dyn ClientProgram) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Client(format!("cannot start a runtime: {error}")))?;
    // Not `block_on` and then drop: a blocked read of standard input would never end.
    let ended = LocalSet::new().block_on(&runtime, async {
        let (input, output) = channels()?;
        serve(program, input, output).await
    });
    runtime.shutdown_background();
    ended
}

type Input = Box<dyn AsyncRead + Unpin>;
type Output = Box<dyn AsyncWrite + Unpin>;

/// Where lines come from and go to.
fn channels() -> Result<(Input, Output), Error> {
    let unusable = |error: io::Error| Error::Client(format!("cannot talk to the harness: {error}"));
    if let Some(fd) = std::env::var_os(CLIENT_FD) {
        let number = fd.to_str().and_then(|fd| fd.parse::<RawFd>().ok());
        let number = number
            .filter(|&fd| fd > 2 && is_socket(fd))
            .ok_or_else(|| {
                let problem = format!("{CLIENT_FD} is {fd:?}, which is no socket above 2");
                Error::Client(problem)
            })?;
        // SAFETY: the descriptor is open, as was just seen, and by the variable whoever started
        // this program promised it to us; this function runs once.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true).map_err(unusable)?;
        let (input, output) = UnixStream::from_std(socket).map_err(unusable)?.into_split();
        return Ok((Box::new(input), Box::new(output)));
    }
    let input = owned(io::stdin()).map_err(unusable)?;
    let output = owned(io::stdout()).map_err(unusable)?;
    // Pipes, the usual case, are waited for directly; a terminal or a file is read by a thread.
    let input: Input = match pipe::Receiver::from_owned_fd(input) {
        Ok(pipe) => Box::new(pipe),
        Err(_) => Box::new(tokio::io::stdin()),
    };
    let output: Output = match pipe::Sender::from_owned_fd(output) {
        Ok(pipe) => Box::new(pipe),
        Err(_) => Box::new(tokio::io::stdout()),
    };
    Ok((input, output))
}

fn is_socket(fd: RawFd) -> bool {
    let metadata = std::fs::metadata(format!("/proc/self/fd/{fd}"));
    metadata.is_ok_and(|metadata| metadata.file_type().is_socket())
}

fn owned(stream: impl AsFd) -> io::Result<OwnedFd> {
    stream.as_fd().try_clone_to_owned()
}

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub struct Outbox {
    lines: RefCell<Vec<u8>>,
    filled: Notify,
    in_flight: Cell<u32>,
    answered: Notify,
    closed: Cell<bool>,
}

impl Outbox {
    fn push(&self, reply: &Reply<'_>) {
        reply.write(&mut self.lines.borrow_mut());
        self.filled.notify_one();
    }

    fn answer(&self, id: u64, result: Result<Value, Failure>) {
        self.push(&match result {
            Ok(value) => Reply::Ok { id, value },
            Err(Failure::Definite(error)) => Reply::Fail { id, error },
            Err(Failure::Indefinite(error)) => Reply::Info { id, error },
        });
        self.in_flight.set(self.in_flight.get() - 1);
        self.answered.notify_one();
    }

    /// Tells something unasked.
    pub fn event(&self, event: Unasked<'_>) {
        self.push(&Reply::Event(event));
    }

    /// Writes lines as they come, until the box is closed and empty.
    async fn drain(&self, mut output: impl AsyncWrite + Unpin) -> Result<(), Error> {
        let failed = |error| Error::Client(format!("cannot answer: {error}"));
        let mut batch = Vec::new();
        while !(self.closed.get() && self.lines.borrow().is_empty()) {
            self.filled.notified().await;
            std::mem::swap(&mut batch, &mut self.lines.borrow_mut());
            output.write_all(&batch).await.map_err(failed)?;
            output.flush().await.map_err(failed)?;
            batch.clear();
        }
        Ok(())
    }

    /// Nothing will be put in any more.
    fn close(&self) {
        self.closed.set(true);
        self.filled.notify_one();
    }

    /// Counts a new operation, when there is room for it.
    async fn admit(&self) {
        while self.in_flight.get() >= IN_FLIGHT_MAX {
            self.answered.notified().await;
        }
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// Waits until every operation is answered.
    async fn settle(&self) {
        while self.in_flight.get() > 0 {
            self.answered.notified().await;
        }
    }
}

/// Talks until the input ends.
async fn serve(
    program: &dyn ClientProgram,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> Result<(), Error> {
    let outbox = Rc::new(Outbox::default());
    let listening = async {
        listen(program, Lines::new(input), &outbox).await?;
        outbox.close();
        Ok(())
    };
    tokio::try_join!(listening, outbox.drain(output)).map(|((), ())| ())
}

async fn listen<R: AsyncRead + Unpin>(
    program: &dyn ClientProgram,
    mut lines: Lines<R>,
    outbox: &Rc<Outbox>,
) -> Result<(), Error> {
    let Some(line) = lines.next().await? else {
        return Ok(());
    };
    let Request::Hello(hello) = Request::parse(line).map_err(Error::Protocol)? else {
        let problem = "the first line must be a `hello`";
        return Err(Error::Client(problem.to_owned()));
    };
    let setup = greet(program, *hello, outbox)?;
    let mut workers: HashMap<u64, mpsc::UnboundedSender<Op>> = HashMap::new();
    while let Some(line) = lines.next().await? {
        let invoke = match Request::parse(line).map_err(Error::Protocol)? {
            Request::Invoke(invoke) => invoke,
            Request::Hello(_) => return Err(Error::Client("a second `hello`".to_owned())),
        };
        outbox.admit().await;
        let (id, thread) = (invoke.id, invoke.thread);
        match Op::new(invoke, &setup.nodes) {
            Err(failure) => outbox.answer(id, Err(failure)),
            Ok(op) => {
                let worker = match workers.entry(thread) {
                    Entry::Occupied(worker) => worker.into_mut(),
                    Entry::Vacant(place) => {
                        let client = program.client(&setup, thread)?;
                        let (ops, taken) = mpsc::unbounded_channel();
                        tokio::task::spawn_local(work(client, taken, Rc::clone(outbox)));
                        place.insert(ops)
                    }
                };
                let sent = worker.send(op);
                sent.expect("a worker lives for as long as its queue");
            }
        }
    }
    // Nobody will ask any more. What is open ends soon: every operation has a timeout.
    outbox.settle().await;
    Ok(())
}

/// Checks the hello and answers it.
fn greet(
    program: &dyn ClientProgram,
    hello: Hello,
    outbox: &Rc<Outbox>,
) -> Result<Rc<Setup>, Error> {
    if hello.system != program.name() {
        return Err(Error::Client(format!(
            "asked to test `{}`, but this is the client of `{}`",
            hello.system,
            program.name()
        )));
    }
    let can = program.functions(&hello.workload);
    let setup = Rc::new(Setup::new(hello, Rc::clone(outbox))?);
    // Parameters that the client cannot take are refused now, not at the first operation.
    drop(program.client(&setup, 0)?);
    outbox.push(&Reply::Hello(ClientHello {
        client: format!("schism-{} {}", program.name(), env!("CARGO_PKG_VERSION")),
        can: can.iter().map(|&f| f.to_owned()).collect(),
        max_in_flight: IN_FLIGHT_MAX,
    }));
    Ok(setup)
}

/// Does the operations of one worker, one after another.
async fn work(
    mut client: Box<dyn Client>,
    mut ops: mpsc::UnboundedReceiver<Op>,
    outbox: Rc<Outbox>,
) {
    while let Some(op) = ops.recv().await {
        let mut patience = Patience::new(op.timeout);
        let result = client.invoke(&op, &mut patience).await;
        outbox.answer(op.id, result);
    }
}

/// Cuts a stream into lines without copying them.
struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Up to where no end of line is, at least `start`.
    searched: usize,
    /// How much of the buffer is filled.
    end: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(input: R) -> Lines<R> {
        Lines {
            input,
            buffer: vec![0; READ_BYTES],
            start: 0,
            searched: 0,
            end: 0,
        }
    }

    /// The next line without its end; `None` at the end of input. What follows the last end of line
    /// is a torn line and dropped.
    async fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        loop {
            let unsearched = &self.buffer[self.searched..self.end];
            if let Some(length) = memchr::memchr(b'\n', unsearched) {
                let line = self.start..self.searched + length;
                self.start = line.end + 1;
                self.searched = self.start;
                return Ok(Some(&self.buffer[line]));
            }
            self.searched = self.end;
            self.buffer.copy_within(self.start..self.end, 0);
            (self.end, self.searched) = (self.end - self.start, self.searched - self.start);
            self.start = 0;
            if self.end == self.buffer.len() {
                self.buffer.resize(2 * self.end, 0);
            }
            let read = self.input.read(&mut self.buffer[self.end..]).await;
            match read.map_err(|error| Error::Client(format!("cannot read: {error}")))? {
                0 => return Ok(None),
                n => self.end += n,
            }
        }
    }
}
