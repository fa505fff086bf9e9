//! Who is who among the processes: which of them are one thread, and on which node it runs.
//!
//! A process that has an indeterminate operation is over, and its thread goes on as the next
//! process: `threads` further, where the header says how many threads there are. What the thread
//! believes goes on too, and so does what its client program holds.

use history::{History, Process};
use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::params::{Param, Takes};

/// The threads of a history, numbered in order of first use.
pub(crate) struct Actors {
    /// The thread of each process.
    of_process: Vec<u32>,
    /// The threads that a name means: that of a process, or that of a client node.
    by_name: FxHashMap<String, Vec<u32>>,
}

/// The header parameter that says which processes are one thread.
pub(crate) const THREADS: Param = Param {
    name: "threads",
    takes: Takes::Count,
    default: "each process is a thread of its own",
    about: "how many threads the clients are: process modulo threads is the thread",
};

/// The header parameter that says where a thread runs.
pub(crate) const CLIENTS: Param = Param {
    name: "clients",
    takes: Takes::Map,
    default: "none",
    about: "the node of each thread, to know what a fault of a client node hit",
};

impl Actors {
    /// Reads them off the header's `threads` and `clients`.
    pub(crate) fn of(history: &History) -> Actors {
        let threads = history
            .header
            .param_u64("threads")
            .filter(|&threads| threads > 0);
        let clients = history
            .header
            .params
            .get("clients")
            .and_then(Value::as_object);
        let mut number_of: FxHashMap<String, u32> = FxHashMap::default();
        let mut actors = Actors {
            of_process: Vec::with_capacity(history.process_count()),
            by_name: FxHashMap::default(),
        };
        for id in 0..u32::try_from(history.process_count()).unwrap_or(u32::MAX) {
            let name = history.process_name(id).to_string();
            let thread = match (history.process_name(id), threads) {
                (Process::Number(number), Some(threads)) => (number % threads).to_string(),
                _ => name.clone(),
            };
            let next = u32::try_from(number_of.len()).unwrap_or(u32::MAX);
            let actor = *number_of.entry(thread.clone()).or_insert(next);
            actors.of_process.push(actor);
            let node = clients
                .and_then(|nodes| nodes.get(&name).or_else(|| nodes.get(&thread)))
                .and_then(Value::as_str);
            actors.name(name, actor);
            if let Some(node) = node {
                actors.name(node.to_owned(), actor);
            }
        }
        actors
    }

    fn name(&mut self, name: String, actor: u32) {
        let named = self.by_name.entry(name).or_default();
        if !named.contains(&actor) {
            named.push(actor);
        }
    }

    /// The thread that this process is.
    pub(crate) fn of_process(&self, process: u32) -> u32 {
        self.of_process[process as usize]
    }

    /// The threads that a fault with this target hits.
    pub(crate) fn named(&self, name: &str) -> &[u32] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script;

    #[test]
    fn a_thread_is_all_its_processes() {
        let history = script::history(
            "lock",
            r#"
            param threads 3
            param clients {"0":"c1","1":"c2","2":"c1"}
            0-1 0 read x null -> 1
            0-1 1 read x null -> 1
            0-1 2 read x null -> 1
            2-3 4 read x null -> 1
            2-3 A read x null -> 1"#,
        );
        let actors = Actors::of(&history);
        let numbers: Vec<u32> = (0..5).map(|id| actors.of_process(id)).collect();
        assert_eq!(numbers, [0, 1, 2, 1, 3]);
        assert_eq!(actors.named("c1"), [0, 2]);
        assert_eq!(actors.named("c2"), [1]);
        assert_eq!(actors.named("A"), [3]);
        assert_eq!(actors.named("n1"), [] as [u32; 0]);
    }
}
