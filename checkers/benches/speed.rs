//! What each checker costs: milliseconds for a million events, on histories made for it.
//!
//! `cargo bench -p checkers`, or with a name to run only the checkers that contain it. Building
//! the histories is not measured.

use checkers::{Budget, CHECKERS, find};
use history::clock::Clock;
use history::{Event, Header, History, HistoryBuilder, Kind, Process};
use serde_json::{Value, json};

const EVENTS: u64 = 1_000_000;

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    println!(
        "{:<18} {:<28} {:>9} {:>12}  verdict",
        "checker", "history", "events", "ms/M events"
    );
    for (title, history, names) in histories() {
        for name in names.iter().filter(|name| is_wanted(name)) {
            measure(name, title, &history);
        }
    }
    for checker in CHECKERS {
        let judged = histories_of(checker.name());
        let is_elsewhere = MEASURED_ELSEWHERE.contains(&checker.name());
        assert!(
            judged > 0 || is_elsewhere,
            "{} is not measured",
            checker.name()
        );
    }
}

fn measure(name: &str, title: &str, history: &History) {
    let checker = find(name).expect("a checker of this name");
    let clock = Clock::start();
    let found = checkers::run(checker, history, &Budget::unlimited());
    let ms = clock.now() as f64 / 1e6;
    let per_million = ms * 1e6 / history.len() as f64;
    println!(
        "{name:<18} {title:<28} {:>9} {per_million:>12.1}  {}",
        history.len(),
        found.verdict.describe()
    );
}

/// Measured by `benches/transactions.rs`.
const MEASURED_ELSEWHERE: &[&str] = &["append", "wr"];

type Made = (&'static str, fn() -> History, &'static [&'static str]);

const LOCKS: &[&str] = &[
    "split-brain",
    "stale-writes",
    "mutual-exclusion",
    "lease-early",
    "lease-stuck",
    "loss-notice",
    "availability",
    "coverage",
    "stats",
];

const REGISTERS: &[&str] = &[
    "linearizable",
    "read-your-writes",
    "monotonic-reads",
    "monotonic-writes",
    "writes-follow-reads",
    "causal",
    "sequential",
];

/// What holds of clients that read what their server has, which may be old.
const WEAK: &[&str] = &[
    "read-your-writes",
    "monotonic-reads",
    "monotonic-writes",
    "writes-follow-reads",
    "causal",
    "sequential",
];

const MADE: &[Made] = &[
    ("lock, one key", || locks(1), LOCKS),
    ("lock, 10000 keys", || locks(10_000), LOCKS),
    (
        "register, unique writes",
        || register(false, 20, u64::MAX, 1),
        REGISTERS,
    ),
    (
        "unique writes, 1000 keys",
        || register(false, 20, u64::MAX, 1_000),
        REGISTERS,
    ),
    ("old reads, one key", || old_reads(1), WEAK),
    ("old reads, 1000 keys", || old_reads(1_000), WEAK),
    (
        "register, 5 values, 5 clients",
        || register(true, 5, 5, 1),
        &["linearizable"],
    ),
    (
        "cas, 1000 keys, 20 clients",
        || register(true, 20, 5, 1_000),
        &["linearizable"],
    ),
    (
        "set, 3 final reads",
        set,
        &["lost-writes", "set-full", "convergence"],
    ),
    ("set, 500 reads on the way", set_on_the_way, &["set-full"]),
    ("queue, 2 clients", || queue(1), &["queue", "total-queue"]),
    (
        "queue, 1000 keys",
        || queue(1_000),
        &["queue", "total-queue"],
    ),
    ("counter", || counter(1), &["counter"]),
    ("counter, 1000 keys", || counter(1_000), &["counter"]),
    ("bank, 8 accounts", bank, &["bank"]),
    ("long fork, groups of 3", long_fork, &["long-fork"]),
    ("exits and logs", facts, &["crash", "log-pattern"]),
    ("inserts, reads of all", inserts, &["causal-reverse"]),
    (
        "registers, 3 final reads",
        registers_at_end,
        &["lost-writes", "convergence"],
    ),
    ("ids", || calls("generate"), &["unique-ids"]),
    ("jobs", || calls("run"), &["job-once"]),
    ("watch", watch, &["watch"]),
    (
        "observations",
        observations,
        &["split-brain", "election-churn", "availability"],
    ),
];

fn histories() -> impl Iterator<Item = (&'static str, History, &'static [&'static str])> {
    MADE.iter()
        .map(|&(title, make, names)| (title, make(), names))
}

fn histories_of(checker: &str) -> usize {
    MADE.iter()
        .filter(|(_, _, names)| names.contains(&checker))
        .count()
}

/// Pushes events with a clock that goes on by a microsecond each.
struct Maker {
    builder: HistoryBuilder,
    time: u64,
    random: u64,
}

impl Maker {
    fn new(workload: &str, params: Value) -> Maker {
        let mut header = Header::new(workload, &[]);
        header.params = params.as_object().cloned().unwrap_or_default();
        Maker {
            builder: HistoryBuilder::new(header),
            time: 0,
            random: 7,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % limit
    }

    fn push(&mut self, process: Process, kind: Kind, f: &str, key: Option<u64>, value: Value) {
        self.push_at(None, process, kind, f, key, value);
    }

    fn push_at(
        &mut self,
        node: Option<&str>,
        process: Process,
        kind: Kind,
        f: &str,
        key: Option<u64>,
        value: Value,
    ) {
        self.time += 1_000;
        let mut event = Event::new(self.time, process, kind, f, value);
        event.key = key.map(Value::from);
        event.node = node.map(str::to_owned);
        self.builder.push(&event).expect("a consistent history");
    }

    fn call(&mut self, process: u64, f: &str, key: Option<u64>, input: Value, output: Value) {
        self.push(Process::Number(process), Kind::Invoke, f, key, input);
        self.push(Process::Number(process), Kind::Ok, f, key, output);
    }

    fn finish(self) -> History {
        self.builder.finish()
    }
}

fn locks(keys: u64) -> History {
    let mut maker = Maker::new("lock", json!({"ttl_ms": 1000, "bound_ms": 5000}));
    for round in 0..EVENTS / 12 {
        let (key, process) = (round % keys, round % 97);
        let token = json!({"token": round + 1});
        let put = json!({"v": round, "token": round + 1});
        maker.call(
            process,
            "acquire",
            Some(key),
            json!({"ttl_ms": 1000}),
            token,
        );
        maker.call(
            process + 100,
            "acquire",
            Some(key),
            Value::Null,
            json!({"token": null}),
        );
        maker.call(
            process,
            "renew",
            Some(key),
            json!({"ttl_ms": 1000}),
            Value::Null,
        );
        maker.call(
            process,
            "put",
            Some(key),
            put.clone(),
            json!({"v": round, "token": round + 1, "seq": round}),
        );
        maker.call(process, "act", Some(key), Value::Null, Value::Null);
        maker.call(process, "release", Some(key), Value::Null, Value::Null);
    }
    maker.finish()
}

/// An open operation: function, key, argument, and its answer if it has taken effect.
type Open = (&'static str, u64, Value, Option<Value>);

/// A perfect register under concurrent clients: each operation takes effect at its completion or
/// its invocation, at random.
fn register(cas: bool, clients: u64, values: u64, keys: u64) -> History {
    let mut maker = Maker::new("register", Value::Null);
    let mut state = vec![Value::Null; keys as usize];
    let mut open: Vec<Option<Open>> = vec![None; clients as usize];
    let mut written = 0;
    for _ in 0..EVENTS {
        let client = maker.below(clients);
        let process = Process::Number(client);
        if let Some((f, key, input, early)) = open[client as usize].take() {
            let output = early.or_else(|| apply(f, &mut state[key as usize], &input));
            match output {
                Some(output) => maker.push(process, Kind::Ok, f, Some(key), output),
                None => maker.push(process, Kind::Fail, f, Some(key), input),
            }
            continue;
        }
        let key = maker.below(keys);
        let mut value = || {
            written += 1;
            if values == u64::MAX {
                Value::from(written)
            } else {
                Value::from(maker.below(values))
            }
        };
        let pick = value().as_u64().unwrap_or(0) % 3;
        let (f, input) = match pick {
            0 => ("read", Value::Null),
            1 if cas => ("cas", json!([value(), value()])),
            _ => ("write", value()),
        };
        maker.push(process, Kind::Invoke, f, Some(key), input.clone());
        let early = if maker.below(2) == 0 {
            apply(f, &mut state[key as usize], &input)
        } else {
            None
        };
        open[client as usize] = Some((f, key, input, early));
    }
    maker.finish()
}

/// Twenty clients of a service that orders all writes and answers reads from what a client's
/// server has got of them so far: never less than before, and never without the client's own.
fn old_reads(keys: u64) -> History {
    let mut maker = Maker::new("register", Value::Null);
    let mut written: Vec<Vec<(u64, u64)>> = vec![Vec::new(); keys as usize];
    let mut seen = [0u64; 20];
    let mut log = 0;
    for _ in 0..EVENTS / 2 {
        let client = maker.below(20);
        let key = maker.below(keys);
        let of_key = &mut written[key as usize];
        if maker.below(3) == 0 {
            log += 1;
            of_key.push((log, log));
            seen[client as usize] = log;
            maker.call(client, "write", Some(key), json!(log), json!(log));
            continue;
        }
        let at = &mut seen[client as usize];
        *at = (*at + 8).clamp(log.saturating_sub(100), log);
        let until = of_key.partition_point(|&(when, _)| when <= *at);
        let value = until
            .checked_sub(1)
            .map_or(Value::Null, |last| json!(of_key[last].1));
        maker.call(client, "read", Some(key), Value::Null, value);
    }
    maker.finish()
}

fn apply(f: &str, state: &mut Value, input: &Value) -> Option<Value> {
    match f {
        "read" => return Some(state.clone()),
        "write" => *state = input.clone(),
        _ if input[0] == *state => *state = input[1].clone(),
        _ => return None,
    }
    Some(input.clone())
}

/// Keys of 500 inserts each, with a read of all of a key after every 50 of them.
fn inserts() -> History {
    let mut maker = Maker::new("set", Value::Null);
    for value in 0..EVENTS / 2 {
        let key = Some(value / 500);
        maker.call(value % 50, "insert", key, json!(value), json!(value));
        if value % 50 == 49 {
            let all: Value = (value / 500 * 500..=value).collect();
            maker.call(99, "read", key, Value::Null, all);
        }
    }
    maker.finish()
}

fn set() -> History {
    let mut maker = Maker::new("set", Value::Null);
    for value in 0..EVENTS / 2 {
        maker.call(value % 50, "add", None, json!(value), json!(value));
    }
    let all: Value = (0..EVENTS / 2).collect();
    for node in ["n1", "n2", "n3"] {
        maker.push_at(
            Some(node),
            Process::Number(99),
            Kind::Invoke,
            "final-read",
            None,
            Value::Null,
        );
        maker.push_at(
            Some(node),
            Process::Number(99),
            Kind::Ok,
            "final-read",
            None,
            all.clone(),
        );
    }
    maker.finish()
}

/// A thousand elements of which a read has all so far, every ten adds: half a million in all.
fn set_on_the_way() -> History {
    let mut maker = Maker::new("set", Value::Null);
    for value in 0..EVENTS / 2 {
        let key = value / 1_000;
        maker.call(value % 50, "add", Some(key), json!(value), json!(value));
        if value % 1_000 == 999 {
            let all: Value = (key * 1_000..=value).collect();
            maker.call(60, "read", Some(key), Value::Null, all);
        }
    }
    maker.finish()
}

fn queue(keys: u64) -> History {
    let mut maker = Maker::new("queue", Value::Null);
    for value in 0..EVENTS / 4 {
        let key = Some(value % keys);
        maker.call(1, "enqueue", key, json!(value), json!(value));
        maker.call(2, "dequeue", key, Value::Null, json!(value));
    }
    maker.finish()
}

fn counter(keys: u64) -> History {
    let mut maker = Maker::new("counter", Value::Null);
    for round in 0..EVENTS / 4 {
        let key = Some(round % keys);
        maker.call(1, "add", key, json!(1), json!(1));
        maker.call(2, "read", key, Value::Null, json!(round / keys + 1));
    }
    maker.finish()
}

fn bank() -> History {
    let mut maker = Maker::new("bank", Value::Null);
    let mut balances = [10u64; 8];
    for round in 0..EVENTS / 4 {
        let (from, to) = (round as usize % 8, round as usize * 3 % 8);
        let amount = u64::from(balances[from] > 0);
        balances[from] -= amount;
        balances[to] += amount;
        let moved = json!({"from": from, "to": to, "amount": amount});
        maker.call(1, "transfer", None, moved.clone(), moved);
        let read: serde_json::Map<String, Value> = (0..8)
            .map(|account| (account.to_string(), json!(balances[account])))
            .collect();
        maker.call(2, "read", None, Value::Null, read.into());
    }
    maker.finish()
}

/// Groups of three keys, each written once, and read as a whole after each of the writes.
fn long_fork() -> History {
    let mut maker = Maker::new("txn", Value::Null);
    for round in 0..EVENTS / 4 {
        let (group, done) = (round / 3 * 3, round % 3);
        let write = json!([["w", round, 1]]);
        maker.call(1, "txn", None, write.clone(), write);
        let seen = |key: u64| if key <= done { json!(1) } else { Value::Null };
        let asked: Value = (0..3).map(|key| json!(["r", group + key, null])).collect();
        let read: Value = (0..3)
            .map(|key| json!(["r", group + key, seen(key)]))
            .collect();
        maker.call(2, "txn", None, asked, read);
    }
    maker.finish()
}

/// A million looks at the logs of three nodes, and a kill and its exit now and then.
fn facts() -> History {
    let mut maker = Maker::new("register", json!({"log_must_not": ["panicked"]}));
    let observe = |maker: &mut Maker, node, f, value| {
        let observer = Process::observer();
        maker.push_at(Some(node), observer, Kind::Info, f, None, value);
    };
    for round in 0..EVENTS {
        let node = ["n1", "n2", "n3"][round as usize % 3];
        match round % 100 {
            0 => observe(&mut maker, node, "start", json!({"service": "db"})),
            1 => {
                let kill = json!({"target": node, "phase": "begin"});
                maker.push(Process::nemesis(), Kind::Info, "kill", None, kill);
            }
            2 => {
                let exit = json!({"service": "db", "how": "signal 9"});
                observe(
                    &mut maker,
                    ["n3", "n1", "n2"][round as usize % 3],
                    "exit",
                    exit,
                );
            }
            _ => {
                let log = json!({"file": "db.log", "lines": round, "looked_for": ["panicked"], "found": []});
                observe(&mut maker, node, "log", log);
            }
        }
    }
    maker.finish()
}

fn registers_at_end() -> History {
    let mut maker = Maker::new("register", Value::Null);
    let keys = 1_000;
    let rounds = EVENTS / 2 / keys;
    for value in 0..rounds * keys {
        maker.call(
            value % 50,
            "write",
            Some(value % keys),
            json!(value),
            json!(value),
        );
    }
    for node in ["n1", "n2", "n3"] {
        for key in 0..keys {
            let last = json!((rounds - 1) * keys + key);
            maker.push_at(
                Some(node),
                Process::Number(99),
                Kind::Invoke,
                "final-read",
                Some(key),
                Value::Null,
            );
            maker.push_at(
                Some(node),
                Process::Number(99),
                Kind::Ok,
                "final-read",
                Some(key),
                last,
            );
        }
    }
    maker.finish()
}

fn calls(f: &str) -> History {
    let mut maker = Maker::new("ids", Value::Null);
    for id in 0..EVENTS / 2 {
        maker.call(id % 50, f, Some(id % 7), json!(id), json!(id));
    }
    maker.finish()
}

fn watch() -> History {
    let committed: Value = (0..EVENTS / 10).collect();
    let mut maker = Maker::new("watch", json!({"committed_revisions": committed}));
    for revision in 0..EVENTS / 10 {
        for watcher in 0..10 {
            maker.push(
                Process::Number(watcher),
                Kind::Info,
                "event",
                None,
                json!({"revision": revision}),
            );
        }
    }
    maker.finish()
}

fn observations() -> History {
    let mut maker = Maker::new("register", json!({"max_terms": 10, "bound_ms": 100_000}));
    maker.call(1, "write", Some(0), json!(1), json!(1));
    for look in 0..EVENTS {
        let (node, term) = (["n1", "n2", "n3"][look as usize % 3], look / 300_000);
        let leader = ["n1", "n2", "n3"][term as usize % 3];
        maker.push_at(
            Some(node),
            Process::observer(),
            Kind::Info,
            "leader",
            None,
            json!({"leader": leader, "term": term}),
        );
    }
    maker.call(1, "write", Some(0), json!(2), json!(2));
    maker.finish()
}
