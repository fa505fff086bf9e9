//! `schism bench drive`: operations a second from the generator to the recorded completion, against
//! client programs that answer at once, over the same road as in a run: agents, namespaces, history
//! file.

use std::path::Path;
use std::time::Duration;

use cluster::ClusterSpec;
use history::Header;
use history::clock::Clock;
use serde_json::Map;
use spec::Params;
use tabled::builder::Builder;
use tabled::settings::Style;
use tokio::sync::{mpsc, watch};
use workloads::Setup;
use workloads::generator::Generator;

use crate::run::clients::{self, Greeting};
use crate::run::drive::{self, Driver, HolderBoard};
use crate::run::{own_executable, recorder::Recorder};

/// Threads of each measurement, over all clients: operations that may be open at once.
const THREADS: usize = 1000;

struct Measured {
    clients: usize,
    ops: u64,
    seconds: f64,
    controller_cpu: f64,
    bytes_per_op: f64,
    file_bytes_per_op: f64,
}

/// Measures with one client program and with five, and prints a table.
pub async fn measure(seconds: u64) -> Result<(), String> {
    let mut table = Builder::new();
    table.push_record([
        "client programs",
        "ops",
        "ops/s",
        "controller CPU, cores",
        "memory, bytes/op",
        "history file, bytes/op",
    ]);
    for clients in [1, 5] {
        let measured = one(clients, seconds).await?;
        table.push_record([
            measured.clients.to_string(),
            measured.ops.to_string(),
            format!("{:.0}", measured.ops as f64 / measured.seconds),
            format!("{:.2}", measured.controller_cpu / measured.seconds),
            format!("{:.1}", measured.bytes_per_op),
            format!("{:.0}", measured.file_bytes_per_op),
        ]);
    }
    println!("{}", table.build().with(Style::sharp()));
    println!(
        "{THREADS} operations open at once; memory is the growth of the controller's resident set \
         during the drive"
    );
    Ok(())
}

async fn one(clients: usize, seconds: u64) -> Result<Measured, String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let names: Vec<String> = (1..=clients).map(|number| format!("c{number}")).collect();
    let spec = ClusterSpec {
        nodes: names.clone(),
        seed: 1,
        dir: dir.path().join("nodes"),
        exe: None,
    };
    let cluster = cluster::create(&spec)
        .await
        .map_err(|error| error.to_string())?;
    let argv = [own_executable()?, crate::cli::ECHO_CLIENT.to_owned()];
    let (to_driver, incoming) = mpsc::channel(256);
    let params = Map::new();
    let mut links = Vec::new();
    for (index, node) in cluster.nodes().iter().enumerate() {
        let greeting = Greeting {
            system: "echo",
            nodes: &[],
            workload: "register",
            seed: 1,
            params: &params,
            vault: None,
            functions: &[],
            timeout: Duration::from_secs(10),
        };
        links.push(clients::start(node, &argv, &greeting, index, to_driver.clone()).await?);
    }
    let result = drive(dir.path(), links, incoming, seconds).await;
    cluster.destroy().await.map_err(|error| error.to_string())?;
    let mut measured = result?;
    measured.clients = clients;
    Ok(measured)
}

async fn drive(
    dir: &Path,
    links: Vec<clients::ClientLink>,
    incoming: mpsc::Receiver<(usize, clients::FromClient)>,
    seconds: u64,
) -> Result<Measured, String> {
    let workload = workloads::find("register").ok_or("there is no register workload")?;
    let params = Params::resolve(workload.params(), [("rate".to_owned(), 0.into())])
        .map_err(|error| error.to_string())?;
    let clock = Clock::start();
    let path = dir.join("history.jsonl");
    let recorder = Recorder::create(&path, &Header::new("register", &[]), clock)
        .map_err(|error| error.to_string())?;
    let (_events, outside) = mpsc::unbounded_channel();
    let mut driver = Driver::new(drive::Setup {
        clock,
        recorder,
        clients: links,
        incoming,
        outside,
        threads: THREADS,
        servers: Vec::new(),
        op_timeout: 10_000_000_000,
        holder: HolderBoard::default(),
    });
    let setup = Setup {
        servers: Vec::new(),
        threads: THREADS,
        seed: 1,
    };
    let generator = workload.generator(&params, &setup);
    let generator = generator.time_limit(seconds * 1_000_000_000).boxed();
    let (_keep, mut cancel) = watch::channel(false);
    let (memory_before, cpu_before) = (resident_bytes(), cpu_seconds());
    driver.run(generator, &mut cancel).await;
    let elapsed = clock.now() as f64 / 1e9;
    let (memory_after, cpu_after) = (resident_bytes(), cpu_seconds());
    let (recorder, driven) = driver.finish();
    if let Some(fault) = driven.faults.first() {
        return Err(fault.clone());
    }
    recorder.finish().map_err(|error| error.to_string())?;
    let file = std::fs::metadata(&path)
        .map_err(|error| error.to_string())?
        .len();
    let ops = driven.ok.max(1) as f64;
    Ok(Measured {
        clients: 0,
        ops: driven.ok,
        seconds: elapsed,
        controller_cpu: cpu_after - cpu_before,
        bytes_per_op: memory_after.saturating_sub(memory_before) as f64 / ops,
        file_bytes_per_op: file as f64 / ops,
    })
}

/// The resident set of this process.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    pages * 4096
}

/// Seconds of processor time that this process has used, in user and in kernel mode.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the name in brackets; utime and stime are the 14th and 15th.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |field: usize| -> f64 {
        rest.split_whitespace()
            .nth(field - 3)
            .and_then(|n| n.parse().ok())
            .unwrap_or(0.0)
    };
    (ticks(14) + ticks(15)) / 100.0
}
