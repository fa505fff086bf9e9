//! Traffic for measuring the network from inside nodes. `bench.rs` asks for it and does the sums.

use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::clock::monotonic_ns;
use crate::error::Refusal;
use crate::protocol::{Measured, Measurement};

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// How long one datagram of a ping-pong is waited for.
const PONG_LIMIT: Duration = Duration::from_secs(1);

pub(super) fn perform(measurement: &Measurement) -> Result<Measured, Refusal> {
    match measurement {
        Measurement::Serve { udp, tcp } => serve(*udp, *tcp),
        Measurement::PingPong { to, count, gap } => ping_pong(*to, *count, *gap),
        Measurement::Bulk { to, lasting } => bulk(*to, *lasting),
        Measurement::Blast {
            to,
            interval,
            lasting,
        } => blast(*to, *interval, *lasting),
        Measurement::Listen { port, lasting } => listen(*port, *lasting),
    }
    .map_err(Refusal::io("measure"))
}

fn background(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
}

fn serve(udp: u16, tcp: u16) -> io::Result<Measured> {
    let echo = UdpSocket::bind((ANY, udp))?;
    let sink = TcpListener::bind((ANY, tcp))?;
    background("echo", move || {
        let mut datagram = [0; 2048];
        while let Ok((len, from)) = echo.recv_from(&mut datagram) {
            let _ = echo.send_to(&datagram[..len], from);
        }
    })?;
    background("sink", move || {
        let mut buffer = vec![0; 256 << 10];
        for socket in sink.incoming() {
            let Ok(mut socket) = socket else { continue };
            let mut bytes = 0_u64;
            while let Ok(len @ 1..) = socket.read(&mut buffer) {
                bytes += len as u64;
            }
            let _ = socket.write_all(&bytes.to_le_bytes());
        }
    })?;
    Ok(Measured::default())
}

fn ping_pong(to: SocketAddr, count: u32, gap: Duration) -> io::Result<Measured> {
    let socket = UdpSocket::bind((ANY, 0))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(PONG_LIMIT))?;
    let mut measured = Measured::default();
    for number in 0..count {
        let sent_ns = monotonic_ns();
        socket.send(&number.to_le_bytes())?;
        measured.sent += 1;
        let mut pong = [0; 4];
        loop {
            match socket.recv(&mut pong) {
                // An answer that comes after its time must not count for the next one.
                Ok(_) if pong != number.to_le_bytes() => {}
                Ok(_) => {
                    measured.rtt_ns.push(monotonic_ns() - sent_ns);
                    measured.received += 1;
                    break;
                }
                Err(error) if is_timeout(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if !gap.is_zero() {
            #[expect(
                clippy::disallowed_methods,
                reason = "the pause between pings is the point"
            )]
            std::thread::sleep(gap);
        }
    }
    Ok(measured)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn bulk(to: SocketAddr, lasting: Duration) -> io::Result<Measured> {
    let mut socket = TcpStream::connect(to)?;
    let buffer = vec![0x5c; 256 << 10];
    let began_ns = monotonic_ns();
    let end_ns = began_ns + lasting.as_nanos() as u64;
    while monotonic_ns() < end_ns {
        socket.write_all(&buffer)?;
    }
    socket.shutdown(std::net::Shutdown::Write)?;
    // The receiver answers with what it got, so that nothing counts that is still under way.
    let mut received = [0; 8];
    socket.read_exact(&mut received)?;
    let bytes = u64::from_le_bytes(received);
    Ok(Measured {
        bytes,
        elapsed_ns: monotonic_ns() - began_ns,
        ..Measured::default()
    })
}

fn blast(to: SocketAddr, interval: Duration, lasting: Duration) -> io::Result<Measured> {
    let socket = UdpSocket::bind((ANY, 0))?;
    socket.connect(to)?;
    let began_ns = monotonic_ns();
    let (interval_ns, end_ns) = (
        interval.as_nanos() as u64,
        began_ns + lasting.as_nanos() as u64,
    );
    let mut measured = Measured::default();
    let mut next_ns = began_ns;
    while next_ns < end_ns {
        if monotonic_ns() < next_ns {
            // Sleeping would oversleep; others may run meanwhile.
            std::thread::yield_now();
            continue;
        }
        // Nobody may be listening at times; a refusal is for the datagram before.
        if socket.send(&measured.sent.to_le_bytes()).is_ok() {
            measured.sent += 1;
        }
        next_ns = (next_ns + interval_ns).max(monotonic_ns().saturating_sub(10 * interval_ns));
    }
    measured.elapsed_ns = monotonic_ns() - began_ns;
    Ok(measured)
}

/// Receives for a while. When the last datagram came is what the kernel noted on its arrival, not
/// when this thread got to read it.
fn listen(port: u16, lasting: Duration) -> io::Result<Measured> {
    let socket = UdpSocket::bind((ANY, port))?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    let began_ns = monotonic_ns();
    // Arrivals are noted in wall time, whose distance from ours does not change meanwhile.
    let wall_ahead_ns = nanoseconds(clock_gettime(ClockId::CLOCK_REALTIME)?) - began_ns;
    let end_ns = began_ns + lasting.as_nanos() as u64;
    let mut measured = Measured::default();
    let (mut datagram, mut notes) = ([0; 64], cmsg_space!(TimeSpec));
    loop {
        let now_ns = monotonic_ns();
        if now_ns >= end_ns {
            measured.elapsed_ns = now_ns - began_ns;
            return Ok(measured);
        }
        socket.set_read_timeout(Some(Duration::from_nanos((end_ns - now_ns).max(1000))))?;
        let mut into = [IoSliceMut::new(&mut datagram)];
        let fd = socket.as_raw_fd();
        match recvmsg::<()>(fd, &mut into, Some(&mut notes), MsgFlags::empty()) {
            Ok(message) => {
                measured.received += 1;
                measured.bytes += message.bytes as u64;
                for note in message.cmsgs()? {
                    if let ControlMessageOwned::ScmTimestampns(at) = note {
                        measured.last_ns = nanoseconds(at) - wall_ahead_ns;
                    }
                }
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn nanoseconds(time: TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
