//! What a fault is: a kind of harm with a name, parameters and needs, and the life of one strike.
//!
//! The life is always the same and is driven by the engine: install, verify, hold, look again,
//! heal, verify that it is healed. A fault's file says how each of these is done.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use spec::{Param, Params};

use crate::Error;
use crate::capability::Capability;
use crate::installed::Installed;
use crate::ledger::Step;
use crate::resolve::Victims;
use crate::site::Site;
use crate::target::TargetKind;

/// One kind of harm. How it is done is the matter of its file.
pub trait Fault: Send + Sync {
    /// Its name, as users write it.
    fn name(&self) -> &'static str;

    /// What it does, in one sentence.
    fn about(&self) -> &'static str;

    /// How it is installed, what counts as evidence that it landed, and how it is healed.
    fn evidence(&self) -> &'static str;

    /// The parameters that a plan may give it, besides those that every fault takes.
    fn params(&self) -> &'static [Param];

    /// What it can be aimed at.
    fn target_kind(&self) -> TargetKind;

    /// What it is aimed at when nothing else is said.
    fn default_target(&self) -> &'static str;

    /// What a random plan may aim it at.
    fn random_targets(&self) -> &'static [&'static str];

    /// What a cluster must be able to do for it.
    fn needs(&self, params: &Params) -> Vec<Capability>;

    /// Whether it stays until the run ends, however long it was to last.
    fn stays(&self, _params: &Params) -> bool {
        false
    }

    /// The longest time in nanoseconds for which it silences somebody without a break, or makes it
    /// seem so, given how long it is to last. It is compared with the system's lease and election timeout.
    fn silent_ns(&self, _params: &Params, _flapping: bool, for_ns: u64) -> u64 {
        for_ns
    }

    /// Whether processes that it hits do not run while it lasts.
    fn stops(&self) -> bool {
        true
    }

    /// Whether links that it hits carry nothing at all.
    fn cuts(&self, _params: &Params) -> bool {
        false
    }

    /// Checks what its declared parameters cannot say alone.
    ///
    /// # Errors
    /// [`Error::Contradiction`].
    fn check(&self, _params: &Params) -> Result<(), Error> {
        Ok(())
    }

    /// Readies one strike. Nothing is done to the cluster yet.
    fn arm(&self, strike: Strike) -> Box<dyn Harm>;
}

impl fmt::Debug for dyn Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One strike of a fault while it lasts. Each step returns what was seen, as evidence for or
/// against it.
#[async_trait]
pub trait Harm: Send {
    /// The strike that this is about.
    fn strike(&self) -> &Strike;

    /// Puts the harm in place. After an error the engine heals at once.
    async fn install(&mut self) -> Proof;

    /// Looks whether the harm is there. It is asked twice: right after it was installed, and before
    /// it is healed.
    async fn verify(&mut self) -> Proof;

    /// Lets time pass until the given moment, or until the run is stopped.
    async fn hold(&mut self, until_ns: Option<u64>) -> Proof {
        self.strike().wait_until(until_ns).await;
        Ok(Evidence::says(String::new()))
    }

    /// Undoes the harm. It is safe where nothing, or only a part, was installed.
    async fn heal(&mut self) -> Proof;

    /// Looks whether the harm is gone.
    async fn verify_healed(&mut self) -> Proof;
}

/// What was seen: a sentence for people, and the facts.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// What was seen, in words.
    pub says: String,
    /// The facts behind the words; `null` where there are none.
    pub facts: Value,
}

impl Evidence {
    /// Evidence with facts.
    pub fn new(says: String, facts: Value) -> Evidence {
        Evidence { says, facts }
    }

    /// Words only.
    pub fn says(says: String) -> Evidence {
        Evidence {
            says,
            facts: Value::Null,
        }
    }
}

/// Evidence for a step, or against it.
pub type Proof = Result<Evidence, Evidence>;

/// A fault that strikes: its number, its victims, and the place where it does so.
#[derive(Clone)]
pub struct Strike {
    pub(crate) id: u64,
    pub(crate) params: Params,
    pub(crate) victims: Victims,
    /// The processes to hit, by node and name; none for faults of links.
    pub(crate) processes: Vec<(String, String)>,
    pub(crate) flapping: bool,
    pub(crate) site: Arc<Site>,
}

impl Strike {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn params(&self) -> &Params {
        &self.params
    }

    pub(crate) fn victims(&self) -> &Victims {
        &self.victims
    }

    pub(crate) fn processes(&self) -> &[(String, String)] {
        &self.processes
    }

    pub(crate) fn flapping(&self) -> bool {
        self.flapping
    }

    pub(crate) fn installed(&self) -> &Installed {
        &self.site.installed
    }

    pub(crate) fn now(&self) -> u64 {
        self.site.now()
    }

    /// Waits until a moment of the run, or until the run is stopped, which is what `None` waits
    /// for. Returns whether the run was stopped.
    pub(crate) async fn wait_until(&self, at_ns: Option<u64>) -> bool {
        self.site.wait_until(at_ns).await
    }

    /// Writes a step of this strike to the ledger.
    pub(crate) fn record(&self, step: Step, proof: &Proof) {
        self.site.record(self.id, step, proof);
    }
}
