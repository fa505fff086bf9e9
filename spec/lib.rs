//! What a user may write: declared parameters, durations with units, and errors that suggest.
//!
//! Systems, workloads and faults each declare the parameters that they take as a static list of
//! [`Param`]. What a spec gives is checked against that list once, before anything starts, and
//! becomes [`Params`]: every declared parameter with a value, and no other. The grammar of whole
//! spec files is the controller's; this crate knows single values.

mod duration;
mod params;
mod suggest;

pub use duration::{exact_ns, format_ns, parse_duration};
pub use params::{Param, ParamKind, Params};
pub use suggest::closest;

/// Why a value cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name that nobody declared.
    #[error("unknown {what} `{name}`{}", hint(.suggestion.as_deref()))]
    Unknown {
        /// What kind of thing was named: `parameter`, `fault`, ...
        what: &'static str,
        /// The name as written.
        name: String,
        /// The closest name that exists.
        suggestion: Option<String>,
    },
    /// A declared parameter with a value of the wrong form.
    #[error("`{name}`: expected {expected}, found {found}")]
    Value {
        /// The parameter.
        name: String,
        /// What it takes.
        expected: String,
        /// What was written.
        found: String,
    },
    /// A duration that cannot be read.
    #[error("{0}")]
    Duration(String),
}

fn hint(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}
