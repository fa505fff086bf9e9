//! What was found: counterexamples, and the table of properties.

use checkers::{Checked, Verdict};
use maud::{Markup, html};

use super::Page;
use crate::report::story::{Story, StoryRow};
use crate::report::words;
use crate::result::Property;

/// More counterexamples than this are in `result.json`.
const STORIES_MAX: usize = 6;

impl Page<'_> {
    pub(super) fn counterexamples(&self) -> Markup {
        let all = self.samples.totals().iter().sum();
        html! {
            @for (at, (property, story)) in self.stories.iter().take(STORIES_MAX).enumerate() {
                @let shown = words::plural(story.rows.len() as u64, "event");
                h2 id=[(at == 0).then_some("happened")] {
                    "What happened: " (property.name)
                    small { (shown) " out of a run of " (words::plural(all, "operation"))
                        @if !property.claimed { " · not promised by this system" } }
                }
                (self.counterexample(property, story))
            }
            @if self.stories.len() > STORIES_MAX {
                p.muted { (self.stories.len() - STORIES_MAX) " more in result.json." }
            }
        }
    }

    fn counterexample(&self, property: &Property, story: &Story) -> Markup {
        html! {
            p { b { (words::clip(&story.summary)) }
                @if let Some(promise) = promise(&property.name) {
                    span.muted { " The promise: " (promise) }
                }
            }
            @if let Some(prose) = story.prose(self.history) {
                p.story { (prose) }
            }
            div.scroll {
                table.wide {
                    caption.muted hidden { "The events that show that " (property.name) " was broken" }
                    thead { tr {
                        th scope="col" { "t (s)" } th scope="col" { "who" } th scope="col" { "operation" }
                        th scope="col" { "result" } th scope="col" { "leader seen" }
                        th scope="col" { "fault" } th scope="col" { "what it means" }
                        th.n scope="col" { "event" }
                    } }
                    tbody { @for row in &story.rows { (story_row(row)) } }
                }
            }
            @if story.left_out > 0 {
                p.muted { (words::plural(story.left_out as u64, "row")) " in between are left out." }
            }
        }
    }

    pub(super) fn properties(&self) -> Markup {
        html! {
            h2 id="properties" { "Properties" small { "what was promised, and whether it was kept" } }
            @if self.run.properties.is_empty() {
                p { "No property was checked." }
            } @else {
                div.scroll { table.wide {
                    thead { tr {
                        th scope="col" { "property" } th scope="col" { "promise" }
                        th scope="col" { "claimed" } th scope="col" { "verdict" }
                        th scope="col" { "what was counted" } th.n scope="col" { "took" }
                    } }
                    tbody { @for property in &self.run.properties { (property_row(property)) } }
                } }
            }
        }
    }
}

fn story_row(row: &StoryRow) -> Markup {
    let class = match (row.breaks, row.event) {
        (true, _) => "bad",
        (false, None) => "context",
        (false, Some(_)) => "",
    };
    html! {
        tr class=[(!class.is_empty()).then_some(class)] {
            td.t { (words::clock(row.at)) }
            td.w { @if row.breaks { "✗ " } (row.who) }
            td.any { (row.operation) }
            td.any { (row.result) }
            td.w { (row.leader) }
            td { (row.fault) }
            td.any { (row.note) }
            td.n { @if let Some(event) = row.event { (event) } }
        }
    }
}

fn property_row(property: &Property) -> Markup {
    html! {
        tr {
            th scope="row" { (property.name) }
            td { (promise(&property.name).unwrap_or("unknown")) }
            td { @if property.claimed { "yes" } @else { "no" } }
            td { (verdict(&property.checked, property.claimed)) }
            td.any {
                (words::counts(&property.checked.counts))
                @for note in &property.checked.notes { br; small { (words::clip(note)) } }
            }
            td.n { (words::span_ms(property.took_ms)) }
        }
    }
}

/// The verdict as a label; a pass says what it is and no more.
pub(super) fn verdict(checked: &Checked, claimed: bool) -> Markup {
    match &checked.verdict {
        Verdict::Valid => html! { span.v.good { "✓ no violation found" } },
        Verdict::Invalid if claimed => html! { span.v.bad { "✗ violated" } },
        Verdict::Invalid => html! { span.v.dull { "✗ violated, not promised" } },
        Verdict::Unknown(reason) => html! {
            span.v.warn { "? unknown" } br; small { (words::clip(&reason.to_string())) }
        },
    }
}

fn promise(name: &str) -> Option<&'static str> {
    checkers::find(name).map(checkers::Checker::promise)
}
