//! Tests of the local backend with real namespaces, processes and frames. The program is its own
//! sandbox and agent, which is why it has a `main` of its own. Every test runs twice: as root of the
//! machine, and as an ordinary user (as root, in a child that gave up its privileges).

mod support;

mod services;

use std::process::ExitCode;

use support::{Test, run};

/// Everything that is tested, in the order in which it runs.
const TESTS: &[Test] = &[
    ("services::start_freeze_thaw_kill", || {
        run(services::start_freeze_thaw_kill())
    }),
    ("services::exits_and_logs_are_reported", || {
        run(services::exits_and_logs_are_reported())
    }),
    ("services::orphans_belong_to_their_service", || {
        run(services::orphans_belong_to_their_service());
    }),
    ("services::stop_is_gentle_first", || {
        run(services::stop_is_gentle_first())
    }),
    ("services::refusals_have_kinds", || {
        run(services::refusals_have_kinds())
    }),
    ("services::files_go_both_ways", || {
        run(services::files_go_both_ways())
    }),
    ("services::http_from_inside", || {
        run(services::http_from_inside())
    }),
];

fn main() -> ExitCode {
    if let Some(code) = cluster::dispatch() {
        return code;
    }
    // What tests start on nodes is this program, too: no other needs to be there.
    match std::env::args().nth(1).as_deref() {
        Some("web-server") => services::web_server(),
        _ => return support::main(TESTS),
    }
    ExitCode::SUCCESS
}
