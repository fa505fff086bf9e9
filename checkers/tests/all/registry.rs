//! The folder and the list say the same.

use std::path::Path;

use checkers::linearizable::models::MODELS;
use checkers::{CHECKERS, find};

#[test]
fn every_file_that_defines_a_checker_is_in_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut defined: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a file");
            if text.contains("\nimpl Checker for ") {
                let stem = path
                    .file_stem()
                    .and_then(|stem| stem.to_str())
                    .expect("a name");
                defined.push(stem.replace('_', "-"));
            }
        }
    }
    defined.sort_unstable();
    let mut listed: Vec<&str> = CHECKERS.iter().map(|checker| checker.name()).collect();
    listed.sort_unstable();
    assert_eq!(defined, listed);
}

#[test]
fn names_and_aliases_are_found_and_distinct() {
    let mut names: Vec<&str> = Vec::new();
    for checker in CHECKERS {
        assert_eq!(
            find(checker.name()).map(|found| found.name()),
            Some(checker.name())
        );
        names.push(checker.name());
        names.extend(checker.aliases());
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(find("no-such-checker").is_none());
}

#[test]
fn every_file_that_defines_a_model_is_in_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("linearizable/models");
    let mut defined: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a file");
        assert!(text.contains("\nimpl Model for "), "{}", path.display());
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        defined.push(stem.expect("a name").replace('_', "-"));
    }
    defined.sort_unstable();
    let mut listed: Vec<&str> = MODELS.iter().map(|model| model.name).collect();
    listed.sort_unstable();
    assert_eq!(defined, listed);
}
