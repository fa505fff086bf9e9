//! Holders against a simulated lock service, a resource, and a freeze.

use super::*;
use crate::simulate::{Completion, Ended, Event, Trace, crashing, simulate};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const TTL: u64 = 3 * S;

fn params(given: Value) -> Params {
    Params::resolve(PARAMS, given.as_object().unwrap().clone()).unwrap()
}

fn holders(given: Value, threads: usize, seed: u64) -> Holders {
    let setup = Setup {
        servers: ["n1", "n2", "n3"].map(str::to_owned).to_vec(),
        threads,
        seed,
    };
    Holders::new(&params(given), &setup, "L")
}

/// A lock with a lease, and the resource that it protects. Whoever holds when the freeze begins
/// is frozen: it answers nothing before the end, and then what was asked in the last moments.
#[derive(Clone)]
struct World {
    fencing: bool,
    timeout: u64,
    /// From and until when.
    freeze: (u64, u64),
    frozen: Option<usize>,
    /// Thread, token, and when the lease ends.
    lease: Option<(usize, u64, u64)>,
    next_token: u64,
    /// The highest token that the resource has seen.
    highest: u64,
}

impl World {
    fn new(fencing: bool, freeze: (u64, u64)) -> World {
        World {
            fencing,
            timeout: 2 * S,
            freeze,
            frozen: None,
            lease: None,
            next_token: 33,
            highest: 0,
        }
    }

    fn complete(&mut self, now: u64, op: &Invocation) -> Completion {
        let (from, until) = self.freeze;
        if (from..until).contains(&now) {
            let holder = self.lease.map(|(thread, ..)| thread);
            self.frozen = self.frozen.or(holder);
            if self.frozen == Some(op.thread) {
                if until - now > self.timeout {
                    return Completion::after(self.timeout, Outcome::Info).error("timeout");
                }
                // By then somebody else holds and has written.
                let answer = match op.f {
                    "put" if !self.fencing => Completion::after(0, Outcome::Ok),
                    "put" => Completion::after(0, Outcome::Fail).error("stale-token"),
                    "get" => Completion::after(0, Outcome::Ok),
                    _ => Completion::after(0, Outcome::Fail).error("not-held"),
                };
                return Completion {
                    after: until - now + MS,
                    ..answer
                };
            }
        }
        let answer = self.answer(now, op);
        Completion {
            after: 2 * MS,
            ..answer
        }
    }

    fn answer(&mut self, now: u64, op: &Invocation) -> Completion {
        let ok = Completion::after(0, Outcome::Ok);
        let fail = |error| Completion::after(0, Outcome::Fail).error(error);
        self.lease = self.lease.filter(|&(.., ends)| now < ends);
        let token = op.value.get("token").and_then(Value::as_u64);
        let holds = self
            .lease
            .is_some_and(|(_, current, _)| token == Some(current));
        match op.f {
            "acquire" if self.lease.is_some() => fail("held"),
            "acquire" => {
                let token = self.next_token;
                self.next_token += 1;
                self.lease = Some((op.thread, token, now + TTL));
                ok.value(json!({"token": token}))
            }
            "renew" | "release" if !holds => fail("not-held"),
            "renew" => {
                self.lease = self.lease.map(|(t, token, _)| (t, token, now + TTL));
                ok
            }
            "release" => {
                self.lease = None;
                ok
            }
            "put" if self.fencing && token < Some(self.highest) => fail("stale-token"),
            "put" => {
                self.highest = self.highest.max(token.unwrap_or(0));
                ok
            }
            _ => ok,
        }
    }
}

fn token(event: &Event) -> Option<u64> {
    event.value.get("token").and_then(Value::as_u64)
}

fn run(given: Value, mut world: World, end: u64) -> Trace {
    simulate(holders(given, 3, 7), 3, end, move |now, op| {
        world.complete(now, op)
    })
}

/// Writes that were accepted after one with a higher token, and writes refused for their token.
fn stale(trace: &Trace) -> (usize, usize) {
    let mut highest = 0;
    let mut accepted = 0;
    let mut refused = 0;
    for event in trace.events.iter().filter(|event| event.f == "put") {
        let token = token(event);
        match event.outcome {
            Outcome::Ok if token < Some(highest) => accepted += 1,
            Outcome::Ok => highest = token.unwrap_or(0),
            Outcome::Fail if event.error == Some("stale-token") => refused += 1,
            _ => {}
        }
    }
    (accepted, refused)
}

#[test]
fn without_faults_the_lock_goes_round_and_nothing_is_stale() {
    let world = World::new(true, (0, 0));
    let trace = run(json!({"writes-per-hold": 50}), world, 120 * S);
    assert_eq!(trace.ended, Ended::TimeUp);
    assert_eq!(stale(&trace), (0, 0));
    let holders: BTreeSet<usize> = trace
        .events
        .iter()
        .filter(|event| event.f == "acquire" && event.outcome == Outcome::Ok)
        .map(|event| event.thread)
        .collect();
    assert_eq!(holders.len(), 3);
    for f in FUNCTIONS {
        assert!(
            trace
                .events
                .iter()
                .any(|event| event.f == *f && event.outcome == Outcome::Ok),
            "{f}"
        );
    }
    // Renewals come in time: no lease ends under a live holder.
    assert!(
        trace
            .events
            .iter()
            .all(|event| event.f != "renew" || event.outcome != Outcome::Fail)
    );
}

#[test]
fn a_frozen_naive_holder_wakes_and_writes_until_it_is_told() {
    let thaw = 16 * S;
    let trace = run(json!({}), World::new(false, (10 * S, thaw)), 60 * S);
    let (accepted, refused) = stale(&trace);
    assert!(accepted >= 1, "{accepted}");
    assert_eq!(refused, 0);
    // It is told by its next renewal, and then it has done with that token.
    let told = trace
        .events
        .iter()
        .position(|event| event.f == "renew" && event.error == Some("not-held"))
        .unwrap();
    let (told, after) = (&trace.events[told], &trace.events[told + 1..]);
    assert!(told.time > thaw && told.time < thaw + 2 * S);
    let old = token(told).unwrap();
    assert!(after.iter().all(|event| token(event) != Some(old)));
    // It went on as other processes, under the same token.
    let processes: BTreeSet<usize> = trace
        .invocations()
        .filter(|event| event.f == "put" && token(event) == Some(old))
        .map(|event| event.process)
        .collect();
    assert!(processes.len() > 1, "{processes:?}");
}

/// All but those that were frozen while they renewed, which learn of their loss at once.
#[test]
fn nearly_every_frozen_naive_holder_is_caught() {
    let (mut frozen, mut caught) = (0, 0);
    // Operations are given up while it is frozen, or not before it wakes.
    for (seed, timeout) in (0..150).flat_map(|seed| [(seed, 2 * S), (seed, 12 * S)]) {
        let from = 10 * S + seed * 17 * MS;
        let mut world = World {
            timeout,
            ..World::new(false, (from, from + 5 * S + seed * 7 * MS))
        };
        let trace = simulate(holders(json!({}), 3, seed), 3, 30 * S, |now, op| {
            world.complete(now, op)
        });
        frozen += u32::from(world.frozen.is_some());
        caught += u32::from(stale(&trace).0 > 0);
    }
    assert!(frozen > 250, "{frozen}");
    assert!(caught * 100 >= frozen * 98, "{caught} of {frozen}");
}

#[test]
fn a_frozen_fenced_holder_is_refused_once_and_stops() {
    let given = json!({"holder": "fenced"});
    let trace = run(given, World::new(true, (10 * S, 16 * S)), 60 * S);
    assert_eq!(stale(&trace), (0, 1));
}

#[test]
fn a_lost_event_ends_the_belief_in_that_token_only() {
    let mut generator = holders(json!({}), 1, 1);
    let mut context = Context::new(1);
    context.time = S;
    let acquire = generator.next(&context);
    assert!(matches!(&acquire, Next::Op { op, .. } if op.f == "acquire"));
    generator.accept();
    let event = |f, value, outcome| Update {
        time: S,
        thread: 0,
        f,
        key: const { &Value::Null },
        value,
        error: None,
        outcome,
    };
    let key = Value::from("L0");
    let granted = json!({"token": 5});
    generator.update(&event("acquire", &granted, Outcome::Ok));
    let next_f = |generator: &mut Holders| match generator.next(&context) {
        Next::Op { op, .. } => op.f,
        other => panic!("{other:?}"),
    };
    assert_eq!(next_f(&mut generator), "put");
    let older = json!({"token": 4});
    for (about, key, still) in [
        (&older, &key, "put"),
        (&Value::Null, &Value::from("L1"), "put"),
        (&granted, &key, "acquire"),
    ] {
        generator.update(&Update {
            key,
            ..event("lost", about, Outcome::Unasked)
        });
        assert_eq!(next_f(&mut generator), still);
    }
}

#[test]
fn after_an_indeterminate_acquire_it_tries_again_and_writes_nothing() {
    let generator = holders(json!({"get-ratio": 0.0}), 2, 1);
    let trace = simulate(generator, 2, 20 * S, crashing(S));
    assert!(trace.invocations().count() > 20);
    assert!(trace.invocations().all(|event| event.f == "acquire"));
}

#[test]
fn keys_are_divided_among_the_clients_and_servers_asked_as_routed() {
    let given = json!({"keys": 2, "clients": 4, "route": "fixed", "ttl": "1s"});
    let mut worlds = [(); 2].map(|()| World::new(true, (0, 0)));
    let trace = simulate(holders(given, 4, 1), 4, 30 * S, move |now, op| {
        worlds[op.thread % 2].complete(now, op)
    });
    for event in trace.invocations() {
        assert_eq!(event.key, format!("L{}", event.thread % 2));
        let server = (!matches!(event.f, "put" | "get")).then_some(event.thread % 3);
        assert_eq!(event.server, server, "{}", event.f);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (given, name) in [
        (json!({"keys": 4}), "keys"),
        (json!({"clients": 0}), "clients"),
        (json!({"ttl": "0s"}), "ttl"),
        (json!({"renew-every": "3s"}), "renew-every"),
        (json!({"write-every": "0s"}), "write-every"),
        (json!({"backoff": "0s"}), "backoff"),
        (json!({"writes-per-hold": 0}), "writes-per-hold"),
    ] {
        let Error::Param { name: refused, .. } = validate(&params(given)).unwrap_err();
        assert_eq!(refused, name);
    }
    validate(&params(json!({"keys": 4, "clients": 2, "processes": 2}))).unwrap();
}

#[test]
fn the_header_says_what_checkers_and_clients_read() {
    let header = header_params(&params(json!({"ttl": "4s", "holder": "deadline"})));
    assert_eq!(header["ttl_ms"], 4000);
    assert_eq!(header["holder"], "deadline");
    assert_eq!(header["check-to-write-pause"], "0ms");
    assert_eq!(header["drift_ms"], 500);
    let with = |holder| checkers(&params(json!({"holder": holder})));
    assert!(with("deadline").contains(&"loss-notice"));
    assert!(!with("naive").contains(&"loss-notice"));
    assert!(vault(&params(json!({"holder": "fenced"}))).fencing);
    assert!(!vault(&params(json!({"holder": "naive"}))).fencing);
}

/// Answers at random, with every reason that a client may give.
fn at_random(seed: u64) -> impl FnMut(u64, &Invocation) -> Completion {
    let mut random = Seed::new(seed).stream();
    let mut tokens = 0;
    move |_, op| {
        let after = random.below(400 * MS);
        match random.below(10) {
            0 => Completion::after(2 * S, Outcome::Info).error("timeout"),
            1 => Completion::after(after, Outcome::Fail).error("not-held"),
            2 => Completion::after(after, Outcome::Fail).error("refused"),
            3 => Completion::after(after, Outcome::Fail).error("stale-token"),
            _ if op.f == "acquire" => {
                tokens += 1;
                Completion::after(after, Outcome::Ok).value(json!({"token": tokens}))
            }
            _ => Completion::after(after, Outcome::Ok),
        }
    }
}

proptest! {
    /// Whatever is answered: a thread works only under a token that it was granted and has not
    /// given up, and writes no value twice.
    #[test]
    fn nobody_writes_under_a_token_that_it_does_not_believe_in(seed: u64, threads in 1_usize..5) {
        let trace = simulate(
            holders(json!({"writes-per-hold": 20}), threads, seed),
            threads,
            60 * S,
            at_random(seed),
        );
        let mut beliefs: BTreeMap<usize, Option<u64>> = BTreeMap::new();
        let mut values = BTreeSet::new();
        for event in &trace.events {
            let belief = beliefs.entry(event.thread).or_default();
            let guarded = matches!(event.f, "put" | "renew" | "release");
            match event.outcome {
                Outcome::Invoked => {
                    if guarded {
                        prop_assert!(belief.is_some());
                        prop_assert_eq!(token(event), *belief);
                    }
                    if event.f == "acquire" {
                        prop_assert!(belief.is_none());
                    }
                    if event.f == "put" {
                        prop_assert!(values.insert(event.value["v"].as_u64()));
                    }
                }
                Outcome::Ok if event.f == "acquire" => *belief = token(event),
                _ if event.f == "release" => *belief = None,
                Outcome::Fail if guarded && event.error != Some("refused") => *belief = None,
                _ => {}
            }
        }
    }
}
