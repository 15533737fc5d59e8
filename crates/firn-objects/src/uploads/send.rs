//! The job of an upload.

use super::{Outcome, Shared, Ticket, Upload};
use crate::budget::Taken;
use crate::env::{LocalFile, Open};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{ObjectStore, PART_BYTES, PartTag, UploadId, WHOLE_BYTES_MAX};
use bytes::Bytes;
use openssl::sha::{Sha256, sha256};
use std::sync::Arc;
use std::time::Duration;

/// The first and the longest pause before an upload begins again, microseconds.
const PAUSE_US_MIN: u64 = 1_000_000;
/// See [`PAUSE_US_MIN`].
const PAUSE_US_MAX: u64 = 30_000_000;
/// How often a paused upload looks whether it is aborted.
const LOOK_US: u64 = 100_000;
/// How often an upload that waits for memory looks whether it is aborted.
const MEMORY_PATIENCE: Duration = Duration::from_secs(10);

/// Ends an upload whose job panics or is dropped.
pub(super) struct UploadJob {
    shared: Arc<Shared>,
    ticket: Ticket,
    runs: bool,
}

impl UploadJob {
    pub fn new(shared: Arc<Shared>, ticket: Ticket) -> Self {
        Self {
            shared,
            ticket,
            runs: false,
        }
    }

    pub fn run(mut self) {
        self.runs = true;
        let upload = self.shared.state.lock().pending.get(&self.ticket).cloned();
        if let Some(upload) = upload {
            let outcome = self.shared.upload(self.ticket, &upload);
            self.shared.end(self.ticket, outcome);
        }
    }
}

impl Drop for UploadJob {
    fn drop(&mut self) {
        let outcome = if self.runs {
            let text = "the thread of the upload has failed";
            Outcome::Failed(Error::new(ErrorKind::Unreachable, text))
        } else {
            Outcome::Aborted
        };
        // One that has ended is not ended again.
        self.shared.end(self.ticket, outcome);
    }
}

impl Shared {
    fn upload(&self, ticket: Ticket, upload: &Upload) -> Outcome {
        let mut pause_us = PAUSE_US_MIN;
        loop {
            if self.is_aborted(ticket) {
                return Outcome::Aborted;
            }
            let error = match self.send(ticket, upload) {
                Ok(Some(sha256)) => return Outcome::Stored { sha256 },
                Ok(None) => return Outcome::Aborted,
                Err(Failure::Local(error)) => return Outcome::Failed(error),
                Err(Failure::Store(error)) => error,
            };
            let mut state = self.state.lock();
            state.stats.retries += 1;
            state.stats.last_error = Some(error.to_string());
            drop(state);
            let mut left_us = pause_us;
            while left_us > 0 && !self.is_aborted(ticket) {
                let slice_us = left_us.min(LOOK_US);
                self.clock.sleep_us(slice_us);
                left_us -= slice_us;
            }
            pause_us = (pause_us * 2).min(PAUSE_US_MAX);
        }
    }

    /// Sends the file once. None if it is aborted.
    fn send(
        &self,
        ticket: Ticket,
        upload: &Upload,
    ) -> std::result::Result<Option<[u8; 32]>, Failure> {
        let local = |error| Failure::Local(Error::from_io(&error, upload.path.display()));
        let file = self.files.open(&upload.path, Open::Read).map_err(local)?;
        let len = file.len().map_err(local)?;
        if len != upload.bytes {
            let text = format!(
                "{} has {len} bytes instead of {}",
                upload.path.display(),
                upload.bytes
            );
            return Err(Failure::Local(Error::new(ErrorKind::Damaged, text)));
        }
        if len <= WHOLE_BYTES_MAX {
            let Some(_memory) = self.room(ticket, len) else {
                return Ok(None);
            };
            let bytes = read(upload, &*file, 0, len)?;
            let digest = sha256(&bytes);
            self.store
                .put(&upload.name, bytes)
                .map_err(Failure::Store)?;
            return Ok(Some(digest));
        }
        let id = self
            .store
            .begin_upload(&upload.name)
            .map_err(Failure::Store)?;
        self.state.lock().begun.insert(id.clone());
        let sent = self.send_parts(ticket, upload, &*file, &id);
        if !matches!(sent, Ok(Some(_))) {
            // If this fails, too, a sweep does it.
            let _ = self.store.abort_upload(&upload.name, &id);
        }
        self.state.lock().begun.remove(&id);
        sent
    }

    fn send_parts(
        &self,
        ticket: Ticket,
        upload: &Upload,
        file: &dyn LocalFile,
        id: &UploadId,
    ) -> std::result::Result<Option<[u8; 32]>, Failure> {
        let mut digest = Sha256::new();
        let mut parts: Vec<PartTag> = Vec::new();
        let mut at = 0;
        while at < upload.bytes {
            if self.is_aborted(ticket) {
                return Ok(None);
            }
            let len = PART_BYTES.min(upload.bytes - at);
            let Some(_memory) = self.room(ticket, len) else {
                return Ok(None);
            };
            let bytes = read(upload, file, at, len)?;
            digest.update(&bytes);
            let index = parts.len() as u32;
            let put = self.store.put_part(&upload.name, id, index, bytes);
            parts.push(put.map_err(Failure::Store)?);
            at += len;
        }
        let digest = digest.finish();
        match self.store.complete_upload(&upload.name, id, &parts) {
            // An earlier try may have completed it, and its answer was lost.
            Err(error) if error.kind() == ErrorKind::Absent => {
                let is_ours = self.is_stored(ticket, upload, &digest);
                is_ours.map_err(Failure::Store)
            }
            Err(error) => Err(Failure::Store(error)),
            Ok(()) => Ok(Some(digest)),
        }
    }

    /// Memory for bytes of the file. None if the upload is aborted meanwhile.
    fn room(&self, ticket: Ticket, bytes: u64) -> Option<Taken<'_>> {
        loop {
            if let Some(taken) = self.memory.take(bytes, MEMORY_PATIENCE) {
                return Some(taken);
            }
            if self.is_aborted(ticket) {
                return None;
            }
        }
    }

    /// Whether the store has the file, by its bytes: an older object of the name may have its size,
    /// and somebody else may have thrown the parts away. None if the upload is aborted meanwhile.
    fn is_stored(
        &self,
        ticket: Ticket,
        upload: &Upload,
        digest: &[u8; 32],
    ) -> Result<Option<[u8; 32]>> {
        let mut found = Sha256::new();
        let mut at = 0;
        let is_whole = self.store.head(&upload.name)?.bytes == upload.bytes;
        while is_whole && at < upload.bytes {
            let end = upload.bytes.min(at + PART_BYTES);
            let Some(_memory) = self.room(ticket, end - at) else {
                return Ok(None);
            };
            found.update(&self.store.get_range(&upload.name, at..end)?);
            at = end;
        }
        if is_whole && found.finish() == *digest {
            return Ok(Some(*digest));
        }
        let text = format!(
            "{}: the upload is gone, and the object is another",
            upload.name
        );
        Err(Error::new(ErrorKind::Damaged, text))
    }
}

/// Whose failure it is decides whether trying again helps.
enum Failure {
    Local(Error),
    Store(Error),
}

fn read(
    upload: &Upload,
    file: &dyn LocalFile,
    at: u64,
    len: u64,
) -> std::result::Result<Bytes, Failure> {
    let mut bytes = vec![0; len as usize];
    match file.read_at(&mut bytes, at) {
        Ok(count) if count == bytes.len() => Ok(bytes.into()),
        Ok(_) => {
            let text = format!("{} has become shorter", upload.path.display());
            Err(Failure::Local(Error::new(ErrorKind::Damaged, text)))
        }
        Err(error) => Err(Failure::Local(Error::from_io(
            &error,
            upload.path.display(),
        ))),
    }
}
