//! `job-once`: a job runs once for each time that it is due.

use history::{History, NONE, Op, Outcome, ValueRef};
use rustc_hash::FxHashMap;

use crate::ident::Ident;
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// A job runs once for each time that it is due.
pub struct JobOnce;

impl Checker for JobOnce {
    fn name(&self) -> &'static str {
        "job-once"
    }

    fn promise(&self) -> &'static str {
        "No job runs twice for the same firing time."
    }

    fn method(&self) -> &'static str {
        "Looks every run that happened up by its job and firing time: O(n). A run whose outcome \
         is unknown is counted, not judged. Whether a firing was missed is not asked. Source: \
         ShedLock issue 231, Quartz issue 548."
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("runs", "runs that happened"),
            ("firings", "jobs and firing times that ran"),
            ("repeated", "runs of a firing that had run already"),
            ("unanswered", "runs whose outcome is unknown"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let mut first_run: FxHashMap<(u32, Ident), Op<'_>> = FxHashMap::default();
        let mut clash: Option<(Op<'_>, Op<'_>)> = None;
        let (mut tried, mut runs, mut repeated, mut unanswered) = (0, 0, 0, 0);
        for op in history.ops_of(&["run"]) {
            tried += 1;
            unanswered += u64::from(op.outcome() == Outcome::Info);
            if !op.is_ok() {
                continue;
            }
            runs += 1;
            let Some(due) = due(op) else { continue };
            let firing = (op.key_id().unwrap_or(NONE), Ident::of(due));
            let first = *first_run.entry(firing).or_insert(op);
            if first.invoke.index() != op.invoke.index() {
                repeated += 1;
                clash.get_or_insert((first, op));
            }
        }
        if tried == 0 {
            return Checked::unknown(Reason::NotApplicable("no job was run".to_owned()));
        }
        let result = match clash {
            None => Checked::valid(),
            Some((first, second)) => tell(history, first, second),
        };
        result
            .count("runs", runs)
            .count("firings", first_run.len() as u64)
            .count("repeated", repeated)
            .count("unanswered", unanswered)
    }
}

/// The firing time, as asked, else as answered.
fn due(op: Op<'_>) -> Option<ValueRef<'_>> {
    Some(op.input())
        .filter(|due| !due.is_null())
        .or_else(|| op.output().filter(|due| !due.is_null()))
}

fn tell(history: &History, first: Op<'_>, second: Op<'_>) -> Checked {
    let mut story = Story::default();
    let firing = due(first).map_or_else(String::new, words::value);
    let job = first.key_id().map_or("the job".to_owned(), |key| {
        format!("job {}", words::value(history.key_value(key)))
    });
    for op in [first, second] {
        let who = words::who(op.invoke);
        story.tell(op.invoke, format!("{who} begins {job} for {firing}"));
        if let Some(done) = op.completion {
            story.tell(done, format!("{who} has run it"));
        }
    }
    story.tell_faults(history, 0..second.invoke.index());
    Checked::invalid(story.finish(format!(
        "{job} ran twice for {firing}: by {} and by {}",
        words::who(first.invoke),
        words::who(second.invoke)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        JobOnce.check(&script::history("job", text), &Budget::unlimited())
    }

    #[test]
    fn a_firing_that_ran_twice_is_convicted() {
        let text = r#"
            0-1 n1 run j "12:00" -> "12:00"
            2-3 n2 run j "12:01" -> "12:01"
            4-5 n2 run k "12:00" -> "12:00"
            6-7 n2 run j "12:00" -> info timeout"#;
        assert_eq!(check(text).verdict, Verdict::Valid);
        let found = check(&text.replace("\"12:01\"", "\"12:00\""));
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(
            found.counterexample.unwrap().summary,
            "job j ran twice for 12:00: by n1 and by n2"
        );
    }
}
