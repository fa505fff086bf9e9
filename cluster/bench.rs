//! What the local backend costs, measured: making and destroying clusters, the switch against a direct
//! pair of devices, how fast a cut cuts, how exact delay and loss are, and how fast the stdio of
//! clients is relayed. `schism bench cluster` prints it. All numbers come from one run on one machine,
//! so that what is compared was measured side by side.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::clock::monotonic_ns;
use crate::cluster::{Cluster, ClusterSpec, create, create_with_direct_pair};
use crate::error::Error;
use crate::local::direct_addr;
use crate::node::Pipe;
use crate::policy::LinkPolicy;
use crate::protocol::{Measurement, ServiceSpec};

const UDP_PORT: u16 = 4001;
const TCP_PORT: u16 = 4002;
const BLAST_PORT: u16 = 4003;
/// How many probes are under way at once.
const PORTION: u32 = 100;

/// Several measurements of one thing, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// The smallest.
    pub min_ns: u64,
    /// The one in the middle.
    pub median_ns: u64,
    /// The one that 99 of 100 do not exceed.
    pub p99_ns: u64,
    /// The largest.
    pub max_ns: u64,
    /// How many there were.
    pub count: usize,
}

impl Spread {
    /// Of at least one measurement; all zero of none.
    #[must_use]
    pub fn of(mut measured: Vec<u64>) -> Self {
        measured.sort_unstable();
        let at = |quantile: f64| {
            let index = (measured.len().saturating_sub(1)) as f64 * quantile;
            measured.get(index.round() as usize).copied().unwrap_or(0)
        };
        Self {
            min_ns: at(0.0),
            median_ns: at(0.5),
            p99_ns: at(0.99),
            max_ns: at(1.0),
            count: measured.len(),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [min, median, p99, max] =
            [self.min_ns, self.median_ns, self.p99_ns, self.max_ns].map(Duration::from_nanos);
        write!(
            f,
            "min {min:.1?}, median {median:.1?}, p99 {p99:.1?}, max {max:.1?}"
        )?;
        write!(f, " of {}", self.count)
    }
}

/// How long clusters of one size take to come and to go.
#[derive(Debug, Clone, Serialize)]
pub struct Lifecycle {
    /// How many nodes.
    pub nodes: usize,
    /// Until every agent is ready.
    pub create: Spread,
    /// Until no process is left.
    pub destroy: Spread,
}

/// The switch against a direct pair of devices between the same two nodes.
#[derive(Debug, Clone, Serialize)]
pub struct Forwarding {
    /// Round trips of single datagrams through the switch.
    pub rtt_switch: Spread,
    /// The same without it.
    pub rtt_direct: Spread,
    /// One TCP connection through the switch, in megabits a second.
    pub tcp_switch_mbit_s: f64,
    /// The same without it.
    pub tcp_direct_mbit_s: f64,
}

/// How fast a cut cuts, under one datagram every 20 microseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Cuts {
    /// From the decision on the controller to the time of effect that the switch names.
    pub decision_to_effect: Spread,
    /// From the decision to when the receiver's kernel had the last datagram; 0 when that was before.
    pub decision_to_last_delivered: Spread,
    /// How long after the time of effect a datagram was still delivered, at most.
    pub delivered_after_effect_max_ns: u64,
}

/// How exact the emulation is.
#[derive(Debug, Clone, Serialize)]
pub struct Accuracy {
    /// The delay that was asked for, in one direction.
    pub delay_asked: Duration,
    /// Round trips under it.
    pub delay_rtt: Spread,
    /// The share of frames that was to be lost.
    pub loss_asked: f64,
    /// The share that did not arrive.
    pub loss_measured: f64,
    /// Of how many frames.
    pub loss_frames: u64,
}

/// How fast the standard input and output of clients travel, through the agent and back.
#[derive(Debug, Clone, Serialize)]
pub struct Relay {
    /// In pieces of 64 KiB, megabytes a second in each direction.
    pub bulk_mb_s: f64,
    /// In lines of 64 bytes, each written by itself, lines a second in each direction.
    pub lines_s: f64,
    /// One line there and back.
    pub round_trip: Spread,
}

/// Everything that was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// For several sizes.
    pub lifecycles: Vec<Lifecycle>,
    /// See [`Forwarding`].
    pub forwarding: Forwarding,
    /// See [`Cuts`].
    pub cuts: Cuts,
    /// See [`Accuracy`].
    pub accuracy: Accuracy,
    /// See [`Relay`].
    pub relay: Relay,
}

/// How thoroughly to measure.
#[derive(Debug, Clone)]
pub struct Effort {
    /// The sizes of clusters to make.
    pub sizes: Vec<usize>,
    /// How often each of them is made.
    pub repeats: usize,
    /// How many cuts are made.
    pub cuts: usize,
    /// How many round trips.
    pub pings: u32,
    /// For how long TCP is sent, once through the switch and once without it.
    pub tcp: Duration,
    /// How many frames pass under loss.
    pub frames: u64,
    /// How many bytes are relayed, in bulk and again in lines.
    pub relay_bytes: usize,
}

impl Default for Effort {
    /// Takes about half a minute.
    fn default() -> Self {
        Self {
            sizes: vec![3, 5, 9, 25],
            repeats: 7,
            cuts: 20,
            pings: 5000,
            tcp: Duration::from_secs(2),
            frames: 50_000,
            relay_bytes: 64 << 20,
        }
    }
}

/// Measures everything, one thing after another, with clusters below `dir`. `exe` is as in
/// [`ClusterSpec::exe`].
///
/// # Errors
/// Those of making and using clusters.
pub async fn run(dir: &Path, exe: Option<PathBuf>, effort: &Effort) -> Result<Report, Error> {
    let mut lifecycles = Vec::new();
    for &nodes in &effort.sizes {
        lifecycles.push(lifecycle(&spec(dir, &exe, nodes), effort.repeats).await?);
    }
    let cluster = create_with_direct_pair(&spec(dir, &exe, 2)).await?;
    let serve = Measurement::Serve {
        udp: UDP_PORT,
        tcp: TCP_PORT,
    };
    cluster.nodes()[1].measure(serve).await?;
    let report = Report {
        lifecycles,
        forwarding: forwarding(&cluster, effort).await?,
        cuts: cuts(&cluster, effort.cuts).await?,
        accuracy: accuracy(&cluster, effort).await?,
        relay: relay(&cluster, effort).await?,
    };
    cluster.destroy().await?;
    Ok(report)
}

fn spec(dir: &Path, exe: &Option<PathBuf>, nodes: usize) -> ClusterSpec {
    let nodes = (1..=nodes).map(|number| format!("n{number}")).collect();
    ClusterSpec {
        nodes,
        seed: 1,
        dir: dir.to_path_buf(),
        exe: exe.clone(),
    }
}

async fn lifecycle(spec: &ClusterSpec, repeats: usize) -> Result<Lifecycle, Error> {
    let (mut created, mut destroyed) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        let began_ns = monotonic_ns();
        let cluster = create(spec).await?;
        let up_ns = monotonic_ns();
        cluster.destroy().await?;
        created.push(up_ns - began_ns);
        destroyed.push(monotonic_ns() - up_ns);
    }
    let nodes = spec.nodes.len();
    Ok(Lifecycle {
        nodes,
        create: Spread::of(created),
        destroy: Spread::of(destroyed),
    })
}

async fn forwarding(cluster: &Cluster, effort: &Effort) -> Result<Forwarding, Error> {
    let n1 = &cluster.nodes()[0];
    let switched = cluster.nodes()[1].addr();
    let direct = IpAddr::V4(direct_addr(1));
    let rtt = async |to: IpAddr| {
        let to = SocketAddr::new(to, UDP_PORT);
        let gap = Duration::from_micros(100);
        let measured = n1
            .measure(Measurement::PingPong {
                to,
                count: effort.pings,
                gap,
            })
            .await?;
        Ok::<_, Error>(Spread::of(measured.rtt_ns))
    };
    let tcp = async |to: IpAddr| {
        let to = SocketAddr::new(to, TCP_PORT);
        let measured = n1
            .measure(Measurement::Bulk {
                to,
                lasting: effort.tcp,
            })
            .await?;
        Ok::<_, Error>(measured.bytes as f64 * 8e3 / measured.elapsed_ns as f64)
    };
    Ok(Forwarding {
        rtt_switch: rtt(switched).await?,
        rtt_direct: rtt(direct).await?,
        tcp_switch_mbit_s: tcp(switched).await?,
        tcp_direct_mbit_s: tcp(direct).await?,
    })
}

async fn cuts(cluster: &Cluster, repeats: usize) -> Result<Cuts, Error> {
    let network = cluster.network();
    let (n1, n2) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    let mut cut = network.clear_matrix();
    *cut.at_mut(0, 1) = LinkPolicy::CUT;
    let (mut to_effect, mut to_last, mut after_effect) = (Vec::new(), Vec::new(), 0);
    for _ in 0..repeats {
        let listen = Measurement::Listen {
            port: BLAST_PORT,
            lasting: Duration::from_millis(400),
        };
        let listening = tokio::spawn({
            let n2 = n2.clone();
            async move { n2.measure(listen).await }
        });
        let blast = Measurement::Blast {
            to: SocketAddr::new(n2.addr(), BLAST_PORT),
            interval: Duration::from_micros(20),
            lasting: Duration::from_millis(300),
        };
        let blasting = tokio::spawn({
            let n1 = n1.clone();
            async move { n1.measure(blast).await }
        });
        tokio::time::sleep(Duration::from_millis(150)).await;
        let decided_ns = monotonic_ns();
        let applied = network.apply(&cut).await?;
        let lost = |_| Error::Closed("measurement".to_owned());
        blasting.await.map_err(lost)??;
        let heard = listening.await.map_err(lost)??;
        network.apply(&network.clear_matrix()).await?;
        to_effect.push(applied.at_ns - decided_ns);
        to_last.push(heard.last_ns.saturating_sub(decided_ns));
        after_effect = after_effect.max(heard.last_ns.saturating_sub(applied.at_ns));
    }
    Ok(Cuts {
        decision_to_effect: Spread::of(to_effect),
        decision_to_last_delivered: Spread::of(to_last),
        delivered_after_effect_max_ns: after_effect,
    })
}

async fn accuracy(cluster: &Cluster, effort: &Effort) -> Result<Accuracy, Error> {
    let network = cluster.network();
    let (n1, n2) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    let delay_asked = Duration::from_millis(20);
    let mut matrix = network.clear_matrix();
    *matrix.at_mut(0, 1) = LinkPolicy {
        delay: delay_asked,
        ..LinkPolicy::CLEAR
    };
    network.apply(&matrix).await?;
    let to = SocketAddr::new(n2.addr(), UDP_PORT);
    let pings = Measurement::PingPong {
        to,
        count: 100,
        gap: Duration::ZERO,
    };
    let delayed = n1.measure(pings).await?;

    let loss_asked = 0.1;
    *matrix.at_mut(0, 1) = LinkPolicy {
        loss: loss_asked,
        ..LinkPolicy::CLEAR
    };
    network.apply(&matrix).await?;
    let before = network.counters().await?;
    let nonce = monotonic_ns();
    // In portions that fit into every buffer, and each only after the one before was counted, so
    // that nothing is lost but by the policy.
    let (mut sent, mut arrived) = (0, 0);
    while sent < effort.frames {
        n1.send_probe(n2.addr(), nonce, PORTION).await?;
        sent += u64::from(PORTION);
        loop {
            let now = network.counters().await?;
            let delivered = now.at(0, 1).delivered - before.at(0, 1).delivered;
            let dropped = now.at(0, 1).dropped - before.at(0, 1).dropped;
            arrived = n2.probe_count(nonce).await?;
            if delivered + dropped >= sent && arrived >= delivered {
                break;
            }
        }
    }
    network.apply(&network.clear_matrix()).await?;
    Ok(Accuracy {
        delay_asked,
        delay_rtt: Spread::of(delayed.rtt_ns),
        loss_asked,
        loss_measured: 1.0 - arrived as f64 / sent as f64,
        loss_frames: sent,
    })
}

async fn relay(cluster: &Cluster, effort: &Effort) -> Result<Relay, Error> {
    let bulk = stream_through(cluster, effort.relay_bytes, 64 << 10).await?;
    let lines = stream_through(cluster, effort.relay_bytes / 4, 64).await?;
    let mut pipe = cat(cluster).await?;
    let mut round_trips = Vec::new();
    for _ in 0..effort.pings {
        let began_ns = monotonic_ns();
        pipe.stdin.write(Bytes::from_static(&[b'x'; 64])).await?;
        let mut came = 0;
        while came < 64 {
            came += pipe
                .stdout
                .read()
                .await
                .ok_or_else(|| Error::Closed("cat".to_owned()))?
                .len();
        }
        round_trips.push(monotonic_ns() - began_ns);
    }
    Ok(Relay {
        bulk_mb_s: bulk / 1e6,
        lines_s: lines / 64.0,
        round_trip: Spread::of(round_trips),
    })
}

/// A client that sends everything back.
async fn cat(cluster: &Cluster) -> Result<Pipe, Error> {
    let spec = ServiceSpec {
        name: format!("cat-{}", monotonic_ns()),
        argv: vec!["cat".to_owned()],
        env: Vec::new(),
        log: "cat.log".to_owned(),
    };
    cluster.nodes()[0].spawn(&spec).await
}

/// Bytes a second through a client and back, written in pieces of one size.
async fn stream_through(cluster: &Cluster, bytes: usize, piece: usize) -> Result<f64, Error> {
    let Pipe {
        stdin, mut stdout, ..
    } = cat(cluster).await?;
    let began_ns = monotonic_ns();
    let content = Bytes::from(vec![b'x'; piece]);
    let writer = tokio::spawn(async move {
        for _ in 0..bytes / piece {
            stdin.write(content.clone()).await?;
        }
        Ok::<(), Error>(())
    });
    let mut came = 0;
    while let Some(chunk) = stdout.read().await {
        came += chunk.len();
    }
    writer
        .await
        .map_err(|_| Error::Closed("cat".to_owned()))??;
    Ok(came as f64 * 1e9 / (monotonic_ns() - began_ns) as f64)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Lifecycle {
            nodes,
            create,
            destroy,
        } in &self.lifecycles
        {
            writeln!(f, "create {nodes:>2} nodes      {create}")?;
            writeln!(f, "destroy {nodes:>2} nodes     {destroy}")?;
        }
        let Forwarding {
            rtt_switch,
            rtt_direct,
            tcp_switch_mbit_s,
            tcp_direct_mbit_s,
        } = &self.forwarding;
        writeln!(f, "round trip, switch   {rtt_switch}")?;
        writeln!(f, "round trip, direct   {rtt_direct}")?;
        let added = rtt_switch.median_ns.saturating_sub(rtt_direct.median_ns);
        writeln!(
            f,
            "round trip, added    {:.1?} (medians)",
            Duration::from_nanos(added)
        )?;
        writeln!(f, "TCP, switch          {tcp_switch_mbit_s:.0} Mbit/s")?;
        writeln!(f, "TCP, direct          {tcp_direct_mbit_s:.0} Mbit/s")?;
        let late = Duration::from_nanos(self.cuts.delivered_after_effect_max_ns);
        writeln!(f, "cut, to effect       {}", self.cuts.decision_to_effect)?;
        writeln!(
            f,
            "cut, to last frame   {}",
            self.cuts.decision_to_last_delivered
        )?;
        writeln!(
            f,
            "cut, after effect    last frame at most {late:.1?} later"
        )?;
        let accuracy = &self.accuracy;
        writeln!(
            f,
            "delay {:?} one way  {}",
            accuracy.delay_asked, accuracy.delay_rtt
        )?;
        writeln!(
            f,
            "loss {:.1} %          {:.2} % of {}",
            accuracy.loss_asked * 100.0,
            accuracy.loss_measured * 100.0,
            accuracy.loss_frames
        )?;
        writeln!(
            f,
            "relay, bulk          {:.0} MB/s each way",
            self.relay.bulk_mb_s
        )?;
        writeln!(
            f,
            "relay, lines of 64   {:.0} a second each way",
            self.relay.lines_s
        )?;
        writeln!(f, "relay, round trip    {}", self.relay.round_trip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_its_middle_and_its_ends() {
        let spread = Spread::of((1..=101).rev().collect());
        let expected = Spread {
            min_ns: 1,
            median_ns: 51,
            p99_ns: 100,
            max_ns: 101,
            count: 101,
        };
        assert_eq!(spread, expected);
        assert_eq!(Spread::of(Vec::new()).max_ns, 0);
    }
}
