//! The registry of faults. To add one, add its file in `faults/` and its line here.

mod clock;
mod cut;
mod freeze;
mod kill;
mod lossy;
mod slow;

use spec::{Param, ParamKind};

use crate::Fault;

/// All faults, in the order in which they are listed.
pub static FAULTS: &[&dyn Fault] = &[
    &freeze::Freeze,
    &kill::Kill,
    &cut::Cut,
    &slow::Slow,
    &lossy::Lossy,
    &clock::Clock,
];

/// The parameters that every fault takes.
pub static COMMON: &[Param] = &[WAIT];

/// How long a target may be waited for.
pub(crate) const WAIT: Param = Param {
    name: "wait",
    kind: ParamKind::Duration("2s"),
    about: "how long to wait for a target that matches nothing yet, such as a leader or a holder",
};

/// The fault with this name.
pub fn find(name: &str) -> Option<&'static dyn Fault> {
    FAULTS.iter().copied().find(|fault| fault.name() == name)
}

/// Everything that a fault's parameters may be.
pub fn declared(fault: &dyn Fault) -> Vec<Param> {
    fault.params().iter().chain(COMMON).copied().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_folder_and_the_registry_list_the_same_faults() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/faults");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| {
                file.unwrap()
                    .path()
                    .file_stem()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        let names: BTreeSet<String> = FAULTS.iter().map(|fault| fault.name().to_owned()).collect();
        assert_eq!(files, names);
        assert_eq!(names.len(), FAULTS.len(), "a name is used twice");
    }

    #[test]
    fn every_fault_is_documented_and_its_parameters_are_its_own() {
        for fault in FAULTS {
            assert!(!fault.about().is_empty() && !fault.evidence().is_empty());
            let names: Vec<&str> = declared(*fault).iter().map(|param| param.name).collect();
            let distinct: BTreeSet<&str> = names.iter().copied().collect();
            assert_eq!(distinct.len(), names.len(), "{}: {names:?}", fault.name());
        }
    }
}
