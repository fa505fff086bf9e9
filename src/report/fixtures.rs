//! Made-up runs for the tests of reports: each tells a story that real runs tell.

use std::collections::BTreeMap;
use std::ops::Range;

use checkers::{Checked, Counterexample, Reason, Row};
use chrono::{DateTime, Utc};
use history::{Event, Header, History, HistoryBuilder, Kind, Process};
use serde_json::{Value, json};

use crate::result::{
    FaultOutcome, NodeInfo, Outcome, Property, RESULT_SCHEMA, RunResult, Stage, SystemInfo,
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// One run of each outcome.
pub fn all() -> Vec<(RunResult, History)> {
    vec![
        frozen_holder(),
        register_held(),
        inconclusive(),
        harness_failed(),
    ]
}

/// Events in any order, sorted at the end; ties keep the order in which they were added.
struct Script {
    header: Header,
    events: Vec<Event>,
    random: u64,
}

impl Script {
    fn new(workload: &str, servers: usize) -> Script {
        let mut header = Header::new(workload, &[]);
        header.nodes = (1..=servers).map(|n| format!("n{n}")).collect();
        header.params.insert("bound_ms".to_owned(), json!(5000));
        Script {
            header,
            events: Vec::new(),
            random: 7,
        }
    }

    /// A number below `below`, the same on every machine.
    fn random(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % below
    }

    fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    fn op(&mut self, who: &str, time: Range<u64>, kind: Kind, f: &str, key: &str, io: [Value; 2]) {
        let process = who
            .parse()
            .map_or(Process::Name(who.to_owned()), Process::Number);
        let [input, output] = io;
        let node = format!("n{}", self.random(3) + 1);
        let error = (kind != Kind::Ok).then_some(match kind {
            Kind::Fail => "stale-token",
            _ => "timeout",
        });
        let ask = Event::new(time.start, process.clone(), Kind::Invoke, f, input).with_key(key);
        let mut answer = Event::new(time.end, process, kind, f, output)
            .with_key(key)
            .with_node(node);
        answer.error = error.map(str::to_owned);
        self.push(ask);
        self.push(answer);
    }

    fn fault(&mut self, at: u64, f: &str, value: Value) {
        self.push(Event::new(at, Process::nemesis(), Kind::Info, f, value));
    }

    /// Every server is asked every 100 ms; `says` gives leader and term, or no answer.
    fn observe(
        &mut self,
        until: u64,
        says: impl Fn(&str, u64) -> Option<(Option<&'static str>, u64)>,
    ) {
        for node in self.header.nodes.clone() {
            let mut at = 50 * MS;
            while at < until {
                let (value, error) = match says(&node, at) {
                    Some((leader, term)) => (json!({"leader": leader, "term": term}), None),
                    None => (Value::Null, Some("timed out after 100 ms".to_owned())),
                };
                let mut event = Event::new(at, Process::observer(), Kind::Info, "leader", value)
                    .with_node(node.clone());
                event.error = error;
                self.push(event);
                at += 100 * MS;
            }
        }
    }

    fn finish(mut self) -> History {
        self.events.sort_by_key(|event| event.time);
        let mut builder = HistoryBuilder::new(self.header);
        for event in &self.events {
            builder.push(event).expect("the story is consistent");
        }
        builder.finish()
    }
}

/// A holder and the leader are frozen, another takes over, and the first one's write is accepted.
pub fn frozen_holder() -> (RunResult, History) {
    let mut script = Script::new("lock", 3);
    let ttl = json!({"ttl_ms": 3000});
    script.op(
        "c1",
        S / 5..S / 5 + 40 * MS,
        Kind::Ok,
        "acquire",
        "L",
        [ttl.clone(), json!({"token": 33})],
    );
    let mut put = |who: &str, from: u64, took: u64, kind: Kind, v: u64, token: u64| {
        let io = json!({"v": v, "token": token});
        script.op(who, from..from + took, kind, "put", "r", [io.clone(), io]);
    };
    for n in 0..56 {
        put(
            "c1",
            S / 2 + n * 60 * MS,
            2 * MS + n % 7 * MS / 3,
            Kind::Ok,
            n,
            33,
        );
    }
    for n in 0..170 {
        put(
            "c2",
            9 * S + n * 60 * MS,
            3 * MS + n % 5 * MS / 2,
            Kind::Ok,
            100 + n,
            34,
        );
    }
    put("c1", 11 * S + 515 * MS, 6 * MS, Kind::Ok, 57, 33);
    put("c1", 11 * S + 600 * MS, 7 * MS, Kind::Ok, 58, 33);
    script.op(
        "c2",
        4 * S..8 * S + 900 * MS,
        Kind::Ok,
        "acquire",
        "L",
        [ttl.clone(), json!({"token": 34})],
    );
    script.push(
        Event::new(
            12 * S,
            Process::Name("c1".to_owned()),
            Kind::Info,
            "lost",
            Value::Null,
        )
        .with_key("L"),
    );
    for n in 0..30 {
        script.op(
            "7",
            n * 600 * MS..n * 600 * MS + 500 * MS,
            if (6..14).contains(&n) {
                Kind::Info
            } else {
                Kind::Ok
            },
            "get",
            "r",
            [Value::Null, json!({"v": n, "token": 33})],
        );
    }
    let phase = |phase| json!({"id": 1, "phase": phase, "target": ["c1", "n1"], "majority": true, "verified": true});
    script.fault(4 * S, "freeze", phase("begin"));
    script.fault(11 * S + 300 * MS, "freeze", phase("end"));
    script.observe(20 * S, |node, at| {
        let frozen = (4 * S..11 * S + 300 * MS).contains(&at);
        match node {
            "n1" if frozen => None,
            "n1" if at < 12 * S => Some((Some("n1"), 4)),
            _ if at < 4 * S + 900 * MS => Some((Some("n1"), 4)),
            _ if at < 5 * S + 200 * MS => Some((None, 4)),
            _ => Some((Some("n2"), 5)),
        }
    });
    let mut history = script.finish();
    history
        .header
        .params
        .insert("clients".to_owned(), json!({"7": "c3"}));
    let find = |f: &str, kind: Kind, token: u64, last: bool| {
        let mut found = history.events().filter(|event| {
            event.f() == f
                && event.kind() == kind
                && event.value().get("token").and_then(|token| token.as_u64()) == Some(token)
                && event.time() < 11 * S + if token == 33 { 560 } else { 500 } * MS
        });
        let event = if last {
            found.next_back()
        } else {
            found.next()
        };
        event.expect("it is in the story").index()
    };
    let row = |event: usize, note: &str| Row {
        event,
        note: note.to_owned(),
    };
    let rows = vec![
        row(
            find("acquire", Kind::Ok, 33, false),
            "c1 holds L until 3.20 s, or longer if it renews",
        ),
        row(
            find("acquire", Kind::Ok, 34, false),
            "the lease of c1 ran out; c2 holds L now",
        ),
        row(
            find("put", Kind::Ok, 34, false),
            "the record has seen token 34",
        ),
        row(
            find("put", Kind::Ok, 34, true),
            "token 34 again, just before",
        ),
        row(
            find("put", Kind::Ok, 33, true),
            "older than token 34: it should have been refused",
        ),
    ];
    let told = Counterexample {
        summary: "Client c1's write with token 33 was accepted 2.5 s after c2's write with token \
                  34: two owners changed the same record"
            .to_owned(),
        rows,
    };
    let mut run = run("frozen-holder/naive", "lock", &history);
    run.outcome = Outcome::Violation;
    run.sentence = format!("{}.", told.summary);
    run.properties = vec![
        property(
            "stale-writes",
            true,
            Checked::invalid(told)
                .count("guarded_writes", 228)
                .count("stale_accepted", 2)
                .count("stale_refused", 0)
                .count("two_believed_ms", 3100),
        ),
        property(
            "mutual-exclusion",
            true,
            Checked::valid().count("holds", 2).count("overlap_ms", 0),
        ),
        property(
            "lease-early",
            false,
            Checked::unknown(Reason::NotApplicable("no lease was renewed".to_owned())),
        ),
    ];
    run.faults = vec![FaultOutcome {
        id: 1,
        fault: "freeze".to_owned(),
        target: "holder".to_owned(),
        resolved: "c1, n1".to_owned(),
        begin_ms: Some(4000),
        end_ms: Some(11_300),
        landed: true,
        healed: true,
        evidence: "state T of 4 processes in /proc from 4.00 s to 11.30 s".to_owned(),
    }];
    run.notes = vec![
        "c1 does not look at its clock before it writes: that is what `naive` means".to_owned(),
    ];
    (run, history)
}

/// A register under three faults, with two elections, in which nothing is wrong.
pub fn register_held() -> (RunResult, History) {
    let mut script = Script::new("register", 5);
    for n in 0..6000u64 {
        let from = n * 10 * MS;
        let slow = (12 * S..20 * S).contains(&from) as u64 * 30 + 1;
        let took = (2 * MS + script.random(4 * MS)) * slow;
        let no_leader = (27 * S..28 * S).contains(&from) || (44 * S..45 * S).contains(&from);
        let kind = match (no_leader, n % 5) {
            (true, 0) => Kind::Info,
            (true, _) => Kind::Fail,
            _ => Kind::Ok,
        };
        let (f, io) = match n % 2 {
            0 => ("read", [Value::Null, json!(n / 7)]),
            _ => ("write", [json!(n), json!(n)]),
        };
        script.op(&n.to_string(), from..from + took, kind, f, "x", io);
    }
    let specs = [
        (1, "slow", "n1-n2", 12 * S, 20 * S),
        (2, "cut", "n2", 27 * S, 38 * S),
        (3, "kill", "n3", 44 * S, 47 * S),
    ];
    for (id, f, target, from, to) in specs {
        for (at, phase) in [(from, "begin"), (to, "end")] {
            script.fault(
                at,
                f,
                json!({"id": id, "phase": phase, "target": target, "verified": true}),
            );
        }
    }
    script.observe(60 * S, |node, at| match (node, at / MS) {
        ("n3", 44_000..47_400) => None,
        ("n2", 27_000..30_000) => Some((Some("n2"), 7)),
        ("n2", 30_000..38_500) => Some((None, 7)),
        (_, ..27_100) => Some((Some("n2"), 7)),
        (_, ..27_900) => Some((None, 8)),
        (_, ..44_000) => Some((Some("n3"), 8)),
        (_, ..44_800) => Some((None, 9)),
        _ => Some((Some("n5"), 9)),
    });
    let history = script.finish();
    let mut run = run("register/faults", "register", &history);
    run.outcome = Outcome::Held;
    run.properties = vec![
        property(
            "linearizable",
            true,
            Checked::valid().count("ops", 5800).count("keys", 1),
        ),
        property(
            "lost-writes",
            true,
            Checked::valid().count("acknowledged", 2960),
        ),
    ];
    run.coverage = Checked::valid()
        .count("ok_ops", 5800)
        .count("leader_changes", 2)
        .count("ok_during_faults", 2120);
    run.faults = specs
        .iter()
        .map(|&(id, f, target, from, to)| FaultOutcome {
            id,
            fault: f.to_owned(),
            target: "leader".to_owned(),
            resolved: target.to_owned(),
            begin_ms: Some(from / MS),
            end_ms: Some(to / MS),
            landed: true,
            healed: true,
            evidence: "41 packets dropped by the policy while probing; none after".to_owned(),
        })
        .collect();
    run.sentence = super::sentence(
        run.outcome,
        &run.properties,
        &run.coverage,
        &[],
        &run.faults,
    );
    (run, history)
}

/// A checker ran out of its budget, and a fault did not land.
pub fn inconclusive() -> (RunResult, History) {
    let (mut run, history) = register_held();
    run.cell = "register/partition".to_owned();
    run.outcome = Outcome::Inconclusive;
    run.properties[0].checked = Checked::unknown(Reason::Budget(
        "time limit reached after 4,103 of 6,000 operations".to_owned(),
    ));
    run.faults[1].landed = false;
    run.faults[1].evidence = "the probe still went through: 5 of 5 packets".to_owned();
    run.sentence = super::sentence(
        run.outcome,
        &run.properties,
        &run.coverage,
        &[],
        &run.faults,
    );
    (run, history)
}

/// A server did not come up.
pub fn harness_failed() -> (RunResult, History) {
    let history = HistoryBuilder::new(Header::new("register", &[])).finish();
    let mut run = run("register/kill", "register", &history);
    run.outcome = Outcome::HarnessFailed;
    run.properties = Vec::new();
    run.coverage = Checked::unknown(Reason::Coverage("nothing was recorded".to_owned()));
    run.faults = Vec::new();
    run.harness = vec![
        Stage {
            name: "cluster".to_owned(),
            took_ms: 412,
            error: None,
        },
        Stage {
            name: "system".to_owned(),
            took_ms: 10_000,
            error: Some(
                "n2: conclave was not ready after 10 s\nlast lines of its log:\n  \
                 listening on 10.9.0.2:2379\n  error: data directory is locked by process 71"
                    .to_owned(),
            ),
        },
        Stage {
            name: "teardown".to_owned(),
            took_ms: 35,
            error: None,
        },
    ];
    run.sentence = super::sentence(run.outcome, &[], &run.coverage, &run.harness, &[]);
    (run, history)
}

/// `ops` operations on 25 servers, with an election every second and 400 faults: more than a
/// picture can show.
pub fn huge(ops: u64) -> (RunResult, History) {
    let mut script = Script::new("register", 25);
    let end = 600 * S;
    let mut builder = HistoryBuilder::new(script.header.clone());
    let mut faults = Vec::new();
    script.observe(end, |node, at| {
        let term = at / S;
        let leader = ["n1", "n2", "n3", "n4"][(term % 4) as usize];
        (!(node.len() as u64 + at / MS).is_multiple_of(13)).then_some((Some(leader), term))
    });
    for id in 0..400u64 {
        let begin = id * 1500 * MS;
        let value = |phase| json!({"id": id, "phase": phase, "target": "n1", "verified": true});
        script.fault(begin, "cut", value("begin"));
        script.fault(begin + S, "cut", value("end"));
        faults.push(FaultOutcome {
            id,
            fault: ["cut", "slow", "freeze"][(id % 3) as usize].to_owned(),
            target: "leader".to_owned(),
            resolved: format!("n{}", id % 25 + 1),
            begin_ms: Some(begin / MS),
            end_ms: Some(begin / MS + 1000),
            landed: id % 7 != 0,
            healed: true,
            evidence: "packets were dropped".to_owned(),
        });
    }
    for n in 0..ops {
        let from = n * (end / ops);
        let took = 1 + script.random(1 << (n % 34));
        let kind = [Kind::Ok, Kind::Ok, Kind::Fail, Kind::Info][(n % 4) as usize];
        let process = Process::Number(n);
        script.push(Event::new(
            from,
            process.clone(),
            Kind::Invoke,
            "write",
            json!(n),
        ));
        script.push(Event::new(from + took, process, kind, "write", json!(n)));
    }
    script.events.sort_by_key(|event| event.time);
    for event in &script.events {
        builder.push(event).expect("the story is consistent");
    }
    let history = builder.finish();
    let mut run = run("big/one", "register", &history);
    run.faults = faults;
    (run, history)
}

fn property(name: &str, claimed: bool, checked: Checked) -> Property {
    Property {
        name: name.to_owned(),
        claimed,
        took_ms: 12,
        checked,
    }
}

/// Everything that the stories share.
fn run(cell: &str, workload: &str, history: &History) -> RunResult {
    let node = |name: &str, role: &str, host: usize| NodeInfo {
        name: name.to_owned(),
        role: role.to_owned(),
        addr: format!("10.9.0.{host}"),
    };
    let servers = history.header.nodes.iter().enumerate();
    let mut nodes: Vec<NodeInfo> = servers
        .map(|(at, name)| node(name, "server", at + 1))
        .collect();
    nodes.extend(
        ["c1", "c2", "c3"]
            .iter()
            .enumerate()
            .map(|(at, name)| node(name, "client", at + 101)),
    );
    let stages = [
        "cluster", "system", "clients", "drive", "heal", "settle", "teardown", "check",
    ];
    RunResult {
        schema: RESULT_SCHEMA,
        id: "7f3a91".to_owned(),
        suite: "first".to_owned(),
        cell: cell.to_owned(),
        workload: workload.to_owned(),
        system: SystemInfo {
            name: "conclave".to_owned(),
            version: "0.1.0".to_owned(),
            params: serde_json::from_value(json!({"ttl": "3s", "prevote": true})).expect("a map"),
        },
        backend: "local".to_owned(),
        seed: 424_242,
        started: DateTime::<Utc>::from_timestamp(1_796_000_000, 0).expect("a time"),
        duration_ms: 21_400,
        outcome: Outcome::Held,
        expect: None,
        as_expected: None,
        sentence: String::new(),
        properties: Vec::new(),
        coverage: Checked::valid()
            .count("ok_ops", 250)
            .count("leader_changes", 1),
        harness: stages
            .iter()
            .enumerate()
            .map(|(at, name)| Stage {
                name: (*name).to_owned(),
                took_ms: [400, 950, 120, 20_000, 15, 300, 40, 80][at],
                error: None,
            })
            .collect(),
        faults: Vec::new(),
        nodes,
        environment: BTreeMap::from([
            ("kernel".to_owned(), "Linux 6.1.0".to_owned()),
            ("processors".to_owned(), "2".to_owned()),
            ("schism".to_owned(), "0.1.0".to_owned()),
        ]),
        argv: ["schism", "run", "suites/first.toml"]
            .map(str::to_owned)
            .to_vec(),
        replay: "schism replay results/first/20261130T010203Z-7f3a91".to_owned(),
        digests: BTreeMap::from([("history.jsonl".to_owned(), "91ab".repeat(16))]),
        notes: Vec::new(),
    }
}
