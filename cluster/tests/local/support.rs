//! What the tests share: making clusters, waiting for what must come, and running as another user.

use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use cluster::{Cluster, ClusterSpec, Node, ServiceSpec};
use libtest_mimic::{Arguments, Failed, Trial};
use tempfile::TempDir;

/// A name and what it does; it panics when it fails.
pub(crate) type Test = (&'static str, fn());

/// The user that has no privileges anywhere.
const NOBODY: u32 = 65534;

/// Runs the tests as the arguments say.
pub(crate) fn main(tests: &'static [Test]) -> ExitCode {
    let mut args = Arguments::from_args();
    // Several clusters at once on a small machine would measure each other, and orphans are buried
    // without asking whose they are.
    args.test_threads = Some(1);
    let root = nix::unistd::geteuid().is_root();
    let mut trials = Vec::new();
    for &(name, test) in tests {
        if root {
            trials.push(Trial::test(format!("root::{name}"), move || {
                test();
                Ok(())
            }));
        }
        let name = format!("rootless::{name}");
        let again = name.clone();
        trials.push(Trial::test(name, move || {
            if root {
                return run_as_nobody(&again);
            }
            test();
            Ok(())
        }));
    }
    libtest_mimic::run(&args, trials).exit_code()
}

/// Runs one test of this program again, in a child without privileges.
fn run_as_nobody(name: &str) -> Result<(), Failed> {
    // The program may lie where others cannot reach it.
    let dir = tempfile::tempdir()?;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
    let copy = dir.path().join("test");
    std::fs::copy(std::env::current_exe()?, &copy)?;
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755))?;
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's own child, not a node's process"
    )]
    let output = std::process::Command::new(&copy)
        .args(["--exact", name])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(String::from_utf8_lossy(&said).into_owned().into())
}

/// Runs an asynchronous test on a runtime of its own.
pub(crate) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new()
        .expect("a runtime")
        .block_on(test);
}

/// A cluster in a directory that is removed with it.
pub(crate) struct Lab {
    pub cluster: Cluster,
    pub dir: TempDir,
}

impl Lab {
    pub(crate) async fn new(nodes: usize) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let spec = spec(nodes, dir.path());
        let cluster = match cluster::create(&spec).await {
            Ok(cluster) => cluster,
            Err(error) => {
                let log = std::fs::read_to_string(dir.path().join("sandbox.log"));
                panic!("{error}\n{}", log.unwrap_or_default());
            }
        };
        Self { cluster, dir }
    }

    pub(crate) fn node(&self, name: &str) -> &Node {
        self.cluster.node(name).expect("a node of this name")
    }

    pub(crate) async fn end(self) {
        self.cluster.destroy().await.expect("a clean end");
    }
}

pub(crate) fn spec(nodes: usize, dir: &Path) -> ClusterSpec {
    let nodes = (1..=nodes).map(|number| format!("n{number}")).collect();
    ClusterSpec {
        nodes,
        seed: 7,
        dir: PathBuf::from(dir),
        exe: None,
    }
}

/// A service that is a shell command.
pub(crate) fn shell(name: &str, command: &str) -> ServiceSpec {
    ServiceSpec {
        name: name.to_owned(),
        argv: ["sh", "-c", command].map(str::to_owned).to_vec(),
        env: Vec::new(),
        log: format!("{name}.log"),
    }
}

/// A service that is this program under another name; that name is also the service's.
pub(crate) fn program(argv: &[&str]) -> ServiceSpec {
    let this = std::env::current_exe()
        .expect("this program")
        .display()
        .to_string();
    let name = argv[0];
    let argv = std::iter::once(this)
        .chain(argv.iter().map(|&arg| arg.to_owned()))
        .collect();
    ServiceSpec {
        argv,
        ..shell(name, "")
    }
}

/// Waits for something to come within ten seconds.
pub(crate) async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(10), coming).await {
        Ok(came) => came,
        Err(_) => panic!("{what} did not come within 10 s"),
    }
}

/// Looks again and again until something is so; for what nobody announces.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    soon(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
