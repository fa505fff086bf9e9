//! A list to which values are appended.

use std::sync::Arc;

use history::Header;

use super::{Asked, Effect, Model, NEVER, Numbers, Shortcut, Timed, Why};
use crate::linearizable::order::{Clash, Placed, Stages};

/// A list to which values are appended.
pub struct AppendLog;

impl Model for AppendLog {
    const NAME: &'static str = "append-log";
    const ABOUT: &'static str =
        "A list. `append` of a value; `read`, which returns the whole list.";
    const METHOD: &'static str = "Where no value is appended twice: the longest list that was read \
        says in which order they were, every other must be a beginning of it, and nothing may \
        return before something earlier in it was called: O(n) in what was read, exact. Otherwise \
        by search.";

    type State = Arc<[u32]>;
    type Op = LogOp;

    fn of_header(_: &Header) -> Result<AppendLog, String> {
        Ok(AppendLog)
    }

    fn read(&self, asked: &Asked<'_>, numbers: &mut Numbers) -> Result<Option<LogOp>, String> {
        match asked.f {
            "append" => {
                let op = LogOp::Append(numbers.of(asked.input));
                Ok((!asked.failed()).then_some(op))
            }
            "read" => match asked.output() {
                None => Ok(None),
                Some(list) => {
                    let items = list.as_list().ok_or("its result is no list")?;
                    Ok(Some(LogOp::Read(
                        items.map(|item| numbers.of(item)).collect(),
                    )))
                }
            },
            _ => asked.unknown("`append` and `read`"),
        }
    }

    fn initial(&self) -> Self::State {
        Arc::default()
    }

    fn effect(&self, op: &LogOp) -> Effect<Self::State> {
        match op {
            LogOp::Append(_) => Effect::Any,
            LogOp::Read(list) => Effect::Observes(list.clone()),
        }
    }

    fn step(&self, state: &Self::State, op: &LogOp) -> Option<Self::State> {
        match op {
            LogOp::Append(value) => Some(state.iter().copied().chain([*value]).collect()),
            LogOp::Read(list) => (list == state).then(|| state.clone()),
        }
    }

    fn shortcut(&self, ops: &[Timed<LogOp>]) -> Shortcut {
        let longest = longest_read(ops);
        let mut lives = vec![Life::default(); numbers(ops, longest)];
        for timed in ops {
            if let LogOp::Append(value) = &timed.op {
                let life = &mut lives[*value as usize];
                if std::mem::replace(&mut life.is_appended, true) {
                    return Shortcut::None;
                }
            }
        }
        decide(ops, &mut lives, longest)
    }
}

/// What is done with a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LogOp {
    /// Appends this.
    Append(u32),
    /// It is this.
    Read(Arc<[u32]>),
}

/// What is known of a value.
#[derive(Clone, Default)]
struct Life {
    is_appended: bool,
    /// One more than its index in the longest list; 0 if it is not there.
    place: u32,
}

fn longest_read(ops: &[Timed<LogOp>]) -> Option<(usize, &[u32])> {
    let mut longest: Option<(usize, &[u32])> = None;
    for (place, timed) in ops.iter().enumerate() {
        if let LogOp::Read(list) = &timed.op
            && longest.is_none_or(|(_, longest)| longest.len() < list.len())
        {
            longest = Some((place, list));
        }
    }
    longest
}

/// One more than the largest number of what was appended and of the longest list.
fn numbers(ops: &[Timed<LogOp>], longest: Option<(usize, &[u32])>) -> usize {
    let appended = ops.iter().filter_map(|timed| match &timed.op {
        LogOp::Append(value) => Some(*value),
        LogOp::Read(_) => None,
    });
    let read = longest.into_iter().flat_map(|(_, list)| list).copied();
    appended
        .chain(read)
        .max()
        .map_or(0, |most| most as usize + 1)
}

fn decide(ops: &[Timed<LogOp>], lives: &mut [Life], longest: Option<(usize, &[u32])>) -> Shortcut {
    if let Some((reader, list)) = longest {
        for (place, value) in (1u32..).zip(list) {
            let life = &mut lives[*value as usize];
            if !life.is_appended {
                return Shortcut::no_order(vec![reader], |told| {
                    format!("{} returned a value that nobody appended", told[0])
                });
            }
            if std::mem::replace(&mut life.place, place) != 0 {
                return Shortcut::no_order(vec![reader], |told| {
                    format!("{} returned a value twice that was appended once", told[0])
                });
            }
        }
    }
    let whole = longest.map_or(&[][..], |(_, list)| list);
    // Between reads of so many values and of one more comes the append of the last of these.
    let mut stages = Stages::new(ops, 2 * whole.len() + 2);
    let after_all = 2 * u32::try_from(whole.len()).unwrap_or(NEVER) + 1;
    for (place, timed) in (0u32..).zip(ops) {
        let stage = match &timed.op {
            LogOp::Append(value) => match lives[*value as usize].place {
                0 if timed.ret == NEVER => continue,
                0 => after_all,
                index => 2 * index - 1,
            },
            LogOp::Read(list) => {
                if let Some((reader, whole)) = longest
                    && !whole.starts_with(list)
                {
                    return Shortcut::no_order(vec![place as usize, reader], |told| {
                        format!("{} returned what is no beginning of {}", told[0], told[1])
                    });
                }
                2 * u32::try_from(list.len()).unwrap_or(NEVER)
            }
        };
        stages.put(stage, place);
    }
    match stages.clash() {
        None => Shortcut::Order,
        Some(clash) => known_order(clash, longest.map(|(reader, _)| reader)),
    }
}

/// Tells of operations that were not in the order in which they must have been, with those that show
/// that they must.
pub(crate) fn known_order(clash: Clash, evidence: impl IntoIterator<Item = usize>) -> Shortcut {
    let (mut places, why): (Vec<usize>, Why) = match clash {
        Clash::Stages(later, earlier) => {
            (vec![later.place as usize, earlier.place as usize], |told| {
                format!(
                    "{} was over before {} began, which it must follow",
                    told[0], told[1]
                )
            })
        }
        Clash::Blocks([around, within]) => {
            let last = |(_, last): (_, Placed)| last.place as usize;
            let first = |(first, _): (Option<Placed>, _)| first.map(|op| op.place as usize);
            let mut places = vec![last(around), last(within)];
            places.extend(first(around));
            places.extend(first(within));
            (places, |told| {
                format!(
                    "{} still speaks of what must have been replaced by then, because of {}",
                    told[0], told[1]
                )
            })
        }
    };
    for place in evidence {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Shortcut::no_order(places, why)
}
