//! Process trees as `/proc` shows them. It only looks; what is done to trees is in `freeze.rs` and
//! `service.rs`.

use std::fs;
use std::io;

use crate::evidence::ProcessState;

/// One line of `/proc/PID/stat`, as far as it matters here.
struct Stat {
    parent: i32,
    process: ProcessState,
}

/// All living descendants of a process, itself excluded; zombies do not live.
pub(super) fn descendants(root: i32) -> io::Result<Vec<ProcessState>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // A process that ended meanwhile is no longer part of the answer.
        if let Some(stat) = read_stat(pid) {
            all.push(stat);
        }
    }
    let mut tree = vec![root];
    let mut found = Vec::new();
    let mut next = 0;
    while next < tree.len() {
        let parent = tree[next];
        next += 1;
        for stat in all.iter().filter(|stat| stat.parent == parent) {
            tree.push(stat.process.pid);
            if !matches!(stat.process.state, 'Z' | 'X') {
                found.push(stat.process.clone());
            }
        }
    }
    found.sort_by_key(|process| process.pid);
    Ok(found)
}

/// Whether this very process (not another under its old number) exists, zombies included.
pub(super) fn exists(process: &ProcessState) -> bool {
    read_stat(process.pid).is_some_and(|stat| stat.process.start_time == process.start_time)
}

/// The parent of a process, if it exists.
pub(super) fn parent(pid: i32) -> Option<i32> {
    read_stat(pid).map(|stat| stat.parent)
}

/// The state letters of all threads of a process; empty when it is gone.
pub(super) fn thread_states(pid: i32) -> Vec<char> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("stat")).ok())
        .filter_map(|line| parse_stat(&line))
        .map(|stat| stat.process.state)
        .collect()
}

fn read_stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `pid (command) state ppid ...`; the command may itself contain blanks and parentheses.
fn parse_stat(line: &str) -> Option<Stat> {
    let (pid, rest) = line.split_once(" (")?;
    let (command, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        process: ProcessState {
            pid: pid.parse().ok()?,
            state: fields.first()?.chars().next()?,
            start_time: fields.get(19)?.parse().ok()?,
            command: command.to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_with_parentheses_are_read() {
        let line = "42 (a) b) c) S 7 42 42 0 -1 4194560 99 0 0 0 1 2 3 4 20 0 5 0 123456 1 2 3";
        let stat = parse_stat(line).unwrap();
        assert_eq!(stat.parent, 7);
        let expected = ProcessState {
            pid: 42,
            state: 'S',
            start_time: 123_456,
            command: "a) b) c".into(),
        };
        assert_eq!(stat.process, expected);
        assert!(parse_stat("42 (torn").is_none());
    }

    #[test]
    fn this_process_exists_and_is_nobodys_descendant() {
        let own = read_stat(std::process::id() as i32).unwrap().process;
        assert!(exists(&own));
        assert!(!exists(&ProcessState {
            start_time: own.start_time + 1,
            ..own.clone()
        }));
        let parent = parent(own.pid).unwrap();
        assert!(
            descendants(parent)
                .unwrap()
                .iter()
                .any(|process| process.pid == own.pid)
        );
        assert!(!thread_states(own.pid).is_empty());
    }
}
