//! What clients send and receive, as serde types: the public contract of conclave and the vault.
//!
//! HTTP/1.1 with JSON bodies. Every answer other than 200 carries an [`ErrorBody`] that says whether
//! the outcome is definite (the request did nothing and never will) or not (it may have happened,
//! or may happen later). Nothing here knows how an answer is made; see [`crate::routes`].
//!
//! | request | body -> answer | served by |
//! |---|---|---|
//! | `GET /status` | -> [`Status`] | any node, at once: what this node *believes* |
//! | `GET /health` | -> 200 or 503 | any node: a leader is known and the log is applied |
//! | `GET /dump` | -> [`Dump`] | any node, from what it has applied |
//! | `POST /kv/get` | [`GetRequest`] -> [`GetResponse`] | leader; any node when `serializable` |
//! | `POST /kv/put` | [`PutRequest`] -> [`Written`] | leader |
//! | `POST /kv/cas` | [`CasRequest`] -> [`Written`]; 409 `mismatch` with `actual` | leader |
//! | `POST /session/open` | [`OpenRequest`] -> [`Opened`] | leader |
//! | `POST /session/renew` | [`SessionRequest`] -> [`Renewed`]; 404 `no-session` | leader |
//! | `POST /session/close` | [`SessionRequest`] -> [`Done`]; 404 `no-session` | leader |
//! | `POST /lock/acquire` | [`AcquireRequest`] -> [`Granted`]; 409 `held` with `holder`; 404 | leader |
//! | `POST /lock/release` | [`ReleaseRequest`] -> [`Done`]; 409 `not-holder` | leader |
//! | `POST /lock/holder` | [`HolderRequest`] -> [`HolderResponse`] | leader; any when `serializable` |
//! | `POST /leader/campaign` | [`CampaignRequest`] -> [`Granted`]; 409 `held`; 404 | leader |
//! | `POST /leader/resign` | [`ReleaseRequest`] -> [`Done`]; 409 `not-holder` | leader |
//! | `POST /leader/observe` | [`HolderRequest`] -> [`HolderResponse`] | leader; any when `serializable` |
//! | `POST /set/add` | [`AddRequest`] -> [`Written`] | leader |
//! | `POST /set/read` | [`SetReadRequest`] -> [`SetReadResponse`] | leader; any when `local` |
//! | `POST /ids/generate` | `{}` -> [`Id`] | leader |
//! | `POST /watch` | [`WatchRequest`] -> a stream of [`WatchLine`], one JSON object a line | any node |
//!
//! A node that does not lead answers 421 `not-leader` (definite) with `leader` and `addr` when it
//! knows them; it never forwards, so that reachability stays visible. 503 `unknown` is the
//! indefinite answer to a write whose fate is not known; 503 `unavailable` is definite.
//!
//! Revisions, session ids and fencing tokens are indexes in the replicated log: they only grow over
//! the whole history of a cluster. A JSON `null` value means "absent" everywhere.
//!
//! Promises: gets, puts and compare-and-sets are linearizable (not: `serializable`, `local`, `/dump`
//! and `/watch`, which show a prefix of the log). A session ends no earlier than its TTL after its
//! last acknowledged renewal was received, and no later than TTL + two election timeouts after it while
//! one leader stays; a new leader gives every session a full new TTL. A lock has at most
//! one holder; its tokens grow with every grant. A watch delivers every event of its key once and
//! in order from the revision asked for, or says `compacted`.
//!
//! The vault: `POST /put` [`VaultPut`] -> [`VaultAck`] or 409 `stale-token` with `max`; `POST /get`
//! [`VaultKey`] -> [`VaultValue`]; `POST /fence` [`VaultFence`] and `POST /delete` [`VaultFence`]
//! -> [`VaultAck`] or 409. `GET /log` lists every accepted operation in order.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a node believes about itself and the cluster; answered without asking anybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The node's name.
    pub id: String,
    /// `leader`, `follower`, `candidate` or `pre-candidate`.
    pub role: String,
    /// The node it takes for the leader.
    pub leader: Option<String>,
    /// Its current term.
    pub term: u64,
    /// The highest log index that it knows to be committed.
    pub commit: u64,
    /// The highest log index that its state machine contains.
    pub applied: u64,
    /// The last index of its log.
    pub last_index: u64,
}

/// Everything that is not 200.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// A stable code: `not-leader`, `unknown`, `unavailable`, `superseded`, `mismatch`, `held`,
    /// `not-holder`, `no-session`, `stale-token`, `bad-request`, `no-route`, `behind`.
    pub error: String,
    /// True: the request changed nothing and never will. False: it may have, or may yet.
    pub definite: bool,
    /// Words for people, where the code does not say it all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
    /// `not-leader`: the node taken for the leader.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leader: Option<String>,
    /// `not-leader`: that node's client address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub addr: Option<String>,
    /// `held`: who holds the lock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub holder: Option<Holder>,
    /// `mismatch`: the value found instead (null: absent).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actual: Option<Value>,
    /// `stale-token`: the highest token that the vault has seen for the key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max: Option<u64>,
}

/// Reads a register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetRequest {
    /// The register.
    pub key: String,
    /// Read what this node has applied, without asking a quorum: may be stale.
    #[serde(default)]
    pub serializable: bool,
}

/// A register's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GetResponse {
    /// The value; null when absent.
    pub value: Value,
    /// The revision that wrote it; 0 when the register was never written.
    pub revision: u64,
}

/// Writes a register.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutRequest {
    /// The register.
    pub key: String,
    /// The new value; null removes it.
    pub value: Value,
}

/// Compares and sets a register.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CasRequest {
    /// The register.
    pub key: String,
    /// The value that must be there; null means absent.
    pub old: Value,
    /// The value to write; null removes it.
    pub new: Value,
}

/// A write happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Where in the history of the cluster.
    pub revision: u64,
}

/// Something happened that has nothing to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// Opens a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenRequest {
    /// How long the session outlives its last renewal, in milliseconds; 1 to 86,400,000.
    pub ttl_ms: u64,
}

/// A new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Its id.
    pub session: u64,
    /// Its time to live in milliseconds.
    pub ttl_ms: u64,
}

/// Names a session, to renew or to close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRequest {
    /// The session.
    pub session: u64,
}

/// A session lives for another TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewed {
    /// The TTL in milliseconds, counted from when the renewal was received.
    pub ttl_ms: u64,
}

/// Takes a lock for a session, or answers 409 at once. Idempotent for the session that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcquireRequest {
    /// The lock.
    pub key: String,
    /// The session that will hold it.
    pub session: u64,
}

/// Takes a leadership for a session and publishes a value with it; otherwise as a lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CampaignRequest {
    /// The election.
    pub key: String,
    /// The session that will lead.
    pub session: u64,
    /// What observers shall see, such as the candidate's name.
    pub value: Value,
}

/// The lock is held now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The fencing token: greater than that of every earlier grant, of any lock.
    pub token: u64,
}

/// Gives a lock or a leadership back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// The lock.
    pub key: String,
    /// The session that holds it.
    pub session: u64,
    /// The token of the grant.
    pub token: u64,
}

/// Asks who holds a lock or a leadership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HolderRequest {
    /// The lock.
    pub key: String,
    /// Answer from what this node has applied: may be stale.
    #[serde(default)]
    pub serializable: bool,
}

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HolderResponse {
    /// The holder, if any.
    pub holder: Option<Holder>,
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// Its session.
    pub session: u64,
    /// The fencing token of its grant.
    pub token: u64,
    /// What it published when it campaigned; null for a plain lock.
    pub value: Value,
}

/// Adds an element to a set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddRequest {
    /// The set.
    pub key: String,
    /// The element.
    pub v: Value,
}

/// Reads a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetReadRequest {
    /// The set.
    pub key: String,
    /// Read what this node has applied, without asking a quorum: for final reads on every node.
    #[serde(default)]
    pub local: bool,
}

/// The elements of a set, in no particular order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetReadResponse {
    /// The elements.
    pub values: Vec<Value>,
    /// The log index up to which they are complete.
    pub applied: u64,
}

/// A number that no other call will ever get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Id {
    /// The number.
    pub id: u64,
}

/// Subscribes to the writes of one register, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchRequest {
    /// The register; all of them when absent.
    #[serde(default)]
    pub key: Option<String>,
    /// The first revision wanted, usually the last one seen plus one; "from now on" when absent.
    #[serde(default)]
    pub from_revision: Option<u64>,
}

/// One line of a watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WatchLine {
    /// A register was written.
    Event(Event),
    /// Every event up to this revision has been sent. Comes first, and then when nothing happens.
    Progress {
        /// The revision.
        progress: u64,
    },
    /// The events asked for are no longer kept; the stream ends here.
    Compacted {
        /// Always `compacted`.
        error: String,
        /// The first revision that can still be asked for.
        oldest: u64,
    },
}

/// A register was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The revision of the write.
    pub revision: u64,
    /// The register.
    pub key: String,
    /// Its new value; null when it was removed.
    pub value: Value,
}

/// A session as a node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Its time to live in milliseconds.
    pub ttl_ms: u64,
    /// How often it was renewed.
    pub generation: u64,
}

/// What a node has applied, for comparing nodes with each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dump {
    /// Up to which log index.
    pub applied: u64,
    /// The registers.
    pub kv: BTreeMap<String, GetResponse>,
    /// The live sessions.
    pub sessions: BTreeMap<u64, SessionInfo>,
    /// The holders of locks and leaderships.
    pub holders: BTreeMap<String, Holder>,
    /// How many elements each set has.
    pub sets: BTreeMap<String, usize>,
}

/// Writes to the vault under a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaultPut {
    /// The entry.
    pub key: String,
    /// The new value.
    pub v: Value,
    /// The fencing token that came with the lock.
    pub token: u64,
}

/// Names an entry of the vault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaultKey {
    /// The entry.
    pub key: String,
}

/// Announces a token to the vault (`fence`), or deletes an entry under it (`delete`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaultFence {
    /// The entry.
    pub key: String,
    /// The fencing token that came with the lock.
    pub token: u64,
}

/// The vault accepted an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaultAck {
    /// Its place in the vault's own order of accepted operations, over all keys, from 1.
    pub seq: u64,
}

/// An entry of the vault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VaultValue {
    /// The value; null when absent.
    pub v: Value,
    /// The token of the last accepted operation on the entry; 0 when there was none.
    pub token: u64,
    /// The place of that operation in the vault's order; 0 when there was none.
    pub seq: u64,
}

/// One accepted operation of the vault, as `GET /log` lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VaultEntry {
    /// Its place in the vault's order.
    pub seq: u64,
    /// `put`, `fence` or `delete`.
    pub op: VaultOp,
    /// The entry.
    pub key: String,
    /// The token shown.
    pub token: u64,
    /// The value put; null for the others.
    #[serde(default)]
    pub v: Value,
}

/// What was done to an entry of the vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VaultOp {
    /// A value was written.
    Put,
    /// A token was announced.
    Fence,
    /// The value was removed.
    Delete,
}
