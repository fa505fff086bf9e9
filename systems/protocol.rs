//! The client protocol: JSON lines between the harness and a client program, as types.
//!
//! The harness sends one [`Hello`] and then [`Invoke`] lines; the client answers the hello once and
//! each id once, and may tell things unasked. What each line looks like, and what a client must do,
//! is written for people in `docs/client-protocol.md`; `schism client-test` checks it. Nothing here
//! reads or writes a descriptor: the client's side of that is in [`crate::driver`].
//!
//! Both ends handle hundreds of thousands of lines a second, so that lines are written by hand into
//! a buffer that the caller keeps, and read without copying names. Reading is strict: a key that
//! does not belong to a line of its kind is an error, so that a misspelt one is never ignored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the protocol that this crate speaks.
pub const PROTOCOL: u32 = 1;

/// How much of a bad line is quoted, in bytes.
const QUOTED_BYTES_MAX: usize = 300;

/// A line that the protocol does not allow, quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} in the line `{line}`")]
pub struct Malformed {
    /// What is wrong with it.
    pub problem: String,
    /// The line, shortened when it is long.
    pub line: String,
}

impl Malformed {
    fn new(problem: impl ToString, line: &[u8]) -> Malformed {
        let shown = &line[..line.len().min(QUOTED_BYTES_MAX)];
        let mut quoted = String::from_utf8_lossy(shown).trim_end().to_owned();
        if shown.len() < line.len() {
            quoted.push_str("...");
        }
        Malformed {
            problem: problem.to_string(),
            line: quoted,
        }
    }
}

/// The first line that a client gets: all that it may know of the test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The version of the protocol, [`PROTOCOL`].
    pub protocol: u32,
    /// The system under test: `conclave`.
    pub system: String,
    /// Its server nodes.
    pub nodes: Vec<NodeAddr>,
    /// The workload: `lock`.
    pub workload: String,
    /// The seed of the run, for clients that draw random numbers.
    pub seed: u64,
    /// Parameters of the workload and of its clients: `holder`, `ttl_ms`, ...
    #[serde(default)]
    pub params: Map<String, Value>,
    /// The protected resource, if the workload has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault: Option<VaultAddr>,
}

/// A server node as clients reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeAddr {
    /// Its name, as in the `node` of an invocation.
    pub id: String,
    /// IP address and port.
    pub addr: String,
}

/// The vault as clients reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaultAddr {
    /// IP address and port.
    pub addr: String,
}

/// An operation to be done, as it is read or written. Everything is borrowed from the line or from
/// the generator.
#[derive(Debug, Clone, PartialEq)]
pub struct Invoke<'a> {
    /// The id that the answer must carry.
    pub id: u64,
    /// The process that the history names.
    pub process: u64,
    /// The worker that does it. `process` changes after an indeterminate operation, this does not:
    /// sessions and connections belong to it. The same as `process` where a line leaves it out.
    pub thread: u64,
    /// The server to ask; `None` leaves it to the client.
    pub node: Option<Cow<'a, str>>,
    /// The function.
    pub f: Cow<'a, str>,
    /// The key, a string or an integer; null for none.
    pub key: Cow<'a, Value>,
    /// The argument.
    pub value: Cow<'a, Value>,
    /// How long the client waits for the system, in milliseconds.
    pub timeout_ms: u64,
}

/// A line from the harness to a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Request<'a> {
    /// The first one.
    Hello(Box<Hello>),
    /// Every other one.
    Invoke(Invoke<'a>),
}

/// A line from a client to the harness.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply<'a> {
    /// The answer to the hello.
    Hello(ClientHello),
    /// It happened.
    Ok {
        /// The id of the invocation.
        id: u64,
        /// What came out.
        value: Value,
    },
    /// It did not happen and never will.
    Fail {
        /// The id of the invocation.
        id: u64,
        /// Why: a code, and words after a colon.
        error: Cow<'a, str>,
    },
    /// It may have happened, or may yet.
    Info {
        /// The id of the invocation.
        id: u64,
        /// Why it is not known.
        error: Cow<'a, str>,
    },
    /// Something that nobody asked for.
    Event(Unasked<'a>),
}

/// What a client says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientHello {
    /// Its name and version.
    pub client: String,
    /// The functions that it knows.
    pub can: Vec<String>,
    /// How many operations may be open at once; at least 1.
    pub max_in_flight: u32,
}

/// Something that a client tells unasked: that it lost a lock, that a watch saw a write.
#[derive(Debug, Clone, PartialEq)]
pub struct Unasked<'a> {
    /// What it is: `lost`, `event`.
    pub f: Cow<'a, str>,
    /// The process that it concerns; `None` for the only one of the client.
    pub process: Option<u64>,
    /// The key, null for none.
    pub key: Value,
    /// What there is to say.
    pub value: Value,
}

/// A text that is borrowed where it stands in the line without escapes. (serde borrows a `Cow` only
/// as a field of its own, not inside an `Option`.)
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// All keys of all lines from the harness. One flat type, because a tagged one would make serde
/// copy each line into a tree before it looks at it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestLine<'a> {
    #[serde(borrow)]
    x: Cow<'a, str>,
    id: Option<u64>,
    process: Option<u64>,
    thread: Option<u64>,
    #[serde(borrow)]
    node: Option<Text<'a>>,
    #[serde(borrow)]
    f: Option<Text<'a>>,
    #[serde(default)]
    key: Value,
    #[serde(default)]
    value: Value,
    timeout_ms: Option<u64>,
    protocol: Option<u32>,
    system: Option<String>,
    nodes: Option<Vec<NodeAddr>>,
    workload: Option<String>,
    seed: Option<u64>,
    params: Option<Map<String, Value>>,
    vault: Option<VaultAddr>,
}

/// All keys of all lines from a client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyLine<'a> {
    #[serde(borrow)]
    x: Cow<'a, str>,
    id: Option<u64>,
    #[serde(default)]
    value: Value,
    #[serde(borrow)]
    error: Option<Text<'a>>,
    #[serde(borrow)]
    f: Option<Text<'a>>,
    process: Option<u64>,
    #[serde(default)]
    key: Value,
    client: Option<String>,
    can: Option<Vec<String>>,
    max_in_flight: Option<u32>,
}

/// Refuses keys that stand in a line of another kind.
fn refuse(kind: &str, keys: &[(&str, bool)]) -> Result<(), String> {
    match keys.iter().find(|(_, there)| *there) {
        Some((key, _)) => Err(format!("`{key}` does not belong in a `{kind}` line")),
        None => Ok(()),
    }
}

fn need<T>(value: Option<T>, kind: &str, key: &str) -> Result<T, String> {
    value.ok_or_else(|| format!("a `{kind}` line needs `{key}`"))
}

impl<'a> Request<'a> {
    /// Reads a line, with or without its end.
    ///
    /// # Errors
    /// [`Malformed`] if it is no JSON object, of no known kind, or has a key too many or too few.
    pub fn parse(line: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let parsed: RequestLine<'a> =
            serde_json::from_slice(line).map_err(|error| Malformed::new(error, line))?;
        let request = match &*parsed.x {
            "invoke" => parsed.invoke().map(Request::Invoke),
            "hello" => parsed.hello().map(|hello| Request::Hello(Box::new(hello))),
            other => Err(format!("unknown kind `{other}` (hello, invoke)")),
        };
        request.map_err(|problem| Malformed::new(problem, line))
    }
}

impl<'a> RequestLine<'a> {
    fn invoke(self) -> Result<Invoke<'a>, String> {
        refuse(
            "invoke",
            &[
                ("protocol", self.protocol.is_some()),
                ("system", self.system.is_some()),
                ("nodes", self.nodes.is_some()),
                ("workload", self.workload.is_some()),
                ("seed", self.seed.is_some()),
                ("params", self.params.is_some()),
                ("vault", self.vault.is_some()),
            ],
        )?;
        if !matches!(self.key, Value::Null | Value::String(_) | Value::Number(_)) {
            return Err("`key` is neither a string nor a number".to_owned());
        }
        let process = need(self.process, "invoke", "process")?;
        Ok(Invoke {
            id: need(self.id, "invoke", "id")?,
            process,
            thread: self.thread.unwrap_or(process),
            node: self.node.map(|node| node.0),
            f: need(self.f, "invoke", "f")?.0,
            key: Cow::Owned(self.key),
            value: Cow::Owned(self.value),
            timeout_ms: need(self.timeout_ms, "invoke", "timeout_ms")?,
        })
    }

    fn hello(self) -> Result<Hello, String> {
        refuse(
            "hello",
            &[
                ("id", self.id.is_some()),
                ("process", self.process.is_some()),
                ("thread", self.thread.is_some()),
                ("node", self.node.is_some()),
                ("f", self.f.is_some()),
                ("key", !self.key.is_null()),
                ("value", !self.value.is_null()),
                ("timeout_ms", self.timeout_ms.is_some()),
            ],
        )?;
        let protocol = need(self.protocol, "hello", "protocol")?;
        if protocol != PROTOCOL {
            return Err(format!(
                "protocol {protocol} is not the one spoken here, {PROTOCOL}"
            ));
        }
        Ok(Hello {
            protocol,
            system: need(self.system, "hello", "system")?,
            nodes: need(self.nodes, "hello", "nodes")?,
            workload: need(self.workload, "hello", "workload")?,
            seed: need(self.seed, "hello", "seed")?,
            params: self.params.unwrap_or_default(),
            vault: self.vault,
        })
    }
}

impl<'a> Reply<'a> {
    /// Reads a line, with or without its end.
    ///
    /// # Errors
    /// [`Malformed`] if it is no JSON object, of no known kind, or has a key too many or too few.
    pub fn parse(line: &'a [u8]) -> Result<Reply<'a>, Malformed> {
        let parsed: ReplyLine<'a> =
            serde_json::from_slice(line).map_err(|error| Malformed::new(error, line))?;
        parsed
            .reply()
            .map_err(|problem| Malformed::new(problem, line))
    }
}

impl<'a> ReplyLine<'a> {
    fn reply(self) -> Result<Reply<'a>, String> {
        let is_hello = self.x == "hello";
        let is_event = self.x == "event";
        let has_error = self.x == "fail" || self.x == "info";
        if !is_hello && !is_event && !has_error && self.x != "ok" {
            let kind = &self.x;
            return Err(format!(
                "unknown kind `{kind}` (hello, ok, fail, info, event)"
            ));
        }
        refuse(
            &self.x,
            &[
                ("id", (is_hello || is_event) && self.id.is_some()),
                ("value", (is_hello || has_error) && !self.value.is_null()),
                ("error", !has_error && self.error.is_some()),
                ("f", !is_event && self.f.is_some()),
                ("process", !is_event && self.process.is_some()),
                ("key", !is_event && !self.key.is_null()),
                ("client", !is_hello && self.client.is_some()),
                ("can", !is_hello && self.can.is_some()),
                ("max_in_flight", !is_hello && self.max_in_flight.is_some()),
            ],
        )?;
        Ok(match &*self.x {
            "ok" => Reply::Ok {
                id: need(self.id, "ok", "id")?,
                value: self.value,
            },
            "fail" => Reply::Fail {
                id: need(self.id, "fail", "id")?,
                error: need(self.error, "fail", "error")?.0,
            },
            "info" => Reply::Info {
                id: need(self.id, "info", "id")?,
                error: need(self.error, "info", "error")?.0,
            },
            "event" => Reply::Event(Unasked {
                f: need(self.f, "event", "f")?.0,
                process: self.process,
                key: self.key,
                value: self.value,
            }),
            _ => Reply::Hello(self.client_hello()?),
        })
    }

    fn client_hello(self) -> Result<ClientHello, String> {
        let max_in_flight = need(self.max_in_flight, "hello", "max_in_flight")?;
        if max_in_flight == 0 {
            return Err("`max_in_flight` is 0: the client could do nothing".to_owned());
        }
        Ok(ClientHello {
            client: need(self.client, "hello", "client")?,
            can: need(self.can, "hello", "can")?,
            max_in_flight,
        })
    }
}

impl Hello {
    /// Appends the line, with its end.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"x\":\"hello\",");
        write_rest(out, self);
    }
}

impl Invoke<'_> {
    /// Appends the line, with its end.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"x\":\"invoke\",\"id\":");
        write_int(out, self.id);
        out.extend_from_slice(b",\"process\":");
        write_int(out, self.process);
        if self.thread != self.process {
            out.extend_from_slice(b",\"thread\":");
            write_int(out, self.thread);
        }
        if let Some(node) = &self.node {
            out.extend_from_slice(b",\"node\":");
            write_json(out, node);
        }
        out.extend_from_slice(b",\"f\":");
        write_json(out, &self.f);
        write_unless_null(out, b",\"key\":", &self.key);
        write_unless_null(out, b",\"value\":", &self.value);
        out.extend_from_slice(b",\"timeout_ms\":");
        write_int(out, self.timeout_ms);
        out.extend_from_slice(b"}\n");
    }
}

impl Reply<'_> {
    /// Appends the line, with its end.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Hello(hello) => {
                out.extend_from_slice(b"{\"x\":\"hello\",");
                write_rest(out, hello);
            }
            Reply::Ok { id, value } => {
                out.extend_from_slice(b"{\"x\":\"ok\",\"id\":");
                write_int(out, *id);
                write_unless_null(out, b",\"value\":", value);
                out.extend_from_slice(b"}\n");
            }
            Reply::Fail { id, error } => write_failure(out, b"{\"x\":\"fail\",\"id\":", *id, error),
            Reply::Info { id, error } => write_failure(out, b"{\"x\":\"info\",\"id\":", *id, error),
            Reply::Event(event) => {
                out.extend_from_slice(b"{\"x\":\"event\",\"f\":");
                write_json(out, &event.f);
                if let Some(process) = event.process {
                    out.extend_from_slice(b",\"process\":");
                    write_int(out, process);
                }
                write_unless_null(out, b",\"key\":", &event.key);
                write_unless_null(out, b",\"value\":", &event.value);
                out.extend_from_slice(b"}\n");
            }
        }
    }
}

fn write_failure(out: &mut Vec<u8>, head: &[u8], id: u64, error: &str) {
    out.extend_from_slice(head);
    write_int(out, id);
    out.extend_from_slice(b",\"error\":");
    write_json(out, &error);
    out.extend_from_slice(b"}\n");
}

/// Appends an object whose opening brace and first key are already there.
fn write_rest<T: Serialize>(out: &mut Vec<u8>, object: &T) {
    let brace = out.len();
    write_json(out, object);
    out.remove(brace);
    out.push(b'\n');
}

fn write_unless_null(out: &mut Vec<u8>, key: &[u8], value: &Value) {
    if !value.is_null() {
        out.extend_from_slice(key);
        write_json(out, value);
    }
}

fn write_int(out: &mut Vec<u8>, int: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(int).as_bytes());
}

fn write_json<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("values with string keys always become JSON");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const HELLO: &str = r#"{"x":"hello","protocol":1,"system":"conclave","nodes":[{"id":"n1","addr":"10.9.0.1:7100"}],"workload":"lock","seed":7,"params":{"holder":"naive"},"vault":{"addr":"10.9.0.9:7200"}}"#;

    #[test]
    fn the_examples_of_the_document_are_read() {
        let document = include_str!("../docs/client-protocol.md");
        let mut lines = 0;
        for line in document.lines() {
            let read = match line.split_at_checked(3) {
                Some(("-> ", rest)) => Request::parse(rest.as_bytes()).map(|_| ()),
                Some(("<- ", rest)) => Reply::parse(rest.as_bytes()).map(|_| ()),
                _ => continue,
            };
            assert_eq!(read, Ok(()), "{line}");
            lines += 1;
        }
        assert!(lines >= 8, "the document has {lines} examples");
    }

    #[test]
    fn a_hello_survives_the_way() {
        let Ok(Request::Hello(hello)) = Request::parse(HELLO.as_bytes()) else {
            panic!("{HELLO}");
        };
        assert_eq!(hello.params["holder"], json!("naive"));
        let mut out = Vec::new();
        hello.write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("{HELLO}\n"));
    }

    #[test]
    fn the_thread_is_the_process_unless_it_is_named() {
        for (line, thread) in [
            (
                r#"{"x":"invoke","id":1,"process":3,"f":"read","timeout_ms":9}"#,
                3,
            ),
            (
                r#"{"x":"invoke","id":1,"process":13,"thread":3,"f":"read","timeout_ms":9}"#,
                3,
            ),
        ] {
            match Request::parse(line.as_bytes()) {
                Ok(Request::Invoke(invoke)) => assert_eq!(invoke.thread, thread),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn names_are_not_copied() {
        let line = br#"{"x":"invoke","id":1,"process":3,"node":"n2","f":"read","timeout_ms":9}"#;
        match Request::parse(line) {
            Ok(Request::Invoke(invoke)) => {
                assert!(matches!(invoke.f, Cow::Borrowed("read")));
                assert!(matches!(invoke.node, Some(Cow::Borrowed("n2"))));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bad_requests_are_refused_and_quoted() {
        for (line, says) in [
            ("hello there", "expected"),
            ("[1]", "invalid"),
            (r#"{"id":1}"#, "missing field `x`"),
            (r#"{"x":"invok","id":1}"#, "unknown kind `invok`"),
            (
                r#"{"x":"invoke","process":1,"f":"read","timeout_ms":1}"#,
                "needs `id`",
            ),
            (
                r#"{"x":"invoke","id":1,"process":1,"timeout_ms":1}"#,
                "needs `f`",
            ),
            (
                r#"{"x":"invoke","id":1,"process":1,"f":"read"}"#,
                "needs `timeout_ms`",
            ),
            (
                r#"{"x":"invoke","id":1,"process":1,"f":"read","timeout_ms":1,"kye":"x"}"#,
                "unknown field `kye`",
            ),
            (
                r#"{"x":"invoke","id":1,"process":1,"f":"read","timeout_ms":1,"key":[1]}"#,
                "neither a string nor a number",
            ),
            (
                r#"{"x":"invoke","id":1,"process":1,"f":"read","timeout_ms":1,"seed":2}"#,
                "`seed` does not belong",
            ),
            (
                r#"{"x":"hello","protocol":2,"system":"x","nodes":[],"workload":"w","seed":1}"#,
                "protocol 2",
            ),
        ] {
            let error = Request::parse(line.as_bytes()).expect_err(line);
            assert!(error.problem.contains(says), "{line}: {error}");
            assert!(error.to_string().contains(line), "{error}");
        }
    }

    #[test]
    fn bad_replies_are_refused_and_quoted() {
        for (line, says) in [
            ("connected!", "expected"),
            (r#"{"x":"ok"}"#, "needs `id`"),
            (
                r#"{"x":"ok","id":1,"error":"no"}"#,
                "`error` does not belong",
            ),
            (r#"{"x":"fail","id":1}"#, "needs `error`"),
            (
                r#"{"x":"info","id":1,"error":"e","value":1}"#,
                "`value` does not belong",
            ),
            (r#"{"x":"event","key":"L"}"#, "needs `f`"),
            (
                r#"{"x":"hello","client":"c","can":[],"max_in_flight":0}"#,
                "could do nothing",
            ),
            (r#"{"x":"done","id":1}"#, "unknown kind `done`"),
        ] {
            let error = Reply::parse(line.as_bytes()).expect_err(line);
            assert!(error.problem.contains(says), "{line}: {error}");
            assert!(error.to_string().contains(line), "{error}");
        }
    }

    #[test]
    fn a_long_line_is_quoted_in_part() {
        let error = Reply::parse(&[b'x'; 5_000]).unwrap_err();
        assert!(
            error.line.len() < 400 && error.line.ends_with("..."),
            "{error}"
        );
    }

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            any::<(i32, i32)>().prop_map(|(a, b)| json!([a, b])),
            (any::<String>(), any::<u64>()).prop_map(|(v, token)| json!({"v": v, "token": token})),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            ids in any::<(u64, u64, u64, u64)>(),
            node in proptest::option::of(any::<String>()),
            f in any::<String>(),
            key in prop_oneof![Just(Value::Null), any::<i64>().prop_map(Value::from),
                               any::<String>().prop_map(Value::from)],
            value in any_value(),
        ) {
            let mut out = Vec::new();
            let invoke = Invoke {
                id: ids.0, process: ids.1, thread: ids.2, timeout_ms: ids.3,
                node: node.map(Cow::Owned), f: Cow::Owned(f.clone()),
                key: Cow::Owned(key.clone()), value: Cow::Owned(value.clone()),
            };
            invoke.write(&mut out);
            prop_assert_eq!(Request::parse(&out), Ok(Request::Invoke(invoke)));
            for reply in [
                Reply::Ok { id: ids.0, value: value.clone() },
                Reply::Fail { id: ids.0, error: Cow::Owned(f.clone()) },
                Reply::Info { id: ids.0, error: Cow::Owned(f.clone()) },
                Reply::Event(Unasked { f: Cow::Owned(f.clone()), process: Some(ids.1), key, value }),
            ] {
                out.clear();
                reply.write(&mut out);
                prop_assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
                prop_assert_eq!(Reply::parse(&out), Ok(reply));
            }
        }

        #[test]
        fn no_line_makes_it_panic(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Request::parse(&line);
            let _ = Reply::parse(&line);
        }
    }
}
