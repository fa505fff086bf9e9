//! `ids`: ids are generated that nobody else may get.

use serde_json::{Map, Value, json};
use spec::{Param, ParamKind, Params};

use crate::clients::{self, CLIENTS, PROCESSES, ROUTE_FIXED, Route};
use crate::generator::{Generator, op};
use crate::random::Seed;
use crate::{Error, Placement, Setup, Workload};

/// The workload `ids`.
pub(crate) struct Ids;

const GENERATE: &str = "generate";

const PARAMS: &[Param] = &[
    CLIENTS,
    PROCESSES,
    ROUTE_FIXED,
    Param {
        name: "rate",
        kind: ParamKind::Int(100),
        about: "ids asked for a second in all, at random times; 0 is as fast as the clients can",
    },
];

impl Workload for Ids {
    fn name(&self) -> &'static str {
        "ids"
    }

    fn about(&self) -> &'static str {
        "Ids are asked for at a steady rate; shows whether one is given out twice."
    }

    fn details(&self) -> &'static str {
        "\
| f | value of the invocation | value when ok |
|---|---|---|
| `generate` | null | the id |
"
    }

    fn functions(&self, _: &Params) -> Vec<&'static str> {
        vec![GENERATE]
    }

    fn params(&self) -> &'static [Param] {
        PARAMS
    }

    fn validate(&self, params: &Params) -> Result<(), Error> {
        clients::validate(params)
    }

    fn checkers(&self, _: &Params) -> Vec<&'static str> {
        vec!["unique-ids", "coverage"]
    }

    fn header_params(&self, _: &Params) -> Map<String, Value> {
        Map::from_iter([("required".to_owned(), json!([GENERATE]))])
    }

    fn placement(&self, params: &Params) -> Placement {
        clients::placement(params)
    }

    fn generator(&self, params: &Params, setup: &Setup) -> Box<dyn Generator> {
        op(GENERATE)
            .repeat()
            .rate(params.int("rate"), Seed::new(setup.seed).named("ids"))
            .map(Route::new(params, setup).applied())
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{perfect, simulate};

    #[test]
    fn ids_are_asked_for_at_their_rate() {
        let given = json!({"rate": 20, "route": "any"});
        let params = Params::resolve(PARAMS, given.as_object().unwrap().clone()).unwrap();
        let setup = Setup {
            servers: vec!["n1".to_owned()],
            threads: 2,
            seed: 7,
        };
        let generator = Ids.generator(&params, &setup);
        let trace = simulate(generator, 2, 100_000_000_000, perfect(1_000_000));
        let total = trace.invocations().count();
        assert!(total.abs_diff(2000) < 150, "{total}");
        assert!(trace.invocations().all(|event| event.server.is_none()));
    }
}
