//! Where the clients of a workload run and which servers they ask: parameters that several
//! workloads declare, so that they are called and mean the same everywhere.

use spec::{Param, ParamKind, Params};

use crate::generator::Invocation;
use crate::{Error, Placement, Setup};

pub(crate) const CLIENTS: Param = Param {
    name: "clients",
    kind: ParamKind::Int(3),
    about: "client nodes, each with one client program",
};

pub(crate) const PROCESSES: Param = Param {
    name: "processes",
    kind: ParamKind::Int(2),
    about: "logical processes in each client program",
};

/// The route of clients that each belong to a server.
pub(crate) const ROUTE_FIXED: Param = Param {
    name: "route",
    kind: ParamKind::Choice(&["fixed", "any"]),
    about: "`fixed`: thread i asks server i mod n only, so that each side of a partition is \
            asked and each server's availability is seen (one that does not forward refuses \
            while another leads); `any`: the client chooses and may follow the leader",
};

/// The route of clients that look for a server that answers.
pub(crate) const ROUTE_ANY: Param = Param {
    name: "route",
    kind: ParamKind::Choice(&["any", "fixed"]),
    about: "`any`: the client chooses the server and may follow the leader, so that a lease \
            does not end with the one server that its holder asks; `fixed`: thread i asks server \
            i mod n only",
};

/// Where clients run, by the parameters [`CLIENTS`] and [`PROCESSES`].
pub(crate) fn placement(params: &Params) -> Placement {
    Placement {
        client_nodes: count(params, CLIENTS.name),
        processes_per_node: count(params, PROCESSES.name),
    }
}

/// Checks [`CLIENTS`] and [`PROCESSES`].
pub(crate) fn validate(params: &Params) -> Result<(), Error> {
    at_least_one(params, CLIENTS.name)?;
    at_least_one(params, PROCESSES.name)
}

/// Checks that a count is not zero.
pub(crate) fn at_least_one(params: &Params, name: &'static str) -> Result<(), Error> {
    if params.int(name) == 0 {
        return Err(Error::Param {
            name,
            reason: "must be at least 1".to_owned(),
        });
    }
    Ok(())
}

/// A whole number that counts things in memory.
pub(crate) fn count(params: &Params, name: &'static str) -> usize {
    usize::try_from(params.int(name)).unwrap_or(usize::MAX)
}

/// Which server a thread asks: the parameter `route`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    /// The number of servers, if each thread has one.
    fixed: Option<usize>,
}

impl Route {
    pub(crate) fn new(params: &Params, setup: &Setup) -> Route {
        let fixed = params.text("route") == "fixed" && !setup.servers.is_empty();
        Route {
            fixed: fixed.then_some(setup.servers.len()),
        }
    }

    pub(crate) fn server(self, thread: usize) -> Option<usize> {
        self.fixed.map(|servers| thread % servers)
    }

    /// The change that sends an operation to the server of its thread.
    pub(crate) fn applied(self) -> impl Fn(Invocation) -> Invocation + Clone + Send + 'static {
        move |op| Invocation {
            server: self.server(op.thread),
            ..op
        }
    }
}
