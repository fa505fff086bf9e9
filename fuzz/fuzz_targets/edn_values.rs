//! Values of EDN, read by us and by `clojure-reader`: where both take them they mean the same, and
//! plain ones that it takes we take.

#![no_main]

use std::borrow::Cow;

use clojure_reader::edn::{Edn, read};
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let text = format!("{{:type :invoke, :process 0, :f :x, :value {text}}}");
    let Ok((Edn::Map(ref map), "")) = read(&text) else {
        return;
    };
    let Some(expected) = map.get(&Edn::Key(Cow::Borrowed("value"))) else {
        return;
    };
    if map.len() != 4 {
        return;
    }
    let ours = schism_fuzz::read(Some("edn"), text.as_bytes());
    let Some(expected) = plain(expected, 0) else {
        return;
    };
    // What a reader of Clojure may do about these is not what a reader of EDN must do.
    let has_octal = text.as_bytes().windows(2).any(|two| two[0] == b'0' && two[1].is_ascii_digit());
    let has_radix = text.as_bytes().windows(2).any(|two| two[0].is_ascii_digit() && two[1] | 32 == b'r');
    if has_octal || has_radix || text.contains(['\\', '#', '^', '@', '\'', '`', '~', '%']) || !text.is_ascii() {
        return;
    }
    let ours = ours.unwrap_or_else(|| panic!("not read: {text}"));
    let found = ours.history.event(0).value().to_json();
    assert_eq!(found, expected, "{text}");
});

/// The value as we keep it; `None` where the two languages differ by intent.
fn plain(edn: &Edn<'_>, depth: usize) -> Option<Value> {
    if depth > 100 {
        return None;
    }
    let list = |items: &[Edn<'_>]| -> Option<Value> {
        items.iter().map(|item| plain(item, depth + 1)).collect()
    };
    Some(match edn {
        Edn::Nil => Value::Null,
        Edn::Bool(bool) => Value::from(*bool),
        Edn::Int(int) => Value::from(*int),
        Edn::Str(text) | Edn::Key(text) => Value::from(text.as_ref()),
        Edn::Symbol(name) => Value::from(name.as_ref()),
        Edn::Vector(items) | Edn::List(items) => list(items)?,
        Edn::Map(map) => {
            let mut object = serde_json::Map::new();
            for (key, value) in map {
                let name = match key {
                    Edn::Str(name) | Edn::Key(name) => name.to_string(),
                    _ => return None,
                };
                if object.insert(name, plain(value, depth + 1)?).is_some() {
                    return None;
                }
            }
            Value::from(object)
        }
        _ => return None,
    })
}
