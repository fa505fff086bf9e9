//! What can be wrong with transactions, by the names of the literature.
//!
//! | name | what it is | source |
//! |---|---|---|
//! | `G0` | write cycle: ww | Adya 1999 |
//! | `G1a`, `G1b` | read of an aborted, of an intermediate version | Adya 1999 |
//! | `G1c` | circular information flow: ww and wr, at least one wr | Adya 1999 |
//! | `G-single` | ww, wr and exactly one rw | Adya 1999 |
//! | `G-nonadjacent` | ww, wr and rw, no two rw following each other | Cerone and Gotsman 2016 |
//! | `G2-item` | ww, wr and rw on items | Adya 1999 |
//! | `internal` | a read that contradicts what its own transaction read or wrote before | Cerone et al. 2015 |
//! | `future-read` | a read of what its own transaction writes later | Elle |
//! | `lost-update` | two transactions read a version and both write on it | Adya 1999, Bailis et al. 2013 |
//! | `observed-transaction-vanishes`, `fractured-read`, `causality-violation` | see [`super::weak`] | Bailis et al. 2013 and 2014, Biswas and Enea 2019 |
//! | `no-serial-order` | no order of the transactions one after the other explains what they read | Papadimitriou 1979 |
//! | `dirty-update`, `incompatible-order`, `duplicate-elements`, `cyclic-versions` | see below | Elle, VLDB 2020 |
//!
//! A cycle that also needs the order within sessions is `-process`, one that needs the order in
//! real time is `-realtime`. Without predicates every anti-dependency is one on items.

/// What is wrong, whatever orders it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Base {
    /// An element is in a list more than once, though it was appended once.
    DuplicateElements,
    /// The orders of versions that were observed contradict each other in a cycle.
    CyclicVersions,
    /// A read of what nobody wrote.
    GarbageRead,
    /// Two reads of one list of which neither is the beginning of the other.
    IncompatibleOrder,
    /// A read of what an aborted transaction wrote.
    G1a,
    /// A committed write on top of what an aborted transaction wrote.
    DirtyUpdate,
    /// A read of what was not the last write of its transaction.
    G1b,
    /// A read that contradicts what its own transaction read or wrote before.
    Internal,
    /// A read of what its own transaction writes later.
    FutureRead,
    /// A cycle of write dependencies.
    G0,
    /// A cycle of write and read dependencies.
    G1c,
    /// A transaction reads something of another, and then something older than what that wrote.
    ObservedVanishes,
    /// A transaction reads a part of what another wrote, or of what its session wrote.
    FracturedRead,
    /// A transaction reads something older than what is before it.
    CausalityViolation,
    /// Two transactions read one version and both write on it.
    LostUpdate,
    /// A cycle with one anti-dependency.
    GSingle,
    /// A cycle with anti-dependencies of which no two follow each other.
    GNonadjacent,
    /// A cycle with anti-dependencies on items, two of which follow each other.
    G2Item,
    /// A cycle with anti-dependencies, also on predicates.
    G2,
    /// No order of transactions one after the other explains what they read.
    NoSerialOrder,
}

/// The weakest order beyond that of versions which an anomaly needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Needs {
    /// None.
    Data,
    /// The order of transactions within a session.
    Process,
    /// The order of transactions in real time.
    Realtime,
}

impl Needs {
    /// All, the weakest first.
    pub(crate) const ALL: [Needs; 3] = [Needs::Data, Needs::Process, Needs::Realtime];
}

/// An anomaly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Anomaly {
    pub(crate) needs: Needs,
    pub(crate) base: Base,
}

impl From<Base> for Anomaly {
    fn from(base: Base) -> Anomaly {
        base.with(Needs::Data)
    }
}

impl Base {
    /// This anomaly, in need of an order.
    pub(crate) const fn with(self, needs: Needs) -> Anomaly {
        Anomaly { needs, base: self }
    }

    /// What an anomaly of this kind is one of, too.
    fn implied(self) -> &'static [Base] {
        match self {
            Base::GarbageRead | Base::IncompatibleOrder | Base::DirtyUpdate => &[Base::G1a],
            Base::FutureRead | Base::G0 => &[Base::G1c],
            Base::ObservedVanishes => &[Base::FracturedRead],
            Base::FracturedRead => &[Base::CausalityViolation],
            Base::LostUpdate | Base::GNonadjacent => &[Base::G2Item],
            Base::GSingle => &[Base::GNonadjacent],
            Base::G2Item => &[Base::G2],
            _ => &[],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Base::DuplicateElements => "duplicate-elements",
            Base::CyclicVersions => "cyclic-versions",
            Base::GarbageRead => "garbage-read",
            Base::IncompatibleOrder => "incompatible-order",
            Base::G1a => "G1a",
            Base::DirtyUpdate => "dirty-update",
            Base::G1b => "G1b",
            Base::Internal => "internal",
            Base::FutureRead => "future-read",
            Base::G0 => "G0",
            Base::G1c => "G1c",
            Base::ObservedVanishes => "observed-transaction-vanishes",
            Base::FracturedRead => "fractured-read",
            Base::CausalityViolation => "causality-violation",
            Base::LostUpdate => "lost-update",
            Base::GSingle => "G-single",
            Base::GNonadjacent => "G-nonadjacent",
            Base::G2Item => "G2-item",
            Base::G2 => "G2",
            Base::NoSerialOrder => "no-serial-order",
        }
    }
}

impl Anomaly {
    /// Whether an anomaly of this kind is also one of that kind: a cycle of writes is one of
    /// writes and reads, and one that needs no order of sessions does with it.
    pub(crate) fn implies(self, other: Anomaly) -> bool {
        let mut bases = vec![self.base];
        while let Some(base) = bases.pop() {
            if base == other.base {
                return self.needs <= other.needs;
            }
            bases.extend(base.implied());
        }
        false
    }
}

impl std::fmt::Display for Anomaly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let suffix = match self.needs {
            Needs::Data => "",
            Needs::Process => "-process",
            Needs::Realtime => "-realtime",
        };
        write!(f, "{}{suffix}", self.base.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worse_implies_what_is_less_bad() {
        let single = Anomaly::from(Base::GSingle);
        assert!(single.implies(Base::G2.with(Needs::Realtime)));
        assert!(single.implies(Base::GNonadjacent.into()));
        assert!(!Base::GSingle.with(Needs::Process).implies(single));
        assert!(!Anomaly::from(Base::G2Item).implies(single));
        assert!(Anomaly::from(Base::DirtyUpdate).implies(Base::G1a.into()));
        assert_eq!(
            Base::G2Item.with(Needs::Realtime).to_string(),
            "G2-item-realtime"
        );
    }
}
