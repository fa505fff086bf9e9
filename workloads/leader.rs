//! `leader`: clients stand for election and the leader writes to what it alone may change. See `holder.rs`.

use serde_json::{Map, Value};
use spec::{Param, Params};

use crate::generator::Generator;
use crate::holder::{self, Holders};
use crate::{Error, Placement, Setup, Vault, Workload, clients};

/// The workload `leader`.
pub(crate) struct Leader;

const KEY_PREFIX: &str = "E";

impl Workload for Leader {
    fn name(&self) -> &'static str {
        "leader"
    }

    fn about(&self) -> &'static str {
        "Clients stand for election (`acquire`), the leader writes, renews and resigns \
         (`release`); shows whether two ever lead and whether a write of a former leader is \
         accepted."
    }

    fn details(&self) -> &'static str {
        holder::DETAILS
    }

    fn functions(&self, _: &Params) -> Vec<&'static str> {
        holder::FUNCTIONS.to_vec()
    }

    fn params(&self) -> &'static [Param] {
        holder::PARAMS
    }

    fn validate(&self, params: &Params) -> Result<(), Error> {
        holder::validate(params)
    }

    fn checkers(&self, params: &Params) -> Vec<&'static str> {
        holder::checkers(params)
    }

    fn header_params(&self, params: &Params) -> Map<String, Value> {
        holder::header_params(params)
    }

    fn placement(&self, params: &Params) -> Placement {
        clients::placement(params)
    }

    fn vault(&self, params: &Params) -> Option<Vault> {
        Some(holder::vault(params))
    }

    fn generator(&self, params: &Params, setup: &Setup) -> Box<dyn Generator> {
        Holders::new(params, setup, KEY_PREFIX).boxed()
    }

    fn final_generator(&self, params: &Params, _: &Setup) -> Option<Box<dyn Generator>> {
        Some(holder::final_reads(params, KEY_PREFIX).boxed())
    }
}
