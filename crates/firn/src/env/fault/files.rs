//! The files of a `FaultEnv`.

use super::super::{AlignedBuf, AppendFile, BLOCK, LogFile, ReadClass, ReadFile, SpanFile};
use super::{CallClass, FaultyFile};
use crate::base::Result;
use std::sync::Arc;

pub(super) struct FaultAppend {
    handle: FaultyFile,
    file: Box<dyn AppendFile>,
}

impl FaultAppend {
    pub(super) fn new(handle: FaultyFile, file: Box<dyn AppendFile>) -> Self {
        Self { handle, file }
    }
}

impl AppendFile for FaultAppend {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.handle.pass(CallClass::Write, "write")?;
        self.file.append(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.handle.pass(CallClass::Write, "flush")?;
        self.file.flush()
    }

    fn sync(&mut self) -> Result<()> {
        self.handle.pass(CallClass::Sync, "sync")?;
        self.file.sync()
    }

    fn allocate(&mut self, bytes: u64) -> Result<bool> {
        self.handle.pass(CallClass::Create, "set room aside for")?;
        self.file.allocate(bytes)
    }

    fn len(&self) -> u64 {
        self.file.len()
    }
}

pub(super) struct FaultRead {
    handle: FaultyFile,
    file: Arc<dyn ReadFile>,
}

impl FaultRead {
    pub(super) fn new(handle: FaultyFile, file: Arc<dyn ReadFile>) -> Self {
        Self { handle, file }
    }
}

impl ReadFile for FaultRead {
    fn read_exact_at(&self, class: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.handle.pass(CallClass::Read, "read")?;
        self.handle.env.check_readable(&self.handle.path)?;
        self.file.read_exact_at(class, offset, buf)?;
        self.handle.env.flip(&self.handle.path, offset, buf);
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        self.file.size()
    }
}

pub(super) struct FaultLog {
    handle: FaultyFile,
    file: Arc<dyn LogFile>,
}

impl FaultLog {
    pub(super) fn new(handle: FaultyFile, file: Arc<dyn LogFile>) -> Self {
        Self { handle, file }
    }
}

impl LogFile for FaultLog {
    fn unit(&self) -> usize {
        self.file.unit()
    }
    fn preallocate(&self, len: u64) -> Result<()> {
        self.handle.pass(CallClass::Write, "write")?;
        self.handle.pass(CallClass::Sync, "sync")?;
        self.file.preallocate(len)
    }

    fn reserve(&self, len: u64) -> Result<()> {
        self.handle.pass(CallClass::Write, "write")?;
        self.handle.pass(CallClass::Sync, "sync")?;
        self.file.reserve(len)
    }

    fn write_durable_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()> {
        self.handle.pass(CallClass::Write, "write")?;
        if let Err(error) = self.handle.pass(CallClass::Sync, "sync") {
            // Write the bytes without making them durable. `write_at` takes whole blocks only, so a
            // smaller write is made durably: it survives a power cut, although this call returns an
            // error.
            match offset.is_multiple_of(BLOCK as u64) && blocks.len().is_multiple_of(BLOCK) {
                true => self.file.write_at(offset, blocks)?,
                false => self.file.write_durable_at(offset, blocks)?,
            }
            return Err(error);
        }
        self.file.write_durable_at(offset, blocks)
    }

    fn write_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()> {
        self.handle.pass(CallClass::Write, "write")?;
        self.file.write_at(offset, blocks)
    }

    fn sync(&self) -> Result<()> {
        self.handle.pass(CallClass::Sync, "sync")?;
        self.file.sync()
    }
}

pub(super) struct FaultSpans {
    handle: FaultyFile,
    file: Arc<dyn SpanFile>,
}

impl FaultSpans {
    pub(super) fn new(handle: FaultyFile, file: Arc<dyn SpanFile>) -> Self {
        Self { handle, file }
    }
}

impl SpanFile for FaultSpans {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.handle.pass(CallClass::Write, "write")?;
        self.file.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.handle.pass(CallClass::Sync, "sync")?;
        self.file.sync()
    }

    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        self.handle.pass(CallClass::Write, "punch")?;
        self.file.punch(offset, len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.handle.pass(CallClass::Write, "truncate")?;
        self.file.set_len(len)
    }
}
