//! Freezing: a process and its children stop running, keep their connections and memory, and later
//! go on as if no time had passed. The pause of a garbage collector or a hypervisor.

use async_trait::async_trait;
use cluster::{FreezeMethod, ProcessState};
use futures_util::future::join_all;
use serde_json::json;
use spec::{Param, Params};

use crate::capability::Capability;
use crate::fault::{Evidence, Fault, Harm, Proof, Strike};
use crate::processes::{PROCESS, count, facts, fold};
use crate::target::TargetKind;

pub(crate) struct Freeze;

impl Fault for Freeze {
    fn name(&self) -> &'static str {
        "freeze"
    }

    fn about(&self) -> &'static str {
        "stops all processes of a service or client, and lets them go on later"
    }

    fn evidence(&self) -> &'static str {
        "The node's agent freezes the whole process tree, with SIGSTOP or the freezer of its \
         control group, and returns when /proc shows every process of it stopped. The states are \
         read again after that and before it is thawed. It is healed when none is stopped any more."
    }

    fn params(&self) -> &'static [Param] {
        &[PROCESS]
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Nodes
    }

    fn default_target(&self) -> &'static str {
        "leader"
    }

    fn random_targets(&self) -> &'static [&'static str] {
        &["leader", "follower", "minority", "holder"]
    }

    fn needs(&self, _params: &Params) -> Vec<Capability> {
        vec![Capability::Freeze]
    }

    fn arm(&self, strike: Strike) -> Box<dyn Harm> {
        Box::new(Frozen {
            strike,
            method: FreezeMethod::Sigstop,
        })
    }
}

struct Frozen {
    strike: Strike,
    method: FreezeMethod,
}

#[async_trait]
impl Harm for Frozen {
    fn strike(&self) -> &Strike {
        &self.strike
    }

    async fn install(&mut self) -> Proof {
        let installed = self.strike.installed();
        let frozen = self.strike.processes().iter().map(async |(node, process)| {
            let frozen = installed.freeze(node, process).await;
            let frozen = frozen.map_err(|error| format!("{process} on {node}: {error}"))?;
            Ok((frozen.method, facts(node, process, &frozen.processes)))
        });
        let frozen: Vec<Result<_, String>> = join_all(frozen).await;
        if let Some((method, _)) = frozen.iter().flatten().next() {
            self.method = *method;
        }
        let method = self.method;
        fold(
            frozen.into_iter().map(|one| one.map(|(_, facts)| facts)),
            |done| format!("{} frozen, {method:?}", count(done)),
        )
    }

    async fn verify(&mut self) -> Proof {
        let method = self.method;
        let stopped = |process: &ProcessState| match method {
            FreezeMethod::Sigstop => matches!(process.state, 'T' | 't' | 'Z' | 'X'),
        };
        self.look(
            |states| match states.iter().find(|process| !stopped(process)) {
                Some(running) => Err(format!(
                    "{} ({}) is {}",
                    running.command, running.pid, running.state
                )),
                None if states.is_empty() => Err("no process is there".to_owned()),
                None => Ok("stopped"),
            },
        )
        .await
    }

    async fn heal(&mut self) -> Proof {
        let installed = self.strike.installed();
        let thawed = self.strike.processes().iter().map(async |(node, process)| {
            let thawed = installed.thaw(node, process).await;
            let thawed = thawed.map_err(|error| format!("{process} on {node}: {error}"))?;
            Ok(match thawed {
                Some(thawed) => facts(node, process, &thawed.processes),
                None => json!({ "node": node, "process": process, "gone": true }),
            })
        });
        let thawed: Vec<Result<_, String>> = join_all(thawed).await;
        fold(thawed, |done| format!("{} thawed", count(done)))
    }

    async fn verify_healed(&mut self) -> Proof {
        self.look(|states| {
            match states
                .iter()
                .find(|process| matches!(process.state, 'T' | 't'))
            {
                Some(still) => Err(format!(
                    "{} ({}) is still stopped",
                    still.command, still.pid
                )),
                None => Ok("running or gone"),
            }
        })
        .await
    }
}

impl Frozen {
    /// Judges the states of all processes.
    async fn look(&self, judge: impl Fn(&[ProcessState]) -> Result<&'static str, String>) -> Proof {
        let installed = self.strike.installed();
        let mut seen = Vec::new();
        let mut word = "";
        for (node, process) in self.strike.processes() {
            let of = |what: String| format!("{process} on {node}: {what}");
            let states = installed.living(node, process).await;
            let states = states.map_err(|error| Evidence::says(of(error.to_string())))?;
            let facts = facts(node, process, &states);
            word = judge(&states).map_err(|what| Evidence::new(of(what), facts.clone()))?;
            seen.push(Ok(facts));
        }
        fold(seen, |done| format!("{} {word}", count(done)))
    }
}
