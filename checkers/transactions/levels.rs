//! Isolation levels by the names that Elle uses, what each implies, and which anomalies it forbids.
//!
//! A level forbids what it names, what the levels that it implies forbid, and every anomaly that
//! is also one of those. Whether the order within sessions counts is part of the level: plain
//! `serializable` and `snapshot-isolation` ignore it, `strong-session-...` do not, and `strong-...`
//! and `strict-serializable` keep the order of real time as well. Sources: Adya 1999; Adya, Liskov
//! and O'Neil 2000; Daudjee and Salem 2004 and 2006; Bailis et al. 2013; Cerone, Bernardi and
//! Gotsman 2015; Cerone and Gotsman 2016 and 2018.

use super::anomalies::{Anomaly, Base, Needs};
use crate::params::{Param, Takes};

/// An isolation level.
pub(crate) struct Level {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    /// The next weaker ones, which stand before it in [`LEVELS`].
    implies: &'static [&'static str],
    /// What it forbids beyond them.
    forbids: &'static [Anomaly],
}

/// The level that is meant where none is named.
pub(crate) const DEFAULT: &str = "strict-serializable";

const fn data(base: Base) -> Anomaly {
    base.with(Needs::Data)
}

/// G1 of Adya: its three parts.
const G1: [Anomaly; 3] = [data(Base::G1a), data(Base::G1b), data(Base::G1c)];

/// All levels, weaker ones before stronger ones.
pub(crate) static LEVELS: &[Level] = &[
    Level {
        name: "read-uncommitted",
        aliases: &["PL-1"],
        implies: &[],
        forbids: &[
            data(Base::G0),
            data(Base::DuplicateElements),
            data(Base::CyclicVersions),
        ],
    },
    Level {
        name: "strong-session-read-uncommitted",
        aliases: &["strong-session-PL-1"],
        implies: &["read-uncommitted"],
        forbids: &[Base::G0.with(Needs::Process)],
    },
    Level {
        name: "strong-read-uncommitted",
        aliases: &["strong-PL-1"],
        implies: &["strong-session-read-uncommitted"],
        forbids: &[Base::G0.with(Needs::Realtime)],
    },
    Level {
        name: "read-committed",
        aliases: &["PL-2"],
        implies: &["read-uncommitted"],
        forbids: &G1,
    },
    Level {
        name: "strong-session-read-committed",
        aliases: &["strong-session-PL-2"],
        implies: &["read-committed", "strong-session-read-uncommitted"],
        forbids: &[Base::G1c.with(Needs::Process)],
    },
    Level {
        name: "strong-read-committed",
        aliases: &["strong-PL-2"],
        implies: &["strong-session-read-committed", "strong-read-uncommitted"],
        forbids: &[Base::G1c.with(Needs::Realtime)],
    },
    Level {
        name: "monotonic-view",
        aliases: &["PL-2L"],
        implies: &["read-committed"],
        forbids: &[],
    },
    Level {
        name: "monotonic-snapshot-read",
        aliases: &["PL-MSR"],
        implies: &["read-committed"],
        forbids: &[],
    },
    Level {
        name: "monotonic-atomic-view",
        aliases: &[],
        implies: &["read-committed"],
        forbids: &[data(Base::ObservedVanishes)],
    },
    Level {
        name: "cursor-stability",
        aliases: &["PL-CS"],
        implies: &["read-committed"],
        forbids: &[data(Base::LostUpdate)],
    },
    Level {
        name: "consistent-view",
        aliases: &["PL-2+"],
        implies: &["cursor-stability", "monotonic-view"],
        forbids: &[data(Base::GSingle)],
    },
    Level {
        name: "forward-consistent-view",
        aliases: &["PL-FCV"],
        implies: &["consistent-view"],
        forbids: &[],
    },
    Level {
        name: "update-serializable",
        aliases: &["PL-3U"],
        implies: &["forward-consistent-view"],
        forbids: &[],
    },
    Level {
        name: "read-atomic",
        aliases: &[],
        implies: &["monotonic-atomic-view"],
        forbids: &[
            data(Base::Internal),
            data(Base::FutureRead),
            data(Base::FracturedRead),
        ],
    },
    Level {
        name: "causal-cerone",
        aliases: &["causal"],
        implies: &["read-atomic"],
        forbids: &[data(Base::CausalityViolation)],
    },
    Level {
        name: "ROLA",
        aliases: &[],
        implies: &["read-atomic"],
        forbids: &[data(Base::LostUpdate)],
    },
    // Without an order of sessions it forbids exactly G1 and G-single: Cerone and Gotsman 2018.
    Level {
        name: "parallel-snapshot-isolation",
        aliases: &[],
        implies: &["causal-cerone", "ROLA"],
        forbids: &[data(Base::GSingle)],
    },
    Level {
        name: "prefix",
        aliases: &[],
        implies: &["causal-cerone"],
        forbids: &[],
    },
    Level {
        name: "repeatable-read",
        aliases: &["PL-2.99"],
        implies: &["cursor-stability", "monotonic-atomic-view"],
        forbids: &[data(Base::G2Item)],
    },
    Level {
        name: "snapshot-isolation",
        aliases: &["PL-SI"],
        implies: &[
            "forward-consistent-view",
            "monotonic-snapshot-read",
            "parallel-snapshot-isolation",
            "prefix",
        ],
        forbids: &[data(Base::GNonadjacent)],
    },
    Level {
        name: "strong-session-snapshot-isolation",
        aliases: &[],
        implies: &["snapshot-isolation", "strong-session-read-committed"],
        forbids: &[
            Base::CausalityViolation.with(Needs::Process),
            Base::GNonadjacent.with(Needs::Process),
        ],
    },
    Level {
        name: "strong-snapshot-isolation",
        aliases: &[],
        implies: &["strong-session-snapshot-isolation", "strong-read-committed"],
        forbids: &[
            Base::CausalityViolation.with(Needs::Realtime),
            Base::GNonadjacent.with(Needs::Realtime),
        ],
    },
    Level {
        name: "serializable",
        aliases: &["PL-3", "conflict-serializable"],
        implies: &[
            "repeatable-read",
            "snapshot-isolation",
            "update-serializable",
        ],
        forbids: &[data(Base::G2), data(Base::NoSerialOrder)],
    },
    Level {
        name: "strong-session-serializable",
        aliases: &[],
        implies: &["serializable", "strong-session-snapshot-isolation"],
        forbids: &[
            Base::G2.with(Needs::Process),
            Base::NoSerialOrder.with(Needs::Process),
        ],
    },
    Level {
        name: DEFAULT,
        aliases: &["PL-SS", "strong-serializable"],
        implies: &["strong-session-serializable", "strong-snapshot-isolation"],
        forbids: &[
            Base::G2.with(Needs::Realtime),
            Base::NoSerialOrder.with(Needs::Realtime),
        ],
    },
];

/// How many names and aliases there are.
const NAME_COUNT: usize = {
    let (mut count, mut at) = (0, 0);
    while at < LEVELS.len() {
        count += 1 + LEVELS[at].aliases.len();
        at += 1;
    }
    count
};

/// All names and aliases, the strongest level first.
pub(crate) static NAMES: [&str; NAME_COUNT] = {
    let mut names = [""; NAME_COUNT];
    let (mut filled, mut at) = (0, LEVELS.len());
    while at > 0 {
        at -= 1;
        names[filled] = LEVELS[at].name;
        filled += 1;
        let mut alias = 0;
        while alias < LEVELS[at].aliases.len() {
            names[filled] = LEVELS[at].aliases[alias];
            filled += 1;
            alias += 1;
        }
    }
    names
};

/// The level that is promised.
pub(crate) const LEVEL: Param = Param {
    name: "level",
    takes: Takes::Word(&NAMES),
    default: DEFAULT,
    about: "the isolation level that is promised; `strong-session` ones keep the order within \
            sessions, `strong` ones and `strict-serializable` that of real time as well",
};

/// The level with this name or alias.
pub(crate) fn find(name: &str) -> Option<&'static Level> {
    LEVELS
        .iter()
        .find(|level| level.name == name || level.aliases.contains(&name))
}

impl Level {
    /// Whether an anomaly shows that a history is not of this level.
    pub(crate) fn forbids(&self, anomaly: Anomaly) -> bool {
        self.forbids.iter().any(|&other| anomaly.implies(other))
            || self.weaker().any(|level| level.forbids(anomaly))
    }

    /// Whether every history of this level is one of that level.
    pub(crate) fn implies(&self, other: &Level) -> bool {
        self.name == other.name || self.weaker().any(|level| level.implies(other))
    }

    fn weaker(&self) -> impl Iterator<Item = &'static Level> {
        let names = self.implies.iter();
        names.map(|name| find(name).expect("a level implies levels"))
    }
}

/// The weakest levels that some of these anomalies rule out; all stronger ones are ruled out too.
pub(crate) fn weakest_ruled_out(anomalies: &[Anomaly]) -> Vec<&'static Level> {
    let out: Vec<&Level> = LEVELS
        .iter()
        .filter(|level| anomalies.iter().any(|&anomaly| level.forbids(anomaly)))
        .collect();
    let weaker = |level: &Level| {
        out.iter()
            .any(|other| other.name != level.name && level.implies(other))
    };
    out.iter().copied().filter(|level| !weaker(level)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weakest(anomaly: Anomaly) -> Vec<&'static str> {
        let levels = weakest_ruled_out(&[anomaly]);
        levels.iter().map(|level| level.name).collect()
    }

    /// No level implies itself through others, and every name is one level.
    #[test]
    fn weaker_levels_stand_before_stronger_ones() {
        let mut names: Vec<&str> = Vec::new();
        for level in LEVELS {
            for weaker in level.implies {
                assert!(names.contains(weaker), "{} before {weaker}", level.name);
            }
            names.push(level.name);
            names.extend(level.aliases);
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    /// The strictest level implies all others.
    #[test]
    fn strict_serializability_is_the_strongest() {
        let strict = find(DEFAULT).unwrap();
        assert_eq!(NAMES[0], DEFAULT);
        for level in LEVELS {
            assert!(strict.implies(level), "{}", level.name);
        }
    }

    #[test]
    fn anomalies_rule_out_the_levels_of_the_literature() {
        assert_eq!(weakest(Base::G0.into()), ["read-uncommitted"]);
        assert_eq!(weakest(Base::G1c.into()), ["read-committed"]);
        assert_eq!(weakest(Base::DirtyUpdate.into()), ["read-committed"]);
        assert_eq!(
            weakest(Base::GSingle.into()),
            [
                "consistent-view",
                "parallel-snapshot-isolation",
                "repeatable-read"
            ]
        );
        assert_eq!(
            weakest(Base::GNonadjacent.into()),
            ["repeatable-read", "snapshot-isolation"]
        );
        assert_eq!(weakest(Base::G2Item.into()), ["repeatable-read"]);
        assert_eq!(weakest(Base::G2.into()), ["serializable"]);
        assert_eq!(
            weakest(Base::LostUpdate.into()),
            ["cursor-stability", "ROLA"]
        );
        assert_eq!(
            weakest(Base::G2Item.with(Needs::Process)),
            ["strong-session-serializable"]
        );
        assert_eq!(
            weakest(Base::GSingle.with(Needs::Realtime)),
            ["strong-snapshot-isolation"]
        );
        assert_eq!(weakest(Base::Internal.into()), ["read-atomic"]);
    }

    #[test]
    fn snapshot_isolation_allows_write_skew() {
        let snapshot = find("PL-SI").unwrap();
        assert!(!snapshot.forbids(Base::G2Item.into()));
        assert!(snapshot.forbids(Base::GNonadjacent.into()));
        assert!(!snapshot.forbids(Base::GSingle.with(Needs::Process)));
    }
}
