//! How fast histories are read from a file, and what they cost in memory.
//!
//! `cargo bench -p history`, or with a part of a title to run only some. Making the files is not
//! measured; a pass of `memchr` over the same bytes is, as what the memory allows.

use std::fmt::Write as _;
use std::path::Path;

use history::{Event, Header, HistoryWriter, Kind, Process, read_path};
use serde_json::{Value, json};

const OPS: u64 = 1_000_000;

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    println!(
        "{:<26} {:>7} {:>7} {:>9} {:>10} {:>12} {:>10}",
        "history of 1M operations", "MB", "cpu ms", "MB/s", "bytes/op", "peak MB more", "x memchr"
    );
    for (title, make) in MADE {
        if wanted.is_empty() || wanted.iter().any(|part| title.contains(part.as_str())) {
            let file = std::env::temp_dir().join(format!("schism-reading-{}", std::process::id()));
            std::fs::write(&file, make()).expect("room for the file");
            measure(title, &file);
            std::fs::remove_file(&file).expect("the file");
        }
    }
}

fn measure(title: &str, file: &Path) {
    let mb = std::fs::metadata(file).expect("a file").len() as f64 / 1e6;
    let text = std::fs::read(file).expect("a file");
    let begin = cpu_ms();
    let lines = memchr::memchr_iter(b'\n', &text).count();
    let pass_ms = cpu_ms() - begin;
    assert!(lines > 0);
    drop(text);
    let mut best = f64::INFINITY;
    let (mut bytes, mut peak) = (0, 0.0);
    for _ in 0..3 {
        let before = reset_peak_mb();
        let begin = cpu_ms();
        let read = read_path(file).expect("a history");
        best = best.min(cpu_ms() - begin);
        peak = status_mb("VmHWM") - before;
        assert_eq!(read.history.ops().count() as u64, OPS);
        bytes = read.history.heap_bytes();
    }
    println!(
        "{title:<26} {mb:>7.0} {best:>7.0} {:>9.0} {:>10.1} {peak:>12.0} {:>10.1}",
        mb / best * 1e3,
        bytes as f64 / OPS as f64,
        best / pass_ms
    );
}

/// Resets the peak of the resident memory and returns what is resident now.
fn reset_peak_mb() -> f64 {
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux");
    status_mb("VmRSS")
}

/// Time that this thread spent on a core.
fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let ns = stat
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse::<f64>().ok());
    ns.expect("a number of ns") / 1e6
}

fn status_mb(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(name));
    let kb = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kb.expect("a number of kB") / 1e3
}

type Made = (&'static str, fn() -> Vec<u8>);

const MADE: &[Made] = &[
    ("jsonl, register", || jsonl(register)),
    ("jsonl, register, keys", || jsonl(keyed)),
    ("jsonl, lock", || jsonl(lock)),
    ("edn, register", edn_register),
    ("edn, list-append", || lists(false)),
    ("json, list-append", || lists(true)),
    ("plume", plume),
];

fn jsonl(op: fn(u64) -> (Event, Event)) -> Vec<u8> {
    let header = Header::new("register", &["linearizable"]);
    let mut writer = HistoryWriter::new(Vec::new(), &header).expect("memory");
    for i in 0..OPS {
        let (invoke, complete) = op(i);
        writer.append(&invoke).expect("memory");
        writer.append(&complete).expect("memory");
    }
    writer.into_inner().expect("memory")
}

fn pair(i: u64, f: &str, input: Value, output: Value) -> (Event, Event) {
    let event = |time, kind, value| Event::new(time, Process::Number(i % 20), kind, f, value);
    let begin = 1_000_000 + i * 12_345;
    (
        event(begin, Kind::Invoke, input),
        event(begin + 6_789, Kind::Ok, output),
    )
}

fn register(i: u64) -> (Event, Event) {
    match i % 2 {
        0 => pair(i, "write", json!(i), json!(i)),
        _ => pair(i, "read", Value::Null, json!(i - 1)),
    }
}

fn keyed(i: u64) -> (Event, Event) {
    let (invoke, complete) = register(i);
    let key = i / 2 % 1000;
    (invoke.with_key(key), complete.with_key(key).with_node("n1"))
}

fn lock(i: u64) -> (Event, Event) {
    let (invoke, complete) = pair(i, "acquire", json!({"ttl_ms": 10_000}), json!({"token": i}));
    (invoke.with_key("L"), complete.with_key("L").with_node("n1"))
}

fn edn_register() -> Vec<u8> {
    let mut text = String::new();
    for i in 0..OPS {
        let (p, t) = (i % 20, 1_000_000 + i * 12_345);
        writeln!(
            text,
            "{{:type :invoke, :f :write, :value {i}, :process {p}, :time {t}, :index {}}}",
            2 * i
        )
        .expect("memory");
        writeln!(
            text,
            "{{:type :ok, :f :write, :value {i}, :process {p}, :time {t}, :index {}}}",
            2 * i + 1
        )
        .expect("memory");
    }
    text.into_bytes()
}

/// Transactions of one to four micro-operations on ten keys at a time, each appended to 32 times,
/// as Elle's generator makes them, run one after the other.
fn lists(as_json: bool) -> Vec<u8> {
    let mut random: u64 = 88_172_645_463_325_252;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 33) % below
    };
    let mut keys: Vec<(u64, Vec<u64>)> = (0..10).map(|key| (key, Vec::new())).collect();
    let (mut fresh, mut text) = (10, String::new());
    for i in 0..OPS {
        let (mut asked, mut answered) = (String::new(), String::new());
        for _ in 0..=next(4) {
            let place = next(10) as usize;
            let (key, list) = &mut keys[place];
            if next(2) == 0 {
                write!(asked, "[:r {key} nil] ").expect("memory");
                let shown: Vec<String> = list.iter().map(u64::to_string).collect();
                write!(answered, "[:r {key} [{}]] ", shown.join(" ")).expect("memory");
            } else {
                list.push(list.len() as u64 + 1);
                let append = format!("[:append {key} {}] ", list.len());
                asked.push_str(&append);
                answered.push_str(&append);
                if list.len() == 32 {
                    keys[place] = (fresh, Vec::new());
                    fresh += 1;
                }
            }
        }
        let (p, t) = (i % 20, 1_000_000 + i * 12_345);
        for (at, (kind, value)) in
            (0..).zip([("invoke", asked.trim_end()), ("ok", answered.trim_end())])
        {
            let (t, index) = (t + at * 6_789, 2 * i + at);
            if as_json {
                let value = value.replace("nil", "null").replace(' ', ",");
                let value = value.replace(":append", "\"append\"").replace(":r", "\"r\"");
                writeln!(text, "{{\"index\":{index},\"type\":\"{kind}\",\"f\":\"txn\",\"value\":[{value}],\"process\":{p},\"time\":{t}}}")
            } else {
                writeln!(text, "{{:index {index}, :time {t}, :type :{kind}, :process {p}, :f :txn, :value [{value}]}}")
            }
            .expect("memory");
        }
    }
    text.into_bytes()
}

fn plume() -> Vec<u8> {
    let mut text = String::new();
    for i in 0..OPS {
        for at in 0..5 {
            let kind = if at % 2 == 0 { 'w' } else { 'r' };
            writeln!(
                text,
                "{kind}({},{},{},{i})",
                (i + at) % 10_000,
                i * 5 + at,
                i % 50
            )
            .expect("memory");
        }
    }
    text.into_bytes()
}
