//! A map of keys to values, each key by itself.

use std::sync::Arc;

use history::{Header, ValueRef};
use rustc_hash::FxHashMap;

use super::append_log::known_order;
use super::{Asked, Core, Effect, Model, NEVER, Numbers, Shortcut, Timed, Why};
use crate::linearizable::order::{self, Clash, FIRST, Placed};

/// A map of keys to values.
pub struct Kv;

impl Model for Kv {
    const NAME: &'static str = "kv";
    const ABOUT: &'static str = "A map of keys, at first without values. `get`, which returns the \
        value, null if there is none; an empty string is as good as none. `put` of a value; `append` of \
        a string to what is there; `cas` of `[old, new]`, where an old of null means none; `delete`, \
        whether there is one or not.";
    const METHOD: &'static str = "Each key by itself. Without `cas` and `delete`, where no string that \
        was put or appended is the beginning of another: what a get returns tells which strings were \
        appended to which put, and in which order. Values and all that was appended to them are \
        blocks that follow each other (Gibbons and Korach 1997): O(n log n) and reading what was \
        returned, exact. Otherwise by search.";

    type State = Option<Datum>;
    type Op = KvOp;

    fn of_header(_: &Header) -> Result<Kv, String> {
        Ok(Kv)
    }

    fn read(&self, asked: &Asked<'_>, numbers: &mut Numbers) -> Result<Option<KvOp>, String> {
        let op = match (asked.f, asked.output()) {
            ("get", None) => None,
            ("get", Some(answer)) => Some(KvOp::Get(Datum::of(answer, numbers))),
            ("put", _) => {
                let value = Datum::of(asked.input, numbers).ok_or("it puts null")?;
                Some(KvOp::Put(value))
            }
            ("append", _) => {
                let text = asked.input.as_str().ok_or("its argument is no string")?;
                Some(KvOp::Append(text.into()))
            }
            ("cas", _) => {
                let pair = asked
                    .input
                    .as_list()
                    .map(Iterator::collect::<Vec<ValueRef<'_>>>);
                let Some([old, new]) = pair.as_deref() else {
                    return Err("its argument is no [old, new]".to_owned());
                };
                let new = Datum::of(*new, numbers).ok_or("its new value is null")?;
                Some(KvOp::Cas(Datum::of(*old, numbers), new))
            }
            ("delete", _) => Some(KvOp::Delete),
            _ => return asked.unknown("`get`, `put`, `append`, `cas` and `delete`"),
        };
        Ok(op.filter(|_| !asked.failed()))
    }

    fn initial(&self) -> Self::State {
        None
    }

    fn effect(&self, op: &KvOp) -> Effect<Self::State> {
        match op {
            KvOp::Put(value) => Effect::Overwrites(Some(value.clone())),
            KvOp::Delete => Effect::Overwrites(None),
            KvOp::Get(_) => Effect::Passive,
            KvOp::Append(_) | KvOp::Cas(..) => Effect::Any,
        }
    }

    fn step(&self, state: &Self::State, op: &KvOp) -> Option<Self::State> {
        match op {
            KvOp::Get(value) => same(state, value).then(|| state.clone()),
            KvOp::Put(value) => Some(Some(value.clone())),
            KvOp::Append(text) => match state {
                None => Some(Some(Datum::Text(text.clone()))),
                Some(Datum::Text(before)) => {
                    Some(Some(Datum::Text([&**before, &**text].concat().into())))
                }
                Some(Datum::Other(_)) => None,
            },
            KvOp::Cas(old, new) => same(state, old).then(|| Some(new.clone())),
            KvOp::Delete => Some(None),
        }
    }

    fn shortcut(&self, ops: &[Timed<KvOp>]) -> Shortcut {
        let Some(written) = Written::of(ops) else {
            return Shortcut::None;
        };
        Blocks::new(ops, written).decide()
    }
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Datum {
    /// A string, to which more can be appended.
    Text(Arc<str>),
    /// Anything else.
    Other(u32),
}

impl Datum {
    fn of(value: ValueRef<'_>, numbers: &mut Numbers) -> Option<Datum> {
        match value.as_str() {
            Some(text) => Some(Datum::Text(text.into())),
            None if value.is_null() => None,
            None => Some(Datum::Other(numbers.of(value))),
        }
    }
}

/// What is done with a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KvOp {
    /// It has this value.
    Get(Option<Datum>),
    /// It gets this value.
    Put(Datum),
    /// This comes to the end of its value.
    Append(Arc<str>),
    /// If it has the first value it gets the second.
    Cas(Option<Datum>, Datum),
    /// It has no value any more.
    Delete,
}

/// Whether a value is the one that was returned or expected.
fn same(state: &Option<Datum>, seen: &Option<Datum>) -> bool {
    let is_empty = |value: &Option<Datum>| match value {
        None => true,
        Some(Datum::Text(text)) => text.is_empty(),
        Some(Datum::Other(_)) => false,
    };
    // A value that is an empty string can be told from none only by an answer of null.
    state == seen || (seen.is_some() && is_empty(seen) && is_empty(state))
}

/// What was put and appended, if each is distinct and no string is the beginning of another.
struct Written<'o> {
    /// Sorted, with the places of the operations.
    texts: Vec<(&'o str, usize)>,
    others: FxHashMap<u32, usize>,
}

impl<'o> Written<'o> {
    fn of(ops: &'o [Timed<KvOp>]) -> Option<Written<'o>> {
        let mut written = Written {
            texts: Vec::new(),
            others: FxHashMap::default(),
        };
        for (place, timed) in ops.iter().enumerate() {
            match &timed.op {
                KvOp::Get(_) => {}
                KvOp::Put(Datum::Text(text)) | KvOp::Append(text) => {
                    written.texts.push((text, place))
                }
                KvOp::Put(Datum::Other(value)) => {
                    if written.others.insert(*value, place).is_some() {
                        return None;
                    }
                }
                KvOp::Cas(..) | KvOp::Delete => return None,
            }
        }
        written.texts.sort_unstable();
        let appends = ops.iter().any(|timed| matches!(timed.op, KvOp::Append(_)));
        if appends && !written.others.is_empty() {
            return None;
        }
        let begins = |pair: &[(&str, usize)]| pair[1].0.starts_with(pair[0].0);
        let is_empty = written
            .texts
            .first()
            .is_some_and(|(text, _)| text.is_empty());
        // Strings that begin with the same one stand together behind it.
        (!is_empty && !written.texts.windows(2).any(begins)).then_some(written)
    }

    /// The string with which this one begins, and the place where it was written.
    fn first(&self, text: &str) -> Option<(&'o str, usize)> {
        let after = self.texts.partition_point(|(written, _)| *written <= text);
        let found = self.texts[..after].last().copied()?;
        text.starts_with(found.0).then_some(found)
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

struct Blocks<'o> {
    ops: &'o [Timed<KvOp>],
    written: Written<'o>,
    /// By place of the put, plus one; the first for what was there at first.
    blocks: FxHashMap<u32, Block<'o>>,
    /// Where each append that was seen has its place, by its place among the operations.
    appended: FxHashMap<usize, (u32, u32)>,
    placed: Vec<Placed>,
}

impl<'o> Blocks<'o> {
    fn new(ops: &'o [Timed<KvOp>], written: Written<'o>) -> Blocks<'o> {
        Blocks {
            ops,
            written,
            blocks: FxHashMap::default(),
            appended: FxHashMap::default(),
            placed: Vec::with_capacity(ops.len()),
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
            if let Err(core) = read {
                return Shortcut::NoOrder(core);
            }
        }
        for place in 0..self.ops.len() {
            let (block, stage) = match &self.ops[place].op {
                KvOp::Put(_) => (number(place) + 1, 0),
                KvOp::Append(_) => match self.appended.get(&place) {
                    Some(&placed) => placed,
                    // It may be the last that was appended to anything.
                    None => (number(place) + 1, 0),
                },
                KvOp::Get(_) | KvOp::Cas(..) | KvOp::Delete => continue,
            };
            let seen = self.blocks.get(&block).is_some_and(|block| block.seen);
            if seen || self.ops[place].ret != NEVER {
                self.place(place, block, stage);
            }
        }
        match order::clash(&mut self.placed) {
            None => Shortcut::Order,
            Some(clash) => known_order(clash, self.who_saw(clash)),
        }
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
        let put = match self.written.first(text) {
            Some((first, put)) if matches!(self.ops[put].op, KvOp::Put(_)) => Some((first, put)),
            _ => None,
        };
        let number = put.map_or(FIRST, |(_, put)| number(put) + 1);
        let block = self.blocks.entry(number).or_default();
        if !block.seen {
            *block = Block {
                text: put.map_or("", |(first, _)| first),
                reader: place,
                lengths: vec![put.map_or(0, |(first, _)| first.len())],
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
            let next = next.filter(|(_, append)| matches!(self.ops[*append].op, KvOp::Append(_)));
            let Some((appended, append)) = next else {
                return Err(core(vec![place], |told| {
                    format!("{} returned what nobody put and appended", told[0])
                }));
            };
            at += appended.len();
            let stage = 2 * self::number(block.lengths.len());
            block.lengths.push(at);
            if let Some((other, _)) = self.appended.insert(append, (number, stage)) {
                let mut places = vec![append, place];
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
