//! Span files of the operating system.
#![allow(clippy::disallowed_methods)] // As in `posix`.

use super::{FileUsage, SpanFile};
use crate::base::{Error, Result};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Unit of `st_blocks`, bytes.
pub(super) const STAT_BLOCK: u64 = 512;

pub(super) struct PosixSpans {
    file: File,
    name: String,
}

impl PosixSpans {
    pub(super) fn open(path: &Path, create: bool) -> Result<Self> {
        let base = OFlags::RDWR | OFlags::CLOEXEC;
        let flags = match create {
            true => base | OFlags::CREATE | OFlags::TRUNC,
            false => base,
        };
        let name = path.display().to_string();
        match rustix::fs::open(path, flags, Mode::from_raw_mode(0o660)) {
            Ok(file) => Ok(Self {
                file: file.into(),
                name,
            }),
            Err(e) => Err(Error::open(&e.into(), format_args!("open {name}"))),
        }
    }
}

pub(super) fn usage(path: &Path) -> Result<FileUsage> {
    let metadata = std::fs::metadata(path);
    let metadata = metadata.map_err(|e| Error::io(&e, format_args!("stat {}", path.display())))?;
    Ok(FileUsage {
        len: metadata.len(),
        allocated: metadata.blocks() * STAT_BLOCK,
    })
}

impl SpanFile for PosixSpans {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|e| Error::io(&e, format_args!("write {} at {offset}", self.name)))
    }

    fn sync(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|e| Error::io(&e, format_args!("sync {}", self.name)))
    }

    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punch = || rustix::fs::fallocate(&self.file, flags, offset, len);
        match rustix::io::retry_on_intr(punch) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
            Err(e) => Err(Error::io(
                &e.into(),
                format_args!("punch {} at {offset}", self.name),
            )),
        }
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file
            .set_len(len)
            .map_err(|e| Error::io(&e, format_args!("truncate {} to {len}", self.name)))
    }
}
