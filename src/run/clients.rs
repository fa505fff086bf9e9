//! The client programs of a run: started on their nodes, greeted, and linked to the driver.
//!
//! Each link has a task that reads and one that writes. What is read goes to the driver in the
//! order in which it came; what is to be written waits in memory, bounded by the operations that a
//! client may have open. A client that is frozen therefore delays nobody else.

use std::time::Duration;

use cluster::{Node, Pipe, PipeReader, PipeWriter, ServiceSpec};
use serde_json::{Map, Value};
use systems::protocol::{Hello, NodeAddr, PROTOCOL, Reply, VaultAddr};
use tokio::sync::mpsc;

/// The name under which a client program is known to its node's agent.
pub const CLIENT_SERVICE: &str = "client";

/// What comes from a client program.
#[derive(Debug)]
pub enum FromClient {
    /// Some bytes of its output.
    Bytes(bytes::Bytes),
    /// It closed its output, or its node is gone.
    Closed,
}

/// The driver's end of a client program.
pub struct ClientLink {
    name: String,
    buffer: Vec<u8>,
    carry: Vec<u8>,
    out: mpsc::UnboundedSender<Vec<u8>>,
    spare: mpsc::UnboundedReceiver<Vec<u8>>,
    dead: bool,
}

impl ClientLink {
    /// A link to the program on node `name`: invocations go to `out`, and the buffers that were
    /// written come back through `spare`.
    pub fn new(
        name: String,
        out: mpsc::UnboundedSender<Vec<u8>>,
        spare: mpsc::UnboundedReceiver<Vec<u8>>,
    ) -> ClientLink {
        ClientLink {
            name,
            buffer: Vec::new(),
            carry: Vec::new(),
            out,
            spare,
            dead: false,
        }
    }

    /// The node that it runs on.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where invocations are collected until [`ClientLink::send`].
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Hands what was collected to the task that writes it.
    pub fn send(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let mut next = self.spare.try_recv().unwrap_or_default();
        next.clear();
        let full = std::mem::replace(&mut self.buffer, next);
        // A client that is gone is noticed by its closed output.
        let _ = self.out.send(full);
    }

    /// Whether it has closed its output.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Marks it as gone.
    pub fn set_dead(&mut self) {
        self.dead = true;
    }

    /// The beginning of a line that has not ended yet.
    pub fn take_carry(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.carry)
    }

    /// Keeps the beginning of a line.
    pub fn put_carry(&mut self, carry: Vec<u8>) {
        self.carry = carry;
    }
}

/// What a client program is told when it starts.
pub struct Greeting<'a> {
    /// The system that it talks to.
    pub system: &'a str,
    /// The server nodes: name and address.
    pub nodes: &'a [(String, String)],
    /// The workload.
    pub workload: &'a str,
    /// The seed of the stream `client`.
    pub seed: u64,
    /// Parameters of the workload.
    pub params: &'a Map<String, Value>,
    /// The address of the vault, where there is one.
    pub vault: Option<&'a str>,
    /// The functions that it must know.
    pub functions: &'a [&'static str],
    /// How long it may take to answer.
    pub timeout: Duration,
}

/// Starts a client program on a node, greets it, and links it to the driver as number `index`.
///
/// # Errors
/// What went wrong, with the node and what the client said.
pub async fn start(
    node: &Node,
    argv: &[String],
    greeting: &Greeting<'_>,
    index: usize,
    incoming: mpsc::Sender<(usize, FromClient)>,
) -> Result<ClientLink, String> {
    let name = node.name();
    let spec = ServiceSpec {
        name: CLIENT_SERVICE.to_owned(),
        argv: argv.to_vec(),
        env: Vec::new(),
        log: "client.log".to_owned(),
    };
    let Pipe {
        stdin, mut stdout, ..
    } = node
        .spawn(&spec)
        .await
        .map_err(|error| format!("{name}: {error}"))?;
    let mut hello = Vec::new();
    let addr = |(id, addr): &(String, String)| NodeAddr {
        id: id.clone(),
        addr: addr.clone(),
    };
    let line = Hello {
        protocol: PROTOCOL,
        system: greeting.system.to_owned(),
        nodes: greeting.nodes.iter().map(addr).collect(),
        workload: greeting.workload.to_owned(),
        seed: greeting.seed,
        params: greeting.params.clone(),
        vault: greeting.vault.map(|addr| VaultAddr {
            addr: addr.to_owned(),
        }),
    };
    line.write(&mut hello);
    stdin
        .write(hello)
        .await
        .map_err(|error| format!("{name}: {error}"))?;
    let answer = tokio::time::timeout(greeting.timeout, first_line(&mut stdout)).await;
    let (line, rest) = match answer {
        Ok(Some(answer)) => answer,
        Ok(None) => return Err(format!("{name}: the client ended before it said hello")),
        Err(_) => {
            return Err(format!(
                "{name}: the client said no hello in {:?}",
                greeting.timeout
            ));
        }
    };
    check_hello(&line, greeting.functions).map_err(|why| format!("{name}: {why}"))?;
    Ok(link(name.to_owned(), stdin, stdout, rest, index, incoming))
}

fn check_hello(line: &[u8], functions: &[&str]) -> Result<(), String> {
    match Reply::parse(line) {
        Ok(Reply::Hello(hello)) => {
            let missing: Vec<&str> = functions
                .iter()
                .copied()
                .filter(|&function| !hello.can.iter().any(|can| can == function))
                .collect();
            if missing.is_empty() {
                return Ok(());
            }
            Err(format!(
                "the client `{}` cannot do: {}",
                hello.client,
                missing.join(", ")
            ))
        }
        Ok(other) => Err(format!(
            "the client said {other:?} where a hello is expected"
        )),
        Err(error) => Err(error.to_string()),
    }
}

async fn first_line(stdout: &mut PipeReader) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut text = Vec::new();
    loop {
        let bytes = stdout.read().await?;
        text.extend_from_slice(&bytes);
        if let Some(end) = text.iter().position(|&byte| byte == b'\n') {
            let rest = text.split_off(end + 1);
            text.pop();
            return Some((text, rest));
        }
    }
}

fn link(
    name: String,
    stdin: PipeWriter,
    mut stdout: PipeReader,
    said: Vec<u8>,
    index: usize,
    incoming: mpsc::Sender<(usize, FromClient)>,
) -> ClientLink {
    let (out, mut to_write) = mpsc::unbounded_channel::<Vec<u8>>();
    let (give_back, spare) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(buffer) = to_write.recv().await {
            if stdin
                .write(bytes::Bytes::copy_from_slice(&buffer))
                .await
                .is_err()
            {
                break;
            }
            let _ = give_back.send(buffer);
        }
    });
    tokio::spawn(async move {
        let mut next = Some(bytes::Bytes::from(said));
        while let Some(bytes) = next {
            if incoming
                .send((index, FromClient::Bytes(bytes)))
                .await
                .is_err()
            {
                return;
            }
            next = stdout.read().await;
        }
        let _ = incoming.send((index, FromClient::Closed)).await;
    });
    ClientLink::new(name, out, spare)
}
