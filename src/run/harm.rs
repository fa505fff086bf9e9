//! Runs the nemesis beside a drive: gives it the cluster, its targets and its ledger, and turns what
//! it reports into events of the history and outcomes of the result.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use cluster::{Cluster, Node, ServiceSpec};
use history::clock::Clock;
use history::{Event, Kind, Process};
use nemeses::{Finished, Ledger, Nemesis, NemesisEvent, OnCluster, Plan, Restart, Targets};
use tokio::sync::{mpsc, oneshot};

use super::clients::CLIENT_SERVICE;
use super::deploy::{self, Layout};
use super::drive::HolderBoard;
use super::observe::LeaderBoard;
use crate::result::FaultOutcome;
use crate::suite::Cell;

/// What the nemesis is given.
pub struct HarmSetup<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Its nodes.
    pub layout: &'a Layout,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The clock of the run.
    pub clock: Clock,
    /// Decides where targets leave a choice.
    pub seed: u64,
    /// Where the ledger goes.
    pub ledger: &'a Path,
    /// Who leads.
    pub leaders: LeaderBoard,
    /// Who holds the lock.
    pub holder: HolderBoard,
    /// Where events of the history go.
    pub sink: mpsc::UnboundedSender<Event>,
}

/// A nemesis at work.
pub struct Harm {
    stop: Option<oneshot::Sender<()>>,
    task: Option<tokio::task::JoinHandle<Finished>>,
}

/// What became of it.
pub struct Healed {
    /// Each fault.
    pub outcomes: Vec<FaultOutcome>,
    /// What is not as it was; the run has failed then.
    pub trouble: Option<String>,
}

impl Harm {
    /// Readies the plan and sets the nemesis to work.
    ///
    /// # Errors
    /// If the ledger cannot be written, or the plan cannot be put together.
    pub fn start(setup: HarmSetup<'_>) -> Result<Harm, String> {
        let cell = setup.cell;
        let faults = cell.plan(setup.seed).map_err(|error| error.to_string())?;
        let plan = Plan::new(cell.roster(), setup.seed, faults, cell.max_harmed)
            .map_err(|error| error.to_string())?;
        let file = File::create(setup.ledger)
            .map_err(|error| format!("{}: {error}", setup.ledger.display()))?;
        let processes = processes(setup.cell, setup.layout, setup.cluster)?;
        let clock: nemeses::Clock = Arc::new({
            let clock = setup.clock;
            move || clock.now()
        });
        let restart = Arc::new(Services::of(setup.cell, setup.layout, setup.cluster)?);
        let access = OnCluster::new(setup.cluster, restart, &clock);
        let targets = LiveTargets {
            processes,
            leaders: setup.leaders,
            holder: setup.holder,
        };
        let sink = setup.sink;
        let nemesis = Nemesis::new(
            plan,
            Arc::new(access),
            Arc::new(targets),
            clock,
            Ledger::new(file),
            Box::new(move |event: &NemesisEvent| {
                let value = event.value();
                let event = Event::new(0, Process::nemesis(), Kind::Info, event.fault, value);
                // The recorder outlives the nemesis, but for a run that is being torn down.
                let _ = sink.send(event);
            }),
        );
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            nemesis
                .run(async {
                    // A sender that is gone says the same as one that sends.
                    let _ = stopped.await;
                })
                .await
        });
        Ok(Harm {
            stop: Some(stop),
            task: Some(task),
        })
    }

    /// Stops the nemesis and waits until everything is undone.
    pub async fn heal(&mut self) -> Healed {
        drop(self.stop.take());
        let joined = match self.task.take() {
            Some(task) => task.await.map_err(|error| error.to_string()),
            None => Err("the nemesis was stopped already".to_owned()),
        };
        match joined {
            Ok(finished) => healed(finished),
            Err(why) => Healed {
                outcomes: Vec::new(),
                trouble: Some(why),
            },
        }
    }
}

fn healed(finished: Finished) -> Healed {
    let mut trouble: Vec<String> = finished
        .unhealed
        .iter()
        .map(|left| format!("{}: {}", left.what, left.reason))
        .collect();
    trouble.extend(
        finished
            .ledger
            .map(|error| format!("faults.jsonl: {error}")),
    );
    let outcomes: Vec<FaultOutcome> = finished.outcomes.into_iter().map(outcome).collect();
    for fault in outcomes.iter().filter(|fault| !fault.healed) {
        trouble.push(format!(
            "fault {} was not healed: {}",
            fault.id, fault.evidence
        ));
    }
    Healed {
        outcomes,
        trouble: (!trouble.is_empty()).then(|| trouble.join("; ")),
    }
}

fn outcome(outcome: nemeses::FaultOutcome) -> FaultOutcome {
    FaultOutcome {
        id: outcome.id,
        fault: outcome.fault,
        target: outcome.target,
        resolved: outcome.resolved,
        begin_ms: outcome.begin_ns.map(|ns| ns / 1_000_000),
        end_ms: outcome.end_ns.map(|ns| ns / 1_000_000),
        landed: outcome.landed,
        healed: outcome.healed,
        evidence: outcome.evidence,
    }
}

/// The names of what runs on each node.
fn processes(
    cell: &Cell,
    layout: &Layout,
    cluster: &Cluster,
) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut all = BTreeMap::new();
    let servers = layout.server_view(cluster);
    for server in &servers {
        let services = deploy::services(cell, server, &servers)?;
        let names = services.into_iter().map(|service| service.name).collect();
        all.insert(server.name.clone(), names);
    }
    for client in &layout.clients {
        all.insert(client.clone(), vec![CLIENT_SERVICE.to_owned()]);
    }
    Ok(all)
}

/// How services are started, to start them again.
struct Services(BTreeMap<(String, String), ServiceSpec>);

impl Services {
    fn of(cell: &Cell, layout: &Layout, cluster: &Cluster) -> Result<Services, String> {
        let mut all = BTreeMap::new();
        let servers = layout.server_view(cluster);
        for server in &servers {
            for service in deploy::services(cell, server, &servers)? {
                let spec = deploy::service_spec(&service)?;
                all.insert((server.name.clone(), service.name), spec);
            }
        }
        Ok(Services(all))
    }
}

#[async_trait]
impl Restart for Services {
    async fn restart(&self, node: &Node, process: &str) -> Result<(), cluster::Error> {
        match self.0.get(&(node.name().to_owned(), process.to_owned())) {
            Some(spec) => node.start(spec).await.map(|_| ()),
            // A client program is linked to the driver; it stays dead, and its operations with it.
            None => Ok(()),
        }
    }
}

struct LiveTargets {
    processes: BTreeMap<String, Vec<String>>,
    leaders: LeaderBoard,
    holder: HolderBoard,
}

#[async_trait]
impl Targets for LiveTargets {
    async fn leader(&self) -> Option<String> {
        self.leaders.leader()
    }

    async fn holder(&self) -> Option<String> {
        self.holder.holder()
    }

    fn processes(&self, node: &str) -> Vec<String> {
        self.processes.get(node).cloned().unwrap_or_default()
    }
}
