//! `conclave`: a node or the vault as a program of its own. `schism conclave` is the same.

use clap::Parser;
use conclave::{ServeArgs, VaultArgs};
use std::error::Error as _;
use std::iter::successors;
use std::process::ExitCode;

/// A small coordination service that can be broken on purpose.
#[derive(Parser)]
enum Cli {
    /// Run one node of a cluster.
    Serve(Box<ServeArgs>),
    /// Run the vault, the resource that a lock protects.
    Vault(VaultArgs),
}

fn main() -> ExitCode {
    let ended = match Cli::parse() {
        Cli::Serve(args) => conclave::serve(*args),
        Cli::Vault(args) => conclave::vault(args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let causes = successors(error.source(), |cause| (*cause).source());
            let causes: String = causes.map(|cause| format!(": {cause}")).collect();
            eprintln!("conclave: {error}{causes}");
            ExitCode::FAILURE
        }
    }
}
