//! What the operations of a program do to a real conclave node and a real vault. One node without
//! faults: whatever is wrong here is the program's doing.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};
use spec::Params;

use super::dialogue::wrong;
use super::program::{Ended, Program, Question, hello};
use super::{Check, Conformance, Outcome, violations};
use crate::loopback::Loopback;
use crate::protocol::NodeAddr;
use crate::{Error, System, vault};

/// How long the locks of the checks last.
const TTL_MS: u64 = 20_000;

/// A lock that is left alone: short, but long enough that a busy machine does not lose it at once.
const SHORT_TTL_MS: u64 = 1_500;

/// By when a lock that nobody renews is free again: its TTL, two election timeouts, some slack.
const FREE_WITHIN: Duration = Duration::from_secs(10);

const SECTION: &str = "Functions";

/// Runs the checks against a node and a vault.
pub(super) async fn run(conformance: &Conformance, checks: &mut Vec<Check>) -> Result<(), Error> {
    for workload in &conformance.workloads {
        let mut session = Session::start(conformance, &conformance.exe, workload).await?;
        match &**workload {
            "lock" | "leader" => session.lock().await,
            "register" => session.register().await,
            "set" => session.set().await,
            _ => session.ids().await,
        }
        let quiet = violations(&session.program).unwrap_or(Outcome::Passed);
        session.note("prints nothing else", quiet);
        checks.append(&mut session.checks);
    }
    Ok(())
}

struct Session {
    workload: String,
    program: Program,
    checks: Vec<Check>,
    /// Keeps the node and the vault alive.
    _servers: Loopback,
}

impl Session {
    async fn start(
        conformance: &Conformance,
        exe: &Path,
        workload: &str,
    ) -> Result<Session, Error> {
        let mut servers = Loopback::new(exe)?;
        let system: &dyn System = crate::find("conclave").expect("it is in the list");
        let params = Params::resolve(system.params(), []).expect("defaults are valid");
        let cluster = servers.cluster(system, 1, &params).await?;
        let vault = servers.vault(true).await?;
        let nodes = cluster.iter().map(|server| NodeAddr {
            id: server.name.clone(),
            addr: system.client_addr(server),
        });
        let hello = hello(
            &conformance.system,
            workload,
            nodes.collect(),
            Some(vault::addr(&vault)),
            Map::new(),
        );
        let mut program = Program::start(&conformance.command, None)?;
        program.greet(&hello).await.map_err(Error::Client)?;
        Ok(Session {
            workload: workload.to_owned(),
            program,
            checks: Vec::new(),
            _servers: servers,
        })
    }

    fn note(&mut self, name: &'static str, outcome: Outcome) {
        let workload = self.workload.clone();
        self.checks.push(Check {
            workload,
            name,
            outcome,
        });
    }

    /// Does an operation and checks how it ends.
    async fn expect(
        &mut self,
        name: &'static str,
        (thread, f, key, value): (u64, &str, &str, Value),
        expected: &str,
        as_expected: impl Fn(&Ended) -> bool,
    ) -> Result<Ended, String> {
        let asked = format!("{f} {value} of thread {thread}");
        let ended = self
            .program
            .invoke(&Question::new(thread, f, key, value))
            .await;
        let outcome = match &ended {
            Ok(ended) if as_expected(ended) => Outcome::Passed,
            _ => match wrong(ended.clone(), expected, SECTION) {
                Outcome::Failed {
                    found,
                    expected,
                    section,
                } => Outcome::failed(format!("{asked} came to {found}"), expected, section),
                other => other,
            },
        };
        self.note(name, outcome);
        ended
    }

    async fn acquire(&mut self, name: &'static str, thread: u64, key: &str, ttl_ms: u64) -> u64 {
        let acquire = (thread, "acquire", key, json!({"ttl_ms": ttl_ms}));
        let expected = "`ok` with a `token`, a whole number above 0";
        let ended = self
            .expect(name, acquire, expected, |ended| token(ended) > 0)
            .await;
        ended.as_ref().map_or(0, token)
    }

    async fn lock(&mut self) {
        let first = self.acquire("acquires a free lock", 1, "L", TTL_MS).await;
        let other = (2, "acquire", "L", json!({"ttl_ms": TTL_MS}));
        self.expect("fails on a held lock", other, "`fail`, `held`", is_fail)
            .await
            .ok();
        let renew = (1, "renew", "L", json!({"ttl_ms": TTL_MS}));
        self.expect("renews", renew, "`ok`", is_ok).await.ok();
        let not_mine = (2, "renew", "L", json!({"ttl_ms": TTL_MS}));
        self.expect(
            "renews only its own",
            not_mine,
            "`fail`, `not-held`",
            is_fail,
        )
        .await
        .ok();
        self.put("writes under its token", 1, 1, first).await;
        self.get("reads what was written", 1, first).await;
        self.expect("releases", (1, "release", "L", Value::Null), "`ok`", is_ok)
            .await
            .ok();
        let second = self
            .acquire("acquires what was released", 2, "L", TTL_MS)
            .await;
        let grows = if second > first {
            Outcome::Passed
        } else {
            let found = format!("token {second} after {first}");
            Outcome::failed(found, "a larger token for a later grant", SECTION)
        };
        self.note("passes tokens on as they are", grows);
        self.put("writes under the new token", 2, 2, second).await;
        let stale = (1, "put", "r", json!({"v": 3, "token": first}));
        let refused =
            |ended: &Ended| matches!(ended, Ended::Fail(error) if error.starts_with("stale-token"));
        let expected =
            "`fail`, `stale-token`: it shows the token that it is given, and the vault refuses it";
        self.expect("reports a refused token", stale, expected, refused)
            .await
            .ok();
        self.get("wrote nothing then", 2, second).await;
        self.left_alone().await;
    }

    async fn put(&mut self, name: &'static str, thread: u64, v: u64, token: u64) {
        let put = (thread, "put", "r", json!({"v": v, "token": token}));
        let expected = format!("`ok` with \"v\": {v}, \"token\": {token} and a \"seq\"");
        let right = |ended: &Ended| {
            matches!(ended, Ended::Ok(value)
            if value["v"] == v && value["token"] == token && value["seq"].is_u64())
        };
        self.expect(name, put, &expected, right).await.ok();
    }

    async fn get(&mut self, name: &'static str, v: u64, token: u64) {
        let expected = format!("`ok` with \"v\": {v} and \"token\": {token}");
        let right = |ended: &Ended| {
            matches!(ended, Ended::Ok(value)
            if value["v"] == v && value["token"] == token)
        };
        self.expect(name, (3, "get", "r", Value::Null), &expected, right)
            .await
            .ok();
    }

    /// A lock that is not renewed must become free: nothing may keep it alive in the background.
    async fn left_alone(&mut self) {
        self.acquire("acquires for a short time", 4, "M", SHORT_TTL_MS)
            .await;
        let deadline = tokio::time::Instant::now() + FREE_WITHIN;
        let outcome = loop {
            let acquire = Question::new(5, "acquire", "M", json!({"ttl_ms": TTL_MS}));
            match self.program.invoke(&acquire).await {
                Ok(Ended::Ok(_)) => break Outcome::Passed,
                Ok(Ended::Fail(_)) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                other => {
                    let expected = format!(
                        "a lease of {SHORT_TTL_MS} ms that is not renewed ends within {FREE_WITHIN:?}"
                    );
                    break wrong(other, expected, "What a client must not do");
                }
            }
        };
        self.note("keeps nothing alive by itself", outcome);
        let late = (4, "renew", "M", json!({"ttl_ms": SHORT_TTL_MS}));
        self.expect(
            "cannot renew what ended",
            late,
            "`fail`, `not-held`",
            is_fail,
        )
        .await
        .ok();
    }

    async fn register(&mut self) {
        let nothing = |ended: &Ended| *ended == Ended::Ok(Value::Null);
        let is = |v: u64| move |ended: &Ended| *ended == Ended::Ok(json!(v));
        let pair = |ended: &Ended| *ended == Ended::Ok(json!([1, 2]));
        let read = (1, "read", "x", Value::Null);
        self.expect(
            "reads nothing at first",
            read.clone(),
            "`ok` with null",
            nothing,
        )
        .await
        .ok();
        let write = (1, "write", "x", json!(1));
        self.expect("writes", write, "`ok` with 1", is(1))
            .await
            .ok();
        self.expect("reads what was written", read.clone(), "`ok` with 1", is(1))
            .await
            .ok();
        let cas = (2, "cas", "x", json!([1, 2]));
        self.expect("compares and sets", cas, "`ok` with [1, 2]", pair)
            .await
            .ok();
        let cas = (2, "cas", "x", json!([1, 3]));
        self.expect("fails on a mismatch", cas, "`fail`, `mismatch`", is_fail)
            .await
            .ok();
        self.expect("reads what was set", read, "`ok` with 2", is(2))
            .await
            .ok();
        let other = (1, "read", "y", Value::Null);
        self.expect("keeps keys apart", other, "`ok` with null", nothing)
            .await
            .ok();
    }

    async fn set(&mut self) {
        for v in [1, 2] {
            let right = |ended: &Ended| *ended == Ended::Ok(json!(v));
            let add = (v, "add", "s", json!(v));
            self.expect("adds", add, "`ok` with the element", right)
                .await
                .ok();
        }
        let both = |ended: &Ended| {
            let Ended::Ok(Value::Array(values)) = ended else {
                return false;
            };
            values.len() == 2 && values.contains(&json!(1)) && values.contains(&json!(2))
        };
        let read = (1, "final-read", "s", Value::Null);
        self.expect("reads all elements", read, "`ok` with 1 and 2", both)
            .await
            .ok();
    }

    async fn ids(&mut self) {
        let some = |ended: &Ended| matches!(ended, Ended::Ok(value) if !value.is_null());
        let generate = || (1, "generate", "", Value::Null);
        let first = self
            .expect("generates an id", generate(), "`ok` with an id", some)
            .await;
        let another = move |ended: &Ended| some(ended) && Ok(ended) != first.as_ref();
        self.expect(
            "generates another",
            generate(),
            "`ok` with another id",
            another,
        )
        .await
        .ok();
    }
}

fn token(ended: &Ended) -> u64 {
    match ended {
        Ended::Ok(value) => value["token"].as_u64().unwrap_or(0),
        _ => 0,
    }
}

fn is_ok(ended: &Ended) -> bool {
    matches!(ended, Ended::Ok(_))
}

fn is_fail(ended: &Ended) -> bool {
    matches!(ended, Ended::Fail(_))
}
