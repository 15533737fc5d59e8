//! Moves prepared transactions that recovery found into the new log, and takes their locks again.

use super::background::blob_gc::uses_in;
use super::recovery::Replayed;
use crate::base::event_listener::{EventListener, Severity};
use crate::base::key::index_id_of;
use crate::base::{Error, ErrorKind, IndexId, InternalIterator, Result};
use crate::blob::TransactionBlobs;
use crate::catalog::Catalog;
use crate::keycode::KeyPrefixExtractor;
use crate::sst::Salvage;
use crate::store::{FileKind, file_name};
use crate::txn::{LockMode, LockOwner, PreparedTransaction, TransactionContext};
use crate::version::FileMeta;
use crate::write::Changes;
use std::collections::HashMap;
use std::sync::Arc;

/// Writes the prepared transactions to the new log and takes the locks of their changes again. On
/// return the records are durable, whatever the flush mode is, because a flush may release the old
/// log soon after. If the disk has no room for the records, the old segments stay pinned instead.
pub(super) fn relog(
    cx: &TransactionContext,
    catalog: &Catalog,
    replayed: &Replayed,
    listener: &dyn EventListener,
) -> Result<()> {
    // Group the transactions by server run: the log names a run once, before its transactions.
    let mut prepared: Vec<_> = replayed.prepared.iter().collect();
    prepared.sort_by_key(|(xid, _)| replayed.runs.get(*xid));
    let mut named = None;
    if replayed.names_run {
        // A later recovery may replay the old log and then the new one. Write to the new log that
        // the server run is unknown from here on: otherwise the next prepare records would count as
        // those of the last server run that the old log names.
        cx.pipeline.set_server_run(None);
    }
    for (xid, changes) in prepared {
        let run = replayed.runs.get(xid);
        if run != named {
            cx.pipeline.set_server_run(run.cloned());
            named = run;
        }
        let mut blobs = TransactionBlobs::new();
        for used in uses_in(changes)?.iter() {
            cx.blobs.hold(&mut blobs, used.file);
        }
        let prepared = match cx.pipeline.prepare_recovered(xid, changes) {
            Err(full) if *full.kind() == ErrorKind::NoSpace => {
                // The disk has no room: pin the old log from the first replayed segment on, which
                // has the prepare record and names its server run.
                cx.pipeline
                    .adopt_prepared(replayed.first, xid, changes, run.cloned())
            }
            prepared => prepared?,
        };
        let mut locks = RecoveredLocks {
            cx,
            catalog,
            listener,
            owner: LockOwner::new(0, 0),
            unique: HashMap::new(),
            keys: Vec::new(),
        };
        match &**changes {
            Changes::Batch(batch) => batch.for_each(|entry| locks.take(entry.user_key))?,
            Changes::Run(files) => locks.take_all(files)?,
        }
        // Add all keys of the transaction to the active inserts, since the log does not tell new
        // rows from changed or deleted ones. The keys of changed and deleted rows do no harm there:
        // a scan that meets them waits for their locks anyway.
        let mut keys = std::mem::take(&mut locks.keys);
        keys.sort_unstable();
        let inserting = cx.inserts.add_prepared(&locks.owner, keys);
        let recovered = PreparedTransaction {
            changes: Arc::clone(changes),
            memory: changes.charge(&cx.write_sets),
            prepared,
            owner: Some(locks.owner),
            inserting,
            blobs,
            run: run.cloned(),
            rows: changes
                .indexes()?
                .into_iter()
                .map(|index| (catalog.counters().rows(index), None))
                .collect(),
        };
        cx.prepared.insert(xid.clone(), recovered);
    }
    if named.is_some() {
        cx.pipeline.set_server_run(None);
    }
    if replayed.prepared.is_empty() || cx.pipeline.has_no_segment() {
        return Ok(());
    }
    cx.pipeline.sync_all()
}

/// Takes again the locks that one prepared transaction had on its changes: on their keys, and on
/// the parts of these keys that must be unique in unique secondary indexes. Its locks on rows that
/// it only read are lost.
struct RecoveredLocks<'a> {
    cx: &'a TransactionContext,
    catalog: &'a Catalog,
    listener: &'a dyn EventListener,
    owner: Arc<LockOwner>,
    /// For each index met so far, an extractor that finds where the columns of the index definition
    /// end and the primary key begins; `None` if the index is not a unique secondary index.
    unique: HashMap<IndexId, Option<KeyPrefixExtractor>>,
    /// The keys of all entries.
    keys: Vec<Box<[u8]>>,
}

impl RecoveredLocks<'_> {
    fn lost(&self, error: &Error) {
        let message = format!("keys of a prepared transaction stay without their locks: {error}");
        self.listener.log(Severity::Error, &message);
    }

    fn lock(&self, key: &[u8]) {
        let locks = &self.cx.locks;
        locks.try_acquire(&self.owner, key, LockMode::Exclusive);
    }

    fn take(&mut self, user_key: &[u8]) {
        match self.declared(user_key) {
            Ok(Some(len)) => self.lock(&user_key[..len]),
            Ok(None) => {}
            Err(error) => self.lost(&error),
        }
        self.lock(user_key);
        self.keys.push(user_key.into());
    }

    /// Length of the prefix that is unique in a unique secondary index; `None` for other indexes,
    /// or if a column of the index definition is NULL.
    fn declared(&mut self, user_key: &[u8]) -> Result<Option<usize>> {
        let Some(index) = index_id_of(user_key) else {
            return Ok(None);
        };
        if !self.unique.contains_key(&index) {
            let ends = self.catalog.unique_prefix_extractor(index)?;
            self.unique.insert(index, ends);
        }
        let Some(ends) = &self.unique[&index] else {
            return Ok(None);
        };
        let (len, has_null) = ends.declared(user_key)?;
        Ok((!has_null).then_some(len))
    }

    /// Takes the locks of all keys in `files`, reading each file once. The keys come in ascending
    /// order, so that the lock table can merge their locks into sorted sets, which take a few bytes
    /// per key.
    ///
    /// Keys in damaged blocks stay without a lock, so that the rest of the database stays usable.
    /// That is safe: if the transaction commits, its files lie above anything written meanwhile,
    /// and a read of such a key fails.
    fn take_all(&mut self, files: &[FileMeta]) -> Result<()> {
        let source = Arc::clone(self.cx.ingest.versions().source());
        for meta in files {
            let (id, name) = (meta.file_id, file_name(FileKind::Sst, meta.file_id));
            let file = match source.store().open(id) {
                Err(error) if *error.kind() == ErrorKind::NotFound => {
                    self.lost(&Error::corruption(name, 0, "the file is missing"));
                    continue;
                }
                opened => opened?,
            };
            let cache = Arc::clone(source.cache());
            let mut damage = Vec::new();
            let salvage = Salvage::open(file, id, name, cache, &mut |error| damage.push(error))?;
            // These files have the spilled writes of a prepared transaction. Their entries get a
            // seqno only when the transaction commits; until then any seqno serves to read them.
            let ranges = salvage.lost().iter();
            let name = |key: &[u8]| self.catalog.entry_text(key);
            damage.extend(ranges.map(|range| range.named(name)));
            let mut entries = salvage.iter(Some(0));
            let mut on = entries.seek_to_first()?;
            while on {
                self.take(entries.key().user_key);
                on = entries.next()?;
            }
            drop(entries);
            damage.iter().for_each(|error| self.lost(error));
        }
        Ok(())
    }
}
