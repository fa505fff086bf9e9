//! Tables for a terminal: a suite, the properties of a history, and a counterexample as a story.
//!
//! What is returned may hold colours as ANSI escapes; print it through `anstream`, which takes them
//! out where they are not wanted. Signs and words say everything without them.

use anstyle::{AnsiColor, Style};
use checkers::{Checked, Counterexample, Verdict};
use history::History;
use tabled::builder::Builder;
use tabled::settings::Style as Border;

use super::story::Story;
use super::{Cell, judgement, words};
use crate::result::{Outcome, RunResult};

/// Tables are no wider than this where nobody says how wide the terminal is.
pub const WIDTH_DEFAULT: usize = 100;
/// If the last column would be narrower, a table cannot be read, and a list is printed instead.
const ROOM_MIN: usize = 34;
/// What came out is broken into lines of this length.
const OUTCOME_CHARS_MAX: usize = 18;
/// The id of a cell is broken into lines of this length.
const CELL_CHARS_MAX: usize = 26;
/// Counts beyond this length are left to the reports.
const COUNTS_CHARS_MAX: usize = 60;

/// The width of the terminal, if standard output is one.
pub fn width() -> usize {
    terminal_size::terminal_size().map_or(WIDTH_DEFAULT, |(terminal_size::Width(width), _)| {
        usize::from(width)
    })
}

/// The table of a suite: one row a cell, what came out and what it rests on.
pub fn suite(cells: &[Cell<'_>], width: usize) -> String {
    let place = common_place(cells);
    let rows = cells.iter().map(|cell| {
        let run = cell.run;
        let (sign, word, class) = judgement(run);
        [
            format!(
                "{}\n{} on {}",
                wrapped_path(&run.cell),
                run.workload,
                run.system.name
            ),
            painted(
                &wrapped(&format!("{sign} {word}"), OUTCOME_CHARS_MAX),
                class,
            ),
            words::span_ms(run.duration_ms),
            details(cell, place.is_none()),
        ]
    });
    let mut out = table(
        ["cell", "came out", "took", "what it rests on"],
        rows,
        width,
    )
    .unwrap_or_else(|| {
        cells
            .iter()
            .map(|cell| suite_item(cell, width, place.is_none()))
            .collect()
    });
    if let Some(place) = place {
        out.push_str(&format!("each run lies in {place}<cell>\n"));
    }
    out
}

/// Where all runs lie, each in a folder with the name of its cell; `None` if they do not.
fn common_place<'a>(cells: &[Cell<'a>]) -> Option<&'a str> {
    let place = |cell: &Cell<'a>| {
        let place = cell.dir.strip_suffix(cell.run.cell.as_str())?;
        (place.is_empty() || place.ends_with('/')).then_some(place)
    };
    let first = place(cells.first()?)?;
    cells
        .iter()
        .all(|cell| place(cell) == Some(first))
        .then_some(first)
}

/// The id of a cell, broken after its last `/` if it is long.
fn wrapped_path(cell: &str) -> String {
    match cell.rsplit_once('/') {
        Some((group, name)) if cell.chars().count() > CELL_CHARS_MAX => {
            format!(
                "{}/\n  {}",
                wrapped(group, CELL_CHARS_MAX),
                wrapped(name, CELL_CHARS_MAX)
            )
        }
        _ => wrapped(cell, CELL_CHARS_MAX),
    }
}

/// What a verdict rests on; for one that is no pass, the sentence first.
fn details(cell: &Cell<'_>, with_dir: bool) -> String {
    let run = cell.run;
    let mut lines = Vec::new();
    if run.outcome != Outcome::Held {
        lines.push(words::clip(&run.sentence));
    }
    lines.push(key_counts(cell));
    if with_dir {
        lines.push(cell.dir.to_owned());
    }
    lines.join("\n")
}

/// A table whose last column takes the room that the others leave; `None` if that is too little.
fn table<const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    width: usize,
) -> Option<String> {
    let mut rows: Vec<[String; N]> = rows.collect();
    let widest = |column: usize| {
        let cells = rows
            .iter()
            .map(|row| row[column].as_str())
            .chain([header[column]]);
        cells.map(columns_of).max().unwrap_or(0)
    };
    let taken: usize = (0..N - 1).map(|column| widest(column) + 3).sum();
    let room = width.saturating_sub(taken + 4);
    if room < ROOM_MIN {
        return None;
    }
    for row in &mut rows {
        row[N - 1] = wrapped(&row[N - 1], room);
    }
    let mut table = Builder::new();
    table.push_record(header.map(|title| wrapped(title, room)));
    for row in rows {
        table.push_record(row);
    }
    Some(format!("{}\n", table.build().with(Border::rounded())))
}

/// How many columns of a terminal the widest line takes, colours not counted.
fn columns_of(text: &str) -> usize {
    let plain = anstream::adapter::strip_str(text).to_string();
    plain
        .lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
}

/// One cell of a suite for a narrow terminal.
fn suite_item(cell: &Cell<'_>, width: usize, with_dir: bool) -> String {
    let run = cell.run;
    let on = format!(
        "{} on {}, {}",
        run.workload,
        run.system.name,
        words::span_ms(run.duration_ms)
    );
    let rest = indented(&format!("{on}\n{}", details(cell, with_dir)), width);
    format!("{}  {}\n{rest}", outcome(cell), run.cell)
}

fn outcome(cell: &Cell<'_>) -> String {
    let (sign, word, class) = judgement(cell.run);
    painted(&format!("{sign} {word}"), class)
}

/// What the verdict of a cell rests on: the counts of the property that decided, or the evidence.
fn key_counts(cell: &Cell<'_>) -> String {
    let run = cell.run;
    let evidence = brief_evidence(run);
    let decided = run
        .properties
        .iter()
        .find(|property| property.claimed && property.checked.verdict == Verdict::Invalid);
    let decided = decided.or_else(|| run.properties.iter().find(|property| property.claimed));
    match decided {
        Some(property) if !property.checked.counts.is_empty() => {
            let counts = shortened(&property.checked.counts);
            format!("{evidence}\n{}: {counts}", property.name)
        }
        _ => evidence,
    }
}

/// `48,210 ok, 3/3 faults, 5 leader changes`.
fn brief_evidence(run: &RunResult) -> String {
    let ok = super::sentence::operations_ok(&run.coverage);
    let ok = ok.map_or_else(
        || "? ok".to_owned(),
        |ok| format!("{} ok", words::thousands(ok)),
    );
    let landed = run.faults.iter().filter(|fault| fault.landed).count();
    let mut evidence = format!("{ok}, {landed}/{} faults", run.faults.len());
    if let Some(changes) = run.coverage.counted("leader_changes") {
        evidence.push_str(&format!(", {}", words::plural(changes, "leader change")));
    }
    evidence
}

/// The first counts, as many as fit.
fn shortened(counts: &[(String, u64)]) -> String {
    let mut out = String::new();
    for count in counts {
        let count = words::counts(std::slice::from_ref(count));
        if !out.is_empty() && out.len() + count.len() > COUNTS_CHARS_MAX {
            out.push_str(",…");
            break;
        }
        if !out.is_empty() {
            out.push_str(", ");
        }
        out.push_str(&count);
    }
    out
}

/// The table of what checkers said about a history: property, whether it is claimed, the result.
pub fn properties(rows: &[(&str, bool, &Checked)], width: usize) -> String {
    let records = rows.iter().map(|(name, claimed, checked)| {
        let found = found(checked).unwrap_or_default();
        let counts = words::counts(&checked.counts);
        let notes = checked.notes.iter().map(|note| words::clip(note));
        let lines: Vec<String> = [found, counts]
            .into_iter()
            .chain(notes)
            .filter(|text| !text.is_empty())
            .collect();
        [
            (*name).to_owned(),
            verdict(checked, *claimed),
            lines.join("\n"),
        ]
    });
    table(["property", "verdict", "what was found"], records, width)
        .unwrap_or_else(|| rows.iter().map(|row| property_item(row, width)).collect())
}

/// The first violation, or why it is not known whether there is one.
fn found(checked: &Checked) -> Option<String> {
    match (&checked.counterexample, &checked.verdict) {
        (Some(told), _) => Some(words::clip(&told.summary)),
        (None, Verdict::Unknown(reason)) => Some(words::clip(&reason.to_string())),
        _ => None,
    }
}

fn property_item((name, claimed, checked): &(&str, bool, &Checked), width: usize) -> String {
    let mut item = format!("{}  {name}\n", verdict(checked, *claimed));
    if !checked.counts.is_empty() {
        item.push_str(&indented(&words::counts(&checked.counts), width));
    }
    if let Some(found) = found(checked) {
        item.push_str(&indented(&found, width));
    }
    for note in &checked.notes {
        item.push_str(&indented(&words::clip(note), width));
    }
    item
}

fn verdict(checked: &Checked, claimed: bool) -> String {
    let sign = words::sign(&checked.verdict);
    match &checked.verdict {
        Verdict::Valid => painted(&format!("{sign} no violation"), "good"),
        Verdict::Invalid if claimed => painted(&format!("{sign} VIOLATED"), "bad"),
        Verdict::Invalid => painted(&format!("{sign} violated, not claimed"), "dull"),
        Verdict::Unknown(_) => painted(&format!("{sign} unknown"), "warn"),
    }
}

/// A counterexample in at most ten lines and one for its summary.
pub fn story(told: &Counterexample, history: &History) -> String {
    let story = Story::of(told, history, None);
    let mut out = format!("{}\n", story.summary);
    for (line, row) in story.lines().iter().zip(&story.rows) {
        if row.breaks {
            out.push_str(&painted(line, "bad"));
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    if story.left_out > 0 {
        out.push_str(&format!(
            "  {} in between are left out\n",
            words::plural(story.left_out as u64, "row")
        ));
    }
    out
}

fn painted(text: &str, class: &str) -> String {
    let colour = match class {
        "good" => AnsiColor::Green,
        "bad" => AnsiColor::Red,
        "warn" => AnsiColor::Yellow,
        "expected" => AnsiColor::Blue,
        _ => return text.to_owned(),
    };
    let style = Style::new().fg_color(Some(colour.into())).bold();
    let lines: Vec<String> = text
        .lines()
        .map(|line| format!("{style}{line}{style:#}"))
        .collect();
    lines.join("\n")
}

/// Text broken at words, or in a word that is too long, into lines of at most so many characters.
fn wrapped(text: &str, room: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut current = String::new();
        for word in line.split_whitespace() {
            let mut word: Vec<char> = word.chars().collect();
            let length = current.chars().count();
            if length > 0 && length + 1 + word.len() > room {
                lines.push(std::mem::take(&mut current));
            }
            while word.len() > room {
                lines.push(word.drain(..room).collect());
            }
            if !current.is_empty() {
                current.push(' ');
            }
            current.extend(word);
        }
        lines.push(current);
    }
    lines.join("\n")
}

/// The same with two blanks before each line.
fn indented(text: &str, width: usize) -> String {
    let text = wrapped(text, width.saturating_sub(2).max(20));
    text.lines().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn widest(text: &str) -> usize {
        plain(text)
            .lines()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn a_suite_fits_every_terminal_and_reads_without_colour() {
        let runs: Vec<_> = fixtures::all().into_iter().map(|(run, _)| run).collect();
        let cells: Vec<Cell<'_>> = runs
            .iter()
            .map(|run| Cell {
                run,
                dir: "results/first/20261130T0102Z-7f3a",
            })
            .collect();
        for width in [40, 72, 100, 160] {
            let table = suite(&cells, width);
            assert!(widest(&table) <= width, "{width}:\n{}", plain(&table));
            let table = plain(&table).replace('\n', " ");
            for part in ["VIOLATION", "held", "INCONCLUSIVE", "HARNESS"] {
                assert!(table.contains(part), "{width}: {part} is not in:\n{table}");
            }
        }
        assert_ne!(
            plain(&suite(&cells, 100)),
            suite(&cells, 100),
            "colours are there to strip"
        );
    }

    #[test]
    fn properties_say_verdict_counts_and_sentence() {
        let (mut run, _) = fixtures::frozen_holder();
        run.properties[0].checked.notes = vec!["judged by halves".to_owned()];
        let rows: Vec<(&str, bool, &Checked)> = run
            .properties
            .iter()
            .map(|property| (property.name.as_str(), property.claimed, &property.checked))
            .collect();
        for width in [50, 120] {
            let table = properties(&rows, width);
            assert!(widest(&table) <= width, "{width}:\n{}", plain(&table));
            for part in [
                "✗ VIOLATED",
                "stale-writes",
                "no violation",
                "judged by halves",
            ] {
                assert!(plain(&table).contains(part), "{part} is not in:\n{table}");
            }
        }
    }

    #[test]
    fn a_story_marks_the_line_that_breaks_the_promise() {
        let (run, history) = fixtures::frozen_holder();
        let told = run.properties[0]
            .checked
            .counterexample
            .as_ref()
            .expect("it is a violation");
        let story = plain(&story(told, &history));
        assert!(story.lines().count() <= 11, "{story}");
        let marked: Vec<&str> = story.lines().filter(|line| line.starts_with('✗')).collect();
        assert_eq!(marked.len(), 1, "{story}");
        assert!(marked[0].contains("token 33"), "{story}");
    }
}
