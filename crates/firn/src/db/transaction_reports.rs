//! Reports on transactions: which are open, which wait for which, deadlocks, old snapshots.

use super::Db;
use super::background::BackgroundWork;
use crate::base::event_listener::Severity;
use crate::base::wall_clock;
use crate::txn::{Deadlock, LockInfo, TransactionInfo, WaitInfo};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Transactions that the status text lists.
const LISTED: usize = 100;

/// Microseconds of a second.
const SECOND_US: u64 = 1_000_000;

/// The age of the oldest snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotAge {
    /// Time since the snapshot was taken, seconds; 0 if there is none.
    pub seconds: u64,
    /// Number of commits since the snapshot. The tree keeps the old versions of all keys that they
    /// have changed.
    pub commits: u64,
}

fn seconds_since(begin_us: u64) -> u64 {
    wall_clock::now_us().saturating_sub(begin_us) / SECOND_US
}

impl Db {
    /// The open transactions of sessions.
    pub fn transactions(&self) -> Vec<TransactionInfo> {
        self.cx.transactions.open()
    }

    /// The SQL text that the session of a transaction executes; `None` if it cannot be read without
    /// a wait.
    pub fn statement_of(&self, transaction: &TransactionInfo) -> Option<String> {
        self.cx.locks.statement_of(&transaction.owner)
    }

    /// At most `max` locks, see [`crate::txn::LockTable::locks`].
    pub fn locks(&self, max: usize) -> Vec<LockInfo> {
        self.cx.locks.locks(max)
    }

    /// All requests that wait for a lock.
    pub fn lock_waits(&self) -> Vec<WaitInfo> {
        self.cx.locks.waits()
    }

    /// The last ten deadlocks, oldest first.
    pub fn deadlocks(&self) -> Vec<Arc<Deadlock>> {
        self.cx.locks.deadlocks()
    }

    /// The age of the oldest snapshot of a transaction.
    pub fn snapshot_age(&self) -> SnapshotAge {
        let oldest = self.cx.transactions.oldest_snapshot();
        let Some((since_us, seqno, _)) = oldest else {
            return SnapshotAge::default();
        };
        SnapshotAge {
            seconds: seconds_since(since_us),
            commits: self.cx.super_versions.visible().saturating_sub(seqno),
        }
    }

    /// A key in words: table, index and values.
    fn key_text(&self, key: &[u8]) -> String {
        self.catalog.entry_text(key)
    }

    /// Describes a deadlock. Each transaction, which is blocked by the next one, has a line, and a
    /// second line for its statement if that is known.
    pub fn deadlock_text(&self, deadlock: &Deadlock) -> String {
        let mut text = String::new();
        for (at, member) in deadlock.members.iter().enumerate() {
            let blocker = &deadlock.members[(at + 1) % deadlock.members.len()];
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "transaction {} of session {} (weight {}) waits for {} on {}, blocked by transaction {}{}",
                member.owner,
                member.session,
                member.weight,
                member.words(),
                self.key_text(&member.key),
                blocker.owner,
                if at == deadlock.victim {
                    "; rolled back"
                } else {
                    ""
                },
            );
            if let Some(statement) = &member.statement {
                let _ = writeln!(text, "  {}", one_line(statement));
            }
        }
        text
    }

    /// From now on, each deadlock is written to the host's log, if the option `print_all_deadlocks`
    /// is set when the deadlock happens.
    pub(super) fn log_deadlocks(self: &Arc<Self>) {
        let db = Arc::downgrade(self);
        self.cx.locks.on_deadlock(move |deadlock| {
            let Some(db) = db.upgrade() else {
                return;
            };
            let wanted = &db.cx.mutable.print_all_deadlocks;
            if wanted.load(Ordering::Relaxed) {
                let listener = &db.work.options.listener;
                listener.log(Severity::Note, &format!("deadlock {}:", deadlock.number));
                for line in db.deadlock_text(deadlock).lines() {
                    listener.log(Severity::Note, line);
                }
            }
        });
    }

    pub(super) fn write_transactions(&self, out: &mut String) -> std::fmt::Result {
        let age = self.snapshot_age();
        writeln!(
            out,
            "\nTRANSACTIONS\nsnapshots {}, the oldest is {} s and {} commits old",
            self.cx.snapshots.live().len(),
            age.seconds,
            age.commits
        )?;
        writeln!(
            out,
            "prepared without a session {}",
            self.cx.prepared.xids().len()
        )?;
        let (stats, locks) = (self.cx.locks.stats(), self.cx.locks.memory());
        writeln!(
            out,
            "row lock waits {}, deadlocks {}",
            stats.waits, stats.deadlocks
        )?;
        writeln!(
            out,
            "rows locked {}, {} of them by large statements in sets of {} bytes; gaps locked {}",
            locks.rows + locks.merged_rows,
            locks.merged_rows,
            locks.merged_bytes,
            locks.gaps
        )?;
        let open = self.transactions();
        let waits = self.lock_waits();
        let waits: HashMap<u64, &WaitInfo> = waits.iter().map(|wait| (wait.owner, wait)).collect();
        writeln!(out, "open {}", open.len())?;
        for transaction in open.iter().take(LISTED) {
            let wait = waits.get(&transaction.owner.id()).copied();
            self.write_transaction(out, transaction, wait)?;
        }
        if open.len() > LISTED {
            writeln!(out, "and {} more", open.len() - LISTED)?;
        }
        writeln!(out, "\nLATEST DEADLOCK")?;
        match self.deadlocks().last() {
            None => writeln!(out, "none"),
            Some(deadlock) => writeln!(
                out,
                "{} s ago\n{}",
                seconds_since(deadlock.at_us),
                self.deadlock_text(deadlock)
            ),
        }
    }

    fn write_transaction(
        &self,
        out: &mut String,
        transaction: &TransactionInfo,
        wait: Option<&WaitInfo>,
    ) -> std::fmt::Result {
        let owner = &transaction.owner;
        writeln!(
            out,
            "transaction {} of session {}, {} for {} s, {}: {} rows and {} gaps locked, {} rows changed, {} bytes written",
            owner.id(),
            owner.session(),
            transaction.phase.words(),
            seconds_since(transaction.begun_us),
            transaction.isolation.words(),
            owner.locks_held(),
            owner.gaps_held(),
            owner.changed_rows(),
            transaction.write_bytes
        )?;
        if let Some((seqno, since_us)) = transaction.snapshot {
            writeln!(
                out,
                "  its snapshot is {} s and {} commits old",
                seconds_since(since_us),
                self.cx.super_versions.visible().saturating_sub(seqno)
            )?;
        }
        if let Some(wait) = wait {
            let blockers: Vec<String> = wait.blockers.iter().map(u64::to_string).collect();
            writeln!(
                out,
                "  waits for {} s for {} on {}, blocked by {}",
                seconds_since(wait.since_us),
                wait.words(),
                self.key_text(&wait.key),
                blockers.join(", ")
            )?;
        }
        match self.statement_of(transaction) {
            Some(statement) => writeln!(out, "  {}", one_line(&statement)),
            None => Ok(()),
        }
    }
}

/// SQL text without line ends.
fn one_line(statement: &str) -> String {
    let words = statement.split(['\n', '\r']).map(str::trim);
    words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

impl BackgroundWork {
    /// Writes a warning to the host's log when the oldest snapshot becomes older than
    /// `snapshot_age_warning_s`, once for each snapshot, because the snapshot keeps old versions
    /// from being dropped.
    pub(super) fn watch_snapshots(&self) {
        let limit = &self.options.mutable.snapshot_age_warning_s;
        let limit = limit.load(Ordering::Relaxed);
        let oldest = self.transactions.oldest_snapshot();
        let Some((since_us, seqno, owner)) = oldest.filter(|_| limit != 0) else {
            return;
        };
        let age = seconds_since(since_us);
        if age < limit || self.warned_snapshot_us.swap(since_us, Ordering::Relaxed) == since_us {
            return;
        }
        let commits = self.super_versions.visible().saturating_sub(seqno);
        let message = format!(
            "the snapshot of session {} is {age} s old: the old versions of what {commits} commits have changed since \
             then are kept until its transaction ends",
            owner.session()
        );
        self.options.listener.log(Severity::Warning, &message);
    }
}
