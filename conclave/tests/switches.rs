//! Each switch makes its mistake, under the faults that the list of switches names for it; and
//! without it the same faults do no harm (see the other files).
//!
//! Not here: `--no-fencing` (with the vault), `--wall-clock-leases` (a unit test of the leases, and the
//! suite of mutants, for no test may set the clock of the machine) and `--no-fsync` (a unit test of the
//! storage).

use crate::support::{Cluster, until};
use crate::watches::Watch;
use conclave::api::WatchLine;
use nix::sys::signal::Signal;
use serde_json::json;
use std::collections::BTreeMap;

#[tokio::test]
async fn stale_reads_are_stale_when_the_leader_was_stopped() {
    let cluster = Cluster::start(3, &["--stale-reads", "--no-check-quorum"]).await;
    cluster
        .lead("/kv/put", json!({"key": "a", "value": "old"}))
        .await
        .ok();
    let old = cluster.leader().await;
    cluster.isolate(old, true);
    let new = cluster.leader_among(&cluster.others(old)).await;
    cluster
        .call(new, "/kv/put", json!({"key": "a", "value": "new"}))
        .await
        .ok();
    let read = cluster.call(old, "/kv/get", json!({"key": "a"})).await;
    assert_eq!(read.ok()["value"], "old");
    // Without check-quorum the old leader never gives up.
    assert_eq!(cluster.status(old).await.unwrap()["role"], "leader");
}

#[tokio::test]
async fn early_acknowledgements_are_lost_with_the_leader() {
    let cluster = Cluster::start(3, &["--ack-before-commit"]).await;
    let old = cluster.leader().await;
    cluster
        .call(old, "/kv/put", json!({"key": "a", "value": "kept"}))
        .await
        .ok();
    // Without faults a read sees what was acknowledged.
    assert_eq!(
        cluster.lead("/kv/get", json!({"key": "a"})).await.ok()["value"],
        "kept"
    );
    cluster.isolate(old, true);
    cluster
        .call(old, "/kv/put", json!({"key": "a", "value": "lost"}))
        .await
        .ok();
    cluster.leader_among(&cluster.others(old)).await;
    cluster.isolate(old, false);
    assert_eq!(cluster.converged().await["kv"]["a"]["value"], "kept");
}

#[tokio::test]
async fn a_forgotten_vote_gives_a_term_two_leaders() {
    let mut cluster = Cluster::start(3, &["--forget-vote"]).await;
    let mut leaders: BTreeMap<u64, usize> = BTreeMap::new();
    let twice = loop {
        let leader = cluster.leader().await;
        let term = cluster.status(leader).await.unwrap()["term"]
            .as_u64()
            .unwrap();
        if leaders
            .insert(term, leader)
            .is_some_and(|before| before != leader)
        {
            break term;
        }
        cluster.nodes.iter_mut().for_each(|node| node.kill());
        cluster.nodes.iter_mut().for_each(|node| node.start());
    };
    eprintln!("term {twice} had two leaders");
}

#[tokio::test]
async fn local_tokens_and_ids_start_again_at_every_leader() {
    let mut cluster = Cluster::start(3, &["--token-from-stale-state", "--dup-ids"]).await;
    let (mut tokens, mut ids) = (Vec::new(), Vec::new());
    for key in ["a", "b"] {
        let leader = cluster.leader().await;
        let opened = cluster
            .lead("/session/open", json!({"ttl_ms": 60_000}))
            .await;
        for n in 0..3 {
            let acquire = json!({"key": format!("{key}{n}"), "session": opened.body["session"]});
            let granted = cluster.lead("/lock/acquire", acquire).await;
            tokens.push(granted.ok()["token"].as_u64().unwrap());
            ids.push(
                cluster.lead("/ids/generate", json!({})).await.ok()["id"]
                    .as_u64()
                    .unwrap(),
            );
        }
        cluster.nodes[leader].kill();
        cluster.leader_among(&cluster.others(leader)).await;
        cluster.nodes[leader].start();
    }
    assert_eq!(tokens, [1, 2, 3, 1, 2, 3]);
    assert_eq!(ids, [1, 2, 3, 1, 2, 3]);
}

#[tokio::test]
async fn a_watch_with_a_gap_skips_what_it_was_asked_for() {
    let cluster = Cluster::start(1, &["--watch-gap"]).await;
    cluster
        .lead("/kv/put", json!({"key": "a", "value": "missed"}))
        .await
        .ok();
    let mut watch = Watch::open(cluster.address(0), Some(1)).await;
    assert!(matches!(
        watch.next().await,
        Some(WatchLine::Progress { .. })
    ));
    cluster
        .lead("/kv/put", json!({"key": "a", "value": "seen"}))
        .await
        .ok();
    loop {
        if let Some(WatchLine::Event(event)) = watch.next().await {
            break assert_eq!(event.value, "seen");
        }
    }
}

#[tokio::test]
async fn without_pre_vote_a_node_that_was_cut_off_unseats_the_leader() {
    let cluster = Cluster::start(3, &["--no-prevote"]).await;
    let leader = cluster.leader().await;
    let term = cluster.status(leader).await.unwrap()["term"]
        .as_u64()
        .unwrap();
    let cut = cluster.others(leader)[0];
    cluster.isolate(cut, true);
    until("the term of the node that is cut off grows", async || {
        (cluster.status(cut).await?["term"].as_u64()? > term + 1).then_some(())
    })
    .await;
    cluster.isolate(cut, false);
    until("the others follow it", async || {
        (cluster.status(leader).await?["term"].as_u64()? > term + 1).then_some(())
    })
    .await;
    cluster.leader().await;
}

#[tokio::test]
async fn with_stale_reads_a_leader_that_wakes_up_answers_what_it_remembers() {
    let cluster = Cluster::start(3, &["--stale-reads"]).await;
    cluster
        .lead("/kv/put", json!({"key": "a", "value": 0}))
        .await
        .ok();
    // The read and the news of the new leader race in the old one; the read wins sooner or later.
    let mut round = 0;
    until("an old value is read", async || {
        round += 1;
        let old = cluster.leader().await;
        cluster.nodes[old].signal(Signal::SIGSTOP);
        let address = cluster.address(old).to_owned();
        let get = json!({"key": "a"});
        let read = tokio::spawn(async move {
            crate::support::try_call(&address, "/kv/get", get, crate::support::DEADLINE).await
        });
        let new = cluster.leader_among(&cluster.others(old)).await;
        let put = json!({"key": "a", "value": round});
        let acknowledged = cluster
            .try_call(new, "/kv/put", put)
            .await
            .is_some_and(|r| r.is_ok());
        cluster.nodes[old].signal(Signal::SIGCONT);
        let read = read.await.unwrap().unwrap();
        (acknowledged && read.is_ok() && read.body["value"] != round).then_some(())
    })
    .await;
}
