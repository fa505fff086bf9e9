//! The vault: the resource that a lock protects. One process, not replicated, on purpose simple.
//!
//! It accepts an operation only when its fencing token is at least the highest that it has seen for
//! the key, and numbers what it accepts; that order is the evidence by which a stale write is
//! known. Every accepted operation is kept and synced before it is acknowledged; the file is the
//! list that `GET /log` shows and is never shortened.

use crate::Error;
use crate::api::{VaultAck, VaultEntry, VaultFence, VaultKey, VaultOp, VaultPut, VaultValue};
use crate::faults::VaultSwitches;
use crate::frames::{FrameFile, Sync, lock_directory, replace};
use crate::web::{self, Answer, Call, Failure, Service, line, ok, stream};
use clap::Args;
use hyper::StatusCode;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use tokio::sync::{mpsc, oneshot};

/// Requests that one sync serves at most.
const BATCH_MAX: usize = 1_024;

/// Run the vault.
#[derive(Args, Clone, Debug)]
pub struct VaultArgs {
    /// Where to listen for clients
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: String,
    /// Where its file is kept
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The mistakes to make
    #[command(flatten)]
    pub switches: VaultSwitches,
}

/// What the vault contains. Pure: no file, no clock.
#[derive(Debug, Default)]
pub struct Contents {
    switches: VaultSwitches,
    accepted: Vec<VaultEntry>,
    keys: BTreeMap<String, Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    v: Value,
    token: u64,
    seq: u64,
    token_max: u64,
}

impl Contents {
    /// An empty vault.
    pub fn new(switches: VaultSwitches) -> Contents {
        Contents {
            switches,
            ..Contents::default()
        }
    }

    /// Decides about an operation and does it; returns its entry.
    ///
    /// # Errors
    /// The highest token seen for the key, when that is greater than the operation's.
    pub fn offer(
        &mut self,
        op: VaultOp,
        key: String,
        token: u64,
        v: Value,
    ) -> Result<VaultEntry, u64> {
        let token_max = self.keys.get(&key).map_or(0, |entry| entry.token_max);
        // The mistake of `--no-fencing`: nobody looks at the token.
        if token < token_max && !self.switches.no_fencing {
            return Err(token_max);
        }
        let entry = VaultEntry {
            seq: self.accepted.len() as u64 + 1,
            op,
            key,
            token,
            v,
        };
        self.take(entry.clone());
        Ok(entry)
    }

    /// Does an operation that was accepted.
    fn take(&mut self, accepted: VaultEntry) {
        let entry = self.keys.entry(accepted.key.clone()).or_default();
        match accepted.op {
            VaultOp::Put => entry.v = accepted.v.clone(),
            VaultOp::Delete => entry.v = Value::Null,
            VaultOp::Fence => {}
        }
        entry.token = accepted.token;
        entry.seq = accepted.seq;
        entry.token_max = entry.token_max.max(accepted.token);
        self.accepted.push(accepted);
    }

    /// An entry.
    pub fn get(&self, key: &str) -> VaultValue {
        let absent = VaultValue {
            v: Value::Null,
            token: 0,
            seq: 0,
        };
        let found = |e: &Entry| VaultValue {
            v: e.v.clone(),
            token: e.token,
            seq: e.seq,
        };
        self.keys.get(key).map_or(absent, found)
    }
}

enum Ask {
    Offer(
        VaultOp,
        String,
        u64,
        Value,
        oneshot::Sender<Result<u64, u64>>,
    ),
    Get(String, oneshot::Sender<VaultValue>),
    Log(oneshot::Sender<Vec<VaultEntry>>),
}

/// Runs the vault until it is terminated, in a runtime of its own.
///
/// # Errors
/// The address cannot be bound, the data directory cannot be used, or the disk fails later on.
pub fn vault(args: VaultArgs) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|source| Error::Start {
        what: "runtime",
        source,
    })?;
    runtime.block_on(async {
        let listener = web::bind(&args.listen).await?;
        let (contents, file, _lock) = open(&args.data_dir, args.switches)?;
        let (asks, asked) = mpsc::channel(BATCH_MAX);
        let (end, ended) = oneshot::channel();
        let keeper = std::thread::Builder::new().name("keeper".to_owned());
        let started = keeper.spawn(move || end.send(keep(contents, file, asked)));
        started.map_err(|source| Error::Start {
            what: "keeper thread",
            source,
        })?;
        tokio::select! {
            ended = ended => ended.unwrap_or(Err(Error::Died("keeper"))),
            () = web::serve(listener, Routes { asks }) => Ok(()),
        }
    })
}

fn open(directory: &Path, switches: VaultSwitches) -> Result<(Contents, FrameFile, File), Error> {
    let lock = lock_directory(directory)?;
    let path = directory.join("vault");
    if !path.exists() {
        let mut file = FrameFile::create(&directory.join("vault.new"), Sync::Always)?;
        file.append(&[])?;
        replace(file, &path)?;
    }
    let mut contents = Contents::new(switches);
    let (file, _) = FrameFile::open(&path, Sync::Always, |frame| {
        for entry in serde_json::Deserializer::from_slice(frame).into_iter() {
            contents.take(entry.map_err(|e| Error::Damaged {
                path: path.clone(),
                offset: 0,
                what: e.to_string(),
            })?);
        }
        Ok(())
    })?;
    Ok((contents, file, lock))
}

/// Decides what is asked, in the order in which it came; answers when that is on disk.
fn keep(
    mut contents: Contents,
    mut file: FrameFile,
    mut asked: mpsc::Receiver<Ask>,
) -> Result<(), Error> {
    let mut batch = Vec::new();
    while asked.blocking_recv_many(&mut batch, BATCH_MAX) > 0 {
        let mut frame = Vec::new();
        // A closure an answer: a read must not show what may yet be lost, so all of them wait.
        let mut answers: Vec<Box<dyn FnOnce()>> = Vec::new();
        for ask in batch.drain(..) {
            match ask {
                Ask::Offer(op, key, token, v, reply) => {
                    let decided = contents.offer(op, key, token, v);
                    if let Ok(entry) = &decided {
                        frame.extend_from_slice(&line(entry));
                    }
                    let answer = decided.map(|entry| entry.seq);
                    answers.push(Box::new(move || _ = reply.send(answer)));
                }
                Ask::Get(key, reply) => {
                    let answer = contents.get(&key);
                    answers.push(Box::new(move || _ = reply.send(answer)));
                }
                Ask::Log(reply) => {
                    let answer = contents.accepted.clone();
                    answers.push(Box::new(move || _ = reply.send(answer)));
                }
            }
        }
        if !frame.is_empty() {
            file.append(&frame)?;
        }
        answers.into_iter().for_each(|answer| answer());
    }
    Ok(())
}

struct Routes {
    asks: mpsc::Sender<Ask>,
}

impl Service for Routes {
    async fn call(&self, call: Call) -> Result<Answer, Failure> {
        match call.path.as_str() {
            "/health" => ok(&crate::api::Done {}),
            "/put" => {
                let VaultPut { key, v, token } = call.parse()?;
                self.offer(VaultOp::Put, key, token, v).await
            }
            "/fence" => {
                let VaultFence { key, token } = call.parse()?;
                self.offer(VaultOp::Fence, key, token, Value::Null).await
            }
            "/delete" => {
                let VaultFence { key, token } = call.parse()?;
                self.offer(VaultOp::Delete, key, token, Value::Null).await
            }
            "/get" => {
                let VaultKey { key } = call.parse()?;
                ok(&self.ask(|reply| Ask::Get(key, reply)).await?)
            }
            "/log" => {
                let entries = self.ask(Ask::Log).await?;
                let (lines, body) = mpsc::channel(16);
                tokio::spawn(async move {
                    for entry in entries {
                        if lines.send(line(&entry)).await.is_err() {
                            return;
                        }
                    }
                });
                stream(body)
            }
            _ => Err(Failure::definite(StatusCode::NOT_FOUND, "no-route")),
        }
    }
}

impl Routes {
    async fn offer(
        &self,
        op: VaultOp,
        key: String,
        token: u64,
        v: Value,
    ) -> Result<Answer, Failure> {
        match self
            .ask(|reply| Ask::Offer(op, key, token, v, reply))
            .await?
        {
            Ok(seq) => ok(&VaultAck { seq }),
            Err(max) => {
                let mut failure = Failure::definite(StatusCode::CONFLICT, "stale-token");
                failure.body.max = Some(max);
                Err(failure)
            }
        }
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Failure> {
        let (reply, answer) = oneshot::channel();
        let stopping = || {
            let mut failure = Failure::definite(StatusCode::SERVICE_UNAVAILABLE, "unknown");
            failure.body.definite = false;
            failure.with("the vault is stopping")
        };
        self.asks.send(ask(reply)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }
}
