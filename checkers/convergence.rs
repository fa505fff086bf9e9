//! `convergence`: at the end all nodes say the same.

use history::{History, NONE, Op, ValueRef};
use rustc_hash::FxHashMap;

use crate::ident::Ident;
use crate::params::{Param, Takes};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// At the end all nodes say the same.
pub struct Convergence;

impl Checker for Convergence {
    fn name(&self) -> &'static str {
        "convergence"
    }

    fn promise(&self) -> &'static str {
        "The final reads of all nodes agree."
    }

    fn method(&self) -> &'static str {
        "Compares the last `final-read` of every node, key by key; lists are compared as bags, \
         since a set has no order (unless the header says `ordered`). Every node of the header \
         must have been read. O(n log n). Source: Redis issue 13658."
    }

    fn params(&self) -> &'static [Param] {
        &[Param {
            name: "ordered",
            takes: Takes::Flag,
            default: "false",
            about: "true if the order of a list that is read matters",
        }]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            (
                "final_reads",
                "final reads that were answered and name their node",
            ),
            ("nodes", "nodes that were read"),
            ("keys", "keys that were read"),
            ("diverged", "keys on which two nodes differ"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let reads: Vec<Op<'_>> = history
            .ops_of(&["final-read"])
            .filter(|op| op.is_ok() && op.node().is_some())
            .collect();
        let ordered = history
            .header
            .params
            .get("ordered")
            .and_then(serde_json::Value::as_bool);
        let mut keys: Vec<u32> = Vec::new();
        let mut last: FxHashMap<u32, Vec<(&str, Op<'_>)>> = FxHashMap::default();
        let mut place: FxHashMap<(u32, &str), usize> = FxHashMap::default();
        let mut nodes: Vec<&str> = Vec::new();
        for &read in &reads {
            let (key, node) = (read.key_id().unwrap_or(NONE), read.node().unwrap_or(""));
            let of_key = last.entry(key).or_default();
            if of_key.is_empty() {
                keys.push(key);
            }
            let next = of_key.len();
            let at = *place.entry((key, node)).or_insert(next);
            if at == next {
                of_key.push((node, read));
                nodes.push(node);
            } else {
                of_key[at].1 = read;
            }
        }
        nodes.sort_unstable();
        nodes.dedup();
        let diverged: Vec<(Op<'_>, Op<'_>)> = keys
            .iter()
            .filter_map(|key| clash(&last[key], ordered == Some(true)))
            .collect();
        let result = if let Some(&(a, b)) = diverged.first() {
            tell(history, a, b)
        } else if reads.is_empty() && history.ops_of(&["final-read"]).next().is_none() {
            Checked::unknown(Reason::NotApplicable("there is no final read".to_owned()))
        } else if let Some(missing) = unread(history, &nodes) {
            Checked::unknown(Reason::Coverage(missing))
        } else {
            Checked::valid()
        };
        result
            .count("final_reads", reads.len() as u64)
            .count("nodes", nodes.len() as u64)
            .count("keys", keys.len() as u64)
            .count("diverged", diverged.len() as u64)
    }
}

/// What is missing for a comparison, in words.
fn unread(history: &History, nodes: &[&str]) -> Option<String> {
    let missing: Vec<&str> = history
        .header
        .nodes
        .iter()
        .map(String::as_str)
        .filter(|node| !nodes.contains(node))
        .collect();
    if !missing.is_empty() {
        return Some(format!("there is no final read of {}", missing.join(", ")));
    }
    (nodes.len() < 2).then(|| "fewer than two nodes have a final read".to_owned())
}

/// The first two nodes whose answers differ.
fn clash<'h>(reads: &[(&str, Op<'h>)], ordered: bool) -> Option<(Op<'h>, Op<'h>)> {
    let (_, first) = *reads.first()?;
    let expected = content(first, ordered);
    reads[1..]
        .iter()
        .find(|(_, read)| content(*read, ordered) != expected)
        .map(|&(_, read)| (first, read))
}

#[derive(PartialEq)]
enum Content {
    Single(Option<Ident>),
    Items(Vec<Ident>),
}

fn content(read: Op<'_>, ordered: bool) -> Content {
    let answer = read.output();
    match answer.and_then(ValueRef::as_list) {
        None => Content::Single(answer.map(Ident::of)),
        Some(items) => {
            let mut items: Vec<Ident> = items.map(Ident::of).collect();
            if !ordered {
                items.sort_unstable();
            }
            Content::Items(items)
        }
    }
}

/// What two answers do not have in common, in words.
fn difference(a: Op<'_>, b: Op<'_>) -> String {
    let name = |op: Op<'_>| op.node().unwrap_or("a node").to_owned();
    let whole = |op: Op<'_>| op.output().map_or_else(String::new, words::value);
    let lists = (
        a.output().and_then(ValueRef::as_list),
        b.output().and_then(ValueRef::as_list),
    );
    if let (Some(of_a), Some(of_b)) = lists {
        let (of_a, of_b): (Vec<_>, Vec<_>) = (of_a.collect(), of_b.collect());
        let only = |these: &[ValueRef<'_>], those: &[ValueRef<'_>]| {
            let those: rustc_hash::FxHashSet<Ident> =
                those.iter().map(|&item| Ident::of(item)).collect();
            these
                .iter()
                .find(|&&item| !those.contains(&Ident::of(item)))
                .map(|&item| words::value(item))
        };
        if let Some(item) = only(&of_a, &of_b) {
            return format!("{} has {item}, {} has not", name(a), name(b));
        }
        if let Some(item) = only(&of_b, &of_a) {
            return format!("{} has {item}, {} has not", name(b), name(a));
        }
    }
    format!(
        "{} says {}, {} says {}",
        name(a),
        whole(a),
        name(b),
        whole(b)
    )
}

fn tell(history: &History, a: Op<'_>, b: Op<'_>) -> Checked {
    let mut story = Story::default();
    let mut end = 0;
    for read in [a, b] {
        let event = read.completion.unwrap_or(read.invoke);
        let answer = read.output().map_or_else(String::new, words::value);
        story.tell(
            event,
            format!(
                "the final read of {} returns {answer}",
                read.node().unwrap_or("a node")
            ),
        );
        end = end.max(event.index());
    }
    story.tell_faults(history, 0..end);
    let of = words::of_key(history, a.key_id().unwrap_or(NONE));
    Checked::invalid(story.finish(format!(
        "the final reads{of} disagree: {}",
        difference(a, b)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        Convergence.check(&script::history("set", text), &Budget::unlimited())
    }

    const AGREE: &str = r#"
        0-1 R final-read - null -> [1,2] @n1
        2-3 R final-read - null -> [7] @n2
        4-5 R final-read - null -> [2,1] @n2"#;

    #[test]
    fn nodes_that_disagree_are_convicted() {
        assert_eq!(check(AGREE).verdict, Verdict::Valid);
        let found = check(&AGREE.replace("[2,1]", "[2,2]"));
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(
            found.counterexample.unwrap().summary,
            "the final reads disagree: n1 has 1, n2 has not"
        );
        assert_eq!(
            check(&format!("param ordered true\n{AGREE}")).verdict,
            Verdict::Invalid
        );
    }

    #[test]
    fn a_node_that_was_not_read_leaves_it_open() {
        let found = check(&format!("nodes n1 n2 n3\n{AGREE}"));
        assert_eq!(
            found.verdict,
            Verdict::Unknown(Reason::Coverage("there is no final read of n3".to_owned()))
        );
    }
}
