//! The identity of a value: what is equal is equal here, and can be hashed and ordered.
//!
//! Two values of one history are nearly always compared as words. Lists, maps and numbers that
//! are not small integers have no word of their own, and are compared as text.

use history::ValueRef;

/// A value as a key of maps. Equal identities of one history mean equal values, and the reverse.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ident {
    /// `null`, a bool, an integer of up to 61 bits, or a string.
    Word(u64),
    /// Anything else, as JSON text.
    Text(String),
}

impl Ident {
    /// The identity of this value.
    pub(crate) fn of(value: ValueRef<'_>) -> Ident {
        let is_word = value.packed().as_int().is_some()
            || value.is_null()
            || value.as_str().is_some()
            || value.as_bool().is_some();
        if is_word {
            Ident::Word(value.packed().bits())
        } else {
            Ident::Text(value.to_json().to_string())
        }
    }
}

/// A 64-bit integer of either sign: tokens, terms and revisions may use all of both ranges.
pub(crate) fn integer(value: ValueRef<'_>) -> Option<i128> {
    value
        .as_i64()
        .map(i128::from)
        .or_else(|| value.as_u64().map(i128::from))
}

/// The entry `name` of a map as an integer.
pub(crate) fn integer_at(value: ValueRef<'_>, name: &str) -> Option<i128> {
    value.get(name).and_then(integer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use history::{Event, History, Kind, Process};
    use serde_json::json;

    #[test]
    fn equal_values_have_equal_identities() {
        let values = [
            json!(null),
            json!(true),
            json!(1),
            json!("1"),
            json!(1.5),
            json!([1, 2]),
            json!({"a": 1}),
            json!(u64::MAX),
        ];
        let history: History = values
            .iter()
            .chain(values.iter())
            .map(|value| Event::new(0, Process::Number(0), Kind::Info, "x", value.clone()))
            .collect();
        let count = values.len();
        for a in 0..count {
            for b in 0..count {
                let left = Ident::of(history.event(a).value());
                let right = Ident::of(history.event(count + b).value());
                assert_eq!(left == right, a == b, "{} {}", values[a], values[b]);
            }
        }
        assert_eq!(
            integer(history.event(7).value()),
            Some(i128::from(u64::MAX))
        );
    }
}
