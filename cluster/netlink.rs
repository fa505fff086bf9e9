//! Route netlink, as much of it as a cluster needs: pairs of virtual Ethernet devices, addresses,
//! permanent neighbours, devices up. It is not a general netlink library; messages are built in a
//! batch and go to the kernel in one system call.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

/// An Ethernet address.
pub(crate) type Mac = [u8; 6];

const NLMSG_HEAD_BYTES: usize = 16;
/// The acknowledgements of this many requests fit into a socket's default receive buffer.
const REQUESTS_AT_ONCE: usize = 64;
/// The kind of a veth pair's data that describes its other end (`linux/veth.h`).
const VETH_INFO_PEER: u16 = 1;
/// A neighbour that needs no confirmation (`linux/neighbour.h`).
const NUD_PERMANENT: u16 = 0x80;

/// One end of a virtual Ethernet pair.
pub(crate) struct End<'a> {
    pub name: &'a str,
    pub mac: Mac,
    /// The process in whose network namespace the device appears; ours when `None`.
    pub namespace_of: Option<i32>,
    pub up: bool,
}

/// Requests to be carried out in order.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Where each request begins.
    starts: Vec<usize>,
}

impl Batch {
    fn begin(&mut self, kind: u16, flags: i32) {
        self.starts.push(self.bytes.len());
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 8]);
    }

    fn end(&mut self) {
        let start = self.starts.last().copied().unwrap_or_default();
        let len = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&len.to_ne_bytes());
    }

    /// `struct ifinfomsg`.
    fn link_head(&mut self, index: u32, up: bool) {
        let flags = if up { libc::IFF_UP as u32 } else { 0 };
        self.bytes
            .extend_from_slice(&[libc::AF_UNSPEC as u8, 0, 0, 0]);
        self.bytes.extend_from_slice(&index.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |batch| batch.bytes.extend_from_slice(value));
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        fill(self);
        let len = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end_of_pair(&mut self, end: &End<'_>) {
        let mut name = end.name.as_bytes().to_vec();
        name.push(0);
        self.attribute(libc::IFLA_IFNAME, &name);
        self.attribute(libc::IFLA_ADDRESS, &end.mac);
        if let Some(pid) = end.namespace_of {
            self.attribute(libc::IFLA_NET_NS_PID, &(pid as u32).to_ne_bytes());
        }
    }

    /// Makes a virtual Ethernet pair.
    pub(crate) fn veth(&mut self, near: &End<'_>, far: &End<'_>) {
        self.begin(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        self.link_head(0, near.up);
        self.end_of_pair(near);
        self.nested(libc::IFLA_LINKINFO, |batch| {
            batch.attribute(libc::IFLA_INFO_KIND, b"veth");
            batch.nested(libc::IFLA_INFO_DATA, |batch| {
                batch.nested(VETH_INFO_PEER, |batch| {
                    batch.link_head(0, far.up);
                    batch.end_of_pair(far);
                });
            });
        });
        self.end();
    }

    /// Brings a device up.
    pub(crate) fn up(&mut self, index: u32) {
        self.begin(libc::RTM_NEWLINK, 0);
        self.link_head(index, true);
        self.end();
    }

    /// Gives a device an address, and the network of that prefix a route.
    pub(crate) fn address(&mut self, index: u32, addr: Ipv4Addr, prefix_bits: u8) {
        self.begin(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        self.bytes
            .extend_from_slice(&[libc::AF_INET as u8, prefix_bits, 0, 0]);
        self.bytes.extend_from_slice(&index.to_ne_bytes());
        self.attribute(libc::IFA_LOCAL, &addr.octets());
        self.attribute(libc::IFA_ADDRESS, &addr.octets());
        self.end();
    }

    /// Says for good which Ethernet address a neighbour has, so that nobody ever asks.
    pub(crate) fn neighbour(&mut self, index: u32, addr: Ipv4Addr, mac: Mac) {
        self.begin(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE);
        self.bytes
            .extend_from_slice(&[libc::AF_INET as u8, 0, 0, 0]);
        self.bytes.extend_from_slice(&index.to_ne_bytes());
        self.bytes.extend_from_slice(&NUD_PERMANENT.to_ne_bytes());
        self.bytes.extend_from_slice(&[0, 0]);
        self.attribute(libc::NDA_DST, &addr.octets());
        self.attribute(libc::NDA_LLADDR, &mac);
        self.end();
    }

    /// Carries the batch out in the calling thread's network namespace.
    ///
    /// # Errors
    /// The first refusal of the kernel; later requests may have been carried out all the same.
    pub(crate) fn run(self) -> io::Result<()> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        let kernel = NetlinkAddr::new(0, 0);
        let mut first_error = None;
        for first in (0..self.starts.len()).step_by(REQUESTS_AT_ONCE) {
            let next = (first + REQUESTS_AT_ONCE).min(self.starts.len());
            let end = self.starts.get(next).copied().unwrap_or(self.bytes.len());
            let requests = &self.bytes[self.starts[first]..end];
            sendto(socket.as_raw_fd(), requests, &kernel, MsgFlags::empty())?;
            let mut answered = first;
            while answered < next {
                for errno in read_acks(&socket)? {
                    answered += 1;
                    if errno != 0 && first_error.is_none() {
                        first_error = Some(io::Error::from_raw_os_error(errno));
                    }
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }
}

/// Reads one datagram of acknowledgements and returns their error numbers, 0 for success.
fn read_acks(socket: &OwnedFd) -> io::Result<Vec<i32>> {
    let mut buffer = vec![0_u8; 32 << 10];
    let len = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    let (mut rest, mut errors) = (&buffer[..len], Vec::new());
    let word = |bytes: &[u8], at: usize| {
        i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    while rest.len() >= NLMSG_HEAD_BYTES + 4 {
        let message_len = word(rest, 0) as usize;
        let kind = u16::from_ne_bytes([rest[4], rest[5]]);
        if i32::from(kind) == libc::NLMSG_ERROR {
            errors.push(-word(rest, NLMSG_HEAD_BYTES));
        }
        let step = message_len
            .next_multiple_of(4)
            .clamp(NLMSG_HEAD_BYTES, rest.len());
        rest = &rest[step..];
    }
    Ok(errors)
}
