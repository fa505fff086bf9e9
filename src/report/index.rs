//! A suite on one page: every cell with what came out, and the numbers of related cells side by
//! side. As HTML for people and as Markdown for a pull request.
//!
//! Cells are related if their ids share everything before the last `/`: `frozen-holder/naive` and
//! `frozen-holder/fenced`. Whatever their checkers counted is compared, name by name.

use maud::{Markup, html};

use super::html::document;
use super::{Cell, judgement, markdown, sentence, words};
use crate::result::{Outcome, judged};

/// More columns than this cannot be read beside each other.
const COLUMNS_MAX: usize = 9;

/// The name under which the counts of the coverage are compared.
const COVERAGE: &str = "coverage";

/// The numbers of related cells side by side.
struct Comparison<'a> {
    group: &'a str,
    columns: Vec<&'a str>,
    left_out: usize,
    rows: Vec<Row<'a>>,
}

struct Row<'a> {
    property: &'a str,
    name: &'a str,
    numbers: Vec<Option<u64>>,
}

impl Row<'_> {
    fn differs(&self) -> bool {
        self.numbers.windows(2).any(|pair| pair[0] != pair[1])
    }

    /// Whether it is worth a place in the first table: something happened, and it is not coverage.
    fn matters(&self) -> bool {
        self.property != COVERAGE && self.numbers.iter().any(|number| number.unwrap_or(0) > 0)
    }

    /// What is counted, as the checker says it.
    fn about(&self) -> Option<&'static str> {
        let stem = self.name.split(':').next().unwrap_or(self.name);
        let counts = checkers::find(self.property)?.counts();
        let about = counts
            .iter()
            .find(|(name, _)| name.split(':').next() == Some(stem));
        about.map(|&(_, about)| about)
    }
}

/// Renders the page of a suite. The directories of the cells are relative to the page.
pub fn render(suite: &str, cells: &[Cell<'_>]) -> String {
    let tally = tally(cells);
    let class = worst(cells);
    let body = html! {
        header class=(class) {
            div {
                h1 { (headline(cells)) }
                span.what { (suite) }
                p { (tally) }
            }
        }
        main {
            h2 { "Cells" small { (cells.len()) } }
            div.scroll { table.wide {
                thead { tr {
                    th scope="col" { "cell" } th scope="col" { "came out" } th scope="col" { "in words" }
                    th scope="col" { "evidence" } th.n scope="col" { "took" }
                } }
                tbody { @for cell in cells { (cell_row(cell)) } }
            } }
            @for comparison in compare(cells) { (comparison_table(&comparison)) }
            footer { "schism; each cell has its own report, history and ledger in its directory." }
        }
    };
    document(&format!("{} · {suite} · schism", headline(cells)), &body).into_string()
}

/// Renders the same as Markdown.
pub fn markdown(suite: &str, cells: &[Cell<'_>]) -> String {
    let mut out = format!("## {} {}\n\n", headline(cells), markdown::text(suite));
    out.push_str(&tally(cells));
    out.push_str("\n\n| cell | came out | evidence | took |\n|---|---|---|--:|\n");
    for cell in cells {
        let (sign, word, _) = judgement(cell.run);
        out.push_str(&format!(
            "| {} | {sign} {word} | {} | {} |\n",
            markdown::text(&cell.run.cell),
            sentence::evidence(&cell.run.coverage, &cell.run.faults),
            words::span_ms(cell.run.duration_ms),
        ));
    }
    for comparison in compare(cells) {
        out.push_str(&format!(
            "\n### {}\n\n| counted |",
            markdown::text(comparison.group)
        ));
        for column in &comparison.columns {
            out.push_str(&format!(" {} |", markdown::text(column)));
        }
        out.push_str(&format!(
            "\n|---|{}\n",
            "--:|".repeat(comparison.columns.len())
        ));
        for row in comparison.rows.iter().filter(|row| row.matters()) {
            let (name, _) = words::count(row.name, 0);
            out.push_str(&format!(
                "| {}: {} |",
                markdown::text(row.property),
                markdown::text(&name)
            ));
            for number in &row.numbers {
                out.push_str(&format!(" {} |", shown(row.name, *number)));
            }
            out.push('\n');
        }
    }
    let told = cells
        .iter()
        .filter(|cell| cell.run.outcome != Outcome::Held);
    for cell in told {
        out.push_str(&format!(
            "\n- **{}**: {}",
            markdown::text(&cell.run.cell),
            markdown::text(&words::clip(&cell.run.sentence))
        ));
    }
    out.push('\n');
    out
}

fn cell_row(cell: &Cell<'_>) -> Markup {
    let run = cell.run;
    let (sign, word, class) = judgement(run);
    let report = format!("{}/report.html", cell.dir.trim_end_matches('/'));
    html! {
        tr {
            th scope="row" {
                a href=(report) { (run.cell) }
                br;
                small { (run.workload) " on " (run.system.name) " " (run.system.version) }
            }
            td { span.v.(class) { (sign) " " (word) }
                @if let Some(expect) = &run.expect { br; small { "expected " (expect) } }
            }
            td.any { (words::clip(&run.sentence)) }
            td { (sentence::evidence(&run.coverage, &run.faults)) br; small { "seed " (run.seed) } }
            td.n { (words::span_ms(run.duration_ms)) }
        }
    }
}

fn comparison_table(comparison: &Comparison<'_>) -> Markup {
    let (first, rest): (Vec<&Row<'_>>, Vec<&Row<'_>>) =
        comparison.rows.iter().partition(|row| row.matters());
    html! {
        h2 { (comparison.group) small { "what was counted, side by side; what differs is bold" } }
        div.scroll { (numbers(comparison, &first)) }
        @if !rest.is_empty() {
            details {
                summary { (words::plural(rest.len() as u64, "more count")) ": coverage, and what is 0 everywhere" }
                div.scroll { (numbers(comparison, &rest)) }
            }
        }
        @if comparison.left_out > 0 {
            p.muted { (words::plural(comparison.left_out as u64, "more cell")) " of this group are not shown." }
        }
    }
}

fn numbers(comparison: &Comparison<'_>, rows: &[&Row<'_>]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "counted" }
                @for column in &comparison.columns { th.n scope="col" { (column) } }
            } }
            @for group in rows.chunk_by(|a, b| a.property == b.property) {
                tbody {
                    tr { th.group scope="rowgroup" colspan=(comparison.columns.len() + 1) { (group[0].property) } }
                    @for row in group {
                        tr {
                            th scope="row" title=[row.about()] { (words::count(row.name, 0).0) }
                            @for number in &row.numbers {
                                td.n { @if row.differs() { b { (shown(row.name, *number)) } }
                                    @else { (shown(row.name, *number)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn shown(name: &str, number: Option<u64>) -> String {
    number.map_or_else(|| "–".to_owned(), |number| words::count(name, number).1)
}

/// Groups of at least two cells, in order of first appearance.
fn compare<'a>(cells: &[Cell<'a>]) -> Vec<Comparison<'a>> {
    let mut groups: Vec<(&str, Vec<Cell<'a>>)> = Vec::new();
    for cell in cells {
        let Some((group, _)) = cell.run.cell.rsplit_once('/') else {
            continue;
        };
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, members)) => members.push(*cell),
            None => groups.push((group, vec![*cell])),
        }
    }
    groups
        .into_iter()
        .filter(|(_, members)| members.len() > 1)
        .map(|(group, members)| comparison(group, &members))
        .collect()
}

fn comparison<'a>(group: &'a str, members: &[Cell<'a>]) -> Comparison<'a> {
    let shown = &members[..members.len().min(COLUMNS_MAX)];
    let mut names: Vec<(&str, &str)> = Vec::new();
    for cell in shown {
        for (property, counts) in counted(cell) {
            for (name, _) in counts {
                if !names.contains(&(property, name)) {
                    names.push((property, name));
                }
            }
        }
    }
    let rows = names
        .into_iter()
        .map(|(property, name)| Row {
            property,
            name,
            numbers: shown
                .iter()
                .map(|cell| number(cell, property, name))
                .collect(),
        })
        .collect();
    Comparison {
        group,
        columns: shown
            .iter()
            .map(|cell| cell.run.cell.rsplit('/').next().unwrap_or(&cell.run.cell))
            .collect(),
        left_out: members.len() - shown.len(),
        rows,
    }
}

/// Everything that was counted in a cell, by property, coverage last.
fn counted<'a>(cell: &Cell<'a>) -> impl Iterator<Item = (&'a str, &'a [(String, u64)])> {
    let run = cell.run;
    run.properties
        .iter()
        .map(|property| (property.name.as_str(), property.checked.counts.as_slice()))
        .chain(std::iter::once((
            "coverage",
            run.coverage.counts.as_slice(),
        )))
}

fn number(cell: &Cell<'_>, property: &str, name: &str) -> Option<u64> {
    let (_, counts) = counted(cell).find(|(candidate, _)| *candidate == property)?;
    counts
        .iter()
        .find(|(counted, _)| counted == name)
        .map(|&(_, number)| number)
}

/// The style of the worst cell; a canary that was convicted as expected is a good one.
fn worst(cells: &[Cell<'_>]) -> &'static str {
    let rank = |class: &str| {
        ["good", "warn", "dull", "bad"]
            .iter()
            .position(|c| *c == class)
    };
    cells
        .iter()
        .map(
            |cell| match judged(cell.run.outcome, cell.run.as_expected) {
                Outcome::Held => "good",
                Outcome::Violation => "bad",
                Outcome::Inconclusive => "warn",
                Outcome::HarnessFailed | Outcome::Interrupted => "dull",
            },
        )
        .max_by_key(|class| rank(class))
        .unwrap_or("dull")
}

fn headline(cells: &[Cell<'_>]) -> &'static str {
    let surprised = cells.iter().any(|cell| cell.run.as_expected == Some(false));
    match worst(cells) {
        "good" => "✓ as it should be",
        "bad" if surprised => "✗ NOT AS EXPECTED",
        "bad" => "✗ VIOLATION",
        "warn" => "? INCONCLUSIVE",
        _ if cells.is_empty() => "! NOTHING RAN",
        _ => "! HARNESS FAILED, or interrupted",
    }
}

/// How many cells came out how, in words.
fn tally(cells: &[Cell<'_>]) -> String {
    let mut tally: Vec<(String, u64)> = Vec::new();
    for cell in cells {
        let (sign, word, _) = judgement(cell.run);
        let word = format!("{sign} {word}");
        match tally.iter_mut().find(|(counted, _)| *counted == word) {
            Some((_, number)) => *number += 1,
            None => tally.push((word, 1)),
        }
    }
    let parts: Vec<String> = tally
        .iter()
        .map(|(word, number)| format!("{number} {word}"))
        .collect();
    format!(
        "{}: {}",
        words::plural(cells.len() as u64, "cell"),
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn related_cells_are_compared_name_by_name() {
        let (naive, _) = fixtures::frozen_holder();
        let (mut fenced, _) = fixtures::frozen_holder();
        fenced.cell = "frozen-holder/fenced".to_owned();
        fenced.outcome = Outcome::Held;
        fenced.properties[0].checked = checkers::Checked::valid()
            .count("stale_accepted", 0)
            .count("stale_refused", 7);
        let (alone, _) = fixtures::register_held();
        let runs = [naive, fenced, alone];
        let cells: Vec<Cell<'_>> = runs.iter().map(|run| Cell { run, dir: "a b/x" }).collect();
        let compared = compare(&cells);
        assert_eq!(compared.len(), 1);
        assert_eq!(compared[0].columns, ["naive", "fenced"]);
        let row = |name: &str| {
            compared[0]
                .rows
                .iter()
                .find(|row| row.name == name)
                .unwrap()
        };
        assert_eq!(row("stale_accepted").numbers, [Some(2), Some(0)]);
        assert_eq!(row("stale_refused").numbers, [Some(0), Some(7)]);
        assert_eq!(row("two_believed_ms").numbers, [Some(3100), None]);
        assert!(row("stale_accepted").differs());
        let page = render("first", &cells);
        assert!(
            page.contains("✗ VIOLATION") && page.contains("a b/x/report.html"),
            "{page}"
        );
        let page = markdown("first", &cells);
        assert!(
            page.contains("| stale-writes: stale accepted | 2 | 0 |"),
            "{page}"
        );
    }

    #[test]
    fn a_convicted_canary_does_not_make_a_suite_red() {
        let (mut run, _) = fixtures::frozen_holder();
        run.expect = Some("invalid:stale-writes".to_owned());
        run.as_expected = Some(true);
        assert_eq!(
            worst(&[Cell {
                run: &run,
                dir: "x"
            }]),
            "good"
        );
        run.as_expected = Some(false);
        assert_eq!(
            worst(&[Cell {
                run: &run,
                dir: "x"
            }]),
            "bad"
        );
        assert_eq!(worst(&[]), "dull");
    }
}
