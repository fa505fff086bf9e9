//! Any text, read as `plume`.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    schism_fuzz::read(Some("plume"), text);
});
