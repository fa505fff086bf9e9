//! `schism client` and `schism client-test`: the two ends of the client protocol.

use systems::conformance::{self, Check, Conformance, DOCUMENT, Outcome};

use crate::cli::{ClientArgs, ClientTestArgs};
use crate::result::Exit;

/// Becomes a client program.
pub fn client(args: &ClientArgs) -> Exit {
    let Some(system) = systems::find(&args.system) else {
        let known = systems::SYSTEMS.iter().map(|system| system.name());
        let hint = spec::closest(&args.system, known);
        let hint = hint.map(|name| format!("; did you mean `{name}`?"));
        eprintln!(
            "error: unknown system `{}`{}",
            args.system,
            hint.unwrap_or_default()
        );
        return Exit::Usage;
    };
    match systems::driver::run_client(system) {
        Ok(()) => Exit::Held,
        Err(error) => {
            eprintln!("error: {error}");
            Exit::Harness
        }
    }
}

/// Tests somebody's client program and prints a table of what was checked.
pub fn client_test(args: &ClientTestArgs) -> Exit {
    let exe = match std::env::current_exe() {
        Ok(exe) => exe,
        Err(error) => {
            eprintln!("error: cannot find the running executable: {error}");
            return Exit::Harness;
        }
    };
    let conformance = Conformance {
        command: args.command.clone(),
        system: args.system.clone(),
        workloads: args.workload.clone(),
        // There is nothing but conclave to try its operations on.
        protocol_only: args.protocol_only || args.system != "conclave",
        exe,
    };
    let checks = match conformance::run(&conformance) {
        Ok(checks) => checks,
        Err(error) => {
            eprintln!("error: {error}");
            return match error {
                systems::Error::Unsupported(_) => Exit::Usage,
                _ => Exit::Harness,
            };
        }
    };
    println!("{}", table(&checks));
    for check in &checks {
        explain(check);
    }
    let failed = checks
        .iter()
        .filter(|check| check.outcome != Outcome::Passed)
        .count();
    if failed == 0 {
        let count = checks.len();
        println!(
            "no mistake found in {count} checks{}",
            left_out(&conformance)
        );
        Exit::Held
    } else {
        println!("{failed} of {} checks failed", checks.len());
        Exit::Violation
    }
}

fn left_out(conformance: &Conformance) -> &'static str {
    if conformance.protocol_only {
        "; what the operations do was not tried"
    } else {
        ""
    }
}

fn table(checks: &[Check]) -> tabled::Table {
    let mut rows = tabled::builder::Builder::new();
    rows.push_record(["workload", "check", "result"]);
    for check in checks {
        let result = match check.outcome {
            Outcome::Passed => "passed",
            Outcome::Failed { .. } => "FAILED",
        };
        rows.push_record([&*check.workload, check.name, result]);
    }
    let mut table = rows.build();
    table.with(tabled::settings::Style::sharp());
    table
}

fn explain(check: &Check) {
    let Outcome::Failed {
        found,
        expected,
        section,
    } = &check.outcome
    else {
        return;
    };
    println!("\n{}: {}", check.workload, check.name);
    println!("  found:    {}", found.replace('\n', "\n            "));
    println!("  expected: {expected}");
    println!("  see:      {DOCUMENT}, \"{section}\"\n");
}
