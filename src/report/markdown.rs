//! The report of one run as Markdown, short enough for a pull request.

use std::fmt::Write as _;

use checkers::{Checked, Verdict};

use super::{judgement, sentence, words};
use crate::result::{FaultOutcome, Property, RunResult};

/// A pull request does not want more rows than this.
const ROWS_MAX: usize = 30;

/// Renders a run.
pub fn render(run: &RunResult) -> String {
    let (sign, word, _) = judgement(run);
    let mut out = String::new();
    line(
        &mut out,
        format_args!(
            "## {sign} {word}: {} / {}\n",
            text(&run.suite),
            text(&run.cell)
        ),
    );
    line(
        &mut out,
        format_args!("{}\n", text(&words::clip(&run.sentence))),
    );
    facts(&mut out, run);
    properties(&mut out, &run.properties);
    for property in run
        .properties
        .iter()
        .filter(|p| p.checked.verdict == Verdict::Invalid)
    {
        counterexample(&mut out, property);
    }
    ledger(&mut out, &run.faults);
    coverage(&mut out, &run.coverage);
    for stage in &run.harness {
        if let Some(error) = &stage.error {
            let error = words::clip(error);
            line(
                &mut out,
                format_args!("### Stage {} failed\n\n{}\n", stage.name, fenced(&error)),
            );
        }
    }
    for note in run.notes.iter().take(ROWS_MAX) {
        line(&mut out, format_args!("> {}\n", text(&words::clip(note))));
    }
    out
}

fn facts(out: &mut String, run: &RunResult) {
    let rows = [
        ("evidence", sentence::evidence(&run.coverage, &run.faults)),
        (
            "system",
            format!("{} {}", run.system.name, run.system.version),
        ),
        ("workload", run.workload.clone()),
        (
            "backend",
            format!(
                "{}, {}",
                run.backend,
                words::plural(run.nodes.len() as u64, "node")
            ),
        ),
        (
            "started",
            run.started.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
        ),
        ("took", words::span_ms(run.duration_ms)),
        ("run", run.id.clone()),
    ];
    line(out, format_args!("| | |\n|---|---|"));
    for (name, value) in rows {
        line(out, format_args!("| {name} | {} |", cell(&value)));
    }
    if let Some(expect) = &run.expect {
        let came = match run.as_expected {
            Some(true) => "came so",
            Some(false) => "did not come so",
            None => "not decided",
        };
        line(out, format_args!("| expected | {}: {came} |", cell(expect)));
    }
    line(
        out,
        format_args!("\nRun it again:\n\n{}\n", fenced(&run.replay)),
    );
}

fn properties(out: &mut String, properties: &[Property]) {
    line(out, format_args!("### Properties\n"));
    if properties.is_empty() {
        line(out, format_args!("No property was checked.\n"));
        return;
    }
    line(
        out,
        format_args!("| property | claimed | verdict | counted |\n|---|---|---|---|"),
    );
    for property in properties {
        let claimed = if property.claimed { "yes" } else { "no" };
        line(
            out,
            format_args!(
                "| {} | {claimed} | {} {} | {} |",
                cell(&property.name),
                words::sign(&property.checked.verdict),
                cell(&verdict(&property.checked)),
                cell(&words::counts(&property.checked.counts)),
            ),
        );
    }
    line(out, format_args!(""));
}

fn verdict(checked: &Checked) -> String {
    match &checked.verdict {
        Verdict::Valid => "no violation found".to_owned(),
        Verdict::Invalid => "**violated**".to_owned(),
        Verdict::Unknown(reason) => format!("unknown: {}", words::clip(&reason.to_string())),
    }
}

fn counterexample(out: &mut String, property: &Property) {
    let Some(told) = &property.checked.counterexample else {
        return;
    };
    line(out, format_args!("### What happened: {}\n", property.name));
    line(out, format_args!("{}\n", text(&words::clip(&told.summary))));
    for row in told.rows.iter().take(10) {
        line(
            out,
            format_args!("- event {}: {}", row.event, text(&words::clip(&row.note))),
        );
    }
    line(out, format_args!(""));
}

fn ledger(out: &mut String, faults: &[FaultOutcome]) {
    line(
        out,
        format_args!("### Faults: {}\n", sentence::faults_landed(faults)),
    );
    if faults.is_empty() {
        return;
    }
    line(
        out,
        format_args!("| # | fault | struck | begin | end | landed | healed |"),
    );
    line(out, format_args!("|--:|---|---|--:|--:|---|---|"));
    let time = |ms: Option<u64>| {
        ms.map_or_else(
            || "–".to_owned(),
            |ms| format!("{} s", words::clock(ms * 1_000_000)),
        )
    };
    let yes = |yes: bool| if yes { "yes" } else { "**no**" };
    for fault in faults.iter().take(ROWS_MAX) {
        line(
            out,
            format_args!(
                "| {} | {} | {} | {} | {} | {} | {} |",
                fault.id,
                cell(&format!("{} {}", fault.fault, fault.target)),
                cell(&fault.resolved),
                time(fault.begin_ms),
                time(fault.end_ms),
                yes(fault.landed),
                if fault.begin_ms.is_none() {
                    "–"
                } else {
                    yes(fault.healed)
                },
            ),
        );
    }
    if faults.len() > ROWS_MAX {
        line(
            out,
            format_args!("\n{} more in `faults.jsonl`.", faults.len() - ROWS_MAX),
        );
    }
    line(out, format_args!(""));
}

fn coverage(out: &mut String, coverage: &Checked) {
    let said = match &coverage.verdict {
        Verdict::Valid => "enough happened".to_owned(),
        Verdict::Invalid => "**too little happened**".to_owned(),
        Verdict::Unknown(reason) => {
            format!("**not met**: {}", text(&words::clip(&reason.to_string())))
        }
    };
    line(out, format_args!("### Coverage: {said}\n"));
    if !coverage.counts.is_empty() {
        let whole = coverage
            .counts
            .iter()
            .filter(|(name, _)| !name.contains(':'))
            .cloned();
        let whole: Vec<(String, u64)> = whole.collect();
        line(out, format_args!("{}\n", text(&words::counts(&whole))));
    }
}

fn line(out: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(out, "{content}").expect("a string takes all that is written to it");
}

/// Text in which nothing is markup: what Markdown or HTML would take for it is escaped.
pub fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\n' | '\r' => out.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Text in a cell of a table; bold that a caller wrote stays.
fn cell(raw: &str) -> String {
    match raw
        .strip_prefix("**")
        .and_then(|inner| inner.strip_suffix("**"))
    {
        Some(inner) => format!("**{}**", text(inner)),
        None => text(raw),
    }
}

/// A block of code that its content cannot end.
fn fenced(raw: &str) -> String {
    let longest = raw.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{raw}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn a_violation_is_told_with_its_rows_and_its_command() {
        let (run, _) = fixtures::frozen_holder();
        let page = render(&run);
        for part in [
            "## ✗ VIOLATION: first / frozen-holder/naive",
            "| stale-writes | yes | ✗ **violated** |",
            "- event ",
            "schism replay",
            "### Faults: 1 of 1 fault landed",
        ] {
            assert!(page.contains(part), "{part} is not in:\n{page}");
        }
        assert!(!page.contains("verified by"), "{page}");
    }

    #[test]
    fn texts_of_the_run_are_not_markup() {
        let (mut run, _) = fixtures::harness_failed();
        run.sentence = "<script>alert(1)</script> | **x**".to_owned();
        run.harness[0].error = Some("```\n# not a heading".to_owned());
        let page = render(&run);
        assert!(
            page.contains("&lt;script&gt;alert(1)&lt;/script&gt; \\| \\*\\*x\\*\\*"),
            "{page}"
        );
        assert!(
            page.contains("````text\n```\n# not a heading\n````"),
            "{page}"
        );
    }
}
