//! What this machine can do of what faults need, as far as that is not given wherever a cluster can be
//! made at all.

use std::collections::BTreeSet;

use cluster::WALL_CLOCKS;
use nemeses::{Capabilities, Capability, Fault};
use spec::Params;

use crate::suite::{Cell, Suite};

/// What faults lack on a machine of which this was found out.
pub fn of(found: &[cluster::Capability]) -> Capabilities {
    let lacks = found
        .iter()
        .filter(|one| one.name == WALL_CLOCKS && !one.works);
    lacks.fold(Capabilities::all(), |all, lack| {
        all.without(Capability::Clock, &lack.found, &lack.remedy)
    })
}

/// The parameters of a fault of which none was given.
pub fn defaults(fault: &dyn Fault) -> Params {
    Params::resolve(&nemeses::declared(fault), []).unwrap_or_default()
}

/// What this machine cannot do of what the faults of a suite need. It is tried only if one of them
/// needs what not every machine can do.
pub async fn refuse(suite: &Suite) -> Vec<String> {
    let needs_clock = |cell: &Cell| {
        faults(cell).any(|(fault, params)| fault.needs(&params).contains(&Capability::Clock))
    };
    if !suite.cells.iter().any(needs_clock) {
        return Vec::new();
    }
    let capabilities = match cluster::capabilities(None).await {
        Ok(found) => of(&found),
        Err(error) => return vec![format!("cannot find out what this machine can do: {error}")],
    };
    let mut refusals = Vec::new();
    for cell in &suite.cells {
        let refused: BTreeSet<String> = faults(cell)
            .flat_map(|(fault, params)| nemeses::refuse(fault, &params, &capabilities))
            .map(|refused| format!("{}: {refused}", cell.id))
            .collect();
        refusals.extend(refused);
    }
    refusals
}

/// The faults that a cell names, and those that may be drawn.
fn faults(cell: &Cell) -> impl Iterator<Item = (&'static dyn Fault, Params)> {
    let named = cell
        .faults
        .iter()
        .map(|planned| (planned.fault, planned.params.clone()));
    let drawn = cell
        .random_faults
        .iter()
        .filter_map(|name| nemeses::find(name));
    named.chain(drawn.map(|fault| (fault, defaults(fault))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_cannot_move_clocks_refuses_the_fault_and_no_other() {
        let found = |works| cluster::Capability {
            name: WALL_CLOCKS.to_owned(),
            works,
            optional: true,
            tried: String::new(),
            found: "ptrace of 2: EPERM".to_owned(),
            remedy: "let it".to_owned(),
        };
        let refused = |works, name| {
            let fault = nemeses::find(name).unwrap();
            let refused = nemeses::refuse(fault, &defaults(fault), &of(&[found(works)]));
            refused.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(refused(true, "clock"), Vec::<String>::new());
        assert_eq!(refused(false, "freeze"), Vec::<String>::new());
        assert_eq!(
            refused(false, "clock"),
            ["the fault `clock` cannot move wall clocks here: ptrace of 2: EPERM; let it"]
        );
    }
}
