//! The client of etcd, over the JSON gateway: registers, sets, ids, and keys under leases.
//!
//! Any member answers and forwards writes to the leader by itself, so that a worker stays with one
//! member until that one fails it. Connections are those of [`crate::http`]: none is opened while an
//! operation is open, nothing is sent again. etcd's own libraries are not used; they retry and
//! change members behind one's back.

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::gateway::{
    Compare, DeleteRequest, Done, GrantRequest, GrantResponse, KeepAlive, LeaseRequest, Operation,
    PutRequest, PutResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse, decode, encode,
    read,
};
use crate::client::{Client, Failure, Op, Patience, Route, Setup};
use crate::holder::{DEFAULT_KEY, Grant, Leases};
use crate::http::Endpoint;

/// The connections of one worker to the members.
#[derive(Debug)]
pub(super) struct Members {
    endpoints: Vec<Endpoint>,
    route: Route,
}

impl Members {
    pub(super) fn new(setup: &Setup, thread: u64) -> Members {
        let endpoints = setup.nodes.iter().map(|node| Endpoint::new(node.addr));
        Members {
            endpoints: endpoints.collect(),
            route: Route::new(setup.nodes.len(), thread),
        }
    }

    async fn ask<T: Serialize, R: DeserializeOwned>(
        &mut self,
        op: &Op,
        path: &'static str,
        body: &T,
        patience: &mut Patience,
    ) -> Result<R, Failure> {
        let node = self.route.choose(op.node);
        let posted = self.endpoints[node].post(path, body, patience).await;
        let answer = posted.inspect_err(|_| self.route.avoid(node))?;
        read(&answer).inspect_err(|failure| {
            if matches!(failure, Failure::Indefinite(_)) {
                self.route.avoid(node);
            }
        })
    }

    async fn txn(
        &mut self,
        op: &Op,
        compare: Compare,
        success: Operation,
        patience: &mut Patience,
    ) -> Result<TxnResponse, Failure> {
        let txn = TxnRequest {
            compare: [compare],
            success: [success],
        };
        self.ask(op, "/v3/kv/txn", &txn, patience).await
    }
}

/// Locks and leaderships: a key that whoever creates it holds, and that ends with its lease. The
/// token is the revision at which the key was created; revisions grow over all keys.
#[derive(Debug)]
pub(super) struct LeasedKeys {
    members: Members,
    prefix: &'static str,
    thread: u64,
}

impl LeasedKeys {
    pub(super) fn new(members: Members, setup: &Setup, thread: u64) -> LeasedKeys {
        let prefix = match &*setup.workload {
            "leader" => "election",
            _ => "lock",
        };
        LeasedKeys {
            members,
            prefix,
            thread,
        }
    }
}

/// The TTL of a lease is in whole seconds: the least that is not shorter.
fn whole_seconds(ttl: Duration) -> u64 {
    ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)
}

#[async_trait(?Send)]
impl Leases for LeasedKeys {
    async fn acquire(
        &mut self,
        op: &Op,
        ttl: Duration,
        patience: &mut Patience,
    ) -> Result<Grant, Failure> {
        let grant = GrantRequest {
            ttl: whole_seconds(ttl),
        };
        let granted = self
            .members
            .ask(op, "/v3/lease/grant", &grant, patience)
            .await;
        // A lease without a key holds nothing, and ends by itself.
        let lease: GrantResponse = granted.map_err(Failure::harmless)?;
        let key = encode(format!("{}/{}", self.prefix, op.key_or(DEFAULT_KEY)));
        let free = Compare::Create {
            key: key.clone(),
            create_revision: "0".to_owned(),
        };
        let take = Operation::RequestPut(PutRequest {
            key,
            value: encode(self.thread.to_string()),
            lease: lease.id.to_string(),
        });
        let taken = self.members.txn(op, free, take, patience).await?;
        if !taken.succeeded {
            return Err(Failure::definite("held"));
        }
        Ok(Grant {
            token: taken.header.revision,
            session: lease.id,
            ttl: Duration::from_secs(lease.ttl),
        })
    }

    async fn renew(
        &mut self,
        op: &Op,
        grant: Grant,
        patience: &mut Patience,
    ) -> Result<(), Failure> {
        let id = grant.session.to_string();
        let renew = LeaseRequest { id };
        let path = "/v3/lease/keepalive";
        let alive: KeepAlive = self.members.ask(op, path, &renew, patience).await?;
        match alive.result.ttl {
            0 => Err(Failure::definite("not-held")),
            _ => Ok(()),
        }
    }

    async fn release(
        &mut self,
        op: &Op,
        grant: Grant,
        patience: &mut Patience,
    ) -> Result<(), Failure> {
        // The key goes with its lease, and nobody else's key can.
        let id = grant.session.to_string();
        let revoke = LeaseRequest { id };
        let revoked = self.members.ask(op, "/v3/lease/revoke", &revoke, patience);
        match revoked.await {
            Ok(Done {}) => Ok(()),
            Err(Failure::Definite(code)) if code == "no-session" => {
                Err(Failure::definite("not-held"))
            }
            Err(other) => Err(other),
        }
    }
}

/// Registers, sets and ids. Values are kept as JSON text; a register with null is an absent key.
#[derive(Debug)]
pub(super) struct Data {
    members: Members,
}

impl Data {
    pub(super) fn new(members: Members) -> Data {
        Data { members }
    }

    async fn read(
        &mut self,
        op: &Op,
        serializable: bool,
        patience: &mut Patience,
    ) -> Result<Value, Failure> {
        let range = RangeRequest {
            key: register(op),
            range_end: None,
            serializable,
        };
        let found = self.range(op, &range, patience).await?;
        match found.kvs.first() {
            None => Ok(Value::Null),
            Some(kv) => stored(&kv.value),
        }
    }

    async fn range(
        &mut self,
        op: &Op,
        range: &RangeRequest,
        patience: &mut Patience,
    ) -> Result<RangeResponse, Failure> {
        let found = self.members.ask(op, "/v3/kv/range", range, patience).await;
        // A read changes nothing: without an answer it simply was not done.
        found.map_err(Failure::harmless)
    }

    async fn write(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let key = register(op);
        if op.value.is_null() {
            let delete = DeleteRequest { key };
            let deleted = self
                .members
                .ask(op, "/v3/kv/deleterange", &delete, patience);
            let Done {} = deleted.await?;
        } else {
            let put = put(key, &op.value);
            let PutResponse { .. } = self.members.ask(op, "/v3/kv/put", &put, patience).await?;
        }
        Ok(op.value.clone())
    }

    async fn cas(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let Some([old, new]) = op.value.as_array().map(Vec::as_slice) else {
            return Err(Failure::bad_argument(op, "[old, new]"));
        };
        let key = register(op);
        let compare = if old.is_null() {
            let create_revision = "0".to_owned();
            let key = key.clone();
            Compare::Create {
                key,
                create_revision,
            }
        } else {
            Compare::Value {
                key: key.clone(),
                value: encode(old.to_string()),
            }
        };
        let change = if new.is_null() {
            Operation::RequestDeleteRange(DeleteRequest { key })
        } else {
            Operation::RequestPut(put(key, new))
        };
        let changed = self.members.txn(op, compare, change, patience).await?;
        if !changed.succeeded {
            return Err(Failure::definite("mismatch"));
        }
        Ok(op.value.clone())
    }

    /// An element is a key of its own, so that additions do not contend.
    async fn add(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let key = encode(format!("{}{}", set_prefix(op), op.value));
        let put = put(key, &Value::Null);
        let PutResponse { .. } = self.members.ask(op, "/v3/kv/put", &put, patience).await?;
        Ok(op.value.clone())
    }

    async fn final_read(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let prefix = set_prefix(op);
        let mut end = prefix.clone().into_bytes();
        *end.last_mut().expect("a prefix ends with a slash") += 1;
        let range = RangeRequest {
            key: encode(&prefix),
            range_end: Some(encode(end)),
            // Of one member when it is named, to compare members with each other.
            serializable: op.node.is_some(),
        };
        let found = self.range(op, &range, patience).await?;
        let element = |key: &str| {
            let key = decode(key)?;
            serde_json::from_slice(key.get(prefix.len()..)?).ok()
        };
        let elements = found.kvs.iter().map(|kv| element(&kv.key));
        elements
            .collect::<Option<Vec<Value>>>()
            .map(Value::Array)
            .ok_or_else(|| Failure::definite("bad-answer: not what was added"))
    }

    /// The revision of a write of its own.
    async fn generate(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        let put = put(encode("ids"), &Value::Null);
        let written: PutResponse = self.members.ask(op, "/v3/kv/put", &put, patience).await?;
        Ok(Value::from(written.header.revision))
    }
}

fn register(op: &Op) -> String {
    encode(format!("register/{}", op.key_or(DEFAULT_KEY)))
}

fn set_prefix(op: &Op) -> String {
    format!("set/{}/", op.key_or(DEFAULT_KEY))
}

fn put(key: String, value: &Value) -> PutRequest {
    PutRequest {
        key,
        value: encode(value.to_string()),
        lease: "0".to_owned(),
    }
}

fn stored(value: &str) -> Result<Value, Failure> {
    let value = decode(value).and_then(|text| serde_json::from_slice(&text).ok());
    value.ok_or_else(|| Failure::definite("bad-answer: not what was written"))
}

#[async_trait(?Send)]
impl Client for Data {
    async fn invoke(&mut self, op: &Op, patience: &mut Patience) -> Result<Value, Failure> {
        match &*op.f {
            "read" => self.read(op, false, patience).await,
            "read-serializable" => self.read(op, true, patience).await,
            "write" => self.write(op, patience).await,
            "cas" => self.cas(op, patience).await,
            "add" => self.add(op, patience).await,
            "final-read" => self.final_read(op, patience).await,
            "generate" => self.generate(op, patience).await,
            _ => Err(Failure::unknown_function(op)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_never_shorter_than_asked_for() {
        for (ms, s) in [
            (1, 1),
            (999, 1),
            (1_000, 1),
            (1_001, 2),
            (2_500, 3),
            (4_000, 4),
        ] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), s, "{ms} ms");
        }
    }
}
