//! `schism run`.

use std::io::IsTerminal;
use std::path::Path;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::abilities;
use crate::batch::{self, Finished, Options};
use crate::cli::RunArgs;
use crate::progress::Reporter;
use crate::report::{self, terminal};
use crate::result::Exit;
use crate::suite::{self, Suite};

/// Runs a suite, as often as asked, and prints what came out.
pub async fn run(args: RunArgs) -> Exit {
    let mut suite = match suite::load(&args.spec) {
        Ok(suite) => suite,
        Err(error) => {
            eprintln!("{}", error.render(std::io::stderr().is_terminal()));
            return if error.selects_nothing {
                Exit::Nothing
            } else {
                Exit::Usage
            };
        }
    };
    if let Err(exit) = select(&mut suite, &args.cell) {
        return exit;
    }
    if let Err(refusals) = refuse(&suite).await {
        for refusal in refusals {
            eprintln!("error: {refusal}");
        }
        eprintln!("hint: `schism doctor` shows what this machine can do");
        return Exit::Usage;
    }
    let options = Options {
        results: args.results,
        jobs: args.jobs,
        seed: args.seed,
        keep_data: args.keep_data,
    };
    let interrupt = listen();
    let mut exit = Exit::Held;
    for round in 1..=args.repeat.max(1) {
        let mut reporter = Reporter::new();
        if args.repeat > 1 {
            reporter.note(&format!("round {round} of {}", args.repeat));
        }
        match batch::run(&suite, &options, interrupt.clone(), &mut reporter).await {
            Ok(finished) => {
                print(&suite, &finished);
                exit = finished.exit;
            }
            Err(why) => {
                eprintln!("error: {why}");
                return Exit::Harness;
            }
        }
        if exit != Exit::Held {
            break;
        }
    }
    exit
}

/// Keeps the cells whose id contains one of the texts.
fn select(suite: &mut Suite, wanted: &[String]) -> Result<(), Exit> {
    if wanted.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = suite.cells.iter().map(|cell| cell.id.clone()).collect();
    suite
        .cells
        .retain(|cell| wanted.iter().any(|text| cell.id.contains(text.as_str())));
    if suite.cells.is_empty() {
        eprintln!("error: no cell's id contains {}", wanted.join(" or "));
        eprintln!("hint: the cells of {} are {}", suite.name, ids.join(", "));
        return Err(Exit::Nothing);
    }
    Ok(())
}

/// What this machine cannot do of what the suite asks: refused before anything starts.
async fn refuse(suite: &Suite) -> Result<(), Vec<String>> {
    let mut refusals = abilities::refuse(suite).await;
    for cell in &suite.cells {
        if let Err(error) = cell.system.version() {
            refusals.push(format!("{}: {error}", cell.id));
        }
    }
    if refusals.is_empty() {
        Ok(())
    } else {
        Err(refusals)
    }
}

/// Listens for SIGINT and SIGTERM. The first asks the runs to end; the second ends this process
/// at once, and with it everything that it made.
fn listen() -> watch::Receiver<Option<Exit>> {
    let (sink, interrupt) = watch::channel(None);
    tokio::spawn(async move {
        let (Ok(mut int), Ok(mut term)) = (
            signal(SignalKind::interrupt()),
            signal(SignalKind::terminate()),
        ) else {
            return;
        };
        for count in 1.. {
            let exit = tokio::select! {
                _ = int.recv() => Exit::Interrupted,
                _ = term.recv() => Exit::Terminated,
            };
            if count > 1 {
                std::process::exit(exit as i32);
            }
            let _ = sink.send(Some(exit));
        }
    });
    interrupt
}

/// A path as a user types it: relative to where they are, if it lies below.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here)
        .unwrap_or(path)
        .display()
        .to_string()
}

fn print(suite: &Suite, finished: &Finished) {
    let dirs: Vec<String> = finished.results.iter().map(|(dir, _)| shown(dir)).collect();
    let cells: Vec<report::Cell<'_>> = finished
        .results
        .iter()
        .zip(&dirs)
        .map(|((_, run), dir)| report::Cell { run, dir })
        .collect();
    anstream::print!("{}", terminal::suite(&cells, terminal::width()));
    println!(
        "suite {}: report in {}",
        suite.name,
        shown(&finished.dir.join("index.html"))
    );
    for note in &finished.notes {
        eprintln!("warning: {note}");
    }
}
