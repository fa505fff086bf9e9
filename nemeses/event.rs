//! What the history says about faults: a `begin` and an `end` for each.

use serde::Serialize;
use serde_json::{Value, json};

/// Which of the two it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The harm was installed, and it was looked whether it landed.
    Begin,
    /// The harm was undone, and it was looked whether it is gone.
    End,
}

/// An event of the nemesis, as the history records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NemesisEvent {
    /// The fault's number in the plan.
    pub id: u64,
    /// The fault's name: the event's function.
    pub fault: &'static str,
    /// Which of the two it is.
    pub phase: Phase,
    /// What was hit; where nothing was, the target as the plan has it.
    pub target: String,
    /// At the beginning: since when the fault may have been felt, in nanoseconds since the run began.
    /// The event itself comes later, when it was looked whether the fault landed.
    pub since_ns: Option<u64>,
    /// At the beginning: whether a majority of unharmed servers that clients reach can talk to each
    /// other now that the fault is there. At the end: whether there was one all the time in between.
    pub majority: bool,
    /// At the beginning: whether the evidence was there that the fault landed. At the end: whether
    /// it was there all the time.
    pub verified: bool,
}

impl NemesisEvent {
    /// The event's value in the history.
    pub fn value(&self) -> Value {
        let mut value = json!({
            "id": self.id,
            "phase": self.phase,
            "target": self.target,
            "majority": self.majority,
            "verified": self.verified,
        });
        if let Some(since_ns) = self.since_ns {
            value["since_ns"] = since_ns.into();
        }
        value
    }
}
