//! Runs the real program, as a user would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What the program did.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// What a process that has ended did.
    pub fn of(output: &Output) -> Ran {
        Ran {
            code: output.status.code().expect("no signal ended the program"),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs `schism` in a folder and waits for its end.
pub fn schism(dir: &Path, args: &[&str]) -> Ran {
    Ran::of(
        &command(dir, args)
            .output()
            .expect("the program can be started"),
    )
}

/// `schism`, ready to be started in a folder.
pub fn command(dir: &Path, args: &[&str]) -> Command {
    program(dir, env!("CARGO_BIN_EXE_schism"), args)
}

/// A program, ready to be started in a folder.
#[expect(
    clippy::disallowed_methods,
    reason = "tests start the program under test themselves"
)]
pub fn program(dir: &Path, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).args(args);
    command
}

/// The folder of the only call of `schism run` for a suite.
pub fn results(dir: &Path, suite: &str) -> PathBuf {
    let batches = std::fs::read_dir(dir.join("results").join(suite)).unwrap();
    let mut batches: Vec<PathBuf> = batches.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(batches.len(), 1, "{batches:?}");
    batches.remove(0)
}
