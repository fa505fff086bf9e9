//! The vDSO: the piece of code that the kernel maps into every process, by which programs read clocks
//! without entering the kernel. All 64-bit processes of a machine have the same, so it is read once,
//! from this process, and a process whose own differs has been tampered with.

use std::sync::OnceLock;

/// The functions that tell the wall clock; others are never touched.
const FUNCTIONS: [&str; 3] = ["__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time"];

/// The kernel's own vDSO.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Vdso {
    /// The whole mapping.
    pub(super) image: Vec<u8>,
    /// Where `clock_gettime`, `gettimeofday` and `time` begin in it.
    pub(super) entries: [usize; 3],
    /// Where a `syscall` instruction is in it.
    pub(super) gadget: usize,
}

/// A mapping of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Such as `r-xp`.
    pub(super) permissions: String,
    /// A file, a name in brackets, or nothing.
    pub(super) name: String,
}

impl Vdso {
    /// The vDSO of this process, or why it cannot be used.
    pub(super) fn own() -> Result<&'static Vdso, String> {
        static OWN: OnceLock<Result<Vdso, String>> = OnceLock::new();
        OWN.get_or_init(Self::read).as_ref().map_err(Clone::clone)
    }

    fn read() -> Result<Vdso, String> {
        let maps = mappings("self").map_err(|error| format!("cannot read /proc: {error}"))?;
        let mapping = find(&maps).ok_or("the kernel maps no vDSO")?;
        let len = (mapping.end - mapping.start) as usize;
        let start = std::ptr::with_exposed_provenance::<u8>(mapping.start as usize);
        // SAFETY: the kernel mapped these bytes readable, and nothing of this process unmaps or
        // writes them.
        let image = unsafe { std::slice::from_raw_parts(start, len) };
        Self::parse(image).ok_or_else(|| "the kernel's vDSO has an unknown form".to_owned())
    }

    /// Finds what is needed in an image; `None` if it is not there, or damaged.
    pub(super) fn parse(image: &[u8]) -> Option<Vdso> {
        let symbols = symbols(image)?;
        let entry = |name: &str| {
            let found = symbols
                .iter()
                .find(|(symbol, _)| *symbol == name.as_bytes());
            found
                .map(|&(_, at)| at)
                .filter(|&at| at + 16 <= image.len())
        };
        let [gettime, timeofday, time] = FUNCTIONS.map(entry);
        let gadget = image.windows(2).position(|bytes| bytes == [0x0f, 0x05])?;
        Some(Vdso {
            image: image.to_vec(),
            entries: [gettime?, timeofday?, time?],
            gadget,
        })
    }
}

/// The vDSO among the mappings of a process.
pub(super) fn find(maps: &[Mapping]) -> Option<&Mapping> {
    maps.iter().find(|mapping| mapping.name == "[vdso]")
}

/// The mappings of a process, by its id or `self`.
pub(super) fn mappings(process: impl std::fmt::Display) -> std::io::Result<Vec<Mapping>> {
    let text = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
    Ok(text.lines().filter_map(mapping).collect())
}

/// `start-end permissions offset device inode name`
fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: address(start)?,
        end: address(end)?,
        permissions: fields.next()?.to_owned(),
        name: fields.nth(3).unwrap_or_default().trim().to_owned(),
    })
}

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// The names and places of everything that the image exports: through its program headers and its
/// dynamic section, as the loader of a program finds it.
fn symbols(image: &[u8]) -> Option<Vec<(&[u8], usize)>> {
    if !image.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let word = |at: usize, len: usize| -> Option<u64> {
        let mut word = [0; 8];
        word[..len].copy_from_slice(image.get(at..at.checked_add(len)?)?);
        Some(u64::from_le_bytes(word))
    };
    let (headers, size, count) = (word(0x20, 8)? as usize, word(0x36, 2)?, word(0x38, 2)?);
    let header = |kind| {
        (0..count)
            .map(|at| headers.saturating_add((at * size) as usize))
            .find(|&at| word(at, 4) == Some(kind))
    };
    // Addresses are relative to where the image was linked to begin.
    let load = header(PT_LOAD)?;
    let base = word(load + 16, 8)?.wrapping_sub(word(load + 8, 8)?);
    let dynamic = word(header(PT_DYNAMIC)? + 8, 8)? as usize;
    let (mut names, mut table, mut hash, mut gnu_hash) = (None, None, None, None);
    for at in 0.. {
        let entry = dynamic.checked_add(at * 16)?;
        let place = (word(entry + 8, 8)?.wrapping_sub(base)) as usize;
        match word(entry, 8)? {
            DT_NULL => break,
            DT_STRTAB => names = Some(place),
            DT_SYMTAB => table = Some(place),
            DT_HASH => hash = Some(place),
            DT_GNU_HASH => gnu_hash = Some(place),
            _ => {}
        }
    }
    let count = match (hash, gnu_hash) {
        (Some(hash), _) => word(hash.checked_add(4)?, 4)?,
        (None, Some(gnu_hash)) => symbols_in_gnu_hash(gnu_hash, &word)?,
        (None, None) => return None,
    };
    let mut symbols = Vec::new();
    for at in 0..count as usize {
        let symbol = table?.checked_add(at.checked_mul(24)?)?;
        let name = names?.checked_add(word(symbol, 4)? as usize)?;
        let name = image.get(name..)?.split(|&byte| byte == 0).next()?;
        let (section, value) = (word(symbol + 6, 2)?, word(symbol + 8, 8)?);
        if section != 0 {
            symbols.push((name, value.wrapping_sub(base) as usize));
        }
    }
    Some(symbols)
}

/// The number of symbols: the last one of the last chain is the last of all.
fn symbols_in_gnu_hash(at: usize, word: &impl Fn(usize, usize) -> Option<u64>) -> Option<u64> {
    let field = |n: usize| word(at.checked_add(n * 4)?, 4);
    let (buckets, first, bloom) = (field(0)?, field(1)?, field(2)?);
    let buckets_at = 4_usize.checked_add(usize::try_from(bloom).ok()?.checked_mul(2)?)?;
    let mut last = 0;
    for bucket in 0..buckets as usize {
        last = last.max(field(buckets_at.checked_add(bucket)?)?);
    }
    if last < first {
        return Some(first);
    }
    let chains_at = buckets_at.checked_add(buckets as usize)?;
    while field(chains_at.checked_add((last - first) as usize)?)? & 1 == 0 {
        last += 1;
    }
    Some(last + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the C library finds under a name in this process's vDSO.
    fn linked(name: &std::ffi::CStr) -> Option<usize> {
        // SAFETY: the names are strings; the handle is only asked for symbols.
        unsafe {
            let handle = libc::dlopen(
                c"linux-vdso.so.1".as_ptr(),
                libc::RTLD_LAZY | libc::RTLD_NOLOAD,
            );
            (!handle.is_null())
                .then(|| libc::dlsym(handle, name.as_ptr()).addr())
                .filter(|&address| address != 0)
        }
    }

    #[test]
    fn the_functions_are_where_the_loader_finds_them() {
        let vdso = Vdso::own().unwrap();
        let start = find(&mappings("self").unwrap()).unwrap().start as usize;
        let names = [
            c"__vdso_clock_gettime",
            c"__vdso_gettimeofday",
            c"__vdso_time",
        ];
        for (name, entry) in names.into_iter().zip(vdso.entries) {
            assert_eq!(linked(name), Some(start + entry), "{name:?}");
        }
        assert_eq!(vdso.image[vdso.gadget..vdso.gadget + 2], [0x0f, 0x05]);
    }

    #[test]
    fn lines_of_maps_are_read() {
        let vdso = mapping("7ffd1b3c2000-7ffd1b3c4000 r-xp 00000000 00:00 0          [vdso]");
        let vdso = vdso.unwrap();
        assert_eq!((vdso.start, vdso.end), (0x7ffd_1b3c_2000, 0x7ffd_1b3c_4000));
        assert_eq!(
            (vdso.permissions.as_str(), vdso.name.as_str()),
            ("r-xp", "[vdso]")
        );
        let file = mapping("1000-2000 rw-s 00000000 00:01 9   /a b (deleted)").unwrap();
        assert_eq!(file.name, "/a b (deleted)");
        assert_eq!(mapping("1000-2000 r-xp 00000000 00:00 0").unwrap().name, "");
        assert_eq!(mapping("torn"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn a_damaged_image_is_no_disaster(
            damage in proptest::collection::vec((0_usize..8192, any::<u8>()), 1..20),
            len in 0_usize..9000,
        ) {
            let mut image = Vdso::own().unwrap().image.clone();
            for (at, byte) in damage {
                if let Some(place) = image.get_mut(at) {
                    *place = byte;
                }
            }
            image.truncate(len);
            if let Some(vdso) = Vdso::parse(&image) {
                prop_assert!(vdso.entries.iter().all(|&at| at + 16 <= image.len()));
            }
        }
    }
}
