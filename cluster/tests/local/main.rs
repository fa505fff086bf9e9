//! Tests of the local backend with real namespaces, processes and frames. The program is its own
//! sandbox and agent, which is why it has a `main` of its own. Every test runs twice: as root of the
//! machine, and as an ordinary user (as root, in a child that gave up its privileges).

mod clocks;
mod hammer;
mod inside;
mod lifecycle;
mod network;
mod programs;
mod services;
mod support;

use std::process::ExitCode;

use support::{Test, run};

macro_rules! tests {
    ($($module:ident::$test:ident,)*) => {
        &[$((concat!(stringify!($module), "::", stringify!($test)), || run($module::$test())),)*]
    };
}

/// Everything that is tested, in the order in which it runs. The compiler complains about a test that
/// is not listed: nobody uses it.
const TESTS: &[Test] = tests![
    services::start_freeze_thaw_kill,
    services::exits_and_logs_are_reported,
    services::orphans_belong_to_their_service,
    services::stop_is_gentle_first,
    services::refusals_have_kinds,
    services::files_go_both_ways,
    services::http_from_inside,
    services::streams_are_intact,
    services::a_reader_that_does_not_read_holds_up_nobody_else,
    clocks::a_busy_program_reads_what_it_should,
    clocks::a_busy_program_survives_any_number_of_changes,
    clocks::children_follow_their_parents,
    clocks::a_service_that_is_started_again_is_found,
    clocks::a_stopped_service_is_moved_and_stays_stopped,
    clocks::nobody_is_left_in_the_middle_of_what_is_overwritten,
    clocks::clocks_that_cannot_be_moved_are_refused,
    network::cuts_are_cuts_in_their_direction_only,
    network::matrices_are_swapped_atomically,
    network::delay_and_jitter,
    network::loss_is_as_asked_and_repeatable,
    network::frames_under_way_are_dropped_by_a_cut,
    network::tcp_arrives_intact,
    network::matrices_of_other_clusters_are_refused,
    network::measurements_are_plausible,
    lifecycle::nodes_are_separate,
    lifecycle::nothing_is_left_after_destroy_or_drop,
    lifecycle::an_agent_that_dies_is_reported,
    lifecycle::a_program_that_is_no_sandbox_is_refused,
    lifecycle::capabilities_are_really_tried,
    lifecycle::interrupts_do_not_reach_the_sandbox,
    lifecycle::nothing_is_left_after_sigkill,
];

fn main() -> ExitCode {
    if let Some(code) = cluster::dispatch() {
        return code;
    }
    if programs::dispatch() || lifecycle::controller() {
        return ExitCode::SUCCESS;
    }
    support::main(TESTS)
}
