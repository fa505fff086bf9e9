//! Registers and sets while leaders are killed, stopped and cut off: nothing acknowledged is lost,
//! nothing stale is read, no term goes backwards.

use crate::support::{Cluster, DEADLINE, try_call, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

#[tokio::test]
async fn a_cluster_elects_a_leader_and_serves() {
    let begin = Instant::now();
    let cluster = Cluster::start(3, &[]).await;
    let leader = cluster.leader().await;
    eprintln!("a leader after {:?}", begin.elapsed());
    let put = cluster
        .call(leader, "/kv/put", json!({"key": "a", "value": 1}))
        .await;
    let revision = put.ok()["revision"].as_u64().unwrap();
    let get = cluster.call(leader, "/kv/get", json!({"key": "a"})).await;
    assert_eq!(get.ok(), &json!({"value": 1, "revision": revision}));
    let cas = json!({"key": "a", "old": 1, "new": {"b": [2]}});
    assert!(cluster.call(leader, "/kv/cas", cas.clone()).await.is_ok());
    let again = cluster.call(leader, "/kv/cas", cas).await;
    assert_eq!((again.status, again.error()), (409, "mismatch"));
    assert_eq!(again.body["actual"], json!({"b": [2]}));
    assert_eq!(again.body["definite"], true);
    let absent = cluster.call(leader, "/kv/get", json!({"key": "b"})).await;
    assert_eq!(absent.ok(), &json!({"value": null, "revision": 0}));
    for follower in cluster.others(leader) {
        let refused = cluster.call(follower, "/kv/get", json!({"key": "a"})).await;
        assert_eq!((refused.status, refused.error()), (421, "not-leader"));
        assert_eq!(refused.body["leader"], format!("n{}", leader + 1));
        assert_eq!(refused.body["addr"], cluster.address(leader));
        assert_eq!(refused.body["definite"], true);
    }
    let unknown = cluster
        .call(leader, "/kv/put", json!({"key": "a", "valeu": 1}))
        .await;
    assert_eq!((unknown.status, unknown.error()), (400, "bad-request"));
    cluster.converged().await;
}

/// Adds elements to a set as fast as it can until told to stop; returns those acknowledged.
async fn add(addresses: Vec<String>, writer: u64, stop: watch::Receiver<bool>) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    let mut addresses = addresses.iter().cycle();
    let mut leader = addresses.next().unwrap();
    let mut v = writer << 32;
    while !*stop.borrow() {
        v += 1;
        let body = json!({"key": "s", "v": v});
        match try_call(leader, "/set/add", body, Duration::from_secs(1)).await {
            Some(reply) if reply.is_ok() => acknowledged.push(v),
            Some(_) | None => leader = addresses.next().unwrap(),
        }
    }
    acknowledged
}

#[tokio::test]
async fn killing_leaders_under_load_loses_nothing() {
    let mut cluster = Cluster::start(3, &["--snapshot-every", "500"]).await;
    cluster.leader().await;
    let addresses: Vec<_> = (0..3)
        .map(|node| cluster.address(node).to_owned())
        .collect();
    let (stop, stopped) = watch::channel(false);
    let writers: Vec<_> = (0..4)
        .map(|w| tokio::spawn(add(addresses.clone(), w, stopped.clone())))
        .collect();
    let mut terms = [0; 3];
    for _ in 0..4 {
        let leader = cluster.leader().await;
        let before = cluster.status(leader).await.unwrap()["applied"]
            .as_u64()
            .unwrap();
        until("the writers write", async || {
            (cluster.status(leader).await?["applied"].as_u64()? > before + 50).then_some(())
        })
        .await;
        cluster.nodes[leader].kill();
        cluster.leader_among(&cluster.others(leader)).await;
        cluster.nodes[leader].start();
        for (node, term) in terms.iter_mut().enumerate() {
            let now = until("every node answers", async || cluster.status(node).await).await;
            let now = now["term"].as_u64().unwrap();
            assert!(
                now >= *term,
                "the term of n{} went from {term} to {now}",
                node + 1
            );
            *term = now;
        }
    }
    stop.send_replace(true);
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    eprintln!("{} acknowledged", acknowledged.len());
    cluster.converged().await;
    for node in 0..3 {
        let read = cluster
            .call(node, "/set/read", json!({"key": "s", "local": true}))
            .await;
        let values: Vec<u64> = serde_json::from_value(read.ok()["values"].clone()).unwrap();
        let values: BTreeSet<u64> = values.into_iter().collect();
        let lost = acknowledged.iter().filter(|v| !values.contains(v)).count();
        assert_eq!(lost, 0, "lost on n{}", node + 1);
    }
}

#[tokio::test]
async fn a_whole_cluster_can_be_killed_and_comes_back() {
    let mut cluster = Cluster::start(3, &[]).await;
    for round in 0..3 {
        let put = json!({"key": format!("k{round}"), "value": round});
        cluster.lead("/kv/put", put).await.ok();
        let term = cluster.status(0).await.unwrap()["term"].as_u64().unwrap();
        cluster.nodes.iter_mut().for_each(|node| node.kill());
        cluster.nodes.iter_mut().for_each(|node| node.start());
        let leader = cluster.leader().await;
        let status = cluster.status(leader).await.unwrap();
        assert!(
            status["term"].as_u64().unwrap() > term,
            "a term was used twice: {status}"
        );
        for old in 0..=round {
            let get = json!({"key": format!("k{old}")});
            assert_eq!(cluster.lead("/kv/get", get).await.ok()["value"], old);
        }
    }
}

#[tokio::test]
async fn a_leader_that_wakes_up_neither_reads_nor_grants() {
    let cluster = Cluster::start(3, &[]).await;
    for round in 0..3 {
        cluster
            .lead("/kv/put", json!({"key": "a", "value": round}))
            .await
            .ok();
        let leader = cluster.leader().await;
        cluster.nodes[leader].signal(Signal::SIGSTOP);
        // These requests wait in the stopped leader's sockets.
        let asked: Vec<_> = ["/kv/get", "/kv/put", "/lock/acquire"]
            .into_iter()
            .map(|path| {
                let body = match path {
                    "/kv/get" => json!({"key": "a"}),
                    "/kv/put" => json!({"key": "a", "value": "from the old leader"}),
                    _ => json!({"key": "L", "session": 1}),
                };
                let address = cluster.address(leader).to_owned();
                tokio::spawn(async move { try_call(&address, path, body, DEADLINE).await })
            })
            .collect();
        let others = cluster.others(leader);
        let next = cluster.leader_among(&others).await;
        let put = json!({"key": "a", "value": round + 100});
        let put = until("the new leader writes", async || {
            let reply = cluster.try_call(next, "/kv/put", put.clone()).await?;
            reply.is_ok().then_some(reply)
        });
        put.await;
        cluster.nodes[leader].signal(Signal::SIGCONT);
        for asked in asked {
            let reply = asked.await.unwrap().expect("the old leader answers");
            assert!([421, 503].contains(&reply.status), "{reply:?}");
        }
        let get = cluster.lead("/kv/get", json!({"key": "a"})).await;
        assert_eq!(get.ok()["value"], round + 100);
    }
}

#[tokio::test]
async fn an_isolated_leader_steps_down_and_acknowledges_nothing() {
    let cluster = Cluster::start(3, &["--request-timeout-ms", "1500"]).await;
    let leader = cluster.leader().await;
    cluster
        .lead("/kv/put", json!({"key": "a", "value": 0}))
        .await
        .ok();
    cluster.isolate(leader, true);
    let (write, read) = tokio::join!(
        cluster.call(leader, "/kv/put", json!({"key": "a", "value": "lost"})),
        cluster.call(leader, "/kv/get", json!({"key": "a"})),
    );
    assert_eq!(write.error(), "unknown", "{write:?}");
    assert_eq!(write.body["definite"], false);
    assert!(
        [421, 503].contains(&read.status) && read.body["definite"] == true,
        "{read:?}"
    );
    until("the leader steps down", async || {
        (cluster.status(leader).await?["role"] != "leader").then_some(())
    })
    .await;
    let next = cluster.leader_among(&cluster.others(leader)).await;
    let term = cluster.status(next).await.unwrap()["term"].clone();
    cluster.isolate(leader, false);
    let converged = cluster.converged().await;
    assert_eq!(converged["kv"]["a"]["value"], 0);
    // Pre-vote: the return of the isolated node disturbs nobody.
    assert_eq!(cluster.status(leader).await.unwrap()["term"], term);
}

#[tokio::test]
async fn a_write_that_lost_its_place_fails_definitely() {
    let cluster = Cluster::start(3, &[]).await;
    let leader = cluster.leader().await;
    cluster.isolate(leader, true);
    let address = cluster.address(leader).to_owned();
    let body = json!({"key": "a", "value": "lost"});
    let write = tokio::spawn(async move { try_call(&address, "/kv/put", body, DEADLINE).await });
    cluster.leader_among(&cluster.others(leader)).await;
    cluster.isolate(leader, false);
    let reply = write.await.unwrap().unwrap();
    assert_eq!(reply.error(), "superseded", "{reply:?}");
    assert_eq!(reply.body["definite"], true);
}

#[tokio::test]
async fn a_node_that_missed_too_much_gets_a_snapshot() {
    let mut cluster = Cluster::start(3, &["--snapshot-every", "200"]).await;
    let leader = cluster.leader().await;
    let behind = cluster.others(leader)[0];
    cluster.nodes[behind].kill();
    let address = cluster.address(leader).to_owned();
    let writers = (0..8).map(|writer| {
        let address = address.clone();
        tokio::spawn(async move {
            for n in 0..400 {
                let body = json!({"key": format!("{writer} {}", n % 7), "value": n});
                try_call(&address, "/kv/put", body, DEADLINE)
                    .await
                    .unwrap()
                    .ok();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    cluster.nodes[behind].start();
    let converged = cluster.converged().await;
    assert_eq!(converged["kv"].as_object().unwrap().len(), 56);
    assert!(
        cluster.nodes[behind]
            .log()
            .contains("installs the leader's snapshot")
    );
    // Kill it at once and let it come back from what it has.
    cluster.nodes[behind].kill();
    cluster.nodes[behind].start();
    assert_eq!(strip(&cluster.converged().await), strip(&converged));
    let log = std::fs::metadata(cluster.data(leader).join("log"))
        .unwrap()
        .len();
    assert!(log < 1 << 20, "the log has grown to {log} bytes");
}

/// A dump without its log index, which a change of leader moves.
fn strip(dump: &Value) -> Value {
    let mut dump = dump.clone();
    dump["applied"] = Value::Null;
    dump
}
