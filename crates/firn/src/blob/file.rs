//! One blob file: spans given out, written, synced, read.

use super::ahead::Ahead;
use super::chunks::{self, Extent};
use super::codec::{self, Packed};
use super::format::{
    ALIGNMENT, BlobHeader, DATA_START, FILE_HEADER_LEN, check_file_header, logical_id, place_after,
};
use super::opened::{OpenFiles, Opened, Physical};
use super::steps::{Place, reached};
use crate::base::{Error, Result};
use crate::env::{Announcement, FileUsage, ReadFile, SpanFile};
use crate::rowcode::{BLOB_HEADER_LEN, BlobBuf, BlobCodec, BlobRef};
use crate::store::{FileKind, FileStore, file_name};
use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex, RwLockReadGuard};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// As long as it is held, no blob file changes or goes whose name may get a second link.
pub struct LinkHold<'a>(#[allow(dead_code)] pub(super) RwLockReadGuard<'a, ()>);

/// Headers and blobs up to this size are written by one call.
const WRITTEN_AS_ONE: usize = 64 << 10;

/// Zeros are written by so many at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A scratch buffer over this size is given back after the read.
const KEPT_BUFFER: usize = 1 << 20;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A blob file, known by the id that references name.
///
/// Life: it grows (spans are reserved under the store's mutex, written outside it, each by one
/// transaction; zeros may lie behind them, see [`Ahead`]) → sealed, when it is full or the database is
/// reopened, and cut where the last span ends → its garbage is given back, or
/// its living blobs move to another file that takes its place under the same id → it goes once nothing
/// refers to it.
///
/// Invariants: a span is given out once and written once. A span is durable before the log names it.
/// A sync that failed loses the spans that were not durable before, and the file takes no more: their
/// transactions cannot commit, so nothing ever names them. Hence a failed sync need not stop the engine,
/// as one of the log must.
///
/// Rejected: a file for each transaction or thread (thousands of small files, or one sync for each);
/// writes past the page cache (blobs have any length and are read soon after they are written).
pub struct BlobFile {
    id: u64,
    store: FileStore,
    open_files: Arc<OpenFiles>,
    physical: ArcSwap<Physical>,
    spans: Mutex<Option<Arc<dyn SpanFile>>>,
    grows: AtomicBool,
    /// The first offset not given out.
    end: AtomicU64,
    ahead: Ahead,
    pins: AtomicU64,
    syncs: Mutex<Syncs>,
    synced: Condvar,
    /// Live bytes as of the last collection.
    settled: AtomicU64,
}

#[derive(Default)]
struct Syncs {
    /// Writes that have returned.
    written: u64,
    /// Of them, those that are durable.
    durable: u64,
    /// Bytes written since a sync began.
    bytes: u64,
    under_way: bool,
    /// The name is durable.
    named: bool,
    failed: Option<Error>,
}

impl BlobFile {
    /// A file just created as `spans`, with its header written.
    pub(super) fn created(
        id: u64,
        store: FileStore,
        open_files: Arc<OpenFiles>,
        spans: Arc<dyn SpanFile>,
    ) -> Self {
        let file = Self::known(id, id, store, open_files);
        *file.spans.lock() = Some(spans);
        file.physical.store(Arc::new(Physical::new(id, true)));
        file.syncs.lock().named = false;
        file.grows.store(true, Ordering::Relaxed);
        file.end.store(DATA_START, Ordering::Relaxed);
        file.settled.store(0, Ordering::Relaxed);
        file
    }

    /// A file of an earlier run, whose blobs lie in file `physical`.
    pub(super) fn known(
        id: u64,
        physical: u64,
        store: FileStore,
        open_files: Arc<OpenFiles>,
    ) -> Self {
        Self {
            id,
            store,
            open_files,
            physical: ArcSwap::from_pointee(Physical::new(physical, false)),
            spans: Mutex::new(None),
            grows: AtomicBool::new(false),
            end: AtomicU64::new(0),
            ahead: Ahead::default(),
            pins: AtomicU64::new(0),
            syncs: Mutex::new(Syncs {
                named: true,
                ..Syncs::default()
            }),
            synced: Condvar::new(),
            settled: AtomicU64::new(u64::MAX),
        }
    }

    /// The id that references name.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Id of the file that holds the blobs: another one after a rewrite.
    pub fn physical_id(&self) -> u64 {
        self.physical.load().id
    }

    /// What the file takes.
    pub fn usage(&self) -> Result<FileUsage> {
        self.store.blob_usage(self.physical_id())
    }

    /// Bytes given out so far; 0 for a file of an earlier run.
    pub fn written(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Whether it takes more blobs.
    pub fn grows(&self) -> bool {
        self.grows.load(Ordering::Acquire)
    }

    /// Whether a transaction holds it.
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

    /// Live bytes as of the last collection, or what was written since there was none; `None` if the
    /// file is of an earlier run.
    pub fn settled(&self) -> Option<u64> {
        match self.settled.load(Ordering::Relaxed) {
            u64::MAX => None,
            // What grows is counted as it grows.
            0 => Some(self.written().saturating_sub(DATA_START)),
            bytes => Some(bytes),
        }
    }

    /// A collection has left so many bytes.
    pub fn settle(&self, live: u64) {
        self.settled.store(live.max(1), Ordering::Relaxed);
    }

    /// Gives out a span for `stored` bytes, if it fits below `limit` or is the first. Under the mutex
    /// that guards who may grow the file.
    pub(super) fn reserve(&self, stored: u64, limit: u64) -> Option<u64> {
        let end = self.end.load(Ordering::Relaxed);
        let offset = place_after(end, stored);
        let next = offset + BLOB_HEADER_LEN + stored;
        if next > limit && end > DATA_START {
            return None;
        }
        self.end.store(next, Ordering::Relaxed);
        if let Some(zeros) = self.ahead.wanted(next, limit) {
            self.fill(zeros);
        }
        Some(offset)
    }

    /// Fills a range behind all spans, before anybody is given one there. Nothing is lost if that fails: it
    /// fails where it counts, too, or it was the disk's last room, which is for values.
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
        self.ahead.filled(end);
        if filled.is_err() {
            self.ahead.give_up();
            let _ = self.cut_at(start);
        }
    }

    /// It takes no more. Under the same mutex.
    pub(super) fn seal(&self) {
        // From here on it is read as files at rest are. First: another file may take its place as soon as it
        // does not grow.
        self.physical.store(Arc::new(Physical::new(self.id, false)));
        reached(Place::Sealing);
        self.grows.store(false, Ordering::Release);
    }

    /// Whether there are zeros behind the last span of a file that takes no more.
    pub(super) fn has_tail(&self) -> bool {
        !self.grows() && self.ahead.zeroed() > self.written()
    }

    /// Gives back the zeros behind the last span, if [`Self::has_tail`] says under the same guard that there are any.
    pub(super) fn trim(&self) -> Result<()> {
        self.cut_at(self.written())?;
        self.close_spans();
        Ok(())
    }

    fn cut_at(&self, end: u64) -> Result<()> {
        self.spans()?.set_len(end)?;
        self.ahead.filled(0);
        Ok(())
    }

    /// Writes a blob into its span; returns the ticket for [`Self::sync_to`].
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

    /// Makes the write that got `ticket` durable. One sync serves all that were written before it began.
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
            self.ahead.synced(bytes);
            syncs = self.syncs.lock();
            syncs.under_way = false;
            match done {
                Ok(()) => {
                    syncs.named = true;
                    syncs.durable = upto;
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

    /// Whether a sync has failed.
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

    /// Lets go of what writing takes.
    pub(super) fn close_spans(&self) {
        if !self.grows() && !self.is_held() {
            *self.spans.lock() = None;
        }
    }

    /// File `id` holds the blobs from now on; returns the id of the one that did. Under the guard that
    /// [`Self::trim`] is called under.
    pub(super) fn replace(&self, id: u64) -> u64 {
        let mut spans = self.spans.lock();
        *spans = None;
        // The new file ends with its table; zeros lay behind the old one.
        self.ahead.filled(0);
        self.physical.swap(Arc::new(Physical::new(id, false))).id
    }

    fn open(&self) -> Result<Arc<Opened>> {
        let mut physical = self.physical.load_full();
        loop {
            reached(Place::Opening);
            let opened = physical.open(&self.open_files, &self.store, self.id);
            if opened.is_ok() {
                return opened;
            }
            // The name is gone if another file has taken its place meanwhile.
            let now = self.physical.load_full();
            if Arc::ptr_eq(&physical, &now) {
                return opened;
            }
            physical = now;
        }
    }

    /// Where the blob that was written at `offset` lies now.
    pub fn locate(&self, offset: u64) -> Result<Option<u64>> {
        Ok(self.open()?.locate(offset))
    }

    /// Reads the value as far as `extent` says into `buf`.
    pub(super) fn read<'b>(
        &self,
        blob: &BlobRef,
        extent: &Extent,
        buf: &'b mut BlobBuf,
    ) -> Result<&'b [u8]> {
        let opened = self.open()?;
        let at = opened.find(blob)?;
        opened.check_len(at, extent)?;
        if extent.plain {
            let room = buf.reserve(extent.stored as usize);
            opened.read(at, blob, room)?;
            if blob.codec == BlobCodec::Chunks {
                let is_plain = |chunk: &chunks::Chunk<'_>| chunk.is_plain();
                opened.for_each_chunk(at, extent, room, is_plain)?;
            }
            return Ok(&room[extent.table..]);
        }
        SCRATCH.with_borrow_mut(|stored| {
            stored.resize(extent.stored as usize, 0);
            let read = opened.read(at, blob, stored).and_then(|()| {
                let room = buf.reserve(extent.len);
                if blob.codec == BlobCodec::Chunks {
                    let unpack = |chunk: &chunks::Chunk<'_>| chunk.unpack_to(room);
                    opened.for_each_chunk(at, extent, stored, unpack)?;
                    return Ok(&*room);
                }
                match codec::unpack(stored, room) {
                    true => Ok(&*room),
                    false => Err(Error::corruption(
                        &opened.name,
                        at,
                        "a blob does not decompress to its length",
                    )),
                }
            });
            if stored.len() > KEPT_BUFFER {
                *stored = Vec::new();
            }
            read
        })
    }

    /// Begins to read a blob as far as `extent` says, if the file is open.
    pub(super) fn announce(&self, blob: &BlobRef, extent: &Extent, reads: &mut Announcement) {
        if let Some(opened) = self.physical.load().opened()
            && let Some(at) = opened.locate(blob.offset)
        {
            let at = at + BLOB_HEADER_LEN;
            opened.file.will_read(at, extent.stored, reads);
        }
    }

    /// Reads a stored blob for a rewrite, by its header; `span` with the header.
    pub(super) fn read_span(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let opened = self.open()?;
        let at = opened.locate(offset);
        let damaged = |what: &str| Error::corruption(&opened.name, at.unwrap_or(offset), what);
        let at = at.ok_or_else(|| damaged("the file holds no blob that was written there"))?;
        if at.saturating_add(len) > opened.file.size()? {
            return Err(damaged("the file ends before a blob"));
        }
        let mut bytes = vec![0; len as usize];
        opened.file.read_exact_at(at, &mut bytes)?;
        let header = BlobHeader::decode(&bytes).ok_or_else(|| damaged("no blob's header"))?;
        // No checksum covers that byte. Spans come from references, which say the same, and none here was encrypted.
        if header.encrypted {
            return Err(damaged("a blob's header contradicts its references"));
        }
        let stored = &bytes[BLOB_HEADER_LEN as usize..];
        if header.stored != stored.len() as u64 || !header.fits(stored, self.id, offset) {
            return Err(damaged("checksum of a blob"));
        }
        Ok(bytes)
    }

    /// Whether the file can hold the blob. It is not read.
    ///
    /// # Errors
    /// `Corruption` if it cannot, or is missing.
    pub fn check_place(&self, blob: &BlobRef) -> Result<()> {
        let opened = self.open()?;
        opened.check_span(opened.find(blob)?, blob)
    }

    /// Checks each of the file's headers, so far as reading needs them.
    pub fn check(&self) -> Result<()> {
        self.open().map(|_| ())
    }
}

/// Bytes from the start of the file that no hole may touch.
pub(super) const KEPT_FRONT: u64 = ALIGNMENT;

/// The ids in the header of a blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobFileIds {
    /// Of the file itself.
    pub physical: u64,
    /// That references name.
    pub logical: u64,
}

impl BlobFileIds {
    /// Reads the header of file `id`, called `name`.
    ///
    /// # Errors
    /// `Corruption`, I/O errors.
    pub fn read(file: &dyn ReadFile, id: u64, name: &str) -> Result<Self> {
        let mut header = [0; FILE_HEADER_LEN];
        if file.size()? < header.len() as u64 {
            return Err(Error::corruption(name, 0, "not a blob file"));
        }
        file.read_exact_at(0, &mut header)?;
        let logical = logical_id(&header);
        check_file_header(&header, id, logical, name)?;
        Ok(Self {
            physical: id,
            logical,
        })
    }
}

/// The logical id of the blobs in file `id`, by its header; a rewritten one must have its table.
pub(super) fn moved_from(store: &FileStore, id: u64) -> Result<u64> {
    let file = store.open_blob(id, true)?;
    let ids = BlobFileIds::read(&*file, id, &file_name(FileKind::Blob, id))?;
    Opened::open(store, id, ids.logical, true).map(|_| ids.logical)
}
