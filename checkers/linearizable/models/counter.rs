//! A number to which numbers are added.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use history::Header;
use rustc_hash::FxHashMap;

use super::{Asked, Effect, Model, NEVER, Numbers, Shortcut, Timed, Told};
use crate::linearizable::ranks;
use crate::params::{self, Param};

/// A number to which numbers are added.
pub struct Counter {
    initial: i64,
}

impl Model for Counter {
    const NAME: &'static str = "counter";
    const ABOUT: &'static str = "A number, at first 0 or the parameter `initial`. `add` of an integer, or of one where it has no argument; \
        `read`, which returns the number.";
    const METHOD: &'static str = "Where all add the same, such as one: an addition happens when it \
        returns, or before a read that needs it, and then the open one that must return first; O(n \
        log n), exact. Otherwise each read must lie between what was certainly added and what may \
        have been, which is necessary; whether it is possible is decided by search.";
    const PARAMS: &'static [Param] = &[params::INITIAL];

    type State = i64;
    type Op = CounterOp;

    fn of_header(header: &Header) -> Result<Counter, String> {
        let initial = header
            .params
            .get("initial")
            .filter(|value| !value.is_null());
        let initial = initial.map_or(Some(0), serde_json::Value::as_i64);
        let initial = initial.ok_or("the parameter `initial` of a counter is an integer")?;
        Ok(Counter { initial })
    }

    fn read(&self, asked: &Asked<'_>, _: &mut Numbers) -> Result<Option<CounterOp>, String> {
        match asked.f {
            "add" => {
                let by = if asked.input.is_null() {
                    Some(1)
                } else {
                    asked.input.as_i64()
                };
                let by = by.ok_or("its argument is no integer")?;
                Ok((by != 0 && !asked.failed()).then_some(CounterOp::Add(by)))
            }
            "read" => match asked.output() {
                None => Ok(None),
                Some(value) => {
                    let value = value.as_i64().ok_or("its result is no integer")?;
                    Ok(Some(CounterOp::Read(value)))
                }
            },
            _ => asked.unknown("`add` and `read`"),
        }
    }

    fn initial(&self) -> i64 {
        self.initial
    }

    fn effect(&self, op: &CounterOp) -> Effect<i64> {
        match *op {
            CounterOp::Add(_) => Effect::Any,
            CounterOp::Read(value) => Effect::Observes(value),
        }
    }

    fn step(&self, &state: &i64, op: &CounterOp) -> Option<i64> {
        match *op {
            CounterOp::Add(by) => state.checked_add(by),
            CounterOp::Read(value) => (state == value).then_some(state),
        }
    }

    fn shortcut(&self, ops: &[Timed<CounterOp>]) -> Shortcut {
        let mut added = ops.iter().filter_map(|timed| match timed.op {
            CounterOp::Add(by) => Some(by),
            CounterOp::Read(_) => None,
        });
        let by = added.next().unwrap_or(1);
        if added.all(|other| other == by) {
            return first_wrong(ops, self.initial, by).map_or(Shortcut::Order, Shortcut::At);
        }
        out_of_bounds(ops, self.initial).map_or(Shortcut::None, Shortcut::At)
    }

    fn why(&self, ops: &[Told<CounterOp>], _: &[Timed<CounterOp>]) -> Option<String> {
        let (last, others) = ops.split_last()?;
        let others: Vec<&str> = others.iter().map(|told| told.words.as_str()).collect();
        Some(if others.is_empty() {
            format!("{} is not what can have been added by then", last.words)
        } else {
            format!(
                "{} does not agree with {}",
                last.words,
                others.join(" and ")
            )
        })
    }
}

/// What is done with a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CounterOp {
    /// Adds this.
    Add(i64),
    /// It is this.
    Read(i64),
}

/// The first operation that cannot be explained if all add `by`, by its return. No more additions
/// happen than must, and a read that is open sees every number that it can.
fn first_wrong(ops: &[Timed<CounterOp>], initial: i64, by: i64) -> Option<usize> {
    let seen = |value: i64| {
        let difference = i128::from(value) - i128::from(initial);
        (difference % i128::from(by) == 0).then_some(difference / i128::from(by))
    };
    let mut count: i128 = 0;
    let mut happened = vec![false; ops.len()];
    let mut open = BinaryHeap::new();
    // Reads that are open, by the additions that they saw.
    let mut waiting: FxHashMap<i128, Vec<usize>> = FxHashMap::default();
    let mut calls = ops.iter().enumerate().peekable();
    for (ret, place) in ranks::returns(ops) {
        let place = place as usize;
        while let Some((called, timed)) = calls.next_if(|(_, timed)| timed.call < ret) {
            match timed.op {
                CounterOp::Add(_) => open.push(Reverse((timed.ret, called))),
                CounterOp::Read(value) => match seen(value) {
                    Some(seen) if seen == count => happened[called] = true,
                    Some(seen) => waiting.entry(seen).or_default().push(called),
                    None => {}
                },
            }
        }
        if happened[place] {
            continue;
        }
        let until = match ops[place].op {
            CounterOp::Add(_) => {
                happened[place] = true;
                count += 1;
                waiting
                    .remove(&count)
                    .into_iter()
                    .flatten()
                    .for_each(|read| happened[read] = true);
                continue;
            }
            CounterOp::Read(value) => seen(value).filter(|&seen| seen > count),
        };
        let Some(until) = until else {
            return Some(place);
        };
        while count < until {
            let next = std::iter::from_fn(|| open.pop())
                .map(|Reverse((_, add))| add)
                .find(|&add: &usize| !happened[add]);
            let Some(add) = next else { return Some(place) };
            happened[add] = true;
            count += 1;
            waiting
                .remove(&count)
                .into_iter()
                .flatten()
                .for_each(|read| happened[read] = true);
        }
    }
    None
}

/// The first read, by its return, that returned less than what was certainly added by then and not
/// taken off, or more than what may have been.
fn out_of_bounds(ops: &[Timed<CounterOp>], initial: i64) -> Option<usize> {
    let sums = |mut ranks: Vec<(u32, i64)>| {
        ranks.sort_unstable();
        let mut sum: (i128, i128) = (0, 0);
        let summed = ranks.into_iter().map(move |(rank, by)| {
            sum.0 += i128::from(by.max(0));
            sum.1 += i128::from(by.min(0));
            (rank, sum)
        });
        summed.collect::<Vec<(u32, (i128, i128))>>()
    };
    let adds = |rank: fn(&Timed<CounterOp>) -> u32| {
        let added = ops.iter().filter_map(|timed| match timed.op {
            CounterOp::Add(by) => Some((rank(timed), by)),
            CounterOp::Read(_) => None,
        });
        sums(added.filter(|(rank, _)| *rank != NEVER).collect())
    };
    let before = |sums: &[(u32, (i128, i128))], end: u32| {
        let count = sums.partition_point(|&(rank, _)| rank < end);
        count.checked_sub(1).map_or((0, 0), |at| sums[at].1)
    };
    let (asked, over) = (adds(|timed| timed.call), adds(|timed| timed.ret));
    let returns = ranks::returns(ops);
    let wrong = returns.into_iter().find(|&(ret, place)| {
        let read = &ops[place as usize];
        let CounterOp::Read(value) = read.op else {
            return false;
        };
        let (may, must) = (before(&asked, ret), before(&over, read.call));
        let value = i128::from(value) - i128::from(initial);
        value < must.0 + may.1 || value > may.0 + must.1
    });
    wrong.map(|(_, place)| place as usize)
}
