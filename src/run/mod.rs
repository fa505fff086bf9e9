//! One run of one cell, from an empty machine to a directory with a verdict.
//!
//! ```text
//! cluster -> system -> clients -> drive (generator | nemesis | observers) -> heal -> settle
//!         -> final reads -> teardown -> check -> result, report
//! ```
//!
//! Each stage has a deadline and leaves its time and, if it failed, its reason in the result. What
//! was harmed is healed and what was made is destroyed whatever happened before; what was recorded
//! is checked even if the harness failed, because a violation outranks that.

pub mod clients;
mod conclude;
mod deploy;
pub use deploy::own_executable;
pub mod drive;
mod harm;
mod observe;
pub mod recorder;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cluster::{Cluster, ClusterSpec};
use history::clock::Clock;
use history::{Event, Header};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use workloads::generator::Generator;
use workloads::{Placement, Setup};

use crate::result::{FaultOutcome, NodeInfo, Outcome, RunResult, Stage};
use crate::results;
use crate::suite::Cell;
use deploy::Layout;
use drive::{Driver, HolderBoard};
use observe::LeaderBoard;
use recorder::Recorder;

const CLUSTER_WITHIN: Duration = Duration::from_secs(30);
const SYSTEM_WITHIN: Duration = Duration::from_secs(60);
const CLIENTS_WITHIN: Duration = Duration::from_secs(15);
/// In nanoseconds.
const FINAL_WITHIN: u64 = 60_000_000_000;
const TEARDOWN_WITHIN: Duration = Duration::from_secs(20);

/// What a run tells whoever shows progress.
#[derive(Debug, Clone)]
pub enum Progress {
    /// A stage begins.
    Stage(&'static str),
    /// The drive goes on.
    Driving {
        /// Nanoseconds since the drive began.
        elapsed: u64,
    },
}

/// What a run is given.
pub struct RunSpec<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Where its files go; exists.
    pub dir: PathBuf,
    /// The seed of everything random.
    pub seed: u64,
    /// Whether the systems' data is kept with the logs.
    pub keep_data: bool,
    /// Becomes true when the run is to end early.
    pub cancel: watch::Receiver<bool>,
    /// Told how it goes.
    pub progress: mpsc::UnboundedSender<Progress>,
}

/// Runs a cell and writes its directory.
pub async fn run(spec: RunSpec<'_>) -> RunResult {
    let clock = Clock::start();
    let mut run = Run::new(spec);
    run.live().await;
    let history = run.read_history();
    let result = run.conclude(history, clock).await;
    if let Err(error) = results::write_result(&run.dir, &result) {
        // The directory cannot be written any more; the caller still gets the result.
        let mut result = result;
        result
            .notes
            .push(format!("the result could not be written: {error}"));
        if result.outcome != Outcome::Violation {
            result.outcome = Outcome::HarnessFailed;
        }
        return result;
    }
    result
}

struct Run<'a> {
    cell: &'a Cell,
    dir: PathBuf,
    seed: u64,
    keep_data: bool,
    cancel: watch::Receiver<bool>,
    progress: mpsc::UnboundedSender<Progress>,
    stages: Vec<Stage>,
    stage_clock: Clock,
    layout: Layout,
    nodes: Vec<NodeInfo>,
    faults: Vec<FaultOutcome>,
    notes: Vec<String>,
    interrupted: bool,
    version: String,
    started: chrono::DateTime<chrono::Utc>,
}

impl<'a> Run<'a> {
    fn new(spec: RunSpec<'a>) -> Run<'a> {
        Run {
            layout: Layout::new(spec.cell),
            cell: spec.cell,
            dir: spec.dir,
            seed: spec.seed,
            keep_data: spec.keep_data,
            cancel: spec.cancel,
            progress: spec.progress,
            stages: Vec::new(),
            stage_clock: Clock::start(),
            nodes: Vec::new(),
            faults: Vec::new(),
            notes: Vec::new(),
            interrupted: false,
            version: "unknown".to_owned(),
            started: results::wall_clock(),
        }
    }

    /// The stages that need a cluster. A failure is in `stages` afterwards.
    async fn live(&mut self) {
        match self.cell.system.version() {
            Ok(version) => self.version = version,
            Err(error) => return self.failed("system", error.to_string()),
        }
        let _ = self.progress.send(Progress::Stage("cluster"));
        let spec = ClusterSpec {
            nodes: self.layout.names(),
            seed: self.stream("switch"),
            dir: self.dir.join("nodes"),
            exe: None,
        };
        let made = tokio::time::timeout(CLUSTER_WITHIN, cluster::create(&spec)).await;
        let cluster = match made {
            Ok(Ok(cluster)) => cluster,
            Ok(Err(error)) => return self.failed("cluster", error.to_string()),
            Err(_) => return self.failed("cluster", format!("not up in {CLUSTER_WITHIN:?}")),
        };
        self.done("cluster");
        self.nodes = self.layout.describe(&cluster);
        let up = self.with_cluster(&cluster).await;
        if let Err((stage, why)) = up {
            self.failed(stage, why);
        }
        self.stage_clock = Clock::start();
        let _ = self.progress.send(Progress::Stage("teardown"));
        match tokio::time::timeout(TEARDOWN_WITHIN, cluster.destroy()).await {
            Ok(Ok(())) => self.done("teardown"),
            Ok(Err(error)) => self.failed("teardown", error.to_string()),
            Err(_) => self.failed("teardown", format!("not down in {TEARDOWN_WITHIN:?}")),
        }
        if !self.keep_data {
            self.layout.drop_data(&self.dir.join("nodes"));
        }
    }

    /// Everything between the cluster's coming up and its going down.
    async fn with_cluster(&mut self, cluster: &Cluster) -> Result<(), (&'static str, String)> {
        let _ = self.progress.send(Progress::Stage("system"));
        let exits = deploy::watch_exits(cluster);
        let up = deploy::start(self.cell, &self.layout, cluster, &exits);
        let mut cancel = self.cancel.clone();
        tokio::select! {
            up = tokio::time::timeout(SYSTEM_WITHIN, up) => match up {
                Ok(up) => up.map_err(|why| ("system", why))?,
                Err(_) => {
                    let why = deploy::why_not_ready(self.cell, &self.layout, cluster).await;
                    return Err(("system", format!("not ready in {SYSTEM_WITHIN:?}: {why}")));
                }
            },
            () = cancelled(&mut cancel) => {
                self.interrupted = true;
                return Ok(());
            }
        }
        self.done("system");
        let _ = self.progress.send(Progress::Stage("clients"));
        let (to_driver, incoming) = mpsc::channel(256);
        let links = self
            .start_clients(cluster, to_driver)
            .await
            .map_err(|why| ("clients", why))?;
        self.done("clients");
        self.drive(cluster, links, incoming, &exits).await
    }

    async fn start_clients(
        &self,
        cluster: &Cluster,
        to_driver: mpsc::Sender<(usize, clients::FromClient)>,
    ) -> Result<Vec<clients::ClientLink>, String> {
        let exe = deploy::own_executable()?;
        let argv = [
            exe,
            "client".to_owned(),
            "--system".to_owned(),
            self.cell.system.name().to_owned(),
        ];
        let functions = self.cell.workload.functions(&self.cell.workload_params);
        let params = self.cell.workload.header_params(&self.cell.workload_params);
        let nodes = self.layout.client_view(self.cell, cluster);
        let vault = self.layout.vault_addr(cluster);
        let mut links = Vec::new();
        for (index, name) in self.layout.clients.iter().enumerate() {
            let node = cluster
                .node(name)
                .ok_or_else(|| format!("{name} is missing"))?;
            let greeting = clients::Greeting {
                system: self.cell.system.name(),
                nodes: &nodes,
                workload: self.cell.workload.name(),
                seed: self.stream(name),
                params: &params,
                vault: vault.as_deref(),
                functions: &functions,
                timeout: CLIENTS_WITHIN,
            };
            links.push(clients::start(node, &argv, &greeting, index, to_driver.clone()).await?);
        }
        Ok(links)
    }

    async fn drive(
        &mut self,
        cluster: &Cluster,
        links: Vec<clients::ClientLink>,
        incoming: mpsc::Receiver<(usize, clients::FromClient)>,
        exits: &deploy::Exits,
    ) -> Result<(), (&'static str, String)> {
        let clock = Clock::start();
        let placement = self.cell.workload.placement(&self.cell.workload_params);
        let header = self.header(placement);
        let recorder = Recorder::create(&self.history_path(), &header, clock)
            .map_err(|error| ("drive", format!("history.jsonl: {error}")))?;
        let (outside_sink, outside) = mpsc::unbounded_channel::<Event>();
        let holder = HolderBoard::default();
        let leaders = LeaderBoard::default();
        let observers = self.observe(cluster, &leaders, &outside_sink);
        exits.report_to(outside_sink.clone());
        let threads = placement.client_nodes * placement.processes_per_node;
        let mut driver = Driver::new(drive::Setup {
            clock,
            recorder,
            clients: links,
            incoming,
            outside,
            threads,
            servers: self.layout.servers.clone(),
            op_timeout: self.cell.op_timeout,
            holder: holder.clone(),
        });
        let setup = Setup {
            servers: self.layout.servers.clone(),
            threads,
            seed: self.stream("workload"),
        };
        let harm = harm::Harm::start(harm::HarmSetup {
            cell: self.cell,
            layout: &self.layout,
            cluster,
            clock,
            seed: self.stream("plan"),
            ledger: &self.dir.join("faults.jsonl"),
            leaders: leaders.clone(),
            holder,
            sink: outside_sink.clone(),
        });
        let mut harm = harm.map_err(|why| ("drive", why))?;
        let _ = self.progress.send(Progress::Stage("drive"));
        let progress = self.show_progress(clock);
        let generator = self
            .cell
            .workload
            .generator(&self.cell.workload_params, &setup);
        let generator = generator.time_limit(self.cell.time_limit).boxed();
        driver.run(generator, &mut self.cancel).await;
        progress.abort();
        self.interrupted |= driver.driven().cancelled;
        self.done("drive");

        self.heal(&mut driver, &mut harm).await;
        if !self.interrupted {
            self.settle_and_read(cluster, &mut driver, &setup, &leaders)
                .await;
        }
        for observer in observers {
            observer.abort();
        }
        let (recorder, driven) = driver.finish();
        for (node, service, how) in exits.by_themselves() {
            self.notes
                .push(format!("{service} on {node} ended by itself: {how}"));
        }
        self.close(recorder, driven)
    }

    async fn heal(&mut self, driver: &mut Driver, harm: &mut harm::Harm) {
        let _ = self.progress.send(Progress::Stage("heal"));
        let healed = driver.idle(harm.heal()).await;
        self.faults = healed.outcomes;
        match healed.trouble {
            None => self.done("heal"),
            Some(why) => self.failed("heal", why),
        }
    }

    async fn settle_and_read(
        &mut self,
        cluster: &Cluster,
        driver: &mut Driver,
        setup: &Setup,
        leaders: &LeaderBoard,
    ) {
        let _ = self.progress.send(Progress::Stage("settle"));
        let mut cancel = self.cancel.clone();
        let settled = async {
            tokio::select! {
                settled = deploy::settle(self.cell, &self.layout, cluster, leaders) => settled,
                () = cancelled(&mut cancel) => Ok(()),
            }
        };
        if let Err(why) = driver.idle(settled).await {
            self.notes.push(format!(
                "the cluster was not whole again after healing: {why}"
            ));
        }
        self.done("settle");
        self.interrupted |= *self.cancel.borrow();
        let params = &self.cell.workload_params;
        if let Some(generator) = self.cell.workload.final_generator(params, setup) {
            let _ = self.progress.send(Progress::Stage("final-reads"));
            driver
                .run(generator.time_limit(FINAL_WITHIN).boxed(), &mut self.cancel)
                .await;
            self.interrupted |= driver.driven().cancelled;
            self.done("final-reads");
        }
    }

    fn close(
        &mut self,
        recorder: Recorder,
        driven: drive::Driven,
    ) -> Result<(), (&'static str, String)> {
        if driven.late > 0 {
            self.notes.push(format!(
                "{} answers came after the harness had given their operations up",
                driven.late
            ));
        }
        let trouble = recorder.trouble().map(ToString::to_string);
        if let Err(error) = recorder.finish() {
            return Err((
                "record",
                format!("history.jsonl: {error}; the history so far is kept"),
            ));
        }
        if let Some(trouble) = trouble {
            self.notes.push(format!(
                "history.jsonl could not be written for a while: {trouble}"
            ));
        }
        match driven.faults.first() {
            Some(first) => {
                let more = driven.faults.len() - 1;
                Err((
                    "drive",
                    format!("a client broke the protocol: {first} (and {more} more)"),
                ))
            }
            None => Ok(()),
        }
    }

    fn observe(
        &self,
        cluster: &Cluster,
        leaders: &LeaderBoard,
        sink: &mpsc::UnboundedSender<Event>,
    ) -> Vec<tokio::task::JoinHandle<()>> {
        let servers: Arc<[systems::Server]> = self.layout.server_view(cluster).into();
        servers
            .iter()
            .filter_map(|server| {
                let node = cluster.node(&server.name)?.clone();
                Some(tokio::spawn(observe::watch(
                    self.cell.system,
                    node,
                    server.clone(),
                    servers.clone(),
                    leaders.clone(),
                    sink.clone(),
                )))
            })
            .collect()
    }

    fn show_progress(&self, clock: Clock) -> tokio::task::JoinHandle<()> {
        let progress = self.progress.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let _ = progress.send(Progress::Driving {
                    elapsed: clock.now(),
                });
            }
        })
    }

    /// The header of the history: everything that a checker may need.
    fn header(&self, placement: Placement) -> Header {
        let cell = self.cell;
        let params = &cell.workload_params;
        let checkers = cell.workload.checkers(params);
        let mut header = Header::new(cell.workload.name(), &checkers);
        header.system = Some(format!("{} {}", cell.system.name(), self.version));
        header.nodes.clone_from(&self.layout.servers);
        let mut map = cell.workload.header_params(params);
        let timing = cell.system.timing(&cell.system_params);
        let election_ms = timing.election_timeout / 1_000_000;
        map.insert("election_timeout_ms".to_owned(), json!(election_ms));
        if !map.contains_key("bound_ms") {
            // A leader's lease is as long as an election timeout where the system has no other.
            let lease_ms = map
                .get("ttl_ms")
                .and_then(Value::as_u64)
                .unwrap_or(election_ms);
            map.insert("bound_ms".to_owned(), json!(lease_ms + election_ms));
        }
        map.insert("min_ok".to_owned(), json!(cell.min_ok));
        map.insert("required".to_owned(), json!(required(&map, &cell.required)));
        let threads = placement.client_nodes * placement.processes_per_node;
        map.insert("threads".to_owned(), json!(threads));
        let clients: Map<String, Value> = (0..threads)
            .map(|thread| {
                let client = &self.layout.clients[thread % self.layout.clients.len().max(1)];
                (thread.to_string(), json!(client))
            })
            .collect();
        map.insert("clients".to_owned(), Value::Object(clients));
        map.extend(cell.checker_params.clone());
        header.params = map;
        header
    }

    fn history_path(&self) -> PathBuf {
        self.dir.join("history.jsonl")
    }

    /// A seed for one named stream of chance.
    fn stream(&self, name: &str) -> u64 {
        crate::seed::stream(self.seed, name)
    }

    fn done(&mut self, name: &str) {
        let took_ms = self.stage_clock.now() / 1_000_000;
        self.stages.push(Stage {
            name: name.to_owned(),
            took_ms,
            error: None,
        });
        self.stage_clock = Clock::start();
    }

    fn failed(&mut self, name: &str, why: String) {
        let took_ms = self.stage_clock.now() / 1_000_000;
        self.stages.push(Stage {
            name: name.to_owned(),
            took_ms,
            error: Some(why),
        });
        self.stage_clock = Clock::start();
    }
}

/// What must be seen: what the workload requires of every run, and what the cell requires besides.
fn required(workload: &Map<String, Value>, cell: &[String]) -> Vec<String> {
    let own = workload
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let own = own.filter_map(Value::as_str).map(str::to_owned);
    let mut all: Vec<String> = own.chain(cell.iter().cloned()).collect();
    all.sort();
    all.dedup();
    all
}

/// Waits until the run is to end early; for ever if nobody can say so any more.
async fn cancelled(cancel: &mut watch::Receiver<bool>) {
    if cancel.wait_for(|&cancelled| cancelled).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Makes the folder of a run.
///
/// # Errors
/// The folder and what the system said.
pub fn make_dir(dir: &Path) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))
}
