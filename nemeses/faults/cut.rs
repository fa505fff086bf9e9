//! Cutting: links carry nothing, silently, as if a switch or a route had failed. Connections stay
//! open and stall. With a flapping target the cut comes and goes.

use async_trait::async_trait;
use cluster::LinkPolicy;
use spec::{Param, ParamKind, Params};

use crate::Error;
use crate::capability::Capability;
use crate::fault::{Evidence, Fault, Harm, Proof, Strike};
use crate::ledger::Step;
use crate::links::{CLIENTS, DIRECTION, LinkHold, NODE};
use crate::probe::Claimed;
use crate::target::TargetKind;

const DOWN: Param = Param {
    name: "down",
    kind: ParamKind::Duration("2s"),
    about: "with a flapping target: how long the links are cut each time",
};

const UP: Param = Param {
    name: "up",
    kind: ParamKind::Duration("1s"),
    about: "with a flapping target: how long they are clear in between",
};

/// The shortest time between two changes of a flapping link: each change is verified.
const FLAP_NS_MIN: u64 = 100_000_000;

pub(crate) struct Cut;

impl Fault for Cut {
    fn name(&self) -> &'static str {
        "cut"
    }

    fn about(&self) -> &'static str {
        "cuts links, in one or both directions, so that nothing passes and nobody is told"
    }

    fn evidence(&self) -> &'static str {
        "Every cut link is probed with datagrams between the agents at its ends: none may arrive, \
         the network must have dropped them, and probes on a link that is clear must arrive. It is \
         healed when probes pass again on every link that no other fault holds. Each change of a \
         flapping target is verified in the same way."
    }

    fn params(&self) -> &'static [Param] {
        &[NODE, DIRECTION, CLIENTS, DOWN, UP]
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::FlappingLinks
    }

    fn default_target(&self) -> &'static str {
        "isolate"
    }

    fn random_targets(&self) -> &'static [&'static str] {
        &[
            "halves",
            "isolate",
            "majority-ring",
            "bridge",
            "partial",
            "one-way",
            "leader-minority",
            "flapping",
            "holder",
        ]
    }

    fn needs(&self, _params: &Params) -> Vec<Capability> {
        vec![Capability::Cut]
    }

    fn silent_ns(&self, params: &Params, flapping: bool, for_ns: u64) -> u64 {
        match flapping {
            true => for_ns.min(params.duration_ns(DOWN.name)),
            false => for_ns,
        }
    }

    fn cuts(&self, _params: &Params) -> bool {
        true
    }

    fn check(&self, params: &Params) -> Result<(), Error> {
        for param in [DOWN, UP] {
            if params.duration_ns(param.name) < FLAP_NS_MIN {
                let shortest = spec::format_ns(FLAP_NS_MIN);
                let why = format!(
                    "`{}` is at least {shortest}: each change is verified",
                    param.name
                );
                return Err(Error::Contradiction {
                    fault: self.name(),
                    why,
                });
            }
        }
        Ok(())
    }

    fn arm(&self, strike: Strike) -> Box<dyn Harm> {
        Box::new(CutLinks {
            hold: LinkHold::new(strike, LinkPolicy::CUT),
        })
    }
}

struct CutLinks {
    hold: LinkHold,
}

#[async_trait]
impl Harm for CutLinks {
    fn strike(&self) -> &Strike {
        &self.hold.strike
    }

    async fn install(&mut self) -> Proof {
        self.hold.install().await
    }

    async fn verify(&mut self) -> Proof {
        self.hold.prove(Claimed::Cut).await
    }

    async fn hold(&mut self, until_ns: Option<u64>) -> Proof {
        let strike = self.strike();
        if !strike.flapping() {
            strike.wait_until(until_ns).await;
            return Ok(Evidence::says(String::new()));
        }
        let down_ns = strike.params().duration_ns(DOWN.name);
        let up_ns = strike.params().duration_ns(UP.name);
        let mut changes = 0_u32;
        let mut refuted = None;
        let mut next = strike.now().saturating_add(down_ns);
        let ends_before = |next: u64| until_ns.is_some_and(|until| until <= next);
        // It ends while the links are cut, so that the last look before the heal finds the cut.
        while !ends_before(next.saturating_add(up_ns)) && !strike.wait_until(Some(next)).await {
            let up = self.change(Step::FlapUp).await;
            next = next.saturating_add(up_ns);
            strike.wait_until(Some(next)).await;
            let down = self.change(Step::FlapDown).await;
            next = next.saturating_add(down_ns);
            changes += 2;
            refuted = refuted.or(up.err()).or(down.err());
        }
        strike.wait_until(until_ns).await;
        match refuted {
            None => Ok(Evidence::says(format!("{changes} changes, each verified"))),
            Some(against) => Err(against),
        }
    }

    async fn heal(&mut self) -> Proof {
        self.hold.heal().await
    }

    async fn verify_healed(&mut self) -> Proof {
        self.hold.prove(Claimed::Healed).await
    }
}

impl CutLinks {
    /// Makes and verifies one change of a flapping target, and records it.
    async fn change(&self, step: Step) -> Proof {
        let up = step == Step::FlapUp;
        let change = if up {
            self.hold.heal().await
        } else {
            self.hold.install().await
        };
        let proof = match change {
            Err(against) => Err(against),
            Ok(_) if up => self.hold.prove(Claimed::Healed).await,
            Ok(_) => self.hold.prove(Claimed::Cut).await,
        };
        self.strike().record(step, &proof);
        proof
    }
}
