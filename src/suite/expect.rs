//! What a cell says must come out.

use std::fmt;

use checkers::Verdict;

use crate::result::Property;

/// An expectation: canaries say which properties must be convicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// Every claimed property holds.
    Valid,
    /// Exactly these claimed properties are convicted, and no claimed one is undecided.
    Invalid(Vec<String>),
}

impl Expect {
    /// Reads `valid` or `invalid:stale-writes,split-brain`.
    pub fn parse(text: &str) -> Result<Expect, String> {
        if text == "valid" {
            return Ok(Expect::Valid);
        }
        let Some(list) = text.strip_prefix("invalid:") else {
            return Err(format!("`{text}` is not an expectation"));
        };
        let mut names = Vec::new();
        for name in list.split(',').map(str::trim) {
            let checker = checkers::find(name).ok_or_else(|| {
                let known = checkers::CHECKERS.iter().map(|checker| checker.name());
                let hint = spec::closest(name, known);
                let hint = hint.map(|name| format!("; did you mean `{name}`?"));
                format!("unknown property `{name}`{}", hint.unwrap_or_default())
            })?;
            names.push(checker.name().to_owned());
        }
        names.sort();
        names.dedup();
        Ok(Expect::Invalid(names))
    }

    /// Whether the claimed properties came out so.
    pub fn met(&self, properties: &[Property]) -> bool {
        let claimed = || properties.iter().filter(|property| property.claimed);
        let mut convicted: Vec<&str> = claimed()
            .filter(|property| property.checked.verdict == Verdict::Invalid)
            .map(|property| property.name.as_str())
            .collect();
        convicted.sort_unstable();
        let decided =
            claimed().all(|property| !matches!(property.checked.verdict, Verdict::Unknown(_)));
        let expected: &[String] = match self {
            Expect::Valid => &[],
            Expect::Invalid(names) => names,
        };
        decided && convicted == expected
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expect::Valid => f.write_str("valid"),
            Expect::Invalid(names) => write!(f, "invalid:{}", names.join(",")),
        }
    }
}
