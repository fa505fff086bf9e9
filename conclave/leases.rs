//! When a session is over: the leader's table of deadlines. Only a leader has one.
//!
//! A session is over when its leader has not seen it renewed for its TTL. The leader then *proposes*
//! that it expire, naming the generation it saw: if a renewal gets into the log first, the expiry is
//! void when it is applied. A leader that was deposed cannot commit its proposals, so it can neither
//! renew nor expire anything. A new leader gives every session a full TTL from the moment at which it
//! has applied everything that its predecessors committed; thus a deadline is never earlier than TTL
//! after the last acknowledged renewal was received.
//!
//! After a pause in which the leader itself did not run (it was stopped, or its disk was) nothing is
//! over for a moment: renewals that came in meanwhile are heard first. But no session is prolonged
//! by more than the leader's patience, however often it pauses.

use crate::clock::Clock;
use crate::machine::Session;
use std::collections::BTreeMap;
use std::time::Duration;

/// The deadlines of all sessions, while this node leads.
#[derive(Debug)]
pub struct Leases {
    clock: Clock,
    deadlines: BTreeMap<u64, Lease>,
    /// Nothing is over before this, unless it is over for longer than `patience`.
    quiet_until: Duration,
    patience: Duration,
}

#[derive(Debug)]
struct Lease {
    deadline: Duration,
    generation: u64,
    proposed: bool,
}

impl Leases {
    /// An empty table that measures with `clock` and prolongs nothing by more than `patience`.
    pub fn new(clock: Clock, patience: Duration) -> Leases {
        Leases {
            clock,
            quiet_until: Duration::ZERO,
            patience,
            deadlines: BTreeMap::new(),
        }
    }

    /// Forgets everything: the node does not lead any more.
    pub fn clear(&mut self) {
        self.deadlines.clear();
    }

    /// Gives every session a full TTL: the node begins to lead.
    pub fn begin<'a>(&mut self, sessions: impl Iterator<Item = (&'a u64, &'a Session)>) {
        self.deadlines.clear();
        for (id, session) in sessions {
            self.touch(*id, *session);
        }
    }

    /// Gives one session a full TTL: it was opened or renewed.
    pub fn touch(&mut self, id: u64, session: Session) {
        let deadline = self.clock.now() + Duration::from_millis(session.ttl_ms);
        let lease = Lease {
            deadline,
            generation: session.generation,
            proposed: false,
        };
        self.deadlines.insert(id, lease);
    }

    /// Drops a session that has ended.
    pub fn remove(&mut self, id: u64) {
        self.deadlines.remove(&id);
    }

    /// Lets nothing be over for half its patience: the node did not run for a while.
    pub fn wait(&mut self) {
        self.quiet_until = self.clock.now() + self.patience / 2;
    }

    /// The sessions whose time is over, with their generations; each is told once.
    pub fn over(&mut self) -> Vec<(u64, u64)> {
        let now = self.clock.now();
        let waits = if now < self.quiet_until {
            self.patience
        } else {
            Duration::ZERO
        };
        let over = self
            .deadlines
            .iter_mut()
            .filter(|(_, lease)| !lease.proposed && lease.deadline + waits <= now);
        over.map(|(id, lease)| {
            lease.proposed = true;
            (*id, lease.generation)
        })
        .collect()
    }

    /// The proposal to end a session could not be made: it is to be made again.
    pub fn not_proposed(&mut self, id: u64) {
        if let Some(lease) = self.deadlines.get_mut(&id) {
            lease.proposed = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(ttl_ms: u64, generation: u64) -> Session {
        Session { ttl_ms, generation }
    }

    fn leases(clock: Clock) -> Leases {
        Leases::new(clock, Duration::from_millis(500))
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_over_after_its_ttl_and_told_once() {
        let mut leases = leases(Clock::monotonic());
        leases.touch(1, session(1000, 0));
        leases.touch(2, session(2000, 0));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(leases.over(), []);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(leases.over(), [(1, 0)]);
        assert_eq!(leases.over(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_after_the_proposal_starts_a_new_ttl() {
        let mut leases = leases(Clock::monotonic());
        leases.touch(1, session(1000, 0));
        tokio::time::advance(Duration::from_millis(1000)).await;
        assert_eq!(leases.over(), [(1, 0)]);
        leases.touch(1, session(1000, 1));
        tokio::time::advance(Duration::from_millis(1000)).await;
        assert_eq!(leases.over(), [(1, 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_starts_every_ttl_again() {
        let sessions = BTreeMap::from([(1, session(1000, 3))]);
        let mut leases = leases(Clock::monotonic());
        leases.begin(sessions.iter());
        tokio::time::advance(Duration::from_millis(900)).await;
        leases.begin(sessions.iter());
        tokio::time::advance(Duration::from_millis(900)).await;
        assert_eq!(leases.over(), []);
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(leases.over(), [(1, 3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_pause_renewals_are_heard_first() {
        let mut leases = leases(Clock::monotonic());
        leases.touch(1, session(1000, 0));
        leases.touch(2, session(1000, 0));
        tokio::time::advance(Duration::from_millis(1100)).await;
        leases.wait();
        assert_eq!(leases.over(), []);
        leases.touch(1, session(1000, 1));
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(leases.over(), [(2, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_pauses_all_the_time_ends_sessions_nevertheless() {
        let mut leases = leases(Clock::monotonic());
        leases.touch(1, session(1000, 0));
        for _ in 0..15 {
            assert_eq!(leases.over(), []);
            tokio::time::advance(Duration::from_millis(100)).await;
            leases.wait();
        }
        assert_eq!(leases.over(), [(1, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wall_clock_is_not_the_monotonic_one() {
        // Virtual monotonic time passes here; the time of day does not.
        let mut wall = leases(Clock::Wall);
        wall.touch(1, session(60_000, 0));
        tokio::time::advance(Duration::from_millis(120_000)).await;
        assert_eq!(wall.over(), []);
    }
}
