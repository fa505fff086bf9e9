//! The loop that runs Raft on a node: one thread that owns the log and the state machine.
//!
//! Everything that happens to a node is an [`Input`]; everything it does follows from one input
//! after the other. Inputs that arrive while the disk is busy are taken together, so that one sync
//! serves them all. Nothing here blocks on the network ([`crate::peers`]).
//!
//! Two rules keep a stalled leader harmless. A request is proposed only by a node that is leader at
//! that moment, into its own log, and never forwarded: what a deposed leader still has in hand dies
//! with its term. And nothing is acknowledged before it is applied, which needs a quorum.

use crate::Error;
use crate::clock::Clock;
use crate::faults::Switches;
use crate::handle::{Belief, Handle, Input};
use crate::leases::Leases;
use crate::machine::{Command, Machine, Outcome};
use crate::peers::Outbox;
use crate::pending::{ReadReply, Reads, Refusal, WriteReply, Writes};
use crate::storage::{DiskLog, stage_snapshot};
use raft::eraftpb::{Entry, Message, MessageType, Snapshot};
use raft::{RawNode, ReadOnlyOption, SnapshotStatus, StateRole};
use slog::{Logger, info, warn};
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Writes that may wait for the log at once; more are refused.
const WRITES_MAX: usize = 20_000;
/// Inputs that are taken together before the disk is written to.
const BATCH_MAX: usize = 2_048;
/// Bytes of entries in one message to a follower.
const MESSAGE_BYTES: u64 = 1 << 20;
/// Bytes of entries that may wait for a quorum; proposals beyond are refused.
const UNCOMMITTED_BYTES: u64 = 64 << 20;

/// How a node runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's Raft id.
    pub id: u64,
    /// The Raft ids of all nodes.
    pub voters: Vec<u64>,
    /// The unit of Raft's time.
    pub tick: Duration,
    /// The shortest time without a leader after which a node campaigns; the longest is twice that.
    pub election_timeout: Duration,
    /// How often a leader shows that it is there.
    pub heartbeat: Duration,
    /// After how long a request that found no quorum is answered anyhow.
    pub request_timeout: Duration,
    /// How many entries are applied between two snapshots.
    pub snapshot_every: u64,
    /// The mistakes to make.
    pub switches: Switches,
}

/// A node, before and while it runs.
pub struct Node {
    raft: RawNode<DiskLog>,
    machine: Arc<RwLock<Machine>>,
    config: Config,
    outbox: Outbox,
    inputs: mpsc::UnboundedSender<Input>,
    belief: watch::Sender<Belief>,
    log: Logger,
    writes: Writes,
    reads: Reads,
    leases: Leases,
    /// The term in which this node leads, as far as it knows.
    leading: Option<u64>,
    /// Whether the lease table has begun in that term.
    leases_begun: bool,
    staging: bool,
    /// The last index that was acknowledged early: only with `--ack-before-commit`.
    acknowledged_early: u64,
    /// Tokens minted here: only with `--token-from-stale-state`.
    minted: u64,
    /// Ids given out here: only with `--dup-ids`.
    ids: u64,
}

impl Node {
    /// Opens the data directory and gets ready to run.
    ///
    /// # Errors
    /// The directory cannot be used, or what it holds is damaged.
    pub fn open(
        directory: &Path,
        config: Config,
        outbox: Outbox,
        inputs: mpsc::UnboundedSender<Input>,
        log: Logger,
    ) -> Result<(Node, Handle), Error> {
        let opened = DiskLog::open(directory, config.voters.clone(), config.switches)?;
        if opened.torn > 0 {
            warn!(log, "cut a torn tail off the log"; "bytes" => opened.torn);
        }
        let machine = match &opened.snapshot {
            Some(snapshot) => restore(snapshot, directory)?,
            None => Machine::default(),
        };
        let raft_config = raft_config(&config, opened.log.snapshot_index());
        let raft = RawNode::new(&raft_config, opened.log, &log)?;
        let machine = Arc::new(RwLock::new(machine));
        let (belief, believed) = watch::channel(belief(&raft));
        let handle = Handle::new(inputs.clone(), believed, Arc::clone(&machine));
        // The mistake of `--wall-clock-leases`: a clock that somebody may set.
        let wall = config.switches.wall_clock_leases;
        let clock = if wall {
            Clock::Wall
        } else {
            Clock::monotonic()
        };
        let leases = Leases::new(clock, config.election_timeout);
        let node = Node {
            raft,
            machine,
            config,
            outbox,
            inputs,
            belief,
            log,
            writes: Writes::default(),
            reads: Reads::default(),
            leases,
            leading: None,
            leases_begun: false,
            staging: false,
            acknowledged_early: 0,
            minted: 0,
            ids: 0,
        };
        Ok((node, handle))
    }

    /// Runs until the disk fails.
    pub async fn run(mut self, mut inputs: mpsc::UnboundedReceiver<Input>) -> Result<(), Error> {
        let mut ticks = interval(self.config.tick);
        // After a pause one tick passes, not all that were missed: a node that was stopped must
        // hear what happened meanwhile before it draws conclusions from the silence.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_tick = Instant::now();
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => self.tick(&mut last_tick),
                Some(input) = inputs.recv() => {
                    self.take(input)?;
                    for _ in 1..BATCH_MAX {
                        let Ok(input) = inputs.try_recv() else { break };
                        self.take(input)?;
                    }
                }
            }
            self.settle()?;
        }
    }

    fn tick(&mut self, last: &mut Instant) {
        let now = Instant::now();
        let pause = now - std::mem::replace(last, now);
        if pause > self.config.heartbeat {
            info!(self.log, "did not run for a while"; "ms" => pause.as_millis() as u64);
            self.leases.wait();
        }
        self.raft.tick();
        self.writes.time_out(now, self.config.request_timeout);
        self.reads.time_out(now, self.config.request_timeout);
        for (session, generation) in self.leases.over() {
            info!(self.log, "session is over"; "session" => session, "generation" => generation);
            if self
                .propose(&Command::Expire {
                    session,
                    generation,
                })
                .is_err()
            {
                self.leases.not_proposed(session);
            }
        }
    }

    fn take(&mut self, input: Input) -> Result<(), Error> {
        match input {
            Input::Peer(message) => self.step(*message),
            Input::Unreachable(id) => self.raft.report_unreachable(id),
            Input::SnapshotSent { to, ok } => {
                let status = if ok {
                    SnapshotStatus::Finish
                } else {
                    SnapshotStatus::Failure
                };
                self.raft.report_snapshot(to, status);
            }
            Input::SnapshotStaged { index, file } => {
                self.staging = false;
                self.raft.mut_store().compact(index, file?)?;
                info!(self.log, "took a snapshot"; "index" => index);
            }
            Input::Write(command, reply) => self.write(command, reply),
            Input::Read(reply) => self.read(reply),
        }
        Ok(())
    }

    fn step(&mut self, message: Message) {
        let forwarded = matches!(
            message.get_msg_type(),
            MessageType::MsgPropose | MessageType::MsgReadIndex | MessageType::MsgTransferLeader
        );
        // What another node should have asked its own log for is not accepted here.
        if !forwarded && let Err(error) = self.raft.step(message) {
            warn!(self.log, "a message was not taken"; "error" => %error);
        }
    }

    fn leads(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    fn not_leader(&self) -> Refusal {
        Refusal::NotLeader(Some(self.raft.raft.leader_id).filter(|id| *id != raft::INVALID_ID))
    }

    fn propose(&mut self, command: &Command) -> Result<u64, Refusal> {
        if !self.leads() {
            return Err(self.not_leader());
        }
        let Ok(data) = serde_json::to_vec(command) else {
            return Err(Refusal::Unavailable(
                "the request cannot be written to the log",
            ));
        };
        match self.raft.propose(Vec::new(), data) {
            Ok(()) => Ok(self.raft.raft.raft_log.last_index()),
            Err(_) => Err(Refusal::Unavailable("too much is waiting for a quorum")),
        }
    }

    fn write(&mut self, mut command: Command, reply: WriteReply) {
        if self.writes.len() >= WRITES_MAX {
            let _ = reply.send(Err(Refusal::Unavailable("too many writes are waiting")));
            return;
        }
        if self.config.switches.dup_ids && command == Command::GenerateId && self.leads() {
            // The mistake: what was given out is known to this node only.
            self.ids += 1;
            let _ = reply.send(Ok(Outcome::Id(self.ids)));
            return;
        }
        if self.config.switches.token_from_stale_state
            && let Command::Acquire { minted, .. } = &mut command
        {
            // The mistake: the next leader begins with a counter of its own.
            self.minted += 1;
            *minted = Some(self.minted);
        }
        match self.propose(&command) {
            Err(refusal) => drop(reply.send(Err(refusal))),
            Ok(index) => {
                let blind = matches!(command, Command::Put { .. } | Command::Add { .. });
                if self.config.switches.ack_before_commit && blind {
                    // The mistake: appended here is not committed anywhere.
                    self.acknowledged_early = index;
                    let _ = reply.send(Ok(Outcome::Written(index)));
                } else {
                    self.writes
                        .add(index, self.raft.raft.term, Instant::now(), reply);
                }
            }
        }
    }

    fn read(&mut self, reply: ReadReply) {
        if !self.leads() {
            let _ = reply.send(Err(self.not_leader()));
        } else if self.config.switches.stale_reads {
            // The mistake: whoever believes to lead is believed.
            let _ = reply.send(Ok(()));
        } else {
            self.reads.add(Instant::now(), reply);
        }
    }

    /// Does what follows from the inputs taken: asks for read indexes, writes to disk, sends,
    /// applies and answers, until nothing is left to do.
    fn settle(&mut self) -> Result<(), Error> {
        self.notice_leadership();
        if self.leading.is_some()
            && self.raft.raft.commit_to_current_term()
            && let Some(context) = self.reads.ask()
        {
            self.raft.read_index(context);
        }
        while self.raft.has_ready() {
            self.handle_ready()?;
        }
        self.notice_leadership();
        let applied = self.raft.raft.raft_log.applied;
        self.reads.serve(applied);
        let belief = belief(&self.raft);
        self.belief
            .send_if_modified(|old| std::mem::replace(old, belief) != belief);
        self.begin_snapshot(applied)
    }

    /// Ends what belongs to a term in which this node led.
    fn notice_leadership(&mut self) {
        let leading = self.leads().then_some(self.raft.raft.term);
        if leading != self.leading {
            self.reads.refuse(self.not_leader());
            self.leases.clear();
            self.leases_begun = false;
            self.leading = leading;
        }
    }

    fn handle_ready(&mut self) -> Result<(), Error> {
        let mut ready = self.raft.ready();
        // A leader may send entries before they are on its own disk: it does not count itself yet.
        self.outbox.send(ready.take_messages());
        if !ready.snapshot().is_empty() {
            let snapshot = ready.snapshot().clone();
            let index = snapshot.get_metadata().index;
            info!(self.log, "installs the leader's snapshot"; "index" => index);
            let machine = restore(&snapshot, self.raft.store().directory())?;
            self.raft.mut_store().install(&snapshot, ready.hs())?;
            *self.machine.write().unwrap_or_else(|p| p.into_inner()) = machine;
            self.writes.jumped(index);
        }
        for state in ready.take_read_states() {
            let index = state.index.max(self.acknowledged_early);
            self.reads.confirm(&state.request_ctx, index);
        }
        self.apply(ready.take_committed_entries())?;
        if !ready.entries().is_empty() || ready.must_sync() {
            self.raft.mut_store().append(ready.entries(), ready.hs())?;
        } else if let Some(hard) = ready.hs() {
            let commit = hard.commit;
            self.raft.mut_store().note_commit(commit);
        }
        self.outbox.send(ready.take_persisted_messages());
        let mut light = self.raft.advance_append(ready);
        if let Some(commit) = light.commit_index() {
            self.raft.mut_store().note_commit(commit);
        }
        self.outbox.send(light.take_messages());
        self.apply(light.take_committed_entries())?;
        self.raft.advance_apply();
        Ok(())
    }

    fn apply(&mut self, entries: Vec<Entry>) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        let shared = Arc::clone(&self.machine);
        let mut machine = shared
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        for entry in entries {
            let outcome = if entry.data.is_empty() {
                machine.skip(entry.index);
                None
            } else {
                let command = parse(&entry, self.raft.store().directory())?;
                let session = command.session(entry.index);
                let prolongs = matches!(command, Command::Open { .. } | Command::Renew { .. });
                let outcome = machine.apply(entry.index, command);
                if let Some(id) = session.filter(|_| self.leases_begun) {
                    match machine.sessions().get(&id) {
                        Some(session) if prolongs => self.leases.touch(id, *session),
                        Some(_) => {}
                        None => self.leases.remove(id),
                    }
                }
                Some(outcome)
            };
            if !self.leases_begun && self.leads() && entry.term == self.raft.raft.term {
                self.leases.begin(machine.sessions().iter());
                self.leases_begun = true;
            }
            self.writes
                .applied(entry.index, entry.term, outcome.as_ref());
        }
        Ok(())
    }

    /// Lets a thread write a snapshot when enough was applied since the last one.
    fn begin_snapshot(&mut self, applied: u64) -> Result<(), Error> {
        let store = self.raft.store();
        if self.staging || applied < store.snapshot_index() + self.config.snapshot_every {
            return Ok(());
        }
        let machine = self
            .machine
            .read()
            .unwrap_or_else(|p| p.into_inner())
            .clone();
        let mut snapshot = Snapshot::default();
        let meta = snapshot.mut_metadata();
        meta.index = applied;
        meta.term = self.raft.raft.raft_log.term(applied)?;
        meta.set_conf_state(store.voters().clone());
        let (directory, sync) = (store.directory().to_owned(), store.sync());
        let inputs = self.inputs.clone();
        let write = move || {
            let file = encode(&machine, &directory).and_then(|data| {
                snapshot.data = data.into();
                stage_snapshot(&directory, &snapshot, sync)
            });
            let _ = inputs.send(Input::SnapshotStaged {
                index: applied,
                file,
            });
        };
        let thread = std::thread::Builder::new().name("snapshot".to_owned());
        thread.spawn(write).map_err(|source| Error::Start {
            what: "snapshot thread",
            source,
        })?;
        self.staging = true;
        Ok(())
    }
}

fn raft_config(config: &Config, applied: u64) -> raft::Config {
    let ticks = |time: Duration| (time.as_millis() / config.tick.as_millis().max(1)) as usize;
    raft::Config {
        id: config.id,
        election_tick: ticks(config.election_timeout),
        heartbeat_tick: ticks(config.heartbeat).max(1),
        applied,
        max_size_per_msg: MESSAGE_BYTES,
        max_uncommitted_size: UNCOMMITTED_BYTES,
        batch_append: true,
        read_only_option: ReadOnlyOption::Safe,
        // The mistakes of `--no-prevote` and `--no-check-quorum`.
        pre_vote: !config.switches.no_prevote,
        check_quorum: !config.switches.no_check_quorum,
        ..raft::Config::default()
    }
}

fn belief(raft: &RawNode<DiskLog>) -> Belief {
    let raft = &raft.raft;
    Belief {
        role: raft.state,
        leader: Some(raft.leader_id).filter(|id| *id != raft::INVALID_ID),
        term: raft.term,
        commit: raft.raft_log.committed,
        applied: raft.raft_log.applied,
        last_index: raft.raft_log.last_index(),
    }
}

fn parse(entry: &Entry, directory: &Path) -> Result<Command, Error> {
    serde_json::from_slice(&entry.data).map_err(|e| Error::Damaged {
        path: directory.join("log"),
        offset: 0,
        what: format!("entry {}: {e}", entry.index),
    })
}

fn encode(machine: &Machine, directory: &Path) -> Result<Vec<u8>, Error> {
    let path = directory.join("snapshot");
    serde_json::to_vec(machine).map_err(|e| Error::File {
        action: "encode",
        path,
        source: e.into(),
    })
}

fn restore(snapshot: &Snapshot, directory: &Path) -> Result<Machine, Error> {
    serde_json::from_slice(&snapshot.data).map_err(|e| Error::Damaged {
        path: directory.join("snapshot"),
        offset: 0,
        what: e.to_string(),
    })
}
