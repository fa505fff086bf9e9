//! Histories of transactions over registers that nothing is wrong with: as text of Plume, and of
//! concurrent clients.

use std::fmt::Write;

use history::{Event, Header, History, HistoryBuilder, Kind, Process};
use serde_json::{Value, json};

/// Pseudo-random numbers, the same for everybody.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Transactions one after the other in 50 sessions, five reads or writes each of one of 10,000
/// keys: the load on which AWDIT was measured.
pub fn plume(txns: u64) -> String {
    let mut random = Random(42);
    let mut state = vec![0u64; 10_000];
    let mut text = String::new();
    let mut written = 0;
    for txn in 0..txns {
        let session = random.below(50);
        for _ in 0..5 {
            let key = random.below(state.len() as u64);
            let value = &mut state[key as usize];
            let f = if random.below(2) == 0 {
                'r'
            } else {
                written += 1;
                *value = written;
                'w'
            };
            writeln!(text, "{f}({key},{value},{session},{txn})").expect("a string takes all");
        }
    }
    text
}

/// A transaction that is under way: what it asks, and its answer if it has taken effect.
type Open = (Vec<(u64, Option<u64>)>, Option<Value>);

/// Ten clients of a strictly serializable store, each transaction of one to four reads and writes
/// of ten keys that are renewed after 32 writes, as Elle's generator makes them.
pub fn strict(txns: u64) -> History {
    let mut random = Random(7);
    let mut header = Header::new("wr", &["wr"]);
    header
        .params
        .insert("sequential_keys".to_owned(), true.into());
    let mut builder = HistoryBuilder::new(header);
    let mut keys: Vec<(u64, u64)> = (0..10).map(|key| (key, 0)).collect();
    let mut state: Vec<Option<u64>> = vec![None; 10];
    let mut open: Vec<Option<Open>> = vec![None; 10];
    let (mut begun, mut time) = (0, 0);
    while begun < txns || open.iter().any(Option::is_some) {
        let client = random.below(10);
        time += 1_000;
        let mut push = |kind, value| {
            let event = Event::new(time, Process::Number(client), kind, "txn", value);
            builder.push(&event).expect("a consistent history");
        };
        if let Some((asked, answer)) = open[client as usize].take() {
            push(
                Kind::Ok,
                answer.unwrap_or_else(|| execute(&asked, &mut state)),
            );
        } else if begun < txns {
            begun += 1;
            let asked: Vec<(u64, Option<u64>)> = (0..=random.below(4))
                .map(|_| ask(&mut random, &mut keys, &mut state))
                .collect();
            let value = asked.iter().map(|&(key, write)| match write {
                Some(value) => json!(["w", key, value]),
                None => json!(["r", key, null]),
            });
            push(Kind::Invoke, value.collect());
            let is_early = random.below(2) == 0;
            let answer = is_early.then(|| execute(&asked, &mut state));
            open[client as usize] = Some((asked, answer));
        }
    }
    builder.finish()
}

fn ask(
    random: &mut Random,
    keys: &mut [(u64, u64)],
    state: &mut Vec<Option<u64>>,
) -> (u64, Option<u64>) {
    let place = random.below(keys.len() as u64) as usize;
    let (key, writes) = &mut keys[place];
    if random.below(2) == 0 {
        return (*key, None);
    }
    *writes += 1;
    let write = (*key, Some(*writes));
    if *writes == 32 {
        (*key, *writes) = (state.len() as u64, 0);
        state.push(None);
    }
    write
}

fn execute(asked: &[(u64, Option<u64>)], state: &mut [Option<u64>]) -> Value {
    let done = asked.iter().map(|&(key, write)| match write {
        Some(value) => {
            state[key as usize] = Some(value);
            json!(["w", key, value])
        }
        None => json!(["r", key, state[key as usize]]),
    });
    done.collect()
}
