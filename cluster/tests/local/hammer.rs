//! A program that reads its clocks all the time, in many threads and under a storm of signals, and
//! says what they told: the victim of the tests in `clocks.rs`.

use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

const THREADS: usize = 4;
const SECOND_NS: i64 = 1_000_000_000;
/// How far apart two clocks may be that say the same: the machine is busy.
const NEAR_NS: i64 = 20 * SECOND_NS;
/// How many kinds of readings there are.
const KINDS: usize = 4;

/// The epoch in which readings are counted now.
static EPOCH: AtomicUsize = AtomicUsize::new(0);
/// The epoch that each thread is in.
static REACHED: [AtomicUsize; THREADS] = [const { AtomicUsize::new(0) }; THREADS];
/// Readings by epoch (its last bit) and kind.
static COUNTS: [[AtomicU64; KINDS]; 2] = [const { [const { AtomicU64::new(0) }; KINDS] }; 2];
/// What the wall clock was ahead of the monotonic one at the beginning.
static APART_NS: AtomicI64 = AtomicI64::new(0);
static SIGNALS: AtomicU64 = AtomicU64::new(0);
static FIRST_WRONG: Mutex<Option<String>> = Mutex::new(None);

/// What a clock said, as far as it was moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    True,
    Forward,
    Back,
    Wrong,
}

/// Runs until its input ends. For every line it answers with what was read since the last one:
/// `true forward back wrong signals`, and what the first wrong reading was.
pub(crate) fn run() {
    APART_NS.store(
        clock(libc::CLOCK_REALTIME) - clock(libc::CLOCK_MONOTONIC),
        Ordering::SeqCst,
    );
    storm();
    for thread in 0..THREADS {
        std::thread::spawn(move || hammer(thread));
    }
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        line.expect("a line");
        let epoch = EPOCH.fetch_add(1, Ordering::SeqCst);
        while REACHED.iter().any(|at| at.load(Ordering::SeqCst) <= epoch) {
            std::thread::yield_now();
        }
        let counts = &COUNTS[epoch % 2];
        let counts: Vec<String> = counts
            .iter()
            .map(|count| count.swap(0, Ordering::SeqCst).to_string())
            .collect();
        let signals = SIGNALS.swap(0, Ordering::SeqCst);
        let wrong = FIRST_WRONG.lock().expect("no panic").take();
        println!(
            "{} {signals} {}",
            counts.join(" "),
            wrong.unwrap_or_default()
        );
        std::io::stdout().flush().expect("written");
    }
}

/// A thousand signals a second, whose handler reads the clock, too.
fn storm() {
    extern "C" fn handler(_signal: libc::c_int) {
        clock(libc::CLOCK_REALTIME);
        SIGNALS.fetch_add(1, Ordering::Relaxed);
    }
    let action = SigAction::new(
        SigHandler::Handler(handler),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: 1000,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: the handler reads a clock and counts, both of which it may; the timer is on this stack.
    unsafe {
        sigaction(Signal::SIGALRM, &action).expect("a handler");
        assert_eq!(
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()),
            0
        );
    }
}

fn hammer(thread: usize) {
    let mut monotonic_before = 0;
    for round in 0.. {
        let epoch = EPOCH.load(Ordering::SeqCst);
        REACHED[thread].store(epoch, Ordering::SeqCst);
        let monotonic = clock(libc::CLOCK_MONOTONIC);
        let (what, wall) = match round % 4 {
            0 => ("clock_gettime", clock(libc::CLOCK_REALTIME)),
            1 => ("coarse", clock(libc::CLOCK_REALTIME_COARSE)),
            2 => ("gettimeofday", of_day()),
            _ => ("time", seconds()),
        };
        let moved = wall - monotonic - APART_NS.load(Ordering::Relaxed);
        let mut kind = kind(moved);
        if monotonic < monotonic_before {
            kind = Kind::Wrong;
        }
        monotonic_before = monotonic;
        if kind == Kind::Wrong {
            let mut first = FIRST_WRONG.lock().expect("no panic");
            first.get_or_insert(format!("{what} {wall} at {monotonic}, {moved} ahead"));
        }
        COUNTS[epoch % 2][kind as usize].fetch_add(1, Ordering::SeqCst);
    }
}

fn kind(moved_ns: i64) -> Kind {
    let near = |seconds: i64| (moved_ns - seconds * SECOND_NS).abs() < NEAR_NS;
    match () {
        () if near(0) => Kind::True,
        () if near(1000) => Kind::Forward,
        () if near(-500) => Kind::Back,
        () => Kind::Wrong,
    }
}

pub(crate) fn clock(clock: libc::clockid_t) -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock exists and the answer goes to this stack.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    assert!((0..SECOND_NS).contains(&now.tv_nsec));
    now.tv_sec * SECOND_NS + now.tv_nsec
}

fn of_day() -> i64 {
    let mut now = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    // SAFETY: the answer goes to this stack; no time zone is asked for.
    unsafe { libc::gettimeofday(&raw mut now, std::ptr::null_mut()) };
    now.tv_sec * SECOND_NS + now.tv_usec * 1000
}

fn seconds() -> i64 {
    // SAFETY: the answer is only returned.
    unsafe { libc::time(std::ptr::null_mut()) * SECOND_NS }
}

/// Overwrites a byte of its own vDSO in which no code is, and waits to be ended.
pub(crate) fn tamper() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let range = line.and_then(|line| line.split(' ').next());
    let (start, end) = range
        .and_then(|range| range.split_once('-'))
        .expect("a vDSO");
    let address = |text| usize::from_str_radix(text, 16).expect("an address");
    let (start, end) = (address(start), address(end));
    let first = std::ptr::with_exposed_provenance_mut::<libc::c_void>(start);
    // SAFETY: the last byte of the vDSO is behind everything that is in it.
    unsafe {
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        assert_eq!(libc::mprotect(first, end - start, all), 0);
        let last = first.cast::<u8>().add(end - start - 1);
        *last ^= 1;
    }
    println!("ready");
    std::io::stdin().lines().for_each(drop);
}
