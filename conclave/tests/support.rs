//! Runs clusters of real processes for tests, and everything that is done to them.
//!
//! Every cluster has a loopback address of its own, so that no outgoing connection can take a port
//! that a killed node will want back. Nodes reach each other through [`Link`]s, which a test can
//! cut. Waiting is always for an event, with a deadline that only a broken node misses.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// What a healthy cluster needs much less than, however loaded the machine is.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A program under test, killed when it is dropped.
pub struct Program {
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Program {
    fn new(log: PathBuf, arguments: Vec<String>) -> Program {
        Program {
            arguments,
            log,
            child: None,
        }
    }

    /// Starts it.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test runs the program that it tests"
    )]
    pub fn start(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_conclave"));
        self.child = Some(command.args(&self.arguments).stderr(log).spawn().unwrap());
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(
            Pid::from_raw(self.child.as_ref().unwrap().id() as i32),
            signal,
        )
        .unwrap();
    }

    fn proc(&self, file: &str) -> String {
        let id = self.child.as_ref().unwrap().id();
        std::fs::read_to_string(format!("/proc/{id}/{file}")).unwrap()
    }

    /// The processor time that it has used.
    pub fn cpu(&self) -> Duration {
        let stat = self.proc("stat");
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }

    /// How much memory and processor time it has used, in words.
    pub fn usage(&self) -> String {
        let status = self.proc("status");
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        format!("{} resident, {:?} of CPU", resident.trim(), self.cpu())
    }

    /// What it has written to standard error.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

/// Carries what one node sends to another, until it is cut.
struct Link {
    open: watch::Sender<bool>,
}

impl Link {
    fn new(listener: TcpListener, to: String) -> Link {
        let (open, opened) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (mut opened, to) = (opened.clone(), to.clone());
                tokio::spawn(async move {
                    if !*opened.borrow_and_update() {
                        return;
                    }
                    let Ok(mut far) = TcpStream::connect(to).await else {
                        return;
                    };
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = opened.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Link { open }
    }
}

/// What a call came back with.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub body: Value,
}

impl Reply {
    /// The body of a 200.
    pub fn ok(&self) -> &Value {
        assert_eq!(self.status, 200, "{}", self.body);
        &self.body
    }

    pub fn is_ok(&self) -> bool {
        self.status == 200
    }

    pub fn error(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }
}

/// A connection to a node or a vault.
pub struct Connection {
    address: String,
    sender: http1::SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Connects; `None` when nobody listens.
    pub async fn open(address: &str) -> Option<Connection> {
        let stream = TcpStream::connect(address).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        Some(Connection {
            address: address.to_owned(),
            sender,
        })
    }

    /// Sends a request and returns the response before its body has come.
    pub async fn begin(&mut self, path: &str, body: Value) -> Option<Response<Incoming>> {
        let body = Full::new(Bytes::from(body.to_string()));
        let request = Request::post(path)
            .header("host", &self.address)
            .body(body)
            .unwrap();
        self.sender.send_request(request).await.ok()
    }

    /// Sends a request and returns its answer.
    pub async fn call(&mut self, path: &str, body: Value) -> Option<Reply> {
        let response = self.begin(path, body).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.ok()?.to_bytes();
        Some(Reply {
            status,
            body: serde_json::from_slice(&bytes).ok()?,
        })
    }
}

/// Sends a request; `None` when no answer came in time.
pub async fn try_call(address: &str, path: &str, body: Value, limit: Duration) -> Option<Reply> {
    let answer = async { Connection::open(address).await?.call(path, body).await };
    timeout(limit, answer).await.ok().flatten()
}

/// Asks again and again until the answer satisfies.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(begin.elapsed() < DEADLINE, "waited in vain until {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// A free port on this address, taken by nobody until the caller lets go of the listener.
fn reserve(ip: Ipv4Addr) -> (StdListener, String) {
    let listener = StdListener::bind((ip, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// An address in 127.0.0.0/8 that no other test uses at the same time.
fn own_address(directory: &TempDir) -> Ipv4Addr {
    let name = directory.path().to_string_lossy().into_owned();
    let hash = crc32fast::hash(format!("{name} {}", std::process::id()).as_bytes()).to_be_bytes();
    Ipv4Addr::new(127, hash[0] | 1, hash[1], hash[2].clamp(1, 254))
}

/// A cluster of nodes n1, n2, ...; nodes are named by their place, from 0.
pub struct Cluster {
    pub nodes: Vec<Program>,
    clients: Vec<String>,
    links: BTreeMap<(usize, usize), Link>,
    directory: TempDir,
}

impl Cluster {
    /// Starts a cluster of `size` nodes with these additional flags.
    pub async fn start(size: usize, flags: &[&str]) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let ip = own_address(&directory);
        let reserved: Vec<_> = (0..size).map(|_| (reserve(ip), reserve(ip))).collect();
        let peers: Vec<String> = reserved.iter().map(|(peer, _)| peer.1.clone()).collect();
        let clients: Vec<String> = reserved
            .iter()
            .map(|(_, client)| client.1.clone())
            .collect();
        let mut cluster = Cluster {
            nodes: Vec::new(),
            clients,
            links: BTreeMap::new(),
            directory,
        };
        for from in 0..size {
            let mut seen = Vec::new();
            for (to, peer) in peers.iter().enumerate() {
                if from == to {
                    seen.push(peer.clone());
                    continue;
                }
                let listener = TcpListener::bind((ip, 0)).await.unwrap();
                seen.push(listener.local_addr().unwrap().to_string());
                cluster
                    .links
                    .insert((from, to), Link::new(listener, peer.clone()));
            }
            let program = cluster.program(from, &seen, flags);
            cluster.nodes.push(program);
        }
        drop(reserved);
        cluster.nodes.iter_mut().for_each(Program::start);
        cluster
    }

    fn program(&self, at: usize, peers: &[String], flags: &[&str]) -> Program {
        let list = |addresses: &[String]| {
            let members = (1..)
                .zip(addresses)
                .map(|(n, address)| format!("n{n}={address}"));
            members.collect::<Vec<_>>().join(",")
        };
        let name = format!("n{}", at + 1);
        let data = self.data(at).to_string_lossy().into_owned();
        let mut arguments: Vec<String> = vec!["serve".into(), "--name".into(), name.clone()];
        arguments.extend(["--data-dir".into(), data, "--peers".into(), list(peers)]);
        arguments.extend(["--clients".into(), list(&self.clients)]);
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Program::new(self.directory.path().join(format!("{name}.log")), arguments)
    }

    /// A node's data directory.
    pub fn data(&self, node: usize) -> PathBuf {
        self.directory.path().join(format!("n{}", node + 1))
    }

    /// A node's client address.
    pub fn address(&self, node: usize) -> &str {
        &self.clients[node]
    }

    /// Opens or closes the links between a node and all others, in both directions.
    pub fn isolate(&self, node: usize, cut: bool) {
        for ((from, to), link) in &self.links {
            if *from == node || *to == node {
                link.open.send_replace(!cut);
            }
        }
    }

    /// Opens or closes some links, each from one node to another.
    pub fn cut(&self, links: &[(usize, usize)], cut: bool) {
        for link in links {
            self.links[link].open.send_replace(!cut);
        }
    }

    /// Calls a node; panics when it does not answer.
    pub async fn call(&self, node: usize, path: &str, body: Value) -> Reply {
        let reply = try_call(&self.clients[node], path, body, DEADLINE).await;
        reply.unwrap_or_else(|| panic!("n{} did not answer {path}", node + 1))
    }

    /// Calls a node; `None` when it does not answer within a second.
    pub async fn try_call(&self, node: usize, path: &str, body: Value) -> Option<Reply> {
        try_call(&self.clients[node], path, body, Duration::from_secs(1)).await
    }

    /// Calls the leader, wherever it is, until it gives an answer other than that it is not one.
    pub async fn lead(&self, path: &str, body: Value) -> Reply {
        until("the leader answers", async || {
            let leader = self.leader().await;
            let limit = Duration::from_secs(10);
            let reply = try_call(&self.clients[leader], path, body.clone(), limit).await?;
            (reply.status != 421 && reply.status != 503).then_some(reply)
        })
        .await
    }

    /// A node's status, if it answers.
    pub async fn status(&self, node: usize) -> Option<Value> {
        Some(
            self.try_call(node, "/status", json!({}))
                .await?
                .ok()
                .clone(),
        )
    }

    /// Waits for a node that leads in the highest term and is followed by a majority.
    pub async fn leader(&self) -> usize {
        self.leader_among(&(0..self.nodes.len()).collect::<Vec<_>>())
            .await
    }

    /// Waits for a leader among these nodes, of which there must be enough for a majority.
    pub async fn leader_among(&self, nodes: &[usize]) -> usize {
        until("there is a leader", async || {
            let mut said = BTreeMap::new();
            for node in nodes {
                if let Some(status) = self.status(*node).await {
                    let named = (status["term"].as_u64(), status["leader"].to_string());
                    *said.entry(named).or_insert(0) += 1;
                }
            }
            let ((_, name), votes) = said.last_key_value()?;
            let number: usize = name.trim_matches('"').strip_prefix('n')?.parse().ok()?;
            (*votes * 2 > self.nodes.len() && nodes.contains(&(number - 1))).then_some(number - 1)
        })
        .await
    }

    /// Waits until all nodes have applied the same, and returns what that is.
    pub async fn converged(&self) -> Value {
        until("all nodes have applied the same", async || {
            let mut dumps = Vec::new();
            for node in 0..self.nodes.len() {
                dumps.push(self.try_call(node, "/dump", json!({})).await?.ok().clone());
            }
            dumps
                .windows(2)
                .all(|pair| pair[0] == pair[1])
                .then(|| dumps[0].clone())
        })
        .await
    }

    /// The nodes other than this one.
    pub fn others(&self, node: usize) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|other| *other != node)
            .collect()
    }
}

/// A vault.
pub struct Vault {
    pub program: Program,
    pub address: String,
    _directory: TempDir,
}

impl Vault {
    /// Starts a vault with these additional flags.
    pub async fn start(flags: &[&str]) -> Vault {
        let directory = tempfile::tempdir().unwrap();
        let (listener, address) = reserve(own_address(&directory));
        let data = directory.path().join("data").to_string_lossy().into_owned();
        let mut arguments: Vec<String> = vec!["vault".into(), "--listen".into(), address.clone()];
        arguments.extend(["--data-dir".into(), data]);
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let mut program = Program::new(directory.path().join("vault.log"), arguments);
        drop(listener);
        program.start();
        let vault = Vault {
            program,
            address,
            _directory: directory,
        };
        vault.ready().await;
        vault
    }

    /// Waits until it answers.
    pub async fn ready(&self) {
        let limit = Duration::from_secs(1);
        until("the vault answers", async || {
            try_call(&self.address, "/health", json!({}), limit).await
        })
        .await;
    }

    /// Calls it; panics when it does not answer.
    pub async fn call(&self, path: &str, body: Value) -> Reply {
        try_call(&self.address, path, body, DEADLINE)
            .await
            .expect("the vault answers")
    }
}
