//! The grammar of a spec file, before anything in it is looked up.
//!
//! Every key that is written is either declared here or refused. Values keep the place where they
//! stand, so that what is found wrong later can still point to it.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

/// A table of parameters: names and values with their places.
pub type RawParams = BTreeMap<Spanned<String>, Spanned<toml::Value>>;

/// A spec file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawSuite {
    /// The name of the suite; its results go to a folder of that name.
    pub name: Spanned<String>,
    /// What the suite is for; shown when it begins.
    #[serde(default)]
    pub about: String,
    /// How many cells may run at once.
    #[serde(default)]
    pub jobs: Option<Spanned<u64>>,
    /// What holds for every cell that does not say otherwise.
    #[serde(default)]
    pub defaults: RawCell,
    /// The cells.
    #[serde(default, rename = "cell")]
    pub cells: Vec<Spanned<RawCell>>,
}

/// A cell, or the defaults of all cells.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawCell {
    /// Stable id: `frozen-holder/naive`.
    pub id: Option<Spanned<String>>,
    /// The workload.
    pub workload: Option<Spanned<String>>,
    /// Parameters of the workload.
    #[serde(default)]
    pub workload_params: RawParams,
    /// The system under test.
    pub system: Option<Spanned<String>>,
    /// Parameters of the system.
    #[serde(default)]
    pub system_params: RawParams,
    /// How many server nodes.
    pub nodes: Option<Spanned<u64>>,
    /// What nodes are made of.
    pub backend: Option<Spanned<String>>,
    /// How long operations are generated.
    pub time_limit: Option<Spanned<String>>,
    /// How long one operation may take.
    pub op_timeout: Option<Spanned<String>>,
    /// How long the cluster may take to be whole again after everything was healed.
    pub settle: Option<Spanned<String>>,
    /// The seed of everything random.
    pub seed: Option<Spanned<u64>>,
    /// The faults.
    pub faults: Option<Vec<Spanned<RawFault>>>,
    /// A plan of faults drawn from the seed.
    pub random_faults: Option<Spanned<RawRandom>>,
    /// At most so many servers are harmed at once.
    pub max_harmed: Option<Spanned<u64>>,
    /// What must come out, where that is not "everything held".
    pub expect: Option<Spanned<String>>,
    /// The properties that count, where that is not what the system promises.
    pub claims: Option<Spanned<Vec<String>>>,
    /// What must have happened for a verdict to mean something.
    pub coverage: Option<RawCoverage>,
    /// Parameters for the checkers beside those that follow from the workload.
    #[serde(default)]
    pub checker_params: RawParams,
}

/// A fault as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawFault {
    /// When it strikes, since the clients began.
    pub at: Spanned<String>,
    /// The fault.
    pub fault: Spanned<String>,
    /// What it strikes.
    pub target: Option<Spanned<String>>,
    /// How long it lasts, or `end`; if it is not given, twice the longest of the system's times.
    pub r#for: Option<Spanned<String>>,
    /// Its parameters.
    #[serde(default)]
    pub params: RawParams,
}

/// A plan of faults to be drawn from the seed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawRandom {
    /// The faults to draw from.
    pub faults: Vec<Spanned<String>>,
}

/// What must have happened.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RawCoverage {
    /// Operations that were done, at least.
    pub min_ok: Option<u64>,
    /// Functions and faults that must be seen.
    pub required: Option<Vec<String>>,
}

impl RawCell {
    /// This cell over the defaults: what it does not say is taken from them; tables of parameters
    /// are joined.
    pub fn over(mut self, defaults: &RawCell) -> RawCell {
        macro_rules! inherit {
            ($($field:ident),*) => { $(
                if self.$field.is_none() {
                    self.$field.clone_from(&defaults.$field);
                }
            )* };
        }
        inherit!(
            workload,
            system,
            nodes,
            backend,
            time_limit,
            op_timeout,
            settle,
            seed,
            faults,
            random_faults,
            max_harmed,
            expect,
            claims,
            coverage
        );
        for (mine, theirs) in [
            (&mut self.workload_params, &defaults.workload_params),
            (&mut self.system_params, &defaults.system_params),
            (&mut self.checker_params, &defaults.checker_params),
        ] {
            for (name, value) in theirs {
                if !mine.keys().any(|own| own.get_ref() == name.get_ref()) {
                    mine.insert(name.clone(), value.clone());
                }
            }
        }
        self
    }
}
