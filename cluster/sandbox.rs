//! The sandbox: disposable namespaces that hold a whole cluster of the local backend. This is what
//! `schism sandbox` runs; it is started by `local.rs` and never by a person.
//!
//! ```text
//! outer process      makes the namespaces, then only waits
//!   `- pid 1         supervises the nodes and is the switch; its death is the death of all below
//!        |- agent    pid 1 of node n1's own pid namespace
//!        `- ...
//! ```
//!
//! Nothing here outlives pid 1: the kernel kills every process of its pid namespace, and with the last
//! process go the mounts, interfaces and namespaces. Pid 1 ends when the controller closes the control
//! channel, when the kernel says that the outer process is gone, or when it fails. There is no
//! runtime and no second thread in this file, so that forking is safe everywhere.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use bytes::{Bytes, BytesMut};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::mount::{MsFlags, mount};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, execv, fork, getegid, geteuid, getppid, pipe2};

use crate::capabilities;
use crate::error::{Refusal, RefusalKind};
use crate::frame::Frame;
use crate::local::{direct_addr, node_addr};
use crate::netlink::{Batch, End};
use crate::protocol::{
    FromPeer, SandboxEvent, SandboxReply, SandboxRequest, Setup, SetupNode, ToPeer,
};
use crate::switch::{Switch, direct_mac, node_mac, port_mac};

/// The hidden subcommand by which a program becomes a sandbox.
pub const SUBCOMMAND: &str = "sandbox";

/// A failed step: what was being done, and what the kernel said.
pub(crate) type Step<T> = Result<T, String>;

pub(crate) fn step<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Step<T> {
    result.map_err(|error| format!("cannot {what}: {error}"))
}

/// Asks the kernel to kill this process when the thread that forked it ends.
pub(crate) fn die_with_parent() -> io::Result<()> {
    Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)
}

/// Runs the sandbox: `schism sandbox CONTROL_FD CONTROLLER_PID DIR`. Returns when it has ended.
#[must_use]
pub fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(2).collect();
    if args == [capabilities::PROBE] {
        return capabilities::probe();
    }
    let [control, controller, _dir] = &args[..] else {
        eprintln!("schism sandbox is started by schism itself");
        return ExitCode::from(2);
    };
    let (Ok(control), Ok(controller)) = (control.parse(), controller.parse()) else {
        eprintln!("schism sandbox: not a descriptor and a process: {control} {controller}");
        return ExitCode::from(2);
    };
    match outer(control, controller) {
        Ok(code) => ExitCode::from(code),
        Err(what) => {
            eprintln!("sandbox: {what}");
            // The controller would otherwise only see the channel close.
            let refusal = Refusal::new(RefusalKind::Io, what);
            if let Ok(control) = adopt(control) {
                let _ = send(&control, &FromPeer::answer::<()>(0, Err(refusal)));
            }
            ExitCode::FAILURE
        }
    }
}

/// Takes over an inherited descriptor and keeps it from being inherited further.
fn adopt(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor was passed to this process for this purpose, and nothing else uses it.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    fcntl(&owned, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(owned)
}

/// Says whether what is executed next gets a channel.
fn inherit(channel: i32, flag: FdFlag) -> io::Result<()> {
    // SAFETY: the controller passed this descriptor, and it is open until the node has it.
    let channel = unsafe { BorrowedFd::borrow_raw(channel) };
    fcntl(channel, FcntlArg::F_SETFD(flag))?;
    Ok(())
}

/// Makes the namespaces, forks pid 1 and waits for it.
fn outer(control: i32, controller: i32) -> Step<u8> {
    step("tie the sandbox to the controller", die_with_parent())?;
    if getppid() != Pid::from_raw(controller) {
        return Err("the controller ended while the sandbox was started".to_owned());
    }
    enter_namespaces()?;
    // Changing credentials has cleared it.
    step("tie the sandbox to the controller", die_with_parent())?;
    if getppid() != Pid::from_raw(controller) {
        return Err("the controller ended while the sandbox was started".to_owned());
    }
    // SAFETY: this process has one thread.
    match step("fork pid 1", unsafe { fork() })? {
        ForkResult::Child => match init(control) {
            Ok(()) => std::process::exit(0),
            Err(what) => {
                eprintln!("sandbox: {what}");
                std::process::exit(1);
            }
        },
        ForkResult::Parent { child } => {
            close_inherited();
            loop {
                match waitpid(child, None) {
                    Ok(WaitStatus::Exited(_, code)) => return Ok(code as u8),
                    Ok(WaitStatus::Signaled(..)) => return Ok(1),
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(error) => return Err(format!("cannot wait for pid 1: {error}")),
                }
            }
        }
    }
}

/// Closes everything but standard input, output and error: only pid 1 may hold the channels.
fn close_inherited() {
    // SAFETY: the descriptors above 2 are not used in this process from here on.
    unsafe { libc::close_range(3, u32::MAX, 0) };
}

/// Leaves the machine's namespaces. An ordinary user first becomes root of a user namespace; says
/// whether that was so.
pub(crate) fn enter_namespaces() -> Step<bool> {
    let flags = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC;
    if geteuid().is_root() {
        match unshare(flags) {
            // Root without the capability, as in a container: it may still be let into its own.
            Err(Errno::EPERM) => {}
            result => return step("make namespaces", result).map(|()| false),
        }
    }
    enter_user_namespace()?;
    step("make namespaces", unshare(flags))?;
    Ok(true)
}

/// Becomes root of a user namespace in which nobody else exists.
pub(crate) fn enter_user_namespace() -> Step<()> {
    let (uid, gid) = (geteuid(), getegid());
    step("make a user namespace", unshare(CloneFlags::CLONE_NEWUSER))?;
    step("deny setgroups", fs::write("/proc/self/setgroups", "deny"))?;
    step(
        "map the user",
        fs::write("/proc/self/uid_map", format!("0 {uid} 1\n")),
    )?;
    step(
        "map the group",
        fs::write("/proc/self/gid_map", format!("0 {gid} 1\n")),
    )
}

/// Pid 1: sets everything up as told, then supervises and switches until told to end.
fn init(control: i32) -> Step<()> {
    step("tie pid 1 to the sandbox", die_with_parent())?;
    let control = step("take over the control channel", adopt(control))?;
    let mut input = BytesMut::new();
    let Some((id, SandboxRequest::Setup(setup))) = next_request(&control, &mut input, true)? else {
        return Ok(());
    };
    // A node must not hold another node's channel: it would hide that node's death.
    for node in &setup.nodes {
        step(
            "keep a channel from being inherited",
            inherit(node.channel, FdFlag::FD_CLOEXEC),
        )?;
    }
    let made = prepare(&setup).and_then(|()| make_nodes(&setup));
    let (switch, pids) = match made {
        Ok(made) => made,
        Err(what) => {
            let refusal = Refusal::new(RefusalKind::Io, what.clone());
            let _ = send(&control, &FromPeer::answer::<()>(id, Err(refusal)));
            return Err(what);
        }
    };
    let ready = SandboxReply::Ready {
        pids: pids.iter().map(|pid| pid.as_raw()).collect(),
    };
    step("answer", send(&control, &FromPeer::answer(id, Ok(ready))))?;
    hurry();
    supervise(&control, input, switch, &pids)
}

/// How long the switch asks to run at a time: it forwards a few frames and waits again.
const SLICE_NS: u64 = 100_000;

/// Asks the scheduler to let the switch run soon after it wakes, since the nodes that it serves compete
/// with it for processors. Root may also ask to come first. The nodes are not affected: they exist
/// already. Where the kernel grants nothing, the network is a little less even under load.
fn hurry() {
    // SAFETY: `sched_attr` is plain data, for which zero is a valid value: the ordinary policy.
    let mut wish: libc::sched_attr = unsafe { std::mem::zeroed() };
    wish.size = std::mem::size_of_val(&wish) as u32;
    wish.sched_runtime = SLICE_NS;
    for nice in [-10, 0] {
        wish.sched_nice = nice;
        // SAFETY: the attributes outlive the call; 0 is this thread, and there are no flags.
        let granted = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wish, 0) };
        if granted == 0 {
            return;
        }
    }
}

/// Makes this process's view of mounts and processes its own.
pub(crate) fn separate_mounts() -> Step<()> {
    // Slave rather than private: what the machine unmounts disappears here too, and nothing that is
    // mounted here is seen outside.
    let none: Option<&str> = None;
    let slave = MsFlags::MS_SLAVE | MsFlags::MS_REC;
    step("separate the mounts", mount(none, "/", none, slave, none))?;
    mount_proc()
}

/// What all nodes share: their own view of mounts and processes, and each other's names.
fn prepare(setup: &Setup) -> Step<()> {
    separate_mounts()?;
    // Frames are for the nodes: the kernel itself must not talk on the sandbox's ends.
    quiet_ipv6("default")?;
    let dir = setup
        .nodes
        .first()
        .and_then(|node| Path::new(&node.dir).parent());
    if let Some(dir) = dir
        && Path::new("/etc/hosts").exists()
    {
        let mut hosts = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
        for (index, node) in setup.nodes.iter().enumerate() {
            hosts.push_str(&format!("{} {}\n", node_addr(index), node.name));
        }
        let file = dir.join("hosts");
        step("write the nodes' hosts file", fs::write(&file, hosts))?;
        let (none, bind): (Option<&str>, _) = (None, MsFlags::MS_BIND);
        step(
            "bind the hosts file",
            mount(Some(&file), "/etc/hosts", none, bind, none),
        )?;
    }
    let mut batch = Batch::default();
    batch.up(1);
    step("bring loopback up", batch.run())
}

fn mount_proc() -> Step<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let none: Option<&str> = None;
    step(
        "mount /proc",
        mount(Some("proc"), "/proc", Some("proc"), flags, none),
    )
}

/// Keeps a device from speaking IPv6 on its own (router solicitations, duplicate detection).
fn quiet_ipv6(device: &str) -> Step<()> {
    match fs::write(
        format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"),
        "1",
    ) {
        // A kernel without IPv6 is quiet already.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => step("silence IPv6", result),
    }
}

/// A node under construction: its first process waits until its device is there.
struct Unborn {
    pid: Pid,
    release: OwnedFd,
    failure: OwnedFd,
}

/// Makes all nodes and the switch between them. Returns when every agent was executed.
fn make_nodes(setup: &Setup) -> Step<(Switch, Vec<Pid>)> {
    let n = setup.nodes.len();
    let child_signal = SigSet::from(Signal::SIGCHLD);
    step("block SIGCHLD", child_signal.thread_block())?;
    let mut unborn = Vec::with_capacity(n);
    for index in 0..n {
        unborn.push(conceive(setup, index)?);
    }
    let devices: Vec<String> = (1..=n).map(|port| format!("v{port}")).collect();
    let mut batch = Batch::default();
    for (index, (node, device)) in unborn.iter().zip(&devices).enumerate() {
        let near = End {
            name: device,
            mac: port_mac(index),
            namespace_of: None,
            up: true,
        };
        let pid = Some(node.pid.as_raw());
        let far = End {
            name: "eth0",
            mac: node_mac(index),
            namespace_of: pid,
            up: false,
        };
        batch.veth(&near, &far);
    }
    if setup.direct_pair && n >= 2 {
        let end = |index: usize| End {
            name: "direct",
            mac: direct_mac(index),
            namespace_of: Some(unborn[index].pid.as_raw()),
            up: false,
        };
        batch.veth(&end(0), &end(1));
    }
    step("make the nodes' devices", batch.run())?;
    let names = setup.nodes.iter().map(|node| node.name.clone()).collect();
    let switch = step(
        "open the switch's ports",
        Switch::new(names, setup.seed, &devices),
    )?;
    for node in &unborn {
        step("release a node", nix::unistd::write(&node.release, b"!"))?;
    }
    for (node, setup) in unborn.iter_mut().zip(&setup.nodes) {
        // End of file means that the agent was executed: the pipe is closed on execution.
        let mut what = String::new();
        let failure = step("hear of a node", node.failure.try_clone())?;
        step(
            "hear of a node",
            fs::File::from(failure).read_to_string(&mut what),
        )?;
        if !what.is_empty() {
            return Err(format!("node {}: {what}", setup.name));
        }
        // The agent has its own copy now; ours would hide its death from the controller.
        drop(step("release a channel", adopt(setup.channel))?);
    }
    Ok((switch, unborn.into_iter().map(|node| node.pid).collect()))
}

/// Forks a node's first process into its own namespaces.
fn conceive(setup: &Setup, index: usize) -> Step<Unborn> {
    let (released, release) = step("make a pipe", pipe2(OFlag::O_CLOEXEC))?;
    let (failure, failed) = step("make a pipe", pipe2(OFlag::O_CLOEXEC))?;
    let flags = libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC;
    if let Some(pid) = step("make a node's namespaces", fork_into(flags as u64))? {
        return Ok(Unborn {
            pid,
            release,
            failure,
        });
    }
    drop((release, failure));
    let Err(what) = become_node(setup, index, released);
    let _ = fs::File::from(failed).write_all(what.as_bytes());
    std::process::exit(1);
}

/// `fork` into new namespaces; `None` in the child.
fn fork_into(flags: u64) -> io::Result<Option<Pid>> {
    // SAFETY: `clone_args` is plain data, for which zero is a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.exit_signal = libc::SIGCHLD as u64;
    let len = std::mem::size_of_val(&args);
    // SAFETY: the arguments outlive the call. Without CLONE_VM the child is a copy, as after fork,
    // and this process has one thread, so that no lock is held in the copy.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, len) };
    let pid = Errno::result(pid)?;
    Ok((pid != 0).then(|| Pid::from_raw(pid as i32)))
}

/// The rest of a node's first process: it becomes the agent.
fn become_node(setup: &Setup, index: usize, released: OwnedFd) -> Step<std::convert::Infallible> {
    let SetupNode { name, dir, channel } = &setup.nodes[index];
    step("tie the node to the sandbox", die_with_parent())?;
    step("set the host name", nix::unistd::sethostname(name))?;
    mount_proc()?;
    let mut go = [0_u8];
    let ready = step("wait for the device", nix::unistd::read(&released, &mut go))?;
    if ready == 0 {
        return Err("the sandbox gave up".to_owned());
    }
    quiet_ipv6("eth0")?;
    let device = step("find eth0", if_nametoindex("eth0"))?;
    let mut batch = Batch::default();
    batch.up(1);
    batch.address(device, node_addr(index), 24);
    batch.up(device);
    for peer in (0..setup.nodes.len()).filter(|&peer| peer != index) {
        batch.neighbour(device, node_addr(peer), node_mac(peer));
    }
    if setup.direct_pair && index < 2 {
        let direct = step("find the direct device", if_nametoindex("direct"))?;
        batch.address(direct, direct_addr(index), 24);
        batch.up(direct);
        batch.neighbour(direct, direct_addr(1 - index), direct_mac(1 - index));
    }
    step("set up the device", batch.run())?;

    step("pass the channel", inherit(*channel, FdFlag::empty()))?;
    step("enter the node's directory", std::env::set_current_dir(dir))?;
    step("unblock signals", SigSet::empty().thread_set_mask())?;
    let index = index.to_string();
    let channel = channel.to_string();
    let argv = [
        "schism",
        crate::agent::SUBCOMMAND,
        name,
        &index,
        &channel,
        dir,
    ];
    let argv: Vec<CString> = step(
        "name the agent",
        argv.iter()
            .map(|&arg| CString::new(arg))
            .collect::<Result<_, _>>(),
    )?;
    step("execute the agent", execv(c"/proc/self/exe", &argv))
}

/// Waits for whatever happens: frames, due frames, requests, deaths.
fn supervise(control: &OwnedFd, mut input: BytesMut, mut switch: Switch, pids: &[Pid]) -> Step<()> {
    let n = pids.len() as u64;
    let (timer_key, control_key, child_key) = (n, n + 1, n + 2);
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let children = step(
        "watch for deaths",
        SignalFd::with_flags(&SigSet::from(Signal::SIGCHLD), flags),
    )?;
    let epoll = step("make an epoll", Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC))?;
    let watch = |fd: BorrowedFd<'_>, key: u64| {
        step(
            "watch a descriptor",
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, key)),
        )
    };
    for port in 0..pids.len() {
        watch(switch.port(port), port as u64)?;
    }
    watch(switch.timer(), timer_key)?;
    watch(control.as_fd(), control_key)?;
    watch(children.as_fd(), child_key)?;
    let mut events = [EpollEvent::empty(); 64];
    loop {
        let ready = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Ok(ready) => ready,
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(format!("cannot wait: {error}")),
        };
        let keys = || events[..ready].iter().map(EpollEvent::data);
        // Requests first: a new matrix must not wait behind the frames it is to judge.
        if keys().any(|key| key == control_key) {
            while let Some((id, request)) = next_request(control, &mut input, false)? {
                let answer = answer(&mut switch, id, request);
                step("answer", send(control, &answer))?;
            }
        }
        for key in keys() {
            if key < n {
                switch.receive(key as usize);
            } else if key == timer_key {
                switch.release();
            } else if key == child_key {
                let _ = children.read_signal();
                reap(control, pids)?;
            }
        }
    }
}

fn answer(switch: &mut Switch, id: u64, request: SandboxRequest) -> Vec<u8> {
    match request {
        SandboxRequest::Apply { links } => {
            let (at_ns, generation) = switch.apply(&links);
            FromPeer::answer(id, Ok(SandboxReply::Applied { at_ns, generation }))
        }
        SandboxRequest::Counters => {
            FromPeer::answer(id, Ok(SandboxReply::Counters(switch.counters().clone())))
        }
        SandboxRequest::Setup(_) => {
            let refusal = Refusal::new(RefusalKind::BadRequest, "it is set up already");
            FromPeer::answer::<()>(id, Err(refusal))
        }
    }
}

/// Collects dead children. Orphans of nodes never come here: each node has its own pid 1.
fn reap(control: &OwnedFd, pids: &[Pid]) -> Step<()> {
    loop {
        let (pid, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, status)) => (pid, status),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, 128 + signal as i32),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(error) => return Err(format!("cannot wait for an agent: {error}")),
        };
        if let Some(node) = pids.iter().position(|&agent| agent == pid) {
            eprintln!("sandbox: the agent of node {node} ended with {status}");
            let event = FromPeer::event(&SandboxEvent::AgentExit { node, status });
            step("report a death", send(control, &event))?;
        }
    }
}

/// The next request on the control channel. Without waiting, `None` means that there is none yet;
/// when the channel is closed this process ends, and everything with it.
fn next_request(
    control: &OwnedFd,
    input: &mut BytesMut,
    wait: bool,
) -> Step<Option<(u64, SandboxRequest)>> {
    let flags = if wait {
        MsgFlags::empty()
    } else {
        MsgFlags::MSG_DONTWAIT
    };
    let mut buffer = vec![0_u8; 64 << 10];
    loop {
        if let Some(frame) = Frame::decode(input)? {
            let Frame::Message { json, .. } = frame else {
                return Err("stream data on the control channel".to_owned());
            };
            let message: ToPeer<SandboxRequest> =
                step("read a request", serde_json::from_slice(&json))?;
            return Ok(Some((message.id, message.call)));
        }
        match recv(control.as_raw_fd(), &mut buffer, flags) {
            Ok(0) | Err(Errno::ECONNRESET) => std::process::exit(0),
            Ok(len) => input.extend_from_slice(&buffer[..len]),
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(format!("cannot read the control channel: {error}")),
        }
    }
}

fn send(control: &OwnedFd, json: &[u8]) -> io::Result<()> {
    let mut bytes = BytesMut::new();
    Frame::Message {
        json: Bytes::copy_from_slice(json),
        blob: Bytes::new(),
    }
    .encode(&mut bytes);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        match nix::sys::socket::send(control.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
            Ok(len) => rest = &rest[len..],
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
