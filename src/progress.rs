//! Shows how a suite goes: bars on a terminal, one line a step elsewhere, always on stderr.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::report::plural;
use crate::result::{Outcome, RunResult, judged};
use crate::results::Batch;
use crate::run::Progress;
use crate::suite::{Cell, Suite};

/// What happened to a cell.
#[derive(Debug)]
pub enum Update {
    /// It goes on.
    Progress(Progress),
    /// It ended.
    Finished(Box<RunResult>),
    /// It could not be begun.
    Trouble(String),
}

/// Whoever shows progress.
pub struct Reporter {
    bars: Option<MultiProgress>,
    running: HashMap<String, ProgressBar>,
}

impl Reporter {
    /// Bars if stderr is a terminal, lines if not.
    pub fn new() -> Reporter {
        let bars = std::io::stderr().is_terminal().then(MultiProgress::new);
        Reporter {
            bars,
            running: HashMap::new(),
        }
    }

    /// A suite begins.
    pub fn begin(&self, suite: &Suite, batch: &Batch, jobs: usize) {
        self.line(&format!(
            "suite {}{}{}: {}, {} at once, results in {}",
            suite.name,
            if suite.about.is_empty() { "" } else { ", " },
            suite.about,
            plural(suite.cells.len() as u64, "cell"),
            jobs,
            batch.dir.display()
        ));
        for warning in &suite.warnings {
            self.line(&format!("warning: {warning}"));
        }
    }

    /// Something happened to a cell.
    pub fn update(&mut self, cell: &Cell, update: &Update) {
        match update {
            Update::Progress(Progress::Stage(stage)) => self.stage(cell, stage),
            Update::Progress(Progress::Driving { elapsed }) => {
                if let Some(bar) = self.running.get(&cell.id) {
                    bar.set_position((*elapsed).min(cell.time_limit) / 1_000_000);
                }
            }
            Update::Finished(result) => {
                if let Some(bar) = self.running.remove(&cell.id) {
                    bar.finish_and_clear();
                }
                self.line(&verdict_line(result));
                for line in rest_of_errors(result) {
                    self.line(&format!("    {line}"));
                }
            }
            Update::Trouble(error) => self.line(&format!("{}: {error}", cell.id)),
        }
    }

    /// A remark.
    pub fn note(&self, text: &str) {
        self.line(text);
    }

    /// The suite is over.
    pub fn end(&mut self) {
        for (_, bar) in self.running.drain() {
            bar.finish_and_clear();
        }
    }

    fn stage(&mut self, cell: &Cell, stage: &'static str) {
        let Some(bars) = &self.bars else {
            // One line a step: only those that take time.
            if matches!(stage, "cluster" | "drive") {
                let what = if stage == "cluster" {
                    "starting"
                } else {
                    "driving"
                };
                self.line(&format!("{}: {what}", cell.id));
            }
            return;
        };
        let bar = self.running.entry(cell.id.clone()).or_insert_with(|| {
            let bar = bars.add(ProgressBar::new(cell.time_limit / 1_000_000));
            let style = ProgressStyle::with_template("{prefix:40!} {bar:20} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(cell.id.clone());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        bar.set_message(stage);
    }

    fn line(&self, text: &str) {
        match &self.bars {
            // A terminal that is gone is no reason to stop.
            Some(bars) => drop(bars.println(text)),
            None => drop(writeln!(std::io::stderr(), "{text}")),
        }
    }
}

/// What the sentence leaves out of why stages failed: it has room for their first lines only.
fn rest_of_errors(result: &RunResult) -> impl Iterator<Item = &str> {
    let errors = result
        .harness
        .iter()
        .filter_map(|stage| stage.error.as_deref());
    errors.flat_map(|error| error.trim().lines().skip(1))
}

fn verdict_line(result: &RunResult) -> String {
    let judged = judged(result.outcome, result.as_expected);
    let word = match (result.as_expected, judged) {
        (Some(true), Outcome::Held) if result.outcome == Outcome::Violation => {
            "convicted as expected"
        }
        (Some(false), Outcome::Violation) => "NOT AS EXPECTED",
        (_, outcome) => outcome.word(),
    };
    format!(
        "{}: {word} in {:.1} s: {}",
        result.cell,
        result.duration_ms as f64 / 1e3,
        result.sentence
    )
}
