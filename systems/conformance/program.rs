//! A client program as a child process, spoken to over pipes.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Error;
use crate::protocol::{ClientHello, Hello, Invoke, PROTOCOL, Reply};

/// How long a program has to start and to answer the hello: some load a virtual machine first.
pub(super) const HELLO_WITHIN: Duration = Duration::from_secs(30);

/// How long it has, over the timeout of an operation, to answer.
pub(super) const SLACK: Duration = Duration::from_secs(5);

/// How much of its standard error is kept, in lines.
const STDERR_LINES: usize = 20;

/// How an operation ended, or that it did not.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// `ok` with a value.
    Ok(Value),
    /// `fail` with an error.
    Fail(String),
    /// `info` with an error.
    Info(String),
}

/// Something unasked.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// What.
    pub f: String,
    /// The key.
    pub key: Value,
}

/// A running client program.
#[derive(Debug)]
pub struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<Vec<u8>>,
    stderr: Arc<Mutex<VecDeque<String>>>,
    /// Ends when its standard error does.
    stderr_reader: JoinHandle<()>,
    next_id: u64,
    answers: HashMap<u64, Ended>,
    /// Ids that were asked and not answered.
    open: Vec<u64>,
    /// Events, in order.
    pub told: Vec<Told>,
    /// What it said that the protocol does not allow.
    pub violations: Vec<String>,
}

/// An operation to ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct Question<'a> {
    /// The worker.
    pub thread: u64,
    /// The function.
    pub f: &'a str,
    /// The key, null for none.
    pub key: Value,
    /// The argument.
    pub value: Value,
    /// The server, if one is named.
    pub node: Option<&'a str>,
    /// The timeout.
    pub timeout: Duration,
}

impl<'a> Question<'a> {
    /// A question with a timeout of five seconds and no node.
    pub fn new(thread: u64, f: &'a str, key: impl Into<Value>, value: Value) -> Question<'a> {
        Question {
            thread,
            f,
            key: key.into(),
            value,
            node: None,
            timeout: Duration::from_secs(5),
        }
    }
}

impl Program {
    /// Starts a program in this folder or the current one.
    ///
    /// # Errors
    /// [`Error::Client`] if it cannot be executed.
    ///
    /// # Panics
    /// If the command is empty.
    pub fn start(command: &[String], dir: Option<&Path>) -> Result<Program, Error> {
        let (program, arguments) = command.split_first().expect("a command has a program");
        #[expect(
            clippy::disallowed_methods,
            reason = "there are no nodes and no agents here; the child dies with this value"
        )]
        let mut command = Command::new(program);
        if let Some(dir) = dir {
            command.current_dir(dir);
        }
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::Client(format!("cannot run `{program}`: {error}")))?;
        let (said, lines) = mpsc::unbounded_channel();
        let stdout = child.stdout.take().expect("it is piped");
        tokio::spawn(each_line(stdout, move |line| said.send(line).is_ok()));
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&stderr);
        let errors = child.stderr.take().expect("it is piped");
        let stderr_reader = tokio::spawn(each_line(errors, move |line| {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() == STDERR_LINES {
                kept.pop_front();
            }
            kept.push_back(String::from_utf8_lossy(&line).into_owned());
            true
        }));
        Ok(Program {
            stdin: child.stdin.take(),
            child,
            lines,
            stderr,
            stderr_reader,
            next_id: 1,
            answers: HashMap::new(),
            open: Vec::new(),
            told: Vec::new(),
            violations: Vec::new(),
        })
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Says hello and waits for the answer.
    ///
    /// # Errors
    /// What is wrong with the answer, or that there is none.
    pub async fn greet(&mut self, hello: &Hello) -> Result<ClientHello, String> {
        let mut line = Vec::new();
        hello.write(&mut line);
        self.send(&line).await;
        let deadline = Instant::now() + HELLO_WITHIN;
        let Some(line) = self.line(deadline).await else {
            return Err(self.silent("the hello", HELLO_WITHIN).await);
        };
        match Reply::parse(&line) {
            Ok(Reply::Hello(hello)) => Ok(hello),
            Ok(other) => Err(format!("it answered the hello with {other:?}")),
            Err(malformed) => Err(malformed.to_string()),
        }
    }

    /// Writes bytes as they are. A program that is gone is noticed when it does not answer.
    pub async fn send(&mut self, bytes: &[u8]) {
        if let Some(stdin) = &mut self.stdin {
            let written = async {
                stdin.write_all(bytes).await?;
                stdin.flush().await
            };
            if written.await.is_err() {
                self.stdin = None;
            }
        }
    }

    /// Asks for an operation without waiting, and returns its id.
    pub async fn ask(&mut self, question: &Question<'_>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let mut line = Vec::new();
        Invoke {
            id,
            process: question.thread,
            thread: question.thread,
            node: question.node.map(Into::into),
            f: question.f.into(),
            key: std::borrow::Cow::Borrowed(&question.key),
            value: std::borrow::Cow::Borrowed(&question.value),
            timeout_ms: u64::try_from(question.timeout.as_millis()).unwrap_or(u64::MAX),
        }
        .write(&mut line);
        self.open.push(id);
        self.send(&line).await;
        id
    }

    /// Asks for an operation and waits for its end.
    ///
    /// # Errors
    /// That there was no answer within the timeout and some slack.
    pub async fn invoke(&mut self, question: &Question<'_>) -> Result<Ended, String> {
        let id = self.ask(question).await;
        self.answer(id, question.timeout + SLACK).await
    }

    /// Waits for the answer to a question.
    ///
    /// # Errors
    /// That there was none.
    pub async fn answer(&mut self, id: u64, within: Duration) -> Result<Ended, String> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(ended) = self.answers.get(&id) {
                return Ok(ended.clone());
            }
            match self.line(deadline).await {
                Some(line) => self.take(&line),
                None => return Err(self.silent(&format!("id {id}"), within).await),
            }
        }
    }

    /// Takes what comes for a while, to see answers that nobody waits for.
    pub async fn listen(&mut self, lasting: Duration) {
        let deadline = Instant::now() + lasting;
        while let Some(line) = self.line(deadline).await {
            self.take(&line);
        }
    }

    /// Closes its input and waits for its end; everything that it says until then is taken.
    /// `None` if it does not end.
    pub async fn finish(&mut self, within: Duration) -> Option<ExitStatus> {
        self.stdin = None;
        self.exit(within).await
    }

    /// Waits for its end without closing its input.
    pub async fn exit(&mut self, within: Duration) -> Option<ExitStatus> {
        let status = tokio::time::timeout(within, self.child.wait()).await;
        let status = status.ok()?.ok()?;
        self.listen(SLACK).await;
        self.drain_stderr().await;
        Some(status)
    }

    /// Reads the rest of its standard error; what it started may keep that open.
    async fn drain_stderr(&mut self) {
        if !self.stderr_reader.is_finished() {
            let rest = tokio::time::timeout(SLACK, &mut self.stderr_reader);
            rest.await.ok();
        }
    }

    /// The end of its standard error, for messages.
    pub fn stderr(&self) -> String {
        let lines = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect::<Vec<_>>().join("\n")
    }

    /// Its next line, if one comes before the deadline or its end.
    async fn line(&mut self, deadline: Instant) -> Option<Vec<u8>> {
        let next = tokio::time::timeout_at(deadline, self.lines.recv()).await;
        next.ok().flatten()
    }

    fn take(&mut self, line: &[u8]) {
        let (id, ended) = match Reply::parse(line) {
            Ok(Reply::Ok { id, value }) => (id, Ended::Ok(value)),
            Ok(Reply::Fail { id, error }) => (id, Ended::Fail(error.into_owned())),
            Ok(Reply::Info { id, error }) => (id, Ended::Info(error.into_owned())),
            Ok(Reply::Event(event)) => {
                let (f, key) = (event.f.into_owned(), event.key);
                return self.told.push(Told { f, key });
            }
            Ok(Reply::Hello(_)) => return self.violations.push("a second hello".to_owned()),
            Err(malformed) => return self.violations.push(malformed.to_string()),
        };
        match self.open.iter().position(|open| *open == id) {
            Some(index) => {
                self.open.swap_remove(index);
                self.answers.insert(id, ended);
            }
            None => {
                let what = if self.answers.contains_key(&id) {
                    "was answered before"
                } else {
                    "was never asked"
                };
                let line = String::from_utf8_lossy(line);
                self.violations.push(format!("id {id} {what}: `{line}`"));
            }
        }
    }

    async fn silent(&mut self, what: &str, within: Duration) -> String {
        // Its output ends a moment before it does.
        let mut message = if self.lines.is_closed() {
            let ended = tokio::time::timeout(SLACK, self.child.wait()).await;
            self.drain_stderr().await;
            match ended {
                Ok(Ok(status)) => format!("no answer to {what}: the program ended ({status})"),
                _ => format!("no answer to {what}: the program closed its output"),
            }
        } else {
            format!("no answer to {what} within {within:?}")
        };
        let stderr = self.stderr();
        if !stderr.is_empty() {
            message.push_str("; its standard error ends:\n");
            message.push_str(&stderr);
        }
        message
    }
}

async fn each_line(stream: impl AsyncRead + Unpin, mut take: impl FnMut(Vec<u8>) -> bool) {
    let mut lines = BufReader::new(stream).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        if !take(line) {
            return;
        }
    }
}

/// A hello for these addresses.
pub fn hello(
    system: &str,
    workload: &str,
    nodes: Vec<crate::protocol::NodeAddr>,
    vault: Option<String>,
    params: Map<String, Value>,
) -> Hello {
    Hello {
        protocol: PROTOCOL,
        system: system.to_owned(),
        nodes,
        workload: workload.to_owned(),
        seed: 7,
        params,
        vault: vault.map(|addr| crate::protocol::VaultAddr { addr }),
    }
}
