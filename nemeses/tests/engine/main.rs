//! The engine against a cluster in memory that can fail and lie. Time is tokio's, paused: nothing
//! here waits for a wall clock.

mod fake;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nemeses::{
    Entry, FaultOutcome, Finished, Ledger, Nemesis, NemesisEvent, Phase, Plan, PlannedFault,
    RawFault, Roster, Step, Timing, read_ledger,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use fake::Fake;

/// Memory that a ledger can be written to and read from.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A plan on a fake cluster, and everything that came of it.
struct Bench {
    cluster: Arc<Fake>,
    nemesis: Nemesis,
    began: Instant,
    events: Arc<Mutex<Vec<(Duration, NemesisEvent)>>>,
    ledger: Shared,
}

fn roster(cluster: &Fake) -> Roster {
    use nemeses::ClusterAccess;
    let (servers, clients) = cluster
        .nodes()
        .into_iter()
        .partition(|name| name.starts_with('n'));
    Roster {
        servers,
        clients,
        others: Vec::new(),
    }
}

fn raw(at: &str, fault: &str, target: &str, lasts: &str, params: Value) -> RawFault {
    let params: BTreeMap<String, Value> = serde_json::from_value(params).unwrap();
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    RawFault {
        at: at.to_owned(),
        fault: fault.to_owned(),
        target: given(target),
        lasts: given(lasts),
        params,
    }
}

fn plain(at: &str, fault: &str, target: &str, lasts: &str) -> RawFault {
    raw(at, fault, target, lasts, json!({}))
}

impl Bench {
    fn new(cluster: &Arc<Fake>, faults: Vec<RawFault>, max_harmed: Option<usize>) -> Bench {
        let roster = roster(cluster);
        let timing = Timing::default();
        let faults = faults
            .into_iter()
            .map(|raw| PlannedFault::resolve(raw, &roster, &timing));
        let faults = faults.collect::<Result<_, _>>().unwrap();
        let plan = Plan::new(roster, 7, faults, max_harmed).unwrap();
        let began = Instant::now();
        let (events, ledger) = (Arc::default(), Shared::default());
        let seen: Arc<Mutex<Vec<_>>> = Arc::clone(&events);
        let nemesis = Nemesis::new(
            plan,
            Arc::clone(cluster) as _,
            Arc::clone(cluster) as _,
            Arc::new(move || began.elapsed().as_nanos() as u64),
            Ledger::new(ledger.clone()),
            Box::new(move |event| seen.lock().unwrap().push((began.elapsed(), event.clone()))),
        );
        Bench {
            cluster: Arc::clone(cluster),
            nemesis,
            began,
            events,
            ledger,
        }
    }

    async fn run(&self) -> Finished {
        self.nemesis.run(std::future::pending()).await
    }

    fn entries(&self) -> Vec<Entry> {
        read_ledger(std::str::from_utf8(&self.ledger.0.lock().unwrap()).unwrap()).unwrap()
    }

    fn steps(&self, id: u64) -> Vec<(Step, bool)> {
        let of = |entry: &Entry| entry.id == Some(id);
        self.entries()
            .iter()
            .filter(|e| of(e))
            .map(|e| (e.step, e.ok))
            .collect()
    }

    /// Events as `id phase target majority verified`.
    fn events(&self) -> Vec<String> {
        let seen = self.events.lock().unwrap();
        let line = |event: &NemesisEvent| {
            let phase = if event.phase == Phase::Begin {
                "begin"
            } else {
                "end"
            };
            let (majority, verified) = (event.majority, event.verified);
            format!(
                "{} {phase} {} {majority} {verified}",
                event.id, event.target
            )
        };
        seen.iter().map(|(_, event)| line(event)).collect()
    }

    fn assert_untouched(&self) {
        use nemeses::ClusterAccess;
        assert_eq!(
            self.cluster.cuts().last().cloned().unwrap_or_default(),
            Vec::<String>::new()
        );
        for node in self.cluster.nodes() {
            assert_eq!(self.cluster.process(&node), Some('S'), "{node}");
            assert_eq!(self.cluster.clock(&node), None, "{node}");
        }
    }
}

fn outcome(finished: &Finished, id: u64) -> &FaultOutcome {
    finished
        .outcomes
        .iter()
        .find(|outcome| outcome.id == id)
        .unwrap()
}

const LIFE: [(Step, bool); 6] = [
    (Step::Asked, true),
    (Step::Installed, true),
    (Step::Verified, true),
    (Step::Held, true),
    (Step::Healed, true),
    (Step::VerifiedHealed, true),
];

#[tokio::test(start_paused = true)]
async fn each_family_lives_its_whole_life() {
    for (fault, target, resolved) in [
        ("freeze", "leader", "n1"),
        ("kill", "leader", "n1"),
        ("cut", "isolate", "n1-n2,n1-n3"),
        ("slow", "n2>n3", "n2>n3"),
        ("lossy", "n2-n3", "n2-n3"),
        ("clock", "leader", "n1"),
    ] {
        let cluster = Fake::new(3, 1);
        let bench = Bench::new(&cluster, vec![plain("5s", fault, target, "4s")], None);
        let finished = bench.run().await;
        assert_eq!(bench.steps(1), LIFE, "{fault}");
        let outcome = outcome(&finished, 1);
        assert!(outcome.landed && outcome.healed, "{outcome:?}");
        assert_eq!(outcome.resolved, resolved);
        let lasted = outcome.end_ns.unwrap() - outcome.begin_ns.unwrap();
        assert!((4_000_000_000..4_500_000_000).contains(&lasted), "{lasted}");
        assert_eq!(
            bench.events(),
            [
                format!("1 begin {resolved} true true"),
                format!("1 end {resolved} true true")
            ]
        );
        assert!(finished.unhealed.is_empty() && finished.ledger.is_none());
        bench.assert_untouched();
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_whose_probes_still_pass_did_not_land() {
    let cluster = Fake::new(3, 0);
    cluster.lie(|lies| {
        lies.leaks.insert((0, 2));
    });
    let bench = Bench::new(&cluster, vec![plain("1s", "cut", "n1-n3", "4s")], None);
    let finished = bench.run().await;
    let outcome = outcome(&finished, 1);
    assert!(!outcome.landed && outcome.healed);
    assert_eq!(outcome.evidence, "3 of 3 probes still passed n1>n3");
    assert_eq!(
        bench.events(),
        ["1 begin n1-n3 true false", "1 end n1-n3 true false"]
    );
    assert!(bench.steps(1).contains(&(Step::Verified, false)));
}

#[tokio::test(start_paused = true)]
async fn slow_links_that_are_fast_did_not_land() {
    let cluster = Fake::new(3, 0);
    cluster.lie(|lies| {
        lies.no_delay = true;
        lies.leaks.insert((0, 1));
    });
    let faults = vec![
        plain("1s", "slow", "n1-n3", "1s"),
        plain("3s", "cut", "n1>n2", "1s"),
    ];
    let bench = Bench::new(&cluster, faults, None);
    let finished = bench.run().await;
    assert!(
        finished
            .outcomes
            .iter()
            .all(|outcome| !outcome.landed && outcome.healed)
    );
    assert!(
        outcome(&finished, 1).evidence.contains("before 200ms"),
        "{:?}",
        outcome(&finished, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn silence_everywhere_is_no_evidence_of_a_cut() {
    let cluster = Fake::new(3, 0);
    cluster.lie(|lies| lies.deaf = true);
    let bench = Bench::new(&cluster, vec![plain("1s", "cut", "n1>n3", "4s")], None);
    let finished = bench.run().await;
    let outcome = outcome(&finished, 1);
    assert!(!outcome.landed, "{outcome:?}");
    assert!(
        outcome.evidence.contains("no probe passed n3>n1 either"),
        "{outcome:?}"
    );
    assert!(!outcome.healed, "nobody saw it healed: {outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn processes_that_go_on_running_did_not_freeze_and_survivors_were_not_killed() {
    let cluster = Fake::new(3, 0);
    cluster.lie(|lies| (lies.freeze_lies, lies.kill_lies) = (true, true));
    let faults = vec![
        plain("1s", "freeze", "n1", "1s"),
        plain("1s", "kill", "n2", "1s"),
    ];
    let bench = Bench::new(&cluster, faults, None);
    let finished = bench.run().await;
    assert!(!outcome(&finished, 1).landed);
    assert!(
        outcome(&finished, 1).evidence.contains("is S"),
        "{:?}",
        outcome(&finished, 1)
    );
    assert!(!outcome(&finished, 2).landed);
    assert!(
        outcome(&finished, 2).evidence.contains("is alive"),
        "{:?}",
        outcome(&finished, 2)
    );
    assert!(
        !outcome(&finished, 2).healed,
        "an old process is still there"
    );
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_in_another_way_did_not_land_and_one_that_stays_is_not_healed() {
    let cluster = Fake::new(3, 0);
    cluster.lie(|lies| lies.clock_lies_ns = 5_000_000);
    let back = json!({ "offset": "500ms", "direction": "back" });
    let bench = Bench::new(
        &cluster,
        vec![raw("1s", "clock", "n1", "1s", back.clone())],
        None,
    );
    let finished = bench.run().await;
    assert!(!outcome(&finished, 1).landed && outcome(&finished, 1).healed);
    let evidence = &outcome(&finished, 1).evidence;
    assert!(
        evidence.contains("0.505 s behind the true time"),
        "{evidence}"
    );
    bench.assert_untouched();

    cluster.lie(|lies| (lies.clock_lies_ns, lies.clock_stays) = (0, true));
    let bench = Bench::new(&cluster, vec![raw("1s", "clock", "n2", "1s", back)], None);
    let finished = bench.run().await;
    assert!(outcome(&finished, 1).landed && !outcome(&finished, 1).healed);
    assert_eq!(finished.unhealed.len(), 1, "{:?}", finished.unhealed);
    assert_eq!(cluster.clock("n2"), Some(-500_000_000));
}

#[tokio::test(start_paused = true)]
async fn a_clock_jumps_there_and_back_as_often_as_it_should() {
    let cluster = Fake::new(3, 0);
    let params = json!({ "offset": "2s", "every": "300ms" });
    let bench = Bench::new(&cluster, vec![raw("1s", "clock", "n3", "1s", params)], None);
    let finished = bench.run().await;
    assert!(outcome(&finished, 1).landed, "{:?}", outcome(&finished, 1));
    let forth = "skew n3 2000000000";
    assert_eq!(
        cluster.calls(),
        [forth, "skew n3 0", forth, "skew n3 0", "unskew n3"]
    );
    assert_eq!(bench.steps(1), LIFE);
    bench.assert_untouched();
}

#[tokio::test(start_paused = true)]
async fn a_clock_is_moved_back_when_the_run_is_dropped() {
    let cluster = Fake::new(3, 0);
    let bench = Bench::new(&cluster, vec![plain("1s", "clock", "all", "60s")], None);
    tokio::select! {
        _ = bench.run() => panic!("it lasts a minute"),
        () = sleep(Duration::from_secs(3)) => {}
    }
    assert_eq!(cluster.clock("n2"), Some(60_000_000_000));
    assert!(bench.nemesis.heal_all().await.is_empty());
    bench.assert_untouched();
}

#[tokio::test(start_paused = true)]
async fn overlapping_cuts_are_one_matrix_and_heal_one_by_one() {
    let cluster = Fake::new(3, 0);
    let faults = vec![
        plain("1s", "cut", "n1-n2", "4s"),
        plain("2s", "cut", "n1>n2,n2-n3", "5s"),
    ];
    let bench = Bench::new(&cluster, faults, None);
    let finished = bench.run().await;
    assert!(
        finished
            .outcomes
            .iter()
            .all(|outcome| outcome.landed && outcome.healed)
    );
    let all = ["n1>n2", "n2>n1", "n2>n3", "n3>n2"];
    assert_eq!(
        cluster.cuts(),
        [
            &all[..2],
            &all[..],
            &["n1>n2", "n2>n3", "n3>n2"][..],
            &[][..]
        ]
        .map(|links| links
            .iter()
            .map(|link| (*link).to_owned())
            .collect::<Vec<_>>())
    );
    let healed = bench
        .entries()
        .into_iter()
        .find(|entry| (entry.id, entry.step) == (Some(1), Step::VerifiedHealed));
    assert!(
        healed
            .unwrap()
            .says
            .contains("1 links are still in the hands of other faults")
    );
}

#[tokio::test(start_paused = true)]
async fn a_stopped_run_heals_what_is_there_and_strikes_no_more() {
    let cluster = Fake::new(5, 0);
    let faults = vec![
        plain("1s", "freeze", "n2", "60s"),
        plain("1s", "cut", "n3-n4", "60s"),
        plain("2s", "kill", "n5", "end"),
        plain("30s", "kill", "n1", "5s"),
    ];
    let bench = Bench::new(&cluster, faults, None);
    let finished = bench.nemesis.run(sleep(Duration::from_secs(10))).await;
    assert!(bench.began.elapsed() < Duration::from_secs(11));
    for id in 1..=3 {
        let outcome = outcome(&finished, id);
        assert!(outcome.landed && outcome.healed, "{outcome:?}");
    }
    assert!(!outcome(&finished, 4).landed);
    assert!(!cluster.calls().contains(&"kill n1".to_owned()));
    assert_eq!(bench.events().len(), 6);
    bench.assert_untouched();
}

#[tokio::test(start_paused = true)]
async fn what_lasts_until_the_end_ends_with_the_last_other_fault() {
    let cluster = Fake::new(3, 0);
    let stays = raw("1s", "kill", "n3", "", json!({ "restart": false }));
    let bench = Bench::new(
        &cluster,
        vec![stays, plain("3s", "freeze", "n1", "2s")],
        None,
    );
    let finished = bench.run().await;
    assert!(
        finished
            .outcomes
            .iter()
            .all(|outcome| outcome.landed && outcome.healed)
    );
    assert_eq!(cluster.process("n3"), None, "it was not to be restarted");
    assert_eq!(
        bench.events(),
        [
            "1 begin n3 true true",
            "2 begin n1 false true",
            "2 end n1 false true",
            "1 end n3 false true"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_is_healed_by_heal_all_which_touches_nothing_else() {
    let cluster = Fake::new(3, 0);
    let faults = vec![
        plain("1s", "freeze", "n2", "60s"),
        plain("1s", "cut", "n1-n3", "60s"),
    ];
    let bench = Bench::new(&cluster, faults, None);
    assert!(bench.nemesis.heal_all().await.is_empty());
    assert_eq!(cluster.calls(), Vec::<String>::new());

    let bench = Bench::new(
        &cluster,
        vec![
            plain("1s", "freeze", "n2", "60s"),
            plain("1s", "cut", "n1-n3", "60s"),
        ],
        None,
    );
    tokio::select! {
        _ = bench.run() => panic!("it lasts a minute"),
        () = sleep(Duration::from_secs(5)) => {}
    }
    assert_eq!(cluster.process("n2"), Some('T'));
    assert!(bench.nemesis.heal_all().await.is_empty());
    bench.assert_untouched();
    assert_eq!(bench.events().len(), 4, "{:?}", bench.events());
    assert!(
        bench
            .nemesis
            .outcomes()
            .iter()
            .all(|outcome| outcome.healed)
    );
    let calls = cluster.calls();
    assert!(bench.nemesis.heal_all().await.is_empty());
    assert_eq!(
        cluster.calls(),
        calls,
        "a second time there is nothing to do"
    );
}

#[tokio::test(start_paused = true)]
async fn a_begin_says_since_when_the_fault_was_there() {
    let cluster = Fake::new(3, 0);
    let bench = Bench::new(&cluster, vec![plain("1s", "cut", "n1-n3", "2s")], None);
    bench.run().await;
    let events = bench.events.lock().unwrap();
    let (reported, begin) = &events[0];
    assert_eq!(begin.since_ns, Some(1_000_000_000));
    assert!(
        *reported > Duration::from_secs(1),
        "it was probed meanwhile"
    );
    assert_eq!(events[1].1.since_ns, None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_healed_is_named() {
    let cluster = Fake::new(3, 0);
    let faults = vec![
        plain("1s", "freeze", "n2", "2s"),
        plain("1s", "cut", "n1-n3", "2s"),
    ];
    let bench = Bench::new(&cluster, faults, None);
    let breaks = async {
        sleep(Duration::from_secs(2)).await;
        cluster.lie(|lies| (lies.thaw_fails, lies.apply_fails) = (true, true));
    };
    let (finished, ()) = tokio::join!(bench.run(), breaks);
    let what: Vec<&str> = finished
        .unhealed
        .iter()
        .map(|left| left.what.as_str())
        .collect();
    assert_eq!(what, ["links are not clear", "db on n2 is frozen"]);
    assert!(
        finished.outcomes.iter().all(|outcome| !outcome.healed),
        "{:?}",
        finished.outcomes
    );
    cluster.lie(|lies| (lies.thaw_fails, lies.apply_fails) = (false, false));
    assert!(bench.nemesis.heal_all().await.is_empty());
    bench.assert_untouched();
}

#[tokio::test(start_paused = true)]
async fn a_fault_that_cannot_be_installed_did_not_land_and_leaves_nothing() {
    let cluster = Fake::new(3, 0);
    cluster.lie(|lies| lies.apply_fails = true);
    let bench = Bench::new(&cluster, vec![plain("1s", "cut", "n1-n3", "2s")], None);
    let repairs = async {
        sleep(Duration::from_millis(1001)).await;
        cluster.lie(|lies| lies.apply_fails = false);
    };
    let (finished, ()) = tokio::join!(bench.run(), repairs);
    assert!(!outcome(&finished, 1).landed);
    assert!(finished.unhealed.is_empty());
    assert_eq!(
        bench.events(),
        ["1 begin n1-n3 true false", "1 end n1-n3 true false"]
    );
    bench.assert_untouched();
}

#[tokio::test(start_paused = true)]
async fn a_target_is_waited_for_and_then_given_up_with_a_reason() {
    let cluster = Fake::new(3, 1);
    let bench = Bench::new(
        &cluster,
        vec![
            plain("1s", "freeze", "holder", "1s"),
            raw("1s", "freeze", "holder", "1s", json!({ "wait": "10s" })),
        ],
        None,
    );
    let appears = async {
        sleep(Duration::from_secs(6)).await;
        cluster.set_holder(Some("c1"));
    };
    let (finished, ()) = tokio::join!(bench.run(), appears);
    let missed = outcome(&finished, 1);
    assert!(!missed.landed && missed.healed);
    assert!(
        missed
            .evidence
            .contains("no client is known to hold the lock"),
        "{missed:?}"
    );
    assert!(bench.steps(1).contains(&(Step::NotLanded, false)));
    assert_eq!(
        bench.events()[..2],
        ["1 begin holder true false", "1 end holder true false"]
    );
    let hit = outcome(&finished, 2);
    assert!(hit.landed && hit.resolved == "c1", "{hit:?}");
}

#[tokio::test(start_paused = true)]
async fn a_role_is_the_node_that_has_it_when_the_fault_strikes() {
    let cluster = Fake::new(3, 0);
    let bench = Bench::new(
        &cluster,
        vec![
            plain("1s", "cut", "n1-leader", "1s"),
            plain("5s", "cut", "leader>n1", "1s"),
        ],
        None,
    );
    let change = async {
        sleep(Duration::from_millis(1500)).await;
        cluster.set_leader(Some("n3"));
    };
    let (finished, ()) = tokio::join!(bench.run(), change);
    assert_eq!(outcome(&finished, 1).resolved, "n1-n3", "n1 led until then");
    assert_eq!(outcome(&finished, 2).resolved, "n3>n1");
}

#[tokio::test(start_paused = true)]
async fn two_faults_of_one_process_take_turns() {
    let cluster = Fake::new(3, 0);
    let faults = vec![
        plain("1s", "freeze", "n2", "3s"),
        plain("2s", "kill", "n2", "1s"),
    ];
    let bench = Bench::new(&cluster, faults, None);
    let finished = bench.run().await;
    assert!(
        finished
            .outcomes
            .iter()
            .all(|outcome| outcome.landed && outcome.healed)
    );
    assert_eq!(
        cluster.calls(),
        ["freeze n2", "thaw n2", "kill n2", "restart n2"]
    );
    assert_eq!(bench.steps(2)[1], (Step::Postponed, true));
}

#[tokio::test(start_paused = true)]
async fn the_quorum_budget_postpones_what_would_exceed_it() {
    let cluster = Fake::new(5, 0);
    let faults = vec![
        plain("1s", "freeze", "minority", "3s"),
        plain("2s", "cut", "isolate", "1s"),
        plain("2s", "kill", "one", "1s"),
    ];
    let bench = Bench::new(&cluster, faults, Some(2));
    let finished = bench.run().await;
    assert!(
        finished
            .outcomes
            .iter()
            .all(|outcome| outcome.landed && outcome.healed)
    );
    assert!(
        bench
            .events()
            .iter()
            .all(|event| event.contains("true true"))
    );
    assert!((2..=3).any(|id| bench.steps(id).contains(&(Step::Postponed, true))));
}

#[tokio::test(start_paused = true)]
async fn no_majority_is_said_where_there_is_none() {
    let cluster = Fake::new(3, 0);
    let faults = vec![
        plain("1s", "freeze", "n1", "6s"),
        plain("2s", "cut", "n2>n3", "2s"),
        plain("6s", "cut", "n1-n2", "500ms"),
    ];
    let bench = Bench::new(&cluster, faults, None);
    bench.run().await;
    assert_eq!(
        bench.events(),
        [
            "1 begin n1 true true",
            "2 begin n2>n3 false true",
            "2 end n2>n3 false true",
            "3 begin n1-n2 true true",
            "3 end n1-n2 true true",
            "1 end n1 false true",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn each_flap_is_a_change_of_its_own_and_is_verified() {
    let cluster = Fake::new(3, 0);
    let bench = Bench::new(
        &cluster,
        vec![plain("1s", "cut", "flapping n1-n2", "9s")],
        None,
    );
    let finished = bench.run().await;
    assert!(outcome(&finished, 1).landed && outcome(&finished, 1).healed);
    let flaps: Vec<Entry> = bench
        .entries()
        .into_iter()
        .filter(|entry| matches!(entry.step, Step::FlapUp | Step::FlapDown))
        .collect();
    // Down from 1 to 3, up to 4, down to 6, up to 7, down to 9; what is left is too short to go up.
    let steps: Vec<(Step, u64)> = flaps
        .iter()
        .map(|entry| (entry.step, entry.t / 1_000_000_000))
        .collect();
    assert_eq!(
        steps,
        [
            (Step::FlapUp, 3),
            (Step::FlapDown, 4),
            (Step::FlapUp, 6),
            (Step::FlapDown, 7)
        ]
    );
    assert!(flaps.iter().all(|entry| entry.ok));
    assert_eq!(cluster.cuts().len(), 6);
    assert_eq!(bench.events().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_flap_that_does_not_take_speaks_against_the_fault() {
    let cluster = Fake::new(3, 0);
    let bench = Bench::new(
        &cluster,
        vec![plain("1s", "cut", "flapping n1-n2", "9s")],
        None,
    );
    let leaks = async {
        sleep(Duration::from_millis(3500)).await;
        cluster.lie(|lies| {
            lies.leaks.insert((1, 0));
        });
        sleep(Duration::from_secs(1)).await;
        cluster.lie(|lies| lies.leaks.clear());
    };
    let (finished, ()) = tokio::join!(bench.run(), leaks);
    let outcome = outcome(&finished, 1);
    assert!(!outcome.landed, "{outcome:?}");
    assert!(
        outcome.evidence.contains("still passed n2>n1"),
        "{outcome:?}"
    );
    assert_eq!(
        bench.events(),
        ["1 begin n1-n2 true true", "1 end n1-n2 true false"]
    );
}

#[tokio::test(start_paused = true)]
async fn clients_can_be_put_on_a_side() {
    let cluster = Fake::new(3, 2);
    let side = |side: &str| json!({ "clients": side });
    let bench = Bench::new(
        &cluster,
        vec![
            raw("1s", "cut", "isolate", "1s", side("with-minority")),
            raw("5s", "cut", "isolate", "1s", side("with-majority")),
            plain("9s", "cut", "c1", "1s"),
        ],
        None,
    );
    let finished = bench.run().await;
    let resolved = |id| outcome(&finished, id).resolved.clone();
    assert_eq!(resolved(1), "c1-n2,c1-n3,c2-n2,c2-n3,n1-n2,n1-n3");
    assert_eq!(resolved(2), "c1-n1,c2-n1,n1-n2,n1-n3");
    assert_eq!(resolved(3), "c1-n1,c1-n2,c1-n3");
    assert!(
        finished
            .outcomes
            .iter()
            .all(|outcome| outcome.landed && outcome.healed)
    );
}

#[tokio::test(start_paused = true)]
async fn what_happened_can_be_planned_again() {
    let cluster = Fake::new(5, 1);
    cluster.set_holder(Some("c1"));
    let faults = vec![
        raw(
            "1s",
            "cut",
            "halves",
            "2s",
            json!({ "clients": "with-minority" }),
        ),
        plain("5s", "cut", "flapping", "4s"),
        plain("12s", "freeze", "minority", "2s"),
        plain("15s", "kill", "holder", "1s"),
        raw("16s", "kill", "one", "", json!({ "restart": false })),
    ];
    let bench = Bench::new(&cluster, faults, None);
    let first = bench.run().await;
    assert!(
        first.outcomes.iter().all(|outcome| outcome.landed),
        "{:?}",
        first.outcomes
    );
    let happened = bench.nemesis.happened();
    let again = Fake::new(5, 1);
    let replay = Bench::new(&again, happened.clone(), None);
    let second = replay.run().await;
    let hits = |finished: &Finished| -> Vec<(String, String)> {
        let hit = |o: &FaultOutcome| (o.fault.clone(), o.resolved.clone());
        finished.outcomes.iter().map(hit).collect()
    };
    assert_eq!(hits(&first), hits(&second));
    let targets = |raws: Vec<RawFault>| -> Vec<_> {
        raws.into_iter()
            .map(|raw| (raw.target, raw.params))
            .collect()
    };
    assert_eq!(targets(happened), targets(replay.nemesis.happened()));
}
