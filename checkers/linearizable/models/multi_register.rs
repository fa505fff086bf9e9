//! Several registers, read and written together.

use history::{Header, ValueRef};

use super::{Asked, Effect, Model, NULL, Numbers};
use crate::params::{self, Param};

/// Several registers, read and written by transactions.
pub struct MultiRegister {
    nil_reads_unknown: bool,
}

impl Model for MultiRegister {
    const NAME: &'static str = "multi-register";
    const ABOUT: &'static str = "Several registers, each null at the beginning. `txn` of a list of \
        `[\"read\", k, v]` (or `r`; the value is in the result) and `[\"write\", k, v]` (or `w`), which \
        happen in this order and at one moment.";
    const METHOD: &'static str = "By search. Registers that are never in one transaction with others \
        are decided by themselves.";
    const PARAMS: &'static [Param] = &[params::NIL_READS];

    /// The registers that are not null, sorted.
    type State = Vec<(u32, u32)>;
    type Op = Vec<RegisterOp>;

    fn of_header(header: &Header) -> Result<MultiRegister, String> {
        Ok(MultiRegister {
            nil_reads_unknown: params::NIL_READS.word(header) == "unknown",
        })
    }

    fn read(
        &self,
        asked: &Asked<'_>,
        numbers: &mut Numbers,
    ) -> Result<Option<Vec<RegisterOp>>, String> {
        if asked.f != "txn" {
            return asked.unknown("`txn`");
        }
        let wanted = "its value is no list of [\"read\" or \"write\", k, v]";
        let ops = self.ops(
            asked.output().unwrap_or(asked.input),
            asked.output().is_some(),
            numbers,
        );
        let ops = ops.ok_or(wanted)?;
        Ok((!ops.is_empty() && !asked.failed()).then_some(ops))
    }

    fn initial(&self) -> Self::State {
        Vec::new()
    }

    fn effect(&self, ops: &Vec<RegisterOp>) -> Effect<Self::State> {
        if ops.iter().any(|op| op.writes) {
            Effect::Any
        } else {
            Effect::Passive
        }
    }

    fn step(&self, state: &Self::State, ops: &Vec<RegisterOp>) -> Option<Self::State> {
        let mut state = state.clone();
        for op in ops {
            let at = state.binary_search_by_key(&op.key, |&(key, _)| key);
            match (op.writes, at) {
                (false, Ok(at)) if state[at].1 != op.value => return None,
                (false, Err(_)) if op.value != NULL => return None,
                (false, _) => {}
                (true, Ok(at)) if op.value == NULL => {
                    state.remove(at);
                }
                (true, Ok(at)) => state[at].1 = op.value,
                (true, Err(_)) if op.value == NULL => {}
                (true, Err(at)) => state.insert(at, (op.key, op.value)),
            }
        }
        Some(state)
    }

    fn part(&self, ops: &Vec<RegisterOp>) -> Option<u32> {
        let key = ops.first()?.key;
        ops.iter().all(|op| op.key == key).then_some(key)
    }
}

/// A part of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegisterOp {
    key: u32,
    value: u32,
    writes: bool,
}

impl MultiRegister {
    /// The parts of a transaction that say something; nothing if it is none.
    fn ops(
        &self,
        value: ValueRef<'_>,
        answered: bool,
        numbers: &mut Numbers,
    ) -> Option<Vec<RegisterOp>> {
        let mut ops = Vec::new();
        let mut add = |f: &str, key: u32, value: u32| {
            let writes = matches!(f, "write" | "w");
            let says = writes || (answered && !(self.nil_reads_unknown && value == NULL));
            if says {
                ops.push(RegisterOp { key, value, writes });
            }
            (writes || matches!(f, "read" | "r")).then_some(())
        };
        for part in value.to_json().as_array()? {
            let [f, key, value] = part.as_array()?.as_slice() else {
                return None;
            };
            add(f.as_str()?, numbers.of_json(key), numbers.of_json(value))?;
        }
        Some(ops)
    }
}
