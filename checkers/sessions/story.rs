//! A session guarantee that was broken, in words and rows.

use history::History;

use super::Why;
use crate::Checked;
use crate::constraints::Before;
use crate::registers::{Access, Registers};
use crate::words::{self, Story};

/// Tells of constraints that contradict each other in a circle.
pub(super) fn tell(history: &History, registers: &Registers, cycle: &[Before<Why>]) -> Checked {
    let teller = Teller { history, registers };
    // The read that went back is told as the one that did wrong, the last one if several did.
    let read_of = |edge: &Before<Why>| match edge.why {
        Why::ThenRead(_, read) => Some(read),
        _ => None,
    };
    let main = (0..cycle.len())
        .max_by_key(|&at| read_of(&cycle[at]))
        .unwrap_or(0);
    let mut story = Story::default();
    let rotated: Vec<Before<Why>> = [&cycle[main..], &cycle[..main]].concat();
    for edge in &rotated {
        teller.rows(edge.why, &mut story);
    }
    let summary = format!(
        "{}{}",
        teller.said(rotated[0].why),
        teller.because(&rotated[1..])
    );
    story.tell_faults_within(history);
    Checked::invalid(story.finish(summary))
}

/// Puts accesses and the reasons for their order into words.
struct Teller<'r> {
    history: &'r History,
    registers: &'r Registers,
}

impl Teller<'_> {
    fn access(&self, place: u32) -> &Access {
        &self.registers.accesses[place as usize]
    }

    fn who(&self, place: u32) -> String {
        words::who(self.history.event(self.access(place).event as usize))
    }

    fn value(&self, place: u32) -> String {
        self.registers.value(self.history, self.access(place))
    }

    fn row(&self, place: u32, story: &mut Story) {
        let access = self.access(place);
        let op = self.history.event(access.event as usize).op();
        let (who, value) = (words::who(op.invoke), self.value(place));
        let key = self.registers.key(self.history, access.key);
        let is_cas = op.f() == "cas";
        let note = match (access.is_write, access.answered) {
            _ if is_cas && access.answered => format!(
                "{who} replaces a value of {key}: cas {}",
                words::value(op.input())
            ),
            (true, true) => format!("{who} has written {value} to {key}"),
            (true, false) => format!("{who} asks to write {value} to {key}, and has no answer"),
            (false, _) => format!("{who} reads {value} of {key}"),
        };
        story.tell(
            op.completion
                .filter(|_| access.answered)
                .unwrap_or(op.invoke),
            note,
        );
    }

    fn rows(&self, why: Why, story: &mut Story) {
        match why {
            Why::Wrote(a, b) | Why::ReadThenWrote(a, b) | Why::ThenRead(a, b) => {
                self.row(a, story);
                self.row(b, story);
            }
            Why::Acknowledged(place) => self.row(place, story),
            Why::AskedFor(place) => {
                let invoke = self.history.event(self.access(place).event as usize);
                story.tell(
                    invoke,
                    format!("{} asks to write {}", words::who(invoke), self.value(place)),
                );
            }
            Why::Moment | Why::Initial => {}
        }
    }

    /// What a session did that puts one version before another.
    fn said(&self, why: Why) -> String {
        match why {
            Why::ThenRead(a, b) => {
                let had = if self.access(a).is_write {
                    "written"
                } else {
                    "read"
                };
                format!(
                    "{} read {} of {} after it had {had} {}",
                    self.who(b),
                    self.value(b),
                    self.registers.key(self.history, self.access(b).key),
                    self.value(a)
                )
            }
            Why::Wrote(a, b) => format!(
                "{} wrote {} after {}",
                self.who(b),
                self.value(b),
                self.value(a)
            ),
            Why::ReadThenWrote(a, b) => {
                format!(
                    "{} had read {} when it wrote {}",
                    self.who(b),
                    self.value(a),
                    self.value(b)
                )
            }
            _ => String::new(),
        }
    }

    /// Why what was read is the older one.
    fn because(&self, path: &[Before<Why>]) -> String {
        match path {
            [] => String::new(),
            [
                Before {
                    why: Why::Initial, ..
                },
            ] => ", the initial value".to_owned(),
            [one] => format!(", although {}", self.said(one.why)),
            [
                Before {
                    why: Why::Acknowledged(first),
                    ..
                },
                ..,
                Before {
                    why: Why::AskedFor(second),
                    ..
                },
            ] if path[1..path.len() - 1]
                .iter()
                .all(|edge| edge.why == Why::Moment) =>
            {
                format!(
                    ", although the write of {} was acknowledged before that of {} was asked for",
                    self.value(*first),
                    self.value(*second)
                )
            }
            _ => ", although that comes after it by what the other rows say".to_owned(),
        }
    }
}
