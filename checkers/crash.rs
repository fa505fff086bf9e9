//! `crash`: no program of the system or of a client ends by itself.

use history::{EventRef, History, ValueRef};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::faults::{Fault, faults};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

/// How the end of a program is described that somebody killed.
const KILLED: &str = "signal 9";

/// No program of the system or of a client ends by itself.
pub struct Crash;

impl Checker for Crash {
    fn name(&self) -> &'static str {
        "crash"
    }

    fn promise(&self) -> &'static str {
        "No program of the system and none of a client ends unless the nemesis kills it."
    }

    fn method(&self) -> &'static str {
        "Looks at every `exit` that observers saw: `{\"service\": ..., \"how\": ...}` of a node. One \
         is explained if it was by signal 9 and the last kill of its node before it explains no \
         other exit of the same service; a second one is that of somebody else, such as the \
         kernel when memory runs out. That nothing ended says something only of services of which \
         observers said, by `start`, that they watch them. O(n). Source: the crash checkers of \
         Jepsen's tests; etcd's robustness tests fail on a panic."
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("watched", "services whose exits were watched"),
            ("exits", "exits of services"),
            ("killed", "exits that a kill explains"),
            ("crashes", "exits that nothing explains"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let faults = faults(history);
        let mut kills: FxHashMap<&str, Vec<&Fault<'_>>> = FxHashMap::default();
        let mut explained: FxHashSet<(&str, &str, usize)> = FxHashSet::default();
        let mut watched: FxHashSet<(&str, &str)> = FxHashSet::default();
        let mut crashes: Vec<EventRef<'_>> = Vec::new();
        let (mut exits, mut killed) = (0, 0);
        for event in history.events().filter(|event| event.is_observer()) {
            let (node, service) = (event.node().unwrap_or("?"), text(event, "service"));
            if event.f() == "start" {
                watched.insert((node, service));
            }
            if event.f() != "exit" {
                continue;
            }
            exits += 1;
            let of_node = kills.entry(node).or_insert_with(|| {
                let of_node = faults.iter().filter(|fault| fault.may_kill(node));
                of_node.collect()
            });
            let begun = |fault: &&&Fault<'_>| fault.begin_time() <= event.time();
            let kill = of_node.iter().rfind(begun).map(|kill| kill.begin.index());
            let is_killed = text(event, "how") == KILLED
                && kill.is_some_and(|kill| explained.insert((node, service, kill)));
            if is_killed {
                killed += 1;
            } else {
                crashes.push(event);
            }
        }
        let result = match crashes.first() {
            Some(&first) => tell(history, first),
            None if watched.is_empty() => {
                let why = "nobody watched for programs that end";
                Checked::unknown(Reason::NotApplicable(why.to_owned()))
            }
            None => Checked::valid(),
        };
        result
            .count("watched", watched.len() as u64)
            .count("exits", exits)
            .count("killed", killed)
            .count("crashes", crashes.len() as u64)
    }
}

/// An entry of the event's value as text.
fn text<'h>(event: EventRef<'h>, name: &str) -> &'h str {
    let entry = event.value().get(name);
    entry.and_then(ValueRef::as_str).unwrap_or("?")
}

fn tell(history: &History, exit: EventRef<'_>) -> Checked {
    let mut story = Story::default();
    let (service, how) = (text(exit, "service"), text(exit, "how"));
    let node = exit.node().unwrap_or("a node");
    let why = match how {
        KILLED => ", and not by the nemesis",
        _ => "",
    };
    story.tell(exit, format!("{service} on {node} ends: {how}"));
    story.tell_faults(history, 0..exit.index());
    Checked::invalid(story.finish(format!(
        "{service} on {node} ended at {}: {how}{why}",
        words::at(exit.time())
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        Crash.check(&script::history("register", text), &Budget::unlimited())
    }

    const GOOD: &str = r#"
        0 observer start - {"service":"db"} @n1
        10 nemesis kill - {"id":1,"phase":"begin","target":"n1,n2"}
        11 observer exit - {"service":"db","how":"signal 9"} @n1
        20 nemesis kill - {"id":1,"phase":"end","target":"n1,n2"}"#;

    #[test]
    fn an_exit_without_a_kill_is_convicted() {
        let good = check(GOOD);
        assert_eq!(good.verdict, Verdict::Valid);
        assert_eq!(good.counted("killed"), Some(1));
        let bad = check(&GOOD.replace("signal 9", "exit status 101"));
        assert_eq!(bad.verdict, Verdict::Invalid);
        assert_eq!(
            bad.counterexample.unwrap().summary,
            "db on n1 ended at 0.011 s: exit status 101"
        );
        assert_eq!(
            check(&GOOD.replace("@n1", "@n3")).counted("crashes"),
            Some(1)
        );
    }

    #[test]
    fn one_kill_explains_one_exit() {
        let again =
            format!("{GOOD}\n30 observer exit - {{\"service\":\"db\",\"how\":\"signal 9\"}} @n1");
        let found = check(&again);
        assert_eq!(found.verdict, Verdict::Invalid);
        assert_eq!(
            found.counterexample.unwrap().summary,
            "db on n1 ended at 0.030 s: signal 9, and not by the nemesis"
        );
    }

    #[test]
    fn what_nobody_watched_is_open() {
        let unwatched = GOOD.replace("start", "leader");
        assert!(matches!(
            check(&unwatched).verdict,
            Verdict::Unknown(Reason::NotApplicable(_))
        ));
    }
}
