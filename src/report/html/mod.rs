//! The report of one run as one HTML file: no network, light and dark, complete without scripts.
//!
//! It answers in the order in which a person asks: what came out and is it real, what happened in
//! words, which promises, what was done to the cluster, can I get it again, where do I look. Every
//! text of the run passes through `maud` and is escaped there.

mod evidence;
mod pictures;
mod tables;
#[cfg(test)]
mod tests;

use history::History;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::samples::Samples;
use super::story::Story;
use super::timeline::Timeline;
use super::{judgement, words};
use crate::result::{Outcome, Property, RunResult};

/// The style sheet of all pages.
pub const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");

/// Nothing may be loaded from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Everything that the sections of the page draw from.
struct Page<'a> {
    run: &'a RunResult,
    history: &'a History,
    timeline: Timeline,
    samples: Samples,
    stories: Vec<(&'a Property, Story)>,
}

/// Renders the report of a run. Time and size do not grow with more than one pass over the history.
pub fn render(run: &RunResult, history: &History) -> String {
    let timeline = Timeline::of(run, history);
    let samples = Samples::of(history, timeline.end);
    let mut stories: Vec<(&Property, Story)> = run
        .properties
        .iter()
        .filter_map(|property| {
            let told = property.checked.counterexample.as_ref()?;
            Some((property, Story::of(told, history, Some(&timeline))))
        })
        .collect();
    stories.sort_by_key(|(property, _)| !property.claimed);
    let page = Page {
        run,
        history,
        timeline,
        samples,
        stories,
    };
    let (_, word, _) = judgement(run);
    let title = format!("{word} · {}/{} · schism", run.suite, run.cell);
    document(&title, &page.body()).into_string()
}

/// A whole page around a body.
pub fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (body)
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

impl Page<'_> {
    fn body(&self) -> Markup {
        html! {
            (self.banner())
            (self.contents())
            main {
                (self.cards())
                (self.counterexamples())
                (self.properties())
                (self.pictures())
                (self.elections())
                (self.ledger())
                (self.operations())
                (self.coverage())
                (self.harness())
                (self.environment())
                (self.notes())
                footer {
                    "schism, run " code { (self.run.id) } ". The history, the ledger and the logs of the \
                     nodes are beside this file; " code { "schism check" } " judges the history again."
                }
            }
        }
    }

    fn banner(&self) -> Markup {
        let run = self.run;
        let (sign, word, class) = judgement(run);
        html! {
            header class=(class) {
                div {
                    h1 { (sign) " " (word) }
                    span.what { (run.suite) " / " (run.cell) " · " (run.workload) " on "
                        (run.system.name) " " (run.system.version) }
                    p { (words::clip(&run.sentence)) }
                    @if run.outcome == Outcome::Violation || run.outcome == Outcome::Held { (self.other_troubles()) }
                }
            }
        }
    }

    /// A verdict never hides that the harness had trouble too.
    fn other_troubles(&self) -> Markup {
        let failed: Vec<&str> = self
            .run
            .harness
            .iter()
            .filter(|stage| stage.error.is_some())
            .map(|stage| stage.name.as_str())
            .collect();
        let missed = self.run.faults.iter().filter(|fault| !fault.landed).count() as u64;
        html! {
            @if !failed.is_empty() {
                p.more { "The harness failed too, in stage " (failed.join(", ")) "." }
            }
            @if !self.run.properties.iter().any(|property| property.claimed) {
                p.more { "No claimed property was checked." }
            }
            @if missed > 0 {
                p.more { (words::plural(missed, "planned fault")) " did not land; see the ledger." }
            }
        }
    }

    fn contents(&self) -> Markup {
        html! {
            nav aria-label="contents" {
                @if !self.stories.is_empty() { a href="#happened" { "What happened" } }
                a href="#properties" { "Properties" }
                a href="#timeline" { "Timeline" }
                a href="#elections" { "Elections" }
                a href="#faults" { "Faults" }
                a href="#operations" { "Operations" }
                a href="#coverage" { "Coverage" }
                a href="#harness" { "Harness" }
                a href="#environment" { "Environment" }
            }
        }
    }

    fn cards(&self) -> Markup {
        let run = self.run;
        let [ok, fail, info] = self.samples.totals();
        let landed = run.faults.iter().filter(|fault| fault.landed).count();
        // The page says one number, and that is the one that was counted for the verdict.
        let counted = run.coverage.counted("leader_changes");
        let changes = counted
            .or_else(|| self.timeline.leader_changes())
            .map_or_else(
                || "no leader observed".to_owned(),
                |changes| words::plural(changes, "leader change"),
            );
        html! {
            div.cards {
                div {
                    h2 { "Evidence" }
                    (words::thousands(ok)) " ops ok · " (words::thousands(fail)) " failed · "
                    (words::thousands(info)) " unknown"
                    br;
                    @if run.faults.is_empty() { "no faults planned" }
                    @else { (landed) "/" (run.faults.len()) " faults landed" }
                    " · " (changes)
                }
                div {
                    h2 { "Run it again" }
                    @if run.replay.is_empty() { "unknown" } @else { code data-copy { (run.replay) } }
                    br;
                    small { "seed " (run.seed) }
                }
                div {
                    h2 { "Expected" }
                    @match (&run.expect, run.as_expected) {
                        (None, _) => "nothing in particular: every claimed property is to hold",
                        (Some(expect), came) => {
                            code { (expect) } " — "
                            @match came {
                                Some(true) => b { "✓ came so" },
                                Some(false) => b { "✗ did not come so" },
                                None => b { "? not decided" },
                            }
                        }
                    }
                }
                div {
                    h2 { "Where and when" }
                    (run.started.format("%Y-%m-%d %H:%M:%S UTC")) ", took " (words::span_ms(run.duration_ms))
                    br;
                    (words::plural(self.count_role("server"), "server")) ", "
                    (words::plural(self.count_role("client"), "client node")) ", backend " (run.backend)
                }
            }
        }
    }

    fn count_role(&self, role: &str) -> u64 {
        self.run
            .nodes
            .iter()
            .filter(|node| node.role == role)
            .count() as u64
    }
}
