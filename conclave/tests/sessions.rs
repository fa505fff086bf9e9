//! Sessions, locks and fencing tokens: how long a session lives, and who holds what when leaders
//! change.

use crate::support::{Cluster, DEADLINE, try_call, until};
use nix::sys::signal::Signal;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// More than an election and a scheduler under load need together.
const SLACK: Duration = Duration::from_secs(5);

async fn open(cluster: &Cluster, ttl_ms: u64) -> u64 {
    let opened = cluster
        .lead("/session/open", json!({"ttl_ms": ttl_ms}))
        .await;
    opened.ok()["session"].as_u64().unwrap()
}

#[tokio::test]
async fn a_session_lives_for_its_ttl_and_not_much_longer() {
    let cluster = Cluster::start(3, &[]).await;
    cluster.leader().await;
    let ttl = Duration::from_millis(1000);
    let asked = Instant::now();
    let first = open(&cluster, 1000).await;
    let token = cluster
        .lead("/lock/acquire", json!({"key": "L", "session": first}))
        .await;
    let token = token.ok()["token"].as_u64().unwrap();
    let renewed = Instant::now();
    cluster
        .lead("/session/renew", json!({"session": first}))
        .await
        .ok();
    assert!(
        asked.elapsed() < ttl,
        "this machine is too slow for the test"
    );
    let second = open(&cluster, 60_000).await;
    let granted = until("the session is over", async || {
        let reply = cluster
            .lead("/lock/acquire", json!({"key": "L", "session": second}))
            .await;
        match reply.error() {
            "held" => {
                assert_eq!(reply.body["holder"]["session"], first);
                assert_eq!(reply.body["holder"]["token"], token);
                None
            }
            _ => Some(reply.ok()["token"].as_u64().unwrap()),
        }
    })
    .await;
    let lived = renewed.elapsed();
    assert!(lived >= ttl, "it lived for {lived:?} only");
    assert!(lived < ttl + SLACK, "it lived for {lived:?}");
    assert!(granted > token);
    let late = cluster
        .lead("/session/renew", json!({"session": first}))
        .await;
    assert_eq!((late.status, late.error()), (404, "no-session"));
    let release = json!({"key": "L", "session": first, "token": token});
    let release = cluster.lead("/lock/release", release).await;
    assert_eq!((release.status, release.error()), (409, "not-holder"));
}

#[tokio::test]
async fn tokens_grow_over_changes_of_leader_and_a_renewed_session_survives_them() {
    let mut cluster = Cluster::start(3, &[]).await;
    let keeper = open(&cluster, 10_000).await;
    let held = cluster
        .lead("/lock/acquire", json!({"key": "kept", "session": keeper}))
        .await;
    let held = held.ok()["token"].as_u64().unwrap();
    let mut last = held;
    for round in 0..3 {
        let session = open(&cluster, 60_000).await;
        let acquire = json!({"key": "L", "session": session});
        let token = cluster.lead("/lock/acquire", acquire.clone()).await.ok()["token"].clone();
        let token = token.as_u64().unwrap();
        assert!(token > last, "token {token} after {last}");
        last = token;
        // The session that holds the lock gets the same token again.
        assert_eq!(
            cluster.lead("/lock/acquire", acquire).await.ok()["token"],
            token
        );
        let leader = cluster.leader().await;
        cluster.nodes[leader].kill();
        cluster.leader_among(&cluster.others(leader)).await;
        cluster.nodes[leader].start();
        cluster
            .lead("/session/renew", json!({"session": keeper}))
            .await
            .ok();
        let release = match round % 2 {
            0 => {
                cluster
                    .lead("/session/close", json!({"session": session}))
                    .await
            }
            _ => {
                let release = json!({"key": "L", "session": session, "token": token});
                cluster.lead("/lock/release", release).await
            }
        };
        release.ok();
    }
    let holder = cluster.lead("/lock/holder", json!({"key": "kept"})).await;
    assert_eq!(
        holder.ok()["holder"],
        json!({"session": keeper, "token": held, "value": null})
    );
}

#[tokio::test]
async fn a_leadership_publishes_its_value() {
    let cluster = Cluster::start(1, &[]).await;
    let (first, second) = (open(&cluster, 60_000).await, open(&cluster, 60_000).await);
    let campaign = |session, name| json!({"key": "E", "session": session, "value": name});
    let won = cluster.lead("/leader/campaign", campaign(first, "a")).await;
    let token = won.ok()["token"].as_u64().unwrap();
    let lost = cluster
        .lead("/leader/campaign", campaign(second, "b"))
        .await;
    assert_eq!((lost.status, lost.error()), (409, "held"));
    let observed = cluster.lead("/leader/observe", json!({"key": "E"})).await;
    let expected = json!({"session": first, "token": token, "value": "a"});
    assert_eq!(observed.ok()["holder"], expected);
    let resign = json!({"key": "E", "session": first, "token": token});
    cluster.lead("/leader/resign", resign).await.ok();
    assert!(
        cluster
            .lead("/leader/campaign", campaign(second, "b"))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_leader_that_was_stopped_hears_renewals_before_it_ends_sessions() {
    let cluster = Cluster::start(1, &["--election-timeout-ms", "4000"]).await;
    let session = open(&cluster, 1500).await;
    cluster.nodes[0].signal(Signal::SIGSTOP);
    let address = cluster.address(0).to_owned();
    let renew = json!({"session": session});
    let renewed =
        tokio::spawn(async move { try_call(&address, "/session/renew", renew, DEADLINE).await });
    // The one place where time itself is the event: the TTL has to pass.
    sleep(Duration::from_millis(2000)).await;
    cluster.nodes[0].signal(Signal::SIGCONT);
    renewed.await.unwrap().expect("the node answers").ok();
}

#[tokio::test]
async fn a_stalled_leader_takes_no_live_session_away() {
    let cluster = Cluster::start(3, &[]).await;
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(open(&cluster, 1500).await);
    }
    let old = cluster.leader().await;
    cluster.nodes[old].signal(Signal::SIGSTOP);
    let stopped = Instant::now();
    let new = cluster.leader_among(&cluster.others(old)).await;
    let renew = async || {
        for session in &sessions {
            let body = json!({"session": session});
            let reply = cluster.try_call(new, "/session/renew", body).await;
            reply.expect("the new leader answers").ok();
        }
    };
    // Until every deadline that the old leader remembers has passed.
    while stopped.elapsed() < Duration::from_millis(2000) {
        renew().await;
    }
    cluster.nodes[old].signal(Signal::SIGCONT);
    let resumed = Instant::now();
    while resumed.elapsed() < Duration::from_millis(500) {
        renew().await;
    }
}
