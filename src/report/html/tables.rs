//! The tables below the pictures: elections, faults, operations, coverage, harness, environment.

use maud::{Markup, html};

use super::Page;
use super::evidence::verdict;
use crate::report::timeline::{Gap, describe_gaps};
use crate::report::words;
use crate::result::{FaultOutcome, NodeInfo};

/// Longer tables are in the files beside the report.
const ROWS_MAX: usize = 100;

impl Page<'_> {
    pub(super) fn elections(&self) -> Markup {
        let timeline = &self.timeline;
        let bound = self.history.header.param_ms("bound_ms");
        html! {
            h2 id="elections" { "Elections" small {
                @match timeline.leader_changes() {
                    None => "no leader was observed",
                    Some(changes) => {
                        (words::plural(self.timeline.reigns.len() as u64, "election")) " seen, "
                        (words::plural(changes, "change")) " of leader, " (self.terms()) "; "
                        (describe_gaps(&timeline.gaps, bound))
                    }
                }
            } }
            @if !timeline.gaps.is_empty() {
                p.muted { "A gap is the time from the last answer of one leader to the first of the next, \
                    so it can be up to one interval of asking too long at either end." }
                div.scroll { table {
                    thead { tr {
                        th scope="col" { "at (s)" } th scope="col" { "from" } th scope="col" { "to" }
                        th.n scope="col" { "no leader" } th.n scope="col" { "two believed" }
                        th.n scope="col" { "no write ok" } th scope="col" { "fault in force" }
                        th scope="col" { "bound" }
                    } }
                    tbody { @for gap in timeline.gaps.iter().take(ROWS_MAX) { (gap_row(gap, bound)) } }
                } }
                (more(timeline.gaps.len(), "the history"))
            }
        }
    }

    fn terms(&self) -> String {
        let terms = || self.timeline.reigns.iter().filter_map(|reign| reign.term);
        match (terms().min(), terms().max()) {
            (Some(low), Some(high)) if low == high => format!("term {low} only"),
            (Some(low), Some(high)) => format!("terms {low} to {high}"),
            _ => "terms unknown".to_owned(),
        }
    }

    pub(super) fn ledger(&self) -> Markup {
        let faults = &self.run.faults;
        html! {
            h2 id="faults" { "Fault ledger" small { (crate::report::sentence::faults_landed(faults)) } }
            @if !faults.is_empty() {
                div.scroll { table.wide {
                    thead { tr {
                        th.n scope="col" { "#" } th scope="col" { "asked" } th scope="col" { "struck" }
                        th.n scope="col" { "begin (s)" } th.n scope="col" { "end (s)" }
                        th scope="col" { "landed" } th scope="col" { "healed" } th scope="col" { "evidence" }
                    } }
                    tbody { @for fault in faults.iter().take(ROWS_MAX) { (fault_row(fault)) } }
                } }
                (more(faults.len(), "faults.jsonl"))
            }
        }
    }

    pub(super) fn operations(&self) -> Markup {
        let quantile = |ns: Option<u64>| ns.map_or_else(|| "–".to_owned(), words::span);
        html! {
            h2 id="operations" { "Operations" small { "quantiles of what was ok, right to within 16 %" } }
            @if self.samples.functions.is_empty() {
                p { "No operation was invoked." }
            } @else {
                div.scroll { table {
                    thead { tr {
                        th scope="col" { "function" } th.n scope="col" { "ok" } th.n scope="col" { "failed" }
                        th.n scope="col" { "unknown" } th.n scope="col" { "p50" } th.n scope="col" { "p99" }
                        th.n scope="col" { "longest" }
                    } }
                    tbody { @for stats in self.samples.functions.iter().take(ROWS_MAX) {
                        tr {
                            th scope="row" { (stats.f) }
                            @for count in stats.counts { td.n { (words::thousands(count)) } }
                            td.n { (quantile(stats.quantile(0.5))) }
                            td.n { (quantile(stats.quantile(0.99))) }
                            td.n { (quantile((stats.counts[0] > 0).then_some(stats.max))) }
                        }
                    } }
                } }
                (more(self.samples.functions.len(), "the history"))
            }
        }
    }

    pub(super) fn coverage(&self) -> Markup {
        let coverage = &self.run.coverage;
        html! {
            h2 id="coverage" { "Coverage" small { "did enough happen for a verdict to mean something?" } }
            p { @match &coverage.verdict {
                checkers::Verdict::Valid => span.v.good { "✓ enough happened" },
                checkers::Verdict::Invalid => span.v.warn { "? too little happened" },
                checkers::Verdict::Unknown(_) => (verdict(coverage, true)),
            } }
            @if coverage.counts.is_empty() {
                p.muted { "Nothing was counted." }
            } @else {
                div.two {
                    section { div.scroll { (counted(&coverage.counts)) } }
                    section { div.scroll { (counted_each(&coverage.counts)) } }
                }
            }
            @for note in &coverage.notes { p.muted { (words::clip(note)) } }
        }
    }

    pub(super) fn harness(&self) -> Markup {
        let stages = &self.run.harness;
        let longest = stages
            .iter()
            .map(|stage| stage.took_ms)
            .max()
            .unwrap_or(0)
            .max(1);
        html! {
            h2 id="harness" { "Harness" small { "did every stage do its work?" } }
            @if stages.is_empty() {
                p { "No stage was recorded." }
            } @else {
                div.scroll { table {
                    thead { tr {
                        th scope="col" { "stage" } th.n scope="col" { "took" } th scope="col" {}
                        th scope="col" { "outcome" }
                    } }
                    tbody { @for stage in stages.iter().take(ROWS_MAX) {
                        tr class=[stage.error.is_some().then_some("bad")] {
                            th scope="row" { (stage.name) }
                            td.n { (words::span_ms(stage.took_ms)) }
                            td { svg width="120" height="10" aria-hidden="true" {
                                rect class="seg leader" height="10" y="0" x="0"
                                    width=(120 * stage.took_ms / longest) {}
                            } }
                            td.any { @match &stage.error {
                                None => "✓ done",
                                Some(error) => { "✗ failed" pre { (words::clip(error)) } }
                            } }
                        }
                    } }
                } }
            }
        }
    }

    pub(super) fn environment(&self) -> Markup {
        let run = self.run;
        html! {
            h2 id="environment" { "Environment" small { "what is needed to get the same again" } }
            div.two {
                section {
                    h3 { "Run" }
                    table { tbody {
                        (fact("system", &format!("{} {}", run.system.name, run.system.version)))
                        (fact("workload", &run.workload))
                        (fact("backend", &run.backend))
                        (fact("seed", &run.seed.to_string()))
                        @for (name, value) in &run.environment { (fact(name, value)) }
                    } }
                    h3 { "Called as" }
                    pre { (words::clip(&run.argv.join(" "))) }
                    h3 { "Run it again" }
                    pre { (words::clip(&run.replay)) }
                }
                section {
                    h3 { "Parameters" small { "of " (run.system.name) } }
                    @if run.system.params.iter().next().is_none() { p.muted { "none" } }
                    table { tbody {
                        @for (name, value) in run.system.params.iter().take(ROWS_MAX) {
                            (fact(name, value.as_str().unwrap_or(&value.to_string())))
                        }
                    } }
                    h3 { "Nodes" }
                    (nodes(&run.nodes))
                }
            }
            @if !run.digests.is_empty() {
                details {
                    summary { "SHA-256 of the files beside this one" }
                    div.scroll { table { tbody {
                        @for (name, digest) in run.digests.iter().take(ROWS_MAX) {
                            tr { th scope="row" { (name) } td { code { (digest) } } }
                        }
                    } }
                    (more(run.digests.len(), "result.json")) }
                }
            }
        }
    }

    pub(super) fn notes(&self) -> Markup {
        html! {
            @if !self.run.notes.is_empty() {
                h2 { "Notes" }
                ul { @for note in self.run.notes.iter().take(ROWS_MAX) { li { (words::clip(note)) } } }
            }
        }
    }
}

/// The counts that stand for themselves.
fn counted(counts: &[(String, u64)]) -> Markup {
    html! {
        table {
            thead { tr { th scope="col" { "counted" } th.n scope="col" { "number" } } }
            tbody { @for (name, number) in counts.iter().filter(|(name, _)| !name.contains(':')).take(ROWS_MAX) {
                @let (name, number) = words::count(name, *number);
                tr { th scope="row" { (name) } td.n { (number) } }
            } }
        }
    }
}

/// The counts of each function or node, `ok_before:read`: one row for each of them.
fn counted_each(counts: &[(String, u64)]) -> Markup {
    let mut columns: Vec<&str> = Vec::new();
    let mut rows: Vec<&str> = Vec::new();
    for (name, _) in counts {
        let Some((column, row)) = name.split_once(':') else {
            continue;
        };
        if !columns.contains(&column) {
            columns.push(column);
        }
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let number = |column: &str, row: &str| {
        let found = counts
            .iter()
            .find(|(name, _)| name.split_once(':') == Some((column, row)));
        found.map_or_else(
            || "–".to_owned(),
            |(name, number)| words::count(name, *number).1,
        )
    };
    html! {
        @if !rows.is_empty() {
            table {
                thead { tr {
                    th scope="col" { "of each" }
                    @for column in &columns { th.n scope="col" { (words::count(column, 0).0) } }
                } }
                tbody { @for row in rows.iter().take(ROWS_MAX) {
                    tr {
                        th scope="row" { (row) }
                        @for column in &columns { td.n { (number(column, row)) } }
                    }
                } }
            }
        }
    }
}

fn gap_row(gap: &Gap, bound: Option<u64>) -> Markup {
    let length = gap.end - gap.begin;
    html! {
        tr {
            td.t { (words::clock(gap.begin)) }
            td.w { (gap.from) }
            td.w { @match &gap.to {
                Some(to) if *to == gap.from => "the same, seen again",
                Some(to) => (to),
                None => b { "none until the end" },
            } }
            td.n { (words::span(length)) }
            td.n { @if gap.two_believed > 0 { b { (words::span(gap.two_believed)) } } @else { "–" } }
            td.n { (gap.no_write.map_or_else(|| "unknown".to_owned(), words::span)) }
            td { @if gap.cause.is_empty() { "none of ours" } @else { (words::clip(&gap.cause)) } }
            td { @match bound {
                None => "none declared",
                Some(bound) if length <= bound && gap.to.is_some() => {
                    "✓ within " (words::span(bound))
                }
                Some(bound) => b { "✗ over " (words::span(bound)) },
            } }
        }
    }
}

fn fault_row(fault: &FaultOutcome) -> Markup {
    let time = |ms: Option<u64>| {
        ms.map_or_else(
            || "–".to_owned(),
            |ms| words::clock(ms.saturating_mul(1_000_000)),
        )
    };
    html! {
        tr {
            td.n { (fault.id) }
            th scope="row" { (fault.fault) " " (fault.target) }
            td { (fault.resolved) }
            td.n { (time(fault.begin_ms)) }
            td.n { (time(fault.end_ms)) }
            td.w { @if fault.landed { "✓ yes" } @else { b { "✗ no" } } }
            td.w {
                @if fault.healed { "✓ yes" }
                @else if fault.begin_ms.is_none() { "nothing to heal" }
                @else { b { "✗ no" } }
            }
            td.any { (words::clip(&fault.evidence)) }
        }
    }
}

fn nodes(nodes: &[NodeInfo]) -> Markup {
    html! {
        @if nodes.is_empty() { p.muted { "unknown" } } @else {
            table {
                thead { tr { th scope="col" { "node" } th scope="col" { "role" } th scope="col" { "address" } } }
                tbody { @for node in nodes.iter().take(ROWS_MAX) {
                    tr { th scope="row" { (node.name) } td { (node.role) } td { (node.addr) } }
                } }
            }
        }
    }
}

fn fact(name: &str, value: &str) -> Markup {
    html! { tr { th scope="row" { (name) } td.any { (words::clip(value)) } } }
}

fn more(rows: usize, place: &str) -> Markup {
    html! {
        @if rows > ROWS_MAX {
            p.muted { (words::thousands((rows - ROWS_MAX) as u64)) " more rows are in " (place) "." }
        }
    }
}
