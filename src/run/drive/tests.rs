//! The driver against client programs that break the protocol, die, or say nothing.

use std::collections::VecDeque;

use history::{Header, History};
use systems::protocol::Request;
use workloads::generator::{Generator, op};

use super::*;

/// The far end of a link, in the place of a client program.
struct Fake {
    invocations: mpsc::UnboundedReceiver<Vec<u8>>,
    answers: mpsc::Sender<(usize, FromClient)>,
    waiting: VecDeque<u64>,
}

impl Fake {
    /// The id of the next operation that it is asked to do.
    async fn asked(&mut self) -> u64 {
        loop {
            if let Some(id) = self.waiting.pop_front() {
                return id;
            }
            let lines = self.invocations.recv().await.expect("the driver goes on");
            for line in lines.split(|&byte| byte == b'\n') {
                if let Ok(Request::Invoke(invoke)) = Request::parse(line) {
                    self.waiting.push_back(invoke.id);
                }
            }
        }
    }

    async fn say(&self, text: &str) {
        let bytes = bytes::Bytes::copy_from_slice(text.as_bytes());
        let _ = self.answers.send((0, FromClient::Bytes(bytes))).await;
    }

    async fn answer(&self, id: u64) {
        self.say(&format!("{{\"x\":\"ok\",\"id\":{id},\"value\":1}}\n"))
            .await;
    }

    async fn close(&self) {
        let _ = self.answers.send((0, FromClient::Closed)).await;
    }
}

/// A driver with one client of one thread, and all that must live as long as it.
struct Bench {
    driver: Driver,
    dir: tempfile::TempDir,
    _give_back: mpsc::UnboundedSender<Vec<u8>>,
    _events: mpsc::UnboundedSender<Event>,
}

impl Bench {
    /// `op_timeout` in nanoseconds.
    fn new(op_timeout: u64) -> (Bench, Fake) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        let clock = Clock::start();
        let (out, invocations) = mpsc::unbounded_channel();
        let (give_back, spare) = mpsc::unbounded_channel();
        let (answers, incoming) = mpsc::channel(8);
        let (events, outside) = mpsc::unbounded_channel();
        let driver = Driver::new(Setup {
            clock,
            recorder: Recorder::create(&path, &Header::new("register", &[]), clock).unwrap(),
            clients: vec![ClientLink::new("c1".to_owned(), out, spare)],
            incoming,
            outside,
            threads: 1,
            servers: Vec::new(),
            op_timeout,
            holder: HolderBoard::default(),
        });
        let bench = Bench {
            driver,
            dir,
            _give_back: give_back,
            _events: events,
        };
        let waiting = VecDeque::new();
        (
            bench,
            Fake {
                invocations,
                answers,
                waiting,
            },
        )
    }

    fn finish(self) -> (Driven, History) {
        let (recorder, driven) = self.driver.finish();
        recorder.finish().unwrap();
        let read = history::read_path(&self.dir.path().join("history.jsonl")).unwrap();
        (driven, read.history)
    }
}

/// Drives a generator against a client that behaves like this.
async fn driven_by(
    generator: impl Generator + Clone + 'static,
    client: impl AsyncFnOnce(&mut Fake),
) -> (Driven, History) {
    let (mut bench, mut fake) = Bench::new(100_000_000);
    let (_never, mut cancel) = watch::channel(false);
    let generator = generator.time_limit(20_000_000_000).boxed();
    tokio::join!(bench.driver.run(generator, &mut cancel), client(&mut fake));
    bench.finish()
}

fn reads(count: u64) -> impl Generator + Clone + 'static {
    op("read").repeat().limit(count)
}

/// What became of the operations, in order.
fn completions(history: &History) -> Vec<(Kind, Option<String>)> {
    let ends = history
        .events()
        .filter(|event| event.kind() != Kind::Invoke);
    ends.map(|event| (event.kind(), event.error().map(str::to_owned)))
        .collect()
}

fn ended(kind: Kind, error: &str) -> (Kind, Option<String>) {
    (kind, Some(error.to_owned()))
}

const OK: (Kind, Option<String>) = (Kind::Ok, None);

#[tokio::test]
async fn a_client_that_keeps_the_protocol_has_no_faults() {
    let (driven, history) = driven_by(reads(3), async |client| {
        for _ in 0..3 {
            let id = client.asked().await;
            client.answer(id).await;
        }
    })
    .await;
    assert_eq!((driven.invoked, driven.ok, driven.late), (3, 3, 0));
    assert_eq!(driven.faults, [""; 0]);
    assert_eq!(completions(&history), [OK, OK, OK]);
    assert!(history.ops().all(|op| op.output().is_some()));
}

#[tokio::test]
async fn an_answer_may_come_in_pieces_and_several_in_one() {
    let (driven, history) = driven_by(reads(2), async |client| {
        let id = client.asked().await;
        let line = format!("{{\"x\":\"ok\",\"id\":{id},\"value\":1}}\n");
        let (first, second) = line.split_at(7);
        client.say(first).await;
        client.say(second).await;
        let id = client.asked().await;
        let event = r#"{"x":"event","f":"notice","value":null}"#;
        client
            .say(&format!(
                "{event}\n{{\"x\":\"ok\",\"id\":{id},\"value\":1}}\n"
            ))
            .await;
    })
    .await;
    assert_eq!(driven.faults, [""; 0]);
    assert_eq!(completions(&history), [OK, (Kind::Info, None), OK]);
}

#[tokio::test]
async fn an_id_that_is_answered_twice_is_a_fault() {
    let (driven, history) = driven_by(reads(2), async |client| {
        let id = client.asked().await;
        client.answer(id).await;
        client.answer(id).await;
        let id = client.asked().await;
        client.answer(id).await;
    })
    .await;
    assert_eq!(
        driven.faults,
        ["client c1: an answer to id 0, which is not open"]
    );
    assert_eq!(completions(&history), [OK, OK]);
}

#[tokio::test]
async fn an_id_that_was_never_asked_is_a_fault() {
    let (driven, history) = driven_by(reads(1), async |client| {
        let id = client.asked().await;
        client.answer(4711).await;
        client.answer(id).await;
    })
    .await;
    assert_eq!(
        driven.faults,
        ["client c1: an answer to id 4711, which is not open"]
    );
    assert_eq!(completions(&history), [OK]);
}

#[tokio::test]
async fn garbage_is_a_fault_and_its_operation_stays_indeterminate() {
    let (driven, history) = driven_by(reads(2), async |client| {
        client.asked().await;
        client.say("panicked at src/main.rs:3\n").await;
        let id = client.asked().await;
        client.answer(id).await;
    })
    .await;
    assert_eq!(driven.faults.len(), 1);
    assert!(driven.faults[0].contains("panicked"), "{:?}", driven.faults);
    assert_eq!(completions(&history), [ended(Kind::Info, "no answer"), OK]);
    // After an indeterminate operation its process is not used again.
    let processes: Vec<_> = history
        .events()
        .filter(|event| event.kind() == Kind::Invoke)
        .map(|event| event.process().clone())
        .collect();
    assert_eq!(processes, [Process::Number(0), Process::Number(1)]);
}

#[tokio::test]
async fn a_late_answer_is_counted_and_changes_nothing() {
    let (driven, history) = driven_by(reads(2), async |client| {
        let late = client.asked().await;
        let id = client.asked().await;
        client.answer(late).await;
        client.answer(id).await;
    })
    .await;
    assert_eq!((driven.late, driven.ok), (1, 1));
    assert_eq!(driven.faults, [""; 0]);
    assert_eq!(completions(&history), [ended(Kind::Info, "no answer"), OK]);
}

#[tokio::test]
async fn what_is_open_when_a_client_closes_is_indeterminate_and_the_rest_fails_slowly() {
    let (driven, history) = driven_by(reads(3), async |client| {
        client.asked().await;
        client.close().await;
    })
    .await;
    assert_eq!(driven.faults, [""; 0]);
    let dead = ended(Kind::Fail, "client is dead");
    assert_eq!(
        completions(&history),
        [ended(Kind::Info, "client died"), dead.clone(), dead]
    );
    assert!(
        history.end() >= 2 * DEAD_PAUSE,
        "a dead client was asked as fast as it goes"
    );
}

#[tokio::test]
async fn a_drive_that_is_cancelled_ends_at_once_with_what_is_open_indeterminate() {
    let (mut bench, mut fake) = Bench::new(3_600_000_000_000);
    let (sink, mut cancel) = watch::channel(false);
    tokio::join!(bench.driver.run(op("read").boxed(), &mut cancel), async {
        fake.asked().await;
        sink.send(true).unwrap();
    });
    let (driven, history) = bench.finish();
    assert!(driven.cancelled);
    assert_eq!(completions(&history), [ended(Kind::Info, "cancelled")]);
}
