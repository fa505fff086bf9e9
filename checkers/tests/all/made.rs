//! Histories made at random, small enough for an oracle that looks at everything.

use history::{Event, Header, History, HistoryBuilder, Kind, Process};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Map, Value, json};

/// How many histories each property is tried on; `SCHISM_PROPTEST_CASES` raises it.
pub fn cases() -> ProptestConfig {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let cases = number("SCHISM_PROPTEST_CASES").and_then(|cases| u32::try_from(cases).ok());
    ProptestConfig {
        cases: cases.unwrap_or(20_000),
        failure_persistence: None,
        max_global_rejects: u32::MAX,
        // The same histories every time: a test that fails now and then is a bug. Whoever looks for
        // more gives another seed.
        rng_seed: RngSeed::Fixed(number("SCHISM_PROPTEST_SEED").unwrap_or(7)),
        ..ProptestConfig::default()
    }
}

/// One operation of a process, or something that it says unasked.
#[derive(Debug, Clone)]
pub struct Step {
    pub process: u64,
    /// Milliseconds since this process was last free, and until the answer.
    pub gap: u64,
    pub length: u64,
    pub f: &'static str,
    pub key: Option<&'static str>,
    pub node: Option<&'static str>,
    pub input: Value,
    pub answer: Answer,
}

#[derive(Debug, Clone)]
pub enum Answer {
    Ok(Value),
    Fail(Option<&'static str>),
    Info,
    /// The process is never heard of again.
    Never,
    /// Not an operation: said unasked.
    Unasked,
}

/// The history of these steps: each process does its own in order, all begin at 0.
pub fn history(header: Header, steps: &[Step]) -> History {
    build(header, events(steps))
}

/// The events of these steps, in order of time.
pub fn events(steps: &[Step]) -> Vec<Event> {
    let mut free_at = [Some(0u64); 16];
    let mut events = Vec::new();
    for step in steps {
        let Some(free) = free_at[step.process as usize] else {
            continue;
        };
        let (from, to) = (free + step.gap, free + step.gap + step.length);
        let event = |at: u64, kind, value: &Value, error: Option<&str>| Event {
            time: at * 1_000_000,
            process: Process::Number(step.process),
            node: step.node.map(str::to_owned),
            kind,
            f: step.f.to_owned(),
            key: step.key.map(Value::from),
            value: value.clone(),
            error: error.map(str::to_owned),
        };
        if matches!(step.answer, Answer::Unasked) {
            events.push(event(from, Kind::Info, &step.input, None));
            free_at[step.process as usize] = Some(from);
            continue;
        }
        events.push(event(from, Kind::Invoke, &step.input, None));
        free_at[step.process as usize] = Some(to);
        match &step.answer {
            Answer::Ok(value) => events.push(event(to, Kind::Ok, value, None)),
            Answer::Fail(error) => events.push(event(to, Kind::Fail, &step.input, *error)),
            Answer::Info => events.push(event(to, Kind::Info, &Value::Null, Some("timeout"))),
            Answer::Never | Answer::Unasked => free_at[step.process as usize] = None,
        }
    }
    events.sort_by_key(|event| event.time);
    events
}

pub fn build(header: Header, events: Vec<Event>) -> History {
    let mut builder = HistoryBuilder::new(header);
    for event in &events {
        builder.push(event).expect("a consistent history");
    }
    builder.finish()
}

pub fn header(workload: &str, params: Value) -> Header {
    let mut header = Header::new(workload, &[]);
    header.params = match params {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    header
}

/// Steps of clients that take locks, work under them, and give them back, or not.
pub fn lock_steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = prop_oneof![4 => Just("L"), 1 => Just("M")];
    let step = (
        0u64..4,
        0u64..8,
        1u64..6,
        0u32..16,
        keys,
        1i64..6,
        2u64..12,
        0u32..12,
    );
    let step = step.prop_map(|(process, gap, length, pick, key, token, ttl, luck)| {
        let step = |f, input, output: Value, errors: &[Option<&'static str>]| Step {
            process,
            gap,
            length,
            f,
            key: Some(key),
            node: None,
            input,
            answer: match luck {
                0 | 1 => Answer::Fail(errors[(token as usize) % errors.len()]),
                2 => Answer::Info,
                3 if token == 1 => Answer::Never,
                _ => Answer::Ok(output),
            },
        };
        let shown = json!({"token": token});
        let put = json!({"v": ttl % 4, "token": token});
        let by_seq = json!({"seq": gap * 7 + length});
        let refusals = [
            Some("stale-token"),
            Some("not-held"),
            Some("deadline-passed"),
            Some("x"),
        ];
        let renewals = [Some("not-held"), None, Some("x")];
        match pick {
            0..=4 => step(
                "acquire",
                json!({"ttl_ms": ttl}),
                shown,
                &[Some("held"), None, Some("x")],
            ),
            5 => step(
                "acquire",
                Value::Null,
                json!({"token": null}),
                &[Some("held")],
            ),
            6 => step("renew", json!({"ttl_ms": ttl}), Value::Null, &renewals),
            7 => step(
                "renew",
                json!({"ttl_ms": ttl, "token": token}),
                Value::Null,
                &renewals,
            ),
            8 => step("release", Value::Null, Value::Null, &[None]),
            9 => step("release", shown, Value::Null, &[None]),
            10 => step("put", put.clone(), put, &refusals),
            11 => step("put", put, by_seq, &refusals),
            12 => step("act", Value::Null, Value::Null, &refusals),
            13 => step("fence", shown, Value::Null, &refusals),
            14 => step("get", Value::Null, put, &[None]),
            _ => Step {
                answer: Answer::Unasked,
                ..step(
                    "lost",
                    if luck < 6 { shown } else { Value::Null },
                    Value::Null,
                    &[None],
                )
            },
        }
    });
    prop::collection::vec(step, 1..20)
}

/// Steps of clients of a register with few values.
pub fn register_steps(ops: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (
        0u64..4,
        0u64..3,
        1u64..6,
        0u32..5,
        0i64..3,
        0i64..3,
        0u32..8,
    );
    let step = step.prop_map(|(process, gap, length, pick, a, b, luck)| {
        let value = |number: i64| {
            if number == 0 {
                Value::Null
            } else {
                json!(number)
            }
        };
        let (f, input, output) = match pick {
            0 | 1 => ("read", Value::Null, value(a)),
            2 | 3 => ("write", value(a), value(a)),
            _ => (
                "cas",
                json!([value(a), value(b)]),
                json!([value(a), value(b)]),
            ),
        };
        Step {
            process,
            gap,
            length,
            f,
            key: Some("x"),
            node: None,
            input,
            answer: match luck {
                0 => Answer::Fail(None),
                1 => Answer::Info,
                _ => Answer::Ok(output),
            },
        }
    });
    prop::collection::vec(step, 1..ops)
}
