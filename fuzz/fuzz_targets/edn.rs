//! Any text, read as `edn`.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    schism_fuzz::read(Some("edn"), text);
});
