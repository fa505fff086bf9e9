//! A channel: one long-lived byte stream between the controller and an agent (or the sandbox), shared
//! by any number of outstanding calls and of byte streams. What is said on it is in `protocol.rs`,
//! how it is cut into frames in `frame.rs`.
//!
//! Every stream has a credit window in each direction. A consumer that stops reading therefore stops
//! its own producer and nobody else: a freeze always gets through.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::error::{Error, Refusal};
use crate::frame::Frame;
use crate::protocol::{FromPeer, ToPeer};

/// How far a producer may run ahead of its consumer, in bytes.
const WINDOW_BYTES: usize = 4 << 20;
/// The longest piece of stream data in one frame, so that control messages are never far behind.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// How much is gathered for one write to the socket.
const BATCH_BYTES: usize = 256 << 10;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere must not keep faults from being healed: the tables stay usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One end of a channel: sends messages and owns the table of streams.
#[derive(Debug)]
pub(crate) struct Wire {
    out: mpsc::UnboundedSender<Frame>,
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    inbound: HashMap<u32, mpsc::UnboundedSender<Bytes>>,
    outbound: HashMap<u32, Arc<Semaphore>>,
    closed: bool,
}

impl Wire {
    /// Takes over a connected socket; the returned reader must be driven with [`Wire::pump`].
    pub(crate) fn new(socket: UnixStream) -> (Arc<Self>, OwnedReadHalf, AbortHandle) {
        let (read, write) = socket.into_split();
        let (out, frames) = mpsc::unbounded_channel();
        let writer = tokio::spawn(write_frames(write, frames)).abort_handle();
        (
            Arc::new(Self {
                out,
                streams: Mutex::default(),
            }),
            read,
            writer,
        )
    }

    /// Queues a message. A channel that is closed swallows it: the reader reports the closing.
    pub(crate) fn message(&self, json: Vec<u8>, blob: Bytes) {
        let _ = self.out.send(Frame::Message {
            json: json.into(),
            blob,
        });
    }

    /// Opens this end of a stream; the peer opens the other under the same id.
    pub(crate) fn stream(self: &Arc<Self>, id: u32) -> (PipeWriter, PipeReader) {
        let credit = Arc::new(Semaphore::new(WINDOW_BYTES));
        let (chunks, receiver) = mpsc::unbounded_channel();
        let mut streams = lock(&self.streams);
        if streams.closed {
            credit.close();
        } else {
            streams.inbound.insert(id, chunks);
            streams.outbound.insert(id, Arc::clone(&credit));
        }
        drop(streams);
        (
            PipeWriter {
                wire: Arc::clone(self),
                id,
                credit,
            },
            PipeReader {
                wire: Arc::clone(self),
                id,
                chunks: receiver,
                consumed: 0,
            },
        )
    }

    /// Reads frames until the channel ends and says why it ended. Messages go to `on_message`.
    pub(crate) async fn pump(
        &self,
        mut socket: OwnedReadHalf,
        mut on_message: impl FnMut(Bytes, Bytes) -> Result<(), String>,
    ) -> String {
        let mut input = BytesMut::with_capacity(BATCH_BYTES);
        let reason = 'channel: loop {
            loop {
                match Frame::decode(&mut input) {
                    Ok(Some(Frame::Message { json, blob })) => {
                        if let Err(what) = on_message(json, blob) {
                            break 'channel what;
                        }
                    }
                    Ok(Some(frame)) => self.route(frame),
                    Ok(None) => break,
                    Err(what) => break 'channel what,
                }
            }
            input.reserve(PIECE_BYTES_MAX);
            match socket.read_buf(&mut input).await {
                Ok(0) => break "end of file".to_owned(),
                Ok(_) => {}
                Err(error) => break error.to_string(),
            }
        };
        self.close();
        reason
    }

    fn route(&self, frame: Frame) {
        let mut streams = lock(&self.streams);
        match frame {
            Frame::Data { stream, bytes } => {
                let len = bytes.len() as u32;
                let taken = match streams.inbound.get(&stream) {
                    Some(chunks) => chunks.send(bytes).is_ok(),
                    None => false,
                };
                if !taken {
                    // Nobody reads this stream any more: what arrives is discarded, and the
                    // producer is not held up.
                    let _ = self.out.send(Frame::Credit { stream, bytes: len });
                }
            }
            Frame::Credit { stream, bytes } => {
                if let Some(credit) = streams.outbound.get(&stream) {
                    credit.add_permits(bytes as usize);
                }
            }
            Frame::End { stream } => {
                streams.inbound.remove(&stream);
            }
            Frame::Message { .. } => {}
        }
    }

    fn close(&self) {
        let mut streams = lock(&self.streams);
        streams.closed = true;
        streams.inbound.clear();
        for (_, credit) in streams.outbound.drain() {
            credit.close();
        }
    }
}

async fn write_frames(mut socket: OwnedWriteHalf, mut frames: mpsc::UnboundedReceiver<Frame>) {
    let mut batch = Vec::with_capacity(256);
    let mut bytes = BytesMut::with_capacity(BATCH_BYTES);
    while frames.recv_many(&mut batch, 256).await > 0 {
        for frame in batch.drain(..) {
            frame.encode(&mut bytes);
            if bytes.len() >= BATCH_BYTES {
                if socket.write_all(&bytes).await.is_err() {
                    return;
                }
                bytes.clear();
            }
        }
        if !bytes.is_empty() && socket.write_all(&bytes).await.is_err() {
            return;
        }
        bytes.clear();
    }
}

/// The writing end of a byte stream to a client process (or, on the agent, from it).
#[derive(Debug)]
pub struct PipeWriter {
    wire: Arc<Wire>,
    id: u32,
    credit: Arc<Semaphore>,
}

impl PipeWriter {
    /// Sends bytes, waiting while the other end is a window (4 MiB) behind.
    ///
    /// # Errors
    /// [`Error::Closed`] when the channel is gone. A process that has closed its standard input
    /// swallows what is sent: watch for its exit event instead.
    pub async fn write(&self, bytes: impl Into<Bytes>) -> Result<(), Error> {
        let mut bytes = bytes.into();
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES_MAX));
            let closed = || Error::Closed("stream".to_owned());
            let permit = self
                .credit
                .acquire_many(piece.len() as u32)
                .await
                .map_err(|_| closed())?;
            permit.forget();
            let frame = Frame::Data {
                stream: self.id,
                bytes: piece,
            };
            self.wire.out.send(frame).map_err(|_| closed())?;
        }
        Ok(())
    }
}

impl Drop for PipeWriter {
    /// Dropping the writer is end of file for the reader.
    fn drop(&mut self) {
        lock(&self.wire.streams).outbound.remove(&self.id);
        let _ = self.wire.out.send(Frame::End { stream: self.id });
    }
}

/// The reading end of a byte stream. Dropping it discards what still arrives.
#[derive(Debug)]
pub struct PipeReader {
    wire: Arc<Wire>,
    id: u32,
    chunks: mpsc::UnboundedReceiver<Bytes>,
    consumed: usize,
}

impl PipeReader {
    /// The next bytes, in pieces of whatever size arrived; `None` at the end of the stream.
    pub async fn read(&mut self) -> Option<Bytes> {
        let chunk = self.chunks.recv().await?;
        self.consume(&chunk);
        Some(chunk)
    }

    /// Bytes that have arrived already; `None` when there are none, or no more.
    pub fn read_ready(&mut self) -> Option<Bytes> {
        let chunk = self.chunks.try_recv().ok()?;
        self.consume(&chunk);
        Some(chunk)
    }

    fn consume(&mut self, chunk: &Bytes) {
        self.consumed += chunk.len();
        if self.consumed >= WINDOW_BYTES / 4 {
            let bytes = std::mem::take(&mut self.consumed) as u32;
            let _ = self.wire.out.send(Frame::Credit {
                stream: self.id,
                bytes,
            });
        }
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        lock(&self.wire.streams).inbound.remove(&self.id);
        // Whatever was buffered was not consumed; hand its credit back, so that the producer ends.
        self.chunks.close();
        while let Ok(chunk) = self.chunks.try_recv() {
            self.consumed += chunk.len();
        }
        let bytes = self.consumed as u32;
        let _ = self.wire.out.send(Frame::Credit {
            stream: self.id,
            bytes,
        });
    }
}

type Answer = (Result<Box<RawValue>, Refusal>, Bytes);

/// The controller's end of a channel: makes calls and hears events.
#[derive(Debug)]
pub(crate) struct Peer {
    name: String,
    wire: Arc<Wire>,
    pending: Mutex<Pending>,
    next_id: AtomicU64,
    next_stream: AtomicU64,
    tasks: Mutex<Vec<AbortHandle>>,
}

#[derive(Debug, Default)]
struct Pending {
    answers: HashMap<u64, oneshot::Sender<Answer>>,
    closed: bool,
}

/// What a [`Peer`] says on its own.
#[derive(Debug)]
pub(crate) enum Unasked {
    Event(Box<RawValue>),
    Closed(String),
}

impl Peer {
    pub(crate) fn connect(
        name: &str,
        socket: UnixStream,
        mut on_unasked: impl FnMut(Unasked) + Send + 'static,
    ) -> Arc<Self> {
        let (wire, read, writer) = Wire::new(socket);
        let peer = Arc::new(Self {
            name: name.to_owned(),
            wire,
            pending: Mutex::default(),
            next_id: AtomicU64::new(0),
            next_stream: AtomicU64::new(0),
            tasks: Mutex::default(),
        });
        let this = Arc::clone(&peer);
        let reader = tokio::spawn(async move {
            let reason = this
                .wire
                .pump(read, |json, blob| this.hear(&json, blob, &mut on_unasked))
                .await;
            let mut pending = lock(&this.pending);
            pending.closed = true;
            pending.answers.clear();
            drop(pending);
            on_unasked(Unasked::Closed(reason));
        });
        lock(&peer.tasks).extend([writer, reader.abort_handle()]);
        peer
    }

    fn hear(
        &self,
        json: &[u8],
        blob: Bytes,
        on_unasked: &mut impl FnMut(Unasked),
    ) -> Result<(), String> {
        let message: FromPeer = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if let Some(event) = message.event {
            on_unasked(Unasked::Event(event));
            return Ok(());
        }
        let id = message
            .id
            .ok_or("a message that is neither answer nor event")?;
        let result = match (message.ok, message.refused) {
            (_, Some(refusal)) => Err(refusal),
            (Some(ok), None) => Ok(ok),
            (None, None) => return Err(format!("an empty answer to call {id}")),
        };
        // The caller may have given up waiting, which is not the peer's fault.
        if let Some(waiting) = lock(&self.pending).answers.remove(&id) {
            let _ = waiting.send((result, blob));
        }
        Ok(())
    }

    /// Makes one call with a blob and waits for its answer and the answer's blob.
    pub(crate) async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        call: Q,
        blob: Bytes,
    ) -> Result<(A, Bytes), Error> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let json = serde_json::to_vec(&ToPeer { id, call }).map_err(|e| self.broken(e))?;
        let (sender, answer) = oneshot::channel();
        {
            let mut pending = lock(&self.pending);
            if pending.closed {
                return Err(Error::Closed(self.name.clone()));
            }
            pending.answers.insert(id, sender);
        }
        self.wire.message(json, blob);
        let (result, blob) = answer.await.map_err(|_| Error::Closed(self.name.clone()))?;
        let ok = result.map_err(|refusal| Error::Refused {
            peer: self.name.clone(),
            refusal,
        })?;
        let value = serde_json::from_str(ok.get()).map_err(|e| self.broken(e))?;
        Ok((value, blob))
    }

    pub(crate) fn broken(&self, what: impl ToString) -> Error {
        Error::Protocol {
            peer: self.name.clone(),
            what: what.to_string(),
        }
    }

    /// Opens a stream under an id that was never used on this channel.
    pub(crate) fn open_stream(&self) -> (u32, PipeWriter, PipeReader) {
        let id = self.next_stream.fetch_add(1, Ordering::Relaxed) as u32;
        let (writer, reader) = self.wire.stream(id);
        (id, writer, reader)
    }

    /// Closes the channel at once. The peer heals, kills what it started, and ends.
    pub(crate) fn close(&self) {
        for task in lock(&self.tasks).drain(..) {
            task.abort();
        }
        self.wire.close();
        let mut pending = lock(&self.pending);
        pending.closed = true;
        pending.answers.clear();
    }
}
