//! `watch`: a watcher sees every change, once, in order, also after it was interrupted.

use history::{EventRef, History, Kind, NONE, ValueRef};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ident::{Ident, integer, integer_at};
use crate::params::{Param, Takes};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// A watcher sees every change, once, in order.
pub struct Watch;

impl Checker for Watch {
    fn name(&self) -> &'static str {
        "watch"
    }

    fn promise(&self) -> &'static str {
        "A watcher sees the changes in the order of their revisions, each once, and none is left \
         out between two that it sees, also across an interruption."
    }

    fn method(&self) -> &'static str {
        "The events of one watcher and key are one stream, interrupted or not. Revisions must not \
         go back, no event may come twice, and every revision that is known to be committed (header \
         `committed_revisions`, else the `revision` that answers of writes tell) must come before \
         a later one does. A `watch` that asks for a revision to begin `from` says where the \
         stream goes on: earlier revisions may come again, and all later ones must come. A \
         missing end is counted, not judged. O(n log n). Source: the watch guarantees of etcd: \
         ordered, unique, reliable, atomic, resumable; etcd issues 18089, 19179 and 17529."
    }

    fn params(&self) -> &'static [Param] {
        &[Param {
            name: "committed_revisions",
            takes: Takes::Numbers,
            default: "those that answers of writes tell",
            about: "all revisions that were committed, in order",
        }]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("watchers", "streams of events"),
            ("events", "events seen"),
            ("committed", "revisions known to be committed"),
            ("gaps", "revisions left out of a stream"),
            ("out_of_order", "events whose revision went back"),
            ("repeated", "events that came twice"),
            (
                "missing_at_end",
                "revisions after the last event of their stream",
            ),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let committed = committed(history);
        let mut streams = Streams {
            committed: &committed,
            streams: FxHashMap::default(),
            events: 0,
            gaps: 0,
            out_of_order: 0,
            repeated: 0,
            first: None,
        };
        for event in history.events() {
            if event.is_unasked() && event.f() == "event" {
                streams.event(event);
            } else if event.kind() == Kind::Ok && event.f() == "watch" {
                streams.resumed(event);
            }
        }
        if streams.events == 0 {
            return Checked::unknown(Reason::NotApplicable("no watcher saw an event".to_owned()));
        }
        let at_end: usize = streams
            .streams
            .values()
            .map(|stream| {
                committed.len() - committed.partition_point(|&revision| revision <= stream.at)
            })
            .sum();
        let result = match &streams.first {
            None => Checked::valid(),
            Some(broken) => tell(history, broken),
        };
        let result = if committed.is_empty() {
            result.note("no committed revision is known: completeness was not judged")
        } else {
            result
        };
        result
            .count("watchers", streams.streams.len() as u64)
            .count("events", streams.events)
            .count("committed", committed.len() as u64)
            .count("gaps", streams.gaps)
            .count("out_of_order", streams.out_of_order)
            .count("repeated", streams.repeated)
            .count("missing_at_end", at_end as u64)
    }
}

/// The committed revisions, sorted, each once.
fn committed(history: &History) -> Vec<i128> {
    let given = history.header.params.get("committed_revisions");
    let mut revisions: Vec<i128> = match given.and_then(serde_json::Value::as_array) {
        Some(list) => list
            .iter()
            .filter_map(|value| {
                value
                    .as_i64()
                    .map(i128::from)
                    .or_else(|| value.as_u64().map(i128::from))
            })
            .collect(),
        None => history
            .ops()
            .filter(|op| !matches!(op.f(), "watch" | "read" | "get" | "final-read"))
            .filter_map(|op| integer_at(op.output()?, "revision"))
            .collect(),
    };
    revisions.sort_unstable();
    revisions.dedup();
    revisions
}

/// What one watcher has seen.
struct Stream<'h> {
    /// The revision up to which the stream is complete.
    at: i128,
    last: Option<EventRef<'h>>,
    /// The contents seen at the last revision: one revision may bring several.
    seen: FxHashSet<Ident>,
}

enum Fault {
    Gap(i128),
    Back,
    Twice,
}

struct Broken<'h> {
    fault: Fault,
    revision: i128,
    last: Option<EventRef<'h>>,
    event: EventRef<'h>,
}

struct Streams<'h, 'c> {
    committed: &'c [i128],
    streams: FxHashMap<(u32, u32), Stream<'h>>,
    events: u64,
    gaps: u64,
    out_of_order: u64,
    repeated: u64,
    first: Option<Broken<'h>>,
}

impl<'h> Streams<'h, '_> {
    fn event(&mut self, event: EventRef<'h>) {
        let Some(revision) = integer_at(event.value(), "revision") else {
            return;
        };
        self.events += 1;
        let id = (event.process_id(), event.key_id().unwrap_or(NONE));
        let content = Ident::of(event.value());
        let Some(stream) = self.streams.get_mut(&id) else {
            self.streams.insert(
                id,
                Stream {
                    at: revision,
                    last: Some(event),
                    seen: FxHashSet::from_iter([content]),
                },
            );
            return;
        };
        let mut broken = |fault| {
            self.first.get_or_insert(Broken {
                fault,
                revision,
                last: stream.last,
                event,
            });
        };
        if revision < stream.at {
            self.out_of_order += 1;
            broken(Fault::Back);
            return;
        }
        if revision > stream.at {
            let from = self.committed.partition_point(|&known| known <= stream.at);
            let to = self.committed.partition_point(|&known| known < revision);
            if from < to {
                self.gaps += (to - from) as u64;
                broken(Fault::Gap(self.committed[from]));
            }
            stream.seen.clear();
        }
        if !stream.seen.insert(content) {
            self.repeated += 1;
            broken(Fault::Twice);
        }
        stream.at = revision;
        stream.last = Some(event);
    }

    /// A watch was begun, or begun again, at a revision that the watcher chose.
    fn resumed(&mut self, answer: EventRef<'h>) {
        let Some(invoke) = answer.partner() else {
            return;
        };
        let asked = invoke.value();
        let from = ["from", "start_revision", "revision"]
            .into_iter()
            .find_map(|name| integer_at(asked, name))
            .or_else(|| integer(asked));
        let compacted = answer.value().get("compacted").and_then(integer);
        let Some(from) = from.max(compacted.map(|revision| revision.saturating_add(1))) else {
            return;
        };
        let id = (
            answer.process_id(),
            answer.key_id().or(invoke.key_id()).unwrap_or(NONE),
        );
        let at = from.saturating_sub(1);
        let stream = self.streams.entry(id).or_insert_with(|| Stream {
            at,
            last: None,
            seen: FxHashSet::default(),
        });
        stream.at = at;
        stream.seen.clear();
    }
}

fn tell(history: &History, broken: &Broken<'_>) -> Checked {
    let mut story = Story::default();
    let watcher = words::who(broken.event);
    let last = broken
        .last
        .and_then(|event| event.value().get("revision"))
        .map_or("nothing".to_owned(), |revision: ValueRef<'_>| {
            format!("revision {}", words::value(revision))
        });
    if let Some(event) = broken.last {
        story.tell(event, format!("{watcher} sees {last}"));
    }
    let revision = broken.revision;
    let (note, summary) = match broken.fault {
        Fault::Gap(missing) => (
            format!("the next that it sees is revision {revision}"),
            format!(
                "{watcher} saw revision {revision} after {last}, and never revision {missing}, which was committed"
            ),
        ),
        Fault::Back => (
            format!("then it sees revision {revision}"),
            format!("{watcher} saw revision {revision} after {last}"),
        ),
        Fault::Twice => (
            format!("it sees the same event of revision {revision} again"),
            format!("{watcher} saw the same event of revision {revision} twice"),
        ),
    };
    story.tell(broken.event, note);
    let from = broken.last.map_or(0, EventRef::index);
    story.tell_faults(history, from..broken.event.index());
    Checked::invalid(story.finish(summary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        Watch.check(&script::history("watch", text), &Budget::unlimited())
    }

    const STREAM: &str = r#"
        param committed_revisions [10,11,12,13]
        1 w event - {"revision":10}
        2 w event - {"revision":11,"key":"a"}
        3 w event - {"revision":11,"key":"b"}
        4 w event - {"revision":12}"#;

    #[test]
    fn a_gap_a_step_back_and_a_repetition_are_convicted() {
        let good = check(STREAM);
        assert_eq!(good.verdict, Verdict::Valid);
        assert_eq!(good.counted("missing_at_end"), Some(1));
        for (from, to, count) in [
            ("11,", "9,", "out_of_order"),
            ("\"b\"", "\"a\"", "repeated"),
            ("12}", "13}", "gaps"),
        ] {
            let bad = check(&STREAM.replace(from, to));
            assert_eq!(bad.verdict, Verdict::Invalid, "{count}");
            assert!(bad.counted(count) > Some(0), "{count}");
        }
    }

    #[test]
    fn a_stream_goes_on_where_it_is_resumed() {
        let resume = |from: u64, next: u64| {
            check(&format!(
                "{STREAM}\n5-6 w watch - {{\"from\":{from}}} -> null\n7 w event - {{\"revision\":{next}}}"
            ))
            .verdict
        };
        assert_eq!(resume(13, 13), Verdict::Valid);
        assert_eq!(resume(11, 11), Verdict::Valid);
        assert_eq!(resume(11, 12), Verdict::Invalid);
        assert_eq!(resume(12, 13), Verdict::Invalid);
    }
}
