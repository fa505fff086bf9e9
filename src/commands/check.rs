//! `schism check`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use checkers::{Checked, Checker};
use history::History;
use serde_json::json;

use crate::check::{self, Limits};
use crate::cli::CheckArgs;
use crate::report::terminal;
use crate::result::{Exit, Outcome, Property};

/// Checks a history and prints what each checker said.
pub async fn check(args: CheckArgs) -> Exit {
    let path = history_path(args.path);
    let mut read = match history::read_path(&path) {
        Ok(read) => read,
        Err(error) => {
            eprintln!("error: {}: {error}", path.display());
            return Exit::Usage;
        }
    };
    for warning in &read.warnings {
        eprintln!("warning: {}: {warning}", path.display());
    }
    let names = if args.checker.is_empty() {
        read.history.header.checkers.clone()
    } else {
        args.checker
    };
    if names.is_empty() {
        eprintln!("error: the header names no checker; name one with --checker");
        return Exit::Nothing;
    }
    let time = match spec::parse_duration(&args.time_limit) {
        Ok(ns) => Duration::from_nanos(ns),
        Err(error) => {
            eprintln!("error: --time-limit: {error}");
            return Exit::Usage;
        }
    };
    let selected = match check::select(&names) {
        Ok(selected) => selected,
        Err(error) => {
            eprintln!("error: {error}");
            return Exit::Usage;
        }
    };
    if let Err(error) = set_params(&mut read.history, &args.param, &selected) {
        eprintln!("error: {error}");
        return Exit::Usage;
    }
    let limits = Limits {
        time,
        bytes: args.memory << 20,
    };
    let history = Arc::new(read.history);
    let claims: Vec<String> = selected
        .iter()
        .map(|checker| checker.name().to_owned())
        .collect();
    let properties = check::run(&history, &selected, limits, &claims).await;
    if args.json {
        println!(
            "{}",
            json!({ "history": path, "events": history.len(), "properties": properties })
        );
    } else {
        show(&history, &properties);
    }
    exit(&properties)
}

/// Puts the parameters that were given into the header.
///
/// # Errors
/// A name that no checker declares, or a value that one of those selected cannot take.
fn set_params(
    history: &mut History,
    given: &[String],
    selected: &[&'static dyn Checker],
) -> Result<(), String> {
    for param in given {
        let (name, value) = param
            .split_once('=')
            .ok_or_else(|| format!("--param {param}: write it as NAME=VALUE"))?;
        checkers::params::find(name).map_err(|error| error.to_string())?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        history.header.params.insert(name.to_owned(), value);
    }
    for checker in selected {
        checkers::params::check(*checker, &history.header)
            .map_err(|error| format!("parameter of {}: {error}", checker.name()))?;
    }
    Ok(())
}

/// A table of what was found and counted, and each violation as a story.
fn show(history: &History, properties: &[Property]) {
    let rows: Vec<(&str, bool, &Checked)> = properties
        .iter()
        .map(|property| (property.name.as_str(), property.claimed, &property.checked))
        .collect();
    anstream::print!("{}", terminal::properties(&rows, terminal::width()));
    for property in properties {
        if let Some(told) = &property.checked.counterexample {
            anstream::print!("\n{}: {}", property.name, terminal::story(told, history));
        }
    }
}

/// The exit code: all that was asked for counts as claimed.
fn exit(properties: &[Property]) -> Exit {
    Exit::of([Outcome::of(properties, &Checked::valid(), &[])])
}

/// A run's directory stands for the history in it.
fn history_path(path: PathBuf) -> PathBuf {
    if !path.is_dir() {
        return path;
    }
    let packed = path.join("history.jsonl.zst");
    if packed.exists() {
        packed
    } else {
        path.join("history.jsonl")
    }
}
