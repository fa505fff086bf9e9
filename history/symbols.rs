//! Strings, each kept once and named by a small number.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// A table of distinct strings in order of first use.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    names: Vec<Arc<str>>,
    index: FxHashMap<Arc<str>, u32>,
}

impl Symbols {
    /// The number of `name`, given now if it had none.
    pub fn intern(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.index.get(name) {
            return id;
        }
        let id = u32::try_from(self.names.len()).expect("fewer than 2^32 distinct strings");
        let shared: Arc<str> = Arc::from(name);
        self.names.push(shared.clone());
        self.index.insert(shared, id);
        id
    }

    /// The number of `name`, if it was ever seen.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.index.get(name).copied()
    }

    /// The string with this number.
    #[inline]
    pub fn name(&self, id: u32) -> &str {
        &self.names[id as usize]
    }

    /// The same, to keep.
    pub fn shared(&self, id: u32) -> Arc<str> {
        self.names[id as usize].clone()
    }

    /// How many distinct strings there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether no string was ever seen.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All strings in order of first use.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(AsRef::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_has_one_number() {
        let mut symbols = Symbols::default();
        let read = symbols.intern("read");
        let write = symbols.intern("write");
        assert_ne!(read, write);
        assert_eq!(symbols.intern("read"), read);
        assert_eq!(symbols.find("write"), Some(write));
        assert_eq!(symbols.find("cas"), None);
        assert_eq!(symbols.name(read), "read");
        assert_eq!(symbols.len(), 2);
    }
}
