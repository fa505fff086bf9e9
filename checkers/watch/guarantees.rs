//! The nine guarantees of a watch: one function and one promise each.
//!
//! Each function reads a whole stream by itself, so that one that is broken hides no other.

use history::{History, NONE, ValueRef};
use rustc_hash::{FxHashMap, FxHashSet};

use super::stream::{Item, Request, Stream, What, is_delete, key_of};
use crate::ident::Ident;
use crate::words;

/// One guarantee.
pub(super) struct Guarantee {
    pub(super) name: &'static str,
    /// The promise, as it is given in public.
    pub(super) promise: &'static str,
    pub(super) source: &'static str,
    /// The name of the count of what broke it.
    pub(super) counted: &'static str,
    pub(super) judge: fn(&History, &Stream, &[i128], &mut Found),
}

const PAGE: &str = "etcd API guarantees, Watch APIs";
const REFERENCE: &str = "etcd API reference, Watch";

/// All nine, in the order in which etcd's own tests have them.
pub(super) static GUARANTEES: [Guarantee; 9] = [
    Guarantee {
        name: "ordered",
        promise: "events are ordered by revision",
        source: PAGE,
        counted: "out_of_order",
        judge: ordered,
    },
    Guarantee {
        name: "unique",
        promise: "an event will never appear on a watch twice",
        source: PAGE,
        counted: "repeated",
        judge: unique,
    },
    Guarantee {
        name: "reliable",
        promise: "a sequence of events will never drop any subsequence of events",
        source: PAGE,
        counted: "gaps",
        judge: reliable,
    },
    Guarantee {
        name: "atomic",
        promise: "a list of events is guaranteed to encompass complete revisions",
        source: PAGE,
        counted: "split",
        judge: atomic,
    },
    Guarantee {
        name: "resumable",
        promise: "a broken watch can be resumed by establishing a new watch starting after the \
                  last revision received",
        source: PAGE,
        counted: "not_resumed",
        judge: resumable,
    },
    Guarantee {
        name: "bookmarkable",
        promise: "progress notification events guarantee that all events up to a revision have \
                  been already delivered",
        source: PAGE,
        counted: "progress_wrong",
        judge: bookmarkable,
    },
    Guarantee {
        name: "filtered",
        promise: "filters filter the events at server side before it sends back to the watcher",
        source: REFERENCE,
        counted: "not_asked_for",
        judge: filtered,
    },
    Guarantee {
        name: "prev-kv",
        promise: "if prev_kv is set, created watcher gets the previous KV before the event happens",
        source: REFERENCE,
        counted: "prev_wrong",
        judge: prev_kv,
    },
    Guarantee {
        name: "is-create",
        promise: "a PUT event with kv.Version=1 indicates the creation of a key",
        source: REFERENCE,
        counted: "create_wrong",
        judge: is_create,
    },
];

/// What breaks a guarantee: the thing that the stream brought, and what is wrong with it.
pub(super) struct Broken {
    pub(super) item: Item,
    /// Its place in the stream.
    pub(super) place: usize,
    /// What happened to the watcher, in words.
    pub(super) words: String,
}

/// What was found out about one guarantee and one stream.
#[derive(Default)]
pub(super) struct Found {
    pub(super) count: u64,
    pub(super) first: Option<Broken>,
    /// Whether anything speaks of the guarantee.
    pub(super) speaks: bool,
}

impl Found {
    fn broken(
        &mut self,
        stream: &Stream,
        place: usize,
        count: usize,
        words: impl FnOnce() -> String,
    ) {
        self.count += count as u64;
        self.first.get_or_insert_with(|| Broken {
            item: stream.items[place],
            place,
            words: words(),
        });
    }
}

/// The committed revisions after the first and before the second.
fn between(committed: &[i128], after: i128, before: i128) -> &[i128] {
    let from = committed.partition_point(|&revision| revision <= after);
    let to = committed.partition_point(|&revision| revision < before);
    committed.get(from..to).unwrap_or_default()
}

/// No event has a smaller revision than one before it; a resumed stream begins anew.
fn ordered(_: &History, stream: &Stream, _: &[i128], found: &mut Found) {
    let mut last: Option<i128> = None;
    for (place, item) in stream.items.iter().enumerate() {
        match item.what {
            What::Event { .. } => {
                found.speaks |= last.is_some();
                if let Some(last) = last.filter(|&last| item.revision < last) {
                    let words = || format!("saw revision {} after revision {last}", item.revision);
                    found.broken(stream, place, 1, words);
                }
                last = last.max(Some(item.revision));
            }
            What::Resumed => last = None,
            What::Progress => {}
        }
    }
}

/// No event comes twice: a revision and a key, or the same content where no key is told.
fn unique(history: &History, stream: &Stream, _: &[i128], found: &mut Found) {
    let mut seen: FxHashSet<(i128, Ident)> = FxHashSet::default();
    for (place, item) in stream.items.iter().enumerate() {
        if item.what == What::Resumed {
            seen.clear();
        }
        let Some(change) = item.change(history) else {
            continue;
        };
        found.speaks = true;
        let content = key_of(change).unwrap_or_else(|| Ident::of(change));
        if !seen.insert((item.revision, content)) {
            let words = || format!("saw the same event of revision {} twice", item.revision);
            found.broken(stream, place, 1, words);
        }
    }
}

/// Nothing that was committed is left out between two things that a stream brings.
fn reliable(_: &History, stream: &Stream, committed: &[i128], found: &mut Found) {
    let mut at: Option<i128> = None;
    for (place, item) in stream.items.iter().enumerate() {
        match item.what {
            What::Event { .. } => {
                if let Some(at) = at {
                    found.speaks |= !committed.is_empty();
                    let missing = between(committed, at, item.revision);
                    if let Some(first) = missing.first() {
                        let words = || {
                            format!(
                                "saw revision {} after revision {at}, and never revision {first}, which was committed",
                                item.revision
                            )
                        };
                        found.broken(stream, place, missing.len(), words);
                    }
                }
                at = at.max(Some(item.revision));
            }
            What::Progress => at = at.max(Some(item.revision)),
            // What comes first is a matter of being resumable.
            What::Resumed => at = None,
        }
    }
}

/// No list begins with the revision with which the list before ended.
fn atomic(_: &History, stream: &Stream, _: &[i128], found: &mut Found) {
    let mut last: Option<i128> = None;
    for (place, item) in stream.items.iter().enumerate() {
        match item.what {
            What::Event { at: NONE } | What::Progress => {}
            What::Event { at } => {
                found.speaks = true;
                if at == 0 && last == Some(item.revision) {
                    let words = || format!("saw revision {} in two lists", item.revision);
                    found.broken(stream, place, 1, words);
                }
                last = Some(item.revision);
            }
            What::Resumed => last = None,
        }
    }
}

/// A resumed stream goes on with the first committed revision from where it was asked to.
fn resumable(_: &History, stream: &Stream, committed: &[i128], found: &mut Found) {
    let mut from: Option<i128> = None;
    for (place, item) in stream.items.iter().enumerate() {
        match item.what {
            What::Resumed => from = Some(item.revision),
            What::Progress => from = None,
            What::Event { .. } => {
                let Some(from) = from.take() else {
                    continue;
                };
                found.speaks = true;
                let missing = between(committed, from.saturating_sub(1), item.revision);
                if item.revision < from {
                    let words = || {
                        format!(
                            "watched from revision {from}, and saw revision {}",
                            item.revision
                        )
                    };
                    found.broken(stream, place, 1, words);
                } else if let Some(first) = missing.first() {
                    let words = || {
                        format!(
                            "watched from revision {from}, saw revision {} first, and never revision {first}, which was committed",
                            item.revision
                        )
                    };
                    found.broken(stream, place, missing.len(), words);
                }
            }
        }
    }
}

/// What progress says has come, has come, and does not come afterwards.
fn bookmarkable(_: &History, stream: &Stream, committed: &[i128], found: &mut Found) {
    let mut at: Option<i128> = None;
    let mut progress: Option<i128> = None;
    for (place, item) in stream.items.iter().enumerate() {
        let revision = item.revision;
        match item.what {
            What::Event { .. } => {
                if let Some(progress) = progress.filter(|&progress| revision <= progress) {
                    let words = || {
                        format!(
                            "saw revision {revision} after it was told that all up to revision {progress} had come"
                        )
                    };
                    found.broken(stream, place, 1, words);
                }
                at = at.max(Some(revision));
            }
            What::Progress => {
                found.speaks = true;
                let missing = at.map_or(&[][..], |at| {
                    between(committed, at, revision.saturating_add(1))
                });
                if let Some(first) = missing.first() {
                    let words = || {
                        format!(
                            "was told that all up to revision {revision} had come, and revision {first}, which was committed, had not"
                        )
                    };
                    found.broken(stream, place, missing.len(), words);
                } else if let Some(at) = at.filter(|&at| revision < at) {
                    let words = || {
                        format!(
                            "was told that all up to revision {revision} had come when it had come to revision {at}"
                        )
                    };
                    found.broken(stream, place, 1, words);
                }
                at = at.max(Some(revision));
                progress = progress.max(Some(revision));
            }
            What::Resumed => {
                at = Some(revision.saturating_sub(1));
                progress = None;
            }
        }
    }
}

/// Each event is one that the watch asked for.
fn filtered(history: &History, stream: &Stream, _: &[i128], found: &mut Found) {
    let mut request: Option<Request<'_>> = None;
    for (place, item) in stream.items.iter().enumerate() {
        request = item.request(history).or(request);
        let (Some(request), Some(change)) = (
            request.filter(|request| request.is_filter()),
            item.change(history),
        ) else {
            continue;
        };
        found.speaks = true;
        if !request.wants(change.get("key"), is_delete(change)) {
            let words = || {
                format!(
                    "saw a change in revision {} that it had not asked for",
                    item.revision
                )
            };
            found.broken(stream, place, 1, words);
        }
    }
}

/// What a stream said last of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Was<'h> {
    /// It was deleted.
    Gone,
    /// It was there, with a value if one was told.
    There(Option<ValueRef<'h>>),
}

/// Each event whose key the stream has told of before, with what it said of it last. Where the
/// stream left something out, what it said before counts no more.
fn with_what_was_before<'h>(
    history: &'h History,
    stream: &Stream,
    committed: &[i128],
    mut judge: impl FnMut(usize, ValueRef<'h>, Was<'h>),
) {
    let mut before: FxHashMap<Ident, Was<'h>> = FxHashMap::default();
    let mut at: Option<i128> = None;
    for (place, item) in stream.items.iter().enumerate() {
        if let Some(request) = item.request(history) {
            if request.leaves_out_types() {
                return;
            }
            if at.is_none_or(|at| item.revision != at.saturating_add(1)) {
                before.clear();
            }
            at = Some(item.revision.saturating_sub(1));
        }
        let Some(change) = item
            .change(history)
            .filter(|_| at.is_none_or(|at| at <= item.revision))
        else {
            continue;
        };
        if at.is_some_and(|at| !between(committed, at, item.revision).is_empty()) {
            before.clear();
        }
        at = Some(item.revision);
        // A stream of one key need not name it each time.
        let of_stream = (stream.key != NONE).then_some(Ident::Word(u64::MAX));
        let Some(key) = key_of(change).or(of_stream) else {
            continue;
        };
        if let Some(&known) = before.get(&key) {
            judge(place, change, known);
        }
        let is = if is_delete(change) {
            Was::Gone
        } else {
            Was::There(change.get("value"))
        };
        before.insert(key, is);
    }
}

/// The previous value that an event tells is the one that was there; none is told after compaction.
fn prev_kv(history: &History, stream: &Stream, committed: &[i128], found: &mut Found) {
    with_what_was_before(history, stream, committed, |place, change, before| {
        let Some(told) = change.get("prev").filter(|told| !told.is_null()) else {
            return;
        };
        let was = match before {
            Was::There(None) => return,
            Was::There(Some(value)) => Some(value),
            Was::Gone => None,
        };
        found.speaks = true;
        if was != Some(told) {
            let words = || {
                let was = was.map_or("nothing".to_owned(), words::value);
                let revision = stream.items[place].revision;
                format!(
                    "was told with revision {revision} that {} was there before, and it was {was}",
                    words::value(told)
                )
            };
            found.broken(stream, place, 1, words);
        }
    });
}

/// An event says that its key is new if and only if it was not there.
fn is_create(history: &History, stream: &Stream, committed: &[i128], found: &mut Found) {
    with_what_was_before(history, stream, committed, |place, change, before| {
        let told = change.get("create").and_then(ValueRef::as_bool);
        let Some(told) = told.filter(|_| !is_delete(change)) else {
            return;
        };
        found.speaks = true;
        if told == (before != Was::Gone) {
            let words = || {
                let (new, was) = if told {
                    ("new", "was")
                } else {
                    ("not new", "was not")
                };
                let revision = stream.items[place].revision;
                format!(
                    "was told with revision {revision} that the key is {new}, and it {was} there before"
                )
            };
            found.broken(stream, place, 1, words);
        }
    });
}
