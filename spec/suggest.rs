//! The name that was probably meant.

/// The closest of some names, if one is close enough to have been meant.
pub fn closest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= 1 + candidate.len().max(name.len()) / 4)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_recognised_and_strangers_are_not() {
        let names = ["freeze", "kill", "cut"];
        assert_eq!(closest("freze", names), Some("freeze"));
        assert_eq!(closest("klil", names), Some("kill"));
        assert_eq!(closest("explode", names), None);
    }
}
