//! A cluster that exists only in memory. It does what it is told, and can be told to fail or to lie.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use cluster::{
    Applied, ClockEvidence, Error, FreezeEvidence, FreezeMethod, KillEvidence, LinkMatrix,
    LinkPolicy, ProcessClock, ProcessState, Refusal, RefusalKind, ThawEvidence,
};
use tokio::time::Instant;

use nemeses::{ClusterAccess, DropCounts, Targets};

/// One node's service: its pid and state, or nothing if it is dead.
type Service = Option<(i32, char)>;

/// How the cluster misbehaves.
#[derive(Default, Clone)]
pub struct Lies {
    /// Links on which packets pass whatever the matrix says.
    pub leaks: BTreeSet<(usize, usize)>,
    /// No packet arrives anywhere.
    pub deaf: bool,
    /// The matrix cannot be applied.
    pub apply_fails: bool,
    /// Frozen processes keep running.
    pub freeze_lies: bool,
    /// Links delay nothing.
    pub no_delay: bool,
    /// Thawing is refused.
    pub thaw_fails: bool,
    /// Clocks that should be moved are so much too early.
    pub clock_lies_ns: i64,
    /// Clocks are not moved back.
    pub clock_stays: bool,
    /// Killed processes stay.
    pub kill_lies: bool,
}

#[derive(Default)]
struct State {
    calls: Vec<String>,
    matrices: Vec<LinkMatrix>,
    dropped: BTreeMap<(usize, usize), u64>,
    /// Receiver, nonce, how many, and when they arrive.
    received: Vec<(usize, u64, u64, Instant)>,
    services: BTreeMap<String, Service>,
    /// By how much the clocks of nodes are ahead, where they were moved.
    clocks: BTreeMap<String, i64>,
    next_pid: i32,
    lies: Lies,
}

/// The cluster, and who leads it.
pub struct Fake {
    names: Vec<String>,
    state: Mutex<State>,
    leader: Mutex<Option<String>>,
    holder: Mutex<Option<String>>,
}

impl Fake {
    /// Servers `n1..` and clients `c1..`, each with one process `db`; `n1` leads.
    pub fn new(servers: usize, clients: usize) -> Arc<Fake> {
        let mut names: Vec<String> = (1..=servers).map(|at| format!("n{at}")).collect();
        names.extend((1..=clients).map(|at| format!("c{at}")));
        let mut state = State {
            next_pid: 100,
            ..State::default()
        };
        for name in &names {
            state.next_pid += 1;
            state
                .services
                .insert(name.clone(), Some((state.next_pid, 'S')));
        }
        Arc::new(Fake {
            names,
            state: Mutex::new(state),
            leader: Mutex::new(Some("n1".to_owned())),
            holder: Mutex::new(None),
        })
    }

    pub fn lie(&self, change: impl FnOnce(&mut Lies)) {
        change(&mut self.state.lock().unwrap().lies);
    }

    pub fn set_leader(&self, leader: Option<&str>) {
        *self.leader.lock().unwrap() = leader.map(str::to_owned);
    }

    pub fn set_holder(&self, holder: Option<&str>) {
        *self.holder.lock().unwrap() = holder.map(str::to_owned);
    }

    /// Every change that was asked for, in order.
    pub fn calls(&self) -> Vec<String> {
        self.state.lock().unwrap().calls.clone()
    }

    /// The cut links of every matrix that was applied, in order.
    pub fn cuts(&self) -> Vec<Vec<String>> {
        self.state
            .lock()
            .unwrap()
            .matrices
            .iter()
            .map(|matrix| self.cut_links(matrix))
            .collect()
    }

    /// The state letter of a node's process; `None` if it is dead.
    pub fn process(&self, node: &str) -> Option<char> {
        self.state.lock().unwrap().services[node].map(|(_, state)| state)
    }

    /// By how much a node's clock is ahead; `None` if it is the kernel's own.
    pub fn clock(&self, node: &str) -> Option<i64> {
        self.state.lock().unwrap().clocks.get(node).copied()
    }

    fn cut_links(&self, matrix: &LinkMatrix) -> Vec<String> {
        let mut cut = Vec::new();
        for (a, from) in self.names.iter().enumerate() {
            for (b, to) in self.names.iter().enumerate() {
                if matrix.at(a, b).drop {
                    cut.push(format!("{from}>{to}"));
                }
            }
        }
        cut
    }

    fn at(&self, name: &str) -> usize {
        self.names.iter().position(|known| known == name).unwrap()
    }
}

fn processes((pid, state): (i32, char)) -> Vec<ProcessState> {
    vec![ProcessState {
        pid,
        state,
        start_time: pid as u64 * 10,
        command: "db".to_owned(),
    }]
}

fn refused(node: &str, kind: RefusalKind, message: &str) -> Error {
    let refusal = Refusal {
        kind,
        message: message.to_owned(),
    };
    Error::Refused {
        peer: node.to_owned(),
        refusal,
    }
}

fn not_running(node: &str) -> Error {
    refused(node, RefusalKind::NotRunning, "db has no living process")
}

#[async_trait]
impl ClusterAccess for Fake {
    fn nodes(&self) -> Vec<String> {
        self.names.clone()
    }

    async fn apply(&self, matrix: &LinkMatrix) -> Result<Applied, Error> {
        let mut state = self.state.lock().unwrap();
        if state.lies.apply_fails {
            return Err(Error::Closed("sandbox".to_owned()));
        }
        state
            .calls
            .push(format!("apply {}", self.cut_links(matrix).join(" ")));
        state.matrices.push(matrix.clone());
        Ok(Applied {
            at_ns: 0,
            generation: state.matrices.len() as u64,
        })
    }

    async fn drops(&self) -> Result<DropCounts, Error> {
        let state = self.state.lock().unwrap();
        Ok(DropCounts::new(self.names.len(), |from, to| {
            state.dropped.get(&(from, to)).copied().unwrap_or_default()
        }))
    }

    async fn send_probes(&self, from: &str, to: &str, nonce: u64, count: u32) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap();
        let link = (self.at(from), self.at(to));
        let policy = state
            .matrices
            .last()
            .map_or(LinkPolicy::CLEAR, |m| *m.at(link.0, link.1));
        let leaks = state.lies.leaks.contains(&link);
        let lost = match (policy.drop, leaks) {
            (true, _) => count,
            (false, _) => (f64::from(count) * policy.loss) as u32,
        };
        *state.dropped.entry(link).or_default() += u64::from(lost);
        let delay = if state.lies.no_delay {
            Duration::ZERO
        } else {
            policy.delay
        };
        if !state.lies.deaf {
            let arrived = if leaks { count } else { count - lost };
            state
                .received
                .push((link.1, nonce, u64::from(arrived), Instant::now() + delay));
        }
        Ok(())
    }

    async fn probes_received(&self, at: &str, nonce: u64) -> Result<u64, Error> {
        let state = self.state.lock().unwrap();
        let (at, now) = (self.at(at), Instant::now());
        let here = state
            .received
            .iter()
            .filter(|(to, n, _, due)| (*to, *n) == (at, nonce) && *due <= now);
        Ok(here.map(|(_, _, count, _)| count).sum())
    }

    async fn freeze(&self, node: &str, _process: &str) -> Result<FreezeEvidence, Error> {
        let mut state = self.state.lock().unwrap();
        state.calls.push(format!("freeze {node}"));
        let lies = state.lies.freeze_lies;
        let service = state.services.get_mut(node).unwrap();
        let (pid, letter) = service.as_mut().ok_or_else(|| not_running(node))?;
        if !lies {
            *letter = 'T';
        }
        Ok(FreezeEvidence {
            method: FreezeMethod::Sigstop,
            asked_ns: 0,
            at_ns: 0,
            processes: processes((*pid, 'T')),
        })
    }

    async fn thaw(&self, node: &str, _process: &str) -> Result<ThawEvidence, Error> {
        let mut state = self.state.lock().unwrap();
        state.calls.push(format!("thaw {node}"));
        if state.lies.thaw_fails {
            return Err(Error::Closed(node.to_owned()));
        }
        let service = state.services.get_mut(node).unwrap();
        let (pid, letter) = service.as_mut().ok_or_else(|| not_running(node))?;
        *letter = 'S';
        let processes = processes((*pid, 'S'));
        Ok(ThawEvidence {
            method: FreezeMethod::Sigstop,
            asked_ns: 0,
            at_ns: 0,
            processes,
        })
    }

    async fn skew(
        &self,
        node: &str,
        process: &str,
        offset_ns: i64,
    ) -> Result<ClockEvidence, Error> {
        {
            let mut state = self.state.lock().unwrap();
            state.calls.push(format!("skew {node} {offset_ns}"));
            let lies_ns = state.lies.clock_lies_ns;
            state.services[node].ok_or_else(|| not_running(node))?;
            state.clocks.insert(node.to_owned(), offset_ns - lies_ns);
        }
        self.clocks(node, process).await
    }

    async fn unskew(&self, node: &str, process: &str) -> Result<ClockEvidence, Error> {
        {
            let mut state = self.state.lock().unwrap();
            state.calls.push(format!("unskew {node}"));
            if !state.lies.clock_stays {
                state.clocks.remove(node);
            }
        }
        self.clocks(node, process).await
    }

    async fn clocks(&self, node: &str, _process: &str) -> Result<ClockEvidence, Error> {
        let state = self.state.lock().unwrap();
        let ahead_ns = state.clocks.get(node).copied();
        let clock = |process| ProcessClock {
            process,
            own: ahead_ns.is_none(),
            ahead_ns,
            within_ns: 500,
            threads: 1,
            held_ns: 0,
        };
        let processes = state.services[node].map(processes).unwrap_or_default();
        Ok(ClockEvidence {
            asked_ns: 0,
            at_ns: 0,
            processes: processes.into_iter().map(clock).collect(),
            late: 0,
        })
    }

    async fn kill(&self, node: &str, _process: &str) -> Result<KillEvidence, Error> {
        let mut state = self.state.lock().unwrap();
        state.calls.push(format!("kill {node}"));
        let lies = state.lies.kill_lies;
        let service = state.services.get_mut(node).unwrap();
        let killed = service.ok_or_else(|| not_running(node))?;
        if !lies {
            *service = None;
        }
        let processes = processes(killed);
        Ok(KillEvidence {
            signal: 9,
            asked_ns: 0,
            at_ns: 0,
            processes,
            gone: true,
        })
    }

    async fn restart(&self, node: &str, _process: &str) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap();
        state.calls.push(format!("restart {node}"));
        state.next_pid += 1;
        let service = (state.next_pid, 'S');
        state.services.insert(node.to_owned(), Some(service));
        Ok(())
    }

    async fn processes(&self, node: &str, _process: &str) -> Result<Vec<ProcessState>, Error> {
        let state = self.state.lock().unwrap();
        Ok(state.services[node].map(processes).unwrap_or_default())
    }
}

#[async_trait]
impl Targets for Fake {
    async fn leader(&self) -> Option<String> {
        self.leader.lock().unwrap().clone()
    }

    async fn holder(&self) -> Option<String> {
        self.holder.lock().unwrap().clone()
    }

    fn processes(&self, _node: &str) -> Vec<String> {
        vec!["db".to_owned()]
    }
}
