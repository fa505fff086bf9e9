//! All promises at once, under faults in a random order: nodes are killed, stopped and cut off, links
//! are cut in one direction or both, while clients count, add, lock and watch who leads.
//!
//! `CONCLAVE_SOAK_SECONDS` and `CONCLAVE_SOAK_SEED` make it longer or different; with a switch in
//! `CONCLAVE_SOAK_FLAGS` it is expected to fail.

use crate::support::{Cluster, Reply, try_call, until};
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const TTL: Duration = Duration::from_millis(1500);

/// What the clients have seen together.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    /// The highest value of the counter that a write or a read has returned.
    counter: AtomicU64,
    /// Values of the counter whose write was acknowledged, in no order.
    counted: Mutex<Vec<u64>>,
    added: Mutex<Vec<u64>>,
    token: AtomicU64,
    ids: Mutex<Vec<u64>>,
    /// When each session held the lock for certain.
    holds: Mutex<Vec<(Instant, Instant, u64)>>,
    leaders: Mutex<BTreeMap<u64, String>>,
}

/// A client that looks for the leader.
struct Client {
    addresses: Vec<String>,
    at: usize,
}

impl Client {
    async fn call(&mut self, path: &str, body: Value) -> Option<Reply> {
        let limit = Duration::from_millis(1000);
        let reply = try_call(&self.addresses[self.at], path, body, limit).await;
        if reply
            .as_ref()
            .is_none_or(|reply| reply.status == 421 || reply.status == 503)
        {
            self.at = (self.at + 1) % self.addresses.len();
            sleep(Duration::from_millis(5)).await;
        }
        reply
    }

    async fn ok(&mut self, path: &str, body: Value) -> Option<Value> {
        self.call(path, body)
            .await
            .filter(Reply::is_ok)
            .map(|reply| reply.body)
    }
}

/// Counts: reads and compare-and-sets of one register.
async fn count(mut client: Client, seen: Arc<Seen>) {
    while !seen.stop.load(SeqCst) {
        let floor = seen.counter.load(SeqCst);
        let Some(read) = client.ok("/kv/get", json!({"key": "c"})).await else {
            continue;
        };
        let value = read["value"].as_u64().unwrap_or(0);
        assert!(value >= floor, "read {value} after {floor} had been seen");
        seen.counter.fetch_max(value, SeqCst);
        let old = if value == 0 {
            Value::Null
        } else {
            value.into()
        };
        let cas = json!({"key": "c", "old": old, "new": value + 1});
        if client.ok("/kv/cas", cas).await.is_some() {
            seen.counter.fetch_max(value + 1, SeqCst);
            seen.counted.lock().unwrap().push(value + 1);
        }
    }
}

/// Adds to a set, and takes ids.
async fn add(mut client: Client, seen: Arc<Seen>, writer: u64) {
    let mut v = writer << 32;
    while !seen.stop.load(SeqCst) {
        v += 1;
        if client
            .ok("/set/add", json!({"key": "s", "v": v}))
            .await
            .is_some()
        {
            seen.added.lock().unwrap().push(v);
        }
        if let Some(id) = client.ok("/ids/generate", json!({})).await {
            seen.ids.lock().unwrap().push(id["id"].as_u64().unwrap());
        }
    }
}

/// Takes a lock, renews it some times and gives it back, or forgets about it.
async fn lock(mut client: Client, seen: Arc<Seen>, mut random: StdRng) {
    let ttl_ms = TTL.as_millis() as u64;
    'session: while !seen.stop.load(SeqCst) {
        let mut renewed = Instant::now();
        let opened = client.ok("/session/open", json!({"ttl_ms": ttl_ms})).await;
        let Some(session) = opened.and_then(|opened| opened["session"].as_u64()) else {
            continue;
        };
        let mut held: Option<(Instant, u64)> = None;
        for _ in 0..random.random_range(5..25) {
            if held.is_none() {
                let floor = seen.token.load(SeqCst);
                let acquire = json!({"key": "L", "session": session});
                if let Some(granted) = client.ok("/lock/acquire", acquire).await {
                    let token = granted["token"].as_u64().unwrap();
                    assert!(token > floor, "token {token} after {floor}");
                    seen.token.fetch_max(token, SeqCst);
                    held = Some((Instant::now(), token));
                }
            }
            sleep(Duration::from_millis(random.random_range(10..150))).await;
            let asked = Instant::now();
            match client
                .call("/session/renew", json!({"session": session}))
                .await
            {
                Some(reply) if reply.is_ok() => renewed = asked,
                Some(reply) if reply.error() == "no-session" => {
                    let lived = renewed.elapsed();
                    assert!(
                        lived >= TTL,
                        "session {session} ended {lived:?} after its renewal"
                    );
                    record(&seen, held, renewed + TTL, session);
                    continue 'session;
                }
                _ => {}
            }
        }
        match held {
            Some((_, token)) if random.random_bool(0.5) => {
                let asked = Instant::now();
                let release = json!({"key": "L", "session": session, "token": token});
                client.call("/lock/release", release).await;
                record(&seen, held, asked.min(renewed + TTL), session);
            }
            held => record(&seen, held, renewed + TTL, session),
        }
    }
}

fn record(seen: &Seen, held: Option<(Instant, u64)>, until: Instant, session: u64) {
    if let Some((from, _)) = held.filter(|(from, _)| *from < until) {
        seen.holds.lock().unwrap().push((from, until, session));
    }
}

/// Asks a node again and again who leads.
async fn observe(address: String, seen: Arc<Seen>) {
    let mut last = 0;
    while !seen.stop.load(SeqCst) {
        sleep(Duration::from_millis(10)).await;
        let limit = Duration::from_secs(20);
        let Some(status) = try_call(&address, "/status", json!({}), limit).await else {
            continue;
        };
        let term = status.body["term"].as_u64().unwrap();
        assert!(term >= last, "the term went from {last} to {term}");
        last = term;
        if let Some(leader) = status.body["leader"].as_str() {
            let mut leaders = seen.leaders.lock().unwrap();
            let first = leaders.entry(term).or_insert_with(|| leader.to_owned());
            assert_eq!(first, leader, "two leaders in term {term}");
        }
    }
}

/// Does one kind of harm and undoes it.
async fn harm(cluster: &mut Cluster, random: &mut StdRng) {
    let node = random.random_range(0..cluster.nodes.len());
    let other = *cluster.others(node).choose(random).unwrap();
    let time = Duration::from_millis(random.random_range(100..2500));
    let kind = random.random_range(0..7);
    eprintln!(
        "harm {kind} to n{} and n{} for {time:?}",
        node + 1,
        other + 1
    );
    match kind {
        0 => cluster.isolate(node, true),
        1 => cluster.cut(&[(node, other), (other, node)], true),
        2 => cluster.cut(&[(node, other)], true),
        3 => cluster.nodes[node].kill(),
        4 => cluster.nodes[node].signal(Signal::SIGSTOP),
        5 => {
            cluster.isolate(node, true);
            cluster.nodes[other].kill();
        }
        _ => cluster.nodes.iter_mut().for_each(|node| node.kill()),
    }
    sleep(if kind == 6 { Duration::ZERO } else { time }).await;
    cluster.isolate(node, false);
    match kind {
        3 => cluster.nodes[node].start(),
        4 => cluster.nodes[node].signal(Signal::SIGCONT),
        5 => cluster.nodes[other].start(),
        6 => cluster.nodes.iter_mut().for_each(|node| node.start()),
        _ => {}
    }
    sleep(Duration::from_millis(random.random_range(100..2000))).await;
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .map_or(otherwise, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_promise_is_kept_under_random_faults() {
    let seed = number("CONCLAVE_SOAK_SEED", 7);
    let time = Duration::from_secs(number("CONCLAVE_SOAK_SECONDS", 15));
    let mut random = StdRng::seed_from_u64(seed);
    let flags = std::env::var("CONCLAVE_SOAK_FLAGS").unwrap_or_default();
    let flags: Vec<_> = ["--snapshot-every", "300"]
        .into_iter()
        .chain(flags.split_whitespace())
        .collect();
    let mut cluster = Cluster::start(3, &flags).await;
    cluster.leader().await;
    let addresses: Vec<_> = (0..3)
        .map(|node| cluster.address(node).to_owned())
        .collect();
    let client = || Client {
        addresses: addresses.clone(),
        at: 0,
    };
    let seen = Arc::new(Seen::default());
    let mut tasks = Vec::new();
    for n in 0..3 {
        tasks.push(tokio::spawn(count(client(), Arc::clone(&seen))));
        tasks.push(tokio::spawn(add(client(), Arc::clone(&seen), n)));
        let random = StdRng::seed_from_u64(random.random());
        tasks.push(tokio::spawn(lock(client(), Arc::clone(&seen), random)));
        tasks.push(tokio::spawn(observe(
            addresses[n as usize].clone(),
            Arc::clone(&seen),
        )));
    }
    let begin = Instant::now();
    while begin.elapsed() < time && tasks.iter().all(|task| !task.is_finished()) {
        harm(&mut cluster, &mut random).await;
    }
    until("clients work again", async || {
        let count = seen.counted.lock().unwrap().len();
        sleep(Duration::from_millis(300)).await;
        let working = seen.counted.lock().unwrap().len() > count;
        (working || tasks.iter().any(|task| task.is_finished())).then_some(())
    })
    .await;
    seen.stop.store(true, SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    check(&cluster, &seen).await;
}

/// Checks what can only be known at the end.
async fn check(cluster: &Cluster, seen: &Seen) {
    let dump = cluster.converged().await;
    let mut counted = seen.counted.lock().unwrap().clone();
    counted.sort();
    assert!(
        counted.windows(2).all(|pair| pair[0] < pair[1]),
        "two writes made the same count"
    );
    let last = dump["kv"]["c"]["value"].as_u64().unwrap_or(0);
    assert!(
        last >= seen.counter.load(SeqCst),
        "the counter went back to {last}"
    );
    let added = seen.added.lock().unwrap().clone();
    for node in 0..3 {
        let read = cluster
            .call(node, "/set/read", json!({"key": "s", "local": true}))
            .await;
        let mut values: Vec<u64> = serde_json::from_value(read.body["values"].clone()).unwrap();
        values.sort();
        let lost = added
            .iter()
            .filter(|v| values.binary_search(v).is_err())
            .count();
        assert_eq!(
            lost,
            0,
            "of {} added were lost on n{}",
            added.len(),
            node + 1
        );
    }
    let mut ids = seen.ids.lock().unwrap().clone();
    ids.sort();
    assert!(
        ids.windows(2).all(|pair| pair[0] < pair[1]),
        "an id was given out twice"
    );
    let mut holds = seen.holds.lock().unwrap().clone();
    holds.sort();
    for pair in holds.windows(2) {
        assert!(
            pair[0].1 <= pair[1].0,
            "two held the lock at once: {pair:?}"
        );
    }
    eprintln!(
        "{} counts, {} elements, {} ids, {} holds, {} terms with a leader",
        counted.len(),
        added.len(),
        ids.len(),
        holds.len(),
        seen.leaders.lock().unwrap().len(),
    );
}
