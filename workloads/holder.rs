//! Clients that take something with a lease, work under it, and give it back: what the workloads
//! `lock` and `leader` have in common.
//!
//! Each thread is a small machine: it waits, acquires, then writes to the protected resource and
//! renews its lease until it has written enough or learns that the lease is gone. The rules that
//! matter when histories are judged are in [`DETAILS`].

use serde_json::{Map, Value, json};
use spec::{Param, ParamKind, Params};

use crate::clients::{self, CLIENTS, ROUTE_ANY, Route, count};
use crate::generator::{Context, EachOk, Invocation, Next, Outcome, Update, each_ok, op};
use crate::random::{Random, Seed};
use crate::{Error, Generator, Setup, Vault};

/// What a reader of the histories must know.
pub(crate) const DETAILS: &str = "\
Each thread belongs to one key (thread i to key i mod `keys`) and repeats: `acquire` until it is
ok, with a pause of about `backoff` between tries; then `put`s to the protected resource of the
same name, now and then a `get` instead, and a `renew` every `renew-every`; after about
`writes-per-hold` writes (one hold in five is much shorter) a `release`, a rest, and again.

| f | value of the invocation | value when ok |
|---|---|---|
| `acquire` | `{\"ttl_ms\"}` | `{\"token\"}`; a token that is null says that it was not granted |
| `renew` | `{\"ttl_ms\",\"token\"}` | |
| `put` | `{\"v\",\"token\"}`, no v twice | |
| `get` | null | `{\"v\",\"token\"}`, what was written last |
| `release` | `{\"token\"}` | |

**A hold is a key and a token, not a process.** `renew`, `put` and `release` say in their
invocation under which token they are done. An indeterminate `renew` or `put` ends the process, but
not the belief: the lease lives in the client program, which nobody told that it is gone, so the
thread goes on under the same token as the next process. A checker that joins operations to a hold
by their process would take that for a second holder.

**What ends a belief**: an ok or failed `release` and an indeterminate one (the client has said
that it is finished, whether or not it was heard); a `renew` or `put` that fails with `not-held`,
`stale-token` or `deadline-passed`; an unasked `lost` for the key (and for the token, where it says
one). Other failures, such as a refused connection, end nothing.

**An indeterminate `acquire`** may have been granted. The thread does not know the token and writes
nothing under it; it tries again, and the unknown lease is expected to run out.

**After a silence** (an operation that was open for longer than `renew-every`) a `renew` that became
due meanwhile is skipped, and the next is due one period later, as with a ticker that skips missed
ticks. A holder that was frozen therefore goes on with its writes first: that is the mistake to be
shown. Its `holder` says what stops it: nothing (`naive`), its own monotonic
clock, read by the client just before each write (`deadline`), or the resource, which refuses
tokens older than one it has seen (`fenced`). Writes are guarded in all three; only a fenced
resource looks at the guard.
";

pub(crate) const FUNCTIONS: &[&str] = &["acquire", "renew", "release", "put", "get"];

pub(crate) const PARAMS: &[Param] = &[
    CLIENTS,
    Param {
        name: "processes",
        kind: ParamKind::Int(1),
        about: "holders in each client program; with more than one they are frozen together",
    },
    ROUTE_ANY,
    Param {
        name: "ttl",
        kind: ParamKind::Duration("3s"),
        about: "how long a lease lives after it was granted or renewed",
    },
    Param {
        name: "holder",
        kind: ParamKind::Choice(&["naive", "deadline", "fenced"]),
        about: "what a holder trusts: that nobody told it that the lease is gone, its own clock, \
                or a resource that checks tokens",
    },
    Param {
        name: "check-to-write-pause",
        kind: ParamKind::Duration("0ms"),
        about: "how long a client pauses between its check and its write, so that a fault can \
                fall between them",
    },
    Param {
        name: "keys",
        kind: ParamKind::Int(1),
        about: "locks or elections; the clients are divided among them",
    },
    Param {
        name: "writes-per-hold",
        kind: ParamKind::Int(200),
        about: "writes after which a holder gives back, on average",
    },
    Param {
        name: "write-every",
        kind: ParamKind::Duration("50ms"),
        about: "the time between two writes of a holder",
    },
    Param {
        name: "renew-every",
        kind: ParamKind::Duration("0s"),
        about: "the time between two renewals; 0s is a third of the ttl",
    },
    Param {
        name: "get-ratio",
        kind: ParamKind::Ratio(0.1),
        about: "the share of reads of the resource among a holder's reads and writes",
    },
    Param {
        name: "backoff",
        kind: ParamKind::Duration("200ms"),
        about: "the time between two tries to acquire, on average",
    },
    Param {
        name: "drift",
        kind: ParamKind::Duration("500ms"),
        about: "how far clocks and delays may blur the end of a lease before it counts",
    },
    Param {
        name: "notice-bound",
        kind: ParamKind::Duration("1s"),
        about: "how long after the end of its lease a holder with a deadline may still act",
    },
];

/// Whether the parameters make sense together.
pub(crate) fn validate(params: &Params) -> Result<(), Error> {
    clients::validate(params)?;
    for name in ["keys", "writes-per-hold"] {
        clients::at_least_one(params, name)?;
    }
    let threads = clients::placement(params).threads();
    let refuse = |name, reason| Err(Error::Param { name, reason });
    if count(params, "keys") > threads {
        return refuse("keys", format!("there are only {threads} holders for them"));
    }
    if params.duration_ms("ttl") == 0 {
        return refuse("ttl", "must be at least 1ms".to_owned());
    }
    if params.duration_ns("renew-every") >= params.duration_ns("ttl") {
        return refuse("renew-every", "must be shorter than `ttl`".to_owned());
    }
    if params.duration_ns("write-every") == 0 {
        return refuse("write-every", "must be longer than 0s".to_owned());
    }
    if params.duration_ns("backoff") == 0 {
        return refuse("backoff", "must be longer than 0s".to_owned());
    }
    Ok(())
}

/// What goes into the history's header and to the clients.
pub(crate) fn header_params(params: &Params) -> Map<String, Value> {
    let header = json!({
        "ttl_ms": params.duration_ms("ttl"),
        "holder": params.text("holder"),
        "check-to-write-pause": params.text("check-to-write-pause"),
        "drift_ms": params.duration_ms("drift"),
        "loss_bound_ms": params.duration_ms("notice-bound"),
        "required": ["acquire", "put"],
    });
    let Value::Object(header) = header else {
        unreachable!("it is written as an object");
    };
    header
}

/// What can be checked. `loss-notice` only where the holder itself promises to notice: a naive
/// one does not, and a fenced one leaves it to the resource.
pub(crate) fn checkers(params: &Params) -> Vec<&'static str> {
    let mut checkers = vec![
        "stale-writes",
        "mutual-exclusion",
        "lease-early",
        "lease-stuck",
        "split-brain",
        "coverage",
    ];
    if params.text("holder") == "deadline" {
        checkers.push("loss-notice");
    }
    checkers
}

/// The protected resource.
pub(crate) fn vault(params: &Params) -> Vault {
    Vault {
        fencing: params.text("holder") == "fenced",
    }
}

/// A last look at every resource.
pub(crate) fn final_reads(params: &Params, prefix: &str) -> EachOk {
    let gets = (0..count(params, "keys")).map(|key| op("get").key(format!("{prefix}{key}")));
    each_ok(gets, 10, 500_000_000)
}

/// All holders of a run.
#[derive(Debug, Clone)]
pub(crate) struct Holders {
    plan: Plan,
    holders: Vec<Holder>,
    /// The value of the next write.
    next_value: u64,
    proposed: usize,
}

/// What all holders do alike; times in nanoseconds.
#[derive(Debug, Clone)]
struct Plan {
    route: Route,
    ttl_ms: u64,
    writes_per_hold: u64,
    write_every: u64,
    renew_every: u64,
    get_ratio: f64,
    backoff: u64,
}

#[derive(Debug, Clone)]
struct Holder {
    key: Value,
    random: Random,
    state: State,
    /// What it is doing, and since when.
    open: Option<(Action, u64)>,
}

#[derive(Debug, Clone)]
enum State {
    /// Acquires at a time; looks at the resource before, if `look`.
    Idle { at: u64, look: bool },
    /// Believes that it holds.
    Holding(Hold),
}

#[derive(Debug, Clone)]
struct Hold {
    token: Value,
    writes_left: u64,
    write_at: u64,
    /// Whether it reads where it would write.
    look: bool,
    renew_at: u64,
    /// How much earlier than that it may be.
    renew_slack: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Acquire,
    Renew,
    Put,
    Get,
    Release,
}

impl Action {
    fn f(self) -> &'static str {
        match self {
            Action::Acquire => "acquire",
            Action::Renew => "renew",
            Action::Put => "put",
            Action::Get => "get",
            Action::Release => "release",
        }
    }
}

/// The reasons of a failure that tell a holder that it holds no longer.
const LOSSES: &[&str] = &["not-held", "stale-token", "deadline-passed"];

/// Whether an `acquire` that is ok was granted: a token that is null says that it was not.
fn is_grant(answer: &Value) -> bool {
    answer.get("token").is_none_or(|token| !token.is_null())
}

impl Holders {
    /// Holders for all threads, of keys named `prefix` and a number.
    pub(crate) fn new(params: &Params, setup: &Setup, prefix: &str) -> Holders {
        let renew_every = match params.duration_ns("renew-every") {
            0 => params.duration_ns("ttl") / 3,
            every => every,
        };
        let plan = Plan {
            route: Route::new(params, setup),
            ttl_ms: params.duration_ms("ttl"),
            writes_per_hold: params.int("writes-per-hold"),
            write_every: params.duration_ns("write-every"),
            renew_every,
            get_ratio: params.ratio("get-ratio"),
            backoff: params.duration_ns("backoff"),
        };
        let seed = Seed::new(setup.seed).named("holder");
        let keys = count(params, "keys");
        let holders = (0..setup.threads).map(|thread| {
            let mut random = seed.at(thread).stream();
            Holder {
                key: Value::from(format!("{prefix}{}", thread % keys)),
                state: State::Idle {
                    at: random.below(plan.backoff),
                    look: false,
                },
                random,
                open: None,
            }
        });
        Holders {
            holders: holders.collect(),
            plan,
            next_value: 1,
            proposed: 0,
        }
    }

    fn invocation(&self, thread: usize, action: Action) -> Invocation {
        let holder = &self.holders[thread];
        let token = match &holder.state {
            State::Holding(hold) => hold.token.clone(),
            State::Idle { .. } => Value::Null,
        };
        let (value, server) = match action {
            Action::Acquire => (json!({"ttl_ms": self.plan.ttl_ms}), true),
            Action::Renew => (json!({"ttl_ms": self.plan.ttl_ms, "token": token}), true),
            Action::Release => (json!({"token": token}), true),
            Action::Put => (json!({"v": self.next_value, "token": token}), false),
            Action::Get => (Value::Null, false),
        };
        Invocation {
            thread,
            f: action.f(),
            key: holder.key.clone(),
            value,
            server: self.plan.route.server(thread).filter(|_| server),
        }
    }
}

impl Generator for Holders {
    fn next(&mut self, context: &Context) -> Next {
        let due = context.free.iter().filter_map(|thread| {
            let holder = self.holders.get(thread)?;
            let (at, action) = holder.due();
            Some((at.max(context.time), thread, action))
        });
        let Some((at, thread, action)) = due.min_by_key(|&(at, thread, _)| (at, thread)) else {
            return Next::PENDING;
        };
        self.proposed = thread;
        Next::Op {
            at,
            op: self.invocation(thread, action),
        }
    }

    fn accept(&mut self) {
        let holder = &mut self.holders[self.proposed];
        let (_, action) = holder.due();
        holder.open = Some((action, 0));
        if action == Action::Put {
            self.next_value += 1;
        }
    }

    fn update(&mut self, update: &Update<'_>) {
        match update.outcome {
            Outcome::Invoked => {
                let holder = self.holders.get_mut(update.thread);
                if let Some((_, since)) = holder.and_then(|holder| holder.open.as_mut()) {
                    *since = update.time;
                }
            }
            Outcome::Unasked if update.f == "lost" => {
                for (thread, holder) in self.holders.iter_mut().enumerate() {
                    if holder.is_told(thread, update) {
                        holder.rest(update.time, &self.plan);
                    }
                }
            }
            Outcome::Unasked => {}
            Outcome::Ok | Outcome::Fail | Outcome::Info => {
                if let Some(holder) = self.holders.get_mut(update.thread)
                    && let Some((action, since)) = holder.open.take()
                {
                    holder.completed(action, since, update, &self.plan);
                }
            }
        }
    }
}

impl Holder {
    /// What it does next, and when.
    fn due(&self) -> (u64, Action) {
        match &self.state {
            State::Idle { at, look: true } => (*at, Action::Get),
            State::Idle { at, look: false } => (*at, Action::Acquire),
            State::Holding(hold) if hold.writes_left == 0 => (hold.write_at, Action::Release),
            // A little early rather than late. Between quick writes it thus follows the write
            // before it at once, and a fault that begins while nothing is open meets a write.
            State::Holding(hold) if hold.renew_at <= hold.write_at => (
                hold.renew_at.saturating_sub(hold.renew_slack),
                Action::Renew,
            ),
            State::Holding(hold) if hold.look => (hold.write_at, Action::Get),
            State::Holding(hold) => (hold.write_at, Action::Put),
        }
    }

    /// Whether an unasked `lost` speaks of what it holds. One client program can have several
    /// holders; where the event names no token, it is about the thread that it came on.
    fn is_told(&self, thread: usize, update: &Update<'_>) -> bool {
        let State::Holding(hold) = &self.state else {
            return false;
        };
        let about = match update.value.get("token") {
            Some(token) => *token == hold.token,
            None => thread == update.thread,
        };
        about && *update.key == self.key
    }

    fn completed(&mut self, action: Action, since: u64, update: &Update<'_>, plan: &Plan) {
        let now = update.time;
        match (action, update.outcome) {
            (Action::Acquire, Outcome::Ok) if is_grant(update.value) => self.hold(update, plan),
            (Action::Acquire, _) => self.back_off(now, plan),
            // What was released or not is not believed to be held.
            (Action::Release, _) => self.rest(now, plan),
            _ => self.worked(action, since, update, plan),
        }
    }

    fn hold(&mut self, update: &Update<'_>, plan: &Plan) {
        let token = update.value.get("token").cloned().unwrap_or(Value::Null);
        let mean = plan.writes_per_hold;
        // Most holds are long, so that a fault finds a holder at work.
        let writes_left = if self.random.chance(0.2) {
            1 + self.random.below(mean.div_ceil(10))
        } else {
            1 + mean / 2 + self.random.below(mean)
        };
        self.state = State::Holding(Hold {
            token,
            writes_left,
            write_at: update.time,
            look: false,
            renew_at: update.time + plan.renew_every,
            renew_slack: plan.renew_every / 10,
        });
    }

    /// After `renew`, `put` or `get`.
    fn worked(&mut self, action: Action, since: u64, update: &Update<'_>, plan: &Plan) {
        let now = update.time;
        let lost = update.outcome == Outcome::Fail
            && action != Action::Get
            && update.error.is_some_and(|error| LOSSES.contains(&error));
        let State::Holding(hold) = &mut self.state else {
            // It learnt of its loss while this was open, or it only looked while it waited.
            if let State::Idle { look, .. } = &mut self.state {
                *look = false;
            }
            return;
        };
        if lost {
            self.rest(now, plan);
            return;
        }
        match action {
            Action::Renew if update.outcome == Outcome::Fail => hold.renew_at = now + plan.backoff,
            Action::Renew => hold.renew_at = now + plan.renew_every,
            _ => {
                if action == Action::Put && update.outcome == Outcome::Ok {
                    hold.writes_left -= 1;
                }
                hold.write_at = now.max(hold.write_at + plan.write_every);
                hold.look = self.random.chance(plan.get_ratio);
                let silent = now - since > plan.renew_every;
                if silent && now >= hold.renew_at {
                    hold.renew_at = now + plan.renew_every;
                }
            }
        }
        // Not answered, it goes on with what matters to it.
        hold.look &= update.outcome != Outcome::Info;
    }

    /// Tries again soon, perhaps after a look at the resource.
    fn back_off(&mut self, now: u64, plan: &Plan) {
        self.state = State::Idle {
            at: now + plan.backoff / 2 + self.random.below(plan.backoff),
            look: self.random.chance(plan.get_ratio),
        };
    }

    /// Leaves the others a chance before it tries again.
    fn rest(&mut self, now: u64, plan: &Plan) {
        self.state = State::Idle {
            at: now + 2 * plan.backoff + self.random.below(plan.backoff),
            look: false,
        };
    }
}

#[cfg(test)]
mod tests;
