//! Who is being harmed by which fault: pure bookkeeping, from the moment before a fault is
//! installed until it was seen to be gone.
//!
//! Three questions are answered from it: may another fault strike now (a process has one fault at a
//! time, and a quorum budget may bound how many servers are harmed at once), does a majority of
//! unharmed servers exist that clients reach, and was there one all the time while a fault lasted.
//! What was actually
//! done to the cluster, and must be undone, is in `installed.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::majority::Picture;
use crate::target::Roster;

/// What one fault harms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Processes, by node and name, that something is done to.
    pub(crate) processes: BTreeSet<(String, String)>,
    /// Whether these processes do not run.
    pub(crate) stopped: bool,
    /// Directed links that are not clear.
    pub(crate) links: BTreeSet<(String, String)>,
    /// Whether these links carry nothing at all (at least at times).
    pub(crate) cut: bool,
}

/// Why a fault cannot strike yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wait {
    #[error("{process} on {node} is in the hands of fault {by}")]
    Occupied {
        node: String,
        process: String,
        by: u64,
    },
    #[error("{harmed} servers would be harmed at once, and the budget is {max}")]
    Budget { harmed: usize, max: usize },
}

/// The faults that are in force.
#[derive(Debug)]
pub(crate) struct Claims {
    servers: Vec<String>,
    clients: Vec<String>,
    max_harmed: Option<usize>,
    held: BTreeMap<u64, Held>,
}

#[derive(Debug)]
struct Held {
    claim: Claim,
    majority_all_along: bool,
}

impl Claims {
    pub(crate) fn new(roster: &Roster, max_harmed: Option<usize>) -> Claims {
        Claims {
            servers: roster.servers.clone(),
            clients: roster.clients.clone(),
            max_harmed,
            held: BTreeMap::new(),
        }
    }

    /// Lets a fault strike, or says why it has to wait.
    pub(crate) fn admit(&mut self, id: u64, claim: Claim) -> Result<(), Wait> {
        for (&by, held) in &self.held {
            if let Some((node, process)) =
                held.claim.processes.intersection(&claim.processes).next()
            {
                let (node, process) = (node.clone(), process.clone());
                return Err(Wait::Occupied { node, process, by });
            }
        }
        let harmed = self.picture(Some(&claim), Harm::Any).harmed();
        if let Some(max) = self.max_harmed
            && harmed > max
        {
            return Err(Wait::Budget { harmed, max });
        }
        self.held.insert(
            id,
            Held {
                claim,
                majority_all_along: true,
            },
        );
        let majority = self.has_majority();
        for held in self.held.values_mut() {
            held.majority_all_along &= majority;
        }
        Ok(())
    }

    /// Ends a fault and says whether there was a majority all the time while it lasted.
    pub(crate) fn release(&mut self, id: u64) -> bool {
        self.held
            .remove(&id)
            .is_none_or(|held| held.majority_all_along)
    }

    /// Whether a majority of unharmed servers, each within the reach of some client, can talk to a
    /// possible leader now. What no client can ask for cannot be expected to be done.
    pub(crate) fn has_majority(&self) -> bool {
        let mut picture = self.picture(None, Harm::Stopped);
        for (at, server) in self.servers.iter().enumerate() {
            let reached = self
                .clients
                .iter()
                .any(|client| self.reaches(client, server));
            if !reached && !self.clients.is_empty() {
                picture.set_down(at);
            }
        }
        picture.has_majority()
    }

    /// Whether a client runs, and its link to a server carries packets in both directions.
    fn reaches(&self, client: &str, server: &str) -> bool {
        let ends = [(client, server), (server, client)];
        self.held.values().map(|held| &held.claim).all(|claim| {
            let joins = |(from, to): &(String, String)| ends.contains(&(from, to));
            let is_client = |(node, _): &(String, String)| node == client;
            let stopped = claim.stopped && claim.processes.iter().any(is_client);
            let cut = claim.cut && claim.links.iter().any(joins);
            !stopped && !cut
        })
    }

    fn picture(&self, candidate: Option<&Claim>, harm: Harm) -> Picture {
        let mut picture = Picture::whole(self.servers.len());
        let at = |name: &str| self.servers.iter().position(|server| server == name);
        for claim in self.held.values().map(|held| &held.claim).chain(candidate) {
            for (node, _) in &claim.processes {
                if let Some(server) = at(node)
                    && (claim.stopped || harm == Harm::Any)
                {
                    picture.set_down(server);
                }
            }
            for (from, to) in &claim.links {
                if let (Some(from), Some(to)) = (at(from), at(to))
                    && (claim.cut || harm == Harm::Any)
                {
                    picture.set_cut(from, to);
                }
            }
        }
        picture
    }
}

/// Which harm a picture shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// Slow and lossy links and wrong clocks, too.
    Any,
    /// Only what carries or does nothing.
    Stopped,
}

/// How many servers a claim harms on its own.
pub(crate) fn harmed_alone<'a>(
    servers: &[String],
    claims: impl IntoIterator<Item = &'a Claim>,
) -> usize {
    let roster = Roster {
        servers: servers.to_vec(),
        ..Roster::default()
    };
    let mut all = Claims::new(&roster, None);
    for (id, claim) in claims.into_iter().enumerate() {
        all.held.insert(
            id as u64,
            Held {
                claim: claim.clone(),
                majority_all_along: true,
            },
        );
    }
    all.picture(None, Harm::Any).harmed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(n: usize) -> Roster {
        Roster {
            servers: (1..=n).map(|at| format!("n{at}")).collect(),
            ..Roster::default()
        }
    }

    fn down(node: &str) -> Claim {
        let process = (node.to_owned(), "db".to_owned());
        Claim {
            processes: BTreeSet::from([process]),
            stopped: true,
            ..Claim::default()
        }
    }

    fn cut(pairs: &[(&str, &str)]) -> Claim {
        let link = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
        Claim {
            links: pairs.iter().map(link).collect(),
            cut: true,
            ..Claim::default()
        }
    }

    #[test]
    fn the_majority_is_remembered_for_each_fault() {
        let mut claims = Claims::new(&servers(3), None);
        claims.admit(1, down("n1")).unwrap();
        assert!(claims.has_majority());
        claims.admit(2, cut(&[("n2", "n3")])).unwrap();
        assert!(!claims.has_majority());
        assert!(!claims.release(2));
        claims.admit(3, down("c1")).unwrap();
        assert!(claims.release(3));
        assert!(!claims.release(1), "it was lost for a while");
    }

    #[test]
    fn a_majority_that_no_client_reaches_is_none() {
        let clients = vec!["c1".to_owned(), "c2".to_owned()];
        let roster = Roster {
            clients,
            ..servers(3)
        };
        let mut claims = Claims::new(&roster, None);
        // The clients are left with n1, which is cut from the others.
        claims.admit(1, cut(&[("n1", "n2"), ("n1", "n3")])).unwrap();
        assert!(claims.has_majority());
        claims
            .admit(2, cut(&[("c1", "n2"), ("n3", "c1"), ("c1", "n3")]))
            .unwrap();
        assert!(claims.has_majority(), "c2 reaches them");
        claims.admit(3, down("c2")).unwrap();
        assert!(!claims.has_majority());
        assert!(!claims.release(3));
        claims.admit(4, cut(&[("n2", "c2")])).unwrap();
        assert!(!claims.has_majority(), "no answer of n2 comes back");
        claims.release(4);
        assert!(claims.has_majority());
    }

    #[test]
    fn a_process_has_one_fault_at_a_time() {
        let mut claims = Claims::new(&servers(3), None);
        claims.admit(1, down("n1")).unwrap();
        let wait = claims.admit(2, down("n1")).unwrap_err();
        assert!(matches!(wait, Wait::Occupied { by: 1, .. }), "{wait}");
        claims.release(1);
        claims.admit(2, down("n1")).unwrap();
    }

    #[test]
    fn the_budget_counts_across_families() {
        let mut claims = Claims::new(&servers(5), Some(2));
        claims.admit(1, down("n1")).unwrap();
        claims.admit(2, cut(&[("n2", "n3"), ("n3", "n2")])).unwrap();
        let wait = claims.admit(3, down("n4")).unwrap_err();
        assert_eq!(wait, Wait::Budget { harmed: 3, max: 2 });
        // A cut that touches a server which is down already harms nobody else.
        claims.admit(3, cut(&[("n1", "n4")])).unwrap();
        // Clients are not counted.
        claims.admit(4, down("c1")).unwrap();
        claims.release(2);
        claims.admit(5, down("n4")).unwrap();
    }

    #[test]
    fn wrong_clocks_count_for_the_budget_and_not_against_the_majority() {
        let skewed = |node| Claim {
            stopped: false,
            ..down(node)
        };
        let roster = Roster {
            clients: vec!["c1".to_owned()],
            ..servers(3)
        };
        let mut claims = Claims::new(&roster, Some(2));
        for (id, node) in [(1, "n1"), (2, "n2"), (3, "c1")] {
            claims.admit(id, skewed(node)).unwrap();
        }
        assert!(claims.has_majority());
        let wait = claims.admit(4, down("n3")).unwrap_err();
        assert_eq!(wait, Wait::Budget { harmed: 3, max: 2 });
        let wait = claims.admit(4, down("n1")).unwrap_err();
        assert!(matches!(wait, Wait::Occupied { by: 1, .. }), "{wait}");
    }

    #[test]
    fn slow_links_count_for_the_budget_and_not_against_the_majority() {
        let mut claims = Claims::new(&servers(3), Some(1));
        let slow = Claim {
            cut: false,
            ..cut(&[("n1", "n2"), ("n1", "n3"), ("n2", "n3")])
        };
        assert!(matches!(
            claims.admit(1, slow.clone()),
            Err(Wait::Budget { harmed: 2, max: 1 })
        ));
        let mut claims = Claims::new(&servers(3), None);
        claims.admit(1, slow).unwrap();
        assert!(claims.has_majority());
    }
}
