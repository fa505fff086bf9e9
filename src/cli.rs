//! The command line: what can be asked of schism.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// The hidden command that the harness measures itself against.
pub const ECHO_CLIENT: &str = "echo-client";

/// Tears coordination clusters apart and says, with evidence, whether they ever had two leaders.
#[derive(Debug, Parser)]
#[command(name = "schism", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What schism does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a suite: start clusters, drive clients, strike faults, check, report.
    Run(RunArgs),
    /// Check a history, or the history of a run.
    Check(CheckArgs),
    /// Say what this machine can do, and what to change for what it cannot.
    Doctor(DoctorArgs),
    /// List workloads, faults, checkers, systems or exit codes.
    List(ListArgs),
    /// Measure the harness itself.
    Bench(BenchArgs),
    /// Test a client program that you wrote against the client protocol.
    ClientTest(ClientTestArgs),
    /// Be a client program: JSON lines on standard input and output.
    Client(ClientArgs),
    /// Run a part of the coordination service that comes with schism.
    #[command(subcommand)]
    Conclave(ConclaveCommand),
    /// Be a client that answers everything at once, for `bench drive`.
    #[command(name = ECHO_CLIENT, hide = true)]
    EchoClient,
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Arguments of `schism run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The spec file: a suite, or the plan.toml of an earlier run.
    pub spec: PathBuf,
    /// Only the cells whose id contains this; may be given more than once.
    #[arg(long, value_name = "TEXT")]
    pub cell: Vec<String>,
    /// How many cells run at once.
    #[arg(long, short)]
    pub jobs: Option<usize>,
    /// The seed of every cell that has none of its own.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Run the suite so many times; stop at the first that is not as it should be.
    #[arg(long, default_value_t = 1, value_name = "TIMES")]
    pub repeat: u32,
    /// Where results go.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub results: PathBuf,
    /// Keep the data of the systems beside their logs.
    #[arg(long)]
    pub keep_data: bool,
}

/// Arguments of `schism check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A history file, or the directory of a run or of a Jepsen test.
    pub path: PathBuf,
    /// The format of the history; found out by its content if it is not given.
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Whether values are pairs of a key and a value, as those of jepsen.independent; found out if
    /// it is not given.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub independent: Option<bool>,
    /// A checker; may be given more than once. The header's checkers if none is given, and where
    /// there are none, those that fit the operations.
    #[arg(long, value_name = "NAME")]
    pub checker: Vec<String>,
    /// What the operations work on, for `linearizable`: short for `--param model=NAME`.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The isolation level that is promised: short for `--param level=NAME`.
    #[arg(long, value_name = "NAME")]
    pub level: Option<String>,
    /// A parameter of the checkers, before what the header says: `nil_reads=unknown`; may be given
    /// more than once. The value is JSON, or else a word.
    #[arg(long, value_name = "NAME=VALUE")]
    pub param: Vec<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Time that each checker may take.
    #[arg(long, default_value = "60s", value_name = "DURATION")]
    pub time_limit: String,
    /// Memory that each checker may take, in MiB.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    pub memory: u64,
}

/// Arguments of `schism doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `schism list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// What to list.
    #[arg(value_enum)]
    pub what: ListWhat,
    /// Print Markdown instead of a table.
    #[arg(long)]
    pub markdown: bool,
}

/// What can be listed.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum ListWhat {
    /// What clients do.
    Workloads,
    /// What is done to clusters.
    Faults,
    /// What must hold.
    Checkers,
    /// What can be tested.
    Systems,
    /// What the exit code says.
    ExitCodes,
}

/// Arguments of `schism bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub what: BenchWhat,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum BenchWhat {
    /// Create and destroy time, added latency, throughput, time of effect of a cut.
    Cluster,
    /// Operations a second from generator to recorded completion.
    Drive {
        /// Seconds that each measurement takes.
        #[arg(long, default_value_t = 5)]
        seconds: u64,
    },
}

/// Arguments of `schism client-test`.
#[derive(Debug, Args)]
pub struct ClientTestArgs {
    /// Only the protocol, without a conclave node to talk to.
    #[arg(long)]
    pub protocol_only: bool,
    /// The system that the client is told to test; operations are tried on conclave only.
    #[arg(long, default_value = "conclave")]
    pub system: String,
    /// The workloads that it shall be able to do.
    #[arg(long, value_delimiter = ',', default_values = ["lock", "register"])]
    pub workload: Vec<String>,
    /// Your client program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// Arguments of `schism client`.
#[derive(Debug, Args)]
pub struct ClientArgs {
    /// The system to talk to.
    #[arg(long)]
    pub system: String,
}

/// The parts of the coordination service.
#[derive(Debug, Subcommand)]
pub enum ConclaveCommand {
    /// One replica.
    Serve(conclave::ServeArgs),
    /// The protected resource.
    Vault(conclave::VaultArgs),
}
