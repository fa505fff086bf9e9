//! Any text, in whatever format it is found to be; compressed texts, too.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    schism_fuzz::read(None, text);
});
