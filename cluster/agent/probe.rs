//! Probes: datagrams between agents that carry nothing but a number, to see whether a link passes
//! frames. They are what turns "the rule was installed" into "the link is cut".

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;

use crate::channel::lock;
use crate::error::{Refusal, RefusalKind};

/// The port on which every agent receives probes.
pub(super) const PORT: u16 = 7;

pub(super) struct Probes {
    socket: Arc<UdpSocket>,
    counts: Arc<Mutex<HashMap<u64, u64>>>,
}

impl Probes {
    /// Binds the node's address and counts what arrives from now on.
    pub(super) async fn open(addr: IpAddr) -> io::Result<Self> {
        let socket = Arc::new(UdpSocket::bind(SocketAddr::new(addr, PORT)).await?);
        let counts = Arc::<Mutex<HashMap<u64, u64>>>::default();
        let (receiver, counted) = (Arc::clone(&socket), Arc::clone(&counts));
        tokio::spawn(async move {
            let mut datagram = [0_u8; 16];
            loop {
                // An error here reports an earlier send that was refused, not an end.
                let Ok(len) = receiver.recv(&mut datagram).await else {
                    continue;
                };
                if let Ok(nonce) = datagram[..len].try_into().map(u64::from_le_bytes) {
                    *lock(&counted).entry(nonce).or_default() += 1;
                }
            }
        });
        Ok(Self { socket, counts })
    }

    pub(super) async fn send(&self, to: SocketAddr, nonce: u64, count: u32) -> Result<(), Refusal> {
        for _ in 0..count {
            self.socket
                .send_to(&nonce.to_le_bytes(), to)
                .await
                .map_err(|error| {
                    let message = format!("cannot send a probe to {to}: {error}");
                    Refusal::new(RefusalKind::Unreachable, message)
                })?;
        }
        Ok(())
    }

    pub(super) fn count(&self, nonce: u64) -> u64 {
        lock(&self.counts).get(&nonce).copied().unwrap_or(0)
    }
}
