//! The parts of `schism` that the tests of the clients start as processes: a conclave node, the
//! vault, and the clients. It exists because a test can only name the executables of its own crate.

use clap::Parser;
use conclave::{ServeArgs, VaultArgs};
use std::process::ExitCode;

#[derive(Parser)]
enum Cli {
    #[command(subcommand)]
    Conclave(Conclave),
    Client {
        #[arg(long)]
        system: String,
    },
}

#[derive(clap::Subcommand)]
enum Conclave {
    Serve(Box<ServeArgs>),
    Vault(VaultArgs),
}

fn main() -> ExitCode {
    let ended = match Cli::parse() {
        Cli::Conclave(Conclave::Serve(args)) => conclave::serve(*args).map_err(|e| e.to_string()),
        Cli::Conclave(Conclave::Vault(args)) => conclave::vault(args).map_err(|e| e.to_string()),
        Cli::Client { system } => {
            let program = systems::find_client(&system).expect("a known system");
            systems::run_client(program).map_err(|e| e.to_string())
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(4)
        }
    }
}
