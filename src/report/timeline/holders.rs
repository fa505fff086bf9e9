//! Which client believed that it holds a lock, from when to when, as its operations tell it.
//!
//! A client holds from the answer to its `acquire` until it asks for the release, is told that the
//! lock is lost, or is refused a renewal. From the moment at which somebody else is granted the
//! same lock it only thinks so. What the service believed is not known here.

use std::collections::HashMap;

use history::{EventRef, History, Kind, NONE, ValueRef};

use super::{Lane, Segment, State, extend};
use crate::report::words;

/// More lanes than this cannot be read.
const LANES_MAX: usize = 12;

/// The lanes of holders that are drawn.
pub struct Holders {
    pub lanes: Vec<Lane>,
    pub left_out: usize,
}

struct Track {
    process: u32,
    key: u32,
    segments: Vec<Segment>,
    /// Since when it holds, with which words, and as what.
    open: Option<(u64, String, State)>,
}

impl Track {
    fn close(&mut self, at: u64) {
        if let Some((from, label, state)) = self.open.take() {
            extend(&mut self.segments, from, at, state, &label);
        }
    }

    fn begin(&mut self, at: u64, label: String, state: State) {
        self.close(at);
        self.open = Some((at, label, state));
    }
}

/// Follows all holds.
pub fn of(history: &History, end: u64) -> Holders {
    let mut tracks: Vec<Track> = Vec::new();
    let mut place: HashMap<(u32, u32), usize> = HashMap::new();
    // The tracks of each key that hold it now: seldom more than two.
    let mut holding: HashMap<u32, Vec<usize>> = HashMap::new();
    for event in history.events() {
        if event.is_nemesis() || event.is_observer() {
            continue;
        }
        let key = event.key_id().unwrap_or(NONE);
        match (event.f(), event.kind()) {
            ("acquire" | "lead", Kind::Ok) if is_grant(event.value()) => {
                let at = *place.entry((event.process_id(), key)).or_insert_with(|| {
                    tracks.push(Track {
                        process: event.process_id(),
                        key,
                        segments: Vec::new(),
                        open: None,
                    });
                    tracks.len() - 1
                });
                let others = holding.entry(key).or_default();
                for &other in others.iter().filter(|&&other| other != at) {
                    outdate(&mut tracks[other], event.time());
                }
                if !others.contains(&at) {
                    others.push(at);
                }
                tracks[at].begin(event.time(), label("holds", event), State::Holder);
            }
            ("release" | "resign", Kind::Invoke)
            | ("renew", Kind::Fail)
            | ("lost", Kind::Info)
            | ("acquire" | "lead", Kind::Invoke) => {
                let Some(&at) = place.get(&(event.process_id(), key)) else {
                    continue;
                };
                tracks[at].close(event.time());
                if let Some(others) = holding.get_mut(&key) {
                    others.retain(|&other| other != at);
                }
            }
            _ => {}
        }
    }
    for track in &mut tracks {
        track.close(end);
    }
    choose(history, tracks)
}

/// Whether the answer to an `acquire` grants the lock: not if it says that the token is null.
fn is_grant(answer: ValueRef<'_>) -> bool {
    answer.as_bool() != Some(false) && answer.get("token").is_none_or(|token| !token.is_null())
}

fn label(word: &str, event: EventRef<'_>) -> String {
    match event.value().get("token") {
        Some(token) => format!("{word}, token {}", words::value(token)),
        None => word.to_owned(),
    }
}

/// Somebody else was granted the lock: from now on this one only thinks that it holds it.
fn outdate(track: &mut Track, at: u64) {
    if let Some((_, label, State::Holder)) = &track.open {
        let label = label.replacen("holds", "thinks it holds", 1);
        track.begin(at, label, State::StaleHolder);
    }
}

/// Names the lanes; if there are too many, those on which two believed come first.
fn choose(history: &History, tracks: Vec<Track>) -> Holders {
    let held: Vec<Track> = tracks
        .into_iter()
        .filter(|track| !track.segments.is_empty())
        .collect();
    let one_lock = held.iter().all(|track| track.key == held[0].key);
    let mut lanes: Vec<Lane> = Vec::new();
    // A client that goes on under a new process number stays in its lane.
    let mut last_of_name: HashMap<String, usize> = HashMap::new();
    for track in held {
        let process = history.process_name(track.process);
        let who = words::client_node(history, process)
            .map_or_else(|| format!("process {process}"), str::to_owned);
        let name = if one_lock || track.key == NONE {
            who
        } else {
            format!("{who} {}", words::value(history.key_value(track.key)))
        };
        let before = last_of_name.get(&name).copied().filter(|&at| {
            let last = lanes[at].segments.last();
            last.is_none_or(|last| last.to <= track.segments[0].from)
        });
        match before {
            Some(at) => lanes[at].segments.extend(track.segments),
            None => {
                last_of_name.insert(name.clone(), lanes.len());
                lanes.push(Lane {
                    name,
                    segments: track.segments,
                });
            }
        }
    }
    let left_out = lanes.len().saturating_sub(LANES_MAX);
    if left_out > 0 {
        lanes.sort_by_key(|lane| {
            !lane
                .segments
                .iter()
                .any(|segment| segment.state == State::StaleHolder)
        });
        lanes.truncate(LANES_MAX);
    }
    lanes.sort_by(|a, b| a.name.cmp(&b.name));
    Holders { lanes, left_out }
}
