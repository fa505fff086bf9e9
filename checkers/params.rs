//! What a verdict depends on besides the events: the parameters of a checker.
//!
//! [`Checker::params`] is the declaration; the header of a history gives the values. Before a
//! checker runs, what is given is checked against what it takes, so that a misspelt word is never
//! silently a default; after it ran, the result says in a note what was in force.

use history::Header;
use serde_json::Value;

use crate::{CHECKERS, Checker};

/// A header parameter that a checker reads.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// Its name, with its unit last: `ttl_ms`.
    pub name: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// What holds where the header does not give it, in words.
    pub default: &'static str,
    /// What it means.
    pub about: &'static str,
}

/// What a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// A number of milliseconds, 0 or more.
    Ms,
    /// A whole number, 0 or more.
    Count,
    /// `true` or `false`.
    Flag,
    /// One of these words; the first is the default.
    Word(&'static [&'static str]),
    /// A list of names.
    Names,
    /// A list of whole numbers.
    Numbers,
    /// A list of pairs `[from, to]` of milliseconds.
    Spans,
    /// A map from names to names.
    Map,
    /// Any value.
    Any,
}

/// The value before the first write of a register.
pub(crate) const INITIAL: Param = Param {
    name: "initial",
    takes: Takes::Any,
    default: "null",
    about: "the value of a register before the first write",
};

/// Which functions read a register.
pub(crate) const READS: Param = Param {
    name: "reads",
    takes: Takes::Names,
    default: "none",
    about: "functions that are judged as reads besides `read`",
};

/// What a read of null says.
pub(crate) const NIL_READS: Param = Param {
    name: "nil_reads",
    takes: Takes::Word(&["value", "unknown"]),
    default: "value",
    about: "`value`: a read of null returned null; `unknown`: it says nothing",
};

/// What a failed compare-and-set says.
pub(crate) const CAS_FAIL: Param = Param {
    name: "cas_fail",
    takes: Takes::Word(&["no-op", "observation"]),
    default: "no-op",
    about: "`no-op`: a failed cas did not happen; `observation`: it saw another value",
};

/// What `fail` says.
pub(crate) const FAILS: Param = Param {
    name: "fails",
    takes: Takes::Word(&["certain", "uncertain"]),
    default: "certain",
    about: "`certain`: what failed did not happen; `uncertain`: it may have, as with `info`",
};

/// Why a parameter cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A value of the wrong form.
    #[error("`{name}`: expected {expected}, found {found}{}", hint(.suggestion.as_deref()))]
    Value {
        /// The parameter.
        name: &'static str,
        /// What it takes.
        expected: String,
        /// What was given.
        found: String,
        /// The word that was probably meant.
        suggestion: Option<String>,
    },
    /// A name that no checker declares that was selected.
    #[error("no selected checker reads a parameter `{name}`{}", found(*.reader, .suggestion.as_deref()))]
    Name {
        /// The name.
        name: String,
        /// A checker that would read it.
        reader: Option<&'static str>,
        /// The name that was probably meant.
        suggestion: Option<String>,
    },
}

fn hint(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

fn found(reader: Option<&str>, suggestion: Option<&str>) -> String {
    match reader {
        Some(reader) => format!("; `{reader}` would"),
        None => hint(suggestion),
    }
}

impl Takes {
    /// In words.
    pub fn describe(self) -> String {
        match self {
            Takes::Ms => "a number of milliseconds, 0 or more".to_owned(),
            Takes::Count => "a whole number, 0 or more".to_owned(),
            Takes::Flag => "true or false".to_owned(),
            Takes::Word(words) => format!("one of {}", words.join(", ")),
            Takes::Names => "a list of names".to_owned(),
            Takes::Numbers => "a list of whole numbers".to_owned(),
            Takes::Spans => "a list of pairs [from, to] of whole milliseconds, in order".to_owned(),
            Takes::Map => "a map from names to names".to_owned(),
            Takes::Any => "a value".to_owned(),
        }
    }

    fn fits(self, value: &Value) -> bool {
        let all = |fits: &dyn Fn(&Value) -> bool| {
            value.as_array().is_some_and(|items| items.iter().all(fits))
        };
        match self {
            Takes::Ms => value.as_f64().is_some_and(|ms| ms >= 0.0),
            Takes::Count => value.is_u64(),
            Takes::Flag => value.is_boolean(),
            Takes::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Takes::Names => all(&Value::is_string),
            Takes::Numbers => all(&|item| item.is_i64() || item.is_u64()),
            Takes::Spans => all(&|span| {
                let ends = span.as_array().filter(|ends| ends.len() == 2);
                let whole = ends.filter(|ends| ends.iter().all(Value::is_u64));
                whole.is_some_and(|ends| ends[0].as_u64() <= ends[1].as_u64())
            }),
            Takes::Map => value
                .as_object()
                .is_some_and(|map| map.values().all(Value::is_string)),
            Takes::Any => true,
        }
    }
}

impl Param {
    /// The word that is in force, of a parameter that takes one.
    pub(crate) fn word<'h>(&self, header: &'h Header) -> &'h str
    where
        'static: 'h,
    {
        header.param_str(self.name).unwrap_or(self.default)
    }

    fn check(&self, value: &Value) -> Result<(), Refused> {
        if self.takes.fits(value) {
            return Ok(());
        }
        let suggestion = match (self.takes, value.as_str()) {
            (Takes::Word(words), Some(word)) => spec::closest(word, words.iter().copied()),
            _ => None,
        };
        Err(Refused::Value {
            name: self.name,
            expected: self.takes.describe(),
            found: short(value),
            suggestion: suggestion.map(str::to_owned),
        })
    }
}

/// Whether the header gives the parameters of a checker as it takes them.
///
/// # Errors
/// The first value that does not fit.
pub fn check(checker: &dyn Checker, header: &Header) -> Result<(), Refused> {
    for param in checker.params() {
        if let Some(value) = header.params.get(param.name) {
            param.check(value)?;
        }
    }
    Ok(())
}

/// Whether one of these checkers declares a parameter of this name.
///
/// # Errors
/// If none does, with the closest name that one does, or else with a checker that would read it.
pub fn find(selected: &[&dyn Checker], name: &str) -> Result<(), Refused> {
    let mut names = selected
        .iter()
        .flat_map(|checker| checker.params())
        .map(|param| param.name);
    if names.clone().any(|known| known == name) {
        return Ok(());
    }
    let declares =
        |checker: &&&dyn Checker| checker.params().iter().any(|param| param.name == name);
    Err(Refused::Name {
        name: name.to_owned(),
        suggestion: spec::closest(name, &mut names).map(str::to_owned),
        reader: CHECKERS.iter().find(declares).map(|checker| checker.name()),
    })
}

/// What was in force, as one sentence; `None` if the checker depends on no parameter.
pub(crate) fn in_force(checker: &dyn Checker, header: &Header) -> Option<String> {
    let params = checker.params();
    let values: Vec<String> = params
        .iter()
        .map(|param| match header.params.get(param.name) {
            Some(value) => format!("{} = {} (given)", param.name, short(value)),
            None => format!("{} = {} (default)", param.name, param.default),
        })
        .collect();
    (!values.is_empty()).then(|| format!("judged with {}", values.join(", ")))
}

/// A value as it is repeated: whole if it is short, else how much there is of it.
fn short(value: &Value) -> String {
    const CHARS_MAX: usize = 60;
    match value {
        Value::String(text) if text.chars().count() <= CHARS_MAX => return text.clone(),
        Value::Array(items) if items.len() > CHARS_MAX => return format!("{} items", items.len()),
        Value::Object(map) if map.len() > CHARS_MAX => return format!("{} entries", map.len()),
        _ => {}
    }
    let text = value.to_string();
    match text.char_indices().nth(CHARS_MAX) {
        None => text,
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const WORD: Param = NIL_READS;

    #[test]
    fn what_does_not_fit_is_refused_with_a_suggestion() {
        let says = |param: &Param, value: Value| param.check(&value).unwrap_err().to_string();
        assert_eq!(
            says(&WORD, json!("unknwon")),
            "`nil_reads`: expected one of value, unknown, found unknwon; did you mean `unknown`?"
        );
        assert_eq!(
            says(&WORD, json!(7)),
            "`nil_reads`: expected one of value, unknown, found 7"
        );
        for (takes, bad, good) in [
            (Takes::Ms, json!(-1), json!(1.5)),
            (Takes::Count, json!(1.5), json!(3)),
            (Takes::Flag, json!("true"), json!(true)),
            (Takes::Names, json!(["a", 1]), json!(["a"])),
            (Takes::Numbers, json!([1, "2"]), json!([1, -2])),
            (Takes::Spans, json!([[2, 1]]), json!([[0, 1]])),
            (Takes::Map, json!({"a": 1}), json!({"a": "b"})),
        ] {
            let param = Param { takes, ..WORD };
            assert!(param.check(&bad).is_err(), "{takes:?} {bad}");
            assert_eq!(param.check(&good), Ok(()), "{takes:?} {good}");
        }
    }

    #[test]
    fn names_that_nobody_declares_are_refused() {
        let selected = [crate::find("linearizable").expect("a checker of this name")];
        let says = |name: &str| find(&selected, name).unwrap_err().to_string();
        assert_eq!(find(&selected, "nil_reads"), Ok(()));
        assert_eq!(
            says("nil_read"),
            "no selected checker reads a parameter `nil_read`; did you mean `nil_reads`?"
        );
        assert_eq!(
            says("required"),
            "no selected checker reads a parameter `required`; `coverage` would"
        );
    }

    /// A word's default is its first, and one name takes one form everywhere.
    #[test]
    fn declarations_agree() {
        let all = || CHECKERS.iter().flat_map(|checker| checker.params());
        for param in all() {
            if let Takes::Word(words) = param.takes {
                assert_eq!(param.default, words[0], "{}", param.name);
            }
            for other in all().filter(|other| other.name == param.name) {
                assert_eq!(param.takes, other.takes, "{}", param.name);
            }
        }
    }

    #[test]
    fn long_values_are_repeated_short() {
        assert_eq!(short(&(0..1000).collect::<Value>()), "1000 items");
        assert_eq!(short(&json!("é".repeat(70))).chars().count(), 63);
    }
}
