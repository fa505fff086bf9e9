//! Strings to which strings are appended, decided by what was read of them.
//!
//! If no string that was put or appended is the beginning of another, what a get returns tells which
//! strings were appended to which put, and in which order: a put and all that was appended to it
//! are a block of [`super::order`]. Where several appends of equal strings were asked for, those that come
//! first are taken to be seen first; if that leads to no order, another choice may.

use rustc_hash::FxHashMap;

use super::models::append_log::known_order;
use super::models::kv::{Datum, KvOp};
use super::models::{Core, NEVER, Shortcut, Timed, Why};
use super::order::{self, Clash, FIRST, Placed};

/// If there are more appends of equal strings, nothing is said.
const EQUAL_MAX: usize = 100;

/// Decides a key without cas and delete; says nothing of another, or if two puts are of one value.
pub(super) fn decide(ops: &[Timed<KvOp>]) -> Shortcut {
    match Written::of(ops) {
        Some(written) => Blocks::new(ops, written).decide(),
        None => Shortcut::None,
    }
}

/// A string that was put or appended, and the place of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'o> {
    /// Its first bytes, which mostly tell strings apart.
    start: u64,
    text: &'o str,
    is_append: bool,
    place: usize,
}

fn start(text: &str) -> u64 {
    let mut bytes = [0; 8];
    let length = text.len().min(8);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    u64::from_be_bytes(bytes)
}

/// What was put and appended, if each put is distinct and no string is the beginning of another.
struct Written<'o> {
    /// Sorted; of equal strings the one that was put comes first.
    texts: Vec<Text<'o>>,
    others: FxHashMap<u32, usize>,
    /// The first return of a put.
    first_put: u32,
}

impl<'o> Written<'o> {
    fn of(ops: &'o [Timed<KvOp>]) -> Option<Written<'o>> {
        let mut written = Written {
            texts: Vec::new(),
            others: FxHashMap::default(),
            first_put: NEVER,
        };
        let mut appends = false;
        for (place, timed) in ops.iter().enumerate() {
            let (text, is_append) = match &timed.op {
                KvOp::Get(_) => continue,
                KvOp::Put(Datum::Text(text)) => (text, false),
                KvOp::Append(text) => (text, true),
                KvOp::Put(Datum::Other(value)) => {
                    if written.others.insert(*value, place).is_some() {
                        return None;
                    }
                    continue;
                }
                KvOp::Cas(_) | KvOp::Delete => return None,
            };
            appends |= is_append;
            if !is_append {
                written.first_put = written.first_put.min(timed.ret);
            }
            written.texts.push(Text {
                start: start(text),
                text,
                is_append,
                place,
            });
        }
        written.texts.sort_unstable();
        if appends && !written.others.is_empty() {
            return None;
        }
        // Strings that begin with the same one stand together behind it.
        let clashes = |pair: &[Text<'_>]| match pair[0].text == pair[1].text {
            true => !pair[1].is_append,
            false => pair[1].text.starts_with(pair[0].text),
        };
        let is_empty = written
            .texts
            .first()
            .is_some_and(|first| first.text.is_empty());
        (!is_empty && !written.texts.windows(2).any(clashes)).then_some(written)
    }

    /// Where the strings stand with which this one begins.
    fn first(&self, text: &str) -> Option<usize> {
        let start = start(text);
        let is_before = |written: &Text<'_>| (written.start, written.text) <= (start, text);
        let last = self.texts.partition_point(is_before).checked_sub(1)?;
        let found = self.texts[last].text;
        let is_same = |written: &&Text<'_>| written.text == found;
        let same = self.texts[..last].iter().rev().take_while(is_same).count();
        text.starts_with(found).then_some(last - same)
    }

    /// The put of the string that stands there.
    fn put(&self, at: usize) -> Option<Text<'o>> {
        Some(self.texts[at]).filter(|text| !text.is_append)
    }

    /// The appends of the string that stands there.
    fn appends(&self, at: usize) -> &[Text<'o>] {
        let text = self.texts[at].text;
        let end = self.texts[at..]
            .iter()
            .take_while(|other| other.text == text);
        let end = at + end.count();
        &self.texts[at + usize::from(self.put(at).is_some())..end]
    }
}

/// What was there at first or was put, and what was appended to it.
#[derive(Default)]
struct Block<'o> {
    /// The longest value that was read.
    text: &'o str,
    reader: usize,
    /// The lengths of the values between appends.
    lengths: Vec<usize>,
    seen: bool,
}

/// Where a string is seen of which there is more than one append.
struct Shared {
    /// Where the string stands.
    text: usize,
    block: u32,
    stage: u32,
}

struct Blocks<'o> {
    ops: &'o [Timed<KvOp>],
    written: Written<'o>,
    /// By place of the put, plus one; the first for what was there at first.
    blocks: FxHashMap<u32, Block<'o>>,
    /// Where each append that was seen has its place, by its place among the operations.
    appended: FxHashMap<usize, (u32, u32)>,
    shared: Vec<Shared>,
    placed: Vec<Placed>,
    /// Whether something else might have been chosen for what was seen.
    chosen: bool,
}

impl<'o> Blocks<'o> {
    fn new(ops: &'o [Timed<KvOp>], written: Written<'o>) -> Blocks<'o> {
        Blocks {
            ops,
            written,
            blocks: FxHashMap::default(),
            appended: FxHashMap::default(),
            shared: Vec::new(),
            placed: Vec::with_capacity(ops.len()),
            chosen: false,
        }
    }

    fn decide(mut self) -> Shortcut {
        for place in 0..self.ops.len() {
            let read = match &self.ops[place].op {
                KvOp::Get(None) => self.read(place, ""),
                KvOp::Get(Some(Datum::Text(text))) => self.read(place, text),
                KvOp::Get(Some(Datum::Other(value))) => self.read_other(place, *value),
                _ => Ok(()),
            };
            match read {
                Err(_) if self.chosen => return Shortcut::None,
                Err(core) => return Shortcut::NoOrder(core),
                Ok(()) => {}
            }
        }
        if !self.choose() {
            return Shortcut::None;
        }
        for place in 0..self.ops.len() {
            let (block, stage) = match &self.ops[place].op {
                KvOp::Put(_) => (number(place) + 1, 0),
                KvOp::Append(_) => match self.appended.get(&place) {
                    Some(&placed) => placed,
                    // It may be the last that was appended to anything.
                    None => (number(place) + 1, 0),
                },
                KvOp::Get(_) | KvOp::Cas(_) | KvOp::Delete => continue,
            };
            let seen = self.blocks.get(&block).is_some_and(|block| block.seen);
            if seen || self.ops[place].ret != NEVER {
                self.place(place, block, stage);
            }
        }
        match order::clash(&mut self.placed) {
            None => Shortcut::Order,
            Some(_) if self.chosen => Shortcut::None,
            Some(clash) => known_order(clash, self.who_saw(clash)),
        }
    }

    /// Chooses which of equal appends is seen where: the first to be called is seen in the first
    /// read to return, unless it was over before something was read that it must follow. Says
    /// whether there were as many of them as were seen.
    fn choose(&mut self) -> bool {
        if self.shared.is_empty() {
            return true;
        }
        self.chosen = true;
        // Of each stage, until when it had happened, and since when at the earliest.
        let mut windows: FxHashMap<u32, Vec<[u32; 2]>> = FxHashMap::default();
        for shared in &self.shared {
            windows.entry(shared.block).or_insert_with(|| {
                let stages = 2 * self.blocks[&shared.block].lengths.len();
                let put = shared.block.checked_sub(1);
                let put = put.map_or(0, |put| self.ops[put as usize].call);
                vec![[put, NEVER]; stages]
            });
        }
        for read in &self.placed {
            if let Some(windows) = windows.get_mut(&read.block) {
                let [after, before] = &mut windows[read.stage as usize];
                *after = read.call.max(*after);
                *before = read.ret.min(*before);
            }
        }
        for windows in windows.values_mut() {
            for stage in 1..windows.len() {
                windows[stage][0] = windows[stage][0].max(windows[stage - 1][0]);
            }
            for stage in (1..windows.len()).rev() {
                windows[stage - 1][1] = windows[stage - 1][1].min(windows[stage][1]);
            }
        }
        let mut shared = std::mem::take(&mut self.shared);
        let window = |shared: &Shared| windows[&shared.block][shared.stage as usize];
        shared.sort_by_key(|shared| (shared.text, window(shared)[1], shared.stage));
        for seen in shared.chunk_by(|a, b| a.text == b.text) {
            let appends = self.written.appends(seen[0].text).iter();
            let mut appends: Vec<usize> = appends.map(|append| append.place).collect();
            if appends.len() > EQUAL_MAX {
                return false;
            }
            for shared in seen {
                let [after, before] = window(shared);
                let fits = |&append: &usize| {
                    let Timed { call, ret, .. } = self.ops[append];
                    call < before && after < ret
                };
                let Some(at) = appends.iter().position(fits) else {
                    return false;
                };
                let append = appends.remove(at);
                self.appended.insert(append, (shared.block, shared.stage));
            }
        }
        true
    }

    /// Those that saw what was appended to what.
    fn who_saw(&self, clash: Clash) -> Vec<usize> {
        let ops = match clash {
            Clash::Stages(later, earlier) => vec![later, earlier],
            Clash::Blocks([around, within]) => [around.0, Some(around.1), within.0, Some(within.1)]
                .into_iter()
                .flatten()
                .collect(),
        };
        let appends = |op: &Placed| matches!(self.ops[op.place as usize].op, KvOp::Append(_));
        let reader = |op: Placed| self.blocks.get(&op.block).map(|block| block.reader);
        ops.into_iter().filter(appends).filter_map(reader).collect()
    }

    fn place(&mut self, place: usize, block: u32, stage: u32) {
        self.placed.push(Placed {
            block,
            stage,
            call: self.ops[place].call,
            ret: self.ops[place].ret,
            place: number(place),
        });
    }

    /// Finds out what was appended to what to make a value that was read.
    fn read(&mut self, place: usize, text: &'o str) -> Result<(), Core> {
        let first = self.written.first(text);
        let put = first.and_then(|first| self.written.put(first));
        if let (Some(first), Some(_)) = (first, put)
            && self.ops[place].call < self.written.first_put
        {
            // It may have been appended to nothing.
            self.chosen |= !self.written.appends(first).is_empty();
        }
        let number = put.map_or(FIRST, |put| number(put.place) + 1);
        let block = self.blocks.entry(number).or_default();
        if !block.seen {
            let text = put.map_or("", |put| put.text);
            *block = Block {
                text,
                reader: place,
                lengths: vec![text.len()],
                seen: true,
            };
        }
        if !block.text.starts_with(text) {
            if !text.starts_with(block.text) {
                return Err(core(vec![block.reader, place], |told| {
                    format!(
                        "neither of {} and {} goes on from the other",
                        told[0], told[1]
                    )
                }));
            }
            self.extend(place, text, number)?;
        }
        let lengths = &self.blocks[&number].lengths;
        let appends = lengths.binary_search(&text.len()).map_err(|_| {
            core(vec![place], |told| {
                format!("{} returned what nobody put and appended", told[0])
            })
        })?;
        self.place(place, number, 2 * self::number(appends) + 1);
        Ok(())
    }

    /// Takes note of what was appended to the longest value so far to make a longer one.
    fn extend(&mut self, place: usize, text: &'o str, number: u32) -> Result<(), Core> {
        let block = self.blocks.entry(number).or_default();
        let mut at = block.text.len();
        while at < text.len() {
            let next = self.written.first(&text[at..]);
            let appends = next.map_or(&[][..], |next| self.written.appends(next));
            let (Some(next), Some(append)) = (next, appends.first()) else {
                return Err(core(vec![place], |told| {
                    format!("{} returned what nobody put and appended", told[0])
                }));
            };
            at += append.text.len();
            let stage = 2 * self::number(block.lengths.len());
            block.lengths.push(at);
            if appends.len() > 1 {
                self.shared.push(Shared {
                    text: next,
                    block: number,
                    stage,
                });
                continue;
            }
            if let Some((other, _)) = self.appended.insert(append.place, (number, stage)) {
                let mut places = vec![append.place, place];
                places.extend(self.blocks.get(&other).map(|block| block.reader));
                return Err(core(places, |told| {
                    format!(
                        "{} is seen at two places, in {}",
                        told[0],
                        told[1..].join(" and ")
                    )
                }));
            }
        }
        let block = self.blocks.entry(number).or_default();
        block.text = text;
        block.reader = place;
        Ok(())
    }

    fn read_other(&mut self, place: usize, value: u32) -> Result<(), Core> {
        let Some(&put) = self.written.others.get(&value) else {
            return Err(core(vec![place], |told| {
                format!("{} returned what nobody put", told[0])
            }));
        };
        self.blocks.entry(number(put) + 1).or_default().seen = true;
        self.place(place, number(put) + 1, 1);
        Ok(())
    }
}

fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(NEVER - 1)
}

fn core(places: Vec<usize>, why: Why) -> Core {
    Core { places, why }
}
