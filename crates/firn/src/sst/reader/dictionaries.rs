//! The dictionaries of a file, loaded when a block needs one.
//!
//! A digested dictionary takes ten times the memory of the rest that an open file cannot do
//! without, and a file of which all blocks in use are cached needs none. So readers keep no
//! dictionary: the block cache holds them in digested form, beside the blocks, and evicts those of
//! files that nobody reads from.
//!
//! Rejected: one digested dictionary for all files with a copy of it. The files that share one by
//! block reuse are few, and the id that files store is too short to tell dictionaries apart.

use super::SstReader;
use crate::base::Result;
use crate::env::ReadClass;
use crate::sst::CachedBlock;
use crate::sst::block_frame;
use crate::sst::decode_error::DecodeError;
use crate::sst::dictionary::{Dictionary, DigestedDictionary};
use crate::sst::format::{BlockKind, Handle};
use std::ops::Range;
use std::sync::Arc;

/// The dictionaries that an iterator or a pass over a file has used. It holds them so that each
/// further block needs no lookup in the block cache, and so that a pass that does not fill the
/// cache loads each of them once.
#[derive(Default)]
pub(in crate::sst) struct UsedDictionaries(Vec<Arc<DigestedDictionary>>);

impl UsedDictionaries {
    pub(in crate::sst) fn find(&self, id: u32) -> Option<&Arc<DigestedDictionary>> {
        self.0.iter().find(|dictionary| dictionary.id() == id)
    }

    pub(in crate::sst) fn add(&mut self, dictionary: Arc<DigestedDictionary>) {
        self.0.push(dictionary);
    }
}

impl SstReader {
    /// The byte ranges of the file's dictionaries, for tools.
    pub fn dictionary_bytes(&self) -> Vec<Range<u64>> {
        self.dictionary_handles()
            .map(|handle| handle.offset..handle.end())
            .collect()
    }

    pub(super) fn dictionary_handles(&self) -> impl Iterator<Item = Handle> {
        let stored = self.properties().dictionaries.iter();
        stored.map(|&(_, handle)| handle)
    }

    fn dictionary_handle(&self, id: u32) -> Option<Handle> {
        let stored = self.properties().dictionaries.iter();
        stored
            .filter(|&&(other, _)| other == id)
            .map(|&(_, handle)| handle)
            .next()
    }

    /// Reads the dictionary with this id from the file, for blocks that are read for the purpose
    /// `class`. `None` if the file has no such dictionary.
    ///
    /// # Errors
    /// `Corruption` if it is damaged; `Unsupported`; `Io`.
    pub(in crate::sst) fn read_dictionary(
        &self,
        id: u32,
        class: ReadClass,
    ) -> Result<Option<Dictionary>> {
        let Some(handle) = self.dictionary_handle(id) else {
            return Ok(None);
        };
        self.read_dictionary_at(handle, id, class, Ok).map(Some)
    }

    /// Reads the dictionary with this id, which is at `handle`, and makes something of it.
    fn read_dictionary_at<T>(
        &self,
        handle: Handle,
        id: u32,
        class: ReadClass,
        make: impl Fn(Dictionary) -> std::result::Result<T, DecodeError>,
    ) -> Result<T> {
        let (mut stored, class) = (Vec::new(), class.of_index());
        self.read_from_any(class, |source| {
            self.read_stored(source, handle, class, &mut stored)?;
            let place = (self.file_id, handle.offset);
            block_frame::open_as(BlockKind::Dictionary, &stored, place)
                .map(Dictionary::new)
                .and_then(|dictionary| match dictionary.id() == id {
                    true => make(dictionary),
                    false => Err(DecodeError::Corrupt("dictionary of another id")),
                })
                .map_err(|damage| self.damaged(damage, handle))
        })
    }

    /// The digested dictionary with this id, from `used`, the block cache or the file; `None` if
    /// the file has no such dictionary. If it is read from the file and `fill` is set, it goes into
    /// the block cache.
    ///
    /// # Errors
    /// As [`Self::read_dictionary`].
    pub(super) fn digested_dictionary(
        &self,
        id: u32,
        class: ReadClass,
        fill: bool,
        used: &mut UsedDictionaries,
    ) -> Result<Option<Arc<DigestedDictionary>>> {
        if let Some(dictionary) = used.find(id) {
            return Ok(Some(Arc::clone(dictionary)));
        }
        let Some(handle) = self.dictionary_handle(id) else {
            return Ok(None);
        };
        let load = || self.load_dictionary(id, class).map(CachedBlock::Dictionary);
        let key = self.key_of(handle.offset);
        match self.cache.get_or_load_uncounted(key, fill, load)? {
            CachedBlock::Dictionary(dictionary) => {
                used.add(Arc::clone(&dictionary));
                Ok(Some(dictionary))
            }
            _ => Err(self.damaged(super::TWO_IN_ONE, handle)),
        }
    }

    fn load_dictionary(&self, id: u32, class: ReadClass) -> Result<Arc<DigestedDictionary>> {
        let Some(handle) = self.dictionary_handle(id) else {
            let damage = DecodeError::Corrupt("no such dictionary");
            return Err(self.damaged(damage, Handle::default()));
        };
        let digest = |dictionary| DigestedDictionary::of(&dictionary).map(Arc::new);
        self.read_dictionary_at(handle, id, class, digest)
    }

    /// Reads and digests all dictionaries of the file, past the block cache.
    ///
    /// # Errors
    /// As [`Self::read_dictionary`].
    pub(in crate::sst) fn all_dictionaries(&self, class: ReadClass) -> Result<UsedDictionaries> {
        let mut all = UsedDictionaries::default();
        for &(id, _) in &self.properties().dictionaries {
            all.add(self.load_dictionary(id, class)?);
        }
        Ok(all)
    }
}
