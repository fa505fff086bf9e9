//! A violation of a lock among many operations, some of which were not answered, is told in a few
//! rows without search, and what is told convicts by itself.

use checkers::linearizable::models::MODELS;
use checkers::{Budget, Checked, Verdict};
use history::{Event, Header, History, HistoryBuilder, Kind, Process};
use serde_json::{Value, json};

const THREADS: u64 = 5;
const HOLDS: u64 = 20_000;
/// Every so many holds a release, or an acquire, has no answer.
const RELEASE_LOST: u64 = 10;
const ACQUIRE_LOST: u64 = 15;

/// What goes wrong in the end.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    /// Somebody is granted what another has.
    Granted,
    /// Somebody gives back twice.
    GivenBack,
}

struct Clients {
    events: Vec<Event>,
    /// Which process a thread is.
    process: Vec<u64>,
    token: u64,
}

impl Clients {
    fn push(&mut self, thread: usize, kind: Kind, f: &str, value: Value) {
        let process = Process::Number(self.process[thread]);
        let time = self.events.len() as u64;
        self.events
            .push(Event::new(time, process, kind, f, value).with_key("L"));
    }

    fn call(&mut self, thread: usize, f: &str, is_answered: bool) {
        self.push(thread, Kind::Invoke, f, Value::Null);
        self.token += 1;
        if !is_answered {
            self.push(thread, Kind::Info, f, Value::Null);
            self.process[thread] += THREADS;
            return;
        }
        let answer = match f {
            "acquire" => json!({"token": self.token}),
            _ => Value::Null,
        };
        self.push(thread, Kind::Ok, f, answer);
    }
}

/// Threads that hold a lock in turn.
fn history(model: &str, wrong: Wrong) -> History {
    let mut clients = Clients {
        events: Vec::new(),
        process: (0..THREADS).collect(),
        token: 0,
    };
    // Tokens of grants without an answer are not known: then there are none.
    let lost = |hold: u64, every: u64| model != "fenced-mutex" && hold % every == 7;
    for hold in 0..HOLDS {
        let thread = (hold % THREADS) as usize;
        clients.call(thread, "acquire", !lost(hold, ACQUIRE_LOST));
        let goes_wrong = hold == HOLDS - 9;
        if wrong == Wrong::Granted && goes_wrong {
            clients.call((thread + 1) % 5, "acquire", true);
        }
        let is_answered = goes_wrong || lost(hold, ACQUIRE_LOST) || !lost(hold, RELEASE_LOST);
        clients.call(thread, "release", is_answered);
        if wrong == Wrong::GivenBack && goes_wrong {
            clients.call(thread, "release", true);
        }
    }
    build(model, clients.events)
}

fn build(model: &str, events: Vec<Event>) -> History {
    let mut header = Header::new(model, &[]);
    header.params.insert("threads".to_owned(), json!(THREADS));
    let mut builder = HistoryBuilder::new(header);
    for event in events {
        builder.push(&event).expect("a consistent history");
    }
    builder.finish()
}

fn check(history: &History) -> Checked {
    let checker = checkers::find("linearizable").expect("the checker");
    checkers::run(checker, history, &Budget::unlimited())
}

#[test]
fn a_violation_of_a_lock_is_told_without_search() {
    let locks = MODELS.iter().map(|model| model.name);
    let locks = locks.filter(|name| name.contains("mutex") || *name == "semaphore");
    for model in locks {
        let good = check(&history(model, Wrong::Nothing));
        assert_eq!(good.verdict, Verdict::Valid, "{model}");
        assert_eq!(good.counted("keys_by_shortcut"), Some(1), "{model}");
        for wrong in [Wrong::Granted, Wrong::GivenBack] {
            let history = history(model, wrong);
            let bad = check(&history);
            assert_eq!(bad.verdict, Verdict::Invalid, "{model}");
            assert_eq!(bad.counted("keys_by_shortcut"), Some(1), "{model}");
            let are_left_out = |note: &String| note.contains("are shown");
            assert!(!bad.notes.iter().any(are_left_out), "{model}");
            let told = bad.counterexample.expect("a counterexample");
            assert!(told.rows.len() <= 10, "{model}: {told:?}");
            let shown = |event: &history::EventRef<'_>| {
                let partner = event.partner().map(|partner| partner.index());
                let is_shown = |at: usize| told.rows.iter().any(|row| row.event == at);
                is_shown(event.index()) || partner.is_some_and(is_shown)
            };
            let part = history.events().filter(shown);
            let part = build(model, part.map(|event| event.to_event()).collect());
            assert_eq!(check(&part).verdict, Verdict::Invalid, "{model}: {told:?}");
        }
    }
}
