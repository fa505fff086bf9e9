//! Which checkers fit a history that names none, told by what its clients call.

use std::collections::BTreeSet;

use history::{History, MopKind, Op};

use crate::{Checker, find};

/// Operations, and the checkers that judge them.
struct Suit {
    /// All functions that may be called.
    functions: &'static [&'static str],
    /// Of which one at least must be.
    needed: &'static [&'static str],
    /// What reads return.
    reads: Reads,
    checkers: &'static [&'static str],
}

#[derive(PartialEq, Eq)]
enum Reads {
    Anything,
    Lists,
    Numbers,
}

const SUITS: &[Suit] = &[
    Suit {
        functions: &["read", "write", "cas"],
        needed: &["write", "cas"],
        reads: Reads::Anything,
        checkers: &["linearizable"],
    },
    Suit {
        functions: &["get", "put", "append", "delete"],
        needed: &["put", "append"],
        reads: Reads::Anything,
        checkers: &["linearizable"],
    },
    Suit {
        functions: &["acquire", "release"],
        needed: &["acquire"],
        reads: Reads::Anything,
        checkers: &["linearizable"],
    },
    Suit {
        functions: &["add", "read"],
        needed: &["add"],
        reads: Reads::Lists,
        checkers: &["set-full"],
    },
    Suit {
        functions: &["add", "read"],
        needed: &["add"],
        reads: Reads::Numbers,
        checkers: &["counter"],
    },
    Suit {
        functions: &["transfer", "read"],
        needed: &["transfer"],
        reads: Reads::Anything,
        checkers: &["bank"],
    },
    Suit {
        functions: &["enqueue", "dequeue", "drain"],
        needed: &["enqueue"],
        reads: Reads::Anything,
        checkers: &["total-queue"],
    },
    Suit {
        functions: &["generate"],
        needed: &["generate"],
        reads: Reads::Anything,
        checkers: &["unique-ids"],
    },
];

/// The checkers that judge what the clients of a history call; none where that is not clear.
pub fn suited(history: &History) -> Vec<&'static dyn Checker> {
    let names = match transactions(history) {
        Some(name) => &[name][..],
        None => {
            let called: BTreeSet<&str> = history.ops().map(Op::f).collect();
            let fits = |suit: &&Suit| suit.fits(&called, history);
            SUITS
                .iter()
                .find(fits)
                .map_or(&[][..], |suit| suit.checkers)
        }
    };
    names.iter().filter_map(|name| find(name)).collect()
}

impl Suit {
    fn fits(&self, called: &BTreeSet<&str>, history: &History) -> bool {
        called.iter().all(|name| self.functions.contains(name))
            && called.iter().any(|name| self.needed.contains(name))
            && self.reads.fit(history)
    }
}

impl Reads {
    fn fit(&self, history: &History) -> bool {
        if *self == Reads::Anything {
            return true;
        }
        let read = history.ops_of(&["read"]).filter_map(|op| op.output());
        let fits = |value: history::ValueRef<'_>| match self {
            Reads::Anything => true,
            Reads::Lists => value.as_list().is_some(),
            Reads::Numbers => value.as_i64().is_some(),
        };
        let mut read = read.peekable();
        read.peek().is_some() && read.all(fits)
    }
}

/// The checker of transactions, if all operations are such.
fn transactions(history: &History) -> Option<&'static str> {
    let mut written = None;
    for op in history.ops() {
        for mop in op.input().as_txn()?.mops {
            let kind = mop.kind();
            if kind != MopKind::Read && *written.get_or_insert(kind) != kind {
                return None;
            }
        }
    }
    match written? {
        MopKind::Append => Some("append"),
        _ => Some("wr"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suited_to(edn: &str) -> Vec<&'static str> {
        let read = history::read_bytes(edn.as_bytes()).expect("a history");
        suited(&read.history)
            .iter()
            .map(|checker| checker.name())
            .collect()
    }

    #[test]
    fn operations_tell_who_judges_them() {
        let call =
            |f: &str, value: &str| format!("{{:type :invoke :process 0 :f {f} :value {value}}}");
        let done = |f: &str, value: &str| {
            format!(
                "{} {{:type :ok :process 0 :f {f} :value {value}}} ",
                call(f, "nil")
            )
        };
        assert_eq!(suited_to(&call(":write", "1")), ["linearizable"]);
        assert_eq!(
            suited_to(&call(":txn", "[[:append 1 2] [:r 3 nil]]")),
            ["append"]
        );
        assert_eq!(suited_to(&call(":generate", "nil")), ["unique-ids"]);
        assert_eq!(
            suited_to(&(done(":read", "1") + &done(":no-such", "1"))),
            [""; 0]
        );
        assert_eq!(suited_to(&done(":read", "1")), [""; 0]);
        assert_eq!(suited_to("[]"), [""; 0]);
    }
}
