//! What faults of processes have in common: which processes are meant, and how they appear in
//! evidence.

use serde::Serialize;
use serde_json::{Value, json};
use spec::{Param, ParamKind};

use crate::fault::{Evidence, Proof};

/// Which of a node's processes are hit.
pub(crate) const PROCESS: Param = Param {
    name: "process",
    kind: ParamKind::Text(""),
    about: "the service or client program on the node that is hit; empty for all of them",
};

/// A service and its processes as they were seen.
pub(crate) fn facts<T: Serialize>(node: &str, process: &str, states: &[T]) -> Value {
    json!({ "node": node, "process": process, "states": states })
}

/// One proof out of what was done to each service: against, if one of them failed.
pub(crate) fn fold(
    parts: impl IntoIterator<Item = Result<Value, String>>,
    says: impl FnOnce(&[Value]) -> String,
) -> Proof {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Ok(facts) => done.push(facts),
            Err(why) => failed.push(why),
        }
    }
    if failed.is_empty() {
        let says = says(&done);
        Ok(Evidence::new(says, Value::Array(done)))
    } else {
        Err(Evidence::new(failed.join("; "), Value::Array(done)))
    }
}

/// How many processes of which nodes are in these facts: `3 processes on n1, n2`.
pub(crate) fn count(facts: &[Value]) -> String {
    let states = |facts: &Value| facts["states"].as_array().map_or(0, Vec::len);
    let processes: usize = facts.iter().map(states).sum();
    let mut nodes: Vec<&str> = facts
        .iter()
        .filter_map(|facts| facts["node"].as_str())
        .collect();
    nodes.dedup();
    let plural = if processes == 1 {
        "process"
    } else {
        "processes"
    };
    format!("{processes} {plural} on {}", nodes.join(", "))
}
