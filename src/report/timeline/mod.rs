//! What a run looked like over time, as numbers: lanes, fault bands, elections and their gaps.
//!
//! One pass over the history for each part; nothing is drawn here. What an observer did not see is
//! a stretch of its own ([`State::Unseen`]), never the state before it. The picture is made in
//! `plot/`; whether something was a violation is for checkers alone.

mod bands;
mod holders;
mod leaders;

use history::History;

use crate::result::RunResult;

pub use bands::Band;
pub use leaders::{Gap, Reign, describe as describe_gaps};

/// Everything about a run that has a place in time.
pub struct Timeline {
    /// The end of the time axis, ns since the run began.
    pub end: u64,
    /// The faults that began, in order of their numbers.
    pub bands: Vec<Band>,
    /// One lane for each server, in the order of the nodes.
    pub servers: Vec<Lane>,
    /// One lane for each client and lock that was held.
    pub holders: Vec<Lane>,
    /// How many lanes of holders were left out because there are too many.
    pub holders_left_out: usize,
    /// The leaderships that were seen, in order.
    pub reigns: Vec<Reign>,
    /// The times between them.
    pub gaps: Vec<Gap>,
    /// The usual time between two questions to one node, ns; 0 if nobody was asked.
    pub sampling: u64,
    views: Vec<leaders::Views>,
}

/// One line of the timeline.
pub struct Lane {
    /// The node, or the client and its lock.
    pub name: String,
    /// What it was, without overlaps, in order.
    pub segments: Vec<Segment>,
}

/// A stretch of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Begin, ns.
    pub from: u64,
    /// End, ns.
    pub to: u64,
    /// What it was.
    pub state: State,
    /// What to write on it: `LEADER term 4`.
    pub label: String,
}

/// What a node or client was in a stretch, the less remarkable first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Nobody asked, or not for a while.
    Unseen,
    /// It followed somebody.
    Follower,
    /// It said that it knows no leader.
    NoLeader,
    /// It was asked and did not answer.
    Silent,
    /// It was killed and did not answer.
    Down,
    /// A client that holds the lock, as far as anybody knows.
    Holder,
    /// It said that it leads, and nobody else did with a higher term.
    Leader,
    /// A client that was not told that somebody else holds its lock now.
    StaleHolder,
    /// It said that it leads after another had been elected.
    StaleLeader,
    /// It said that it leads a term that another leads too.
    Split,
}

impl State {
    /// All states.
    pub const ALL: [State; 10] = [
        State::Unseen,
        State::Follower,
        State::NoLeader,
        State::Silent,
        State::Down,
        State::Holder,
        State::Leader,
        State::StaleHolder,
        State::StaleLeader,
        State::Split,
    ];

    /// What it is called, in the legend and for those who cannot see it.
    pub fn word(self) -> &'static str {
        match self {
            State::Unseen => "not observed",
            State::Follower => "follower",
            State::NoLeader => "knows no leader",
            State::Silent => "no answer",
            State::Down => "down",
            State::Holder => "holds",
            State::Leader => "leader",
            State::StaleHolder => "thinks it holds",
            State::StaleLeader => "thinks it leads",
            State::Split => "two leaders in one term",
        }
    }
}

impl Timeline {
    /// Reads the timeline off a run and its history.
    pub fn of(run: &RunResult, history: &History) -> Timeline {
        let bands = bands::of(run, history);
        let faults_end = bands.iter().map(Band::last_known).max().unwrap_or(0);
        let end = history.end().max(faults_end).max(1);
        let seen = leaders::of(&server_names(run, history), history, &bands, end);
        let holders = holders::of(history, end);
        Timeline {
            end,
            servers: seen.lanes,
            reigns: seen.reigns,
            gaps: seen.gaps,
            sampling: seen.sampling,
            views: seen.views,
            holders: holders.lanes,
            holders_left_out: holders.left_out,
            bands,
        }
    }

    /// How often another node came to lead, as observers saw it; `None` if they never saw a leader.
    /// A leader that is elected again in a new term is not another.
    pub fn leader_changes(&self) -> Option<u64> {
        if self.reigns.is_empty() {
            return None;
        }
        let changes = self
            .reigns
            .windows(2)
            .filter(|pair| pair[0].leader != pair[1].leader);
        Some(changes.count() as u64)
    }

    /// The leader that a node named last before this time, or, without a node, the newest leader
    /// that anybody was: `n1 / term 4`.
    pub fn leader_seen(&self, node: Option<&str>, time: u64) -> Option<String> {
        let by_node = node.and_then(|node| self.views.iter().find(|views| views.node == node));
        if let Some(views) = by_node {
            return views.at(time);
        }
        let reign = self.reigns.iter().rev().find(|reign| reign.first <= time)?;
        Some(reign.name())
    }

    /// The faults that were in force at a time, or had just been healed: `#1 freeze c2`.
    pub fn faults_at(&self, time: u64) -> String {
        let parts: Vec<String> = self
            .bands
            .iter()
            .filter_map(|band| {
                if band.end.is_none_or(|end| end > time) && band.touches(time, time) {
                    return Some(band.name());
                }
                band.healed_just_before(time)
            })
            .collect();
        parts.join("; ")
    }
}

/// The servers: those of the result, or of the header, or those that observers spoke of.
fn server_names(run: &RunResult, history: &History) -> Vec<String> {
    let named: Vec<String> = run
        .nodes
        .iter()
        .filter(|node| node.role == "server")
        .map(|node| node.name.clone())
        .collect();
    if named.is_empty() {
        return history.header.nodes.clone();
    }
    named
}

/// Appends a stretch, joining it to the one before if they say the same.
fn extend(segments: &mut Vec<Segment>, from: u64, to: u64, state: State, label: &str) {
    if from >= to {
        return;
    }
    match segments.last_mut() {
        Some(last) if last.to == from && last.state == state && last.label == label => last.to = to,
        _ => segments.push(Segment {
            from,
            to,
            state,
            label: label.to_owned(),
        }),
    }
}
