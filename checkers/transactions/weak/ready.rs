//! Transactions in an order in which none comes before what it read or before its session.

use crate::transactions::input::NEVER;
use crate::transactions::registers::{INIT, Registers};
use crate::{Budget, Exhausted};

/// How many transactions are looked at between two looks at the budget.
pub(super) const SPEND_EVERY: u32 = 1 << 14;

/// Takes transactions in the order of their invocations and gives them back in an order that keeps
/// reads and sessions: each when all before it have been given.
pub(super) struct Ready<'r> {
    registers: &'r Registers,
    in_sessions: bool,
    given: Vec<bool>,
    /// The last one that waits for each, and the one that waits for the same as each.
    waiting: Vec<u32>,
    also: Vec<u32>,
    ready: Vec<u32>,
}

impl<'r> Ready<'r> {
    pub(super) fn new(registers: &'r Registers, in_sessions: bool) -> Ready<'r> {
        Ready {
            registers,
            in_sessions,
            given: vec![false; registers.len()],
            waiting: vec![NEVER; registers.len()],
            also: vec![NEVER; registers.len()],
            ready: Vec::new(),
        }
    }

    /// One more. Whether it is ready at once.
    pub(super) fn offer(&mut self, txn: u32) -> bool {
        match self.missing(txn) {
            None => {
                self.ready.push(txn);
                true
            }
            Some(other) => {
                self.also[txn as usize] = self.waiting[other as usize];
                self.waiting[other as usize] = txn;
                false
            }
        }
    }

    /// The next one that is ready, if there is one.
    pub(super) fn give(&mut self) -> Option<u32> {
        let txn = self.ready.pop()?;
        self.given[txn as usize] = true;
        let mut waiting = std::mem::replace(&mut self.waiting[txn as usize], NEVER);
        while waiting != NEVER {
            let next = self.also[waiting as usize];
            self.offer(waiting);
            waiting = next;
        }
        Some(txn)
    }

    /// Whether this one has been given.
    pub(super) fn is_given(&self, txn: u32) -> bool {
        self.given[txn as usize]
    }

    fn missing(&self, txn: u32) -> Option<u32> {
        let is_missing = |other: &u32| *other != NEVER && !self.given[*other as usize];
        let previous = self.registers.previous[txn as usize];
        let previous = Some(previous).filter(|other| self.in_sessions && is_missing(other));
        let writers = || self.registers.reads(txn).iter().map(|read| read.writer);
        previous.or_else(|| writers().find(is_missing))
    }
}

/// The place of each transaction in such an order; `None` if there is none.
pub(super) fn places(
    registers: &Registers,
    in_sessions: bool,
    budget: &Budget,
) -> Result<Option<Vec<u32>>, Exhausted> {
    const { assert!(INIT == NEVER) };
    let mut ready = Ready::new(registers, in_sessions);
    let mut places = vec![NEVER; registers.len()];
    let (mut given, mut offered) = (0, 0);
    for txn in (0..).take(registers.len()) {
        if txn % SPEND_EVERY == 0 {
            budget.spend(u64::from(SPEND_EVERY))?;
        }
        if !registers.happened[txn as usize] {
            continue;
        }
        offered += 1;
        ready.offer(txn);
        while let Some(txn) = ready.give() {
            places[txn as usize] = given;
            given += 1;
        }
    }
    Ok((given == offered).then_some(places))
}
