//! Slowing: frames on links arrive later than they were sent, with or without jitter. Nothing is
//! lost and the order is kept.

use std::time::Duration;

use async_trait::async_trait;
use cluster::LinkPolicy;
use spec::{Param, ParamKind, Params};

use crate::Error;
use crate::capability::Capability;
use crate::fault::{Fault, Harm, Proof, Strike};
use crate::links::{CLIENTS, DIRECTION, LinkHold, NODE};
use crate::probe::Claimed;
use crate::target::TargetKind;

const DELAY: Param = Param {
    name: "delay",
    kind: ParamKind::Duration("200ms"),
    about: "how much later frames arrive, in each direction that is hit",
};

const JITTER: Param = Param {
    name: "jitter",
    kind: ParamKind::Duration("0s"),
    about: "by how much the delay varies in either direction",
};

/// The least delay that can be told from the agents' own speed.
const LEAST: Duration = Duration::from_millis(20);

pub(crate) struct Slow;

impl Fault for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn about(&self) -> &'static str {
        "delays everything on links"
    }

    fn evidence(&self) -> &'static str {
        "A datagram is sent along every slow link and must not be there before half of its least \
         delay has passed, and must arrive. It is healed when probes pass links that are clear again."
    }

    fn params(&self) -> &'static [Param] {
        &[DELAY, JITTER, NODE, DIRECTION, CLIENTS]
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
        vec![Capability::Delay]
    }

    fn silent_ns(&self, _params: &Params, _flapping: bool, _for_ns: u64) -> u64 {
        0
    }

    fn check(&self, params: &Params) -> Result<(), Error> {
        if least(params) >= LEAST {
            return Ok(());
        }
        let why =
            format!("`delay` less `jitter` is at least {LEAST:?}: less could not be verified");
        Err(Error::Contradiction {
            fault: self.name(),
            why,
        })
    }

    fn arm(&self, strike: Strike) -> Box<dyn Harm> {
        let params = strike.params();
        let delay = Duration::from_nanos(params.duration_ns(DELAY.name));
        let jitter = Duration::from_nanos(params.duration_ns(JITTER.name));
        let policy = LinkPolicy {
            delay,
            jitter,
            ..LinkPolicy::CLEAR
        };
        Box::new(SlowLinks {
            least: least(params),
            hold: LinkHold::new(strike, policy),
        })
    }
}

fn least(params: &Params) -> Duration {
    let ns = params
        .duration_ns(DELAY.name)
        .saturating_sub(params.duration_ns(JITTER.name));
    Duration::from_nanos(ns)
}

struct SlowLinks {
    hold: LinkHold,
    least: Duration,
}

#[async_trait]
impl Harm for SlowLinks {
    fn strike(&self) -> &Strike {
        &self.hold.strike
    }

    async fn install(&mut self) -> Proof {
        self.hold.install().await
    }

    async fn verify(&mut self) -> Proof {
        self.hold.prove(Claimed::Slow(self.least)).await
    }

    async fn heal(&mut self) -> Proof {
        self.hold.heal().await
    }

    async fn verify_healed(&mut self) -> Proof {
        self.hold.prove(Claimed::Healed).await
    }
}
