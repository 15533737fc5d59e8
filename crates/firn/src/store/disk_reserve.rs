//! Disk space reserved for recovering from a full disk.
//!
//! Each part of the reserve is a file with allocated blocks. To use a part, a writer renames this
//! file to the name of the file that it is about to write. So no block returns to the file system
//! in between, where another program could take it, and neither the rename nor the write needs a
//! new block. A used part is allocated again as soon as the disk has room.
//!
//! Rejected: a file that is removed to make room (the program that fills the disk takes that room,
//! too); a part of a file that is used in place (an SST, a manifest and a log segment each need a
//! name of their own).

use crate::base::{ErrorKind, Result};
use crate::env::{AppendFile, Env};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A part of the reserve, by its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservePart {
    /// A log segment for deletions, `DROP` and `TRUNCATE`, and outcomes of prepared transactions.
    Log = 0,
    /// The next manifest.
    Manifest = 1,
    /// The next `CURRENT`, which names that manifest.
    Current = 2,
    /// An SST for a flush of deletions.
    Table = 3,
}

/// All parts.
const RESERVE_PARTS: [ReservePart; 4] = [
    ReservePart::Log,
    ReservePart::Manifest,
    ReservePart::Current,
    ReservePart::Table,
];

impl ReservePart {
    /// Name of the part's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "wal.reserve",
            Self::Manifest => "manifest.reserve",
            Self::Current => "current.reserve",
            Self::Table => "table.reserve",
        }
    }

    /// Least size, bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Log => 1 << 20,
            Self::Manifest => 256 << 10,
            Self::Current => 4 << 10,
            Self::Table => 2 << 20,
        }
    }
}

/// The reserve of a database.
pub struct DiskReserve {
    env: Arc<dyn Env>,
    dir: PathBuf,
    /// Target size of each part, bytes; 0 if the file system cannot set blocks aside.
    target_bytes: [AtomicU64; RESERVE_PARTS.len()],
    /// Current size of each part, bytes.
    current_bytes: [AtomicU64; RESERVE_PARTS.len()],
    /// One mutex for each part. A thread holds it while it creates the part's file, or renames a
    /// file from or to the part's name, and until `current_bytes` has the new size.
    file_locks: [Mutex<()>; RESERVE_PARTS.len()],
}

impl DiskReserve {
    /// The disk reserve in `dir`. It counts as empty until it is [filled](Self::fill).
    pub fn new(env: Arc<dyn Env>, dir: &Path) -> Self {
        Self {
            env,
            dir: dir.to_owned(),
            target_bytes: RESERVE_PARTS.map(|part| AtomicU64::new(part.bytes())),
            current_bytes: RESERVE_PARTS.map(|_| AtomicU64::new(0)),
            file_locks: RESERVE_PARTS.map(|_| Mutex::new(())),
        }
    }

    /// Path of a part.
    pub fn path(&self, part: ReservePart) -> PathBuf {
        self.dir.join(part.name())
    }

    /// Raises the target size of `part` to at least `bytes`.
    pub fn raise_target(&self, part: ReservePart, bytes: u64) {
        self.target_bytes[part as usize].fetch_max(bytes, Ordering::Relaxed);
    }

    /// Sets aside the missing parts. Parts for which the disk has no room stay missing; the next
    /// call retries.
    ///
    /// # Errors
    /// `Io`; a full disk is no error.
    pub fn fill(&self) -> Result<()> {
        for part in RESERVE_PARTS {
            self.fill_part(part)?;
        }
        Ok(())
    }

    /// Whether no part is missing or too small.
    pub fn is_filled(&self) -> bool {
        let sizes = self.current_bytes.iter().zip(&self.target_bytes);
        let mut sizes = sizes.map(|(c, t)| (c.load(Ordering::Relaxed), t.load(Ordering::Relaxed)));
        sizes.all(|(current, target)| current >= target)
    }

    /// As [`Self::fill`], for one part.
    ///
    /// # Errors
    /// Those of [`Self::fill`].
    pub fn fill_part(&self, part: ReservePart) -> Result<()> {
        let _file_lock = self.file_locks[part as usize].lock();
        let (target, current) = (
            &self.target_bytes[part as usize],
            &self.current_bytes[part as usize],
        );
        let bytes = target.load(Ordering::Relaxed);
        if current.load(Ordering::Relaxed) >= bytes {
            return Ok(());
        }
        match self.env.allocate(&self.path(part), bytes) {
            Ok(true) => current.store(bytes, Ordering::Relaxed),
            Ok(false) => target.store(0, Ordering::Relaxed),
            Err(error) if *error.kind() == ErrorKind::NoSpace => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Creates the file `path` for appending, in the disk space of `part`. If the part is missing,
    /// creates an ordinary file.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn create(&self, part: ReservePart, path: &Path) -> Result<Box<dyn AppendFile>> {
        let made = {
            let _file_lock = self.file_locks[part as usize].lock();
            let aside = self.path(part);
            // The caller of `keep_replaced` links the file that is in use to `aside`, then replaces
            // it by a rename. After a crash between the two steps, `aside` is a second name of the
            // file in use, whose bytes must stay. So remove this name and do not write to the file.
            if part == ReservePart::Current && self.env.links(&aside).is_ok_and(|names| names > 1) {
                self.env.remove(&aside)?;
            }
            let made = self.env.create_from_allocated(&aside, path);
            self.set_current_bytes(part, 0);
            made
        };
        match made {
            Err(error) if *error.kind() == ErrorKind::NotFound => self.env.create(path),
            made => made,
        }
    }

    /// Renames the file of a part to `path`. Returns false if the part has no file, for example
    /// because somebody has removed it.
    ///
    /// # Errors
    /// Those of the rename, except `NotFound`.
    pub fn take(&self, part: ReservePart, path: &Path) -> Result<bool> {
        let _file_lock = self.file_locks[part as usize].lock();
        let renamed = self.env.rename(&self.path(part), path);
        match &renamed {
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            Err(_) => return renamed.map(|()| false),
            Ok(()) => {}
        }
        self.set_current_bytes(part, 0);
        Ok(renamed.is_ok())
    }

    /// Takes the file at `path`, which nothing needs any more, as the file of `part`, so that its
    /// disk space becomes part of the reserve. Does nothing if `part` has a file already. Returns
    /// whether the reserve has taken the file; otherwise the caller removes it.
    pub fn inherit(&self, part: ReservePart, path: &Path) -> bool {
        let missing = self.len_of(part).is_ok_and(|len| len.is_none());
        let bytes = self.env.usage(path).map_or(0, |usage| usage.allocated);
        missing && bytes > 0 && self.give_back(part, path, bytes).is_ok()
    }

    /// Keeps the disk space of the file at `path`, which the caller is about to replace by a
    /// rename: links the file to the name that `part` has in the reserve, unless `part` has a file
    /// already. The caller must call [`Self::replaced`] after the rename. Until then nobody may
    /// write to the file under either name. Returns whether the file got the second name.
    pub fn keep_replaced(&self, part: ReservePart, path: &Path) -> bool {
        let _file_lock = self.file_locks[part as usize].lock();
        self.env.link(path, &self.path(part)).is_ok()
    }

    /// Records how much disk space the part has now that [`Self::keep_replaced`] has given it a
    /// file. Must be called after the rename that took the old name from that file: before it, the
    /// file still belonged to its old owner as well.
    pub fn replaced(&self, part: ReservePart) {
        let bytes = self.env.usage(&self.path(part));
        self.set_current_bytes(part, bytes.map_or(0, |usage| usage.allocated));
    }

    /// Gives the file at `path`, which takes `bytes` on the disk, to the disk reserve: renames it
    /// to the name of `part`.
    ///
    /// # Errors
    /// Those of the rename.
    pub fn give_back(&self, part: ReservePart, path: &Path, bytes: u64) -> Result<()> {
        let _file_lock = self.file_locks[part as usize].lock();
        self.env.rename(path, &self.path(part))?;
        self.set_current_bytes(part, bytes);
        Ok(())
    }

    fn set_current_bytes(&self, part: ReservePart, bytes: u64) {
        self.current_bytes[part as usize].store(bytes, Ordering::Relaxed);
    }

    /// Whether a part can be used: its file has at least [`ReservePart::bytes`].
    pub fn has(&self, part: ReservePart) -> bool {
        let current = self.current_bytes[part as usize].load(Ordering::Relaxed);
        current > 0 && current >= part.bytes()
    }

    /// The length of the file of a part, if it is there.
    ///
    /// # Errors
    /// `Io`.
    pub fn len_of(&self, part: ReservePart) -> Result<Option<u64>> {
        match self.env.usage(&self.path(part)) {
            Ok(usage) => Ok(Some(usage.len)),
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                self.set_current_bytes(part, 0);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Bytes set aside, and the target for them.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |all: &[AtomicU64]| all.iter().map(|n| n.load(Ordering::Relaxed)).sum();
        (sum(&self.current_bytes), sum(&self.target_bytes))
    }
}

#[cfg(test)]
mod tests;
