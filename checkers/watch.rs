//! `watch`: a watcher sees every change, once, in order, also after it was interrupted.
//!
//! What one watcher got is a [`stream::Stream`]; [`guarantees`] has one function for each of the
//! nine guarantees that etcd gives for it.

mod guarantees;
mod stream;

use history::History;

use crate::params::{Param, Takes};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

use guarantees::{Broken, GUARANTEES, Guarantee};
use stream::{Known, Stream, What, streams};

/// A watcher sees every change, once, in order.
pub struct Watch;

impl Checker for Watch {
    fn name(&self) -> &'static str {
        "watch"
    }

    fn promise(&self) -> &'static str {
        "A watcher sees the changes in the order of their revisions, each once, and none is left \
         out between two that it sees, also across an interruption; changes of one revision come \
         together, progress says what has come, and each event is one that was asked for and tells \
         rightly what was there before."
    }

    fn method(&self) -> &'static str {
        "The events of one watcher and key are one stream, interrupted or not; an `event` is one \
         change or, under `events`, a list of them, `progress` says up to which revision all has \
         come, and a `watch` that asks for a revision to begin `from` says where the stream goes \
         on: earlier revisions may come again, and all later ones must come. Nine functions, one \
         for each guarantee of etcd: ordered, unique, reliable, atomic, resumable, bookmarkable, \
         filtered, prev-kv, is-create. What must come are the revisions that are known to be \
         committed (`committed_revisions`, for streams of all keys or the only one, and what \
         answers of writes tell as `revision`, for those of the key). What was there before is what \
         the stream itself said last. A missing end is counted, not judged, and a guarantee of \
         which nothing speaks is named in a note. O(n log n). Source: etcd API guarantees and API \
         reference (v3.6); etcd issues 18089, 19179 and 17529."
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
            ("out_of_order", "events whose revision went back"),
            ("repeated", "events that came twice"),
            ("gaps", "revisions left out of a stream"),
            (
                "split",
                "lists that go on with the revision of the list before",
            ),
            (
                "not_resumed",
                "revisions left out, or too old, where a stream was resumed",
            ),
            (
                "progress_wrong",
                "revisions that progress says have come, and that had not",
            ),
            ("not_asked_for", "events that the watch did not ask for"),
            (
                "prev_wrong",
                "events with another previous value than was there",
            ),
            (
                "create_wrong",
                "events that are wrong about whether the key is new",
            ),
            (
                "missing_at_end",
                "revisions after the last event of their stream",
            ),
        ]
    }

    fn check(&self, history: &History, budget: &Budget) -> Checked {
        let known = Known::of(history);
        let all = streams(history);
        let events: usize = all.iter().map(Stream::event_count).sum();
        if events == 0 {
            return Checked::unknown(Reason::NotApplicable("no watcher saw an event".to_owned()));
        }
        let mut counts = [0; GUARANTEES.len()];
        let mut speak = [false; GUARANTEES.len()];
        let mut first: Option<(&Guarantee, &Stream, Broken)> = None;
        let mut at_end = 0;
        for (place, stream) in all.iter().enumerate() {
            if let Err(limit) = budget.spend(9 * stream.items.len() as u64) {
                let text = format!("{place} of {} streams judged", all.len());
                return Checked::unknown(Reason::exhausted(limit, text));
            }
            let committed = known.of_stream(history, stream);
            at_end += stream.missing_at_end(&committed);
            for (at, guarantee) in GUARANTEES.iter().enumerate() {
                let mut found = guarantees::Found::default();
                (guarantee.judge)(history, stream, &committed, &mut found);
                counts[at] += found.count;
                speak[at] |= found.speaks;
                if let Some(broken) = found.first
                    && first
                        .as_ref()
                        .is_none_or(|(_, _, first)| broken.item.event < first.item.event)
                {
                    first = Some((guarantee, stream, broken));
                }
            }
        }
        let mut result = match &first {
            None => Checked::valid(),
            Some((guarantee, stream, broken)) => tell(history, guarantee, stream, broken),
        };
        let silent = GUARANTEES.iter().zip(speak).filter(|(_, speaks)| !speaks);
        let silent: Vec<&str> = silent.map(|(guarantee, _)| guarantee.name).collect();
        if known.is_empty() {
            result = result.note("no committed revision is known: completeness was not judged");
        }
        if !silent.is_empty() {
            result = result.note(format!(
                "nothing speaks of, so that it was not judged: {}",
                silent.join(", ")
            ));
        }
        result = result
            .count("watchers", all.len() as u64)
            .count("events", events as u64)
            .count("committed", known.count());
        for (guarantee, count) in GUARANTEES.iter().zip(counts) {
            result = result.count(guarantee.counted, count);
        }
        result.count("missing_at_end", at_end)
    }
}

fn tell(history: &History, guarantee: &Guarantee, stream: &Stream, broken: &Broken) -> Checked {
    let mut story = Story::default();
    let event = history.event(broken.item.event as usize);
    let who = words::who(event);
    let before = stream.items[..broken.place]
        .iter()
        .rev()
        .find(|item| item.event != broken.item.event);
    if let Some(before) = before {
        let note = match before.what {
            What::Event { .. } => format!("{who} sees revision {}", before.revision),
            What::Progress => format!(
                "{who} is told that all up to revision {} has come",
                before.revision
            ),
            What::Resumed => format!("{who} watches from revision {}", before.revision),
        };
        story.tell(history.event(before.event as usize), note);
    }
    let note = match broken.item.what {
        What::Progress => format!(
            "{who} is told that all up to revision {} has come",
            broken.item.revision
        ),
        _ => format!("then it sees revision {}", broken.item.revision),
    };
    story.tell(event, note);
    let from = before.map_or(0, |before| before.event as usize);
    story.tell_faults(history, from..event.index());
    Checked::invalid(story.finish(format!(
        "{who} {}: broke {}, \"{}\" ({})",
        broken.words, guarantee.name, guarantee.promise, guarantee.source
    )))
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

    /// For each guarantee a stream that keeps it, and a change to it that breaks it and no other.
    #[test]
    fn each_guarantee_has_a_mutant_and_a_twin() {
        let commits = "param committed_revisions [10,11,12,13]";
        for (guarantee, count, twin, from, to) in [
            (
                "ordered",
                "out_of_order",
                "1 w event - {\"revision\":12}\n2 w event - {\"revision\":13}",
                "13",
                "11",
            ),
            (
                "unique",
                "repeated",
                "1 w event - {\"revision\":10,\"key\":\"a\"}\n2 w event - {\"revision\":10,\"key\":\"b\"}",
                "b",
                "a",
            ),
            (
                "reliable",
                "gaps",
                "1 w event - {\"revision\":10}\n2 w event - {\"revision\":11}",
                "11",
                "12",
            ),
            (
                "atomic",
                "split",
                "1 w event - {\"events\":[{\"revision\":10,\"key\":\"a\"},{\"revision\":11,\"key\":\"b\"}]}\n2 w event - {\"events\":[{\"revision\":12,\"key\":\"a\"}]}",
                "12",
                "11",
            ),
            (
                "resumable",
                "not_resumed",
                "1 w event - {\"revision\":10}\n2-3 w watch - {\"from\":11} -> null\n4 w event - {\"revision\":11}",
                "{\"revision\":11",
                "{\"revision\":12",
            ),
            (
                "bookmarkable",
                "progress_wrong",
                "1 w event - {\"revision\":10}\n2 w progress - {\"revision\":10}\n3 w event - {\"revision\":11}",
                "progress - {\"revision\":10",
                "progress - {\"revision\":11",
            ),
            (
                "filtered",
                "not_asked_for",
                "1-2 w watch - {\"from\":10,\"prefix\":\"a/\",\"filter\":\"noput\"} -> null\n3 w event - {\"revision\":10,\"key\":\"a/b\",\"type\":\"delete\"}",
                "key\":\"a/b",
                "key\":\"b/b",
            ),
            (
                "prev-kv",
                "prev_wrong",
                "1 w event - {\"revision\":10,\"key\":\"a\",\"value\":1}\n2 w event - {\"revision\":11,\"key\":\"a\",\"value\":2,\"prev\":1}",
                "prev\":1",
                "prev\":7",
            ),
            (
                "is-create",
                "create_wrong",
                "1 w event - {\"revision\":10,\"key\":\"a\",\"value\":1}\n2 w event - {\"revision\":11,\"key\":\"a\",\"value\":2,\"create\":false}",
                "create\":false",
                "create\":true",
            ),
        ] {
            let good = check(&format!("{commits}\n{twin}"));
            assert_eq!(good.verdict, Verdict::Valid, "{guarantee}: {good:?}");
            let bad = check(&format!("{commits}\n{}", twin.replacen(from, to, 1)));
            assert_eq!(bad.verdict, Verdict::Invalid, "{guarantee}");
            let told = bad.counterexample.clone().expect("it is invalid");
            assert!(
                told.summary.contains(&format!("broke {guarantee}, \"")),
                "{}",
                told.summary
            );
            for broken in &GUARANTEES {
                let counted = bad.counted(broken.counted) > Some(0);
                assert_eq!(counted, broken.counted == count, "{guarantee}: {bad:?}");
            }
        }
    }

    #[test]
    fn a_stream_of_one_key_need_not_bring_the_revisions_of_others() {
        let text = r#"
            1-2 p put a 1 -> {"revision":10}
            3-4 p put b 1 -> {"revision":11}
            5-6 p put a 2 -> {"revision":12}
            7-8 p put a 3 -> {"revision":13}
            9 w event a {"revision":10}
            10 w event a {"revision":12}
            11 w event a {"revision":13}"#;
        assert_eq!(check(text).verdict, Verdict::Valid);
        assert_eq!(
            check(&text.replace("10 w event a {\"revision\":12}\n", "\n")).verdict,
            Verdict::Invalid
        );
    }

    #[test]
    fn what_nothing_speaks_of_is_said() {
        let notes = check(STREAM).notes;
        assert_eq!(
            notes,
            [
                "nothing speaks of, so that it was not judged: atomic, resumable, bookmarkable, filtered, prev-kv, is-create"
            ]
        );
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
