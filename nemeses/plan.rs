//! Plans: which fault strikes when, at what, and for how long. Everything is explicit and checked
//! here, before the run; who the targets are is decided when the faults strike.
//!
//! The files in which plans are written are the controller's: it hands over each fault as a
//! [`RawFault`] and gets it back as one when it writes down what happened. Plans that the dice make
//! are in `random.rs`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use spec::{Params, closest, exact_ns, format_ns, parse_duration};

use crate::Error;
use crate::claims::{Claim, harmed_alone};
use crate::fault::Fault;
use crate::faults::{FAULTS, declared, find};
use crate::links;
use crate::resolve::{Situation, Victims, resolve};
use crate::stream::Stream;
use crate::target::{LinkTarget, NodeTarget, Roster, Target, TargetKind};

/// A fault as it is written in a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFault {
    /// When, after the run began: `5s`.
    pub at: String,
    /// The fault's name.
    pub fault: String,
    /// What it is aimed at; the fault's own default if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// How long it lasts: `4s`, or `end` for the rest of the run. If it is not given, twice the
    /// longer of the system's lease and election timeout.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
    /// The fault's parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, Value>,
}

/// How long a system waits before it gives somebody up. Durations of faults are measured by it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease, lock or session lives without renewal, in nanoseconds.
    pub ttl_ns: Option<u64>,
    /// How long followers wait for a leader, in nanoseconds.
    pub election_timeout_ns: Option<u64>,
}

impl Timing {
    /// The longest of them; 5 s if none is known.
    pub fn longest_ns(&self) -> u64 {
        self.ttl_ns
            .max(self.election_timeout_ns)
            .unwrap_or(5_000_000_000)
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("TTL", self.ttl_ns),
            ("election timeout", self.election_timeout_ns),
        ];
        all.into_iter().filter_map(|(name, ns)| Some((name, ns?)))
    }
}

/// One fault of a plan, checked.
#[derive(Debug, Clone)]
pub struct PlannedFault {
    /// When it strikes, in nanoseconds since the run began.
    pub at_ns: u64,
    /// The kind of harm.
    pub fault: &'static dyn Fault,
    /// How long it lasts, in nanoseconds; `None` until the run ends.
    pub for_ns: Option<u64>,
    /// Every parameter with its value.
    pub params: Params,
    pub(crate) target: Target,
}

impl PlannedFault {
    /// Checks a fault as it was written, and fills in what was not.
    ///
    /// # Errors
    /// [`Error::Spec`] for what cannot be read, [`Error::MatchesNothing`] for a target that this
    /// cluster can never match, [`Error::Target`] and [`Error::Contradiction`] for what does not go
    /// together.
    pub fn resolve(raw: RawFault, roster: &Roster, timing: &Timing) -> Result<PlannedFault, Error> {
        let Some(fault) = find(&raw.fault) else {
            let names = FAULTS.iter().map(|fault| fault.name());
            let suggestion = closest(&raw.fault, names).map(str::to_owned);
            let unknown = spec::Error::Unknown {
                what: "fault",
                name: raw.fault,
                suggestion,
            };
            return Err(unknown.into());
        };
        let name = fault.name();
        let params = Params::resolve(&declared(fault), raw.params)?;
        let text = raw
            .target
            .unwrap_or_else(|| fault.default_target().to_owned());
        let target = Target::parse(&text, fault.target_kind(), name, roster)?;
        if fault.target_kind() != TargetKind::Nodes {
            links::check(name, &target, &params, roster)?;
        }
        fault.check(&params)?;
        let stays = fault.stays(&params);
        let for_ns = match raw.lasts.as_deref() {
            None if stays => None,
            None => Some(2 * timing.longest_ns()),
            Some("end") => None,
            Some(text) if stays => {
                let why = format!("it stays until the run ends: `for = \"{text}\"` means nothing");
                return Err(Error::Contradiction { fault: name, why });
            }
            Some(text) => Some(parse_duration(text)?),
        };
        if for_ns == Some(0) {
            let why = "a fault that lasts 0s would do nothing".to_owned();
            return Err(Error::Contradiction { fault: name, why });
        }
        let at_ns = parse_duration(&raw.at)?;
        Ok(PlannedFault {
            at_ns,
            fault,
            for_ns,
            params,
            target,
        })
    }

    /// The target as it is written.
    pub fn target(&self) -> String {
        self.target.to_string()
    }

    /// The fault as it is written in a file, with everything explicit.
    pub fn to_raw(&self) -> RawFault {
        let lasts = self.for_ns.map_or_else(|| "end".to_owned(), exact_ns);
        RawFault {
            at: exact_ns(self.at_ns),
            fault: self.fault.name().to_owned(),
            target: Some(self.target()),
            lasts: (!self.fault.stays(&self.params)).then_some(lasts),
            params: self
                .params
                .iter()
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .collect(),
        }
    }

    /// The same fault as it came to be: aimed at the very nodes or links that it hit. What chose
    /// them (`node`, `clients`, ...) is left out.
    pub(crate) fn pinned(&self, victims: &Victims, at_ns: u64, for_ns: Option<u64>) -> RawFault {
        let flapping = if self.is_flapping() { "flapping " } else { "" };
        let mut raw = self.to_raw();
        raw.at = exact_ns(at_ns);
        raw.target = Some(format!("{flapping}{victims}"));
        if raw.lasts.is_some() {
            raw.lasts = Some(for_ns.map_or_else(|| "end".to_owned(), exact_ns));
        }
        let choosing = [links::NODE.name, links::DIRECTION.name, links::CLIENTS.name];
        raw.params
            .retain(|name, _| !choosing.contains(&name.as_str()));
        raw
    }

    /// How long it silences somebody without a break, in nanoseconds.
    pub(crate) fn silent_ns(&self) -> u64 {
        let for_ns = self.for_ns.unwrap_or(u64::MAX);
        self.fault
            .silent_ns(&self.params, self.is_flapping(), for_ns)
    }

    pub(crate) fn is_flapping(&self) -> bool {
        matches!(self.target, Target::Links { flapping: true, .. })
    }

    pub(crate) fn claim(&self, victims: &Victims, processes: &[(String, String)]) -> Claim {
        let links = match victims {
            Victims::Links(links) => links.clone(),
            Victims::Nodes(_) => Default::default(),
        };
        let processes = processes.iter().cloned().collect();
        Claim {
            processes,
            stopped: self.fault.stops(),
            links,
            cut: self.fault.cuts(&self.params),
        }
    }

    fn overlaps(&self, at_ns: u64) -> bool {
        let ends = self
            .for_ns
            .map_or(u64::MAX, |for_ns| self.at_ns.saturating_add(for_ns));
        self.at_ns <= at_ns && at_ns < ends
    }
}

/// A whole plan: its faults in the order in which they strike.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) roster: Roster,
    pub(crate) seed: u64,
    pub(crate) max_harmed: Option<usize>,
    faults: Vec<PlannedFault>,
}

impl Plan {
    /// Puts faults together. Where targets leave a choice, `seed` decides it when they strike. With
    /// `max_harmed` no more servers are ever harmed at once: faults that would exceed it later are
    /// postponed.
    ///
    /// # Errors
    /// [`Error::Budget`] if the plan exceeds `max_harmed` whatever its targets will turn out to be.
    pub fn new(
        roster: Roster,
        seed: u64,
        mut faults: Vec<PlannedFault>,
        max_harmed: Option<usize>,
    ) -> Result<Plan, Error> {
        faults.sort_by_key(|planned| planned.at_ns);
        let plan = Plan {
            roster,
            seed,
            max_harmed,
            faults,
        };
        if let Some(max) = max_harmed {
            plan.check_budget(max)?;
        }
        Ok(plan)
    }

    /// Its faults, in the order in which they strike.
    pub fn faults(&self) -> &[PlannedFault] {
        &self.faults
    }

    /// Its faults with their numbers, which begin with 1.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u64, &PlannedFault)> {
        (1..).zip(&self.faults)
    }

    /// What a person should know about this plan before it is run: it is allowed, and may show
    /// nothing.
    pub fn notes(&self, timing: &Timing) -> Vec<String> {
        if self.faults.is_empty() {
            return vec!["the plan has no fault".to_owned()];
        }
        let longest = self
            .faults
            .iter()
            .map(PlannedFault::silent_ns)
            .max()
            .unwrap_or_default();
        let missed = timing.named().filter(|&(_, ns)| longest <= ns);
        let note = |(name, ns)| {
            let (longest, ns) = (format_ns(longest), format_ns(ns));
            format!("no fault outlasts the {name} of {ns}: the longest silence is {longest}")
        };
        missed.map(note).collect()
    }

    fn check_budget(&self, max: usize) -> Result<(), Error> {
        let refuse = |faults: String, harmed| {
            if harmed > max {
                Err(Error::Budget {
                    faults,
                    harmed,
                    max,
                })
            } else {
                Ok(())
            }
        };
        for (id, planned) in self.numbered() {
            let faults = format!("fault {id} ({} {})", planned.fault.name(), planned.target());
            refuse(faults, self.harms_at_least(planned))?;
        }
        for (_, striking) in self.numbered() {
            let known = self
                .numbered()
                .filter(|(_, other)| other.overlaps(striking.at_ns));
            let known: Vec<(u64, Claim)> = known
                .filter_map(|(id, other)| Some((id, self.known_claim(other)?)))
                .collect();
            let harmed = harmed_alone(&self.roster.servers, known.iter().map(|(_, claim)| claim));
            let ids: Vec<String> = known.iter().map(|(id, _)| id.to_string()).collect();
            refuse(format!("faults {} together", ids.join(", ")), harmed)?;
        }
        Ok(())
    }

    /// How many servers a fault harms in the mildest case.
    fn harms_at_least(&self, planned: &PlannedFault) -> usize {
        let leaders = self.roster.servers.iter();
        let claims = leaders.filter_map(|leader| self.claim_if(planned, leader));
        let harmed = claims.map(|claim| harmed_alone(&self.roster.servers, [&claim]));
        harmed.min().unwrap_or_default()
    }

    /// What a fault harms if that does not depend on anything but names.
    fn known_claim(&self, planned: &PlannedFault) -> Option<Claim> {
        let named = |nodes: &NodeTarget| matches!(nodes, NodeTarget::Named(_) | NodeTarget::All);
        let known = match &planned.target {
            Target::Nodes(nodes) => named(nodes),
            Target::Links { links, .. } => match links {
                LinkTarget::Apart(nodes) => named(nodes),
                LinkTarget::Between(list) => list
                    .iter()
                    .all(|between| named(&between.from) && named(&between.to)),
                LinkTarget::Shape(_) => false,
            },
        };
        let server = self.roster.servers.first()?;
        known.then(|| self.claim_if(planned, server)).flatten()
    }

    fn claim_if(&self, planned: &PlannedFault, leader: &str) -> Option<Claim> {
        let now = Situation {
            leader: Some(leader.to_owned()),
            holder: self.roster.clients.first().cloned(),
        };
        let mut dice = Stream::new(self.seed, "budget");
        let (target, params) = (&planned.target, &planned.params);
        let victims = resolve(target, params, &self.roster, &now, &mut dice).ok()?;
        let processes = match &victims {
            Victims::Nodes(nodes) => nodes
                .iter()
                .map(|node| (node.clone(), String::new()))
                .collect(),
            Victims::Links(_) => Vec::new(),
        };
        Some(planned.claim(&victims, &processes))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn roster(servers: usize) -> Roster {
        let servers = (1..=servers).map(|at| format!("n{at}")).collect();
        Roster {
            servers,
            clients: vec!["c1".to_owned()],
            others: Vec::new(),
        }
    }

    fn raw(fault: &str, target: &str, lasts: &str, params: Value) -> RawFault {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        RawFault {
            at: "1s".to_owned(),
            fault: fault.to_owned(),
            target: given(target),
            lasts: given(lasts),
            params: serde_json::from_value(params).unwrap(),
        }
    }

    fn resolve(raw: RawFault) -> Result<PlannedFault, Error> {
        PlannedFault::resolve(raw, &roster(3), &Timing::default())
    }

    fn plan(raws: Vec<RawFault>, servers: usize, max: Option<usize>) -> Result<Plan, Error> {
        let roster = roster(servers);
        let timing = Timing::default();
        let faults = raws
            .into_iter()
            .map(|raw| PlannedFault::resolve(raw, &roster, &timing));
        Plan::new(roster.clone(), 1, faults.collect::<Result<_, _>>()?, max)
    }

    #[test]
    fn what_is_not_written_is_filled_in() {
        let timing = Timing {
            ttl_ns: Some(3_000_000_000),
            election_timeout_ns: Some(1),
        };
        let planned =
            PlannedFault::resolve(raw("freeze", "", "", json!({})), &roster(3), &timing).unwrap();
        assert_eq!(
            (planned.at_ns, planned.for_ns),
            (1_000_000_000, Some(6_000_000_000))
        );
        assert_eq!(planned.target(), "leader");
        let stays = resolve(raw("kill", "all", "", json!({ "restart": false }))).unwrap();
        assert_eq!(stays.for_ns, None);
    }

    #[test]
    fn what_is_written_back_is_read_as_the_same() {
        for raw in [
            raw("freeze", "holder", "1234567us", json!({ "process": "db" })),
            raw("kill", "one", "", json!({ "restart": false })),
            raw(
                "cut",
                "flapping halves",
                "9s",
                json!({ "down": "3s", "clients": "with-minority" }),
            ),
            raw("cut", "n1>n2,n3-c1", "end", json!({})),
            raw(
                "lossy",
                "isolate",
                "2s",
                json!({ "loss": 0.5, "node": "n2" }),
            ),
        ] {
            let planned = resolve(raw).unwrap();
            let again = resolve(planned.to_raw()).unwrap();
            assert_eq!(again.to_raw(), planned.to_raw());
            assert_eq!((again.at_ns, again.for_ns), (planned.at_ns, planned.for_ns));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (raw, says) in [
            (
                raw("freez", "", "", json!({})),
                "unknown fault `freez`; did you mean `freeze`?",
            ),
            (raw("cut", "halfs", "", json!({})), "did you mean `halves`?"),
            (
                raw("freeze", "n1>n2", "", json!({})),
                "no target for freeze",
            ),
            (raw("slow", "flapping", "", json!({})), "only cuts can flap"),
            (raw("cut", "", "4", json!({})), "the unit is missing"),
            (raw("cut", "", "0s", json!({})), "lasts 0s"),
            (
                raw("cut", "", "", json!({ "dwn": "1s" })),
                "did you mean `down`?",
            ),
            (raw("cut", "", "", json!({ "up": "1ms" })), "at least 100ms"),
            (
                raw("cut", "halves", "", json!({ "node": "n1" })),
                "`node` means nothing",
            ),
            (
                raw("cut", "isolate", "", json!({ "node": "c1" })),
                "`node` is one server",
            ),
            (
                raw("cut", "isolate", "", json!({ "node": "al" })),
                "did you mean `all`?",
            ),
            (
                raw("cut", "isolate", "", json!({ "direction": "from" })),
                "`direction` means nothing",
            ),
            (
                raw("cut", "bridge", "", json!({ "clients": "with-minority" })),
                "has no two sides",
            ),
            (
                raw("kill", "", "2s", json!({ "restart": false })),
                "stays until the run ends",
            ),
            (
                raw("clock", "", "", json!({ "offset": "1ms" })),
                "`offset` is at least 10ms",
            ),
            (
                raw("clock", "", "", json!({ "every": "1ms" })),
                "`every` is at least 50ms, or 0s",
            ),
            (
                raw("slow", "", "", json!({ "delay": "1ms" })),
                "could not be verified",
            ),
            (
                raw("lossy", "", "", json!({ "loss": 0.001 })),
                "could not be verified",
            ),
        ] {
            let error = resolve(raw.clone())
                .expect_err(&format!("{raw:?}"))
                .to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_plan_that_must_exceed_the_budget_is_refused() {
        let freeze = |target: &str, at: &str, lasts: &str| RawFault {
            at: at.to_owned(),
            ..raw("freeze", target, lasts, json!({}))
        };
        for (raws, max, harmed) in [
            (vec![freeze("majority", "1s", "2s")], 2, 3),
            (vec![raw("cut", "majority-ring", "2s", json!({}))], 2, 3),
            (
                vec![freeze("n1", "1s", "5s"), freeze("n2", "2s", "1s")],
                1,
                2,
            ),
            (
                vec![
                    freeze("n1,n2", "1s", "end"),
                    raw("cut", "n3-n4", "", json!({})),
                ],
                2,
                3,
            ),
        ] {
            let error = plan(raws, 5, Some(max)).unwrap_err();
            let Error::Budget {
                harmed: counted, ..
            } = &error
            else {
                panic!("{error}")
            };
            assert_eq!(*counted, harmed, "{error}");
        }
        for raws in [
            // One after the other, or on the same server, or on whom only the run will tell.
            vec![freeze("n1", "1s", "1s"), freeze("n2", "2s", "1s")],
            vec![freeze("n1", "1s", "5s"), raw("cut", "n1-n2", "", json!({}))],
            vec![freeze("leader", "1s", "5s"), freeze("one", "2s", "1s")],
            vec![
                raw("cut", "isolate", "", json!({})),
                freeze("holder", "1s", "5s"),
            ],
        ] {
            plan(raws, 5, Some(1)).unwrap();
        }
    }

    #[test]
    fn plans_that_outlast_nothing_are_noted() {
        let timing = Timing {
            ttl_ns: Some(3_000_000_000),
            election_timeout_ns: Some(1_000_000_000),
        };
        let notes = |fault, target, lasts| {
            plan(vec![raw(fault, target, lasts, json!({}))], 3, None)
                .unwrap()
                .notes(&timing)
        };
        assert_eq!(
            notes("freeze", "leader", "2s"),
            ["no fault outlasts the TTL of 3s: the longest silence is 2s"]
        );
        assert_eq!(
            notes("cut", "flapping", "60s").len(),
            1,
            "it is down for 2s at a time"
        );
        assert_eq!(notes("slow", "isolate", "60s").len(), 2);
        assert_eq!(notes("cut", "isolate", "4s"), Vec::<String>::new());
    }
}
