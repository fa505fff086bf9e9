//! Faults as stretches of time: from the ledger of the result, else from the history.

use std::collections::HashMap;

use history::{History, ValueRef};

use crate::report::words;
use crate::result::RunResult;

/// One fault that began.
#[derive(Debug, Clone)]
pub struct Band {
    /// Its number in the plan.
    pub id: u64,
    /// The fault: `freeze`.
    pub fault: String,
    /// What it struck: `c2`.
    pub target: String,
    /// Begin, ns.
    pub begin: u64,
    /// End, ns; `None` if nobody recorded one.
    pub end: Option<u64>,
    /// Whether the evidence says that it landed.
    pub landed: bool,
}

impl Band {
    /// `#1 freeze c2`.
    pub fn name(&self) -> String {
        format!("#{} {} {}", self.id, self.fault, self.target)
    }

    /// The last time at which something is known of it.
    pub fn last_known(&self) -> u64 {
        self.end.unwrap_or(self.begin)
    }

    /// Whether it was in force at some time between these two.
    pub fn touches(&self, from: u64, to: u64) -> bool {
        self.landed && self.begin <= to && self.end.is_none_or(|end| end >= from)
    }

    /// `#1 freeze c2 healed 15 ms ago`, if that is so at this time.
    pub fn healed_just_before(&self, time: u64) -> Option<String> {
        const JUST_NS: u64 = 2_000_000_000;
        let ago = time.checked_sub(self.end.filter(|_| self.landed)?)?;
        (ago < JUST_NS).then(|| format!("{} healed {} ago", self.name(), words::span(ago)))
    }

    /// Whether it struck this node, alone or among others.
    pub fn strikes(&self, node: &str) -> bool {
        self.target
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.')
            .any(|part| part == node)
    }
}

/// The faults that began, by number.
pub fn of(run: &RunResult, history: &History) -> Vec<Band> {
    let mut bands: Vec<Band> = run
        .faults
        .iter()
        .filter_map(|fault| {
            Some(Band {
                id: fault.id,
                fault: fault.fault.clone(),
                target: fault.resolved.clone(),
                begin: fault.begin_ms?.saturating_mul(1_000_000),
                end: fault.end_ms.map(|ms| ms.saturating_mul(1_000_000)),
                landed: fault.landed,
            })
        })
        .collect();
    if bands.is_empty() {
        bands = of_history(history);
    }
    bands.sort_by_key(|band| (band.begin, band.id));
    bands
}

/// What the nemesis recorded with phases; without phases nobody knows what ends what.
fn of_history(history: &History) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    let mut open: HashMap<u64, usize> = HashMap::new();
    for event in history.events().filter(|event| event.is_nemesis()) {
        let value = event.value();
        let Some(id) = value.get("id").and_then(ValueRef::as_u64) else {
            continue;
        };
        match value.get("phase").and_then(ValueRef::as_str) {
            Some("begin") => {
                open.insert(id, bands.len());
                bands.push(Band {
                    id,
                    fault: event.f().to_owned(),
                    target: value.get("target").map(words::targets).unwrap_or_default(),
                    begin: event.time(),
                    end: None,
                    landed: value.get("verified").and_then(ValueRef::as_bool) == Some(true),
                });
            }
            Some("end") => {
                if let Some(at) = open.remove(&id) {
                    bands[at].end = Some(event.time());
                }
            }
            _ => {}
        }
    }
    bands
}
