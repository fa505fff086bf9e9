//! Holds of locks, leases and leaderships, as the clients' operations tell them.
//!
//! A hold begins where an `acquire` (or `lead`) was granted and ends where its holder released
//! it, or learned that it is gone. What the service thinks meanwhile is not known; what is certain
//! is that a lease lasts from the grant to `ttl` after the last acknowledged renewal was *asked
//! for*, because the service cannot have begun to count before that.
//!
//! ```text
//! acquire.invoke   acquire.ok         renew.invoke  renew.ok
//!      |---------------|------------------|-----------|------------ ... -----|
//!                      |<------------ certain ------------------------------>|
//!                                         |<------- ttl of the renewal - drift
//! ```

use history::{EventRef, History, NONE, Op, Outcome, ValueRef};
use rustc_hash::FxHashMap;

use crate::actors::Actors;
use crate::faults::{Fates, faults};
use crate::ident::integer_at;
use crate::params::{Param, Takes};

/// Functions that take a lock or a leadership.
pub(crate) const ACQUIRES: &[&str] = &["acquire", "lead"];
/// Functions that a resource guards by a token.
pub(crate) const GUARDED: &[&str] = &["put", "delete", "act", "fence"];

/// The time to live of a lease that names none.
pub(crate) const TTL: Param = Param {
    name: "ttl_ms",
    takes: Takes::Ms,
    default: "it does not expire",
    about: "time to live of a lease whose acquire names none",
};

/// Why a hold ended, as its holder saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It asked for the release.
    Released,
    /// It said that the lock is lost.
    Lost,
    /// A renewal was refused because the lock is not held.
    RenewRefused,
    /// The resource refused its token.
    TokenRefused,
    /// It was granted the same lock once more.
    Replaced,
    /// It was killed.
    Died,
}

/// A renewal that was acknowledged.
#[derive(Clone, Copy)]
pub(crate) struct Renewal<'h> {
    pub(crate) op: Op<'h>,
    pub(crate) ttl: Option<u64>,
}

/// One hold of one lock by one thread.
pub(crate) struct Hold<'h> {
    /// The number of the lock's key, [`NONE`] for a history with one lock without a name.
    pub(crate) key: u32,
    /// The thread that was granted it, see [`crate::actors`].
    pub(crate) owner: u32,
    /// The request.
    pub(crate) acquire: Op<'h>,
    /// The grant.
    pub(crate) granted: EventRef<'h>,
    /// The fencing token.
    pub(crate) token: Option<i128>,
    /// The term, where a grant of a leadership tells one.
    pub(crate) term: Option<i128>,
    /// Time to live as granted or asked, nanoseconds; `None` if it does not expire.
    pub(crate) ttl: Option<u64>,
    /// Acknowledged renewals, in order.
    pub(crate) renewals: Vec<Renewal<'h>>,
    /// A later request of its owner for a shorter lease that is not acknowledged as a renewal, but
    /// may have taken effect at any time since: when it was asked for, and its ttl.
    pub(crate) shortened: Option<(u64, u64)>,
    /// When the last attempt to renew that may have worked was over; `u64::MAX` if one never was.
    pub(crate) last_attempt: u64,
    /// A renewal that the service refused as not held, before anything else ended the hold; the
    /// client may have said `lost` in the same moment.
    pub(crate) refused: Option<EventRef<'h>>,
    /// Where its holder gave it up, even if that was after it ended for the holder: it asked for
    /// the release, or was killed.
    pub(crate) given_up: Option<EventRef<'h>>,
    /// Where and why it ended for its holder.
    pub(crate) end: Option<(EventRef<'h>, End)>,
    /// The last thing that the holder began to do as a holder, and that did not fail.
    pub(crate) last_act: Option<Op<'h>>,
}

impl<'h> Hold<'h> {
    /// When the lease ends at the earliest, given the last acknowledged renewal; `None` if it
    /// does not expire.
    pub(crate) fn deadline(&self, drift: Drift) -> Option<u64> {
        self.deadline_after(self.renewals.last(), drift)
    }

    /// When the lease ends at the earliest if this was its last renewal.
    pub(crate) fn deadline_after(
        &self,
        renewal: Option<&Renewal<'h>>,
        drift: Drift,
    ) -> Option<u64> {
        let lease = match renewal {
            Some(renewal) => renewal.ttl.map(|ttl| (renewal.op.start(), ttl)),
            None => self.ttl.map(|ttl| (self.acquire.start(), ttl)),
        };
        let leases = [lease, self.shortened].into_iter().flatten();
        leases
            .map(|(from, ttl)| from.saturating_add(ttl.saturating_sub(drift.of(ttl))))
            .min()
    }

    /// When the lease has ended at the latest, if nobody renewed it: ttl and drift after the last
    /// attempt that may have worked.
    pub(crate) fn expired(&self, drift: Drift) -> Option<u64> {
        let ttl = self
            .renewals
            .last()
            .map_or(self.ttl, |renewal| renewal.ttl)?;
        let from = self.last_attempt.max(self.granted.time());
        Some(from.saturating_add(ttl).saturating_add(drift.of(ttl)))
    }

    /// When it ended for its holder; the end of time if it never did.
    pub(crate) fn end_time(&self) -> u64 {
        self.end.map_or(u64::MAX, |(event, _)| event.time())
    }

    /// The end of the time in which the holder certainly had the lock; it begins at the grant.
    pub(crate) fn certain_end(&self, drift: Drift) -> u64 {
        self.end_time()
            .min(self.deadline(drift).unwrap_or(u64::MAX))
    }
}

/// How far clocks and timers of holder and service may disagree over the time of one lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drift(Option<u64>);

impl Drift {
    /// The header parameter.
    pub(crate) const PARAM: Param = Param {
        name: "drift_ms",
        takes: Takes::Ms,
        default: "5 % of its ttl",
        about: "how far the clocks of holder and service may disagree over one lease",
    };

    /// The header's `drift_ms`.
    pub(crate) fn of_header(history: &History) -> Drift {
        Drift(history.header.param_ms("drift_ms"))
    }

    fn of(self, ttl: u64) -> u64 {
        self.0.unwrap_or(ttl / 20)
    }
}

/// How far the clocks that stamped the times of different processes may have been apart. What one
/// process did is never compared with itself by it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockError(u64);

impl ClockError {
    /// The header parameter.
    pub(crate) const PARAM: Param = Param {
        name: "clock_error_ms",
        takes: Takes::Ms,
        default: "0: one recorder stamped all times",
        about: "how far the clocks that stamped the times of different processes may be apart",
    };

    /// The header's `clock_error_ms`.
    pub(crate) fn of_header(history: &History) -> ClockError {
        ClockError(history.header.param_ms(ClockError::PARAM.name).unwrap_or(0))
    }

    /// The earliest that a time of another process may have been by one's own clock.
    pub(crate) fn sooner(self, time: u64) -> u64 {
        if time == u64::MAX {
            return time;
        }
        time.saturating_sub(self.0)
    }

    /// The latest that it may have been.
    pub(crate) fn later(self, time: u64) -> u64 {
        time.saturating_add(self.0)
    }
}

/// All holds of a history, in the order of their grants, and what belongs to none.
pub(crate) struct Holds<'h> {
    pub(crate) holds: Vec<Hold<'h>>,
    /// Acts that happened, each with the thread that did it.
    pub(crate) acts: Vec<(Op<'h>, u32)>,
    /// Releases that were acknowledged to a thread that held nothing.
    pub(crate) releases_not_owned: u64,
    /// What was done to the threads.
    pub(crate) fates: Fates,
}

impl<'h> Holds<'h> {
    /// Reads the holds off a history: one pass.
    pub(crate) fn of(history: &'h History) -> Holds<'h> {
        let actors = Actors::of(history);
        let fates = Fates::of(&actors, &faults(history));
        let mut reader = Reader {
            actors,
            ttl_default: history.header.param_ms("ttl_ms"),
            holds: Vec::new(),
            acts: Vec::new(),
            latest: FxHashMap::default(),
            by_token: FxHashMap::default(),
            by_owner_and_token: FxHashMap::default(),
            of_owner: FxHashMap::default(),
            releases_not_owned: 0,
        };
        let mut kills = fates.kills.iter().peekable();
        for event in history.events() {
            while let Some((at, owner)) = kills.next_if(|(at, _)| *at <= event.index()) {
                reader.end_all(*owner, history.event(*at), End::Died);
            }
            reader.read(event);
        }
        Holds {
            holds: reader.holds,
            acts: reader.acts,
            releases_not_owned: reader.releases_not_owned,
            fates,
        }
    }

    /// The indices of the holds of each key, keys in order of first grant, holds in order of
    /// their grants.
    pub(crate) fn by_key(&self) -> Vec<Vec<usize>> {
        let mut place: FxHashMap<u32, usize> = FxHashMap::default();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (index, hold) in self.holds.iter().enumerate() {
            let next = groups.len();
            let at = *place.entry(hold.key).or_insert(next);
            if at == next {
                groups.push(Vec::new());
            }
            groups[at].push(index);
        }
        groups
    }
}

/// Whether the answer to an `acquire` grants the lock: not if it says that the token is null.
pub(crate) fn is_grant(answer: ValueRef<'_>) -> bool {
    answer.as_bool() != Some(false) && answer.get("token").is_none_or(|token| !token.is_null())
}

/// Whether this answer says that the lock is somebody else's, as opposed to "ask another".
pub(crate) fn says_held(op: &Op<'_>) -> bool {
    match op.outcome() {
        Outcome::Ok => op.output().is_some_and(|answer| !is_grant(answer)),
        Outcome::Fail => matches!(op.error(), None | Some("held" | "busy" | "locked")),
        Outcome::Info => false,
    }
}

/// The time to live that a value names, nanoseconds.
pub(crate) fn ttl_of(value: ValueRef<'_>) -> Option<u64> {
    let ms = value.get("ttl_ms").and_then(ValueRef::as_u64)?;
    Some(ms.saturating_mul(1_000_000))
}

struct Reader<'h> {
    actors: Actors,
    ttl_default: Option<u64>,
    holds: Vec<Hold<'h>>,
    acts: Vec<(Op<'h>, u32)>,
    /// The latest hold of a thread on a key.
    latest: FxHashMap<(u32, u32), usize>,
    /// The latest hold of a key with a token.
    by_token: FxHashMap<(u32, i128), usize>,
    /// The latest hold of a thread with a token: a resource may have another name than its lock.
    by_owner_and_token: FxHashMap<(u32, i128), usize>,
    /// The holds of a thread since all of them last ended; some may have ended already.
    of_owner: FxHashMap<u32, Vec<usize>>,
    releases_not_owned: u64,
}

impl<'h> Reader<'h> {
    fn read(&mut self, event: EventRef<'h>) {
        let f = event.f();
        if event.is_unasked() {
            if f == "lost" {
                self.lost(event);
            }
        } else if event.kind() == history::Kind::Invoke {
            if ACQUIRES.contains(&f) || f == "renew" {
                self.asked(event.op());
            } else if f == "release" {
                self.release(event.op());
            } else if GUARDED.contains(&f) {
                self.act(event.op());
            }
        } else if let Some(invoke) = event.partner() {
            let op = invoke.op();
            if ACQUIRES.contains(&f) {
                self.acquired(op, event);
            } else if f == "renew" {
                self.renewed(op, event);
            } else if GUARDED.contains(&f) {
                self.answered(op, event);
            }
        }
    }

    /// A request for a lease by one who has it: a shorter one may end it sooner.
    fn asked(&mut self, op: Op<'h>) {
        let may_work = match op.outcome() {
            Outcome::Ok => op.f() == "renew" || op.output().is_some_and(is_grant),
            Outcome::Fail => false,
            Outcome::Info => true,
        };
        let asked = op.output().and_then(ttl_of).or_else(|| ttl_of(op.input()));
        let Some(index) = self.hold_of(op.invoke).filter(|_| may_work) else {
            return;
        };
        let default = if op.f() == "renew" {
            self.holds[index].ttl
        } else {
            self.ttl_default
        };
        let hold = &mut self.holds[index];
        let Some(ttl) = asked.or(default) else { return };
        let sooner = op.start().saturating_add(ttl);
        let exact = Drift(Some(0));
        if hold.end.is_none()
            && hold
                .deadline(exact)
                .is_none_or(|deadline| sooner < deadline)
        {
            hold.shortened = Some((op.start(), ttl));
        }
    }

    fn acquired(&mut self, op: Op<'h>, event: EventRef<'h>) {
        let Some(answer) = op.output().filter(|&answer| is_grant(answer)) else {
            return;
        };
        let key = op.key_id().unwrap_or(NONE);
        let owner = self.actors.of_process(op.process_id());
        if let Some(&old) = self.latest.get(&(owner, key)) {
            self.end(old, event, End::Replaced);
        }
        let token = integer_at(answer, "token");
        let index = self.holds.len();
        self.latest.insert((owner, key), index);
        if let Some(token) = token {
            self.by_token.insert((key, token), index);
            self.by_owner_and_token.insert((owner, token), index);
        }
        self.of_owner.entry(owner).or_default().push(index);
        self.holds.push(Hold {
            key,
            owner,
            acquire: op,
            granted: event,
            token,
            term: integer_at(answer, "term"),
            ttl: ttl_of(answer)
                .or_else(|| ttl_of(op.input()))
                .or(self.ttl_default),
            renewals: Vec::new(),
            shortened: None,
            last_attempt: event.time(),
            refused: None,
            given_up: None,
            end: None,
            last_act: None,
        });
    }

    /// The hold under which something is done, ended or not.
    fn hold_of(&self, event: EventRef<'h>) -> Option<usize> {
        let owner = self.actors.of_process(event.process_id());
        let key = event.key_id().unwrap_or(NONE);
        match integer_at(event.value(), "token") {
            Some(token) => {
                let of_key = self.by_token.get(&(key, token));
                of_key.or_else(|| self.by_owner_and_token.get(&(owner, token)))
            }
            None => self.latest.get(&(owner, key)),
        }
        .copied()
    }

    fn renewed(&mut self, op: Op<'h>, event: EventRef<'h>) {
        let Some(index) = self.hold_of(op.invoke) else {
            return;
        };
        let hold = &mut self.holds[index];
        let ended_before = hold
            .end
            .is_some_and(|(end, _)| end.index() < op.invoke.index());
        if ended_before {
            return;
        }
        match (op.outcome(), op.error()) {
            (Outcome::Ok, _) if hold.end.is_none() => {
                let ttl = op.output().and_then(ttl_of).or_else(|| ttl_of(op.input()));
                let ttl = ttl.or(hold.ttl);
                hold.renewals.push(Renewal { op, ttl });
                hold.shortened = None;
                hold.last_attempt = event.time();
            }
            (Outcome::Ok, _) => {}
            (Outcome::Info, _) => hold.last_attempt = event.time(),
            (Outcome::Fail, error) => {
                if error == Some("not-held") && hold.end.is_none_or(|(_, end)| end == End::Lost) {
                    hold.refused = Some(event);
                }
                match error {
                    None | Some("not-held") => self.end(index, event, End::RenewRefused),
                    Some("stale-token") => self.end(index, event, End::TokenRefused),
                    Some("deadline-passed") => self.end(index, event, End::Lost),
                    Some(_) => {}
                }
            }
        }
    }

    fn release(&mut self, op: Op<'h>) {
        let hold = self.hold_of(op.invoke);
        let held = hold.is_some_and(|index| self.holds[index].end.is_none());
        if let Some(index) = hold {
            self.end(index, op.invoke, End::Released);
        }
        if !held && op.is_ok() {
            self.releases_not_owned += 1;
        }
    }

    fn lost(&mut self, event: EventRef<'h>) {
        let names_one = event.key_id().is_some() || event.value().get("token").is_some();
        if !names_one {
            let owner = self.actors.of_process(event.process_id());
            self.end_all(owner, event, End::Lost);
        } else if let Some(index) = self.hold_of(event) {
            self.end(index, event, End::Lost);
        }
    }

    fn act(&mut self, op: Op<'h>) {
        let hold = self.hold_of(op.invoke);
        if op.f() == "act" && op.is_ok() {
            let owner = hold.map(|index| self.holds[index].owner);
            let owner = owner.unwrap_or_else(|| self.actors.of_process(op.process_id()));
            self.acts.push((op, owner));
        }
        if op.outcome() != Outcome::Fail
            && let Some(index) = hold
        {
            self.holds[index].last_act = Some(op);
        }
    }

    /// The answer to a guarded operation; some failures tell the holder that it is none.
    fn answered(&mut self, op: Op<'h>, event: EventRef<'h>) {
        let end = match op.error() {
            Some("stale-token") => End::TokenRefused,
            Some("not-held" | "deadline-passed") => End::Lost,
            _ => return,
        };
        if op.outcome() == Outcome::Fail
            && let Some(index) = self.hold_of(op.invoke)
        {
            self.end(index, event, end);
        }
    }

    fn end(&mut self, index: usize, event: EventRef<'h>, end: End) {
        let hold = &mut self.holds[index];
        hold.end.get_or_insert((event, end));
        if matches!(end, End::Released | End::Died) {
            hold.given_up.get_or_insert(event);
        }
    }

    fn end_all(&mut self, owner: u32, event: EventRef<'h>, end: End) {
        for index in self.of_owner.remove(&owner).unwrap_or_default() {
            self.end(index, event, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script;

    fn holds(script: &str) -> Vec<(u64, u64, Option<End>)> {
        let history = script::history("lock", script);
        let all = Holds::of(&history);
        let drift = Drift::of_header(&history);
        all.holds
            .iter()
            .map(|hold| {
                let end = hold.certain_end(drift).min(1_000_000_000_000);
                (
                    hold.granted.time() / 1_000_000,
                    end / 1_000_000,
                    hold.end.map(|(_, end)| end),
                )
            })
            .collect()
    }

    #[test]
    fn a_lease_is_certain_from_its_grant_to_the_last_renewal_and_its_ttl() {
        assert_eq!(
            holds(
                r#"
                param drift_ms 500
                0-100 A acquire L {"ttl_ms":4000} -> {"token":1}
                2000-2200 A renew L {"ttl_ms":4000} -> null
                4000-4200 A renew L {"ttl_ms":4000} -> null
                6000-7000 A renew L {"ttl_ms":4000} -> info timeout
                "#
            ),
            [(100, 7500, None)]
        );
    }

    #[test]
    fn refused_acquires_are_no_holds() {
        assert_eq!(
            holds(
                r#"
                0-1 A acquire L {"ttl_ms":4000} -> {"token":null}
                0-1 B acquire L {"ttl_ms":4000} -> fail held
                0-1 C acquire L {"ttl_ms":4000} -> info timeout
                "#
            ),
            []
        );
    }

    #[test]
    fn a_hold_goes_on_in_the_next_process_of_its_thread() {
        let text = r#"
            param threads 2
            param drift_ms 0
            0-100 0 acquire L {"ttl_ms":4000} -> {"token":1}
            1000-2000 0 renew L {"ttl_ms":4000,"token":1} -> info timeout
            3000-3100 2 renew L {"ttl_ms":4000,"token":1} -> null
            5000-5100 2 renew L {"ttl_ms":4000,"token":1} -> info timeout"#;
        assert_eq!(holds(text), [(100, 7000, None)]);
        let ended = |end: &str| holds(&format!("{text}\n{end}"));
        for (end, why, at) in [
            (
                "6000-6100 4 release L {\"token\":1} -> null",
                End::Released,
                6000,
            ),
            ("6000 4 lost L {\"token\":1}", End::Lost, 6000),
            (
                "6000-6100 4 put L {\"v\":1,\"token\":1} -> fail stale-token",
                End::TokenRefused,
                6100,
            ),
            (
                "6000-6100 4 put L {\"v\":1,\"token\":1} -> fail deadline-passed",
                End::Lost,
                6100,
            ),
        ] {
            assert_eq!(ended(end), [(100, at, Some(why))]);
        }
    }

    #[test]
    fn every_end_is_told_apart() {
        let found = holds(
            r#"
            param clients {"K":"c9"}
            0-1 A acquire L null -> {"token":1}
            0-1 B acquire M null -> {"token":2}
            0-1 C acquire N null -> {"token":3}
            0-1 D acquire O null -> {"token":4}
            0-1 E acquire P null -> {"token":5}
            0-1 K acquire Q null -> {"token":6}
            10-20 A release L null -> info timeout
            11 B lost M
            12-13 C renew N null -> fail not-held
            14-15 D put r {"v":1,"token":4} -> fail stale-token
            16-17 E acquire P null -> {"token":6}
            18 nemesis kill - {"id":1,"phase":"begin","target":"c9","verified":true}
            "#,
        );
        let ends: Vec<_> = found.iter().map(|hold| (hold.1, hold.2)).collect();
        assert_eq!(
            ends,
            [
                (10, Some(End::Released)),
                (11, Some(End::Lost)),
                (13, Some(End::RenewRefused)),
                (15, Some(End::TokenRefused)),
                (17, Some(End::Replaced)),
                (18, Some(End::Died)),
                (1_000_000, None)
            ]
        );
    }
}
