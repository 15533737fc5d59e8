//! Files of the engine's environment, for uploads, which only read.

use firn::env::{Env, ReadClass, ReadFile};
use firn_objects::{Entry, FileInfo, Files, LocalFile, Open};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The files of an environment. Only reading is supported.
pub struct EnvFiles(pub Arc<dyn Env>);

struct EnvFile(Arc<dyn ReadFile>);

fn of_engine(error: &firn::base::Error) -> io::Error {
    let kind = match error.kind() {
        firn::base::ErrorKind::NotFound => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Files for EnvFiles {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn LocalFile>> {
        match how {
            Open::Read => {
                let file = self.0.open(path).map_err(|error| of_engine(&error))?;
                Ok(Arc::new(EnvFile(file)))
            }
            _ => read_only(),
        }
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn link(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_directory(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn create_directory(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn list(&self, _: &Path) -> io::Result<Vec<Entry>> {
        read_only()
    }

    fn info(&self, _: &Path) -> io::Result<FileInfo> {
        read_only()
    }
}

impl LocalFile for EnvFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.len()?.saturating_sub(offset);
        let count = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self
            .0
            .read_exact_at(ReadClass::Compaction, offset, &mut into[..count]);
        read.map_err(|error| of_engine(&error))?;
        Ok(count)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        read_only()
    }

    fn sync(&self) -> io::Result<()> {
        read_only()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.size().map_err(|error| of_engine(&error))
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        read_only()
    }

    fn punch_hole(&self, _: Range<u64>) -> io::Result<()> {
        read_only()
    }

    fn data_ranges(&self) -> io::Result<Vec<Range<u64>>> {
        read_only()
    }
}
