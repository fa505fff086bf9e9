//! How clusters come and go, and above all that they go: whatever happens to the controller.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster::{Error, LinkPolicy, NodeEventKind};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::{Lab, program, shell, soon, spec, until};

/// How often the controller is killed.
const KILLS: u64 = 100;

/// Everything in which a living process can be recognised as belonging to one cluster: the cluster's
/// directory is in the arguments of the sandbox and its agents, in the working directory of services,
/// and in everybody's environment and mounts.
fn mentions(pid: &str, marker: &str) -> bool {
    let has = |bytes: Vec<u8>| {
        bytes
            .windows(marker.len())
            .any(|part| part == marker.as_bytes())
    };
    let file = |name: &str| fs::read(format!("/proc/{pid}/{name}")).is_ok_and(has);
    let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
    file("cmdline")
        || file("environ")
        || file("mountinfo")
        || cwd.is_ok_and(|cwd| cwd.to_string_lossy().contains(marker))
}

fn all_processes() -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("/proc");
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect()
}

/// The living processes that belong to a cluster, this one excluded.
fn marked(marker: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    all_processes()
        .into_iter()
        .filter(|pid| *pid != own && mentions(pid, marker))
        .collect()
}

/// The namespaces of a process, as `net:[4026531840]`.
fn namespaces(pid: &str) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/ns")) else {
        return BTreeSet::new();
    };
    let links = entries
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .map(|link| link.to_string_lossy().into_owned())
        .collect()
}

/// What a machine-wide look finds of a cluster.
#[derive(Debug, PartialEq, Eq)]
struct Remains {
    processes: Vec<String>,
    namespaces: Vec<String>,
    interfaces: Vec<String>,
    mounts: Vec<String>,
}

const NOTHING: Remains = Remains {
    processes: Vec::new(),
    namespaces: Vec::new(),
    interfaces: Vec::new(),
    mounts: Vec::new(),
};

/// Buries the orphans of killed controllers in place of the machine's init, which may take its time.
fn bury_orphans() {
    prctl::set_child_subreaper(true).expect("a subreaper");
    while let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) =
        waitpid(None, Some(WaitPidFlag::WNOHANG))
    {}
}

/// A process by its number and the time of its start, which nobody has again.
fn identity(pid: &str) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The start time is the 22nd field; the second one, in brackets, may hold spaces.
    let start = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?;
    Some((pid.to_owned(), start.to_owned()))
}

fn living() -> BTreeSet<(String, String)> {
    all_processes()
        .iter()
        .filter_map(|pid| identity(pid))
        .collect()
}

/// Looks for what is left. `seen` are the namespaces that the cluster was seen to have, `there` the
/// processes that there were then: the kernel gives the number of a namespace that is gone to the next
/// one, which may be that of another cluster. `before` are the interfaces that were there before it.
fn remains(
    marker: &str,
    seen: &BTreeSet<String>,
    there: &BTreeSet<(String, String)>,
    before: &BTreeSet<String>,
) -> Remains {
    bury_orphans();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let held = all_processes()
        .iter()
        .filter(|pid| identity(pid).is_some_and(|process| there.contains(&process)))
        .flat_map(|pid| namespaces(pid))
        .collect::<BTreeSet<_>>();
    Remains {
        processes: marked(marker),
        namespaces: seen.intersection(&held).cloned().collect(),
        interfaces: interfaces().difference(before).cloned().collect(),
        mounts: mounts
            .lines()
            .filter(|line| line.contains(marker))
            .map(str::to_owned)
            .collect(),
    }
}

fn interfaces() -> BTreeSet<String> {
    let devices = fs::read_to_string("/proc/self/net/dev").expect("interfaces");
    devices
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect()
}

fn marker(dir: &Path) -> String {
    dir.file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned()
}

fn foreign_namespaces(pids: &[String]) -> BTreeSet<String> {
    let own = namespaces("self");
    pids.iter()
        .flat_map(|pid| namespaces(pid))
        .filter(|link| !own.contains(link))
        .collect()
}

pub(crate) async fn nodes_are_separate() {
    let lab = Lab::new(2).await;
    let n2 = lab.node("n2");
    let look = "hostname; echo $$; ls -d /proc/[0-9]* | wc -l; cat /proc/net/dev | grep -c :; \
                grep -c n1 /etc/hosts; cat /proc/sys/net/ipv6/conf/eth0/disable_ipv6";
    n2.start(&shell("look", look)).await.expect("started");
    until("the last line", || async {
        n2.tail("look.log", 9)
            .await
            .is_ok_and(|said| said.lines().count() == 6)
    })
    .await;
    let said = n2.tail("look.log", 9).await.expect("a log");
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said[0], "n2");
    assert!(
        said[1].parse::<u32>().expect("a pid") < 20,
        "its own process ids: {said:?}"
    );
    assert!(
        said[2].parse::<u32>().expect("a number") < 8,
        "its own processes only: {said:?}"
    );
    assert_eq!(
        said[3..],
        ["2", "1", "1"],
        "loopback and eth0, hosts, no IPv6 of its own accord"
    );

    let marked = marked(&marker(lab.dir.path()));
    let net = |pid: &String| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let nets: BTreeSet<Option<PathBuf>> = marked.iter().map(net).collect();
    assert!(nets.len() >= 3, "the sandbox and two nodes: {nets:?}");
    lab.end().await;
}

pub(crate) async fn nothing_is_left_after_destroy_or_drop() {
    for dropped in [false, true] {
        let before = interfaces();
        let lab = Lab::new(3).await;
        let marker = marker(lab.dir.path());
        lab.node("n1")
            .start(&shell("forever", "sleep 1000"))
            .await
            .expect("started");
        lab.node("n2")
            .start(&shell("ice", "sleep 1000"))
            .await
            .expect("started");
        lab.node("n2").freeze("ice").await.expect("frozen");
        let pids = marked(&marker);
        let seen = foreign_namespaces(&pids);
        // Two sandbox processes, three agents, two shims with a shell or more below each.
        assert!(pids.len() >= 9, "{pids:?}");
        assert!(seen.len() >= 4 + 3 * 5 - 1, "{seen:?}");
        let there = living();
        if dropped {
            drop(lab);
            until("the end", || async {
                remains(&marker, &seen, &there, &before) == NOTHING
            })
            .await;
        } else {
            let Lab { cluster, dir } = lab;
            cluster.destroy().await.expect("a clean end");
            assert_eq!(remains(&marker, &seen, &there, &before), NOTHING);
            assert!(dir.path().join("n1/forever.log").exists(), "files stay");
        }
    }
}

pub(crate) async fn an_agent_that_dies_is_reported() {
    let lab = Lab::new(2).await;
    let mut events = lab.cluster.events();
    // Nothing inside the node can kill its pid 1, so it is done from outside.
    let marker = marker(lab.dir.path());
    let agent = marked(&marker).into_iter().find(|pid| {
        let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        args.starts_with(b"schism\0agent\0n2\0")
    });
    let agent = agent.expect("an agent").parse().expect("a pid");
    kill(Pid::from_raw(agent), Signal::SIGKILL).expect("killed");
    let event = soon("an event", events.next()).await.expect("an event");
    assert_eq!(event.node, "n2");
    assert!(
        matches!(event.kind, NodeEventKind::AgentLost { .. }),
        "{event:?}"
    );
    let refused = lab.node("n2").list_files().await;
    assert!(
        matches!(refused, Err(Error::Closed(ref node)) if node == "n2"),
        "{refused:?}"
    );
    lab.node("n1")
        .list_files()
        .await
        .expect("the other node lives");
    lab.end().await;
}

pub(crate) async fn a_program_that_is_no_sandbox_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut spec = spec(2, dir.path());
    spec.exe = Some("/no/such/program".into());
    let missing = cluster::create(&spec).await.expect_err("an error");
    assert!(matches!(missing, Error::Io { .. }), "{missing}");
    spec.exe = Some("/bin/true".into());
    let wrong = cluster::create(&spec).await.expect_err("an error");
    assert!(matches!(wrong, Error::Sandbox { .. }), "{wrong}");
}

pub(crate) async fn capabilities_are_really_tried() {
    let found = cluster::capabilities(None).await.expect("attempts");
    let names: Vec<&str> = found.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names.first(), Some(&"user-namespaces"));
    assert_eq!(names.last(), Some(&"local-cluster"));
    for capability in &found {
        // These tests run clusters, so whatever a cluster needs must be found to work.
        assert!(capability.works || capability.optional, "{capability:#?}");
        assert_eq!(
            capability.works,
            capability.remedy.is_empty(),
            "{capability:#?}"
        );
        if cfg!(target_arch = "x86_64") && capability.name == cluster::WALL_CLOCKS {
            assert!(capability.works, "{capability:#?}");
        }
        println!(
            "{}: {} ({})",
            capability.name, capability.found, capability.tried
        );
    }
}

/// What [`controller`] prints when its cluster is up, and not before.
const UP: &str = "up";

/// Becomes a controller that makes a cluster and keeps it busy until it is killed, when the arguments
/// say so.
pub(crate) fn controller() -> bool {
    let args: Vec<String> = std::env::args().collect();
    let [_, name, dir] = &args[..] else {
        return false;
    };
    if name != "controller" {
        return false;
    }
    crate::support::run(async {
        let cluster = cluster::create(&spec(3, Path::new(dir)))
            .await
            .expect("a cluster");
        let (n1, n2) = (&cluster.nodes()[0], &cluster.nodes()[1]);
        let _client = n2
            .spawn(&shell("client", "exec cat"))
            .await
            .expect("spawned");
        println!("{UP}");
        loop {
            n1.start(&shell("service", "sleep 1000 & sleep 1000"))
                .await
                .expect("started");
            n1.skew("service", 60_000_000_000).await.expect("moved");
            n1.freeze("service").await.expect("frozen");
            let mut matrix = cluster.network().clear_matrix();
            matrix.set("n1", "n2", LinkPolicy::CUT).expect("a link");
            cluster.network().apply(&matrix).await.expect("applied");
            n1.kill("service", libc::SIGKILL).await.expect("killed");
        }
    });
    true
}

fn start_controller(dir: &Path) -> std::process::Child {
    let argv = program(&["controller", &dir.display().to_string()]).argv;
    let output = fs::File::create(dir.join("controller.out")).expect("a file");
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's own child, not a node's process"
    )]
    std::process::Command::new(&argv[0])
        .args(&argv[1..])
        .env("SCHISM_TEST_MARKER", dir)
        .stdout(output)
        .process_group(0)
        .spawn()
        .expect("a controller")
}

/// How long it takes from the start of a controller until its cluster is up, here and now.
async fn time_until_up() -> Duration {
    let dir = tempfile::tempdir().expect("a directory");
    let began_ns = cluster::clock::monotonic_ns();
    let mut controller = start_controller(dir.path());
    until("the cluster", || async { is_up(dir.path()) }).await;
    let took = Duration::from_nanos(cluster::clock::monotonic_ns() - began_ns);
    controller.kill().expect("killed");
    controller.wait().expect("its end");
    took
}

fn is_up(dir: &Path) -> bool {
    fs::read_to_string(dir.join("controller.out")).is_ok_and(|said| said.contains(UP))
}

pub(crate) async fn interrupts_do_not_reach_the_sandbox() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut controller = start_controller(dir.path());
    until("the cluster", || async { is_up(dir.path()) }).await;
    let group = Pid::from_raw(controller.id() as i32);
    let inside: Vec<String> = marked(&marker(dir.path()))
        .into_iter()
        .filter(|pid| *pid != controller.id().to_string())
        .collect();
    assert!(inside.len() >= 5, "{inside:?}");
    for pid in &inside {
        let pid = Pid::from_raw(pid.parse().expect("a pid"));
        // One that ended meanwhile is in no group.
        assert_ne!(nix::unistd::getpgid(Some(pid)).ok(), Some(group));
    }
    killpg(group, Signal::SIGKILL).expect("killed");
    controller.wait().expect("its end");
    until("the end", || async {
        marked(&marker(dir.path())).is_empty()
    })
    .await;
}

pub(crate) async fn nothing_is_left_after_sigkill() {
    let mut random = ChaCha8Rng::seed_from_u64(20);
    bury_orphans();
    let before = interfaces();
    // The first one also reads the program from the disk.
    time_until_up().await;
    let until_up = time_until_up().await;
    let (mut up, mut early, mut slowest) = (0, 0, Duration::ZERO);
    for number in 0..KILLS {
        let dir = tempfile::tempdir().expect("a directory");
        let marker = marker(dir.path());
        let mut controller = start_controller(dir.path());
        // Squared, so that early moments, when little is tied together yet, are tried more often.
        let fraction: f64 = random.random();
        // The last ones come when a whole cluster is up and busy.
        tokio::time::sleep(until_up.mul_f64(2.0 * fraction * fraction)).await;
        // To look takes about as long as to make a cluster: it is done for every other kill only.
        let looks = number % 2 == 0;
        let seen = if looks {
            foreign_namespaces(&marked(&marker))
        } else {
            Default::default()
        };
        let there = living();
        controller.kill().expect("killed");
        controller.wait().expect("its end");
        let killed_ns = cluster::clock::monotonic_ns();
        // A process that is on its last way out has no arguments left, but still its namespaces.
        until("the end", || async {
            remains(&marker, &seen, &there, &before) == NOTHING
        })
        .await;
        let took = Duration::from_nanos(cluster::clock::monotonic_ns() - killed_ns);
        slowest = slowest.max(took);
        up += u32::from(is_up(dir.path()));
        early += u32::from(looks && seen.is_empty());
    }
    println!(
        "{KILLS} kills within {:?}, {up} after the cluster was up",
        2 * until_up
    );
    println!("{early} of every other one before any namespace");
    println!("everything was gone after {slowest:?} at most");
    assert!(
        up >= 5 && u64::from(up) <= KILLS - 5,
        "the moments are not spread: {up} were up"
    );
    assert!(
        u64::from(early) < KILLS / 2 - 5,
        "the moments are not spread: {early} were early"
    );
}
