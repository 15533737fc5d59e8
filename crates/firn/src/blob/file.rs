//! One blob file: spans given out, written, synced, read.

use super::chunks::{self, Extent};
use super::codec::{self, Packed};
use super::format::{
    ALIGNMENT, BlobHeader, DATA_START, FILE_HEADER_LEN, FOOTER_LEN, check_file_header, logical_id,
    place_after, places_begin, summed, take_places,
};
use crate::base::{Error, ErrorKind, Result, checksum};
use crate::env::{Announcement, FileUsage, ReadFile, SpanFile};
use crate::rowcode::{BLOB_HEADER_LEN, BlobBuf, BlobCodec, BlobRef};
use crate::store::{FileKind, FileStore, file_name};
use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex, RwLockReadGuard};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// As long as it is held, no blob file changes or goes whose name may get a second link.
pub struct LinkHold<'a>(#[allow(dead_code)] pub(super) RwLockReadGuard<'a, ()>);

/// Headers and blobs up to this size are written by one call.
const WRITTEN_AS_ONE: usize = 64 << 10;

/// Larger reads ask for the size of the file before they take the memory.
const TRUSTED_LEN: u64 = 1 << 20;

/// A scratch buffer over this size is given back after the read.
const KEPT_BUFFER: usize = 1 << 20;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A blob file, known by the id that references name.
///
/// Life: it grows (spans are reserved under the store's mutex, written outside it, each by one
/// transaction) → sealed, when it is full or the database is reopened → its garbage is given back, or
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
    physical: ArcSwap<Physical>,
    spans: Mutex<Option<Arc<dyn SpanFile>>>,
    grows: AtomicBool,
    /// The first offset not given out.
    end: AtomicU64,
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
    under_way: bool,
    /// The name is durable.
    named: bool,
    failed: Option<Error>,
}

/// The file that holds the blobs.
struct Physical {
    id: u64,
    opened: OnceLock<Opened>,
    opening: Mutex<()>,
}

struct Opened {
    file: Arc<dyn ReadFile>,
    name: String,
    /// Of a rewritten file: where its blobs were, and where they are; ascending.
    places: Option<Vec<(u64, u64)>>,
}

impl BlobFile {
    /// A file just created as `spans`, with its header written.
    pub(super) fn created(id: u64, store: FileStore, spans: Arc<dyn SpanFile>) -> Self {
        let file = Self::known(id, id, store);
        *file.spans.lock() = Some(spans);
        file.syncs.lock().named = false;
        file.grows.store(true, Ordering::Relaxed);
        file.end.store(DATA_START, Ordering::Relaxed);
        file.settled.store(0, Ordering::Relaxed);
        file
    }

    /// A file of an earlier run, whose blobs lie in file `physical`.
    pub(super) fn known(id: u64, physical: u64, store: FileStore) -> Self {
        Self {
            id,
            store,
            physical: ArcSwap::from_pointee(Physical::new(physical)),
            spans: Mutex::new(None),
            grows: AtomicBool::new(false),
            end: AtomicU64::new(0),
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
        self.pins.fetch_sub(1, Ordering::AcqRel);
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
        Some(offset)
    }

    /// It takes no more. Under the same mutex.
    pub(super) fn seal(&self) {
        self.grows.store(false, Ordering::Release);
        // From here on it is read as files at rest are.
        self.physical.store(Arc::new(Physical::new(self.id)));
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
            drop(syncs);
            let done = self.sync(named);
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

    /// File `id` holds the blobs from now on; returns the id of the one that did.
    pub(super) fn replace(&self, id: u64) -> u64 {
        let mut spans = self.spans.lock();
        *spans = None;
        self.physical.swap(Arc::new(Physical::new(id))).id
    }

    /// Where the blob that was written at `offset` lies now.
    pub fn locate(&self, offset: u64) -> Result<Option<u64>> {
        let physical = self.physical.load_full();
        Ok(physical.open(self)?.locate(offset))
    }

    /// Reads the value as far as `extent` says into `buf`.
    pub(super) fn read<'b>(
        &self,
        blob: &BlobRef,
        extent: &Extent,
        buf: &'b mut BlobBuf,
    ) -> Result<&'b [u8]> {
        let physical = self.physical.load_full();
        let opened = physical.open(self)?;
        let Some(at) = opened.locate(blob.offset) else {
            let what = "the file holds no blob that was written there";
            return Err(Error::corruption(&opened.name, blob.offset, what));
        };
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
        let physical = self.physical.load();
        if let Some(opened) = physical.opened.get()
            && let Some(at) = opened.locate(blob.offset)
        {
            let at = at + BLOB_HEADER_LEN;
            opened.file.will_read(at, extent.stored, reads);
        }
    }

    /// Reads a stored blob for a rewrite, by its header; `span` with the header.
    pub(super) fn read_span(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let physical = self.physical.load_full();
        let opened = physical.open(self)?;
        let at = opened.locate(offset);
        let damaged = |what: &str| Error::corruption(&opened.name, at.unwrap_or(offset), what);
        let at = at.ok_or_else(|| damaged("the file holds no blob that was written there"))?;
        if at.saturating_add(len) > opened.file.size()? {
            return Err(damaged("the file ends before a blob"));
        }
        let mut bytes = vec![0; len as usize];
        opened.file.read_exact_at(at, &mut bytes)?;
        let header = BlobHeader::decode(&bytes).ok_or_else(|| damaged("no blob's header"))?;
        let stored = &bytes[BLOB_HEADER_LEN as usize..];
        if header.stored != stored.len() as u64 || !header.fits(stored, self.id, offset) {
            return Err(damaged("checksum of a blob"));
        }
        Ok(bytes)
    }

    /// Checks each of the file's headers, so far as reading needs them.
    pub fn check(&self) -> Result<()> {
        let physical = self.physical.load_full();
        physical.open(self).map(|_| ())
    }
}

impl Physical {
    fn new(id: u64) -> Self {
        Self {
            id,
            opened: OnceLock::new(),
            opening: Mutex::new(()),
        }
    }

    fn open(&self, of: &BlobFile) -> Result<&Opened> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let _one = self.opening.lock();
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = Opened::open(&of.store, self.id, of.id, of.grows())?;
        Ok(self.opened.get_or_init(|| opened))
    }
}

impl Opened {
    fn open(store: &FileStore, id: u64, logical: u64, grows: bool) -> Result<Self> {
        let name = file_name(FileKind::Blob, id);
        let file = match store.open_blob(id, grows) {
            Err(e) if *e.kind() == ErrorKind::NotFound => {
                return Err(Error::corruption(name, 0, "the file is missing"));
            }
            opened => opened?,
        };
        let size = file.size()?;
        let mut header = [0; FILE_HEADER_LEN];
        if size < header.len() as u64 {
            return Err(Error::corruption(name, 0, "not a blob file"));
        }
        file.read_exact_at(0, &mut header)?;
        check_file_header(&header, id, logical, &name)?;
        let places = match id == logical {
            true => None,
            false => Some(read_places(&*file, id, size, &name)?),
        };
        Ok(Self { file, name, places })
    }

    fn locate(&self, offset: u64) -> Option<u64> {
        let Some(places) = &self.places else {
            return Some(offset);
        };
        let at = places.binary_search_by_key(&offset, |place| place.0).ok()?;
        Some(places[at].1)
    }

    /// Whether the file can hold the blob: before memory is taken for it.
    fn check_len(&self, at: u64, extent: &Extent) -> Result<()> {
        if extent.len as u64 > TRUSTED_LEN && self.ends_before(at, extent.stored)? {
            return Err(self.too_short(at));
        }
        Ok(())
    }

    fn ends_before(&self, at: u64, stored: u64) -> Result<bool> {
        let end = at.saturating_add(BLOB_HEADER_LEN).saturating_add(stored);
        Ok(end > self.file.size()?)
    }

    fn too_short(&self, at: u64) -> Error {
        Error::corruption(&self.name, at, "the file ends before a blob")
    }

    /// Reads stored bytes of the blob whose header is at `at`, and checks what its reference sums.
    fn read(&self, at: u64, blob: &BlobRef, stored: &mut [u8]) -> Result<()> {
        if let Err(error) = self.file.read_exact_at(at + BLOB_HEADER_LEN, stored) {
            let cut = self.ends_before(at, stored.len() as u64)?;
            return Err(if cut { self.too_short(at) } else { error });
        }
        let summed = summed(blob.codec, blob.len, stored).unwrap_or_default();
        match checksum::placed(summed, blob.file, blob.offset) == blob.checksum {
            true => Ok(()),
            false => Err(Error::corruption(&self.name, at, "checksum of a blob")),
        }
    }

    /// Checks the chunks that were read of the blob whose header is at `at`, and calls `f` with each.
    fn for_each_chunk(
        &self,
        at: u64,
        extent: &Extent,
        stored: &[u8],
        f: impl FnMut(&chunks::Chunk<'_>) -> bool,
    ) -> Result<()> {
        let (table, body) = stored.split_at(extent.table);
        let begin = at + BLOB_HEADER_LEN + extent.table as u64;
        chunks::for_each(table, body, extent.len, f)
            .map(drop)
            .map_err(|at| Error::corruption(&self.name, begin + at as u64, "a chunk of a blob"))
    }
}

fn read_places(file: &dyn ReadFile, id: u64, size: u64, name: &str) -> Result<Vec<(u64, u64)>> {
    let damaged = |what: &str| Error::corruption(name, size, what);
    let at = size.checked_sub(FOOTER_LEN as u64);
    let at = at.ok_or_else(|| damaged("no table of places"))?;
    let mut footer = [0; FOOTER_LEN];
    file.read_exact_at(at, &mut footer)?;
    let begin = places_begin(&footer, size).ok_or_else(|| damaged("no table of places"))?;
    let mut table = vec![0; (size - begin) as usize];
    file.read_exact_at(begin, &mut table)?;
    take_places(&table, id, begin).ok_or_else(|| damaged("checksum of the table of places"))
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
