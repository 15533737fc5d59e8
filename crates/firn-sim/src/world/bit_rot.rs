//! Checks of a database with one damaged file.

use super::blob_values::Stored;
use super::check::DatabaseContents;
use super::read::{Entries, range_of, read_all};
use super::{LOOSE, StepEnd, World};
use crate::ensure;
use crate::model::{Moment, Writes};
use firn::base::{Error, ErrorKind, IndexId, Value};
use firn::catalog::CATALOG_INDEX;
use firn::env::{MemEnv, ReadClass};
use firn::store::{FileKind, file_name};
use firn::txn::Isolation;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Outcome of one flip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlipOutcome {
    /// The open failed with an error that names the file.
    Refused,
    /// Some read failed with an error that names the file.
    Found,
    /// Every read is right, and nothing written is missing.
    Harmless,
    /// Every read is right as of a moment before the last written one.
    Shortened,
}

/// An index that the model does not know, for writes after the damage.
const NEW_INDEX: IndexId = 2_000_000;
const ROUNDS: u32 = 4;
const KEYS_A_ROUND: u32 = 8;

/// The most moments that a flip in the log may take back. Each WAL group records that the group
/// before it is durable, so only a damaged last group passes for a torn write. Commits that do not
/// wait for a sync may share that group.
const TORN_MAX: u64 = 6;

/// Checks that an error names the damaged file.
fn blame(error: &Error, file: &str, what: &str) -> Result<(), StepEnd> {
    let named = match error.kind() {
        ErrorKind::Corruption { file: named, .. } => {
            // If the damage hides the start of a group, the log cannot tell whether it continues
            // in the damaged segment or in another one, so any segment may be named.
            named.ends_with(file) || (named.ends_with(".wal") && file.ends_with(".wal"))
        }
        ErrorKind::Unsupported => error.message().contains(file),
        _ => false,
    };
    ensure!(
        named,
        "{what} fails with {error:?}, the damage is in {file}"
    );
    Ok(())
}

impl World {
    /// Ends the database, by a close if `closed`, else by a kill, and returns the stored files. The
    /// world keeps its model.
    ///
    /// The returned names are the SSTs that hold catalog entries, without which a database does not
    /// know its tables.
    ///
    /// # Errors
    /// [`StepEnd::Engine`] if the close fails.
    pub fn leave(&mut self, closed: bool) -> Result<(MemEnv, Vec<String>), StepEnd> {
        self.end_sessions();
        self.sessions.clear();
        if closed {
            self.db().close()?;
            self.history.acknowledge(self.history.now());
        }
        let version = Arc::clone(&self.latest().super_version.version);
        let of_catalog = version.files().filter(|(_, file)| {
            let ids = file.per_index.iter().map(|stats| stats.index);
            ids.min() == Some(CATALOG_INDEX)
        });
        let names = of_catalog
            .map(|(_, file)| file_name(FileKind::Sst, file.file_id))
            .collect();
        self.db = None;
        Ok((self.env.kill(), names))
    }

    /// Whether the model knows every moment that the database may show after a flip in the log.
    pub fn knows_what_a_flip_may_leave(&self) -> bool {
        self.history.written() >= self.history.base_at() + TORN_MAX
    }

    /// Opens the database over `env`, in which a bit of `file` was flipped, and compares everything
    /// readable with the model, before and after further writes and compactions.
    ///
    /// With `may_refuse`, the open may fail, because it reads `file`.
    ///
    /// # Errors
    /// [`StepEnd::Failed`] if an error does not name the file, if a read returns wrong data, or if
    /// writes are refused; [`StepEnd::Engine`] if another call fails.
    pub fn look_at_damage(
        &mut self,
        env: MemEnv,
        file: &str,
        may_refuse: bool,
    ) -> Result<FlipOutcome, StepEnd> {
        self.db = None;
        self.env = env;
        match self.start() {
            Ok(db) => self.db = Some(db),
            Err(error) => {
                ensure!(may_refuse, "the open fails: {error:?}");
                blame(&error, file, "the open")?;
                return Ok(FlipOutcome::Refused);
            }
        }
        let (seen, mut failed) = self.see_what_reads(file)?;
        let now = self.history.now();
        // Commits that were not yet written when the process died may be missing anyway.
        let whole = self.history.written();
        let from = match file.ends_with(".wal") {
            true => whole.saturating_sub(TORN_MAX).max(self.history.base_at()),
            false => whole,
        };
        let moment = (from..=now).rev().find(|&at| {
            self.difference(&seen, at, &self.history.side_at(at))
                .is_none()
        });
        let Some(moment) = moment else {
            let what = self.difference(&seen, now, self.history.side());
            ensure!(false, "no state fits: {}", what.unwrap_or_default());
            unreachable!("ensured");
        };
        failed |= self.points_after_damage(file, from, moment, &seen.entries)?;
        self.work_after_damage(file)?;
        let (again, _) = self.see_what_reads(file)?;
        for (id, entries) in &seen.entries {
            ensure!(
                again.entries.get(id) == Some(entries),
                "index {id} reads differently after a compaction over the damage"
            );
        }
        self.db = None;
        Ok(match (failed, moment >= whole) {
            (true, _) => FlipOutcome::Found,
            (false, true) => FlipOutcome::Harmless,
            (false, false) => FlipOutcome::Shortened,
        })
    }

    /// As [`Self::see`], but leaves out the indexes whose scans fail. Also returns whether any scan
    /// failed.
    fn see_what_reads(&self, file: &str) -> Result<(DatabaseContents, bool), StepEnd> {
        let point = self.latest();
        let tables = self.db().catalog().list("");
        let tables: BTreeMap<String, Vec<IndexId>> = tables
            .iter()
            .map(|table| (table.name.clone(), table.index_ids()))
            .collect();
        let mut entries = BTreeMap::new();
        let mut failed = false;
        for id in LOOSE.iter().chain(tables.values().flatten()) {
            for forward in [true, false] {
                match read_all(&point, &range_of(*id), forward) {
                    Ok(all) => {
                        let other = entries.insert(*id, all);
                        let same = other.is_none_or(|other: Entries| other == entries[id]);
                        ensure!(same, "index {id} reads differently backwards");
                    }
                    Err(error) => {
                        blame(&error, file, "a scan")?;
                        failed = true;
                    }
                }
            }
        }
        let seen = DatabaseContents {
            prepared: self.db().prepared_xids().into_iter().collect(),
            counters: self
                .db()
                .catalog()
                .counters()
                .snapshot()
                .into_iter()
                .collect(),
            tables,
            entries,
        };
        Ok((seen, failed))
    }

    /// Checks point reads of all entries at `moment`: each returns the right value or an error that
    /// names the file. Returns whether a read failed. For an index that could not be scanned, the
    /// value at any moment from `from` on is right, because its moment is unknown.
    fn points_after_damage(
        &self,
        file: &str,
        from: Moment,
        moment: Moment,
        scanned: &BTreeMap<IndexId, Entries>,
    ) -> Result<bool, StepEnd> {
        let point = self.latest();
        let mut failed = false;
        for id in self.live_indexes() {
            for (key, value) in self.expected(&range_of(id), moment, &Writes::new()) {
                let found = firn::read::get(
                    &point.super_version,
                    &key,
                    point.seqno,
                    ReadClass::Point,
                    |key, value| key.kind.is_put().then(|| Stored::of(key.kind, value)),
                );
                let found = found.and_then(|found| {
                    let stored = found.flatten();
                    stored
                        .map(|s| s.read(&point.super_version.blobs))
                        .transpose()
                });
                match found {
                    Ok(found) => {
                        let was = (from..=self.history.now())
                            .any(|at| self.history.get(&key, at) == found.as_ref());
                        ensure!(
                            was && (found.as_ref() == Some(&value) || !scanned.contains_key(&id)),
                            "a get of {key:?} finds {found:?}"
                        );
                    }
                    Err(error) => {
                        blame(&error, file, "a get")?;
                        failed = true;
                    }
                }
            }
        }
        Ok(failed)
    }

    /// Checks that writes, flushes and compactions go on, next to the damage and across it.
    fn work_after_damage(&self, file: &str) -> Result<(), StepEnd> {
        ensure!(self.accepts_writes()?, "writes are refused");
        for round in 0..ROUNDS {
            for n in 0..KEYS_A_ROUND {
                self.write_new(round * KEYS_A_ROUND + n)?;
            }
            self.db().flush()?;
            self.compact_beside_damage(file)?;
        }
        for _ in 0..4 {
            // The blob gc must not fail because of the damage. If it cannot read the entries of a
            // damaged SST, it leaves alone the blob files to which that SST refers.
            self.db().collect_blobs()?;
        }
        match self.db().compact_all() {
            Ok(()) => {}
            Err(error) => blame(&error, file, "a full compaction")?,
        }
        let found = read_all(&self.latest(), &range_of(NEW_INDEX), true)?;
        ensure!(
            found.len() == (ROUNDS * KEYS_A_ROUND) as usize,
            "{} of the new entries are there",
            found.len()
        );
        Ok(())
    }

    /// Compacts until the picker finds nothing. A job that meets the damage fails; the picker must
    /// then leave the damaged file out, so at most one job fails.
    fn compact_beside_damage(&self, file: &str) -> Result<(), StepEnd> {
        let mut failures = 0;
        loop {
            match self.db().compact_once() {
                Ok(false) => return Ok(()),
                Ok(true) => {}
                Err(error) => {
                    blame(&error, file, "a compaction")?;
                    failures += 1;
                    ensure!(failures == 1, "compactions fail again and again: {error:?}");
                }
            }
        }
    }

    fn write_new(&self, n: u32) -> Result<(), StepEnd> {
        let mut txn = self.db().new_transaction(self.db().new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
        txn.before_write()?;
        let key = [NEW_INDEX.to_be_bytes(), n.to_be_bytes()].concat();
        txn.put(&key, Value::whole(&[n as u8; 100]))?;
        Ok(txn.commit()?)
    }
}
