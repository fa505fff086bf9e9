//! Public histories of transactions over lists get the verdicts that are known of them, level by
//! level.

use checkers::{Budget, Checked, Verdict, find};
use history::History;

use crate::public::{Public, histories};

/// The levels at which Elle judged the generated histories.
const LEVELS: [&str; 9] = [
    "read-uncommitted",
    "read-committed",
    "read-atomic",
    "causal-cerone",
    "snapshot-isolation",
    "repeatable-read",
    "serializable",
    "strong-session-serializable",
    "strict-serializable",
];

fn check(history: &History, level: &str) -> Checked {
    let mut history = history.clone();
    let params = &mut history.header.params;
    params.insert("level".to_owned(), level.into());
    let checker = find("append").expect("the checker");
    checkers::run(checker, &history, &Budget::unlimited())
}

fn is_list_append(public: &&Public) -> bool {
    public.model.starts_with("list-append")
}

#[test]
fn generated_histories_get_their_verdicts_level_by_level() {
    let mut judged = 0;
    let mut clashes = Vec::new();
    for public in histories().iter().filter(is_list_append) {
        if !public.name.starts_with("generated/") {
            continue;
        }
        let history = public.read();
        let violated = public.violated_levels();
        for level in LEVELS {
            let found = check(&history, level);
            let expected = violated.contains(&level);
            if (found.verdict == Verdict::Invalid) != expected {
                clashes.push(format!(
                    "{} {level} {expected} {} {found:?}",
                    public.name, public.note
                ));
            }
            judged += 1;
        }
    }
    assert!(clashes.is_empty(), "{}", clashes.join("\n"));
    assert!(judged > 9 * 20, "{judged}");
}

/// Those of Elle and elle-cli, each with levels that it keeps and levels that it breaks.
#[test]
fn histories_of_elle_get_their_verdicts() {
    let known: [(&str, &[&str], &[&str]); 4] = [
        (
            "elle/paper-example.edn",
            &["read-committed"],
            &["consistent-view", "snapshot-isolation", "repeatable-read"],
        ),
        (
            "elle/si-without-g-single.edn",
            &["snapshot-isolation", "strong-session-snapshot-isolation"],
            &["repeatable-read", "serializable"],
        ),
        (
            "elle-cli/elle/paper-example.json",
            &["read-committed"],
            &["snapshot-isolation", "strict-serializable"],
        ),
        (
            "elle-cli/elle/list-append-gh-30.edn",
            &["read-uncommitted"],
            &["serializable"],
        ),
    ];
    for public in histories().iter().filter(is_list_append) {
        let found = known.iter().find(|(name, _, _)| *name == public.name);
        let Some((name, kept, broken)) = found else {
            assert!(public.name.starts_with("generated/"), "{}", public.name);
            continue;
        };
        let history = public.read();
        for level in *kept {
            let found = check(&history, level);
            assert_eq!(found.verdict, Verdict::Valid, "{name} {level} {found:?}");
        }
        for level in *broken {
            let found = check(&history, level);
            assert_eq!(found.verdict, Verdict::Invalid, "{name} {level} {found:?}");
        }
    }
}
