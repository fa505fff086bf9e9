//! A client that is told to talk on a descriptor of its own leaves standard output alone.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

const HARNESS: &str = env!("CARGO_BIN_EXE_systems-harness");

const HELLO: &str = r#"{"x":"hello","protocol":1,"system":"instant","nodes":[{"id":"n1","addr":"127.0.0.1:1"}],"workload":"register","seed":7}"#;

#[expect(
    clippy::disallowed_methods,
    reason = "there are no nodes and no agents here"
)]
fn client() -> Command {
    let mut command = Command::new(HARNESS);
    command.args(["client", "--system", "instant"]);
    command.stdin(Stdio::null());
    command
}

fn told(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn lines_go_both_ways_through_the_descriptor() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let mut command = client();
    command.env("SCHISM_CLIENT_FD", theirs.as_raw_fd().to_string());
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    drop(theirs);
    let mut lines = BufReader::new(ours.try_clone().unwrap()).lines();
    writeln!(&ours, "{HELLO}").unwrap();
    let hello = lines.next().unwrap().unwrap();
    assert!(
        hello.starts_with(r#"{"x":"hello","client":"schism-instant"#),
        "{hello}"
    );
    writeln!(
        &ours,
        r#"{{"x":"invoke","id":1,"process":3,"f":"write","value":5,"timeout_ms":9}}"#
    )
    .unwrap();
    assert_eq!(
        lines.next().unwrap().unwrap(),
        r#"{"x":"ok","id":1,"value":5}"#
    );
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(lines.next().is_none());
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
}

#[test]
fn a_descriptor_that_is_none_is_refused() {
    for fd in ["x", "1", "999"] {
        let output = client().env("SCHISM_CLIENT_FD", fd).output().unwrap();
        let stderr = told(&output);
        assert!(stderr.contains("no socket"), "{fd}: {stderr}");
    }
}

#[test]
fn a_line_of_another_protocol_is_quoted() {
    for (line, says) in [
        ("hello", "in the line `hello`"),
        (
            r#"{"x":"invoke","id":1,"process":3,"f":"write","timeout_ms":9}"#,
            "must be a `hello`",
        ),
        (
            &HELLO.replace("instant", "etcd"),
            "this is the client of `instant`",
        ),
        (
            &HELLO.replace("127.0.0.1", "localhost"),
            "not an IP address with a port",
        ),
    ] {
        let mut command = client();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        writeln!(child.stdin.take().unwrap(), "{line}").unwrap();
        let stderr = told(&child.wait_with_output().unwrap());
        assert!(stderr.contains(says), "{line}: {stderr}");
    }
}
