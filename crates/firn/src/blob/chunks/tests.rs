use super::*;
use crate::base::blob_buf::BlobBuf;
use crate::base::blob_ref::BLOB_HEADER_LEN;
use crate::base::{ErrorKind, blob_ref::BlobRef};
use crate::blob::{BlobStore, TransactionBlobs};
use crate::env::{Env, MemEnv, ReadClass};
use crate::store::{FileKind, FileStore, file_name};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const DIR: &str = "/db";

fn store_in(env: &MemEnv) -> BlobStore {
    env.create_dir_all(Path::new(DIR)).unwrap();
    let files = FileStore::new(Arc::new(env.clone()), DIR);
    BlobStore::new(files, 64 << 20, || 1)
}

fn path() -> PathBuf {
    Path::new(DIR).join(file_name(FileKind::Blob, 1))
}

/// A value of noise, of text, or of text whose first or last chunk is noise.
fn value(rng: &mut StdRng, len: usize) -> Vec<u8> {
    let noise = [
        0..len,
        0..0,
        0..CHUNK.min(len),
        len.saturating_sub(CHUNK)..len,
    ];
    let noise = noise[rng.random_range(0..4)].clone();
    (0..len)
        .map(|at| match noise.contains(&at) {
            true => rng.random(),
            false => (at / 70) as u8,
        })
        .collect()
}

fn write(store: &BlobStore, value: &[u8]) -> BlobRef {
    let mut session = TransactionBlobs::new();
    store.write(&mut session, 0, value).unwrap()
}

#[test]
fn the_beginning_of_a_value_is_that_of_the_whole_and_reads_no_more_chunks_than_it_needs() {
    let mut rng = StdRng::seed_from_u64(1);
    let store = store_in(&MemEnv::new());
    for round in 0..60 {
        let around = [1, 5000, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 900_000];
        let len = around[rng.random_range(0..around.len())];
        let value = value(&mut rng, len);
        let blob = write(&store, &value);
        assert_eq!(blob.codec == BlobCodec::Chunks, len > CHUNK);
        for wanted in [
            0,
            1,
            100,
            CHUNK - 1,
            CHUNK,
            CHUNK + 1,
            5 * CHUNK,
            len - 1,
            len,
            usize::MAX,
        ] {
            let mut buf = BlobBuf::new();
            let before = store.stats().read_bytes.load(Ordering::Relaxed);
            let read = store
                .read_prefix(&blob, wanted as u64, ReadClass::Blob, &mut buf)
                .unwrap();
            assert!(
                read == &value[..wanted.min(len)],
                "round {round}: {wanted} of {len} bytes"
            );
            let read = store.stats().read_bytes.load(Ordering::Relaxed) - before;
            let chunks = wanted.clamp(1, len).div_ceil(CHUNK) * CHUNK;
            let most = chunks as u64 + chunk_table_len(len as u64);
            assert!(read <= most, "round {round}: {read} for {wanted} of {len}");
            assert!(read <= blob.stored);
        }
    }
}

#[test]
fn damage_is_found_where_it_is_read_and_only_there() {
    let mut rng = StdRng::seed_from_u64(2);
    for round in 0..8 {
        let env = MemEnv::new();
        let store = store_in(&env);
        let value = value(&mut rng, 3 * CHUNK + 1000);
        let blob = write(&store, &value);
        let stored = env.read(&path()).unwrap();
        let begin = (blob.offset + BLOB_HEADER_LEN) as usize;
        let (table, body) = stored[begin..].split_at(4 * ENTRY);
        let mut ends = Vec::new();
        for wanted in 1..=4 {
            let len = (wanted * CHUNK).min(value.len());
            ends.push(for_each(table, body, len, |_| true).unwrap());
        }
        assert_eq!(ends[3] as u64 + 4 * 12, blob.stored);
        for _ in 0..60 {
            let at = match rng.random_bool(0.2) {
                true => rng.random_range(0..4 * ENTRY),
                false => rng.random_range(0..blob.stored as usize),
            };
            let mut bad = stored.clone();
            bad[begin + at] ^= 1 << rng.random_range(0..8);
            env.place(&path(), bad);
            let fresh = store_in(&env);
            for wanted in [1, CHUNK, CHUNK + 1, 3 * CHUNK, value.len()] {
                let needed = ends[wanted.div_ceil(CHUNK) - 1];
                let context = format!("round {round}: byte {at}, {wanted} wanted");
                let mut buf = BlobBuf::new();
                match fresh.read_prefix(&blob, wanted as u64, ReadClass::Blob, &mut buf) {
                    Ok(read) => {
                        assert!(at >= 4 * ENTRY + needed, "{context}: not found");
                        assert!(read == &value[..wanted], "{context}");
                    }
                    Err(error) => {
                        assert!(at < 4 * ENTRY + needed, "{context}: {error}");
                        let ErrorKind::Corruption { file, offset } = error.kind() else {
                            panic!("{context}: {error}");
                        };
                        assert_eq!(*file, file_name(FileKind::Blob, 1));
                        let chunk = ends.iter().rev().find(|&&end| 4 * ENTRY + end <= at);
                        let named = match at < 4 * ENTRY {
                            true => blob.offset as usize,
                            false => begin + 4 * ENTRY + chunk.copied().unwrap_or(0),
                        };
                        assert_eq!(*offset, named as u64, "{context}");
                    }
                }
            }
            let whole = fresh.file(1).read_span(blob.offset, blob.span());
            assert!(whole.is_err(), "byte {at} is damaged, and would be moved");
        }
        env.place(&path(), stored[..begin + 4 * ENTRY + ends[1]].to_vec());
        let fresh = store_in(&env);
        let mut buf = BlobBuf::new();
        let error = fresh.read(&blob, ReadClass::Blob, &mut buf).unwrap_err();
        assert!(error.is_corruption(), "{error}");
    }
}
