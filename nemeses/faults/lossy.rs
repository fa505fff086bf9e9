//! Losing: each frame on links is lost with some probability, as on a bad cable or a full queue.

use async_trait::async_trait;
use cluster::LinkPolicy;
use spec::{Param, ParamKind, Params};

use crate::Error;
use crate::capability::Capability;
use crate::fault::{Fault, Harm, Proof, Strike};
use crate::links::{CLIENTS, DIRECTION, LinkHold, NODE};
use crate::probe::Claimed;
use crate::target::TargetKind;

const LOSS: Param = Param {
    name: "loss",
    kind: ParamKind::Ratio(0.2),
    about: "the probability with which a frame is lost, in each direction that is hit",
};

/// The least loss that a reasonable number of probes can show.
const LEAST: f64 = 0.01;

pub(crate) struct Lossy;

impl Fault for Lossy {
    fn name(&self) -> &'static str {
        "lossy"
    }

    fn about(&self) -> &'static str {
        "loses frames on links at random"
    }

    fn evidence(&self) -> &'static str {
        "So many probes go along every lossy link that some are bound to be lost: the network must \
         have dropped frames on each. It is healed when probes pass links that are clear again."
    }

    fn params(&self) -> &'static [Param] {
        &[LOSS, NODE, DIRECTION, CLIENTS]
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Links
    }

    fn default_target(&self) -> &'static str {
        "isolate"
    }

    fn random_targets(&self) -> &'static [&'static str] {
        &["isolate", "halves", "one-way", "holder"]
    }

    fn needs(&self, _params: &Params) -> Vec<Capability> {
        vec![Capability::Loss]
    }

    fn silent_ns(&self, params: &Params, _flapping: bool, for_ns: u64) -> u64 {
        if self.cuts(params) { for_ns } else { 0 }
    }

    fn cuts(&self, params: &Params) -> bool {
        params.ratio(LOSS.name) >= 1.0
    }

    fn check(&self, params: &Params) -> Result<(), Error> {
        if params.ratio(LOSS.name) >= LEAST {
            return Ok(());
        }
        let why = format!("`loss` is at least {LEAST}: less could not be verified");
        Err(Error::Contradiction {
            fault: self.name(),
            why,
        })
    }

    fn arm(&self, strike: Strike) -> Box<dyn Harm> {
        let loss = strike.params().ratio(LOSS.name);
        let policy = LinkPolicy {
            loss,
            ..LinkPolicy::CLEAR
        };
        Box::new(LossyLinks {
            loss,
            hold: LinkHold::new(strike, policy),
        })
    }
}

struct LossyLinks {
    hold: LinkHold,
    loss: f64,
}

#[async_trait]
impl Harm for LossyLinks {
    fn strike(&self) -> &Strike {
        &self.hold.strike
    }

    async fn install(&mut self) -> Proof {
        self.hold.install().await
    }

    async fn verify(&mut self) -> Proof {
        self.hold.prove(Claimed::Lossy(self.loss)).await
    }

    async fn heal(&mut self) -> Proof {
        self.hold.heal().await
    }

    async fn verify_healed(&mut self) -> Proof {
        self.hold.prove(Claimed::Healed).await
    }
}
