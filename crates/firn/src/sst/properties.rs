//! The properties of an SST, as the file stores them.

use super::block_compression::Tuning;
use super::compression_recipe::{RecipeTrial, StoredRecipe};
use super::decode_error::{DecodeError, Decoded};
use super::format::Handle;
use super::index_stats::IndexStats;
use super::sketches::IndexSketches;
use crate::base::sketch::Sketch;
use crate::base::{IndexId, Seqno, varint};
use std::collections::BTreeMap;

/// Properties of an SST.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Properties {
    /// Id of the file.
    pub file_id: u64,
    /// Number of entries of all kinds.
    pub entries: u64,
    /// Number of entries that are tombstones.
    pub deletes: u64,
    /// Number of tombstones in those data blocks in which at least three quarters of the entries
    /// are tombstones. Files of older writers have 0.
    pub dense_deletes: u64,
    /// Bytes of all user keys before compression.
    pub raw_key_bytes: u64,
    /// Bytes of all values before compression.
    pub raw_value_bytes: u64,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Bytes of the data blocks as stored.
    pub data_bytes: u64,
    /// Number of raw bytes at which the writer ended a data block.
    pub block_size: u64,
    /// Bytes of the data blocks before compression.
    pub raw_block_bytes: u64,
    /// Smallest user key; empty in a file without entries.
    pub smallest: Vec<u8>,
    /// Largest user key.
    pub largest: Vec<u8>,
    /// Smallest stored seqno.
    pub min_seqno: Seqno,
    /// Largest stored seqno.
    pub max_seqno: Seqno,
    /// Wall clock time at creation, in microseconds since 1970.
    pub created_micros: u64,
    /// The writer's codec option as text, for people to read.
    pub codec: String,
    /// Counts of each index, by ascending index id.
    pub per_index: Vec<IndexStats>,
    /// Sketches of each index, by ascending index id. Indexes without sketches are left out.
    pub(super) sketches: Vec<IndexSketches>,
    /// Whether the seqnos stored in the file are not those of commits. All entries then have the
    /// seqno of the commit that makes the file visible; the manifest has that seqno, and the opener
    /// passes it to the reader in [`crate::sst::OpenHints`].
    pub external_seqno: bool,
    /// Whether a bulk load or an index build wrote the file before its rows were visible. If the
    /// catalog has their index, the rows are committed; a repair then takes them as committed at
    /// seqno 0.
    pub loaded: bool,
    /// Values that higher layers store in the file, by name.
    pub user: BTreeMap<String, Vec<u8>>,
    pub(super) dictionaries: Vec<(u32, Handle)>,
    /// The [`Tuning`] that the writer used for ZSTD. `None` if it comes neither from a trial with
    /// enough raw bytes nor from copied blocks. Under ZSTD, block reuse copies no block of a file
    /// without a tuning.
    pub(super) tuning: Option<Tuning>,
    /// The recipes with which the file's blocks are compressed, as far as trials have judged them.
    pub(super) recipes: Vec<StoredRecipe>,
}

/// The properties are a sequence of fields (tag, length, bytes). A reader skips an unknown field
/// with an even tag. It refuses a file that has an unknown field with an odd tag.
mod tag {
    pub(super) const NUMBERS: u64 = 1;
    pub(super) const SMALLEST: u64 = 3;
    pub(super) const LARGEST: u64 = 5;
    pub(super) const DICTIONARY: u64 = 7;
    pub(super) const INDEX: u64 = 9;
    pub(super) const EXTERNAL_SEQNO: u64 = 11;
    pub(super) const CODEC: u64 = 2;
    pub(super) const USER: u64 = 4;
    pub(super) const SKETCHES: u64 = 6;
    pub(super) const TUNING: u64 = 8;
    pub(super) const DENSE_DELETES: u64 = 10;
    pub(super) const LOADED: u64 = 12;
    pub(super) const RECIPE: u64 = 14;
}

impl Properties {
    /// For each prefix of the keys of `index`, a sketch of its distinct values among the entries
    /// that are not tombstones. `None` if the file has no sketches of the index.
    pub fn sketches(&self, index: IndexId) -> Option<Vec<Sketch>> {
        let all = &self.sketches;
        let at = all.binary_search_by_key(&index, |one| one.index).ok()?;
        all[at].sketches()
    }

    /// Bytes of memory that the properties take on the heap.
    pub(super) fn memory(&self) -> usize {
        let sketches = self.sketches.iter().map(IndexSketches::memory);
        let user = self
            .user
            .iter()
            .map(|(name, value)| 2 * size_of::<Vec<u8>>() + name.capacity() + value.capacity());
        self.smallest.capacity()
            + self.largest.capacity()
            + self.codec.capacity()
            + self.per_index.capacity() * size_of::<IndexStats>()
            + self.dictionaries.capacity() * size_of::<(u32, Handle)>()
            + self.recipes.capacity() * size_of::<StoredRecipe>()
            + sketches.chain(user).sum::<usize>()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut field = Vec::new();
        let mut end = |tag: u64, field: &mut Vec<u8>| {
            varint::put_u64(&mut out, tag);
            varint::put_bytes(&mut out, field);
            field.clear();
        };
        for number in [
            self.file_id,
            self.entries,
            self.deletes,
            self.raw_key_bytes,
            self.raw_value_bytes,
            self.data_blocks,
            self.data_bytes,
            self.block_size,
            self.raw_block_bytes,
            self.min_seqno,
            self.max_seqno,
            self.created_micros,
        ] {
            varint::put_u64(&mut field, number);
        }
        end(tag::NUMBERS, &mut field);
        field.extend_from_slice(&self.smallest);
        end(tag::SMALLEST, &mut field);
        field.extend_from_slice(&self.largest);
        end(tag::LARGEST, &mut field);
        for (id, handle) in &self.dictionaries {
            varint::put_u64(&mut field, u64::from(*id));
            handle.put(&mut field);
            end(tag::DICTIONARY, &mut field);
        }
        for stats in &self.per_index {
            stats.put(&mut field);
            end(tag::INDEX, &mut field);
        }
        for sketches in &self.sketches {
            sketches.put(&mut field);
            end(tag::SKETCHES, &mut field);
        }
        field.extend_from_slice(self.codec.as_bytes());
        end(tag::CODEC, &mut field);
        if self.external_seqno {
            end(tag::EXTERNAL_SEQNO, &mut field);
        }
        if self.loaded {
            end(tag::LOADED, &mut field);
        }
        if let Some(tuning) = self.tuning {
            field.push(tuning.to_bits());
            end(tag::TUNING, &mut field);
        }
        for recipe in &self.recipes {
            let RecipeTrial { ratio, handed_on } = recipe.trial;
            let tuning = u32::from(recipe.tuning.to_bits());
            for number in [
                recipe.dictionary,
                ratio,
                handed_on,
                tuning,
                u32::from(recipe.own),
            ] {
                varint::put_u64(&mut field, u64::from(number));
            }
            end(tag::RECIPE, &mut field);
        }
        if self.dense_deletes > 0 {
            varint::put_u64(&mut field, self.dense_deletes);
            end(tag::DENSE_DELETES, &mut field);
        }
        for (name, value) in &self.user {
            varint::put_bytes(&mut field, name.as_bytes());
            field.extend_from_slice(value);
            end(tag::USER, &mut field);
        }
        out
    }

    pub(super) fn decode(mut input: &[u8]) -> Decoded<Self> {
        let bad = DecodeError::Corrupt("properties");
        let mut properties = Self::default();
        while !input.is_empty() {
            let tag = varint::take_u64(&mut input).ok_or(bad)?;
            let mut field = varint::take_bytes(&mut input).ok_or(bad)?;
            if !properties.take(tag, &mut field).ok_or(bad)? {
                if tag % 2 == 1 {
                    return Err(DecodeError::Unsupported("property"));
                }
                field = &[];
            }
            if !field.is_empty() {
                return Err(bad);
            }
        }
        Ok(properties)
    }

    /// Decodes the field `tag`. `Some(false)` if the tag is unknown, `None` if the field is
    /// malformed.
    fn take(&mut self, tag: u64, field: &mut &[u8]) -> Option<bool> {
        let mut rest = || std::mem::take(field);
        match tag {
            tag::NUMBERS => {
                for number in [
                    &mut self.file_id,
                    &mut self.entries,
                    &mut self.deletes,
                    &mut self.raw_key_bytes,
                    &mut self.raw_value_bytes,
                    &mut self.data_blocks,
                    &mut self.data_bytes,
                    &mut self.block_size,
                    &mut self.raw_block_bytes,
                    &mut self.min_seqno,
                    &mut self.max_seqno,
                    &mut self.created_micros,
                ] {
                    *number = varint::take_u64(field)?;
                }
            }
            tag::SMALLEST => self.smallest = rest().to_vec(),
            tag::LARGEST => self.largest = rest().to_vec(),
            tag::DICTIONARY => {
                let id = varint::take_u32(field)?;
                self.dictionaries.push((id, Handle::take(field)?));
            }
            tag::INDEX => self.per_index.push(IndexStats::take(field)?),
            tag::CODEC => self.codec = String::from_utf8(rest().to_vec()).ok()?,
            tag::EXTERNAL_SEQNO => self.external_seqno = true,
            tag::LOADED => self.loaded = true,
            tag::DENSE_DELETES => self.dense_deletes = varint::take_u64(field)?,
            tag::TUNING => {
                let [bits, ..] = *rest() else { return None };
                self.tuning = Tuning::from_bits(bits);
            }
            tag::RECIPE => {
                let mut number = || varint::take_u32(field);
                let (dictionary, ratio, handed_on) = (number()?, number()?, number()?);
                let bits = u8::try_from(number()?).ok()?;
                let own = number()? != 0;
                // A tuning of a newer writer is unknown here, so nothing can be inherited.
                self.recipes
                    .extend(Tuning::from_bits(bits).map(|tuning| StoredRecipe {
                        own,
                        tuning,
                        dictionary,
                        trial: RecipeTrial { ratio, handed_on },
                    }));
            }
            tag::USER => {
                let name = String::from_utf8(varint::take_bytes(field)?.to_vec()).ok()?;
                self.user.insert(name, std::mem::take(field).to_vec());
            }
            tag::SKETCHES => self.sketches.push(IndexSketches::take(&mut rest())?),
            _ => return Some(false),
        }
        Some(true)
    }
}
