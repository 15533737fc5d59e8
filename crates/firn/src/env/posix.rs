//! The environment of the operating system.
#![allow(clippy::disallowed_methods)] // The one place that may call them.

use super::direct::DirectRead;
use super::prefetch::{PrefetchBatch, Prefetcher};
use super::span_file::{self, PosixSpans};
use super::{
    AlignedBuf, AppendFile, BLOCK, DiskRoom, Env, FileUsage, LogFile, PrefetchMethod,
    PrefetchStats, ReadClass, ReadFile, SECTOR, SpanFile,
};
use crate::base::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, StatxFlags, statx};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Files of the operating system.
pub struct PosixEnv {
    start: Instant,
    ring: bool,
    /// Created when the first file is opened for direct reads.
    prefetched: OnceLock<Arc<Prefetcher>>,
    /// Directories that [`Env::keep_dir_open`] has opened, by their paths.
    dirs: Mutex<Vec<(PathBuf, Arc<File>)>>,
}

impl PosixEnv {
    /// The environment of this process.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            ring: true,
            prefetched: OnceLock::new(),
            dirs: Mutex::default(),
        }
    }

    /// The environment of this process, without `io_uring`: it behaves as on a kernel that has
    /// none.
    pub fn without_ring() -> Self {
        Self {
            ring: false,
            ..Self::new()
        }
    }

    fn prefetched(&self) -> &Arc<Prefetcher> {
        self.prefetched.get_or_init(|| Prefetcher::new(self.ring))
    }

    /// The handle that [`Env::keep_dir_open`] keeps for `path`. `None` if there is none, or if
    /// `path` names another directory by now.
    fn kept_dir(&self, path: &Path) -> Option<Arc<File>> {
        let dirs = self.dirs.lock();
        let (_, dir) = dirs.iter().find(|(kept, _)| kept == path)?;
        let (named, kept) = (fs::metadata(path).ok()?, dir.metadata().ok()?);
        let same = (named.dev(), named.ino()) == (kept.dev(), kept.ino());
        same.then(|| Arc::clone(dir))
    }
}

impl Default for PosixEnv {
    fn default() -> Self {
        Self::new()
    }
}

/// The number of descriptors that the process may have.
pub fn descriptor_limit() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

fn at<T>(path: &Path, what: &str, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|e| Error::io(&e, format_args!("{what} {}", path.display())))
}

/// As [`at`], for a call that opens a file.
fn opened<T>(path: &Path, what: &str, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|e| Error::open(&e, format_args!("{what} {}", path.display())))
}

impl Env for PosixEnv {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        at(path, "create directory", fs::create_dir_all(path))
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in opened(path, "list", fs::read_dir(path))? {
            names.push(
                at(path, "list", entry)?
                    .file_name()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
        Ok(names)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let dir = match self.kept_dir(path) {
            Some(dir) => dir,
            None => Arc::new(opened(path, "open directory", File::open(path))?),
        };
        at(path, "sync directory", dir.sync_all())
    }

    fn keep_dir_open(&self, path: &Path) -> Result<()> {
        let dir = opened(path, "open directory", File::open(path))?;
        let mut dirs = self.dirs.lock();
        dirs.retain(|(kept, _)| kept != path);
        dirs.push((path.to_owned(), Arc::new(dir)));
        Ok(())
    }

    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>> {
        let file = opened(path, "create", File::create(path))?;
        Ok(Box::new(PosixAppend::new(file, path)))
    }

    fn allocate(&self, path: &Path, bytes: u64) -> Result<bool> {
        let mut options = File::options();
        options.read(true).write(true);
        let (file, is_new) = match options.open(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let made = options.create_new(true).open(path);
                (opened(path, "create", made)?, true)
            }
            found => (opened(path, "open", found)?, false),
        };
        let taken = |file: &File| file.metadata().map_or(0, |m| m.blocks());
        let before = taken(&file);
        let can = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, bytes, path);
        if is_new && !matches!(can, Ok(true)) {
            // Remove the file that this call has created. Ignore an error of the removal, since an
            // empty file does no harm.
            let _ = fs::remove_file(path);
        } else if taken(&file) != before {
            at(path, "sync", file.sync_all())?;
        }
        can
    }

    fn create_from_allocated(&self, aside: &Path, path: &Path) -> Result<Box<dyn AppendFile>> {
        let file = opened(aside, "open", File::options().write(true).open(aside))?;
        // The file may have content, see [`Env::create_from_allocated`]. Emptying it frees its
        // space, so reserve the space again at once. If another file takes the space in between,
        // later writes may find the disk full.
        let before = at(aside, "stat", file.metadata())?;
        if before.len() > 0 {
            at(aside, "truncate", file.set_len(0))?;
            let bytes = before.blocks() * span_file::STAT_BLOCK;
            let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, bytes, aside);
        }
        at(aside, "rename", fs::rename(aside, path))?;
        Ok(Box::new(PosixAppend::new(file, path)))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let file = opened(path, "open", File::open(path))?;
        Ok(Arc::new(PosixRead {
            file: Arc::new(file),
            name: path.display().to_string(),
        }))
    }

    fn open_direct(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => Ok(Arc::new(DirectRead::new(
                file.into(),
                path,
                self.prefetched(),
            ))),
            // Some file systems (tmpfs before Linux 6.6) refuse direct I/O: read through the page
            // cache.
            Err(rustix::io::Errno::INVAL) => self.open(path),
            Err(e) => {
                let what = format_args!("open {}", path.display());
                Err(Error::open(&e.into(), what))
            }
        }
    }

    fn prefetch_method(&self) -> (PrefetchMethod, PrefetchStats) {
        let prefetched = self.prefetched();
        (prefetched.way(), prefetched.stats())
    }

    fn open_log(&self, path: &Path, create: bool, direct: bool) -> Result<Arc<dyn LogFile>> {
        let base = OFlags::RDWR | OFlags::CLOEXEC;
        let open = |flags: OFlags| {
            rustix::fs::open(path, flags, Mode::from_raw_mode(0o660)).map(File::from)
        };
        let first = if create { base | OFlags::CREATE } else { base };
        // Some file systems (tmpfs before Linux 6.6) refuse direct I/O: write through the page
        // cache.
        let (file, extra) = match direct.then(|| open(first | OFlags::DIRECT)) {
            Some(Ok(file)) => (file, OFlags::DIRECT),
            Some(Err(rustix::io::Errno::INVAL)) | None => (
                opened(path, "open", open(first).map_err(Into::into))?,
                OFlags::empty(),
            ),
            Some(Err(e)) => {
                return Err(Error::open(
                    &e.into(),
                    format_args!("open {}", path.display()),
                ));
            }
        };
        let durable = opened(
            path,
            "open",
            open(base | extra | OFlags::DSYNC).map_err(Into::into),
        )?;
        let cached = match extra.is_empty() {
            true => None,
            false => Some(opened(path, "open", open(base).map_err(Into::into))?),
        };
        let unit = match extra.is_empty() {
            true => BLOCK,
            false => direct_unit(&file),
        };
        Ok(Arc::new(PosixLog {
            file,
            unit,
            durable,
            cached,
            name: path.display().to_string(),
        }))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let linked = fs::hard_link(from, to);
        linked.map_err(|e| {
            let what = format!("link {} to {}", from.display(), to.display());
            let cannot = matches!(
                e.raw_os_error().map(rustix::io::Errno::from_raw_os_error),
                Some(
                    rustix::io::Errno::XDEV
                        | rustix::io::Errno::PERM
                        | rustix::io::Errno::MLINK
                        | rustix::io::Errno::OPNOTSUPP
                )
            );
            match e.kind() {
                _ if cannot => Error::unsupported(format_args!("{what}: {e}")),
                std::io::ErrorKind::AlreadyExists => {
                    Error::new(ErrorKind::AlreadyExists, format!("{what}: {e}"))
                }
                _ => Error::io(&e, what),
            }
        })
    }

    fn links(&self, path: &Path) -> Result<u64> {
        Ok(at(path, "look up", fs::metadata(path))?.nlink())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        at(path, "remove", fs::remove_dir(path))
    }

    fn open_spans(&self, path: &Path, create: bool) -> Result<Arc<dyn SpanFile>> {
        Ok(Arc::new(PosixSpans::open(path, create)?))
    }

    fn usage(&self, path: &Path) -> Result<FileUsage> {
        span_file::usage(path)
    }

    fn disk_room(&self, path: &Path) -> Result<Option<DiskRoom>> {
        let room = rustix::fs::statvfs(path).map_err(std::io::Error::from);
        let room = at(path, "ask for the room of", room)?;
        Ok(Some(DiskRoom {
            free: room.f_bavail.saturating_mul(room.f_frsize),
            total: room.f_blocks.saturating_mul(room.f_frsize),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        at(from, "rename", fs::rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        at(path, "remove", fs::remove_file(path))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        at(path, "look up", path.try_exists())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        let file = opened(
            path,
            "open",
            File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(path),
        )?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Box::new(file)),
            Err(rustix::io::Errno::AGAIN) => Err(Error::new(
                ErrorKind::Busy,
                format!("{} is locked by another process", path.display()),
            )),
            Err(e) => Err(Error::io(
                &e.into(),
                format_args!("lock {}", path.display()),
            )),
        }
    }

    fn wall_micros(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_micros() as u64)
    }

    fn monotonic_micros(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn random(&self, bytes: &mut [u8]) -> Result<()> {
        let drawn = File::open(RANDOM).and_then(|mut source| source.read_exact(bytes));
        drawn.map_err(|e| Error::io(&e, format_args!("read {RANDOM}")))
    }
}

/// The kernel's source of random bytes.
const RANDOM: &str = "/dev/urandom";

const APPEND_BUFFER: usize = 256 << 10;

struct PosixAppend {
    file: File,
    name: String,
    buf: Vec<u8>,
    len: u64,
}

/// Allocates disk space; returns whether the file system supports it.
fn fallocate(
    file: &File,
    flags: FallocateFlags,
    offset: u64,
    len: u64,
    path: &Path,
) -> Result<bool> {
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, len)) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
        done => at(path, "set room aside for", done.map_err(Into::into)).map(|()| true),
    }
}

impl PosixAppend {
    /// The file must be empty.
    fn new(file: File, path: &Path) -> Self {
        Self {
            file,
            name: path.display().to_string(),
            buf: Vec::new(),
            len: 0,
        }
    }

    fn write_out(&mut self) -> Result<()> {
        let written = self.file.write_all(&self.buf);
        self.buf.clear();
        written.map_err(|e| Error::io(&e, format_args!("write {}", self.name)))
    }
}

impl AppendFile for PosixAppend {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.buf.extend_from_slice(bytes);
        self.len += bytes.len() as u64;
        if self.buf.len() >= APPEND_BUFFER {
            self.write_out()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.write_out()
    }

    fn sync(&mut self) -> Result<()> {
        self.write_out()?;
        self.file
            .sync_data()
            .map_err(|e| Error::io(&e, format_args!("sync {}", self.name)))
    }

    fn allocate(&mut self, bytes: u64) -> Result<bool> {
        let buffered = self.buf.len() as u64;
        let (offset, len) = (self.len - buffered, buffered + bytes);
        let path = Path::new(&self.name);
        fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len, path)
    }

    fn len(&self) -> u64 {
        self.len
    }
}

struct PosixRead {
    file: Arc<File>,
    name: String,
}

impl ReadFile for PosixRead {
    fn read_exact_at(&self, _: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(buf, offset)
            .map_err(|e| Error::io(&e, format_args!("read {} at {offset}", self.name)))
    }

    fn prefetch(&self, offset: u64, len: u64, reads: &mut PrefetchBatch) {
        reads.push_cached(&self.file, offset, len);
    }

    fn size(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        metadata
            .map(|m| m.len())
            .map_err(|e| Error::io(&e, format_args!("stat {}", self.name)))
    }
}

/// The unit of direct writes to this file, bytes. It is no smaller than the block that the device
/// writes as a whole: a disk that accepts 512 bytes may rewrite 4096 for them, and a power cut
/// could then damage the bytes beside the write. [`BLOCK`] if the system does not report the
/// alignment.
fn direct_unit(file: &File) -> usize {
    let answer = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let align = answer.map_or(0, |known| known.stx_dio_offset_align as usize);
    unit_of(align, physical_block(file))
}

/// The unit of direct writes, if they must be aligned to `align` bytes (0: unknown) and the device
/// writes `physical` bytes at once (`None`: unknown).
fn unit_of(align: usize, physical: Option<usize>) -> usize {
    match physical {
        Some(physical) if align > 0 && SECTOR.is_multiple_of(align) => {
            physical.clamp(SECTOR, BLOCK)
        }
        _ => BLOCK,
    }
}

/// Physical block size of the device below a file, bytes; a power of two.
fn physical_block(file: &File) -> Option<usize> {
    let device = rustix::fs::fstat(file).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let sys = format!("/sys/dev/block/{major}:{minor}");
    // In `/sys`, only a disk has a directory `queue`. For a partition, look into the parent
    // directory, which is that of the disk.
    let queue = [format!("{sys}/queue"), format!("{sys}/../queue")];
    let answer = queue
        .iter()
        .find_map(|queue| fs::read_to_string(format!("{queue}/physical_block_size")).ok())?;
    let bytes: usize = answer.trim().parse().ok()?;
    bytes.is_power_of_two().then_some(bytes)
}

struct PosixLog {
    file: File,
    unit: usize,
    durable: File,
    /// A third descriptor, which uses the page cache, if the other two bypass it. Writes that need
    /// no sync of their own go through this one: the log may rewrite the same block several times
    /// before the next sync, and the device then writes it only once.
    cached: Option<File>,
    name: String,
}

impl PosixLog {
    fn write(&self, file: &File, offset: u64, blocks: &AlignedBuf) -> Result<()> {
        file.write_all_at(blocks.padded_to(self.unit), offset)
            .map_err(|e| Error::io(&e, format_args!("write {} at {offset}", self.name)))
    }
}

impl LogFile for PosixLog {
    fn unit(&self) -> usize {
        self.unit
    }

    fn preallocate(&self, len: u64) -> Result<()> {
        const CHUNK: usize = 1 << 20;
        // Allocate before writing zeros: a full disk refuses an allocation at once, but writing
        // zeros would first use up what is left of the disk.
        let path = Path::new(&self.name);
        fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, len, path)?;
        let mut zeros = AlignedBuf::new();
        let mut offset = 0;
        while offset < len {
            let n = CHUNK.min((len - offset) as usize);
            if zeros.len() != n {
                zeros.clear();
                zeros.extend_from_slice(&vec![0; n]);
            }
            self.write(&self.file, offset, &zeros)?;
            offset += n as u64;
        }
        self.file
            .sync_all()
            .map_err(|e| Error::io(&e, format_args!("sync {}", self.name)))
    }

    fn reserve(&self, len: u64) -> Result<()> {
        let path = Path::new(&self.name);
        // Write zeros if the file system does not support allocation.
        if !fallocate(&self.file, FallocateFlags::empty(), 0, len, path)? {
            return self.preallocate(len);
        }
        at(path, "sync", self.file.sync_all())
    }

    fn write_durable_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()> {
        self.write(&self.durable, offset, blocks)
    }

    fn write_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()> {
        self.write(self.cached.as_ref().unwrap_or(&self.file), offset, blocks)
    }

    fn sync(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|e| Error::io(&e, format_args!("sync {}", self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_unit_is_never_less_than_the_device_writes_as_one() {
        assert_eq!(unit_of(512, Some(512)), 512);
        assert_eq!(unit_of(4, Some(1024)), 1024);
        // Some disks accept writes of 512 bytes, but always write a whole block or flash page.
        // Groups of the log are then aligned to whole blocks.
        assert_eq!(unit_of(512, Some(4096)), BLOCK);
        assert_eq!(unit_of(512, Some(16384)), BLOCK);
        // Unknown values.
        assert_eq!(unit_of(512, None), BLOCK);
        assert_eq!(unit_of(0, Some(512)), BLOCK);
        assert_eq!(unit_of(4096, Some(512)), BLOCK);
    }
}
