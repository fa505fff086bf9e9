//! One seed, many streams of chance: each is named, so that a new one changes no other.

use sha2::{Digest, Sha256};

/// The seed of the stream `name` of a run.
pub fn stream(seed: u64, name: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update(name.as_bytes());
    let digest = hash.finalize();
    u64::from_le_bytes(digest[..8].try_into().expect("a digest has 32 bytes"))
}

/// A seed that nobody chose.
pub fn fresh() -> u64 {
    // 53 bits, so that it survives any JSON reader, and TOML's signed integers.
    rand::random::<u64>() >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_the_same_for_ever() {
        assert_eq!(stream(7, "plan"), 0x324e_81eb_1e3f_8d02);
        assert_ne!(stream(7, "plan"), stream(7, "switch"));
        assert_ne!(stream(7, "plan"), stream(8, "plan"));
    }
}
