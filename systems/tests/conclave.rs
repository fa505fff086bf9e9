//! The client of conclave, and the holder of a lock, against real nodes and a real vault.

mod common;

use std::time::Duration;

use common::{Bench, acquire, fail, ok, put, token, until_ok};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use systems::conformance::program::{Ended, Program, Question, Told};

#[tokio::test]
async fn a_follower_refuses_and_the_next_operation_goes_to_the_leader() {
    let mut bench = Bench::start("conclave", 3, None).await;
    let all: Vec<_> = bench.cluster.iter().collect();
    let leader = bench.leader(&all).await;
    let follower = all
        .iter()
        .find(|server| server.name != leader.name)
        .unwrap();
    let mut client = bench.client("register", json!({})).await;
    let write = Question::new(1, "write", "x", json!(1));
    let refused = fail(
        &mut client,
        &Question {
            node: Some(&follower.name),
            ..write.clone()
        },
    )
    .await;
    assert_eq!(refused, "not-leader");
    // It was told who leads.
    assert_eq!(ok(&mut client, &write).await, json!(1));
    // A serializable read is answered by any node, sooner or later with what was written.
    let read = Question {
        node: Some(&follower.name),
        ..Question::new(1, "read-serializable", "x", Value::Null)
    };
    while ok(&mut client, &read).await != json!(1) {}

    bench.servers.kill(&leader, "conclave").await.unwrap();
    let unreachable = fail(
        &mut client,
        &Question {
            node: Some(&leader.name),
            ..write
        },
    )
    .await;
    // The connection that was open is seen to be gone before anything is sent.
    assert!(unreachable.starts_with("unreachable: "), "{unreachable}");
    let write = Question::new(1, "write", "x", json!(2));
    assert_eq!(until_ok(&mut client, &write).await, json!(2));
    let read = Question::new(1, "read", "x", Value::Null);
    assert_eq!(until_ok(&mut client, &read).await, json!(2));
    assert_eq!(client.violations, Vec::<String>::new());
}

#[tokio::test]
async fn sets_and_ids_are_what_was_asked_for() {
    let bench = Bench::start("conclave", 1, None).await;
    let mut client = bench.client("set", json!({})).await;
    for v in 0..10 {
        ok(
            &mut client,
            &Question::new(v % 3, "add", Value::Null, json!(v)),
        )
        .await;
    }
    for node in [None, Some("n1")] {
        let read = Question {
            node,
            ..Question::new(1, "final-read", Value::Null, Value::Null)
        };
        let mut elements: Vec<u64> = serde_json::from_value(ok(&mut client, &read).await).unwrap();
        elements.sort_unstable();
        assert_eq!(elements, (0..10).collect::<Vec<_>>());
    }
}

/// Stops the whole program, as a fault does, and lets it go on after this long.
async fn freeze(program: &Program, lasting: Duration) {
    let pid = Pid::from_raw(program.pid().unwrap().try_into().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    tokio::time::sleep(lasting).await;
    kill(pid, Signal::SIGCONT).unwrap();
}

const TTL_MS: u64 = 1_000;

/// A takes the lock, writes, and is frozen between its check and its next write until B has the
/// lock and has written. What comes of A's write?
async fn frozen_holder(holder: &str, fencing: bool) -> (Ended, Value) {
    let bench = Bench::start("conclave", 1, Some(fencing)).await;
    let params = json!({"holder": holder, "check-to-write-pause": "400ms"});
    let mut a = bench.client("lock", params).await;
    let mut b = bench.client("lock", json!({"holder": "naive"})).await;
    let first = token(&ok(&mut a, &acquire(1, 60_000)).await);
    ok(&mut a, &put(1, 1, first)).await;
    ok(&mut a, &Question::new(1, "release", "L", Value::Null)).await;

    let mine = token(&ok(&mut a, &acquire(1, TTL_MS)).await);
    let open = a.ask(&put(1, 2, mine)).await;
    // It is asleep between check and write now, or about to be.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let frozen = freeze(&a, Duration::from_secs(4));
    let other = async {
        let theirs = token(&until_ok(&mut b, &acquire(1, 60_000)).await);
        ok(&mut b, &put(1, 3, theirs)).await;
        theirs
    };
    let ((), theirs) = tokio::join!(frozen, other);
    assert!(theirs > mine);
    let ended = a.answer(open, Duration::from_secs(20)).await.unwrap();
    let left = ok(&mut b, &Question::new(1, "get", "r", Value::Null)).await;
    assert_eq!(a.violations, Vec::<String>::new());
    (ended, left)
}

#[tokio::test]
async fn a_naive_holder_that_wakes_overwrites_what_another_one_wrote() {
    let (ended, left) = frozen_holder("naive", false).await;
    assert!(matches!(ended, Ended::Ok(_)), "{ended:?}");
    assert_eq!(left["v"], json!(2));
}

#[tokio::test]
async fn a_deadline_does_not_help_between_the_check_and_the_write() {
    let (ended, left) = frozen_holder("deadline", false).await;
    assert!(matches!(ended, Ended::Ok(_)), "{ended:?}");
    assert_eq!(left["v"], json!(2));
}

#[tokio::test]
async fn a_fenced_vault_refuses_the_old_token() {
    let (ended, left) = frozen_holder("fenced", true).await;
    assert_eq!(ended, Ended::Fail("stale-token".to_owned()));
    assert_eq!(left["v"], json!(3));
}

#[tokio::test]
async fn a_deadline_stops_a_holder_that_was_frozen_before_its_check() {
    let bench = Bench::start("conclave", 1, Some(false)).await;
    let mut client = bench.client("lock", json!({"holder": "deadline"})).await;
    let mine = token(&ok(&mut client, &acquire(1, TTL_MS)).await);
    freeze(&client, Duration::from_millis(TTL_MS + 100)).await;
    assert_eq!(fail(&mut client, &put(1, 1, mine)).await, "deadline-passed");
    let lost = Told {
        f: "lost".to_owned(),
        key: json!("L"),
    };
    assert_eq!(client.told, [lost]);
    // It has nothing any more, and says so only once.
    assert_eq!(fail(&mut client, &put(1, 1, mine)).await, "not-held");
    let act = Question::new(1, "act", "L", Value::Null);
    assert_eq!(fail(&mut client, &act).await, "not-held");
    assert_eq!(client.told.len(), 1);
}

#[tokio::test]
async fn a_holder_that_is_told_by_its_renewal_says_that_it_lost() {
    let bench = Bench::start("conclave", 1, Some(false)).await;
    let mut client = bench.client("leader", json!({"holder": "naive"})).await;
    let mine = token(&ok(&mut client, &acquire(1, 300)).await);
    let renew = Question::new(1, "renew", "L", json!({"ttl_ms": 300, "token": mine}));
    // The lease ends when nobody renews it; another one then gets a higher token.
    let theirs = token(&until_ok(&mut client, &acquire(2, 60_000)).await);
    assert!(theirs > mine);
    assert_eq!(fail(&mut client, &renew).await, "not-held");
    assert_eq!(client.told.len(), 1);
    // A naive holder still writes when it is told to.
    ok(&mut client, &put(1, 1, mine)).await;
}

#[tokio::test]
async fn a_client_refuses_what_it_cannot_take() {
    let bench = Bench::start("conclave", 1, None).await;
    let mut client = bench.client("lock", json!({})).await;
    let no_ttl = Question::new(1, "acquire", "L", Value::Null);
    assert!(
        fail(&mut client, &no_ttl)
            .await
            .starts_with("bad-argument: acquire")
    );
    assert_eq!(fail(&mut client, &put(1, 1, 1)).await, "no-vault");
    let nowhere = Question {
        node: Some("n9"),
        ..acquire(1, 5)
    };
    assert_eq!(fail(&mut client, &nowhere).await, "unknown-node: n9");
    assert!(
        client
            .finish(Duration::from_secs(10))
            .await
            .unwrap()
            .success()
    );
}
