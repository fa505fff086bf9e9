//! The same as an ordinary user: nothing in a run needs root.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;

use serde_json::Value;

use crate::support::{Ran, program, results};

/// The user `nobody`, and its group, wherever there is one.
const NOBODY: u32 = 65534;

const SPEC: &str = r#"
name = "t"
[[cell]]
id = "locked"
workload = "lock"
workload-params = { holder = "fenced", ttl = "2s" }
system = "conclave"
time-limit = "9s"
faults = [
    { at = "1s", fault = "freeze", target = "holder", for = "3s" },
    { at = "5s", fault = "kill", target = "follower", for = "1s" },
    { at = "6500ms", fault = "cut", target = "partial", for = "1s" },
]
claims = ["stale-writes", "mutual-exclusion"]
"#;

#[test]
fn an_ordinary_user_runs_everything_and_every_fault_lands() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("s.toml"), SPEC).unwrap();
    let exe = dir.path().join("schism");
    // The program may lie where only root can read it.
    std::fs::copy(env!("CARGO_BIN_EXE_schism"), &exe).unwrap();
    let mut command = program(dir.path(), exe.to_str().unwrap(), &["run", "s.toml"]);
    if nix::unistd::geteuid().is_root() {
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
        command.env("HOME", dir.path()).env("TMPDIR", dir.path());
    }
    let ran = Ran::of(&command.output().unwrap());
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let result = results(dir.path(), "t").join("locked/result.json");
    let result: Value = serde_json::from_slice(&std::fs::read(result).unwrap()).unwrap();
    assert_ne!(result["environment"]["user"], "root");
    let faults = result["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 3);
    for fault in faults {
        assert!(
            fault["landed"] == true && fault["healed"] == true,
            "{fault}"
        );
    }
}
