//! Tests of block reuse: data blocks copied from file to file.

use super::model::check;
use super::*;
use crate::env::ReadClass;
use crate::sst::block_frame;
use crate::sst::decode_error::DecodeError;
use crate::sst::dictionary::DICTIONARIES_MAX;
use std::cmp::Reverse;

/// Writes `model` to a file with this id, from which tests copy blocks to another file.
pub(super) fn source(model: &Model, options: SstOptions, id: u64) -> (MemFile, Arc<SstReader>) {
    let file = MemFile::default();
    let mut writer = SstWriter::new(Box::new(file.clone()), id, options, 1);
    for ((user_key, seqno), (kind, head, tail)) in model {
        let key = InternalKey::new(user_key, seqno.0, *kind);
        writer.add(key, Value::split(head, tail)).unwrap();
    }
    writer.finish().unwrap();
    let cache = Arc::new(SstBlockCache::new(1 << 20));
    let reader = SstReader::open(Arc::new(file.clone()), id, format!("source {id}"), cache);
    (file, reader.unwrap())
}

/// Adds all entries of the file of `reader` to `writer`, copying a block where the writer takes it
/// and `wanted` returns true. Returns how many blocks were copied.
pub(super) fn transfer(
    reader: &Arc<SstReader>,
    writer: &mut SstWriter,
    mut wanted: impl FnMut() -> bool,
) -> Result<u64> {
    let mut iter = reader.iter(ReadClass::Compaction, false);
    let mut on = iter.seek_to_first()?;
    let mut copied = 0;
    while on {
        if iter.block_begun().is_some() && wanted() {
            let ahead = iter.bytes_ahead(None);
            let block = iter.stored_block()?;
            if writer.takes(&block, ahead) {
                writer.copy(&block)?;
                copied += 1;
                on = iter.next_block()?;
                continue;
            }
        }
        writer.add(iter.key(), iter.value())?;
        on = iter.next()?;
    }
    Ok(copied)
}

#[test]
fn copied_and_built_blocks_make_one_file() {
    let mut all = 0;
    for seed in 0..2u64 {
        let mut rng = SmallRng::seed_from_u64(seed);
        // A file needs this many entries to get a tuning, without which its blocks are not reused.
        let model = random_model(&mut rng, 4000, 300);
        for options in option_sets([512, 2048][seed as usize % 2]) {
            let context = format!("seed {seed}, {options:?}");
            let (_, reader) = source(&model, options.clone(), 5);
            let file = MemFile::default();
            let mut writer = SstWriter::new(Box::new(file.clone()), FILE_ID, options, 2);
            let share = [0.1, 0.5, 0.97, 1.0][rng.random_range(0..4)];
            let copied = transfer(&reader, &mut writer, || rng.random_bool(share)).unwrap();
            let summary = writer.finish().unwrap();
            all += copied;
            let bytes = file.0.lock().unwrap().clone();
            check(&model, bytes.clone(), &summary, &mut rng, &context);
            let made = open(bytes).unwrap();
            let (p, q) = (made.properties(), reader.properties());
            assert_eq!((p.entries, p.deletes), (q.entries, q.deletes), "{context}");
            assert_eq!(p.raw_value_bytes, q.raw_value_bytes, "{context}");
        }
    }
    assert!(all > 500, "{all} blocks were copied");
}

/// Rows whose values have the words of one language, and noise.
fn rows(language: u64) -> Model {
    rows_of(language, 5000)
}

pub(super) fn rows_of(language: u64, count: u64) -> Model {
    let mut rng = SmallRng::seed_from_u64(language);
    let words: Vec<String> = (0..40)
        .map(|_| (0..12).map(|_| rng.random_range('a'..='z')).collect())
        .collect();
    let mut model = Model::new();
    for n in 0..count {
        let user_key = [&(language as u32).to_be_bytes()[..], &n.to_be_bytes()].concat();
        let mut tail: Vec<u8> = (0..30).map(|_| rng.random()).collect();
        for _ in 0..8 {
            tail.extend(words[rng.random_range(0..words.len())].bytes());
        }
        model.insert((user_key, Reverse(0)), (Kind::Put, vec![1], tail));
    }
    model
}

#[test]
fn dictionaries_come_along_up_to_the_cap() {
    let options = SstOptions::last_level(1024);
    let file = MemFile::default();
    let mut writer = SstWriter::new(Box::new(file.clone()), FILE_ID, options.clone(), 2);
    let mut model = Model::new();
    let mut copied = Vec::new();
    for language in 1..=6 {
        let rows = rows(language);
        let (_, reader) = source(&rows, options.clone(), language);
        assert_eq!(reader.properties().dictionaries.len(), 1);
        assert!(reader.properties().tuning.is_some());
        copied.push(transfer(&reader, &mut writer, || true).unwrap());
        model.extend(rows);
    }
    let summary = writer.finish().unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    let bytes = file.0.lock().unwrap().clone();
    check(&model, bytes.clone(), &summary, &mut rng, "dictionaries");
    let made = open(bytes).unwrap();
    assert!((2..=DICTIONARIES_MAX).contains(&made.properties().dictionaries.len()));
    assert!(copied[0] > 100 && copied[1] > 100, "{copied:?}");
    assert_eq!(copied[5], 0, "no place was left: {copied:?}");
    // The blocks that were compressed anew got the tuning of the reused ones.
    assert_eq!(made.properties().tuning, {
        let (_, first) = source(&rows(3), options, 3);
        first.properties().tuning
    });
}

#[test]
fn a_damaged_block_is_never_copied() {
    let mut rng = SmallRng::seed_from_u64(9);
    let model = random_model(&mut rng, 300, 100);
    let options = SstOptions::upper_level(1024);
    let (file, reader) = source(&model, options.clone(), 5);
    let end = reader.data_end() as usize;
    for _ in 0..60 {
        let (at, bit) = (rng.random_range(0..end), 1 << rng.random_range(0..8));
        file.0.lock().unwrap()[at] ^= bit;
        let mut writer = SstWriter::new(Box::<MemFile>::default(), FILE_ID, options.clone(), 2);
        let error = transfer(&reader, &mut writer, || true).unwrap_err();
        assert!(error.is_corruption(), "byte {at}: {error}");
        assert!(error.to_string().contains("source 5"), "byte {at}: {error}");
        file.0.lock().unwrap()[at] ^= bit;
    }
    // Even if the cache holds the decoded block, the checksum of the stored bytes is verified when
    // a block is copied.
    let mut iter = reader.iter(ReadClass::Range, true);
    iter.seek_to_first().unwrap();
    file.0.lock().unwrap()[40] ^= 1;
    let mut writer = SstWriter::new(Box::<MemFile>::default(), FILE_ID, options, 2);
    let error = transfer(&reader, &mut writer, || true).unwrap_err();
    assert!(error.is_corruption(), "{error}");
}

#[test]
fn damage_on_the_way_stays_visible() {
    let payload = (
        crate::sst::block_compression::StoredCodec::None,
        0,
        &b"some bytes"[..],
    );
    let mut stored = Vec::new();
    let kind = crate::sst::format::BlockKind::RowWise;
    block_frame::put(&mut stored, kind, payload, 10, (3, 4000));
    let mut moved = stored.clone();
    block_frame::relocate(&mut moved, (3, 4000), (9, 77));
    assert_eq!(
        block_frame::check(&moved, (9, 77)).unwrap().1,
        b"some bytes"
    );
    let wrong = Err(DecodeError::Corrupt("block checksum"));
    assert_eq!(block_frame::check(&moved, (3, 4000)), wrong);
    for at in 0..stored.len() {
        let mut moved = stored.clone();
        moved[at] ^= 16;
        block_frame::relocate(&mut moved, (3, 4000), (9, 77));
        assert_eq!(block_frame::check(&moved, (9, 77)), wrong, "byte {at}");
    }
}
