//! `schism doctor`: what this machine can do, and what to change for what it cannot.

use serde_json::json;
use tabled::builder::Builder;
use tabled::settings::Style;
use tabled::settings::width::Width;

use crate::cli::DoctorArgs;
use crate::report::terminal;
use crate::result::Exit;

/// Probes and prints. Exits with 4 if the local backend cannot be used at all.
pub async fn doctor(args: DoctorArgs) -> Exit {
    let capabilities = match cluster::capabilities(None).await {
        Ok(capabilities) => capabilities,
        Err(error) => {
            eprintln!("error: {error}");
            return Exit::Harness;
        }
    };
    let usable = capabilities
        .iter()
        .all(|capability| capability.works || capability.optional);
    let systems: Vec<(&str, Result<String, systems::Error>)> = systems::SYSTEMS
        .iter()
        .map(|system| (system.name(), system.version()))
        .collect();
    if args.json {
        print_json(&capabilities, &systems, usable);
    } else {
        print_tables(&capabilities, &systems, usable);
    }
    if usable { Exit::Held } else { Exit::Harness }
}

type Versions<'a> = [(&'a str, Result<String, systems::Error>)];

fn print_json(capabilities: &[cluster::Capability], systems: &Versions<'_>, usable: bool) {
    let capabilities: Vec<_> = capabilities
        .iter()
        .map(|capability| {
            json!({
                "name": capability.name,
                "works": capability.works,
                "optional": capability.optional,
                "tried": capability.tried,
                "found": capability.found,
                "remedy": capability.remedy,
            })
        })
        .collect();
    let systems: Vec<_> = systems
        .iter()
        .map(|(name, version)| match version {
            Ok(version) => json!({ "name": name, "version": version }),
            Err(error) => json!({ "name": name, "missing": error.to_string() }),
        })
        .collect();
    let faults: Vec<_> = nemeses::FAULTS.iter().map(|fault| fault.name()).collect();
    let all = json!({
        "backend": "local",
        "usable": usable,
        "capabilities": capabilities,
        "faults": if usable { faults } else { Vec::new() },
        "systems": systems,
    });
    println!("{all:#}");
}

fn print_tables(capabilities: &[cluster::Capability], systems: &Versions<'_>, usable: bool) {
    let mut table = Builder::new();
    table.push_record([
        "the local backend needs",
        "",
        "tried and found",
        "what to change",
    ]);
    for capability in capabilities {
        let sign = match (capability.works, capability.optional) {
            (true, _) => "yes",
            (false, true) => "no, not needed",
            (false, false) => "NO",
        };
        let remedy = if capability.works {
            ""
        } else {
            &capability.remedy
        };
        let found = format!("{}: {}", capability.tried, capability.found);
        table.push_record([&capability.name, sign, &found, remedy]);
    }
    print(table);
    let mut table = Builder::new();
    table.push_record(["fault", "can be done here", "what it does"]);
    for fault in nemeses::FAULTS {
        table.push_record([
            fault.name(),
            if usable { "yes" } else { "NO" },
            fault.about(),
        ]);
    }
    print(table);
    let mut table = Builder::new();
    table.push_record(["system", "here"]);
    for (name, version) in systems {
        let here = match version {
            Ok(version) => version.clone(),
            Err(error) => error.to_string(),
        };
        table.push_record([(*name).to_owned(), here]);
    }
    print(table);
}

fn print(table: Builder) {
    let mut table = table.build();
    table
        .with(Style::sharp())
        .with(Width::wrap(terminal::width()).keep_words(true));
    println!("{table}");
}
