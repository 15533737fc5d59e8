//! The blob store: all blob files of a database.

use super::chunks::BlobReadExtent;
use super::file::{BlobFile, KEPT_FRONT, LinkHold, moved_from};
use super::file_cache::BlobFileCache;
use super::format::{BlobHeader, DATA_START, file_header, place_after, places};
use super::holes::{BlobSpan, holes};
use super::pack::pack;
use super::pause_points::{BlobPausePoint, reached};
use super::transaction_blobs::TransactionBlobs;
use crate::base::blob_buf::BlobBuf;
use crate::base::blob_ref::BlobRef;
use crate::base::{Error, ErrorKind, Result, check_stopping};
use crate::env::{PrefetchBatch, ReadClass};
use crate::store::{FileKind, FileStore};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A blob file is full when its size reaches 1/32 of all blob bytes written since the database was
/// opened. This limit on the size is at least 1/`FILE_MIN_SHARE` of the maximal size, and at most
/// the maximal size.
const FILE_SHARE: u64 = 32;
/// A blob file below 1/8 of the maximal size is never full.
const FILE_MIN_SHARE: u64 = 8;

/// Largest number of blob files that are open for reading at the same time.
const OPEN_FILES_MAX: usize = 256;

/// Counters of the blob store since the database was opened.
#[derive(Debug, Default)]
pub struct BlobStats {
    /// Number of values written.
    pub written: AtomicU64,
    /// Bytes of the values written, as stored, headers included.
    pub written_bytes: AtomicU64,
    /// Number of values read, whole or in part.
    pub read: AtomicU64,
    /// Bytes of the values read, as stored.
    pub read_bytes: AtomicU64,
    /// Bytes that punching holes has given back to the file system.
    pub punched_bytes: AtomicU64,
    /// Bytes of live blobs that rewrites have copied to another file.
    pub rewritten_bytes: AtomicU64,
    /// Number of blob files removed.
    pub removed_files: AtomicU64,
}

/// A new physical file with copies of the live blobs of a logical file. It does not replace the old
/// physical file before [`BlobStore::install`].
pub struct RewrittenBlobFile {
    /// Logical id, which references have.
    pub logical: u64,
    /// Physical id of the new file.
    pub physical: u64,
    /// Bytes of the blobs in the new file, headers included.
    pub bytes: u64,
}

type NewId = Box<dyn Fn() -> u64 + Send + Sync>;

/// The blob files of a database: writing, reading, and the single steps of garbage collection.
///
/// References name a *logical* file. The blobs of a logical file lie in a *physical* file. It has
/// the same id at first; a rewrite copies the live blobs to another physical file. New blobs go to
/// one file at a time, the active one. A [`TransactionBlobs`] holds the files that its transaction
/// writes to, and a held file is not collected.
///
/// If a prepared transaction is rolled back, [`Self::release_after`] keeps its files held until the
/// rollback is durable in the log. Before that, a crash would make the transaction prepared again,
/// and its blobs would be needed.
///
/// Locks, in this order: `active`, then `linking`, then `known` or `moved`. `linking` is
/// read-locked while hard links to blob files are made. It is write-locked while a sealed blob file
/// is cut, or a blob file is punched, replaced or removed.
pub struct BlobStore {
    files: FileStore,
    new_id: Option<NewId>,
    file_size: u64,
    open_files: Arc<BlobFileCache>,
    known: RwLock<BTreeMap<u64, Arc<BlobFile>>>,
    active: Mutex<Option<Arc<BlobFile>>>,
    /// Physical id by logical id, for files whose ids differ.
    moved: RwLock<BTreeMap<u64, u64>>,
    released: Mutex<Vec<(u64, TransactionBlobs)>>,
    /// Sealed files behind whose spans zeros may still lie.
    untrimmed: Mutex<Vec<Arc<BlobFile>>>,
    /// Number of files sealed since the database was opened.
    sealed: AtomicU64,
    linking: RwLock<()>,
    stopping: AtomicBool,
    stats: BlobStats,
}

impl BlobStore {
    /// The blob files in the directory of `files`. `new_id` returns a new file id at each call.
    /// `file_size` is the maximal size of a blob file in bytes.
    pub fn new(
        files: FileStore,
        file_size: u64,
        new_id: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self {
            new_id: Some(Box::new(new_id)),
            ..Self::read_only(files, file_size)
        }
    }

    /// As [`Self::new`], but attempts to write fail with `Unsupported`.
    pub fn read_only(files: FileStore, file_size: u64) -> Self {
        Self {
            files,
            new_id: None,
            file_size,
            open_files: BlobFileCache::new(OPEN_FILES_MAX),
            known: RwLock::default(),
            active: Mutex::default(),
            moved: RwLock::default(),
            released: Mutex::default(),
            untrimmed: Mutex::default(),
            sealed: AtomicU64::new(0),
            linking: RwLock::default(),
            stopping: AtomicBool::new(false),
            stats: BlobStats::default(),
        }
    }

    /// Sets, for each rewritten file, its logical and its physical id. Call it before the first
    /// read.
    pub fn set_moved(&self, moved: impl IntoIterator<Item = (u64, u64)>) {
        *self.moved.write() = moved.into_iter().collect();
    }

    /// The physical ids of rewritten files by logical id, read from the headers of all blob files.
    /// For use if the manifest is lost. If several undamaged files have the same logical id, the
    /// newest is taken.
    ///
    /// # Errors
    /// `Io` and `Unsupported`; damaged files are skipped.
    pub fn moved_on_disk(files: &FileStore) -> Result<BTreeMap<u64, u64>> {
        let mut moved = BTreeMap::new();
        for id in files.list_blobs()? {
            match moved_from(files, id) {
                Ok(logical) if logical != id => drop(moved.insert(logical, id)),
                Ok(_) => {}
                Err(error) if error.is_corruption() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }

    /// The file store.
    pub fn files(&self) -> &FileStore {
        &self.files
    }

    /// The counters since the database was opened.
    pub fn stats(&self) -> &BlobStats {
        &self.stats
    }

    /// While the result exists, no sealed blob file is cut, and no blob file is punched, replaced
    /// or removed. For callers that make hard links to the files. A file with a second link is not
    /// cut or punched later either, because the link shares its content.
    pub fn hold_links(&self) -> LinkHold<'_> {
        LinkHold(self.linking.read())
    }

    /// Whether somebody holds the lock `linking` now: a caller of [`Self::hold_links`], or the blob
    /// store itself because it cuts, punches, replaces or removes a file.
    pub fn links_held(&self) -> bool {
        self.linking.try_write().is_none()
    }

    /// Whether the file has a second hard link, so that it must not be punched or cut.
    ///
    /// # Errors
    /// `NotFound`; `Io`.
    pub fn is_linked(&self, file: &BlobFile) -> Result<bool> {
        Ok(self.files.blob_links(file.physical_id())? > 1)
    }

    /// Writes `value` of column `column` to a blob file. The blob becomes durable when `session` is
    /// synced. If `session` is dropped before any entry refers to the blob, the blob is garbage.
    ///
    /// # Errors
    /// `NoSpace` and `Io`: the value is not stored. `InvalidArgument` for a value of 4 GiB or more.
    /// `Unsupported` in a read-only store.
    pub fn write(
        &self,
        session: &mut TransactionBlobs,
        column: u32,
        value: &[u8],
    ) -> Result<BlobRef> {
        if u32::try_from(value.len()).is_err() {
            return Err(Error::invalid("a value of 4 GiB or more"));
        }
        let packed = pack(value);
        let (file, offset) = self.reserve(session, packed.stored())?;
        let blob = BlobRef {
            column,
            file: file.id(),
            offset,
            len: value.len() as u64,
            codec: packed.codec,
            stored: packed.stored(),
            checksum: packed.checksum(file.id(), offset),
        };
        let header = BlobHeader {
            encrypted: false,
            codec: blob.codec,
            len: blob.len,
            stored: blob.stored,
            checksum: blob.checksum,
        };
        match file.write(offset, &header, &packed) {
            Ok(ticket) => session.wrote(&file, ticket),
            Err(error) => {
                // On a full disk, keep the file active: it takes blobs again when there is space.
                if *error.kind() != ErrorKind::NoSpace {
                    self.give_up(&file);
                }
                return Err(error);
            }
        }
        self.stats.written.fetch_add(1, Ordering::Relaxed);
        self.stats
            .written_bytes
            .fetch_add(blob.span(), Ordering::Relaxed);
        Ok(blob)
    }

    fn reserve(&self, session: &mut TransactionBlobs, stored: u64) -> Result<(Arc<BlobFile>, u64)> {
        let mut active = self.active.lock();
        if let Some(file) = &*active {
            let offset = match file.has_failed() {
                true => None,
                false => file.reserve(stored, self.full_at()),
            };
            if let Some(offset) = offset {
                session.hold(file);
                return Ok((Arc::clone(file), offset));
            }
            self.seal(file);
            *active = None;
        }
        let file = self.create()?;
        let offset = file.reserve(stored, u64::MAX);
        let offset = offset.expect("the first span always fits");
        session.hold(&file);
        *active = Some(Arc::clone(&file));
        Ok((file, offset))
    }

    fn full_at(&self) -> u64 {
        let all = self.stats.written_bytes.load(Ordering::Relaxed);
        (all / FILE_SHARE).clamp(self.file_size / FILE_MIN_SHARE, self.file_size)
    }

    fn create(&self) -> Result<Arc<BlobFile>> {
        let Some(new_id) = &self.new_id else {
            return Err(Error::unsupported("blobs are not written here"));
        };
        let id = new_id();
        let spans = self.files.open_spans(id, true)?;
        let header = spans.write_at(0, &file_header(id, id));
        if let Err(error) = header.and_then(|()| self.files.keep(FileKind::Blob, &[id])) {
            let _ = self.files.remove_blob(id);
            return Err(error);
        }
        let file = Arc::new(BlobFile::created(
            id,
            self.files.clone(),
            Arc::clone(&self.open_files),
            spans,
        ));
        self.known.write().insert(id, Arc::clone(&file));
        Ok(file)
    }

    /// Seals `file` if it is still the active file.
    fn give_up(&self, file: &Arc<BlobFile>) {
        let mut active = self.active.lock();
        if active.as_ref().is_some_and(|a| Arc::ptr_eq(a, file)) {
            self.seal(file);
            *active = None;
        }
    }

    /// Seals the active file.
    pub fn seal_active(&self) {
        let mut active = self.active.lock();
        if let Some(file) = active.take() {
            self.seal(&file);
        }
    }

    /// Seals `file`, which is the active file; the caller holds the lock `active`.
    fn seal(&self, file: &Arc<BlobFile>) {
        file.seal();
        self.sealed.fetch_add(1, Ordering::AcqRel);
        self.trim(file);
        if file.has_tail() {
            self.untrimmed.lock().push(Arc::clone(file));
        }
    }

    /// Number of files sealed since the database was opened.
    pub fn sealed_files(&self) -> u64 {
        self.sealed.load(Ordering::Acquire)
    }

    /// Cuts off the zeros behind the last spans of sealed files. Sealing a file does this, too, but
    /// may have found the file linked, or the lock `linking` held by a checkpoint.
    pub fn trim_sealed(&self) {
        let mut files = std::mem::take(&mut *self.untrimmed.lock());
        files.retain(|file| {
            self.trim(file);
            file.has_tail()
        });
        self.untrimmed.lock().append(&mut files);
    }

    /// Cuts off the zeros at the end of a sealed file. Does nothing if the file has a second hard
    /// link, or may be about to get one: the owner of that link relies on the file's length.
    fn trim(&self, file: &BlobFile) {
        if !file.has_tail() {
            return file.close_spans();
        }
        reached(BlobPausePoint::Trimming);
        let Some(_alone) = self.linking.try_write() else {
            return;
        };
        // Check again under the lock: a rewritten file may have replaced this one meanwhile, and a
        // rewritten file ends with its table of places (the new offset of each blob) and not with
        // zeros.
        if file.has_tail() && self.is_linked(file).is_ok_and(|linked| !linked) {
            reached(BlobPausePoint::Cutting);
            // If cutting fails, only space is lost, and a later call retries.
            let _ = file.trim();
        }
    }

    /// Whether the file with this logical id is sealed and no transaction holds it, so that no
    /// further blob gets into it.
    pub fn is_quiet(&self, id: u64) -> bool {
        let _active = self.active.lock();
        let known = self.known.read();
        known
            .get(&id)
            .is_none_or(|file| !file.grows() && !file.is_held())
    }

    /// Reads the whole value of `blob` into `buf`. `class` is the purpose of the read.
    ///
    /// # Errors
    /// `Corruption` of the blob, with file and offset, or of a missing file; `Unsupported` for an
    /// encrypted blob or a newer format; `Io`.
    pub fn read<'b>(
        &self,
        blob: &BlobRef,
        class: ReadClass,
        buf: &'b mut BlobBuf,
    ) -> Result<&'b [u8]> {
        self.read_prefix(blob, u64::MAX, class, buf)
    }

    /// Reads the first `wanted` bytes of the value of `blob`, or the whole value if it is shorter.
    /// Only the chunks with these bytes are read and checked.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub fn read_prefix<'b>(
        &self,
        blob: &BlobRef,
        wanted: u64,
        class: ReadClass,
        buf: &'b mut BlobBuf,
    ) -> Result<&'b [u8]> {
        let extent = BlobReadExtent::of(blob, wanted);
        self.stats.read.fetch_add(1, Ordering::Relaxed);
        self.stats
            .read_bytes
            .fetch_add(extent.stored, Ordering::Relaxed);
        let bytes = self.file(blob.file).read(blob, &extent, class, buf)?;
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        Ok(&bytes[..bytes.len().min(wanted)])
    }

    /// Begins prefetches of several values at the same time. The number beside a reference is the
    /// number of bytes of its value that are wanted. Does nothing for a single value: the caller
    /// will read it at once, so a prefetch gains nothing.
    pub fn prefetch<'a>(&self, blobs: impl Iterator<Item = (&'a BlobRef, u64)> + Clone) {
        if blobs.clone().nth(1).is_none() {
            return;
        }
        let mut reads = PrefetchBatch::new();
        for (number, (blob, wanted)) in blobs.enumerate() {
            let extent = BlobReadExtent::of(blob, wanted);
            let is_next = number == 0;
            self.file(blob.file)
                .prefetch(blob, &extent, is_next, &mut reads);
        }
        reads.start();
    }

    /// The file with this logical id. It need not exist on disk.
    pub fn file(&self, id: u64) -> Arc<BlobFile> {
        if let Some(file) = self.known.read().get(&id) {
            return Arc::clone(file);
        }
        let physical = self.moved.read().get(&id).copied().unwrap_or(id);
        let known = || {
            let (files, open_files) = (self.files.clone(), Arc::clone(&self.open_files));
            Arc::new(BlobFile::known(id, physical, files, open_files))
        };
        Arc::clone(self.known.write().entry(id).or_insert_with(known))
    }

    /// The blob files that were written, read or held since the database was opened, ascending by
    /// logical id.
    pub fn all(&self) -> Vec<Arc<BlobFile>> {
        self.known.read().values().cloned().collect()
    }

    /// Ends recovery by removing blob files that nothing refers to. `needed` has the logical ids
    /// that references name, and `on_disk` the physical ids of all blob files. If one of the needed
    /// files is missing, no file is removed, so that nothing that may help to repair the database
    /// is lost. Returns the physical ids of the missing files. Calls `failed` with the error of
    /// each removal that fails; the next open tries again.
    pub fn recovered(
        &self,
        needed: &BTreeSet<u64>,
        on_disk: Vec<u64>,
        mut failed: impl FnMut(Error),
    ) -> Vec<u64> {
        let on_disk = BTreeSet::from_iter(on_disk);
        let physical: BTreeSet<u64> = needed
            .iter()
            .map(|&id| self.file(id).physical_id())
            .collect();
        let missing: Vec<u64> = physical.difference(&on_disk).copied().collect();
        if missing.is_empty() {
            for &id in on_disk.difference(&physical) {
                self.files.remove_blob(id).unwrap_or_else(&mut failed);
            }
        }
        missing
    }

    /// Makes `session` hold the file with logical id `id`, because a prepared transaction refers to
    /// blobs in it.
    pub fn hold(&self, session: &mut TransactionBlobs, id: u64) {
        let file = self.file(id);
        let _active = self.active.lock();
        session.hold(&file);
    }

    /// Takes over the files that `session` holds, and holds them until the log is durable up to
    /// `lsn`.
    pub fn release_after(&self, lsn: u64, session: TransactionBlobs) {
        if !session.is_empty() {
            self.released.lock().push((lsn, session));
        }
    }

    /// Notes that the log is durable up to `lsn`. Releases the blob files that
    /// [`Self::release_after`] holds for committed transactions until the log is durable up to
    /// `lsn` or a smaller LSN.
    pub fn log_durable(&self, lsn: u64) {
        self.released.lock().retain(|(until, _)| *until > lsn);
    }

    /// Makes [`Self::punch`] and [`Self::rewrite`] fail with `Interrupted` from now on, because the
    /// database stops.
    pub fn stop_collecting(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Punches holes between the live blobs of `file`. `live` has the spans of these blobs in the
    /// logical file, ascending. Returns the bytes given back to the file system; `None` if the file
    /// system cannot punch holes, the file has a second hard link, or a live blob cannot be
    /// located.
    ///
    /// # Errors
    /// Those of the file system. Some holes may have been punched before the error.
    pub fn punch(&self, file: &BlobFile, live: &[BlobSpan]) -> Result<Option<u64>> {
        let _alone = self.linking.write();
        let usage = file.usage()?;
        let mut here = Vec::with_capacity(live.len());
        for span in live {
            let offset = file.locate(span.offset)?;
            // If a live blob cannot be located, punch nothing, because it may lie anywhere in the
            // file.
            let Some(offset) = offset else {
                return Ok(None);
            };
            here.push(BlobSpan { offset, ..*span });
        }
        here.sort_unstable();
        // Do not punch the table of places (the new offset of each blob), with which a rewritten
        // file ends.
        let end = match file.physical_id() == file.id() {
            true => usage.len,
            false => here.last().map_or(KEPT_FRONT, |s| s.offset + s.len),
        };
        let mut given = 0;
        if self.is_linked(file)? {
            return Ok(None);
        }
        let spans = file.spans()?;
        for Range { start, end } in holes(&here, KEPT_FRONT..end) {
            check_stopping(&self.stopping)?;
            if !spans.punch(start, end - start)? {
                return Ok(None);
            }
            given += end - start;
        }
        file.close_spans();
        let left = file.usage()?.allocated;
        let given = given.min(usage.allocated.saturating_sub(left));
        self.stats.punched_bytes.fetch_add(given, Ordering::Relaxed);
        Ok(Some(given))
    }

    /// Copies the live blobs of `file` to a new file and syncs the new file. [`Self::install`] lets
    /// it replace the old one, after the manifest has recorded the new physical id.
    ///
    /// # Errors
    /// `Corruption` of a blob; `Unsupported` for an encrypted one, or in a read-only store;
    /// `NoSpace`, `Io`. After an error the new file is removed.
    pub fn rewrite(&self, file: &BlobFile, live: &[BlobSpan]) -> Result<RewrittenBlobFile> {
        let Some(new_id) = &self.new_id else {
            return Err(Error::unsupported("blobs are not written here"));
        };
        let id = new_id();
        let written = self.rewrite_as(id, file, live);
        if written.is_err() {
            let _ = self.files.remove_blob(id);
        }
        let bytes = written?;
        Ok(RewrittenBlobFile {
            logical: file.id(),
            physical: id,
            bytes,
        })
    }

    fn rewrite_as(&self, id: u64, file: &BlobFile, live: &[BlobSpan]) -> Result<u64> {
        let spans = self.files.open_spans(id, true)?;
        spans.write_at(0, &file_header(id, file.id()))?;
        let mut table: Vec<(u64, u64)> = Vec::with_capacity(live.len());
        let (mut end, mut bytes) = (DATA_START, 0);
        for span in live {
            check_stopping(&self.stopping)?;
            if table.last().is_some_and(|&(last, _)| last == span.offset) {
                continue;
            }
            let blob = file.read_span(span.offset, span.len)?;
            let at = place_after(end, span.len);
            spans.write_at(at, &blob)?;
            table.push((span.offset, at));
            end = at + span.len;
            bytes += span.len;
        }
        spans.write_at(end, &places(&table, id, end))?;
        spans.sync()?;
        self.stats
            .rewritten_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Removes a rewritten file whose physical id could not be recorded in the manifest.
    pub fn discard(&self, rewritten: &RewrittenBlobFile) {
        let _ = self.files.remove_blob(rewritten.physical);
    }

    /// Lets a rewritten file replace the old physical file, which is removed. Call it after the
    /// manifest has recorded the new physical id.
    ///
    /// # Errors
    /// `Io` if the old file cannot be removed; the next open of the database removes it.
    pub fn install(&self, rewritten: &RewrittenBlobFile) -> Result<()> {
        let file = self.file(rewritten.logical);
        reached(BlobPausePoint::Installing);
        // The write lock keeps other threads from cutting the old file, and from making links to
        // it, while it is replaced.
        let _alone = self.linking.write();
        self.moved
            .write()
            .insert(rewritten.logical, rewritten.physical);
        let old = file.replace(rewritten.physical);
        self.files.remove_blob(old)
    }

    /// Removes a file to which nothing refers.
    ///
    /// # Errors
    /// `Io`; the file then stays in the blob store, and the next garbage collection retries.
    pub fn remove(&self, file: &BlobFile) -> Result<()> {
        let _alone = self.linking.write();
        match self.files.remove_blob(file.physical_id()) {
            Err(error) if *error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.known.write().remove(&file.id());
        self.moved.write().remove(&file.id());
        self.stats.removed_files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
