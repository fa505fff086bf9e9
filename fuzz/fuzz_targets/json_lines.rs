//! Lines of our own history, read by hand and by `serde_json`: what one takes the other takes, and
//! it means the same.

#![no_main]

use history::Event;

const HEADER: &str = "{\"schism\":1,\"kind\":\"history\"}\n";

libfuzzer_sys::fuzz_target!(|lines: &str| {
    let usual = format!("{HEADER}{lines}");
    // A space before a line is nothing to `serde_json`, and not what is read by hand.
    let spaced: String = lines.split_inclusive('\n').map(|line| format!(" {line}")).collect();
    let unusual = format!("{HEADER}{spaced}");
    let events = |text: &str| -> Option<Vec<Event>> {
        let read = schism_fuzz::read(Some("schism"), text.as_bytes())?;
        Some(read.history.events().map(|event| event.to_event()).collect())
    };
    assert_eq!(events(&usual), events(&unusual));
});
