//! The pictures with their legends: timeline, latency, rate.

use history::Outcome;
use maud::{Markup, html};

use super::Page;
use crate::report::plot::{self, Axis};
use crate::report::timeline::{Band, State};
use crate::report::words;

/// With more faults than this, the legend names kinds and not each fault.
const FAULTS_NAMED_MAX: usize = 9;

impl Page<'_> {
    pub(super) fn pictures(&self) -> Markup {
        if self.history.is_empty() {
            return html! {
                h2 id="timeline" { "Timeline" }
                p { "Nothing was recorded: the history is empty." }
            };
        }
        let violations = self.violations();
        let axis = Axis::new(&self.timeline, &violations);
        html! {
            h2 id="timeline" { "Timeline" small { span id="readout" {} } }
            (self.fault_legend(&axis))
            figure {
                figcaption { (self.lanes_caption()) }
                div.legend { @for state in plot::states(&self.timeline) { (state_legend(state)) } }
                div.scroll { (plot::lanes(&axis)) }
            }
            h3 { "Latency" small { "logarithmic, by the time of the invocation" } }
            figure {
                figcaption { (outcome_legend(self.samples.points.is_empty())) }
                @match plot::latency(&axis, &self.samples) {
                    Some(picture) => div.scroll { (picture) },
                    None => p { "No operation was answered." },
                }
            }
            h3 { "Rate" small { "operations a second, in bins of " (words::span(self.samples.end / self.samples.rates().len().max(1) as u64)) } }
            figure {
                div.legend {
                    span { (swatch_line("ok")) "ok" } span { (swatch_line("fail")) "failed" }
                    span { (swatch_line("info")) "unknown" }
                }
                div.scroll { (plot::rate(&axis, &self.samples)) }
            }
        }
    }

    /// Times at which claimed promises were broken.
    fn violations(&self) -> Vec<u64> {
        let mut times: Vec<u64> = self
            .stories
            .iter()
            .filter(|(property, _)| property.claimed)
            .filter_map(|(_, story)| story.broken_at)
            .collect();
        times.sort_unstable();
        times.dedup();
        times
    }

    fn lanes_caption(&self) -> String {
        let timeline = &self.timeline;
        let mut said = if timeline.sampling == 0 {
            "Nobody was asked who leads in this run.".to_owned()
        } else {
            format!(
                "Each server as it answered when asked who leads, about every {}.",
                words::span(timeline.sampling)
            )
        };
        if !timeline.holders.is_empty() {
            said.push_str(" Below, each client that held a lock, as it knew itself.");
        }
        if timeline.holders_left_out > 0 {
            said.push_str(&format!(
                " {} are not drawn.",
                words::plural(timeline.holders_left_out as u64, "more holder")
            ));
        }
        said
    }

    fn fault_legend(&self, axis: &Axis<'_>) -> Markup {
        let bands = &self.timeline.bands;
        let entries: Vec<(String, bool, String)> = if bands.len() <= FAULTS_NAMED_MAX {
            bands
                .iter()
                .map(|band| (axis.fault_class(&band.fault), band.landed, told(band)))
                .collect()
        } else {
            by_kind(bands)
                .into_iter()
                .map(|(fault, number)| {
                    (axis.fault_class(fault), true, format!("{fault} × {number}"))
                })
                .collect()
        };
        html! {
            @if entries.is_empty() {
                p.muted { "No fault began in this run." }
            } @else {
                div.legend {
                    @for (class, landed, words) in entries {
                        span {
                            svg viewBox="0 0 16 12" aria-hidden="true" {
                                rect class={ "band " (class) @if !landed { " missed" } }
                                    x="0.5" y="0.5" width="15" height="11" {}
                            }
                            (words)
                        }
                    }
                }
            }
        }
    }
}

fn told(band: &Band) -> String {
    let end = band
        .end
        .map_or_else(|| "end unknown".to_owned(), words::clock);
    let landed = if band.landed { "" } else { ", did not land" };
    format!(
        "{} {}–{end} s{landed}",
        band.name(),
        words::clock(band.begin)
    )
}

fn by_kind(bands: &[Band]) -> Vec<(&str, usize)> {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for band in bands {
        match kinds.iter_mut().find(|(fault, _)| *fault == band.fault) {
            Some((_, number)) => *number += 1,
            None => kinds.push((&band.fault, 1)),
        }
    }
    kinds
}

fn state_legend(state: State) -> Markup {
    html! {
        span {
            svg viewBox="0 0 16 12" aria-hidden="true" {
                rect class={ "seg " (plot::class(state)) } x="0.5" y="0.5" width="15" height="11" {}
                @if plot::hatched(state) {
                    rect fill="url(#hatch)" x="0.5" y="0.5" width="15" height="11" {}
                }
            }
            (state.word())
        }
    }
}

fn outcome_legend(binned: bool) -> Markup {
    let mark = |outcome: Outcome, path: &'static str, word: &'static str| {
        html! {
            span {
                svg viewBox="0 0 16 12" aria-hidden="true" {
                    path class={ "mark " (plot::outcome_class(outcome)) } d=(path) {}
                }
                (word)
            }
        }
    };
    html! {
        div.legend {
            @if binned {
                span {
                    svg viewBox="0 0 16 12" aria-hidden="true" {
                        path class="heat s1" stroke-width="8" d="M1 6h14" {}
                    }
                    "ok: the darker, the more"
                }
                span { svg viewBox="0 0 16 12" aria-hidden="true" { path class="quantile p50" d="M0 6h16" {} }
                    "half of ok below" }
                span { svg viewBox="0 0 16 12" aria-hidden="true" { path class="quantile p99" d="M0 6h16" {} }
                    "99 % of ok below" }
            } @else {
                (mark(Outcome::Ok, "M8 6h0", "ok"))
            }
            (mark(Outcome::Fail, "M5 3.5l5 5m0-5l-5 5", "failed"))
            (mark(Outcome::Info, "M8 3l3 6h-6z", "unknown whether it happened"))
        }
    }
}

fn swatch_line(class: &str) -> Markup {
    html! {
        svg viewBox="0 0 16 12" aria-hidden="true" { path class={ "line " (class) } d="M0 6h16" {} }
    }
}
