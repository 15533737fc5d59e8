//! Firn without the C ABI and without tables: transactions with raw keys and values.
//!
//! A put takes the way of an autocommit statement: it passes the stall gate, fills a private write
//! set, makes a batch of it and commits the batch through the pipeline. Only the row lock is left
//! out, because the other engines take none. A get begins a statement, pins a super version and
//! reads at a new snapshot. Each key begins with an index id, so it is four bytes longer than the
//! keys of the other engines.

use super::{Engine, Entry, Result, Session, Settings};
use crate::data::{KEY_LEN, Key};
use firn::base::Value;
use firn::base::options::{CommitDurability, MutableOptions, Options};
use firn::db::Db;
use firn::env::{PosixEnv, ReadClass};
use firn::iter::{MergeIter, MvccIter, ReadAt};
use firn::read::{ScanRange, scan_sources};
use firn::txn::{Isolation, Transaction};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An index id that no table has.
const INDEX: [u8; 4] = 0x4000_0000u32.to_be_bytes();

/// A key behind all others, which no line reads.
const HEARTBEAT: Key = [0xff; KEY_LEN];

pub(super) struct Firn {
    db: Arc<Db>,
}

pub(super) fn open(settings: &Settings) -> Result<Firn> {
    let mutable = MutableOptions::default();
    mutable
        .memtable_size
        .store(settings.memtable, Ordering::Relaxed);
    // Each of the other engines gets `cache` bytes for its cache, and may fill four memtables in
    // addition. Firn has one limit for all of its memory, so its limit is the sum of both.
    let memory_limit = settings.cache + 4 * settings.memtable;
    mutable.memory_limit.store(memory_limit, Ordering::Relaxed);
    mutable.set_commit_durability(match settings.durable {
        true => CommitDurability::Sync,
        false => CommitDurability::Write,
    });
    let options = Options {
        mutable: Arc::new(mutable),
        direct_reads: true,
        // The flush thread is the second background job.
        background_jobs: 1,
        // Direct I/O is used only where a commit waits for the device; other commits go into the
        // page cache.
        wal_direct_io: true,
        ..Options::default()
    };
    let db = Db::open(Arc::new(PosixEnv::new()), &settings.dir, options, None)?;
    Ok(Firn { db })
}

impl Engine for Firn {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(FirnSession {
            transaction: self.db.new_transaction(self.db.new_owner(0)),
            statement: 0,
            key: Vec::with_capacity(INDEX.len() + KEY_LEN),
        }))
    }

    /// An idle database compacts the whole tree into its last level, although the writes of the
    /// line did not make that necessary; the other engines do no such work. So a thread commits a
    /// key of its own five times a second, and the database does not count as idle.
    fn pay(&self) -> Result<()> {
        self.db.flush()?;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let heart = scope.spawn(|| {
                let mut session = self.session()?;
                while !done.load(Ordering::Relaxed) {
                    session.put(&[(HEARTBEAT, [0; crate::data::VALUE_LEN])])?;
                    std::thread::sleep(Duration::from_millis(200));
                }
                Ok::<_, super::Error>(())
            });
            let paid = (|| {
                let mut quiet = 0;
                let mut before = self.db.counters();
                while quiet < 4 {
                    let compacted = self.db.compact_once()?;
                    if !compacted {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    let now = self.db.counters();
                    let moved = now.compacted_bytes_read != before.compacted_bytes_read
                        || now.bytes_written - before.bytes_written > 1 << 20;
                    quiet = if compacted || moved { 0 } else { quiet + 1 };
                    before = now;
                }
                Ok(())
            })();
            done.store(true, Ordering::Relaxed);
            heart.join().map_err(|_| "the heartbeat panicked")??;
            paid
        })
    }

    fn compact(&self) -> Result<()> {
        Ok(self.db.compact_all()?)
    }

    fn is_log(&self, file: &Path) -> bool {
        file.extension().is_some_and(|e| e == "wal")
    }

    fn reads_directly(&self) -> bool {
        true
    }

    fn state(&self) -> String {
        let levels: Vec<String> = self
            .db
            .levels()
            .iter()
            .filter(|level| level.files > 0)
            .map(|l| format!("L{} {} runs {} MiB", l.level, l.runs, l.stored_bytes >> 20))
            .collect();
        let c = self.db.counters();
        let status = self.db.status_text();
        let stalls: Vec<&str> = status
            .lines()
            .filter(|line| line.starts_with("delayed") || line.starts_with("because of"))
            .filter(|line| !line.contains(": 0,"))
            .collect();
        format!(
            "{}; memtables {} MiB, cached blocks {} MiB; {}",
            levels.join(", "),
            c.memtable_bytes >> 20,
            c.block_cache_bytes >> 20,
            stalls.join("; "),
        )
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}

struct FirnSession {
    transaction: Transaction,
    statement: u64,
    key: Vec<u8>,
}

impl FirnSession {
    fn begin(&mut self) {
        self.statement += 1;
        let isolation = Isolation::ReadCommitted;
        self.transaction
            .begin_statement(self.statement, isolation, 0, true);
    }

    fn key_of(&mut self, key: &Key) {
        self.key.clear();
        self.key.extend_from_slice(&INDEX);
        self.key.extend_from_slice(key);
    }
}

impl Session for FirnSession {
    fn put(&mut self, entries: &[Entry]) -> Result<()> {
        self.begin();
        self.transaction.before_write()?;
        for (key, value) in entries {
            self.key_of(key);
            self.transaction.put(&self.key, Value::whole(value))?;
        }
        Ok(self.transaction.commit()?)
    }

    fn get(&mut self, key: &Key, out: &mut Vec<u8>) -> Result<bool> {
        self.begin();
        self.key_of(key);
        let point = self.transaction.read_point();
        let found = self
            .transaction
            .get(&point, &self.key, ReadClass::Point, |key, value| {
                out.clear();
                out.extend_from_slice(value.head);
                out.extend_from_slice(value.tail);
                key.kind.is_put()
            })?;
        self.transaction.commit()?;
        Ok(found == Some(true))
    }

    fn scan(
        &mut self,
        from: &Key,
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        self.begin();
        self.key_of(from);
        let point = self.transaction.read_point();
        let upper = (u32::from_be_bytes(INDEX) + 1).to_be_bytes();
        let range = ScanRange {
            lower: self.key.clone(),
            upper: Some(upper.to_vec()),
        };
        let sources = scan_sources(&point.super_version, &range, ReadClass::Range, None);
        let mut entries = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(point.seqno));
        entries.set_bounds(Some(&range.lower), range.upper.as_deref());
        let mut count = 0;
        let mut more = entries.seek_ge(&self.key)?;
        while more && count < limit {
            let value = entries.value();
            visit(&entries.user_key()[INDEX.len()..], value.head);
            count += 1;
            // Stop at the last wanted entry: a further `next` would do work that the iterators of
            // the other engines do not do.
            more = count < limit && entries.next()?;
        }
        drop(entries);
        self.transaction.commit()?;
        Ok(count)
    }
}
