//! What the search needs to know of an object: states and classes of operations as small numbers.

/// A state of an object; 0 is the one at the beginning.
pub(crate) type State = u32;

/// The state at the beginning.
pub(crate) const START: State = 0;

/// A class of operations of equal effect: same function, argument and answer.
pub(crate) type Class = u32;

/// The return of an operation that was never answered: it may take effect at any later time, or
/// not at all.
pub const NEVER: u32 = u32::MAX;

/// What operations of a class do, as far as it helps a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect<S = u32> {
    /// It changes nothing and is possible in this state only: a read.
    Observes(S),
    /// It changes nothing and is possible in several states.
    Passive,
    /// It leads from every state to this one: a write.
    Overwrites(S),
    /// It is possible in the first state only, and leads to the second: a compare-and-set.
    Moves(S, S),
    /// Nothing is known of it.
    Any,
}

impl<S> Effect<S> {
    /// Whether it changes nothing.
    pub(crate) fn is_passive(&self) -> bool {
        matches!(self, Effect::Observes(_) | Effect::Passive)
    }

    /// The same with other names for the states.
    pub(crate) fn map<T>(self, mut name: impl FnMut(S) -> T) -> Effect<T> {
        match self {
            Effect::Observes(state) => Effect::Observes(name(state)),
            Effect::Passive => Effect::Passive,
            Effect::Overwrites(state) => Effect::Overwrites(name(state)),
            Effect::Moves(from, to) => Effect::Moves(name(from), name(to)),
            Effect::Any => Effect::Any,
        }
    }
}

impl Effect {
    /// The one state in which it is possible, if there is only one.
    pub(crate) fn needs(self) -> Option<State> {
        match self {
            Effect::Observes(state) | Effect::Moves(state, _) => Some(state),
            Effect::Passive | Effect::Overwrites(_) | Effect::Any => None,
        }
    }

    /// The one state to which it leads, if it is known without looking.
    pub(crate) fn leads_to(self) -> Option<State> {
        match self {
            Effect::Overwrites(state) | Effect::Moves(_, state) => Some(state),
            Effect::Observes(_) | Effect::Passive | Effect::Any => None,
        }
    }

    /// Whether it may be possible in many states, so that it is not known which it waits for.
    pub(crate) fn is_vague(self) -> bool {
        matches!(self, Effect::Passive | Effect::Any)
    }
}

/// A sequential object.
pub(crate) trait Machine {
    /// What operations of a class do.
    fn effect(&self, class: Class) -> Effect;

    /// The state after an operation; nothing if it cannot happen in this one.
    fn step(&mut self, state: State, class: Class) -> Option<State>;
}

/// An operation, and when it was open, as indices of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) class: Class,
    pub(crate) call: u32,
    /// [`NEVER`] if it was not answered.
    pub(crate) ret: u32,
}
