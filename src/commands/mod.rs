//! The commands: each reads its arguments, does its work through the rest of the controller, and
//! says which exit code that gives.

pub mod check;
pub mod client;
pub mod doctor;
pub mod list;
pub mod run;

use tabled::builder::Builder;
use tabled::settings::Style;
use tabled::settings::peaker::Priority;
use tabled::settings::width::Width;

/// Prints a table as wide as the terminal at most; the widest columns give way first.
fn print_table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let mut table = Builder::new();
    table.push_record(head.iter().copied());
    for row in rows {
        table.push_record(row);
    }
    let width = crate::report::terminal::width();
    let mut table = table.build();
    table.with(Style::rounded());
    table.with(
        Width::wrap(width)
            .keep_words(true)
            .priority(Priority::max(true)),
    );
    println!("{table}");
}
