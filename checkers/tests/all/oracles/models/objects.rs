//! What each object does, on plain JSON, and slowly.

use serde_json::{Value, json};

/// An operation; without an output it may have answered anything.
pub struct Call {
    pub f: String,
    pub input: Value,
    pub output: Option<Value>,
    pub owner: String,
}

pub fn initial(object: &str) -> Value {
    match object {
        "mutex" | "owner-aware-mutex" => Value::Null,
        "semaphore" => json!(0),
        "reentrant-mutex" => json!([]),
        "fenced-mutex" => json!({"holder": null, "token": -1000}),
        "counter" => json!(0),
        "versioned-register" => json!({"value": null, "revision": 0}),
        "kv" => Value::Null,
        "multi-register" => json!({}),
        _ => json!([]),
    }
}

/// Everything that may be after an operation; nothing if it cannot happen.
pub fn after(object: &str, params: &Value, state: &Value, call: &Call) -> Vec<Value> {
    let list = || state.as_array().cloned().unwrap_or_default();
    let given = |answer: Value| call.output.as_ref().is_none_or(|output| *output == answer);
    let only = |possible: bool, next: Value| if possible { vec![next] } else { Vec::new() };
    match (object, call.f.as_str()) {
        ("mutex", "acquire") => only(state.is_null(), json!("held")),
        ("mutex", _) => only(!state.is_null(), Value::Null),
        ("semaphore", f) => {
            let count = call.input.as_i64().unwrap_or(1);
            let taken = state.as_i64().unwrap_or(0) + if f == "acquire" { count } else { -count };
            let most = params["permits"].as_i64().unwrap_or(1);
            only((0..=most).contains(&taken), json!(taken))
        }
        ("owner-aware-mutex", "acquire") => only(state.is_null(), json!(call.owner)),
        ("owner-aware-mutex", _) => only(*state == json!(call.owner), Value::Null),
        ("reentrant-mutex", "acquire") => {
            let mut held = list();
            held.push(json!(call.owner));
            let most = params["depth_max"].as_u64().unwrap_or(u64::MAX) as usize;
            only(
                held.len() <= most && held.iter().all(|owner| *owner == held[0]),
                json!(held),
            )
        }
        ("reentrant-mutex", _) => {
            let mut held = list();
            let last = held.pop();
            only(last == Some(json!(call.owner)), json!(held))
        }
        ("fenced-mutex", "acquire") => {
            let last = state["token"].as_i64().unwrap_or(0);
            let given = call
                .output
                .as_ref()
                .and_then(|output| output["token"].as_i64());
            let tokens = given.map_or((last + 1..=last + 9).collect(), |token| vec![token]);
            let granted = |token| json!({"holder": call.owner, "token": token});
            let fits = |token: &i64| state["holder"].is_null() && *token > last;
            tokens.into_iter().filter(fits).map(granted).collect()
        }
        ("fenced-mutex", _) => only(
            state["holder"] == json!(call.owner),
            json!({"holder": null, "token": state["token"]}),
        ),
        ("fifo-queue" | "unordered-queue", "enqueue") => {
            let mut inside = list();
            inside.push(call.input.clone());
            vec![json!(inside)]
        }
        ("fifo-queue" | "unordered-queue", _) => {
            let inside = list();
            let ends = if object == "fifo-queue" {
                inside.len().min(1)
            } else {
                inside.len()
            };
            let mut next: Vec<Value> = only(inside.is_empty() && given(Value::Null), json!([]));
            for at in (0..ends).filter(|&at| given(inside[at].clone())) {
                let mut rest = inside.clone();
                rest.remove(at);
                next.push(json!(rest));
            }
            next
        }
        ("set", f) => set(list(), f, call),
        ("counter", "add") => {
            let by = call.input.as_i64().unwrap_or(1);
            vec![json!(state.as_i64().unwrap_or(0) + by)]
        }
        ("counter", _) => {
            let initial = params["initial"].as_i64().unwrap_or(0);
            only(
                given(json!(state.as_i64().unwrap_or(0) + initial)),
                state.clone(),
            )
        }
        ("append-log", "append") => {
            let mut all = list();
            all.push(call.input.clone());
            vec![json!(all)]
        }
        ("append-log", _) => only(given(state.clone()), state.clone()),
        ("versioned-register", f) => versioned(state, f, call),
        ("kv", f) => kv(state, f, call),
        _ => transaction(state, call).into_iter().collect(),
    }
}

fn set(mut all: Vec<Value>, f: &str, call: &Call) -> Vec<Value> {
    let there = all.contains(&call.input);
    match f {
        "add" if !there => all.push(call.input.clone()),
        "remove" => all.retain(|value| *value != call.input),
        "contains" if call.output.as_ref().is_some_and(|is| *is != json!(there)) => {
            return Vec::new();
        }
        "read" => {
            if let Some(Value::Array(seen)) = &call.output {
                let same = seen.len() == all.len() && seen.iter().all(|value| all.contains(value));
                return if same { vec![json!(all)] } else { Vec::new() };
            }
        }
        _ => {}
    }
    vec![json!(all)]
}

fn versioned(state: &Value, f: &str, call: &Call) -> Vec<Value> {
    if f == "read" {
        let fits = match &call.output {
            Some(Value::Null) => state["revision"] == json!(0),
            Some(seen) => seen == state,
            None => true,
        };
        return if fits {
            vec![state.clone()]
        } else {
            Vec::new()
        };
    }
    let (expected, new) = match (f, &call.input) {
        ("write", value) => (true, value),
        (_, Value::Array(pair)) => (state["value"] == pair[0], &pair[1]),
        (_, map) => (state["revision"] == map["revision"], &map["value"]),
    };
    let last = state["revision"].as_u64().unwrap_or(0);
    let revisions = (last + 1..=last + 12).filter(|revision| {
        let answer = json!({"revision": revision});
        expected && call.output.as_ref().is_none_or(|output| *output == answer)
    });
    revisions
        .map(|revision| json!({"value": new, "revision": revision}))
        .collect()
}

fn kv(state: &Value, f: &str, call: &Call) -> Vec<Value> {
    let is = |seen: &Value| {
        state == seen
            || (seen.as_str() == Some("") && (state.is_null() || state.as_str() == Some("")))
    };
    match f {
        "get" if call.output.as_ref().is_some_and(|seen| !is(seen)) => Vec::new(),
        "get" => vec![state.clone()],
        "put" => vec![call.input.clone()],
        "delete" => vec![Value::Null],
        "cas" if is(&call.input[0]) => vec![call.input[1].clone()],
        "cas" => Vec::new(),
        _ if state.is_null() => vec![call.input.clone()],
        _ => match (state.as_str(), call.input.as_str()) {
            (Some(before), Some(more)) => vec![json!(format!("{before}{more}"))],
            _ => Vec::new(),
        },
    }
}

fn transaction(state: &Value, call: &Call) -> Option<Value> {
    let mut state = state.clone();
    let parts = call.output.as_ref().unwrap_or(&call.input).as_array()?;
    for part in parts {
        let key = part[1].to_string();
        match part[0].as_str()? {
            "w" | "write" => state[key] = part[2].clone(),
            _ if call.output.is_some() && state[&key] != part[2] => return None,
            _ => {}
        }
    }
    Some(state)
}
