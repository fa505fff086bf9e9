//! Clients of one object: each operation takes effect when it is asked for or when it is answered,
//! some answers never come, and some are changed.

use history::{Event, Kind, Process};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::objects::{self, Call};

/// What a client does next: it asks, or is answered.
#[derive(Debug, Clone)]
pub struct Turn {
    process: u64,
    pick: u32,
    a: u64,
    b: u64,
    /// How it ends.
    luck: u32,
    early: bool,
}

/// Turns of clients that speak this vocabulary.
#[derive(Debug, Clone)]
pub struct Play {
    vocabulary: &'static str,
    turns: Vec<Turn>,
}

pub fn plays(vocabulary: &'static str) -> impl Strategy<Value = Play> {
    let turn = (0u64..4, 0u32..12, 0u64..3, 0u64..3, 0u32..18, any::<bool>());
    let turn = turn.prop_map(|(process, pick, a, b, luck, early)| Turn {
        process,
        pick,
        a,
        b,
        luck,
        early,
    });
    prop::collection::vec(turn, 1..18).prop_map(move |turns| Play { vocabulary, turns })
}

struct Open {
    process: u64,
    call: Call,
    happened: bool,
}

/// The events of a play.
pub fn events(object: &str, params: &Value, play: &Play) -> Vec<Event> {
    let mut state = objects::initial(object);
    let mut open: [Option<Open>; 4] = [const { None }; 4];
    let mut lives = [0u64; 4];
    let mut events: Vec<Event> = Vec::new();
    let mut asked = 0;
    for turn in &play.turns {
        let time = events.len() as u64;
        let event = |process: u64, kind, f: &str, value: &Value| {
            let process = Process::Number(process);
            Event::new(time, process, kind, f, value.clone()).with_key("x")
        };
        let slot = turn.process as usize;
        let Some(mut one) = open[slot].take() else {
            let process = turn.process + 10 * lives[slot];
            asked += 1;
            let (f, input) = ask(play.vocabulary, turn, asked);
            events.push(event(process, Kind::Invoke, f, &input));
            let mut one = Open {
                process,
                call: Call {
                    f: f.to_owned(),
                    input,
                    output: None,
                    owner: process.to_string(),
                },
                happened: false,
            };
            if turn.early {
                happen(object, params, &mut state, &mut one, turn);
            }
            open[slot] = Some(one);
            continue;
        };
        if !one.happened && turn.luck != 0 {
            happen(object, params, &mut state, &mut one, turn);
        }
        let (f, input) = (one.call.f.as_str(), &one.call.input);
        match (turn.luck, &one.call.output) {
            (0..=2, _) => {
                events.push(event(one.process, Kind::Info, f, &Value::Null));
                // Sometimes the same process goes on, sometimes another.
                lives[slot] += u64::from(turn.pick % 2);
            }
            (3 | 4, _) => events.push(event(
                one.process,
                Kind::Ok,
                f,
                &wrong(play.vocabulary, f, input, turn),
            )),
            (_, Some(output)) => events.push(event(one.process, Kind::Ok, f, output)),
            (_, None) => events.push(event(one.process, Kind::Fail, f, input)),
        }
    }
    events
}

/// Lets an operation take effect, if it can, with one of its possible answers.
fn happen(object: &str, params: &Value, state: &mut Value, one: &mut Open, turn: &Turn) {
    let answers = answers(object, params, state, &one.call, turn);
    for answer in answers {
        one.call.output = Some(answer);
        if let Some(next) = objects::after(object, params, state, &one.call).first() {
            *state = next.clone();
            one.happened = true;
            return;
        }
    }
    one.call.output = None;
}

fn answers(object: &str, params: &Value, state: &Value, call: &Call, turn: &Turn) -> Vec<Value> {
    match (object, call.f.as_str()) {
        ("fenced-mutex", "acquire") => {
            let last = state["token"].as_i64().unwrap_or(0);
            vec![json!({"token": last.max(-1) + 1 + turn.a as i64})]
        }
        ("fifo-queue" | "unordered-queue", "dequeue") => {
            let mut all = state.as_array().cloned().unwrap_or_default();
            if object == "unordered-queue" && turn.early {
                all.reverse();
            }
            all.push(Value::Null);
            all
        }
        ("set", "contains") => vec![json!(true), json!(false)],
        ("counter", "read") => {
            let initial = params["initial"].as_i64().unwrap_or(0);
            vec![json!(state.as_i64().unwrap_or(0) + initial)]
        }
        ("set" | "append-log", "read") | ("versioned-register", "read") | ("kv", "get") => {
            vec![state.clone()]
        }
        ("versioned-register", _) => {
            let last = state["revision"].as_u64().unwrap_or(0);
            vec![json!({"revision": last + 1 + turn.b})]
        }
        ("multi-register", _) => {
            let mut all = state.clone();
            let mut parts = call.input.clone();
            for part in parts.as_array_mut().into_iter().flatten() {
                let key = part[1].to_string();
                if part[0] == json!("w") {
                    all[key] = part[2].clone();
                } else {
                    part[2] = all[key].clone();
                }
            }
            vec![parts]
        }
        _ => vec![Value::Null],
    }
}

/// What is asked for.
fn ask(vocabulary: &str, turn: &Turn, asked: u64) -> (&'static str, Value) {
    let Turn { pick, a, b, .. } = *turn;
    let distinct = vocabulary.ends_with("-distinct");
    let value = if distinct { asked } else { a };
    match (vocabulary, pick) {
        ("lock", 0..=5) => ("acquire", Value::Null),
        ("lock", _) => ("release", Value::Null),
        ("permits", 0..=6) => ("acquire", json!(a + 1)),
        ("permits", _) => ("release", json!(a.max(1))),
        ("queue" | "queue-distinct", 0..=5) => ("enqueue", json!(value)),
        ("queue" | "queue-distinct", _) => ("dequeue", Value::Null),
        ("set-growing", 0..=6) => ("add", json!(asked % 4)),
        ("set-growing", _) => ("read", Value::Null),
        ("set-asked", 0..=3) | ("set", 0..=4) => ("add", json!(a)),
        ("set-asked", 4..=6) | ("set", 5 | 6) => ("remove", json!(a)),
        ("set-asked", _) | ("set", 7 | 8) => ("contains", json!(a)),
        ("set", _) => ("read", Value::Null),
        ("ones", 0..=6) => ("add", if a == 0 { Value::Null } else { json!(1) }),
        ("counter", 0..=6) => ("add", json!(a as i64 * 2 - b as i64)),
        ("ones" | "counter", _) => ("read", Value::Null),
        ("log" | "log-distinct", 0..=6) => ("append", json!(value)),
        ("log" | "log-distinct", _) => ("read", Value::Null),
        ("versioned" | "versioned-cas", 0..=4) => ("write", json!(a)),
        ("versioned-cas", 5 | 6) => ("cas", json!([a, b])),
        ("versioned-cas", 7) => ("cas", json!({"revision": asked % 4, "value": b})),
        ("versioned" | "versioned-cas", _) => ("read", Value::Null),
        ("kv-distinct", 0 | 1) => ("put", json!(format!("{asked}."))),
        ("kv-distinct", 2..=5) => ("append", json!(format!("{asked}."))),
        ("kv-equal", 0) => ("put", json!(format!("{}.", a + 1))),
        ("kv-equal", 1) => ("put", json!(format!("{}.", asked + 9))),
        ("kv-equal", 2..=5) => ("append", json!(format!("{}.", a + 1))),
        ("kv-put-distinct", 0..=3) => ("put", json!(asked)),
        ("kv-put-distinct", 4 | 5) if asked <= a + 1 => ("cas", json!([null, asked])),
        ("kv-put-distinct", 4 | 5) => ("cas", json!([asked - a - 1, asked])),
        ("kv", 0 | 1) if a == 2 => ("put", json!(7)),
        ("kv", 0 | 1) => ("put", json!("a".repeat(a as usize))),
        ("kv", 2 | 3) => ("append", json!(["", "a", "b"][a as usize])),
        ("kv", 4) => ("delete", Value::Null),
        ("kv", 5) => ("cas", json!([null, "ab"])),
        ("kv", 6) => ("cas", json!(["a".repeat(a as usize), "ab"])),
        ("kv" | "kv-distinct" | "kv-equal" | "kv-put-distinct", _) => ("get", Value::Null),
        _ => {
            let part = |pick: u32, key: u64, value: u64| match pick % 2 {
                0 => json!(["r", key, null]),
                _ => json!(["w", key, value]),
            };
            let mut parts = vec![part(pick, a % 2, b)];
            if pick > 4 {
                parts.push(part(pick / 2, b % 2, a));
            }
            ("txn", json!(parts))
        }
    }
}

/// An answer that need not be right.
fn wrong(vocabulary: &str, f: &str, input: &Value, turn: &Turn) -> Value {
    let Turn { a, b, early, .. } = *turn;
    match (vocabulary, f) {
        ("lock", "acquire") => json!({"token": a + b}),
        (_, "dequeue") if a == 0 => Value::Null,
        (_, "dequeue") => json!(a + b),
        (_, "contains") => json!(early),
        ("ones" | "counter", "read") => json!(a + b),
        ("set" | "set-growing" | "log" | "log-distinct", "read") => match (a, b) {
            (0, 0) => json!([]),
            (0, _) => json!([b]),
            _ if a == b => json!([a]),
            _ => json!([a, b]),
        },
        (_, "read") => json!({"value": a, "revision": a + b}),
        (_, "write" | "cas") => json!({"revision": a + b + 1}),
        ("kv", "get") => [json!(null), json!("a"), json!("ab")][a as usize].clone(),
        ("kv-put-distinct", "get") => json!(a + b),
        (_, "get") => json!(format!("{}.{}.", a + 1, b + 1)),
        (_, "txn") => {
            let mut parts = input.clone();
            for part in parts.as_array_mut().into_iter().flatten() {
                if part[0] == json!("r") && a > 0 {
                    part[2] = json!(b);
                }
            }
            parts
        }
        _ => Value::Null,
    }
}
