//! What holds for all generators, tried on random ones.

use proptest::prelude::*;

use super::{any, *};
use crate::simulate::{Completion, Trace, simulate};

const END: u64 = 20_000;

/// A random generator: leaves, and combinators of all kinds around them.
fn generators() -> impl Strategy<Value = Box<dyn Generator>> {
    let names = prop::sample::select(vec!["a", "b", "c", "d"]);
    let leaf = prop_oneof![
        names.clone().prop_map(|f| op(f).boxed()),
        (names, 1_u64..30).prop_map(|(f, n)| op(f).repeat().limit(n).boxed()),
        (0_u64..300).prop_map(|ns| sleep(ns).boxed()),
        (1_u64..20).prop_map(|last| {
            let mut n = 0;
            from_fn(move |_| {
                n += 1;
                (n <= last).then(|| op("n").value(n))
            })
            .boxed()
        }),
        (1_u64..4, 0_u64..100)
            .prop_map(|(tries, pause)| { each_ok(["x", "y", "z"].map(op), tries, pause).boxed() }),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let many = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            many().prop_map(|parts| sequence(parts).boxed()),
            many().prop_map(|parts| phases(parts).boxed()),
            many().prop_map(|parts| any(parts).boxed()),
            (many(), any_seed()).prop_map(|(parts, seed)| { mix(seed, (1..).zip(parts)).boxed() }),
            (many(), inner.clone()).prop_map(|(parts, rest)| reserve(
                parts.into_iter().map(|part| (1, part)),
                rest
            )
            .boxed()),
            (inner.clone(), inner.clone()).prop_map(|(one, other)| flip_flop(one, other).boxed()),
            inner.clone().prop_map(|g| g.each_thread().boxed()),
            inner.clone().prop_map(|g| g.until_ok().boxed()),
            inner.clone().prop_map(|g| g.synchronize().boxed()),
            inner.clone().prop_map(|g| g.repeat().limit(9).boxed()),
            inner
                .clone()
                .prop_map(|g| g.filter(|op| op.f != "b").boxed()),
            (inner.clone(), 0_u64..2000).prop_map(|(g, ns)| g.cycle().time_limit(ns).boxed()),
            (inner.clone(), 0_u64..200).prop_map(|(g, ns)| g.delay(ns).boxed()),
            (inner.clone(), 0_u64..200, any_seed())
                .prop_map(|(g, ns, seed)| g.stagger(ns, seed).boxed()),
            (inner.clone(), any_seed()).prop_map(|(g, seed)| g.rate(20_000_000, seed).boxed()),
            (inner.clone(), 0_u64..30).prop_map(|(g, n)| g.limit(n).boxed()),
            (inner, prop::collection::vec(0_usize..6, 1..3))
                .prop_map(|(g, threads)| g.on_threads(threads.into_iter().collect()).boxed()),
        ]
    })
}

fn any_seed() -> impl Strategy<Value = Seed> {
    proptest::arbitrary::any::<u64>().prop_map(Seed::new)
}

/// Operations end at random after a random time.
fn at_random(seed: u64) -> impl FnMut(u64, &Invocation) -> Completion {
    let mut random = Seed::new(seed).stream();
    move |_, _| {
        let outcomes = [Outcome::Ok, Outcome::Fail, Outcome::Info];
        Completion::after(random.below(100), outcomes[random.below(3) as usize])
    }
}

fn run(generator: Box<dyn Generator>, threads: usize, seed: u64) -> Trace {
    simulate(generator, threads, END, at_random(seed))
}

proptest! {
    #[test]
    fn the_same_generator_does_the_same(generator in generators(), threads in 1_usize..5, seed: u64) {
        let copy = generator.clone();
        prop_assert_eq!(run(generator, threads, seed), run(copy, threads, seed));
    }

    /// Also in the middle: a copy taken after some steps goes on as the original does.
    #[test]
    fn a_copy_has_the_same_future(generator in generators(), threads in 1_usize..5, steps in 0_usize..40) {
        let mut driver = crate::Driver::new(generator, threads);
        let mut busy = std::collections::VecDeque::new();
        let mut now = 0;
        for step in 0..steps {
            advance(&mut driver, &mut busy, &mut now, step);
        }
        let (mut copy, mut copy_busy, mut copy_now) = (driver.clone(), busy.clone(), now);
        for step in 0..40 {
            let one = advance(&mut driver, &mut busy, &mut now, step);
            let other = advance(&mut copy, &mut copy_busy, &mut copy_now, step);
            prop_assert_eq!(one, other);
        }
    }

    /// Asking more often, at times at which nothing is due, changes nothing.
    #[test]
    fn asking_is_free(generator in generators(), threads in 1_usize..5, seed: u64) {
        let patient = run(generator.clone(), threads, seed);
        let asked_often = run(Nosy(generator).boxed(), threads, seed);
        prop_assert_eq!(patient, asked_often);
    }

    #[test]
    fn a_limit_is_never_exceeded(generator in generators(), limit in 0_u64..20, seed: u64) {
        let trace = run(generator.limit(limit).boxed(), 3, seed);
        prop_assert!(trace.invocations().count() as u64 <= limit);
    }

    #[test]
    fn nothing_begins_after_a_time_limit(generator in generators(), limit in 0_u64..3000, seed: u64) {
        let trace = run(generator.time_limit(limit).boxed(), 3, seed);
        prop_assert!(trace.invocations().all(|event| event.time < limit));
        prop_assert_ne!(trace.ended, crate::simulate::Ended::TimeUp);
    }

    #[test]
    fn a_delay_is_kept(generator in generators(), ns in 1_u64..100, seed: u64) {
        let trace = run(generator.delay(ns).boxed(), 3, seed);
        let times: Vec<u64> = trace.invocations().map(|event| event.time).collect();
        // Missed ones are made up for, so only the average is bounded.
        let span = times.last().zip(times.first()).map_or(0, |(last, first)| last - first);
        prop_assert!(times.len().saturating_sub(1) as u64 * ns <= span);
    }

    #[test]
    fn reserved_threads_belong_to_one_generator(
        one in generators(),
        other in generators(),
        share in 1_usize..4,
        seed: u64,
    ) {
        let one = one.map(|op| Invocation { f: "one", ..op });
        let other = other.map(|op| Invocation { f: "other", ..op });
        let trace = run(reserve([(share, one.boxed())], other).boxed(), 5, seed);
        for event in trace.invocations() {
            prop_assert_eq!(event.f == "one", event.thread < share);
        }
    }

    #[test]
    fn a_phase_begins_when_the_one_before_has_ended(
        one in generators(),
        other in generators(),
        seed: u64,
    ) {
        let one = one.map(|op| Invocation { f: "one", ..op });
        let other = other.map(|op| Invocation { f: "other", ..op });
        let trace = run(phases([one.boxed(), other.boxed()]).boxed(), 3, seed);
        let mut events = trace.events.iter();
        if let Some(begin) = events.position(|event| event.f == "other") {
            prop_assert!(trace.events[begin..].iter().all(|event| event.f == "other"));
        }
    }
}

/// One step of a driver whose operations end in the order in which they began.
fn advance(
    driver: &mut crate::Driver,
    busy: &mut std::collections::VecDeque<Invocation>,
    now: &mut u64,
    step: usize,
) -> crate::Step {
    let next = driver.step(*now);
    match &next {
        crate::Step::Invoke(op) => busy.push_back(op.clone()),
        crate::Step::Wait(until) if busy.is_empty() && *until < u64::MAX => *now = *until,
        _ => {
            *now += 7;
            if let Some(op) = busy.pop_front() {
                let outcomes = [Outcome::Ok, Outcome::Fail, Outcome::Info];
                driver.report(&Update {
                    time: *now,
                    thread: op.thread,
                    f: op.f,
                    key: &op.key,
                    value: &op.value,
                    error: None,
                    outcome: outcomes[step % 3],
                });
            }
        }
    }
    next
}

/// Asks three times.
#[derive(Debug, Clone)]
struct Nosy(Box<dyn Generator>);

impl Generator for Nosy {
    fn next(&mut self, context: &Context) -> Next {
        self.0.next(context);
        self.0.next(context);
        self.0.next(context)
    }

    fn accept(&mut self) {
        self.0.accept();
    }

    fn update(&mut self, update: &Update<'_>) {
        self.0.update(update);
    }
}
