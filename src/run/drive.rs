//! Drives a generator against client programs and records what happens.
//!
//! One task does everything that must be in order: it asks the generator, records an invocation
//! before it is sent and a completion after it was read, and appends what the nemesis and the
//! observers report in between. Client programs are reached through [`ClientLink`]s, whose reading
//! and writing run beside it, so that a frozen client holds up nothing but itself.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::clock::Clock;
use history::{Event, Kind, Process};
use serde_json::Value;
use std::borrow::Cow;
use systems::protocol::{Invoke, Reply};
use tokio::sync::{mpsc, watch};
use workloads::generator::{Generator, Invocation, Outcome, Update};
use workloads::{Driver as Script, Step};

use super::clients::{ClientLink, FromClient};
use super::recorder::Recorder;

/// How long the harness waits beyond an operation's own time limit before it gives it up.
const ANSWER_SLACK: u64 = 500_000_000;
/// How long what is asked of a dead client takes to fail, so that a generator without pauses does not
/// fill the history with it.
const DEAD_PAUSE: u64 = 100_000_000;
/// How long this task may wait before it looks at its clock again, in nanoseconds.
const LOOK_AGAIN: u64 = 20_000_000;

/// The client node that holds the lock now, as far as answers have shown.
#[derive(Debug, Clone, Default)]
pub struct HolderBoard(Arc<Mutex<Option<String>>>);

impl HolderBoard {
    /// The client node that was last granted the lock and has not given it up.
    pub fn holder(&self) -> Option<String> {
        self.0.lock().map_or(None, |holder| holder.clone())
    }

    fn update(&self, client: &str, f: &str, kind: Kind, value: &Value) {
        let Ok(mut holder) = self.0.lock() else {
            return;
        };
        let granted = f == "acquire" && kind == Kind::Ok && !value["token"].is_null();
        let given_up = matches!(
            (f, kind),
            ("release", Kind::Ok) | ("lost", Kind::Info) | ("renew", Kind::Fail)
        );
        if granted {
            *holder = Some(client.to_owned());
        } else if given_up && holder.as_deref() == Some(client) {
            *holder = None;
        }
    }
}

/// What a run was able to do, beside what the history says.
#[derive(Debug, Default)]
pub struct Driven {
    /// Operations that were invoked.
    pub invoked: u64,
    /// Operations that happened.
    pub ok: u64,
    /// Answers that came after the harness had given the operation up.
    pub late: u64,
    /// What the clients did against the protocol, quoted. Any is a failure of the harness.
    pub faults: Vec<String>,
    /// Whether somebody ended it before the generator did.
    pub cancelled: bool,
}

/// Everything that a drive needs.
pub struct Driver {
    clock: Clock,
    recorder: Recorder,
    clients: Vec<ClientLink>,
    incoming: mpsc::Receiver<(usize, FromClient)>,
    outside: mpsc::UnboundedReceiver<Event>,
    threads: Vec<Thread>,
    servers: Vec<String>,
    op_timeout: u64,
    issued: u64,
    open: usize,
    expired: HashSet<u64>,
    holder: HolderBoard,
    event: Event,
    driven: Driven,
}

/// A client thread: one logical process at a time.
struct Thread {
    client: usize,
    process: u64,
    open: Option<Open>,
}

struct Open {
    id: u64,
    op: Invocation,
    deadline: u64,
}

/// What makes a [`Driver`].
pub struct Setup {
    /// The clock of the run.
    pub clock: Clock,
    /// Where events go.
    pub recorder: Recorder,
    /// The client programs.
    pub clients: Vec<ClientLink>,
    /// What the client programs say.
    pub incoming: mpsc::Receiver<(usize, FromClient)>,
    /// Events of nemesis and observers; their times are set here.
    pub outside: mpsc::UnboundedReceiver<Event>,
    /// How many threads there are in all; thread `t` belongs to client `t % clients`.
    pub threads: usize,
    /// The server nodes by name.
    pub servers: Vec<String>,
    /// How long one operation may take, in nanoseconds.
    pub op_timeout: u64,
    /// Where the holder of the lock is made known.
    pub holder: HolderBoard,
}

impl Driver {
    /// A driver that has done nothing yet.
    pub fn new(setup: Setup) -> Driver {
        let clients = setup.clients.len().max(1);
        let threads: Vec<Thread> = (0..setup.threads)
            .map(|thread| Thread {
                client: thread % clients,
                process: thread as u64,
                open: None,
            })
            .collect();
        Driver {
            clock: setup.clock,
            recorder: setup.recorder,
            clients: setup.clients,
            incoming: setup.incoming,
            outside: setup.outside,
            threads,
            servers: setup.servers,
            op_timeout: setup.op_timeout,
            issued: 0,
            open: 0,
            expired: HashSet::new(),
            holder: setup.holder,
            event: Event::new(0, Process::Number(0), Kind::Info, "", Value::Null),
            driven: Driven::default(),
        }
    }

    /// Runs a generator to its end, or until `cancel` says so, and waits for what is open.
    pub async fn run(&mut self, generator: Box<dyn Generator>, cancel: &mut watch::Receiver<bool>) {
        let mut script = Script::new(generator, self.threads.len());
        let mut done = false;
        loop {
            if *cancel.borrow() {
                self.driven.cancelled = true;
                self.abandon("cancelled", &mut script);
                break;
            }
            self.expire(&mut script);
            let wake = if done {
                u64::MAX
            } else {
                self.issue(&mut script, &mut done)
            };
            self.send();
            self.recorder.tick();
            if done && self.open == 0 {
                break;
            }
            let now = self.clock.now();
            let wake = wake.min(self.next_deadline()).min(now + LOOK_AGAIN);
            let sleep = tokio::time::sleep_until(self.clock.instant(wake).into());
            tokio::select! {
                biased;
                message = self.incoming.recv() => match message {
                    Some((client, message)) => self.take(client, message, Some(&mut script)),
                    None => done = true,
                },
                Some(event) = self.outside.recv() => self.record_outside(event),
                Ok(()) = cancel.changed() => {},
                () = sleep => {},
            }
            while let Ok((client, message)) = self.incoming.try_recv() {
                self.take(client, message, Some(&mut script));
            }
            while let Ok(event) = self.outside.try_recv() {
                self.record_outside(event);
            }
        }
    }

    /// Records what nemesis and observers report until `until` is over.
    pub async fn idle<T>(&mut self, until: impl Future<Output = T>) -> T {
        tokio::pin!(until);
        loop {
            tokio::select! {
                biased;
                Some(event) = self.outside.recv() => self.record_outside(event),
                Some((client, message)) = self.incoming.recv() => {
                    self.take(client, message, None);
                },
                result = &mut until => {
                    while let Ok(event) = self.outside.try_recv() {
                        self.record_outside(event);
                    }
                    self.recorder.tick();
                    return result;
                },
                () = tokio::time::sleep(Duration::from_nanos(LOOK_AGAIN)) => self.recorder.tick(),
            }
        }
    }

    /// Ends the drive and gives back what was recorded and found out.
    pub fn finish(mut self) -> (Recorder, Driven) {
        while let Ok(event) = self.outside.try_recv() {
            self.record_outside(event);
        }
        (self.recorder, self.driven)
    }

    /// What was done so far.
    pub fn driven(&self) -> &Driven {
        &self.driven
    }

    /// Issues everything that is due; returns when to ask again.
    fn issue(&mut self, script: &mut Script, done: &mut bool) -> u64 {
        loop {
            match script.step(self.clock.now()) {
                Step::Invoke(op) => self.invoke(op),
                Step::Wait(until) => return until,
                Step::Done => {
                    *done = true;
                    return u64::MAX;
                }
            }
        }
    }

    fn invoke(&mut self, op: Invocation) {
        let index = op.thread;
        let thread = &self.threads[index];
        let (client, process) = (thread.client, thread.process);
        let id = self.issued * self.threads.len() as u64 + index as u64;
        self.issued += 1;
        let node = op
            .server
            .and_then(|server| self.servers.get(server))
            .map(String::as_str);
        self.event.process = Process::Number(process);
        self.event.kind = Kind::Invoke;
        self.event.f.clear();
        self.event.f.push_str(op.f);
        self.event.key = (!op.key.is_null()).then(|| op.key.clone());
        self.event.value.clone_from(&op.value);
        self.event.node = node.map(str::to_owned);
        self.event.error = None;
        let now = self.recorder.record(&mut self.event);
        self.driven.invoked += 1;
        let line = Invoke {
            id,
            process,
            thread: index as u64,
            node: node.map(Cow::Borrowed),
            f: Cow::Borrowed(op.f),
            key: Cow::Borrowed(&op.key),
            value: Cow::Borrowed(&op.value),
            timeout_ms: self.op_timeout / 1_000_000,
        };
        let patience = if self.clients[client].is_dead() {
            DEAD_PAUSE
        } else {
            line.write(self.clients[client].buffer());
            self.op_timeout + ANSWER_SLACK
        };
        self.threads[index].open = Some(Open {
            id,
            op,
            deadline: now + patience,
        });
        self.open += 1;
    }

    fn send(&mut self) {
        for client in &mut self.clients {
            client.send();
        }
    }

    fn next_deadline(&self) -> u64 {
        if self.open == 0 {
            return u64::MAX;
        }
        let open = self
            .threads
            .iter()
            .filter_map(|thread| thread.open.as_ref());
        open.map(|open| open.deadline).min().unwrap_or(u64::MAX)
    }

    /// Gives up operations that were not answered in time.
    fn expire(&mut self, script: &mut Script) {
        if self.open == 0 {
            return;
        }
        let now = self.clock.now();
        for index in 0..self.threads.len() {
            if let Some(open) = &self.threads[index].open
                && open.deadline <= now
            {
                if self.clients[self.threads[index].client].is_dead() {
                    // What was open when it died has ended with it; this was never sent.
                    self.complete(
                        index,
                        Kind::Fail,
                        None,
                        Some("client is dead"),
                        Some(script),
                    );
                } else {
                    self.expired.insert(open.id);
                    self.complete(index, Kind::Info, None, Some("no answer"), Some(script));
                }
            }
        }
    }

    fn abandon(&mut self, why: &str, script: &mut Script) {
        for index in 0..self.threads.len() {
            if let Some(open) = &self.threads[index].open {
                self.expired.insert(open.id);
                self.complete(index, Kind::Info, None, Some(why), Some(script));
            }
        }
    }

    fn take(&mut self, client: usize, message: FromClient, mut script: Option<&mut Script>) {
        match message {
            FromClient::Bytes(bytes) => {
                let mut carry = self.clients[client].take_carry();
                let mut rest: &[u8] = &bytes;
                while let Some(end) = memchr(b'\n', rest) {
                    if carry.is_empty() {
                        self.line(client, &rest[..end], script.as_deref_mut());
                    } else {
                        carry.extend_from_slice(&rest[..end]);
                        self.line(client, &carry, script.as_deref_mut());
                        carry.clear();
                    }
                    rest = &rest[end + 1..];
                }
                carry.extend_from_slice(rest);
                self.clients[client].put_carry(carry);
            }
            FromClient::Closed => {
                self.clients[client].set_dead();
                for index in 0..self.threads.len() {
                    let thread = &self.threads[index];
                    if thread.client == client && thread.open.is_some() {
                        let script = script.as_deref_mut();
                        self.complete(index, Kind::Info, None, Some("client died"), script);
                    }
                }
            }
        }
    }

    fn line(&mut self, client: usize, line: &[u8], script: Option<&mut Script>) {
        let reply = match Reply::parse(line) {
            Ok(reply) => reply,
            Err(error) => return self.fault(client, &error.to_string()),
        };
        match reply {
            Reply::Ok { id, value } => self.answer(client, id, Kind::Ok, value, None, script),
            Reply::Fail { id, error } => {
                self.answer(client, id, Kind::Fail, Value::Null, Some(&error), script);
            }
            Reply::Info { id, error } => {
                self.answer(client, id, Kind::Info, Value::Null, Some(&error), script);
            }
            Reply::Event(event) => {
                let key = (!event.key.is_null()).then_some(event.key);
                self.unasked(client, event.process, &event.f, key, event.value, script);
            }
            Reply::Hello(_) => self.fault(client, "a second hello"),
        }
    }

    fn answer(
        &mut self,
        client: usize,
        id: u64,
        kind: Kind,
        value: Value,
        error: Option<&str>,
        script: Option<&mut Script>,
    ) {
        // The thread is part of the id, so that it need not be looked up.
        let index = usize::try_from(id % self.threads.len().max(1) as u64).unwrap_or(0);
        let matches = |thread: &Thread| {
            thread.client == client && thread.open.as_ref().is_some_and(|open| open.id == id)
        };
        let index = self
            .threads
            .get(index)
            .filter(|&thread| matches(thread))
            .map(|_| index);
        match index {
            Some(index) => self.complete(index, kind, Some(value), error, script),
            None if self.expired.remove(&id) => self.driven.late += 1,
            None => {
                self.fault(client, &format!("an answer to id {id}, which is not open"));
            }
        }
    }

    fn complete(
        &mut self,
        index: usize,
        kind: Kind,
        value: Option<Value>,
        error: Option<&str>,
        script: Option<&mut Script>,
    ) {
        let Some(open) = self.threads[index].open.take() else {
            return;
        };
        self.open -= 1;
        let thread = &self.threads[index];
        let op = open.op;
        let value = match (kind, value) {
            (Kind::Ok, Some(value)) => value,
            // What a failed or indeterminate operation was about is known from its invocation.
            _ => op.value.clone(),
        };
        self.event.process = Process::Number(thread.process);
        self.event.kind = kind;
        self.event.f.clear();
        self.event.f.push_str(op.f);
        self.event.key = (!op.key.is_null()).then(|| op.key.clone());
        self.event.value = value;
        self.event.node = op
            .server
            .and_then(|server| self.servers.get(server))
            .cloned();
        self.event.error = error.map(str::to_owned);
        let now = self.recorder.record(&mut self.event);
        let outcome = match kind {
            Kind::Ok => Outcome::Ok,
            Kind::Fail => Outcome::Fail,
            Kind::Info | Kind::Invoke => Outcome::Info,
        };
        if kind == Kind::Ok {
            self.driven.ok += 1;
        }
        let client = thread.client;
        self.holder
            .update(self.clients[client].name(), op.f, kind, &self.event.value);
        if outcome == Outcome::Info {
            self.threads[index].process += self.threads.len() as u64;
        }
        if let Some(script) = script {
            script.report(&Update {
                time: now,
                thread: index,
                f: op.f,
                key: &op.key,
                value: &self.event.value,
                error,
                outcome,
            });
        }
    }

    fn unasked(
        &mut self,
        client: usize,
        process: Option<u64>,
        f: &str,
        key: Option<Value>,
        value: Value,
        script: Option<&mut Script>,
    ) {
        let threads = self.threads.len() as u64;
        let index = match process {
            Some(process) => usize::try_from(process % threads.max(1)).unwrap_or(0),
            None => client,
        };
        let Some(thread) = self
            .threads
            .get(index)
            .filter(|thread| thread.client == client)
        else {
            return self.fault(client, "an event of a process that is not its own");
        };
        let mut event = Event::new(
            0,
            Process::Number(thread.process),
            Kind::Info,
            f,
            value.clone(),
        );
        event.key.clone_from(&key);
        let now = self.recorder.record(&mut event);
        self.holder
            .update(self.clients[client].name(), f, Kind::Info, &value);
        if let Some(script) = script {
            script.report(&Update {
                time: now,
                thread: index,
                f,
                key: key.as_ref().unwrap_or(&Value::Null),
                value: &value,
                error: None,
                outcome: Outcome::Unasked,
            });
        }
    }

    fn record_outside(&mut self, mut event: Event) {
        self.recorder.record(&mut event);
    }

    fn fault(&mut self, client: usize, what: &str) {
        const KEPT: usize = 20;
        if self.driven.faults.len() < KEPT {
            self.driven
                .faults
                .push(format!("client {}: {what}", self.clients[client].name()));
        }
    }
}

fn memchr(byte: u8, haystack: &[u8]) -> Option<usize> {
    haystack.iter().position(|&candidate| candidate == byte)
}

#[cfg(test)]
mod tests;
