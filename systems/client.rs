//! The client side of a system: what an operation is, and how it can end.
//!
//! A [`Client`] does the operations of one worker, one after another, in the process
//! `schism client` on a client node; [`crate::driver`] reads and answers the lines. There are three
//! ways for an operation to end, and the difference between the last two is what a test stands on:
//! it happened, it did not and never will ([`Failure::Definite`]), or nobody knows
//! ([`Failure::Indefinite`]). No I/O error is converted into the definite one, so that `?` can only
//! ever say "nobody knows"; who says "definitely not" says it by name.
//!
//! Clients never retry, never reconnect while an operation is open, and never follow a redirect:
//! each of those would do an operation twice, or hide that a node was not there.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::Error;
use crate::driver::Outbox;
use crate::protocol::{Hello, Invoke, Unasked};

/// The client side of a system: what `schism client --system NAME` runs.
pub trait ClientProgram: Sync {
    /// The name of the system, as users write it.
    fn name(&self) -> &'static str;

    /// The functions that its clients know under a workload.
    fn functions(&self, workload: &str) -> &'static [&'static str];

    /// A client for one worker. `thread` is the worker's number.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it cannot do the workload with these parameters.
    fn client(&self, setup: &Rc<Setup>, thread: u64) -> Result<Box<dyn Client>, Error>;
}

/// The operations of one worker.
#[async_trait(?Send)]
pub trait Client {
    /// Does an operation and says what came out.
    ///
    /// # Errors
    /// [`Failure::Definite`] only where it is certain that the operation had no effect and never
    /// will have one.
    async fn invoke(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure>;
}

/// Why an operation did not end well. The text is a code from the list in
/// `docs/client-protocol.md`, where more is to be said followed by a colon and words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It did not happen and never will.
    Definite(Cow<'static, str>),
    /// It may have happened, or may yet.
    Indefinite(Cow<'static, str>),
}

impl Failure {
    /// It did not happen and never will.
    pub fn definite(error: impl Into<Cow<'static, str>>) -> Failure {
        Failure::Definite(error.into())
    }

    /// It may have happened, or may yet.
    pub fn indefinite(error: impl Into<Cow<'static, str>>) -> Failure {
        Failure::Indefinite(error.into())
    }

    /// The same text as a definite failure. For a step of an operation that has no effect of its
    /// own, so that the operation did not happen whatever became of the step.
    #[must_use]
    pub fn harmless(self) -> Failure {
        match self {
            Failure::Definite(error) | Failure::Indefinite(error) => Failure::Definite(error),
        }
    }

    /// The code and the words.
    pub fn text(&self) -> &str {
        match self {
            Failure::Definite(error) | Failure::Indefinite(error) => error,
        }
    }

    /// An argument that the function cannot take: nothing was sent.
    pub fn bad_argument(op: &Op, expected: &str) -> Failure {
        let (f, value) = (&op.f, &op.value);
        Failure::definite(format!("bad-argument: {f} takes {expected}, not {value}"))
    }

    /// A function that the client does not know: nothing was sent.
    pub fn unknown_function(op: &Op) -> Failure {
        Failure::definite(format!("unknown-function: {}", op.f))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::indefinite(format!("connection-lost: {error}"))
    }
}

/// An operation to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// The id that the answer carries.
    pub id: u64,
    /// The process that the history names.
    pub process: u64,
    /// The server to ask, an index into the nodes of the hello; `None` leaves it to the client.
    pub node: Option<usize>,
    /// The function.
    pub f: String,
    /// The key, a string or an integer; null for none.
    pub key: Value,
    /// The argument.
    pub value: Value,
    /// How long to wait for the system.
    pub timeout: Duration,
}

impl Op {
    /// Takes an invocation for itself.
    ///
    /// # Errors
    /// A definite failure if it names a node that the hello did not.
    pub fn new(invoke: Invoke<'_>, nodes: &[Node]) -> Result<Op, Failure> {
        let node = match invoke.node {
            None => None,
            Some(name) => {
                let index = nodes.iter().position(|node| node.name == name);
                Some(index.ok_or_else(|| Failure::definite(format!("unknown-node: {name}")))?)
            }
        };
        Ok(Op {
            id: invoke.id,
            process: invoke.process,
            node,
            f: invoke.f.into_owned(),
            key: invoke.key.into_owned(),
            value: invoke.value.into_owned(),
            timeout: Duration::from_millis(invoke.timeout_ms),
        })
    }

    /// The key as a name: an integer in decimal digits, `default` where there is none.
    pub fn key_or(&self, default: &str) -> String {
        match &self.key {
            Value::Null => default.to_owned(),
            Value::String(key) => key.clone(),
            other => other.to_string(),
        }
    }

    /// A whole number of its argument, an object.
    pub fn int(&self, name: &str) -> Option<u64> {
        self.value.get(name).and_then(Value::as_u64)
    }
}

/// How long an operation may still wait for the system. Only time spent waiting is counted: what a
/// client does by itself, or is told to sleep, is not, so that a client that was frozen in between
/// still sends what it was about to send.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    left: Duration,
}

/// It took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut;

impl Patience {
    /// That much.
    pub fn new(left: Duration) -> Patience {
        Patience { left }
    }

    /// Waits for something no longer than there is patience.
    ///
    /// # Errors
    /// [`TimedOut`] if it was not ready by then. It was polled a last time after that, so that an
    /// answer that came while the process was frozen is taken.
    pub async fn wait<T>(&mut self, what: impl Future<Output = T>) -> Result<T, TimedOut> {
        let began = Instant::now();
        let waited = tokio::time::timeout(self.left, what).await;
        self.left = self.left.saturating_sub(began.elapsed());
        waited.map_err(|_| TimedOut)
    }
}

/// What the clients of one process know of the test; shared by its workers.
#[derive(Debug)]
pub struct Setup {
    /// The server nodes, in the order of the hello.
    pub nodes: Vec<Node>,
    /// The vault, if the workload has one.
    pub vault: Option<SocketAddr>,
    /// The workload.
    pub workload: String,
    /// Parameters of the workload and of its clients.
    pub params: Map<String, Value>,
    /// Where unasked events go.
    pub outbox: Rc<Outbox>,
}

/// A server node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where it listens for clients.
    pub addr: SocketAddr,
}

impl Setup {
    /// Reads a hello.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if an address is not an IP address with a port, or there is no node.
    pub fn new(hello: Hello, outbox: Rc<Outbox>) -> Result<Setup, Error> {
        let nodes = hello.nodes.into_iter().map(|node| {
            let addr = socket_addr(&node.addr)?;
            let name = node.id;
            Ok(Node { name, addr })
        });
        let nodes = nodes.collect::<Result<Vec<Node>, Error>>()?;
        if nodes.is_empty() {
            return Err(Error::Unsupported("the hello names no node".to_owned()));
        }
        let vault = hello.vault.map(|vault| socket_addr(&vault.addr));
        Ok(Setup {
            nodes,
            vault: vault.transpose()?,
            workload: hello.workload,
            params: hello.params,
            outbox,
        })
    }

    /// Tells the harness something that it did not ask for.
    pub fn tell(&self, process: u64, f: &'static str, key: &str, value: Value) {
        self.outbox.event(Unasked {
            f: Cow::Borrowed(f),
            process: Some(process),
            key: Value::from(key),
            value,
        });
    }
}

fn socket_addr(text: &str) -> Result<SocketAddr, Error> {
    // Names are not resolved: a resolver asks the network, and faults must not change whom a
    // client talks to.
    text.parse()
        .map_err(|_| Error::Unsupported(format!("`{text}` is not an IP address with a port")))
}

/// Which server a worker asks when an operation does not say: the one that it takes for the
/// leader. It learns only between operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    guess: usize,
    nodes: usize,
}

impl Route {
    /// Begins with some node, a different one for each of several workers.
    pub fn new(nodes: usize, thread: u64) -> Route {
        let guess = usize::try_from(thread).unwrap_or(0) % nodes;
        Route { guess, nodes }
    }

    /// The server to ask.
    pub fn choose(&self, asked: Option<usize>) -> usize {
        asked.unwrap_or(self.guess)
    }

    /// A node said who leads. The next operation goes there.
    pub fn hint(&mut self, leader: usize) {
        self.guess = leader;
    }

    /// A node was of no use. The next operation goes to another.
    pub fn avoid(&mut self, node: usize) {
        if self.guess == node {
            self.guess = (node + 1) % self.nodes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_io_error_is_never_definite() {
        fn fails() -> Result<(), Failure> {
            Err(io::Error::from(io::ErrorKind::ConnectionRefused))?;
            Ok(())
        }
        assert!(matches!(fails(), Err(Failure::Indefinite(_))));
    }

    #[test]
    fn an_operation_for_a_node_that_nobody_knows_is_not_done() {
        let nodes = [Node {
            name: "n1".to_owned(),
            addr: "10.9.0.1:7100".parse().unwrap(),
        }];
        let op = |node| {
            let invoke = Invoke {
                id: 1,
                process: 2,
                thread: 2,
                node,
                f: Cow::Borrowed("read"),
                key: Cow::Owned(json!(7)),
                value: Cow::Owned(Value::Null),
                timeout_ms: 5,
            };
            Op::new(invoke, &nodes)
        };
        assert_eq!(op(Some(Cow::Borrowed("n1"))).unwrap().node, Some(0));
        assert_eq!(op(None).unwrap().key_or("x"), "7");
        assert_eq!(
            op(Some(Cow::Borrowed("n2"))),
            Err(Failure::definite("unknown-node: n2"))
        );
    }

    #[test]
    fn a_route_changes_only_when_it_is_told() {
        let mut route = Route::new(3, 4);
        assert_eq!(route.choose(None), 1);
        assert_eq!(route.choose(Some(0)), 0);
        route.avoid(0);
        assert_eq!(
            route.choose(None),
            1,
            "another node's trouble changes nothing"
        );
        route.avoid(1);
        assert_eq!(route.choose(None), 2);
        route.hint(0);
        assert_eq!(route.choose(None), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_waiting_uses_up_patience() {
        let mut patience = Patience::new(Duration::from_secs(2));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let wait = tokio::time::sleep(Duration::from_millis(1_500));
        assert_eq!(patience.wait(wait).await, Ok(()));
        let wait = tokio::time::sleep(Duration::from_millis(1_500));
        assert_eq!(patience.wait(wait).await, Err(TimedOut));
        assert_eq!(patience.wait(async { 7 }).await, Ok(7));
    }
}
