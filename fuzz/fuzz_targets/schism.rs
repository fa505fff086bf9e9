//! Any text, read as `schism`.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    schism_fuzz::read(Some("schism"), text);
});
