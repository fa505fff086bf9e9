//! The vault as a service: how the protected resource of the lock workloads is started and found. It
//! runs on a node of its own, one process beside whatever system is under test. What it does is in
//! the crate `conclave`.

use crate::{Probe, Server, Service, http_addr};

/// Where the vault listens.
const PORT: u16 = 7200;

/// The vault's process on a node.
pub fn service(server: &Server, fencing: bool) -> Service {
    let mut argv: Vec<String> = [
        "schism",
        "conclave",
        "vault",
        "--listen",
        &addr(server),
        "--data-dir",
        &server.dir.join("vault").to_string_lossy(),
    ]
    .map(str::to_owned)
    .into();
    if !fencing {
        argv.push("--no-fencing".to_owned());
    }
    Service::new("vault", argv)
}

/// The address that clients use.
pub fn addr(server: &Server) -> String {
    http_addr(server, PORT)
}

/// The request that a vault answers with 200 when it can be used.
pub fn ready_probe(server: &Server) -> Probe {
    Probe::post(addr(server), "/get", "{\"key\":\"ready\"}")
}

/// The request for every operation that the vault accepted, in its own order: a JSON object
/// ([`conclave::api::VaultEntry`]) a line.
pub fn log_probe(server: &Server) -> Probe {
    Probe::get(addr(server), "/log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vault_understands_its_arguments() {
        #[derive(clap::Parser)]
        enum Cli {
            Vault(conclave::VaultArgs),
        }
        let server = Server {
            name: "v1".to_owned(),
            addr: [10, 9, 0, 9].into(),
            dir: "/nodes/v1".into(),
        };
        for fencing in [true, false] {
            let argv = service(&server, fencing).argv;
            let Cli::Vault(args) = <Cli as clap::Parser>::parse_from(argv.iter().skip(1));
            assert_eq!(args.listen, addr(&server));
            assert_eq!(args.switches.no_fencing, !fencing);
        }
    }
}
