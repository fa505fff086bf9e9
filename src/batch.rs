//! Runs the cells of a suite, several at once, and folds what came out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, watch};

use crate::progress::{Reporter, Update};
use crate::result::{Exit, Outcome, RunResult, judged};
use crate::results::{self, Batch};
use crate::run::{self, RunSpec};
use crate::suite::{Cell, Suite};
use crate::{report, seed};

/// How a suite is to be run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where results go.
    pub results: PathBuf,
    /// How many cells may run at once, if not as the suite says.
    pub jobs: Option<usize>,
    /// The seed of every cell that has none of its own.
    pub seed: Option<u64>,
    /// Whether the systems' data is kept with the logs.
    pub keep_data: bool,
}

/// What became of a suite.
pub struct Finished {
    /// Its results, in the order of the cells; cells that were not begun are missing.
    pub results: Vec<(PathBuf, RunResult)>,
    /// The folder.
    pub dir: PathBuf,
    /// What CI should see.
    pub exit: Exit,
    /// Trouble beside the runs: reports that could not be written.
    pub notes: Vec<String>,
}

/// Runs the cells of a suite. `interrupt` carries the exit code of the signal that came.
///
/// # Errors
/// If the results cannot be written: the folder and what the system said.
pub async fn run(
    suite: &Suite,
    options: &Options,
    mut interrupt: watch::Receiver<Option<Exit>>,
    reporter: &mut Reporter,
) -> Result<Finished, String> {
    let batch = Batch::create(&options.results, &suite.name)?;
    let jobs = options.jobs.unwrap_or(suite.jobs).max(1);
    let places = Arc::new(Semaphore::new(jobs));
    let (cancel_sink, cancel) = watch::channel(false);
    let (sink, mut updates) = mpsc::unbounded_channel::<(usize, Update)>();
    let mut tasks = tokio::task::JoinSet::new();
    for (index, cell) in suite.cells.iter().enumerate() {
        let job = Job {
            index,
            cell: cell.clone(),
            dir: batch.cell_dir(&cell.id),
            seed: cell.seed.or(options.seed).unwrap_or_else(seed::fresh),
            keep_data: options.keep_data,
            cancel: cancel.clone(),
            sink: sink.clone(),
        };
        let places = places.clone();
        tasks.spawn(async move {
            let _place = places.acquire_owned().await;
            job.run().await
        });
    }
    drop(sink);
    reporter.begin(suite, &batch, jobs);
    let mut finished: HashMap<usize, (PathBuf, RunResult)> = HashMap::new();
    loop {
        tokio::select! {
            update = updates.recv() => match update {
                Some((index, update)) => reporter.update(&suite.cells[index], &update),
                None => break,
            },
            changed = interrupt.changed() => if changed.is_ok() {
                reporter.note("interrupted: healing and writing what there is; again to kill");
                let _ = cancel_sink.send(true);
            } else {
                // The sender is gone; no signal can come any more.
                std::future::pending::<()>().await;
            },
        }
    }
    while let Some(joined) = tasks.join_next().await {
        match joined {
            Ok(Some((index, dir, result))) => {
                finished.insert(index, (dir, result));
            }
            Ok(None) => {}
            Err(error) => reporter.note(&format!("a run ended in a panic: {error}")),
        }
    }
    let results: Vec<(PathBuf, RunResult)> = (0..suite.cells.len())
        .filter_map(|index| finished.remove(&index))
        .collect();
    let missing = suite.cells.len() - results.len();
    let interrupted = *interrupt.borrow();
    let notes = write_summary(&batch.dir, suite, &results);
    let exit = fold(&results, missing, interrupted);
    reporter.end();
    Ok(Finished {
        results,
        dir: batch.dir,
        exit,
        notes,
    })
}

/// The exit code: a violation outranks an interruption, which outranks everything else. A cell
/// that is missing without one is a failure of the harness.
fn fold(results: &[(PathBuf, RunResult)], missing: usize, interrupted: Option<Exit>) -> Exit {
    let outcomes = results
        .iter()
        .map(|(_, result)| judged(result.outcome, result.as_expected));
    let lost = (missing > 0).then_some(Outcome::HarnessFailed);
    let exit = Exit::of(outcomes.chain(lost));
    match interrupted {
        Some(signal) if exit != Exit::Violation => signal,
        _ => exit,
    }
}

struct Job {
    index: usize,
    cell: Cell,
    dir: PathBuf,
    seed: u64,
    keep_data: bool,
    cancel: watch::Receiver<bool>,
    sink: mpsc::UnboundedSender<(usize, Update)>,
}

impl Job {
    /// Runs the cell; `None` if it was cancelled before it began or has no folder.
    async fn run(self) -> Option<(usize, PathBuf, RunResult)> {
        let Job {
            index,
            cell,
            dir,
            seed,
            keep_data,
            cancel,
            sink,
        } = self;
        if *cancel.borrow() {
            return None;
        }
        if let Err(error) = run::make_dir(&dir) {
            let _ = sink.send((index, Update::Trouble(error)));
            return None;
        }
        let (progress, mut stages) = mpsc::unbounded_channel();
        let forward = sink.clone();
        tokio::spawn(async move {
            while let Some(stage) = stages.recv().await {
                let _ = forward.send((index, Update::Progress(stage)));
            }
        });
        let spec = RunSpec {
            cell: &cell,
            dir: dir.clone(),
            seed,
            keep_data,
            cancel,
            progress,
        };
        let result = run::run(spec).await;
        let _ = sink.send((index, Update::Finished(Box::new(result.clone()))));
        Some((index, dir, result))
    }
}

/// Writes what is said of the suite as a whole; trouble with it is returned, and changes nothing.
fn write_summary(dir: &Path, suite: &Suite, results: &[(PathBuf, RunResult)]) -> Vec<String> {
    let all: Vec<&RunResult> = results.iter().map(|(_, result)| result).collect();
    let cells: Vec<report::Cell<'_>> = results
        .iter()
        .map(|(_, run)| report::Cell {
            run,
            dir: &run.cell,
        })
        .collect();
    let json = serde_json::to_vec_pretty(&all).map_err(|error| error.to_string());
    let pages = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        (
            report::index::render(&suite.name, &cells),
            report::index::markdown(&suite.name, &cells),
        )
    }));
    let mut notes = Vec::new();
    let mut write = |name: &str, content: &[u8]| {
        notes.extend(results::write_whole(&dir.join(name), content).err());
    };
    if let Ok(json) = json {
        write("summary.json", &json);
    }
    match pages {
        Ok((html, markdown)) => {
            write("index.html", html.as_bytes());
            write("summary.md", markdown.as_bytes());
        }
        Err(_) => notes.push("the summary pages could not be drawn".to_owned()),
    }
    notes
}
