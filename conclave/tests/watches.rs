//! Watches: every event once and in order, over lost connections and changes of leader.

use crate::support::{Cluster, Connection, DEADLINE, try_call};
use conclave::api::WatchLine;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::timeout;

/// A watch in progress.
pub struct Watch {
    response: Response<Incoming>,
    buffer: Vec<u8>,
}

impl Watch {
    pub async fn open(address: &str, from: Option<u64>) -> Watch {
        let body = json!({"key": "a", "from_revision": from});
        let mut connection = Connection::open(address).await.expect("the node listens");
        let response = connection
            .begin("/watch", body)
            .await
            .expect("the node answers");
        Watch {
            response,
            buffer: Vec::new(),
        }
    }

    /// The next line; `None` when the connection is lost.
    pub async fn next(&mut self) -> Option<WatchLine> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = timeout(DEADLINE, self.response.frame())
                .await
                .expect("something comes");
            self.buffer.extend_from_slice(frame?.ok()?.data_ref()?);
        }
    }
}

#[tokio::test]
async fn a_watch_that_is_resumed_misses_nothing() {
    let mut cluster = Cluster::start(3, &[]).await;
    let leader = cluster.leader().await;
    let mut watched = cluster.others(leader)[0];
    let mut watch = Watch::open(cluster.address(watched), None).await;
    assert!(matches!(
        watch.next().await,
        Some(WatchLine::Progress { .. })
    ));
    let (mut written, mut seen) = (Vec::<(u64, Value)>::new(), Vec::new());
    for round in 0..3 {
        for n in 0..20 {
            let value = json!(round * 100 + n);
            let put = json!({"key": "a", "value": value});
            let put = cluster.lead("/kv/put", put).await;
            written.push((put.ok()["revision"].as_u64().unwrap(), value));
            cluster
                .lead("/kv/put", json!({"key": "b", "value": n}))
                .await
                .ok();
        }
        // The watched node dies in the middle of it; the watch goes on at another.
        cluster.nodes[watched].kill();
        while let Some(line) = watch.next().await {
            if let WatchLine::Event(event) = line {
                seen.push((event.revision, event.value));
            }
        }
        cluster.nodes[watched].start();
        watched = (watched + 1) % 3;
        let from = seen.last().map_or(1, |(revision, _)| revision + 1);
        watch = Watch::open(cluster.address(watched), Some(from)).await;
    }
    while seen.len() < written.len() {
        if let WatchLine::Event(event) = watch.next().await.unwrap() {
            seen.push((event.revision, event.value));
        }
    }
    assert_eq!(seen, written);
}

#[tokio::test]
async fn a_watch_says_when_it_asks_for_too_much() {
    let cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader().await;
    let address = cluster.address(leader).to_owned();
    let writers = (0..16).map(|_| {
        let address = address.clone();
        tokio::spawn(async move {
            for n in 0..700 {
                let put = json!({"key": "a", "value": n});
                try_call(&address, "/kv/put", put, DEADLINE)
                    .await
                    .unwrap()
                    .ok();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let mut watch = Watch::open(&address, Some(1)).await;
    match watch.next().await {
        Some(WatchLine::Compacted { oldest, .. }) => assert!(oldest > 1000),
        other => panic!("{other:?}"),
    }
    assert!(watch.next().await.is_none());
}
