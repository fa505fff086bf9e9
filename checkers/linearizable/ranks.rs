//! Sorting without comparing: ranks are indices of events, and nearly as many as there are operations.

use super::models::{NEVER, Timed};

/// A table may have so many times as many places as there is to sort.
const PLACES_PER_ITEM: usize = 8;

/// Sorts by the first of each pair, of which no two are equal. None of the second is [`NEVER`].
pub(crate) fn sort(pairs: &mut [(u32, u32)]) {
    let ranks = pairs.iter().map(|&(rank, _)| rank);
    let Some((least, most)) = ranks.clone().min().zip(ranks.max()) else {
        return;
    };
    let places = (most - least) as usize + 1;
    if places / PLACES_PER_ITEM > pairs.len() {
        pairs.sort_unstable();
        return;
    }
    let mut table = vec![NEVER; places];
    for &(rank, item) in &*pairs {
        table[(rank - least) as usize] = item;
    }
    let found = (least..).zip(table).filter(|&(_, item)| item != NEVER);
    for (pair, found) in pairs.iter_mut().zip(found) {
        *pair = found;
    }
}

/// The returns of answered operations with their places, in order.
pub(crate) fn returns<O>(ops: &[Timed<O>]) -> Vec<(u32, u32)> {
    let answered = (0u32..).zip(ops).filter(|(_, timed)| timed.ret != NEVER);
    let mut returns: Vec<(u32, u32)> = answered.map(|(place, timed)| (timed.ret, place)).collect();
    sort(&mut returns);
    returns
}

/// Sorts small numbers, and leaves each of them only once.
pub(crate) fn sort_distinct(numbers: &mut Vec<u32>) {
    let Some(&most) = numbers.iter().max() else {
        return;
    };
    let words = most as usize / 64 + 1;
    if words > numbers.len() {
        numbers.sort_unstable();
        numbers.dedup();
        return;
    }
    let mut there = vec![0u64; words];
    for &number in &*numbers {
        there[number as usize / 64] |= 1 << (number % 64);
    }
    numbers.clear();
    for (at, mut word) in (0u32..).zip(there) {
        while word != 0 {
            numbers.push(at * 64 + word.trailing_zeros());
            word &= word - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pairs_are_sorted(
            ranks in prop::collection::hash_set(0u32..400, 0..60),
            scale in prop::sample::select(vec![1, 3, 10_000]),
        ) {
            let mut pairs: Vec<(u32, u32)> =
                ranks.into_iter().zip(0..).map(|(rank, item)| (rank * scale, item)).collect();
            let mut expected = pairs.clone();
            expected.sort_unstable();
            sort(&mut pairs);
            prop_assert_eq!(pairs, expected);
        }

        #[test]
        fn numbers_are_sorted_and_distinct(
            mut numbers in prop::collection::vec(0u32..90, 0..60),
            scale in prop::sample::select(vec![1, 50, 1_000_000]),
        ) {
            numbers.iter_mut().for_each(|number| *number *= scale);
            let expected: Vec<u32> =
                std::collections::BTreeSet::from_iter(numbers.clone()).into_iter().collect();
            sort_distinct(&mut numbers);
            prop_assert_eq!(numbers, expected);
        }
    }
}
