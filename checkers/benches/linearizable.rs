//! What the verdict on registers costs in `linearizable`, its story left out, beside their targets:
//! milliseconds on one core (of a clock, where there are two), as a multiple of the time that reading
//! the columns of the history once takes, and the most memory that the check held besides the history.
//!
//! `cargo bench -p checkers --bench linearizable`, or with a name to run only what contains it. The
//! public histories are looked for in `$SCHISM_HISTORIES` or beside the repository. Making and
//! reading histories is not measured.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use checkers::Budget;
use checkers::linearizable::models::{Kv, Model, Register, has_order};
use history::clock::Clock;
use history::{Event, Header, History, HistoryBuilder, Kind, Process};
use serde_json::{Value, json};

/// Counts what is allocated, and the most that was.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator; only numbers are kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above, which is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the system's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let held = HELD.fetch_add(size, Ordering::Relaxed) + size - layout.size();
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the pointer came from this allocator, and so from the system's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const REPEATS: usize = 5;

/// What takes less is measured by the clock, and more often: the kernel counts in milliseconds.
const SHORT_MS: f64 = 20.0;

/// What is asked of an object.
#[derive(Clone, Copy)]
enum Words {
    /// Reads, writes and, where values are few, cas of numbers.
    Register,
    /// Gets and puts of strings.
    Map,
    /// The same, and appends.
    Log,
}

/// What an object goes through.
#[derive(Clone, Copy)]
struct Load {
    words: Words,
    threads: usize,
    ops: u64,
    clients: u64,
    keys: u64,
    /// How many values there are; none if each write has its own.
    values: Option<u64>,
    /// One in so many writes is never answered.
    crash_one_in: u64,
    /// Whether one of the last reads has the first value.
    stale: bool,
}

const fn load(ops: u64, clients: u64, keys: u64, values: Option<u64>) -> Load {
    Load {
        words: Words::Register,
        threads: 1,
        ops,
        clients,
        keys,
        values,
        crash_one_in: 0,
        stale: false,
    }
}

const fn kv(words: Words, values: Option<u64>, threads: usize) -> Load {
    Load {
        words,
        threads,
        ..load(1_000_000, 20, 1_000, values)
    }
}

const ROWS: &[(&str, f64, Load)] = &[
    (
        "84,000 ops, 5 values, 10 clients",
        300.0,
        load(84_000, 10, 1, Some(5)),
    ),
    (
        "8,450 ops, 5 values, 30 clients",
        2000.0,
        load(8_450, 30, 1, Some(5)),
    ),
    (
        "10,000 ops, distinct, 20 clients",
        0.3,
        load(10_000, 20, 1, None),
    ),
    (
        "1,000,000 ops, distinct, 20 clients",
        40.0,
        load(1_000_000, 20, 1, None),
    ),
    (
        "the same with a stale read",
        40.0,
        Load {
            stale: true,
            ..load(1_000_000, 20, 1, None)
        },
    ),
    (
        "1,000,000 ops, 5 values, 1,000 keys",
        150.0,
        load(1_000_000, 20, 1_000, Some(5)),
    ),
    (
        "the same on two cores",
        80.0,
        Load {
            threads: 2,
            ..load(1_000_000, 20, 1_000, Some(5))
        },
    ),
    (
        "1,000,000 ops, distinct, 1,000 keys",
        150.0,
        load(1_000_000, 20, 1_000, None),
    ),
    (
        "kv, 1,000,000 ops, 5 strings, 1,000 keys",
        150.0,
        kv(Words::Map, Some(5), 1),
    ),
    (
        "kv, the same on two cores",
        80.0,
        kv(Words::Map, Some(5), 2),
    ),
    ("kv, distinct strings", 150.0, kv(Words::Map, None, 1)),
    ("kv, distinct appends", 150.0, kv(Words::Log, None, 1)),
    (
        "kv, distinct appends on two cores",
        80.0,
        kv(Words::Log, None, 2),
    ),
    (
        "10,000 ops, 1,000 of them unanswered writes",
        2000.0,
        Load {
            crash_one_in: 4,
            ..load(10_000, 10, 1, Some(5))
        },
    ),
];

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    println!(
        "{:<44} {:>9} {:>10} {:>9} {:>7} {:>8}  verdict",
        "history", "ops", "ms", "target", "passes", "MB"
    );
    for &(title, target, load) in ROWS.iter().filter(|(title, ..)| is_wanted(title)) {
        let made = made(load);
        let measured = match load.words {
            Words::Register => measure::<Register>(&made, load.threads),
            Words::Map | Words::Log => measure::<Kv>(&made, load.threads),
        };
        print(title, target, made.ops().count(), &measured);
    }
    if is_wanted("Porcupine's etcd logs") {
        public::<Register>("porcupine/jepsen", "Porcupine's etcd logs", 3.0, 0.4);
    }
    if is_wanted("Knossos' files") {
        public::<Register>("knossos", "Knossos' files", 3.0, 3.0);
    }
    if is_wanted("Porcupine's kv logs") {
        public::<Kv>("porcupine/kv", "Porcupine's kv logs", 50.0, 5.0);
    }
}

struct Measured {
    ms: f64,
    passes: f64,
    mb: f64,
    /// Whether there is an order; none if that was not found out.
    verdict: Option<bool>,
}

fn print(title: &str, target: f64, ops: usize, measured: &Measured) {
    println!(
        "{title:<44} {ops:>9} {:>10.3} {target:>9.1} {:>7.1} {:>8.1}  {}",
        measured.ms,
        measured.passes,
        measured.mb,
        match measured.verdict {
            Some(true) => "valid",
            Some(false) => "invalid",
            None => "unknown",
        }
    );
}

fn measure<M: Model>(history: &History, threads: usize) -> Measured {
    let (mut best, mut pass, mut mb) = (f64::MAX, f64::MAX, 0.0);
    let mut verdict = None;
    let mut repeats = REPEATS;
    let mut done = 0;
    while done < repeats {
        done += 1;
        pass = pass.min(timed(1, || read_all(history)).0);
        let before = HELD.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let budget = Budget::unlimited().on_threads(threads);
        let (ms, found) = timed(threads, || has_order::<M>(history, &budget));
        mb = (PEAK.load(Ordering::Relaxed) - before) as f64 / 1e6;
        best = best.min(ms);
        verdict = found;
        if ms > 5_000.0 {
            break;
        }
        if ms < SHORT_MS {
            repeats = 10 * REPEATS;
        }
    }
    Measured {
        ms: best,
        passes: best / pass,
        mb,
        verdict,
    }
}

/// All files of a folder, each by itself.
fn public<M: Model>(folder: &str, title: &str, target: f64, target_each: f64) {
    let root = std::env::var_os("SCHISM_HISTORIES").map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../shared/histories"
            ))
        },
        PathBuf::from,
    );
    let mut files = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    let (mut ops, mut all, mut worst, mut count) = (0, 0.0, (0.0, PathBuf::new()), 0);
    for path in files {
        let Ok(read) = history::read_path(&path) else {
            continue;
        };
        let measured = measure::<M>(&read.history, 1);
        if measured.verdict.is_none() {
            continue;
        }
        count += 1;
        ops += read.history.ops().count();
        all += measured.ms;
        if measured.ms > worst.0 {
            worst = (measured.ms, path);
        }
    }
    let worst_name = worst.1.file_name().unwrap_or_default().to_string_lossy();
    println!(
        "{title:<44} {ops:>9} {all:>10.3} {target:>9.1}  {count} files, the slowest {worst_name} {:.3} \
         (target {target_each})",
        worst.0
    );
}

fn timed<T>(threads: usize, work: impl FnOnce() -> T) -> (f64, T) {
    let (clock, before) = (Clock::start(), on_cpu());
    let result = work();
    let wall = clock.now();
    let spent = match (before, on_cpu()) {
        (Some(before), Some(after)) if threads == 1 && wall as f64 > SHORT_MS * 1e6 => {
            after - before
        }
        _ => wall,
    };
    (spent as f64 / 1e6, result)
}

/// Nanoseconds that this thread has run, where the kernel says so: what others do on this machine
/// matters less to it than to a clock.
fn on_cpu() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Looks at every event once.
fn read_all(history: &History) -> u64 {
    let sum = history.events().fold(0u64, |sum, event| {
        sum.wrapping_add(event.value().packed().bits())
            .wrapping_add(event.time())
    });
    std::hint::black_box(sum)
}

/// An open operation: function, key, argument, and its answer if it has taken effect.
type Open = (&'static str, u64, Value, Option<Value>);

/// A perfect register under concurrent clients: each operation takes effect at its call or at its
/// return, at random. A cas that would fail is not asked for.
fn made(load: Load) -> History {
    let mut builder = HistoryBuilder::new(Header::new("register", &[]));
    let mut random = 7u64;
    let mut below = move |limit: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % limit
    };
    let mut state = vec![Value::Null; load.keys as usize];
    let mut open: Vec<Option<Open>> = vec![None; load.clients as usize];
    let mut process: Vec<u64> = (0..load.clients).collect();
    let (mut time, mut asked, mut written) = (0, 0, 0u64);
    let mut stale = load.stale;
    let mut push = |process: u64, kind, f: &str, key: u64, value: Value| {
        time += 1_000;
        let event = Event::new(time, Process::Number(process), kind, f, value).with_key(key);
        builder.push(&event).expect("a consistent history");
    };
    while asked < load.ops {
        let client = below(load.clients) as usize;
        if let Some((f, key, input, early)) = open[client].take() {
            let crashes = f == "write" && load.crash_one_in > 0 && below(load.crash_one_in) == 0;
            if crashes {
                if early.is_none() && asked % 2 == 0 {
                    apply(f, &mut state[key as usize], &input);
                }
                push(process[client], Kind::Info, f, key, Value::Null);
                process[client] += load.clients;
                continue;
            }
            let is_stale = stale && f == "read" && asked > load.ops / 10 * 9;
            stale &= !is_stale;
            match early.or_else(|| apply(f, &mut state[key as usize], &input)) {
                Some(_) if is_stale => push(process[client], Kind::Ok, f, key, json!(1)),
                Some(output) => push(process[client], Kind::Ok, f, key, output),
                None => push(process[client], Kind::Fail, f, key, input),
            }
            continue;
        }
        asked += 1;
        let key = below(load.keys);
        let mut value = || {
            written += 1;
            let value = load.values.map_or(written, &mut below);
            match load.words {
                Words::Register => json!(value),
                Words::Map | Words::Log => json!(format!("x {value} y")),
            }
        };
        let (f, input) = match (load.words, asked % 6, load.values) {
            (Words::Register, 0 | 3, _) => ("read", Value::Null),
            (Words::Register, 1 | 4, Some(_)) => ("cas", json!([value(), value()])),
            (Words::Register, ..) => ("write", value()),
            (_, 0 | 2 | 4, _) => ("get", Value::Null),
            (Words::Log, 1 | 3, _) => ("append", value()),
            _ => ("put", value()),
        };
        push(process[client], Kind::Invoke, f, key, input.clone());
        let early = (below(2) == 0).then(|| apply(f, &mut state[key as usize], &input));
        open[client] = Some((f, key, input, early.flatten()));
    }
    builder.finish()
}

fn apply(f: &str, state: &mut Value, input: &Value) -> Option<Value> {
    match f {
        "read" | "get" => return Some(state.clone()),
        "write" | "put" => *state = input.clone(),
        "append" => {
            let before = state.as_str().unwrap_or_default();
            *state = json!(before.to_owned() + input.as_str().unwrap_or_default());
        }
        _ if input[0] == *state => *state = input[1].clone(),
        _ => return None,
    }
    Some(input.clone())
}
