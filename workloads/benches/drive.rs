//! How many operations a second a driver hands out and takes back, on one core.
//!
//! `cargo bench -p workloads`. Every operation is asked for, accepted, announced and completed;
//! no client and no recorder is involved.

use std::hint::black_box;

use history::clock::Clock;
use serde_json::Value;
use spec::Params;
use workloads::generator::{Generator, Outcome, Update, from_fn, mix, op};
use workloads::random::Seed;
use workloads::{Driver, Setup, Step};

const OPS: u64 = 2_000_000;

/// Completes every operation as soon as it is invoked, at times that advance by `tick_ns`.
fn drive(name: &str, generator: Box<dyn Generator>, threads: usize, tick_ns: u64) {
    let mut driver = Driver::new(generator, threads);
    let clock = Clock::start();
    let mut now = 0;
    let mut done = 0;
    let mut asked: u64 = 0;
    while done < OPS {
        asked += 1;
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
                black_box(&op);
                done += 1;
                now += tick_ns;
            }
            Step::Wait(until) => now = until,
            Step::Done => break,
        }
    }
    let seconds = clock.now() as f64 / 1e9;
    println!(
        "{name}: {:.2} M operations/s, {:.2} questions per operation",
        done as f64 / seconds / 1e6,
        asked as f64 / done as f64
    );
}

fn register_mix(seed: Seed) -> Box<dyn Generator> {
    let reads = op("read").key(1).repeat();
    let mut next = 0_u64;
    let writes = from_fn(move |_| {
        next += 1;
        Some(op("write").key(next % 5).value(next))
    });
    let cas = from_fn(|_| Some(op("cas").key(2).value(Value::from(vec![1, 2]))));
    let parts = [(5, reads.boxed()), (4, writes.boxed()), (1, cas.boxed())];
    mix(seed, parts).boxed()
}

fn workload(name: &str, given: Value, threads: usize) -> Box<dyn Generator> {
    let workload = workloads::find(name).expect("it is listed");
    let given = given.as_object().cloned().unwrap_or_default();
    let params = Params::resolve(workload.params(), given).expect("they are declared");
    let setup = Setup {
        servers: ["n1", "n2", "n3"].map(str::to_owned).to_vec(),
        threads,
        seed: 7,
    };
    workload.generator(&params, &setup)
}

fn main() {
    let seed = Seed::new(7);
    let rated = register_mix(seed).rate(1_000_000, seed).boxed();
    drive("mix of register operations at a rate", rated, 100, 0);
    drive("mix of register operations", register_mix(seed), 100, 10);
    let any = workloads::generator::any([
        op("read").repeat().rate(500_000, seed.at(0)).boxed(),
        op("write").repeat().rate(500_000, seed.at(1)).boxed(),
    ]);
    drive("any of two rates", any.boxed(), 100, 0);
    let given = serde_json::json!({"rate": 0});
    drive(
        "workload register",
        workload("register", given, 100),
        100,
        10,
    );
    drive("workload lock", workload("lock", Value::Null, 3), 3, 10);
}
