//! `schism bench cluster`: what the emulated network and the cluster's coming and going cost.

/// Measures and prints.
pub async fn measure() -> Result<(), String> {
    Err("not measured yet".to_owned())
}
