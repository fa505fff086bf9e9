//! `register`: reads, writes and compare-and-set of a few keys.

use serde_json::{Map, Value, json};
use spec::{Param, ParamKind, Params};

use crate::clients::{self, CLIENTS, PROCESSES, ROUTE_FIXED, Route, count};
use crate::generator::{Context, Generator, Invocation, Next, Outcome, Update, each_ok, op};
use crate::random::{Random, Seed};
use crate::{Error, Placement, Setup, Workload};

/// The workload `register`.
pub(crate) struct Register;

const READ: &str = "read";
const READ_SERIALIZABLE: &str = "read-serializable";

/// How many values there are with `values = "small"`.
const SMALL: u64 = 5;

const PARAMS: &[Param] = &[
    CLIENTS,
    PROCESSES,
    ROUTE_FIXED,
    Param {
        name: "keys",
        kind: ParamKind::Int(5),
        about: "registers; each is judged for itself",
    },
    Param {
        name: "rate",
        kind: ParamKind::Int(100),
        about: "operations a second in all, at random times; 0 is as fast as the clients can",
    },
    Param {
        name: "read-ratio",
        kind: ParamKind::Ratio(0.5),
        about: "the share of reads",
    },
    Param {
        name: "cas-ratio",
        kind: ParamKind::Ratio(0.2),
        about: "the share of compare-and-set; what is left are writes",
    },
    Param {
        name: "values",
        kind: ParamKind::Choice(&["unique", "small"]),
        about: "`unique`: no value is written twice, so that every read says which write it saw; \
                `small`: one of five",
    },
    Param {
        name: "read-kind",
        kind: ParamKind::Choice(&["linearizable", "serializable", "both"]),
        about: "what reads ask for: `read` is linearizable, `read-serializable` may be answered \
                by any server from what it has",
    },
    Param {
        name: "judge-reads",
        kind: ParamKind::Choice(&["linearizable", "all"]),
        about: "which reads must be linearizable; with `all` serializable ones are held to it \
                too, which convicts a system of stale reads",
    },
];

impl Workload for Register {
    fn name(&self) -> &'static str {
        "register"
    }

    fn about(&self) -> &'static str {
        "Reads, writes and compare-and-set of a few keys at a steady rate; shows stale reads, \
         lost updates, and which servers answer while something is broken."
    }

    fn details(&self) -> &'static str {
        "\
| f | value of the invocation | value when ok |
|---|---|---|
| `read` | null | v, or null if never written |
| `read-serializable` | null | v, perhaps an old one |
| `write` | v | v |
| `cas` | [old, new] | [old, new]; `fail` means that it did not match |

`cas` expects the value that was last seen on its key, so that many succeed; on a key of which
nothing was seen yet a `write` takes its place. The header parameter `reads` lists the functions
that a checker must take for reads: see `judge-reads`. After the faults were healed every key is
read with `read`, up to ten times until it is answered, and then through every server, at most
twice: one that does not forward refuses while another leads.
"
    }

    fn functions(&self, params: &Params) -> Vec<&'static str> {
        // The final reads are linearizable whatever the others are.
        let mut functions = vec![READ, "write"];
        if params.text("read-kind") != "linearizable" {
            functions.push(READ_SERIALIZABLE);
        }
        if params.ratio("cas-ratio") > 0.0 {
            functions.push("cas");
        }
        functions
    }

    fn params(&self) -> &'static [Param] {
        PARAMS
    }

    fn validate(&self, params: &Params) -> Result<(), Error> {
        clients::validate(params)?;
        clients::at_least_one(params, "keys")?;
        let sum = params.ratio("read-ratio") + params.ratio("cas-ratio");
        // The ratios are decimal fractions, whose sum need not be exact.
        if sum > 1.0 + 1e-9 {
            return Err(Error::Param {
                name: "cas-ratio",
                reason: format!("with `read-ratio` it makes {sum}, which is more than 1"),
            });
        }
        Ok(())
    }

    fn checkers(&self, _: &Params) -> Vec<&'static str> {
        vec![
            "linearizable",
            "availability",
            "election-churn",
            "split-brain",
            "coverage",
        ]
    }

    fn header_params(&self, params: &Params) -> Map<String, Value> {
        let mut reads = vec![READ];
        if params.text("judge-reads") == "all" {
            reads.push(READ_SERIALIZABLE);
        }
        let header = json!({ "reads": reads, "required": [READ, "write"] });
        let Value::Object(header) = header else {
            unreachable!("it is written as an object");
        };
        header
    }

    fn placement(&self, params: &Params) -> Placement {
        clients::placement(params)
    }

    fn generator(&self, params: &Params, setup: &Setup) -> Box<dyn Generator> {
        let seed = Seed::new(setup.seed).named("register");
        let keys = count(params, "keys");
        let ops = Ops {
            random: seed.stream(),
            route: Route::new(params, setup),
            read_ratio: params.ratio("read-ratio"),
            write_ratio: 1.0 - params.ratio("read-ratio") - params.ratio("cas-ratio"),
            small: params.text("values") == "small",
            read_kind: match params.text("read-kind") {
                "serializable" => ReadKind::Serializable,
                "both" => ReadKind::Both,
                _ => ReadKind::Linearizable,
            },
            next_value: 1,
            seen: vec![None; keys],
            drawn: None,
        };
        ops.rate(params.int("rate"), seed).boxed()
    }

    fn final_generator(&self, params: &Params, setup: &Setup) -> Option<Box<dyn Generator>> {
        let keys = 0..params.int("keys");
        let anywhere = keys.clone().map(|key| op(READ).key(key));
        let everywhere = (0..setup.servers.len()).flat_map(|server| {
            let keys = keys.clone();
            keys.map(move |key| op(READ).key(key).on_server(server))
        });
        let anywhere = each_ok(anywhere, 10, 500_000_000);
        Some(anywhere.then(each_ok(everywhere, 2, 200_000_000)).boxed())
    }
}

/// The operations, without their times.
#[derive(Debug, Clone)]
struct Ops {
    random: Random,
    route: Route,
    read_ratio: f64,
    write_ratio: f64,
    small: bool,
    read_kind: ReadKind,
    next_value: u64,
    /// The value last seen on each key.
    seen: Vec<Option<u64>>,
    /// What comes next, whoever does it.
    drawn: Option<Drawn>,
}

#[derive(Debug, Clone, Copy)]
enum ReadKind {
    Linearizable,
    Serializable,
    Both,
}

#[derive(Debug, Clone, Copy)]
struct Drawn {
    key: usize,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Read(&'static str),
    Write(u64),
    Cas(u64),
}

impl Ops {
    fn draw(&mut self) -> Drawn {
        let key = self.random.below(self.seen.len() as u64) as usize;
        let what = if self.random.chance(self.read_ratio) {
            let serializable = match self.read_kind {
                ReadKind::Linearizable => false,
                ReadKind::Serializable => true,
                ReadKind::Both => self.random.chance(0.5),
            };
            What::Read(if serializable {
                READ_SERIALIZABLE
            } else {
                READ
            })
        } else {
            let value = if self.small {
                self.random.below(SMALL)
            } else {
                self.next_value += 1;
                self.next_value - 1
            };
            let updates = 1.0 - self.read_ratio;
            if self.random.chance(self.write_ratio / updates) {
                What::Write(value)
            } else {
                What::Cas(value)
            }
        };
        Drawn { key, what }
    }
}

impl Generator for Ops {
    fn next(&mut self, context: &Context) -> Next {
        let Some(thread) = context.some_free() else {
            return Next::PENDING;
        };
        let drawn = match self.drawn {
            Some(drawn) => drawn,
            None => self.draw(),
        };
        self.drawn = Some(drawn);
        let (f, value) = match drawn.what {
            What::Read(f) => (f, Value::Null),
            What::Write(value) => ("write", Value::from(value)),
            What::Cas(value) => match self.seen[drawn.key] {
                Some(old) => ("cas", json!([old, value])),
                None => ("write", Value::from(value)),
            },
        };
        Next::Op {
            at: context.time,
            op: Invocation {
                thread,
                f,
                key: Value::from(drawn.key),
                value,
                server: self.route.server(thread),
            },
        }
    }

    fn accept(&mut self) {
        self.drawn = None;
    }

    fn update(&mut self, update: &Update<'_>) {
        if update.outcome != Outcome::Ok {
            return;
        }
        let seen = match update.f {
            "cas" => update.value.get(1).and_then(Value::as_u64),
            _ => update.value.as_u64(),
        };
        let key = update
            .key
            .as_u64()
            .and_then(|key| usize::try_from(key).ok());
        if let Some(seen) = seen
            && let Some(slot) = key.and_then(|key| self.seen.get_mut(key))
        {
            *slot = Some(seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{Completion, Trace, perfect, simulate};
    use std::collections::{BTreeMap, BTreeSet};

    const S: u64 = 1_000_000_000;

    fn params(given: Value) -> Params {
        Params::resolve(PARAMS, given.as_object().unwrap().clone()).unwrap()
    }

    fn setup(threads: usize) -> Setup {
        Setup {
            servers: ["n1", "n2", "n3"].map(str::to_owned).to_vec(),
            threads,
            seed: 7,
        }
    }

    fn run(given: Value) -> Trace {
        let generator = Register.generator(&params(given), &setup(6));
        simulate(generator, 6, 100 * S, perfect(1_000_000))
    }

    fn count(trace: &Trace, f: &str) -> usize {
        trace.invocations().filter(|event| event.f == f).count()
    }

    #[test]
    fn rate_ratios_and_routes_are_kept() {
        let trace = run(json!({}));
        let total = trace.invocations().count();
        assert!(total.abs_diff(10_000) < 300, "{total}");
        assert!(count(&trace, "read").abs_diff(total / 2) < 200);
        assert!(count(&trace, "cas").abs_diff(total / 5) < 200);
        assert!(
            trace
                .invocations()
                .all(|event| event.server == Some(event.thread % 3))
        );
        let keys: BTreeSet<u64> = trace
            .invocations()
            .map(|event| event.key.as_u64().unwrap())
            .collect();
        assert_eq!(keys, (0..5).collect());

        let any = run(json!({"route": "any"}));
        assert!(any.invocations().all(|event| event.server.is_none()));
    }

    #[test]
    fn unique_values_are_written_once_and_cas_expects_what_was_seen() {
        let trace = run(json!({"read-ratio": 0.2, "cas-ratio": 0.4}));
        let mut written = BTreeSet::new();
        let mut seen: BTreeMap<u64, Value> = BTreeMap::new();
        for event in &trace.events {
            let key = event.key.as_u64().unwrap();
            let value = match event.f {
                "cas" => &event.value[1],
                _ => &event.value,
            };
            if event.outcome == Outcome::Invoked && event.f != "read" {
                assert!(written.insert(value.as_u64().unwrap()), "{value}");
                if event.f == "cas" {
                    assert_eq!(Some(&event.value[0]), seen.get(&key));
                }
            } else if event.outcome == Outcome::Ok && !value.is_null() {
                seen.insert(key, value.clone());
            }
        }
        assert!(written.len() > 7_000);
    }

    #[test]
    fn small_values_are_few() {
        let trace = run(json!({"values": "small"}));
        let values: BTreeSet<u64> = trace
            .invocations()
            .filter_map(|event| event.value.as_u64())
            .collect();
        assert_eq!(values, (0..SMALL).collect());
    }

    #[test]
    fn serializable_reads_have_a_name_of_their_own_and_may_be_judged() {
        for (kind, judge, functions, reads) in [
            ("linearizable", "linearizable", vec!["read"], vec!["read"]),
            (
                "serializable",
                "all",
                vec!["read-serializable"],
                vec!["read", "read-serializable"],
            ),
            (
                "both",
                "linearizable",
                vec!["read", "read-serializable"],
                vec!["read"],
            ),
        ] {
            let given = json!({"read-kind": kind, "judge-reads": judge});
            let trace = run(given.clone());
            for f in ["read", "read-serializable"] {
                assert_eq!(count(&trace, f) > 0, functions.contains(&f), "{kind} {f}");
            }
            assert_eq!(
                Register.header_params(&params(given))["reads"],
                json!(reads)
            );
        }
    }

    #[test]
    fn at_the_end_every_key_is_read_through_every_server() {
        let mut asked = BTreeSet::new();
        // No first try is answered.
        let model = move |_, op: &Invocation| {
            let first = asked.insert((op.key.as_u64(), op.server));
            let outcome = if first { Outcome::Info } else { Outcome::Ok };
            Completion::after(1_000_000, outcome)
        };
        let generator = Register
            .final_generator(&params(json!({})), &setup(6))
            .unwrap();
        let trace = simulate(generator, 6, 100 * S, model);
        assert_eq!(trace.ended, crate::simulate::Ended::Done);
        let answered: BTreeSet<(u64, Option<usize>)> = trace
            .events
            .iter()
            .filter(|event| event.outcome == Outcome::Ok)
            .map(|event| (event.key.as_u64().unwrap(), event.server))
            .collect();
        assert_eq!(answered.len(), 5 + 15);
        assert_eq!(count(&trace, "read"), trace.invocations().count());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (given, name) in [
            (json!({"keys": 0}), "keys"),
            (json!({"clients": 0}), "clients"),
            (json!({"read-ratio": 0.7, "cas-ratio": 0.4}), "cas-ratio"),
        ] {
            let Error::Param { name: refused, .. } = Register.validate(&params(given)).unwrap_err();
            assert_eq!(refused, name);
        }
        let exact = params(json!({"read-ratio": 0.7, "cas-ratio": 0.3}));
        Register.validate(&exact).unwrap();
    }
}
