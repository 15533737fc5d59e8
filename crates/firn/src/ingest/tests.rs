use super::*;
use crate::base::blob_ref::{self, BlobCodec, BlobRef};
use crate::base::event_listener::Silent;
use crate::base::health::Health;
use crate::base::key::UNCOMMITTED_BIT;
use crate::base::options::Options;
use crate::base::prefix_extractor::NoPrefixExtractors;
use crate::base::{InternalIterator, InternalKey, Kind, Seqno, Value};
use crate::cache::KeyHash;
use crate::env::{Env, PosixEnv, ReadClass};
use crate::sst::{Density, SstBlockCache};
use crate::store::FileStore;
use crate::version::{
    BLOB_FILES_MAX, FileHandle, FileMeta, FileSource, VersionSet, VersionSetContext,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn ingest(dir: &Path, piece: u64) -> Arc<RunFactory> {
    let options = Options {
        block_size: 256,
        ..Options::default()
    };
    ingest_with(Arc::new(PosixEnv::new()), dir, piece, options)
}

/// A factory of files in `dir` that end once they have `piece` bytes.
pub(super) fn ingest_with(
    env: Arc<dyn Env>,
    dir: &Path,
    piece: u64,
    options: Options,
) -> Arc<RunFactory> {
    let store = FileStore::new(env.clone(), dir);
    let versions = VersionSet::open(VersionSetContext {
        env,
        dir: dir.to_path_buf(),
        source: FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20))),
        health: Arc::new(Health::new()),
        listener: Arc::new(Silent),
    });
    let cutters: FileSplitters = Box::new(move |_, _| Box::new(move |_, _, size| size >= piece));
    RunFactory::new(
        Arc::new(versions.unwrap()),
        options,
        Arc::new(NoPrefixExtractors),
        cutters,
    )
}

fn on_disk(ingest: &RunFactory) -> Vec<u64> {
    ingest.versions().source().store().list().unwrap()
}

/// A random key that is often a prefix of another key.
fn key(rng: &mut StdRng) -> Vec<u8> {
    let mut key = vec![0, 0, 0, 1];
    let len = rng.random_range(0..6);
    key.extend((0..len).map(|_| rng.random_range(0..3u8)));
    key
}

fn handle(ingest: &RunFactory, meta: &FileMeta) -> Arc<FileHandle> {
    let source = Arc::clone(ingest.versions().source());
    FileHandle::new(Arc::new(meta.clone()), source)
}

type Model = BTreeMap<Vec<u8>, (Kind, Vec<u8>)>;

/// Compares every kind of read of one file with the model's entries in its range.
fn compare(file: &FileHandle, seqno: Seqno, model: &Model, rng: &mut StdRng) {
    let reader = file.reader().unwrap();
    reader.verify().unwrap();
    let mut iter = reader.iter(ReadClass::Range, true);
    let part: Vec<_> = model
        .range(file.smallest.clone()..=file.largest.clone())
        .collect();
    let mut on = iter.seek_to_first().unwrap();
    for (user_key, (kind, value)) in &part {
        assert!(on);
        assert_eq!(iter.key(), InternalKey::new(user_key, seqno, *kind));
        assert_eq!(iter.value().head, value.as_slice());
        on = iter.next().unwrap();
    }
    assert!(!on);
    for _ in 0..50 {
        let (user_key, bound) = (key(rng), seqno - 1 + rng.random_range(0..3u64));
        let sought = part.iter().find(|(k, _)| {
            let (k, wanted) = (k.as_slice(), user_key.as_slice());
            k > wanted || (k == wanted && bound >= seqno)
        });
        let found = iter.seek(&user_key, bound).unwrap();
        assert_eq!(found, sought.is_some());
        if let Some((wanted, _)) = sought {
            assert_eq!(
                (iter.key().user_key, iter.key().seqno),
                (&wanted[..], seqno)
            );
            let rows = iter.rows_ahead(None, bound);
            assert!(rows == 0 || bound >= seqno);
        }
        let found = reader.get(
            &user_key,
            KeyHash::of(&user_key),
            bound,
            ReadClass::Point,
            |k, v| (k.seqno, k.kind, v.head.to_vec()),
        );
        let wanted = model.get(&user_key).filter(|_| bound >= seqno);
        let inside = file.smallest <= user_key && user_key <= file.largest;
        let wanted = wanted.filter(|_| inside);
        let wanted = wanted.map(|(kind, value)| (seqno, *kind, value.clone()));
        assert_eq!(found.unwrap(), wanted);
        if iter.seek_before(&user_key).unwrap() {
            let before = part.iter().rev().find(|(k, _)| **k < user_key).unwrap();
            assert_eq!(iter.key().user_key, &before.0[..]);
        } else {
            assert!(part.iter().all(|(k, _)| **k >= user_key));
        }
    }
}

/// RocksDB once returned wrong rows from files with an external seqno if one key was a prefix of
/// another.
#[test]
fn all_entries_of_a_run_show_the_seqno_of_its_commit() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let ingest = ingest(dir.path(), 1 << rng.random_range(8..14));
        let mut model = Model::new();
        for i in 0..rng.random_range(1..400u32) {
            let kind = [Kind::Put, Kind::Put, Kind::Delete][rng.random_range(0..3)];
            let value = match kind {
                Kind::Delete => Vec::new(),
                _ => i.to_be_bytes().to_vec(),
            };
            model.insert(key(&mut rng), (kind, value));
        }
        let density = [Density::Light, Density::Dense][rng.random_range(0..2)];
        let mut writer = ingest.writer(density, 0);
        // With `positions` the entries have seqnos, as in a spilled write set; otherwise they have
        // none.
        let positions = rng.random();
        for (position, (user_key, (kind, value))) in model.iter().enumerate() {
            let value = Value::split(value, &[]);
            match positions {
                true => {
                    let seqno = UNCOMMITTED_BIT | (position as u64 * 7919 % 1009 + 1);
                    let key = InternalKey::new(user_key, seqno, *kind);
                    writer.add_version(key, value).unwrap();
                }
                false => writer.add(user_key, *kind, value).unwrap(),
            }
        }
        let files = writer.finish().unwrap();
        files.sync().unwrap();
        let bounds = files.files().windows(2);
        assert!(
            bounds.into_iter().all(|p| p[0].largest < p[1].smallest),
            "seed {seed}"
        );
        let seqno = rng.random_range(2..1 << 40);
        for meta in files.files() {
            let meta = meta.clone().with_external_seqno(seqno);
            compare(&handle(&ingest, &meta), seqno, &model, &mut rng);
        }
    }
}

#[test]
fn a_file_without_its_seqno_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ingest = ingest(dir.path(), 1 << 20);
    let mut writer = ingest.writer(Density::Light, 0);
    writer.add(b"\0\0\0\x01a", Kind::Put, Value::EMPTY).unwrap();
    let again = writer.add(b"\0\0\0\x01a", Kind::Put, Value::EMPTY);
    assert!(again.is_err());
    let files = writer.finish().unwrap();
    let handle = handle(&ingest, &files.files()[0]);
    assert!(handle.reader().is_err_and(|e| e.is_corruption()));
}

#[test]
fn what_is_not_kept_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let ingest = ingest(dir.path(), 1);
    let write = |keys: &[u8], unfinished: bool| {
        let mut writer = ingest.writer(Density::Light, 0);
        for &k in keys {
            let key = [0, 0, 0, 1, k];
            writer.add(&key, Kind::Put, Value::EMPTY).unwrap();
        }
        assert!(!on_disk(&ingest).is_empty());
        (!unfinished).then(|| writer.finish().unwrap())
    };
    assert!(write(&[1, 2, 3], true).is_none());
    assert_eq!(on_disk(&ingest), []);
    drop(write(&[1, 2, 3], false));
    assert_eq!(on_disk(&ingest), []);
    let mut files = write(&[1, 2, 3, 4], false).unwrap();
    let odd = files.split_off(|meta| meta.smallest[4] % 2 == 1);
    assert_eq!((files.files().len(), odd.files().len()), (2, 2));
    files.append(odd);
    assert!(files.files().is_sorted_by(|a, b| a.largest < b.smallest));
    let ids: Vec<u64> = files.keep().iter().map(|f| f.file_id).collect();
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    assert_eq!(on_disk(&ingest), sorted);
    ingest.versions().discard(&ids);
    assert_eq!(on_disk(&ingest), []);
}

/// A value in blob file `file`.
fn blob_tail(file: u64) -> Vec<u8> {
    let mut tail = Vec::new();
    let blob = BlobRef {
        column: 1,
        file,
        offset: 0,
        len: 1000,
        codec: BlobCodec::None,
        stored: 1000,
        checksum: 0,
    };
    blob_ref::append(&mut tail, &[blob]);
    tail
}

/// An update of rows all over a table copies references to all blob files.
#[test]
fn a_file_of_a_run_names_a_bounded_number_of_blob_files() {
    let dir = tempfile::tempdir().unwrap();
    let ingest = ingest(dir.path(), u64::MAX);
    let mut writer = ingest.writer(Density::Light, 0);
    for n in 0..BLOB_FILES_MAX as u64 + 50 {
        let (key, tail) = (
            [&[0, 0, 0, 1][..], &n.to_be_bytes()].concat(),
            blob_tail(1000 + n),
        );
        let value = Value {
            head: b"row",
            tail: &tail,
        };
        writer.add(&key, Kind::PutBlobs, value).unwrap();
    }
    let files = writer.finish().unwrap();
    let names: Vec<usize> = files.files().iter().map(|file| file.blobs.len()).collect();
    assert_eq!(names, [BLOB_FILES_MAX, 50]);
}
