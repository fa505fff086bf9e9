//! Who led, as each server said when it was asked, and the gaps between leaders.
//!
//! A node's answer holds until the next one, but not for longer than a few usual intervals: after
//! that it is not observed. A claim to lead is out of date from the first answer that was given
//! after another node had been seen leading a higher term; that is never earlier than it was true.

use std::collections::HashMap;

use history::{EventRef, History, Kind, ValueRef};

use super::{Band, Lane, Segment, State, extend};
use crate::report::words;

/// An answer holds for so many usual intervals, and for at least a second.
const HOLD_INTERVALS: u64 = 5;
const HOLD_MIN_NS: u64 = 1_000_000_000;

/// Functions that change nothing; an `ok` of any other is a write that got through.
const READS: &[&str] = &["read", "get", "final-read", "list", "drain"];

/// A leadership: one node in one term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reign {
    /// The node.
    pub leader: String,
    /// The term, if the node told one.
    pub term: Option<u64>,
    /// When it was first seen to lead, ns.
    pub first: u64,
    /// When it last said so before another did, ns.
    pub last: u64,
    /// When it last said so at all, ns.
    pub believed: u64,
}

impl Reign {
    /// `n1 / term 4`.
    pub fn name(&self) -> String {
        match self.term {
            Some(term) => format!("{} / term {term}", self.leader),
            None => self.leader.clone(),
        }
    }
}

/// The time from the last answer of one leader to the first of the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The leader before.
    pub from: String,
    /// The leader after; `None` if there was none until the end of the run.
    pub to: Option<String>,
    /// Begin, ns.
    pub begin: u64,
    /// End, ns.
    pub end: u64,
    /// For how long the old one still said that it leads after the new one did, ns.
    pub two_believed: u64,
    /// The longest time without an `ok` of a write that touches the gap, ns; `None` if the
    /// workload never wrote.
    pub no_write: Option<u64>,
    /// Landed faults that were in force in the gap, or had just been healed.
    pub cause: String,
}

/// What one node said, one entry for each change.
pub struct Views {
    pub node: String,
    said: Vec<(u64, String)>,
}

impl Views {
    /// What it had said last before this time.
    pub fn at(&self, time: u64) -> Option<String> {
        let next = self.said.partition_point(|(at, _)| *at <= time);
        self.said
            .get(next.checked_sub(1)?)
            .map(|(_, said)| said.clone())
    }
}

/// Everything that observers saw.
pub struct Seen {
    pub lanes: Vec<Lane>,
    pub reigns: Vec<Reign>,
    pub gaps: Vec<Gap>,
    pub views: Vec<Views>,
    pub sampling: u64,
}

/// One answer of one node.
struct Answer<'h> {
    at: u64,
    node: &'h str,
    leader: Option<&'h str>,
    term: Option<u64>,
    silent: bool,
}

impl Answer<'_> {
    fn claims(&self) -> bool {
        self.leader == Some(self.node)
    }
}

fn answer(event: EventRef<'_>) -> Option<Answer<'_>> {
    if !event.is_observer() || event.f() != "leader" {
        return None;
    }
    Some(Answer {
        at: event.time(),
        node: event.node()?,
        leader: event.value().get("leader").and_then(ValueRef::as_str),
        term: event.value().get("term").and_then(ValueRef::as_u64),
        silent: event.error().is_some(),
    })
}

/// A node's lane while it is being made.
struct Track {
    views: Views,
    segments: Vec<Segment>,
    /// What the last answer said, and when.
    now: Option<(u64, State, String)>,
}

impl Track {
    fn new(node: &str) -> Track {
        Track {
            views: Views {
                node: node.to_owned(),
                said: Vec::new(),
            },
            segments: Vec::new(),
            now: None,
        }
    }

    /// Draws what was said last up to `at`, or as long as it can be believed.
    fn advance(&mut self, at: u64, hold: u64) {
        let drawn = self.segments.last().map_or(0, |last| last.to);
        match &self.now {
            None => extend(&mut self.segments, drawn, at, State::Unseen, ""),
            Some((since, state, label)) => {
                let until = at.min(since.saturating_add(hold));
                extend(&mut self.segments, drawn, until, *state, label);
                extend(&mut self.segments, until.max(drawn), at, State::Unseen, "");
            }
        }
    }

    fn see(&mut self, answer: &Answer<'_>, state: State, hold: u64) {
        self.advance(answer.at, hold);
        let label = match (state, answer.term) {
            (State::Leader, Some(term)) => format!("LEADER term {term}"),
            (State::Leader, None) => "LEADER".to_owned(),
            (State::StaleLeader | State::Split, Some(term)) => {
                format!("{}, term {term}", state.word())
            }
            _ => state.word().to_owned(),
        };
        let said = match (answer.leader, answer.term) {
            _ if answer.silent => "no answer".to_owned(),
            (Some(leader), Some(term)) => format!("{leader} / term {term}"),
            (Some(leader), None) => leader.to_owned(),
            (None, _) => "none".to_owned(),
        };
        if self.views.said.last().is_none_or(|(_, last)| *last != said) {
            self.views.said.push((answer.at, said));
        }
        self.now = Some((answer.at, state, label));
    }
}

/// Follows claims to lead, over all nodes.
#[derive(Default)]
struct Elections {
    reigns: Vec<Reign>,
    gaps: Vec<Gap>,
    /// Who first claimed each term, and whether another did too.
    terms: HashMap<u64, (String, bool)>,
}

impl Elections {
    /// What a claim makes of its node.
    fn claim(&mut self, answer: &Answer<'_>, hold: u64) -> State {
        let contested = answer.term.is_some_and(|term| {
            let (first, contested) = self
                .terms
                .entry(term)
                .or_insert_with(|| (answer.node.to_owned(), false));
            *contested |= first != answer.node;
            *contested
        });
        let same = |reign: &Reign| reign.leader == answer.node && reign.term == answer.term;
        let is_newest =
            match self.reigns.last() {
                None => true,
                Some(newest) if same(newest) => true,
                Some(newest) => match (answer.term, newest.term) {
                    (Some(term), Some(newest)) => term > newest,
                    _ => !self.reigns.iter().rev().skip(1).take(3).any(|reign| {
                        same(reign) && answer.at.saturating_sub(reign.believed) < hold
                    }),
                },
            };
        if is_newest {
            self.crown(answer, hold);
        } else if let Some(old) = self.reigns.iter_mut().rev().find(|reign| same(reign)) {
            old.believed = answer.at;
        }
        match (contested, is_newest) {
            (true, _) => State::Split,
            (false, true) => State::Leader,
            (false, false) => State::StaleLeader,
        }
    }

    /// The newest leader, old or new, says that it leads.
    fn crown(&mut self, answer: &Answer<'_>, hold: u64) {
        let new = Reign {
            leader: answer.node.to_owned(),
            term: answer.term,
            first: answer.at,
            last: answer.at,
            believed: answer.at,
        };
        let Some(newest) = self.reigns.last_mut() else {
            self.reigns.push(new);
            return;
        };
        let same = newest.leader == new.leader && newest.term == new.term;
        if !same || answer.at - newest.last > hold {
            self.gaps.push(Gap {
                from: newest.name(),
                to: Some(new.name()),
                begin: newest.last,
                end: answer.at,
                two_believed: 0,
                no_write: None,
                cause: String::new(),
            });
        }
        if same {
            newest.last = answer.at;
            newest.believed = answer.at;
        } else {
            self.reigns.push(new);
        }
    }
}

/// Follows all observations.
pub fn of(servers: &[String], history: &History, bands: &[Band], end: u64) -> Seen {
    let mut tracks: Vec<Track> = servers.iter().map(|node| Track::new(node)).collect();
    let mut place: HashMap<String, usize> = servers
        .iter()
        .cloned()
        .enumerate()
        .map(|(at, node)| (node, at))
        .collect();
    let sampling = sampling(history);
    let hold = sampling.saturating_mul(HOLD_INTERVALS).max(HOLD_MIN_NS);
    let mut elections = Elections::default();
    let mut last_answer = 0;
    for answer in history.events().filter_map(answer) {
        let at = match place.get(answer.node) {
            Some(&at) => at,
            None => {
                place.insert(answer.node.to_owned(), tracks.len());
                tracks.push(Track::new(answer.node));
                tracks.len() - 1
            }
        };
        let state = if answer.silent {
            killed_or_silent(bands, &answer)
        } else if answer.claims() {
            elections.claim(&answer, hold)
        } else if answer.leader.is_some() {
            State::Follower
        } else {
            State::NoLeader
        };
        tracks[at].see(&answer, state, hold);
        last_answer = answer.at;
    }
    let mut gaps = finish_gaps(elections.gaps, &elections.reigns, last_answer, hold);
    measure(&mut gaps, history, bands);
    let mut lanes = Vec::with_capacity(tracks.len());
    let mut views = Vec::with_capacity(tracks.len());
    for mut track in tracks {
        track.advance(end, hold);
        lanes.push(Lane {
            name: track.views.node.clone(),
            segments: track.segments,
        });
        views.push(track.views);
    }
    Seen {
        lanes,
        reigns: elections.reigns,
        gaps,
        views,
        sampling,
    }
}

fn killed_or_silent(bands: &[Band], answer: &Answer<'_>) -> State {
    let killed = bands.iter().any(|band| {
        band.fault.starts_with("kill")
            && band.touches(answer.at, answer.at)
            && band.strikes(answer.node)
    });
    if killed { State::Down } else { State::Silent }
}

/// The usual time between two answers of one node: the mean.
fn sampling(history: &History) -> u64 {
    let mut first_last: HashMap<&str, (u64, u64, u64)> = HashMap::new();
    for answer in history.events().filter_map(answer) {
        let entry = first_last
            .entry(answer.node)
            .or_insert((answer.at, answer.at, 0));
        entry.1 = answer.at;
        entry.2 += 1;
    }
    let (time, steps) = first_last
        .values()
        .fold((0, 0), |(time, steps), &(first, last, count)| {
            (time + (last - first), steps + (count - 1))
        });
    time.checked_div(steps).unwrap_or(0)
}

/// Adds a gap that never ended, and says for how long two believed.
fn finish_gaps(mut gaps: Vec<Gap>, reigns: &[Reign], last_answer: u64, hold: u64) -> Vec<Gap> {
    let mut changes = reigns.windows(2);
    for gap in &mut gaps {
        if gap.to.as_deref() == Some(gap.from.as_str()) {
            continue;
        }
        if let Some([old, new]) = changes.next() {
            gap.two_believed = old.believed.saturating_sub(new.first);
        }
    }
    if let Some(newest) = reigns.last()
        && last_answer.saturating_sub(newest.last) > hold
    {
        gaps.push(Gap {
            from: newest.name(),
            to: None,
            begin: newest.last,
            end: last_answer,
            two_believed: 0,
            no_write: None,
            cause: String::new(),
        });
    }
    gaps
}

/// Fills in what was done to the cluster in each gap and how long no write got through: one pass
/// over the writes, since both they and the gaps are in order.
fn measure(gaps: &mut [Gap], history: &History, bands: &[Band]) {
    for gap in gaps.iter_mut() {
        let causes: Vec<String> = bands
            .iter()
            .filter_map(|band| {
                if band.touches(gap.begin, gap.end) {
                    return Some(band.name());
                }
                band.healed_just_before(gap.begin)
            })
            .collect();
        gap.cause = causes.join("; ");
    }
    let mut wrote = false;
    let mut before = 0;
    let mut first = 0;
    let writes = history
        .events()
        .filter(|event| event.kind() == Kind::Ok && !READS.contains(&event.f()))
        .map(|event| (event.time(), true))
        .chain(std::iter::once((history.end(), false)));
    for (at, is_write) in writes {
        wrote |= is_write;
        while first < gaps.len() && gaps[first].end < before {
            first += 1;
        }
        for gap in gaps[first..].iter_mut().take_while(|gap| gap.begin <= at) {
            let longest = gap.no_write.get_or_insert(0);
            *longest = (*longest).max(at - before);
        }
        before = at;
    }
    if !wrote {
        gaps.iter_mut().for_each(|gap| gap.no_write = None);
    }
}

/// What the whole table of gaps says in one line, against a bound if there is one.
pub fn describe(gaps: &[Gap], bound_ns: Option<u64>) -> String {
    let Some(longest) = gaps.iter().map(|gap| gap.end - gap.begin).max() else {
        return "no gap between leaders was seen".to_owned();
    };
    let longest = words::span(longest);
    match bound_ns {
        None => format!("longest {longest}; no bound is declared"),
        Some(bound)
            if gaps
                .iter()
                .all(|gap| gap.end - gap.begin <= bound && gap.to.is_some()) =>
        {
            format!(
                "longest {longest}: within the bound of {}",
                words::span(bound)
            )
        }
        Some(bound) => format!(
            "longest {longest}: over the bound of {}",
            words::span(bound)
        ),
    }
}
