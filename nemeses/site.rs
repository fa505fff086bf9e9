//! What all strikes of a run share: the clock, what is installed, who is harmed, the ledger and its
//! summary. Who strikes is decided in `engine.rs`.

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::access::ClusterAccess;
use crate::claims::Claims;
use crate::event::{NemesisEvent, Phase};
use crate::fault::{Evidence, Proof};
use crate::installed::{Installed, Unhealed};
use crate::ledger::{Entry, FaultOutcome, Ledger, Step, judged};
use crate::plan::{Plan, PlannedFault, RawFault};

/// Tells the time of a run: nanoseconds since it began.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Receives the events for the history, as they happen.
pub type OnEvent = Box<dyn Fn(&NemesisEvent) + Send + Sync>;

/// How long one step of a fault may take before it counts as failed.
const STEP_MAX: Duration = Duration::from_secs(20);

/// What all strikes of a run share.
pub(crate) struct Site {
    pub(crate) installed: Installed,
    clock: Clock,
    stop: watch::Receiver<bool>,
    claims: Mutex<Claims>,
    /// Told whenever a fault has ended.
    pub(crate) ended: Notify,
    book: Mutex<Book>,
    on_event: OnEvent,
}

/// The ledger and its summary.
pub(crate) struct Book {
    pub(crate) ledger: Ledger,
    pub(crate) faults: Vec<Account>,
}

/// One fault in the book.
pub(crate) struct Account {
    name: &'static str,
    pub(crate) outcome: FaultOutcome,
    /// Whether its `begin` was reported and its `end` was not.
    pub(crate) open: bool,
    /// When its installation began.
    pub(crate) since_ns: Option<u64>,
    /// Why it was not seen to be gone although its undoing succeeded.
    pub(crate) remains: Option<String>,
    /// Whether nothing more will come of it.
    pub(crate) over: bool,
    /// The fault as it came to be.
    pub(crate) happened: Option<RawFault>,
}

impl Account {
    fn new(id: u64, planned: &PlannedFault) -> Account {
        let outcome = FaultOutcome {
            id,
            fault: planned.fault.name().to_owned(),
            target: planned.target(),
            resolved: String::new(),
            begin_ns: None,
            end_ns: None,
            landed: false,
            healed: true,
            evidence: "the run ended before its time came".to_owned(),
        };
        let name = planned.fault.name();
        Account {
            name,
            outcome,
            open: false,
            remains: None,
            since_ns: None,
            over: false,
            happened: None,
        }
    }
}

impl Site {
    pub(crate) fn new(
        plan: &Plan,
        access: Arc<dyn ClusterAccess>,
        clock: Clock,
        stop: watch::Receiver<bool>,
        ledger: Ledger,
        on_event: OnEvent,
    ) -> Site {
        let faults = plan
            .numbered()
            .map(|(id, planned)| Account::new(id, planned))
            .collect();
        // Probes of an earlier nemesis on the same cluster must not be counted as ours.
        let first_nonce = RandomState::new().build_hasher().finish();
        Site {
            installed: Installed::new(access, first_nonce),
            clock,
            stop,
            claims: Mutex::new(Claims::new(&plan.roster, plan.max_harmed)),
            ended: Notify::new(),
            book: Mutex::new(Book { ledger, faults }),
            on_event,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Waits until a moment, for `None` until the run is stopped. Returns whether it was stopped.
    pub(crate) async fn wait_until(&self, at_ns: Option<u64>) -> bool {
        let mut stop = self.stop.clone();
        let until = async {
            match at_ns {
                None => std::future::pending().await,
                Some(at_ns) => loop {
                    match at_ns.saturating_sub(self.now()) {
                        0 => break,
                        left => sleep(Duration::from_nanos(left)).await,
                    }
                },
            }
        };
        tokio::select! {
            biased;
            // The sender lives as long as the nemesis; were it gone, the run would be over too.
            _ = stop.wait_for(|&stopped| stopped) => true,
            () = until => false,
        }
    }

    /// Takes one step, within its time, and records it. Returns whether it succeeded.
    pub(crate) async fn step(
        &self,
        id: u64,
        step: Step,
        doing: impl Future<Output = Proof>,
    ) -> bool {
        let proof = timeout(STEP_MAX, doing).await.unwrap_or_else(|_| {
            Err(Evidence::says(format!(
                "it was not done within {STEP_MAX:?}"
            )))
        });
        self.record(id, step, &proof);
        let (ok, evidence) = judged(&proof);
        // The outcome tells what convinced, or the first thing that spoke against it.
        self.note(id, |outcome| match step {
            Step::Installed => outcome.evidence.clone_from(&evidence.says),
            Step::Verified => outcome.evidence.clone_from(&evidence.says),
            Step::Held if !ok && outcome.landed => outcome.evidence.clone_from(&evidence.says),
            Step::Healed | Step::VerifiedHealed if !ok => {
                outcome.evidence += &format!("; not healed: {}", evidence.says);
            }
            _ => {}
        });
        ok
    }

    /// Records a step of a fault in the ledger.
    pub(crate) fn record(&self, id: u64, step: Step, proof: &Proof) {
        self.write(Some(id), step, proof);
    }

    pub(crate) fn write(&self, id: Option<u64>, step: Step, proof: &Proof) {
        let t = self.now();
        let (ok, evidence) = judged(proof);
        let mut book = self.book();
        let outcome = id.map(|id| book.account(id).outcome.clone());
        let entry = Entry {
            t,
            id,
            fault: outcome.as_ref().map(|outcome| outcome.fault.clone()),
            target: outcome.as_ref().map(|outcome| outcome.target.clone()),
            resolved: outcome
                .map(|outcome| outcome.resolved)
                .filter(|text| !text.is_empty()),
            step,
            ok,
            says: evidence.says.clone(),
            facts: evidence.facts.clone(),
        };
        book.ledger.write(&entry);
    }

    pub(crate) fn begin(&self, id: u64) {
        let majority = self.claims().has_majority();
        self.book().account(id).open = true;
        self.report(id, Phase::Begin, majority);
    }

    pub(crate) fn end(&self, id: u64) {
        let majority = self.claims().release(id);
        self.book().account(id).open = false;
        self.report(id, Phase::End, majority);
        self.ended.notify_waiters();
    }

    fn report(&self, id: u64, phase: Phase, majority: bool) {
        let event = {
            let mut book = self.book();
            let Account {
                name,
                outcome,
                since_ns,
                ..
            } = book.account(id);
            let target = if outcome.resolved.is_empty() {
                &outcome.target
            } else {
                &outcome.resolved
            };
            let (fault, verified) = (*name, outcome.landed);
            let since_ns = since_ns.filter(|_| phase == Phase::Begin);
            NemesisEvent {
                id,
                fault,
                phase,
                target: target.clone(),
                since_ns,
                majority,
                verified,
            }
        };
        (self.on_event)(&event);
    }

    pub(crate) fn note(&self, id: u64, change: impl FnOnce(&mut FaultOutcome)) {
        change(&mut self.book().account(id).outcome);
    }

    /// Marks as healed what nothing speaks against, and returns the faults whose end was not
    /// reported yet.
    pub(crate) fn close_book(&self) -> Vec<u64> {
        let now = self.now();
        let mut open = Vec::new();
        for account in &mut self.book().faults {
            account.outcome.healed = account.remains.is_none();
            if account.open {
                account.outcome.end_ns.get_or_insert(now);
                open.push(account.outcome.id);
            }
        }
        open
    }

    /// Faults that were undone and not seen to be gone.
    pub(crate) fn remains(&self) -> Vec<Unhealed> {
        let book = self.book();
        let remains = book.faults.iter().filter_map(|account| {
            let FaultOutcome {
                id,
                fault,
                resolved,
                ..
            } = &account.outcome;
            let what = format!("fault {id} ({fault} {resolved}) was not seen to be gone");
            Some(Unhealed {
                what,
                reason: account.remains.clone()?,
            })
        });
        remains.collect()
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// A fault's account; numbers begin with 1.
    pub(crate) fn account(&mut self, id: u64) -> &mut Account {
        &mut self.faults[id as usize - 1]
    }
}
