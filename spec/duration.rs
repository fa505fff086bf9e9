//! Durations with units: `250ms`, `3s`, `1m30s`, `2h`.

use crate::Error;

const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration into nanoseconds. Every number needs a unit; parts may follow each other.
///
/// # Errors
/// [`Error::Duration`] that names the part that is wrong and the units that exist.
pub fn parse_duration(text: &str) -> Result<u64, Error> {
    let fail = |why: String| {
        Err(Error::Duration(format!(
            "`{text}` is not a duration: {why} (write it like 250ms, 3s, 1m30s)"
        )))
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return fail("it is empty".to_owned());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let Ok(number) = rest[..digits].parse::<f64>() else {
            return fail(format!("expected a number at `{rest}`"));
        };
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = &rest[..letters];
        let Some(&(_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return match unit {
                "" => fail(format!("the unit is missing after {number}")),
                other => fail(format!(
                    "unknown unit `{other}`; units are ns, us, ms, s, m, h"
                )),
            };
        };
        rest = rest[letters..].trim_start();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "digits only, so not negative; a float cast saturates"
        )]
        let part = (number * scale as f64).round() as u64;
        total = total.saturating_add(part);
    }
    Ok(total)
}

/// Writes a duration for people, in the largest unit that keeps it exact, or in seconds with
/// three digits.
pub fn format_ns(ns: u64) -> String {
    match ns {
        0 => "0s".to_owned(),
        ns if ns % 3_600_000_000_000 == 0 => format!("{}h", ns / 3_600_000_000_000),
        ns if ns % 60_000_000_000 == 0 => format!("{}m", ns / 60_000_000_000),
        ns if ns % 1_000_000_000 == 0 => format!("{}s", ns / 1_000_000_000),
        ns if ns < 1_000 => format!("{ns}ns"),
        ns if ns < 1_000_000_000 && ns % 1_000_000 == 0 => format!("{}ms", ns / 1_000_000),
        ns if ns < 1_000_000_000 && ns % 1_000 == 0 => format!("{}us", ns / 1_000),
        ns if ns < 1_000_000 => format!("{ns}ns"),
        ns => format!(
            "{}.{:03}s",
            ns / 1_000_000_000,
            ns % 1_000_000_000 / 1_000_000
        ),
    }
}

/// Writes a duration for a file, so that it is read back to the same nanosecond.
pub fn exact_ns(ns: u64) -> String {
    let text = format_ns(ns);
    match parse_duration(&text) {
        Ok(back) if back == ns => text,
        _ if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        _ if ns.is_multiple_of(1_000) => format!("{}us", ns / 1_000),
        _ => format!("{ns}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, ns) in [
            ("0s", 0),
            ("250ms", 250_000_000),
            ("3s", 3_000_000_000),
            ("1.5s", 1_500_000_000),
            ("1m30s", 90_000_000_000),
            ("1m 30s", 90_000_000_000),
            ("2h", 7_200_000_000_000),
            ("7us", 7_000),
        ] {
            assert_eq!(parse_duration(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_says_why() {
        for (text, says) in [
            ("", "empty"),
            ("3", "unit is missing"),
            ("3sec", "unknown unit `sec`"),
            ("s", "expected a number"),
            ("-3s", "expected a number"),
        ] {
            match parse_duration(text) {
                Err(Error::Duration(message)) => assert!(message.contains(says), "{message}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_written_for_a_file_is_read_back_exactly() {
        for ns in [
            0,
            1,
            1_000_001,
            1_000_001_000,
            1_500_000_000,
            60_001_000_000,
            u64::MAX >> 16,
        ] {
            assert_eq!(parse_duration(&exact_ns(ns)), Ok(ns));
        }
        assert_eq!(exact_ns(1_500_000_000), "1.500s");
        assert_eq!(exact_ns(1_000_001_000), "1000001us");
    }

    #[test]
    fn what_is_written_can_be_read() {
        for ns in [
            0,
            1,
            999,
            1_000,
            1_500_000,
            250_000_000,
            3_000_000_000,
            90_000_000_000,
        ] {
            assert_eq!(parse_duration(&format_ns(ns)), Ok(ns));
        }
    }
}
