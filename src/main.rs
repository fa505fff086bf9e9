//! The command line of schism: finds out what is asked, and turns what came out into an exit code.
//!
//! The program also is what runs inside a cluster: sandbox, agent, client, and the coordination
//! service that it ships. Start reading in `batch.rs` (a suite) and `run/` (one run of it).

mod abilities;
mod batch;
mod bench;
mod check;
mod cli;
mod commands;
mod environment;
mod progress;
mod report;
mod result;
mod results;
mod run;
mod seed;
mod suite;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, ConclaveCommand};
use result::Exit;

fn main() -> ExitCode {
    // Before anything else, and before there are threads: this process may be a part of a cluster.
    if let Some(code) = cluster::dispatch() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors: clap prints them to stdout.
            let code = if error.use_stderr() {
                Exit::Usage as u8
            } else {
                0
            };
            drop(error.print());
            return ExitCode::from(code);
        }
    };
    let exit = match cli.command {
        Command::Run(args) => with_runtime(commands::run::run(args)),
        Command::Check(args) => with_runtime(commands::check::check(args)),
        Command::Doctor(args) => with_runtime(commands::doctor::doctor(args)),
        Command::List(args) => commands::list::list(&args),
        Command::Bench(args) => with_runtime(bench::bench(args)),
        Command::ClientTest(args) => commands::client::client_test(&args),
        Command::Client(args) => commands::client::client(&args),
        Command::Conclave(ConclaveCommand::Serve(args)) => served(conclave::serve(args)),
        Command::Conclave(ConclaveCommand::Vault(args)) => served(conclave::vault(args)),
        Command::EchoClient => bench::echo::run(),
        Command::Completions { shell } => commands::list::completions(shell),
    };
    ExitCode::from(exit as u8)
}

fn with_runtime(command: impl Future<Output = Exit>) -> Exit {
    match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let exit = runtime.block_on(command);
            // What is left (a client's writer that waits for ever) must not hold up the end.
            runtime.shutdown_background();
            exit
        }
        Err(error) => {
            eprintln!("error: the runtime could not be started: {error}");
            Exit::Harness
        }
    }
}

fn served(result: Result<(), conclave::Error>) -> Exit {
    match result {
        Ok(()) => Exit::Held,
        Err(error) => {
            eprintln!("error: {error}");
            Exit::Harness
        }
    }
}
