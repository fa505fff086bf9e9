//! Lays a cell out over nodes, and brings the system and the vault up on them.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::{Cluster, Exit, Node, NodeEventKind, ServiceSpec};
use history::{Event, Kind, Process};
use serde_json::json;
use systems::{Server, Service};
use tokio::sync::mpsc;

use super::observe::{self, LeaderBoard};
use crate::result::NodeInfo;
use crate::suite::{Cell, VAULT};

const POLL: Duration = Duration::from_millis(50);
const PROBE_WITHIN: Duration = Duration::from_millis(1000);
const LOG_LINES: usize = 12;

/// How the end of a killed process is described.
const KILLED: &str = "signal 9";

/// Which nodes a cell has, by role.
#[derive(Debug, Clone)]
pub struct Layout {
    /// `n1`, `n2`, ...: they run the system.
    pub servers: Vec<String>,
    /// `c1`, `c2`, ...: they run client programs.
    pub clients: Vec<String>,
    /// Whether there is a node for the vault.
    pub vault: bool,
}

impl Layout {
    /// The nodes of a cell.
    pub fn new(cell: &Cell) -> Layout {
        let roster = cell.roster();
        Layout {
            servers: roster.servers,
            clients: roster.clients,
            vault: !roster.others.is_empty(),
        }
    }

    /// All nodes, servers first.
    pub fn names(&self) -> Vec<String> {
        let vault = self.vault.then(|| VAULT.to_owned());
        self.servers
            .iter()
            .chain(&self.clients)
            .cloned()
            .chain(vault)
            .collect()
    }

    /// The nodes as the result shows them.
    pub fn describe(&self, cluster: &Cluster) -> Vec<NodeInfo> {
        let role = |name: &str| match name {
            VAULT => "vault",
            name if self.clients.iter().any(|client| client == name) => "client",
            _ => "server",
        };
        cluster
            .nodes()
            .iter()
            .map(|node| NodeInfo {
                name: node.name().to_owned(),
                role: role(node.name()).to_owned(),
                addr: node.addr().to_string(),
            })
            .collect()
    }

    /// The servers as the system's description wants them.
    pub fn server_view(&self, cluster: &Cluster) -> Vec<Server> {
        self.servers
            .iter()
            .filter_map(|name| cluster.node(name))
            .map(server)
            .collect()
    }

    /// The servers as clients are told of them: name and address.
    pub fn client_view(&self, cell: &Cell, cluster: &Cluster) -> Vec<(String, String)> {
        let view = |server: Server| (server.name.clone(), cell.system.client_addr(&server));
        self.server_view(cluster).into_iter().map(view).collect()
    }

    /// The vault's address, if there is a vault.
    pub fn vault_addr(&self, cluster: &Cluster) -> Option<String> {
        let node = cluster.node(VAULT).filter(|_| self.vault)?;
        Some(systems::vault::addr(&server(node)))
    }

    /// Removes what the systems left on the nodes, except for their logs.
    pub fn drop_data(&self, nodes: &Path) {
        for name in self.names() {
            let Ok(entries) = fs::read_dir(nodes.join(name)) else {
                continue;
            };
            for entry in entries.flatten() {
                let path = entry.path();
                if path.is_dir() {
                    let _ = fs::remove_dir_all(&path);
                } else if path.extension().is_none_or(|extension| extension != "log") {
                    let _ = fs::remove_file(&path);
                }
            }
        }
    }
}

fn server(node: &Node) -> Server {
    Server {
        name: node.name().to_owned(),
        addr: node.addr(),
        dir: node.dir().to_owned(),
    }
}

/// Services and client programs that ended, by themselves or by the nemesis.
#[derive(Debug, Clone, Default)]
pub struct Exits(Arc<Mutex<ExitsState>>);

#[derive(Debug, Default)]
struct ExitsState {
    seen: Vec<(String, String, String)>,
    sink: Option<mpsc::UnboundedSender<Event>>,
}

impl Exits {
    fn note(&self, node: &str, service: &str, how: &str) {
        let Ok(mut state) = self.0.lock() else { return };
        state
            .seen
            .push((node.to_owned(), service.to_owned(), how.to_owned()));
        if let Some(sink) = &state.sink {
            let value = json!({ "service": service, "how": how });
            let event = Event::new(0, Process::observer(), Kind::Info, "exit", value);
            let _ = sink.send(event.with_node(node));
        }
    }

    /// From now on, exits are also recorded in the history.
    pub fn report_to(&self, sink: mpsc::UnboundedSender<Event>) {
        if let Ok(mut state) = self.0.lock() {
            state.sink = Some(sink);
        }
    }

    /// Those that nobody killed: node, service, and how it ended. SIGKILL comes from the nemesis.
    pub fn by_themselves(&self) -> Vec<(String, String, String)> {
        let Ok(state) = self.0.lock() else {
            return Vec::new();
        };
        state
            .seen
            .iter()
            .filter(|(_, _, how)| how != KILLED)
            .cloned()
            .collect()
    }

    fn first(&self) -> Option<(String, String, String)> {
        self.0.lock().ok()?.seen.first().cloned()
    }
}

/// Listens to the agents' reports of services that ended.
pub fn watch_exits(cluster: &Cluster) -> Exits {
    let exits = Exits::default();
    let own = exits.clone();
    let mut events = cluster.events();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            if let NodeEventKind::ServiceExit { service, exit, .. } = event.kind {
                own.note(&event.node, &service, &describe_exit(&exit));
            }
        }
    });
    exits
}

fn describe_exit(exit: &Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit status {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}

/// The path of the running program, which is also client, agent, and the system that we ship.
///
/// # Errors
/// What the system said.
pub fn own_executable() -> Result<String, String> {
    let path = std::env::current_exe().map_err(|error| format!("own executable: {error}"))?;
    Ok(path.display().to_string())
}

/// Starts the system on all servers, and the vault, and waits until all are ready.
///
/// # Errors
/// The node, what failed on it, and the end of its log.
pub async fn start(
    cell: &Cell,
    layout: &Layout,
    cluster: &Cluster,
    exits: &Exits,
) -> Result<(), String> {
    let servers = layout.server_view(cluster);
    for server in &servers {
        let services = services(cell, server, &servers)?;
        let node = cluster.node(&server.name).ok_or("a node is missing")?;
        for service in services {
            start_service(node, &service).await?;
        }
    }
    if let Some(vault) = cell.workload.vault(&cell.workload_params) {
        let node = cluster.node(VAULT).ok_or("the vault's node is missing")?;
        let server = server(node);
        start_service(node, &systems::vault::service(&server, vault.fencing)).await?;
        wait_for_vault(cluster, node, &server, exits).await?;
    }
    for server in &servers {
        let node = cluster.node(&server.name).ok_or("a node is missing")?;
        wait_ready(cell, cluster, node, server, exits).await?;
    }
    Ok(())
}

/// The services of a server.
///
/// # Errors
/// The node, and why the system cannot run on it.
pub fn services(cell: &Cell, server: &Server, all: &[Server]) -> Result<Vec<Service>, String> {
    let services = cell.system.services(server, all, &cell.system_params);
    services.map_err(|error| format!("{}: {error}", server.name))
}

async fn start_service(node: &Node, service: &Service) -> Result<(), String> {
    let said = |error: cluster::Error| format!("{}: {}: {error}", node.name(), service.name);
    for (path, content) in &service.files {
        node.put_file(path, content.clone(), 0o644)
            .await
            .map_err(said)?;
    }
    let spec = service_spec(service)?;
    node.start(&spec).await.map_err(said)?;
    Ok(())
}

/// The agent's view of a service of a system.
///
/// # Errors
/// If the running program cannot be found.
pub fn service_spec(service: &Service) -> Result<ServiceSpec, String> {
    let mut argv = service.argv.clone();
    if let Some(program) = argv.first_mut().filter(|program| *program == "schism") {
        *program = own_executable()?;
    }
    Ok(ServiceSpec {
        name: service.name.clone(),
        argv,
        env: service.env.clone(),
        log: format!("{}.log", service.name),
    })
}

async fn wait_ready(
    cell: &Cell,
    cluster: &Cluster,
    node: &Node,
    server: &Server,
    exits: &Exits,
) -> Result<(), String> {
    let probe = cell.system.ready_probe(server);
    loop {
        none_ended(cluster, exits).await?;
        let answer = observe::ask(node, &probe, PROBE_WITHIN).await;
        if answer.is_ok_and(|answer| cell.system.is_ready(answer.status, &answer.body)) {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn wait_for_vault(
    cluster: &Cluster,
    node: &Node,
    server: &Server,
    exits: &Exits,
) -> Result<(), String> {
    let probe = systems::vault::ready_probe(server);
    loop {
        none_ended(cluster, exits).await?;
        if observe::ask(node, &probe, PROBE_WITHIN).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Refuses to wait any longer for a system of which a service, on whatever node, has ended.
async fn none_ended(cluster: &Cluster, exits: &Exits) -> Result<(), String> {
    let Some((name, service, how)) = exits.first() else {
        return Ok(());
    };
    let tail = match cluster.node(&name) {
        Some(node) => log_tail(node, &service).await,
        None => String::new(),
    };
    Err(format!(
        "{name}: {service} ended ({how}) before it was ready{tail}"
    ))
}

async fn log_tail(node: &Node, service: &str) -> String {
    match node.tail(&format!("{service}.log"), LOG_LINES).await {
        Ok(tail) if !tail.trim().is_empty() => {
            format!("\nthe end of its log:\n{}", tail.trim_end())
        }
        _ => String::new(),
    }
}

/// Which nodes are not ready, and the ends of their logs.
pub async fn why_not_ready(cell: &Cell, layout: &Layout, cluster: &Cluster) -> String {
    let mut reasons = Vec::new();
    let servers = layout.server_view(cluster);
    for server in &servers {
        let Some(node) = cluster.node(&server.name) else {
            continue;
        };
        let why = match observe::ask(node, &cell.system.ready_probe(server), PROBE_WITHIN).await {
            Ok(answer) if cell.system.is_ready(answer.status, &answer.body) => continue,
            Ok(answer) => format!("answers with status {}", answer.status),
            Err(error) => error,
        };
        let first = services(cell, server, &servers)
            .ok()
            .and_then(|all| all.into_iter().next());
        let log = first.map_or_else(|| cell.system.name().to_owned(), |service| service.name);
        reasons.push(format!(
            "{}: {why}{}",
            server.name,
            log_tail(node, &log).await
        ));
    }
    reasons.join("\n")
}

/// Waits until every server is ready and all name one leader.
///
/// # Errors
/// Which server is not, when the cell's time for it is over.
pub async fn settle(
    cell: &Cell,
    layout: &Layout,
    cluster: &Cluster,
    leaders: &LeaderBoard,
) -> Result<(), String> {
    let whole = async {
        for server in layout.server_view(cluster) {
            let Some(node) = cluster.node(&server.name) else {
                continue;
            };
            let probe = cell.system.ready_probe(&server);
            loop {
                let answer = observe::ask(node, &probe, PROBE_WITHIN).await;
                if answer.is_ok_and(|answer| cell.system.is_ready(answer.status, &answer.body)) {
                    break;
                }
                tokio::time::sleep(POLL).await;
            }
        }
        while leaders.leader().is_none() {
            tokio::time::sleep(POLL).await;
        }
    };
    match tokio::time::timeout(Duration::from_nanos(cell.settle), whole).await {
        Ok(()) => Ok(()),
        Err(_) => Err(format!(
            "not within {}: {}",
            spec::format_ns(cell.settle),
            why_not_ready(cell, layout, cluster).await
        )),
    }
}
