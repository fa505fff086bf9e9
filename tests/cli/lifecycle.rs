//! What is left when a run does not end by itself: interrupted, killed, out of disk, or with a
//! system that does not come up.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::{command, schism};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A cell that is frozen at one second for as long as the run lasts.
fn spec(time_limit: &str) -> String {
    format!(
        r#"
name = "t"
[[cell]]
id = "a"
workload = "register"
system = "conclave"
time-limit = "{time_limit}"
faults = [{{ at = "500ms", fault = "freeze", target = "follower", for = "{time_limit}" }}]
checker-params = {{ max_terms = 9 }}
"#
    )
}

/// A run in the background, up to where its fault has begun.
struct Running {
    child: Child,
    dir: tempfile::TempDir,
}

impl Running {
    fn start(time_limit: &str) -> Running {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("s.toml"), spec(time_limit)).unwrap();
        let mut command = command(dir.path(), &["run", "s.toml"]);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // Its end is not read: the program must not mind.
        let driving = lines
            .map_while(Result::ok)
            .find(|line| line.contains("driving"));
        assert!(driving.is_some(), "the run ended before its clients began");
        let running = Running { child, dir };
        running.wait_for_fault();
        running
    }

    fn run_dir(&self) -> PathBuf {
        let batch = std::fs::read_dir(self.dir.path().join("results/t"))
            .unwrap()
            .next();
        batch.unwrap().unwrap().path().join("a")
    }

    /// Waits until the ledger says that the fault has landed.
    fn wait_for_fault(&self) {
        for _ in 0..600 {
            let ledger = std::fs::read_to_string(self.run_dir().join("faults.jsonl"));
            if ledger.is_ok_and(|ledger| ledger.contains("\"verified\"")) {
                return;
            }
            pause();
        }
        panic!("the fault did not land");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    fn end(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

#[expect(clippy::disallowed_methods, reason = "another process is waited for")]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

/// Processes whose command line or environment names this directory.
fn processes_of(dir: &Path) -> Vec<String> {
    let marker = dir.to_str().unwrap().as_bytes().to_vec();
    let names = |bytes: &[u8]| bytes.windows(marker.len()).any(|window| window == marker);
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        let read = |file| std::fs::read(path.join(file)).unwrap_or_default();
        let cwd = std::fs::read_link(path.join("cwd")).unwrap_or_default();
        if names(&read("cmdline")) || names(&read("environ")) || cwd.starts_with(dir) {
            found.push(String::from_utf8_lossy(&read("cmdline")).replace('\0', " "));
        }
    }
    found
}

fn assert_nothing_left(dir: &Path) {
    for _ in 0..200 {
        if processes_of(dir).is_empty() {
            return;
        }
        pause();
    }
    panic!("left behind: {:?}", processes_of(dir));
}

fn result(dir: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(dir.join("result.json")).unwrap()).unwrap()
}

fn an_interrupt_heals_and_keeps_what_there_is(signal: Signal, code: i32) {
    let mut running = Running::start("60s");
    running.signal(signal);
    assert_eq!(running.end(), Some(code));
    let dir = running.run_dir();
    let result = result(&dir);
    assert_eq!(result["outcome"], "interrupted");
    assert_eq!(result["faults"][0]["landed"], true, "{}", result["faults"]);
    assert_eq!(result["faults"][0]["healed"], true, "{}", result["faults"]);
    let ledger = std::fs::read_to_string(dir.join("faults.jsonl")).unwrap();
    assert!(ledger.contains("\"verified-healed\"") && ledger.contains("\"healed-all\""));
    assert!(dir.join("report.html").exists() && dir.join("plan.toml").exists());
    let checked = schism(&dir, &["check", ".", "--checker", "linearizable"]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    assert_nothing_left(running.dir.path());
}

#[test]
fn sigint_heals_and_keeps_what_there_is() {
    an_interrupt_heals_and_keeps_what_there_is(Signal::SIGINT, 130);
}

#[test]
fn sigterm_heals_and_keeps_what_there_is() {
    an_interrupt_heals_and_keeps_what_there_is(Signal::SIGTERM, 143);
}

#[test]
fn a_second_interrupt_ends_at_once_and_leaves_nothing() {
    let mut running = Running::start("60s");
    running.signal(Signal::SIGINT);
    running.signal(Signal::SIGINT);
    // The two may have become one; then the first has done its work.
    assert_eq!(running.end(), Some(130));
    assert_nothing_left(running.dir.path());
}

#[test]
fn a_killed_controller_leaves_nothing_but_a_history_that_can_be_read() {
    let mut running = Running::start("60s");
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end(), None);
    assert_nothing_left(running.dir.path());
    let checked = schism(
        &running.run_dir(),
        &["check", ".", "--checker", "linearizable"],
    );
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
}

#[test]
fn a_plan_runs_again_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec("8s").replace("faults = [", "# faults = [")
        + "random-faults = { faults = [\"freeze\", \"cut\"] }\ncoverage = { required = [] }\n";
    std::fs::write(dir.path().join("s.toml"), spec).unwrap();
    let plan = |spec: &str, seed: &[&str]| {
        let results = tempfile::tempdir_in(dir.path()).unwrap();
        let mut args = vec!["run", spec, "--results", results.path().to_str().unwrap()];
        args.extend(seed);
        let ran = schism(dir.path(), &args);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        assert!(
            !ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'),
            "colour"
        );
        let batch = std::fs::read_dir(results.path().join("t"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        std::fs::read_to_string(batch.path().join("a/plan.toml")).unwrap()
    };
    let first = plan("s.toml", &["--seed", "7"]);
    assert!(
        first.contains("seed = 7") && first.contains("fault = "),
        "{first}"
    );
    std::fs::write(dir.path().join("plan.toml"), &first).unwrap();
    assert_eq!(plan("plan.toml", &[]), first);
    assert_eq!(plan("s.toml", &["--seed", "7"]), first);
}

#[test]
fn a_full_disk_is_a_failure_of_the_environment_and_the_history_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec("6s");
    std::fs::write(dir.path().join("s.toml"), spec).unwrap();
    let small = dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    // The disk is seen by these processes only, and what is left on it is copied out.
    let script = "mount -t tmpfs -o size=4m none small || exit 99
        \"$0\" run s.toml --results small & pid=$!
        until grep -q verified small/t/*/a/faults.jsonl 2>/dev/null; do sleep 0.1; done
        dd if=/dev/zero of=small/filler bs=4k 2>/dev/null
        wait $pid; code=$?
        cp small/t/*/a/history.jsonl kept.jsonl; exit $code";
    let exe = env!("CARGO_BIN_EXE_schism");
    let mut unshare =
        crate::support::program(dir.path(), "unshare", &["-rm", "sh", "-c", script, exe]);
    let output = unshare.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("No space left"), "{said}");
    let checked = schism(
        dir.path(),
        &["check", "kept.jsonl", "--checker", "linearizable"],
    );
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
}

/// Puts a script in the place of `etcd` and runs a cell with it.
fn run_with_etcd(script: &str, dir: &Path) -> crate::support::Ran {
    use std::os::unix::fs::PermissionsExt;
    let bin = dir.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let etcd = bin.join("etcd");
    std::fs::write(&etcd, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&etcd, std::fs::Permissions::from_mode(0o755)).unwrap();
    let spec = spec("3s")
        .replace("conclave", "etcd")
        .replace("500ms", "1s");
    std::fs::write(dir.join("s.toml"), spec).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = command(dir, &["run", "s.toml"])
        .env("PATH", path)
        .output()
        .unwrap();
    crate::support::Ran::of(&output)
}

#[test]
fn a_system_that_does_not_come_up_is_named_with_its_node_and_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let script = "[ \"$1\" = --version ] && { echo 'etcd Version: 0.0'; exit 0; }
echo 'the disk is on fire' >&2; exit 7";
    let ran = run_with_etcd(script, dir.path());
    assert_eq!(ran.code, 4, "{}{}", ran.stdout, ran.stderr);
    for word in ["n1", "system", "status 7", "the disk is on fire"] {
        assert!(
            ran.stderr.contains(word),
            "{word} is missing in\n{}",
            ran.stderr
        );
    }
}
