//! Plans that the dice make: which faults, at what, when and for how long, from a seed. The same
//! seed gives the same plan on every machine and in every later version; a golden test sees to it.
//!
//! Durations are measured by what the system waits for: some faults are over before a follower asks
//! for an election, some outlast the election timeout, some the lease, some both by far. The first
//! silences somebody for longer than both, so that no plan can pass by being harmless.

use crate::Error;
use crate::fault::Fault;
use crate::plan::{Plan, PlannedFault, RawFault, Timing};
use crate::stream::Stream;
use crate::target::Roster;

/// What the dice may choose from.
#[derive(Debug, Clone)]
pub struct Choices {
    /// The faults, each with its targets; those that this cluster can never match are left out. No
    /// targets stand for the usual ones of the fault.
    pub faults: Vec<(&'static dyn Fault, Vec<String>)>,
    /// Whether clients hold locks, so that `holder` is one of the usual targets.
    pub holders: bool,
    /// No fault strikes before, in nanoseconds since the run began.
    pub from_ns: u64,
    /// Every fault has ended by then, in nanoseconds since the run began.
    pub until_ns: u64,
    /// How long the cluster is left in peace between faults, on average, in nanoseconds. By default
    /// the longer of lease and election timeout, so that it can recover.
    pub quiet_ns: Option<u64>,
    /// How many servers may be harmed at once.
    pub max_harmed: Option<usize>,
}

/// Draws a plan.
///
/// # Errors
/// [`Error::Spec`] or [`Error::Target`] for a target that cannot be read,
/// [`Error::NothingToDraw`] if no fault is left to choose from or there is no time for one.
pub fn random(
    seed: u64,
    choices: &Choices,
    roster: &Roster,
    timing: &Timing,
) -> Result<Vec<RawFault>, Error> {
    let options = options(seed, choices, roster, timing)?;
    let mut dice = Stream::new(seed, "plan");
    let quiet_ns = choices.quiet_ns.unwrap_or_else(|| timing.longest_ns());
    let mut faults: Vec<RawFault> = Vec::new();
    let mut at_ns = choices.from_ns;
    // The end of the fault that ends last so far.
    let mut busy_ns = at_ns;
    let silencing: Vec<Choice> = options
        .iter()
        .filter(|choice| choice.stops && choice.silent_ns > timing.longest_ns())
        .cloned()
        .collect();
    loop {
        let from = if faults.is_empty() && !silencing.is_empty() {
            &silencing
        } else {
            &options
        };
        let Some(Choice { fault, target, .. }) = dice.pick(from) else {
            break;
        };
        let for_ns = duration(&mut dice, timing, faults.is_empty());
        let ends_ns = at_ns.saturating_add(for_ns);
        if ends_ns > choices.until_ns {
            break;
        }
        faults.push(RawFault {
            at: milliseconds(at_ns),
            fault: (*fault).to_owned(),
            target: Some(target.clone()),
            lasts: Some(milliseconds(for_ns)),
            ..RawFault::default()
        });
        busy_ns = busy_ns.max(ends_ns);
        // One fault in four is joined by another before it ends.
        at_ns = match dice.below(4) {
            0 => at_ns + for_ns / 2,
            _ => busy_ns + dice.between(quiet_ns / 2, quiet_ns + quiet_ns / 2),
        };
    }
    if faults.is_empty() {
        let time = spec::format_ns(choices.until_ns.saturating_sub(choices.from_ns));
        return Err(Error::NothingToDraw(format!("{time} is too short for one")));
    }
    Ok(faults)
}

/// A fault with a target that can be drawn.
#[derive(Clone)]
struct Choice {
    fault: &'static str,
    target: String,
    /// Whether it does more than to deceive.
    stops: bool,
    /// For how long it can silence somebody without a break.
    silent_ns: u64,
}

/// Every fault with every target that makes sense for this cluster and its budget.
fn options(
    seed: u64,
    choices: &Choices,
    roster: &Roster,
    timing: &Timing,
) -> Result<Vec<Choice>, Error> {
    let mut options = Vec::new();
    for (fault, targets) in &choices.faults {
        let usual = fault
            .random_targets()
            .iter()
            .filter(|&&t| t != "holder" || choices.holders);
        let targets = match targets.is_empty() {
            true => usual.map(|target| (*target).to_owned()).collect(),
            false => targets.clone(),
        };
        for target in targets {
            let raw = RawFault {
                at: "0s".to_owned(),
                fault: fault.name().to_owned(),
                target: Some(target.clone()),
                lasts: Some("end".to_owned()),
                ..RawFault::default()
            };
            let planned = PlannedFault::resolve(raw, roster, timing)
                .and_then(|one| Plan::new(roster.clone(), seed, vec![one], choices.max_harmed));
            match planned {
                Ok(plan) => options.push(Choice {
                    fault: fault.name(),
                    target,
                    stops: fault.stops(),
                    silent_ns: plan
                        .faults()
                        .iter()
                        .map(PlannedFault::silent_ns)
                        .max()
                        .unwrap_or(0),
                }),
                Err(Error::MatchesNothing { .. } | Error::Budget { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    match options.is_empty() {
        true => Err(Error::NothingToDraw(
            "none of the faults fits this cluster".to_owned(),
        )),
        false => Ok(options),
    }
}

fn duration(dice: &mut Stream, timing: &Timing, first: bool) -> u64 {
    let longest = timing.longest_ns();
    let election = timing.election_timeout_ns.unwrap_or(longest);
    let ttl = timing.ttl_ns.unwrap_or(longest);
    match if first { 3 } else { dice.below(4) } {
        0 => dice.between(election / 4, election * 3 / 4),
        1 => dice.between(election * 5 / 4, election * 2),
        2 => dice.between(ttl * 5 / 4, ttl * 2),
        _ => dice.between(longest * 3 / 2, longest * 3),
    }
}

fn milliseconds(ns: u64) -> String {
    format!("{}ms", (ns / 1_000_000).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{FAULTS, find};

    fn roster(servers: usize) -> Roster {
        let servers = (1..=servers).map(|at| format!("n{at}")).collect();
        Roster {
            servers,
            clients: vec!["c1".to_owned()],
            others: Vec::new(),
        }
    }

    const TIMING: Timing = Timing {
        ttl_ns: Some(3_000_000_000),
        election_timeout_ns: Some(1_000_000_000),
    };

    fn choices(seconds: u64, max_harmed: Option<usize>) -> Choices {
        Choices {
            faults: FAULTS.iter().map(|fault| (*fault, Vec::new())).collect(),
            holders: true,
            from_ns: 5_000_000_000,
            until_ns: seconds * 1_000_000_000,
            quiet_ns: None,
            max_harmed,
        }
    }

    fn lines(faults: &[RawFault]) -> Vec<String> {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let line = |raw: &RawFault| {
            format!(
                "{} {} {} {}",
                raw.at,
                raw.fault,
                text(&raw.target),
                text(&raw.lasts)
            )
        };
        faults.iter().map(line).collect()
    }

    #[test]
    fn a_seed_is_a_plan_for_ever() {
        let names = ["freeze", "kill", "cut", "slow", "lossy"];
        let choices = Choices {
            faults: names.map(|name| (find(name).unwrap(), Vec::new())).into(),
            ..choices(60, None)
        };
        let faults = random(7, &choices, &roster(3), &TIMING).unwrap();
        assert_eq!(
            lines(&faults),
            [
                "5000ms cut partial 5234ms",
                "12400ms cut halves 1645ms",
                "13222ms kill minority 4495ms",
                "15470ms lossy isolate 4527ms",
                "23286ms cut flapping 4812ms",
                "32550ms freeze leader 1790ms",
                "38730ms kill minority 1773ms",
                "44915ms freeze follower 8746ms",
            ]
        );
    }

    #[test]
    fn every_plan_can_be_run_ends_in_time_and_outlasts_what_the_system_waits_for() {
        for seed in 0..50 {
            for (servers, max_harmed) in [(1, None), (3, Some(1)), (5, Some(2)), (5, None)] {
                let (choices, roster) = (choices(90, max_harmed), roster(servers));
                let faults = random(seed, &choices, &roster, &TIMING).unwrap();
                let resolve = |raw| PlannedFault::resolve(raw, &roster, &TIMING).unwrap();
                let faults: Vec<_> = faults.into_iter().map(resolve).collect();
                let ends = faults
                    .iter()
                    .map(|planned| planned.at_ns + planned.for_ns.unwrap());
                assert!(ends.max().unwrap() <= choices.until_ns);
                let plan = Plan::new(roster, seed, faults, max_harmed).unwrap();
                let first = &plan.faults()[0];
                assert!(first.silent_ns() > TIMING.longest_ns());
                assert_eq!(plan.notes(&TIMING), Vec::<String>::new());
            }
        }
    }

    #[test]
    fn where_nothing_can_be_drawn_the_reason_is_given() {
        let error = random(7, &choices(6, None), &roster(3), &TIMING).unwrap_err();
        assert!(error.to_string().contains("1s is too short"), "{error}");
        let error = random(7, &choices(60, Some(0)), &roster(1), &TIMING);
        // Only the client is left to be frozen or cut.
        assert!(
            lines(&error.unwrap())
                .iter()
                .all(|line| line.contains("holder"))
        );
        let none = Choices {
            faults: Vec::new(),
            ..choices(60, None)
        };
        let error = random(7, &none, &roster(3), &TIMING).unwrap_err();
        assert!(matches!(error, Error::NothingToDraw(_)), "{error}");
    }
}
