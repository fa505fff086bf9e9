//! The service that the tests hurt: on every node it says hello to all others all the time, and
//! keeps a file that tells how often it ticked and how often it heard each of them.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::Duration;

use cluster::clock::monotonic_ns;
use cluster::{Node, ServiceSpec};

/// The first argument that makes this program the service.
const SUBCOMMAND: &str = "peer";
const PORT: u16 = 4000;
const FILE: &str = "heard";
const TIME: &str = "time";
const TICK: Duration = Duration::from_millis(5);

/// Becomes the service when the arguments say so.
pub fn dispatch() -> bool {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((first, peers)) if first == SUBCOMMAND => serve(peers),
        _ => false,
    }
}

/// `peers` is the own name, and then every other node as `name=address`.
fn serve(peers: &[String]) -> bool {
    let (me, peers) = peers.split_first().expect("a name");
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).expect("a socket");
    socket.set_read_timeout(Some(TICK)).expect("a timeout");
    let peers: Vec<(&str, &str)> = peers
        .iter()
        .map(|peer| peer.split_once('=').unwrap())
        .collect();
    let mut heard: BTreeMap<String, u64> = BTreeMap::new();
    let mut ticks = 0_u64;
    loop {
        ticks += 1;
        for (_, addr) in &peers {
            socket.send_to(me.as_bytes(), (*addr, PORT)).expect("sent");
        }
        let mut name = [0; 32];
        let next_ns = monotonic_ns() + TICK.as_nanos() as u64;
        while monotonic_ns() < next_ns {
            if let Ok((len, _)) = socket.recv_from(&mut name) {
                let name = String::from_utf8_lossy(&name[..len]).into_owned();
                *heard.entry(name).or_default() += 1;
            }
        }
        let lines = heard
            .iter()
            .map(|(name, count)| format!("{name} {count}\n"));
        let text = format!("{me} {ticks}\n") + &lines.collect::<String>();
        std::fs::write(TIME, time_of_day_ms().to_string()).expect("written");
        std::fs::write("heard.new", text).expect("written");
        std::fs::rename("heard.new", FILE).expect("renamed");
    }
}

/// Milliseconds since 1970, as this process reads them.
#[expect(clippy::disallowed_methods, reason = "the clock that faults move")]
pub fn time_of_day_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a later time").as_millis() as u64
}

/// What a node's service last read as the time of day, in milliseconds.
pub async fn time_of_day(node: &Node) -> u64 {
    let text = node.fetch(TIME, 100).await.expect("a file");
    let text = String::from_utf8(text.to_vec()).expect("text");
    text.parse().unwrap_or_default()
}

/// The service for one of these nodes.
pub fn service(node: &Node, nodes: &[Node]) -> ServiceSpec {
    let this = std::env::current_exe()
        .expect("this program")
        .display()
        .to_string();
    let mut argv = vec![this, SUBCOMMAND.to_owned(), node.name().to_owned()];
    let others = nodes.iter().filter(|other| other.name() != node.name());
    argv.extend(others.map(|other| format!("{}={}", other.name(), other.addr())));
    ServiceSpec {
        name: "peer".to_owned(),
        argv,
        env: Vec::new(),
        log: "peer.log".to_owned(),
    }
}

/// How often a node's service ticked (under its own name) and heard the others.
pub async fn heard(node: &Node) -> BTreeMap<String, u64> {
    let Ok(file) = node.fetch(FILE, 1 << 20).await else {
        return BTreeMap::new();
    };
    let text = String::from_utf8(file.to_vec()).expect("text");
    let count = |line: &str| {
        let (name, count) = line.split_once(' ').expect("a name and a count");
        (name.to_owned(), count.parse().expect("a count"))
    };
    text.lines().map(count).collect()
}
