//! What observers saw of the cluster: who leads, in which term, as each node says it.

use history::{EventRef, History};

use crate::ident::{Ident, integer_at};

/// What one node said about who leads.
pub(crate) struct View<'h> {
    /// The observation.
    pub(crate) event: EventRef<'h>,
    /// The leader; `None` if the node knew none or did not answer.
    pub(crate) leader: Option<Ident>,
    /// The term, where the node told one.
    pub(crate) term: Option<i128>,
    /// The term of the last entry that the node applied, where it told only that: there was such a
    /// term, but the leader that the node names may be of a later one.
    pub(crate) applied_term: Option<i128>,
}

/// All observations of leaders, in order.
pub(crate) fn views(history: &History) -> impl Iterator<Item = View<'_>> {
    history
        .events()
        .filter(|event| event.is_observer() && event.f() == "leader")
        .map(|event| {
            let value = event.value();
            View {
                event,
                leader: value
                    .get("leader")
                    .filter(|leader| !leader.is_null() && event.error().is_none())
                    .map(Ident::of),
                term: integer_at(value, "term"),
                applied_term: integer_at(value, "applied_term"),
            }
        })
}

/// Times at which a leader was first seen that differs from the one before, and how many terms
/// had gone by since the last time that a higher term was seen.
#[derive(Default)]
pub(crate) struct Changes<'h> {
    /// Changes of the leader: when, and the observation.
    pub(crate) leaders: Vec<EventRef<'h>>,
    /// Rises of the term: when, by how many, and the observation. The first counts as one.
    pub(crate) terms: Vec<(u64, EventRef<'h>)>,
}

/// Follows terms and leaders through all views. A view of an older term than one already seen is
/// out of date and changes nothing.
pub(crate) fn changes(history: &History) -> Changes<'_> {
    let mut found = Changes::default();
    let mut term_max: Option<i128> = None;
    let mut leader: Option<Ident> = None;
    for view in views(history) {
        if view.term.is_some() && view.term < term_max {
            continue;
        }
        if let Some(term) = view
            .term
            .or(view.applied_term)
            .filter(|&term| Some(term) >= term_max)
        {
            match term_max {
                Some(max) if term > max => {
                    let rise = u64::try_from(term - max).unwrap_or(u64::MAX);
                    found.terms.push((rise, view.event));
                }
                Some(_) => {}
                None => found.terms.push((1, view.event)),
            }
            term_max = Some(term);
        }
        if view.leader.is_some() && view.leader != leader {
            if leader.is_some() {
                found.leaders.push(view.event);
            }
            leader = view.leader;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script;

    #[test]
    fn old_views_change_nothing() {
        let history = script::history(
            "register",
            r#"
            0 observer leader - {"leader":"n1","term":5} @n1
            1 observer leader - {"leader":"n2","term":8} @n2
            2 observer leader - {"leader":"n1","term":5} @n1
            3 observer leader - {"leader":null,"term":8} @n3
            4 observer leader - {"leader":"n2","term":8} @n1
            "#,
        );
        let found = changes(&history);
        assert_eq!(found.leaders.len(), 1);
        let rises: Vec<u64> = found.terms.iter().map(|&(rise, _)| rise).collect();
        assert_eq!(rises, [1, 3]);
    }
}
