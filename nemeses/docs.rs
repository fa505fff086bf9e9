//! The page about faults for the people who write plans, from the registry.

use std::fmt::Write;

use spec::Param;

use crate::faults::{COMMON, FAULTS};
use crate::target::{ROLE_DOCS, SHAPES, TargetKind};

/// The page, in Markdown.
pub fn markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("## Targets\n\n| nodes | |\n|---|---|\n");
    for (word, meaning) in &ROLE_DOCS {
        row(&mut page, &[&code(word), meaning]);
    }
    page.push_str(LINKS);
    for (name, _, meaning) in &SHAPES {
        row(&mut page, &[&code(name), meaning]);
    }
    page.push_str(WAITING);
    page.push_str("## Parameters of every fault\n\n");
    params(&mut page, COMMON);
    for fault in FAULTS {
        let takes = match fault.target_kind() {
            TargetKind::Nodes => "nodes",
            TargetKind::Links => "links",
            TargetKind::FlappingLinks => "links, also flapping ones",
        };
        let (name, about, evidence) = (fault.name(), fault.about(), fault.evidence());
        let default = fault.default_target();
        let _ = write!(
            page,
            "\n## {name}\n\nIt {about}.\n\nTargets: {takes}; by default `{default}`.\n\n{evidence}\n\n"
        );
        params(&mut page, fault.params());
    }
    page
}

const INTRODUCTION: &str = "\
<!-- Written by the tests of the crate `nemeses` from its registry; see its docs.rs. -->

# Faults

A plan is a list of faults, each with a time, a target and a duration:

```toml
[[faults]]
at = \"5s\"
fault = \"cut\"
target = \"isolate\"
for = \"6s\"                 # or \"end\"; by default twice the longer of lease and election timeout
params = { clients = \"with-minority\" }
```

Every fault is installed, verified, held, looked at again, healed, and verified to be healed. A
fault for which the evidence is missing did not land, and the ledger says why.

";

const LINKS: &str = "
Where a fault takes links, nodes are cut from the servers that are not among them. Links can also be
named: `a>b` from a to b, `a-b` in both directions, where a and b are nodes as above (`n1>n2`,
`leader-n1`, `clients>leader`), or several with commas between them. `flapping` before a target
(`flapping n1-n3`), or alone, makes a cut come and go; alone it means `flapping partial`.

| shape | |
|---|---|
";

const WAITING: &str = "
Who the leader or the holder is, and which server `one` is, is decided when the fault strikes, the
latter by the seed. A target that matches nothing then is waited for, and the fault is recorded as
not landed if the wait is in vain. One process has one fault at a time: another one waits. With
`max-harmed` a fault also waits while it would harm more servers at once than that, where harmed is
every server that must be left aside so that all others are up and can reach each other.

";

fn params(page: &mut String, params: &[Param]) {
    page.push_str("| parameter | takes | default | |\n|---|---|---|---|\n");
    for param in params {
        let default = param.default();
        let default = default
            .as_str()
            .map_or_else(|| default.to_string(), str::to_owned);
        let default = if default.is_empty() {
            String::new()
        } else {
            code(&default)
        };
        row(
            page,
            &[&code(param.name), &param.expects(), &default, param.about],
        );
    }
}

fn row(page: &mut String, cells: &[&str]) {
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

fn code(text: &str) -> String {
    if text.contains('`') {
        text.to_owned()
    } else {
        format!("`{text}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set it to write the page anew.
    const BLESS: &str = "SCHISM_BLESS";

    #[test]
    fn the_page_in_the_repository_is_that_of_the_registry() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/faults.md");
        if std::env::var_os(BLESS).is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs")).unwrap();
            std::fs::write(path, markdown()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            page == markdown(),
            "docs/faults.md is not up to date; run `{BLESS}=1 cargo test -p nemeses docs`"
        );
    }
}
