//! The nemesis: runs a plan against a cluster, keeps the ledger, and heals.
//!
//! Every fault of the plan is a task of its own inside [`Nemesis::run`]; what they share (what is
//! installed, who is harmed, the ledger) is in [`Site`]. Tasks are stopped only where they wait,
//! never in the middle of a step, so that a stopped run heals what it installed in the same way as
//! one that ended.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::access::{ClusterAccess, Targets};
use crate::fault::{Evidence, Harm, Strike};
use crate::faults::WAIT;
use crate::installed::Unhealed;
use crate::ledger::{FaultOutcome, Ledger, Step};
use crate::plan::{Plan, PlannedFault, RawFault};
use crate::processes::PROCESS;
use crate::resolve::{Missing, Situation, Victims, questions, resolve};
use crate::site::{Clock, OnEvent, Site};
use crate::stream::Stream;
use crate::target::Target;

/// How often a target that matches nothing is looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What became of a run of the nemesis.
#[derive(Debug)]
pub struct Finished {
    /// What became of each fault.
    pub outcomes: Vec<FaultOutcome>,
    /// What could not be undone: the cluster is not what it was.
    pub unhealed: Vec<Unhealed>,
    /// The first error in writing the ledger.
    pub ledger: Option<std::io::Error>,
}

/// Turns a plan into harm and undoes it.
pub struct Nemesis {
    plan: Plan,
    targets: Arc<dyn Targets>,
    site: Arc<Site>,
    stop: watch::Sender<bool>,
}

impl Nemesis {
    /// Readies a plan. Nothing is done to the cluster before [`Nemesis::run`].
    pub fn new(
        plan: Plan,
        access: Arc<dyn ClusterAccess>,
        targets: Arc<dyn Targets>,
        clock: Clock,
        ledger: Ledger,
        on_event: OnEvent,
    ) -> Nemesis {
        let (stop, stopped) = watch::channel(false);
        let site = Site::new(&plan, access, clock, stopped, ledger, on_event);
        Nemesis {
            plan,
            targets,
            site: Arc::new(site),
            stop,
        }
    }

    /// Runs the plan until its last fault has ended or `stop` is ready, and heals. After `stop` no
    /// fault strikes any more, and those that are there are healed at once.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Finished {
        let mut ending = 0;
        let mut strikes = FuturesUnordered::new();
        for (id, planned) in self.plan.numbered() {
            ending += usize::from(planned.for_ns.is_some());
            strikes.push(async move {
                self.live(id, planned).await;
                self.site.book().account(id).over = true;
                planned.for_ns.is_some()
            });
        }
        let mut stop = std::pin::pin!(stop);
        // Faults that last until the end do so until all others are over.
        let mut stopped = false;
        loop {
            if !stopped && ending == 0 && !strikes.is_empty() && self.all_begun_or_over() {
                stopped = true;
                self.stop.send_replace(true);
            }
            tokio::select! {
                biased;
                () = &mut stop, if !stopped => {
                    stopped = true;
                    self.stop.send_replace(true);
                }
                () = self.site.ended.notified(), if !stopped && ending == 0 => {}
                done = strikes.next() => match done {
                    Some(ended) => ending -= usize::from(ended),
                    None => break,
                },
            }
        }
        drop(strikes);
        let unhealed = self.heal_all().await;
        let ledger = self.site.book().ledger.take_trouble();
        Finished {
            outcomes: self.outcomes(),
            unhealed,
            ledger,
        }
    }

    /// Undoes everything that this nemesis may have left, and says what it could not undo, or what
    /// was not seen to be gone. It does nothing where nothing is left, and can be called at any
    /// time, also after a [`Nemesis::run`] that was dropped.
    pub async fn heal_all(&self) -> Vec<Unhealed> {
        self.stop.send_replace(true);
        let mut unhealed = self.site.installed.heal_all().await;
        if unhealed.is_empty() {
            for id in self.site.close_book() {
                self.site.end(id);
            }
        }
        unhealed.extend(self.site.remains());
        let left: Vec<String> = unhealed
            .iter()
            .map(|left| format!("{}: {}", left.what, left.reason))
            .collect();
        let proof = match unhealed.is_empty() {
            true => Ok(Evidence::says("nothing is left".to_owned())),
            false => Err(Evidence::says(left.join("; "))),
        };
        self.site.write(None, Step::HealedAll, &proof);
        unhealed
    }

    /// What became of each fault so far.
    pub fn outcomes(&self) -> Vec<FaultOutcome> {
        self.site
            .book()
            .faults
            .iter()
            .map(|account| account.outcome.clone())
            .collect()
    }

    /// The faults that struck, as a plan that does the same again: at the times and to the nodes and
    /// links that they came to hit.
    pub fn happened(&self) -> Vec<RawFault> {
        let book = self.site.book();
        let mut happened: Vec<(Option<u64>, RawFault)> = book
            .faults
            .iter()
            .filter_map(|account| Some((account.outcome.begin_ns, account.happened.clone()?)))
            .collect();
        happened.sort_by_key(|(begin_ns, _)| *begin_ns);
        happened.into_iter().map(|(_, raw)| raw).collect()
    }

    fn all_begun_or_over(&self) -> bool {
        self.site
            .book()
            .faults
            .iter()
            .all(|account| account.open || account.over)
    }

    /// The whole life of one fault.
    async fn live(&self, id: u64, planned: &PlannedFault) {
        let site = &self.site;
        if site.wait_until(Some(planned.at_ns)).await {
            return;
        }
        site.write(Some(id), Step::Asked, &Ok(Evidence::says(String::new())));
        let strike = match self.aim(id, planned).await {
            Ok(strike) => strike,
            Err(reason) => {
                site.note(id, |outcome| outcome.evidence.clone_from(&reason));
                site.record(id, Step::NotLanded, &Err(Evidence::says(reason)));
                site.begin(id);
                site.end(id);
                return;
            }
        };
        let victims = strike.victims.clone();
        let mut harm = planned.fault.arm(strike);
        let begin_ns = self.strike(id, planned, &mut *harm).await;
        let end_ns = site.now();
        site.note(id, |outcome| outcome.end_ns = Some(end_ns));
        if let Some(begin_ns) = begin_ns {
            let lasted = planned
                .for_ns
                .map(|_| end_ns.saturating_sub(begin_ns).max(1));
            let happened = planned.pinned(&victims, begin_ns, lasted);
            site.book().account(id).happened = Some(happened);
        }
        let undone = site.step(id, Step::Healed, harm.heal()).await;
        let gone = site
            .step(id, Step::VerifiedHealed, harm.verify_healed())
            .await;
        site.note(id, |outcome| outcome.healed = undone && gone);
        if undone && gone {
            site.end(id);
        } else if undone {
            let mut book = site.book();
            let account = book.account(id);
            account.remains = Some(account.outcome.evidence.clone());
        }
    }

    /// Installs a fault and holds it. Returns when it was installed, if it was.
    async fn strike(&self, id: u64, planned: &PlannedFault, harm: &mut dyn Harm) -> Option<u64> {
        let site = &self.site;
        site.note(id, |outcome| outcome.healed = false);
        site.book().account(id).since_ns = Some(site.now());
        let installed = site.step(id, Step::Installed, harm.install()).await;
        let begin_ns = site.now();
        let verified = installed && site.step(id, Step::Verified, harm.verify()).await;
        site.note(id, |outcome| {
            outcome.begin_ns = Some(begin_ns);
            outcome.landed = verified;
        });
        site.begin(id);
        site.ended.notify_waiters();
        if !installed {
            return None;
        }
        let held = harm
            .hold(planned.for_ns.map(|for_ns| begin_ns.saturating_add(for_ns)))
            .await;
        if let Err(against) = &held {
            site.note(id, |outcome| outcome.evidence.clone_from(&against.says));
        }
        let still = site.step(id, Step::Held, harm.verify()).await;
        site.note(id, |outcome| outcome.landed &= held.is_ok() && still);
        Some(begin_ns)
    }

    /// Waits until the fault can strike: its target is there, and no other fault is in the way.
    async fn aim(&self, id: u64, planned: &PlannedFault) -> Result<Strike, String> {
        let site = &self.site;
        let wait_ns = planned.params.duration_ns(WAIT.name);
        let mut give_up_ns = site.now().saturating_add(wait_ns);
        let mut postponed = false;
        loop {
            let mut ended = std::pin::pin!(site.ended.notified());
            ended.as_mut().enable();
            match self.find(id, planned).await {
                Err(missing) if site.now() >= give_up_ns => {
                    let waited = spec::format_ns(wait_ns);
                    return Err(format!(
                        "the target matched nothing within {waited}: {missing}"
                    ));
                }
                Err(missing) => {
                    let next = site.now().saturating_add(LOOK_AGAIN.as_nanos() as u64);
                    if site.wait_until(Some(next)).await {
                        return Err(format!(
                            "the run ended before its target was there: {missing}"
                        ));
                    }
                }
                Ok((victims, processes)) => {
                    let claim = planned.claim(&victims, &processes);
                    let Err(wait) = site.claims().admit(id, claim) else {
                        site.note(id, |outcome| outcome.resolved = victims.to_string());
                        return Ok(Strike {
                            id,
                            params: planned.params.clone(),
                            victims,
                            processes,
                            flapping: planned.is_flapping(),
                            site: Arc::clone(site),
                        });
                    };
                    if !postponed {
                        postponed = true;
                        let why = Evidence::says(wait.to_string());
                        site.write(Some(id), Step::Postponed, &Ok(why));
                    }
                    tokio::select! {
                        () = ended => {}
                        _ = site.wait_until(None) => {
                            return Err(format!("the run ended while it had to wait: {wait}"));
                        }
                    }
                    give_up_ns = site.now().saturating_add(wait_ns);
                }
            }
        }
    }

    /// Who the target is now, and which processes of them are hit.
    async fn find(
        &self,
        id: u64,
        planned: &PlannedFault,
    ) -> Result<(Victims, Vec<(String, String)>), Missing> {
        let (target, params) = (&planned.target, &planned.params);
        let ask = questions(target, params, &self.plan.roster);
        let known = async {
            let leader = if ask.leader {
                self.targets.leader().await
            } else {
                None
            };
            let holder = if ask.holder {
                self.targets.holder().await
            } else {
                None
            };
            Situation { leader, holder }
        };
        let patience = Duration::from_nanos(params.duration_ns(WAIT.name));
        let now = timeout(patience.max(LOOK_AGAIN), known)
            .await
            .unwrap_or_default();
        let mut dice = Stream::new(self.plan.seed, &format!("strike/{id}"));
        let victims = resolve(target, params, &self.plan.roster, &now, &mut dice)?;
        let mut processes = Vec::new();
        if let (Victims::Nodes(nodes), Target::Nodes(_)) = (&victims, target) {
            let wanted = params.text(PROCESS.name);
            for node in nodes {
                let mut here = self.targets.processes(node);
                here.retain(|process| wanted.is_empty() || process == wanted);
                if here.is_empty() {
                    return Err(match wanted {
                        "" => format!("{node} has no process"),
                        wanted => format!("{node} has no process `{wanted}`"),
                    });
                }
                processes.extend(here.into_iter().map(|process| (node.clone(), process)));
            }
        }
        Ok((victims, processes))
    }
}
