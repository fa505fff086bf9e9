//! HTTP from inside a node: one request, one answer, never retried.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::error::{Refusal, RefusalKind};
use crate::protocol::{HttpHead, Reply};

/// Probes read leaders and health, not data.
const BODY_BYTES_MAX: usize = 8 << 20;

pub(super) async fn perform(head: HttpHead, body: Bytes) -> Result<(Reply, Bytes), Refusal> {
    let (addr, timeout) = (head.addr, head.timeout);
    match tokio::time::timeout(timeout, exchange(head, body)).await {
        Ok(Ok((status, body))) => Ok((Reply::Http { status }, body)),
        Ok(Err(what)) => Err(Refusal::new(
            RefusalKind::Unreachable,
            format!("no answer from {addr}: {what}"),
        )),
        Err(_) => {
            let message = format!("no answer from {addr} within {timeout:?}");
            Err(Refusal::new(RefusalKind::Timeout, message))
        }
    }
}

type Whatever = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(head: HttpHead, body: Bytes) -> Result<(u16, Bytes), Whatever> {
    let mut request = Request::builder()
        .method(head.method.as_str())
        .uri(&head.path)
        .header("host", head.addr.to_string());
    for (name, value) in &head.headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(body))?;
    let socket = TcpStream::connect(head.addr).await?;
    socket.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    // Dropped with this function, also when it is given up: no connection lingers.
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), BODY_BYTES_MAX)
        .collect()
        .await?;
    Ok((status, body.to_bytes()))
}
