//! What one watcher got of one key, or of all: events, progress, and where it was resumed.

use std::borrow::Cow;

use history::{EventRef, History, Kind, NONE, Outcome, Packed, ValueRef};
use rustc_hash::FxHashMap;

use crate::ident::{Ident, integer, integer_at};

/// One thing that a stream brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    /// The revision of an event, that up to which progress goes, or that from which it is resumed.
    pub(super) revision: i128,
    /// The index in the history.
    pub(super) event: u32,
    pub(super) what: What,
    /// What an event says, or a watch asks for.
    value: Packed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A change; the place in its list, [`NONE`] if it came alone.
    Event { at: u32 },
    /// All up to this revision has come.
    Progress,
    /// A watch was begun, or begun again, at a revision that the watcher chose.
    Resumed,
}

/// What one watcher got, in order.
pub(super) struct Stream {
    /// The key of the stream, [`NONE`] for one without.
    pub(super) key: u32,
    pub(super) items: Vec<Item>,
}

impl Stream {
    /// How many events it brought.
    pub(super) fn event_count(&self) -> usize {
        let events = |item: &&Item| matches!(item.what, What::Event { .. });
        self.items.iter().filter(events).count()
    }

    /// How many committed revisions are after all that it brought.
    pub(super) fn missing_at_end(&self, committed: &[i128]) -> u64 {
        let end = self.items.last().map_or(i128::MAX, |item| match item.what {
            What::Resumed => item.revision.saturating_sub(1),
            _ => item.revision,
        });
        let at = committed.partition_point(|&revision| revision <= end);
        (committed.len() - at) as u64
    }
}

/// The streams of a history, in the order in which they began.
pub(super) fn streams(history: &History) -> Vec<Stream> {
    let mut place: FxHashMap<(u32, u32), usize> = FxHashMap::default();
    let mut all: Vec<Stream> = Vec::new();
    let mut push = |process: u32, key: Option<u32>, item: Item| {
        let key = key.unwrap_or(NONE);
        let at = *place.entry((process, key)).or_insert_with(|| {
            all.push(Stream {
                key,
                items: Vec::new(),
            });
            all.len() - 1
        });
        all[at].items.push(item);
    };
    for event in history.events() {
        let index = u32::try_from(event.index()).unwrap_or(NONE);
        let mut item = |key, revision: i128, what, value: ValueRef<'_>| {
            let item = Item {
                revision,
                event: index,
                what,
                value: value.packed(),
            };
            push(event.process_id(), key, item);
        };
        if event.is_unasked() && event.f() == "event" {
            for (at, change) in changes(event) {
                if let Some(revision) = integer_at(change, "revision") {
                    item(event.key_id(), revision, What::Event { at }, change);
                }
            }
        } else if event.is_unasked() && event.f() == "progress" {
            if let Some(revision) = integer_at(event.value(), "revision") {
                item(event.key_id(), revision, What::Progress, event.value());
            }
        } else if event.kind() == Kind::Ok
            && event.f() == "watch"
            && let Some(invoke) = event.partner()
            && let Some(from) = begins(invoke, event)
        {
            item(
                event.key_id().or(invoke.key_id()),
                from,
                What::Resumed,
                invoke.value(),
            );
        }
    }
    all
}

/// The changes of an `event`, each with its place in the list.
fn changes(event: EventRef<'_>) -> impl Iterator<Item = (u32, ValueRef<'_>)> {
    let list = event.value().get("events").and_then(ValueRef::as_list);
    let alone = list.is_none().then(|| (NONE, event.value()));
    alone
        .into_iter()
        .chain((0u32..).zip(list.into_iter().flatten()))
}

/// Where a watch begins: where it asks to, or after what was compacted.
fn begins(invoke: EventRef<'_>, answer: EventRef<'_>) -> Option<i128> {
    let asked = invoke.value();
    let from = ["from", "start_revision", "revision"]
        .into_iter()
        .find_map(|name| integer_at(asked, name))
        .or_else(|| integer(asked));
    let compacted = answer.value().get("compacted").and_then(integer);
    from.max(compacted.map(|revision| revision.saturating_add(1)))
}

impl Item {
    /// What an event says.
    pub(super) fn change<'h>(&self, history: &'h History) -> Option<ValueRef<'h>> {
        matches!(self.what, What::Event { .. }).then(|| history.view(self.value))
    }

    /// What the watch asked for that begins here.
    pub(super) fn request<'h>(&self, history: &'h History) -> Option<Request<'h>> {
        (self.what == What::Resumed).then(|| Request(history.view(self.value)))
    }
}

/// What a watch asks for.
#[derive(Clone, Copy)]
pub(super) struct Request<'h>(ValueRef<'h>);

impl Request<'_> {
    /// Whether it leaves anything out.
    pub(super) fn is_filter(self) -> bool {
        self.0.get("prefix").is_some() || self.0.get("key").is_some() || self.leaves_out_types()
    }

    /// Whether it leaves out puts or deletes.
    pub(super) fn leaves_out_types(self) -> bool {
        self.0.get("filter").is_some_and(|filter| !filter.is_null())
    }

    /// Whether it asks for a change of this kind to this key; a key that is not told may be meant.
    pub(super) fn wants(self, key: Option<ValueRef<'_>>, is_delete: bool) -> bool {
        let prefix = self.0.get("prefix").and_then(ValueRef::as_str);
        let starts = match (prefix, key.and_then(ValueRef::as_str)) {
            (Some(prefix), Some(key)) => key.starts_with(prefix),
            _ => true,
        };
        let is_key = match (self.0.get("key"), key) {
            (Some(asked), Some(key)) => asked == key,
            _ => true,
        };
        starts && is_key && !self.leaves_out(if is_delete { "nodelete" } else { "noput" })
    }

    fn leaves_out(self, what: &str) -> bool {
        let Some(filter) = self.0.get("filter") else {
            return false;
        };
        let mut words = filter.as_list().into_iter().flatten();
        filter.as_str() == Some(what) || words.any(|word| word.as_str() == Some(what))
    }
}

/// Whether a change takes the key away.
pub(super) fn is_delete(change: ValueRef<'_>) -> bool {
    let kind = change.get("type").and_then(ValueRef::as_str);
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("delete"))
}

/// The identity of the key that a change tells.
pub(super) fn key_of(change: ValueRef<'_>) -> Option<Ident> {
    change.get("key").map(Ident::of)
}

/// One change that is known to be committed.
struct Commit {
    revision: i128,
    /// The number of its key, [`NONE`] if that is not known.
    key: u32,
    is_delete: bool,
}

/// The revisions that are known to be committed.
pub(super) struct Known {
    commits: Vec<Commit>,
    /// All revisions, in order, each once.
    all: Vec<i128>,
    of_key: FxHashMap<u32, Vec<i128>>,
    /// Whether the header gives them.
    given: bool,
    /// Whether no two streams are of different keys.
    one_key: bool,
}

impl Known {
    /// From the header, else from the answers of writes.
    pub(super) fn of(history: &History) -> Known {
        let given = history.header.params.get("committed_revisions");
        let given = given.and_then(serde_json::Value::as_array);
        let mut commits: Vec<Commit> = Vec::new();
        for op in history.ops() {
            if matches!(op.f(), "watch" | "read" | "get" | "final-read")
                || op.outcome() != Outcome::Ok
            {
                continue;
            }
            if let Some(revision) = op
                .output()
                .and_then(|output| integer_at(output, "revision"))
            {
                commits.push(Commit {
                    revision,
                    key: op.key_id().unwrap_or(NONE),
                    is_delete: op.f() == "delete",
                });
            }
        }
        let integer = |value: &serde_json::Value| {
            value
                .as_i64()
                .map(i128::from)
                .or_else(|| value.as_u64().map(i128::from))
        };
        let mut all: Vec<i128> = match given {
            Some(list) => list.iter().filter_map(integer).collect(),
            None => commits.iter().map(|commit| commit.revision).collect(),
        };
        all.sort_unstable();
        all.dedup();
        let mut of_key: FxHashMap<u32, Vec<i128>> = FxHashMap::default();
        for commit in commits.iter().filter(|commit| commit.key != NONE) {
            of_key.entry(commit.key).or_default().push(commit.revision);
        }
        for revisions in of_key.values_mut() {
            revisions.sort_unstable();
            revisions.dedup();
        }
        let mut keys = history
            .events()
            .filter(|event| event.is_unasked())
            .map(EventRef::key_id);
        let first = keys.next();
        Known {
            commits,
            all,
            of_key,
            given: given.is_some(),
            one_key: keys.all(|key| Some(key) == first),
        }
    }

    /// Whether none is known.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many are known.
    pub(super) fn count(&self) -> u64 {
        self.all.len() as u64
    }

    /// Those that a stream must bring, in order.
    pub(super) fn of_stream<'k>(&'k self, history: &History, stream: &Stream) -> Cow<'k, [i128]> {
        let requests = || stream.items.iter().filter_map(|item| item.request(history));
        if requests().any(Request::is_filter) {
            let wanted = |commit: &&Commit| {
                let key = (commit.key != NONE).then(|| history.key_value(commit.key));
                key.is_some() && requests().all(|request| request.wants(key, commit.is_delete))
            };
            let mut revisions: Vec<i128> = self
                .commits
                .iter()
                .filter(wanted)
                .map(|commit| commit.revision)
                .collect();
            revisions.sort_unstable();
            revisions.dedup();
            return Cow::Owned(revisions);
        }
        if stream.key == NONE || self.given && self.one_key {
            return Cow::Borrowed(&self.all);
        }
        Cow::Borrowed(self.of_key.get(&stream.key).map_or(&[], Vec::as_slice))
    }
}
