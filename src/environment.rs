//! Where a run took place: kernel, processors, memory, who, and which schism.

use std::collections::BTreeMap;
use std::fs;

/// Facts about this machine and this program, by name, for `result.json`.
pub fn describe() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(name.to_owned(), value);
        }
    };
    put("schism", Some(env!("CARGO_PKG_VERSION").to_owned()));
    put("kernel", read("/proc/sys/kernel/osrelease"));
    put("os", os_name());
    put("arch", Some(std::env::consts::ARCH.to_owned()));
    put("processors", processors());
    put("memory", memory());
    put(
        "load",
        read("/proc/loadavg").map(|text| first_words(&text, 3)),
    );
    put("user", user());
    facts
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn first_words(text: &str, count: usize) -> String {
    text.split_whitespace()
        .take(count)
        .collect::<Vec<_>>()
        .join(" ")
}

fn os_name() -> Option<String> {
    let text = read("/etc/os-release")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches('"').to_owned())
}

fn processors() -> Option<String> {
    let text = read("/proc/cpuinfo")?;
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = std::thread::available_parallelism().ok()?;
    Some(match model {
        Some((_, model)) => format!("{count} x {model}"),
        None => count.to_string(),
    })
}

fn memory() -> Option<String> {
    let text = read("/proc/meminfo")?;
    let kib: u64 = text.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    })?;
    Some(format!("{:.1} GiB", kib as f64 / 1_048_576.0))
}

fn user() -> Option<String> {
    let status = read("/proc/self/status")?;
    let uid = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1))
        .map(str::to_owned)?;
    Some(if uid == "0" {
        "root".to_owned()
    } else {
        format!("uid {uid}")
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_and_the_version_are_known() {
        let facts = super::describe();
        assert!(facts.contains_key("kernel"));
        assert_eq!(facts["schism"], env!("CARGO_PKG_VERSION"));
    }
}
