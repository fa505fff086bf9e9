//! What clients do: the workloads, and the generator algebra that they are made of.
//!
//! A [`Workload`] is a generator, the vocabulary of its operations, and the properties that its
//! histories can be checked for. [`WORKLOADS`] is the list. To add a workload, add its file and
//! its line there. The algebra is in [`generator`]; [`Driver`] is what a runner asks, and
//! [`simulate`] is how workloads are tested without a cluster.

pub mod docs;
pub mod driver;
pub mod generator;
pub mod random;
pub mod simulate;

mod clients;
mod holder;
mod ids;
mod leader;
mod lock;
mod register;
mod set;

use serde_json::{Map, Value};
use spec::{Param, Params};

pub use driver::{Driver, Step};
pub use generator::Generator;

/// All workloads, in the order in which they are listed.
pub static WORKLOADS: &[&dyn Workload] = &[
    &lock::Lock,
    &leader::Leader,
    &register::Register,
    &set::Set,
    &ids::Ids,
];

/// The workload with this name.
pub fn find(name: &str) -> Option<&'static dyn Workload> {
    WORKLOADS
        .iter()
        .copied()
        .find(|workload| workload.name() == name)
}

/// What clients do, and what can be checked of it.
pub trait Workload: Sync {
    /// Its name, as users write it.
    fn name(&self) -> &'static str;

    /// What it does and what it is for, in one or two sentences.
    fn about(&self) -> &'static str;

    /// What a reader of its histories must know, as Markdown: which operations follow which, and
    /// how they are to be read.
    fn details(&self) -> &'static str;

    /// The functions that its operations call; a client must know them all.
    fn functions(&self, params: &Params) -> Vec<&'static str>;

    /// The parameters that a spec may give it.
    fn params(&self) -> &'static [Param];

    /// Whether the parameters make sense together.
    ///
    /// # Errors
    /// [`Error::Param`] that names the parameter to change.
    fn validate(&self, params: &Params) -> Result<(), Error>;

    /// The properties that its histories are checked for.
    fn checkers(&self, params: &Params) -> Vec<&'static str>;

    /// Parameters of checkers and clients that follow from its own: they go into the history's
    /// header and to the clients (`ttl_ms`, `holder`, ...).
    fn header_params(&self, params: &Params) -> Map<String, Value>;

    /// How many client nodes it wants, and how many processes on each. A holder of a lock has a
    /// node and a process of its own, so that it can be frozen alone.
    fn placement(&self, params: &Params) -> Placement;

    /// Whether it needs the protected resource (`conclave`'s vault) on a node of its own, and
    /// whether that one checks fencing tokens.
    fn vault(&self, params: &Params) -> Option<Vault> {
        let _ = params;
        None
    }

    /// The operations of the run, until the time limit of the test ends it.
    fn generator(&self, params: &Params, setup: &Setup) -> Box<dyn Generator>;

    /// The operations after all faults were healed: final reads on every node.
    fn final_generator(&self, params: &Params, setup: &Setup) -> Option<Box<dyn Generator>> {
        let _ = (params, setup);
        None
    }
}

/// Where the clients of a workload run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Client nodes `c1`, `c2`, ...; each runs one client program.
    pub client_nodes: usize,
    /// Logical processes that each client program multiplexes.
    pub processes_per_node: usize,
}

impl Placement {
    /// How many client threads there are in all.
    pub fn threads(&self) -> usize {
        self.client_nodes * self.processes_per_node
    }
}

/// The protected resource as a workload wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vault {
    /// Whether it refuses tokens older than one that it has seen.
    pub fencing: bool,
}

/// What a generator may know when it is made.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The server nodes by name.
    pub servers: Vec<String>,
    /// How many client threads there are; a thread runs one process at a time.
    pub threads: usize,
    /// The seed of the stream `workload`.
    pub seed: u64,
}

/// Why a workload cannot run as it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A parameter that has the right form but makes no sense here.
    #[error("`{name}`: {reason}")]
    Param {
        /// The parameter to change.
        name: &'static str,
        /// Why, and what would do.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every file of this folder that implements a workload is in the list, and every name in
    /// the list is the name of such a file.
    #[test]
    fn the_list_is_the_folder() {
        let folder = std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap();
        let files: BTreeSet<String> = folder
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
            .filter(|path| {
                let text = std::fs::read_to_string(path).unwrap();
                text.lines()
                    .any(|line| line.starts_with("impl Workload for "))
            })
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        let listed: BTreeSet<String> = WORKLOADS
            .iter()
            .map(|workload| workload.name().to_owned())
            .collect();
        assert_eq!(files, listed);
        assert_eq!(listed.len(), WORKLOADS.len(), "a name is listed twice");
    }

    #[test]
    fn the_defaults_are_valid_and_every_operation_is_declared() {
        for workload in WORKLOADS {
            let params = Params::resolve(workload.params(), []).unwrap();
            workload.validate(&params).unwrap();
            assert_eq!(find(workload.name()).unwrap().name(), workload.name());

            let placement = workload.placement(&params);
            let setup = Setup {
                servers: ["n1", "n2", "n3"].map(str::to_owned).to_vec(),
                threads: placement.threads(),
                seed: 1,
            };
            let functions = workload.functions(&params);
            let generators = [
                Some(workload.generator(&params, &setup)),
                workload.final_generator(&params, &setup),
            ];
            for generator in generators.into_iter().flatten() {
                let trace = simulate::simulate(
                    generator,
                    setup.threads,
                    60_000_000_000,
                    simulate::imperfect(1_000_000),
                );
                assert!(!trace.events.is_empty());
                for event in trace.invocations() {
                    assert!(functions.contains(&event.f), "{}", event.f);
                    assert!(event.server.is_none_or(|server| server < 3));
                }
            }
        }
    }

    /// What a seed means must not change, or old plans could not be run again.
    #[test]
    fn the_traces_are_pinned() {
        for workload in WORKLOADS {
            let params = Params::resolve(workload.params(), []).unwrap();
            let setup = Setup {
                servers: ["n1", "n2", "n3"].map(str::to_owned).to_vec(),
                threads: 3,
                seed: 7,
            };
            let model = simulate::imperfect(1_500_000);
            let generator = workload.generator(&params, &setup);
            let trace = simulate::simulate(generator, 3, 2_000_000_000, model);
            let lines: String = trace
                .events
                .iter()
                .take(80)
                .map(ToString::to_string)
                .collect();
            docs::assert_golden(&format!("workloads/golden/{}.txt", workload.name()), &lines);
        }
    }

    #[test]
    fn the_same_seed_is_the_same_run_and_another_is_another() {
        for workload in WORKLOADS {
            let params = Params::resolve(workload.params(), []).unwrap();
            let run = |seed| {
                let setup = Setup {
                    servers: ["n1", "n2", "n3"].map(str::to_owned).to_vec(),
                    threads: 3,
                    seed,
                };
                simulate::simulate(
                    workload.generator(&params, &setup),
                    3,
                    10_000_000_000,
                    simulate::imperfect(1_000_000),
                )
            };
            assert_eq!(run(1), run(1), "{}", workload.name());
            assert_ne!(run(1), run(2), "{}", workload.name());
        }
    }
}
