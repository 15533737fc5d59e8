//! Merges sorted inputs of a load: lists of entries in memory, and temporary files.

use super::NewFiles;
use super::sort_buffer::{LoadEntry, SortBuffer};
use super::temp_run::TempRunReader;
use crate::base::{InternalIterator, Result};
use crate::env::ReadClass;
use crate::sst::SstIter;
use crate::version::{FileHandle, FileSource};
use std::cmp::Ordering;
use std::sync::Arc;

/// A sorted list of entries.
pub(super) enum MergeInput {
    /// A list in memory, and the position in it.
    Memory(SortBuffer, usize),
    /// A temporary file.
    Run(TempRunReader),
    /// SSTs. As long as entries came in key order, the sorter wrote them as the final files of the
    /// load. Once an entry has come out of order, these files are merged with the later lists.
    Files(Box<FilesReader>),
}

impl MergeInput {
    fn entry(&self) -> Option<LoadEntry<'_>> {
        match self {
            Self::Memory(entries, at) => (*at < entries.len()).then(|| entries.get(*at)),
            Self::Run(run) => run.entry(),
            Self::Files(files) => files.entry(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Self::Memory(_, at) => {
                *at += 1;
                Ok(())
            }
            Self::Run(run) => run.advance(),
            Self::Files(files) => files.advance(),
        }
    }
}

/// Reads the entries of SSTs that neither log nor manifest names, in key order. Dropping this value
/// removes the SSTs.
pub(super) struct FilesReader {
    iter: Option<SstIter>,
    next: usize,
    source: Arc<FileSource>,
    /// Whether each key must be unique.
    unique: bool,
    files: NewFiles,
}

impl FilesReader {
    pub(super) fn new(files: NewFiles, source: &Arc<FileSource>, unique: bool) -> Result<Self> {
        let mut reader = Self {
            iter: None,
            next: 0,
            source: Arc::clone(source),
            unique,
            files,
        };
        reader.open_next()?;
        Ok(reader)
    }

    fn open_next(&mut self) -> Result<()> {
        self.iter = None;
        while let Some(meta) = self.files.files().get(self.next) {
            self.next += 1;
            let meta = Arc::new(meta.clone().with_external_seqno(0));
            let file = FileHandle::new(meta, Arc::clone(&self.source));
            let mut iter = file.reader()?.iter(ReadClass::Load, false);
            if iter.seek_to_first()? {
                self.iter = Some(iter);
                break;
            }
        }
        Ok(())
    }

    fn entry(&self) -> Option<LoadEntry<'_>> {
        let iter = self.iter.as_ref()?;
        let key = iter.key();
        Some(LoadEntry {
            user_key: key.user_key,
            unique_len: if self.unique { key.user_key.len() } else { 0 },
            kind: key.kind,
            value: iter.value(),
        })
    }

    fn advance(&mut self) -> Result<()> {
        let on = match &mut self.iter {
            Some(iter) => iter.next()?,
            None => false,
        };
        if on { Ok(()) } else { self.open_next() }
    }
}

/// Merges sorted lists: a heap of their cursors.
pub(super) struct Merge {
    inputs: Vec<MergeInput>,
    /// Key prefix and number of each input that is not exhausted; the one with the smallest entry
    /// is first.
    heap: Vec<(u64, usize)>,
}

impl Merge {
    pub(super) fn new(inputs: Vec<MergeInput>) -> Self {
        let keyed = inputs.iter().enumerate();
        let heap = keyed.filter_map(|(i, input)| Some((input.entry()?.prefix(), i)));
        let mut merge = Self {
            heap: heap.collect(),
            inputs,
        };
        (0..merge.heap.len() / 2)
            .rev()
            .for_each(|i| merge.sift_down(i));
        merge
    }

    /// The smallest entry; `None` at the end.
    pub(super) fn entry(&self) -> Option<LoadEntry<'_>> {
        self.inputs[self.heap.first()?.1].entry()
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        let (_, number) = self.heap[0];
        let input = &mut self.inputs[number];
        input.advance()?;
        match input.entry() {
            Some(entry) => self.heap[0].0 = entry.prefix(),
            None => drop(self.heap.swap_remove(0)),
        }
        self.sift_down(0);
        Ok(())
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let ((a_prefix, a), (b_prefix, b)) = (self.heap[a], self.heap[b]);
        let key = |i: usize| self.inputs[i].entry().map(|entry| entry.user_key);
        a_prefix.cmp(&b_prefix).then_with(|| key(a).cmp(&key(b)))
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.compare(child, least) == Ordering::Less {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests;
