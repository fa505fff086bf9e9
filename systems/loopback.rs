//! A system on this machine's loopback, without nodes or faults: for `schism client-test` and for
//! the tests of the clients. Each server has an address of its own below 127.0.0.0/8, so that the
//! usual ports are free. What runs a system for a real test is the crate `cluster`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use spec::Params;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::client::{Failure, Patience};
use crate::http::{Answer, Endpoint};
use crate::{Error, Probe, Server, Service, System, vault};

/// How long a system has until it is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How much of a log is shown when a service does not come up, in lines.
const LOG_LINES: usize = 15;

/// Running services. Dropping it kills them and removes what they wrote.
#[derive(Debug)]
pub struct Loopback {
    exe: PathBuf,
    network: [u8; 2],
    next_host: AtomicU8,
    dir: TempDir,
    running: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Loopback {
    /// Nothing yet. `exe` is the program that stands for `schism` in the services.
    ///
    /// # Errors
    /// [`Error::Client`] if there is no room for temporary files.
    pub fn new(exe: &Path) -> Result<Loopback, Error> {
        let dir = tempfile::tempdir()
            .map_err(|error| Error::Client(format!("cannot make a temporary folder: {error}")))?;
        // Two instances at the same time, in one process or several, must not meet.
        static INSTANCES: AtomicU8 = AtomicU8::new(0);
        let instance = INSTANCES.fetch_add(1, Ordering::Relaxed);
        let [low, high, ..] = std::process::id().to_le_bytes();
        Ok(Loopback {
            exe: exe.to_owned(),
            network: [low.max(1), high.wrapping_add(instance.wrapping_mul(37))],
            next_host: AtomicU8::new(1),
            dir,
            running: Vec::new(),
        })
    }

    /// A server that is not running yet.
    pub fn server(&self, name: &str) -> Server {
        let host = self.next_host.fetch_add(1, Ordering::Relaxed);
        let [a, b] = self.network;
        Server {
            name: name.to_owned(),
            addr: [127, a, b, host].into(),
            dir: self.dir.path().join(name),
        }
    }

    /// Starts a cluster `n1`, `n2`, ... and waits until every server is ready.
    ///
    /// # Errors
    /// If it cannot be started, or is not ready in time; with the tail of a log.
    pub async fn cluster(
        &mut self,
        system: &dyn System,
        servers: usize,
        params: &Params,
    ) -> Result<Vec<Server>, Error> {
        let cluster: Vec<Server> = (1..=servers)
            .map(|number| self.server(&format!("n{number}")))
            .collect();
        for server in &cluster {
            for service in system.services(server, &cluster, params)? {
                self.start(server, &service)?;
            }
        }
        for server in &cluster {
            let is_ready = |status, body: &[u8]| system.is_ready(status, body);
            self.wait(&system.ready_probe(server), is_ready).await?;
        }
        Ok(cluster)
    }

    /// Starts the vault and waits until it is ready.
    ///
    /// # Errors
    /// As [`Loopback::cluster`].
    pub async fn vault(&mut self, fencing: bool) -> Result<Server, Error> {
        let server = self.server("vault");
        self.start(&server, &vault::service(&server, fencing))?;
        let probe = vault::ready_probe(&server);
        self.wait(&probe, |status, _| status == 200).await?;
        Ok(server)
    }

    /// Kills a service, as `kill -9` does, and waits until it is gone.
    ///
    /// # Errors
    /// [`Error::Client`] if it cannot be killed.
    ///
    /// # Panics
    /// If there is no such service on that server.
    pub async fn kill(&mut self, server: &Server, service: &str) -> Result<(), Error> {
        let name = format!("{}-{service}", server.name);
        let index = self.running.iter().position(|running| running.name == name);
        let mut running = self.running.swap_remove(index.expect("the service runs"));
        let killed = running.child.kill().await;
        killed.map_err(|error| Error::Client(format!("cannot kill {name}: {error}")))
    }

    /// Asks a server what a probe asks.
    ///
    /// # Errors
    /// As [`Endpoint::post`].
    ///
    /// # Panics
    /// If the probe has no address.
    pub async fn probe(&self, probe: &Probe) -> Result<Answer, Failure> {
        let addr = probe.addr.parse().expect("services have addresses");
        let mut patience = Patience::new(Duration::from_secs(1));
        Endpoint::new(addr).probe(probe, &mut patience).await
    }

    fn start(&mut self, server: &Server, service: &Service) -> Result<(), Error> {
        let name = format!("{}-{}", server.name, service.name);
        let failed =
            |what: &dyn std::fmt::Display| Error::Client(format!("cannot start {name}: {what}"));
        std::fs::create_dir_all(&server.dir).map_err(|error| failed(&error))?;
        for (path, content) in &service.files {
            std::fs::write(server.dir.join(path), content).map_err(|error| failed(&error))?;
        }
        let log = self.dir.path().join(format!("{name}.log"));
        let file = std::fs::File::create(&log).map_err(|error| failed(&error))?;
        let again = file.try_clone().map_err(|error| failed(&error))?;
        let (program, arguments) = service.argv.split_first().expect("a service has a program");
        let program = match &**program {
            "schism" => self.exe.as_os_str(),
            other => other.as_ref(),
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "there are no nodes and no agents here; the child dies with this value"
        )]
        let child = Command::new(program)
            .args(arguments)
            .envs(service.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(again)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(&error))?;
        self.running.push(Running { name, child, log });
        Ok(())
    }

    async fn wait(
        &mut self,
        probe: &Probe,
        is_ready: impl Fn(u16, &[u8]) -> bool,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let answer = self.probe(probe).await;
            match answer {
                Ok(answer) if is_ready(answer.status, &answer.body) => return Ok(()),
                _ => self.check_alive(deadline)?,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn check_alive(&mut self, deadline: Instant) -> Result<(), Error> {
        let late = Instant::now() >= deadline;
        for running in &mut self.running {
            let ended = running.child.try_wait().ok().flatten();
            if late || ended.is_some() {
                let what = match ended {
                    Some(status) => format!("ended ({status})"),
                    None => format!("is not ready after {READY_WITHIN:?}"),
                };
                let (name, log) = (&running.name, tail(&running.log));
                return Err(Error::Client(format!(
                    "{name} {what}; its log ends:\n{log}"
                )));
            }
        }
        Ok(())
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
