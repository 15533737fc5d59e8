//! The files of a `MemEnv`.

use super::super::{AlignedBuf, AppendFile, BLOCK, LogFile, ReadClass, ReadFile, SpanFile};
use super::disk::Inode;
use super::{MemEnv, died};
use crate::base::{Error, Result};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) struct MemAppend {
    env: MemEnv,
    path: PathBuf,
    inode: Arc<Mutex<Inode>>,
    len: u64,
}

impl MemAppend {
    pub(super) fn new(env: MemEnv, path: &Path, inode: Arc<Mutex<Inode>>) -> Self {
        Self {
            env,
            path: path.to_owned(),
            inode,
            len: 0,
        }
    }
}

impl AppendFile for MemAppend {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        // Hold the lock of the environment during the whole change, so that a crash on another
        // thread comes either before or after it.
        let mut state = self.env.state();
        state.alive("write", &self.path)?;
        let end = self.len as usize + bytes.len();
        state.grow(&self.inode, end, "write", &self.path)?;
        self.inode.lock().write(self.len as usize, bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        sync(&self.env, &self.path, &self.inode)
    }

    fn allocate(&mut self, bytes: u64) -> Result<bool> {
        let mut state = self.env.state();
        state.alive("set room aside for", &self.path)?;
        let end = (self.len + bytes) as usize;
        state.grow(&self.inode, end, "set room aside for", &self.path)?;
        self.inode.lock().allocate(end);
        Ok(true)
    }

    fn len(&self) -> u64 {
        self.len
    }
}

pub(super) struct MemRead {
    env: MemEnv,
    path: PathBuf,
    inode: Arc<Mutex<Inode>>,
}

impl MemRead {
    pub(super) fn new(env: &MemEnv, path: &Path, inode: Arc<Mutex<Inode>>) -> Self {
        Self {
            env: env.clone(),
            path: path.to_owned(),
            inode,
        }
    }
}

impl ReadFile for MemRead {
    fn read_exact_at(&self, _: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.env.on_read();
        let inode = self.inode.lock();
        let from = usize::try_from(offset).ok();
        let bytes = from.and_then(|from| inode.live.get(from..)?.get(..buf.len()));
        let bytes = bytes.ok_or_else(|| {
            let error = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            Error::io(
                &error,
                format_args!("read {} at {offset}", self.path.display()),
            )
        })?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        Ok(self.inode.lock().live.len() as u64)
    }
}

pub(super) struct MemLog {
    env: MemEnv,
    path: PathBuf,
    inode: Arc<Mutex<Inode>>,
    unit: usize,
}

impl MemLog {
    pub(super) fn new(env: MemEnv, path: &Path, inode: Arc<Mutex<Inode>>, unit: usize) -> Self {
        Self {
            env,
            path: path.to_owned(),
            inode,
            unit,
        }
    }

    /// Panics if `offset` is not aligned for direct I/O, or if the page cache may later overwrite
    /// the block around it with older bytes.
    fn check_direct(&self, inode: &Inode, offset: u64) {
        assert!(
            offset.is_multiple_of(self.unit as u64),
            "direct I/O at offset {offset}"
        );
        let block = offset as usize / BLOCK * BLOCK;
        let shared = !offset.is_multiple_of(BLOCK as u64) && inode.is_pending(block..block + BLOCK);
        assert!(!shared, "direct I/O at offset {offset} in a cached block");
    }

    /// Panics unless the write is in whole blocks, as the page cache writes.
    fn check_cached(offset: u64, bytes: &[u8]) {
        assert!(
            offset.is_multiple_of(BLOCK as u64) && bytes.len().is_multiple_of(BLOCK),
            "{} bytes through the page cache at offset {offset}",
            bytes.len()
        );
    }

    /// Writes durably. If the environment dies at this sync point, any part of the write may
    /// survive.
    fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.env.state();
        state.alive("write", &self.path)?;
        let end = offset as usize + bytes.len();
        state.grow(&self.inode, end, "write", &self.path)?;
        let mut inode = self.inode.lock();
        self.check_direct(&inode, offset);
        if !state.sync_point() {
            inode.write(offset as usize, bytes);
            return Err(died("write", &self.path));
        }
        inode.write_durable(offset as usize, bytes);
        Ok(())
    }
}

impl LogFile for MemLog {
    fn unit(&self) -> usize {
        self.unit
    }

    fn preallocate(&self, len: u64) -> Result<()> {
        self.write_durable(0, &vec![0; len as usize])
    }

    /// Keeps the bytes that the file has, as `fallocate` does.
    fn reserve(&self, len: u64) -> Result<()> {
        let mut state = self.env.state();
        state.alive("reserve", &self.path)?;
        state.grow(&self.inode, len as usize, "reserve", &self.path)?;
        let mut inode = self.inode.lock();
        let had = inode.live.len();
        if had < len as usize {
            inode.write(had, &vec![0; len as usize - had]);
        }
        if !state.sync_point() {
            return Err(died("reserve", &self.path));
        }
        inode.sync();
        Ok(())
    }

    fn write_durable_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()> {
        self.write_durable(offset, blocks.padded_to(self.unit))
    }

    fn write_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()> {
        let bytes = blocks.padded_to(self.unit);
        Self::check_cached(offset, bytes);
        write_cached(&self.env, &self.path, &self.inode, offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        sync(&self.env, &self.path, &self.inode)
    }
}

/// Writes into the page cache.
fn write_cached(
    env: &MemEnv,
    path: &Path,
    inode: &Mutex<Inode>,
    offset: u64,
    bytes: &[u8],
) -> Result<()> {
    let mut state = env.state();
    state.alive("write", path)?;
    let end = offset as usize + bytes.len();
    state.grow(inode, end, "write", path)?;
    inode.lock().write(offset as usize, bytes);
    Ok(())
}

/// Makes all writes to the file durable, unless the environment dies at this sync point.
fn sync(env: &MemEnv, path: &Path, inode: &Mutex<Inode>) -> Result<()> {
    let mut state = env.state();
    state.alive("sync", path)?;
    if !state.sync_point() {
        return Err(died("sync", path));
    }
    inode.lock().sync();
    Ok(())
}

pub(super) struct MemSpans {
    env: MemEnv,
    path: PathBuf,
    inode: Arc<Mutex<Inode>>,
    punches: bool,
}

impl MemSpans {
    pub(super) fn new(env: MemEnv, path: &Path, inode: Arc<Mutex<Inode>>, punches: bool) -> Self {
        Self {
            env,
            path: path.to_owned(),
            inode,
            punches,
        }
    }
}

impl SpanFile for MemSpans {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_cached(&self.env, &self.path, &self.inode, offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        sync(&self.env, &self.path, &self.inode)
    }

    /// Writes zeros to the range. Until the next sync, a power cut may bring back the old bytes.
    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        let state = self.env.state();
        state.alive("punch", &self.path)?;
        let block = BLOCK as u64;
        assert!(
            offset.is_multiple_of(block) && len.is_multiple_of(block) && len > 0,
            "a hole of {len} bytes at offset {offset}"
        );
        if !self.punches {
            return Ok(false);
        }
        let mut inode = self.inode.lock();
        let from = (offset as usize).min(inode.live.len());
        let to = ((offset + len) as usize).min(inode.live.len());
        if from < to {
            inode.write(from, &vec![0; to - from]);
        }
        Ok(true)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let state = self.env.state();
        state.alive("truncate", &self.path)?;
        self.inode.lock().set_len(len as usize);
        Ok(())
    }
}
