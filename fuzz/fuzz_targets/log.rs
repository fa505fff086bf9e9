//! Any text, read as `log`.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    schism_fuzz::read(Some("log"), text);
});
