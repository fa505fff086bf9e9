//! Writes a resolved cell as a spec of one cell, `plan.toml`, that runs it again.

use nemeses::PlannedFault;
use serde_json::Value;
use spec::{Params, exact_ns};
use toml::Table;

use super::Cell;

impl Cell {
    /// The cell as a spec with everything explicit. `seed` is the one that the run had, and
    /// `faults` the plan as it was carried out.
    pub fn to_toml(&self, seed: u64) -> String {
        let mut cell = Table::new();
        let mut put = |name: &str, value: toml::Value| {
            cell.insert(name.to_owned(), value);
        };
        put("id", self.id.clone().into());
        put("workload", self.workload.name().into());
        put("workload-params", params(&self.workload_params));
        put("system", self.system.name().into());
        put("system-params", params(&self.system_params));
        put("nodes", int(self.nodes as u64));
        put("backend", self.backend.clone().into());
        put("time-limit", exact_ns(self.time_limit).into());
        put("op-timeout", exact_ns(self.op_timeout).into());
        put("settle", exact_ns(self.settle).into());
        put("seed", int(seed));
        put("claims", list(&self.claims));
        if let Some(expect) = &self.expect {
            put("expect", expect.to_string().into());
        }
        if let Some(max) = self.max_harmed {
            put("max-harmed", int(max as u64));
        }
        let mut coverage = Table::new();
        coverage.insert("min-ok".to_owned(), int(self.min_ok));
        coverage.insert("required".to_owned(), list(&self.required));
        put("coverage", coverage.into());
        if !self.checker_params.is_empty() {
            let table: Table = self
                .checker_params
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), from_json(value)?)))
                .collect();
            put("checker-params", table.into());
        }
        let faults: Vec<toml::Value> = self.faults.iter().map(fault_table).collect();
        put("faults", faults.into());
        let mut suite = Table::new();
        suite.insert("name".to_owned(), self.suite.clone().into());
        suite.insert("cell".to_owned(), toml::Value::Array(vec![cell.into()]));
        toml::to_string_pretty(&suite).unwrap_or_default()
    }
}

fn fault_table(planned: &PlannedFault) -> toml::Value {
    let raw = planned.to_raw();
    let mut table = Table::new();
    table.insert("at".to_owned(), raw.at.into());
    table.insert("fault".to_owned(), raw.fault.into());
    if let Some(target) = raw.target {
        table.insert("target".to_owned(), target.into());
    }
    if let Some(lasts) = raw.lasts {
        table.insert("for".to_owned(), lasts.into());
    }
    let params: Table = raw
        .params
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), from_json(value)?)))
        .collect();
    if !params.is_empty() {
        table.insert("params".to_owned(), params.into());
    }
    table.into()
}

fn params(params: &Params) -> toml::Value {
    let table: Table = params
        .iter()
        .filter_map(|(name, value)| Some((name.to_owned(), from_json(value)?)))
        .collect();
    table.into()
}

fn int(number: u64) -> toml::Value {
    toml::Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn list(names: &[String]) -> toml::Value {
    names
        .iter()
        .map(|name| toml::Value::from(name.as_str()))
        .collect::<Vec<_>>()
        .into()
}

/// A JSON value as TOML; there is no `null` in TOML.
fn from_json(value: &Value) -> Option<toml::Value> {
    match value {
        Value::Null => None,
        Value::Bool(bool) => Some((*bool).into()),
        Value::Number(number) => Some(match number.as_i64() {
            Some(int) => int.into(),
            None => number.as_f64()?.into(),
        }),
        Value::String(text) => Some(text.as_str().into()),
        Value::Array(items) => Some(
            items
                .iter()
                .filter_map(from_json)
                .collect::<Vec<_>>()
                .into(),
        ),
        Value::Object(map) => {
            let table: Table = map
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), from_json(value)?)))
                .collect();
            Some(table.into())
        }
    }
}
