//! An environment in memory that can lose power.
//!
//! Files and names exist twice: as running programs see them, and as the device holds them. A sync
//! copies the first to the second. [`MemEnv::crash`] returns a new environment with the device's
//! state, plus a part of the unsynced changes chosen by a seed: some writes and not others, later
//! ones without earlier ones, single sectors of a write; some names and not others.
//!
//! ```
//! # use firn::env::{Env, MemEnv};
//! # use std::path::Path;
//! let env = MemEnv::new();
//! let mut file = env.create(Path::new("/a"))?;
//! file.append(b"synced")?;
//! file.sync()?;
//! env.sync_dir(Path::new("/"))?;
//! file.append(b" lost")?;
//! assert_eq!(env.crash(0).read(Path::new("/a"))?, b"synced");
//! # Ok::<(), firn::base::Error>(())
//! ```

mod disk;
mod files;

use super::{AppendFile, BLOCK, DiskRoom, Env, FileUsage, LogFile, ReadFile, SECTOR, SpanFile};
use crate::base::checksum::xxh3;
use crate::base::{Error, ErrorKind, Result};
use disk::{Disk, Inode, Rng};
use files::{MemAppend, MemLog, MemRead, MemSpans};
use parking_lot::{Mutex, MutexGuard};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// Start of the wall clock, 2026-01-01, microseconds since 1970.
const WALL_START: u64 = 1_767_225_600_000_000;

/// An environment with its files in memory, of which a crash keeps only what was synced, and a
/// random part of the rest. Clones share the files.
///
/// Directories are durable at once; the names in them are not. The clock advances by one
/// microsecond per reading, and by [`MemEnv::advance_clock`] and [`MemEnv::set_read_us`].
#[derive(Clone, Default)]
pub struct MemEnv {
    shared: Arc<MemEnvShared>,
}

#[derive(Default)]
struct MemEnvShared {
    state: Mutex<MemEnvState>,
    clock: AtomicU64,
    /// See [`MemEnv::set_read_us`].
    read_us: AtomicU64,
    /// Number of random numbers drawn.
    drawn: AtomicU64,
    /// Whether the write unit of logs opened for direct I/O is a sector instead of a block.
    sectors: AtomicBool,
    /// Span files cannot punch holes.
    no_punch: AtomicBool,
    /// The directory that counts as a separate file system, if there is one.
    apart: Mutex<Option<PathBuf>>,
}

#[derive(Default)]
struct MemEnvState {
    disk: Disk,
    locks: Vec<PathBuf>,
    sync_points: u64,
    crash_at: Option<u64>,
    /// Number of changes of names so far, and the one at which the environment dies.
    name_changes: u64,
    crash_at_name_change: Option<u64>,
    dead: bool,
    /// Largest number of blocks that all files together may take; `None` for no limit.
    capacity: Option<usize>,
    /// Number of calls so far that needed more disk space, whether they got it or not.
    growths: u64,
    /// A test plans with this number that the disk becomes full: it does at the call that raises
    /// `growths`, the count of calls that need more disk space, to this number. `None` if nothing
    /// is planned.
    full_at: Option<u64>,
}

impl MemEnvState {
    /// Fails if the environment is dead. Each call that changes something begins with this.
    fn alive(&self, what: &str, path: &Path) -> Result<()> {
        if self.dead {
            return Err(died(what, path));
        }
        Ok(())
    }

    /// Checks that the disk has room for `blocks` more blocks.
    fn take(&mut self, blocks: usize, what: &str, path: &Path) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        self.growths += 1;
        if self.full_at == Some(self.growths) {
            self.capacity = Some(self.disk.used_blocks());
        }
        match self.capacity {
            Some(capacity) if self.disk.used_blocks() + blocks > capacity => {
                let error = std::io::Error::from_raw_os_error(ENOSPC);
                Err(Error::io(&error, format_args!("{what} {}", path.display())))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the disk has room for the file to grow up to offset `end`, whether by a write or
    /// by a reservation of space.
    fn grow(&mut self, inode: &Mutex<Inode>, end: usize, what: &str, path: &Path) -> Result<()> {
        let blocks = inode.lock().blocks_to_reach(end);
        self.take(blocks, what, path)
    }

    /// Creates a file. A new one takes one block for itself.
    fn create(&mut self, path: &Path) -> Result<Arc<Mutex<Inode>>> {
        if self.disk.find(path).is_none() {
            self.take(1, "create", path)?;
        }
        self.name_change("create", path)?;
        let inode = self.disk.create(path);
        inode.ok_or_else(|| missing("create", path))
    }

    /// Counts a change of names. The environment dies before this change if it is the one given to
    /// [`MemEnv::crash_at_name_change`].
    fn name_change(&mut self, what: &str, path: &Path) -> Result<()> {
        self.alive(what, path)?;
        self.name_changes += 1;
        self.dead |= self.crash_at_name_change == Some(self.name_changes);
        self.alive(what, path)
    }

    /// Counts a sync point. The environment dies if this sync point is the one given to
    /// [`MemEnv::crash_at_sync`]. Returns whether it is alive.
    fn sync_point(&mut self) -> bool {
        self.sync_points += 1;
        self.dead |= self.crash_at == Some(self.sync_points);
        !self.dead
    }
}

fn died(what: &str, path: &Path) -> Error {
    let error = std::io::Error::from_raw_os_error(EIO);
    Error::io(
        &error,
        format_args!("{what} {} after the crash", path.display()),
    )
}

fn missing(what: &str, path: &Path) -> Error {
    let message = format!("{what} {}: no such file or directory", path.display());
    Error::new(ErrorKind::NotFound, message)
}

impl MemEnv {
    /// An empty environment.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of sync points so far: calls that make something durable (`sync`, `write_durable_at`,
    /// `preallocate`, `reserve`, `sync_dir`).
    pub fn sync_points(&self) -> u64 {
        self.state().sync_points
    }

    /// Lets the environment die at the begin of its `n`-th [sync point](Self::sync_points), counted
    /// from the creation of the environment. That call, and all later calls that change something,
    /// fail with an `Io` error. A following [`Self::crash`] may still keep the changes that the
    /// sync point was to make durable.
    pub fn crash_at_sync(&self, n: u64) {
        self.state().crash_at = Some(n);
    }

    /// Number of changes of names so far: files created, renamed, linked and removed.
    pub fn name_changes(&self) -> u64 {
        self.state().name_changes
    }

    /// Lets the environment die before its `n`-th [change of names](Self::name_changes), counted
    /// from the creation of the environment. That call, and all later calls that change something,
    /// fail with an `Io` error.
    pub fn crash_at_name_change(&self, n: u64) {
        self.state().crash_at_name_change = Some(n);
    }

    /// Sets whether the write unit of logs that are opened for direct I/O from now on is a sector
    /// instead of a block.
    pub fn set_log_sectors(&self, sectors: bool) {
        self.shared.sectors.store(sectors, Ordering::Relaxed);
    }

    /// Sets whether span files opened from now on can punch holes.
    pub fn set_punches(&self, punches: bool) {
        self.shared.no_punch.store(!punches, Ordering::Relaxed);
    }

    /// Makes `dir` a separate file system: links between it and the rest are refused.
    pub fn set_apart(&self, dir: &Path) {
        *self.shared.apart.lock() = Some(dir.to_owned());
    }

    /// Fills the disk: files may take no more blocks than now. Each file takes one block besides
    /// its bytes; names and directories take none, so a rename needs no space.
    pub fn fill(&self) {
        let mut state = self.state();
        state.capacity = Some(state.disk.used_blocks());
    }

    /// Fills the disk at the `n`-th call from now on that needs space; the next one is 1.
    pub fn fill_at(&self, n: u64) {
        let mut state = self.state();
        state.full_at = Some(state.growths + n);
    }

    /// Adds `bytes` of free space to a full disk, and cancels [`Self::fill_at`].
    pub fn make_room(&self, bytes: u64) {
        let mut state = self.state();
        state.full_at = None;
        state.capacity = state.capacity.map(|had| had + bytes as usize / BLOCK);
    }

    /// Removes the limit on the disk.
    pub fn unfill(&self) {
        let mut state = self.state();
        (state.full_at, state.capacity) = (None, None);
    }

    /// Whether the disk has a limit.
    pub fn is_limited(&self) -> bool {
        self.state().capacity.is_some()
    }

    /// Disk space of all files, bytes.
    pub fn used(&self) -> u64 {
        (self.state().disk.used_blocks() * BLOCK) as u64
    }

    /// Whether the environment has died.
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// The environment as it would be after a power cut at this moment. Seed 0 keeps only synced
    /// changes; other seeds choose which unsynced changes survive too. This environment dies.
    pub fn crash(&self, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        self.reboot(|disk| disk.after_power_cut(seed, &mut rng))
    }

    /// The environment as it would be after a kill of the process at this moment: all writes are
    /// there, but those that were not synced may still be lost in a later power cut. This
    /// environment dies.
    pub fn kill(&self) -> Self {
        self.reboot(|disk| disk.deep_copy())
    }

    /// A second, independent environment with a copy of the whole disk. This one lives on.
    pub fn copy(&self) -> Self {
        let copy = Self::new();
        copy.state().disk = self.state().disk.deep_copy();
        copy.state().capacity = self.state().capacity;
        let now = self.shared.clock.load(Ordering::Relaxed);
        copy.shared.clock.store(now, Ordering::Relaxed);
        let drawn = self.shared.drawn.load(Ordering::Relaxed);
        copy.shared.drawn.store(drawn, Ordering::Relaxed);
        copy.set_log_sectors(self.shared.sectors.load(Ordering::Relaxed));
        copy.shared
            .apart
            .lock()
            .clone_from(&self.shared.apart.lock());
        copy
    }

    fn reboot(&self, survives: impl FnOnce(&Disk) -> Disk) -> Self {
        let mut state = self.state();
        state.dead = true;
        let survivor = Self::new();
        survivor.state().disk = survives(&state.disk);
        survivor.state().capacity = state.capacity;
        let now = self.shared.clock.load(Ordering::Relaxed);
        survivor.shared.clock.store(now, Ordering::Relaxed);
        let drawn = self.shared.drawn.load(Ordering::Relaxed);
        survivor.shared.drawn.store(drawn, Ordering::Relaxed);
        drop(state);
        survivor.set_log_sectors(self.shared.sectors.load(Ordering::Relaxed));
        survivor.set_punches(!self.shared.no_punch.load(Ordering::Relaxed));
        survivor
            .shared
            .apart
            .lock()
            .clone_from(&self.shared.apart.lock());
        survivor
    }

    /// Lets each read of a file advance the clock by so many microseconds.
    pub fn set_read_us(&self, us: u64) {
        self.shared.read_us.store(us, Ordering::Relaxed);
    }

    fn on_read(&self) {
        self.advance_clock(self.shared.read_us.load(Ordering::Relaxed));
    }

    /// Advances the clock.
    pub fn advance_clock(&self, micros: u64) {
        self.shared.clock.fetch_add(micros, Ordering::Relaxed);
    }

    /// The content of a file.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        Ok(self.inode("read", path)?.lock().live.clone())
    }

    /// Damages a file: applies `change` to its content, durably, as bit rot or the loss of its end
    /// would.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let inode = self.inode("damage", path)?;
        let mut inode = inode.lock();
        change(&mut inode.live);
        inode.make_all_durable();
        Ok(())
    }

    /// Creates or replaces a file, durably.
    pub fn place(&self, path: &Path, content: Vec<u8>) {
        self.state().disk.place(path, Inode::durable(content));
    }

    fn state(&self) -> MutexGuard<'_, MemEnvState> {
        self.shared.state.lock()
    }

    fn inode(&self, what: &str, path: &Path) -> Result<Arc<Mutex<Inode>>> {
        let found = self.state().disk.find(path);
        found.ok_or_else(|| missing(what, path))
    }
}

impl Env for MemEnv {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        state.alive("create directory", path)?;
        state.disk.add_dirs(path);
        Ok(())
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        let names = self.state().disk.list(path);
        names.ok_or_else(|| missing("list", path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        state.alive("sync directory", path)?;
        if !state.disk.is_dir(path) {
            return Err(missing("sync directory", path));
        }
        if !state.sync_point() {
            return Err(died("sync directory", path));
        }
        state.disk.sync_dir(path);
        Ok(())
    }

    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>> {
        let mut state = self.state();
        state.alive("create", path)?;
        let inode = state.create(path)?;
        Ok(Box::new(MemAppend::new(self.clone(), path, inode)))
    }

    fn allocate(&self, path: &Path, bytes: u64) -> Result<bool> {
        let mut state = self.state();
        state.alive("set room aside for", path)?;
        let found = state.disk.find(path);
        let blocks = match &found {
            Some(inode) => inode.lock().blocks_to_reach(bytes as usize),
            None => 1 + (bytes as usize).div_ceil(BLOCK),
        };
        state.take(blocks, "set room aside for", path)?;
        let inode = match found {
            Some(inode) => inode,
            None => {
                state.name_change("set room aside for", path)?;
                let inode = state.disk.create(path);
                inode.ok_or_else(|| missing("create", path))?
            }
        };
        inode.lock().allocate(bytes as usize);
        Ok(true)
    }

    fn create_from_allocated(&self, aside: &Path, path: &Path) -> Result<Box<dyn AppendFile>> {
        let mut state = self.state();
        state.alive("rename", aside)?;
        let inode = state.disk.find(aside);
        let inode = inode.ok_or_else(|| missing("open", aside))?;
        state.name_change("rename", aside)?;
        let renamed = state.disk.rename(aside, path);
        renamed.ok_or_else(|| missing("rename", aside))?;
        if !inode.lock().live.is_empty() {
            inode.lock().set_len(0);
        }
        Ok(Box::new(MemAppend::new(self.clone(), path, inode)))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let inode = self.inode("open", path)?;
        Ok(Arc::new(MemRead::new(self, path, inode)))
    }

    fn open_log(&self, path: &Path, create: bool, direct: bool) -> Result<Arc<dyn LogFile>> {
        let mut state = self.state();
        state.alive("open", path)?;
        let inode = match state.disk.find(path) {
            None if create => Some(state.create(path)?),
            found => found,
        };
        let inode = inode.ok_or_else(|| missing("open", path))?;
        let unit = match direct && self.shared.sectors.load(Ordering::Relaxed) {
            true => SECTOR,
            false => BLOCK,
        };
        Ok(Arc::new(MemLog::new(self.clone(), path, inode, unit)))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.state();
        state.alive("link", from)?;
        let is_apart = |path: &Path| {
            let apart = self.shared.apart.lock();
            apart.as_ref().is_some_and(|dir| path.starts_with(dir))
        };
        if is_apart(from) != is_apart(to) {
            let message = format!("link {}: another file system", to.display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if state.disk.find(to).is_some() {
            let message = format!("link {}: the name is taken", to.display());
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        state.name_change("link", from)?;
        let linked = state.disk.link(from, to);
        linked.ok_or_else(|| missing("link", from))
    }

    fn links(&self, path: &Path) -> Result<u64> {
        let links = self.state().disk.links(path);
        links.ok_or_else(|| missing("look up", path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        state.alive("remove", path)?;
        let removed = state.disk.remove_dir(path);
        removed.ok_or_else(|| missing("remove empty directory", path))
    }

    fn open_spans(&self, path: &Path, create: bool) -> Result<Arc<dyn SpanFile>> {
        let mut state = self.state();
        state.alive("open", path)?;
        let inode = match create {
            true => Some(state.create(path)?),
            false => state.disk.find(path),
        };
        let inode = inode.ok_or_else(|| missing("open", path))?;
        let punches = !self.shared.no_punch.load(Ordering::Relaxed);
        Ok(Arc::new(MemSpans::new(self.clone(), path, inode, punches)))
    }

    fn usage(&self, path: &Path) -> Result<FileUsage> {
        let inode = self.inode("stat", path)?;
        let inode = inode.lock();
        let (live, aside) = (&inode.live, inode.blocks_aside());
        let used = live
            .chunks(BLOCK)
            .filter(|b| b.iter().any(|&byte| byte != 0));
        Ok(FileUsage {
            len: live.len() as u64,
            allocated: ((used.count() + aside) * BLOCK) as u64,
        })
    }

    fn disk_room(&self, _: &Path) -> Result<Option<DiskRoom>> {
        let state = self.state();
        let used = state.disk.used_blocks();
        let room = |capacity: usize| DiskRoom {
            free: (capacity.saturating_sub(used) * BLOCK) as u64,
            total: (capacity * BLOCK) as u64,
        };
        Ok(state.capacity.map(room))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.state();
        state.name_change("rename", from)?;
        let renamed = state.disk.rename(from, to);
        renamed.ok_or_else(|| missing("rename", from))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        state.name_change("remove", path)?;
        let removed = state.disk.remove(path);
        removed.ok_or_else(|| missing("remove", path))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let state = self.state();
        Ok(state.disk.find(path).is_some() || state.disk.is_dir(path))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        let mut state = self.state();
        state.alive("lock", path)?;
        if state.locks.iter().any(|held| held == path) {
            let message = format!("{} is locked by another process", path.display());
            return Err(Error::new(ErrorKind::Busy, message));
        }
        if state.disk.find(path).is_none() {
            state.create(path)?;
        }
        state.locks.push(path.to_owned());
        Ok(Box::new(LockGuard {
            env: self.clone(),
            path: path.to_owned(),
        }))
    }

    fn wall_micros(&self) -> u64 {
        WALL_START + self.monotonic_micros()
    }

    fn monotonic_micros(&self) -> u64 {
        self.shared.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn random(&self, bytes: &mut [u8]) -> Result<()> {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.shared.drawn.fetch_add(1, Ordering::Relaxed);
            let hash = xxh3(&drawn.to_le_bytes()).to_le_bytes();
            chunk.copy_from_slice(&hash[..chunk.len()]);
        }
        Ok(())
    }
}

struct LockGuard {
    env: MemEnv,
    path: PathBuf,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.env.state().locks.retain(|held| held != &self.path);
    }
}

#[cfg(test)]
mod tests;
