//! Killing: SIGKILL to a process and its children, and a start of the same service later. What was
//! in memory is lost; what was written to files is not.

use async_trait::async_trait;
use cluster::ProcessState;
use futures_util::future::join_all;
use serde_json::json;
use spec::{Param, ParamKind, Params};

use crate::capability::Capability;
use crate::fault::{Evidence, Fault, Harm, Proof, Strike};
use crate::processes::{PROCESS, count, facts, fold};
use crate::target::TargetKind;

/// Whether it comes back.
const RESTART: Param = Param {
    name: "restart",
    kind: ParamKind::Bool(true),
    about: "whether it is started again when the fault ends; otherwise it stays down until the run \
            ends",
};

pub(crate) struct Kill;

impl Fault for Kill {
    fn name(&self) -> &'static str {
        "kill"
    }

    fn about(&self) -> &'static str {
        "ends all processes of a service or client with SIGKILL, and starts it again later"
    }

    fn evidence(&self) -> &'static str {
        "The processes are noted with their start times, killed, and seen to be gone; that nothing \
         brought them back is looked at again before they are started. It is healed when the \
         service has processes, none of which is one of the old ones."
    }

    fn params(&self) -> &'static [Param] {
        &[PROCESS, RESTART]
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Nodes
    }

    fn default_target(&self) -> &'static str {
        "leader"
    }

    fn random_targets(&self) -> &'static [&'static str] {
        &["leader", "one", "minority", "all"]
    }

    fn needs(&self, params: &Params) -> Vec<Capability> {
        match params.bool(RESTART.name) {
            true => vec![Capability::Kill, Capability::Restart],
            false => vec![Capability::Kill],
        }
    }

    fn stays(&self, params: &Params) -> bool {
        !params.bool(RESTART.name)
    }

    fn arm(&self, strike: Strike) -> Box<dyn Harm> {
        Box::new(Killed {
            before: vec![Vec::new(); strike.processes().len()],
            strike,
        })
    }
}

struct Killed {
    strike: Strike,
    /// What each service was before.
    before: Vec<Vec<ProcessState>>,
}

impl Killed {
    fn restarts(&self) -> bool {
        self.strike.params().bool(RESTART.name)
    }
}

#[async_trait]
impl Harm for Killed {
    fn strike(&self) -> &Strike {
        &self.strike
    }

    async fn install(&mut self) -> Proof {
        let (installed, restart) = (self.strike.installed(), self.restarts());
        let killed = self.strike.processes().iter().map(async |(node, process)| {
            let killed = installed.kill(node, process, restart).await;
            killed.map_err(|error| format!("{process} on {node}: {error}"))
        });
        let killed = join_all(killed).await;
        let mut parts = Vec::new();
        for (at, (killed, (node, process))) in
            killed.into_iter().zip(self.strike.processes()).enumerate()
        {
            parts.push(killed.and_then(|killed| {
                let gone = killed.gone;
                let seen = facts(node, process, &killed.processes);
                self.before[at] = killed.processes;
                match gone {
                    true => Ok(seen),
                    false => Err(format!("{process} on {node}: not all processes are gone")),
                }
            }));
        }
        fold(parts, |done| format!("{} killed", count(done)))
    }

    async fn verify(&mut self) -> Proof {
        let installed = self.strike.installed();
        let living = self.strike.processes().iter().map(async |(node, process)| {
            let of = |what: String| format!("{process} on {node}: {what}");
            let living = installed.living(node, process).await;
            match living.map_err(|error| of(error.to_string()))?.first() {
                Some(alive) => Err(of(format!("{} ({}) is alive", alive.command, alive.pid))),
                None => Ok(json!({ "node": node, "process": process, "living": 0 })),
            }
        });
        let living: Vec<Result<_, String>> = join_all(living).await;
        fold(living, |_| {
            let killed: usize = self.before.iter().map(Vec::len).sum();
            format!("all {killed} processes are gone")
        })
    }

    async fn heal(&mut self) -> Proof {
        if !self.restarts() {
            return Ok(Evidence::says("stays down, as asked".to_owned()));
        }
        let installed = self.strike.installed();
        let started = self.strike.processes().iter().map(async |(node, process)| {
            let started = installed.restart(node, process).await;
            let started = started.map_err(|error| format!("{process} on {node}: {error}"))?;
            Ok(json!({ "node": node, "process": process, "started": started }))
        });
        let started: Vec<Result<_, String>> = join_all(started).await;
        fold(started, |done| format!("{} services started", done.len()))
    }

    async fn verify_healed(&mut self) -> Proof {
        if !self.restarts() {
            return Ok(Evidence::says("stays down, as asked".to_owned()));
        }
        let installed = self.strike.installed();
        let mut parts = Vec::new();
        for ((node, process), before) in self.strike.processes().iter().zip(&self.before) {
            let of = |what: &str| format!("{process} on {node}: {what}");
            let same =
                |a: &ProcessState, b: &ProcessState| (a.pid, a.start_time) == (b.pid, b.start_time);
            parts.push(match installed.living(node, process).await {
                Err(error) => Err(of(&error.to_string())),
                Ok(now) if now.is_empty() => Err(of("it ended right after its start")),
                Ok(now)
                    if now
                        .iter()
                        .any(|new| before.iter().any(|old| same(old, new))) =>
                {
                    Err(of("an old process is still there"))
                }
                Ok(now) => Ok(facts(node, process, &now)),
            });
        }
        fold(parts, |done| format!("{}, all new", count(done)))
    }
}
