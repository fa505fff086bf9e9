//! The end of a run, which needs no cluster any more: what was recorded is read back and checked,
//! and the directory gets its result, its plan and its reports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use checkers::{Checked, Reason, Verdict};
use history::clock::Clock;
use history::{Header, History, HistoryBuilder};

use super::{Progress, Run};
use crate::check::{self, Limits};
use crate::result::{Outcome, Property, RESULT_SCHEMA, RunResult, SystemInfo};
use crate::{environment, report, results};

impl Run<'_> {
    pub(super) fn read_history(&mut self) -> Option<Arc<History>> {
        let path = self.history_path();
        if !path.exists() {
            return None;
        }
        match history::read_path(&path) {
            Ok(read) => {
                self.notes.extend(read.warnings);
                Some(Arc::new(read.history))
            }
            Err(error) => {
                self.failed("check", format!("history.jsonl: {error}"));
                None
            }
        }
    }

    /// Checks what was recorded, and says what came out.
    pub(super) async fn conclude(
        &mut self,
        history: Option<Arc<History>>,
        clock: Clock,
    ) -> RunResult {
        let _ = self.progress.send(Progress::Stage("check"));
        self.stage_clock = Clock::start();
        let (properties, coverage) = match &history {
            Some(history) => self.check(history).await,
            None => {
                let why = "nothing was recorded".to_owned();
                (Vec::new(), Checked::unknown(Reason::Coverage(why)))
            }
        };
        let mut outcome = Outcome::of(&properties, &coverage, &self.stages);
        if self.interrupted && outcome != Outcome::Violation {
            outcome = Outcome::Interrupted;
        }
        let expect = self.cell.expect.as_ref();
        // A canary that was convicted while coverage was not met proves nothing.
        let as_expected =
            expect.map(|expect| expect.met(&properties) && coverage.verdict == Verdict::Valid);
        let plan = self.write_plan();
        let mut result = RunResult {
            schema: RESULT_SCHEMA,
            id: results::short_id(),
            suite: self.cell.suite.clone(),
            cell: self.cell.id.clone(),
            workload: self.cell.workload.name().to_owned(),
            system: SystemInfo {
                name: self.cell.system.name().to_owned(),
                version: self.version.clone(),
                params: self.cell.system_params.clone(),
            },
            backend: self.cell.backend.clone(),
            seed: self.seed,
            started: self.started,
            duration_ms: clock.now() / 1_000_000,
            outcome,
            expect: expect.map(ToString::to_string),
            as_expected,
            sentence: String::new(),
            properties,
            coverage,
            harness: self.stages.clone(),
            faults: std::mem::take(&mut self.faults),
            nodes: std::mem::take(&mut self.nodes),
            environment: environment::describe(),
            argv: std::env::args().collect(),
            replay: format!("schism run {}", plan.display()),
            digests: self.digests(),
            notes: std::mem::take(&mut self.notes),
        };
        result.sentence = report::sentence(
            result.outcome,
            &result.properties,
            &result.coverage,
            &result.harness,
            &result.faults,
        );
        self.write_reports(&mut result, history.as_deref());
        result
    }

    /// Writes the plan as it was drawn, and says where.
    fn write_plan(&mut self) -> PathBuf {
        let mut cell = self.cell.clone();
        if let Ok(faults) = cell.plan(self.stream("plan")) {
            cell.faults = faults;
            cell.random_faults.clear();
        }
        let plan = self.dir.join("plan.toml");
        if let Err(error) = results::write_whole(&plan, cell.to_toml(self.seed).as_bytes()) {
            self.notes.push(error);
        }
        plan
    }

    async fn check(&mut self, history: &Arc<History>) -> (Vec<Property>, Checked) {
        let selected = match check::select(&history.header.checkers) {
            Ok(selected) => selected,
            Err(why) => {
                self.failed("check", why.clone());
                return (Vec::new(), Checked::unknown(Reason::Bug(why)));
            }
        };
        let mut properties =
            check::run(history, &selected, Limits::default(), &self.cell.claims).await;
        let coverage = match properties
            .iter()
            .position(|property| property.name == "coverage")
        {
            Some(index) => properties.remove(index).checked,
            None => {
                let all = check::select(&["coverage".to_owned()]).unwrap_or_default();
                let checked = check::run(history, &all, Limits::default(), &[]).await;
                checked.into_iter().next().map_or_else(
                    || Checked::unknown(Reason::Bug("there is no coverage checker".to_owned())),
                    |property| property.checked,
                )
            }
        };
        self.done("check");
        (properties, coverage)
    }

    fn digests(&self) -> std::collections::BTreeMap<String, String> {
        ["history.jsonl", "faults.jsonl", "plan.toml"]
            .iter()
            .filter_map(|name| {
                let digest = results::digest(&self.dir.join(name)).ok()?;
                Some(((*name).to_owned(), digest))
            })
            .collect()
    }

    /// Trouble with a report never changes a verdict; it is noted.
    fn write_reports(&self, result: &mut RunResult, history: Option<&History>) {
        let empty = || HistoryBuilder::new(Header::new(&result.workload, &[])).finish();
        let drawn = catch_unwind(AssertUnwindSafe(|| match history {
            Some(history) => report::html::render(result, history),
            None => report::html::render(result, &empty()),
        }));
        let written = match drawn {
            Ok(html) => results::write_whole(&self.dir.join("report.html"), html.as_bytes()),
            Err(_) => Err("report.html could not be drawn".to_owned()),
        };
        let markdown = report::markdown::render(result);
        let also = results::write_whole(&self.dir.join("report.md"), markdown.as_bytes());
        result
            .notes
            .extend([written, also].into_iter().filter_map(Result::err));
    }
}
