//! What agents do with services, files and HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use cluster::{
    Error, Exit, FreezeMethod, HttpRequest, NodeEvent, NodeEventKind, Pipe, RefusalKind,
    ServiceSpec,
};

use crate::support::{Lab, program, shell, soon, until};

/// A service that grows a file as fast as it can, and a child that does the same to another.
const BUSY: &str = "(while :; do echo x >> child; done) & while :; do echo x >> parent; done";

fn len(lab: &Lab, file: &str) -> u64 {
    std::fs::metadata(lab.dir.path().join("n1").join(file)).map_or(0, |meta| meta.len())
}

pub(crate) async fn start_freeze_thaw_kill() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let pid = n1.start(&shell("busy", BUSY)).await.expect("started");
    until("progress", || async {
        len(&lab, "child") > 0 && len(&lab, "parent") > 0
    })
    .await;

    let frozen = n1.freeze("busy").await.expect("frozen");
    assert_eq!(frozen.method, FreezeMethod::Sigstop);
    assert!(frozen.asked_ns <= frozen.at_ns);
    assert_eq!(frozen.processes.len(), 2);
    assert_eq!(frozen.processes[0].pid, pid);
    assert!(
        frozen.processes.iter().all(|process| process.state == 'T'),
        "{frozen:?}"
    );
    let before = (len(&lab, "parent"), len(&lab, "child"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        before,
        (len(&lab, "parent"), len(&lab, "child")),
        "it ran while frozen"
    );

    let thawed = n1.thaw("busy").await.expect("thawed");
    assert!(
        thawed.processes.iter().all(|process| process.state != 'T'),
        "{thawed:?}"
    );
    until("progress", || async {
        len(&lab, "child") > before.1 && len(&lab, "parent") > before.0
    })
    .await;

    // SIGKILL must reach what is frozen, too.
    n1.freeze("busy").await.expect("frozen again");
    let killed = n1.kill("busy", libc::SIGKILL).await.expect("killed");
    assert!(killed.gone);
    assert_eq!(killed.processes.len(), 2);
    assert_eq!(n1.processes("busy").await.expect("a list"), []);

    // And it can be started again under its name at once.
    let again = n1.start(&shell("busy", BUSY)).await.expect("started again");
    let listed = n1.processes("busy").await.expect("a list");
    assert_eq!(listed[0].pid, again);
    assert!(
        !killed.processes.contains(&listed[0]),
        "the old process lives"
    );
    lab.end().await;
}

async fn next_exit(events: &mut cluster::Events) -> (String, Exit) {
    loop {
        let NodeEvent { node, kind } = soon("an event", events.next()).await.expect("an event");
        assert_eq!(node, "n1");
        if let NodeEventKind::ServiceExit { service, exit, .. } = kind {
            return (service, exit);
        }
    }
}

pub(crate) async fn exits_and_logs_are_reported() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let mut events = lab.cluster.events();
    n1.start(&shell(
        "seven",
        "echo to stdout; echo to stderr >&2; exit 7",
    ))
    .await
    .expect("started");
    assert_eq!(
        next_exit(&mut events).await,
        ("seven".to_owned(), Exit::Code(7))
    );
    assert_eq!(
        n1.tail("seven.log", 10).await.expect("a log"),
        "to stdout\nto stderr"
    );

    n1.start(&shell("shot", "kill -9 $$"))
        .await
        .expect("started");
    assert_eq!(
        next_exit(&mut events).await,
        ("shot".to_owned(), Exit::Signal(9))
    );

    // A log is appended to, so that a restart does not hide why it was needed.
    until("the end", || async {
        n1.processes("seven").await.expect("a list").is_empty()
    })
    .await;
    n1.start(&shell("seven", "hostname; echo \"$TOLD\"; pwd"))
        .await
        .expect("started again");
    assert_eq!(
        next_exit(&mut events).await,
        ("seven".to_owned(), Exit::Code(0))
    );
    let mut spec = shell("told", "echo \"$TOLD\"; hostname; pwd");
    spec.env.push(("TOLD".to_owned(), "it was told".to_owned()));
    n1.start(&spec).await.expect("started");
    assert_eq!(
        next_exit(&mut events).await,
        ("told".to_owned(), Exit::Code(0))
    );
    let dir = n1.dir().display();
    assert_eq!(
        n1.tail("told.log", 10).await.expect("a log"),
        format!("it was told\nn1\n{dir}")
    );
    assert_eq!(
        n1.tail("seven.log", 10)
            .await
            .expect("a log")
            .lines()
            .count(),
        5
    );
    lab.end().await;
}

pub(crate) async fn orphans_belong_to_their_service() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let mut events = lab.cluster.events();
    // The grandchild leaves its session, its environment and its parents behind.
    let command = "(setsid env -i sleep 1000 &) ; exit 0";
    n1.start(&shell("daemon", command)).await.expect("started");
    assert_eq!(
        next_exit(&mut events).await,
        ("daemon".to_owned(), Exit::Code(0))
    );
    until("the orphan", || async {
        let left = n1.processes("daemon").await.expect("a list");
        left.len() == 1 && left[0].command == "sleep"
    })
    .await;
    let again = n1.start(&shell("daemon", "true")).await;
    assert_eq!(kind(again), RefusalKind::AlreadyRunning);
    let frozen = n1.freeze("daemon").await.expect("frozen");
    assert_eq!(frozen.processes.len(), 1);
    assert!(n1.kill("daemon", libc::SIGKILL).await.expect("killed").gone);
    let gone = soon("an event", events.next()).await.expect("an event");
    assert_eq!(
        gone.kind,
        NodeEventKind::ServiceGone {
            service: "daemon".to_owned()
        }
    );
    lab.end().await;
}

pub(crate) async fn stop_is_gentle_first() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let mut events = lab.cluster.events();
    let polite = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done";
    n1.start(&shell("polite", polite)).await.expect("started");
    until("the trap", || async {
        n1.tail("polite.log", 1).await.is_ok_and(|up| up == "up")
    })
    .await;
    // Also when it is frozen.
    n1.freeze("polite").await.expect("frozen");
    assert!(n1.stop("polite").await.expect("stopped").gone);
    assert_eq!(
        next_exit(&mut events).await,
        ("polite".to_owned(), Exit::Code(3))
    );
    assert!(
        n1.tail("polite.log", 1)
            .await
            .expect("a log")
            .contains("bye")
    );
    lab.end().await;
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> RefusalKind {
    result
        .expect_err("a refusal")
        .refusal()
        .expect("a refusal of the agent")
        .kind
}

pub(crate) async fn refusals_have_kinds() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let missing = ServiceSpec {
        argv: vec!["/no/such/program".to_owned()],
        ..shell("x", "")
    };
    assert_eq!(kind(n1.start(&missing).await), RefusalKind::CannotStart);
    // A name that was refused is free again.
    n1.start(&shell("x", "exit 0")).await.expect("started");
    assert_eq!(kind(n1.freeze("y").await), RefusalKind::NoSuchService);
    assert_eq!(
        kind(n1.fetch("../../etc/passwd", 10).await),
        RefusalKind::BadRequest
    );
    assert_eq!(kind(n1.fetch("nothing", 10).await), RefusalKind::Io);
    until("the end", || async {
        n1.processes("x").await.expect("a list").is_empty()
    })
    .await;
    assert_eq!(kind(n1.freeze("x").await), RefusalKind::NotRunning);
    assert_eq!(kind(n1.kill("x", 9).await), RefusalKind::NotRunning);
    assert_eq!(kind(n1.kill("x", 4000).await), RefusalKind::BadRequest);
    lab.end().await;
}

pub(crate) async fn files_go_both_ways() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 31 % 251) as u8).collect();
    n1.put_file("bin/data", bytes.clone(), 0o644)
        .await
        .expect("put");
    assert_eq!(
        n1.fetch("bin/data", u64::MAX).await.expect("fetched"),
        bytes
    );
    assert_eq!(
        n1.fetch("bin/data", 1000).await.expect("fetched"),
        bytes[..1000]
    );
    n1.put_file("bin/run", "#!/bin/sh\necho ran\n", 0o755)
        .await
        .expect("put");
    let spec = ServiceSpec {
        argv: vec!["bin/run".to_owned()],
        ..shell("run", "")
    };
    n1.start(&spec).await.expect("started");
    until("its output", || async {
        n1.tail("run.log", 1).await.is_ok_and(|out| out == "ran")
    })
    .await;
    let files = n1.list_files().await.expect("a list");
    let names: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(names, ["bin/data", "bin/run", "run.log"]);
    assert_eq!(files[0].bytes, 3_000_000);
    lab.end().await;
}

pub(crate) async fn http_from_inside() {
    let lab = Lab::new(2).await;
    let (n1, n2) = (lab.node("n1"), lab.node("n2"));
    let mut request = HttpRequest {
        method: "POST".to_owned(),
        addr: SocketAddr::new(n2.addr(), 80),
        path: "/path?query".to_owned(),
        headers: vec![("x-test".to_owned(), "header".to_owned())],
        body: "until the end".into(),
        timeout: Duration::from_secs(5),
    };
    assert_eq!(kind(n1.http(&request).await), RefusalKind::Unreachable);
    n2.start(&program(&["web-server"])).await.expect("started");
    until("the server", || async { n1.http(&request).await.is_ok() }).await;
    let response = n1.http(&request).await.expect("an answer");
    assert_eq!(response.status, 418);
    let asked = String::from_utf8_lossy(&response.body).to_lowercase();
    assert!(
        asked.starts_with("post /path?query http/1.1\r\n"),
        "{asked}"
    );
    assert!(asked.contains("host: 10.9.0.2:80\r\n"), "{asked}");
    assert!(asked.contains("x-test: header\r\n"), "{asked}");
    assert!(asked.ends_with("\r\n\r\nuntil the end"), "{asked}");
    request.path = "/slow".to_owned();
    request.timeout = Duration::from_millis(50);
    assert_eq!(kind(n1.http(&request).await), RefusalKind::Timeout);
    lab.end().await;
}

pub(crate) async fn streams_are_intact() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let Pipe {
        stdin, mut stdout, ..
    } = n1.spawn(&shell("cat", "cat")).await.expect("spawned");
    let total = 64 << 20;
    let writer = tokio::spawn(async move {
        for piece in 0..total / 4096 {
            stdin
                .write(vec![(piece % 251) as u8; 4096])
                .await
                .expect("written");
        }
    });
    let mut at = 0_usize;
    while let Some(chunk) = stdout.read().await {
        for (offset, &byte) in chunk.iter().enumerate().step_by(509) {
            assert_eq!(
                byte,
                ((at + offset) / 4096 % 251) as u8,
                "at {}",
                at + offset
            );
        }
        at += chunk.len();
    }
    assert_eq!(at, total);
    writer.await.expect("the writer");

    // Many short lines, both ways, in the pieces in which a client protocol writes them.
    let count = 100_000;
    let spec = program(&["lines", &count.to_string()]);
    let Pipe {
        stdin, mut stdout, ..
    } = n1.spawn(&spec).await.expect("spawned");
    tokio::spawn(async move {
        for number in 0..count {
            stdin
                .write(format!("{{\"x\":\"invoke\",\"id\":{number}}}\n"))
                .await
                .expect("written");
        }
    });
    let mut said = Vec::new();
    while let Some(chunk) = stdout.read().await {
        said.extend_from_slice(&chunk);
    }
    let said = String::from_utf8(said).expect("text");
    assert_eq!(said.lines().count(), count + 1);
    assert_eq!(said.lines().last(), Some("100000"));
    lab.end().await;
}

pub(crate) async fn a_reader_that_does_not_read_holds_up_nobody_else() {
    let lab = Lab::new(1).await;
    let n1 = lab.node("n1");
    let flood = shell("flood", "exec cat /dev/zero");
    let mut unread = n1.spawn(&flood).await.expect("spawned");
    // The window and the pipe fill up, then the process waits; everything else goes on.
    tokio::time::sleep(Duration::from_millis(100)).await;
    soon("the freeze", n1.freeze("flood"))
        .await
        .expect("frozen");
    n1.thaw("flood").await.expect("thawed");
    let mut cat = n1.spawn(&shell("cat", "cat")).await.expect("spawned");
    cat.stdin.write("through\n").await.expect("written");
    assert_eq!(
        soon("the line", cat.stdout.read()).await.expect("a line"),
        "through\n"
    );
    // It continues where it stopped, and is not blocked any more when nobody is interested.
    let mut bytes = 0;
    while bytes < 32 << 20 {
        bytes += soon("more", unread.stdout.read())
            .await
            .expect("more")
            .len();
    }
    drop(unread);
    assert!(n1.kill("flood", libc::SIGKILL).await.expect("killed").gone);
    lab.end().await;
}
