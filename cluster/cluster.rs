//! A cluster: nodes, the network between them, and the events they report. Which backend they are
//! made of is decided once, in [`create`].

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot};

use crate::backend::{Backend, MadeNode};
use crate::channel::{Peer, Unasked, lock};
use crate::error::Error;
use crate::local::Local;
use crate::network::Network;
use crate::node::{Node, NodeEvent};
use crate::protocol::{AgentEvent, NodeEventKind};

/// What cluster to make.
#[derive(Debug, Clone)]
pub struct ClusterSpec {
    /// The names of the nodes, servers and clients alike: lowercase letters, digits and `-`.
    pub nodes: Vec<String>,
    /// For what the network decides by chance.
    pub seed: u64,
    /// The files of node `n1` live in `dir/n1/`. It is made if it does not exist.
    pub dir: PathBuf,
    /// The executable that answers to `sandbox` and `agent` (see [`crate::dispatch`]); this very
    /// program when it is `None`, also if its file was replaced since.
    pub exe: Option<PathBuf>,
}

/// The most nodes that one network can address.
const NODES_MAX: usize = 250;

impl ClusterSpec {
    fn check(&self) -> Result<(), Error> {
        if self.nodes.is_empty() || self.nodes.len() > NODES_MAX {
            return Err(Error::Spec(format!(
                "it has {} nodes and must have between 1 and {NODES_MAX}",
                self.nodes.len()
            )));
        }
        for (at, name) in self.nodes.iter().enumerate() {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.is_empty()
                || name.len() > 32
                || name.starts_with('-')
                || !name.chars().all(plain)
            {
                return Err(Error::Spec(format!(
                    "the node name `{name}` is not made of 1 to 32 lowercase letters, digits and `-`"
                )));
            }
            if self.nodes[..at].contains(name) {
                return Err(Error::Spec(format!("two nodes are called `{name}`")));
            }
        }
        Ok(())
    }
}

/// Makes a cluster on this machine: namespaces, one agent per node, and the switch between them.
/// It needs no privilege where unprivileged user namespaces are allowed.
///
/// Must be called inside a tokio runtime that outlives the cluster.
///
/// # Errors
/// [`Error::Spec`] before anything is made; [`Error::Sandbox`] names the stage that failed, and
/// nothing stays behind.
pub async fn create(spec: &ClusterSpec) -> Result<Cluster, Error> {
    spec.check()?;
    let (local, made) = Local::make(spec, false).await?;
    Cluster::assemble(Box::new(local), made).await
}

/// Like [`create`], with a second pair of devices that joins the first two nodes without a switch.
pub(crate) async fn create_with_direct_pair(spec: &ClusterSpec) -> Result<Cluster, Error> {
    let (local, made) = Local::make(spec, true).await?;
    Cluster::assemble(Box::new(local), made).await
}

type Subscribers = Arc<Mutex<Vec<mpsc::UnboundedSender<NodeEvent>>>>;

/// A running cluster. Dropping it takes it down too, without waiting.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    network: Network,
    subscribers: Subscribers,
    backend: Box<dyn Backend>,
}

impl Cluster {
    async fn assemble(backend: Box<dyn Backend>, made: Vec<MadeNode>) -> Result<Self, Error> {
        let names: Arc<[String]> = made.iter().map(|node| node.name.clone()).collect();
        let network = Network::new(backend.fabric(), names);
        let subscribers = Subscribers::default();
        let mut cluster = Self {
            nodes: Vec::new(),
            network,
            subscribers,
            backend,
        };
        let mut ready = Vec::new();
        for (index, node) in made.into_iter().enumerate() {
            let (sender, receiver) = oneshot::channel();
            let listen = listener(node.name.clone(), sender, Arc::clone(&cluster.subscribers));
            let peer = Peer::connect(&node.name, node.channel, listen);
            ready.push((node.name.clone(), receiver));
            cluster
                .nodes
                .push(Node::new(node.name, index, node.addr, node.dir, peer));
        }
        for (name, receiver) in ready {
            receiver.await.map_err(|_| Error::Closed(name))?;
        }
        Ok(cluster)
    }

    /// All nodes, in the order of the spec.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name() == name)
    }

    /// The node with this address.
    #[must_use]
    pub fn node_at(&self, addr: IpAddr) -> Option<&Node> {
        self.nodes.iter().find(|node| node.addr() == addr)
    }

    /// The network between the nodes.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Everything that nodes report from now on, in the order in which it arrives. Each receiver
    /// gets every event. Taking the cluster down is seen as the loss of every agent.
    #[must_use]
    pub fn events(&self) -> Events {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock(&self.subscribers).push(sender);
        Events { receiver }
    }

    /// Takes the cluster down and returns when no process of it is left. Files stay.
    ///
    /// # Errors
    /// [`Error::Sandbox`] when it could not be seen to end.
    pub async fn destroy(mut self) -> Result<(), Error> {
        self.backend.destroy().await
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.close();
        }
    }
}

/// A stream of [`NodeEvent`]s.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::UnboundedReceiver<NodeEvent>,
}

impl Events {
    /// The next event; `None` when the cluster is gone.
    pub async fn next(&mut self) -> Option<NodeEvent> {
        self.receiver.recv().await
    }
}

/// Turns what an agent says unasked into events for whoever subscribed.
fn listener(
    name: String,
    ready: oneshot::Sender<()>,
    subscribers: Subscribers,
) -> impl FnMut(Unasked) + Send + 'static {
    let mut ready = Some(ready);
    move |unasked| {
        let kind = match unasked {
            Unasked::Event(event) => match serde_json::from_str::<AgentEvent>(event.get()) {
                Ok(AgentEvent::Ready { .. }) => {
                    if let Some(ready) = ready.take() {
                        let _ = ready.send(());
                    }
                    return;
                }
                Ok(AgentEvent::Node(kind)) => kind,
                Err(error) => NodeEventKind::AgentLost {
                    reason: error.to_string(),
                },
            },
            Unasked::Closed(reason) => {
                ready = None;
                NodeEventKind::AgentLost { reason }
            }
        };
        lock(&subscribers).retain(|subscriber| {
            subscriber
                .send(NodeEvent {
                    node: name.clone(),
                    kind: kind.clone(),
                })
                .is_ok()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(nodes: &[&str]) -> Result<(), Error> {
        let nodes = nodes.iter().map(|&name| name.to_owned()).collect();
        ClusterSpec {
            nodes,
            seed: 0,
            dir: PathBuf::from("x"),
            exe: None,
        }
        .check()
    }

    #[test]
    fn names_are_checked_before_anything_is_made() {
        assert!(check(&["n1", "n2", "c-1"]).is_ok());
        for bad in [&[][..], &["n1", "n1"], &["../up"], &["N1"], &["-n"], &[""]] {
            assert!(matches!(check(bad), Err(Error::Spec(_))), "{bad:?}");
        }
    }
}
