//! A suite: cells read from a spec file and resolved, so that nothing is left to chance or default.
//!
//! The grammar is in `raw.rs`; here names are looked up, parameters are checked against what the
//! workload, the system and the faults declare, and what is missing gets its default. A resolved
//! cell can be written out again with [`Cell::to_toml`] and read back to the same cell.

mod error;
mod expect;
mod plan_file;
mod raw;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use nemeses::{Choices, Plan, PlannedFault, RawFault as NemesisFault, Roster, Timing};
use serde_json::{Map, Value};
use spec::{Param, Params, closest, parse_duration};
use systems::System;
use toml::Spanned;
use workloads::Workload;

pub use error::SpecError;
pub use expect::Expect;
use raw::{RawCell, RawFault, RawParams, RawSuite};

/// A suite, ready to run.
#[derive(Debug)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// How many cells may run at once.
    pub jobs: usize,
    /// Its cells.
    pub cells: Vec<Cell>,
    /// What a user should know before it runs.
    pub warnings: Vec<String>,
}

/// One test, with everything explicit.
#[derive(Clone)]
pub struct Cell {
    /// The suite that it belongs to.
    pub suite: String,
    /// Stable id.
    pub id: String,
    /// The workload.
    pub workload: &'static dyn Workload,
    /// Its parameters.
    pub workload_params: Params,
    /// The system under test.
    pub system: &'static dyn System,
    /// Its parameters.
    pub system_params: Params,
    /// How many server nodes.
    pub nodes: usize,
    /// What nodes are made of.
    pub backend: String,
    /// How long operations are generated, in nanoseconds.
    pub time_limit: u64,
    /// How long one operation may take, in nanoseconds.
    pub op_timeout: u64,
    /// How long the cluster may take to be whole again after the faults, in nanoseconds.
    pub settle: u64,
    /// The seed; drawn when the run starts if the spec gives none.
    pub seed: Option<u64>,
    /// The faults, in the order of their time.
    pub faults: Vec<PlannedFault>,
    /// Families of faults to draw a plan from; empty for none.
    pub random_faults: Vec<String>,
    /// At most so many servers are harmed at once.
    pub max_harmed: Option<usize>,
    /// What must come out, if that is not "everything held".
    pub expect: Option<Expect>,
    /// The properties that count.
    pub claims: Vec<String>,
    /// Operations that must be done at least for a verdict to mean something.
    pub min_ok: u64,
    /// Functions and faults that must be seen.
    pub required: Vec<String>,
    /// Parameters for the checkers.
    pub checker_params: Map<String, Value>,
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cell")
            .field("suite", &self.suite)
            .field("id", &self.id)
            .finish()
    }
}

/// Reads a spec file.
///
/// # Errors
/// What is wrong with it, and where. A file that cannot be read is reported the same way.
pub fn load(path: &Path) -> Result<Suite, SpecError> {
    let shown = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(source) => parse(&shown, &source),
        Err(error) => Err(SpecError {
            path: shown,
            source: String::new(),
            span: 0..0,
            message: format!("the spec cannot be read: {error}"),
            help: Some("suites that come with schism are in the folder `suites`".to_owned()),
            selects_nothing: false,
        }),
    }
}

/// Reads a spec from memory; `path` is only for messages.
///
/// # Errors
/// What is wrong with it, and where.
pub fn parse(path: &str, source: &str) -> Result<Suite, SpecError> {
    let context = Context { path, source };
    let raw: RawSuite = toml::from_str(source).map_err(|error| context.grammar(&error))?;
    let name = raw.name.get_ref().clone();
    if name.is_empty() || name.contains(['/', '\\']) || name.starts_with('.') {
        return Err(context.at(raw.name.span(), "a suite's name is the name of a folder"));
    }
    let mut suite = Suite {
        name,
        about: raw.about,
        jobs: raw
            .jobs
            .as_ref()
            .map_or(1, |jobs| usize::try_from(*jobs.get_ref()).unwrap_or(1)),
        cells: Vec::new(),
        warnings: Vec::new(),
    };
    if suite.jobs == 0 {
        let span = raw.jobs.map_or(0..0, |jobs| jobs.span());
        return Err(context.at(span, "at least one cell must be able to run"));
    }
    for cell in raw.cells {
        let span = cell.span();
        let cell = cell.into_inner().over(&raw.defaults);
        let (cell, warnings) = context.cell(&suite, cell, span)?;
        suite.cells.push(cell);
        suite.warnings.extend(warnings);
    }
    if suite.cells.is_empty() {
        let mut error = context.at(0..0, "the suite has no cell");
        error.help = Some("add a [[cell]] with an id, a workload and a system".to_owned());
        error.selects_nothing = true;
        return Err(error);
    }
    Ok(suite)
}

struct Context<'a> {
    path: &'a str,
    source: &'a str,
}

impl Context<'_> {
    fn at(&self, span: Range<usize>, message: impl Into<String>) -> SpecError {
        SpecError {
            path: self.path.to_owned(),
            source: self.source.to_owned(),
            span,
            message: message.into(),
            help: None,
            selects_nothing: false,
        }
    }

    /// An error of the grammar, with a suggestion where a key is unknown.
    fn grammar(&self, error: &toml::de::Error) -> SpecError {
        let message = error.message().trim().to_owned();
        let mut shown = self.at(error.span().unwrap_or(0..0), message.clone());
        if let Some(rest) = message.strip_prefix("unknown field `")
            && let Some((name, expected)) = rest.split_once('`')
        {
            let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
            shown.help = closest(name, names).map(|name| format!("did you mean `{name}`?"));
        }
        shown
    }

    fn lookup<T>(
        &self,
        what: &str,
        name: &Spanned<String>,
        found: Option<T>,
        names: impl Iterator<Item = &'static str> + Clone,
    ) -> Result<T, SpecError> {
        found.ok_or_else(|| {
            let mut error = self.at(name.span(), format!("unknown {what} `{}`", name.get_ref()));
            error.help = Some(match closest(name.get_ref(), names.clone()) {
                Some(close) => format!("did you mean `{close}`?"),
                None => format!("known: {}", names.collect::<Vec<_>>().join(", ")),
            });
            error
        })
    }

    fn duration(&self, text: Option<&Spanned<String>>, default: &str) -> Result<u64, SpecError> {
        let (text, span) = match text {
            Some(text) => (text.get_ref().as_str(), text.span()),
            None => (default, 0..0),
        };
        parse_duration(text).map_err(|error| self.at(span, error.to_string()))
    }

    /// Checks a table of parameters against what is declared; an error points to the entry.
    fn params(&self, declared: &[Param], given: &RawParams) -> Result<Params, SpecError> {
        let mut values = Vec::new();
        for (name, value) in given {
            let entry = (name.get_ref().clone(), json(value.get_ref()));
            Params::resolve(declared, [entry.clone()]).map_err(|error| {
                let unknown = matches!(error, spec::Error::Unknown { .. });
                let span = if unknown { name.span() } else { value.span() };
                let mut shown = self.at(span, error.to_string());
                if unknown {
                    let names: Vec<&str> = declared.iter().map(|param| param.name).collect();
                    shown.help = Some(format!("declared here: {}", names.join(", ")));
                }
                shown
            })?;
            values.push(entry);
        }
        Params::resolve(declared, values).map_err(|error| self.at(0..0, error.to_string()))
    }

    fn required<'r>(
        &self,
        field: &str,
        value: Option<&'r Spanned<String>>,
        span: &Range<usize>,
    ) -> Result<&'r Spanned<String>, SpecError> {
        value.ok_or_else(|| self.at(span.clone(), format!("the cell has no `{field}`")))
    }

    fn workload_and_system(
        &self,
        raw: &RawCell,
        span: &Range<usize>,
    ) -> Result<(&'static dyn Workload, &'static dyn System), SpecError> {
        let name = self.required("workload", raw.workload.as_ref(), span)?;
        let workload = self.lookup(
            "workload",
            name,
            workloads::find(name.get_ref()),
            workloads::WORKLOADS.iter().map(|workload| workload.name()),
        )?;
        let name = self.required("system", raw.system.as_ref(), span)?;
        let system = self.lookup(
            "system",
            name,
            systems::find(name.get_ref()),
            systems::SYSTEMS.iter().map(|system| system.name()),
        )?;
        if system.workloads().contains(&workload.name()) {
            return Ok((workload, system));
        }
        let message = format!(
            "{} has no client for workload `{}`",
            system.name(),
            workload.name()
        );
        let mut error = self.at(name.span(), message);
        error.help = Some(format!("it can do: {}", system.workloads().join(", ")));
        Err(error)
    }

    fn cell(
        &self,
        suite: &Suite,
        raw: RawCell,
        span: Range<usize>,
    ) -> Result<(Cell, Vec<String>), SpecError> {
        let id = self.required("id", raw.id.as_ref(), &span)?;
        self.check_id(suite, id)?;
        let (workload, system) = self.workload_and_system(&raw, &span)?;
        let workload_params = self.params(workload.params(), &raw.workload_params)?;
        workload
            .validate(&workload_params)
            .map_err(|error| self.at(span.clone(), error.to_string()))?;
        let system_params = self.params(system.params(), &raw.system_params)?;
        let nodes = self.nodes(raw.nodes.as_ref())?;
        self.backend(raw.backend.as_ref())?;
        let time_limit = self.duration(raw.time_limit.as_ref(), "20s")?;
        let max_harmed = raw
            .max_harmed
            .as_ref()
            .map(|max| usize::try_from(*max.get_ref()).unwrap_or(usize::MAX));
        let roster = roster(workload, &workload_params, nodes);
        let timing = timing(workload, &workload_params, system, &system_params);
        let faults = raw.faults.as_deref().unwrap_or_default();
        let faults = self.faults(faults, &roster, &timing, max_harmed)?;
        let random_faults = self.random(raw.random_faults.as_ref())?;
        let coverage = raw.coverage.clone().unwrap_or_default();
        let claims = match &raw.claims {
            Some(claims) => self.checker_names(claims)?,
            None => default_claims(&raw, workload, &workload_params, system, &system_params),
        };
        let required = coverage
            .required
            .unwrap_or_else(|| landing(&faults, &random_faults));
        let cell = Cell {
            suite: suite.name.clone(),
            id: id.get_ref().clone(),
            workload,
            workload_params,
            system,
            system_params,
            nodes,
            backend: "local".to_owned(),
            time_limit,
            op_timeout: self.duration(raw.op_timeout.as_ref(), "5s")?,
            settle: self.duration(raw.settle.as_ref(), "10s")?,
            seed: raw.seed.as_ref().map(|seed| *seed.get_ref()),
            faults,
            random_faults,
            max_harmed,
            expect: self.expect(raw.expect.as_ref())?,
            claims,
            min_ok: coverage.min_ok.unwrap_or(20),
            required,
            checker_params: raw
                .checker_params
                .iter()
                .map(|(name, value)| (name.get_ref().clone(), json(value.get_ref())))
                .collect(),
        };
        if let Some(random) = &raw.random_faults {
            // Whether there is anything to draw does not depend on the dice.
            cell.plan(0)
                .map_err(|error| self.nemesis(&error, random.span()))?;
        }
        let warnings = self.warnings(&cell, &roster, &timing);
        Ok((cell, warnings))
    }

    /// What a user should know before the cell runs: it is allowed, and may show nothing.
    fn warnings(&self, cell: &Cell, roster: &Roster, timing: &Timing) -> Vec<String> {
        let mut warnings = Vec::new();
        if !cell.faults.is_empty()
            && let Ok(plan) = Plan::new(roster.clone(), 0, cell.faults.clone(), cell.max_harmed)
        {
            warnings.extend(plan.notes(timing));
        }
        for planned in &cell.faults {
            let ends = planned
                .for_ns
                .map_or(0, |for_ns| planned.at_ns.saturating_add(for_ns));
            if ends > cell.time_limit {
                let name = planned.fault.name();
                let at = spec::format_ns(planned.at_ns);
                warnings.push(format!("the {name} at {at} outlasts the time limit"));
            }
        }
        warnings
            .into_iter()
            .map(|warning| format!("{}: {warning}", cell.id))
            .collect()
    }

    fn check_id(&self, suite: &Suite, id: &Spanned<String>) -> Result<(), SpecError> {
        let text = id.get_ref();
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if text.is_empty() || !text.chars().all(fits) || text.starts_with(['/', '.']) {
            return Err(self.at(id.span(), "an id is made of letters, digits and - _ . /"));
        }
        if suite.cells.iter().any(|cell| cell.id == *text) {
            return Err(self.at(id.span(), format!("there is a cell `{text}` already")));
        }
        Ok(())
    }

    fn nodes(&self, nodes: Option<&Spanned<u64>>) -> Result<usize, SpecError> {
        let Some(nodes) = nodes else { return Ok(3) };
        match usize::try_from(*nodes.get_ref()) {
            Ok(count @ 1..=100) => Ok(count),
            _ => Err(self.at(nodes.span(), "expected 1 to 100 nodes")),
        }
    }

    fn backend(&self, backend: Option<&Spanned<String>>) -> Result<(), SpecError> {
        match backend {
            Some(name) if name.get_ref() != "local" => {
                let mut error =
                    self.at(name.span(), format!("unknown backend `{}`", name.get_ref()));
                error.help = Some("known: local".to_owned());
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Checks the faults one by one, each error pointing to its place, and then together.
    fn faults(
        &self,
        raw: &[Spanned<RawFault>],
        roster: &Roster,
        timing: &Timing,
        max_harmed: Option<usize>,
    ) -> Result<Vec<PlannedFault>, SpecError> {
        let mut faults = Vec::new();
        for entry in raw {
            let raw = entry.get_ref();
            let fault = self.lookup(
                "fault",
                &raw.fault,
                nemeses::find(raw.fault.get_ref()),
                nemeses::FAULTS.iter().map(|fault| fault.name()),
            )?;
            self.params(&declared(fault), &raw.params)?;
            self.duration(Some(&raw.at), "0s")?;
            if let Some(lasts) = raw.r#for.as_ref().filter(|lasts| lasts.get_ref() != "end") {
                self.duration(Some(lasts), "0s")?;
            }
            let plain = NemesisFault {
                at: raw.at.get_ref().clone(),
                fault: raw.fault.get_ref().clone(),
                target: raw.target.as_ref().map(|target| target.get_ref().clone()),
                lasts: raw.r#for.as_ref().map(|lasts| lasts.get_ref().clone()),
                params: raw
                    .params
                    .iter()
                    .map(|(name, value)| (name.get_ref().clone(), json(value.get_ref())))
                    .collect(),
            };
            let span = raw.target.as_ref().map_or(entry.span(), Spanned::span);
            let planned = PlannedFault::resolve(plain, roster, timing)
                .map_err(|error| self.nemesis(&error, span))?;
            self.clients_stay_killed(&planned, roster, entry.span())?;
            faults.push(planned);
        }
        let all = raw.first().map_or(0, |first| first.span().start)
            ..raw.last().map_or(0, |last| last.span().end);
        Plan::new(roster.clone(), 0, faults.clone(), max_harmed)
            .map_err(|error| self.nemesis(&error, all))?;
        Ok(faults)
    }

    /// A client program is linked to the controller by its pipe: killed, it stays so.
    fn clients_stay_killed(
        &self,
        planned: &PlannedFault,
        roster: &Roster,
        span: Range<usize>,
    ) -> Result<(), SpecError> {
        let target = planned.target();
        let names = target.split(',').map(str::trim);
        let is_client = |name: &str| {
            matches!(name, "holder" | "clients") || roster.clients.iter().any(|node| node == name)
        };
        if planned.fault.name() != "kill"
            || !planned.params.bool("restart")
            || !names.into_iter().any(is_client)
        {
            return Ok(());
        }
        let mut error = self.at(
            span,
            "a client program that was killed cannot be started again",
        );
        error.help = Some("say that it stays dead: params = { restart = false }".to_owned());
        Err(error)
    }

    fn nemesis(&self, error: &nemeses::Error, span: Range<usize>) -> SpecError {
        let mut shown = self.at(span, error.to_string());
        shown.selects_nothing = matches!(error, nemeses::Error::MatchesNothing { .. });
        shown
    }

    fn random(&self, raw: Option<&Spanned<raw::RawRandom>>) -> Result<Vec<String>, SpecError> {
        let Some(raw) = raw else {
            return Ok(Vec::new());
        };
        for name in &raw.get_ref().faults {
            self.lookup(
                "fault",
                name,
                nemeses::find(name.get_ref()),
                nemeses::FAULTS.iter().map(|fault| fault.name()),
            )?;
        }
        Ok(raw
            .get_ref()
            .faults
            .iter()
            .map(|name| name.get_ref().clone())
            .collect())
    }

    fn expect(&self, raw: Option<&Spanned<String>>) -> Result<Option<Expect>, SpecError> {
        let Some(text) = raw else { return Ok(None) };
        Expect::parse(text.get_ref()).map(Some).map_err(|message| {
            let mut error = self.at(text.span(), message);
            error.help = Some("write \"valid\", or \"invalid:\" and properties".to_owned());
            error
        })
    }

    fn checker_names(&self, names: &Spanned<Vec<String>>) -> Result<Vec<String>, SpecError> {
        for name in names.get_ref() {
            if checkers::find(name).is_none() {
                let known = checkers::CHECKERS.iter().map(|checker| checker.name());
                let mut error = self.at(names.span(), format!("unknown property `{name}`"));
                error.help = closest(name, known).map(|name| format!("did you mean `{name}`?"));
                return Err(error);
            }
        }
        Ok(names.get_ref().clone())
    }
}

impl Cell {
    /// The nodes of the cell by what they are for.
    pub fn roster(&self) -> Roster {
        roster(self.workload, &self.workload_params, self.nodes)
    }

    /// The faults of a run: those that are written, and those that the seed draws.
    ///
    /// # Errors
    /// If none can be drawn.
    pub fn plan(&self, seed: u64) -> Result<Vec<PlannedFault>, nemeses::Error> {
        let mut faults = self.faults.clone();
        if !self.random_faults.is_empty() {
            let choices = Choices {
                faults: self
                    .random_faults
                    .iter()
                    .filter_map(|name| Some((nemeses::find(name)?, Vec::new())))
                    .collect(),
                holders: self.workload.vault(&self.workload_params).is_some(),
                from_ns: 2_000_000_000.min(self.time_limit / 10),
                until_ns: self.time_limit,
                quiet_ns: None,
                max_harmed: self.max_harmed,
            };
            let (roster, timing) = (self.roster(), self.timing());
            for raw in nemeses::random(seed, &choices, &roster, &timing)? {
                faults.push(PlannedFault::resolve(raw, &roster, &timing)?);
            }
        }
        Ok(faults)
    }

    /// How long the system waits before it gives somebody up.
    pub fn timing(&self) -> Timing {
        timing(
            self.workload,
            &self.workload_params,
            self.system,
            &self.system_params,
        )
    }
}

/// Everything that a fault's parameters may be.
fn declared(fault: &dyn nemeses::Fault) -> Vec<Param> {
    fault
        .params()
        .iter()
        .chain(nemeses::COMMON)
        .copied()
        .collect()
}

/// Whether a spec says how many terms or changes of the leader are too many.
fn limits_churn(params: &RawParams) -> bool {
    params
        .keys()
        .any(|name| matches!(name.get_ref().as_str(), "max_terms" | "max_leader_changes"))
}

/// What the system promises for this workload, of what the workload can be judged for.
fn default_claims(
    raw: &RawCell,
    workload: &dyn Workload,
    workload_params: &Params,
    system: &dyn System,
    system_params: &Params,
) -> Vec<String> {
    let judged = workload.checkers(workload_params);
    let claims = system.claims(workload.name(), system_params).into_iter();
    claims
        .filter(|claim| judged.contains(claim))
        // How many elections are too many is for the spec to say; else they are counted.
        .filter(|claim| *claim != "election-churn" || limits_churn(&raw.checker_params))
        .map(str::to_owned)
        .collect()
}

/// The kinds of faults that are planned: each must land.
fn landing(faults: &[PlannedFault], random: &[String]) -> Vec<String> {
    let planned = faults.iter().map(|planned| planned.fault.name().to_owned());
    let all: BTreeSet<String> = planned.chain(random.iter().cloned()).collect();
    all.into_iter().collect()
}

/// The name of the vault's node.
pub const VAULT: &str = "vault";

fn roster(workload: &dyn Workload, params: &Params, nodes: usize) -> Roster {
    let clients = workload.placement(params).client_nodes;
    Roster {
        servers: (1..=nodes).map(|number| format!("n{number}")).collect(),
        clients: (1..=clients).map(|number| format!("c{number}")).collect(),
        others: workload
            .vault(params)
            .map(|_| VAULT.to_owned())
            .into_iter()
            .collect(),
    }
}

fn timing(
    workload: &dyn Workload,
    workload_params: &Params,
    system: &dyn System,
    system_params: &Params,
) -> Timing {
    let ttl_ms = workload
        .header_params(workload_params)
        .get("ttl_ms")
        .and_then(Value::as_u64);
    Timing {
        ttl_ns: ttl_ms.map(|ms| ms * 1_000_000),
        election_timeout_ns: Some(system.timing(system_params).election_timeout),
    }
}

/// A TOML value as JSON; dates become text.
fn json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(int) => Value::from(*int),
        toml::Value::Float(float) => Value::from(*float),
        toml::Value::Boolean(bool) => Value::from(*bool),
        toml::Value::Datetime(date) => Value::from(date.to_string()),
        toml::Value::Array(items) => items.iter().map(json).collect(),
        toml::Value::Table(table) => Value::Object(
            table
                .iter()
                .map(|(key, value)| (key.clone(), json(value)))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests;
