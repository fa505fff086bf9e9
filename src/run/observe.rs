//! Observers: ask every server, again and again, who leads.
//!
//! The question is put by the server's own agent, on the server's own network, so that a cut link
//! does not hide what a node believes. A node that does not answer is recorded with the reason.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::{HttpRequest, Node};
use history::{Event, Kind, Process};
use systems::{Leadership, Probe, Server, System};
use tokio::sync::mpsc;

/// How often each node is asked.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// What the servers last said about who leads.
#[derive(Debug, Clone, Default)]
pub struct LeaderBoard(Arc<Mutex<BTreeMap<String, Leadership>>>);

impl LeaderBoard {
    /// The leader that most servers name; of two that are named equally often, the one that names
    /// itself in the higher term.
    pub fn leader(&self) -> Option<String> {
        let seen = self.0.lock().ok()?;
        let mut votes: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        for leadership in seen.values() {
            if let Some(leader) = &leadership.leader {
                let vote = votes.entry(leader).or_default();
                vote.0 += 1;
                vote.1 = vote.1.max(leadership.term.unwrap_or(0));
            }
        }
        votes
            .into_iter()
            .max_by_key(|&(_, vote)| vote)
            .map(|(leader, _)| leader.to_owned())
    }

    fn set(&self, node: &str, leadership: Leadership) {
        if let Ok(mut seen) = self.0.lock() {
            seen.insert(node.to_owned(), leadership);
        }
    }
}

/// Makes a probe on a node.
///
/// # Errors
/// Why there was no answer.
pub async fn ask(
    node: &Node,
    probe: &Probe,
    timeout: Duration,
) -> Result<cluster::HttpResponse, String> {
    let addr: SocketAddr = probe
        .addr
        .parse()
        .map_err(|_| format!("`{}` is no address", probe.addr))?;
    let mut headers = Vec::new();
    if !probe.body.is_empty() {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    let request = HttpRequest {
        method: probe.method.to_owned(),
        addr,
        path: probe.path.clone(),
        headers,
        body: probe.body.clone().into(),
        timeout,
    };
    node.http(&request).await.map_err(|error| error.to_string())
}

/// Asks one server for as long as the task lives, and reports every answer.
pub async fn watch(
    system: &'static dyn System,
    node: Node,
    server: Server,
    servers: Arc<[Server]>,
    board: LeaderBoard,
    sink: mpsc::UnboundedSender<Event>,
) {
    let probe = system.leader_probe(&server);
    let mut ticks = tokio::time::interval(SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = ask(&node, &probe, ANSWER_WITHIN).await;
        let (leadership, error) = match answer {
            Ok(response) => match system.leadership(&servers, response.status, &response.body) {
                Some(leadership) => (leadership, None),
                None => (
                    Leadership::default(),
                    Some(format!("status {}", response.status)),
                ),
            },
            Err(error) => (Leadership::default(), Some(error)),
        };
        let value = leadership.to_value();
        board.set(&server.name, leadership);
        let mut event =
            Event::new(0, Process::observer(), Kind::Info, "leader", value).with_node(&server.name);
        event.error = error;
        if sink.send(event).is_err() {
            return;
        }
    }
}
