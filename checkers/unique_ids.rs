//! `unique-ids`: no id is given out twice.

use history::{History, Op, Outcome};
use rustc_hash::FxHashMap;

use crate::ident::Ident;
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// No id is given out twice.
pub struct UniqueIds;

impl Checker for UniqueIds {
    fn name(&self) -> &'static str {
        "unique-ids"
    }

    fn promise(&self) -> &'static str {
        "No two `generate` return the same id."
    }

    fn method(&self) -> &'static str {
        "Looks every id that was returned up in a table of those returned before: O(n). Source: \
         Cilium issue 42920."
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("generated", "ids returned"),
            ("duplicates", "ids returned that had been returned before"),
            ("without_id", "answers without an id"),
            ("unanswered", "requests whose outcome is unknown"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let mut first_by_id: FxHashMap<Ident, Op<'_>> = FxHashMap::default();
        let mut clash: Option<(Op<'_>, Op<'_>)> = None;
        let (mut tried, mut generated, mut duplicates, mut without, mut unanswered) =
            (0, 0, 0, 0, 0);
        for op in history.ops_of(&["generate"]) {
            tried += 1;
            unanswered += u64::from(op.outcome() == Outcome::Info);
            let Some(id) = op.output() else { continue };
            if id.is_null() {
                without += 1;
                continue;
            }
            generated += 1;
            let first = *first_by_id.entry(Ident::of(id)).or_insert(op);
            if first.invoke.index() != op.invoke.index() {
                duplicates += 1;
                clash.get_or_insert((first, op));
            }
        }
        if tried == 0 {
            return Checked::unknown(Reason::NotApplicable("no id was asked for".to_owned()));
        }
        let result = match clash {
            None => Checked::valid(),
            Some((first, second)) => tell(history, first, second),
        };
        result
            .count("generated", generated)
            .count("duplicates", duplicates)
            .count("without_id", without)
            .count("unanswered", unanswered)
    }
}

fn tell(history: &History, first: Op<'_>, second: Op<'_>) -> Checked {
    let mut story = Story::default();
    let id = second.output().map_or_else(String::new, words::value);
    let mut end = 0;
    for op in [first, second] {
        let event = op.completion.unwrap_or(op.invoke);
        story.tell(event, format!("{} is given id {id}", words::who(event)));
        end = end.max(event.index());
    }
    story.tell_faults(history, first.invoke.index()..end);
    Checked::invalid(story.finish(format!(
        "id {id} was given to {} and to {}",
        words::who(first.invoke),
        words::who(second.invoke)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        UniqueIds.check(&script::history("ids", text), &Budget::unlimited())
    }

    #[test]
    fn an_id_given_twice_is_convicted() {
        let text = r#"
            0-1 A generate - null -> "a"
            2-3 B generate - null -> "b"
            4-5 A generate - null -> fail refused"#;
        assert_eq!(check(text).verdict, Verdict::Valid);
        let found = check(&text.replace("\"b\"", "\"a\""));
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(
            found.counterexample.unwrap().summary,
            "id a was given to A and to B"
        );
    }
}
