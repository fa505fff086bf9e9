//! The parts of `schism` that the tests of the clients start as processes: a conclave node, the
//! vault, and the clients. It exists because a test can only name the executables of its own crate.
//!
//! `client --system instant` is a client whose operations all succeed at once: what the main loop of
//! client programs costs by itself.

use std::process::ExitCode;
use std::rc::Rc;

use async_trait::async_trait;
use clap::Parser;
use conclave::{ServeArgs, VaultArgs};
use serde_json::Value;
use systems::client::{Client, Failure, Op, Patience, Setup};
use systems::{ClientProgram, Error};

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

struct Instant;

impl ClientProgram for Instant {
    fn name(&self) -> &'static str {
        "instant"
    }

    fn functions(&self, _workload: &str) -> &'static [&'static str] {
        &["read", "write", "cas"]
    }

    fn client(&self, _setup: &Rc<Setup>, _thread: u64) -> Result<Box<dyn Client>, Error> {
        Ok(Box::new(Instant))
    }
}

#[async_trait(?Send)]
impl Client for Instant {
    async fn invoke(&mut self, op: &Op, _patience: &mut Patience) -> Result<Value, Failure> {
        Ok(op.value.clone())
    }
}

fn main() -> ExitCode {
    let ended = match Cli::parse() {
        Cli::Conclave(Conclave::Serve(args)) => conclave::serve(*args).map_err(|e| e.to_string()),
        Cli::Conclave(Conclave::Vault(args)) => conclave::vault(args).map_err(|e| e.to_string()),
        Cli::Client { system } if system == "instant" => {
            systems::run_client(&Instant).map_err(|e| e.to_string())
        }
        Cli::Client { system } => {
            let system = systems::find(&system).expect("a known system");
            systems::run_client(system).map_err(|e| e.to_string())
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
