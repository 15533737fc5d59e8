//! The blob files of a database.

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
use crate::base::{Error, ErrorKind, Result};
use crate::env::PrefetchBatch;
use crate::store::{FileKind, FileStore};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file is full at 1/32 of all bytes written since the open, within the bounds of its size.
const FILE_SHARE: u64 = 32;
/// A file is not full before 1/8 of the maximal size, and always at the maximal size.
const FILE_MIN_SHARE: u64 = 8;

/// Upper bound for the files open for reading.
const OPEN_FILES_MAX: usize = 256;

/// Counters since the open.
#[derive(Debug, Default)]
pub struct BlobStats {
    /// Values written.
    pub written: AtomicU64,
    /// Bytes of them as stored, headers included.
    pub written_bytes: AtomicU64,
    /// Values read, whole or in part.
    pub read: AtomicU64,
    /// Bytes read for them, as stored.
    pub read_bytes: AtomicU64,
    /// Bytes given back to the file system by holes.
    pub punched_bytes: AtomicU64,
    /// Bytes of blobs that were moved to another file.
    pub rewritten_bytes: AtomicU64,
    /// Files removed.
    pub removed_files: AtomicU64,
}

/// Blobs moved to a new file that does not replace the old one yet.
pub struct RewrittenBlobFile {
    /// Logical id: the one that references name.
    pub logical: u64,
    /// Physical id: the new file's.
    pub physical: u64,
    /// Size of the blobs, headers included.
    pub bytes: u64,
}

type NewId = Box<dyn Fn() -> u64 + Send + Sync>;

/// The blob files of a database: writing, reading, and the steps of garbage collection.
///
/// References name a *logical* file. Its blobs lie in a *physical* file, which has the same id
/// until the blobs are moved to another one. One file at a time, the active one, takes new blobs. A
/// session holds the files that it writes to, and a held file is not collected.
///
/// `release_after` holds the files of a rolled back prepared transaction until the rollback is
/// durable in the log. Before that, a crash brings the transaction back.
///
/// Locks: `active`, then `linking`, then `known` or `moved`. `linking` is read-locked while files
/// get second names, and write-locked while files are cut, punched, replaced or removed.
pub struct BlobStore {
    files: FileStore,
    new_id: Option<NewId>,
    file_size: u64,
    open_files: Arc<BlobFileCache>,
    known: RwLock<BTreeMap<u64, Arc<BlobFile>>>,
    active: Mutex<Option<Arc<BlobFile>>>,
    /// Logical to physical ids, where they differ.
    moved: RwLock<BTreeMap<u64, u64>>,
    released: Mutex<Vec<(u64, TransactionBlobs)>>,
    linking: RwLock<()>,
    stats: BlobStats,
}

impl BlobStore {
    /// The blob files in the directory of `files`. `new_id` hands out file ids; `file_size` is the
    /// maximal size of a file, bytes.
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

    /// As [`Self::new`], but refuses to write.
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
            linking: RwLock::default(),
            stats: BlobStats::default(),
        }
    }

    /// Sets the physical ids of moved files, by logical id. Call it before anything is read.
    pub fn set_moved(&self, moved: impl IntoIterator<Item = (u64, u64)>) {
        *self.moved.write() = moved.into_iter().collect();
    }

    /// The physical ids of moved files, by logical id, as the files' headers say. For a lost
    /// manifest. Of several undamaged files for one id, the newest counts.
    ///
    /// # Errors
    /// `Io` of the file system; damaged files are passed over.
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

    /// The counters.
    pub fn stats(&self) -> &BlobStats {
        &self.stats
    }

    /// Keeps all blob files unchanged while the result lives: no file is cut, punched, replaced or
    /// removed. For callers that link the files; a linked file is not punched afterwards either.
    pub fn hold_links(&self) -> LinkHold<'_> {
        LinkHold(self.linking.read())
    }

    /// Whether a caller holds links now.
    pub fn links_held(&self) -> bool {
        self.linking.try_write().is_none()
    }

    /// Whether the file has a second link, so that it must not be punched.
    ///
    /// # Errors
    /// `NotFound`; `Io`.
    pub fn is_linked(&self, file: &BlobFile) -> Result<bool> {
        Ok(self.files.blob_links(file.physical_id())? > 1)
    }

    /// Writes `value` of `column`. The blob becomes durable when `session` is synced. If `session`
    /// is dropped before anything refers to the blob, it is garbage.
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
                // After `NoSpace` the same file continues once there is room.
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

    /// Seals `file` if it is active.
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

    /// Seals the active file; the caller holds `active`.
    fn seal(&self, file: &BlobFile) {
        file.seal();
        self.trim(file);
    }

    /// Cuts off the zeros at the end of sealed files, where that was not possible before.
    pub fn trim_sealed(&self) {
        let files = self.all();
        files.iter().for_each(|file| self.trim(file));
    }

    /// Cuts off the zeros at the end of a sealed file. Leaves a file alone that has a second name
    /// or may be about to get one: a copy of it relies on its length.
    fn trim(&self, file: &BlobFile) {
        if !file.has_tail() {
            return file.close_spans();
        }
        reached(BlobPausePoint::Trimming);
        let Some(_alone) = self.linking.try_write() else {
            return;
        };
        // Check again under the lock: a file that has replaced this one ends with its table.
        if file.has_tail() && self.is_linked(file).is_ok_and(|linked| !linked) {
            reached(BlobPausePoint::Cutting);
            // Only room is lost; a later call retries.
            let _ = file.trim();
        }
    }

    /// Whether no session writes to the file with this id, or may in future.
    pub fn is_quiet(&self, id: u64) -> bool {
        let _active = self.active.lock();
        let known = self.known.read();
        known
            .get(&id)
            .is_none_or(|file| !file.grows() && !file.is_held())
    }

    /// Reads the value of `blob` into `buf`.
    ///
    /// # Errors
    /// `Corruption` of the blob, with file and offset, or of a missing file; `Unsupported` for an
    /// encrypted blob or a newer format; `Io`.
    pub fn read<'b>(&self, blob: &BlobRef, buf: &'b mut BlobBuf) -> Result<&'b [u8]> {
        self.read_prefix(blob, u64::MAX, buf)
    }

    /// Reads the first `wanted` bytes of the value, or all if it has fewer. Reads and checks only
    /// the chunks that contain them.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub fn read_prefix<'b>(
        &self,
        blob: &BlobRef,
        wanted: u64,
        buf: &'b mut BlobBuf,
    ) -> Result<&'b [u8]> {
        let extent = BlobReadExtent::of(blob, wanted);
        self.stats.read.fetch_add(1, Ordering::Relaxed);
        self.stats
            .read_bytes
            .fetch_add(extent.stored, Ordering::Relaxed);
        let bytes = self.file(blob.file).read(blob, &extent, buf)?;
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        Ok(&bytes[..bytes.len().min(wanted)])
    }

    /// Starts reading the given prefixes of these values, all at the same time. A hint.
    pub fn prefetch<'a>(&self, blobs: impl Iterator<Item = (&'a BlobRef, u64)> + Clone) {
        if blobs.clone().nth(1).is_none() {
            return;
        }
        let mut reads = PrefetchBatch::new();
        for (blob, wanted) in blobs {
            let extent = BlobReadExtent::of(blob, wanted);
            self.file(blob.file).prefetch(blob, &extent, &mut reads);
        }
        reads.start();
    }

    /// The file with this logical id, whether or not it exists on disk.
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

    /// All known files, ascending by logical id.
    pub fn all(&self) -> Vec<Arc<BlobFile>> {
        self.known.read().values().cloned().collect()
    }

    /// Ends recovery. `needed` are the logical ids that anything refers to. Removes the other
    /// files, unless a needed one is missing. Returns the physical ids of the missing files.
    ///
    /// # Errors
    /// `Io` of listing and removing.
    pub fn recovered(&self, needed: &BTreeSet<u64>) -> Result<Vec<u64>> {
        let on_disk: BTreeSet<u64> = self.files.list_blobs()?.into_iter().collect();
        let physical: BTreeSet<u64> = needed
            .iter()
            .map(|&id| self.file(id).physical_id())
            .collect();
        let missing: Vec<u64> = physical.difference(&on_disk).copied().collect();
        if missing.is_empty() {
            for &id in on_disk.difference(&physical) {
                self.files.remove_blob(id)?;
            }
        }
        Ok(missing)
    }

    /// Holds file `id` in `session`, because a prepared transaction refers to it.
    pub fn hold(&self, session: &mut TransactionBlobs, id: u64) {
        let file = self.file(id);
        let _active = self.active.lock();
        session.hold(&file);
    }

    /// Keeps the files that `session` holds until the log is durable up to `lsn`.
    pub fn release_after(&self, lsn: u64, session: TransactionBlobs) {
        if !session.is_empty() {
            self.released.lock().push((lsn, session));
        }
    }

    /// Drops the sessions that wait for the log to be durable up to `lsn`.
    pub fn log_durable(&self, lsn: u64) {
        self.released.lock().retain(|(until, _)| *until > lsn);
    }

    /// Punches holes between the live blobs of `file`. `live` has their spans in the logical file,
    /// ascending. Returns the bytes given back; `None` if the file cannot have holes, or has a
    /// second link.
    ///
    /// # Errors
    /// Those of the file system; part of the room may be given back already.
    pub fn punch(&self, file: &BlobFile, live: &[BlobSpan]) -> Result<Option<u64>> {
        let _alone = self.linking.write();
        let usage = file.usage()?;
        let mut here = Vec::with_capacity(live.len());
        for span in live {
            let offset = file.locate(span.offset)?;
            // A blob that cannot be located may lie anywhere: punch nothing.
            let Some(offset) = offset else {
                return Ok(None);
            };
            here.push(BlobSpan { offset, ..*span });
        }
        here.sort_unstable();
        // A rewritten file ends with its table; stop before it.
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

    /// Copies the live blobs of `file` to a new file, durably. The new file replaces the old one by
    /// [`Self::install`], after the manifest has recorded the move.
    ///
    /// # Errors
    /// `Corruption` of a blob; `Unsupported` for an encrypted one, or in a read-only store;
    /// `NoSpace`, `Io`. The new file is removed.
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

    /// Removes a rewritten file whose move could not be recorded.
    pub fn discard(&self, rewritten: &RewrittenBlobFile) {
        let _ = self.files.remove_blob(rewritten.physical);
    }

    /// Lets a rewritten file replace the old one, which is removed. Call it after the manifest has
    /// recorded the move.
    ///
    /// # Errors
    /// `Io` if the old file cannot be removed; the next open removes it.
    pub fn install(&self, rewritten: &RewrittenBlobFile) -> Result<()> {
        let file = self.file(rewritten.logical);
        reached(BlobPausePoint::Installing);
        // The lock keeps others from cutting the file or giving it a second name meanwhile.
        let _alone = self.linking.write();
        self.moved
            .write()
            .insert(rewritten.logical, rewritten.physical);
        let old = file.replace(rewritten.physical);
        self.files.remove_blob(old)
    }

    /// Removes a file that nothing refers to.
    ///
    /// # Errors
    /// `Io`; the file stays known, and the next collection retries.
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
