//! What contradicts causality, in words and rows.

use history::History;

use super::{Broken, Link, Sessions};
use crate::Checked;
use crate::constraints::Before;
use crate::registers::Registers;
use crate::words::{self, ROWS_MAX, Story};

/// See [`super::tell`].
pub(crate) fn tell(
    history: &History,
    registers: &Registers,
    sessions: &Sessions,
    broken: &Broken,
) -> Checked {
    let teller = Teller {
        history,
        registers,
        sessions,
    };
    match broken {
        Broken::Initial { write, read } => {
            let summary = format!(
                "{}, the initial value, although the write of {} was in its causal past",
                teller.did(*read),
                teller.value(*write)
            );
            teller.finish(&teller.path(*write, *read), summary)
        }
        Broken::Cycle(cycle) => teller.cycle(cycle),
    }
}

struct Teller<'r> {
    history: &'r History,
    registers: &'r Registers,
    sessions: &'r Sessions,
}

impl Teller<'_> {
    fn value(&self, place: u32) -> String {
        self.registers
            .value(self.history, &self.registers.accesses[place as usize])
    }

    fn key(&self, place: u32) -> String {
        self.registers
            .key(self.history, self.registers.accesses[place as usize].key)
    }

    /// `A read 1 of key x` or `A wrote 1 to key x`.
    fn did(&self, place: u32) -> String {
        let access = self.registers.accesses[place as usize];
        let who = words::who(self.history.event(access.event as usize));
        let (value, key) = (self.value(place), self.key(place));
        if access.is_write {
            format!("{who} wrote {value} to {key}")
        } else {
            format!("{who} read {value} of {key}")
        }
    }

    fn cycle(&self, cycle: &[Before<Link>]) -> Checked {
        let missed = |edge: &&Before<Link>| matches!(edge.why, Link::Missed(_));
        let summary = match (
            cycle.iter().find(missed),
            cycle.iter().filter(missed).count(),
        ) {
            (
                Some(Before {
                    from,
                    why: Link::Missed(read),
                    ..
                }),
                1,
            ) => format!(
                "{}, although {}, which was written after it, was in its causal past",
                self.did(*read),
                self.value(*from)
            ),
            (None, _) => "reads saw writes that were made because of them".to_owned(),
            (Some(one), _) => format!(
                "sessions read the writes of {} in orders that contradict each other",
                self.key(one.from)
            ),
        };
        let mut places: Vec<u32> = Vec::new();
        for edge in cycle {
            match edge.why {
                Link::Session | Link::Saw => places.extend([edge.from, edge.to]),
                Link::Past => places.extend(self.path(edge.from, edge.to)),
                Link::Missed(read) => {
                    places.extend(self.path(edge.from, read));
                    places.push(edge.to);
                }
            }
        }
        self.finish(&self.without_steps_between(&places, cycle), summary)
    }

    /// Leaves out what a session did between two accesses that matter.
    fn without_steps_between(&self, places: &[u32], cycle: &[Before<Link>]) -> Vec<u32> {
        let mut matters: Vec<u32> = places.to_vec();
        matters.sort_unstable();
        matters.dedup();
        // A step that is only the end of one step of its session and the begin of the next.
        let passes = |place: &u32| {
            let into = cycle.iter().find(|edge| edge.to == *place);
            let out = cycle.iter().find(|edge| edge.from == *place);
            let is_step =
                |edge: Option<&Before<Link>>| edge.is_some_and(|edge| edge.why == Link::Session);
            let is_read = cycle.iter().any(|edge| edge.why == Link::Missed(*place));
            is_step(into) && is_step(out) && !is_read
        };
        matters.retain(|place| !passes(place));
        matters
    }

    /// The accesses by which one is in the past of another, both included: where the path leaves a
    /// session, and where it enters the next. A shortest one by sessions.
    fn path(&self, from: u32, to: u32) -> Vec<u32> {
        struct Reached {
            write: u32,
            read: u32,
            by: usize,
        }
        let sessions = self.sessions;
        let mut looked: Vec<u32> = vec![0; sessions.count()];
        let mut reached = vec![Reached {
            write: to,
            read: to,
            by: 0,
        }];
        let mut at = 0;
        while at < reached.len() {
            let end = reached[at].write;
            let session = sessions.session(end);
            if session == sessions.session(from)
                && sessions.position(from) <= sessions.position(end)
            {
                let mut path = vec![from];
                while at != 0 {
                    path.extend([reached[at].write, reached[at].read]);
                    at = reached[at].by;
                }
                path.push(to);
                path.dedup();
                return path;
            }
            let upto = sessions.position(end) + 1;
            let since = looked[session as usize].min(upto);
            looked[session as usize] = looked[session as usize].max(upto);
            for &read in &sessions.places(session)[since as usize..upto as usize] {
                let access = self.registers.accesses[read as usize];
                let write = self
                    .registers
                    .write_of(access.version)
                    .filter(|_| !access.is_write);
                if let Some(write) = write.filter(|&write| sessions.session(write) != session) {
                    reached.push(Reached {
                        write,
                        read,
                        by: at,
                    });
                }
            }
            at += 1;
        }
        vec![from, to]
    }

    fn finish(&self, places: &[u32], summary: String) -> Checked {
        let mut story = Story::default();
        for &place in places {
            let access = self.registers.accesses[place as usize];
            let op = self.history.event(access.event as usize).op();
            let event = op
                .completion
                .filter(|_| access.answered)
                .unwrap_or(op.invoke);
            story.tell(event, self.did(place));
        }
        story.tell_faults_within(self.history);
        let result = Checked::invalid(story.finish(summary));
        if places.len() > ROWS_MAX {
            result.note(format!(
                "of the {} operations in the circle, {ROWS_MAX} are shown",
                places.len()
            ))
        } else {
            result
        }
    }
}
