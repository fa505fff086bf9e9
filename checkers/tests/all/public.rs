//! Public histories with known verdicts: those of other tools' tests, and generated ones.
//!
//! `tests/public` holds the files whose licence lets us redistribute them. `$SCHISM_HISTORIES`, or
//! `../shared/histories` beside the repository, may hold more of them under the same index.

use std::path::{Path, PathBuf};

use checkers::{Budget, Verdict};
use history::{History, Kind};

/// A history, and what is known of it.
pub struct Public {
    /// The file.
    pub path: PathBuf,
    /// Its path in the index.
    pub name: String,
    /// The format, as the index names it.
    pub format: String,
    /// The model or property that the verdict is about, as the index names it.
    pub model: String,
    /// The verdict, as the index words it.
    pub expected: String,
    /// Where the verdict comes from, or what was found.
    pub note: String,
}

impl Public {
    /// Reads it.
    pub fn read(&self) -> History {
        let read = match self.name.ends_with("etcd_095.log") {
            // The cluster did not start and the log is empty: nothing tells its format.
            true => read_as(&self.path, "log"),
            false => history::read_path(&self.path),
        };
        let read = read.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        assert!(
            read.warnings.is_empty(),
            "{}: {:?}",
            self.name,
            read.warnings
        );
        read.history
    }

    /// Whether the index says that it is linearizable; `None` if it is not about that.
    pub fn is_linearizable(&self) -> Option<bool> {
        match self.expected.as_str() {
            "NOT-linearizable" => Some(false),
            text if text.starts_with("linearizable") => Some(true),
            _ => None,
        }
    }

    /// The levels that the index says it violates: `INVALID for: a,b`.
    pub fn violated_levels(&self) -> Vec<&str> {
        let levels = self.expected.strip_prefix("INVALID for: ");
        levels.map_or(Vec::new(), |levels| levels.split(',').collect())
    }
}

fn read_as(path: &Path, format: &str) -> Result<history::Read, history::Error> {
    let options = history::Options {
        format: Some(format.to_owned()),
        ..history::Options::default()
    };
    history::read_path_with(path, &options)
}

/// The folder with the most histories that there is.
fn folder() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = match std::env::var_os("SCHISM_HISTORIES") {
        Some(named) => PathBuf::from(named),
        None => own.join("../../shared/histories"),
    };
    match shared.join("INDEX.tsv").exists() {
        true => shared,
        false => own.join("tests/public"),
    }
}

/// All histories with known verdicts, in the order of the index.
pub fn histories() -> Vec<Public> {
    histories_in(&folder())
}

fn histories_in(folder: &Path) -> Vec<Public> {
    let index = std::fs::read_to_string(folder.join("INDEX.tsv")).expect("an index");
    let entry = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or_default().to_owned();
        Public {
            path: folder.join(fields[0]),
            name: field(0),
            format: field(1),
            model: field(2),
            expected: field(3),
            note: field(7),
        }
    };
    index.lines().skip(1).map(entry).collect()
}

/// How many operations a file holds, told by nothing but its text.
fn count(format: &str, text: &str) -> usize {
    let words = |word: &str| text.matches(word).count();
    match format {
        "jepsen-log-text" => words(":invoke"),
        "json" => words("\"type\":\"invoke\""),
        "awdit-test-text" => {
            let parts = text
                .split("=====")
                .flat_map(|session| session.split("-----"));
            parts.filter(|txn| !txn.trim().is_empty()).count()
        }
        format if format.starts_with("plume") => {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            let mut txns: Vec<&str> = lines.filter_map(|line| line.rsplit(',').next()).collect();
            txns.sort_unstable();
            txns.dedup();
            txns.len()
        }
        _ => text
            .split(":type")
            .skip(1)
            .filter(|rest| rest.trim_start().starts_with(":invoke"))
            .count(),
    }
}

/// What is known so far: registers, and the logs of etcd, under the default parameters.
#[test]
fn registers_get_their_verdicts() {
    let checker = checkers::find("linearizable").expect("a checker of this name");
    let mut judged = 0;
    for public in histories() {
        let Some(expected) = public.is_linearizable() else {
            continue;
        };
        if !public.model.starts_with("cas-register init=nil") {
            continue;
        }
        let history = public.read();
        if history.is_empty() {
            // Nothing happened, and so nothing is judged.
            continue;
        }
        let found = checkers::run(checker, &history, &Budget::unlimited());
        let expected = if expected {
            Verdict::Valid
        } else {
            Verdict::Invalid
        };
        assert_eq!(found.verdict, expected, "{} {}", public.name, public.note);
        judged += 1;
    }
    assert!(judged > 300, "{judged}");
}

/// Sets, counters, banks and forks, where they are there: their licence does not let us copy them.
#[test]
fn collections_get_their_verdicts() {
    let mut judged = 0;
    for public in histories() {
        let mut words = public.model.split(' ');
        let name = words.next().unwrap_or_default();
        if !["set", "set-full", "counter", "bank", "long-fork"].contains(&name) {
            continue;
        }
        let mut history = public.read();
        if let (Some("--group-size"), Some(size)) = (words.next(), words.next()) {
            let size: u64 = size.parse().expect("a number");
            let params = &mut history.header.params;
            params.insert("group_size".to_owned(), size.into());
        }
        let checker = checkers::find(name).expect("a checker of this name");
        let found = checkers::run(checker, &history, &Budget::unlimited());
        let verdict = match public.expected.as_str() {
            // elle-cli calls a counter valid that nobody read; nothing was shown of it.
            "valid"
                if found.counted("additions").is_some() && found.counted("reads") == Some(0) =>
            {
                let Verdict::Unknown(_) = found.verdict else {
                    panic!("{}: {found:?}", public.name);
                };
                judged += 1;
                continue;
            }
            "valid" => Verdict::Valid,
            "INVALID" => Verdict::Invalid,
            other => panic!("{}: {other}", public.name),
        };
        assert_eq!(found.verdict, verdict, "{}: {found:?}", public.name);
        judged += 1;
    }
    assert!(matches!(judged, 0 | 9), "{judged}");
}

#[test]
fn violated_levels_are_named_one_by_one() {
    let all = histories();
    let violated = |at: &Public| at.violated_levels().contains(&"serializable");
    assert!(all.iter().any(violated));
}

#[test]
fn every_public_history_is_read_whole() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/public");
    for public in histories().into_iter().chain(histories_in(&own)) {
        let text = std::fs::read_to_string(&public.path).expect("a text");
        let history = public.read();
        let ops = history.ops().count();
        assert_eq!(ops, count(&public.format, &text), "{}", public.name);
        let completions = history.events().filter(|event| {
            matches!(event.kind(), Kind::Ok | Kind::Fail) && event.partner().is_none()
        });
        assert_eq!(completions.count(), 0, "{}", public.name);
    }
}
