//! What this machine can do for the local backend. Nothing is concluded from versions or settings:
//! every capability is tried, in a child process that ends with the attempt. `schism doctor` prints
//! the result.
//!
//! The attempts need a process with one thread, so the program is executed once more as
//! `schism sandbox probe`; the last attempt is a whole cluster.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::net::if_::if_nametoindex;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, geteuid, pause, pipe2, read, write};
use serde::{Deserialize, Serialize};

use crate::agent;
use crate::clock::monotonic_ns;
use crate::cluster::{Cluster, ClusterSpec, create};
use crate::error::Error;
use crate::local::program;
use crate::netlink::{Batch, End};
use crate::sandbox::{self, Step, step};
use crate::switch::{node_mac, open_port, port_mac};

/// One thing that the local backend needs or can use, and whether this machine and user have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// A short name, such as `user-namespaces`.
    pub name: String,
    /// Whether it works here, for this user.
    pub works: bool,
    /// Whether a local cluster can be made without it.
    pub optional: bool,
    /// What was tried to find out.
    pub tried: String,
    /// What was found: what the kernel said, or what it offers.
    pub found: String,
    /// What to change so that it works; empty when it does.
    pub remedy: String,
}

/// The name of the capability that moves what processes read as the time of day.
pub const WALL_CLOCKS: &str = "wall-clocks";

/// How one capability is found out.
struct Attempt {
    name: &'static str,
    optional: bool,
    tried: &'static str,
    remedy: &'static str,
    attempt: fn() -> Step<String>,
}

const NAMESPACES_REMEDY: &str = "as root: sysctl -w user.max_user_namespaces=100000; on Debian also \
    kernel.unprivileged_userns_clone=1, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; \
    in a container: run it with --privileged, or at least --security-opt seccomp=unconfined";

const ATTEMPTS: &[Attempt] = &[
    Attempt {
        name: "user-namespaces",
        optional: true,
        tried: "a child made a user namespace and became root in it",
        remedy: NAMESPACES_REMEDY,
        attempt: || {
            in_child(|| {
                sandbox::enter_user_namespace()?;
                let root = if geteuid().is_root() {
                    "root"
                } else {
                    "not root"
                };
                Ok(format!("{root} inside it"))
            })
        },
    },
    Attempt {
        name: "namespaces",
        optional: false,
        tried: "a child made net, mount, pid and ipc namespaces, the way the sandbox does",
        remedy: NAMESPACES_REMEDY,
        attempt: || {
            let with = |how: &str| Ok(format!("made {how} a user namespace"));
            in_child(|| {
                with(if sandbox::enter_namespaces()? {
                    "in"
                } else {
                    "without"
                })
            })
        },
    },
    Attempt {
        name: "pid-namespaces",
        optional: false,
        tried: "a child was pid 1, mounted its own /proc and saw only itself",
        remedy: "in a container: run it with --privileged, or --security-opt systempaths=unconfined, \
            so that /proc is not covered",
        attempt: || in_sandbox(own_proc),
    },
    Attempt {
        name: "veth",
        optional: false,
        tried: "a virtual Ethernet pair was made in a child's net namespace",
        remedy: "load or build the kernel module veth (CONFIG_VETH)",
        attempt: || in_sandbox(|| make_pair().map(|()| "made".to_owned())),
    },
    Attempt {
        name: "packet-sockets",
        optional: false,
        tried: "a frame with an offload head went from one packet socket to another over a pair",
        remedy: "load or build the kernel module af_packet (CONFIG_PACKET), Linux 4.20 or newer",
        attempt: || in_sandbox(pass_frame),
    },
    Attempt {
        name: "freeze",
        optional: false,
        tried: "a child was sent SIGSTOP and seen in state T",
        remedy: "mount /proc",
        attempt: stop_child,
    },
    Attempt {
        name: WALL_CLOCKS,
        optional: true,
        tried: "the wall clock of a child was moved by a minute and back",
        remedy: "on x86_64, as root: sysctl -w kernel.yama.ptrace_scope=1 (or 0); in a container: \
            --cap-add SYS_PTRACE",
        attempt: || in_sandbox(move_clock),
    },
    Attempt {
        name: "max-namespaces",
        optional: false,
        tried: "the limits in /proc/sys/user were read",
        remedy: "as root: sysctl -w user.max_net_namespaces=1000, and the same for the others",
        attempt: read_limits,
    },
];

/// Tries everything that the local backend needs. `exe` is as in [`ClusterSpec::exe`].
///
/// # Errors
/// When not even the attempts could be made. That something does not work is no error.
pub async fn capabilities(exe: Option<&Path>) -> Result<Vec<Capability>, Error> {
    let exe = program(exe);
    #[expect(
        clippy::disallowed_methods,
        reason = "the attempts need a process of their own"
    )]
    let output = tokio::process::Command::new(&exe)
        .args([sandbox::SUBCOMMAND, PROBE])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(Error::io(format!("execute {}", exe.display())))?;
    let mut found: Vec<Capability> =
        serde_json::from_slice(&output.stdout).map_err(|error| Error::Protocol {
            peer: exe.display().to_string(),
            what: format!("{error}: {}", String::from_utf8_lossy(&output.stderr)),
        })?;
    found.push(whole_cluster(exe).await);
    Ok(found)
}

/// The argument after which the sandbox only tries.
pub(crate) const PROBE: &str = "probe";

/// `schism sandbox probe`: tries everything and prints what was found as JSON.
pub(crate) fn probe() -> ExitCode {
    let found: Vec<Capability> = ATTEMPTS
        .iter()
        .map(|attempt| {
            let result = (attempt.attempt)();
            let works = result.is_ok();
            Capability {
                name: attempt.name.to_owned(),
                works,
                optional: attempt.optional,
                tried: attempt.tried.to_owned(),
                found: result.unwrap_or_else(|what| what),
                remedy: if works {
                    String::new()
                } else {
                    attempt.remedy.to_owned()
                },
            }
        })
        .collect();
    println!(
        "{}",
        serde_json::to_string(&found).expect("capabilities are plain data")
    );
    ExitCode::SUCCESS
}

/// Does something in a forked child that ends with it, and passes on what it says.
fn in_child(work: impl FnOnce() -> Step<String>) -> Step<String> {
    let (said, say) = step("make a pipe", pipe2(OFlag::O_CLOEXEC))?;
    // SAFETY: the probing process has one thread.
    match step("fork", unsafe { fork() })? {
        ForkResult::Child => {
            drop(said);
            let (head, text) = match work() {
                Ok(text) => ("+", text),
                Err(text) => ("-", text),
            };
            let written = fs::File::from(say).write_all(format!("{head}{text}").as_bytes());
            std::process::exit(i32::from(written.is_err()));
        }
        ForkResult::Parent { child } => {
            drop(say);
            let mut text = String::new();
            step(
                "hear from the child",
                fs::File::from(said).read_to_string(&mut text),
            )?;
            step("wait for the child", waitpid(child, None))?;
            match text.split_at_checked(1) {
                Some(("+", text)) => Ok(text.to_owned()),
                Some((_, text)) => Err(text.to_owned()),
                None => Err("the child ended without a word".to_owned()),
            }
        }
    }
}

/// Does something as pid 1 of namespaces like the sandbox's.
fn in_sandbox(work: fn() -> Step<String>) -> Step<String> {
    in_child(|| {
        sandbox::enter_namespaces()?;
        in_child(|| {
            sandbox::separate_mounts()?;
            work()
        })
    })
}

fn own_proc() -> Step<String> {
    let entries = step("read /proc", fs::read_dir("/proc"))?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let pids: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    if pids == ["1"] {
        Ok("pid 1 alone".to_owned())
    } else {
        Err(format!("saw pids {pids:?}"))
    }
}

fn make_pair() -> Step<()> {
    let end = |name, mac, up| End {
        name,
        mac,
        namespace_of: None,
        up,
    };
    // The far end cannot come up before the pair is complete.
    let mut batch = Batch::default();
    batch.veth(
        &end("v1", port_mac(0), true),
        &end("v2", node_mac(0), false),
    );
    step("make a virtual Ethernet pair", batch.run())?;
    let mut batch = Batch::default();
    batch.up(step("find a device", if_nametoindex("v2"))?);
    step("bring a device up", batch.run())
}

fn pass_frame() -> Step<String> {
    make_pair()?;
    let (near, far) = (
        step("open a packet socket", open_port("v1"))?,
        open_port("v2"),
    );
    let far: OwnedFd = step("open a packet socket", far)?;
    // An offload head that asks for nothing, addresses, a type for local experiments, and a body.
    let mut frame = vec![0; 10];
    frame.extend_from_slice(&node_mac(0));
    frame.extend_from_slice(&port_mac(0));
    frame.extend_from_slice(&[0x88, 0xb5]);
    frame.resize(100, 0x5c);
    step("send a frame", write(&near, &frame))?;
    let mut fds = [nix::poll::PollFd::new(
        far.as_fd(),
        nix::poll::PollFlags::POLLIN,
    )];
    for _ in 0..10 {
        step("wait for the frame", nix::poll::poll(&mut fds, 200_u16))?;
        let mut came = [0; 256];
        // The kernel may have said something on the new device first.
        if let Ok(len) = read(&far, &mut came)
            && came[10..len] == frame[10..]
        {
            return Ok("the frame arrived unchanged".to_owned());
        }
    }
    Err("the frame did not arrive".to_owned())
}

/// Forks a child that waits to be killed.
fn victim() -> Step<Pid> {
    // SAFETY: the probing process has one thread.
    match step("fork", unsafe { fork() })? {
        ForkResult::Child => loop {
            pause();
        },
        ForkResult::Parent { child } => Ok(child),
    }
}

fn bury(victim: Pid) -> Step<()> {
    step("kill the child", kill(victim, Signal::SIGKILL))?;
    step("wait for the child", waitpid(victim, None)).map(drop)
}

fn stop_child() -> Step<String> {
    let child = victim()?;
    step("stop the child", kill(child, Signal::SIGSTOP))?;
    let status = waitpid(child, Some(WaitPidFlag::WUNTRACED));
    let stat = fs::read_to_string(format!("/proc/{child}/stat"));
    bury(child)?;
    if !matches!(step("wait for the child", status)?, WaitStatus::Stopped(..)) {
        return Err("the child did not stop".to_owned());
    }
    let stat = step("read its state", stat)?;
    if stat.contains(") T ") {
        Ok("state T; trees are stopped with SIGSTOP".to_owned())
    } else {
        Err(stat)
    }
}

fn move_clock() -> Step<String> {
    let child = victim()?;
    let moved = agent::clock::try_children();
    bury(child)?;
    moved.map_err(|refusal| refusal.message)
}

/// How many namespaces of every kind a cluster of this size needs, with one for the sandbox.
const NODES_WANTED: u64 = 25;

fn read_limits() -> Step<String> {
    let mut least = u64::MAX;
    for kind in ["user", "net", "mnt", "pid", "uts", "ipc"] {
        let path = format!("/proc/sys/user/max_{kind}_namespaces");
        let limit = step(&format!("read {path}"), fs::read_to_string(&path))?;
        least = least.min(step(&format!("read {path}"), limit.trim().parse())?);
    }
    let found = format!("room for {} nodes", least.saturating_sub(1));
    if least > NODES_WANTED {
        Ok(found)
    } else {
        Err(found)
    }
}

/// The proof of all: two nodes, and probes from one to the other.
async fn whole_cluster(exe: PathBuf) -> Capability {
    let result = try_cluster(exe).await;
    Capability {
        name: "local-cluster".to_owned(),
        works: result.is_ok(),
        optional: false,
        tried: "a cluster of two nodes was made, and datagrams went from one to the other"
            .to_owned(),
        found: match &result {
            Ok(found) => found.clone(),
            Err(error) => error.to_string(),
        },
        remedy: match result {
            Ok(_) => String::new(),
            Err(_) => "see the capabilities above that do not work".to_owned(),
        },
    }
}

async fn try_cluster(exe: PathBuf) -> Result<String, Error> {
    let began_ns = monotonic_ns();
    let unique = format!("schism-doctor-{}-{began_ns}", std::process::id());
    let dir = std::env::temp_dir().join(unique);
    let spec = ClusterSpec {
        nodes: vec!["n1".to_owned(), "n2".to_owned()],
        seed: 0,
        dir: dir.clone(),
        exe: Some(exe),
    };
    let result = match create(&spec).await {
        Ok(cluster) => {
            let arrived = pass_probes(&cluster).await;
            cluster.destroy().await.and(arrived)
        }
        Err(error) => Err(error),
    };
    // What the sandbox wrote there is in the error already.
    let _ = fs::remove_dir_all(&dir);
    result.map(|()| {
        let took_ms = (monotonic_ns() - began_ns) / 1_000_000;
        format!("all arrived; made, tried and destroyed in {took_ms} ms")
    })
}

const PROBES: u32 = 10;

async fn pass_probes(cluster: &Cluster) -> Result<(), Error> {
    let (n1, n2) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    n1.send_probe(n2.addr(), 0, PROBES).await?;
    let mut arrived = 0;
    for _ in 0..200 {
        arrived = n2.probe_count(0).await?;
        if arrived == u64::from(PROBES) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(Error::Sandbox {
        stage: "datagrams were sent through it".to_owned(),
        cause: format!("{arrived} of {PROBES} arrived within a second"),
    })
}
