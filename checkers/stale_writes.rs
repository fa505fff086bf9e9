//! `stale-writes`: a resource never accepts a token after it accepted a larger one, and tokens
//! grow with each grant.
//!
//! Whether two held the lock at once is not asked here (see `mutual-exclusion`): with fencing, two
//! may believe that they hold it and no harm is done.

use history::{EventRef, History, NONE, Op, ValueRef};
use rustc_hash::FxHashMap;

use crate::actors;
use crate::holds::{GUARDED, Hold, Holds};
use crate::ident::{Ident, integer_at};
use crate::params::Param;
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// No write of a former holder is accepted after one of its successor.
pub struct StaleWrites;

impl Checker for StaleWrites {
    fn name(&self) -> &'static str {
        "stale-writes"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["fencing"]
    }

    fn promise(&self) -> &'static str {
        "A guarded resource accepts no token after it accepted a larger one, and each grant of a \
         lock brings a larger token than the grants before it."
    }

    fn method(&self) -> &'static str {
        "A guarded operation (`put`, `delete`, `act`, `fence` with a token) that was accepted is \
         stale if a larger token of the same key had been accepted, and its acceptance answered, \
         before this operation was asked for; or, where answers tell `seq`, the resource's own \
         order of what it accepted, if a larger token comes earlier in that order. A `get` that \
         returns a token proves its acceptance, and that of the unanswered `put` whose value it \
         returns. A grant must bring a larger token than every grant of the same lock that was \
         answered before it was asked for, and no token that another grant brought. Prefix maxima \
         by answer and by `seq`: O(n log n). Source: Kleppmann, How to do distributed locking \
         (2016)."
    }

    fn params(&self) -> &'static [Param] {
        &[actors::THREADS, actors::CLIENTS]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("guarded_ok", "guarded operations that were accepted"),
            (
                "stale_accepted",
                "accepted with a token older than one already accepted",
            ),
            ("stale_refused", "refused because their token was stale"),
            ("grants", "grants that brought a token"),
            (
                "tokens_out_of_order",
                "grants whose token is not larger than one granted before",
            ),
            (
                "damage_window_ms",
                "longest time from the first acceptance of a newer token to the last stale one",
            ),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let mut resources = Resources::default();
        for event in history.events() {
            resources.read(event);
        }
        let holds = Holds::of(history);
        let mut grants: Vec<&Hold<'_>> = holds.holds.iter().collect();
        grants.retain(|hold| hold.token.is_some());
        if resources.guarded() == 0 && grants.is_empty() {
            return Checked::unknown(Reason::NotApplicable(
                "no operation with a token and no grant that brought one".to_owned(),
            ));
        }
        let (by_seq, notes) = resources.stale_by_seq(history);
        let mut stale = std::mem::take(&mut resources.stale);
        stale.extend(by_seq);
        stale.sort_by_key(|found| (found.event.index(), found.newer.event.index()));
        stale.dedup_by_key(|found| found.event.index());
        let disorder = out_of_order(&grants);
        let result = if let Some(first) = stale.first() {
            tell_stale(history, &grants, first)
        } else if let Some(&(first, second)) = disorder.first() {
            tell_disorder(history, first, second)
        } else {
            Checked::valid()
        };
        notes
            .into_iter()
            .fold(result, Checked::note)
            .count("guarded_ok", resources.accepted.len() as u64)
            .count("stale_accepted", stale.len() as u64)
            .count("stale_refused", resources.refused)
            .count("grants", grants.len() as u64)
            .count("tokens_out_of_order", disorder.len() as u64)
            .count("damage_window_ms", words::ms(damage(&stale)))
    }
}

/// A token that a resource accepted, and the event that proves it.
#[derive(Clone, Copy)]
struct Seen<'h> {
    token: i128,
    event: EventRef<'h>,
}

/// A guarded operation that was accepted.
#[derive(Clone, Copy)]
struct Accepted<'h> {
    key: u32,
    token: i128,
    seq: Option<i128>,
    op: Op<'h>,
}

/// A stale operation: what proves its acceptance, and the newer token that had been accepted.
struct Stale<'h> {
    op: Op<'h>,
    token: i128,
    event: EventRef<'h>,
    newer: Seen<'h>,
    /// The first acceptance of any token newer than this one.
    since: u64,
}

/// An unanswered put that a later read may prove.
#[derive(Clone, Copy)]
struct Unanswered<'h> {
    op: Op<'h>,
    /// Accepted tokens of this key that were known when it was asked for: so many of `rises`.
    rises: usize,
    /// Whether another put of the same value and token makes the proof worthless.
    ambiguous: bool,
}

#[derive(Default)]
struct Resources<'h> {
    /// Per key, the accepted tokens that were larger than all before, in order of their answers.
    rises: FxHashMap<u32, Vec<Seen<'h>>>,
    /// How many of them there were when a guarded operation was asked for, by its event.
    asked: FxHashMap<usize, usize>,
    unanswered: FxHashMap<(u32, Ident, i128), Unanswered<'h>>,
    accepted: Vec<Accepted<'h>>,
    stale: Vec<Stale<'h>>,
    refused: u64,
}

impl<'h> Resources<'h> {
    fn guarded(&self) -> u64 {
        self.accepted.len() as u64 + self.refused
    }

    fn read(&mut self, event: EventRef<'h>) {
        let f = event.f();
        if event.kind() == history::Kind::Invoke {
            if GUARDED.contains(&f) {
                self.asked(event.op());
            }
            return;
        }
        let Some(invoke) = event.partner() else {
            return;
        };
        let op = invoke.op();
        if GUARDED.contains(&f) {
            match (op.outcome(), integer_at(op.input(), "token")) {
                (history::Outcome::Ok, Some(token)) => self.accepted(op, event, token),
                (history::Outcome::Fail, _) if op.error() == Some("stale-token") => {
                    self.refused += 1;
                }
                _ => {}
            }
        } else if f == "get"
            && let Some(answer) = op.output()
            && let Some(token) = integer_at(answer, "token")
        {
            self.got(op.key_id().unwrap_or(NONE), answer, token, event);
        }
    }

    fn asked(&mut self, op: Op<'h>) {
        let Some(token) = integer_at(op.input(), "token") else {
            return;
        };
        let key = op.key_id().unwrap_or(NONE);
        let rises = self.rises.get(&key).map_or(0, Vec::len);
        self.asked.insert(op.invoke.index(), rises);
        if op.f() == "put"
            && let Some(value) = op.input().get("v")
        {
            let known = (key, Ident::of(value), token);
            self.unanswered
                .entry(known)
                .and_modify(|put| put.ambiguous = true)
                .or_insert(Unanswered {
                    op,
                    rises,
                    ambiguous: op.outcome() != history::Outcome::Info,
                });
        }
    }

    fn accepted(&mut self, op: Op<'h>, event: EventRef<'h>, token: i128) {
        let key = op.key_id().unwrap_or(NONE);
        let asked = self.asked.remove(&op.invoke.index()).unwrap_or(0);
        self.judge(key, op, token, event, asked);
        self.rise(key, token, event);
        self.accepted.push(Accepted {
            key,
            token,
            seq: op.output().and_then(|answer| integer_at(answer, "seq")),
            op,
        });
    }

    /// A read of what a put left: the token had been accepted when the answer came.
    fn got(&mut self, key: u32, answer: ValueRef<'h>, token: i128, event: EventRef<'h>) {
        if let Some(value) = answer.get("v") {
            let known = (key, Ident::of(value), token);
            if let Some(put) = self.unanswered.get_mut(&known)
                && !put.ambiguous
            {
                // Once proven, the same value may be read again; it proves nothing more.
                put.ambiguous = true;
                let put = *put;
                self.judge(key, put.op, token, event, put.rises);
            }
        }
        self.rise(key, token, event);
    }

    /// Convicts an accepted operation if one of the first `asked` rises has a larger token.
    fn judge(&mut self, key: u32, op: Op<'h>, token: i128, event: EventRef<'h>, asked: usize) {
        let Some(rises) = self.rises.get(&key) else {
            return;
        };
        let before = &rises[..asked];
        let Some(&newer) = before.last().filter(|newer| newer.token > token) else {
            return;
        };
        let first = before.partition_point(|seen| seen.token <= token);
        self.stale.push(Stale {
            op,
            token,
            event,
            newer,
            since: before[first].event.time(),
        });
    }

    fn rise(&mut self, key: u32, token: i128, event: EventRef<'h>) {
        let rises = self.rises.entry(key).or_default();
        if rises.last().is_none_or(|last| token > last.token) {
            rises.push(Seen { token, event });
        }
    }

    /// Stale operations by the resources' own order of what they accepted. An order that
    /// contradicts real time, or that gives a number twice, is no order and is not used.
    fn stale_by_seq(&self, history: &History) -> (Vec<Stale<'h>>, Vec<String>) {
        let mut by_key: FxHashMap<u32, Vec<(i128, Accepted<'h>)>> = FxHashMap::default();
        let mut keys = Vec::new();
        for accepted in &self.accepted {
            if let Some(seq) = accepted.seq {
                let group = by_key.entry(accepted.key).or_default();
                if group.is_empty() {
                    keys.push(accepted.key);
                }
                group.push((seq, *accepted));
            }
        }
        let (mut stale, mut notes) = (Vec::new(), Vec::new());
        for key in keys {
            let mut group = by_key.remove(&key).unwrap_or_default();
            group.sort_by_key(|&(seq, accepted)| (seq, accepted.op.invoke.index()));
            if is_an_order(&group) {
                stale_in_order(&group, &mut stale);
            } else {
                notes.push(format!(
                    "the `seq` numbers{} contradict real time or repeat, and were not used",
                    words::of_key(history, key)
                ));
            }
        }
        (stale, notes)
    }
}

/// Whether `seq` orders these operations as real time does: none was answered before one with a
/// smaller number was asked for.
fn is_an_order(group: &[(i128, Accepted<'_>)]) -> bool {
    let distinct = group.windows(2).all(|pair| pair[0].0 != pair[1].0);
    let mut earliest_answer = usize::MAX;
    let agrees = group.iter().rev().all(|(_, accepted)| {
        let op = accepted.op;
        let agrees = op.invoke.index() < earliest_answer;
        if let Some(answer) = op.completion {
            earliest_answer = earliest_answer.min(answer.index());
        }
        agrees
    });
    distinct && agrees
}

fn stale_in_order<'h>(group: &[(i128, Accepted<'h>)], stale: &mut Vec<Stale<'h>>) {
    let mut rises: Vec<Seen<'h>> = Vec::new();
    for (_, accepted) in group {
        let event = accepted.op.completion.unwrap_or(accepted.op.invoke);
        match rises.last() {
            Some(&newer) if newer.token > accepted.token => {
                let first = rises.partition_point(|seen| seen.token <= accepted.token);
                stale.push(Stale {
                    op: accepted.op,
                    token: accepted.token,
                    event,
                    newer,
                    since: rises[first].event.time(),
                });
            }
            Some(last) if last.token == accepted.token => {}
            _ => rises.push(Seen {
                token: accepted.token,
                event,
            }),
        }
    }
}

fn damage(stale: &[Stale<'_>]) -> u64 {
    stale
        .iter()
        .map(|found| found.event.time().saturating_sub(found.since))
        .max()
        .unwrap_or(0)
}

/// Pairs of grants of one lock whose tokens are out of order or equal: (the larger or first, the
/// one that came after), in order of the latter.
fn out_of_order<'a, 'h>(grants: &[&'a Hold<'h>]) -> Vec<(&'a Hold<'h>, &'a Hold<'h>)> {
    let mut points: Vec<(usize, usize, bool)> = Vec::with_capacity(grants.len() * 2);
    for (at, hold) in grants.iter().enumerate() {
        points.push((hold.acquire.invoke.index(), at, true));
        points.push((hold.granted.index(), at, false));
    }
    points.sort_unstable();
    let mut largest: FxHashMap<u32, usize> = FxHashMap::default();
    let mut largest_when_asked: Vec<Option<usize>> = vec![None; grants.len()];
    let mut by_token: FxHashMap<(u32, i128), usize> = FxHashMap::default();
    let mut found = Vec::new();
    for (_, at, asks) in points {
        let hold = grants[at];
        if asks {
            largest_when_asked[at] = largest.get(&hold.key).copied();
            continue;
        }
        let token = hold.token.unwrap_or(i128::MIN);
        let same = *by_token.entry((hold.key, token)).or_insert(at);
        // The same process may be told its own grant once more.
        if same != at && grants[same].owner != hold.owner {
            found.push((grants[same], hold));
        } else if let Some(before) = largest_when_asked[at]
            && grants[before].token > hold.token
        {
            found.push((grants[before], hold));
        }
        let top = largest.entry(hold.key).or_insert(at);
        if grants[*top].token < hold.token {
            *top = at;
        }
    }
    found
}

fn tell_stale(history: &History, grants: &[&Hold<'_>], found: &Stale<'_>) -> Checked {
    let mut story = Story::default();
    let on = words::of_key(history, found.op.key_id().unwrap_or(NONE)).replacen(" of ", " on ", 1);
    let (old, new) = (found.token, found.newer.token);
    let who = words::who(found.op.invoke);
    let newer_by = words::who(found.newer.event);
    let f = found.op.f();
    if found.newer.event.f() == "get" {
        story.tell(
            found.newer.event,
            format!("a read shows that token {new} was accepted{on}"),
        );
    } else {
        let newer_f = found.newer.event.f();
        story.tell(
            found.newer.event,
            format!("the {newer_f} of {newer_by} with token {new} is accepted{on}"),
        );
    }
    story.tell(
        found.op.invoke,
        format!("{who} asks for {f} with the older token {old}{on}"),
    );
    story.tell(
        found.event,
        if found.event.f() == "get" {
            format!("a read returns what that {f} wrote: it was accepted")
        } else {
            format!("that {f} with token {old} is accepted: it must be refused")
        },
    );
    for hold in grants {
        if hold.token == Some(old) || hold.token == Some(new) {
            let token = words::number(hold.token);
            story.tell(
                hold.granted,
                format!(
                    "{} gets the lock with token{token}",
                    words::who(hold.granted)
                ),
            );
        }
    }
    let from = found.newer.event.index().min(found.op.invoke.index());
    let from = grants
        .iter()
        .find(|hold| hold.token == Some(old))
        .map_or(from, |hold| hold.granted.index().min(from));
    story.tell_faults(history, from..found.event.index());
    Checked::invalid(story.finish(format!(
        "{f} by {who} with token {old} was accepted{on} after token {new} had been accepted"
    )))
}

fn tell_disorder(history: &History, first: &Hold<'_>, second: &Hold<'_>) -> Checked {
    let mut story = Story::default();
    let of = words::of_key(history, second.key);
    let (before, after) = (words::number(first.token), words::number(second.token));
    let same = first.token == second.token;
    story.tell(
        first.granted,
        format!(
            "{} gets the lock{of} with token{before}",
            words::who(first.granted)
        ),
    );
    story.tell(
        second.acquire.invoke,
        format!("{} asks for the lock{of}", words::who(second.granted)),
    );
    story.tell(
        second.granted,
        format!("{} gets it with token{after}", words::who(second.granted)),
    );
    story.tell_faults(history, first.granted.index()..second.granted.index());
    Checked::invalid(story.finish(if same {
        format!(
            "{} and {} both got the lock{of} with token{after}",
            words::who(first.granted),
            words::who(second.granted)
        )
    } else {
        format!("token{after} was granted after token{before}: tokens{of} went back")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        StaleWrites.check(&script::history("lock", text), &Budget::unlimited())
    }

    const FENCED: &str = r#"
        0-100 A acquire L {"ttl_ms":1000} -> {"token":33}
        200-300 A put r {"v":1,"token":33} -> {"v":1}
        2000-2100 B acquire L {"ttl_ms":1000} -> {"token":34}
        2200-2300 B put r {"v":2,"token":34} -> {"v":2}
        5000-5100 A put r {"v":3,"token":33} -> fail stale-token"#;

    #[test]
    fn a_former_holder_s_write_is_convicted_once_accepted() {
        let good = check(FENCED);
        assert_eq!(good.verdict, Verdict::Valid);
        assert_eq!(good.counted("stale_refused"), Some(1));
        let bad = check(&FENCED.replace("fail stale-token", "{\"v\":3}"));
        assert_eq!(bad.verdict, Verdict::Invalid);
        assert_eq!(bad.counted("stale_accepted"), Some(1));
        assert_eq!(bad.counted("damage_window_ms"), Some(2_800));
        let told = bad.counterexample.unwrap();
        assert_eq!(
            told.summary,
            "put by A with token 33 was accepted on r after token 34 had been accepted"
        );
        assert_eq!(told.rows.len(), 5);
    }

    #[test]
    fn overlapping_writes_are_judged_by_the_resource_s_order() {
        let text = r#"
            0-900 A put r {"v":1,"token":33} -> {"v":1,"seq":5}
            100-800 B put r {"v":2,"token":34} -> {"v":2,"seq":4}"#;
        assert_eq!(check(text).verdict, Verdict::Invalid);
        assert_eq!(
            check(&text.replace("\"seq\":5", "\"seq\":3")).verdict,
            Verdict::Valid
        );
        assert_eq!(
            check(&text.replace(",\"seq\":5", "")).verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn an_order_that_contradicts_time_is_not_used() {
        let found = check(
            r#"
            0-100 A put r {"v":1,"token":33} -> {"v":1,"seq":9}
            200-300 B put r {"v":2,"token":34} -> {"v":2,"seq":2}"#,
        );
        assert_eq!(found.verdict, Verdict::Valid);
        assert_eq!(found.notes.len(), 1);
    }

    #[test]
    fn a_read_proves_an_unanswered_write() {
        let text = r#"
            0-100 B put r {"v":2,"token":34} -> {"v":2}
            200-300 A put r {"v":3,"token":33} -> info timeout
            400-500 C get r null -> {"v":3,"token":33}"#;
        assert_eq!(check(text).verdict, Verdict::Invalid);
        // It may have been accepted before the newer one was.
        assert_eq!(
            check(&text.replace("200-300 A", "50-300 A")).verdict,
            Verdict::Valid
        );
        // Nothing shows that it was accepted at all.
        assert_eq!(
            check(&text.replace(
                "\"v\":3,\"token\":33} -> info",
                "\"v\":4,\"token\":33} -> info"
            ))
            .verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn a_write_is_proven_once() {
        // The second read may still see the first of the two equal writes.
        let text = r#"
            0-10 A put r {"v":3,"token":33} -> info timeout
            20-30 C get r null -> {"v":3,"token":33}
            40-50 B put r {"v":2,"token":34} -> {"v":2}
            60-70 D put r {"v":3,"token":33} -> info timeout
            80-90 C get r null -> {"v":3,"token":33}"#;
        assert_eq!(check(text).counted("stale_accepted"), Some(0));
    }

    #[test]
    fn a_fence_is_a_token_seen() {
        let text = r#"
            0-100 B fence r {"token":34} -> null
            200-300 A put r {"v":3,"token":33} -> {"v":3}"#;
        assert_eq!(check(text).verdict, Verdict::Invalid);
        assert_eq!(
            check(&text.replace("-> null", "-> info timeout")).verdict,
            Verdict::Valid
        );
    }

    #[test]
    fn tokens_must_grow_and_differ() {
        let text = r#"
            0-100 A acquire L {"ttl_ms":1} -> {"token":115}
            200-300 B acquire L {"ttl_ms":1} -> {"token":116}"#;
        assert_eq!(check(text).verdict, Verdict::Valid);
        assert_eq!(check(&text.replace("116", "79")).verdict, Verdict::Invalid);
        assert_eq!(check(&text.replace("116", "115")).verdict, Verdict::Invalid);
        // Concurrent grants may come in any order, but not with one token.
        let text = text.replace("200-300", "50-300");
        assert_eq!(check(&text.replace("116", "79")).verdict, Verdict::Valid);
        assert_eq!(check(&text.replace("116", "115")).verdict, Verdict::Invalid);
    }
}
