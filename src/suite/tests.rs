//! A resolved cell is written out and read back as the same cell, and its plan hangs on its seed
//! alone.

use proptest::prelude::*;

use super::*;

/// Workloads with parameters and a target that only they have.
const WORKLOADS: &[(&str, &str, &str)] = &[
    ("register", "keys = 3", "clients"),
    ("lock", "holder = \"fenced\", ttl = \"1500ms\"", "holder"),
    ("leader", "ttl = \"4s\"", "clients"),
];

/// Faults with targets that fit them.
const FAULTS: &[(&str, &str)] = &[
    ("freeze", "leader"),
    ("freeze", "n1,c1"),
    ("kill", "minority"),
    ("kill", "n1"),
    ("cut", "flapping halves"),
    ("cut", "n1>n2"),
    ("slow", "isolate"),
    ("lossy", "partial"),
];

prop_compose! {
    fn fault()(
        at_ms in 0..20_000u64,
        (fault, target) in prop::sample::select(FAULTS.to_vec()),
        lasts in prop::option::of(prop::sample::select(vec!["700ms", "2s", "end", "1500us"])),
    ) -> String {
        let lasts = lasts.map_or_else(String::new, |lasts| format!(", for = \"{lasts}\""));
        format!("{{ at = \"{at_ms}ms\", fault = \"{fault}\", target = \"{target}\"{lasts} }}")
    }
}

prop_compose! {
    fn cell()(
        (workload, params, target) in prop::sample::select(WORKLOADS.to_vec()),
        nodes in 3..8usize,
        limit_ms in 60_000..600_000u64,
        timeout_us in 1..10_000_000u64,
        faults in prop::collection::vec(fault(), 0..5),
        random in any::<bool>(),
        switch in any::<bool>(),
        expect in prop::option::of(prop::sample::select(vec!["valid", "invalid:split-brain"])),
        max_terms in prop::option::of(0..9u64),
        min_ok in prop::option::of(0..1000u64),
    ) -> String {
        let mut text = format!(
            "name = \"s\"\n[[cell]]\nid = \"a/b\"\nworkload = \"{workload}\"\n\
             workload-params = {{ {params} }}\nsystem = \"conclave\"\n\
             system-params = {{ no-prevote = {switch} }}\nnodes = {nodes}\n\
             time-limit = \"{limit_ms}ms\"\nop-timeout = \"{timeout_us}us\"\n"
        );
        let whole = format!("{{ at = \"1s\", fault = \"freeze\", target = \"{target}\" }}");
        let faults: Vec<String> = faults.into_iter().chain([whole]).collect();
        text += &format!("faults = [{}]\n", faults.join(", "));
        if random {
            text += "random-faults = { faults = [\"freeze\", \"cut\"] }\n";
        }
        if let Some(expect) = expect {
            text += &format!("expect = \"{expect}\"\nclaims = [\"split-brain\"]\n");
        }
        if let Some(max) = max_terms {
            text += &format!("checker-params = {{ max_terms = {max}, note = \"a \\\"b\\\"\" }}\n");
        }
        if let Some(min) = min_ok {
            text += &format!("coverage = {{ min-ok = {min} }}\n");
        }
        text
    }
}

/// Everything that a cell holds, as text. The seed is part of the plan file.
fn everything(cell: &Cell) -> String {
    let Cell {
        suite,
        id,
        workload,
        workload_params,
        system,
        system_params,
        nodes,
        backend,
        time_limit,
        op_timeout,
        settle,
        seed: _,
        faults,
        random_faults,
        max_harmed,
        expect,
        claims,
        min_ok,
        required,
        checker_params,
    } = cell;
    let faults: Vec<NemesisFault> = faults.iter().map(PlannedFault::to_raw).collect();
    format!(
        "{suite} {id} {} {workload_params:?} {} {system_params:?} {nodes} {backend} {time_limit} \
         {op_timeout} {settle} {faults:?} {random_faults:?} {max_harmed:?} {expect:?} {claims:?} \
         {min_ok} {required:?} {checker_params:?}",
        workload.name(),
        system.name(),
    )
}

fn only_cell(source: &str) -> Cell {
    let suite = parse("s.toml", source).unwrap_or_else(|error| panic!("{error}\n{source}"));
    suite.cells.into_iter().next().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_plan_file_is_the_cell_that_it_was_written_from(
        source in cell(),
        seed in 0..=u64::MAX >> 11,
    ) {
        let mut cell = only_cell(&source);
        // As a run does: what was drawn is written as it was drawn.
        cell.faults = cell.plan(seed).unwrap();
        cell.random_faults.clear();
        let plan = cell.to_toml(seed);
        let again = only_cell(&plan);
        prop_assert_eq!(again.seed, Some(seed));
        prop_assert_eq!(everything(&again), everything(&cell));
        prop_assert_eq!(again.to_toml(seed), plan);
    }
}

#[test]
fn a_seed_and_a_spec_are_one_plan_for_ever() {
    let cell = only_cell(
        "name = \"s\"\n[[cell]]\nid = \"a\"\nworkload = \"register\"\nsystem = \"conclave\"\n\
         time-limit = \"20s\"\nfaults = [{ at = \"1s\", fault = \"kill\", target = \"n2\" }]\n\
         random-faults = { faults = [\"freeze\", \"lossy\"] }\n",
    );
    let plan = |seed| -> Vec<String> {
        let faults = cell.plan(crate::seed::stream(seed, "plan")).unwrap();
        let line = |raw: NemesisFault| {
            let text = |field: Option<String>| field.unwrap_or_default();
            format!(
                "{} {} {} {}",
                raw.at,
                raw.fault,
                text(raw.target),
                text(raw.lasts)
            )
        };
        faults.iter().map(|fault| line(fault.to_raw())).collect()
    };
    assert_eq!(
        plan(7),
        [
            "1s kill n2 2s",
            "2s freeze follower 2.914s",
            "5.808s lossy halves 2.907s",
            "9.558s freeze leader 1.779s",
            "12.212s freeze minority 2.677s",
            "13.551s freeze minority 2.650s",
            "16.731s freeze follower 1.954s",
        ]
    );
    assert_ne!(plan(8), plan(7));
}
