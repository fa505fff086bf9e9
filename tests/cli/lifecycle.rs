//! What is left when a run does not end by itself: interrupted, killed, out of disk, or with a
//! system that does not come up.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::{Ran, command, results, schism};
use nix::sys::signal::{Signal, killpg};
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

/// A run in the background, in a process group of its own as a shell would give it.
struct Running {
    child: Child,
    dir: tempfile::TempDir,
}

impl Running {
    /// Up to where its fault has landed.
    fn start(time_limit: &str) -> Running {
        let running = Running::up_to("driving", time_limit);
        running.wait_for_fault();
        running
    }

    /// Up to where this step is shown.
    fn up_to(step: &str, time_limit: &str) -> Running {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("s.toml"), spec(time_limit)).unwrap();
        let mut command = command(dir.path(), &["run", "s.toml"]);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // Its end is not read: the program must not mind.
        let shown = lines
            .map_while(Result::ok)
            .find(|line| line.ends_with(step));
        assert!(shown.is_some(), "the run ended before {step}");
        Running { child, dir }
    }

    fn run_dir(&self) -> PathBuf {
        results(self.dir.path(), "t").join("a")
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

    /// Signals everything that the program started and that is still in its group, as a terminal
    /// does with Ctrl-C.
    fn signal(&self, signal: Signal) {
        killpg(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
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

/// Namespaces go with the last process in them; a mount must not have come out of them.
fn assert_nothing_left(dir: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(dir.to_str().unwrap()), "{mounts}");
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
fn an_interrupt_before_the_clients_begin_leaves_a_result_too() {
    let mut running = Running::up_to("starting", "60s");
    running.signal(Signal::SIGINT);
    assert_eq!(running.end(), Some(130));
    let result = result(&running.run_dir());
    assert_eq!(result["outcome"], "interrupted");
    assert!(running.run_dir().join("report.html").exists());
    assert_nothing_left(running.dir.path());
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
    assert!(
        said.contains("No space left") && said.contains("history.jsonl"),
        "{said}"
    );
    let checked = schism(
        dir.path(),
        &["check", "kept.jsonl", "--checker", "linearizable"],
    );
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
}

/// Puts a script in the place of `etcd` and runs a cell without faults with it.
fn run_with_etcd(script: &str, dir: &Path) -> Ran {
    let bin = dir.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let etcd = bin.join("etcd");
    std::fs::write(&etcd, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&etcd, Permissions::from_mode(0o755)).unwrap();
    let spec = r#"
name = "t"
[[cell]]
id = "a"
workload = "register"
system = "etcd"
time-limit = "6s"
settle = "2s"
claims = ["linearizable"]
"#;
    std::fs::write(dir.join("s.toml"), spec).unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = command(dir, &["run", "s.toml"])
        .env("PATH", format!("{}:{path}", bin.display()))
        .output();
    Ran::of(&output.unwrap())
}

#[test]
fn a_system_that_does_not_come_up_is_named_with_its_node_and_its_log() {
    // Only one of the three fails, and not the one that is waited for first.
    let script = "[ \"$1\" = --version ] && { echo 'etcd Version: 0.0'; exit 0; }
        [ \"$2\" = n2 ] || exec sleep 60
        echo 'the disk is on fire' >&2; exit 7";
    let dir = tempfile::tempdir().unwrap();
    let ran = run_with_etcd(script, dir.path());
    assert_eq!(ran.code, 4, "{}{}", ran.stdout, ran.stderr);
    for word in ["n2", "system", "status 7", "the disk is on fire"] {
        assert!(
            ran.stderr.contains(word),
            "{word} is missing in\n{}",
            ran.stderr
        );
    }
    assert_nothing_left(dir.path());
}

#[test]
fn a_server_that_ends_by_itself_is_told_and_the_run_goes_on() {
    let etcd = std::env::var_os("PATH").and_then(|path| {
        let mut places = std::env::split_paths(&path).map(|place| place.join("etcd"));
        places.find(|place| place.exists())
    });
    let Some(etcd) = etcd else {
        eprintln!("skipped: there is no etcd on this machine");
        return;
    };
    // It ends once clients have been answered.
    let script = format!(
        "etcd={}
        [ \"$2\" = n3 ] || exec $etcd \"$@\"
        $etcd \"$@\" & pid=$!
        until grep -q '\"type\":\"ok\"' ../../history.jsonl 2>/dev/null; do sleep 0.1; done
        kill $pid; wait; exit 9",
        etcd.display()
    );
    let dir = tempfile::tempdir().unwrap();
    let ran = run_with_etcd(&script, dir.path());
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let run_dir = results(dir.path(), "t").join("a");
    let result = result(&run_dir);
    assert_eq!(result["outcome"], "held");
    let notes = result["notes"].to_string();
    assert!(
        notes.contains("etcd on n3 ended by itself: exit status 9"),
        "{notes}"
    );
    let history = std::fs::read_to_string(run_dir.join("history.jsonl")).unwrap();
    let exit = history.lines().find(|line| line.contains("\"f\":\"exit\""));
    let exit: Value = serde_json::from_str(exit.expect("the exit is recorded")).unwrap();
    assert_eq!(exit["node"], "n3");
    assert_eq!(exit["value"]["how"], "exit status 9");
    let report = std::fs::read_to_string(run_dir.join("report.html")).unwrap();
    assert!(
        report.contains("ended by itself"),
        "the report says nothing of it"
    );
}
