//! Runs the real program, as a user would.

use std::path::Path;
use std::process::Command;

/// What the program did.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `schism` in a folder and waits for its end.
pub fn schism(dir: &Path, args: &[&str]) -> Ran {
    let output = command(dir, args)
        .output()
        .expect("the program can be started");
    Ran {
        code: output.status.code().expect("no signal ended the program"),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// `schism`, ready to be started in a folder.
#[expect(
    clippy::disallowed_methods,
    reason = "tests start the program under test themselves"
)]
pub fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schism"));
    command.current_dir(dir).args(args);
    command
}
