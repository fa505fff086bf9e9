//! `schism client` and `schism client-test`: the two ends of the client protocol.

use crate::cli::{ClientArgs, ClientTestArgs};
use crate::result::Exit;

/// Becomes a client program.
pub fn client(args: &ClientArgs) -> Exit {
    let Some(system) = systems::find(&args.system) else {
        let known = systems::SYSTEMS.iter().map(|system| system.name());
        let hint = spec::closest(&args.system, known);
        let hint = hint.map(|name| format!("; did you mean `{name}`?"));
        eprintln!("error: unknown system `{}`{}", args.system, hint.unwrap_or_default());
        return Exit::Usage;
    };
    match systems::driver::run_client(system) {
        Ok(()) => Exit::Held,
        Err(error) => {
            eprintln!("error: {error}");
            Exit::Harness
        }
    }
}

/// Tests somebody's client program.
pub fn client_test(args: &ClientTestArgs) -> Exit {
    let _ = args;
    Exit::Harness
}
