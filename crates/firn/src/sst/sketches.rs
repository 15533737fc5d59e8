//! Sketches of the key prefixes of each index, as a file's properties store them.

use crate::base::prefix_extractor::PrefixExtractors;
use crate::base::sketch::{PrefixSketcher, Sketch};
use crate::base::{IndexId, InternalKey, varint};
use crate::sst::index_stats::IndexStats;
use std::sync::Arc;

/// The sketches of one index in one file. They stay encoded in memory, because most of them are
/// never used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexSketches {
    pub(super) index: IndexId,
    /// The encoded sketches one after another, each preceded by its length.
    stored: Box<[u8]>,
}

fn decode(mut stored: &[u8]) -> Option<Vec<Sketch>> {
    let mut sketches = Vec::new();
    while !stored.is_empty() {
        let bytes = varint::take_bytes(&mut stored)?;
        sketches.push(Sketch::decode(bytes)?);
    }
    Some(sketches)
}

impl IndexSketches {
    fn new(index: IndexId, sketches: &[Sketch]) -> Self {
        let mut stored = Vec::new();
        for sketch in sketches {
            let mut bytes = Vec::new();
            sketch.encode(&mut bytes);
            varint::put_bytes(&mut stored, &bytes);
        }
        Self {
            index,
            stored: stored.into(),
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, u64::from(self.index));
        out.extend_from_slice(&self.stored);
    }

    /// Takes all of `input`. `None` if a sketch is malformed.
    pub(super) fn take(input: &mut &[u8]) -> Option<Self> {
        let index = varint::take_u32(input)?;
        decode(input)?;
        Some(Self {
            index,
            stored: (*input).into(),
        })
    }

    pub(super) fn sketches(&self) -> Option<Vec<Sketch>> {
        decode(&self.stored)
    }

    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.stored.len()
    }
}

/// Builds the sketches of a file while it is written.
///
/// Invariant: an index gets sketches only if all its entries in the file were passed to
/// [`Self::add`].
#[derive(Default)]
pub(super) struct SketchBuilder {
    prefix_extractors: Option<Arc<dyn PrefixExtractors>>,
    current: Option<CurrentIndex>,
    /// Finished sketches, each with the number of entries that were passed to `add` for its index.
    done: Vec<(IndexSketches, u64)>,
}

struct CurrentIndex {
    index: IndexId,
    /// Makes the sketches of the current index; `None` if the prefix extractors do not know the
    /// index.
    sketcher: Option<PrefixSketcher>,
    entries: u64,
}

impl SketchBuilder {
    pub(super) fn new(prefix_extractors: Arc<dyn PrefixExtractors>) -> Self {
        Self {
            prefix_extractors: Some(prefix_extractors),
            ..Self::default()
        }
    }

    /// Counts the next entry, which belongs to `index`, and adds its key unless the entry is a
    /// tombstone.
    #[inline]
    pub(super) fn add(&mut self, index: IndexId, key: InternalKey<'_>) {
        if self.current.as_ref().is_none_or(|c| c.index != index) {
            self.begin(index);
        }
        let Some(current) = &mut self.current else {
            return;
        };
        current.entries += 1;
        if let Some(sketcher) = &mut current.sketcher
            && key.kind.is_put()
        {
            sketcher.add(key.user_key);
        }
    }

    #[cold]
    fn begin(&mut self, index: IndexId) {
        self.end();
        let prefix_extractor = self
            .prefix_extractors
            .as_ref()
            .and_then(|all| all.prefix_extractor(index));
        self.current = Some(CurrentIndex {
            index,
            sketcher: prefix_extractor.map(PrefixSketcher::new),
            entries: 0,
        });
    }

    fn end(&mut self) {
        let Some(current) = self.current.take() else {
            return;
        };
        if let Some(sketches) = current.sketcher.and_then(PrefixSketcher::finish) {
            let sketches = IndexSketches::new(current.index, &sketches);
            self.done.push((sketches, current.entries));
        }
    }

    /// The sketches of all indexes for which `add` got as many entries as `stats` counts in the
    /// file.
    pub(super) fn finish(&mut self, stats: &[IndexStats]) -> Vec<IndexSketches> {
        self.end();
        let complete = |(sketches, entries): &(IndexSketches, u64)| {
            let at = stats.binary_search_by_key(&sketches.index, |s| s.index);
            at.is_ok_and(|at| stats[at].entries == *entries)
        };
        let done = std::mem::take(&mut self.done);
        let complete = done.into_iter().filter(complete);
        complete.map(|(sketches, _)| sketches).collect()
    }
}

#[cfg(test)]
mod tests;
