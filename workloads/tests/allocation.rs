//! Operations in common paths cost no heap allocation: a test with an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use serde_json::Value;
use spec::Params;
use workloads::generator::{Generator, Outcome, Update, any, each_ok, mix, op, reserve};
use workloads::random::Seed;
use workloads::{Driver, Setup, Step};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract;
// the counter is a constant-initialised thread-local without a destructor, so that counting
// neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer comes from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many allocations `ops` operations cost, after some to warm up.
fn allocations(generator: Box<dyn Generator>, threads: usize, ops: u64) -> u64 {
    let mut driver = Driver::new(generator, threads);
    let mut now = 0;
    let mut drive = |ops| {
        let mut done = 0;
        while done < ops {
            match driver.step(now) {
                Step::Invoke(op) => {
                    driver.report(&Update {
                        time: now,
                        thread: op.thread,
                        f: op.f,
                        key: &op.key,
                        value: &op.value,
                        error: None,
                        outcome: Outcome::Ok,
                    });
                    done += 1;
                }
                Step::Wait(until) => now = until,
                Step::Done => break,
            }
        }
        assert_eq!(done, ops);
    };
    drive(100);
    let before = ALLOCATIONS.get();
    drive(ops);
    ALLOCATIONS.get() - before
}

#[test]
fn combinators_allocate_nothing() {
    let seed = Seed::new(1);
    let read = || op("read").key(1).repeat();
    let generators = [
        mix(seed, [(1, read().boxed()), (2, read().boxed())])
            .rate(1000, seed)
            .boxed(),
        any([read().stagger(500, seed).boxed(), read().delay(700).boxed()]).boxed(),
        reserve([(3, read().boxed())], read().rate(1000, seed)).boxed(),
        read().each_thread().time_limit(u64::MAX).boxed(),
        read()
            .filter(|op| op.f == "read")
            .map(|op| op)
            .limit(u64::MAX)
            .boxed(),
        each_ok([op("first")], 1, 0).then(read()).boxed(),
    ];
    for generator in generators {
        let described = format!("{generator:?}");
        assert_eq!(allocations(generator, 100, 10_000), 0, "{described}");
    }
}

#[test]
fn the_register_workload_allocates_for_compare_and_set_only() {
    let workload = workloads::find("register").unwrap();
    let setup = Setup {
        servers: ["n1", "n2", "n3"].map(str::to_owned).to_vec(),
        threads: 10,
        seed: 1,
    };
    for (cas_ratio, limit) in [(0.0, 0), (0.2, 5_000)] {
        let given = [("cas-ratio".to_owned(), Value::from(cas_ratio))];
        let params = Params::resolve(workload.params(), given).unwrap();
        let generator = workload.generator(&params, &setup);
        let counted = allocations(generator, 10, 10_000);
        assert!(counted <= limit, "{counted}");
    }
}
