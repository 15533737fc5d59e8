use super::*;
use crate::base::ErrorKind;
use crate::base::key::SEQNO_MAX;
use crate::env::ReadClass;

/// Reads a damaged file in every way. Each read must return what the model has, or an error.
fn read_all(bytes: Vec<u8>, model: &Model, pinned: bool) -> Result<()> {
    let reader = open_with(bytes, pinned)?;
    // An error may hide entries, but what is returned must be right.
    for fill in [false, true] {
        assert_eq!(&scan(&reader, fill)?, model);
    }
    for ((key, seqno), value) in model {
        assert_eq!(get(&reader, key, seqno.0)?, Some((seqno.0, value.clone())));
    }
    let mut iter = reader.iter(ReadClass::Range, true);
    let mut more = iter.seek_to_last()?;
    let mut count = 0;
    while more {
        let (key, value) = current(&iter);
        assert_eq!(model.get(&key), Some(&value));
        count += 1;
        more = iter.prev()?;
    }
    assert_eq!(count, model.len());
    reader.verify()?;
    Ok(())
}

fn small_files() -> Vec<(Model, Vec<u8>)> {
    let mut rng = SmallRng::seed_from_u64(21);
    let model = random_model(&mut rng, 40, 20);
    option_sets(512)
        .into_iter()
        .map(|options| (model.clone(), write(&model, options).0))
        .collect()
}

#[test]
fn every_flipped_bit_is_an_error_that_names_file_and_offset() {
    for (model, bytes) in small_files() {
        read_all(bytes.clone(), &model, true).unwrap();
        read_all(bytes.clone(), &model, false).unwrap();
        let mut damaged = bytes.clone();
        for (at, pinned) in (0..bytes.len()).flat_map(|at| [(at, true), (at, false)]) {
            let bit = 1 << (at % 8);
            damaged[at] ^= bit;
            let error =
                read_all(damaged.clone(), &model, pinned).expect_err("a flipped bit goes unseen");
            damaged[at] ^= bit;
            let ErrorKind::Corruption { file, offset } = error.kind() else {
                panic!("byte {at}: {error}");
            };
            assert_eq!(file, NAME);
            assert!(*offset <= at as u64, "byte {at}: {error}");
        }
    }
}

#[test]
fn every_truncated_file_is_refused() {
    let (_, bytes) = small_files().swap_remove(0);
    for len in 0..bytes.len() {
        let error = open(bytes[..len].to_vec()).err().unwrap();
        assert!(error.is_corruption(), "{len}: {error}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(open(longer).err().unwrap().is_corruption());
}

#[test]
fn a_file_under_another_id_is_refused() {
    let (_, bytes) = small_files().swap_remove(0);
    let file = MemFile(Arc::new(Mutex::new(bytes)));
    let cache = Arc::new(SstBlockCache::new(1 << 20));
    let error = SstReader::open(Arc::new(file), FILE_ID + 1, NAME.into(), cache)
        .err()
        .unwrap();
    assert!(error.is_corruption());
}

/// A malicious or faulty writer could damage blocks and give them right checksums, so decoders must
/// cope with any bytes.
#[test]
fn mutated_blocks_with_right_checksums_never_panic() {
    use crate::sst::block::{BlockBuilder, PlaneLayout, to_stored_form};

    for seed in 0..300u64 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = random_model(&mut rng, 30, 10);
        let sectioned = rng.random();
        let mut builder = BlockBuilder::new(sectioned, rng.random());
        for ((user_key, seqno), (kind, head, tail)) in &model {
            let key = InternalKey::new(user_key, seqno.0, *kind);
            let hash = crate::base::checksum::xxh3(user_key);
            builder.add(key, Value::split(head, tail), hash);
        }
        let plane_layout = PlaneLayout {
            numbers: rng.random(),
            tails: rng.random(),
        };
        let mut raw = to_stored_form(sectioned, &builder.finish().raw, plane_layout).raw;
        for _ in 0..rng.random_range(1..4) {
            // The block header is small and determines most of the decoding, so half of the
            // mutations hit the first 20 bytes.
            let end = if rng.random() { 20 } else { raw.len() };
            let at = rng.random_range(0..end.min(raw.len()));
            raw[at] = [rng.random(), 0xff, 0, raw[at] ^ 1][rng.random_range(0..4)];
        }
        if rng.random_bool(0.1) {
            raw.truncate(rng.random_range(0..raw.len()));
        }
        // The test passes if nothing panics; any result of the decoders is allowed.
        for (user_key, _) in model.keys().step_by(5) {
            exercise_decoders(&raw, user_key);
        }
    }
}

/// Random damage to whole files; the stored checksums do not match then.
#[test]
fn mutated_files_never_panic_nor_lie() {
    for (i, (model, bytes)) in small_files().into_iter().enumerate() {
        let mut rng = SmallRng::seed_from_u64(i as u64);
        for _ in 0..60 {
            let mut damaged = bytes.clone();
            for _ in 0..rng.random_range(1..5) {
                let at = rng.random_range(0..damaged.len());
                let len = rng.random_range(1..9).min(damaged.len() - at);
                damaged[at..at + len].fill(rng.random());
            }
            if damaged != bytes {
                assert!(read_all(damaged, &model, true).is_err());
            }
        }
        let mut swapped = bytes.clone();
        swapped.rotate_left(64);
        assert!(open(swapped).is_err());
    }
}

#[test]
fn a_lost_block_read_is_an_error_not_an_end() {
    let (model, bytes) = small_files().swap_remove(0);
    let file = MemFile(Arc::new(Mutex::new(bytes)));
    let cache = Arc::new(SstBlockCache::new(1 << 20));
    let reader = SstReader::open(Arc::new(file.clone()), FILE_ID, NAME.into(), cache).unwrap();
    file.0.lock().unwrap().truncate(100);
    assert!(scan(&reader, false).is_err());
    assert!(scan(&reader, true).is_err());
    let last = &model.keys().next_back().unwrap().0;
    assert!(get(&reader, last, SEQNO_MAX).is_err());
    let mut iter = reader.iter(ReadClass::Range, true);
    assert!(iter.seek(last, SEQNO_MAX).is_err());
    assert!(!iter.valid());
}
