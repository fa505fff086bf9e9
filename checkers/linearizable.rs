//! `linearizable`: an object behaves as if there were one copy, and every operation took effect
//! at one moment between its invocation and its completion.
//!
//! What the object is says one of [`models`]. A history that is plainly in order is done with at a
//! [`glance`]. Any other [`judge`] reads as its model does and splits into independent parts. A part
//! is decided by what is known to be fast for its model ([`zones`], [`permits`], [`cores`],
//! [`queues`], [`order`], [`revisions`], [`strings`]), or else by search: [`search`] makes numbers of
//! states and operations, [`frontier`] carries the set of all that may be true from completion to
//! completion. [`tell`] makes a counterexample small and tells it in words.

mod configs;
mod cores;
mod frontier;
mod glance;
mod judge;
mod machine;
pub mod models;
mod needs;
mod order;
mod permits;
mod queues;
mod ranks;
mod revisions;
mod search;
mod strings;
mod tell;
mod unseen;
mod zones;

use history::History;

use crate::params::Param;
use crate::{Budget, Checked, Checker};

/// An object behaves as if there were one copy of it.
pub struct Linearizable;

impl Checker for Linearizable {
    fn name(&self) -> &'static str {
        "linearizable"
    }

    fn promise(&self) -> &'static str {
        "Each key behaves as one object (a register, unless another model is named): every \
         operation takes effect at one moment between its invocation and its completion."
    }

    fn method(&self) -> &'static str {
        "Each key by itself, each by the cheapest method that can decide it. What is known to be \
         fast is listed with the models below. All else by just-in-time linearization (Wing and \
         Gong 1993, Lowe 2017): the set of configurations (state, what became of each pending \
         operation) is followed from completion to completion; unanswered operations of equal \
         effect are one class with a count, a write that may have been overwritten at once is \
         settled and still there for its value, and a configuration is dropped if another in the \
         same state allows whatever it does. Exponential only in the number of distinct operations \
         at once. A failed operation did not happen. Exact; out of budget is unknown."
    }

    fn params(&self) -> &'static [Param] {
        models::all_params()
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("keys", "independent objects judged"),
            ("ops:FUNCTION", "operations of this function that happened"),
            (
                "unanswered",
                "operations that change something and whose outcome is unknown",
            ),
            (
                "concurrent_max",
                "most operations of one key open at once, unanswered ones not counted",
            ),
            ("keys_by_shortcut", "objects decided without search"),
            ("keys_by_search", "objects decided by search"),
            ("keys_undecided", "objects not decided within the budget"),
        ]
    }

    fn check(&self, history: &History, budget: &Budget) -> Checked {
        (models::of_header(&history.header).judge)(history, budget)
    }
}
