//! The list of checkers as a page of Markdown, for `docs/checkers.md`.

use std::fmt::Write as _;

use crate::linearizable::models::MODELS;
use crate::{CHECKERS, Checker};

/// The whole list: for each checker its promise, its method, its parameters and its counts.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Checkers\n\n\
         What a history can be judged for. Each checker says `valid`, `invalid` with a \
         counterexample, or `unknown` with a reason; running out of budget is `unknown`, and so is \
         a history that does not speak of the property. Parameters stand in the header of the \
         history; `threads` and `clients` there say which processes are one thread and on which \
         node it runs.\n\n\
         This page is generated from the list in the code; do not edit it.\n\n\
         | checker | promise |\n|---|---|\n",
    );
    for checker in CHECKERS {
        let name = checker.name();
        let _ = writeln!(
            page,
            "| [`{name}`](#{name}) | {} |",
            cell(checker.promise())
        );
    }
    for checker in CHECKERS {
        section(&mut page, *checker);
    }
    page
}

fn section(page: &mut String, checker: &dyn Checker) {
    let _ = writeln!(page, "\n## {}\n\n{}\n", checker.name(), checker.promise());
    if !checker.aliases().is_empty() {
        let _ = writeln!(
            page,
            "Also known as `{}`.\n",
            checker.aliases().join("`, `")
        );
    }
    let _ = writeln!(page, "{}", checker.method());
    let params = checker.params();
    if !params.is_empty() {
        let _ = writeln!(
            page,
            "\n| parameter | takes | default | meaning |\n|---|---|---|---|"
        );
    }
    for param in params {
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} |",
            param.name,
            cell(&param.takes.describe()),
            cell(param.default),
            cell(param.about)
        );
    }
    table(page, "count", checker.counts());
    if checker.name() == "linearizable" {
        models(page);
    }
}

/// What `linearizable` can be held against.
fn models(page: &mut String) {
    page.push_str(
        "\n### Models\n\nChosen by the parameter `model`. `register`, also called `cas-register`: `read`, \
         `write` of a value, `cas` of `[old, new]`, as said above.\n",
    );
    for model in MODELS {
        let _ = writeln!(
            page,
            "\n#### {}\n\n{}\n\n{}",
            model.name, model.about, model.method
        );
    }
}

fn table(page: &mut String, what: &str, rows: &[(&str, &str)]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n| {what} | meaning |\n|---|---|");
    for (name, meaning) in rows {
        let _ = writeln!(page, "| `{name}` | {} |", cell(meaning));
    }
}

/// Text within a table: a bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_checker_has_a_section_and_a_count() {
        let page = markdown();
        for checker in CHECKERS {
            assert!(page.contains(&format!("\n## {}\n", checker.name())));
            assert!(!checker.counts().is_empty(), "{}", checker.name());
        }
        for model in MODELS {
            assert!(page.contains(&format!("\n#### {}\n", model.name)));
        }
    }
}
