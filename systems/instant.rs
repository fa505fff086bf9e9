//! A client without a system: every operation succeeds at once. It measures what the harness itself
//! costs; nothing about a system can be learnt from it, so that it is not in the list of systems.

use std::rc::Rc;

use async_trait::async_trait;
use serde_json::Value;

use crate::Error;
use crate::client::{Client, ClientProgram, Failure, Op, Patience, Setup};

/// The program `instant`.
#[derive(Debug)]
pub struct Instant;

struct Answers;

impl ClientProgram for Instant {
    fn name(&self) -> &'static str {
        "instant"
    }

    fn functions(&self, _workload: &str) -> &'static [&'static str] {
        &[
            "read",
            "write",
            "cas",
            "acquire",
            "renew",
            "release",
            "put",
            "get",
            "delete",
            "fence",
            "act",
            "add",
            "final-read",
            "generate",
        ]
    }

    fn client(&self, _setup: &Rc<Setup>, _thread: u64) -> Result<Box<dyn Client>, Error> {
        Ok(Box::new(Answers))
    }
}

#[async_trait(?Send)]
impl Client for Answers {
    async fn invoke(&mut self, op: &Op, _patience: &mut Patience) -> Result<Value, Failure> {
        Ok(op.value.clone())
    }
}
