//! The client of etcd against real members. `SCHISM_SKIP_ETCD=1` leaves it out where etcd cannot be
//! installed; a machine without etcd otherwise fails.

mod common;

use std::time::Duration;

use common::{Bench, acquire, fail, ok, put, token, until_ok};
use serde_json::{Value, json};
use systems::conformance::program::{Ended, Question};

/// Whether to run; fails with what to install where it should and cannot.
fn wanted() -> bool {
    if std::env::var_os("SCHISM_SKIP_ETCD").is_some() {
        eprintln!("left out: SCHISM_SKIP_ETCD is set");
        return false;
    }
    let version = systems::find("etcd").unwrap().version();
    let version = version.unwrap_or_else(|error| panic!("{error} (or set SCHISM_SKIP_ETCD=1)"));
    assert!(version.starts_with("3."), "{version}");
    true
}

#[tokio::test]
async fn members_agree_who_leads_and_serve_a_register() {
    if !wanted() {
        return;
    }
    let mut bench = Bench::start("etcd", 3, None).await;
    let all: Vec<_> = bench.cluster.iter().collect();
    let leader = bench.leader(&all).await;
    let follower = (*all
        .iter()
        .find(|server| server.name != leader.name)
        .unwrap())
    .clone();
    let mut client = bench.client("register", json!({})).await;

    let at_follower = |f, value| Question {
        node: Some(&follower.name),
        ..Question::new(1, f, "x", value)
    };
    assert_eq!(
        ok(&mut client, &at_follower("read", Value::Null)).await,
        Value::Null
    );
    assert_eq!(
        ok(&mut client, &at_follower("write", json!(1))).await,
        json!(1)
    );
    assert_eq!(
        ok(&mut client, &at_follower("read", Value::Null)).await,
        json!(1)
    );
    assert_eq!(
        ok(&mut client, &at_follower("cas", json!([1, 2]))).await,
        json!([1, 2])
    );
    assert_eq!(
        fail(&mut client, &at_follower("cas", json!([1, 3]))).await,
        "mismatch"
    );
    assert_eq!(
        fail(&mut client, &at_follower("cas", json!([null, 3]))).await,
        "mismatch"
    );
    let read = Question::new(2, "read", "x", Value::Null);
    assert_eq!(ok(&mut client, &read).await, json!(2));
    let serializable = Question::new(1, "read-serializable", "x", Value::Null);
    while ok(&mut client, &serializable).await != json!(2) {}
    assert_eq!(
        ok(&mut client, &at_follower("write", Value::Null)).await,
        Value::Null
    );
    assert_eq!(
        ok(&mut client, &at_follower("cas", json!([null, 5]))).await,
        json!([null, 5])
    );

    bench.servers.kill(&leader, "etcd").await.unwrap();
    let gone = Question {
        node: Some(&leader.name),
        ..Question::new(1, "write", "x", json!(6))
    };
    assert!(fail(&mut client, &gone).await.starts_with("unreachable: "));
    // With two of three a new leader is elected; with one of three nothing can be written.
    let write = Question::new(3, "write", "x", json!(7));
    assert_eq!(until_ok(&mut client, &write).await, json!(7));
    bench.servers.kill(&follower, "etcd").await.unwrap();
    let last = bench
        .cluster
        .iter()
        .find(|s| s.name != leader.name && s.name != follower.name);
    let write = Question {
        node: Some(&last.unwrap().name),
        timeout: Duration::from_secs(2),
        ..Question::new(4, "write", "x", json!(8))
    };
    let ended = client.invoke(&write).await.unwrap();
    assert!(matches!(ended, Ended::Info(_)), "{ended:?}");
    assert_eq!(client.violations, Vec::<String>::new());
}

#[tokio::test]
async fn a_lease_holds_a_lock_and_its_revision_is_the_token() {
    if !wanted() {
        return;
    }
    let bench = Bench::start("etcd", 1, Some(true)).await;
    for workload in ["lock", "leader"] {
        let mut client = bench.client(workload, json!({"holder": "fenced"})).await;
        // A second and a half becomes two, and that is said.
        let granted = ok(&mut client, &acquire(1, 1_500)).await;
        assert_eq!(granted["ttl_ms"], json!(2_000));
        let mine = token(&granted);
        assert_eq!(fail(&mut client, &acquire(2, 60_000)).await, "held");
        let renew = Question::new(1, "renew", "L", json!({"ttl_ms": 1_500, "token": mine}));
        ok(&mut client, &renew).await;
        ok(&mut client, &put(1, 1, mine)).await;

        // Nobody renews it, so that it ends.
        let theirs = token(&until_ok(&mut client, &acquire(2, 60_000)).await);
        assert!(theirs > mine);
        assert_eq!(fail(&mut client, &renew).await, "not-held");
        assert_eq!(client.told.len(), 1);
        ok(&mut client, &put(2, 2, theirs)).await;
        assert_eq!(fail(&mut client, &put(1, 3, mine)).await, "stale-token");

        let release = Question::new(2, "release", "L", json!({"token": theirs}));
        ok(&mut client, &release).await;
        assert_eq!(fail(&mut client, &release).await, "not-held");
        let granted = ok(&mut client, &acquire(3, 60_000)).await;
        assert_eq!(granted.get("ttl_ms"), None);
        assert!(token(&granted) > theirs);
    }
}

#[tokio::test]
async fn sets_are_read_from_each_member_and_ids_are_unique() {
    if !wanted() {
        return;
    }
    let bench = Bench::start("etcd", 1, None).await;
    let mut client = bench.client("set", json!({})).await;
    for v in [json!(1), json!(12), json!("a/b")] {
        ok(&mut client, &Question::new(1, "add", "s", v)).await;
    }
    for node in [None, Some("n1")] {
        let read = Question {
            node,
            ..Question::new(1, "final-read", "s", Value::Null)
        };
        let elements = ok(&mut client, &read).await;
        let elements = elements.as_array().unwrap();
        assert_eq!(elements.len(), 3);
        assert!(elements.contains(&json!("a/b")) && elements.contains(&json!(12)));
    }
    let other = Question::new(1, "final-read", "t", Value::Null);
    assert_eq!(ok(&mut client, &other).await, json!([]));

    let mut client = bench.client("ids", json!({})).await;
    let generate = Question::new(1, "generate", Value::Null, Value::Null);
    let first = ok(&mut client, &generate).await;
    assert_ne!(first, ok(&mut client, &generate).await);
}
