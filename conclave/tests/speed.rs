//! Measurements, not run by default:
//! `cargo test --release -p conclave --test processes speed -- --ignored --nocapture`.

use crate::support::{Cluster, Connection};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test]
#[ignore = "a measurement"]
async fn start() {
    let mut times = Vec::new();
    for _ in 0..20 {
        let begin = Instant::now();
        let cluster = Cluster::start(3, &[]).await;
        cluster.leader().await;
        times.push(begin.elapsed());
    }
    times.sort();
    eprintln!(
        "start to first leader: median {:?}, worst {:?}",
        times[10], times[19]
    );
}

#[tokio::test]
#[ignore = "a measurement"]
async fn writes() {
    for connections in [1, 16, 64, 256] {
        let cluster = Cluster::start(3, &[]).await;
        let leader = cluster.leader().await;
        let begin = Instant::now();
        let clients = (0..connections).map(|client| {
            let address = cluster.address(leader).to_owned();
            tokio::spawn(async move {
                let mut connection = Connection::open(&address).await.unwrap();
                let (mut count, mut latencies) = (0, Vec::new());
                while begin.elapsed() < Duration::from_secs(5) {
                    let body = json!({"key": format!("{client} {}", count % 10), "value": count});
                    let sent = Instant::now();
                    connection.call("/kv/put", body).await.unwrap().ok();
                    latencies.push(sent.elapsed());
                    count += 1;
                }
                latencies
            })
        });
        let mut latencies = Vec::new();
        for client in clients.collect::<Vec<_>>() {
            latencies.extend(client.await.unwrap());
        }
        latencies.sort();
        let rate = latencies.len() as f64 / begin.elapsed().as_secs_f64();
        let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
        let (p50, p99) = (at(0.5), at(0.99));
        eprintln!("{connections} clients: {rate:.0} writes/s, median {p50:?}, 99 % {p99:?}");
        for node in 0..3 {
            eprintln!("  n{}: {}", node + 1, cluster.nodes[node].usage());
        }
    }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn idle() {
    let cluster = Cluster::start(3, &[]).await;
    let leader = cluster.leader().await;
    let before: Vec<_> = cluster.nodes.iter().map(|node| node.cpu()).collect();
    sleep(Duration::from_secs(10)).await;
    for (node, before) in before.into_iter().enumerate() {
        let share = (cluster.nodes[node].cpu() - before).as_secs_f64() * 10.0;
        let role = if node == leader { "leader" } else { "follower" };
        eprintln!(
            "idle {role}: {share:.2} % CPU, {}",
            cluster.nodes[node].usage()
        );
    }
}

/// The half-broken switch: one follower and the leader cannot reach each other, steadily or 2 s of
/// every 3 s, while both reach the third node.
#[tokio::test]
#[ignore = "a measurement"]
async fn half_broken_switch() {
    for flags in [
        &[][..],
        &["--no-prevote"],
        &["--no-check-quorum"],
        &["--no-prevote", "--no-check-quorum"],
    ] {
        for flapping in [false, true] {
            let cluster = Cluster::start(3, flags).await;
            let leader = cluster.leader().await;
            let cut = cluster.others(leader)[0];
            let links = [(leader, cut), (cut, leader)];
            let term = async |node| {
                cluster.status(node).await.unwrap()["term"]
                    .as_u64()
                    .unwrap()
            };
            let before = term(cut).await;
            let (begin, mut changes, mut last) = (Instant::now(), 0, leader);
            let (mut writes, mut gap, mut written) = (0, Duration::ZERO, Instant::now());
            while begin.elapsed() < Duration::from_secs(24) {
                let phase = begin.elapsed().as_millis() % 3000;
                cluster.cut(&links, !flapping || phase < 2000);
                for node in 0..3 {
                    let put = json!({"key": "a", "value": writes});
                    if cluster
                        .try_call(node, "/kv/put", put)
                        .await
                        .is_some_and(|r| r.is_ok())
                    {
                        gap = gap.max(written.elapsed());
                        written = Instant::now();
                        writes += 1;
                        changes += usize::from(node != last);
                        last = node;
                    }
                }
                sleep(Duration::from_millis(20)).await;
            }
            let terms = term(cut).await - before;
            let kind = if flapping { "flapping" } else { "steady" };
            eprintln!(
                "{flags:?} {kind}: +{terms} terms, {changes} changes of leader, longest gap {gap:?}"
            );
        }
    }
}
