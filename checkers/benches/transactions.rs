//! What the checkers of transactions cost, beside their targets: seconds on one core, as a multiple
//! of the time that reading all columns of the history once takes, and the peak of memory.
//!
//! `cargo bench -p checkers --bench transactions`, with the number of transactions if it is another
//! than 1000000, and the part of a name to run only what contains it. Making histories is not
//! measured; their columns count as memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use checkers::{Budget, Checked, find};
use history::History;
use history::clock::Clock;

#[path = "transactions/registers.rs"]
mod registers;
#[path = "../simulator.rs"]
mod simulator;

use simulator::{Database, Load};

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
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 3;
/// Passes over the columns that are timed together: one of a small history is too short.
const PASSES: u32 = 20;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let given = args.iter().find_map(|arg| arg.parse().ok());
    let txns: u64 = given.unwrap_or(1_000_000);
    let wanted = args
        .iter()
        .find(|arg| !arg.starts_with("--") && arg.parse::<u64>().is_err());
    println!(
        "{:<22} {:>10} {:>9} {:>9} {:>7} {:>10} {:>10}  verdict",
        "database", "txns", "seconds", "target", "x read", "check MB", "all MB"
    );
    for database in [
        Database::StrictSerializable,
        Database::SnapshotIsolation,
        Database::StaleReads,
        Database::LostAppends,
        Database::ReadUncommitted,
    ] {
        let name = format!("{database:?}");
        if wanted.is_none_or(|part| name.contains(part.as_str())) {
            measure(&name, Load::of(database, txns));
        }
    }
    measure_registers(txns, wanted);
}

/// Registers: those of concurrent clients at the strictest level, and text of Plume at weak ones,
/// reading included.
fn measure_registers(txns: u64, wanted: Option<&String>) {
    let is_wanted = |name: &str| wanted.is_none_or(|part| name.contains(part.as_str()));
    if is_wanted("wr sequential keys") {
        let made = registers::strict(txns / 10);
        let held = HELD.load(Ordering::Relaxed);
        print_row("wr sequential keys", txns / 10, 2e-6, held, || {
            let checker = find("wr").expect("the checker");
            checkers::run(checker, &made, &Budget::new(u64::MAX, u64::MAX))
        });
    }
    let levels = [
        ("read-committed", 2e-6),
        ("monotonic-atomic-view", 2e-6),
        ("read-atomic", 3e-6),
        ("causal-cerone", 6e-6),
    ];
    if levels.iter().all(|(level, _)| !is_wanted(level)) {
        return;
    }
    let text = registers::plume(txns);
    for (level, target) in levels.into_iter().filter(|(level, _)| is_wanted(level)) {
        print_row(level, txns, target, 0, || {
            let read = history::read_bytes(text.as_bytes()).expect("a text of Plume");
            let mut history = read.history;
            let params = &mut history.header.params;
            params.insert("level".to_owned(), level.into());
            params.insert("session_order".to_owned(), "always".into());
            let checker = find("wr").expect("the checker");
            checkers::run(checker, &history, &Budget::unlimited())
        });
    }
}

fn print_row(name: &str, txns: u64, target: f64, held: usize, work: impl Fn() -> Checked) {
    let (mut seconds, mut peak, mut verdict) = (f64::MAX, 0, String::new());
    for _ in 0..ROUNDS {
        let before = HELD.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let (took, found) = timed(&work);
        peak = PEAK.load(Ordering::Relaxed) - before;
        seconds = seconds.min(took);
        verdict = told(&found);
    }
    println!(
        "{name:<22} {txns:>10} {seconds:>9.3} {:>9.3} {:>7} {:>10.1} {:>10.1}  {verdict}",
        target * txns as f64,
        "",
        peak as f64 / 1e6,
        (peak + held) as f64 / 1e6,
    );
}

fn measure(name: &str, load: Load) {
    let made = simulator::history(load);
    let history_bytes = HELD.load(Ordering::Relaxed);
    let (mut seconds, mut read, mut peak) = (f64::MAX, f64::MAX, 0);
    let mut verdict = String::new();
    for _ in 0..ROUNDS {
        let passes = || {
            (0..PASSES)
                .map(|_| bandwidth_pass(&made))
                .fold(0, u64::wrapping_add)
        };
        read = read.min(timed(passes).0 / f64::from(PASSES));
        PEAK.store(HELD.load(Ordering::Relaxed), Ordering::Relaxed);
        let before = HELD.load(Ordering::Relaxed);
        let (took, found) = timed(|| check(&made));
        peak = PEAK.load(Ordering::Relaxed) - before;
        seconds = seconds.min(took);
        verdict = told(&found);
    }
    let target = if load.txns >= 10_000_000 {
        1.2e-6
    } else if load.txns <= 100_000 {
        0.8e-6
    } else {
        1.0e-6
    };
    println!(
        "{name:<22} {:>10} {seconds:>9.3} {:>9.3} {:>7.1} {:>10.1} {:>10.1}  {verdict}",
        load.txns,
        target * load.txns as f64,
        seconds / read,
        peak as f64 / 1e6,
        (peak + history_bytes) as f64 / 1e6,
    );
}

fn check(history: &History) -> Checked {
    let checker = find("append").expect("the checker");
    checkers::run(checker, history, &Budget::new(u64::MAX, u64::MAX))
}

fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let (clock, before) = (Clock::start(), on_cpu());
    let result = work();
    let spent = match (before, on_cpu()) {
        (Some(before), Some(after)) => after - before,
        _ => clock.now(),
    };
    (spent as f64 / 1e9, result)
}

/// Nanoseconds that this thread has run, where the kernel says so: what others do on this machine
/// matters less to it than to a clock.
fn on_cpu() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Reads micro-operations, elements and events once.
fn bandwidth_pass(history: &History) -> u64 {
    let mops = history.mops().iter().map(|mop| u64::from(mop.key().bits()));
    let elements = history.elements().iter().map(|word| u64::from(word.bits()));
    let events = history.events().map(|event| event.time());
    let sum = mops
        .chain(elements)
        .chain(events)
        .fold(0, u64::wrapping_add);
    std::hint::black_box(sum)
}

fn told(found: &Checked) -> String {
    let anomalies = found.counts.iter().filter_map(|(name, count)| {
        let name = name.strip_prefix("anomalies:")?;
        Some(format!("{name}={count}"))
    });
    let anomalies: Vec<String> = anomalies.collect();
    format!("{} {}", found.verdict.describe(), anomalies.join(" "))
}
