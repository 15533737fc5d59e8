//! File handles and runs: the sorted, non-overlapping parts of a version.

use super::{FileList, FileLocation, FileMeta, FileSpan, FileSums};
use crate::base::key::{UNCOMMITTED_BIT, index_prefix};
use crate::base::key_range::prefix_successor;
use crate::base::pause_points::{self, PausePoint};
use crate::base::sketch::Sketch;
use crate::base::work_count;
use crate::base::{Error, ErrorKind, IndexId, Result};
use crate::cache::{Evictable, Eviction};
use crate::sst::{OpenHints, REREADS_MAX, SstBlockCache, SstReader};
use crate::store::{BlockFile, FileKind, FileStore, file_name};
use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::ops::{Bound, Deref};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Opens the SSTs of file handles and keeps the list of obsolete files.
pub struct FileSource {
    store: FileStore,
    cache: Arc<SstBlockCache>,
    obsolete: Mutex<ObsoleteFiles>,
    /// Ids of files whose objects no version needs any more, in the order in which that happened.
    obsolete_objects: Mutex<Vec<u64>>,
    /// Ids of files in the object store that may have a file in the data directory, too: one that
    /// was uploaded and is not removed yet, or one that is being written. A new file of this name
    /// would be removed with the old one, or would change what somebody reads.
    local_copies: Mutex<HashSet<u64>>,
}

/// Obsolete files (id, size), the sum of their sizes, and `new_bytes`: the part of this sum that
/// was added since [`FileSource::newly_obsolete`] was last called.
#[derive(Default)]
struct ObsoleteFiles {
    files: VecDeque<(u64, u64)>,
    new_bytes: u64,
    bytes: u64,
}

impl FileSource {
    /// A source of the SSTs in `store`. Their blocks are read through `cache`.
    pub fn new(store: FileStore, cache: Arc<SstBlockCache>) -> Arc<Self> {
        Arc::new(Self {
            store,
            cache,
            obsolete: Mutex::default(),
            obsolete_objects: Mutex::default(),
            local_copies: Mutex::default(),
        })
    }

    /// The store that holds the SSTs.
    pub fn store(&self) -> &FileStore {
        &self.store
    }

    /// The cache of the SSTs' blocks.
    pub fn cache(&self) -> &Arc<SstBlockCache> {
        &self.cache
    }

    /// Adds a file to the list of obsolete files. `size` is its number of stored bytes, or 0 if
    /// that is unknown.
    pub(super) fn put_obsolete(&self, file_id: u64, size: u64) {
        let mut obsolete = self.obsolete.lock();
        obsolete.files.push_back((file_id, size));
        obsolete.new_bytes += size;
        obsolete.bytes += size;
    }

    /// Adds a file that a compaction has replaced to the list of obsolete files. It goes to the
    /// front with size 0, so the delete pacer does not delay it: the files that the compaction has
    /// written in its place take as much disk space again.
    fn put_replaced(&self, file_id: u64) {
        self.obsolete.lock().files.push_front((file_id, 0));
    }

    /// No version needs the objects of these files any more.
    pub(super) fn put_obsolete_objects(&self, ids: impl IntoIterator<Item = u64>) {
        self.obsolete_objects.lock().extend(ids);
    }

    /// Takes the files whose objects no version needs any more.
    pub(super) fn take_obsolete_objects(&self) -> Vec<u64> {
        std::mem::take(&mut self.obsolete_objects.lock())
    }

    /// Notes that the data directory has, or gets, a file of this id beside the object. Returns
    /// false if that was noted already.
    pub(super) fn add_local_copy(&self, file_id: u64) -> bool {
        self.local_copies.lock().insert(file_id)
    }

    /// Calls `f` with a function that says whether the data directory has, or gets, a file of this
    /// id beside the object. `f` takes no lock.
    pub fn with_local_copies<T>(&self, f: impl FnOnce(&dyn Fn(u64) -> bool) -> T) -> T {
        let copies = self.local_copies.lock();
        f(&|id| copies.contains(&id))
    }

    /// The data directory has no file of this id any more, or the file is the one of the tree.
    pub(super) fn forget_local_copy(&self, file_id: u64) {
        self.local_copies.lock().remove(&file_id);
    }

    /// Takes the first obsolete file from the list, as id and size, if `may` accepts its size.
    pub(super) fn take_obsolete(&self, may: impl FnOnce(u64) -> bool) -> Option<(u64, u64)> {
        let mut obsolete = self.obsolete.lock();
        let (_, size) = *obsolete.files.front()?;
        if !may(size) {
            return None;
        }
        obsolete.bytes -= size;
        obsolete.files.pop_front()
    }

    /// Runs `f` with the ids of the obsolete files, while no thread takes one.
    pub(super) fn between_deletions<T>(
        &self,
        f: impl FnOnce(&mut dyn Iterator<Item = u64>) -> T,
    ) -> T {
        let obsolete = self.obsolete.lock();
        f(&mut obsolete.files.iter().map(|(id, _)| *id))
    }

    /// Number of obsolete files and the sum of their sizes.
    pub(super) fn obsolete(&self) -> (u64, u64) {
        let obsolete = self.obsolete.lock();
        (obsolete.files.len() as u64, obsolete.bytes)
    }

    /// Bytes of files that became obsolete since the last call.
    pub(super) fn newly_obsolete(&self) -> u64 {
        std::mem::take(&mut self.obsolete.lock().new_bytes)
    }
}

/// A handle of a live SST, shared by the versions that contain the file.
///
/// The first read opens the file. If the pin budget has room for all of its index, the reader stays
/// as long as the handle, and a read costs one load of a pointer. Otherwise it keeps only what it
/// cannot do without, and that may be evicted when other files are opened; the next read opens the
/// file again. A read of an evictable reader costs two atomic operations on memory of its own
/// thread, which is little beside the lookup of the index partition in the block cache.
///
/// Invariant: a handle has at most one reader, apart from those of [`Self::open`]. A reader that
/// somebody uses is not evicted, because that would free nothing, and the next read would open the
/// file a second time.
///
/// Lock order: `opening`, then those of the pin budget. An eviction takes `opening` of another
/// handle only if it is free.
///
/// Rejected: readers that can all be evicted. The search of a hot file would pay the two atomic
/// operations for nothing else, and it is one of several files in each point read.
///
/// After an edit has removed the file from the tree and the last
/// version with this handle is dropped, the file's id goes to the list of obsolete files. So no
/// reader waits for the deletion.
pub struct FileHandle {
    meta: Arc<FileMeta>,
    source: Arc<FileSource>,
    /// The reader, if it was opened with all index partitions. It stays as long as the handle.
    pinned: OnceLock<Arc<SstReader>>,
    /// The reader, if it was opened without index partitions and was not evicted since.
    evictable: ArcSwapOption<SstReader>,
    /// Whether the evictable reader was used since its last turn at the clock.
    used: AtomicBool,
    /// Held while a reader is opened or evicted.
    opening: Mutex<()>,
    me: Weak<Self>,
    blob_shares: OnceLock<Vec<(IndexId, u64)>>,
    sums: FileSums,
    life: Arc<FileLife>,
}

/// Lifetime of a file in its place, shared by all handles of the file there, and by the readers of
/// a remote file, which has no descriptor that outlives it. Dropping it makes the file obsolete, if
/// an edit has removed the file or moved it to another place.
struct FileLife {
    file_id: u64,
    size: u64,
    location: FileLocation,
    source: Arc<FileSource>,
    end: AtomicU8,
    /// When a query last read the file, by the read clock of the store; at first, when the handle
    /// was made. Seconds. `None` without an object store: nobody asks.
    last_read_s: Option<Arc<AtomicU64>>,
}

/// The fate of a file when the last version that contains it is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FileFate {
    /// The file is in the tree: it stays on disk.
    None = 0,
    /// A durable edit has replaced the file by others.
    Replaced = 1,
    /// A durable edit has removed the file without replacement.
    Dropped = 2,
}

impl Drop for FileLife {
    fn drop(&mut self) {
        let end = *self.end.get_mut();
        if self.location == FileLocation::ObjectStore {
            if end != FileFate::None as u8 {
                self.source.put_obsolete_objects([self.file_id]);
            }
        } else if end == FileFate::Replaced as u8 {
            self.source.put_replaced(self.file_id);
        } else if end == FileFate::Dropped as u8 {
            self.source.put_obsolete(self.file_id, self.size);
        }
    }
}

impl FileHandle {
    /// A handle of the file that `meta` describes; `source` opens the file.
    pub fn new(meta: Arc<FileMeta>, source: Arc<FileSource>) -> Arc<Self> {
        let life = Arc::new(FileLife {
            file_id: meta.file_id,
            size: meta.size,
            location: meta.location,
            last_read_s: source.store.new_read_mark(),
            source: Arc::clone(&source),
            end: AtomicU8::new(FileFate::None as u8),
        });
        Self::with_life(meta, source, life)
    }

    fn with_life(meta: Arc<FileMeta>, source: Arc<FileSource>, life: Arc<FileLife>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            sums: FileSums::of(&meta),
            meta,
            source,
            pinned: OnceLock::new(),
            evictable: ArcSwapOption::empty(),
            used: AtomicBool::new(false),
            opening: Mutex::new(()),
            me: Weak::clone(me),
            blob_shares: OnceLock::new(),
            life,
        })
    }

    /// The sums over this file alone.
    pub(super) fn sums(&self) -> &FileSums {
        &self.sums
    }

    pub(super) fn blob_shares_once(&self) -> &OnceLock<Vec<(IndexId, u64)>> {
        &self.blob_shares
    }

    /// A second, unopened handle of the same file. The memory of the old handle is freed when the
    /// last version with it is dropped. The file stays on disk until both handles are gone.
    pub(super) fn fresh(&self) -> Arc<Self> {
        let (meta, source) = (Arc::clone(&self.meta), Arc::clone(&self.source));
        Self::with_life(meta, source, Arc::clone(&self.life))
    }

    /// The metadata of the file in the manifest.
    pub fn meta(&self) -> &Arc<FileMeta> {
        work_count::file_seen();
        &self.meta
    }

    /// The reader of the file, which is opened if necessary.
    ///
    /// # Errors
    /// `Corruption`, which names the file, if it is damaged, or missing although the manifest names
    /// it, or not of the size in the manifest. `Unsupported` if the file is in an object store and
    /// none is configured; `Unreachable` if the store does not answer. `Io`.
    #[inline]
    pub fn reader(&self) -> Result<ReaderRef<'_>> {
        match self.pinned.get() {
            Some(reader) => Ok(ReaderRef::Pinned(reader)),
            None => self.evictable_reader(),
        }
    }

    fn evictable_reader(&self) -> Result<ReaderRef<'_>> {
        if let Some(reader) = self.opened() {
            return Ok(reader);
        }
        // A store that does not answer must not keep readers waiting one behind the other.
        let remote = match self.meta.location {
            FileLocation::Local => None,
            FileLocation::ObjectStore => Some(self.open()?),
        };
        let _one = self.opening.lock();
        if let Some(reader) = self.opened() {
            return Ok(reader);
        }
        let reader = remote.map_or_else(|| self.open(), Ok)?;
        if reader.is_pinned() {
            return Ok(ReaderRef::Pinned(self.pinned.get_or_init(|| reader)));
        }
        self.used.store(true, Ordering::Relaxed);
        self.evictable.store(Some(Arc::clone(&reader)));
        let me: Weak<dyn Evictable> = Weak::<Self>::clone(&self.me);
        self.source.cache.pins().add_evictable(me);
        Ok(ReaderRef::Opened(reader))
    }

    /// The reader of the file; `None` if the file is not open.
    pub fn opened(&self) -> Option<ReaderRef<'_>> {
        if let Some(reader) = self.pinned.get() {
            return Some(ReaderRef::Pinned(reader));
        }
        let reader = self.evictable.load();
        reader.as_ref()?;
        // Store the mark only if it is not set yet: a needless store would take the cache line away
        // from other processors that read the file.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Some(ReaderRef::Evictable(reader))
    }

    /// The reader, if it stays as long as the handle.
    pub fn pinned(&self) -> Option<&Arc<SstReader>> {
        self.pinned.get()
    }

    /// Sketches of the keys of `index` in the file; see [`crate::sst::Properties::sketches`]. If
    /// the handle has no reader yet, this reads only the properties and creates no reader.
    ///
    /// # Errors
    /// As [`Self::reader`].
    pub fn sketches(&self, index: IndexId) -> Result<Option<Vec<Sketch>>> {
        if let Some(reader) = self.opened() {
            return Ok(reader.properties().sketches(index));
        }
        let (file, name) = self.file()?;
        let read = || SstReader::read_properties(&**file.file(), self.meta.file_id, &name);
        Ok(trusted(&file, read)?.sketches(index))
    }

    /// Opens a separate reader, for a caller that reads the file once. The handle does not keep it.
    ///
    /// # Errors
    /// As [`Self::reader`].
    pub fn open(&self) -> Result<Arc<SstReader>> {
        let (file, name) = self.file()?;
        let cache = self.source.cache.clone();
        let meta = &self.meta;
        let external = meta.external_seqno;
        let hints = OpenHints {
            external,
            upper_level: !meta.at_rest,
            tail_len: meta.tail_len,
        };
        let open = || {
            let (file, cache) = (file.clone(), Arc::clone(&cache));
            SstReader::open_at(file, meta.file_id, name.clone(), cache, hints)
        };
        let reader = trusted(&file, open)?;
        let private = meta.min_seqno & UNCOMMITTED_BIT != 0;
        if reader.properties().external_seqno != (external.is_some() || private) {
            let what = "it does not agree with the manifest on whose its seqnos are";
            return Err(Error::corruption(name, 0, what));
        }
        Ok(reader)
    }

    /// Opens the file and checks its size. Returns it with its name.
    fn file(&self) -> Result<(BlockFile, String)> {
        let id = self.meta.file_id;
        let name = file_name(FileKind::Sst, id);
        if self.meta.location == FileLocation::ObjectStore {
            let life = Arc::clone(&self.life);
            let remote = self
                .source
                .store
                .open_remote(&self.meta.as_remote(), life)?;
            return Ok((remote, name));
        }
        let file = match self.source.store.open_blocks(
            id,
            self.meta.checksum,
            self.life.last_read_s.as_ref(),
        ) {
            Err(e) if *e.kind() == ErrorKind::NotFound => {
                return Err(Error::corruption(name, 0, "the file is missing"));
            }
            opened => opened?,
        };
        let size = file.file().size()?;
        if size != self.meta.size {
            let what = format!("{size} bytes, the manifest says {}", self.meta.size);
            return Err(Error::corruption(name, size.min(self.meta.size), what));
        }
        Ok((file, name))
    }

    /// When a query last read the file, by the read clock of the store: seconds. 0 without an
    /// object store.
    pub fn last_read_s(&self) -> u64 {
        let mark = self.life.last_read_s.as_ref();
        mark.map_or(0, |mark| mark.load(Ordering::Relaxed))
    }

    /// Records that a durable edit has removed the file from the tree.
    pub(super) fn mark_obsolete(&self, end: FileFate) {
        self.life.end.store(end as u8, Ordering::Release);
    }
}

/// Calls `read`, which reads bytes of `file`. If it fails because of bytes that a local copy of a
/// remote file may have had, it is called again.
fn trusted<T>(file: &BlockFile, read: impl Fn() -> Result<T>) -> Result<T> {
    let mut done = read();
    for _ in 0..REREADS_MAX {
        match &done {
            Err(error) if error.is_corruption() && file.file().distrust() => done = read(),
            _ => break,
        }
    }
    done
}

impl Evictable for FileHandle {
    fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn evict(&self) -> Eviction {
        let Some(_one) = self.opening.try_lock() else {
            return Eviction::InUse;
        };
        let in_use = |reader: &Arc<SstReader>| Arc::strong_count(reader) > 1;
        match &*self.evictable.load() {
            None => return Eviction::Nothing,
            Some(reader) if in_use(reader) => return Eviction::InUse,
            Some(_) => {}
        }
        let Some(reader) = self.evictable.swap(None) else {
            return Eviction::Nothing;
        };
        pause_points::at(PausePoint::ReaderTaken);
        // The count above misses readers that threads have borrowed without a reference. Taking the
        // reader out has turned each of them into a reference, and `opening` keeps others from
        // opening the file. So if the count is one now, nobody else has the reader.
        if in_use(&reader) {
            self.evictable.store(Some(reader));
            return Eviction::InUse;
        }
        Eviction::Evicted
    }
}

/// The reader of a file, borrowed from its handle.
pub enum ReaderRef<'a> {
    /// It stays as long as the handle.
    Pinned(&'a Arc<SstReader>),
    /// It is not evicted while it is borrowed.
    Evictable(Guard<Option<Arc<SstReader>>>),
    /// It was opened for this read. It is evictable, too.
    Opened(Arc<SstReader>),
}

impl Deref for ReaderRef<'_> {
    type Target = Arc<SstReader>;
    #[inline]
    fn deref(&self) -> &Arc<SstReader> {
        match self {
            Self::Pinned(reader) => reader,
            Self::Evictable(reader) => reader.as_ref().expect("checked when it was borrowed"),
            Self::Opened(reader) => reader,
        }
    }
}

impl Deref for FileHandle {
    type Target = FileMeta;
    fn deref(&self) -> &FileMeta {
        work_count::file_seen();
        &self.meta
    }
}

impl std::fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SST {}", self.meta.file_id)
    }
}

/// Sorted files that do not share a user key. Immutable.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// In L0 the run number: a higher number is newer, and no number is reused. 0 in other levels.
    pub number: u64,
    /// The files, ascending by their keys.
    pub files: FileList,
}

impl Run {
    /// The run of `files`, which may be in any order.
    pub fn new(number: u64, mut files: Vec<Arc<FileHandle>>) -> Self {
        files.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        Self {
            number,
            files: files.into_iter().collect(),
        }
    }

    /// The only file of the run that may hold `user_key`; `None` if there is none.
    pub fn find(&self, user_key: &[u8]) -> Option<&Arc<FileHandle>> {
        let file = self.files.first_not(|f| f.largest.as_slice() < user_key);
        file.filter(|f| f.smallest.as_slice() <= user_key)
    }

    /// The files of the run that may hold a key that is ≥ `lower` and within the bound `upper`.
    pub fn overlapping(&self, lower: &[u8], upper: Bound<&[u8]>) -> FileSpan<'_> {
        let within = |f: &FileHandle| match upper {
            Bound::Included(key) => f.smallest.as_slice() <= key,
            Bound::Excluded(key) => f.smallest.as_slice() < key,
            Bound::Unbounded => true,
        };
        let from = self.files.partition_point(|f| f.largest.as_slice() < lower);
        // Most ranges meet no file or one.
        let to = match self.files.get(from) {
            Some(file) if within(file) => self.files.partition_point(|f| within(f)),
            _ => from,
        };
        self.files.range(from..to.max(from))
    }

    /// The files of the run that may have entries of `index`. Only the first and the last one may
    /// have entries of other indexes.
    pub fn of_index(&self, index: IndexId) -> FileSpan<'_> {
        let prefix = index_prefix(index);
        let end = prefix_successor(&prefix);
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.overlapping(&prefix, upper)
    }

    /// The position of the file of `meta`, if the run has it.
    pub(super) fn position(&self, meta: &FileMeta) -> Option<usize> {
        let at = self.files.partition_point(|f| f.smallest < meta.smallest);
        let is = |file: &&Arc<FileHandle>| file.file_id == meta.file_id;
        self.files.get(at).filter(is).map(|_| at)
    }

    /// Sum of the sizes of the files in bytes.
    pub fn size(&self) -> u64 {
        self.files.sum().size
    }
}

#[cfg(test)]
mod tests;
