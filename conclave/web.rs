//! HTTP/1.1 with JSON bodies, as the node and the vault both speak it. Knows no route.

use crate::Error;
use crate::api::ErrorBody;
use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// The largest body that is accepted, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// One request, its body read.
#[derive(Debug)]
pub struct Call {
    /// GET or POST.
    pub method: Method,
    /// The path, without a query.
    pub path: String,
    /// The body.
    pub body: Bytes,
}

impl Call {
    /// Reads the body as JSON; an empty one counts as `{}`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let body: &[u8] = if self.body.is_empty() {
            b"{}"
        } else {
            &self.body
        };
        serde_json::from_slice(body).map_err(|e| Failure::bad_request(e.to_string()))
    }
}

/// An answer: a whole body, or lines that come one by one.
pub type Answer = Response<Either<Full<Bytes>, Lines>>;

/// A body whose lines are sent as they come.
#[derive(Debug)]
pub struct Lines(mpsc::Receiver<Bytes>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

/// An answer other than 200.
#[derive(Debug)]
pub struct Failure {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body.
    pub body: Box<ErrorBody>,
}

impl Failure {
    /// A failure that changed nothing.
    pub fn definite(status: StatusCode, error: &str) -> Failure {
        let body = ErrorBody {
            error: error.to_owned(),
            definite: true,
            ..ErrorBody::default()
        };
        Failure {
            status,
            body: Box::new(body),
        }
    }

    /// The request makes no sense.
    pub fn bad_request(detail: impl Into<String>) -> Failure {
        Failure::definite(StatusCode::BAD_REQUEST, "bad-request").with(detail)
    }

    /// Adds words for people.
    pub fn with(mut self, detail: impl Into<String>) -> Failure {
        self.body.detail = Some(detail.into());
        self
    }
}

/// What answers requests.
pub trait Service: Send + Sync + 'static {
    /// Answers one.
    fn call(&self, call: Call) -> impl Future<Output = Result<Answer, Failure>> + Send;
}

/// A 200 with a JSON body.
pub fn ok<T: Serialize>(body: &T) -> Result<Answer, Failure> {
    Ok(json(StatusCode::OK, body))
}

/// A 200 whose body is JSON lines, sent as they come through `lines`.
pub fn stream(lines: mpsc::Receiver<Bytes>) -> Result<Answer, Failure> {
    let mut answer = Response::new(Either::Right(Lines(lines)));
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
    Ok(answer)
}

/// One JSON line.
pub fn line<T: Serialize>(body: &T) -> Bytes {
    let mut bytes = serde_json::to_vec(body).expect("an answer is plain data");
    bytes.push(b'\n');
    bytes.into()
}

fn json<T: Serialize>(status: StatusCode, body: &T) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(line(body))));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Binds an address.
pub async fn bind(address: &str) -> Result<TcpListener, Error> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| Error::Listen {
        address: address.to_owned(),
        source,
    })
}

/// Answers the requests of all who connect; never returns.
pub async fn serve<S: Service>(listener: TcpListener, service: S) {
    let service = Arc::new(service);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors: others will be closed.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Without it answers wait for the client's delayed acknowledgements; with it refused, too.
        let _ = stream.set_nodelay(true);
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            let handler = service_fn(|request| answer(&*service, request));
            let connection = hyper::server::conn::http1::Builder::new();
            // An error here is a client that went away.
            let _ = connection
                .serve_connection(TokioIo::new(stream), handler)
                .await;
        });
    }
}

async fn answer<S: Service>(service: &S, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let (head, body) = request.into_parts();
    let answer = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => {
            let (method, path) = (head.method, head.uri.path().to_owned());
            service
                .call(Call {
                    method,
                    path,
                    body: body.to_bytes(),
                })
                .await
        }
        Err(error) => Err(Failure::bad_request(error.to_string())),
    };
    Ok(answer.unwrap_or_else(|failure| json(failure.status, &*failure.body)))
}
