//! `schism check`.

use std::sync::Arc;
use std::time::Duration;

use checkers::{Checked, Checker};
use history::{History, Options};
use serde_json::json;

use crate::check::{self, Limits};
use crate::cli::CheckArgs;
use crate::report::terminal;
use crate::result::{Exit, Outcome, Property};

/// Checks a history and prints what each checker said.
pub async fn check(args: CheckArgs) -> Exit {
    let options = Options {
        format: args.format.clone(),
        independent: args.independent,
    };
    let mut read = match history::read_path_with(&args.path, &options) {
        Ok(read) => read,
        Err(error) => return refuse(&format!("{}: {error}", args.path.display())),
    };
    for warning in &read.warnings {
        eprintln!("warning: {}: {warning}", args.path.display());
    }
    let time = match spec::parse_duration(&args.time_limit) {
        Ok(ns) => Duration::from_nanos(ns),
        Err(error) => return refuse(&format!("--time-limit: {error}")),
    };
    let selected = match selected(&args.checker, &read.history) {
        Ok(selected) => selected,
        Err(error) => return refuse(&error),
    };
    if selected.is_empty() {
        eprintln!(
            "error: the header names no checker, and none fits the operations for certain; name \
             one with --checker"
        );
        return Exit::Nothing;
    }
    if let Err(error) = set_params(&mut read.history, &params(&args), &selected) {
        return refuse(&error);
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
            json!({
                "history": args.path,
                "format": read.format,
                "events": history.len(),
                "properties": properties,
            })
        );
    } else {
        if read.format != "schism" {
            println!("format: {}, {} events", read.format, history.len());
        }
        show(&history, &properties);
    }
    exit(&properties)
}

fn refuse(error: &str) -> Exit {
    eprintln!("error: {error}");
    Exit::Usage
}

/// The checkers that were named, or those of the header, or those that fit the operations.
fn selected(named: &[String], history: &History) -> Result<Vec<&'static dyn Checker>, String> {
    if !named.is_empty() {
        return check::select(named);
    }
    if !history.header.checkers.is_empty() {
        return check::select(&history.header.checkers);
    }
    let suited = checkers::suited(history);
    if !suited.is_empty() {
        let names: Vec<&str> = suited.iter().map(|checker| checker.name()).collect();
        eprintln!(
            "note: chosen by the operations: --checker {}",
            names.join(" --checker ")
        );
    }
    Ok(suited)
}

/// The parameters that were given, as name and value.
fn params(args: &CheckArgs) -> Vec<String> {
    let short =
        |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name}={value}"));
    let short = [short("model", &args.model), short("level", &args.level)];
    short
        .into_iter()
        .flatten()
        .chain(args.param.iter().cloned())
        .collect()
}

/// Puts the parameters that were given into the header.
///
/// # Errors
/// A name that none of the selected checkers declares, or a value that one of them cannot take.
fn set_params(
    history: &mut History,
    given: &[String],
    selected: &[&'static dyn Checker],
) -> Result<(), String> {
    for param in given {
        let (name, value) = param
            .split_once('=')
            .ok_or_else(|| format!("--param {param}: write it as NAME=VALUE"))?;
        checkers::params::find(selected, name).map_err(|error| error.to_string())?;
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
