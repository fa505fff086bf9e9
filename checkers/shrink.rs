//! Makes a failing input small: delta debugging (Zeller and Hildebrandt, 2002).

/// The smallest list that removing chunks leads to and that still fails. `fails` says of a list
/// whether it does, and returns it, possibly with items that must stay for the sake of others;
/// `None` means that it does not, or that there is no more time to find out.
///
/// `items` itself must fail. The result fails, and removing any one item of it does not lead to a
/// shorter list that does, unless `tests_max` was reached.
pub(crate) fn ddmin<T: Copy>(
    mut items: Vec<T>,
    tests_max: usize,
    mut fails: impl FnMut(&[T]) -> Option<Vec<T>>,
) -> Vec<T> {
    let mut chunks = 2;
    let mut tests = 0;
    'again: while items.len() >= 2 {
        let size = items.len().div_ceil(chunks);
        for start in (0..items.len()).step_by(size) {
            if tests >= tests_max {
                return items;
            }
            tests += 1;
            let end = (start + size).min(items.len());
            let rest: Vec<T> = [&items[..start], &items[end..]].concat();
            if let Some(smaller) = fails(&rest).filter(|smaller| smaller.len() < items.len()) {
                items = smaller;
                chunks = (chunks - 1).max(2);
                continue 'again;
            }
        }
        if size == 1 {
            return items;
        }
        chunks = (chunks * 2).min(items.len());
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_must_stay_is_what_stays(needed in prop::collection::btree_set(0u32..200, 1..6)) {
            let needs = needed.clone();
            let small = ddmin((0..200).collect(), usize::MAX, |items| {
                needs.iter().all(|item| items.contains(item)).then(|| items.to_vec())
            });
            prop_assert_eq!(small, needed.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_number_of_tests_is_kept() {
        let mut tests = 0;
        let left = ddmin((0..100).collect::<Vec<_>>(), 7, |items| {
            tests += 1;
            items.contains(&50).then(|| items.to_vec())
        });
        assert_eq!(tests, 7);
        assert!(left.contains(&50));
    }
}
