//! What may be true at one moment of a just-in-time linearization, and sets of such configurations
//! without those that another makes superfluous. How they are carried on is in `frontier`.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::machine::State;

/// Slots of pending operations, as bits.
pub(crate) type Mask<const W: usize> = [u64; W];

/// No slot.
pub(crate) const fn none<const W: usize>() -> Mask<W> {
    [0; W]
}

/// Whether the slot is in the mask.
pub(crate) fn has<const W: usize>(mask: &Mask<W>, slot: usize) -> bool {
    mask[slot / 64] >> (slot % 64) & 1 == 1
}

/// Adds a slot.
pub(crate) fn insert<const W: usize>(mask: &mut Mask<W>, slot: usize) {
    mask[slot / 64] |= 1 << (slot % 64);
}

/// Removes a slot.
pub(crate) fn remove<const W: usize>(mask: &mut Mask<W>, slot: usize) {
    mask[slot / 64] &= !(1 << (slot % 64));
}

/// The slots of either.
pub(crate) fn or<const W: usize>(mut a: Mask<W>, b: &Mask<W>) -> Mask<W> {
    for (a, b) in a.iter_mut().zip(b) {
        *a |= b;
    }
    a
}

/// The slots of the first that are not in the second.
pub(crate) fn minus<const W: usize>(mut a: Mask<W>, b: &Mask<W>) -> Mask<W> {
    for (a, b) in a.iter_mut().zip(b) {
        *a &= !b;
    }
    a
}

/// Whether there is no slot in it.
pub(crate) fn is_none<const W: usize>(mask: &Mask<W>) -> bool {
    mask.iter().all(|word| *word == 0)
}

/// The slots of a mask, in order.
pub(crate) fn slots<const W: usize>(mask: Mask<W>) -> impl Iterator<Item = usize> {
    mask.into_iter().enumerate().flat_map(|(word, mut bits)| {
        std::iter::from_fn(move || {
            (bits != 0).then(|| {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                word * 64 + bit
            })
        })
    })
}

/// How many unanswered operations of each class were used.
pub(crate) trait Used: Clone + Eq + Hash {
    /// None, of so many classes.
    fn none(classes: usize) -> Self;
    /// How many of this class.
    fn count(&self, class: usize) -> u32;
    /// One more of this class.
    fn add(&mut self, class: usize);
    /// None of this class.
    fn forget(&mut self, class: usize);
    /// How many of all classes together.
    fn total(&self) -> u64;
    /// Whether the second used at least as many of each class.
    fn at_most(&self, other: &Self) -> bool;
    /// Bytes besides its own size.
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl<const K: usize> Used for [u16; K] {
    fn none(_: usize) -> Self {
        [0; K]
    }

    fn count(&self, class: usize) -> u32 {
        u32::from(self[class])
    }

    fn add(&mut self, class: usize) {
        self[class] += 1;
    }

    fn forget(&mut self, class: usize) {
        self[class] = 0;
    }

    fn total(&self) -> u64 {
        self.iter().map(|&count| u64::from(count)).sum()
    }

    fn at_most(&self, other: &Self) -> bool {
        self.iter().zip(other).all(|(a, b)| a <= b)
    }
}

/// As if there were any number of unanswered operations of a class once there is one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Uncounted;

impl Used for Uncounted {
    fn none(_: usize) -> Self {
        Uncounted
    }

    fn count(&self, _: usize) -> u32 {
        0
    }

    fn add(&mut self, _: usize) {}

    fn forget(&mut self, _: usize) {}

    fn total(&self) -> u64 {
        0
    }

    fn at_most(&self, _: &Self) -> bool {
        true
    }
}

impl Used for Box<[u32]> {
    fn none(classes: usize) -> Self {
        vec![0; classes].into()
    }

    fn count(&self, class: usize) -> u32 {
        self[class]
    }

    fn add(&mut self, class: usize) {
        self[class] += 1;
    }

    fn forget(&mut self, class: usize) {
        self[class] = 0;
    }

    fn total(&self) -> u64 {
        self.iter().map(|&count| u64::from(count)).sum()
    }

    fn at_most(&self, other: &Self) -> bool {
        self.iter().zip(other).all(|(a, b)| a <= b)
    }

    fn heap_bytes(&self) -> usize {
        self.len() * size_of::<u32>()
    }
}

/// What may be true.
#[derive(Debug, Clone)]
pub(crate) struct Config<U, const W: usize> {
    pub(crate) state: State,
    /// Pending operations that changed the state.
    pub(crate) taken: Mask<W>,
    /// Pending operations that need not take effect any more: those that did, and writes that may
    /// have been overwritten at once.
    pub(crate) settled: Mask<W>,
    pub(crate) used: U,
}

impl<U: Used, const W: usize> Config<U, W> {
    /// Whether the two differ in nothing but what they used.
    fn is_like(&self, other: &Config<U, W>) -> bool {
        self.state == other.state && self.taken == other.taken && self.settled == other.settled
    }

    /// Whether whatever follows the other can also follow this one.
    fn covers(&self, other: &Config<U, W>) -> bool {
        self.state == other.state
            && is_none(&minus(other.settled, &self.settled))
            && is_none(&minus(self.taken, &other.taken))
            && self.used.at_most(&other.used)
    }
}

/// Up to so many configurations are compared each with each.
const FEW: usize = 16;

/// Ends a chain of configurations with the same key.
const END: u32 = u32::MAX;

/// Configurations, without those that another makes superfluous. When they are many, only those
/// with the same state and settled operations are compared.
pub(crate) struct Set<U, const W: usize> {
    /// Whether of those that differ only in what they used one is kept, that which used least.
    thrifty: bool,
    configs: Vec<Config<U, W>>,
    /// For each, another of the same key.
    next: Vec<u32>,
    first: FxHashMap<(State, Mask<W>), u32>,
    heap_bytes: usize,
}

impl<U: Used, const W: usize> Set<U, W> {
    /// None.
    pub(crate) fn new(thrifty: bool) -> Set<U, W> {
        Set {
            thrifty,
            configs: Vec::new(),
            next: Vec::new(),
            first: FxHashMap::default(),
            heap_bytes: 0,
        }
    }

    /// Removes all.
    pub(crate) fn clear(&mut self) {
        self.configs.clear();
        self.next.clear();
        self.heap_bytes = 0;
        if !self.first.is_empty() {
            self.first.clear();
        }
    }

    /// Adds a configuration; says whether it was not superfluous.
    pub(crate) fn add(&mut self, config: Config<U, W>) -> bool {
        if self.configs.len() <= FEW {
            if self
                .configs
                .iter()
                .any(|known| self.goes_before(known, &config))
            {
                return false;
            }
            let thrifty = self.thrifty;
            self.configs
                .retain(|known| !(config.covers(known) || thrifty && config.is_like(known)));
            self.heap_bytes += config.used.heap_bytes();
            self.configs.push(config);
            if self.configs.len() > FEW {
                self.index();
            }
            return true;
        }
        self.add_indexed(config)
    }

    /// Whether the first makes the second superfluous, or is kept in its place.
    fn goes_before(&self, known: &Config<U, W>, config: &Config<U, W>) -> bool {
        known.covers(config)
            || (self.thrifty && known.is_like(config) && known.used.total() <= config.used.total())
    }

    fn index(&mut self) {
        self.next.clear();
        for (place, config) in self.configs.iter().enumerate() {
            let place = number(place);
            let first = self.first.insert((config.state, config.settled), place);
            self.next.push(first.unwrap_or(END));
        }
    }

    fn add_indexed(&mut self, config: Config<U, W>) -> bool {
        let place = number(self.configs.len());
        let key = (config.state, config.settled);
        let first = self.first.get(&key).copied().unwrap_or(END);
        let mut at = first;
        while at != END {
            let known = &self.configs[at as usize];
            if self.goes_before(known, &config) {
                return false;
            }
            if config.covers(known) || (self.thrifty && config.is_like(known)) {
                self.configs[at as usize] = config;
                return true;
            }
            at = self.next[at as usize];
        }
        self.next.push(first);
        self.first.insert(key, place);
        self.heap_bytes += config.used.heap_bytes();
        self.configs.push(config);
        true
    }

    /// About how many bytes it holds.
    pub(crate) fn bytes(&self) -> u64 {
        let each = size_of::<Config<U, W>>() + size_of::<u32>();
        let keys = self.first.capacity() * (size_of::<(State, Mask<W>)>() + 5);
        (self.configs.capacity() * each + keys + self.heap_bytes) as u64
    }

    /// Moves all of them to the end of a list.
    pub(crate) fn drain_into(&mut self, list: &mut Vec<Config<U, W>>) {
        list.append(&mut self.configs);
        self.clear();
    }
}

fn number(place: usize) -> u32 {
    u32::try_from(place).expect("memory ends before there are 2^32 configurations")
}
