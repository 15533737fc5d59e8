//! Tests that write whole files, read them back and compare the entries with a model.

mod copy;
mod corruption;
mod edges;
mod fixtures;
mod memory;
mod model;
mod read_classes;
mod recipes;
mod salvage;

use super::*;
use crate::base::blob_ref::{self, BlobCodec, BlobRef, BlobUse, BlobUses};
use crate::base::{InternalIterator, InternalKey, Kind, Result, Seqno, Value};
use crate::cache::KeyHash;
use crate::env::{AppendFile, ReadClass, ReadFile};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A file in memory.
#[derive(Clone, Default)]
struct MemFile(Arc<Mutex<Vec<u8>>>);

impl AppendFile for MemFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn len(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }
}

impl ReadFile for MemFile {
    fn read_exact_at(&self, _: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = self.0.lock().unwrap();
        let start = usize::try_from(offset).unwrap();
        let Some(found) = bytes.get(start..start + buf.len()) else {
            let error = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            return Err(crate::base::Error::io(&error, "read past the end"));
        };
        buf.copy_from_slice(found);
        Ok(())
    }
    fn size(&self) -> Result<u64> {
        Ok(self.len())
    }
}

const FILE_ID: u64 = 77;
const NAME: &str = "0000000077.sst";

/// User key and reversed seqno, so that a model's entries sort as internal keys do.
type ModelKey = (Vec<u8>, std::cmp::Reverse<Seqno>);
/// Kind of the entry, value head, value tail.
type ModelValue = (Kind, Vec<u8>, Vec<u8>);
type Model = BTreeMap<ModelKey, ModelValue>;

fn write(model: &Model, options: SstOptions) -> (Vec<u8>, SstSummary) {
    let file = MemFile::default();
    let mut writer = SstWriter::new(Box::new(file.clone()), FILE_ID, options, 1_234_567);
    for ((user_key, seqno), (kind, head, tail)) in model {
        writer
            .add(
                InternalKey::new(user_key, seqno.0, *kind),
                Value::split(head, tail),
            )
            .unwrap();
    }
    let summary = writer.finish().unwrap();
    let bytes = file.0.lock().unwrap().clone();
    (bytes, summary)
}

fn open(bytes: Vec<u8>) -> Result<Arc<SstReader>> {
    open_with(bytes, true)
}

/// If `pinned`, the reader keeps the whole index in memory; else it loads index partitions when
/// they are needed.
fn open_with(bytes: Vec<u8>, pinned: bool) -> Result<Arc<SstReader>> {
    let file = MemFile(Arc::new(Mutex::new(bytes)));
    let cache = Arc::new(SstBlockCache::new(1 << 20));
    if !pinned {
        cache.set_room(1 << 20, 0);
    }
    SstReader::open(Arc::new(file), FILE_ID, NAME.into(), cache)
}

/// All combinations of options that are worth a test: layouts, codecs, hash index, filters.
fn option_sets(block_size: usize) -> Vec<SstOptions> {
    let codecs = [
        Codec::None,
        Codec::Lz4,
        Codec::Zstd {
            level: 1,
            dictionary: false,
        },
        Codec::Zstd {
            level: 1,
            dictionary: true,
        },
    ];
    let mut sets = Vec::new();
    for (i, codec) in codecs.into_iter().enumerate() {
        for layout in [BlockLayout::RowWise, BlockLayout::Sectioned] {
            sets.push(SstOptions {
                block_size,
                layout,
                codec,
                filter_bits_per_key: if i == 1 { 0 } else { 10 },
                hash_index: (layout == BlockLayout::RowWise) == (i % 2 == 0),
                index_partition_size: 200,
            });
        }
    }
    sets
}

fn some_refs(rng: &mut SmallRng) -> Vec<BlobRef> {
    let count = rng.random_range(0..3);
    (0..count)
        .map(|column| BlobRef {
            column,
            file: rng.random_range(1..5),
            offset: rng.random_range(0..1 << 40),
            len: 5000,
            codec: BlobCodec::None,
            stored: 5000,
            checksum: rng.random(),
        })
        .collect()
}

/// The references to blob files that a model's entries have.
fn blobs_of(model: &Model) -> Vec<BlobUse> {
    let mut uses = BlobUses::default();
    for (kind, _, tail) in model.values() {
        if *kind == Kind::PutBlobs {
            uses.add_tail(tail).unwrap();
        }
    }
    uses.iter().collect()
}

/// Entries of a few indexes, with several versions of each key and values of all sizes.
fn random_model(rng: &mut SmallRng, keys: usize, value_max: usize) -> Model {
    let mut model = Model::new();
    let same_lengths = rng.random_bool(0.3);
    let same_key_lengths = rng.random_bool(0.4);
    for _ in 0..keys {
        let mut user_key = rng.random_range(1..4u32).to_be_bytes().to_vec();
        match rng.random_range(0..3) {
            n if n == 0 || same_key_lengths => {
                user_key.extend(rng.random_range(0..keys as u64).to_be_bytes())
            }
            1 => {
                let len = rng.random_range(0..12);
                user_key
                    .extend((0..len).map(|_| *b"\0ab\xff".get(rng.random_range(0..4)).unwrap()));
            }
            _ => user_key.extend(format!("customer-{:05}", rng.random_range(0..keys)).bytes()),
        }
        let versions = match rng.random_range(0..20) {
            0 => 60,
            1..5 => 3,
            _ => 1,
        };
        for _ in 0..versions {
            let kind = match rng.random_range(0..10) {
                0 => Kind::Delete,
                1 => Kind::PutBlobs,
                2 => Kind::RangeDelete,
                _ => Kind::Put,
            };
            let part = |rng: &mut SmallRng| {
                let len = if same_lengths {
                    7
                } else {
                    rng.random_range(0..=value_max)
                };
                let byte = rng.random::<u8>();
                (0..len)
                    .map(|i| if i % 3 == 0 { rng.random() } else { byte })
                    .collect()
            };
            let value = match kind {
                Kind::Delete => (kind, Vec::new(), Vec::new()),
                Kind::PutBlobs => {
                    let mut tail: Vec<u8> = part(rng);
                    blob_ref::append(&mut tail, &some_refs(rng));
                    (kind, part(rng), tail)
                }
                _ => (kind, part(rng), part(rng)),
            };
            let seqno = std::cmp::Reverse(rng.random_range(0..1000));
            model.insert((user_key.clone(), seqno), value);
        }
    }
    model
}

fn current(iter: &SstIter) -> (ModelKey, ModelValue) {
    let (key, value) = (iter.key(), iter.value());
    (
        (key.user_key.to_vec(), std::cmp::Reverse(key.seqno)),
        (key.kind, value.head.to_vec(), value.tail.to_vec()),
    )
}

/// All entries of a file in order.
fn scan(reader: &Arc<SstReader>, fill: bool) -> Result<Model> {
    let mut found = Model::new();
    let class = match fill {
        true => ReadClass::Range,
        false => ReadClass::Compaction,
    };
    let mut iter = reader.iter(class, fill);
    let mut more = iter.seek_to_first()?;
    while more {
        let (key, value) = current(&iter);
        found.insert(key, value);
        more = iter.next()?;
    }
    Ok(found)
}

fn get(reader: &SstReader, user_key: &[u8], seqno: Seqno) -> Result<Option<(Seqno, ModelValue)>> {
    reader.get(
        user_key,
        KeyHash::of(user_key),
        seqno,
        ReadClass::Point,
        |key, value| {
            assert_eq!(key.user_key, user_key);
            (
                key.seqno,
                (key.kind, value.head.to_vec(), value.tail.to_vec()),
            )
        },
    )
}
