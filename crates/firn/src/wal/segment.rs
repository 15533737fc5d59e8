//! Files of log segments: names, preparation, recycling.

use super::frame::{FIRST_GROUP, GroupHeader, SegmentHeader};
use super::{LogEnd, SegmentId};
use crate::base::health::{FullDisk, Health};
use crate::base::{Error, ErrorKind, FailureClass, Result};
use crate::env::{AlignedBuf, BLOCK, Env, LogFile, ReadClass, SECTOR};
use crate::store::{DiskReserve, ReservePart};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A log segment to which no more groups are written.
#[derive(Debug, Clone, Copy)]
pub(in crate::wal) struct OldSegment {
    pub size: u64,
    /// The last group ends at or before this offset.
    pub end: u64,
}

/// File name of a log segment.
pub fn segment_name(id: SegmentId) -> String {
    format!("{id:06}.wal")
}

/// The id of the log segment whose file has this name; `None` if `name` is not that of a segment.
pub fn parse_segment_name(name: &str) -> Option<SegmentId> {
    let id = name.strip_suffix(".wal")?.parse().ok()?;
    (segment_name(id) == name).then_some(id)
}

/// File name of a segment of the incarnation `first` that has no id yet.
fn aside_name(first: SegmentId) -> String {
    format!("{}{ASIDE}", segment_name(first))
}

const ASIDE: &str = ".tmp";

/// Bytes of a segment that are read, and overwritten with zeros, at once.
const ERASED_AT_ONCE: u64 = 1 << 20;

/// As [`list`]. Removes the files of segments that earlier incarnations have begun and given no id.
pub(super) fn list_tidied(env: &dyn Env, dir: &Path) -> Result<Vec<SegmentId>> {
    let names = env.list_dir(dir)?;
    for name in &names {
        let of_segment = name.strip_suffix(ASIDE).and_then(parse_segment_name);
        if of_segment.is_some() {
            // If removing fails, the file is in nobody's way, and the next open tries again.
            let _ = env.remove(&dir.join(name));
        }
    }
    Ok(ids_of(&names))
}

/// Ids of the log segments in `dir`, ascending.
pub(super) fn list(env: &dyn Env, dir: &Path) -> Result<Vec<SegmentId>> {
    Ok(ids_of(&env.list_dir(dir)?))
}

fn ids_of(names: &[String]) -> Vec<SegmentId> {
    let mut ids: Vec<_> = names.iter().filter_map(|n| parse_segment_name(n)).collect();
    ids.sort_unstable();
    ids
}

/// The largest id below `end` of a log segment in `dir`; 0 if there is none.
///
/// # Errors
/// Those of the file system.
pub fn largest_below(env: &dyn Env, dir: &Path, end: SegmentId) -> Result<SegmentId> {
    let ids = list(env, dir)?;
    Ok(ids.into_iter().filter(|id| *id < end).max().unwrap_or(0))
}

/// Syncs all log segments in `dir`. After the process was killed, groups that replay has read may
/// exist only in the page cache; after this call they are durable.
///
/// # Errors
/// Those of opening and syncing the files.
pub fn sync_all(env: &dyn Env, dir: &Path) -> Result<()> {
    sync_each(env, dir, &list(env, dir)?)
}

/// Syncs these log segments in `dir`.
pub(super) fn sync_each(env: &dyn Env, dir: &Path, ids: &[SegmentId]) -> Result<()> {
    for &id in ids {
        let path = dir.join(segment_name(id));
        env.open_log(&path, false, false)?.sync()?;
    }
    Ok(())
}

/// A log segment that is open for writing.
pub(super) struct Segment {
    pub id: SegmentId,
    pub size: u64,
    /// Groups that bypass the page cache are padded to a multiple of this many bytes. Groups that
    /// go through the page cache are padded to whole blocks.
    pub unit: usize,
    pub file: Arc<dyn LogFile>,
    /// Whether the segment is made of the disk reserve. Such a segment takes only records that help
    /// to free a full disk.
    pub reserve: bool,
}

impl Segment {
    /// A placeholder while the disk has no room for a segment. Its size is 0, so no group fits.
    pub(super) fn none(id: SegmentId) -> Arc<Self> {
        Arc::new(Self {
            id,
            size: 0,
            unit: BLOCK,
            file: Arc::new(NoFile),
            reserve: false,
        })
    }

    /// Whether this is the placeholder that [`Self::none`] returns.
    pub(super) fn is_none(&self) -> bool {
        self.size == 0
    }
}

/// The file of [`Segment::none`]. It is never written to.
struct NoFile;

fn no_segment() -> Error {
    Error::new(ErrorKind::NoSpace, "there is no log segment")
}

impl LogFile for NoFile {
    fn unit(&self) -> usize {
        BLOCK
    }
    fn preallocate(&self, _: u64) -> Result<()> {
        Err(no_segment())
    }
    fn reserve(&self, _: u64) -> Result<()> {
        Err(no_segment())
    }
    fn write_durable_at(&self, _: u64, _: &AlignedBuf) -> Result<()> {
        Err(no_segment())
    }
    fn write_at(&self, _: u64, _: &AlignedBuf) -> Result<()> {
        Err(no_segment())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// A released segment that waits to be recycled.
pub(super) struct SpareSegment {
    id: SegmentId,
    /// The open file, so that the segment can be used even while the process cannot open files.
    /// `None` if the file could not be opened when the segment was released.
    file: Option<Arc<dyn LogFile>>,
}

/// Makes log segments ready for use. A segment is a recycled file, or a new file that is filled
/// with zeros or only allocated. It gets a header, and both header and file name are made durable.
///
/// A new file is filled with zeros if commits wait for the device: without the zeros, each commit
/// would also wait for a change of the file's metadata, and take three times as long. If commits do
/// not wait for the device, the zeros are not written, which halves the log writes of a load until
/// the first segments are recycled.
///
/// A segment is used only when all these steps have succeeded. So a group never lies in a file
/// whose header or name may be lost in a power cut.
pub(super) struct Segments {
    pub env: Arc<dyn Env>,
    pub dir: PathBuf,
    pub health: Arc<Health>,
    pub direct: bool,
    /// Usual size of a segment, bytes.
    pub size: u64,
    pub incarnation: SegmentId,
    pub base: LogEnd,
    /// Released segments of the usual size, whose files will be renamed and overwritten as new
    /// segments.
    pub spare: Mutex<Vec<SpareSegment>>,
    pub spare_max: usize,
    /// The disk reserve, which provides a segment when the disk is full.
    pub kept: Option<Arc<DiskReserve>>,
    pub created: AtomicU64,
    pub recycled: AtomicU64,
}

impl Segments {
    /// Prepares segment `id` with room for `room` bytes of groups. `durable` says that commits will
    /// wait for the device, so a new file is filled with zeros. This function may run again for the
    /// same id as long as no group was written to the segment.
    ///
    /// # Errors
    /// After `NoSpace` and `NoDescriptor` the caller may try again. Any other failed write or sync
    /// poisons the engine, because a second sync may succeed although the bytes never reached the
    /// device.
    pub(super) fn prepare(&self, id: SegmentId, room: u64, durable: bool) -> Result<Arc<Segment>> {
        let size = self.size.max(FIRST_GROUP + room);
        let path = self.path(id);
        let file = match self.take_spare(size, &path)? {
            Some(file) => file,
            None => self.create(&path, size, durable)?,
        };
        self.begin(id, size, file, false)
    }

    /// Creates a file for a segment of `size` bytes, filled with zeros if `durable` is set.
    fn create(&self, path: &Path, size: u64, durable: bool) -> Result<Arc<dyn LogFile>> {
        let file = self.env.open_log(path, true, self.direct)?;
        self.created.fetch_add(1, Ordering::Relaxed);
        let ready = match durable {
            true => file.preallocate(size),
            false => file.reserve(size),
        };
        if let Err(error) = ready {
            drop(file);
            if error.kind() != &ErrorKind::NoSpace {
                self.health.poison(error.clone());
            } else if let Err(error) = self.env.remove(path) {
                // If removing fails, the half-written file stays, and the next call for this path
                // overwrites it.
                debug_assert!(error.kind() != &ErrorKind::NotFound);
            }
            return Err(error);
        }
        Ok(file)
    }

    /// Creates a file of `size` bytes for a segment whose id is not known yet. The caller passes it
    /// to [`Self::begin_aside`] or calls [`Self::remove_aside`], before it creates another one.
    ///
    /// # Errors
    /// Those of [`Self::prepare`].
    pub(super) fn create_aside(&self, size: u64, durable: bool) -> Result<Arc<dyn LogFile>> {
        self.create(&self.aside(), size, durable)
    }

    /// Makes the file of [`Self::create_aside`] the segment `id`.
    ///
    /// # Errors
    /// Those of [`Self::prepare`]. The file is removed then.
    pub(super) fn begin_aside(
        &self,
        id: SegmentId,
        size: u64,
        file: Arc<dyn LogFile>,
    ) -> Result<Arc<Segment>> {
        let path = self.path(id);
        if let Err(error) = self.env.rename(&self.aside(), &path) {
            self.remove_aside();
            return Err(error);
        }
        self.begin(id, size, file, false).inspect_err(|_| {
            // If removing fails, the next segment with this id overwrites the file.
            let _ = self.env.remove(&path);
        })
    }

    /// Removes the file of [`Self::create_aside`].
    pub(super) fn remove_aside(&self) {
        // If removing fails, the next open of the log removes the file.
        let _ = self.env.remove(&self.aside());
    }

    /// The name has the id of the incarnation, so that a log which is being closed never touches
    /// the file of one that was opened after it.
    fn aside(&self) -> PathBuf {
        self.dir.join(aside_name(self.incarnation))
    }

    /// As [`Self::prepare`], but makes the segment of the disk reserve. `None` if the reserve is
    /// already used, or too small.
    ///
    /// # Errors
    /// Those of [`Self::prepare`].
    pub(super) fn prepare_in_reserve(
        &self,
        id: SegmentId,
        room: u64,
    ) -> Result<Option<Arc<Segment>>> {
        let Some(kept) = self.kept.as_ref().filter(|kept| kept.has(ReservePart::Log)) else {
            return Ok(None);
        };
        let path = self.path(id);
        // A reserve file that was a segment before has the length of that segment; a fresh reserve
        // file has length 0.
        let Some(len) = kept.len_of(ReservePart::Log)? else {
            return Ok(None);
        };
        let size = len.max(ReservePart::Log.bytes());
        if size < FIRST_GROUP + room {
            return Ok(None);
        }
        if !kept.take(ReservePart::Log, &path)? {
            return Ok(None);
        }
        let file = match self.env.open_log(&path, false, self.direct) {
            Ok(file) => file,
            Err(error) => {
                // Give the file its name in the disk reserve back. Under the segment's name, the
                // next `prepare` of this id would overwrite it, and on a full disk remove it, so
                // the disk reserve would be lost.
                self.give_back(id, size)?;
                return Err(error);
            }
        };
        if let Err(error) = file.reserve(size) {
            if error.kind() != &ErrorKind::NoSpace {
                self.health.poison(error.clone());
                return Err(error);
            }
            drop(file);
            self.give_back(id, size)?;
            return Ok(None);
        }
        match self.begin(id, size, file, true) {
            Err(error) if error.class() == FailureClass::NoEffect => {
                self.give_back(id, size)?;
                Err(error)
            }
            begun => begun.map(Some),
        }
    }

    /// Turns the file of segment `id`, which is unused or no longer needed, into the disk reserve
    /// again.
    pub(super) fn give_back(&self, id: SegmentId, size: u64) -> Result<()> {
        if let Some(kept) = &self.kept {
            kept.give_back(ReservePart::Log, &self.path(id), size)?;
        }
        Ok(())
    }

    /// Writes the header of a new segment, and makes the header and the file name durable.
    fn begin(
        &self,
        id: SegmentId,
        size: u64,
        file: Arc<dyn LogFile>,
        reserve: bool,
    ) -> Result<Arc<Segment>> {
        let header = SegmentHeader {
            id,
            incarnation: self.incarnation,
            base: self.base,
            size,
            unit: file.unit(),
        };
        let durable = file
            .write_durable_at(0, &header.encode())
            .and_then(|()| self.env.sync_dir(&self.dir));
        if let Err(error) = durable {
            // If the directory could not be opened, no sync has failed: the next attempt writes the
            // header and syncs the directory again.
            if error.class() != FailureClass::NoEffect {
                self.health.poison(error.clone());
            }
            return Err(error);
        }
        Ok(Arc::new(Segment {
            id,
            size,
            unit: header.unit,
            file,
            reserve,
        }))
    }

    /// Provides the first segment of an incarnation. If the disk is full, this function first frees
    /// the segments in `old` after `used_to`, which the last incarnation had prepared and not used,
    /// and tries again. If that fails, the segment is made of the disk reserve, or else is the
    /// placeholder [`Segment::none`].
    pub(super) fn first(
        &self,
        id: SegmentId,
        used_to: SegmentId,
        durable: bool,
        old: &mut BTreeMap<SegmentId, OldSegment>,
    ) -> Result<Arc<Segment>> {
        let prepared = self.prepare(id, 0, durable);
        self.health.note(FullDisk::Log, &prepared);
        match prepared {
            Err(error) if error.kind() == &ErrorKind::NoSpace => {}
            prepared => return prepared,
        }
        if used_to > 0 {
            let unused = old.split_off(&(used_to + 1));
            // The last one goes first: a segment with a header says that the one before it is
            // there.
            for (id, old) in unused.into_iter().rev() {
                self.release_unused(id, old.size)?;
            }
        }
        let prepared = self.prepare(id, 0, durable);
        self.health.note(FullDisk::Log, &prepared);
        match prepared {
            Err(error) if error.kind() == &ErrorKind::NoSpace => {
                let kept = self.prepare_in_reserve(id, 0)?;
                Ok(kept.unwrap_or_else(|| Segment::none(id - 1)))
            }
            prepared => prepared,
        }
    }

    /// Renames a spare segment to `path` and opens it; `None` if there is none of that size. If no
    /// file can be opened or the disk is full, the spare stays one: the next try must not use up
    /// another. A spare that is gone or that fails in another way is given up.
    fn take_spare(&self, size: u64, path: &Path) -> Result<Option<Arc<dyn LogFile>>> {
        if size != self.size {
            return Ok(None);
        }
        loop {
            let Some(spare) = self.spare.lock().pop() else {
                return Ok(None);
            };
            let old = self.path(spare.id);
            match self.env.rename(&old, path) {
                Ok(()) => {}
                Err(error) if *error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    if error.class() != FailureClass::Poison {
                        self.spare.lock().push(spare);
                    }
                    return Err(error);
                }
            }
            let opened = self.open_renamed(&spare, path);
            match &opened {
                Ok(_) => _ = self.recycled.fetch_add(1, Ordering::Relaxed),
                Err(error) if error.class() == FailureClass::NoEffect => {
                    if self.env.rename(path, &old).is_ok() {
                        self.spare.lock().push(spare);
                    }
                }
                Err(_) => {}
            }
            return opened.map(Some);
        }
    }

    fn open_renamed(&self, spare: &SpareSegment, path: &Path) -> Result<Arc<dyn LogFile>> {
        if spare.id < self.incarnation {
            // The spare file is of an earlier incarnation: a start on a full disk recycles segments
            // that were prepared and never used, and replay still reads such files. So make the new
            // name durable before the caller writes the new header. Otherwise a power cut could
            // keep the header and undo the rename: replay would find the header of another segment
            // under the old name.
            self.sync_names()?;
        }
        match self.env.open_log(path, false, self.direct) {
            // The handle still has the old name, which only its error messages show.
            Err(error) if error.class() == FailureClass::NoEffect => {
                spare.file.clone().ok_or(error)
            }
            opened => opened,
        }
    }

    /// Keeps the files of released segments (id, size) for recycling, or removes them.
    ///
    /// # Errors
    /// The first error; the other files are released nevertheless.
    pub(super) fn release(&self, released: impl Iterator<Item = (SegmentId, u64)>) -> Result<()> {
        let failed = released.filter_map(|(id, size)| self.release_one(id, size).err());
        // Visit all of them: the fold does not end at the first error.
        let first = failed.fold(None, |first, error| first.or(Some(error)));
        first.map_or(Ok(()), Err)
    }

    /// Releases a segment behind the end of the log that replay has found.
    ///
    /// It may have groups, which recovery has dropped because one before them is torn. They are
    /// overwritten first. If the process died before another segment has a name, the id would be
    /// given out again, perhaps to the same file, and in it those groups would be valid again. And
    /// if a power cut gave the file its old name back after another header was written to it, they
    /// would say that the header of this segment is damaged.
    ///
    /// The header is overwritten, too: a power cut may undo a rename or a removal, and keep that of
    /// the segment before.
    fn release_unused(&self, id: SegmentId, size: u64) -> Result<()> {
        // Zeros need no space on most file systems, because the file has its blocks. If they cannot
        // be written, some groups may be left, so remove the file.
        if self.is_own(id) && self.erase(id, size).is_ok() {
            return self.release_one(id, size);
        }
        self.remove(id)?;
        self.sync_names()
    }

    /// Overwrites the groups of a segment durably, and then its header. In this order, a crash in
    /// between leaves no groups without a header, which would count as damage.
    fn erase(&self, id: SegmentId, size: u64) -> Result<()> {
        let path = self.path(id);
        let end = size / BLOCK as u64 * BLOCK as u64;
        let read = self.env.open(&path)?;
        let write = self.env.open_log(&path, false, self.direct)?;
        let mut chunk = AlignedBuf::new();
        let mut at = FIRST_GROUP;
        while at < end {
            let len = ERASED_AT_ONCE.min(end - at) as usize;
            chunk.clear();
            chunk.extend_from_slice(&vec![0; len]);
            read.read_exact_at(ReadClass::Log, at, chunk.as_mut_slice())?;
            let mut sectors = chunk.as_slice().chunks(SECTOR);
            if sectors.any(|start| GroupHeader::peek_len(start, id, SECTOR).is_some()) {
                chunk.as_mut_slice().fill(0);
                write.write_durable_at(at, &chunk)?;
            }
            at += len as u64;
        }
        if end > 0 {
            chunk.clear();
            chunk.extend_from_slice(&[0; BLOCK]);
            write.write_durable_at(0, &chunk)?;
        }
        Ok(())
    }

    /// Makes the names in the directory durable.
    fn sync_names(&self) -> Result<()> {
        self.env.sync_dir(&self.dir).inspect_err(|error| {
            if error.class() == FailureClass::Poison {
                self.health.poison(error.clone());
            }
        })
    }

    /// Whether nothing but the log needs the file. A file with a second hard link also belongs to a
    /// checkpoint, so it must not be overwritten.
    fn is_own(&self, id: SegmentId) -> bool {
        self.env.links(&self.path(id)).is_ok_and(|n| n == 1)
    }

    fn remove(&self, id: SegmentId) -> Result<()> {
        match self.env.remove(&self.path(id)) {
            Err(error) if error.kind() != &ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn release_one(&self, id: SegmentId, size: u64) -> Result<()> {
        if self.kept.as_ref().is_some_and(|k| !k.has(ReservePart::Log)) {
            // A segment that was made of the reserve and never written to has length 0, so its
            // allocated size counts.
            let usage = self.env.usage(&self.path(id));
            let bytes = usage.map_or(size, |usage| usage.allocated.max(size));
            if bytes >= ReservePart::Log.bytes() && self.is_own(id) {
                return self.give_back(id, bytes);
            }
        }
        if size == self.size && self.is_own(id) {
            let keeps = || self.spare.lock().len() < self.spare_max;
            // Open the file without the lock of `spare`, for which `take_spare` would have to wait.
            let file = keeps().then(|| self.env.open_log(&self.path(id), false, self.direct));
            let mut spare = self.spare.lock();
            if let Some(file) = file
                && spare.len() < self.spare_max
            {
                let file = file.ok();
                spare.push(SpareSegment { id, file });
                return Ok(());
            }
        }
        self.remove(id)
    }

    pub(super) fn path(&self, id: SegmentId) -> PathBuf {
        self.dir.join(segment_name(id))
    }
}

#[cfg(test)]
mod tests;
