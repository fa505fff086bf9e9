//! Declared parameters and the values that a spec gives them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, closest, parse_duration};

/// What a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamKind {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number with its default; what it counts is said in the description.
    Int(u64),
    /// A number between 0 and 1.
    Ratio(f64),
    /// A duration with its default as a user would write it: `3s`. Kept in nanoseconds.
    Duration(&'static str),
    /// One of some words; the first is the default.
    Choice(&'static [&'static str]),
    /// A text with its default.
    Text(&'static str),
}

/// A parameter that a system, workload or fault declares.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// The name as users write it, with words joined by `-`.
    pub name: &'static str,
    /// What it takes, and its default.
    pub kind: ParamKind,
    /// What it does, in one sentence.
    pub about: &'static str,
}

/// Every declared parameter with its value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Params(BTreeMap<String, Value>);

impl Params {
    /// Checks what was given against what is declared, and fills in the defaults.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a name that is not declared, [`Error::Value`] for a value of the
    /// wrong form.
    pub fn resolve(
        declared: &[Param],
        given: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<Params, Error> {
        let mut values: BTreeMap<String, Value> = declared
            .iter()
            .map(|param| (param.name.to_owned(), param.default()))
            .collect();
        for (name, value) in given {
            let Some(param) = declared.iter().find(|param| param.name == name) else {
                let suggestion = closest(&name, declared.iter().map(|param| param.name));
                return Err(Error::Unknown {
                    what: "parameter",
                    suggestion: suggestion.map(str::to_owned),
                    name,
                });
            };
            let value = param.check(&value)?;
            values.insert(name, value);
        }
        Ok(Params(values))
    }

    /// All parameters by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// A declared switch.
    ///
    /// # Panics
    /// If it was not declared as one: that is a mistake of the program, not of the user.
    pub fn bool(&self, name: &str) -> bool {
        self.get(name)
            .as_bool()
            .unwrap_or_else(|| wrong(name, "a switch"))
    }

    /// A declared whole number.
    ///
    /// # Panics
    /// If it was not declared as one.
    pub fn int(&self, name: &str) -> u64 {
        self.get(name)
            .as_u64()
            .unwrap_or_else(|| wrong(name, "a whole number"))
    }

    /// A declared ratio.
    ///
    /// # Panics
    /// If it was not declared as one.
    pub fn ratio(&self, name: &str) -> f64 {
        self.get(name)
            .as_f64()
            .unwrap_or_else(|| wrong(name, "a ratio"))
    }

    /// A declared duration in nanoseconds.
    ///
    /// # Panics
    /// If it was not declared as one.
    pub fn duration_ns(&self, name: &str) -> u64 {
        let text = self.text(name);
        parse_duration(text).unwrap_or_else(|_| wrong(name, "a duration"))
    }

    /// A declared duration in whole milliseconds.
    ///
    /// # Panics
    /// If it was not declared as one.
    pub fn duration_ms(&self, name: &str) -> u64 {
        self.duration_ns(name) / 1_000_000
    }

    /// A declared choice or text.
    ///
    /// # Panics
    /// If it was not declared as one.
    pub fn text(&self, name: &str) -> &str {
        self.get(name)
            .as_str()
            .unwrap_or_else(|| wrong(name, "a text"))
    }

    fn get(&self, name: &str) -> &Value {
        self.0
            .get(name)
            .unwrap_or_else(|| panic!("parameter `{name}` is not declared"))
    }
}

fn wrong<T>(name: &str, what: &str) -> T {
    panic!("parameter `{name}` is not declared as {what}")
}

impl Param {
    /// The value that it has when none is given.
    pub fn default(&self) -> Value {
        match self.kind {
            ParamKind::Bool(default) => Value::from(default),
            ParamKind::Int(default) => Value::from(default),
            ParamKind::Ratio(default) => Value::from(default),
            ParamKind::Duration(default) | ParamKind::Text(default) => Value::from(default),
            ParamKind::Choice(words) => Value::from(words[0]),
        }
    }

    /// What it takes, in words.
    pub fn expects(&self) -> String {
        match self.kind {
            ParamKind::Bool(_) => "true or false".to_owned(),
            ParamKind::Int(_) => "a whole number, 0 or more".to_owned(),
            ParamKind::Ratio(_) => "a number from 0 to 1".to_owned(),
            ParamKind::Duration(_) => "a duration such as \"250ms\" or \"3s\"".to_owned(),
            ParamKind::Choice(words) => format!("one of {}", words.join(", ")),
            ParamKind::Text(_) => "a text".to_owned(),
        }
    }

    fn check(&self, value: &Value) -> Result<Value, Error> {
        let fits = match self.kind {
            ParamKind::Bool(_) => value.is_boolean(),
            ParamKind::Int(_) => value.is_u64(),
            ParamKind::Ratio(_) => value
                .as_f64()
                .is_some_and(|ratio| (0.0..=1.0).contains(&ratio)),
            ParamKind::Duration(_) => {
                if let Some(text) = value.as_str() {
                    parse_duration(text).map_err(|error| Error::Value {
                        name: self.name.to_owned(),
                        expected: self.expects(),
                        found: error.to_string(),
                    })?;
                }
                value.is_string()
            }
            ParamKind::Choice(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            ParamKind::Text(_) => value.is_string(),
        };
        if fits {
            return Ok(value.clone());
        }
        Err(Error::Value {
            name: self.name.to_owned(),
            expected: self.expects(),
            found: value.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const DECLARED: &[Param] = &[
        Param {
            name: "ttl",
            kind: ParamKind::Duration("3s"),
            about: "how long a lease lives",
        },
        Param {
            name: "holder",
            kind: ParamKind::Choice(&["naive", "fenced"]),
            about: "what the holder trusts",
        },
        Param {
            name: "keys",
            kind: ParamKind::Int(5),
            about: "how many keys",
        },
        Param {
            name: "prevote",
            kind: ParamKind::Bool(true),
            about: "ask before an election",
        },
    ];

    fn resolve(given: Value) -> Result<Params, Error> {
        let given = given.as_object().unwrap().clone();
        Params::resolve(DECLARED, given)
    }

    #[test]
    fn defaults_fill_what_is_not_given() {
        let params = resolve(json!({"holder": "fenced", "keys": 7})).unwrap();
        assert_eq!(params.duration_ms("ttl"), 3000);
        assert_eq!(params.text("holder"), "fenced");
        assert_eq!(params.int("keys"), 7);
        assert!(params.bool("prevote"));
    }

    #[test]
    fn what_is_not_declared_or_does_not_fit_is_refused() {
        for (given, says) in [
            (json!({"tll": "3s"}), "did you mean `ttl`?"),
            (json!({"ttl": 3}), "expected a duration"),
            (json!({"ttl": "3"}), "unit is missing"),
            (json!({"holder": "naïve"}), "one of naive, fenced"),
            (json!({"keys": -1}), "a whole number"),
            (json!({"prevote": "yes"}), "true or false"),
        ] {
            let error = resolve(given.clone())
                .expect_err(&given.to_string())
                .to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
