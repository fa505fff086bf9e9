//! Sets of threads, as bits of words.

/// A set of threads. It keeps its storage, so that filling it again allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct Threads {
    words: Vec<u64>,
}

const BITS: usize = u64::BITS as usize;

impl Threads {
    /// The threads 0 up to, not including, `count`.
    pub fn first(count: usize) -> Threads {
        (0..count).collect()
    }

    /// Adds a thread.
    pub fn insert(&mut self, thread: usize) {
        if self.words.len() <= thread / BITS {
            self.words.resize(thread / BITS + 1, 0);
        }
        self.words[thread / BITS] |= 1 << (thread % BITS);
    }

    /// Takes a thread out; true if it was in.
    pub fn remove(&mut self, thread: usize) -> bool {
        let was_in = self.contains(thread);
        if was_in {
            self.words[thread / BITS] &= !(1 << (thread % BITS));
        }
        was_in
    }

    /// Whether a thread is in.
    pub fn contains(&self, thread: usize) -> bool {
        self.words
            .get(thread / BITS)
            .is_some_and(|word| word >> (thread % BITS) & 1 == 1)
    }

    /// Whether no thread is in.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// How many threads are in.
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Whether every thread of `other` is in.
    pub fn contains_all(&self, other: &Threads) -> bool {
        other.words.iter().enumerate().all(|(index, &word)| {
            let mine = self.words.get(index).copied().unwrap_or(0);
            word & !mine == 0
        })
    }

    /// The threads, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            std::iter::successors((word != 0).then_some(word), |&rest| {
                let rest = rest & (rest - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |rest| index * BITS + rest.trailing_zeros() as usize)
        })
    }

    /// The lowest thread that is above `thread`, or the lowest of all: what comes next when the
    /// threads take turns.
    pub fn next_after(&self, thread: usize) -> Option<usize> {
        self.lowest_from(thread + 1).or_else(|| self.lowest_from(0))
    }

    /// Becomes the set of the threads that are in both.
    pub fn set_intersection(&mut self, one: &Threads, other: &Threads) {
        self.words.clear();
        let both = one.words.iter().zip(&other.words);
        self.words.extend(both.map(|(a, b)| a & b));
    }

    fn lowest_from(&self, thread: usize) -> Option<usize> {
        let start = thread / BITS;
        let mut index = start;
        while let Some(&word) = self.words.get(index) {
            let from = if index == start { thread % BITS } else { 0 };
            let rest = word & (u64::MAX << from);
            if rest != 0 {
                return Some(index * BITS + rest.trailing_zeros() as usize);
            }
            index += 1;
        }
        None
    }
}

impl FromIterator<usize> for Threads {
    fn from_iter<I: IntoIterator<Item = usize>>(threads: I) -> Threads {
        let mut set = Threads::default();
        for thread in threads {
            set.insert(thread);
        }
        set
    }
}

impl PartialEq for Threads {
    fn eq(&self, other: &Threads) -> bool {
        self.contains_all(other) && other.contains_all(self)
    }
}

impl Eq for Threads {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(
            one in prop::collection::btree_set(0_usize..200, 0..20),
            other in prop::collection::btree_set(0_usize..200, 0..20),
            thread in 0_usize..200,
        ) {
            let a: Threads = one.iter().copied().collect();
            let b: Threads = other.iter().copied().collect();
            prop_assert_eq!(a.iter().collect::<BTreeSet<_>>(), one.clone());
            prop_assert_eq!(a.len(), one.len());
            prop_assert_eq!(a.is_empty(), one.is_empty());
            prop_assert_eq!(a.contains(thread), one.contains(&thread));
            prop_assert_eq!(a.contains_all(&b), other.is_subset(&one));
            prop_assert_eq!(a == b, one == other);

            let mut both = Threads::first(150);
            both.set_intersection(&a, &b);
            prop_assert_eq!(
                both.iter().collect::<Vec<_>>(),
                one.intersection(&other).copied().collect::<Vec<_>>()
            );

            let next = one.range(thread + 1..).chain(&one).next().copied();
            prop_assert_eq!(a.next_after(thread), next);

            let mut without = a.clone();
            prop_assert_eq!(without.remove(thread), one.contains(&thread));
            prop_assert!(!without.contains(thread));
            prop_assert_eq!(without.len(), one.len() - usize::from(one.contains(&thread)));
        }
    }
}
