//! Faults on real clusters: namespaces, processes and frames of this machine. What a fault says of
//! itself is compared with what a service on the nodes sees. The program is its own sandbox and
//! agent, which is why it has a `main` of its own.

mod lab;
mod peer;

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use nemeses::Step;
use serde_json::json;

use lab::{Lab, plain, raw};

fn main() -> ExitCode {
    if let Some(code) = cluster::dispatch() {
        return code;
    }
    if peer::dispatch() {
        return ExitCode::SUCCESS;
    }
    let mut args = Arguments::from_args();
    // Clusters side by side on a small machine would slow each other down.
    args.test_threads = Some(1);
    let trials = tests().into_iter().map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&args, trials.collect()).exit_code()
}

macro_rules! tests {
    ($($test:ident,)*) => { vec![$((stringify!($test), || lab::run($test())),)*] };
}

fn tests() -> Vec<(&'static str, fn())> {
    tests![
        a_frozen_process_stands_still_and_goes_on,
        a_killed_service_comes_back_as_another_process,
        a_clock_jumps_for_its_process_only,
        a_client_can_be_the_victim,
        every_shape_cuts_its_links_and_no_others,
        slow_and_lossy_links_are_shown_to_be_so,
        a_flapping_link_flaps,
        a_stopped_run_leaves_nothing,
        a_dropped_run_is_healed,
    ]
}

async fn a_frozen_process_stands_still_and_goes_on() {
    let lab = Lab::new(3, 0).await;
    let bench = lab.bench(vec![plain("0ms", "freeze", "leader", "60s")]);
    let (finished, ticks) = bench
        .watch(async |lab: &Lab| {
            let before = lab.ticks("n1").await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            (before, lab.ticks("n1").await)
        })
        .await;
    lab::assert_landed(&finished);
    assert_eq!(ticks.0, ticks.1, "it ran while it was frozen");
    lab.until_all_hear_all().await;
    lab.end().await;
}

async fn a_killed_service_comes_back_as_another_process() {
    let lab = Lab::new(3, 0).await;
    let before = lab.node("n2").processes("peer").await.unwrap();
    let bench = lab.bench(vec![plain("0ms", "kill", "n2", "60s")]);
    let (finished, during) = bench
        .watch(async |lab: &Lab| lab.node("n2").processes("peer").await.unwrap())
        .await;
    lab::assert_landed(&finished);
    assert_eq!(during, []);
    let after = lab.node("n2").processes("peer").await.unwrap();
    assert_eq!(after.len(), 1);
    assert_ne!(
        (before[0].pid, before[0].start_time),
        (after[0].pid, after[0].start_time)
    );
    lab.until_all_hear_all().await;
    lab.end().await;
}

async fn a_clock_jumps_for_its_process_only() {
    let lab = Lab::new(3, 0).await;
    for (direction, sign) in [("forward", 1), ("back", -1)] {
        let params = json!({ "offset": "1h", "direction": direction });
        let bench = lab.bench(vec![raw("0ms", "clock", "leader", "60s", params)]);
        let (finished, ahead) = bench
            .watch(async |lab: &Lab| {
                lab.until_all_hear_all().await;
                (lab.minutes_ahead("n1").await, lab.minutes_ahead("n2").await)
            })
            .await;
        lab::assert_landed(&finished);
        bench.print_times("clock");
        assert_eq!(ahead, (sign * 60, 0));
        lab.until_all_hear_all().await;
        assert_eq!(lab.minutes_ahead("n1").await, 0);
    }
    let every = json!({ "offset": "1h", "every": "100ms" });
    let bench = lab.bench(vec![raw("0ms", "clock", "all", "1s", every)]);
    lab::assert_landed(&bench.run().await);
    lab.end().await;
}

async fn a_client_can_be_the_victim() {
    let lab = Lab::new(3, 1).await;
    let freeze = plain("0ms", "freeze", "holder", "400ms");
    let gone = raw("1s", "kill", "clients", "", json!({ "restart": false }));
    let bench = lab.bench(vec![freeze, gone]);
    let finished = bench.run().await;
    lab::assert_landed(&finished);
    assert_eq!(lab.node("c1").processes("peer").await.unwrap(), []);
    lab.end().await;
}

async fn every_shape_cuts_its_links_and_no_others() {
    let lab = Lab::new(5, 1).await;
    for target in [
        "halves",
        "isolate",
        "majority-ring",
        "bridge",
        "partial",
        "one-way",
        "leader-minority",
        "n1>n2",
        "n4-leader",
        "holder",
        "n2,n3",
    ] {
        lab.until_all_hear_all().await;
        let bench = lab.bench(vec![plain("0ms", "cut", target, "60s")]);
        let (finished, silent) = bench.watch(Lab::silent_links).await;
        lab::assert_landed(&finished);
        assert_eq!(
            silent,
            lab::directed(&finished.outcomes[0].resolved),
            "{target}"
        );
        bench.print_times(target);
    }
    lab.until_all_hear_all().await;
    lab.end().await;
}

async fn slow_and_lossy_links_are_shown_to_be_so() {
    let lab = Lab::new(3, 0).await;
    let slow = raw(
        "0ms",
        "slow",
        "n1-n2",
        "500ms",
        json!({ "delay": "60ms", "jitter": "10ms" }),
    );
    let lossy = raw("0ms", "lossy", "n2-n3", "500ms", json!({ "loss": 0.3 }));
    let both = raw("0ms", "lossy", "n1>n2", "500ms", json!({ "loss": 0.5 }));
    let bench = lab.bench(vec![slow, lossy]);
    lab::assert_landed(&bench.run().await);
    bench.print_times("slow and lossy");
    lab::assert_landed(&lab.bench(vec![both]).run().await);
    lab.until_all_hear_all().await;
    lab.end().await;
}

async fn a_flapping_link_flaps() {
    let lab = Lab::new(3, 0).await;
    let times = json!({ "down": "300ms", "up": "200ms" });
    let bench = lab.bench(vec![raw("0ms", "cut", "flapping n1-n3", "1500ms", times)]);
    let finished = bench.run().await;
    lab::assert_landed(&finished);
    let flaps = bench
        .entries()
        .into_iter()
        .filter(|entry| entry.step == Step::FlapUp)
        .count();
    assert!(flaps >= 2, "{flaps}");
    lab.until_all_hear_all().await;
    lab.end().await;
}

async fn a_stopped_run_leaves_nothing() {
    let lab = Lab::new(5, 0).await;
    let bench = lab.bench(vec![
        plain("0ms", "freeze", "n2", "60s"),
        plain("50ms", "cut", "n3-n4", "60s"),
        plain("100ms", "cut", "halves", "60s"),
        plain("150ms", "kill", "n5", "60s"),
        plain("150ms", "clock", "n1", "60s"),
    ]);
    let finished = bench
        .run_until(tokio::time::sleep(Duration::from_secs(1)))
        .await;
    lab::assert_landed(&finished);
    lab.until_all_hear_all().await;
    lab.end().await;
}

async fn a_dropped_run_is_healed() {
    let lab = Lab::new(3, 0).await;
    let bench = lab.bench(vec![
        plain("0ms", "freeze", "n2", "60s"),
        plain("0ms", "cut", "n1-n3", "60s"),
        plain("0ms", "kill", "n3", "60s"),
    ]);
    tokio::select! {
        _ = bench.run() => panic!("it lasts a minute"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    assert_eq!(bench.nemesis.heal_all().await, []);
    lab.until_all_hear_all().await;
    lab.end().await;
}
