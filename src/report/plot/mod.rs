//! Pictures of a run as inline SVG: lanes, latency and rate over one time axis.
//!
//! Colours come from the classes of the page's style sheet, so that light, dark and print are one
//! picture. The size of every picture is bounded by its pixels, not by the length of the run.

mod lanes;
mod latency;
mod rate;

use std::fmt::Write as _;

use maud::{Markup, html};

use super::timeline::{Band, Timeline};
use super::words;

pub use lanes::{class, hatched, lanes, states};
pub use latency::{class as outcome_class, latency};
pub use rate::rate;

/// Width of every picture in its own units.
const WIDTH: f64 = 1000.0;
/// Where the time axis begins; names are to the left of it.
const LEFT: f64 = 96.0;
/// Where it ends.
const RIGHT: f64 = 992.0;
/// More bands than this cannot be told apart, and are drawn as one for each kind.
const BANDS_MAX: usize = 300;
/// How many styles there are for kinds of faults.
const FAULT_STYLES: usize = 6;

/// The time axis, shared by all pictures of a run.
pub struct Axis<'a> {
    /// The run.
    pub timeline: &'a Timeline,
    /// Times of violations, ns, in order.
    pub violations: &'a [u64],
    kinds: Vec<&'a str>,
}

impl<'a> Axis<'a> {
    /// The axis of a run with the times at which promises were broken.
    pub fn new(timeline: &'a Timeline, violations: &'a [u64]) -> Axis<'a> {
        let mut kinds: Vec<&str> = Vec::new();
        for band in &timeline.bands {
            if !kinds.contains(&band.fault.as_str()) {
                kinds.push(&band.fault);
            }
        }
        Axis {
            timeline,
            violations,
            kinds,
        }
    }

    /// The place of a time.
    fn x(&self, at: u64) -> f64 {
        let share = at as f64 / self.timeline.end as f64;
        LEFT + (RIGHT - LEFT) * share.clamp(0.0, 1.0)
    }

    /// The style of a kind of fault.
    pub fn fault_class(&self, fault: &str) -> String {
        let kind = self
            .kinds
            .iter()
            .position(|kind| *kind == fault)
            .unwrap_or(0);
        format!("f{}", kind % FAULT_STYLES)
    }

    /// Fault bands from `top` to `bottom`; with their numbers above if there is room.
    fn bands(&self, top: f64, bottom: f64, numbers: bool) -> Markup {
        let drawn = &self.timeline.bands;
        if drawn.len() > BANDS_MAX {
            return self.dense_bands(top, bottom);
        }
        let room = with_room(drawn.iter().map(|band| self.x(band.begin)), 30.0);
        let height = fixed(bottom - top);
        html! {
            @for (band, has_room) in drawn.iter().zip(room) {
                @let from = self.x(band.begin);
                @let to = self.x(band.end.unwrap_or(self.timeline.end)).max(from + 1.5);
                rect class={ "band " (self.fault_class(&band.fault)) @if !band.landed { " missed" } }
                    x=(fixed(from)) y=(fixed(top)) width=(fixed(to - from)) height=(height) {
                    title { (band_title(band)) }
                }
                @if numbers && has_room {
                    text class="num" x=(fixed(from + 1.0)) y=(fixed(top - 3.0)) { "#" (band.id) }
                }
            }
        }
    }

    /// So many faults that each kind is one path: where at least one of it was in force.
    fn dense_bands(&self, top: f64, bottom: f64) -> Markup {
        let (y, height) = (fixed(top), fixed(bottom - top));
        let paths = self.kinds.iter().map(|&kind| {
            let mut columns = vec![false; WIDTH as usize + 1];
            for band in self
                .timeline
                .bands
                .iter()
                .filter(|band| band.fault == kind && band.landed)
            {
                let from = self.x(band.begin) as usize;
                let to = self.x(band.end.unwrap_or(self.timeline.end)) as usize;
                columns[from..=to].fill(true);
            }
            let mut path = String::new();
            let mut from = 0;
            for run in columns.chunk_by(|a, b| a == b) {
                if run[0] {
                    let width = run.len();
                    draw(
                        &mut path,
                        format_args!("M{from} {y}h{width}v{height}h-{width}z"),
                    );
                }
                from += run.len();
            }
            (kind, path)
        });
        html! {
            @for (kind, path) in paths {
                path class={ "band many " (self.fault_class(kind)) } d=(path) { title { (kind) } }
            }
        }
    }

    /// Lines at round times from `top` to `bottom`, and the times below.
    fn ticks(&self, top: f64, bottom: f64) -> Markup {
        let step = tick_step(self.timeline.end);
        html! {
            @for tick in 0..=self.timeline.end / step {
                @let x = fixed(self.x(tick * step));
                line class="grid" x1=(x) x2=(x) y1=(fixed(top)) y2=(fixed(bottom)) {}
                @let last = self.x(tick * step) > RIGHT - 14.0;
                text class={ "tick" @if last { " last" } } x=(x) y=(fixed(bottom + 12.0)) { (tick_label(tick * step)) }
            }
        }
    }

    /// Lines where promises were broken; with the time above them if there is room.
    fn marks(&self, top: f64, bottom: f64, label_y: Option<f64>) -> Markup {
        let room = with_room(self.violations.iter().map(|&at| self.x(at)), 110.0);
        html! {
            @for (&at, has_room) in self.violations.iter().zip(room) {
                @let x = self.x(at);
                line class="broken" x1=(fixed(x)) x2=(fixed(x)) y1=(fixed(top)) y2=(fixed(bottom)) {}
                @if let Some(y) = label_y.filter(|_| has_room) {
                    @let left = x > RIGHT - 110.0;
                    text class={ "broken" @if left { " left" } }
                        x=(fixed(if left { x - 4.0 } else { x + 4.0 })) y=(fixed(y)) {
                        "✗ violation " (words::clock(at)) " s"
                    }
                }
            }
        }
    }
}

/// A picture of this height with a description for those who cannot see it.
fn picture(height: f64, about: &str, axis: &Axis<'_>, content: &Markup) -> Markup {
    html! {
        svg.plot viewBox={ "0 0 " (fixed(WIDTH)) " " (fixed(height)) } role="img" aria-label=(about)
            data-end=(axis.timeline.end) data-left=(fixed(LEFT)) data-right=(fixed(RIGHT)) {
            (content)
        }
    }
}

fn band_title(band: &Band) -> String {
    let end = band
        .end
        .map_or_else(|| "end unknown".to_owned(), words::clock);
    let landed = if band.landed {
        "landed"
    } else {
        "did not land"
    };
    format!(
        "{}: {}–{} s, {landed}",
        band.name(),
        words::clock(band.begin),
        end
    )
}

/// Which of these labels of a width can be written without touching the one before.
fn with_room(places: impl Iterator<Item = f64>, width: f64) -> Vec<bool> {
    let mut free = f64::MIN;
    places
        .map(|x| {
            let fits = x >= free;
            if fits {
                free = x + width;
            }
            fits
        })
        .collect()
}

/// The distance of ticks, ns: round, and at most twelve of them.
fn tick_step(end: u64) -> u64 {
    const MS: u64 = 1_000_000;
    const STEPS_MS: &[u64] = &[
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000,
        120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000,
    ];
    STEPS_MS
        .iter()
        .map(|ms| ms * MS)
        .find(|step| end / step < 12)
        .unwrap_or_else(|| (end / 10).max(1))
}

fn tick_label(at: u64) -> String {
    if at.is_multiple_of(1_000_000_000) {
        format!("{} s", words::thousands(at / 1_000_000_000))
    } else {
        format!("{} ms", at / 1_000_000)
    }
}

/// A number with at most one digit after the point: enough for a picture, and short.
fn fixed(number: f64) -> String {
    let mut text = format!("{number:.1}");
    if text.ends_with(".0") {
        text.truncate(text.len() - 2);
    }
    text
}

/// Adds a piece of a path.
fn draw(path: &mut String, piece: std::fmt::Arguments<'_>) {
    path.write_fmt(piece)
        .expect("a string takes all that is written to it");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for end in [
            1,
            900_000_000,
            12_000_000_000,
            61_000_000_000,
            86_400_000_000_000,
        ] {
            let step = tick_step(end);
            assert!(end / step <= 25, "{end}: {step}");
        }
        assert_eq!(tick_step(60_000_000_000), 10_000_000_000);
        assert_eq!(fixed(2.04), "2");
        assert_eq!(fixed(2.46), "2.5");
    }
}
