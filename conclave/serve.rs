//! `conclave serve`: the command line of a node, and how its parts are put together.

use crate::Error;
use crate::faults::Switches;
use crate::handle::Input;
use crate::node::{Config, Node};
use crate::peers::{self, Terms};
use crate::routes::Routes;
use crate::{trace, web};
use clap::Args;
use slog::{Logger, info};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// A node's name and one of its addresses, written `n1=10.9.0.1:7101`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node's name.
    pub name: String,
    /// Host and port.
    pub address: String,
}

impl FromStr for Member {
    type Err = String;

    fn from_str(text: &str) -> Result<Member, String> {
        let (name, address) = text.split_once('=').ok_or("expected NAME=HOST:PORT")?;
        if name.is_empty() || !address.contains(':') {
            return Err("expected NAME=HOST:PORT".to_owned());
        }
        Ok(Member {
            name: name.to_owned(),
            address: address.to_owned(),
        })
    }
}

/// Run one node of a cluster.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// The name of this node, one of those in --peers
    #[arg(long)]
    pub name: String,
    /// Where its log and snapshots are kept
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The peer addresses of all nodes, this one included; the same on every node
    #[arg(
        long,
        value_name = "NAME=HOST:PORT",
        value_delimiter = ',',
        required = true
    )]
    pub peers: Vec<Member>,
    /// The client addresses of all nodes; those of others are only for hints to clients
    #[arg(
        long,
        value_name = "NAME=HOST:PORT",
        value_delimiter = ',',
        required = true
    )]
    pub clients: Vec<Member>,
    /// Where to listen for peers, when not at this node's address in --peers
    #[arg(long, value_name = "HOST:PORT")]
    pub listen_peers: Option<String>,
    /// Where to listen for clients, when not at this node's address in --clients
    #[arg(long, value_name = "HOST:PORT")]
    pub listen_clients: Option<String>,
    /// The unit of Raft's time
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub tick_ms: u64,
    /// After how long without a leader a node campaigns, at the earliest; twice that at the latest
    #[arg(long, value_name = "MS", default_value_t = 500)]
    pub election_timeout_ms: u64,
    /// How often a leader shows that it is there
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub heartbeat_ms: u64,
    /// After how long a request that found no quorum is answered anyhow
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    pub request_timeout_ms: u64,
    /// How many log entries are applied between two snapshots
    #[arg(long, value_name = "ENTRIES", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub snapshot_every: u64,
    /// The mistakes to make
    #[command(flatten)]
    pub switches: Switches,
}

/// The members of the cluster, as one node's arguments describe it.
struct Cluster {
    me: u64,
    names: BTreeMap<u64, String>,
    peers: BTreeMap<u64, String>,
    clients: BTreeMap<u64, String>,
}

impl Cluster {
    /// Raft ids follow from the order of the names, so that all nodes agree on them.
    fn read(args: &ServeArgs) -> Result<Cluster, Error> {
        let mut names: Vec<&str> = args.peers.iter().map(|member| &*member.name).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::Config("--peers names a node twice".to_owned()));
        }
        let id = |name: &str| {
            let at = names.binary_search(&name).map(|at| at as u64 + 1);
            at.map_err(|_| Error::Config(format!("{name} is not one of the nodes in --peers")))
        };
        let addresses = |members: &[Member]| {
            let addresses = members
                .iter()
                .map(|m| Ok((id(&m.name)?, m.address.clone())));
            addresses.collect::<Result<BTreeMap<u64, String>, Error>>()
        };
        Ok(Cluster {
            me: id(&args.name)?,
            peers: addresses(&args.peers)?,
            clients: addresses(&args.clients)?,
            names: (1..)
                .zip(names.iter().map(|name| (*name).to_owned()))
                .collect(),
        })
    }

    /// A number that differs between clusters of different nodes.
    fn digest(&self) -> u64 {
        let mut crc = crc32fast::Hasher::new();
        for name in self.names.values() {
            crc.update(name.as_bytes());
            crc.update(&[0]);
        }
        crc.finalize().into()
    }

    fn listen(
        &self,
        given: Option<&String>,
        known: &BTreeMap<u64, String>,
    ) -> Result<String, Error> {
        let address = given.or_else(|| known.get(&self.me)).cloned();
        address.ok_or_else(|| Error::Config("no client address is given for this node".to_owned()))
    }
}

fn check(args: &ServeArgs) -> Result<(), Error> {
    let (tick, heartbeat, election) = (args.tick_ms, args.heartbeat_ms, args.election_timeout_ms);
    if heartbeat < tick || election < 2 * heartbeat {
        let rule = "--heartbeat-ms must be at least --tick-ms, and --election-timeout-ms at least \
                    twice --heartbeat-ms";
        return Err(Error::Config(rule.to_owned()));
    }
    Ok(())
}

/// Runs a node until it is terminated, in a runtime of its own.
///
/// # Errors
/// The arguments contradict each other, an address cannot be bound, the data directory cannot be
/// used, or the disk fails later on.
pub fn serve(args: ServeArgs) -> Result<(), Error> {
    check(&args)?;
    let cluster = Cluster::read(&args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|source| Error::Start {
        what: "runtime",
        source,
    })?;
    runtime.block_on(run(args, cluster))
}

async fn run(args: ServeArgs, cluster: Cluster) -> Result<(), Error> {
    let log = trace::logger(&args.name);
    let clients =
        web::bind(&cluster.listen(args.listen_clients.as_ref(), &cluster.clients)?).await?;
    let peers = web::bind(&cluster.listen(args.listen_peers.as_ref(), &cluster.peers)?).await?;
    let (inputs, taken) = mpsc::unbounded_channel();
    let others = cluster.peers.keys().copied().filter(|id| *id != cluster.me);
    let (outbox, queues) = peers::outbox(others, inputs.clone());
    let config = Config {
        id: cluster.me,
        voters: cluster.names.keys().copied().collect(),
        tick: Duration::from_millis(args.tick_ms),
        election_timeout: Duration::from_millis(args.election_timeout_ms),
        heartbeat: Duration::from_millis(args.heartbeat_ms),
        request_timeout: Duration::from_millis(args.request_timeout_ms),
        snapshot_every: args.snapshot_every,
        switches: args.switches,
    };
    let (node, handle) = Node::open(&args.data_dir, config, outbox, inputs.clone(), log.clone())?;
    let ended = start(node, taken)?;
    connect(&args, &cluster, queues, peers, &inputs, &log);
    let switches = args.switches.flags().join(",");
    info!(log, "serves"; "switches" => switches);
    let routes = Routes {
        handle,
        id: cluster.me,
        names: cluster.names,
        addresses: cluster.clients,
        watch_gap: args.switches.watch_gap,
    };
    tokio::select! {
        ended = ended => ended.unwrap_or(Err(Error::Died("raft"))),
        () = web::serve(clients, routes) => Ok(()),
    }
}

/// Runs the node on a thread of its own, where waiting for the disk disturbs nobody else.
fn start(
    node: Node,
    inputs: mpsc::UnboundedReceiver<Input>,
) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
    let start = |source| Error::Start {
        what: "raft thread",
        source,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.map_err(start)?;
    let (end, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("raft".to_owned());
    // A panic in there drops `end`, and that ends the process as well.
    thread
        .spawn(move || end.send(runtime.block_on(node.run(inputs))))
        .map_err(start)?;
    Ok(ended)
}

fn connect(
    args: &ServeArgs,
    cluster: &Cluster,
    queues: peers::Queues,
    listener: TcpListener,
    inputs: &mpsc::UnboundedSender<Input>,
    log: &Logger,
) {
    let election_timeout = Duration::from_millis(args.election_timeout_ms);
    let terms = Terms {
        me: cluster.me,
        digest: cluster.digest(),
        election_timeout,
    };
    for (id, queue) in queues {
        let address = cluster.peers[&id].clone();
        tokio::spawn(peers::dial(
            id,
            address,
            terms,
            queue,
            inputs.clone(),
            log.clone(),
        ));
    }
    tokio::spawn(peers::accept(listener, terms, inputs.clone(), log.clone()));
}
