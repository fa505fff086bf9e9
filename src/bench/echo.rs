//! A client program that answers every operation at once: the far end of `schism bench drive`.

use std::io::{BufRead, Write};

use serde_json::Value;
use systems::protocol::{ClientHello, Reply, Request};

use crate::result::Exit;

/// Answers until its input ends.
pub fn run() -> Exit {
    match answer_all() {
        Ok(()) => Exit::Held,
        Err(why) => {
            eprintln!("error: {why}");
            Exit::Harness
        }
    }
}

fn answer_all() -> Result<(), String> {
    let mut input = std::io::BufReader::with_capacity(1 << 16, std::io::stdin().lock());
    let mut output = std::io::stdout().lock();
    let mut line = Vec::new();
    let mut answers = Vec::new();
    loop {
        line.clear();
        if input
            .read_until(b'\n', &mut line)
            .map_err(|error| error.to_string())?
            == 0
        {
            return Ok(());
        }
        match Request::parse(line.trim_ascii_end()).map_err(|error| error.to_string())? {
            Request::Hello(_) => {
                let can = ["read", "write", "cas"].map(str::to_owned).to_vec();
                let hello = ClientHello {
                    client: "echo".to_owned(),
                    can,
                    max_in_flight: 65_536,
                };
                Reply::Hello(hello).write(&mut answers);
            }
            Request::Invoke(invoke) => {
                let value = match invoke.f.as_ref() {
                    "read" => Value::from(1),
                    _ => invoke.value.into_owned(),
                };
                Reply::Ok {
                    id: invoke.id,
                    value,
                }
                .write(&mut answers);
            }
        }
        // What came together is answered together.
        if input.buffer().is_empty() || answers.len() > 1 << 16 {
            output
                .write_all(&answers)
                .map_err(|error| error.to_string())?;
            output.flush().map_err(|error| error.to_string())?;
            answers.clear();
        }
    }
}
