//! Servers that misbehave, to see what a client makes of it: one that nobody listens at, one that
//! takes a request and says nothing, one that takes a request and hangs up.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use crate::Error;

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Nobody listens.
    Absent,
    /// It reads and never answers.
    Silent,
    /// It reads something and closes the connection.
    HangsUp,
}

/// A server of that manner on loopback, for as long as this lives and its `LocalSet` runs.
#[derive(Debug)]
pub(super) struct BadServer {
    pub(super) addr: SocketAddr,
    requests: Rc<Cell<usize>>,
    /// Keeps the port, without listening on it, of an absent server.
    _port: Option<tokio::net::TcpSocket>,
}

impl BadServer {
    pub(super) async fn start(manner: Manner) -> Result<BadServer, Error> {
        let failed = |error| Error::Client(format!("cannot listen on loopback: {error}"));
        let requests = Rc::new(Cell::new(0));
        if manner == Manner::Absent {
            let socket = tokio::net::TcpSocket::new_v4().map_err(failed)?;
            socket.bind(([127, 0, 0, 1], 0).into()).map_err(failed)?;
            let addr = socket.local_addr().map_err(failed)?;
            let _port = Some(socket);
            return Ok(BadServer {
                addr,
                requests,
                _port,
            });
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        tokio::task::spawn_local(accept(listener, manner, Rc::clone(&requests)));
        Ok(BadServer {
            addr,
            requests,
            _port: None,
        })
    }

    /// How many connections carried a request.
    pub(super) fn requests(&self) -> usize {
        self.requests.get()
    }
}

async fn accept(listener: TcpListener, manner: Manner, requests: Rc<Cell<usize>>) {
    while let Ok((socket, _)) = listener.accept().await {
        tokio::task::spawn_local(swallow(socket, manner, Rc::clone(&requests)));
    }
}

async fn swallow(mut socket: TcpStream, manner: Manner, requests: Rc<Cell<usize>>) {
    let mut bytes = [0; 4096];
    let mut first = true;
    while let Ok(1..) = socket.read(&mut bytes).await {
        if first {
            requests.set(requests.get() + 1);
            first = false;
        }
        if manner == Manner::HangsUp {
            return;
        }
    }
}
