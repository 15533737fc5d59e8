//! A blob file: reserves, writes, syncs and reads the spans of blobs.

use super::chunks::BlobReadExtent;
use super::file_cache::{BlobFileCache, BlobPart, OpenBlobFile, PhysicalBlobFile};
use super::format::{
    ALIGNMENT, BlobHeader, DATA_START, FILE_HEADER_LEN, check_file_header, logical_id, place_after,
};
use super::pack::Packed;
use super::pause_points::{BlobPausePoint, reached};
use super::zero_fill::ZeroFill;
use crate::base::blob_buf::BlobBuf;
use crate::base::blob_ref::{BLOB_HEADER_LEN, BlobRef};
use crate::base::{Error, FailureClass, Result};
use crate::env::{FileUsage, PrefetchBatch, ReadClass, ReadFile, SpanFile};
use crate::store::{FileKind, FileStore, file_name};
use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex, RwLockReadGuard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// While this value exists, no sealed blob file is cut, and no blob file is punched, replaced or
/// removed. So the holder can safely make hard links to blob files.
pub struct LinkHold<'a>(#[allow(dead_code)] pub(super) RwLockReadGuard<'a, ()>);

/// If a blob has at most this many stored bytes, its header and the stored bytes are written with
/// one call.
const WRITTEN_AS_ONE: usize = 64 << 10;

/// The zeros that the zero fill writes, one buffer at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A blob file, identified by its logical id: blob references contain this id, and it stays the
/// same when a rewrite moves the live blobs to another physical file.
///
/// Life: at first the file grows. A span is reserved under the store's `active` mutex and is
/// written without that mutex, by one transaction; zeros may lie behind the spans, see
/// [`ZeroFill`]. When the file is full or the database is reopened, it is sealed, and zeros behind
/// the last span are cut off. Later, holes are punched where its garbage lies, or its live blobs
/// are copied to another physical file under the same logical id. The file is removed when no
/// reference to it is left.
///
/// Invariants: each span is reserved once and written once. A span is durable before a log record
/// refers to it. After a failed sync the file takes no further spans, and the spans that were not
/// durable yet are lost: their transactions cannot commit, so nothing ever refers to these spans.
/// Therefore a failed sync of a blob file need not poison the engine, as one of the log does. A
/// failed sync of the directory does: it concerns all names in there.
///
/// Rejected: a file for each transaction or thread, which means thousands of small files or a sync
/// for each.
/// Rejected: writes past the page cache. Blobs have any length, and are often read soon after they
/// are written.
pub struct BlobFile {
    id: u64,
    store: FileStore,
    open_files: Arc<BlobFileCache>,
    physical: ArcSwap<PhysicalBlobFile>,
    spans: Mutex<Option<Arc<dyn SpanFile>>>,
    grows: AtomicBool,
    /// The first offset of the file that is not reserved for a span.
    end: AtomicU64,
    zero_fill: ZeroFill,
    pins: AtomicU64,
    syncs: Mutex<Syncs>,
    synced: Condvar,
    /// Bytes that the file occupied after its last garbage collection. 0 if it was never collected;
    /// `u64::MAX` if the file was created before the last open of the database and its size has not
    /// been recorded yet.
    bytes_after_gc: AtomicU64,
}

#[derive(Default)]
struct Syncs {
    /// Number of writes that have returned.
    written: u64,
    /// Number of writes that are durable.
    durable: u64,
    /// Bytes written since the last sync began.
    bytes: u64,
    under_way: bool,
    /// The directory was synced after the file's creation, so the file's name is durable.
    named: bool,
    failed: Option<Error>,
}

impl BlobFile {
    /// A file that was just created through `spans` and has only its header.
    pub(super) fn created(
        id: u64,
        store: FileStore,
        open_files: Arc<BlobFileCache>,
        spans: Arc<dyn SpanFile>,
    ) -> Self {
        let file = Self::known(id, id, store, open_files);
        *file.spans.lock() = Some(spans);
        file.physical
            .store(Arc::new(PhysicalBlobFile::new(id, true)));
        file.syncs.lock().named = false;
        file.grows.store(true, Ordering::Relaxed);
        file.end.store(DATA_START, Ordering::Relaxed);
        file.bytes_after_gc.store(0, Ordering::Relaxed);
        file
    }

    /// A file that was created before the last open of the database; its blobs lie in the physical
    /// file `physical`.
    pub(super) fn known(
        id: u64,
        physical: u64,
        store: FileStore,
        open_files: Arc<BlobFileCache>,
    ) -> Self {
        Self {
            id,
            store,
            open_files,
            physical: ArcSwap::from_pointee(PhysicalBlobFile::new(physical, false)),
            spans: Mutex::new(None),
            grows: AtomicBool::new(false),
            end: AtomicU64::new(0),
            zero_fill: ZeroFill::default(),
            pins: AtomicU64::new(0),
            syncs: Mutex::new(Syncs {
                named: true,
                ..Syncs::default()
            }),
            synced: Condvar::new(),
            bytes_after_gc: AtomicU64::new(u64::MAX),
        }
    }

    /// The logical id, which references have.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The id of the physical file that holds the blobs now; a rewrite changes it.
    pub fn physical_id(&self) -> u64 {
        self.physical.load().id
    }

    /// Length of the file and bytes that the file system has allocated to it.
    ///
    /// # Errors
    /// `NotFound` if the file is missing; `Io`.
    pub fn usage(&self) -> Result<FileUsage> {
        self.store.blob_usage(self.physical_id())
    }

    /// The first offset that is not reserved for a span; 0 for a file created before the last open
    /// of the database.
    pub fn written(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Whether the file still takes new blobs.
    pub fn grows(&self) -> bool {
        self.grows.load(Ordering::Acquire)
    }

    /// Whether a transaction holds the file, so that it must not be collected.
    pub fn is_held(&self) -> bool {
        self.pins.load(Ordering::Acquire) > 0
    }

    pub(super) fn pin(&self) {
        self.pins.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn unpin(&self) {
        if self.pins.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close_spans();
        }
    }

    /// The bytes that the file occupied after its last garbage collection, or all bytes written to
    /// it if it was never collected. `None` for a file created before the last open of the
    /// database, until [`Self::set_bytes_after_gc`] is called.
    pub fn bytes_after_gc(&self) -> Option<u64> {
        match self.bytes_after_gc.load(Ordering::Relaxed) {
            u64::MAX => None,
            // Not collected yet: all bytes written so far count.
            0 => Some(self.written().saturating_sub(DATA_START)),
            bytes => Some(bytes),
        }
    }

    /// Records the bytes that the file occupies after a garbage collection.
    pub fn set_bytes_after_gc(&self, live: u64) {
        self.bytes_after_gc.store(live.max(1), Ordering::Relaxed);
    }

    /// Reserves a span for a blob of `stored` bytes and returns its offset. `None` if the span
    /// would end behind `limit`, unless it is the first of the file. The caller holds the store's
    /// `active` mutex.
    pub(super) fn reserve(&self, stored: u64, limit: u64) -> Option<u64> {
        let end = self.end.load(Ordering::Relaxed);
        let offset = place_after(end, stored);
        let next = offset + BLOB_HEADER_LEN + stored;
        if next > limit && end > DATA_START {
            return None;
        }
        self.end.store(next, Ordering::Relaxed);
        if let Some(zeros) = self.zero_fill.next_fill(next, limit) {
            self.fill(zeros);
        }
        Some(offset)
    }

    /// Writes zeros to a range behind all reserved spans. If a write fails, cuts off the zeros that
    /// this call has written, ends the zero fill of this file and reports nothing. If the device
    /// has failed, the writes of blobs will fail, too, and report it; if the disk is full, the
    /// remaining space is better used for blobs.
    fn fill(&self, Range { start, end }: Range<u64>) {
        let filled = self.spans().and_then(|spans| {
            let mut at = start;
            while at < end {
                let len = (end - at).min(ZEROS.len() as u64);
                spans.write_at(at, &ZEROS[..len as usize])?;
                at += len;
            }
            Ok(())
        });
        self.zero_fill.filled(end);
        if filled.is_err() {
            self.zero_fill.give_up();
            let _ = self.cut_at(start);
        }
    }

    /// Seals the file, so that it takes no more blobs. The caller holds the store's `active` mutex.
    pub(super) fn seal(&self) {
        // From now on, a reader opens the file as one that no longer grows, that is, past the page
        // cache. Store the new `physical` before `grows` is cleared: once `grows` is cleared, the
        // blob gc may replace the physical file, and a later store here would undo that.
        self.physical
            .store(Arc::new(PhysicalBlobFile::new(self.id, false)));
        reached(BlobPausePoint::Sealing);
        self.grows.store(false, Ordering::Release);
    }

    /// Whether the file is sealed and zeros still lie behind its last span.
    pub(super) fn has_tail(&self) -> bool {
        !self.grows() && self.zero_fill.zeroed() > self.written()
    }

    /// Cuts off the zeros behind the last span. The caller has write-locked the store's `linking`,
    /// and has checked [`Self::has_tail`] under that lock.
    ///
    /// # Errors
    /// `Io`; the zeros then stay.
    pub(super) fn trim(&self) -> Result<()> {
        self.cut_at(self.written())?;
        self.close_spans();
        Ok(())
    }

    fn cut_at(&self, end: u64) -> Result<()> {
        self.spans()?.set_len(end)?;
        self.zero_fill.filled(0);
        Ok(())
    }

    /// Writes a blob into the span reserved at `offset`. Returns the number of the write, which
    /// [`Self::sync_to`] takes as its ticket.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub(super) fn write(&self, offset: u64, header: &BlobHeader, packed: &Packed) -> Result<u64> {
        let spans = self.spans()?;
        let body = &*packed.body;
        let mut front = header.encode().to_vec();
        front.extend_from_slice(&packed.table);
        if body.len() <= WRITTEN_AS_ONE {
            front.extend_from_slice(body);
            spans.write_at(offset, &front)?;
        } else {
            spans.write_at(offset, &front)?;
            spans.write_at(offset + front.len() as u64, body)?;
        }
        let mut syncs = self.syncs.lock();
        syncs.written += 1;
        syncs.bytes += BLOB_HEADER_LEN + packed.stored();
        Ok(syncs.written)
    }

    /// Makes the write with number `ticket` durable. One sync makes all writes durable that had
    /// returned when the sync began.
    ///
    /// # Errors
    /// `NoSpace` or `Io` of the sync. The failure is permanent: later calls for writes that are not
    /// durable yet return the same error and do not sync again. `NoDescriptor` if the file or its
    /// directory cannot be opened: a later call may succeed.
    pub(super) fn sync_to(&self, ticket: u64) -> Result<()> {
        let mut syncs = self.syncs.lock();
        while syncs.durable < ticket {
            if let Some(error) = &syncs.failed {
                return Err(error.clone());
            }
            if syncs.under_way {
                self.synced.wait(&mut syncs);
                continue;
            }
            syncs.under_way = true;
            let (upto, named) = (syncs.written, syncs.named);
            let bytes = std::mem::take(&mut syncs.bytes);
            drop(syncs);
            let done = self.sync(named);
            self.zero_fill.synced(bytes);
            syncs = self.syncs.lock();
            syncs.under_way = false;
            match done {
                Ok(()) => {
                    syncs.named = true;
                    syncs.durable = upto;
                }
                // The file could not be opened, so no sync was tried and no write is lost: the next
                // call tries again.
                Err(error) if error.class() == FailureClass::NoEffect => {
                    self.synced.notify_all();
                    return Err(error);
                }
                Err(error) => syncs.failed = Some(error),
            }
            self.synced.notify_all();
        }
        Ok(())
    }

    fn sync(&self, named: bool) -> Result<()> {
        self.spans()?.sync()?;
        match named {
            true => Ok(()),
            false => self.store.sync_dir(),
        }
    }

    /// Whether a sync of the file has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.syncs.lock().failed.is_some()
    }

    pub(super) fn spans(&self) -> Result<Arc<dyn SpanFile>> {
        let mut spans = self.spans.lock();
        if let Some(spans) = &*spans {
            return Ok(Arc::clone(spans));
        }
        let opened = self.store.open_spans(self.physical_id(), false)?;
        *spans = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Closes the file handle for writing, if the file is sealed and no transaction holds it.
    pub(super) fn close_spans(&self) {
        if !self.grows() && !self.is_held() {
            *self.spans.lock() = None;
        }
    }

    /// Makes physical file `id` the one that holds the blobs, and returns the id of the previous
    /// one. The caller has write-locked the store's `linking`.
    pub(super) fn replace(&self, id: u64) -> u64 {
        let mut spans = self.spans.lock();
        *spans = None;
        // `zero_fill` counts the zeros at the end of the previous physical file. The new file has
        // none: it ends with its table of places (the new offset of each blob).
        self.zero_fill.filled(0);
        self.physical
            .swap(Arc::new(PhysicalBlobFile::new(id, false)))
            .id
    }

    fn open(&self) -> Result<Arc<OpenBlobFile>> {
        let mut physical = self.physical.load_full();
        loop {
            reached(BlobPausePoint::Opening);
            let opened = physical.open(&self.open_files, &self.store, self.id);
            if opened.is_ok() {
                return opened;
            }
            // If the blob gc has replaced the physical file meanwhile, it may already have removed
            // the file that this thread tried to open. Try the new physical file.
            let now = self.physical.load_full();
            if Arc::ptr_eq(&physical, &now) {
                return opened;
            }
            physical = now;
        }
    }

    /// The offset in the physical file of the blob that was written at `offset` of the logical
    /// file; `None` if the physical file has no such blob.
    ///
    /// # Errors
    /// Those of opening the file: `Corruption` (a missing file included), `Unsupported`, `Io`.
    pub fn locate(&self, offset: u64) -> Result<Option<u64>> {
        Ok(self.open()?.locate(offset))
    }

    /// Reads the part of a value that `extent` describes, and decompresses it into `buf`. Returns
    /// the plain bytes. `class` is the purpose of the read.
    pub(super) fn read<'b>(
        &self,
        blob: &BlobRef,
        extent: &BlobReadExtent,
        class: ReadClass,
        buf: &'b mut BlobBuf,
    ) -> Result<&'b [u8]> {
        let opened = self.open()?;
        let at = opened.find(blob)?;
        opened.check_len(at, extent)?;
        let room = match extent.plain {
            true => buf.reserve(extent.stored as usize),
            false => buf.reserve(extent.len),
        };
        let pooled = opened.pooled(blob, class);
        let part = BlobPart {
            at,
            blob,
            extent,
            class,
        };
        let mut done = opened.load(&part, pooled.as_ref(), room);
        // Only what the file has is damage.
        if pooled.is_some() && done.as_ref().is_err_and(Error::is_corruption) {
            done = opened.load(&part, None, room);
        }
        done?;
        Ok(match extent.plain {
            true => &room[extent.table..],
            false => room,
        })
    }

    /// Adds to `reads` a prefetch of the part of a blob that `extent` describes. Does nothing if
    /// the file is not open, or if the memory pool would be asked for the blob. With a memory pool,
    /// neither if the blob `is_next`, so its reader will not wait longer: the time of a read that
    /// was announced shows nothing, and tries of the pool would end where all reads are announced.
    pub(super) fn prefetch(
        &self,
        blob: &BlobRef,
        extent: &BlobReadExtent,
        is_next: bool,
        reads: &mut PrefetchBatch,
    ) {
        if let Some(opened) = self.physical.load().opened()
            && let Some(at) = opened.locate(blob.offset)
        {
            match opened.pooled(blob, ReadClass::Blob) {
                Some(pooled) if is_next || pooled.would_ask() => return,
                Some(pooled) => pooled.announce_file(),
                None => {}
            }
            let at = at + BLOB_HEADER_LEN;
            opened.file.prefetch(at, extent.stored, reads);
        }
    }

    /// Reads a blob with its header, `len` bytes in all, from `offset` of the logical file, and
    /// verifies the checksum in the header. Used by rewrites.
    pub(super) fn read_span(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let opened = self.open()?;
        let at = opened.locate(offset);
        let damaged = |what: &str| Error::corruption(&opened.name, at.unwrap_or(offset), what);
        let at = at.ok_or_else(|| damaged("the file holds no blob that was written there"))?;
        if at.saturating_add(len) > opened.file.size()? {
            return Err(damaged("the file ends before a blob"));
        }
        let mut bytes = vec![0; len as usize];
        opened
            .file
            .read_exact_at(ReadClass::Compaction, at, &mut bytes)?;
        let header = BlobHeader::decode(&bytes).ok_or_else(|| damaged("no blob's header"))?;
        // The checksum does not cover the header's byte for encryption. The span comes from a
        // reference, and no reference belongs to an encrypted blob, so a header that claims
        // encryption is damaged.
        if header.encrypted {
            return Err(damaged("a blob's header contradicts its references"));
        }
        let stored = &bytes[BLOB_HEADER_LEN as usize..];
        if header.stored != stored.len() as u64 || !header.fits(stored, self.id, offset) {
            return Err(damaged("checksum of a blob"));
        }
        Ok(bytes)
    }

    /// Checks that the file is long enough for `blob`, without reading the blob.
    ///
    /// # Errors
    /// `Corruption` if the file is too short or missing; `Unsupported`, `Io`.
    pub fn check_place(&self, blob: &BlobRef) -> Result<()> {
        let opened = self.open()?;
        opened.check_span(opened.find(blob)?, blob)
    }

    /// Opens the file, which checks its header and, in a rewritten file, the table of places (the
    /// new offset of each blob).
    ///
    /// # Errors
    /// Those of opening the file: `Corruption` (a missing file included), `Unsupported`, `Io`.
    pub fn check(&self) -> Result<()> {
        self.open().map(|_| ())
    }
}

/// Number of bytes at the start of the file where no hole may be punched, because they hold the
/// file header.
pub(super) const KEPT_FRONT: u64 = ALIGNMENT;

/// The two ids that the header of a blob file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobFileIds {
    /// The id of the file itself.
    pub physical: u64,
    /// The logical id, which references have.
    pub logical: u64,
}

impl BlobFileIds {
    /// Reads and checks the header of file `id`; errors call the file `name`.
    ///
    /// # Errors
    /// `Corruption` of the header; `Unsupported` for a newer format; `Io`.
    pub fn read(file: &dyn ReadFile, id: u64, name: &str) -> Result<Self> {
        let mut header = [0; FILE_HEADER_LEN];
        if file.size()? < header.len() as u64 {
            return Err(Error::corruption(name, 0, "not a blob file"));
        }
        file.read_exact_at(ReadClass::Blob, 0, &mut header)?;
        let logical = logical_id(&header);
        check_file_header(&header, id, logical, name)?;
        Ok(Self {
            physical: id,
            logical,
        })
    }
}

/// The logical id in the header of file `id`. If it differs from `id`, the file is a rewritten one,
/// and its table of places (the new offset of each blob) must be intact.
pub(super) fn moved_from(store: &FileStore, id: u64) -> Result<u64> {
    let file = store.open_blob(id, true)?;
    let ids = BlobFileIds::read(&*file, id, &file_name(FileKind::Blob, id))?;
    OpenBlobFile::open(store, id, ids.logical, true).map(|_| ids.logical)
}
