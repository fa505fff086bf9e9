//! Any text, read as `awdit`.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    schism_fuzz::read(Some("awdit"), text);
});
