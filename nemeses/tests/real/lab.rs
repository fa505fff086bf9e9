//! A cluster on which every node runs the same service, and a nemesis for it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use cluster::clock::monotonic_ns;
use cluster::{Cluster, ClusterSpec, Error, Node};
use nemeses::{
    Clock, Entry, Finished, Ledger, Nemesis, OnCluster, Phase, Plan, PlannedFault, RawFault,
    Restart, Roster, Step, Targets, Timing, read_ledger,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::peer;

/// How long something that must come is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new()
        .expect("a runtime")
        .block_on(test);
}

pub struct Lab {
    cluster: Cluster,
    roster: Roster,
    _dir: TempDir,
}

/// A nemesis with a plan for a lab, and its ledger.
pub struct Bench<'a> {
    lab: &'a Lab,
    pub nemesis: Nemesis,
    ledger: Shared,
    begun: Arc<Notify>,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The first server leads, the first client holds.
struct Roles(Roster);

#[async_trait]
impl Targets for Roles {
    async fn leader(&self) -> Option<String> {
        self.0.servers.first().cloned()
    }

    async fn holder(&self) -> Option<String> {
        self.0.clients.first().cloned()
    }

    fn processes(&self, _node: &str) -> Vec<String> {
        vec!["peer".to_owned()]
    }
}

struct Again(Vec<Node>);

#[async_trait]
impl Restart for Again {
    async fn restart(&self, node: &Node, _process: &str) -> Result<(), Error> {
        node.start(&peer::service(node, &self.0)).await.map(drop)
    }
}

pub fn raw(at: &str, fault: &str, target: &str, lasts: &str, params: Value) -> RawFault {
    RawFault {
        at: at.to_owned(),
        fault: fault.to_owned(),
        target: Some(target.to_owned()),
        lasts: (!lasts.is_empty()).then(|| lasts.to_owned()),
        params: serde_json::from_value(params).unwrap(),
    }
}

pub fn plain(at: &str, fault: &str, target: &str, lasts: &str) -> RawFault {
    raw(at, fault, target, lasts, serde_json::json!({}))
}

/// Fails unless every fault landed and is gone.
pub fn assert_landed(finished: &Finished) {
    assert_eq!(finished.unhealed, []);
    for outcome in &finished.outcomes {
        assert!(outcome.landed && outcome.healed, "{outcome:#?}");
    }
}

/// The directed links of a resolved target, with all ends apart.
pub fn directed(resolved: &str) -> BTreeSet<(String, String)> {
    let mut links = BTreeSet::new();
    for link in resolved.split(',') {
        let (sign, both) = if link.contains('>') {
            ('>', false)
        } else {
            ('-', true)
        };
        let (a, b) = link.split_once(sign).expect("a link");
        links.insert((a.to_owned(), b.to_owned()));
        if both {
            links.insert((b.to_owned(), a.to_owned()));
        }
    }
    links
}

impl Lab {
    pub async fn new(servers: usize, clients: usize) -> Lab {
        let names = |letter: char, count: usize| -> Vec<String> {
            (1..=count).map(|at| format!("{letter}{at}")).collect()
        };
        let roster = Roster {
            servers: names('n', servers),
            clients: names('c', clients),
            others: Vec::new(),
        };
        let dir = tempfile::tempdir().unwrap();
        let spec = ClusterSpec {
            nodes: roster.names().map(str::to_owned).collect(),
            seed: 7,
            dir: dir.path().to_owned(),
            exe: None,
        };
        let cluster = cluster::create(&spec).await.expect("a cluster");
        for node in cluster.nodes() {
            node.start(&peer::service(node, cluster.nodes()))
                .await
                .expect("a service");
        }
        let lab = Lab {
            cluster,
            roster,
            _dir: dir,
        };
        lab.until_all_hear_all().await;
        lab
    }

    pub async fn end(self) {
        self.cluster.destroy().await.expect("a clean end");
    }

    pub fn node(&self, name: &str) -> &Node {
        self.cluster.node(name).expect("a node of this name")
    }

    pub fn bench(&self, faults: Vec<RawFault>) -> Bench<'_> {
        let timing = Timing::default();
        let faults = faults
            .into_iter()
            .map(|raw| PlannedFault::resolve(raw, &self.roster, &timing));
        let faults = faults.collect::<Result<_, _>>().unwrap();
        let plan = Plan::new(self.roster.clone(), 7, faults, None).unwrap();
        let began = monotonic_ns();
        let clock: Clock = Arc::new(move || monotonic_ns() - began);
        let again = Arc::new(Again(self.cluster.nodes().to_vec()));
        let ledger = Shared::default();
        let begun = Arc::new(Notify::new());
        let tell = Arc::clone(&begun);
        let nemesis = Nemesis::new(
            plan,
            Arc::new(OnCluster::new(&self.cluster, again, &clock)),
            Arc::new(Roles(self.roster.clone())),
            clock,
            Ledger::new(ledger.clone()),
            Box::new(move |event| {
                if event.phase == Phase::Begin {
                    tell.notify_one();
                }
            }),
        );
        Bench {
            lab: self,
            nemesis,
            ledger,
            begun,
        }
    }

    /// How often a node's service ticked.
    pub async fn ticks(&self, node: &str) -> u64 {
        peer::heard(self.node(node))
            .await
            .get(node)
            .copied()
            .unwrap_or_default()
    }

    /// By how many minutes the clock of a node's service is ahead of the machine's, after two more
    /// ticks: what it wrote before may be older than what was done to it.
    pub async fn minutes_ahead(&self, node: &str) -> i64 {
        self.until_all_tick(2).await;
        let told = peer::time_of_day(self.node(node)).await.cast_signed();
        let ahead_ms = told - peer::time_of_day_ms().cast_signed();
        (ahead_ms + 30_000).div_euclid(60_000)
    }

    async fn all_heard(&self) -> BTreeMap<(String, String), u64> {
        let mut all = BTreeMap::new();
        for node in self.cluster.nodes() {
            for (from, count) in peer::heard(node).await {
                all.insert((from, node.name().to_owned()), count);
            }
        }
        all
    }

    /// Links on which nothing is heard while all services tick.
    pub async fn silent_links(&self) -> BTreeSet<(String, String)> {
        // What arrived before may not have been counted yet.
        self.until_all_tick(2).await;
        let before = self.all_heard().await;
        self.until_all_tick(10).await;
        let after = self.all_heard().await;
        let count = |all: &BTreeMap<_, u64>, link: &_| all.get(link).copied().unwrap_or_default();
        let links = before.keys().chain(after.keys());
        let heard: BTreeSet<_> = links
            .filter(|link| count(&before, link) < count(&after, link))
            .collect();
        let names: Vec<&str> = self.roster.names().collect();
        let links = names
            .iter()
            .flat_map(|a| names.iter().map(|b| ((*a).to_owned(), (*b).to_owned())));
        links.filter(|link| !heard.contains(link)).collect()
    }

    /// Waits until every service has ticked so many times.
    async fn until_all_tick(&self, times: u64) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut before = Vec::new();
        for node in self.cluster.nodes() {
            before.push((node.name(), self.ticks(node.name()).await));
        }
        for (name, before) in before {
            while self.ticks(name).await < before + times {
                assert!(
                    tokio::time::Instant::now() < deadline,
                    "{name} stands still"
                );
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// Waits until every service runs and hears every other one.
    pub async fn until_all_hear_all(&self) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let silent = self.silent_links().await;
            if silent.is_empty() {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "still silent: {silent:?}"
            );
        }
    }
}

impl Bench<'_> {
    pub async fn run(&self) -> Finished {
        self.run_until(std::future::pending()).await
    }

    pub async fn run_until(&self, stop: impl Future<Output = ()>) -> Finished {
        self.nemesis.run(stop).await
    }

    /// Runs the plan, looks at the lab as soon as the first fault is there, and then stops the run.
    pub async fn watch<T>(&self, look: impl AsyncFnOnce(&Lab) -> T) -> (Finished, T) {
        let (seen, stop) = tokio::sync::oneshot::channel();
        let look = async {
            self.begun.notified().await;
            let found = look(self.lab).await;
            seen.send(()).expect("the run goes on until it is stopped");
            found
        };
        let stop = async {
            stop.await.expect("the look comes to its end");
        };
        tokio::join!(self.run_until(stop), look)
    }

    pub fn entries(&self) -> Vec<Entry> {
        read_ledger(std::str::from_utf8(&self.ledger.0.lock().unwrap()).unwrap()).unwrap()
    }

    /// Prints how long the steps of each fault took.
    pub fn print_times(&self, what: &str) {
        let mut last = BTreeMap::new();
        for entry in self.entries() {
            let before = last.insert(entry.id, entry.t);
            let looks = [
                Step::Installed,
                Step::Verified,
                Step::Healed,
                Step::VerifiedHealed,
            ];
            if let (Some(before), true) = (before, looks.contains(&entry.step)) {
                let ms = (entry.t - before) as f64 / 1e6;
                eprintln!("{what}: {:?} in {ms:.1} ms: {}", entry.step, entry.says);
            }
        }
    }
}
