//! The last step of a load: writes sorted entries into SSTs and finds duplicates.

use super::sort_buffer::LoadEntry;
use super::{NewFiles, RunFactory, RunWriter};
use crate::base::value::OwnedValue;
use crate::base::{Error, Kind, Result};
use crate::cache::KeyHash;
use crate::env::ReadClass;
use crate::sst::Density;
use crate::version::FileHandle;
use std::fmt;
use std::sync::Arc;

/// The second of two entries that have the same unique part of the key.
pub struct Duplicate {
    /// Number of the sorter.
    pub sorter: usize,
    /// User key of the entry.
    pub user_key: Vec<u8>,
    /// Length in bytes of the unique part at the start of `user_key`. The first entry begins with
    /// the same bytes.
    pub unique_len: usize,
    /// Kind of the entry.
    pub kind: Kind,
    /// Value of the entry.
    pub value: OwnedValue,
    /// The files of the first sorter, which sorts the rows, if they were complete before the
    /// duplicate was found.
    pub(super) first: Option<NewFiles>,
}

impl Duplicate {
    /// Kind and value of the entry for `user_key` in the first index of the load, the one with the
    /// rows. `None` if there is no such entry, or if the files of that index were not complete when
    /// the duplicate was found.
    ///
    /// # Errors
    /// Those of reading the files: `Corruption`, `Io`.
    pub fn in_first(&self, user_key: &[u8]) -> Result<Option<(Kind, OwnedValue)>> {
        let Some(files) = &self.first else {
            return Ok(None);
        };
        let Some(meta) = files.files().iter().find(|f| f.range().contains(user_key)) else {
            return Ok(None);
        };
        let meta = Arc::new(meta.clone().with_external_seqno(0));
        let file = FileHandle::new(meta, Arc::clone(files.source()));
        file.reader()?.get(
            user_key,
            KeyHash::of(user_key),
            0,
            ReadClass::Point,
            |key, value| (key.kind, value.to_owned()),
        )
    }
}

impl fmt::Debug for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a duplicate of {:?} in sorter {}",
            self.user_key, self.sorter
        )
    }
}

/// Why a load ended early.
#[derive(Debug)]
pub enum LoadFailure {
    /// Two entries violate uniqueness.
    Duplicate(Box<Duplicate>),
    /// Any other error.
    Error(Error),
}

impl From<Error> for LoadFailure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate(duplicate) => write!(f, "a duplicate in sorter {}", duplicate.sorter),
            Self::Error(error) => error.fmt(f),
        }
    }
}

/// The output files that one sorter is writing.
///
/// The best file size depends on the total size, which is unknown while entries stream in. So
/// whenever the output reaches the expected size, a new run begins: it expects four times as many
/// bytes and makes larger files.
pub(super) struct LoadOutput {
    sorter: usize,
    ingest: Arc<RunFactory>,
    writer: RunWriter,
    /// Expected stored bytes, those in `done` included.
    expected: u64,
    done: NewFiles,
    done_bytes: u64,
    last_key: Vec<u8>,
    last_unique_len: usize,
    entries: u64,
    twice: bool,
}

/// Factor by which the expected size grows from one run to the next.
const GROWTH: u64 = 4;

impl LoadOutput {
    /// `expected`: estimated stored bytes, 0 if unknown.
    pub(super) fn new(ingest: &Arc<RunFactory>, sorter: usize, expected: u64) -> Self {
        let expected = expected.max(ingest.options.target_file_size);
        Self {
            sorter,
            ingest: Arc::clone(ingest),
            writer: ingest.writer(Density::Dense, expected).for_load(),
            expected,
            done: NewFiles::new(Arc::clone(ingest)),
            done_bytes: 0,
            last_key: Vec::new(),
            last_unique_len: 0,
            entries: 0,
            twice: false,
        }
    }

    /// The last key added; empty at first.
    pub(super) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Stored bytes so far, an estimate.
    pub(super) fn bytes(&self) -> u64 {
        self.done_bytes + self.writer.bytes()
    }

    /// Entries so far.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    pub(super) fn add(&mut self, entry: LoadEntry<'_>) -> Result<(), LoadFailure> {
        let unique = entry.unique_len;
        if unique > 0
            && unique == self.last_unique_len
            && entry.user_key[..unique] == self.last_key[..unique]
        {
            return Err(LoadFailure::Duplicate(Box::new(Duplicate {
                sorter: self.sorter,
                user_key: entry.user_key.to_vec(),
                unique_len: unique,
                kind: entry.kind,
                value: entry.value.to_owned(),
                first: None,
            })));
        }
        if self.entries > 0 && entry.user_key == self.last_key {
            // The same entry came twice in an index that permits equal keys. An entry contains its
            // row's primary key, so the row came twice. Go on: the sorter of the clustered index
            // reports it as a duplicate.
            self.twice = true;
            return Ok(());
        }
        self.writer.add(entry.user_key, entry.kind, entry.value)?;
        self.entries += 1;
        self.last_key.clear();
        self.last_key.extend_from_slice(entry.user_key);
        self.last_unique_len = unique;
        Ok(())
    }

    /// Begins a run of larger files if the output has reached the expected size. Call it now and
    /// then between entries.
    pub(super) fn grow(&mut self) -> Result<()> {
        if self.bytes() < self.expected {
            return Ok(());
        }
        self.expected = self.expected.saturating_mul(GROWTH);
        let next = self.ingest.writer(Density::Dense, self.expected).for_load();
        let full = std::mem::replace(&mut self.writer, next);
        self.done_bytes += full.bytes();
        self.done.append(full.finish()?);
        Ok(())
    }

    /// The synced files, and whether the same entry came twice in an index that is not unique.
    pub(super) fn finish(mut self) -> Result<(NewFiles, bool)> {
        self.done.append(self.writer.finish()?);
        Ok((self.done, self.twice))
    }
}
