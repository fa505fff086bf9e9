//! Clock skew: the time of day that a process reads jumps, forward or back, while its monotonic clocks
//! go on. An administrator who sets the date, or NTP after a long time without it.

use std::time::Duration;

use async_trait::async_trait;
use cluster::{ClockEvidence, Error as ClusterError, ProcessClock};
use futures_util::future::join_all;
use serde_json::Value;
use spec::{Param, ParamKind, Params};

use crate::Error;
use crate::capability::Capability;
use crate::fault::{Evidence, Fault, Harm, Proof, Strike};
use crate::processes::{PROCESS, count, facts, fold};
use crate::target::TargetKind;

const OFFSET: Param = Param {
    name: "offset",
    kind: ParamKind::Duration("1m"),
    about: "how far the time of day jumps",
};

const DIRECTION: Param = Param {
    name: "direction",
    kind: ParamKind::Choice(&[FORWARD, BACK]),
    about: "whether it jumps forward or back",
};
const FORWARD: &str = "forward";
const BACK: &str = "back";

const EVERY: Param = Param {
    name: "every",
    kind: ParamKind::Duration("0s"),
    about: "after how long it jumps to the true time, and after as long away from it again, until the \
            fault ends; 0s: never",
};

/// The least jump that can be told from the time that it takes to look.
const LEAST: Duration = Duration::from_millis(10);
/// The longest jump: some thirty years.
const MOST: Duration = Duration::from_secs(1_000_000_000);
/// The least time between two jumps of one fault.
const LEAST_EVERY: Duration = Duration::from_millis(50);
/// How far a clock that was asked may be from what it should say, beyond what asking took.
const TOLERANCE_NS: u64 = 1_000_000;

pub(crate) struct Clock;

impl Fault for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn about(&self) -> &'static str {
        "makes the time of day that a service or client reads jump, and jump back later"
    }

    fn evidence(&self) -> &'static str {
        "The machine's clock is never set. In each process the functions of the vDSO, by which \
         programs read clocks, are diverted to code that adds the offset to the time of day: its \
         threads are held still for some milliseconds. Each process is then made to call them, and \
         what they say is compared with the machine's clock; they must agree with each other, and \
         the monotonic clock must be true. That is done again before it is healed. It is healed when \
         the vDSO of every process is the kernel's own again, byte for byte.\n\n\
         Monotonic clocks, the kernel's timers and the times of files stay true, and a program that \
         asks the kernel without its vDSO is not deceived. Children that are forked inherit the \
         offset. A program that is executed meanwhile, also by a restart of the service, is found \
         and moved within some tens of milliseconds, and the evidence says how many were. It needs \
         x86_64 and the right to ptrace."
    }

    fn params(&self) -> &'static [Param] {
        &[PROCESS, OFFSET, DIRECTION, EVERY]
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

    fn needs(&self, _params: &Params) -> Vec<Capability> {
        vec![Capability::Clock]
    }

    /// To whoever measures silence by the time of day, a jump forward is one.
    fn silent_ns(&self, params: &Params, _flapping: bool, _for_ns: u64) -> u64 {
        match params.text(DIRECTION.name) {
            FORWARD => params.duration_ns(OFFSET.name),
            _ => 0,
        }
    }

    fn stops(&self) -> bool {
        false
    }

    fn check(&self, params: &Params) -> Result<(), Error> {
        let duration = |param: Param| Duration::from_nanos(params.duration_ns(param.name));
        let (offset, every) = (duration(OFFSET), duration(EVERY));
        let why = if !(LEAST..=MOST).contains(&offset) {
            format!("`offset` is at least {LEAST:?} and at most {MOST:?}")
        } else if !every.is_zero() && every < LEAST_EVERY {
            format!("`every` is at least {LEAST_EVERY:?}, or 0s")
        } else {
            return Ok(());
        };
        Err(Error::Contradiction {
            fault: self.name(),
            why,
        })
    }

    fn arm(&self, strike: Strike) -> Box<dyn Harm> {
        let params = strike.params();
        let offset_ns = params.duration_ns(OFFSET.name).cast_signed();
        let offset_ns = match params.text(DIRECTION.name) {
            BACK => -offset_ns,
            _ => offset_ns,
        };
        Box::new(Skewed {
            every_ns: params.duration_ns(EVERY.name),
            jump_ns: offset_ns,
            now_ns: offset_ns,
            strike,
        })
    }
}

struct Skewed {
    strike: Strike,
    every_ns: u64,
    /// Where the clocks jump to.
    jump_ns: i64,
    /// Where they should be now.
    now_ns: i64,
}

#[async_trait]
impl Harm for Skewed {
    fn strike(&self) -> &Strike {
        &self.strike
    }

    async fn install(&mut self) -> Proof {
        self.skew().await
    }

    async fn verify(&mut self) -> Proof {
        let installed = self.strike.installed();
        let read = self.strike.processes().iter().map(async |(node, process)| {
            let read = installed.clocks(node, process).await;
            self.judge_moved(node, process, read)
        });
        let read = join_all(read).await;
        fold(read, |done| self.says(done))
    }

    /// Lets the clocks jump there and back, if they should.
    async fn hold(&mut self, until_ns: Option<u64>) -> Proof {
        if self.every_ns == 0 {
            self.strike.wait_until(until_ns).await;
            return Ok(Evidence::says(String::new()));
        }
        let mut next_ns = self.strike.now();
        loop {
            next_ns = next_ns.saturating_add(self.every_ns);
            let is_last = until_ns.is_some_and(|until_ns| until_ns <= next_ns);
            let wake_ns = if is_last { until_ns } else { Some(next_ns) };
            if self.strike.wait_until(wake_ns).await || is_last {
                return Ok(Evidence::says(String::new()));
            }
            self.now_ns = self.jump_ns - self.now_ns;
            self.skew().await?;
        }
    }

    async fn heal(&mut self) -> Proof {
        let installed = self.strike.installed();
        let healed = self.strike.processes().iter().map(async |(node, process)| {
            let healed = installed.unskew(node, process).await;
            judge(node, process, healed, |_| Ok(()))
        });
        let healed = join_all(healed).await;
        fold(healed, |done| {
            format!("the clocks of {} were moved back", count(done))
        })
    }

    async fn verify_healed(&mut self) -> Proof {
        let installed = self.strike.installed();
        let read = self.strike.processes().iter().map(async |(node, process)| {
            let read = installed.clocks(node, process).await;
            judge(node, process, read, is_true)
        });
        let read = join_all(read).await;
        fold(read, |done| {
            format!("the clocks of {} are the kernel's own", count(done))
        })
    }
}

impl Skewed {
    /// Moves all clocks to where they should be now.
    async fn skew(&self) -> Proof {
        let installed = self.strike.installed();
        let moved = self.strike.processes().iter().map(async |(node, process)| {
            let moved = installed.skew(node, process, self.now_ns).await;
            self.judge_moved(node, process, moved.map(Some))
        });
        let moved = join_all(moved).await;
        fold(moved, |done| self.says(done))
    }

    fn judge_moved(
        &self,
        node: &str,
        process: &str,
        evidence: Result<Option<ClockEvidence>, ClusterError>,
    ) -> Result<Value, String> {
        let facts = judge(node, process, evidence, |clock| self.is_moved(clock))?;
        match facts["states"].as_array().is_some_and(Vec::is_empty) {
            true => Err(format!("{process} on {node}: no process is there")),
            false => Ok(facts),
        }
    }

    fn is_moved(&self, clock: &ProcessClock) -> Result<(), String> {
        match clock.ahead_ns {
            _ if clock.own => Err("has the kernel's own clock".to_owned()),
            Some(ahead_ns) if is_near(clock, ahead_ns - self.now_ns) => Ok(()),
            Some(ahead_ns) => Err(format!("is {}", relation(ahead_ns))),
            None => Err("was not asked".to_owned()),
        }
    }

    fn says(&self, done: &[Value]) -> String {
        let late: u64 = done.iter().filter_map(|facts| facts["late"].as_u64()).sum();
        let late = match late {
            0 => String::new(),
            late => format!("; {late} were executed meanwhile"),
        };
        let relation = relation(self.now_ns);
        format!("the clocks of {} are {relation}{late}", count(done))
    }
}

fn is_true(clock: &ProcessClock) -> Result<(), String> {
    match clock.ahead_ns {
        _ if !clock.own => Err("still has a clock of ours".to_owned()),
        Some(ahead_ns) if !is_near(clock, ahead_ns) => {
            Err(format!("is still {}", relation(ahead_ns)))
        }
        _ => Ok(()),
    }
}

fn is_near(clock: &ProcessClock, off_ns: i64) -> bool {
    off_ns.unsigned_abs() <= clock.within_ns.saturating_add(TOLERANCE_NS)
}

/// `60.000 s ahead of the true time`, `0.500 s behind the true time`, `at the true time`.
fn relation(ahead_ns: i64) -> String {
    let word = match ahead_ns {
        0 => return "at the true time".to_owned(),
        ..0 => "behind",
        1.. => "ahead of",
    };
    let ms = ahead_ns.unsigned_abs() / 1_000_000;
    format!("{}.{:03} s {word} the true time", ms / 1000, ms % 1000)
}

/// The clocks of one service as facts; against, if one of them is not as it should be. A service that
/// is gone has none.
fn judge(
    node: &str,
    process: &str,
    evidence: Result<Option<ClockEvidence>, ClusterError>,
    judge: impl Fn(&ProcessClock) -> Result<(), String>,
) -> Result<Value, String> {
    let of = |what: String| format!("{process} on {node}: {what}");
    let evidence = evidence.map_err(|error| of(error.to_string()))?;
    let Some(evidence) = evidence else {
        return Ok(facts::<ProcessClock>(node, process, &[]));
    };
    for clock in &evidence.processes {
        judge(clock).map_err(|what| {
            let process = &clock.process;
            of(format!("{} ({}) {what}", process.command, process.pid))
        })?;
    }
    let mut facts = facts(node, process, &evidence.processes);
    facts["late"] = evidence.late.into();
    Ok(facts)
}
