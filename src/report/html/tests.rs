//! The page is complete, bounded, escaped, and drawn by a real browser where one is installed.

use std::path::{Path, PathBuf};

use checkers::Reason;

use super::render;
use crate::report::fixtures;
use crate::result::{Outcome, RunResult};

const SIZE_MAX: usize = 2_000_000;

#[test]
fn a_violation_answers_every_question_in_order() {
    let (run, history) = fixtures::frozen_holder();
    let page = render(&run, &history);
    let mut last = 0;
    for part in [
        "✗ VIOLATION",
        "two owners changed the same record",
        "Run it again",
        "schism replay results/first/",
        "What happened: stale-writes",
        "should have been refused",
        "id=\"properties\"",
        "id=\"timeline\"",
        "LEADER term 4",
        "id=\"elections\"",
        "id=\"faults\"",
        "state T of 4 processes",
        "id=\"operations\"",
        "id=\"coverage\"",
        "id=\"harness\"",
        "id=\"environment\"",
        "suites/first.toml",
    ] {
        let at = page[last..]
            .find(part)
            .unwrap_or_else(|| panic!("{part} is missing or too early"));
        last += at;
    }
    assert_eq!(
        page.matches("<tr class=\"bad\">").count(),
        1,
        "one row breaks the promise"
    );
    for element in ["line", "rect", "path", "text"] {
        let opened = page.matches(&format!("<{element} ")).count();
        assert_eq!(
            opened,
            page.matches(&format!("</{element}>")).count(),
            "{element}"
        );
    }
    assert!(page.contains("thinks it leads, term 4"));
    assert!(page.contains("thinks it holds, token 33"));
    assert!(page.contains("c1 wrote r = 57 with token 33, and it was accepted"));
    assert!(page.contains("prefers-color-scheme: dark"));
    assert!(
        !page.contains("http://") || page.matches("http://").count() == 1,
        "no address but that of SVG"
    );
    assert!(
        !page.contains("https://") && !page.contains("src="),
        "nothing is loaded"
    );
}

#[test]
fn green_carries_counts_and_promises_nothing() {
    let (run, history) = fixtures::register_held();
    let page = render(&run, &history);
    assert!(page.contains("<header class=\"good\">"));
    assert!(page.contains("No violation found in 5,800 ok operations, 3 of 3 faults landed"));
    for word in ["verified</", "proved", "proven", "✓ verified"] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("3 elections seen, 2 changes of leader, terms 7 to 9"));
    assert!(page.contains("two believed"));
}

#[test]
fn what_is_not_known_is_never_green() {
    let (run, history) = fixtures::inconclusive();
    let page = render(&run, &history);
    assert!(page.contains("<header class=\"warn\">"));
    assert!(page.contains("time limit reached after 4,103"));
    assert!(page.contains("#2 cut n2 27.00–38.00 s, did not land"));

    let (run, history) = fixtures::harness_failed();
    let page = render(&run, &history);
    assert!(page.contains("<header class=\"dull\">"));
    for part in [
        "data directory is locked",
        "the history is empty",
        "No property was checked",
        "no leader was observed",
        "No operation was invoked",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("class=\"v good\""), "nothing is green");
}

#[test]
fn an_expected_conviction_is_not_alarming_and_a_missed_one_is() {
    let (mut run, history) = fixtures::frozen_holder();
    run.expect = Some("invalid:stale-writes".to_owned());
    run.as_expected = Some(true);
    let page = render(&run, &history);
    assert!(page.contains("<header class=\"expected\">") && page.contains("came so"));
    run.outcome = Outcome::Held;
    run.as_expected = Some(false);
    let page = render(&run, &history);
    assert!(page.contains("<header class=\"bad\">") && page.contains("NOT AS EXPECTED: held"));
}

#[test]
fn every_text_of_the_run_is_escaped() {
    const EVIL: &str = "</script></style></title><script>alert('x')</script>\"'><img src=x>";
    let evil = || EVIL.to_owned();
    let (mut run, mut history) = fixtures::frozen_holder();
    run.suite = evil();
    run.cell = evil();
    run.workload = evil();
    run.sentence = evil();
    run.replay = evil();
    run.id = evil();
    run.expect = Some(evil());
    run.argv = vec![evil()];
    run.notes = vec![evil()];
    run.system.name = evil();
    run.environment.insert(evil(), evil());
    run.digests.insert(evil(), evil());
    run.nodes[0].name = evil();
    run.nodes[0].addr = evil();
    run.harness[0].error = Some(evil());
    run.harness[1].name = evil();
    let fault = &mut run.faults[0];
    for text in [&mut fault.evidence, &mut fault.fault, &mut fault.resolved] {
        *text = evil();
    }
    run.properties[1].name = evil();
    run.properties[2].checked = checkers::Checked::unknown(Reason::Bug(evil())).note(EVIL);
    if let Some(told) = &mut run.properties[0].checked.counterexample {
        told.summary = evil();
        told.rows[0].note = evil();
    }
    history.header.nodes.push(evil());
    let page = render(&run, &history);
    assert!(page.contains("&lt;script&gt;alert"));
    assert_eq!(page.matches("<script>").count(), 1, "only our own");
    assert!(!page.contains("<img"));
    let index = crate::report::index::render(
        EVIL,
        &[crate::report::Cell {
            run: &run,
            dir: EVIL,
        }],
    );
    assert_eq!(index.matches("<script>").count(), 1);
}

#[test]
fn a_million_events_fit_into_a_small_page() {
    let (run, history) = fixtures::huge(500_000);
    assert!(history.len() > 1_000_000);
    let page = render(&run, &history);
    assert!(page.len() < SIZE_MAX, "{} bytes", page.len());
    assert!(page.contains("400 faults landed"), "all faults are counted");
    assert!(page.contains("300 more rows are in faults.jsonl"));
}

#[test]
fn events_out_of_range_and_empty_runs_do_no_harm() {
    let (mut run, _) = fixtures::frozen_holder();
    let empty = history::HistoryBuilder::new(history::Header::new("", &[])).finish();
    run.nodes.clear();
    run.faults[0].end_ms = None;
    let page = render(&run, &empty);
    assert!(page.contains("the history is empty"));
}

/// Where a browser is, if there is one.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| {
            ["chromium", "chromium-browser", "google-chrome"].map(|name| folder.join(name))
        })
        .find(|program| program.is_file())
}

/// Runs the browser without a window on a page and returns both of its outputs.
fn browse(browser: &Path, folder: &Path, args: &[&str]) -> (String, String) {
    #[expect(
        clippy::disallowed_methods,
        reason = "a browser that looks at a page is on no node"
    )]
    let mut command = std::process::Command::new(browser);
    let output = command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .args(["--enable-logging=stderr", "--virtual-time-budget=2000"])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .args(args)
        .output()
        .expect("the browser starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn draws(browser: &Path, page: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("page.html");
    std::fs::write(&file, page).expect("the page is written");
    let picture = folder.path().join("page.png");
    let screenshot = format!("--screenshot={}", picture.display());
    let url = format!("file://{}", file.display());
    browse(
        browser,
        folder.path(),
        &["--window-size=1280,1600", &screenshot, &url],
    );
    let size = std::fs::metadata(&picture).map_or(0, |file| file.len());
    assert!(size > 20_000, "a picture of {size} bytes");
}

fn looks_right(browser: &Path, name: &str, run: &RunResult, page: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join(format!("{name}.html"));
    std::fs::write(&file, page).expect("the page is written");
    let url = format!("file://{}", file.display());
    let (dom, log) = browse(browser, folder.path(), &["--dump-dom", &url]);
    assert!(
        dom.contains(&run.sentence),
        "{name}: no banner in {} bytes:\n{log}",
        dom.len()
    );
    let complaints: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(complaints.is_empty(), "{name}: {complaints:?}");
    if let Some(keep) = std::env::var_os("SCHISM_KEEP_REPORTS") {
        std::fs::copy(&file, Path::new(&keep).join(format!("{name}.html")))
            .expect("a folder to keep in");
    }
}

#[test]
fn a_real_browser_draws_the_pages() {
    let Some(browser) = chromium() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let (run, history) = fixtures::frozen_holder();
    draws(&browser, &render(&run, &history));
    for (name, (run, history)) in ["violation", "held", "inconclusive", "failed"]
        .into_iter()
        .zip(fixtures::all())
    {
        looks_right(&browser, name, &run, &render(&run, &history));
    }
}
