//! `lock`: clients take a lock with a lease and write to what it protects. See `holder.rs`.

use serde_json::{Map, Value};
use spec::{Param, Params};

use crate::generator::Generator;
use crate::holder::{self, Holders};
use crate::{Error, Placement, Setup, Vault, Workload, clients};

/// The workload `lock`.
pub(crate) struct Lock;

const KEY_PREFIX: &str = "L";

impl Workload for Lock {
    fn name(&self) -> &'static str {
        "lock"
    }

    fn about(&self) -> &'static str {
        "Clients take a lock with a lease, write to the resource that it protects, renew, and \
         give it back; shows whether two ever hold it and whether a write of a former holder \
         is accepted."
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
