//! `schism list` and `schism completions`: what the registries hold.

use clap::CommandFactory;

use crate::cli::{Cli, ListArgs, ListWhat};
use crate::result::Exit;

/// Prints a registry.
pub fn list(args: &ListArgs) -> Exit {
    let (head, rows) = rows(args.what);
    if args.markdown {
        print!("{}", markdown(head, &rows));
        return Exit::Held;
    }
    super::print_table(head, rows);
    Exit::Held
}

/// Prints completions for a shell.
pub fn completions(shell: clap_complete::Shell) -> Exit {
    clap_complete::generate(shell, &mut Cli::command(), "schism", &mut std::io::stdout());
    Exit::Held
}

fn rows(what: ListWhat) -> (&'static [&'static str], Vec<Vec<String>>) {
    let text = |words: &[&str]| {
        words
            .iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<_>>()
    };
    match what {
        ListWhat::Workloads => (
            &["workload", "what clients do"],
            workloads::WORKLOADS
                .iter()
                .map(|w| text(&[w.name(), w.about()]))
                .collect(),
        ),
        ListWhat::Faults => (
            &["fault", "what it does"],
            nemeses::FAULTS
                .iter()
                .map(|fault| text(&[fault.name(), fault.about()]))
                .collect(),
        ),
        ListWhat::Checkers => (
            &["checker", "what it promises", "how it is decided"],
            checkers::CHECKERS
                .iter()
                .map(|checker| text(&[checker.name(), checker.promise(), checker.method()]))
                .collect(),
        ),
        ListWhat::Systems => (
            &["system", "what it is", "workloads"],
            systems::SYSTEMS
                .iter()
                .map(|system| {
                    text(&[
                        system.name(),
                        system.about(),
                        &system.workloads().join(", "),
                    ])
                })
                .collect(),
        ),
        ListWhat::ExitCodes => (
            &["code", "meaning", "CI should"],
            Exit::ALL
                .iter()
                .map(|&(exit, meaning, advice)| text(&[&(exit as u8).to_string(), meaning, advice]))
                .collect(),
        ),
    }
}

fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(&head.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>());
    text += &format!("|{}\n", "---|".repeat(head.len()));
    for row in rows {
        text += &line(row);
    }
    text
}
