//! What can be checked without a system: how a program talks, and what it makes of servers that
//! misbehave.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::program::{Ended, HELLO_WITHIN, Program, Question, SLACK, hello};
use super::servers::{BadServer, Manner};
use super::{Check, Conformance, Outcome, violations};
use crate::Error;
use crate::protocol::{ClientHello, Hello, NodeAddr};

/// How long operations wait for servers that do not answer.
const TIMEOUT: Duration = Duration::from_millis(500);

/// How many operations are open at once at most in the check of that.
const OPEN_MAX: u32 = 64;

/// A change to the system under a workload, and the functions that it needs at least.
struct Vocabulary {
    change: Question<'static>,
    needs: &'static [&'static str],
}

fn vocabulary(workload: &str) -> Result<Vocabulary, Error> {
    let (change, needs): (_, &[&str]) = match workload {
        // With a token of its own, the write needs no lease.
        "lock" | "leader" => (
            Question::new(1, "put", "r", json!({"v": 1, "token": 1})),
            &["acquire", "renew", "release", "put", "get"],
        ),
        "register" => (
            Question::new(1, "write", "x", json!(1)),
            &["read", "write", "cas"],
        ),
        "set" => (
            Question::new(1, "add", "s", json!(1)),
            &["add", "final-read"],
        ),
        "ids" => (
            Question::new(1, "generate", Value::Null, Value::Null),
            &["generate"],
        ),
        other => {
            let known = super::WORKLOADS.join(", ");
            return Err(Error::Unsupported(format!(
                "no conformance test for the workload `{other}` (one of {known})"
            )));
        }
    };
    let change = Question {
        timeout: TIMEOUT,
        ..change
    };
    Ok(Vocabulary { change, needs })
}

/// The checks of one workload.
struct Dialogue<'a> {
    conformance: &'a Conformance,
    workload: &'a str,
    vocabulary: Vocabulary,
    checks: &'a mut Vec<Check>,
}

/// Runs the checks that need no system.
pub(super) async fn run(
    conformance: &Conformance,
    workload: &str,
    checks: &mut Vec<Check>,
) -> Result<(), Error> {
    let mut dialogue = Dialogue {
        conformance,
        workload,
        vocabulary: vocabulary(workload)?,
        checks,
    };
    if dialogue.greets().await? {
        dialogue.absent().await?;
        dialogue.silent().await?;
        dialogue.hangs_up().await?;
        dialogue.bad_line().await?;
    }
    Ok(())
}

impl Dialogue<'_> {
    fn note(&mut self, name: &'static str, outcome: Outcome) {
        self.checks.push(Check {
            workload: self.workload.to_owned(),
            name,
            outcome,
        });
    }

    /// A hello in which every address is that of one server.
    fn hello(&self, server: &BadServer) -> Hello {
        let addr = server.addr.to_string();
        let node = NodeAddr {
            id: "n1".to_owned(),
            addr: addr.clone(),
        };
        let (system, workload) = (&self.conformance.system, self.workload);
        hello(system, workload, vec![node], Some(addr), Map::new())
    }

    /// A fresh program that answered the hello.
    async fn start(
        &self,
        server: &BadServer,
    ) -> Result<Result<(Program, ClientHello), String>, Error> {
        let mut program = Program::start(&self.conformance.command, None)?;
        let greeted = program.greet(&self.hello(server)).await;
        Ok(greeted.map(|hello| (program, hello)))
    }

    /// The hello, what it offers, what is not a function, and the end of input.
    async fn greets(&mut self) -> Result<bool, Error> {
        let server = BadServer::start(Manner::Absent).await?;
        let (mut program, hello) = match self.start(&server).await? {
            Ok(started) => started,
            Err(found) => {
                let expected = format!(
                    "as the first line on its output, within {HELLO_WITHIN:?}, its own hello"
                );
                self.note(
                    "answers the hello",
                    Outcome::failed(found, expected, "Hello"),
                );
                return Ok(false);
            }
        };
        self.note("answers the hello", Outcome::Passed);
        let missing: Vec<&str> = self
            .vocabulary
            .needs
            .iter()
            .copied()
            .filter(|f| !hello.can.iter().any(|can| can == f))
            .collect();
        self.note(
            "knows the functions",
            if missing.is_empty() {
                Outcome::Passed
            } else {
                let needs = self.vocabulary.needs.join(", ");
                Outcome::failed(
                    format!("`can` is {:?}, without {}", hello.can, missing.join(", ")),
                    format!("for the workload `{}`: {needs}", self.workload),
                    "Hello",
                )
            },
        );
        let question = Question::new(1, "no-such-function", Value::Null, Value::Null);
        let ended = program.invoke(&question).await;
        self.note(
            "fails an unknown function",
            match ended {
                Ok(Ended::Fail(_)) => Outcome::Passed,
                other => wrong(other, "`fail`, for nothing was done", "Operations"),
            },
        );
        let status = program.finish(SLACK).await;
        self.note(
            "ends with its input, status 0",
            match status {
                Some(status) if status.success() => Outcome::Passed,
                Some(status) => Outcome::failed(
                    format!("{status}; its standard error ends: {}", program.stderr()),
                    "exit status 0",
                    "Operations",
                ),
                None => Outcome::failed(
                    "it was still running",
                    format!("its end within {SLACK:?} after the end of its input"),
                    "Operations",
                ),
            },
        );
        self.note(
            "prints nothing else",
            violations(&program).unwrap_or(Outcome::Passed),
        );
        Ok(true)
    }

    /// A program before a server of some manner, the end of a change there, and what it is called.
    async fn change(
        &mut self,
        manner: Manner,
    ) -> Result<(Program, BadServer, Result<Ended, String>), Error> {
        let server = BadServer::start(manner).await?;
        let (mut program, _) = self.start(&server).await?.map_err(Error::Client)?;
        let ended = program.invoke(&self.vocabulary.change).await;
        Ok((program, server, ended))
    }

    async fn absent(&mut self) -> Result<(), Error> {
        let (program, _, ended) = self.change(Manner::Absent).await?;
        self.note(
            "nobody listens: fail or info",
            match ended {
                Ok(Ended::Fail(_) | Ended::Info(_)) => {
                    violations(&program).unwrap_or(Outcome::Passed)
                }
                other => wrong(
                    other,
                    "`fail` (nothing was sent) or `info`, within `timeout_ms` and some slack",
                    "Operations",
                ),
            },
        );
        Ok(())
    }

    async fn silent(&mut self) -> Result<(), Error> {
        let (program, server, ended) = self.change(Manner::Silent).await?;
        self.note(
            "no answer: info in time",
            match ended {
                Ok(Ended::Info(_)) if server.requests() > 0 => {
                    violations(&program).unwrap_or(Outcome::Passed)
                }
                Ok(Ended::Info(error)) => Outcome::failed(
                    format!("`info` ({error}) though nothing was sent"),
                    "the request is sent to the address in the hello",
                    "Hello",
                ),
                other => wrong(
                    other,
                    "`info`: the request was sent and may have been carried out",
                    "Operations",
                ),
            },
        );
        drop(program);
        self.side_by_side().await
    }

    /// As many operations at once as it says that it can do.
    async fn side_by_side(&mut self) -> Result<(), Error> {
        let server = BadServer::start(Manner::Silent).await?;
        let (mut program, hello) = self.start(&server).await?.map_err(Error::Client)?;
        let count = hello.max_in_flight.min(OPEN_MAX);
        let mut ids = Vec::new();
        for thread in 0..count {
            let question = Question {
                thread: thread.into(),
                ..self.vocabulary.change.clone()
            };
            ids.push(program.ask(&question).await);
        }
        // All wait for the same time side by side; one after another they would need the sum.
        let mut answered = 0;
        let mut problem = None;
        for id in ids {
            match program.answer(id, TIMEOUT + SLACK).await {
                Ok(_) => answered += 1,
                Err(found) => {
                    problem = Some(found);
                    break;
                }
            }
        }
        let outcome = match problem {
            Some(found) => Outcome::failed(
                format!("{answered} of {count} answered in time; {found}"),
                format!(
                    "`max_in_flight` ({}) operations at once, each within its timeout",
                    hello.max_in_flight
                ),
                "Operations",
            ),
            None => violations(&program).unwrap_or(Outcome::Passed),
        };
        self.note("works side by side", outcome);
        Ok(())
    }

    async fn hangs_up(&mut self) -> Result<(), Error> {
        let (mut program, server, ended) = self.change(Manner::HangsUp).await?;
        self.note(
            "a broken connection: info",
            match ended {
                Ok(Ended::Info(_)) => Outcome::Passed,
                other => wrong(
                    other,
                    "`info`: the request was sent and may have been carried out",
                    "Operations",
                ),
            },
        );
        program.listen(2 * TIMEOUT).await;
        let requests = server.requests();
        self.note(
            "does not send again",
            if requests <= 1 {
                violations(&program).unwrap_or(Outcome::Passed)
            } else {
                Outcome::failed(
                    format!("{requests} connections carried a request for one operation"),
                    "one: a client never retries",
                    "What a client must not do",
                )
            },
        );
        Ok(())
    }

    async fn bad_line(&mut self) -> Result<(), Error> {
        let server = BadServer::start(Manner::Absent).await?;
        let (mut program, _) = self.start(&server).await?.map_err(Error::Client)?;
        program.send(b"{\"x\":\"invoke\",\"id\":\n").await;
        let status = program.exit(SLACK).await;
        let outcome = match status {
            Some(status) if status.success() => Outcome::failed(
                "exit status 0 after a line that is not JSON",
                "a status other than 0, and words on standard error",
                "Operations",
            ),
            Some(_) if program.stderr().is_empty() => Outcome::failed(
                "nothing on standard error after a line that is not JSON",
                "words that quote it",
                "Operations",
            ),
            Some(_) => violations(&program).unwrap_or(Outcome::Passed),
            None => Outcome::failed(
                "it went on after a line that is not JSON",
                "its end, with a status other than 0",
                "Operations",
            ),
        };
        self.note("ends at a line that it cannot read", outcome);
        Ok(())
    }
}

/// What an operation came to, when that is wrong.
pub(super) fn wrong(
    ended: Result<Ended, String>,
    expected: impl ToString,
    section: &'static str,
) -> Outcome {
    let found = match ended {
        Ok(Ended::Ok(value)) => format!("`ok` with {value}"),
        Ok(Ended::Fail(error)) => format!("`fail`: {error}"),
        Ok(Ended::Info(error)) => format!("`info`: {error}"),
        Err(silence) => silence,
    };
    Outcome::failed(found, expected, section)
}
