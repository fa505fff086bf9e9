//! The page that lists all workloads, made from the registry.

use std::fmt::Write as _;

use spec::Params;

use crate::{WORKLOADS, Workload};

/// The list of workloads as a Markdown page.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Workloads\n\nWhat clients do. This page is made from the registry in `workloads/lib.rs`; \
         `SCHISM_BLESS=1 cargo test -p workloads` writes it anew.\n",
    );
    for workload in WORKLOADS {
        describe(&mut page, *workload);
    }
    page
}

fn describe(page: &mut String, workload: &dyn Workload) {
    let params = Params::resolve(workload.params(), [])
        .unwrap_or_else(|error| panic!("{}: {error}", workload.name()));
    let words = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    };
    let mut line = |text: String| {
        page.push_str(&text);
        page.push('\n');
    };
    line(format!(
        "\n## {}\n\n{}\n",
        workload.name(),
        workload.about()
    ));
    line(format!(
        "Functions: {}. Checked for: {}.\n",
        words(&workload.functions(&params)),
        words(&workload.checkers(&params))
    ));
    line(workload.details().to_owned());
    line("| parameter | default | takes | what it is |\n|---|---|---|---|".to_owned());
    for param in workload.params() {
        let mut row = String::new();
        let _ = write!(
            row,
            "| `{}` | `{}` | {} | {} |",
            param.name,
            param.default(),
            param.expects(),
            param.about
        );
        line(row);
    }
}

/// Compares a text with a committed file, or writes that file when `SCHISM_BLESS` is set.
#[cfg(test)]
pub(crate) fn assert_golden(path: &str, text: &str) {
    let full = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path);
    if std::env::var_os("SCHISM_BLESS").is_some() {
        std::fs::create_dir_all(full.parent().unwrap()).unwrap();
        std::fs::write(&full, text).unwrap();
    }
    let committed = std::fs::read_to_string(&full).unwrap_or_default();
    assert!(
        committed == text,
        "{path} is out of date; if the change is meant, run SCHISM_BLESS=1 cargo test -p workloads"
    );
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_is_up_to_date() {
        super::assert_golden("docs/workloads.md", &super::markdown());
    }
}
