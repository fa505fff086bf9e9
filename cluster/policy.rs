//! Link policies: what the network does to the frames of one directed link, and the matrix of them.
//! The switch (`switch.rs`) obeys them; `network.rs` sends them there.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// What happens to the frames of one directed link. Write it with `..LinkPolicy::CLEAR`: kinds of
/// harm will be added.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkPolicy {
    /// Nothing passes. Frames that were under way (delayed) when the cut was made are dropped too:
    /// the cut is looked at again when they are due.
    pub drop: bool,
    /// Each frame is lost with this probability, from 0 to 1. It is drawn when the frame arrives at
    /// the switch, from a generator that belongs to this link alone.
    pub loss: f64,
    /// Frames leave this much later than they came.
    pub delay: Duration,
    /// The delay varies uniformly by up to this much in either direction, never below zero. Frames
    /// keep their order on a link, so that a slow frame holds back the ones behind it.
    pub jitter: Duration,
}

impl LinkPolicy {
    /// Everything passes at once.
    pub const CLEAR: Self = Self {
        drop: false,
        loss: 0.0,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
    };

    /// Nothing passes.
    pub const CUT: Self = Self {
        drop: true,
        ..Self::CLEAR
    };

    fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.loss) {
            return Err(format!("a loss of {} is not between 0 and 1", self.loss));
        }
        let longest = Duration::from_secs(3600);
        if self.delay > longest || self.jitter > longest {
            return Err("a delay of more than an hour".to_owned());
        }
        Ok(())
    }
}

impl Default for LinkPolicy {
    fn default() -> Self {
        Self::CLEAR
    }
}

/// A policy for every directed link of a cluster, applied as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkMatrix {
    names: Vec<String>,
    links: Vec<LinkPolicy>,
}

impl LinkMatrix {
    /// All links clear, between nodes of these names, in the order of the cluster.
    #[must_use]
    pub fn clear(names: &[String]) -> Self {
        Self {
            names: names.to_vec(),
            links: vec![LinkPolicy::CLEAR; names.len() * names.len()],
        }
    }

    /// The names of the nodes, in the order of the indices.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The index of a node.
    ///
    /// # Errors
    /// [`Error::UnknownNode`].
    pub fn index(&self, name: &str) -> Result<usize, Error> {
        self.names
            .iter()
            .position(|known| known == name)
            .ok_or_else(|| Error::UnknownNode(name.to_owned()))
    }

    /// The policy from one node to another.
    ///
    /// # Errors
    /// [`Error::UnknownNode`].
    pub fn get(&self, from: &str, to: &str) -> Result<&LinkPolicy, Error> {
        Ok(self.at(self.index(from)?, self.index(to)?))
    }

    /// Sets the policy from one node to another; the way back keeps its own.
    ///
    /// # Errors
    /// [`Error::UnknownNode`].
    pub fn set(&mut self, from: &str, to: &str, policy: LinkPolicy) -> Result<&mut Self, Error> {
        let (from, to) = (self.index(from)?, self.index(to)?);
        *self.at_mut(from, to) = policy;
        Ok(self)
    }

    /// Sets the policy of both directions.
    ///
    /// # Errors
    /// [`Error::UnknownNode`].
    pub fn set_both(&mut self, a: &str, b: &str, policy: LinkPolicy) -> Result<&mut Self, Error> {
        self.set(a, b, policy)?;
        self.set(b, a, policy)
    }

    /// The policy from one node to another, by index.
    ///
    /// # Panics
    /// When an index is out of range.
    #[must_use]
    pub fn at(&self, from: usize, to: usize) -> &LinkPolicy {
        &self.links[from * self.names.len() + to]
    }

    /// The policy from one node to another, by index, to be changed.
    ///
    /// # Panics
    /// When an index is out of range.
    pub fn at_mut(&mut self, from: usize, to: usize) -> &mut LinkPolicy {
        &mut self.links[from * self.names.len() + to]
    }

    /// The links that are not clear, with the indices of their ends.
    pub(crate) fn harmed(&self) -> Result<Vec<(u16, u16, LinkPolicy)>, Error> {
        let n = self.names.len();
        let mut harmed = Vec::new();
        for (at, policy) in self.links.iter().enumerate() {
            let (from, to) = (at / n, at % n);
            policy.check().map_err(|what| {
                Error::Spec(format!(
                    "{what} ({} > {})",
                    self.names[from], self.names[to]
                ))
            })?;
            if *policy != LinkPolicy::CLEAR {
                harmed.push((from as u16, to as u16, *policy));
            }
        }
        Ok(harmed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> LinkMatrix {
        LinkMatrix::clear(&["n1".to_owned(), "n2".to_owned(), "c1".to_owned()])
    }

    #[test]
    fn links_are_directed() {
        let mut matrix = matrix();
        matrix.set("n1", "c1", LinkPolicy::CUT).unwrap();
        assert!(matrix.get("n1", "c1").unwrap().drop);
        assert!(!matrix.get("c1", "n1").unwrap().drop);
        assert_eq!(matrix.harmed().unwrap(), vec![(0, 2, LinkPolicy::CUT)]);
    }

    #[test]
    fn unknown_nodes_and_impossible_policies_are_refused() {
        let mut matrix = matrix();
        assert!(matches!(
            matrix.set("n1", "n9", LinkPolicy::CUT),
            Err(Error::UnknownNode(name)) if name == "n9"
        ));
        matrix
            .set(
                "n1",
                "n2",
                LinkPolicy {
                    loss: 1.5,
                    ..LinkPolicy::CLEAR
                },
            )
            .unwrap();
        assert!(matrix.harmed().unwrap_err().to_string().contains("n1 > n2"));
    }
}
