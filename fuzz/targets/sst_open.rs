//! Reads arbitrary SSTs: each read must return right data or an error, never panic.
//!
//! The first byte of the input selects the form of the rest: the raw bytes of a block, decoded
//! without a checksum (bit 0 set), or a whole file, whose index is kept in memory or (bit 1 set)
//! loaded on demand.

use firn::base::{ErrorKind, InternalIterator, InternalKey, Kind, Result, Value};
use firn::cache::KeyHash;
use firn::env::{Env, MemEnv, ReadClass};
use firn::sst::{
    BlockLayout, Codec, SstBlockCache, SstOptions, SstReader, SstWriter, exercise_decoders,
};
use std::path::Path;
use std::sync::Arc;

const PATH: &str = "/1.sst";
const FILE_ID: u64 = 1;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else {
        return;
    };
    if mode % 2 == 1 {
        exercise_decoders(rest, &key(3));
        return;
    }
    let env = MemEnv::new();
    env.place(Path::new(PATH), rest.to_vec());
    let checked = open(&env, mode & 2 != 0).and_then(|reader| {
        let mut iter = reader.iter(ReadClass::Verify, true);
        let mut more = iter.seek_to_first()?;
        while more {
            let key = iter.key();
            let hash = KeyHash::of(key.user_key);
            let found = reader.get(
                key.user_key,
                hash,
                key.seqno,
                ReadClass::Verify,
                |_, value| value.len(),
            )?;
            assert_eq!(found, Some(iter.value().len()));
            more = iter.next()?;
        }
        reader.verify()
    });
    if let Err(error) = checked {
        let refused = error.is_corruption() || error.kind() == &ErrorKind::Unsupported;
        assert!(refused, "{error}");
    }
}

/// Initial inputs: files of both layouts with each codec, and a raw block of each layout.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (layout, same_length) in [
        (BlockLayout::RowWise, false),
        (BlockLayout::Sectioned, false),
        (BlockLayout::Sectioned, true),
    ] {
        for codec in [
            Codec::None,
            Codec::Lz4,
            Codec::Zstd {
                level: 1,
                dictionary: false,
            },
        ] {
            let options = SstOptions {
                layout,
                codec,
                ..SstOptions::upper_level(1024)
            };
            let env = MemEnv::new();
            let reader = write(&env, options, same_length).expect("no fault");
            let file = env.read(Path::new(PATH)).expect("written");
            if codec == Codec::None {
                // A stored block has 8 bytes of header, then its data, then 8 bytes of checksum.
                let stored = {
                    let blocks = reader.blocks().expect("no fault");
                    blocks.iter().next().map_or(0, |block| block.bytes) as usize
                };
                seeds.push([&[1], &file[8..stored - 8]].concat());
            }
            seeds.push([&[0], &file[..]].concat());
            seeds.push([&[2], &file[..]].concat());
        }
    }
    seeds
}

fn key(n: u64) -> Vec<u8> {
    [&[0, 0, 0, 1][..], &n.to_be_bytes()].concat()
}

fn write(env: &MemEnv, options: SstOptions, same_length: bool) -> Result<Arc<SstReader>> {
    let mut writer = SstWriter::new(env.create(Path::new(PATH))?, FILE_ID, options, 0);
    for n in 0..120u64 {
        let (mut user_key, mut head) = (key(n), vec![1, n as u8]);
        if !same_length {
            user_key.extend(vec![b'k'; n as usize % 5]);
            head.extend(vec![7; n as usize % 3]);
        }
        let tail = [n as u8; 20];
        let value = Value::split(&head, &tail);
        writer.add(InternalKey::new(&user_key, 5, Kind::Put), value)?;
    }
    writer.finish()?;
    open(env, false)
}

/// Opens the SST; with `on_demand`, there is no memory to keep index partitions, so reads load
/// them.
fn open(env: &MemEnv, on_demand: bool) -> Result<Arc<SstReader>> {
    let cache = Arc::new(SstBlockCache::new(1 << 20));
    if on_demand {
        cache.set_room(1 << 20, 0);
    }
    SstReader::open(env.open(Path::new(PATH))?, FILE_ID, "1.sst".into(), cache)
}
