//! The first line of a history: what ran, and what the checkers need to know to judge it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the file format that this code writes and reads.
pub const FORMAT_VERSION: u64 = 1;

/// The header of a history file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format, [`FORMAT_VERSION`].
    pub schism: u64,
    /// Always `history`.
    pub kind: String,
    /// The workload whose vocabulary the events use.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// The system under test and its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The server nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The checkers that judge this history when none is named.
    #[serde(default)]
    pub checkers: Vec<String>,
    /// Parameters of checkers and workload, with their units in their names (`ttl_ms`).
    #[serde(default)]
    pub params: Map<String, Value>,
    /// Whatever else the header said; kept, so that a copy loses nothing.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Header {
    /// A header for a workload and the checkers that judge it.
    pub fn new(workload: &str, checkers: &[&str]) -> Header {
        Header {
            schism: FORMAT_VERSION,
            kind: "history".to_owned(),
            workload: workload.to_owned(),
            system: None,
            nodes: Vec::new(),
            checkers: checkers.iter().map(|&name| name.to_owned()).collect(),
            params: Map::new(),
            extra: Map::new(),
        }
    }

    /// A duration parameter `name` in milliseconds, as nanoseconds.
    pub fn param_ms(&self, name: &str) -> Option<u64> {
        let value = self.params.get(name)?;
        let ms = value.as_f64().filter(|ms| *ms >= 0.0)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked non-negative; durations are far below 2^53 ns"
        )]
        Some((ms * 1e6).round() as u64)
    }

    /// An integer parameter.
    pub fn param_u64(&self, name: &str) -> Option<u64> {
        self.params.get(name)?.as_u64()
    }

    /// A string parameter.
    pub fn param_str(&self, name: &str) -> Option<&str> {
        self.params.get(name)?.as_str()
    }
}
