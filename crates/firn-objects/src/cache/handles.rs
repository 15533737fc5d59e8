//! The open local files: at most some hundred, however many the cache has.

use super::chunk::ChunkFile;
use crate::env::{Files, LocalFile, Open};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

/// Files that are open at once.
const OPEN_MAX: usize = 512;

/// See the module.
#[derive(Default)]
pub struct Handles(Mutex<VecDeque<Weak<ChunkFile>>>);

impl Handles {
    /// The local file, opened if need be; created only for a writer. Those opened first are closed
    /// first.
    pub fn get(
        &self,
        files: &dyn Files,
        file: &Arc<ChunkFile>,
        creates: bool,
    ) -> io::Result<Arc<dyn LocalFile>> {
        if let Some(open) = &*file.handle.read() {
            return Ok(open.clone());
        }
        let mut handle = file.handle.write();
        if let Some(open) = &*handle {
            return Ok(open.clone());
        }
        if file.is_dead() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let how = if creates { Open::Create } else { Open::Write };
        let open = files.open(file.local_path(), how)?;
        if open.len()? != file.bytes() {
            open.set_len(file.bytes())?;
        }
        *handle = Some(open.clone());
        drop(handle);
        let oldest = {
            let mut order = self.0.lock();
            order.push_back(Arc::downgrade(file));
            if order.len() > OPEN_MAX {
                order.pop_front()
            } else {
                None
            }
        };
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            *oldest.handle.write() = None;
        }
        Ok(open)
    }

    /// Closes a file. Its place in the order stays until its turn.
    pub fn close(&self, file: &ChunkFile) {
        *file.handle.write() = None;
    }
}
