//! What may be true at one moment of a just-in-time linearization, and sets of such configurations
//! without those that another makes superfluous. How they are carried on is in `frontier`.

use rustc_hash::FxHashMap;

use super::model::Val;

/// Slots of pending operations, as bits.
pub(crate) type Mask<const W: usize> = [u64; W];

/// Whether the slot is in the mask.
pub(crate) fn has<const W: usize>(mask: &Mask<W>, slot: usize) -> bool {
    mask[slot / 64] >> (slot % 64) & 1 == 1
}

/// The mask and this slot.
pub(crate) fn with<const W: usize>(mut mask: Mask<W>, slot: usize) -> Mask<W> {
    mask[slot / 64] |= 1 << (slot % 64);
    mask
}

/// The mask without this slot.
pub(crate) fn without<const W: usize>(mut mask: Mask<W>, slot: usize) -> Mask<W> {
    mask[slot / 64] &= !(1 << (slot % 64));
    mask
}

/// How many unanswered operations of each class were used: (class, count), sorted by class.
pub(crate) type Used = Vec<(u32, u32)>;

/// How many of this class were used.
pub(crate) fn count_of(used: &Used, class: u32) -> u32 {
    used.binary_search_by_key(&class, |&(known, _)| known)
        .map_or(0, |at| used[at].1)
}

/// The same, and one more of this class.
pub(crate) fn with_one_more(used: &Used, class: u32) -> Used {
    let mut more = used.clone();
    match more.binary_search_by_key(&class, |&(known, _)| known) {
        Ok(at) => more[at].1 += 1,
        Err(at) => more.insert(at, (class, 1)),
    }
    more
}

/// Whether the first used no more of any class than the second.
pub(crate) fn at_most(a: &Used, b: &Used) -> bool {
    a.iter().all(|&(class, count)| count <= count_of(b, class))
}

/// What may be true: the value, the pending operations that have taken effect, and the unanswered
/// ones that were used.
#[derive(Clone)]
pub(crate) struct Config<const W: usize> {
    pub(crate) value: Val,
    pub(crate) done: Mask<W>,
    pub(crate) used: Used,
}

/// Configurations, without those that another makes superfluous.
pub(crate) struct Set<const W: usize> {
    minimal: FxHashMap<(Val, Mask<W>), Vec<Used>>,
    count: usize,
    entries: usize,
}

impl<const W: usize> Set<W> {
    /// None.
    pub(crate) fn new() -> Set<W> {
        Set {
            minimal: FxHashMap::default(),
            count: 0,
            entries: 0,
        }
    }

    /// Adds a configuration; says whether it was not superfluous.
    pub(crate) fn add(&mut self, config: &Config<W>) -> bool {
        let known = self.minimal.entry((config.value, config.done)).or_default();
        if known.iter().any(|used| at_most(used, &config.used)) {
            return false;
        }
        let (before, entries) = (known.len(), &mut self.entries);
        known.retain(|used| {
            let keep = !at_most(&config.used, used);
            if !keep {
                *entries -= used.len();
            }
            keep
        });
        self.count -= before - known.len();
        self.count += 1;
        self.entries += config.used.len();
        known.push(config.used.clone());
        true
    }

    /// About how many bytes it holds.
    pub(crate) fn bytes(&self) -> u64 {
        let each = size_of::<Config<W>>() + 32;
        (self.count * each + self.entries * size_of::<(u32, u32)>()) as u64
    }

    /// All of them, in no order that means anything.
    pub(crate) fn into_configs(self) -> Vec<Config<W>> {
        let mut configs = Vec::with_capacity(self.count);
        for ((value, done), minimal) in self.minimal {
            configs.extend(minimal.into_iter().map(|used| Config { value, done, used }));
        }
        configs
    }
}
