//! `schism bench`: measures the harness itself, so that nobody has to guess what it adds.

mod drive;
pub mod echo;
mod emulation;

use crate::cli::{BenchArgs, BenchWhat};
use crate::result::Exit;

/// Measures what was asked for and prints it.
pub async fn bench(args: BenchArgs) -> Exit {
    let result = match args.what {
        BenchWhat::Cluster => emulation::measure().await,
        BenchWhat::Drive { seconds } => drive::measure(seconds).await,
    };
    match result {
        Ok(()) => Exit::Held,
        Err(why) => {
            eprintln!("error: {why}");
            Exit::Harness
        }
    }
}
