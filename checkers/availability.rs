//! `availability`: writes go on while a majority of servers is connected.
//!
//! A gap is judged by what the history holds, whether or not somebody tried to write in it; the
//! counts say what became of those who tried. Only locks are different: who holds one has no reason
//! to write, so that there a gap begins where somebody asked.

use history::{EventRef, History, Kind, Op, Outcome};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use crate::faults::{Spans, faults, join, outages};
use crate::holds::ACQUIRES;
use crate::ident::Ident;
use crate::observations::{View, views};
use crate::params::{Param, Takes};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// Functions that change something, in the workloads that do not speak of locks.
const WRITES: &[&str] = &[
    "write", "cas", "add", "append", "enqueue", "dequeue", "transfer", "txn", "generate", "run",
    "put", "delete",
];
/// Functions that change the service in the workloads `lock` and `leader`; there the puts go to
/// the resource, which is another system.
const LOCK_WRITES: &[&str] = &["renew", "release"];

/// Writes go on while a majority is connected.
pub struct Availability;

impl Checker for Availability {
    fn name(&self) -> &'static str {
        "availability"
    }

    fn promise(&self) -> &'static str {
        "While a majority of servers is connected, no time without a completed write is longer \
         than the bound."
    }

    fn method(&self) -> &'static str {
        "Takes the time from the first write asked for to the last event of a write, cuts out \
         when no majority was connected (faults with `majority: false`, or what is not in \
         `majority_connected_ms`), and measures the longest stretch without a write that \
         happened, or that the service decided against (a lock held by another, a cas that did \
         not match); in the workloads `lock` and `leader` a stretch begins where somebody asks. The leaderless gap is the longest time in which no leader was named by a \
         majority of the observed nodes. O(n). Source: Cloudflare, A Byzantine failure in the \
         real world (2020)."
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: "availability_bound_ms",
                takes: Takes::Ms,
                default: "`bound_ms`, without which nothing is promised",
                about: "the bound",
            },
            Param {
                name: "bound_ms",
                takes: Takes::Ms,
                default: "none",
                about: "see `availability_bound_ms`",
            },
            Param {
                name: "leaderless_bound_ms",
                takes: Takes::Ms,
                default: "counted, not judged",
                about: "bound on the leaderless gap",
            },
            Param {
                name: "majority_connected_ms",
                takes: Takes::Spans,
                default: "from the faults",
                about: "stretches [from, to] in which a majority was connected",
            },
            Param {
                name: "writes",
                takes: Takes::Names,
                default: "by workload",
                about: "the functions that count as writes",
            },
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("writes_ok", "writes that happened or were decided against"),
            ("writes_tried", "writes asked for"),
            (
                "gap_ms_max",
                "longest time without such a write while a majority was connected",
            ),
            ("gap_bound_ms", "the bound on that time, if there is one"),
            (
                "gap_refused",
                "requests begun in that gap and refused in it",
            ),
            (
                "gap_queued",
                "requests begun in that gap and answered after it",
            ),
            ("gap_reads", "reads begun in that gap and answered in it"),
            (
                "gap_unanswered",
                "requests begun in that gap whose outcome is unknown",
            ),
            (
                "leaderless_ms_max",
                "longest time without a leader named by a majority of the observed nodes",
            ),
            (
                "write_ok_percent",
                "writes that happened, of those asked for",
            ),
            (
                "write_ok_percent:NODE",
                "the same of the writes that went to this node",
            ),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let header = &history.header;
        let writes = Writes::of(history);
        let Some(judged) = writes.judged(history) else {
            return Checked::unknown(Reason::NotApplicable("nothing was written".to_owned()));
        };
        let gap = longest_gap(&judged, &writes, of_locks(history));
        let leaderless = leaderless(history, &judged);
        let bound = header
            .param_ms("availability_bound_ms")
            .or_else(|| header.param_ms("bound_ms"));
        let leader_bound = header.param_ms("leaderless_bound_ms");
        let result = if bound.is_some_and(|bound| gap.length() > bound) {
            tell_gap(history, &writes, gap, bound)
        } else if let Some(leader_bound) = leader_bound
            && leaderless.length() > leader_bound
        {
            tell_leaderless(history, leaderless, leader_bound)
        } else if bound.is_none() && leader_bound.is_none() {
            Checked::unknown(Reason::NotApplicable(
                "no bound_ms was given, so no bound is promised".to_owned(),
            ))
        } else {
            Checked::valid()
        };
        let requests = Requests::of(history, gap);
        let result = result
            .count("writes_ok", writes.served.len() as u64)
            .count("writes_tried", writes.tried)
            .count("gap_ms_max", words::ms(gap.length()));
        let result = match bound {
            Some(bound) => result.count("gap_bound_ms", words::ms(bound)),
            None => result,
        };
        let result = result
            .count("gap_refused", requests.refused)
            .count("gap_queued", requests.queued)
            .count("gap_reads", requests.reads)
            .count("gap_unanswered", requests.unanswered)
            .count("leaderless_ms_max", words::ms(leaderless.length()));
        writes.count_percent(result)
    }
}

/// A stretch of time in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Gap {
    from: u64,
    to: u64,
}

impl Gap {
    fn length(self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    fn longer(self, other: Gap) -> Gap {
        if other.length() > self.length() {
            other
        } else {
            self
        }
    }
}

struct Writes<'h> {
    /// When writes were decided, in order.
    served: Vec<EventRef<'h>>,
    /// Where they were asked for, in order.
    asked: Vec<EventRef<'h>>,
    /// When one of them was decided while others were open.
    busy: FxHashSet<usize>,
    tried: u64,
    first: Option<u64>,
    last: u64,
    /// Writes that happened and writes that were tried, by node in order of first use.
    by_node: Vec<(&'h str, u64, u64)>,
    ok: u64,
}

impl<'h> Writes<'h> {
    fn of(history: &'h History) -> Writes<'h> {
        let is_write = write_test(history);
        let mut writes = Writes {
            served: Vec::new(),
            asked: Vec::new(),
            busy: FxHashSet::default(),
            tried: 0,
            first: None,
            last: 0,
            by_node: Vec::new(),
            ok: 0,
        };
        let mut place: FxHashMap<&str, usize> = FxHashMap::default();
        let mut open = 0;
        for event in history.events() {
            let Some(op) = op_of(event).filter(|op| is_write(op.f())) else {
                continue;
            };
            writes.last = event.time();
            if event.kind() != Kind::Invoke {
                open -= 1;
                if is_decided(&op) {
                    if open > 0 {
                        writes.busy.insert(event.index());
                    }
                    writes.served.push(event);
                }
                continue;
            }
            open += 1;
            writes.asked.push(event);
            writes.first.get_or_insert(event.time());
            writes.tried += 1;
            let decided = u64::from(is_decided(&op));
            writes.ok += decided;
            if op.completion.is_none() {
                writes.last = history.end();
            }
            if let Some(node) = op.node() {
                let next = writes.by_node.len();
                let at = *place.entry(node).or_insert(next);
                if at == next {
                    writes.by_node.push((node, 0, 0));
                }
                writes.by_node[at].1 += decided;
                writes.by_node[at].2 += 1;
            }
        }
        writes
    }

    /// The stretches that are judged: between the first and the last event of a write, while a
    /// majority was connected.
    fn judged(&self, history: &History) -> Option<Spans> {
        let first = self.first?;
        let connected = match connected_by_header(history) {
            Some(spans) => spans,
            None => complement(&outages(&faults(history))),
        };
        Some(
            connected
                .into_iter()
                .map(|(from, to)| (from.max(first), to.min(self.last)))
                .filter(|(from, to)| from < to)
                .collect(),
        )
    }

    fn count_percent(&self, result: Checked) -> Checked {
        let percent = |ok: u64, tried: u64| (ok * 100).checked_div(tried).unwrap_or(0);
        let result = result.count("write_ok_percent", percent(self.ok, self.tried));
        let mut nodes = self.by_node.clone();
        nodes.sort_unstable();
        nodes.iter().fold(result, |result, &(node, ok, tried)| {
            result.count(&format!("write_ok_percent:{node}"), percent(ok, tried))
        })
    }
}

/// The operation of a client that this event begins or ends.
fn op_of(event: EventRef<'_>) -> Option<Op<'_>> {
    match event.kind() {
        Kind::Invoke if !event.is_nemesis() && !event.is_observer() => Some(event.op()),
        Kind::Invoke => None,
        _ => event.partner().map(EventRef::op),
    }
}

fn of_locks(history: &History) -> bool {
    matches!(history.header.workload.as_str(), "lock" | "leader")
}

fn write_test(history: &History) -> impl Fn(&str) -> bool {
    let header = &history.header;
    let given: Option<Vec<String>> =
        header
            .params
            .get("writes")
            .and_then(Value::as_array)
            .map(|names| {
                names
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect()
            });
    let of_locks = of_locks(history);
    move |f| match &given {
        Some(names) => names.iter().any(|name| name == f),
        None if of_locks => ACQUIRES.contains(&f) || LOCK_WRITES.contains(&f),
        None => WRITES.contains(&f),
    }
}

/// Whether the service decided on a write: it happened, or its condition did not hold.
fn is_decided(op: &Op<'_>) -> bool {
    match op.outcome() {
        Outcome::Ok => true,
        Outcome::Info => false,
        Outcome::Fail => match op.error() {
            None => op.f() == "cas" || ACQUIRES.contains(&op.f()),
            Some(error) => matches!(
                error,
                "held" | "busy" | "locked" | "not-held" | "stale-token" | "mismatch"
            ),
        },
    }
}

/// What the header says of when a majority was connected.
fn connected_by_header(history: &History) -> Option<Spans> {
    let list = history
        .header
        .params
        .get("majority_connected_ms")?
        .as_array()?;
    let ns = |value: &Value| value.as_u64().map(|ms| ms.saturating_mul(1_000_000));
    let spans = list.iter().filter_map(|pair| {
        let pair = pair.as_array()?;
        Some((ns(pair.first()?)?, ns(pair.get(1)?)?))
    });
    Some(join(spans.filter(|(from, to)| from < to).collect()))
}

fn complement(spans: &Spans) -> Spans {
    let mut between = Vec::with_capacity(spans.len() + 1);
    let mut from = 0;
    for &(start, end) in spans {
        if from < start {
            between.push((from, start));
        }
        from = end;
    }
    if from < u64::MAX {
        between.push((from, u64::MAX));
    }
    between
}

fn longest_gap(judged: &Spans, writes: &Writes<'_>, from_demand: bool) -> Gap {
    let served = &writes.served;
    let mut longest = Gap::default();
    for &(start, end) in judged {
        let first = served.partition_point(|event| event.time() < start);
        let (mut from, mut busy) = (start, false);
        let within = served[first..]
            .iter()
            .map(|event| (event.time(), event.index()));
        let within = within.take_while(|&(time, _)| time <= end);
        for (to, index) in within.chain([(end, usize::MAX)]) {
            let begin = if from_demand && !busy {
                let next = writes.asked.partition_point(|asked| asked.time() < from);
                writes
                    .asked
                    .get(next)
                    .map_or(u64::MAX, |asked| asked.time())
            } else {
                from
            };
            longest = longest.longer(Gap { from: begin, to });
            busy = writes.busy.contains(&index);
            from = to;
        }
    }
    longest
}

/// The longest time within the judged stretches in which no leader was named by a majority of
/// the nodes that were ever observed.
fn leaderless(history: &History, judged: &Spans) -> Gap {
    let mut views_of: FxHashMap<&str, Option<Ident>> = FxHashMap::default();
    for view in views(history) {
        views_of.insert(view.event.node().unwrap_or(""), None);
    }
    let majority = views_of.len() / 2 + 1;
    let mut votes: FxHashMap<Ident, usize> = FxHashMap::default();
    let mut longest = Gap::default();
    let mut since: Option<u64> = None;
    let mut close = |since: Option<u64>, to: u64| {
        let Some(from) = since else { return };
        let first = judged.partition_point(|span| span.1 <= from);
        for &(start, end) in judged[first..].iter().take_while(|span| span.0 < to) {
            longest = longest.longer(Gap {
                from: from.max(start),
                to: to.min(end),
            });
        }
    };
    let mut leader: Option<Ident> = None;
    for view in views(history) {
        let now = view.event.time();
        let seen = views_of.entry(view.event.node().unwrap_or("")).or_default();
        if let Some(old) = std::mem::replace(seen, view.leader.clone()) {
            *votes.entry(old).or_default() -= 1;
        }
        if let Some(new) = view.leader {
            let votes = votes.entry(new.clone()).or_default();
            *votes += 1;
            if *votes >= majority {
                leader = Some(new);
            }
        }
        let led = leader.as_ref().and_then(|leader| votes.get(leader));
        if led.is_some_and(|&votes| votes >= majority) {
            close(since.take(), now);
        } else {
            since.get_or_insert(now);
        }
    }
    close(since, history.end());
    longest
}

/// What became of the requests that were begun in a gap.
#[derive(Default)]
struct Requests {
    refused: u64,
    queued: u64,
    reads: u64,
    unanswered: u64,
}

impl Requests {
    fn of(history: &History, gap: Gap) -> Requests {
        let mut requests = Requests::default();
        let is_write = write_test(history);
        for op in history.ops() {
            if op.start() < gap.from || op.start() >= gap.to {
                continue;
            }
            let answered = op.completion.map(EventRef::time);
            match (op.outcome(), answered) {
                (Outcome::Info, _) | (_, None) => requests.unanswered += 1,
                (Outcome::Ok, Some(at)) if at >= gap.to => requests.queued += 1,
                (Outcome::Ok, Some(_)) if !is_write(op.f()) => requests.reads += 1,
                (Outcome::Ok, Some(_)) => {}
                (Outcome::Fail, Some(_)) => requests.refused += 1,
            }
        }
        requests
    }
}

fn tell_gap(history: &History, writes: &Writes<'_>, gap: Gap, bound: Option<u64>) -> Checked {
    let mut story = Story::default();
    let after = writes
        .served
        .partition_point(|event| event.time() <= gap.from);
    let before = after.checked_sub(1).map(|at| writes.served[at]);
    let mut range = 0..history.len();
    if let Some(event) = before {
        story.tell(event, "the last write before the gap is answered");
        range.start = event.index();
    }
    if let Some(&event) = writes.served.get(after) {
        story.tell(event, "the first write after the gap is answered");
        range.end = event.index();
    }
    let next = writes
        .asked
        .partition_point(|asked| asked.time() < gap.from);
    let tried = writes.asked.get(next).or(writes.asked.last());
    if let Some(&asked) = tried.filter(|asked| asked.time() <= gap.to) {
        story.tell(
            asked,
            format!("{} asks for a {}", words::who(asked), asked.f()),
        );
    }
    story.tell_faults(history, range);
    Checked::invalid(story.finish(format!(
        "no write was completed for {} while a majority of servers was connected; the bound is {}",
        words::span(gap.length()),
        words::span(bound.unwrap_or(0))
    )))
}

fn tell_leaderless(history: &History, gap: Gap, bound: u64) -> Checked {
    let mut story = Story::default();
    let mut range = 0..history.len();
    let before = |view: &View<'_>| view.event.time() <= gap.from;
    if let Some(view) = views(history).take_while(before).last() {
        story.tell(view.event, "no leader is named by a majority from here on");
        range.start = view.event.index();
    }
    if let Some(view) = views(history).find(|view| view.event.time() >= gap.to) {
        story.tell(view.event, "a majority names one again");
        range.end = view.event.index();
    }
    story.tell_faults(history, range);
    Checked::invalid(story.finish(format!(
        "no leader was known to a majority for {}; the bound is {}",
        words::span(gap.length()),
        words::span(bound)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        Availability.check(&script::history("register", text), &Budget::unlimited())
    }

    const GAP: &str = r#"
        param bound_ms 5000
        0-100 A write x 1 -> 1 @n1
        2000-2100 A write x 2 -> fail not-leader @n1
        3000-3100 A read x null -> 1 @n2
        4000-9000 A write x 3 -> 3 @n2
        9100-9200 B write x 4 -> info timeout @n2"#;

    #[test]
    fn a_gap_longer_than_the_bound_is_convicted() {
        let found = check(GAP);
        assert_eq!(found.verdict, Verdict::Invalid);
        for (name, number) in [
            ("gap_ms_max", 8_900),
            ("gap_refused", 1),
            ("gap_reads", 1),
            ("gap_queued", 1),
            ("gap_unanswered", 0),
            ("write_ok_percent:n1", 50),
            ("write_ok_percent:n2", 50),
        ] {
            assert_eq!(found.counted(name), Some(number), "{name}");
        }
        assert_eq!(check(&GAP.replace("5000", "8900")).verdict, Verdict::Valid);
        assert!(matches!(
            check(&GAP.replace("param bound_ms 5000", "")).verdict,
            Verdict::Unknown(Reason::NotApplicable(_))
        ));
    }

    #[test]
    fn an_outage_of_the_majority_excuses() {
        let text = format!(
            "{GAP}\n{}",
            r#"150 nemesis cut - {"id":1,"phase":"begin","majority":false}
               5000 nemesis cut - {"id":1,"phase":"end"}"#
        );
        assert_eq!(check(&text).verdict, Verdict::Valid);
        assert_eq!(check(&text).counted("gap_ms_max"), Some(4_000));
        assert_eq!(
            check(&text.replace("false", "true")).verdict,
            Verdict::Invalid
        );
    }

    #[test]
    fn a_lock_that_nobody_asks_for_is_no_gap() {
        let text = r#"
            param bound_ms 2000
            0-100 A acquire L null -> {"token":1}
            30000-31000 B acquire L null -> fail held"#;
        let check =
            |text: &str| Availability.check(&script::history("lock", text), &Budget::unlimited());
        assert_eq!(check(text).counted("gap_ms_max"), Some(1_000));
        assert_eq!(check(text).verdict, Verdict::Valid);
        let waiting = format!("{text}\n50-40000 C acquire L null -> info timeout");
        assert_eq!(check(&waiting).verdict, Verdict::Invalid);
    }

    #[test]
    fn a_leader_needs_a_majority_of_those_observed() {
        let found = check(
            r#"
            param leaderless_bound_ms 3000
            0-100 A write x 1 -> 1
            0 observer leader - {"leader":"n1","term":1} @n1
            0 observer leader - {"leader":"n1","term":1} @n2
            0 observer leader - {"leader":"n1","term":1} @n3
            2000 observer leader - {"leader":null,"term":2} @n2
            2000 observer leader - {"leader":null,"term":2} @n3
            6000 observer leader - {"leader":"n3","term":3} @n3
            6500 observer leader - {"leader":"n3","term":3} @n2
            7000-7100 A write x 1 -> 1
            "#,
        );
        assert_eq!(found.counted("leaderless_ms_max"), Some(4_500));
        assert_eq!(found.verdict, Verdict::Invalid);
    }
}
