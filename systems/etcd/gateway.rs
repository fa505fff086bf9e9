//! The JSON gateway of etcd: its messages, and which of its errors are definite.
//!
//! Keys and values travel in base64, 64-bit numbers as texts, and fields that are zero are left
//! out. See the files `rpc.proto` and `rpctypes/error.go` of etcd.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize};

use crate::client::Failure;
use crate::http::Answer;

/// Bytes as the gateway writes them.
pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// Reads what the gateway wrote.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Reads a number that was written as a text.
fn int<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// What every answer begins with.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Header {
    /// The revision of the store when the request was carried out.
    #[serde(default, deserialize_with = "int")]
    pub(super) revision: u64,
}

/// `/v3/maintenance/status`.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    /// The member id of the leader; 0 if there is none.
    #[serde(default, deserialize_with = "int")]
    pub(super) leader: u64,
    /// The term of the last applied entry.
    #[serde(default, rename = "raftTerm", deserialize_with = "int")]
    pub(super) raft_term: u64,
}

/// `/v3/kv/range`.
#[derive(Debug, Serialize)]
pub(super) struct RangeRequest {
    pub(super) key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range_end: Option<String>,
    pub(super) serializable: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct RangeResponse {
    #[serde(default)]
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct KeyValue {
    pub(super) key: String,
    #[serde(default)]
    pub(super) value: String,
}

/// `/v3/kv/put`.
#[derive(Debug, Serialize)]
pub(super) struct PutRequest {
    pub(super) key: String,
    pub(super) value: String,
    /// The lease with which the key ends; 0 for none.
    pub(super) lease: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct PutResponse {
    pub(super) header: Header,
}

/// `/v3/kv/deleterange`.
#[derive(Debug, Serialize)]
pub(super) struct DeleteRequest {
    pub(super) key: String,
}

/// The answer where only its being there counts.
#[derive(Debug, Deserialize)]
pub(super) struct Done {}

/// `/v3/kv/txn` with one condition.
#[derive(Debug, Serialize)]
pub(super) struct TxnRequest {
    pub(super) compare: [Compare; 1],
    pub(super) success: [Operation; 1],
}

/// A condition: equality, which is what the gateway takes when none is named.
#[derive(Debug, Serialize)]
#[serde(tag = "target")]
pub(super) enum Compare {
    /// The key has this value.
    #[serde(rename = "VALUE")]
    Value { key: String, value: String },
    /// The key was created at this revision; 0: it is not there.
    #[serde(rename = "CREATE")]
    Create {
        key: String,
        create_revision: String,
    },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Operation {
    RequestPut(PutRequest),
    RequestDeleteRange(DeleteRequest),
}

#[derive(Debug, Deserialize)]
pub(super) struct TxnResponse {
    pub(super) header: Header,
    #[serde(default)]
    pub(super) succeeded: bool,
}

/// `/v3/lease/grant`. The unit of time is the second.
#[derive(Debug, Serialize)]
pub(super) struct GrantRequest {
    #[serde(rename = "TTL")]
    pub(super) ttl: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct GrantResponse {
    #[serde(rename = "ID", deserialize_with = "int")]
    pub(super) id: u64,
    /// What was granted; a server has a least TTL.
    #[serde(rename = "TTL", deserialize_with = "int")]
    pub(super) ttl: u64,
}

/// `/v3/lease/keepalive` and `/v3/lease/revoke`.
#[derive(Debug, Serialize)]
pub(super) struct LeaseRequest {
    #[serde(rename = "ID")]
    pub(super) id: String,
}

/// One message of the stream that a keep-alive is.
#[derive(Debug, Deserialize)]
pub(super) struct KeepAlive {
    pub(super) result: KeepAliveResult,
}

#[derive(Debug, Deserialize)]
pub(super) struct KeepAliveResult {
    /// How long the lease lives from now on; 0 when there is no such lease.
    #[serde(default, rename = "TTL", deserialize_with = "int")]
    pub(super) ttl: u64,
}

/// An answer that is an error.
#[derive(Debug, Deserialize)]
struct ErrorAnswer {
    error: String,
}

/// What an error of etcd says about a request that would have changed something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meaning {
    /// How etcd's message begins.
    pub(crate) message: &'static str,
    /// The code that the client answers with.
    pub(crate) code: &'static str,
    /// Whether the request did nothing and never will.
    pub(crate) definite: bool,
    /// Why that is so.
    pub(crate) why: &'static str,
}

const fn definite(message: &'static str, code: &'static str, why: &'static str) -> Meaning {
    Meaning {
        message,
        code,
        definite: true,
        why,
    }
}

const fn indefinite(message: &'static str, code: &'static str, why: &'static str) -> Meaning {
    Meaning {
        message,
        code,
        definite: false,
        why,
    }
}

/// The errors that the client knows. Every other one is indefinite.
pub(crate) static ERRORS: &[Meaning] = &[
    definite(
        "etcdserver: requested lease not found",
        "no-session",
        "the request was carried out and found no lease, so that it changed nothing",
    ),
    definite(
        "etcdserver: no leader",
        "unavailable",
        "the member looked for a leader before it did anything",
    ),
    definite(
        "etcdserver: too many requests",
        "unavailable",
        "the member looks at its backlog before it proposes",
    ),
    definite(
        "raft proposal dropped",
        "unavailable",
        "Raft refused the proposal and appended nothing",
    ),
    definite(
        "etcdserver: request is too large",
        "unavailable",
        "the size is looked at before the proposal",
    ),
    definite(
        "etcdserver: mvcc: database space exceeded",
        "unavailable",
        "a write under this alarm is refused when it is applied, on all members alike",
    ),
    indefinite(
        "etcdserver: request timed out",
        "unknown",
        "the proposal was made and may yet be committed; also with `possibly due to` and a reason",
    ),
    indefinite(
        "etcdserver: leader changed",
        "unknown",
        "only said of reads, so that it decides nothing about a write",
    ),
    indefinite(
        "etcdserver: server stopped",
        "unknown",
        "the member stopped while the proposal was on its way",
    ),
    indefinite(
        "context ",
        "unknown",
        "`context canceled`, `context deadline exceeded`: the gateway gave up, the member may not have",
    ),
];

/// Reads an answer of the gateway.
pub(super) fn read<'a, R: Deserialize<'a>>(answer: &'a Answer) -> Result<R, Failure> {
    let unread = || Failure::indefinite(format!("bad-answer: status {}", answer.status));
    if answer.status == 200 {
        return serde_json::from_slice(&answer.body).map_err(|_| unread());
    }
    let said: ErrorAnswer = serde_json::from_slice(&answer.body).map_err(|_| unread())?;
    let known = ERRORS
        .iter()
        .find(|meaning| said.error.starts_with(meaning.message));
    Err(match known {
        Some(meaning) if meaning.definite => Failure::definite(meaning.code),
        _ => Failure::indefinite(format!("unknown: {}", said.error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            status,
            body: body.to_owned().into(),
        }
    }

    #[test]
    fn every_known_error_is_read_as_it_says() {
        for meaning in ERRORS {
            let body = json!({"error": format!("{}!", meaning.message), "code": 14}).to_string();
            match read::<Done>(&answer(503, &body)) {
                Err(Failure::Definite(code)) => assert!(meaning.definite && code == meaning.code),
                Err(Failure::Indefinite(text)) => {
                    assert!(
                        !meaning.definite && text.starts_with(meaning.code),
                        "{text}"
                    );
                }
                Ok(_) => panic!("{body}"),
            }
        }
    }

    #[test]
    fn what_is_not_known_is_indefinite() {
        for (status, body) in [
            (503, r#"{"error":"something new","code":14}"#),
            (500, "<html>"),
            (200, "<html>"),
            (307, ""),
        ] {
            let read = read::<Done>(&answer(status, body));
            assert!(matches!(read, Err(Failure::Indefinite(_))), "{body}");
        }
    }

    /// Answers of etcd 3.4.23, as it gave them.
    #[test]
    fn the_words_of_etcd_are_understood() {
        const HEADER: &str = r#""header":{"cluster_id":"14841639068965178418","member_id":"10276657743932975437","revision":"2","raft_term":"2"}"#;
        let granted = answer(
            200,
            &format!(r#"{{{HEADER},"ID":"7587899269176321286","TTL":"2"}}"#),
        );
        let granted: GrantResponse = read(&granted).unwrap();
        assert_eq!((granted.id, granted.ttl), (7_587_899_269_176_321_286, 2));
        let alive = answer(
            200,
            &format!(r#"{{"result":{{{HEADER},"ID":"77","TTL":"2"}}}}"#),
        );
        assert_eq!(read::<KeepAlive>(&alive).unwrap().result.ttl, 2);
        let gone = answer(200, &format!(r#"{{"result":{{{HEADER},"ID":"99"}}}}"#));
        assert_eq!(read::<KeepAlive>(&gone).unwrap().result.ttl, 0);
        let empty = answer(200, &format!("{{{HEADER}}}"));
        assert!(read::<RangeResponse>(&empty).unwrap().kvs.is_empty());
        assert!(!read::<TxnResponse>(&empty).unwrap().succeeded);
        let kvs = r#""kvs":[{"key":"YQ==","create_revision":"2","mod_revision":"2","version":"1","value":"YQ=="}],"count":"1""#;
        let found = answer(200, &format!("{{{HEADER},{kvs}}}"));
        let found: RangeResponse = read(&found).unwrap();
        assert_eq!(decode(&found.kvs[0].key).unwrap(), b"a");
        let lost = r#"{"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5}"#;
        let lost = read::<PutResponse>(&answer(404, lost));
        assert_eq!(lost.unwrap_err(), Failure::definite("no-session"));
    }
}
