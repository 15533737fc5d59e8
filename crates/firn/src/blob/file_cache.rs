//! The blob files that are open for reading, limited in number.

use super::chunks::{self, BlobReadExtent};
use super::format::{
    FILE_HEADER_LEN, FOOTER_LEN, check_file_header, places_begin, summed, take_places,
};
use super::pooled::PooledBlob;
use super::value_compression;
use crate::base::blob_ref::{BLOB_HEADER_LEN, BlobCodec, BlobRef};
use crate::base::pool::Pool;
use crate::base::{Error, ErrorKind, Result, checksum};
use crate::env::{ReadClass, ReadFile};
use crate::store::{FileKind, FileStore, PooledBlocks, file_name};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Before a read of more than this many bytes, the length of the file is checked, so that a damaged
/// reference does not allocate a huge buffer.
const TRUSTED_LEN: u64 = 1 << 20;

/// The blob files that are open for reading. If there are more than `max`, the clock algorithm
/// closes one. It looks at the file at the front of the queue: if the file was read since it came
/// into the queue or was last looked at, the file goes to the end of the queue, otherwise it is
/// closed.
///
/// Open SSTs have no such limit, because they are few and are read all the time. But a database of
/// large values has a blob file for every 256 MiB of them, most of which are rarely read.
pub(super) struct BlobFileCache {
    max: usize,
    queue: Mutex<VecDeque<Weak<PhysicalBlobFile>>>,
}

impl BlobFileCache {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            queue: Mutex::default(),
        })
    }

    fn admit(&self, opened: &Arc<PhysicalBlobFile>) {
        let mut queue = self.queue.lock();
        queue.push_back(Arc::downgrade(opened));
        // Move at most as many files to the end of the queue as the queue has (`spared` counts
        // down). After that, close the file at the front even if it was read: readers may mark
        // files as used faster than this loop clears the marks.
        let mut spared = queue.len();
        while queue.len() > self.max {
            let Some(oldest) = queue.pop_front() else {
                return;
            };
            // If the upgrade of the weak reference fails, the physical file was replaced or
            // removed, and its handle is closed already.
            let Some(physical) = oldest.upgrade() else {
                continue;
            };
            if spared > 0 && physical.used.swap(false, Ordering::Relaxed) {
                spared -= 1;
                queue.push_back(oldest);
            } else {
                physical.opened.store(None);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let queue = self.queue.lock();
        let open = queue.iter().filter_map(Weak::upgrade);
        open.filter(|physical| physical.opened.load().is_some())
            .count()
    }
}

/// The physical file that holds the blobs of a logical file.
pub(super) struct PhysicalBlobFile {
    pub(super) id: u64,
    /// The file is still growing, so it is read through the page cache.
    grows: bool,
    opened: ArcSwapOption<OpenBlobFile>,
    opening: Mutex<()>,
    /// Whether the file was read since it was opened, or since [`BlobFileCache`] last moved it to
    /// the end of its queue.
    used: AtomicBool,
}

impl PhysicalBlobFile {
    pub(super) fn new(id: u64, grows: bool) -> Self {
        Self {
            id,
            grows,
            opened: ArcSwapOption::empty(),
            opening: Mutex::new(()),
            used: AtomicBool::new(false),
        }
    }

    /// The open file, marked as used; `None` if it is closed.
    pub(super) fn opened(&self) -> Option<Arc<OpenBlobFile>> {
        let opened = self.opened.load_full();
        // Test the mark `used` before setting it: if it is set already, there is no write to a
        // cache line that threads share.
        if opened.is_some() && !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        opened
    }

    /// The open file, which is opened if necessary. `logical` is the id of the logical file, the
    /// one that blob references contain.
    pub(super) fn open(
        self: &Arc<Self>,
        files: &BlobFileCache,
        store: &FileStore,
        logical: u64,
    ) -> Result<Arc<OpenBlobFile>> {
        if let Some(opened) = self.opened() {
            return Ok(opened);
        }
        let _one = self.opening.lock();
        if let Some(opened) = self.opened() {
            return Ok(opened);
        }
        let opened = Arc::new(OpenBlobFile::open(store, self.id, logical, self.grows)?);
        self.opened.store(Some(Arc::clone(&opened)));
        files.admit(self);
        Ok(opened)
    }
}

/// The buffer for compressed bytes stays for later reads, unless it is larger than this many bytes.
const KEPT_BUFFER: usize = 256 << 10;

static BUFFERS: Pool<Vec<u8>> = Pool::new();

/// A part of a value that a caller reads.
pub(super) struct BlobPart<'a> {
    /// Offset of the blob's header in the physical file.
    pub(super) at: u64,
    pub(super) blob: &'a BlobRef,
    pub(super) extent: &'a BlobReadExtent,
    /// The purpose of the read.
    pub(super) class: ReadClass,
}

/// A blob file open for reading.
pub(super) struct OpenBlobFile {
    pub(super) file: Arc<dyn ReadFile>,
    pub(super) name: String,
    /// The table of places of a rewritten file, `None` for any other file. It has for each blob its
    /// offset in the logical file and its offset in this file, ascending.
    places: Option<Vec<(u64, u64)>>,
    pool: Option<Arc<PooledBlocks>>,
}

impl OpenBlobFile {
    pub(super) fn open(store: &FileStore, id: u64, logical: u64, grows: bool) -> Result<Self> {
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
        file.read_exact_at(ReadClass::Blob, 0, &mut header)?;
        check_file_header(&header, id, logical, &name)?;
        let places = match id == logical {
            true => None,
            false => Some(read_places(&*file, id, size, &name)?),
        };
        Ok(Self {
            file,
            name,
            places,
            pool: store.pool().cloned(),
        })
    }

    /// The blob in the memory pool, if that takes part in reads of this class.
    pub(super) fn pooled<'a>(
        &'a self,
        blob: &'a BlobRef,
        class: ReadClass,
    ) -> Option<PooledBlob<'a>> {
        let pool = self.pool.as_deref().filter(|pool| pool.serves(class))?;
        Some(PooledBlob { pool, blob, class })
    }

    pub(super) fn locate(&self, offset: u64) -> Option<u64> {
        let Some(places) = &self.places else {
            return Some(offset);
        };
        let at = places.binary_search_by_key(&offset, |place| place.0).ok()?;
        Some(places[at].1)
    }

    /// Offset in this file of the header of `blob`.
    pub(super) fn find(&self, blob: &BlobRef) -> Result<u64> {
        self.locate(blob.offset).ok_or_else(|| {
            let what = "the file holds no blob that was written there";
            Error::corruption(&self.name, blob.offset, what)
        })
    }

    /// `Corruption` if the file is too short for the blob whose header lies at `at`.
    pub(super) fn check_span(&self, at: u64, blob: &BlobRef) -> Result<()> {
        match self.ends_before(at, blob.stored)? {
            true => Err(self.too_short(at)),
            false => Ok(()),
        }
    }

    /// Returns `Corruption` if the file is too short for the part of a blob that `extent`
    /// describes. Call it before memory is allocated for that part, so that a damaged reference
    /// does not allocate a huge buffer. Parts of at most [`TRUSTED_LEN`] bytes are not checked,
    /// since so small a buffer does no harm.
    pub(super) fn check_len(&self, at: u64, extent: &BlobReadExtent) -> Result<()> {
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

    /// Reads a part of a value and decompresses it into `room`, which has its plain length, or, if
    /// it is plain, the length as stored. With `pooled`, the memory pool is asked first, and gets
    /// what was read from the file.
    pub(super) fn load(
        &self,
        part: &BlobPart<'_>,
        pooled: Option<&PooledBlob<'_>>,
        room: &mut [u8],
    ) -> Result<()> {
        let (at, extent) = (part.at, part.extent);
        let has_chunks = part.blob.codec == BlobCodec::Chunks;
        // What was read from the file goes to the memory pool once it is checked.
        let offer = |from_pool: bool, stored: &[u8]| {
            if let Some(pooled) = pooled.filter(|_| !from_pool) {
                pooled.offer(extent, stored);
            }
        };
        if extent.plain {
            let from_pool = self.read(part, pooled, room)?;
            if has_chunks {
                let is_plain = |chunk: &chunks::Chunk<'_>| chunk.is_plain();
                self.for_each_chunk(at, extent, room, is_plain)?;
            }
            offer(from_pool, room);
            return Ok(());
        }
        BUFFERS.with(Vec::new, |stored| {
            stored.resize(extent.stored as usize, 0);
            let read = self.read(part, pooled, stored).and_then(|from_pool| {
                if has_chunks {
                    let unpack = |chunk: &chunks::Chunk<'_>| chunk.unpack_to(room);
                    self.for_each_chunk(at, extent, stored, unpack)?;
                } else if !value_compression::unpack(stored, room) {
                    let what = "a blob does not decompress to its length";
                    return Err(Error::corruption(&self.name, at, what));
                }
                offer(from_pool, stored);
                Ok(())
            });
            if stored.len() > KEPT_BUFFER {
                *stored = Vec::new();
            }
            read
        })
    }

    /// Fills `stored` with a part of a blob, and verifies the checksum in the reference. If the
    /// blob has chunks, that checksum covers only their table. Returns whether the bytes came from
    /// the memory pool.
    fn read(
        &self,
        part: &BlobPart<'_>,
        pooled: Option<&PooledBlob<'_>>,
        stored: &mut [u8],
    ) -> Result<bool> {
        let (at, blob) = (part.at, part.blob);
        let asked = pooled.filter(|pooled| !pooled.take_announced());
        if asked.is_some_and(|pooled| pooled.fill(part.extent, stored)) {
            return Ok(true);
        }
        let offset = at + BLOB_HEADER_LEN;
        let read = match asked {
            Some(pooled) => pooled.read_file(&*self.file, offset, stored),
            None => self.file.read_exact_at(part.class, offset, stored),
        };
        if let Err(error) = read {
            let cut = self.ends_before(at, stored.len() as u64)?;
            return Err(if cut { self.too_short(at) } else { error });
        }
        let summed = summed(blob.codec, blob.len, stored).unwrap_or_default();
        match checksum::placed(summed, blob.file, blob.offset) == blob.checksum {
            true => Ok(false),
            false => Err(Error::corruption(&self.name, at, "checksum of a blob")),
        }
    }

    /// Verifies the chunks in `stored`, which were read of the blob whose header lies at `at`, and
    /// calls `f` with each.
    fn for_each_chunk(
        &self,
        at: u64,
        extent: &BlobReadExtent,
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
    file.read_exact_at(ReadClass::Blob, at, &mut footer)?;
    let begin = places_begin(&footer, size).ok_or_else(|| damaged("no table of places"))?;
    let mut table = vec![0; (size - begin) as usize];
    file.read_exact_at(ReadClass::Blob, begin, &mut table)?;
    take_places(&table, id, begin).ok_or_else(|| damaged("checksum of the table of places"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::MemEnv;
    use std::path::Path;

    #[test]
    fn so_many_files_are_open_and_no_more_and_what_is_read_stays() {
        let env = Arc::new(MemEnv::new());
        let store = FileStore::new(env.clone(), "/db");
        for id in 0..20 {
            let name = file_name(FileKind::Blob, id);
            let header = super::super::format::file_header(id, id);
            env.place(&Path::new("/db").join(name), header.to_vec());
        }
        let files = BlobFileCache::new(4);
        let all: Vec<Arc<PhysicalBlobFile>> = (0..20)
            .map(|id| Arc::new(PhysicalBlobFile::new(id, false)))
            .collect();
        let open = |id: usize| all[id].open(&files, &store, id as u64).unwrap();
        let hot = open(0);
        for round in 0..3 {
            for id in 1..20 {
                let opened = open(id);
                assert_eq!(opened.name, file_name(FileKind::Blob, id as u64));
                assert!(files.count() <= 4, "{} are open", files.count());
                let still = open(0);
                assert!(Arc::ptr_eq(&hot, &still), "round {round}, file {id}");
            }
        }
        assert_eq!(files.count(), 4);
        drop(all);
        assert_eq!(files.count(), 0);
    }
}
