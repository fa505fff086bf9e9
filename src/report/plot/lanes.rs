//! The lanes: one for each server and each holder, with fault bands across and violations marked.

use maud::{Markup, html};

use super::{Axis, LEFT, RIGHT, WIDTH, draw, fixed, picture};
use crate::report::timeline::{Lane, Segment, State, Timeline};
use crate::report::words;

const TOP: f64 = 32.0;
const LANE: f64 = 18.0;
const STEP: f64 = 24.0;
const GROUP_GAP: f64 = 10.0;
/// A lane with more stretches than this is drawn pixel by pixel, without words on it.
const SEGMENTS_MAX: usize = 120;
const CHAR_WIDTH: f64 = 6.1;

/// Draws all lanes.
pub fn lanes(axis: &Axis<'_>) -> Markup {
    let timeline = axis.timeline;
    let servers = timeline.servers.len() as f64;
    let gap = if timeline.holders.is_empty() {
        0.0
    } else {
        GROUP_GAP
    };
    let bottom = TOP + STEP * (servers + timeline.holders.len() as f64) + gap;
    let content = html! {
        defs {
            pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"
                patternTransform="rotate(45)" { rect.hatch width="2" height="6" {} }
        }
        (axis.bands(14.0, bottom, true))
        (axis.ticks(14.0, bottom))
        @for (at, lane) in timeline.servers.iter().enumerate() {
            (draw_lane(axis, lane, TOP + STEP * at as f64))
        }
        @if gap > 0.0 && servers > 0.0 {
            @let y = fixed(TOP + STEP * servers + gap / 2.0 - 3.0);
            line class="rule" x1="6" x2=(fixed(RIGHT)) y1=(y) y2=(y) {}
        }
        @for (at, lane) in timeline.holders.iter().enumerate() {
            (draw_lane(axis, lane, TOP + STEP * (servers + at as f64) + gap))
        }
        (axis.marks(14.0, bottom, Some(26.0)))
    };
    picture(bottom + 16.0, &describe(timeline), axis, &content)
}

/// The states that appear on any lane, for the legend; what was not observed only if it is long.
pub fn states(timeline: &Timeline) -> Vec<State> {
    let is_long = |segment: &Segment| (segment.to - segment.from) >= timeline.end / 100;
    let all = || {
        timeline
            .servers
            .iter()
            .chain(&timeline.holders)
            .flat_map(|lane| &lane.segments)
    };
    State::ALL
        .into_iter()
        .filter(|state| all().any(|s| s.state == *state && (is_long(s) || *state != State::Unseen)))
        .collect()
}

/// What the picture shows, for those who cannot see it. The table of elections says the same.
fn describe(timeline: &Timeline) -> String {
    let leaders: Vec<String> = timeline
        .reigns
        .iter()
        .take(20)
        .map(|reign| format!("{} from {} s", reign.name(), words::clock(reign.first)))
        .collect();
    let leaders = if leaders.is_empty() {
        "no leader was observed".to_owned()
    } else {
        format!("leaders in order: {}", leaders.join(", "))
    };
    format!(
        "Timeline of {} and {}; {leaders}.",
        words::plural(timeline.servers.len() as u64, "server"),
        words::plural(timeline.holders.len() as u64, "lock holder"),
    )
}

fn draw_lane(axis: &Axis<'_>, lane: &Lane, y: f64) -> Markup {
    html! {
        text class="name" x=(fixed(LEFT - 8.0)) y=(fixed(y + 13.0)) { (short_name(&lane.name)) }
        rect class="lane" x=(fixed(LEFT)) y=(fixed(y)) width=(fixed(RIGHT - LEFT))
            height=(fixed(LANE)) {}
        @if lane.segments.len() > SEGMENTS_MAX {
            (dense(axis, lane, y))
        } @else {
            @for segment in &lane.segments { (one(axis, segment, y)) }
        }
    }
}

fn one(axis: &Axis<'_>, segment: &Segment, y: f64) -> Markup {
    let x = axis.x(segment.from);
    let width = (axis.x(segment.to) - x).max(1.0);
    let title = format!(
        "{}: {}–{} s",
        if segment.label.is_empty() {
            segment.state.word()
        } else {
            &segment.label
        },
        words::clock(segment.from),
        words::clock(segment.to)
    );
    let label = fitting(segment, width);
    html! {
        @if segment.state != State::Unseen {
            rect class={ "seg " (class(segment.state)) } x=(fixed(x)) y=(fixed(y))
                width=(fixed(width)) height=(fixed(LANE)) { title { (title) } }
            @if hatched(segment.state) {
                rect fill="url(#hatch)" pointer-events="none" x=(fixed(x)) y=(fixed(y))
                    width=(fixed(width)) height=(fixed(LANE)) {}
            }
        }
        @if let Some(label) = label {
            text class={ "on " (class(segment.state)) } x=(fixed(x + 4.0)) y=(fixed(y + 13.0))
                pointer-events="none" { (label) }
        }
    }
}

/// The longest wording that fits the stretch.
fn fitting(segment: &Segment, width: f64) -> Option<String> {
    let short = match segment.label.rsplit_once(' ') {
        Some((_, number)) if number.bytes().all(|b| b.is_ascii_digit()) => number,
        _ => "",
    };
    [segment.label.as_str(), segment.state.word(), short]
        .into_iter()
        .find(|label| !label.is_empty() && label.chars().count() as f64 * CHAR_WIDTH + 8.0 <= width)
        .filter(|_| segment.state != State::Unseen || width > 90.0)
        .map(str::to_owned)
}

/// One column a pixel, each with the most remarkable state in it: one path for each state.
fn dense(axis: &Axis<'_>, lane: &Lane, y: f64) -> Markup {
    let mut columns = vec![State::Unseen; WIDTH as usize];
    for segment in &lane.segments {
        let from = axis.x(segment.from) as usize;
        let to = (axis.x(segment.to).ceil() as usize).clamp(from + 1, columns.len());
        for column in &mut columns[from.min(to - 1)..to] {
            *column = (*column).max(segment.state);
        }
    }
    let mut paths: Vec<(State, String)> = Vec::new();
    let mut from = 0;
    for run in columns.chunk_by(|a, b| a == b) {
        if run[0] != State::Unseen {
            let at = paths
                .iter()
                .position(|(state, _)| *state == run[0])
                .unwrap_or_else(|| {
                    paths.push((run[0], String::new()));
                    paths.len() - 1
                });
            let width = run.len();
            let piece = format_args!("M{from} {}h{width}v{LANE}h-{width}z", fixed(y));
            draw(&mut paths[at].1, piece);
        }
        from += run.len();
    }
    html! {
        @for (state, path) in &paths {
            path class={ "seg " (class(*state)) } d=(path) { title { (state.word()) } }
            @if hatched(*state) { path fill="url(#hatch)" pointer-events="none" d=(path) {} }
        }
    }
}

/// The style of a state.
pub fn class(state: State) -> &'static str {
    match state {
        State::Unseen => "unseen",
        State::Follower => "follower",
        State::NoLeader => "noleader",
        State::Silent => "silent",
        State::Down => "down",
        State::Holder => "holder",
        State::Leader => "leader",
        State::StaleHolder | State::StaleLeader => "stale",
        State::Split => "split",
    }
}

/// Whether a state is hatched, so that it can be told without colours.
pub fn hatched(state: State) -> bool {
    matches!(
        state,
        State::StaleHolder | State::StaleLeader | State::Split
    )
}

fn short_name(name: &str) -> String {
    const MAX: usize = 13;
    if name.chars().count() <= MAX {
        return name.to_owned();
    }
    let head: String = name.chars().take(MAX - 1).collect();
    format!("{head}…")
}
