//! `set`: elements are added, and at the end every server is asked what it has.

use serde_json::{Map, Value, json};
use spec::{Param, ParamKind, Params};

use crate::clients::{self, CLIENTS, PROCESSES, ROUTE_FIXED, Route};
use crate::generator::{Generator, each_ok, from_fn, op};
use crate::random::Seed;
use crate::{Error, Placement, Setup, Workload};

/// The workload `set`.
pub(crate) struct Set;

const ADD: &str = "add";
const FINAL_READ: &str = "final-read";

const PARAMS: &[Param] = &[
    CLIENTS,
    PROCESSES,
    ROUTE_FIXED,
    Param {
        name: "rate",
        kind: ParamKind::Int(50),
        about: "elements added a second in all, at random times; 0 is as fast as the clients can",
    },
];

impl Workload for Set {
    fn name(&self) -> &'static str {
        "set"
    }

    fn about(&self) -> &'static str {
        "Elements are added at a steady rate, and at the end every server is asked what it has; \
         shows acknowledged writes that are lost and servers that differ."
    }

    fn details(&self) -> &'static str {
        "\
| f | value of the invocation | value when ok |
|---|---|---|
| `add` | v, no v twice | v |
| `final-read`, with its node | null | [v, ...], everything that this node has |

After the faults were healed every server is asked, up to twenty times until it answers.
"
    }

    fn functions(&self, _: &Params) -> Vec<&'static str> {
        vec![ADD, FINAL_READ]
    }

    fn params(&self) -> &'static [Param] {
        PARAMS
    }

    fn validate(&self, params: &Params) -> Result<(), Error> {
        clients::validate(params)
    }

    fn checkers(&self, _: &Params) -> Vec<&'static str> {
        vec![
            "lost-writes",
            "convergence",
            "availability",
            "split-brain",
            "coverage",
        ]
    }

    fn header_params(&self, _: &Params) -> Map<String, Value> {
        Map::from_iter([("required".to_owned(), json!([ADD, FINAL_READ]))])
    }

    fn placement(&self, params: &Params) -> Placement {
        clients::placement(params)
    }

    fn generator(&self, params: &Params, setup: &Setup) -> Box<dyn Generator> {
        let mut next = 0_u64;
        let adds = from_fn(move |_| {
            next += 1;
            Some(op(ADD).value(next))
        });
        adds.rate(params.int("rate"), Seed::new(setup.seed).named("set"))
            .map(Route::new(params, setup).applied())
            .boxed()
    }

    fn final_generator(&self, _: &Params, setup: &Setup) -> Option<Box<dyn Generator>> {
        let reads = (0..setup.servers.len()).map(|server| op(FINAL_READ).on_server(server));
        Some(each_ok(reads, 20, 500_000_000).boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{Ended, imperfect, perfect, simulate};
    use std::collections::BTreeSet;

    const S: u64 = 1_000_000_000;

    fn setup() -> Setup {
        Setup {
            servers: ["n1", "n2", "n3"].map(str::to_owned).to_vec(),
            threads: 6,
            seed: 7,
        }
    }

    #[test]
    fn elements_are_distinct_and_come_at_their_rate() {
        let params = Params::resolve(PARAMS, []).unwrap();
        let trace = simulate(
            Set.generator(&params, &setup()),
            6,
            60 * S,
            perfect(1_000_000),
        );
        let total = trace.invocations().count();
        assert!(total.abs_diff(3000) < 200, "{total}");
        let elements: BTreeSet<u64> = trace
            .invocations()
            .map(|event| event.value.as_u64().unwrap())
            .collect();
        assert_eq!(elements.len(), total);
        assert!(
            trace
                .invocations()
                .all(|event| event.server == Some(event.thread % 3))
        );
    }

    #[test]
    fn at_the_end_every_server_is_read() {
        let params = Params::resolve(PARAMS, []).unwrap();
        let generator = Set.final_generator(&params, &setup()).unwrap();
        let trace = simulate(generator, 6, 60 * S, imperfect(1_000_000));
        assert_eq!(trace.ended, Ended::Done);
        let mut read: Vec<Option<usize>> = trace
            .events
            .iter()
            .filter(|event| event.outcome == crate::generator::Outcome::Ok)
            .map(|event| event.server)
            .collect();
        read.sort_unstable();
        assert_eq!(read, [Some(0), Some(1), Some(2)]);
    }
}
