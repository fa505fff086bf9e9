//! `schism bench cluster`: what the emulated network and the cluster's coming and going cost.

use cluster::bench::{self, Effort};

/// Measures and prints.
pub async fn measure() -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    eprintln!("measuring; this takes about half a minute");
    let report = bench::run(dir.path(), None, &Effort::default())
        .await
        .map_err(|error| error.to_string())?;
    println!("{report}");
    Ok(())
}
