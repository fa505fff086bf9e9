//! The faults of a history: what was hurt, from when to when, and whether it landed.
//!
//! A fault is recorded as two events of the nemesis, `{"id":3,"phase":"begin","target":"c1",
//! "majority":false,"verified":true}` and the same with `end`. Histories of other makers have
//! only a name and a target; there a fault lasts until an event whose name says that it is over
//! (`resume`, `heal`, ...), or to the end.

use history::{EventRef, History, ValueRef};
use rustc_hash::FxHashMap;

use crate::actors::Actors;
use crate::ident::Ident;

/// Names of events that end faults where no phases are recorded.
const ENDS: &[&str] = &[
    "resume", "heal", "start", "restart", "thaw", "restore", "recover",
];
/// Names of faults under which a process cannot run.
const FREEZES: &[&str] = &["freeze", "pause"];
/// Names of faults after which a process is gone.
const KILLS: &[&str] = &["kill", "die", "crash"];

/// One fault.
#[derive(Clone, Copy)]
pub(crate) struct Fault<'h> {
    /// Where it began.
    pub(crate) begin: EventRef<'h>,
    /// Where it ended; `None` if it lasted to the end of the history.
    pub(crate) end: Option<EventRef<'h>>,
    /// Whether a majority of servers was connected all the time, as far as that is known: the
    /// beginning says it of the moment, the end of all the time.
    pub(crate) majority: Option<bool>,
    /// Whether it landed: a fault without evidence does not count as done.
    pub(crate) verified: bool,
}

impl<'h> Fault<'h> {
    /// Since when it may have been felt: the `since_ns` of its beginning, which is recorded only when
    /// it was looked whether the fault landed; else the time of that event.
    pub(crate) fn begin_time(&self) -> u64 {
        let since = self
            .begin
            .value()
            .get("since_ns")
            .and_then(ValueRef::as_u64);
        self.begin.time().min(since.unwrap_or(u64::MAX))
    }

    /// When it was over: the end of time if it never was.
    pub(crate) fn end_time(&self) -> u64 {
        self.end.map_or(u64::MAX, EventRef::time)
    }

    /// Whether it may have ended the programs of this node, verified or not.
    pub(crate) fn may_kill(&self, node: &str) -> bool {
        KILLS.contains(&self.begin.f()) && self.targets().contains(&node)
    }

    fn has_one_of(&self, names: &[&str]) -> bool {
        self.verified && names.contains(&self.begin.f())
    }

    /// The names of its targets: a list, or a string with commas.
    fn targets(&self) -> Vec<&'h str> {
        let Some(target) = self.begin.value().get("target") else {
            return Vec::new();
        };
        if let Some(items) = target.as_list() {
            return items.filter_map(ValueRef::as_str).collect();
        }
        let names = target
            .as_str()
            .into_iter()
            .flat_map(|names| names.split(','));
        names.map(str::trim).collect()
    }
}

/// All faults, in the order of their beginnings.
pub(crate) fn faults(history: &History) -> Vec<Fault<'_>> {
    let mut found: Vec<Fault<'_>> = Vec::new();
    let mut open_by_id: FxHashMap<Ident, usize> = FxHashMap::default();
    let mut open_by_target: FxHashMap<Ident, Vec<usize>> = FxHashMap::default();
    for event in history.events().filter(|event| event.is_nemesis()) {
        let value = event.value();
        let phase = value.get("phase").and_then(ValueRef::as_str);
        let target = value.get("target").map_or(Ident::Word(0), Ident::of);
        let id = value.get("id").map(Ident::of);
        match phase {
            Some("end") => {
                if let Some(at) = id.and_then(|id| open_by_id.remove(&id)) {
                    found[at].end = Some(event);
                    let lost_meanwhile = majority(value) == Some(false);
                    if lost_meanwhile {
                        found[at].majority = Some(false);
                    }
                }
                continue;
            }
            Some(_) => {
                if let Some(id) = id {
                    open_by_id.insert(id, found.len());
                }
            }
            None if ENDS.contains(&event.f()) => {
                end_unphased(&mut found, &mut open_by_target, &target, event);
                continue;
            }
            None => open_by_target.entry(target).or_default().push(found.len()),
        }
        found.push(Fault {
            begin: event,
            end: None,
            majority: majority(value),
            verified: value.get("verified").and_then(ValueRef::as_bool) != Some(false),
        });
    }
    found
}

fn majority(value: ValueRef<'_>) -> Option<bool> {
    value.get("majority").and_then(ValueRef::as_bool)
}

/// Ends the open faults of one target, or all of them when none is named.
fn end_unphased<'h>(
    found: &mut [Fault<'h>],
    open: &mut FxHashMap<Ident, Vec<usize>>,
    target: &Ident,
    event: EventRef<'h>,
) {
    let ended: Vec<usize> = if *target == Ident::Word(0) {
        open.drain().flat_map(|(_, faults)| faults).collect()
    } else {
        open.remove(target).unwrap_or_default()
    };
    for at in ended {
        found[at].end = Some(event);
    }
}

/// Stretches of time, sorted and disjoint, nanoseconds.
pub(crate) type Spans = Vec<(u64, u64)>;

/// Sorts spans and joins those that touch.
pub(crate) fn join(mut spans: Spans) -> Spans {
    spans.sort_unstable();
    let mut joined: Spans = Vec::with_capacity(spans.len());
    for (start, end) in spans {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// How much of `from..to` lies in these spans, nanoseconds.
pub(crate) fn covered(spans: &Spans, from: u64, to: u64) -> u64 {
    let first = spans.partition_point(|span| span.1 <= from);
    spans[first..]
        .iter()
        .take_while(|span| span.0 < to)
        .map(|span| span.1.min(to) - span.0.max(from))
        .sum()
}

/// When no majority of servers was connected. Faults that were not verified are included: they
/// may have landed, and an outage is an excuse.
pub(crate) fn outages(faults: &[Fault<'_>]) -> Spans {
    join(
        faults
            .iter()
            .filter(|fault| fault.majority == Some(false))
            .map(|fault| (fault.begin_time(), fault.end_time()))
            .filter(|(begin, end)| begin < end)
            .collect(),
    )
}

/// What was done to client threads: when each could not run, and when each was killed.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    frozen: FxHashMap<u32, Spans>,
    /// Kills, in the order of the history: event and thread.
    pub(crate) kills: Vec<(usize, u32)>,
}

impl Fates {
    /// Reads them off the faults. A fault hits a thread if it targets its process by name, or its
    /// node.
    pub(crate) fn of(actors: &Actors, faults: &[Fault<'_>]) -> Fates {
        let mut fates = Fates::default();
        for fault in faults {
            let targets = fault.targets();
            for &actor in targets.iter().flat_map(|target| actors.named(target)) {
                if fault.has_one_of(FREEZES) {
                    let span = (fault.begin_time(), fault.end_time());
                    fates.frozen.entry(actor).or_default().push(span);
                } else if fault.has_one_of(KILLS) {
                    fates.kills.push((fault.begin.index(), actor));
                }
            }
        }
        for spans in fates.frozen.values_mut() {
            *spans = join(std::mem::take(spans));
        }
        fates
    }

    /// How much of `from..to` the thread could run, nanoseconds.
    pub(crate) fn awake(&self, actor: u32, from: u64, to: u64) -> u64 {
        let frozen = self.frozen.get(&actor);
        to.saturating_sub(from) - frozen.map_or(0, |spans| covered(spans, from, to.max(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script;

    #[test]
    fn phases_make_spans_and_targets_make_fates() {
        let history = script::history(
            "lock",
            r#"
            param clients {"7":"c1"}
            0-10 7 read x null -> 1
            100 nemesis freeze - {"id":1,"phase":"begin","target":"c1","majority":true,"verified":true}
            200 nemesis cut - {"id":2,"phase":"begin","target":"n1","majority":false}
            300 nemesis freeze - {"id":1,"phase":"end","target":"c1"}
            400 nemesis cut - {"id":2,"phase":"end","target":"n1"}
            500 nemesis kill - {"id":3,"phase":"begin","target":"c1","verified":false}
            600 nemesis kill - {"id":4,"phase":"begin","target":"n2,c1"}
            "#,
        );
        let found = faults(&history);
        assert_eq!(found.len(), 4);
        assert_eq!(outages(&found), [(200_000_000, 400_000_000)]);
        let fates = Fates::of(&Actors::of(&history), &found);
        assert_eq!(fates.kills, [(7, 0)]);
        assert_eq!(fates.awake(0, 0, 350_000_000), 150_000_000);
        assert!(!found[2].verified && found[3].end.is_none());
    }

    #[test]
    fn a_fault_is_there_before_it_was_looked_whether_it_landed() {
        let history = script::history(
            "lock",
            r#"
            param clients {"7":"c1"}
            0-10 7 read x null -> 1
            200 nemesis freeze - {"id":1,"phase":"begin","target":"n1,c1","since_ns":50000000,"majority":false}
            300 nemesis freeze - {"id":1,"phase":"end","target":"n1,c1"}
            "#,
        );
        let found = faults(&history);
        assert_eq!(outages(&found), [(50_000_000, 300_000_000)]);
        let fates = Fates::of(&Actors::of(&history), &found);
        assert_eq!(fates.awake(0, 0, 350_000_000), 100_000_000);
    }

    #[test]
    fn faults_without_phases_last_until_something_ends_them() {
        let history = script::history(
            "lock",
            r#"
            0-10 A read x null -> 1
            100 nemesis pause - {"target":"A"}
            150 nemesis cut - {"target":"n1"}
            200 nemesis resume - {"target":"A"}
            300 nemesis heal
            "#,
        );
        let found = faults(&history);
        let ends: Vec<u64> = found
            .iter()
            .map(|fault| fault.end_time() / 1_000_000)
            .collect();
        assert_eq!(ends, [200, 300]);
        let fates = Fates::of(&Actors::of(&history), &found);
        assert_eq!(fates.awake(0, 90_000_000, 210_000_000), 20_000_000);
    }

    #[test]
    fn spans_are_joined_and_measured() {
        let spans = join(vec![(5, 9), (0, 3), (2, 4), (9, 10)]);
        assert_eq!(spans, [(0, 4), (5, 10)]);
        assert_eq!(covered(&spans, 3, 6), 2);
        assert_eq!(covered(&spans, 4, 5), 0);
        assert_eq!(covered(&spans, 0, 100), 9);
    }
}
