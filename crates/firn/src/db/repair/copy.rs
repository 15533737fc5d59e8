//! Copies the newest version of every key into files of the last level.

use crate::base::blob_buf::BlobBuf;
use crate::base::blob_ref;
use crate::base::event_listener::Silent;
use crate::base::health::Health;
use crate::base::key::{INDEX_ID_LEN, index_id_of};
use crate::base::options::Options;
use crate::base::{
    CounterValue, Error, ErrorKind, IndexId, InternalIterator, InternalKey, Kind, Result, Seqno,
    Value,
};
use crate::blob::{BlobStore, TransactionBlobs};
use crate::cache::BlockCache;
use crate::catalog::{CATALOG_INDEX, CatalogState};
use crate::env::{Env, ReadClass};
use crate::iter::MergeIter;
use crate::sst::{Density, SstOptions, SstWriter};
use crate::store::FileStore;
use crate::version::{self, Edit, FileMeta, FileSource, LAST_LEVEL, VersionSet};
use crate::wal::Gtid;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Capacity of the block cache, bytes.
const CACHE_SIZE: u64 = 64 << 20;

/// A copy in progress.
pub(super) struct RepairCopy {
    versions: Arc<VersionSet>,
    /// The damaged database's blobs.
    from: BlobStore,
    blobs: BlobStore,
    session: TransactionBlobs,
    options: Options,
    writer: Option<SstWriter>,
    /// The catalog's contents. Complete when the first row comes: the catalog's index id sorts
    /// first.
    pub(super) known: CatalogState,
    pub(super) files: Vec<FileMeta>,
    pub(super) entries: u64,
    /// Newest seqno seen.
    pub(super) last_seqno: Seqno,
    /// Largest index id seen.
    pub(super) largest_index: IndexId,
}

impl RepairCopy {
    /// Prepares a copy into the empty directory `target`. Blobs are read from `from`.
    pub(super) fn new(env: &Arc<dyn Env>, target: &Path, from: BlobStore) -> Result<Self> {
        let store = FileStore::new(Arc::clone(env), target);
        let versions = VersionSet::open(version::VersionSetContext {
            env: Arc::clone(env),
            dir: target.to_owned(),
            source: FileSource::new(store, Arc::new(BlockCache::new(CACHE_SIZE))),
            health: Arc::new(Health::new()),
            listener: Arc::new(Silent),
        })?;
        let versions = Arc::new(versions);
        let ids = Arc::clone(&versions);
        let options = Options::default();
        let store = versions.source().store().clone();
        let blobs = BlobStore::new(store, options.blob_file_size, move || ids.new_file_id());
        Ok(Self {
            versions,
            from,
            blobs,
            session: TransactionBlobs::new(),
            options,
            writer: None,
            known: CatalogState::default(),
            files: Vec::new(),
            entries: 0,
            last_seqno: 0,
            largest_index: 0,
        })
    }

    /// Copies the entries of `sources`. A key may have many versions, and a version may occur
    /// twice.
    pub(super) fn all(
        &mut self,
        sources: Vec<Box<dyn InternalIterator>>,
        lost: &mut dyn FnMut(Error),
    ) -> Result<()> {
        let mut merged = MergeIter::new(sources);
        let mut last: Option<Vec<u8>> = None;
        let mut more = merged.seek_to_first()?;
        while more {
            let (key, value) = (merged.key(), merged.value());
            self.last_seqno = self.last_seqno.max(key.seqno);
            if last.as_deref() != Some(key.user_key) {
                let buffer = last.get_or_insert_default();
                buffer.clear();
                buffer.extend_from_slice(key.user_key);
                self.newest(key, value, lost)?;
            }
            more = merged.next()?;
        }
        self.close()
    }

    /// Copies an entry, which is the newest version of its key, unless it is a deletion or its
    /// index was dropped.
    fn newest(
        &mut self,
        key: InternalKey<'_>,
        value: Value<'_>,
        lost: &mut dyn FnMut(Error),
    ) -> Result<()> {
        let Some(index) = index_id_of(key.user_key) else {
            lost(Error::corruption("", 0, "a key without an index"));
            return Ok(());
        };
        self.largest_index = self.largest_index.max(index);
        match key.kind {
            Kind::Delete => return Ok(()),
            Kind::Put | Kind::PutBlobs => {}
            Kind::RangeDelete => {
                return Err(Error::unsupported(format!(
                    "entries of kind {} cannot be repaired",
                    key.kind as u8
                )));
            }
        }
        if index == CATALOG_INDEX {
            let retired = self.known.retired.len();
            if let Err(error) = self
                .known
                .add(&key.user_key[INDEX_ID_LEN..], key.seqno, value.head)
            {
                if error.is_unsupported() {
                    return Err(error);
                }
                lost(error);
                return Ok(());
            }
            // Leave out the catalog entries of retired indexes, too, since no entry of such an
            // index is copied.
            if self.known.retired.len() > retired {
                return Ok(());
            }
        } else if self.known.retired.contains_key(&index) {
            return Ok(());
        }
        if key.kind == Kind::PutBlobs {
            return self.add_with_blobs(key, value, lost);
        }
        self.add(key, value)
    }

    /// Copies a row and its blobs. A lost blob leaves an empty value; the rest of the row stays.
    fn add_with_blobs(
        &mut self,
        key: InternalKey<'_>,
        value: Value<'_>,
        lost: &mut dyn FnMut(Error),
    ) -> Result<()> {
        let (from, to) = (&self.from, &self.blobs);
        let (session, known) = (&mut self.session, &self.known);
        match own_blobs(from, to, session, known, key.user_key, value.tail, lost) {
            Ok((kind, tail)) => {
                let key = InternalKey { kind, ..key };
                self.add(key, Value::split(value.head, &tail))
            }
            Err(error) if error.is_corruption() => {
                let row = self.known.entry_text(key.user_key);
                let what = format!("{}; {row} is lost", error.message());
                lost(Error::corruption("", 0, what));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn add(&mut self, key: InternalKey<'_>, value: Value<'_>) -> Result<()> {
        let full = |writer: &SstWriter| writer.estimated_size() >= self.options.target_file_size;
        if self.writer.as_ref().is_some_and(full) {
            self.close()?;
        }
        if self.writer.is_none() {
            self.writer = Some(self.create()?);
        }
        self.entries += 1;
        let writer = self.writer.as_mut().expect("just created");
        // Give the entry seqno 0, which every read sees: the new database has no other version of
        // the key.
        writer.add(InternalKey::new(key.user_key, 0, key.kind), value)
    }

    fn create(&self) -> Result<SstWriter> {
        let id = self.versions.new_file_id();
        let store = self.versions.source().store();
        let options = SstOptions::of(Density::Dense, self.options.block_size);
        let now = store.env().wall_micros();
        Ok(SstWriter::new(store.create(id)?, id, options, now))
    }

    fn close(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let meta = FileMeta::from_summary(writer.finish()?, 0, true);
            self.files.push(meta);
        }
        Ok(())
    }

    /// Writes the manifest edit that adds the files.
    pub(super) fn install(
        self,
        last_seqno: Seqno,
        counters: Vec<(u64, CounterValue)>,
        gtids: &BTreeMap<u32, Gtid>,
    ) -> Result<()> {
        self.session.sync()?;
        self.versions.note_gtids(gtids);
        self.versions.apply(Edit {
            added: self
                .files
                .into_iter()
                .map(|meta| (LAST_LEVEL as u8, 0, meta))
                .collect(),
            // The new database needs no log segment: the copy has what the log held.
            log_number: Some(0),
            last_seqno: Some(last_seqno),
            counters,
            ..Edit::default()
        })?;
        Ok(())
    }
}

/// Copies the blobs of an entry from one store to another. Returns the entry's new tail and kind. A
/// lost blob leaves an empty value.
///
/// # Errors
/// `Corruption` if the tail itself is damaged; those of writing (`NoSpace`, `Io`).
pub(super) fn own_blobs(
    from: &BlobStore,
    to: &BlobStore,
    session: &mut TransactionBlobs,
    known: &CatalogState,
    user_key: &[u8],
    tail: &[u8],
    lost: &mut dyn FnMut(Error),
) -> Result<(Kind, Vec<u8>)> {
    let (proper, refs) = blob_ref::split(tail)?;
    let mut tail = proper.to_vec();
    let mut copied = Vec::with_capacity(refs.len());
    let mut buf = BlobBuf::new();
    for blob in refs {
        buf.clear();
        match from.read(&blob, ReadClass::Verify, &mut buf) {
            Ok(bytes) => copied.push(to.write(session, blob.column, bytes)?),
            Err(error) => match error.kind() {
                ErrorKind::Corruption { file, offset } => {
                    let index = index_id_of(user_key).unwrap_or_default();
                    let column = known.column_text(index, blob.column);
                    let row = known.entry_text(user_key);
                    let message = error.message();
                    let what = format!("{message}; {row}: column {column} is empty now");
                    lost(Error::corruption(file.clone(), *offset, what));
                }
                _ => return Err(error),
            },
        }
    }
    if copied.is_empty() {
        return Ok((Kind::Put, tail));
    }
    blob_ref::append(&mut tail, &copied);
    Ok((Kind::PutBlobs, tail))
}
