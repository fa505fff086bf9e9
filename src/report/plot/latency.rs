//! Latency over time on a logarithmic scale: a mark for each operation, or bins of them.

use std::collections::HashSet;

use history::Outcome;
use maud::{Markup, html};

use super::{Axis, LEFT, RIGHT, draw, fixed, picture};
use crate::report::samples::{OUTCOMES, Samples};
use crate::report::words;

const TOP: f64 = 28.0;
const BOTTOM: f64 = 180.0;
/// Where operations without an answer are marked.
const UNANSWERED_Y: f64 = 11.0;
/// A bin of time must have so many operations for its quantiles to be drawn.
const LEAST: u32 = 20;
/// In so much room, one mark stands for all of its kind.
const MARK_ROOM: (f64, f64) = (14.0, 9.0);
/// Shades of a bin by its share of the fullest one.
const SHADES: [f64; 3] = [0.0, 0.03, 0.25];

/// Draws latencies; `None` if no operation was answered.
pub fn latency(axis: &Axis<'_>, samples: &Samples) -> Option<Markup> {
    let scale = Scale::of(samples)?;
    let marks = if samples.points.is_empty() {
        binned(axis, samples, &scale)
    } else {
        points(axis, samples, &scale)
    };
    let content = html! {
        (axis.bands(TOP - 26.0, BOTTOM, false))
        (axis.ticks(TOP - 26.0, BOTTOM))
        @for decade in scale.low..=scale.high {
            @let y = scale.y(10f64.powi(decade));
            line class="grid" x1=(fixed(LEFT)) x2=(fixed(RIGHT)) y1=(fixed(y)) y2=(fixed(y)) {}
            text class="axis" x=(fixed(LEFT - 8.0)) y=(fixed(y + 4.0)) { (decade_label(decade)) }
        }
        @if samples.unanswered.iter().any(|&number| number > 0) {
            text class="axis" x=(fixed(LEFT - 8.0)) y=(fixed(UNANSWERED_Y + 4.0)) { "no answer" }
        }
        (marks)
        (axis.marks(TOP - 26.0, BOTTOM, None))
    };
    Some(picture(BOTTOM + 16.0, &describe(samples), axis, &content))
}

/// The logarithmic scale: powers of ten, ns.
struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    fn of(samples: &Samples) -> Option<Scale> {
        let (low, high) = samples.decades()?;
        Some(Scale { low, high })
    }

    fn y(&self, ns: f64) -> f64 {
        let share = (ns.max(1.0).log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        BOTTOM - (BOTTOM - TOP) * share.clamp(0.0, 1.0)
    }
}

fn decade_label(decade: i32) -> String {
    let (power, unit) = match decade {
        ..6 => (decade - 3, "µs"),
        6..9 => (decade - 6, "ms"),
        _ => (decade - 9, "s"),
    };
    format!("{} {unit}", 10u64.pow(power.unsigned_abs()))
}

/// The style of an outcome.
pub fn class(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Fail => "fail",
        Outcome::Info => "info",
    }
}

/// A mark whose shape alone tells the outcome: a dot, a cross, a triangle.
fn mark(path: &mut String, outcome: Outcome, x: f64, y: f64) {
    match outcome {
        Outcome::Ok => draw(path, format_args!("M{} {}h0", fixed(x), fixed(y))),
        Outcome::Fail => {
            draw(
                path,
                format_args!("M{} {}l5 5m0-5l-5 5", fixed(x - 2.5), fixed(y - 2.5)),
            );
        }
        Outcome::Info => draw(
            path,
            format_args!("M{} {}l3 6h-6z", fixed(x), fixed(y - 3.0)),
        ),
    }
}

fn points(axis: &Axis<'_>, samples: &Samples, scale: &Scale) -> Markup {
    let mut paths = [String::new(), String::new(), String::new()];
    for point in &samples.points {
        let y = point.latency.map_or(UNANSWERED_Y, |ns| scale.y(ns as f64));
        mark(
            &mut paths[point.outcome],
            OUTCOMES[point.outcome],
            axis.x(point.at),
            y,
        );
    }
    html! {
        // What was ok is drawn last, on top of what was not.
        @for (path, outcome) in paths.iter().zip(OUTCOMES).rev() {
            @if !path.is_empty() { path class={ "mark " (class(outcome)) } d=(path) {} }
        }
    }
}

fn binned(axis: &Axis<'_>, samples: &Samples, scale: &Scale) -> Markup {
    let width = axis.x(samples.bin_len()) - LEFT;
    let height = (BOTTOM - TOP) / f64::from((scale.high - scale.low) * 8);
    let fullest = samples
        .cells(0)
        .map(|(_, _, number)| number)
        .max()
        .unwrap_or(1);
    let mut shades = [String::new(), String::new(), String::new()];
    for (at, ns, number) in samples.cells(0) {
        let share = f64::from(number) / f64::from(fullest);
        let shade = SHADES
            .iter()
            .rposition(|&least| share >= least)
            .unwrap_or(0);
        let (x, y) = (axis.x(at) - width / 2.0, scale.y(ns as f64));
        draw(
            &mut shades[shade],
            format_args!("M{} {}h{}", fixed(x), fixed(y), fixed(width)),
        );
    }
    let mut others = [String::new(), String::new()];
    for (path, outcome) in others.iter_mut().zip([1, 2]) {
        let mut drawn = HashSet::new();
        for (at, ns, _) in samples.cells(outcome) {
            let (x, y) = (axis.x(at), scale.y(ns as f64));
            if drawn.insert(((x / MARK_ROOM.0) as u32, (y / MARK_ROOM.1) as u32)) {
                mark(path, OUTCOMES[outcome], x, y);
            }
        }
    }
    for (bin, _) in samples
        .unanswered
        .iter()
        .enumerate()
        .filter(|(_, number)| **number > 0)
    {
        mark(
            &mut others[1],
            Outcome::Info,
            axis.x(samples.bin_middle(bin)),
            UNANSWERED_Y,
        );
    }
    html! {
        @for (shade, path) in shades.iter().enumerate() {
            path class={ "heat s" (shade) } stroke-width=(fixed(height)) d=(path) {}
        }
        @for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
            path class={ "quantile " (name) } d=(line(axis, samples, scale, share)) {}
        }
        @for (path, outcome) in others.iter().zip([Outcome::Fail, Outcome::Info]) {
            @if !path.is_empty() { path class={ "mark " (class(outcome)) } d=(path) {} }
        }
    }
}

/// A quantile over time, broken where there are too few operations.
fn line(axis: &Axis<'_>, samples: &Samples, scale: &Scale, share: f64) -> String {
    let mut path = String::new();
    let mut pen_down = false;
    for (bin, quantile) in samples.quantiles(share, LEAST).into_iter().enumerate() {
        if let Some(ns) = quantile {
            let (x, y) = (axis.x(samples.bin_middle(bin)), scale.y(ns as f64));
            let command = if pen_down { "L" } else { "M" };
            draw(
                &mut path,
                format_args!("{command}{} {}", fixed(x), fixed(y)),
            );
        }
        pen_down = quantile.is_some();
    }
    path
}

/// What the picture shows, for those who cannot see it; the table of operations has the numbers.
fn describe(samples: &Samples) -> String {
    let [ok, fail, info] = samples.totals();
    format!(
        "Latency over time, logarithmic: {} ok, {} failed, {} unknown; quantiles are in the table \
         of operations.",
        words::thousands(ok),
        words::thousands(fail),
        words::thousands(info)
    )
}
