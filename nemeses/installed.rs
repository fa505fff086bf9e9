//! What was done to the cluster and must be undone.
//!
//! Every change is written down before it is asked for, so that whatever happens afterwards (an
//! error, a cancelled run, a lost answer) [`Installed::heal_all`] knows what may be there. It
//! touches nothing else.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::{
    Applied, ClockEvidence, Error, FreezeEvidence, KillEvidence, LinkMatrix, LinkPolicy,
    ProcessState, RefusalKind, ThawEvidence,
};

use crate::access::ClusterAccess;

/// Something that could not be undone.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Unhealed {
    /// What is left: `links`, `db on n1 is frozen`.
    pub what: String,
    /// Why.
    pub reason: String,
}

type Link = (String, String);

/// Everything that is installed now.
pub(crate) struct Installed {
    pub(crate) access: Arc<dyn ClusterAccess>,
    links: tokio::sync::Mutex<Links>,
    processes: Mutex<BTreeMap<(String, String), Undo>>,
    nonces: AtomicU64,
}

#[derive(Default)]
struct Links {
    by_fault: BTreeMap<u64, BTreeMap<Link, LinkPolicy>>,
    /// How many matrices were applied.
    generation: u64,
    /// Whether the cluster may have anything but a clear matrix.
    touched: bool,
}

/// How a process gets back to what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Undo {
    Thaw,
    Unskew,
    Restart,
}

/// All link faults merged, at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Merged {
    pub(crate) matrix: LinkMatrix,
    pub(crate) generation: u64,
}

impl Installed {
    pub(crate) fn new(access: Arc<dyn ClusterAccess>, first_nonce: u64) -> Installed {
        Installed {
            access,
            links: tokio::sync::Mutex::default(),
            processes: Mutex::default(),
            nonces: AtomicU64::new(first_nonce),
        }
    }

    /// A number for probes that no other probes of this run have.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonces.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a fault's policies into force, merged with those of all other faults, in one step.
    pub(crate) async fn set_links(
        &self,
        fault: u64,
        policies: BTreeMap<Link, LinkPolicy>,
    ) -> Result<Applied, Error> {
        let mut links = self.links.lock().await;
        links.by_fault.insert(fault, policies);
        self.apply(&mut links).await
    }

    /// Takes a fault's policies out of force; `None` if it had none.
    pub(crate) async fn clear_links(&self, fault: u64) -> Result<Option<Applied>, Error> {
        let mut links = self.links.lock().await;
        let Some(policies) = links.by_fault.remove(&fault) else {
            return Ok(None);
        };
        let applied = self.apply(&mut links).await;
        if applied.is_err() {
            links.by_fault.insert(fault, policies);
        }
        applied.map(Some)
    }

    async fn apply(&self, links: &mut Links) -> Result<Applied, Error> {
        let matrix = merge(&self.access.nodes(), links.by_fault.values())?;
        links.generation += 1;
        links.touched = true;
        let applied = self.access.apply(&matrix).await?;
        links.touched = !links.by_fault.is_empty();
        Ok(applied)
    }

    /// What is in force on all links now.
    pub(crate) async fn merged(&self) -> Result<Merged, Error> {
        let links = self.links.lock().await;
        let matrix = merge(&self.access.nodes(), links.by_fault.values())?;
        Ok(Merged {
            matrix,
            generation: links.generation,
        })
    }

    pub(crate) async fn freeze(&self, node: &str, process: &str) -> Result<FreezeEvidence, Error> {
        self.owe(node, process, Undo::Thaw);
        let frozen = self.access.freeze(node, process).await;
        if frozen.as_ref().err().is_some_and(is_absent) {
            self.settle(node, process);
        }
        frozen
    }

    /// Thaws a process; `None` if there is nothing left that could be thawed.
    pub(crate) async fn thaw(
        &self,
        node: &str,
        process: &str,
    ) -> Result<Option<ThawEvidence>, Error> {
        let thawed = match self.access.thaw(node, process).await {
            Err(error) if is_absent(&error) => None,
            answer => Some(answer?),
        };
        self.settle(node, process);
        Ok(thawed)
    }

    /// Moves the clocks of a process.
    pub(crate) async fn skew(
        &self,
        node: &str,
        process: &str,
        offset_ns: i64,
    ) -> Result<ClockEvidence, Error> {
        self.owe(node, process, Undo::Unskew);
        let moved = self.access.skew(node, process, offset_ns).await;
        if moved.as_ref().err().is_some_and(is_absent) {
            self.settle(node, process);
        }
        moved
    }

    /// Gives a process its true clock back; `None` if there is nothing left that could have another.
    pub(crate) async fn unskew(
        &self,
        node: &str,
        process: &str,
    ) -> Result<Option<ClockEvidence>, Error> {
        let moved = match self.access.unskew(node, process).await {
            Err(error) if is_absent(&error) => None,
            answer => Some(answer?),
        };
        self.settle(node, process);
        Ok(moved)
    }

    pub(crate) async fn kill(
        &self,
        node: &str,
        process: &str,
        restart: bool,
    ) -> Result<KillEvidence, Error> {
        if restart {
            self.owe(node, process, Undo::Restart);
        }
        let killed = self.access.kill(node, process).await;
        if killed.as_ref().err().is_some_and(is_absent) {
            self.settle(node, process);
        }
        killed
    }

    /// Starts a killed process again; `false` if it is running already.
    pub(crate) async fn restart(&self, node: &str, process: &str) -> Result<bool, Error> {
        let running = self.living(node, process).await?;
        if running.is_empty() {
            self.access.restart(node, process).await?;
        }
        self.settle(node, process);
        Ok(running.is_empty())
    }

    /// The clocks of a process; `None` if it was never started.
    pub(crate) async fn clocks(
        &self,
        node: &str,
        process: &str,
    ) -> Result<Option<ClockEvidence>, Error> {
        match self.access.clocks(node, process).await {
            Err(error) if is_absent(&error) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// The living processes of a service; none if it was never started.
    pub(crate) async fn living(
        &self,
        node: &str,
        process: &str,
    ) -> Result<Vec<ProcessState>, Error> {
        match self.access.processes(node, process).await {
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            answer => answer,
        }
    }

    /// Undoes everything that may still be there. Can be called at any time and any number of
    /// times; where nothing is left it does nothing.
    pub(crate) async fn heal_all(&self) -> Vec<Unhealed> {
        let mut unhealed = Vec::new();
        let mut links = self.links.lock().await;
        let faults = std::mem::take(&mut links.by_fault);
        if links.touched
            && let Err(error) = self.apply(&mut links).await
        {
            links.by_fault = faults;
            unhealed.push(Unhealed {
                what: "links are not clear".to_owned(),
                reason: error.to_string(),
            });
        }
        drop(links);
        let owed = self.owed().clone();
        for ((node, process), undo) in owed {
            let (done, state) = match undo {
                Undo::Thaw => (self.thaw(&node, &process).await.map(drop), "frozen"),
                Undo::Unskew => (
                    self.unskew(&node, &process).await.map(drop),
                    "without its true clock",
                ),
                Undo::Restart => (self.restart(&node, &process).await.map(drop), "down"),
            };
            if let Err(error) = done {
                let what = format!("{process} on {node} is {state}");
                unhealed.push(Unhealed {
                    what,
                    reason: error.to_string(),
                });
            }
        }
        unhealed
    }

    fn owe(&self, node: &str, process: &str, undo: Undo) {
        self.owed()
            .insert((node.to_owned(), process.to_owned()), undo);
    }

    fn settle(&self, node: &str, process: &str) {
        self.owed().remove(&(node.to_owned(), process.to_owned()));
    }

    fn owed(&self) -> MutexGuard<'_, BTreeMap<(String, String), Undo>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a refusal says that there is no process to act on.
fn is_absent(error: &Error) -> bool {
    let kind = error.refusal().map(|refusal| refusal.kind);
    matches!(
        kind,
        Some(RefusalKind::NotRunning | RefusalKind::NoSuchService)
    )
}

/// One matrix that does what all faults do together.
pub(crate) fn merge<'a>(
    nodes: &[String],
    faults: impl IntoIterator<Item = &'a BTreeMap<Link, LinkPolicy>>,
) -> Result<LinkMatrix, Error> {
    let mut matrix = LinkMatrix::clear(nodes);
    for ((from, to), policy) in faults.into_iter().flatten() {
        let both = both(matrix.get(from, to)?, policy);
        matrix.set(from, to, both)?;
    }
    Ok(matrix)
}

/// Two policies one after the other.
fn both(a: &LinkPolicy, b: &LinkPolicy) -> LinkPolicy {
    LinkPolicy {
        drop: a.drop || b.drop,
        loss: 1.0 - (1.0 - a.loss) * (1.0 - b.loss),
        delay: a.delay + b.delay,
        jitter: a.jitter + b.jitter,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn nodes() -> Vec<String> {
        (1..=4).map(|at| format!("n{at}")).collect()
    }

    fn fault(policy: LinkPolicy, pairs: &[(usize, usize)]) -> BTreeMap<Link, LinkPolicy> {
        let names = nodes();
        let link = |&(a, b): &(usize, usize)| ((names[a].clone(), names[b].clone()), policy);
        pairs.iter().map(link).collect()
    }

    #[test]
    fn policies_on_the_same_link_add_up() {
        let slow = LinkPolicy {
            delay: Duration::from_millis(20),
            jitter: Duration::from_millis(2),
            ..LinkPolicy::CLEAR
        };
        let lossy = LinkPolicy {
            loss: 0.5,
            ..LinkPolicy::CLEAR
        };
        let faults = [
            fault(slow, &[(0, 1)]),
            fault(lossy, &[(0, 1), (1, 0)]),
            fault(lossy, &[(0, 1)]),
            fault(slow, &[(0, 1)]),
        ];
        let merged = merge(&nodes(), &faults).unwrap();
        let link = merged.get("n1", "n2").unwrap();
        assert_eq!((link.delay, link.jitter), (slow.delay * 2, slow.jitter * 2));
        assert!((link.loss - 0.75).abs() < 1e-9);
        assert!((merged.get("n2", "n1").unwrap().loss - 0.5).abs() < 1e-9);
        assert_eq!(*merged.get("n3", "n4").unwrap(), LinkPolicy::CLEAR);
    }

    proptest! {
        #[test]
        fn a_link_is_cut_as_long_as_any_fault_cuts_it(
            cuts in proptest::collection::vec(
                proptest::collection::vec((0_usize..4, 0_usize..4), 0..6), 0..5),
        ) {
            let faults: Vec<_> = cuts.iter().map(|cut| fault(LinkPolicy::CUT, cut)).collect();
            for from in 0..=faults.len() {
                let merged = merge(&nodes(), &faults[from..]).unwrap();
                for link in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))) {
                    let expected = cuts[from..].iter().any(|cut| cut.contains(&link));
                    prop_assert_eq!(merged.at(link.0, link.1).drop, expected);
                }
            }
        }
    }
}
