//! The switch: it reads the frames that nodes send, judges each by the policy of its directed link,
//! and hands it to the node it is for, at once or later. It runs in the sandbox's pid 1, in one thread
//! with everything else there, so that a new matrix takes effect between two frames.
//!
//! Frames come from packet sockets on the sandbox's ends of the nodes' virtual Ethernet pairs. Each is
//! preceded by a `virtio_net_hdr`, which keeps segmentation and checksums offloaded: a TCP stream
//! passes in pieces of up to 64 KiB, and no checksum is ever computed or broken.
//!
//! Decisions: a frame is judged when the switch reads it, by the matrix of that moment. Nodes know each other's addresses for good, so only unicast is forwarded. Loss is drawn
//! on arrival, from a generator of the link's own: the same seed loses the same frames of a link,
//! whatever passes on others. Delayed frames keep their order within a link. A frame that is under way
//! when its link is cut is dropped when it is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::{read, write};
use rand::RngCore;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::clock::monotonic_ns;
use crate::netlink::Mac;
use crate::network::LinkCounters;
use crate::policy::LinkPolicy;

/// `struct virtio_net_hdr` without the fields of mergeable buffers.
const VNET_HEAD_BYTES: usize = 10;
const ETHERNET_HEAD_BYTES: usize = 14;
/// The largest segment train the kernel hands over, with room to spare.
const FRAME_BYTES_MAX: usize = 128 << 10;
/// How many frames of one node are forwarded before others, and new matrices, get their turn.
const FRAMES_AT_ONCE: usize = 32;

/// The Ethernet address of a node's `eth0`.
pub(crate) fn node_mac(index: usize) -> Mac {
    [0x02, 0x5c, 0x68, 0x00, 0x00, index as u8 + 1]
}

/// The Ethernet address of the sandbox's end of a node's pair.
pub(crate) fn port_mac(index: usize) -> Mac {
    [0x02, 0x5c, 0x68, 0x01, 0x00, index as u8 + 1]
}

/// The Ethernet address at an end of the direct pair.
pub(crate) fn direct_mac(index: usize) -> Mac {
    [0x02, 0x5c, 0x68, 0x02, 0x00, index as u8 + 1]
}

/// A generator for one named purpose. Streams of one seed are independent of each other, and the same
/// on every machine.
pub(crate) fn stream(seed: u64, name: &str) -> ChaCha8Rng {
    // FNV-1a, because it is stable across compilers and versions.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(hash);
    generator
}

/// Uniform in `0..1`, with 53 bits.
fn fraction(generator: &mut ChaCha8Rng) -> f64 {
    (generator.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A frame under way. It is ordered by when it is due, then by when it came.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    due_ns: u64,
    sequence: u64,
    from: usize,
    to: usize,
    frame: Vec<u8>,
}

/// What the switch remembers of one directed link.
#[derive(Default)]
struct Link {
    policy: LinkPolicy,
    generator: Option<Box<ChaCha8Rng>>,
    held: u64,
    last_due_ns: u64,
}

/// The switch between the nodes of one cluster.
pub(crate) struct Switch {
    names: Vec<String>,
    seed: u64,
    ports: Vec<OwnedFd>,
    links: Vec<Link>,
    counters: LinkCounters,
    held: BinaryHeap<Reverse<Held>>,
    sequence: u64,
    generation: u64,
    timer: TimerFd,
    buffer: Vec<u8>,
}

impl Switch {
    /// A switch with one port per node, all links clear. The ports' devices must exist.
    pub(crate) fn new(names: Vec<String>, seed: u64, devices: &[String]) -> io::Result<Self> {
        let ports = devices
            .iter()
            .map(|name| open_port(name))
            .collect::<io::Result<Vec<_>>>()?;
        let n = names.len();
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self {
            counters: LinkCounters::new(n),
            names,
            seed,
            ports,
            links: (0..n * n).map(|_| Link::default()).collect(),
            held: BinaryHeap::new(),
            sequence: 0,
            generation: 0,
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?,
            buffer: vec![0; FRAME_BYTES_MAX],
        })
    }

    pub(crate) fn port(&self, index: usize) -> BorrowedFd<'_> {
        self.ports[index].as_fd()
    }

    /// Becomes readable when a held frame is due; then call [`Switch::release`].
    pub(crate) fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Replaces the matrix and says when, and the how many-th this was.
    pub(crate) fn apply(&mut self, harmed: &[(u16, u16, LinkPolicy)]) -> (u64, u64) {
        for link in &mut self.links {
            link.policy = LinkPolicy::CLEAR;
        }
        let n = self.names.len();
        for &(from, to, policy) in harmed {
            let (from, to) = (usize::from(from), usize::from(to));
            if from < n && to < n {
                self.links[from * n + to].policy = policy;
            }
        }
        self.generation += 1;
        (monotonic_ns(), self.generation)
    }

    pub(crate) fn counters(&mut self) -> &LinkCounters {
        for (port, overruns) in self.ports.iter().zip(&mut self.counters.overruns) {
            *overruns += read_overruns(port).unwrap_or(0);
        }
        let n = self.ports.len();
        for (at, link) in self.links.iter().enumerate() {
            self.counters.at_mut(at / n, at % n).held = link.held;
        }
        self.counters.at_ns = monotonic_ns();
        &self.counters
    }

    /// Forwards what a node has sent, up to a limit.
    pub(crate) fn receive(&mut self, from: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..FRAMES_AT_ONCE {
            match read(&self.ports[from], &mut buffer) {
                Ok(len) if len >= VNET_HEAD_BYTES + ETHERNET_HEAD_BYTES => {
                    self.judge(from, &buffer[..len]);
                }
                Ok(_) => {}
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
        self.buffer = buffer;
    }

    fn judge(&mut self, from: usize, frame: &[u8]) {
        let destination = &frame[VNET_HEAD_BYTES..VNET_HEAD_BYTES + 6];
        let n = self.ports.len();
        let to = usize::from(destination[5]).wrapping_sub(1);
        if to >= n || to == from || destination != node_mac(to) {
            return;
        }
        let link = &mut self.links[from * n + to];
        let policy = link.policy;
        if policy.drop {
            self.counters.at_mut(from, to).dropped += 1;
            return;
        }
        let plain = policy.loss == 0.0 && policy.delay.is_zero() && policy.jitter.is_zero();
        if plain && link.held == 0 {
            self.deliver(from, to, frame);
            return;
        }
        let (names, seed) = (&self.names, self.seed);
        let generator = link.generator.get_or_insert_with(|| {
            Box::new(stream(
                seed,
                &format!("switch/{}>{}", names[from], names[to]),
            ))
        });
        if policy.loss > 0.0 && fraction(generator) < policy.loss {
            self.counters.at_mut(from, to).dropped += 1;
            return;
        }
        let delay_ns = delay_ns(&policy, generator);
        if delay_ns == 0 && link.held == 0 {
            self.deliver(from, to, frame);
            return;
        }
        let due_ns = (monotonic_ns() + delay_ns).max(link.last_due_ns);
        link.last_due_ns = due_ns;
        link.held += 1;
        self.sequence += 1;
        let held = Held {
            due_ns,
            sequence: self.sequence,
            from,
            to,
            frame: frame.to_vec(),
        };
        let first = self
            .held
            .peek()
            .is_none_or(|Reverse(next)| due_ns < next.due_ns);
        self.held.push(Reverse(held));
        if first {
            self.arm(due_ns);
        }
    }

    fn deliver(&mut self, from: usize, to: usize, frame: &[u8]) {
        let sent = write(&self.ports[to], frame);
        let count = self.counters.at_mut(from, to);
        match sent {
            Ok(_) => {
                count.delivered += 1;
                count.bytes += (frame.len() - VNET_HEAD_BYTES) as u64;
            }
            Err(_) => count.overflowed += 1,
        }
    }

    /// Delivers held frames that are due, unless their link was cut since.
    pub(crate) fn release(&mut self) {
        // Reading resets the timer; that it was not ready after all is no error.
        let mut expirations = [0_u8; 8];
        let _ = read(&self.timer, &mut expirations);
        let n = self.ports.len();
        let now_ns = monotonic_ns();
        while let Some(Reverse(next)) = self.held.peek() {
            if next.due_ns > now_ns {
                let due_ns = next.due_ns;
                self.arm(due_ns);
                return;
            }
            let Some(Reverse(held)) = self.held.pop() else {
                return;
            };
            let link = &mut self.links[held.from * n + held.to];
            link.held -= 1;
            if link.policy.drop {
                self.counters.at_mut(held.from, held.to).dropped += 1;
            } else {
                self.deliver(held.from, held.to, &held.frame);
            }
        }
    }

    fn arm(&self, due_ns: u64) {
        let at = TimeSpec::from_duration(Duration::from_nanos(due_ns.max(1)));
        let set = self.timer.set(
            Expiration::OneShot(at),
            TimerSetTimeFlags::TFD_TIMER_ABSTIME,
        );
        debug_assert!(set.is_ok(), "a timer accepts every time since boot");
    }
}

/// How long a frame is held: the delay, varied by up to the jitter in either direction.
fn delay_ns(policy: &LinkPolicy, generator: &mut ChaCha8Rng) -> u64 {
    let (delay_ns, jitter_ns) = (
        policy.delay.as_nanos() as f64,
        policy.jitter.as_nanos() as f64,
    );
    if jitter_ns == 0.0 {
        return policy.delay.as_nanos() as u64;
    }
    let varied = delay_ns + jitter_ns * (2.0 * fraction(generator) - 1.0);
    varied.max(0.0) as u64
}

/// Opens a packet socket on a device, with offload heads on every frame.
pub(crate) fn open_port(device: &str) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers. Protocol 0 receives nothing until the socket is bound.
    let raw = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    Errno::result(raw)?;
    // SAFETY: the descriptor was just made and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    for option in [
        PACKET_VNET_HDR,
        libc::PACKET_IGNORE_OUTGOING,
        PACKET_QDISC_BYPASS,
    ] {
        set_option(&socket, libc::SOL_PACKET, option, 1)?;
    }
    let buffer_bytes = 8 << 20;
    for (forced, plain) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        // Only root of the machine may exceed its limit; others get what it allows.
        if set_option(&socket, libc::SOL_SOCKET, forced, buffer_bytes).is_err() {
            set_option(&socket, libc::SOL_SOCKET, plain, buffer_bytes)?;
        }
    }
    let index = nix::net::if_::if_nametoindex(device)?;
    // SAFETY: `sockaddr_ll` is plain data, for which zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let len = std::mem::size_of_val(&address) as u32;
    // SAFETY: the address is a `sockaddr_ll` of the given length and outlives the call.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    Errno::result(bound)?;
    Ok(socket)
}

/// Offload heads before every frame, and sending past the queueing discipline (`linux/if_packet.h`).
const PACKET_VNET_HDR: i32 = 15;
const PACKET_QDISC_BYPASS: i32 = 20;

fn set_option(socket: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let len = std::mem::size_of_val(&value) as u32;
    // SAFETY: the value is an integer of the given length and outlives the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            len,
        )
    };
    Errno::result(set)?;
    Ok(())
}

/// How many frames the kernel dropped before this socket since the last time it was asked.
fn read_overruns(socket: &OwnedFd) -> io::Result<u64> {
    // `struct tpacket_stats`: packets, drops.
    let mut statistics = [0_u32; 2];
    let mut len = std::mem::size_of_val(&statistics) as u32;
    let into = (&raw mut statistics).cast();
    // SAFETY: `len` is the size of the buffer that `into` points to.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            into,
            &raw mut len,
        )
    };
    Errno::result(got)?;
    Ok(u64::from(statistics[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_pinned_and_differ_by_name() {
        let first = |seed, name| stream(seed, name).next_u64();
        assert_eq!(first(7, "switch/n1>n2"), first(7, "switch/n1>n2"));
        assert_ne!(first(7, "switch/n1>n2"), first(7, "switch/n2>n1"));
        assert_ne!(first(7, "switch/n1>n2"), first(8, "switch/n1>n2"));
    }

    #[test]
    fn jitter_stays_within_its_bounds() {
        let mut generator = stream(1, "test");
        let policy = LinkPolicy {
            delay: Duration::from_millis(2),
            jitter: Duration::from_millis(3),
            ..LinkPolicy::CLEAR
        };
        let delays: Vec<u64> = (0..10_000)
            .map(|_| delay_ns(&policy, &mut generator))
            .collect();
        assert!(delays.iter().all(|&delay| delay <= 5_000_000));
        assert!(delays.contains(&0), "a fifth of them would be negative");
        assert!(delays.iter().any(|&delay| delay > 4_900_000));
    }

    #[test]
    fn held_frames_leave_in_order() {
        let held = |due_ns, sequence| {
            Reverse(Held {
                due_ns,
                sequence,
                from: 0,
                to: 1,
                frame: Vec::new(),
            })
        };
        let mut heap = BinaryHeap::from([held(5, 1), held(3, 2), held(3, 3), held(4, 4)]);
        let order: Vec<u64> =
            std::iter::from_fn(|| heap.pop().map(|Reverse(held)| held.sequence)).collect();
        assert_eq!(order, [2, 3, 4, 1]);
    }
}
