//! Segment files: names, preparation, recycling.

use super::frame::{FIRST_GROUP, SegmentHeader};
use super::{LogEnd, SegmentId};
use crate::base::health::Health;
use crate::base::{ErrorKind, Result};
use crate::env::{Env, LogFile};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of a segment's file.
pub fn segment_name(id: SegmentId) -> String {
    format!("{id:06}.wal")
}

/// The segment whose file has this name; `None` for other files.
pub fn parse_segment_name(name: &str) -> Option<SegmentId> {
    let id = name.strip_suffix(".wal")?.parse().ok()?;
    (segment_name(id) == name).then_some(id)
}

/// Ids of the segments in `dir`, ascending.
pub(super) fn list(env: &dyn Env, dir: &Path) -> Result<Vec<SegmentId>> {
    let names = env.list_dir(dir)?;
    let mut ids: Vec<_> = names.iter().filter_map(|n| parse_segment_name(n)).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Makes all segments in `dir` durable as they read: after a kill what replay has read may be in the page cache only.
///
/// # Errors
/// Of opening and syncing.
pub fn sync_all(env: &dyn Env, dir: &Path) -> Result<()> {
    for id in list(env, dir)? {
        let path = dir.join(segment_name(id));
        env.open_log(&path, false, false)?.sync()?;
    }
    Ok(())
}

/// A segment open for writing.
pub(super) struct Segment {
    pub id: SegmentId,
    pub size: u64,
    /// Groups that are written durably fill units of so many bytes, others whole blocks.
    pub unit: usize,
    pub file: Arc<dyn LogFile>,
}

/// Makes segments ready for use: recycled, filled with zeros or just set aside, with a header, synced,
/// the name durable.
///
/// The zeros are written where commits wait for the device: each would otherwise wait for a change of
/// metadata, too, and take three times as long. Commits that do not wait need none, and that halves
/// what a load writes to the log until the first segments are recycled.
///
/// A segment is used only when all that has succeeded, so a group never lies in a file whose header
/// or name a power cut can take away.
pub(super) struct Segments {
    pub env: Arc<dyn Env>,
    pub dir: PathBuf,
    pub health: Arc<Health>,
    pub direct: bool,
    /// Usual size, bytes.
    pub size: u64,
    pub incarnation: SegmentId,
    pub base: LogEnd,
    /// Released segments of the usual size, to be renamed and written anew.
    pub spare: Mutex<Vec<SegmentId>>,
    pub spare_max: usize,
    pub created: AtomicU64,
    pub recycled: AtomicU64,
}

impl Segments {
    /// Prepares segment `id` with room for `room` bytes of groups, which will be written durably one
    /// by one if `durable`. May run again for the same id as long as the segment was not used.
    ///
    /// # Errors
    /// `NoSpace` leaves nothing behind and may be tried again; any other failed write or sync
    /// poisons, since a second try may succeed without the bytes being there.
    pub(super) fn prepare(&self, id: SegmentId, room: u64, durable: bool) -> Result<Arc<Segment>> {
        let size = self.size.max(FIRST_GROUP + room);
        let path = self.path(id);
        let file = match self.take_spare(size, &path)? {
            Some(file) => file,
            None => {
                let file = self.env.open_log(&path, true, self.direct)?;
                self.created.fetch_add(1, Ordering::Relaxed);
                let ready = match durable {
                    true => file.preallocate(size),
                    false => file.reserve(size),
                };
                if let Err(error) = ready {
                    drop(file);
                    if error.kind() != &ErrorKind::NoSpace {
                        self.health.poison(error.clone());
                    } else if let Err(error) = self.env.remove(&path) {
                        // The half-written file stays; the next try writes over it.
                        debug_assert!(error.kind() != &ErrorKind::NotFound);
                    }
                    return Err(error);
                }
                file
            }
        };
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
            self.health.poison(error.clone());
            return Err(error);
        }
        Ok(Arc::new(Segment {
            id,
            size,
            unit: header.unit,
            file,
        }))
    }

    fn take_spare(&self, size: u64, path: &Path) -> Result<Option<Arc<dyn LogFile>>> {
        if size != self.size {
            return Ok(None);
        }
        let Some(spare) = self.spare.lock().pop() else {
            return Ok(None);
        };
        self.env.rename(&self.path(spare), path)?;
        self.recycled.fetch_add(1, Ordering::Relaxed);
        self.env.open_log(path, false, self.direct).map(Some)
    }

    /// Keeps the files of released segments (id, size) for recycling, or removes them.
    pub(super) fn release(&self, released: impl Iterator<Item = (SegmentId, u64)>) -> Result<()> {
        for (id, size) in released {
            // With a second name it belongs to a checkpoint, too: it must not be written again.
            if size == self.size && self.env.links(&self.path(id)).is_ok_and(|n| n == 1) {
                let mut spare = self.spare.lock();
                if spare.len() < self.spare_max {
                    spare.push(id);
                    continue;
                }
            }
            match self.env.remove(&self.path(id)) {
                Err(error) if error.kind() != &ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn path(&self, id: SegmentId) -> PathBuf {
        self.dir.join(segment_name(id))
    }
}

#[cfg(test)]
mod tests;
