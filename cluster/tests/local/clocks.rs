//! Wall clocks of services are moved and moved back, while the services read them.

use std::time::Duration;

use cluster::{ClockEvidence, Error, Node, Pipe, RefusalKind, ServiceSpec};

use crate::support::{Lab, program, shell, soon, until};

const SECOND_NS: i64 = 1_000_000_000;
const FORWARD_NS: i64 = 1000 * SECOND_NS;
const BACK_NS: i64 = -500 * SECOND_NS;
/// How often the clock of a busy program is moved there and back.
const CYCLES: usize = 30;

/// Somebody who is asked with a line and answers with one.
struct Partner {
    pipe: Pipe,
    rest: Vec<u8>,
}

impl Partner {
    async fn new(node: &Node, spec: &ServiceSpec) -> Partner {
        let pipe = node.spawn(spec).await.expect("spawned");
        let rest = Vec::new();
        let mut partner = Partner { pipe, rest };
        assert_eq!(partner.hear().await, "ready");
        partner
    }

    async fn hear(&mut self) -> String {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return String::from_utf8_lossy(&line).trim().to_owned();
            }
            let more = soon("an answer", self.pipe.stdout.read()).await;
            self.rest.extend_from_slice(&more.expect("it lives"));
        }
    }

    async fn ask(&mut self, line: &str) -> String {
        let line = format!("{line}\n");
        self.pipe.stdin.write(line).await.expect("it lives");
        self.hear().await
    }
}

/// What the program in `hammer.rs` read since it was last asked.
#[derive(Debug, Default)]
struct Counts {
    unmoved: u64,
    forward: u64,
    back: u64,
    signals: u64,
}

async fn counts(hammer: &mut Partner) -> Counts {
    let told = hammer.ask("").await;
    let numbers: Vec<u64> = told
        .split(' ')
        .map_while(|word| word.parse().ok())
        .collect();
    let [unmoved, forward, back, wrong, signals, ..] = numbers[..] else {
        panic!("{told}");
    };
    assert_eq!(wrong, 0, "{told}");
    Counts {
        unmoved,
        forward,
        back,
        signals,
    }
}

/// Closes the epoch in which the clock was changed, and waits for a busy one after it.
async fn settled(hammer: &mut Partner) -> Counts {
    counts(hammer).await;
    let mut sum = Counts::default();
    soon("readings", async {
        while sum.unmoved + sum.forward + sum.back < 20_000 || sum.signals < 20 {
            let more = counts(hammer).await;
            sum.unmoved += more.unmoved;
            sum.forward += more.forward;
            sum.back += more.back;
            sum.signals += more.signals;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    sum
}

fn assert_moved(evidence: &ClockEvidence, by_ns: i64) {
    assert!(!evidence.processes.is_empty() && evidence.asked_ns <= evidence.at_ns);
    for clock in &evidence.processes {
        let off = clock.ahead_ns.expect("it was asked") - by_ns;
        assert!(off.unsigned_abs() <= clock.within_ns + 1000, "{clock:?}");
        assert_eq!(clock.own, by_ns == 0, "{clock:?}");
    }
}

pub(crate) async fn a_busy_program_reads_what_it_should() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let mut hammer = Partner::new(n1, &program(&["hammer"])).await;
    let before = settled(&mut hammer).await;
    assert_eq!((before.forward, before.back), (0, 0), "{before:?}");
    let clocks = n1.clocks("hammer").await.expect("a look");
    assert!(clocks.processes.iter().all(|clock| clock.own), "{clocks:?}");

    let moved = n1.skew("hammer", FORWARD_NS).await.expect("moved");
    assert_moved(&moved, FORWARD_NS);
    assert_eq!(moved.processes[0].threads, 5);
    let forward = settled(&mut hammer).await;
    assert_eq!((forward.unmoved, forward.back), (0, 0), "{forward:?}");

    let again = n1.skew("hammer", BACK_NS).await.expect("moved again");
    assert_moved(&again, BACK_NS);
    let back = settled(&mut hammer).await;
    assert_eq!((back.unmoved, back.forward), (0, 0), "{back:?}");
    assert_moved(&n1.clocks("hammer").await.expect("a look"), BACK_NS);

    assert_moved(&n1.unskew("hammer").await.expect("moved back"), 0);
    let healed = settled(&mut hammer).await;
    assert_eq!((healed.forward, healed.back), (0, 0), "{healed:?}");
    // There is nothing to undo twice.
    let clocks = n1.unskew("hammer").await.expect("nothing to do");
    assert!(clocks.processes.iter().all(|clock| clock.own), "{clocks:?}");
    lab.end().await;
}

pub(crate) async fn a_busy_program_survives_any_number_of_changes() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let mut hammer = Partner::new(n1, &program(&["hammer"])).await;
    let (mut readings, mut held_ns) = (0, Vec::new());
    for _ in 0..CYCLES {
        let forward = n1.skew("hammer", FORWARD_NS).await.expect("moved");
        let back = n1.skew("hammer", BACK_NS).await.expect("moved again");
        let healed = n1.unskew("hammer").await.expect("moved back");
        assert_moved(&healed, 0);
        held_ns.extend([&forward, &back, &healed].map(|seen| seen.processes[0].held_ns));
        let seen = counts(&mut hammer).await;
        readings += seen.unmoved + seen.forward + seen.back;
    }
    held_ns.sort_unstable();
    println!(
        "{readings} readings; held for {} us at the median, {} us at most",
        held_ns[held_ns.len() / 2] / 1000,
        held_ns[held_ns.len() - 1] / 1000
    );
    let end = settled(&mut hammer).await;
    assert_eq!((end.forward, end.back), (0, 0), "{end:?}");
    lab.end().await;
}

/// Answers with its own time, with that of a child that was forked, or that of a program that was
/// executed.
const PYTHON: &str = r#"
import os, subprocess, sys, time
other = None
def forked():
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.write(theirs, b"%d" % time.time())
        os._exit(0)
    os.wait()
    return os.read(ours, 99).decode()
print("ready", flush=True)
for line in sys.stdin:
    asked = line.strip()
    if asked == "own":
        print(int(time.time()), flush=True)
    elif asked == "forked":
        print(forked(), flush=True)
    elif asked == "execute":
        program = "import sys, time\nfor l in sys.stdin: print(int(time.time()), flush=True)"
        other = subprocess.Popen([sys.executable, "-c", program], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        print("executed", flush=True)
    else:
        other.stdin.write("\n")
        other.stdin.flush()
        print(other.stdout.readline().strip(), flush=True)
"#;

fn now() -> i64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME).expect("a clock");
    now.tv_sec()
}

/// By how many seconds the answer is ahead, give or take what a busy machine needs.
async fn ahead(python: &mut Partner, whose: &str) -> i64 {
    let told: i64 = python.ask(whose).await.parse().expect("seconds");
    let ahead = told - now();
    (ahead + 10).div_euclid(20) * 20
}

pub(crate) async fn children_follow_their_parents() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let spec = ServiceSpec {
        argv: ["python3", "-u", "-c", PYTHON].map(str::to_owned).to_vec(),
        ..shell("python", "")
    };
    let mut python = Partner::new(n1, &spec).await;
    assert_eq!(python.ask("execute").await, "executed");
    assert_eq!(ahead(&mut python, "other").await, 0);
    let moved = n1.skew("python", FORWARD_NS).await.expect("moved");
    assert_moved(&moved, FORWARD_NS);
    assert_eq!(moved.processes.len(), 2);
    for whose in ["own", "forked", "other"] {
        assert_eq!(ahead(&mut python, whose).await, 1000, "{whose}");
    }
    // What is executed now begins with a clock of its own, but not for long.
    assert_eq!(python.ask("execute").await, "executed");
    soon("its clock", async {
        while ahead(&mut python, "other").await != 1000 {}
    })
    .await;
    let clocks = n1.clocks("python").await.expect("a look");
    assert_moved(&clocks, FORWARD_NS);
    assert!(clocks.late >= 1, "{clocks:?}");
    assert_moved(&n1.skew("python", BACK_NS).await.expect("moved"), BACK_NS);
    for whose in ["own", "forked", "other"] {
        assert_eq!(ahead(&mut python, whose).await, -500, "{whose}");
    }
    n1.unskew("python").await.expect("moved back");
    for whose in ["own", "forked", "other"] {
        assert_eq!(ahead(&mut python, whose).await, 0, "{whose}");
    }
    lab.end().await;
}

pub(crate) async fn a_service_that_is_started_again_is_found() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let hammer = Partner::new(n1, &program(&["hammer"])).await;
    n1.skew("hammer", FORWARD_NS).await.expect("moved");
    n1.kill("hammer", libc::SIGKILL).await.expect("killed");
    drop(hammer);
    assert_eq!(n1.clocks("hammer").await.expect("a look").processes, []);
    let mut hammer = Partner::new(n1, &program(&["hammer"])).await;
    let clocks = n1.clocks("hammer").await.expect("a look");
    assert_moved(&clocks, FORWARD_NS);
    assert_eq!(clocks.late, 1);
    let seen = settled(&mut hammer).await;
    assert_eq!(seen.back, 0, "{seen:?}");
    assert!(seen.unmoved == 0 || seen.forward == 0, "{seen:?}");
    n1.unskew("hammer").await.expect("moved back");
    n1.kill("hammer", libc::SIGKILL).await.expect("killed");
    let mut hammer = Partner::new(n1, &program(&["hammer"])).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let seen = settled(&mut hammer).await;
    assert_eq!((seen.forward, seen.back), (0, 0), "it was moved after all");
    lab.end().await;
}

pub(crate) async fn a_stopped_service_is_moved_and_stays_stopped() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let mut hammer = Partner::new(n1, &program(&["hammer"])).await;
    n1.freeze("hammer").await.expect("frozen");
    assert_moved(
        &n1.skew("hammer", FORWARD_NS).await.expect("moved"),
        FORWARD_NS,
    );
    until("the stop", || async {
        n1.processes("hammer").await.expect("a list")[0].state == 'T'
    })
    .await;
    n1.thaw("hammer").await.expect("thawed");
    let seen = settled(&mut hammer).await;
    assert_eq!((seen.unmoved, seen.back), (0, 0), "{seen:?}");
    lab.end().await;
}

pub(crate) async fn nobody_is_left_in_the_middle_of_what_is_overwritten() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let told = async |partner: &mut Partner| -> i64 {
        let ns: i64 = partner.hear().await.parse().expect("nanoseconds");
        (ns / SECOND_NS - now() + 10).div_euclid(20) * 20
    };
    // A thread that is there is led out, and its call ends as it began: with the true time.
    let mut stopped = Partner::new(n1, &program(&["inside", "stopped"])).await;
    let moved = n1.skew("inside", FORWARD_NS).await.expect("moved");
    assert_moved(&moved, FORWARD_NS);
    n1.thaw("inside").await.expect("thawed");
    assert_eq!(told(&mut stopped).await, 0);
    n1.kill("inside", libc::SIGKILL).await.expect("killed");
    n1.unskew("inside").await.expect("nothing to do");

    // One that will come back there is waited for.
    let mut handler = Partner::new(n1, &program(&["inside", "handler"])).await;
    let mut moving = Box::pin(n1.skew("inside", FORWARD_NS));
    let early = tokio::time::timeout(Duration::from_millis(200), &mut moving).await;
    assert!(early.is_err(), "{early:?}");
    handler.pipe.stdin.write("\n").await.expect("it lives");
    assert_moved(&soon("its clock", moving).await.expect("moved"), FORWARD_NS);
    assert_eq!(told(&mut handler).await, 0);
    assert_eq!(n1.processes("inside").await.expect("a list").len(), 2);
    lab.end().await;
}

pub(crate) async fn clocks_that_cannot_be_moved_are_refused() {
    let kind = |result: Result<ClockEvidence, Error>| {
        let error = result.expect_err("a refusal");
        error.refusal().expect("a refusal of the agent").kind
    };
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    assert_eq!(kind(n1.skew("x", 1).await), RefusalKind::NoSuchService);
    assert_eq!(kind(n1.clocks("x").await), RefusalKind::NoSuchService);
    n1.start(&shell("x", "exit 0")).await.expect("started");
    until("the end", || async {
        n1.processes("x").await.expect("a list").is_empty()
    })
    .await;
    assert_eq!(kind(n1.skew("x", 1).await), RefusalKind::NotRunning);
    assert_eq!(n1.unskew("x").await.expect("nothing to do").processes, []);

    // One of three processes cannot be moved: then none is.
    let tamper = program(&["tamper"]).argv.join(" ");
    let command = format!("sleep 1000 | {tamper}; :");
    n1.start(&shell("three", &command)).await.expect("started");
    until("its word", || async {
        n1.tail("three.log", 1)
            .await
            .is_ok_and(|log| log == "ready")
    })
    .await;
    let error = n1.skew("three", FORWARD_NS).await.expect_err("a refusal");
    let refusal = error.refusal().expect("a refusal of the agent");
    assert_eq!(refusal.kind, RefusalKind::Unsupported);
    assert!(refusal.message.contains("vDSO"), "{refusal}");
    for clocks in [n1.clocks("three").await, n1.unskew("three").await] {
        let clocks = clocks.expect("a look").processes;
        assert_eq!(clocks.len(), 3);
        assert!(clocks.iter().all(|clock| clock.own), "{clocks:?}");
    }
    lab.end().await;
}
