//! The shapes of a partition: which directed links a named shape cuts, as pure functions.
//!
//! Servers are numbers here, given in the order in which the shape is to take them: who comes first
//! (the leader, or whoever the dice chose) is decided in `resolve.rs`.

use std::collections::BTreeSet;

/// Directed links from one server to another.
pub(crate) type Links = BTreeSet<(usize, usize)>;

/// The links of a shape, and its two sides where it has two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) links: Links,
    /// The smaller side first.
    pub(crate) sides: Option<[Vec<usize>; 2]>,
}

/// The smaller half of the order, cut from the rest.
pub(crate) fn halves(order: &[usize]) -> Cut {
    apart_at(order, order.len() / 2)
}

/// The largest minority of the order, cut from the rest.
pub(crate) fn minority(order: &[usize]) -> Cut {
    apart_at(order, order.len().saturating_sub(1) / 2)
}

/// The first of the order, cut from all others.
pub(crate) fn isolate(order: &[usize]) -> Cut {
    apart_at(order, 1)
}

fn apart_at(order: &[usize], at: usize) -> Cut {
    let (first, rest) = order.split_at(at.min(order.len()));
    apart(first, rest)
}

/// Two groups that cannot reach each other.
pub(crate) fn apart(a: &[usize], b: &[usize]) -> Cut {
    let mut links = Links::new();
    for &x in a {
        for &y in b.iter().filter(|&&y| y != x) {
            links.extend([(x, y), (y, x)]);
        }
    }
    let mut sides = [a.to_vec(), b.to_vec()];
    sides.sort_by_key(Vec::len);
    Cut {
        links,
        sides: Some(sides),
    }
}

/// The first of the order reaches everybody; the others are two halves that do not reach each
/// other.
pub(crate) fn bridge(order: &[usize]) -> Cut {
    let rest = order.get(1..).unwrap_or_default();
    let (a, b) = rest.split_at(rest.len() / 2);
    Cut {
        links: apart(a, b).links,
        sides: None,
    }
}

/// The first and the second of the order cannot reach each other; both reach the others.
pub(crate) fn partial(order: &[usize]) -> Cut {
    let links = match order {
        [a, b, ..] => Links::from([(*a, *b), (*b, *a)]),
        _ => Links::new(),
    };
    Cut { links, sides: None }
}

/// Nothing from the others reaches the first of the order; the way back is clear.
pub(crate) fn deaf(order: &[usize]) -> Cut {
    let links = order
        .iter()
        .skip(1)
        .map(|&other| (other, order[0]))
        .collect();
    Cut { links, sides: None }
}

/// Nothing from the first of the order reaches the others; the way back is clear.
pub(crate) fn mute(order: &[usize]) -> Cut {
    let links = order
        .iter()
        .skip(1)
        .map(|&other| (order[0], other))
        .collect();
    Cut { links, sides: None }
}

/// Every server reaches a majority, itself included, and no two reach the same one.
///
/// In a ring each server keeps its nearest neighbours on both sides, as many as make a majority.
/// Three servers in a ring would all reach each other, so they stand in a line:
///
/// ```text
///   1 - 2 - 3        five servers: each reaches       three servers: 1 - 2 - 3,
///   |       |        itself and two neighbours        1 and 3 do not reach each other
///   5 ----- 4
/// ```
pub(crate) fn majority_ring(order: &[usize]) -> Cut {
    let n = order.len();
    if n <= 3 {
        let ends = [order.first(), order.last()].into_iter().flatten();
        return partial(&ends.copied().collect::<Vec<_>>());
    }
    let reach = (n / 2).div_ceil(2);
    let mut links = Links::new();
    for a in 0..n {
        for b in 0..n {
            let distance = a.abs_diff(b).min(n - a.abs_diff(b));
            if distance > reach {
                links.insert((order[a], order[b]));
            }
        }
    }
    Cut { links, sides: None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reached(cut: &Cut, n: usize, from: usize) -> BTreeSet<usize> {
        (0..n)
            .filter(|&to| !cut.links.contains(&(from, to)))
            .collect()
    }

    fn two_way(cut: &Cut) -> bool {
        cut.links.iter().all(|&(a, b)| cut.links.contains(&(b, a)))
    }

    /// An order of 3 to 9 servers.
    fn orders() -> impl Strategy<Value = Vec<usize>> {
        (3_usize..=9).prop_flat_map(|n| Just((0..n).collect::<Vec<_>>()).prop_shuffle())
    }

    fn parts(cut: &Cut, n: usize) -> usize {
        (0..n)
            .map(|from| reached(cut, n, from))
            .collect::<BTreeSet<_>>()
            .len()
    }

    proptest! {
        #[test]
        fn no_shape_cuts_a_server_from_itself_or_names_a_stranger(order in orders()) {
            let n = order.len();
            for cut in [
                halves(&order), minority(&order), isolate(&order), bridge(&order),
                partial(&order), deaf(&order), mute(&order), majority_ring(&order),
            ] {
                prop_assert!(!cut.links.is_empty());
                prop_assert!(cut.links.iter().all(|&(a, b)| a != b && a < n && b < n));
            }
        }

        #[test]
        fn halves_are_two_groups_of_nearly_the_same_size(order in orders()) {
            let (n, cut) = (order.len(), halves(&order));
            let [small, large] = cut.sides.clone().unwrap();
            prop_assert!(large.len() - small.len() <= 1);
            prop_assert_eq!(small.len() + large.len(), n);
            prop_assert!(two_way(&cut));
            prop_assert_eq!(parts(&cut, n), 2);
            prop_assert_eq!(cut.links.len(), 2 * small.len() * large.len());
        }

        #[test]
        fn a_minority_leaves_a_majority_and_has_the_first_in_it(order in orders()) {
            let cut = minority(&order);
            let [small, large] = cut.sides.unwrap();
            prop_assert!(small.contains(&order[0]));
            prop_assert!(large.len() > order.len() / 2);
            prop_assert!(small.len() + 1 > (order.len() - 1) / 2);
        }

        #[test]
        fn the_isolated_one_is_alone_and_the_others_are_whole(order in orders()) {
            let (n, cut) = (order.len(), isolate(&order));
            prop_assert_eq!(reached(&cut, n, order[0]), BTreeSet::from([order[0]]));
            for &other in &order[1..] {
                prop_assert_eq!(reached(&cut, n, other).len(), n - 1);
            }
        }

        #[test]
        fn only_the_bridge_reaches_both_halves(order in orders()) {
            let (n, cut) = (order.len(), bridge(&order));
            prop_assert_eq!(reached(&cut, n, order[0]).len(), n);
            for &other in &order[1..] {
                let seen = reached(&cut, n, other).len();
                prop_assert!(seen < n && seen >= 2);
            }
            prop_assert!(two_way(&cut));
        }

        #[test]
        fn in_a_majority_ring_all_see_majorities_and_no_two_the_same(order in orders()) {
            let (n, cut) = (order.len(), majority_ring(&order));
            prop_assert!(two_way(&cut));
            prop_assert_eq!(parts(&cut, n), n);
            for at in 0..n {
                prop_assert!(reached(&cut, n, at).len() > n / 2);
            }
        }

        #[test]
        fn one_way_shapes_leave_the_way_back(order in orders()) {
            let n = order.len();
            for cut in [deaf(&order), mute(&order)] {
                prop_assert_eq!(cut.links.len(), n - 1);
                prop_assert!(cut.links.iter().all(|&(a, b)| !cut.links.contains(&(b, a))));
            }
            prop_assert_eq!(reached(&deaf(&order), n, order[0]).len(), n);
            prop_assert_eq!(reached(&mute(&order), n, order[0]).len(), 1);
        }

        #[test]
        fn partial_is_one_link_and_both_ends_reach_the_others(order in orders()) {
            let (n, cut) = (order.len(), partial(&order));
            prop_assert_eq!(cut.links.len(), 2);
            prop_assert!(two_way(&cut));
            for at in 0..n {
                let lost = usize::from(at == order[0] || at == order[1]);
                prop_assert_eq!(reached(&cut, n, at).len(), n - lost);
            }
        }
    }

    #[test]
    fn the_ring_of_five_is_the_known_one() {
        let cut = majority_ring(&[0, 1, 2, 3, 4]);
        for at in 0..5 {
            let neighbours = BTreeSet::from([(at + 4) % 5, at, (at + 1) % 5]);
            assert_eq!(reached(&cut, 5, at), neighbours);
        }
    }
}
