//! The switches that break conclave on purpose, one real mistake each, and the list of them.
//!
//! Each switch is consulted in exactly one place, which names it. What the mistake does is written
//! there; which report from the field it stands for, and what makes it show, is written here.

use clap::Args;

/// The mistakes that a node can be told to make. All off: a correct system.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Run elections without the pre-vote round
    #[arg(long)]
    pub no_prevote: bool,
    /// Let a leader that has lost its quorum go on believing that it leads
    #[arg(long)]
    pub no_check_quorum: bool,
    /// Answer reads from whoever believes to lead, without asking a quorum
    #[arg(long)]
    pub stale_reads: bool,
    /// Acknowledge writes when the leader has appended them, before they are committed
    #[arg(long)]
    pub ack_before_commit: bool,
    /// Do not restore term and vote after a restart
    #[arg(long)]
    pub forget_vote: bool,
    /// Mint fencing tokens from a counter that each node keeps for itself
    #[arg(long)]
    pub token_from_stale_state: bool,
    /// Measure leases with the wall clock
    #[arg(long)]
    pub wall_clock_leases: bool,
    /// Do not sync the log to disk
    #[arg(long)]
    pub no_fsync: bool,
    /// Hand out ids from a counter that each node keeps for itself
    #[arg(long)]
    pub dup_ids: bool,
    /// Start every watch from now, whatever revision it asks for
    #[arg(long)]
    pub watch_gap: bool,
}

impl Switches {
    /// The flags of those that are set.
    pub fn flags(&self) -> Vec<&'static str> {
        let all = [
            (self.ack_before_commit, "ack-before-commit"),
            (self.dup_ids, "dup-ids"),
            (self.forget_vote, "forget-vote"),
            (self.no_check_quorum, "no-check-quorum"),
            (self.no_fsync, "no-fsync"),
            (self.no_prevote, "no-prevote"),
            (self.stale_reads, "stale-reads"),
            (self.token_from_stale_state, "token-from-stale-state"),
            (self.wall_clock_leases, "wall-clock-leases"),
            (self.watch_gap, "watch-gap"),
        ];
        all.into_iter()
            .filter(|(set, _)| *set)
            .map(|(_, flag)| flag)
            .collect()
    }
}

/// The mistake that the vault can be told to make.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VaultSwitches {
    /// Accept every token, however old
    #[arg(long)]
    pub no_fencing: bool,
}

/// One switch, for the lists that people and mutant tests read.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    /// The flag on the command line, without its dashes.
    pub flag: &'static str,
    /// True when it is a flag of the vault rather than of a node.
    pub vault: bool,
    /// The report from the field that it stands for.
    pub report: &'static str,
    /// The faults that make it show, and what is then broken.
    pub shows: &'static str,
}

/// Every switch.
pub static SWITCHES: &[Switch] = &[
    Switch {
        flag: "ack-before-commit",
        vault: false,
        report: "Redis Sentinel and NATS JetStream 2.9 losing acknowledged writes of an isolated leader",
        shows: "isolate or kill the leader under writes: acknowledged puts and set elements are lost",
    },
    Switch {
        flag: "dup-ids",
        vault: false,
        report: "id generators that cache a block on the leader without replicating that it was taken",
        shows: "any change of leader: the new one hands out the same ids again",
    },
    Switch {
        flag: "forget-vote",
        vault: false,
        report: "PySyncObj before 0.3.16 (issues 84, 201, 202): term and vote lived in memory only",
        shows: "kill -9 all nodes (or any majority) and restart them, two or three times: terms start \
                again at 1 and a second node leads in a term that already had a leader",
    },
    Switch {
        flag: "no-check-quorum",
        vault: false,
        report: "etcd before check-quorum: a partitioned leader never steps down",
        shows: "isolate the leader: it believes to lead until the partition heals",
    },
    Switch {
        flag: "no-fencing",
        vault: true,
        report: "the frozen lock holder of Kleppmann's 'How to do distributed locking', and HBase's before it",
        shows: "freeze the holder of a lock for longer than its TTL: its next write is accepted",
    },
    Switch {
        flag: "no-fsync",
        vault: false,
        report: "NATS JetStream's lazy sync (Jepsen 2025), Galera with flush_log_at_trx_commit=0",
        shows: "power loss of a majority: acknowledged writes are lost",
    },
    Switch {
        flag: "no-prevote",
        vault: false,
        report: "etcd 3.4's default; the disruptive server of Cloudflare's outage of November 2020",
        shows: "a flapping or one-way cut of one link: terms and changes of leader pile up",
    },
    Switch {
        flag: "stale-reads",
        vault: false,
        report: "etcd and Consul before quorum reads (Jepsen 2014)",
        shows: "freeze or isolate the leader and write to the new one: the old one answers old values",
    },
    Switch {
        flag: "token-from-stale-state",
        vault: false,
        report: "fencing tokens from a local INCR that failover forgets (Redlock, Redis Sentinel)",
        shows: "any change of leader: tokens go backwards",
    },
    Switch {
        flag: "wall-clock-leases",
        vault: false,
        report: "leases measured with gettimeofday (CockroachDB and RethinkDB reports on jumping clocks)",
        shows: "set the leader's clock forward by a TTL: live sessions end at once",
    },
    Switch {
        flag: "watch-gap",
        vault: false,
        report: "etcd and Kubernetes watches that lost events when they were resumed",
        shows: "resume a watch from a revision after a lost connection: what lies between is skipped",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};

    fn flags(command: Command) -> Vec<String> {
        let mut flags: Vec<String> = command
            .get_arguments()
            .filter_map(|a| a.get_long().map(str::to_owned))
            .collect();
        flags.sort();
        flags
    }

    #[test]
    fn a_switch_that_is_set_says_so() {
        for switch in SWITCHES.iter().filter(|switch| !switch.vault) {
            let command = Switches::augment_args(Command::new("node"));
            let matches = command.get_matches_from(["node", &format!("--{}", switch.flag)]);
            let switches = Switches::from_arg_matches(&matches).unwrap();
            assert_eq!(switches.flags(), [switch.flag]);
        }
        assert!(Switches::default().flags().is_empty());
    }

    #[test]
    fn the_list_names_every_flag_and_no_other() {
        let listed = |vault| {
            let names = SWITCHES
                .iter()
                .filter(|s| s.vault == vault)
                .map(|s| s.flag.to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            listed(false),
            flags(Switches::augment_args(Command::new("node")))
        );
        assert_eq!(
            listed(true),
            flags(VaultSwitches::augment_args(Command::new("vault")))
        );
    }
}
