//! What the verdict of `linearizable` costs for the models that are no registers: a million
//! operations of twenty clients each, milliseconds on one core, as a multiple of the time that
//! reading the columns of the history once takes, and the most memory that the check held besides
//! the history.
//!
//! `cargo bench -p checkers --bench models`, or with a name to run only what contains it. Making
//! histories is not measured, nor is telling a story.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use checkers::Budget;
use checkers::linearizable::models::{
    AppendLog, Counter, FencedMutex, FifoQueue, Mutex, OwnerAwareMutex, ReentrantMutex, Semaphore,
    Set, UnorderedQueue, VersionedRegister, has_order,
};
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
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const OPS: usize = 1_000_000;
const CLIENTS: usize = 20;
const TARGET_MS: f64 = 150.0;
const REPEATS: usize = 5;

/// What takes less is measured by the clock: the kernel counts in milliseconds.
const SHORT_MS: f64 = 20.0;

type Verdict = fn(&History, &Budget) -> Option<bool>;

type Row = (&'static str, fn() -> History, Verdict);

const ROWS: &[Row] = &[
    ("mutex", || lock("mutex", 1), has_order::<Mutex>),
    (
        "owner-aware-mutex",
        || lock("owner-aware-mutex", 1),
        has_order::<OwnerAwareMutex>,
    ),
    (
        "reentrant-mutex",
        || lock("reentrant-mutex", 1),
        has_order::<ReentrantMutex>,
    ),
    (
        "fenced-mutex",
        || lock("fenced-mutex", 1),
        has_order::<FencedMutex>,
    ),
    (
        "semaphore, 5 permits",
        || lock("semaphore", 5),
        has_order::<Semaphore>,
    ),
    ("fifo-queue", || queue(true), has_order::<FifoQueue>),
    (
        "unordered-queue",
        || queue(false),
        has_order::<UnorderedQueue>,
    ),
    ("set, 3 final reads", set_read_at_the_end, has_order::<Set>),
    ("set, asked for 1,000 values", set_asked, has_order::<Set>),
    ("counter, ones", counter, has_order::<Counter>),
    ("append-log, 3 final reads", log, has_order::<AppendLog>),
    (
        "versioned-register",
        versions,
        has_order::<VersionedRegister>,
    ),
];

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    println!(
        "{:<28} {:>9} {:>8} {:>7} {:>7} {:>7}  verdict",
        "history", "ops", "ms", "target", "passes", "MB"
    );
    for &(title, make, verdict) in ROWS {
        if wanted.is_empty() || wanted.iter().any(|part| title.contains(part.as_str())) {
            measure(title, &make(), verdict);
        }
    }
}

fn measure(title: &str, history: &History, verdict: Verdict) {
    let (mut best, mut pass, mut mb, mut found) = (f64::MAX, f64::MAX, 0.0, None);
    for _ in 0..REPEATS {
        pass = pass.min(timed(|| read_all(history)).0);
        let before = HELD.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let (ms, verdict) = timed(|| verdict(history, &Budget::unlimited().on_threads(1)));
        mb = (PEAK.load(Ordering::Relaxed) - before) as f64 / 1e6;
        best = best.min(ms);
        found = verdict;
    }
    println!(
        "{title:<28} {:>9} {best:>8.1} {TARGET_MS:>7.0} {:>7.1} {mb:>7.1}  {}",
        history.ops().count(),
        best / pass,
        match found {
            Some(true) => "valid",
            Some(false) => "invalid",
            None => "unknown",
        }
    );
}

/// Milliseconds that this thread ran, or else that went by.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let (clock, before) = (Clock::start(), on_cpu());
    let result = work();
    let wall = clock.now();
    let spent = before
        .zip(on_cpu())
        .filter(|_| wall as f64 > SHORT_MS * 1e6)
        .map(|(before, after)| after - before);
    (spent.unwrap_or(wall) as f64 / 1e6, result)
}

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

/// Asks for the next operation of a client, if it wants one; says what an operation that was asked
/// for returns, if it can take effect now.
trait Object {
    fn ask(&mut self, client: usize, random: &mut Random) -> Option<(&'static str, Value)>;
    fn happen(&mut self, client: usize, f: &str, input: &Value) -> Option<Value>;
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

/// An open operation: function, argument, and its answer if it has taken effect.
type Open = (&'static str, Value, Option<Value>);

/// Clients of an object whose operations take effect when they are asked for or when they return,
/// at random, or wait until they can; at the end each of `last` is asked for and answered.
fn play(header: Header, mut object: impl Object, last: &[&'static str]) -> History {
    let mut builder = HistoryBuilder::new(header);
    let mut random = Random(7);
    let mut open: Vec<Option<Open>> = vec![None; CLIENTS];
    let mut time = 0;
    let mut push = |client: usize, kind, f: &str, value: Value| {
        time += 1_000;
        let event = Event::new(time, Process::Number(client as u64), kind, f, value);
        builder
            .push(&event.with_key("x"))
            .expect("a consistent history");
    };
    let mut asked = 0;
    while asked < OPS - last.len() {
        let client = random.below(CLIENTS);
        match &mut open[client] {
            None => {
                let Some((f, input)) = object.ask(client, &mut random) else {
                    continue;
                };
                asked += 1;
                push(client, Kind::Invoke, f, input.clone());
                let early = random.below(2) == 0;
                let output = early.then(|| object.happen(client, f, &input)).flatten();
                open[client] = Some((f, input, output));
            }
            Some((f, input, output)) => {
                if let Some(output) = output.take().or_else(|| object.happen(client, f, input)) {
                    push(client, Kind::Ok, f, output);
                    open[client] = None;
                }
            }
        }
    }
    for f in last {
        push(CLIENTS, Kind::Invoke, f, Value::Null);
        let output = object.happen(CLIENTS, f, &Value::Null).expect("a read");
        push(CLIENTS, Kind::Ok, f, output);
    }
    builder.finish()
}

fn header(model: &str) -> Header {
    Header::new(model, &[])
}

/// A lock: who holds it, and how often.
struct Lock {
    model: &'static str,
    permits: usize,
    holders: Vec<usize>,
    token: u64,
}

fn lock(model: &'static str, permits: usize) -> History {
    let lock = Lock {
        model,
        permits,
        holders: Vec::new(),
        token: 0,
    };
    let mut header = header(model);
    header.params.insert("permits".to_owned(), json!(permits));
    play(header, lock, &[])
}

impl Lock {
    fn may_take(&self, client: usize) -> bool {
        let held = self.holders.len();
        match self.model {
            "reentrant-mutex" => held < 3 && self.holders.iter().all(|&holder| holder == client),
            _ => held < self.permits,
        }
    }
}

impl Object for Lock {
    fn ask(&mut self, client: usize, random: &mut Random) -> Option<(&'static str, Value)> {
        let holds = self.holders.contains(&client);
        let again = self.model == "reentrant-mutex" && self.may_take(client);
        let f = if holds && !(again && random.below(2) == 0) {
            "release"
        } else {
            "acquire"
        };
        Some((f, Value::Null))
    }

    fn happen(&mut self, client: usize, f: &str, _: &Value) -> Option<Value> {
        if f == "release" {
            let at = self.holders.iter().position(|&holder| holder == client)?;
            self.holders.remove(at);
            return Some(Value::Null);
        }
        self.may_take(client).then(|| {
            self.holders.push(client);
            self.token += 1;
            match self.model {
                "fenced-mutex" => json!({"token": self.token}),
                _ => Value::Null,
            }
        })
    }
}

struct Queue {
    ordered: bool,
    inside: VecDeque<u64>,
    next: u64,
}

fn queue(ordered: bool) -> History {
    let model = if ordered {
        "fifo-queue"
    } else {
        "unordered-queue"
    };
    let queue = Queue {
        ordered,
        inside: VecDeque::new(),
        next: 0,
    };
    play(header(model), queue, &[])
}

impl Object for Queue {
    fn ask(&mut self, _: usize, random: &mut Random) -> Option<(&'static str, Value)> {
        if random.below(2) == 0 {
            self.next += 1;
            return Some(("enqueue", json!(self.next)));
        }
        Some(("dequeue", Value::Null))
    }

    fn happen(&mut self, client: usize, f: &str, input: &Value) -> Option<Value> {
        if f == "enqueue" {
            self.inside.push_back(input.as_u64()?);
            return Some(Value::Null);
        }
        let taken = if self.ordered || client.is_multiple_of(2) {
            self.inside.pop_front()
        } else {
            self.inside.pop_back()
        };
        Some(json!(taken))
    }
}

/// A counter, the numbers from 1 on, or some of them: what they have in common.
struct Numbers {
    inside: Vec<u64>,
    count: u64,
    next: u64,
    functions: &'static [&'static str],
    values: Option<usize>,
}

fn numbers(
    model: &str,
    functions: &'static [&'static str],
    values: Option<usize>,
    last: &[&'static str],
) -> History {
    let numbers = Numbers {
        inside: vec![0; values.unwrap_or(0)],
        count: 0,
        next: 0,
        functions,
        values,
    };
    play(header(model), numbers, last)
}

fn set_read_at_the_end() -> History {
    numbers("set", &["add"], None, &["read"; 3])
}

fn set_asked() -> History {
    numbers("set", &["add", "contains", "contains"], Some(1_000), &[])
}

fn log() -> History {
    numbers("append-log", &["append"], None, &["read"; 3])
}

impl Object for Numbers {
    fn ask(&mut self, _: usize, random: &mut Random) -> Option<(&'static str, Value)> {
        self.next += 1;
        let f = self.functions[random.below(self.functions.len())];
        Some((
            f,
            json!(
                self.values
                    .map_or(self.next, |values| random.below(values) as u64)
            ),
        ))
    }

    fn happen(&mut self, _: usize, f: &str, input: &Value) -> Option<Value> {
        let value = input.as_u64();
        match (f, self.values) {
            ("read", _) => return Some(json!(self.inside)),
            ("contains", _) => return Some(json!(self.inside[value? as usize] > 0)),
            (_, Some(_)) => self.inside[value? as usize] = 1,
            (_, None) => self.inside.push(value?),
        }
        self.count += 1;
        Some(Value::Null)
    }
}

struct Count(u64);

fn counter() -> History {
    play(header("counter"), Count(0), &[])
}

impl Object for Count {
    fn ask(&mut self, _: usize, random: &mut Random) -> Option<(&'static str, Value)> {
        Some(match random.below(3) {
            0 => ("read", Value::Null),
            _ => ("add", json!(1)),
        })
    }

    fn happen(&mut self, _: usize, f: &str, _: &Value) -> Option<Value> {
        if f == "read" {
            return Some(json!(self.0));
        }
        self.0 += 1;
        Some(Value::Null)
    }
}

/// A value and its revision.
struct Version(Value, u64);

fn versions() -> History {
    play(header("versioned-register"), Version(Value::Null, 0), &[])
}

impl Object for Version {
    fn ask(&mut self, _: usize, random: &mut Random) -> Option<(&'static str, Value)> {
        Some(match random.below(3) {
            0 => ("read", Value::Null),
            1 => ("cas", json!([self.0, random.below(5)])),
            _ => ("write", json!(random.below(5))),
        })
    }

    fn happen(&mut self, _: usize, f: &str, input: &Value) -> Option<Value> {
        match f {
            "read" => return Some(json!({"value": self.0, "revision": self.1})),
            "cas" if input[0] != self.0 => return None,
            "cas" => self.0 = input[1].clone(),
            _ => self.0 = input.clone(),
        }
        self.1 += 1;
        Some(json!({"revision": self.1}))
    }
}
