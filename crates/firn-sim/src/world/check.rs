//! Comparison of the whole database with the model.

use super::blob_values::Stored;
use super::read::{Entries, range_of, read_all};
use super::{DIR, StepEnd, World};
use crate::ensure;
use crate::model::{ModelCatalog, Moment, Writes};
use firn::base::{CounterValue, IndexId};
use firn::db::Db;
use firn::env::ReadClass;
use firn::read::ReadPoint;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The visible contents of a database.
#[derive(Clone)]
pub(super) struct DatabaseContents {
    pub tables: BTreeMap<String, Vec<IndexId>>,
    pub prepared: BTreeSet<Vec<u8>>,
    pub counters: BTreeMap<u64, CounterValue>,
    /// The entries of every live and dropped index.
    pub entries: BTreeMap<IndexId, Entries>,
}

impl World {
    pub(super) fn latest(&self) -> ReadPoint {
        self.db().context().super_versions.latest()
    }

    /// Reads the latest contents, every index in both directions.
    pub(super) fn see(&self) -> Result<DatabaseContents, StepEnd> {
        self.see_in(self.db())
    }

    /// As [`Self::see`], of another database.
    pub(super) fn see_in(&self, db: &Db) -> Result<DatabaseContents, StepEnd> {
        let point = db.context().super_versions.latest();
        let tables = db.catalog().list("");
        let tables: BTreeMap<String, Vec<IndexId>> = tables
            .iter()
            .map(|table| (table.name.clone(), table.index_ids()))
            .collect();
        let known = db.catalog().counters().snapshot();
        let mut ids: BTreeSet<IndexId> = self.live_indexes().into_iter().collect();
        ids.extend(tables.values().flatten());
        ids.extend(self.history.side().dropped.keys());
        let mut entries = BTreeMap::new();
        for id in ids {
            let range = range_of(id);
            let all = read_all(&point, &range, true)?;
            let backward = read_all(&point, &range, false)?;
            ensure!(all == backward, "index {id} reads differently backwards");
            entries.insert(id, all);
        }
        Ok(DatabaseContents {
            tables,
            prepared: db.prepared_xids().into_iter().collect(),
            counters: known.into_iter().collect(),
            entries,
        })
    }

    /// Describes the first difference between `seen` and the model at moment `at`; `None` if they
    /// agree. `side` has the tables and counters of the model at that moment. Prepared transactions
    /// are not compared.
    pub(super) fn difference(
        &self,
        seen: &DatabaseContents,
        at: Moment,
        side: &ModelCatalog,
    ) -> Option<String> {
        if seen.tables != side.tables {
            return Some(format!(
                "tables {:?}, expected {:?}",
                seen.tables, side.tables
            ));
        }
        for (counter, value) in &side.counters {
            let found = seen.counters.get(counter).copied().unwrap_or_default();
            if found < *value {
                return Some(format!(
                    "counter {counter} is {found:?}, was {value:?} at least"
                ));
            }
        }
        // Setting a counter back starts a new generation: values of the older generation must not
        // reappear in the newer one.
        for (counter, found) in &seen.counters {
            let most = self.counters_most.get(&(*counter, found.generation));
            if let Some(most) = most.filter(|most| found.value > **most) {
                return Some(format!(
                    "counter {counter} is {found:?}, was {most} at most"
                ));
            }
        }
        for (id, found) in &seen.entries {
            if side.dropped.contains_key(id) {
                continue;
            }
            let expected = self.expected(&range_of(*id), at, &Writes::new());
            if *found != expected {
                return Some(first_difference(found, &expected));
            }
        }
        None
    }

    /// Compares the whole database with the model at the last moment.
    ///
    /// # Errors
    /// [`StepEnd::Failed`] if they differ; [`StepEnd::Engine`] if a read fails.
    pub fn check_latest(&mut self) -> Result<(), StepEnd> {
        let seen = self.see()?;
        self.stats.compared += seen.entries.values().map(|e| e.len() as u64).sum::<u64>();
        let side = self.history.side();
        if let Some(what) = self.difference(&seen, self.history.now(), side) {
            ensure!(false, "the latest state is wrong: {what}");
        }
        let owned: BTreeSet<_> = self.sessions.iter().filter_map(|s| s.xid.clone()).collect();
        let prepared: BTreeSet<_> = side.prepared.keys().cloned().collect();
        let expected: BTreeSet<_> = prepared.difference(&owned).cloned().collect();
        ensure!(
            seen.prepared == expected,
            "prepared transactions {:?}, expected {expected:?}",
            seen.prepared
        );
        self.check_points(&seen)
    }

    /// Compares a point read of each entry in `seen` with the scan. Dropped indexes are left out:
    /// compactions remove their entries one by one, while the row cache may still hold them.
    fn check_points(&self, seen: &DatabaseContents) -> Result<(), StepEnd> {
        let point = self.latest();
        let dropped = &self.history.side().dropped;
        let kept = seen
            .entries
            .iter()
            .filter(|(id, _)| !dropped.contains_key(id));
        for (key, value) in kept.flat_map(|(_, entries)| entries) {
            let found = firn::read::get(
                &point.super_version,
                key,
                point.seqno,
                ReadClass::Point,
                |key, value| key.kind.is_put().then(|| Stored::of(key.kind, value)),
            )?;
            let found = found
                .flatten()
                .map(|stored| stored.read(&point.super_version.blobs));
            ensure!(
                found.transpose()?.as_ref() == Some(value),
                "a get of {key:?} differs from the scan"
            );
        }
        Ok(())
    }

    /// Checks that the catalog remembers a dropped index until its last entry is gone.
    pub(super) fn check_dropped(&self, seen: &DatabaseContents) -> Result<(), StepEnd> {
        let retired = self.db().catalog().retired();
        let dropped = &self.history.side().dropped;
        ensure!(
            retired.keys().all(|id| dropped.contains_key(id)),
            "retired indexes {retired:?}, only {dropped:?} were dropped"
        );
        for id in dropped.keys().filter(|id| !retired.contains_key(id)) {
            let left = seen.entries.get(id).map_or(0, Entries::len);
            ensure!(left == 0, "index {id} was forgotten with {left} entries");
        }
        Ok(())
    }

    /// Checks the tree after a full compaction, while no snapshot is held: the last level holds
    /// exactly the live entries, and no other file is stored.
    pub(super) fn check_rest(&mut self) -> Result<(), StepEnd> {
        // Compact once more: the caller's full compaction may have deleted the catalog's records of
        // dropped indexes, and this one removes the tombstones of these records.
        self.db().compact_all()?;
        let db = self.db();
        let retired = db.catalog().retired();
        ensure!(retired.is_empty(), "at rest, {retired:?} are still noted");
        let levels = db.levels();
        let (last, above) = levels.split_last().expect("levels");
        let files = db.places().local.files;
        ensure!(
            above.iter().all(|level| level.files == 0),
            "at rest, files lie above the last level: {levels:?}"
        );
        let now = self.history.now();
        let live = self.live_indexes().into_iter();
        let live = live.map(|id| self.expected(&range_of(id), now, &Writes::new()).len() as u64);
        let expected = live.sum::<u64>() + self.history.side().tables.len() as u64;
        ensure!(
            last.entries == expected && last.deletes == 0,
            "at rest, the last level has {} entries, {} of them deletions; expected {expected}",
            last.entries,
            last.deletes
        );
        let (waiting, _) = db.context().ingest.versions().obsolete();
        ensure!(
            waiting == 0,
            "at rest, {waiting} files wait for their deletion"
        );
        self.check_files(files)
    }

    /// Checks that each SST on disk belongs to the tree, which has `files` SSTs, to an ingested run
    /// that waits for its place in the tree, because the disk is full, or to an open or prepared
    /// transaction, or waits for its deletion.
    fn check_files(&self, files: u64) -> Result<(), StepEnd> {
        let names = firn::env::Env::list_dir(&self.env, Path::new(DIR))?;
        let stored = names.iter().filter(|name| name.ends_with(".sst")).count() as u64;
        let spilled = self.sessions.iter().map(|s| s.txn.spilled_files().len());
        let spilled = spilled.sum::<usize>() + self.db().context().prepared.files().len();
        // An open removes only some of many files that nothing names, and leaves the others to the
        // delete pacer. A full compaction removes them all.
        let (waiting, _) = self.db().context().ingest.versions().obsolete();
        let queue = self.db().context().super_versions.latest().super_version;
        let runs = queue.frozen.iter().filter_map(|queued| queued.run());
        let queued: usize = runs.map(|run| run.run().files.len()).sum();
        let named = files + (spilled + queued) as u64;
        ensure!(
            (named..=named + waiting).contains(&stored) || self.has_stray_files,
            "{stored} SSTs are stored, {files} of them in the tree, {queued} of runs, {spilled} of \
             transactions, {waiting} wait for their deletion"
        );
        Ok(())
    }

    /// Checks that recovery removed the files that transactions had spilled before they were lost
    /// in the crash.
    pub(super) fn check_recovered_files(&self) -> Result<(), StepEnd> {
        self.check_files(self.db().places().local.files)
    }
}

fn first_difference(found: &Entries, expected: &Entries) -> String {
    let keys: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let different = keys.into_iter().find(|k| found.get(*k) != expected.get(*k));
    let key = different.expect("the maps differ");
    format!(
        "key {key:?} is {:?}, expected {:?}",
        found.get(key),
        expected.get(key)
    )
}
