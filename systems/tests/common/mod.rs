//! What the tests of clients against real servers share.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};
use spec::Params;
use systems::conformance::program::{Ended, Program, Question, hello};
use systems::loopback::Loopback;
use systems::protocol::NodeAddr;
use systems::{Server, System};

pub const HARNESS: &str = env!("CARGO_BIN_EXE_systems-harness");

/// A system on loopback, the vault if it is wanted, and the hello's part that names them.
pub struct Bench {
    pub system: &'static dyn System,
    pub servers: Loopback,
    pub cluster: Vec<Server>,
    pub vault: Option<Server>,
}

impl Bench {
    pub async fn start(name: &str, count: usize, fencing: Option<bool>) -> Bench {
        let system = systems::find(name).unwrap();
        let params = Params::resolve(system.params(), []).unwrap();
        let mut servers = Loopback::new(Path::new(HARNESS)).unwrap();
        let cluster = servers.cluster(system, count, &params).await.unwrap();
        let vault = match fencing {
            Some(fencing) => Some(servers.vault(fencing).await.unwrap()),
            None => None,
        };
        Bench {
            system,
            servers,
            cluster,
            vault,
        }
    }

    /// A client program of this system that answered the hello.
    pub async fn client(&self, workload: &str, params: Value) -> Program {
        let command = [HARNESS, "client", "--system", self.system.name()].map(str::to_owned);
        let mut program = Program::start(&command, None).unwrap();
        let nodes = self.cluster.iter().map(|server| NodeAddr {
            id: server.name.clone(),
            addr: self.system.client_addr(server),
        });
        let Value::Object(params): Value = params else {
            panic!("an object")
        };
        let params: Map<String, Value> = params;
        let vault = self.vault.as_ref().map(systems::vault::addr);
        let hello = hello(self.system.name(), workload, nodes.collect(), vault, params);
        program.greet(&hello).await.unwrap();
        program
    }

    /// The node that leads, as all of these nodes see it; waits until they agree.
    pub async fn leader(&self, asked: &[&Server]) -> Server {
        loop {
            let mut seen = Vec::new();
            for server in asked {
                let answer = self.servers.probe(&self.system.leader_probe(server)).await;
                let Ok(answer) = answer else { break };
                let leadership = self
                    .system
                    .leadership(&self.cluster, answer.status, &answer.body);
                seen.extend(leadership.and_then(|leadership| leadership.leader));
            }
            let agreed = seen.len() == asked.len() && seen.iter().all(|name| *name == seen[0]);
            if agreed && asked.iter().any(|server| server.name == seen[0]) {
                let leader = self.cluster.iter().find(|server| server.name == seen[0]);
                return leader.unwrap().clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Does an operation that must succeed, and tries it again while the system has no leader to do
/// it: each attempt is an operation of its own.
pub async fn until_ok(program: &mut Program, question: &Question<'_>) -> Value {
    loop {
        match program.invoke(question).await.unwrap() {
            Ended::Ok(value) => return value,
            Ended::Fail(_) | Ended::Info(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

pub async fn ok(program: &mut Program, question: &Question<'_>) -> Value {
    match program.invoke(question).await.unwrap() {
        Ended::Ok(value) => value,
        other => panic!("{question:?} came to {other:?}"),
    }
}

pub async fn fail(program: &mut Program, question: &Question<'_>) -> String {
    match program.invoke(question).await.unwrap() {
        Ended::Fail(error) => error,
        other => panic!("{question:?} came to {other:?}"),
    }
}

pub fn acquire(thread: u64, ttl_ms: u64) -> Question<'static> {
    Question::new(thread, "acquire", "L", json!({ "ttl_ms": ttl_ms }))
}

pub fn put(thread: u64, v: u64, token: u64) -> Question<'static> {
    Question::new(thread, "put", "r", json!({ "v": v, "token": token }))
}

pub fn token(value: &Value) -> u64 {
    value["token"].as_u64().unwrap()
}
