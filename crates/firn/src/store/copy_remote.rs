//! Copies files of the object store to the local disk.

use super::{FileKind, FileStore, RemoteSst, file_name};
use crate::base::{Error, ErrorKind, Result};
use crate::env::{AppendFile, DiskRoom, ReadClass};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::Xxh3;

/// A file is copied in pieces of this size, bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// How often a file is read whose bytes were damaged on their way.
const TRIES: u32 = 4;

/// Bytes of a disk that files which come back, and copies of files, leave free: a twentieth, at
/// least 1 GiB, and at most a quarter.
pub fn kept_free(room: DiskRoom) -> u64 {
    (room.total / 20).max(1 << 30).min(room.total / 4)
}

/// Room that copies under way have yet to take.
#[derive(Default)]
pub(super) struct RoomClaims {
    claims: Mutex<BTreeMap<u64, RoomClaim>>,
    next: AtomicU64,
}

struct RoomClaim {
    bytes: u64,
    /// Size of the disk, which stands for the disk: two of one size count as one.
    of: u64,
}

/// Room that a copy has yet to take; given back at the end.
pub struct ClaimedRoom<'a> {
    store: &'a FileStore,
    dir: &'a Path,
    id: u64,
}

impl Drop for ClaimedRoom<'_> {
    fn drop(&mut self) {
        self.store.room_claims.claims.lock().remove(&self.id);
    }
}

impl ClaimedRoom<'_> {
    /// The copy has yet to take `bytes`. As [`FileStore::check_room`].
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn check(&self, bytes: u64, what: &str) -> Result<()> {
        self.store.check_claim(self.dir, Some(self.id), bytes, what)
    }
}

impl FileStore {
    /// Makes a durable copy of a file of the object store, and verifies it. `create` creates the
    /// copy, or empties it. Calls `before` before each piece, with its length.
    ///
    /// # Errors
    /// `Unreachable`; `Corruption` if the store has other bytes than the manifest says; those of
    /// `create`, of `before` and of writing.
    pub fn copy_remote(
        &self,
        file: &RemoteSst,
        class: ReadClass,
        create: impl Fn() -> Result<Box<dyn AppendFile>>,
        mut before: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let mut copied = self.try_copy_remote(file, class, &create, &mut before);
        for _ in 1..TRIES {
            match &copied {
                // The bytes may have been damaged on their way.
                Err(error) if error.is_corruption() => {
                    copied = self.try_copy_remote(file, class, &create, &mut before);
                }
                _ => break,
            }
        }
        copied
    }

    fn try_copy_remote(
        &self,
        file: &RemoteSst,
        class: ReadClass,
        create: &impl Fn() -> Result<Box<dyn AppendFile>>,
        before: &mut impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let from = self.open_remote(file, Arc::new(()))?;
        let mut to = create()?;
        let (mut sum, mut piece) = (Xxh3::new(), Vec::new());
        for offset in (0..file.bytes).step_by(PIECE_BYTES as usize) {
            piece.resize(PIECE_BYTES.min(file.bytes - offset) as usize, 0);
            before(piece.len() as u64)?;
            from.file().read_exact_at(class, offset, &mut piece)?;
            sum.update(&piece);
            to.append(&piece)?;
        }
        if sum.digest() != file.checksum {
            from.file().distrust();
            let name = file_name(FileKind::Sst, file.id);
            let what = "the object has another checksum than the manifest says";
            return Err(Error::corruption(name, 0, what));
        }
        to.sync()
    }

    /// Whether the data directory has a copy of a file of the object store, with all its bytes.
    pub fn has_whole(&self, file: &RemoteSst) -> bool {
        self.local_checksum(file)
            .is_ok_and(|sum| sum == Some(file.checksum))
    }

    /// The checksum of a local file, if it has the right size.
    fn local_checksum(&self, file: &RemoteSst) -> Result<Option<u64>> {
        let local = self.open(file.id)?;
        if local.size()? != file.bytes {
            return Ok(None);
        }
        let (mut sum, mut piece) = (Xxh3::new(), Vec::new());
        for offset in (0..file.bytes).step_by(PIECE_BYTES as usize) {
            piece.resize(PIECE_BYTES.min(file.bytes - offset) as usize, 0);
            local.read_exact_at(ReadClass::Verify, offset, &mut piece)?;
            sum.update(&piece);
        }
        Ok(Some(sum.digest()))
    }

    /// Refuses `bytes` that would take room from everything else on the disk of `dir`: a full disk
    /// stops all writes. `what` begins the error.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn check_room(&self, dir: &Path, bytes: u64, what: &str) -> Result<()> {
        self.check_claim(dir, None, bytes, what)
    }

    /// Begins a copy into `dir` that takes its time. What it says to take with
    /// [`ClaimedRoom::check`] is there for nobody else whom [`Self::check_room`] asks.
    pub fn claim_room<'a>(&'a self, dir: &'a Path) -> ClaimedRoom<'a> {
        let id = self.room_claims.next.fetch_add(1, Ordering::Relaxed);
        ClaimedRoom {
            store: self,
            dir,
            id,
        }
    }

    fn check_claim(&self, dir: &Path, own: Option<u64>, bytes: u64, what: &str) -> Result<()> {
        // Without an answer, the disk may have room.
        let Ok(Some(room)) = self.env().disk_room(dir) else {
            return Ok(());
        };
        let kept = kept_free(room);
        let mut claims = self.room_claims.claims.lock();
        if let Some(id) = own {
            let of = room.total;
            claims.insert(id, RoomClaim { bytes, of });
        }
        let others = claims.iter().filter(|(id, _)| Some(**id) != own);
        let others = others.filter(|(_, claim)| claim.of == room.total);
        let claimed: u64 = others.map(|(_, claim)| claim.bytes).sum();
        if room.free >= bytes.saturating_add(kept).saturating_add(claimed) {
            return Ok(());
        }
        let what = format!(
            "{what}: of {} MiB that are free on the disk, {} MiB stay free, and copies under way take {} MiB",
            room.free >> 20,
            kept >> 20,
            claimed >> 20
        );
        Err(Error::new(ErrorKind::NoSpace, what))
    }
}
