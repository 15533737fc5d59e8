//! All blob files of a database.

use super::chunks::Extent;
use super::codec::pack;
use super::file::{BlobFile, KEPT_FRONT, LinkHold, moved_from};
use super::format::{BlobHeader, DATA_START, file_header, place_after, places};
use super::live::{Span, holes};
use super::opened::OpenFiles;
use super::session::BlobSession;
use super::steps::{Place, reached};
use crate::base::{Error, ErrorKind, Result};
use crate::env::Announcement;
use crate::rowcode::{BlobBuf, BlobRef};
use crate::store::{FileKind, FileStore};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file is full at this share of all bytes written …
const FILE_SHARE: u64 = 32;
/// … and at this size at the latest, or at this share of it at the earliest.
const FILE_MIN_SHARE: u64 = 8;

/// Files open for reading at once.
const OPEN_FILES_MAX: usize = 256;

/// What was done so far.
#[derive(Debug, Default)]
pub struct BlobStats {
    /// Values written.
    pub written: AtomicU64,
    /// Bytes of them, as stored.
    pub written_bytes: AtomicU64,
    /// Values read, whole or in part.
    pub read: AtomicU64,
    /// Bytes read of them, as stored.
    pub read_bytes: AtomicU64,
    /// Bytes given back to the file system by holes.
    pub punched_bytes: AtomicU64,
    /// Bytes of blobs that were moved to another file.
    pub rewritten_bytes: AtomicU64,
    /// Files that went.
    pub removed_files: AtomicU64,
}

/// Blobs moved to a new file, not in force yet.
pub struct Rewritten {
    /// Id that references name.
    pub logical: u64,
    /// Id of the new file.
    pub physical: u64,
    /// Bytes of the blobs.
    pub bytes: u64,
}

type NewId = Box<dyn Fn() -> u64 + Send + Sync>;

/// The blob files of a database: writing, reading, and what collecting their garbage takes.
///
/// One file at a time takes blobs. `release_after` keeps what rolled back transactions wrote until the
/// log has forgotten them for good: a prepared one may come back otherwise.
pub struct BlobStore {
    files: FileStore,
    new_id: Option<NewId>,
    file_size: u64,
    open_files: Arc<OpenFiles>,
    known: RwLock<BTreeMap<u64, Arc<BlobFile>>>,
    active: Mutex<Option<Arc<BlobFile>>>,
    /// Logical ids whose blobs lie in a file of another id.
    moved: RwLock<BTreeMap<u64, u64>>,
    released: Mutex<Vec<(u64, BlobSession)>>,
    linking: RwLock<()>,
    stats: BlobStats,
}

impl BlobStore {
    /// The blob files in the directory of `files`. `new_id` hands out file ids; `file_size`: bytes at
    /// which a file is full at the latest.
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

    /// The same, that refuses to write.
    pub fn read_only(files: FileStore, file_size: u64) -> Self {
        Self {
            files,
            new_id: None,
            file_size,
            open_files: OpenFiles::new(OPEN_FILES_MAX),
            known: RwLock::default(),
            active: Mutex::default(),
            moved: RwLock::default(),
            released: Mutex::default(),
            linking: RwLock::default(),
            stats: BlobStats::default(),
        }
    }

    /// Says which logical files lie in files of other ids, before anything is read.
    pub fn set_moved(&self, moved: impl IntoIterator<Item = (u64, u64)>) {
        *self.moved.write() = moved.into_iter().collect();
    }

    /// Which logical files lie in files of other ids, as far as the files themselves tell: where the
    /// manifest is lost. Of several the newest whole one.
    ///
    /// # Errors
    /// Of the file system.
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

    /// Where the files lie.
    pub fn files(&self) -> &FileStore {
        &self.files
    }

    /// What was done so far.
    pub fn stats(&self) -> &BlobStats {
        &self.stats
    }

    /// Keeps blob files as they are until the result is dropped: nothing is punched and no name goes. For
    /// those who give the files further links; a file with a second link is not punched afterwards either.
    pub fn hold_links(&self) -> LinkHold<'_> {
        LinkHold(self.linking.read())
    }

    /// Whether somebody holds them.
    pub fn links_held(&self) -> bool {
        self.linking.try_write().is_none()
    }

    /// Whether the file has a second link: it is not punched then.
    ///
    /// # Errors
    /// Of the file system.
    pub fn is_linked(&self, file: &BlobFile) -> Result<bool> {
        Ok(self.files.blob_links(file.physical_id())? > 1)
    }

    /// Writes `value` of `column`. It is durable once `session` is synced, and lost if that is dropped
    /// before anything refers to it.
    ///
    /// # Errors
    /// `NoSpace` and I/O errors: nothing is written then. `Unsupported` in a store that only reads.
    pub fn write(&self, session: &mut BlobSession, column: u32, value: &[u8]) -> Result<BlobRef> {
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
                // With the disk full the same file goes on once there is room.
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

    fn reserve(&self, session: &mut BlobSession, stored: u64) -> Result<(Arc<BlobFile>, u64)> {
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

    /// No more blobs go into `file`.
    fn give_up(&self, file: &Arc<BlobFile>) {
        let mut active = self.active.lock();
        if active.as_ref().is_some_and(|a| Arc::ptr_eq(a, file)) {
            self.seal(file);
            *active = None;
        }
    }

    /// No more blobs go into the file that takes them now.
    pub fn seal_active(&self) {
        let mut active = self.active.lock();
        if let Some(file) = active.take() {
            self.seal(&file);
        }
    }

    /// Under the mutex of the active file, which it is.
    fn seal(&self, file: &BlobFile) {
        file.seal();
        self.trim(file);
    }

    /// Gives back the zeros at the end of files that take no more, as far as that was not possible before.
    pub fn trim_sealed(&self) {
        let files = self.all();
        files.iter().for_each(|file| self.trim(file));
    }

    /// Leaves a file alone that has a second name or may be about to get one: whoever copies it relies
    /// on its length.
    fn trim(&self, file: &BlobFile) {
        if !file.has_tail() {
            return file.close_spans();
        }
        reached(Place::Trimming);
        let Some(_alone) = self.linking.try_write() else {
            return;
        };
        // Asked again: another file may have taken its place, whose end is its table.
        if file.has_tail() && self.is_linked(file).is_ok_and(|linked| !linked) {
            reached(Place::Cutting);
            // It is only room, and is asked for again.
            let _ = file.trim();
        }
    }

    /// Whether nobody writes to the file with this id, nor will.
    pub fn is_quiet(&self, id: u64) -> bool {
        let _active = self.active.lock();
        let known = self.known.read();
        known
            .get(&id)
            .is_none_or(|file| !file.grows() && !file.is_held())
    }

    /// Reads the value that `blob` refers to into `buf`.
    ///
    /// # Errors
    /// `Corruption` that names file and offset; I/O errors.
    pub fn read<'b>(&self, blob: &BlobRef, buf: &'b mut BlobBuf) -> Result<&'b [u8]> {
        self.read_prefix(blob, u64::MAX, buf)
    }

    /// Reads the first `wanted` bytes of the value, or all if it has fewer: no more chunks than these
    /// need, and what others hold does not matter.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_prefix<'b>(
        &self,
        blob: &BlobRef,
        wanted: u64,
        buf: &'b mut BlobBuf,
    ) -> Result<&'b [u8]> {
        let extent = Extent::of(blob, wanted);
        self.stats.read.fetch_add(1, Ordering::Relaxed);
        self.stats
            .read_bytes
            .fetch_add(extent.stored, Ordering::Relaxed);
        let bytes = self.file(blob.file).read(blob, &extent, buf)?;
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        Ok(&bytes[..bytes.len().min(wanted)])
    }

    /// Says that so many first bytes of these values are about to be read: all begin to be read at the
    /// same time. A hint.
    pub fn announce<'a>(&self, blobs: impl Iterator<Item = (&'a BlobRef, u64)> + Clone) {
        if blobs.clone().nth(1).is_none() {
            return;
        }
        let mut reads = Announcement::new();
        for (blob, wanted) in blobs {
            let extent = Extent::of(blob, wanted);
            self.file(blob.file).announce(blob, &extent, &mut reads);
        }
        reads.start();
    }

    /// The file with this id, whether it is there or not.
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

    /// All files known, ascending by id.
    pub fn all(&self) -> Vec<Arc<BlobFile>> {
        self.known.read().values().cloned().collect()
    }

    /// After recovery: `needed` are all files that anything refers to. The others go; the missing ones
    /// are returned, and then no file goes.
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

    /// Holds file `id` in `session`: a prepared transaction names it.
    pub fn hold(&self, session: &mut BlobSession, id: u64) {
        let file = self.file(id);
        let _active = self.active.lock();
        session.hold(&file);
    }

    /// Keeps what `session` holds until the log is durable up to `lsn`.
    pub fn release_after(&self, lsn: u64, session: BlobSession) {
        if !session.is_empty() {
            self.released.lock().push((lsn, session));
        }
    }

    /// The log is durable up to `lsn`.
    pub fn log_durable(&self, lsn: u64) {
        self.released.lock().retain(|(until, _)| *until > lsn);
    }

    /// Gives back the room between the blobs of `file` that live: `live` has their spans as they were
    /// written, ascending. `None` if the file cannot have holes, or has a second link.
    ///
    /// # Errors
    /// Of the file system; part of the room may be given back then.
    pub fn punch(&self, file: &BlobFile, live: &[Span]) -> Result<Option<u64>> {
        let _alone = self.linking.write();
        let usage = file.usage()?;
        let mut here = Vec::with_capacity(live.len());
        for span in live {
            let offset = file.locate(span.offset)?;
            // Without it nothing is known of what lies around it.
            let Some(offset) = offset else {
                return Ok(None);
            };
            here.push(Span { offset, ..*span });
        }
        here.sort_unstable();
        // A rewritten file ends with its table.
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

    /// Writes the blobs of `file` that live into a new file, synced. It takes the place of the old one
    /// by [`Self::install`], once that is recorded durably.
    ///
    /// # Errors
    /// `Corruption` of the blobs; I/O errors, `NoSpace`. Nothing is left behind then.
    pub fn rewrite(&self, file: &BlobFile, live: &[Span]) -> Result<Rewritten> {
        let Some(new_id) = &self.new_id else {
            return Err(Error::unsupported("blobs are not written here"));
        };
        let id = new_id();
        let written = self.rewrite_as(id, file, live);
        if written.is_err() {
            let _ = self.files.remove_blob(id);
        }
        let bytes = written?;
        Ok(Rewritten {
            logical: file.id(),
            physical: id,
            bytes,
        })
    }

    fn rewrite_as(&self, id: u64, file: &BlobFile, live: &[Span]) -> Result<u64> {
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

    /// Throws a rewritten file away whose place could not be recorded.
    pub fn discard(&self, rewritten: &Rewritten) {
        let _ = self.files.remove_blob(rewritten.physical);
    }

    /// The rewritten file is recorded: it takes its place. The old one goes.
    ///
    /// # Errors
    /// If it cannot be removed; a restart does that then.
    pub fn install(&self, rewritten: &Rewritten) -> Result<()> {
        let file = self.file(rewritten.logical);
        reached(Place::Installing);
        // Nobody cuts the file meanwhile, or gives it a second name.
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
    /// Of the file system; it is tried again then.
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
