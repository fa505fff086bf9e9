//! Client requests that wait for the log: writes for their entry, reads for their read index.
//!
//! A write is known by index and term of its entry. When an entry is applied at that index, a write
//! of the same term has its answer, even if another leader committed it; a write of another term has
//! lost its place for ever, which is a definite failure. What is not decided in time is `unknown`.

use crate::machine::Outcome;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Why a request got no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This node does not lead; nothing was done. The Raft id of who does, if known.
    NotLeader(Option<u64>),
    /// Nothing was done, and will not be.
    Unavailable(&'static str),
    /// The entry lost its place in the log to another leader's: it did not happen and never will.
    Superseded,
    /// The entry may be committed or not, now or later.
    Unknown,
}

/// Where the answer to a write goes.
pub type WriteReply = oneshot::Sender<Result<Outcome, Refusal>>;

/// Where a read is told that the state machine now is recent enough for it.
pub type ReadReply = oneshot::Sender<Result<(), Refusal>>;

/// Writes in the log whose fate is open.
#[derive(Debug, Default)]
pub struct Writes {
    waiting: BTreeMap<(u64, u64), (Instant, WriteReply)>,
}

impl Writes {
    /// A write was appended at this index and term.
    pub fn add(&mut self, index: u64, term: u64, now: Instant, reply: WriteReply) {
        self.waiting.insert((index, term), (now, reply));
    }

    /// An entry was applied.
    pub fn applied(&mut self, index: u64, term: u64, outcome: Option<&Outcome>) {
        while let Some(first) = self.waiting.first_entry().filter(|w| w.key().0 <= index) {
            let (key, (_, reply)) = first.remove_entry();
            let answer = match outcome {
                Some(outcome) if key == (index, term) => Ok(outcome.clone()),
                // A client that went away does not hear it.
                _ => Err(Refusal::Superseded),
            };
            let _ = reply.send(answer);
        }
    }

    /// The state machine jumped to a snapshot: what happened to the writes below is not known.
    pub fn jumped(&mut self, index: u64) {
        while let Some(first) = self.waiting.first_entry().filter(|w| w.key().0 <= index) {
            let _ = first.remove().1.send(Err(Refusal::Unknown));
        }
    }

    /// Gives up on writes that have waited for longer than `limit`.
    pub fn time_out(&mut self, now: Instant, limit: Duration) {
        let late = self
            .waiting
            .iter()
            .filter(|(_, (since, _))| now - *since > limit);
        for key in late.map(|(key, _)| *key).collect::<Vec<_>>() {
            if let Some((_, reply)) = self.waiting.remove(&key) {
                let _ = reply.send(Err(Refusal::Unknown));
            }
        }
    }

    /// How many writes wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no write waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Reads that want to be linearizable.
#[derive(Debug, Default)]
pub struct Reads {
    /// Came in since the last read index was asked for.
    fresh: Vec<(Instant, ReadReply)>,
    /// Wait for a quorum to confirm the leader, by the context of the question.
    asked: VecDeque<(u64, Vec<(Instant, ReadReply)>)>,
    /// Wait for the state machine to get to an index.
    confirmed: Vec<(u64, Vec<(Instant, ReadReply)>)>,
    next: u64,
}

impl Reads {
    /// A read came in.
    pub fn add(&mut self, now: Instant, reply: ReadReply) {
        self.fresh.push((now, reply));
    }

    /// Begins a question for all reads that came in since the last one; returns its context.
    pub fn ask(&mut self) -> Option<Vec<u8>> {
        if self.fresh.is_empty() {
            return None;
        }
        self.next += 1;
        self.asked
            .push_back((self.next, std::mem::take(&mut self.fresh)));
        Some(self.next.to_be_bytes().to_vec())
    }

    /// A quorum has confirmed the question with this context at this index.
    pub fn confirm(&mut self, context: &[u8], index: u64) {
        let Ok(context) = context.try_into().map(u64::from_be_bytes) else {
            return;
        };
        if let Some(at) = self.asked.iter().position(|(id, _)| *id == context) {
            self.confirmed
                .extend(self.asked.remove(at).map(|(_, reads)| (index, reads)));
        }
    }

    /// Answers the reads for which the state machine is recent enough.
    pub fn serve(&mut self, applied: u64) {
        for (_, reads) in self
            .confirmed
            .extract_if(.., |(index, _)| *index <= applied)
        {
            for (_, reply) in reads {
                let _ = reply.send(Ok(()));
            }
        }
    }

    /// Refuses every read that is not confirmed: the node does not lead any more, or leads anew.
    pub fn refuse(&mut self, refusal: Refusal) {
        let asked = self.asked.drain(..).flat_map(|(_, reads)| reads);
        for (_, reply) in self.fresh.drain(..).chain(asked) {
            let _ = reply.send(Err(refusal));
        }
    }

    /// Gives up on reads that have waited for longer than `limit`.
    pub fn time_out(&mut self, now: Instant, limit: Duration) {
        let asked = self.asked.iter_mut().map(|(_, reads)| reads);
        let confirmed = self.confirmed.iter_mut().map(|(_, reads)| reads);
        for reads in asked.chain(confirmed).chain([&mut self.fresh]) {
            for (_, reply) in reads.extract_if(.., |(since, _)| now - *since > limit) {
                let _ = reply.send(Err(Refusal::Unavailable(
                    "the leader found no quorum in time",
                )));
            }
        }
        self.asked.retain(|(_, reads)| !reads.is_empty());
        self.confirmed.retain(|(_, reads)| !reads.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_write_is_answered_by_its_own_entry_only() {
        let mut writes = Writes::default();
        let now = Instant::now();
        let (mine, my_answer) = oneshot::channel();
        let (other, other_answer) = oneshot::channel();
        writes.add(7, 2, now, mine);
        writes.add(8, 2, now, other);
        writes.applied(7, 2, Some(&Outcome::Done));
        writes.applied(8, 3, Some(&Outcome::Done));
        assert_eq!(my_answer.await.unwrap(), Ok(Outcome::Done));
        assert_eq!(other_answer.await.unwrap(), Err(Refusal::Superseded));
        assert!(writes.is_empty());
    }

    #[tokio::test]
    async fn a_write_passed_by_a_snapshot_is_unknown() {
        let mut writes = Writes::default();
        let (reply, answer) = oneshot::channel();
        writes.add(7, 2, Instant::now(), reply);
        writes.jumped(9);
        assert_eq!(answer.await.unwrap(), Err(Refusal::Unknown));
    }

    #[tokio::test]
    async fn a_read_waits_for_quorum_and_for_the_state_machine() {
        let mut reads = Reads::default();
        let (reply, mut answer) = oneshot::channel();
        reads.add(Instant::now(), reply);
        let context = reads.ask().unwrap();
        assert_eq!(reads.ask(), None);
        reads.serve(100);
        assert!(answer.try_recv().is_err());
        reads.confirm(&context, 5);
        reads.serve(4);
        assert!(answer.try_recv().is_err());
        reads.serve(5);
        assert_eq!(answer.try_recv().unwrap(), Ok(()));
    }
}
