//! What the switch does to frames.

use std::time::Duration;

use cluster::{LinkPolicy, Pipe};

use crate::support::{Lab, program, until};

/// Sends probes over a link and says how many arrived. It returns when the switch has judged all of
/// them and the agent has counted those that passed.
async fn probe(lab: &Lab, from: &str, to: &str, count: u64) -> u64 {
    let (from, to) = (lab.node(from), lab.node(to));
    let counters = || async {
        let counters = lab.cluster.network().counters().await.expect("counters");
        *counters.at(from.index(), to.index())
    };
    let before = counters().await;
    let nonce = cluster::clock::monotonic_ns();
    from.send_probe(to.addr(), nonce, count as u32)
        .await
        .expect("sent");
    until("the switch's verdict", || async {
        let now = counters().await;
        now.delivered + now.dropped == before.delivered + before.dropped + count
    })
    .await;
    let passed = counters().await.delivered - before.delivered;
    until("what passed", || async {
        to.probe_count(nonce).await.expect("a count") >= passed
    })
    .await;
    to.probe_count(nonce).await.expect("a count")
}

impl Lab {
    /// Applies a matrix that is clear but for these links.
    async fn apply(&self, links: &[(&str, &str, LinkPolicy)]) -> cluster::Applied {
        let mut matrix = self.cluster.network().clear_matrix();
        for (from, to, policy) in links {
            matrix.set(from, to, *policy).expect("a link");
        }
        self.cluster
            .network()
            .apply(&matrix)
            .await
            .expect("applied")
    }

    /// Waits until the switch has read the frames that were sent, and delays them.
    async fn held(&self, count: u64) {
        until("the frames", || async {
            let counters = self.cluster.network().counters().await.expect("counters");
            counters.at(0, 1).held == count
        })
        .await;
    }

    /// How many probes arrive over every link of three nodes.
    async fn probe_all(&self, count: u64) -> [[u64; 3]; 3] {
        let names = ["n1", "n2", "n3"];
        let mut arrived = [[0; 3]; 3];
        for (at, from) in names.iter().enumerate() {
            for (to_at, to) in names.iter().enumerate().filter(|(to_at, _)| *to_at != at) {
                arrived[at][to_at] = probe(self, from, to, count).await;
            }
        }
        arrived
    }
}

pub(crate) async fn cuts_are_cuts_in_their_direction_only() {
    let lab = Lab::new(3).await;
    assert_eq!(
        lab.probe_all(10).await,
        [[0, 10, 10], [10, 0, 10], [10, 10, 0]]
    );
    let first = lab.apply(&[("n1", "n2", LinkPolicy::CUT)]).await;
    assert_eq!(
        lab.probe_all(10).await,
        [[0, 0, 10], [10, 0, 10], [10, 10, 0]]
    );
    let cut = LinkPolicy::CUT;
    let second = lab.apply(&[("n1", "n3", cut), ("n3", "n1", cut)]).await;
    assert_eq!(
        lab.probe_all(10).await,
        [[0, 10, 0], [10, 0, 10], [0, 10, 0]]
    );
    let healed = lab.apply(&[]).await;
    assert_eq!(
        lab.probe_all(10).await,
        [[0, 10, 10], [10, 0, 10], [10, 10, 0]]
    );
    assert_eq!(
        (first.generation, second.generation, healed.generation),
        (1, 2, 3)
    );
    assert!(first.at_ns < second.at_ns && second.at_ns < healed.at_ns);

    let counters = lab.cluster.network().counters().await.expect("counters");
    let at = |from, to| {
        (
            counters.at(from, to).delivered,
            counters.at(from, to).dropped,
        )
    };
    assert_eq!((at(0, 1), at(1, 0)), ((30, 10), (40, 0)));
    assert_eq!((at(0, 2), at(2, 0)), ((30, 10), (30, 10)));
    assert_eq!(counters.overruns, [0, 0, 0]);
    lab.end().await;
}

async fn line(pipe: &mut Pipe) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let chunk = pipe.stdout.read().await.expect("a line before the end");
        line.extend_from_slice(&chunk);
    }
    String::from_utf8(line).expect("text").trim_end().to_owned()
}

/// Starts a program that says when it is ready.
async fn ready(lab: &Lab, node: &str, argv: &[&str]) -> Pipe {
    let mut pipe = lab.node(node).spawn(&program(argv)).await.expect("spawned");
    assert_eq!(line(&mut pipe).await, "ready");
    pipe
}

/// Ends a program's input and reads the number that it says.
async fn total(mut pipe: Pipe) -> u64 {
    drop(pipe.stdin);
    let mut said = Vec::new();
    while let Some(chunk) = pipe.stdout.read().await {
        said.extend_from_slice(&chunk);
    }
    String::from_utf8(said)
        .expect("text")
        .trim()
        .parse()
        .expect("a number")
}

pub(crate) async fn matrices_are_swapped_atomically() {
    let lab = Lab::new(3).await;
    let (n2, n3) = (
        lab.node("n2").addr().to_string(),
        lab.node("n3").addr().to_string(),
    );
    let cut = LinkPolicy::CUT;
    // n1 > n3 is cut in both, everything else changes with every swap.
    let isolated = [
        ("n1", "n3", cut),
        ("n1", "n2", cut),
        ("n2", "n3", cut),
        ("n3", "n1", cut),
    ];
    let partial = [("n1", "n3", cut), ("n2", "n1", cut)];
    lab.apply(&isolated).await;
    let leaked = ready(&lab, "n3", &["count"]).await;
    let passed = ready(&lab, "n2", &["count"]).await;
    let into_cut = ready(&lab, "n1", &["blast", &n3]).await;
    let mut other = program(&["blast", &n2]);
    other.name = "other".to_owned();
    let mut into_flapping = lab.node("n1").spawn(&other).await.expect("spawned");
    assert_eq!(line(&mut into_flapping).await, "ready");
    let began_ns = cluster::clock::monotonic_ns();
    let mut swaps = 0;
    while swaps < 1000 || cluster::clock::monotonic_ns() - began_ns < 1_000_000_000 {
        lab.apply(&isolated).await;
        lab.apply(&partial).await;
        swaps += 2;
    }
    let (sent, flapped) = (total(into_cut).await, total(into_flapping).await);
    assert!(
        sent > 1000 && flapped > 1000,
        "{sent} and {flapped} datagrams are no test"
    );
    let (leaked, passed) = (total(leaked).await, total(passed).await);
    assert_eq!(leaked, 0, "of {sent}");
    assert!(passed > 0 && passed < flapped, "{passed} of {flapped}");
    lab.end().await;
}

/// Round trips as `(number, microseconds)`, in the order in which they came back.
async fn pings(lab: &Lab, count: u64, gap_ms: u64) -> Vec<(u64, u64)> {
    let to = lab.node("n2").addr().to_string();
    let spec = program(&["ping", &to, &count.to_string(), &gap_ms.to_string()]);
    let mut pipe = lab.node("n1").spawn(&spec).await.expect("spawned");
    let answers = line(&mut pipe).await;
    assert!(pipe.stdout.read().await.is_none());
    until("its end", || async {
        lab.node("n1")
            .processes(&spec.name)
            .await
            .expect("a list")
            .is_empty()
    })
    .await;
    let pair = |word: &str| {
        let (number, rtt_us) = word.split_once(':').expect("a pair");
        (
            number.parse().expect("a number"),
            rtt_us.parse().expect("a number"),
        )
    };
    answers.split_ascii_whitespace().map(pair).collect()
}

pub(crate) async fn delay_and_jitter() {
    let lab = Lab::new(2).await;
    let _echo = ready(&lab, "n2", &["echo"]).await;
    let delay = LinkPolicy {
        delay: Duration::from_millis(30),
        ..LinkPolicy::CLEAR
    };
    lab.apply(&[("n1", "n2", delay), ("n2", "n1", delay)]).await;
    let answers = pings(&lab, 30, 20).await;
    assert_eq!(answers.len(), 30);
    let least = answers
        .iter()
        .map(|&(_, rtt_us)| rtt_us)
        .min()
        .expect("answers");
    assert!((60_000..75_000).contains(&least), "{answers:?}");

    // One way only, and with jitter: never less than the least, and still in order.
    let jitter = LinkPolicy {
        jitter: Duration::from_millis(20),
        ..delay
    };
    lab.apply(&[("n1", "n2", jitter)]).await;
    let answers = pings(&lab, 200, 0).await;
    assert_eq!(answers.len(), 200);
    assert!(
        answers.is_sorted_by_key(|&(number, _)| number),
        "out of order: {answers:?}"
    );
    let (least, most) = (
        answers
            .iter()
            .map(|&(_, rtt_us)| rtt_us)
            .min()
            .expect("answers"),
        answers
            .iter()
            .map(|&(_, rtt_us)| rtt_us)
            .max()
            .expect("answers"),
    );
    assert!(
        least >= 10_000,
        "{least} us is less than delay minus jitter"
    );
    assert!(
        most >= 45_000,
        "200 draws of up to 50 ms have a maximum above 45, not {most} us"
    );
    lab.end().await;
}

pub(crate) async fn loss_is_as_asked_and_repeatable() {
    let mut lost = Vec::new();
    for _ in 0..2 {
        let lab = Lab::new(2).await;
        let loss = LinkPolicy {
            loss: 0.2,
            ..LinkPolicy::CLEAR
        };
        lab.apply(&[("n1", "n2", loss)]).await;
        let mut arrived = 0;
        for _ in 0..50 {
            arrived += probe(&lab, "n1", "n2", 100).await;
        }
        lost.push(5000 - arrived);
        lab.end().await;
    }
    // Five standard deviations of a binomial distribution with n = 5000, p = 0.2.
    assert!(lost[0].abs_diff(1000) < 142, "{lost:?}");
    assert_eq!(lost[0], lost[1], "the same seed must lose the same frames");
}

pub(crate) async fn frames_under_way_are_dropped_by_a_cut() {
    let lab = Lab::new(2).await;
    let delay = Duration::from_secs(1);
    let slow = LinkPolicy {
        delay,
        ..LinkPolicy::CLEAR
    };
    lab.apply(&[("n1", "n2", slow)]).await;
    let (n1, n2) = (lab.node("n1"), lab.node("n2"));
    let sent_ns = cluster::clock::monotonic_ns();
    n1.send_probe(n2.addr(), 1, 10).await.expect("sent");
    lab.held(10).await;
    lab.apply(&[("n1", "n2", LinkPolicy::CUT)]).await;
    until("the drop", || async {
        let counters = lab.cluster.network().counters().await.expect("counters");
        counters.at(0, 1).dropped == 10
    })
    .await;
    let took = Duration::from_nanos(cluster::clock::monotonic_ns() - sent_ns);
    assert!(
        took >= delay,
        "dropped after {took:?}, before they were due"
    );
    assert_eq!(n2.probe_count(1).await.expect("a count"), 0);

    // Frames that are sent after a heal stay behind the slow ones before them.
    lab.apply(&[("n1", "n2", slow)]).await;
    n1.send_probe(n2.addr(), 2, 1).await.expect("sent");
    lab.held(1).await;
    lab.apply(&[]).await;
    n1.send_probe(n2.addr(), 3, 1).await.expect("sent");
    assert_eq!(n2.probe_count(3).await.expect("a count"), 0);
    until("the second", || async {
        n2.probe_count(3).await.expect("a count") == 1
    })
    .await;
    assert_eq!(
        n2.probe_count(2).await.expect("a count"),
        1,
        "order was lost"
    );
    lab.end().await;
}

async fn transfer(lab: &Lab, bytes: usize) {
    let mut receiver = ready(lab, "n2", &["receive"]).await;
    let to = lab.node("n2").addr().to_string();
    let spec = program(&["send", &to, &bytes.to_string()]);
    let mut sender = lab.node("n1").spawn(&spec).await.expect("spawned");
    let (sent, received) = (line(&mut sender).await, line(&mut receiver).await);
    assert!(sent.starts_with(&format!("{bytes} ")));
    assert_eq!(sent, received);
    for (node, name) in [("n1", "send"), ("n2", "receive")] {
        until("the end", || async {
            lab.node(node)
                .processes(name)
                .await
                .expect("a list")
                .is_empty()
        })
        .await;
    }
}

pub(crate) async fn tcp_arrives_intact() {
    let lab = Lab::new(2).await;
    transfer(&lab, 100 << 20).await;
    let counters = lab.cluster.network().counters().await.expect("counters");
    let there = counters.at(0, 1);
    assert!(there.bytes > 100 << 20);
    let average = there.bytes / there.delivered;
    assert!(
        average > 3000,
        "{average} bytes a frame: segmentation was not offloaded"
    );

    let rough = LinkPolicy {
        loss: 0.02,
        delay: Duration::from_millis(1),
        jitter: Duration::from_millis(1),
        ..LinkPolicy::CLEAR
    };
    lab.apply(&[("n1", "n2", rough), ("n2", "n1", rough)]).await;
    transfer(&lab, 1 << 20).await;
    let counters = lab.cluster.network().counters().await.expect("counters");
    assert!(counters.at(0, 1).dropped > 0);
    lab.end().await;
}

pub(crate) async fn matrices_of_other_clusters_are_refused() {
    let lab = Lab::new(2).await;
    let other = cluster::LinkMatrix::clear(&["n1".to_owned(), "n9".to_owned()]);
    let refused = lab.cluster.network().apply(&other).await;
    assert!(
        matches!(refused, Err(cluster::Error::Spec(_))),
        "{refused:?}"
    );
    lab.end().await;
}

pub(crate) async fn measurements_are_plausible() {
    let dir = tempfile::tempdir().expect("a directory");
    let effort = cluster::bench::Effort {
        sizes: vec![2],
        repeats: 2,
        cuts: 2,
        pings: 200,
        tcp: Duration::from_millis(200),
        frames: 2000,
        relay_bytes: 4 << 20,
    };
    let report = cluster::bench::run(dir.path(), None, &effort)
        .await
        .expect("a report");
    assert_eq!(report.lifecycles[0].create.count, 2);
    assert_eq!(report.forwarding.rtt_switch.count, 200);
    assert!(
        report.forwarding.rtt_direct.min_ns < report.forwarding.rtt_switch.min_ns,
        "{report}"
    );
    assert!(report.forwarding.tcp_switch_mbit_s > 50.0, "{report}");
    assert!(report.accuracy.delay_rtt.min_ns >= 20_000_000, "{report}");
    // Six standard deviations of a binomial distribution with n = 2000, p = 0.1.
    assert!(
        (report.accuracy.loss_measured - 0.1).abs() < 0.04,
        "{report}"
    );
    assert!(
        report.relay.bulk_mb_s > 1.0 && report.relay.lines_s > 1000.0,
        "{report}"
    );
    assert!(report.to_string().lines().count() > 10);
}
