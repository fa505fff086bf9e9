//! What writes without an answer must have done to a register with revisions.
//!
//! A [`Gap`] lies between two revisions that were seen. It is filled by a chain of operations
//! without an answer, each used once, that leads from the first revision to where the second is
//! possible. All of them must have been called before anything of the second or later returned;
//! nothing else restricts them, since they never must be over. A gap that needs none gains nothing
//! from one. So there is an order if and only if chains for all gaps can be found, which is
//! searched for gap by gap; those that are of use to the fewest gaps are tried first, so that
//! good histories need no second try.

use rustc_hash::FxHashMap;

use super::models::{Expected, NEVER, Revision, State, Timed, VersionedOp};

/// Where answered operations do not explain what was seen.
#[derive(Debug, Clone)]
pub(crate) struct Gap {
    /// What was seen before.
    pub(crate) before: State,
    pub(crate) before_seen: Option<usize>,
    /// What must be possible after it: a read of what nobody is known to have written, or a cas.
    pub(crate) until: VersionedOp,
    /// The place of that.
    pub(crate) seen: usize,
    /// The first return of what comes after the gap.
    pub(crate) deadline: u32,
}

impl Gap {
    /// Whether there may be a revision between those that were seen, and one that a cas expects.
    fn has_room(&self) -> bool {
        let (Revision::Is(before) | Revision::AtLeast(before)) = self.before.1;
        match self.until {
            VersionedOp::Cas(Expected::Value(_), _, Some(revision)) => before + 1 < revision,
            VersionedOp::Cas(Expected::Revision(expected), _, Some(revision)) => {
                before < expected && expected < revision
            }
            _ => true,
        }
    }
}

/// Whether all gaps were filled.
pub(crate) enum Filled {
    All,
    /// No choice fills all.
    Not,
    /// There are too many choices.
    Undecided,
}

/// So many chains are tried besides one for each gap.
const TRIES_MAX: usize = 20_000;

/// Operations of a gap, by the numbers of their classes.
type Chain = Vec<u32>;

/// Operations without an answer of equal effect.
struct Class {
    op: VersionedOp,
    /// In order.
    calls: Vec<u32>,
}

/// The operations without an answer.
pub(crate) struct Unanswered {
    classes: Vec<Class>,
    /// The numbers of all classes.
    all: Vec<u32>,
    /// The classes that write a value; those that do so only where it helps the fewest gaps first.
    writers: FxHashMap<u32, Vec<u32>>,
}

impl Unanswered {
    /// Those of a history.
    pub(crate) fn of(ops: &[Timed<VersionedOp>]) -> Unanswered {
        let mut at: FxHashMap<VersionedOp, usize> = FxHashMap::default();
        let mut classes: Vec<Class> = Vec::new();
        for timed in ops.iter().filter(|timed| timed.ret == NEVER) {
            let class = *at.entry(timed.op).or_insert(classes.len());
            if class == classes.len() {
                classes.push(Class {
                    op: timed.op,
                    calls: Vec::new(),
                });
            }
            classes[class].calls.push(timed.call);
        }
        classes.sort_by_key(|class| generality(&class.op));
        let mut writers: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (number, class) in (0u32..).zip(&classes) {
            writers.entry(written(&class.op)).or_default().push(number);
        }
        Unanswered {
            all: (0u32..).take(classes.len()).collect(),
            classes,
            writers,
        }
    }

    /// The first gap that nothing fills, whatever operations expect and however often they are used.
    pub(crate) fn hopeless<'g>(&self, gaps: &'g [Gap]) -> Option<&'g Gap> {
        let called = |classes: &[u32], deadline: u32| {
            let calls = classes.iter().map(|&class| {
                let calls = &self.classes[class as usize].calls;
                calls.partition_point(|&call| call < deadline)
            });
            calls.sum::<usize>()
        };
        let few = |gap: &&Gap| !gap.has_room() || called(self.last_of(gap), gap.deadline) == 0;
        gaps.iter().find(few)
    }

    /// The classes that may be the last to fill a gap.
    fn last_of(&self, gap: &Gap) -> &[u32] {
        match gap.until {
            VersionedOp::Read(value, _) | VersionedOp::Cas(Expected::Value(value), ..) => {
                self.writers.get(&value).map_or(&[], Vec::as_slice)
            }
            VersionedOp::Write(..) | VersionedOp::Cas(Expected::Revision(_), ..) => &self.all,
        }
    }

    /// Finds chains for all gaps.
    pub(crate) fn fill(&self, gaps: &[Gap]) -> Filled {
        let mut filling = Filling {
            unanswered: self,
            used: vec![0; self.classes.len()],
            path: Vec::new(),
        };
        let mut tries = 0;
        loop {
            let filled = filling.path.len();
            let Some(gap) = gaps.get(filled) else {
                return Filled::All;
            };
            tries += 1;
            if tries > gaps.len() + TRIES_MAX {
                return Filled::Undecided;
            }
            filling.path.push(Choice {
                chains: filling.short_chains(gap),
                chosen: 0,
                are_all: false,
            });
            match filling.go_on(gaps) {
                Ok(true) => {}
                Ok(false) => return Filled::Not,
                Err(TooMany) => return Filled::Undecided,
            }
        }
    }
}

fn written(op: &VersionedOp) -> u32 {
    match *op {
        VersionedOp::Read(value, _)
        | VersionedOp::Write(value, _)
        | VersionedOp::Cas(_, value, _) => value,
    }
}

/// How many gaps an operation may be of use to, roughly.
fn generality(op: &VersionedOp) -> u32 {
    match op {
        VersionedOp::Cas(Expected::Revision(_), ..) => 0,
        VersionedOp::Cas(Expected::Value(_), ..) => 1,
        VersionedOp::Read(..) | VersionedOp::Write(..) => 2,
    }
}

/// What may fill a gap, and how many of that were tried.
struct Choice {
    chains: Vec<Chain>,
    chosen: usize,
    /// Whether chains of more than one operation are among them.
    are_all: bool,
}

/// There are too many chains.
struct TooMany;

struct Filling<'u> {
    unanswered: &'u Unanswered,
    /// How many operations of each class are used, those that were called first.
    used: Vec<u32>,
    path: Vec<Choice>,
}

impl Filling<'_> {
    /// Takes the next chain of the last gap, or of the last one before it that has another.
    ///
    /// # Errors
    /// If a gap has too many.
    fn go_on(&mut self, gaps: &[Gap]) -> Result<bool, TooMany> {
        while let Some(at) = self.path.len().checked_sub(1) {
            if self.path[at].chosen == self.path[at].chains.len() && !self.path[at].are_all {
                let longer = self.longer_chains(&gaps[at])?;
                self.path[at].chains.extend(longer);
                self.path[at].are_all = true;
            }
            let choice = &mut self.path[at];
            if let Some(chain) = choice.chains.get(choice.chosen) {
                choice.chosen += 1;
                chain
                    .iter()
                    .for_each(|&class| self.used[class as usize] += 1);
                return Ok(true);
            }
            self.path.pop();
            if let Some(before) = self.path.last() {
                let chain = &before.chains[before.chosen - 1];
                chain
                    .iter()
                    .for_each(|&class| self.used[class as usize] -= 1);
            }
        }
        Ok(false)
    }

    fn is_free(&self, class: u32, deadline: u32, chain: &[u32]) -> bool {
        let more = chain.iter().filter(|&&other| other == class).count();
        let used = self.used[class as usize] as usize + more;
        let calls = &self.unanswered.classes[class as usize].calls;
        calls.get(used).is_some_and(|&call| call < deadline)
    }

    /// The single operations that fill a gap.
    fn short_chains(&self, gap: &Gap) -> Vec<Chain> {
        let fills = |class: &&u32| {
            let after = self.unanswered.classes[**class as usize]
                .op
                .after(gap.before);
            after.and_then(|after| gap.until.after(after)).is_some()
                && self.is_free(**class, gap.deadline, &[])
        };
        let classes = self.unanswered.last_of(gap).iter().filter(fills);
        classes.map(|&class| vec![class]).collect()
    }

    /// The chains of more than one operation that fill a gap, short ones first.
    ///
    /// # Errors
    /// If they are too many.
    fn longer_chains(&self, gap: &Gap) -> Result<Vec<Chain>, TooMany> {
        let mut chains = Vec::new();
        let mut open: Vec<(State, Chain)> = vec![(gap.before, Vec::new())];
        let mut next = Vec::new();
        while !open.is_empty() {
            for (state, chain) in open.drain(..) {
                for (class, of) in (0u32..).zip(&self.unanswered.classes) {
                    if self.is_needless(&of.op, &chain)
                        || !self.is_free(class, gap.deadline, &chain)
                    {
                        continue;
                    }
                    let Some(after) = of.op.after(state) else {
                        continue;
                    };
                    let longer = [&chain[..], &[class]].concat();
                    match gap.until.after(after) {
                        Some(_) if chain.is_empty() => {}
                        Some(_) => chains.push(longer),
                        None => next.push((after, longer)),
                    }
                }
                if chains.len() + next.len() > TRIES_MAX {
                    return Err(TooMany);
                }
            }
            std::mem::swap(&mut open, &mut next);
        }
        Ok(chains)
    }

    /// Whether a shorter chain does as well: a write makes what was before it needless, and so does
    /// coming back to a value.
    fn is_needless(&self, op: &VersionedOp, chain: &[u32]) -> bool {
        let classes = &self.unanswered.classes;
        let comes_back = |&class: &u32| written(&classes[class as usize].op) == written(op);
        !chain.is_empty() && matches!(op, VersionedOp::Write(..)) || chain.iter().any(comes_back)
    }
}
