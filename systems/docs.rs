//! The page that lists all systems, made from the registry.

use std::fmt::Write as _;

use spec::Params;

use crate::etcd::{ERRORS, Meaning};
use crate::{SYSTEMS, System};

/// The list of systems as a Markdown page.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Systems\n\nWhat can be tested. This page is made from the registry in `systems/lib.rs`; \
         `SCHISM_BLESS=1 cargo test -p systems` writes it anew.\n",
    );
    for system in SYSTEMS {
        describe(&mut page, *system);
    }
    page.push_str(ETCD_NOTES);
    for Meaning {
        message,
        code,
        definite,
        why,
    } in ERRORS
    {
        let kind = if *definite { "fail" } else { "info" };
        let _ = writeln!(page, "| `{message}` | `{kind}`, `{code}` | {why} |");
    }
    page
}

const ETCD_NOTES: &str = "\n### Notes on etcd\n
A lock or a leadership is a key that whoever creates it holds, put under a lease; the fencing token is \
the revision at which it was created. `renew` keeps the lease alive, `release` revokes it. The TTL of a \
lease is in whole seconds, rounded up, and no shorter than one and a half election timeouts; where that \
is not what was asked for, `acquire` says `ttl_ms`.

The status of a member names the leader by its member id, which follows from its address. The term in it is \
that of the last entry which the member applied: it stands still during an outage. Observations \
therefore have no `term` but an `applied_term`; two leaders that show the same one prove nothing. Terms can be \
read from the members' logs.

What the client makes of errors in answer to a change. Every other error, and every answer that cannot be \
read, is `info`; an error in answer to a read is `fail`, for a read changes nothing.

| etcd says | the client answers | because |
|---|---|---|
";

fn describe(page: &mut String, system: &dyn System) {
    let params = Params::resolve(system.params(), [])
        .unwrap_or_else(|error| panic!("{}: {error}", system.name()));
    let words = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    };
    let _ = writeln!(page, "\n## {}\n\n{}\n", system.name(), system.about());
    let _ = writeln!(
        page,
        "| workload | functions of its client | claims |\n|---|---|---|"
    );
    for workload in system.workloads() {
        let functions = words(system.functions(workload));
        let claims = words(&system.claims(workload, &params));
        let _ = writeln!(page, "| `{workload}` | {functions} | {claims} |");
    }
    let _ = writeln!(
        page,
        "\n| parameter | default | takes | what it is |\n|---|---|---|---|"
    );
    for param in system.params() {
        let (name, takes, about) = (param.name, param.expects(), param.about);
        let _ = writeln!(
            page,
            "| `{name}` | `{}` | {takes} | {about} |",
            param.default()
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::SYSTEMS;

    /// The committed page is what the registry says.
    #[test]
    fn the_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/systems.md");
        let page = super::markdown();
        if std::env::var_os("SCHISM_BLESS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == page,
            "docs/systems.md is out of date; run SCHISM_BLESS=1 cargo test -p systems"
        );
    }

    #[test]
    fn names_are_unique_and_every_workload_has_functions() {
        let names: BTreeSet<&str> = SYSTEMS.iter().map(|system| system.name()).collect();
        assert_eq!(names.len(), SYSTEMS.len());
        for system in SYSTEMS {
            for workload in system.workloads() {
                let name = system.name();
                assert!(!system.functions(workload).is_empty(), "{name}: {workload}");
            }
        }
    }

    /// A system is one file, or one folder, of this crate that has a line in the list.
    #[test]
    fn every_system_that_has_a_file_is_in_the_list() {
        let mut with_file = BTreeSet::new();
        for entry in std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap() {
            let path = entry.unwrap().path();
            let file = if path.is_dir() {
                path.join("mod.rs")
            } else {
                path.clone()
            };
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if text
                .lines()
                .any(|line| line.starts_with("impl System for "))
            {
                with_file.insert(path.file_stem().unwrap().to_str().unwrap().to_owned());
            }
        }
        let listed = SYSTEMS.iter().map(|system| system.name().to_owned());
        assert_eq!(with_file, listed.collect());
    }
}
