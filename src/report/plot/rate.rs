//! Operations a second over time: what was ok as an area, what failed or is unknown as lines.

use history::Outcome;
use maud::{Markup, html};

use super::latency::class;
use super::{Axis, LEFT, RIGHT, draw, fixed, picture};
use crate::report::samples::{OUTCOMES, Samples};
use crate::report::words;

const TOP: f64 = 8.0;
const BOTTOM: f64 = 104.0;

/// Draws rates.
pub fn rate(axis: &Axis<'_>, samples: &Samples) -> Markup {
    let rates = samples.rates();
    let bins = rates.len();
    let seconds = samples.end as f64 / 1e9 / bins as f64;
    let per_second = |number: u32| {
        if seconds > 0.0 {
            f64::from(number) / seconds
        } else {
            0.0
        }
    };
    let most = rates.iter().flatten().copied().max().unwrap_or(0);
    let top = round_up(per_second(most));
    let y = |rate: f64| BOTTOM - (BOTTOM - TOP) * (rate / top).clamp(0.0, 1.0);
    // A line that lies on the axis says nothing, so those of failures are broken there.
    let steps = |outcome: usize, broken: bool| {
        let mut path = String::new();
        let mut pen_down = false;
        let number = |bin: Option<usize>| {
            bin.and_then(|bin| rates.get(bin))
                .map_or(0, |rates| rates[outcome])
        };
        for bin in 0..bins {
            let around = [bin.checked_sub(1), Some(bin), Some(bin + 1)];
            if broken && around.into_iter().all(|bin| number(bin) == 0) {
                pen_down = false;
                continue;
            }
            let from = LEFT + (RIGHT - LEFT) * bin as f64 / bins as f64;
            let to = LEFT + (RIGHT - LEFT) * (bin + 1) as f64 / bins as f64;
            let command = if pen_down { "L" } else { "M" };
            let height = fixed(y(per_second(number(Some(bin)))));
            draw(
                &mut path,
                format_args!("{command}{} {height}H{}", fixed(from), fixed(to)),
            );
            pen_down = true;
        }
        path
    };
    let content = html! {
        (axis.bands(TOP - 6.0, BOTTOM, false))
        (axis.ticks(TOP - 6.0, BOTTOM))
        @for share in [0.0, 0.5, 1.0] {
            @let height = y(top * share);
            line class="grid" x1=(fixed(LEFT)) x2=(fixed(RIGHT)) y1=(fixed(height)) y2=(fixed(height)) {}
            text class="axis" x=(fixed(LEFT - 8.0)) y=(fixed(height + 4.0)) { (label(top * share)) }
        }
        path class="area" d={ (steps(0, false)) "V" (fixed(BOTTOM)) "H" (fixed(LEFT)) "z" } {}
        @for (at, outcome) in OUTCOMES.into_iter().enumerate() {
            @if rates.iter().any(|rates| rates[at] > 0) || outcome == Outcome::Ok {
                path class={ "line " (class(outcome)) } d=(steps(at, outcome != Outcome::Ok)) {}
            }
        }
        (axis.marks(TOP - 6.0, BOTTOM, None))
    };
    let about = format!(
        "Operations a second over time; at most {} of one outcome in a bin of {}.",
        label(per_second(most)),
        words::span(samples.end / bins.max(1) as u64)
    );
    picture(BOTTOM + 16.0, &about, axis, &content)
}

/// The next round number: 1, 2 or 5 times a power of ten.
fn round_up(rate: f64) -> f64 {
    if rate <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(rate.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|&round| round >= rate)
        .unwrap_or(rate)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are never negative"
)]
fn label(rate: f64) -> String {
    if rate == 0.0 || rate >= 10.0 {
        words::thousands(rate.round() as u64)
    } else {
        fixed(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::round_up;

    #[test]
    fn axes_end_at_round_numbers() {
        for (rate, round) in [
            (0.0, 1.0),
            (3.0, 5.0),
            (5.0, 5.0),
            (734.0, 1000.0),
            (0.03, 0.05),
        ] {
            assert!((round_up(rate) - round).abs() < 1e-9, "{rate}");
        }
    }
}
