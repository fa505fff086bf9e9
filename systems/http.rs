//! One HTTP/1.1 connection to one server: a request, its answer, and what is certain when there is
//! none.
//!
//! It stands on `hyper::client::conn::http1`, which is a single connection: there is no pool that
//! opens another one, no policy that sends a request again, nothing that follows a redirect. A
//! connection is opened when an operation needs it and kept for the next. One that broke, or that
//! ended with a question open, is dropped; only the *next* operation opens a new one.
//!
//! What failed before the first byte of a request could leave is definite (`unreachable`); what
//! failed later is not.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpStream;

use crate::Probe;
use crate::client::{Failure, Patience, TimedOut};

/// The largest answer that is read, in bytes: a set with a million elements fits.
const ANSWER_BYTES_MAX: usize = 64 << 20;

type Sender = SendRequest<Full<Bytes>>;
type Driver = Pin<Box<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>>;

/// A server, and the connection to it if there is one.
#[derive(Debug)]
pub struct Endpoint {
    addr: SocketAddr,
    host: HeaderValue,
    open: Option<Open>,
}

/// An open connection without a question.
#[derive(Debug)]
struct Open {
    sender: Sender,
    /// Moves the bytes. It is polled by whoever waits for an answer, not by a task of its own, so
    /// that an answer and a timeout that are both there are seen together.
    driver: Driver,
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The whole body.
    pub body: Bytes,
}

impl Endpoint {
    /// A server that is not connected yet.
    pub fn new(addr: SocketAddr) -> Endpoint {
        let host = HeaderValue::from_str(&addr.to_string()).expect("an address is a header value");
        let open = None;
        Endpoint { addr, host, open }
    }

    /// Posts an object and waits for the answer.
    ///
    /// # Errors
    /// `unreachable`, definite: the server could not be connected, and nothing was sent.
    /// `timeout` and `connection-lost`, indefinite: the request may have arrived.
    pub async fn post<T: Serialize>(
        &mut self,
        path: &'static str,
        body: &T,
        patience: &mut Patience,
    ) -> Result<Answer, Failure> {
        let body = serde_json::to_vec(body).expect("requests always become JSON");
        self.ask(Method::POST, path, body.into(), patience).await
    }

    /// Asks a server what a probe asks.
    ///
    /// # Errors
    /// As [`Endpoint::post`].
    ///
    /// # Panics
    /// If the probe's method or path is none.
    pub async fn probe(
        &mut self,
        probe: &Probe,
        patience: &mut Patience,
    ) -> Result<Answer, Failure> {
        let method = Method::from_bytes(probe.method.as_bytes()).expect("GET or POST");
        let body = Bytes::from(probe.body.clone());
        self.ask(method, &probe.path, body, patience).await
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
        patience: &mut Patience,
    ) -> Result<Answer, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.host.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(Full::new(body))
            .expect("paths are written in the program");
        let open = self.connected(patience).await?;
        // While the question is open the connection is not in `self`: an operation that is given
        // up here takes it along.
        let (answer, open) = patience
            .wait(exchange(open, request))
            .await
            .map_err(|TimedOut| Failure::indefinite("timeout"))??;
        self.open = open;
        Ok(answer)
    }

    /// The connection, a new one if there is none that lives.
    async fn connected(&mut self, patience: &mut Patience) -> Result<Open, Failure> {
        if let Some(mut open) = self.open.take() {
            // The server may have closed it meanwhile. To see that costs nothing and sends nothing.
            let ended = poll_fn(|cx| Poll::Ready(open.driver.as_mut().poll(cx).is_ready())).await;
            if !ended && open.sender.is_ready() {
                return Ok(open);
            }
        }
        let unreachable =
            |why: &dyn std::fmt::Display| Failure::definite(format!("unreachable: {why}"));
        let connecting = async {
            let socket = TcpStream::connect(self.addr).await?;
            socket.set_nodelay(true)?;
            Ok::<_, std::io::Error>(socket)
        };
        let socket = patience
            .wait(connecting)
            .await
            .map_err(|TimedOut| unreachable(&"connecting timed out"))?
            .map_err(|error| unreachable(&error))?;
        // HTTP/1.1 says nothing when it begins: still nothing was sent.
        let (sender, driver) = http1::handshake(TokioIo::new(socket))
            .await
            .map_err(|error| unreachable(&error))?;
        let driver = Box::pin(driver);
        Ok(Open { sender, driver })
    }
}

/// Sends a request and reads the whole answer. Gives the connection back if it can be used again.
async fn exchange(
    open: Open,
    request: Request<Full<Bytes>>,
) -> Result<(Answer, Option<Open>), Failure> {
    let Open {
        mut sender,
        mut driver,
    } = open;
    let mut driver_ended = false;
    let answer = {
        let mut talk = pin!(talk(&mut sender, request));
        poll_fn(|cx| {
            if let Poll::Ready(answer) = talk.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            if !driver_ended && driver.as_mut().poll(cx).is_ready() {
                driver_ended = true;
            }
            talk.as_mut().poll(cx)
        })
        .await?
    };
    // The driver sees that the answer is complete only when it is polled once more.
    let ready = poll_fn(|cx| {
        driver_ended = driver_ended || driver.as_mut().poll(cx).is_ready();
        Poll::Ready(!driver_ended && sender.is_ready())
    })
    .await;
    Ok((answer, ready.then_some(Open { sender, driver })))
}

async fn talk(sender: &mut Sender, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
    let lost =
        |error: &dyn std::fmt::Display| Failure::indefinite(format!("connection-lost: {error}"));
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| lost(&error))?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|error| lost(&error))?
        .to_bytes();
    Ok(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const SOON: Duration = Duration::from_secs(20);

    async fn listener() -> (TcpListener, Endpoint) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::new(listener.local_addr().unwrap());
        (listener, endpoint)
    }

    async fn post(endpoint: &mut Endpoint, timeout: Duration) -> Result<Answer, Failure> {
        endpoint
            .post("/x", &serde_json::json!({}), &mut Patience::new(timeout))
            .await
    }

    /// Reads one request, whose body is `{}`.
    async fn read_request(socket: &mut TcpStream) {
        let mut seen = Vec::new();
        while !seen.ends_with(b"{}") {
            let mut chunk = [0; 1024];
            let n = socket.read(&mut chunk).await.unwrap();
            assert!(n > 0, "the client hung up within a request");
            seen.extend_from_slice(&chunk[..n]);
        }
    }

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

    #[tokio::test]
    async fn a_port_where_nobody_listens_is_definite() {
        let (listener, mut endpoint) = listener().await;
        drop(listener);
        match post(&mut endpoint, SOON).await {
            Err(Failure::Definite(text)) => assert!(text.starts_with("unreachable: "), "{text}"),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn silence_and_hanging_up_are_not() {
        let (listener, mut endpoint) = listener().await;
        let (socket, answer) = tokio::join!(
            listener.accept(),
            post(&mut endpoint, Duration::from_millis(50))
        );
        assert_eq!(answer, Err(Failure::indefinite("timeout")));
        drop(socket);

        let serve = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            read_request(&mut socket).await;
            drop(socket);
            // It must not come again by itself.
            tokio::time::timeout(Duration::from_millis(50), listener.accept()).await
        };
        let (again, answer) = tokio::join!(serve, post(&mut endpoint, SOON));
        assert!(again.is_err(), "the client connected a second time");
        match answer {
            Err(Failure::Indefinite(text)) => {
                assert!(text.starts_with("connection-lost"), "{text}")
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_connection_is_kept_and_a_closed_one_is_noticed_before_the_next_request() {
        let (listener, mut endpoint) = listener().await;
        let (mut socket, answer) = tokio::join!(
            async {
                let (mut socket, _) = listener.accept().await.unwrap();
                read_request(&mut socket).await;
                socket.write_all(OK).await.unwrap();
                socket
            },
            post(&mut endpoint, SOON)
        );
        assert_eq!(answer.unwrap().body, "hi");
        let ((), answer) = tokio::join!(
            async {
                read_request(&mut socket).await;
                socket.write_all(OK).await.unwrap();
            },
            post(&mut endpoint, SOON)
        );
        assert_eq!(answer.unwrap().status, 200);

        // The server closes while nobody asks anything; the end arrives on loopback at once.
        drop(socket);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let ((), answer) = tokio::join!(
            async {
                let (mut socket, _) = listener.accept().await.unwrap();
                read_request(&mut socket).await;
                socket.write_all(OK).await.unwrap();
            },
            post(&mut endpoint, SOON)
        );
        assert_eq!(answer.unwrap().body, "hi", "over a new connection");
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer() {
        let (listener, mut endpoint) = listener().await;
        let ((), answer) = tokio::join!(
            async {
                let (mut socket, _) = listener.accept().await.unwrap();
                read_request(&mut socket).await;
                let moved = b"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
                socket.write_all(moved).await.unwrap();
            },
            post(&mut endpoint, SOON)
        );
        assert_eq!(answer.unwrap().status, 307);
    }
}
