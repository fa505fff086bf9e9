//! Messages between nodes: one TCP connection in each direction, dialled by the sender.
//!
//! A message that cannot be sent at once is dropped and Raft is told; nothing here waits for a slow
//! peer. A connection that gets no acknowledgement for two election timeouts is given up
//! (`TCP_USER_TIMEOUT`), because the kernel's own retransmissions back off for minutes and would go
//! on sleeping long after a partition has healed.
//!
//! ```text
//! connection:  "conclave" | digest of the cluster u64 | from u64 | to u64 | message...
//! message:     length u32 | eraftpb.Message          (integers are little-endian)
//! ```

use crate::handle::Input;
use nix::sys::socket::{setsockopt, sockopt::TcpUserTimeout};
use protobuf::Message as _;
use raft::eraftpb::{Message, MessageType};
use slog::{Logger, info, warn};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

const MAGIC: &[u8; 8] = b"conclave";
/// Messages that may wait for one peer.
const QUEUE: usize = 4_096;
/// Messages that are written at once.
const BATCH: usize = 128;
/// The largest message that is accepted; snapshots are the large ones.
const MESSAGE_BYTES_MAX: u32 = 1 << 30;
/// How long to wait before dialling again.
const BACKOFF: Duration = Duration::from_millis(100);

/// What both ends of a connection must agree on, and how patient they are.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// This node's Raft id.
    pub me: u64,
    /// The same on all nodes of a cluster.
    pub digest: u64,
    /// The election timeout, from which the others are derived.
    pub election_timeout: Duration,
}

/// Takes messages for all peers.
#[derive(Debug)]
pub struct Outbox {
    queues: HashMap<u64, mpsc::Sender<Message>>,
    inputs: mpsc::UnboundedSender<Input>,
}

impl Outbox {
    /// Sends messages, or drops those whose peer's queue is full.
    pub fn send(&self, messages: Vec<Message>) {
        for message in messages {
            let Some(queue) = self.queues.get(&message.to) else {
                continue;
            };
            if let Err(refused) = queue.try_send(message) {
                lost(&self.inputs, &refused.into_inner());
            }
        }
    }
}

/// Tells Raft that a message was lost.
fn lost(inputs: &mpsc::UnboundedSender<Input>, message: &Message) {
    let _ = match message.get_msg_type() {
        MessageType::MsgSnapshot => inputs.send(Input::SnapshotSent {
            to: message.to,
            ok: false,
        }),
        _ => inputs.send(Input::Unreachable(message.to)),
    };
}

/// The other end of an [`Outbox`]: what is to be sent to each peer.
pub type Queues = Vec<(u64, mpsc::Receiver<Message>)>;

/// Makes a queue for each of these peers.
pub fn outbox(
    peers: impl Iterator<Item = u64>,
    inputs: mpsc::UnboundedSender<Input>,
) -> (Outbox, Queues) {
    let (mut queues, mut ends) = (HashMap::new(), Vec::new());
    for id in peers {
        let (queue, end) = mpsc::channel(QUEUE);
        queues.insert(id, queue);
        ends.push((id, end));
    }
    (Outbox { queues, inputs }, ends)
}

/// Keeps a connection to one peer and sends it what is queued for it; never returns while the
/// node runs.
pub async fn dial(
    peer: u64,
    address: String,
    terms: Terms,
    mut queue: mpsc::Receiver<Message>,
    inputs: mpsc::UnboundedSender<Input>,
    log: Logger,
) {
    let mut reachable = true;
    while !queue.is_closed() {
        let connected = timeout(terms.election_timeout / 2, connect(&address, peer, terms)).await;
        let ended = match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => {
                info!(log, "connected to a peer"; "peer" => peer);
                reachable = true;
                pump(stream, &mut queue, &inputs).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = ended
            && std::mem::replace(&mut reachable, false)
        {
            info!(log, "lost a peer"; "peer" => peer, "error" => %error);
        }
        // What is waiting is of no use any more; Raft will send what is.
        while let Ok(message) = queue.try_recv() {
            lost(&inputs, &message);
        }
        sleep(BACKOFF).await;
    }
}

async fn connect(address: &str, peer: u64, terms: Terms) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let patience = (terms.election_timeout * 2).as_millis() as u32;
    setsockopt(&stream, TcpUserTimeout, &patience)?;
    let mut hello = MAGIC.to_vec();
    for number in [terms.digest, terms.me, peer] {
        hello.extend_from_slice(&number.to_le_bytes());
    }
    stream.write_all(&hello).await?;
    Ok(stream)
}

/// Sends until the connection breaks or the node stops.
async fn pump(
    mut stream: TcpStream,
    queue: &mut mpsc::Receiver<Message>,
    inputs: &mpsc::UnboundedSender<Input>,
) -> io::Result<()> {
    let (mut reader, mut writer) = stream.split();
    let (mut batch, mut buffer, mut byte) = (Vec::new(), Vec::new(), [0]);
    loop {
        tokio::select! {
            // The peer never writes here; this ends when it closes, so that the first message
            // after its restart is not written to a connection that is dead.
            read = reader.read(&mut byte) => {
                read?;
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            count = queue.recv_many(&mut batch, BATCH) => if count == 0 { return Ok(()) },
        }
        buffer.clear();
        for message in &batch {
            buffer.extend_from_slice(&message.compute_size().to_le_bytes());
            message
                .write_to_vec(&mut buffer)
                .map_err(io::Error::other)?;
        }
        let written = writer.write_all(&buffer).await;
        for message in batch.drain(..) {
            match (&written, message.get_msg_type()) {
                (Err(_), _) => lost(inputs, &message),
                (Ok(()), MessageType::MsgSnapshot) => {
                    let _ = inputs.send(Input::SnapshotSent {
                        to: message.to,
                        ok: true,
                    });
                }
                (Ok(()), _) => {}
            }
        }
        written?;
        if buffer.capacity() > 1 << 20 {
            buffer = Vec::new();
        }
    }
}

/// Accepts connections from peers and hands their messages to the node; never returns.
pub async fn accept(
    listener: TcpListener,
    terms: Terms,
    inputs: mpsc::UnboundedSender<Input>,
    log: Logger,
) {
    let readers: Arc<Mutex<HashMap<u64, AbortHandle>>> = Arc::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(log, "cannot accept a peer"; "error" => %error);
                sleep(BACKOFF).await;
                continue;
            }
        };
        let (inputs, log, readers) = (inputs.clone(), log.clone(), Arc::clone(&readers));
        tokio::spawn(async move {
            let mut stream = BufReader::with_capacity(64 << 10, stream);
            let from = match greet(&mut stream, terms).await {
                Ok(from) => from,
                Err(error) => return warn!(log, "refused a connection"; "error" => %error),
            };
            let reading = tokio::spawn(async move {
                while let Ok(message) = receive(&mut stream, from, terms.me).await {
                    let _ = inputs.send(Input::Peer(Box::new(message)));
                }
            });
            // A peer that dials again has given its old connection up.
            let mut readers = readers
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            if let Some(old) = readers.insert(from, reading.abort_handle()) {
                old.abort();
            }
        });
    }
}

async fn greet(stream: &mut BufReader<TcpStream>, terms: Terms) -> io::Result<u64> {
    let mut hello = [0; 32];
    timeout(Duration::from_secs(5), stream.read_exact(&mut hello)).await??;
    let (magic, numbers) = hello.split_at(8);
    let mut numbers = numbers
        .chunks_exact(8)
        .map(|n| n.try_into().map_or(0, u64::from_le_bytes));
    let (digest, from, to) = (numbers.next(), numbers.next(), numbers.next());
    if magic != MAGIC || digest != Some(terms.digest) || to != Some(terms.me) {
        return Err(io::Error::other(
            "it is not from a node of this cluster to this node",
        ));
    }
    Ok(from.unwrap_or(0))
}

async fn receive(stream: &mut BufReader<TcpStream>, from: u64, to: u64) -> io::Result<Message> {
    let length = stream.read_u32_le().await?;
    if length > MESSAGE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await?;
    let message = Message::parse_from_bytes(&bytes).map_err(io::Error::other)?;
    if message.from != from || message.to != to {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(message)
}
