//! `schism doctor`: what this machine can do, and what to change for what it cannot.

use serde_json::json;

use crate::abilities;
use crate::cli::DoctorArgs;
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

/// Whether this machine can do all that a fault needs.
fn can(fault: &dyn nemeses::Fault, found: &[cluster::Capability]) -> bool {
    let params = abilities::defaults(fault);
    nemeses::refuse(fault, &params, &abilities::of(found)).is_empty()
}

fn print_json(found: &[cluster::Capability], systems: &Versions<'_>, usable: bool) {
    let capabilities: Vec<_> = found
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
    let faults: Vec<_> = nemeses::FAULTS
        .iter()
        .filter(|fault| usable && can(**fault, found))
        .map(|fault| fault.name())
        .collect();
    let all = json!({
        "backend": "local",
        "usable": usable,
        "capabilities": capabilities,
        "faults": faults,
        "systems": systems,
    });
    println!("{all:#}");
}

fn print_tables(capabilities: &[cluster::Capability], systems: &Versions<'_>, usable: bool) {
    let rows = capabilities.iter().map(|capability| {
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
        vec![
            capability.name.clone(),
            sign.to_owned(),
            found,
            remedy.to_owned(),
        ]
    });
    super::print_table(
        &[
            "the local backend needs",
            "here",
            "tried and found",
            "what to change",
        ],
        rows,
    );
    let rows = nemeses::FAULTS.iter().map(|fault| {
        let here = match usable && can(*fault, capabilities) {
            true => "yes",
            false => "NO",
        };
        [fault.name(), here, fault.about()]
            .map(str::to_owned)
            .to_vec()
    });
    super::print_table(&["fault", "here", "what it does"], rows);
    let rows = systems.iter().map(|(name, version)| {
        let here = match version {
            Ok(version) => version.clone(),
            Err(error) => error.to_string(),
        };
        vec![(*name).to_owned(), here]
    });
    super::print_table(&["system", "here"], rows);
}
