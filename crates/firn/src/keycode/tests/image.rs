use super::table::*;
use crate::base::prefix_extractor::PrefixExtractor;
use crate::keycode::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

/// The key image that the server would pass for these parts of the row in `record`.
fn image_of(parts: &[&KeyPart], record: &[u8]) -> Vec<u8> {
    let mut image = Vec::new();
    for part in parts {
        // SAFETY: the table has no blob columns, and the record has the table's length.
        let value = unsafe { part.value(record) }.unwrap();
        part.put_image(value, &mut image);
    }
    image
}

fn key_of(codec: &KeyCodec, record: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    // SAFETY: the table has no blob columns, and the record has the table's length.
    unsafe { codec.encode_record(record, &mut key) }.unwrap();
    key
}

#[test]
fn images_give_the_key_of_the_record() {
    for seed in 0..400 {
        let mut rng = StdRng::seed_from_u64(seed);
        let table = random_table(&mut rng);
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let codec = table.random_key(&mut rng, &all, true);
        let record = table.random_record(&mut rng);
        let mut image = Vec::new();
        // SAFETY: the table has no blob columns, and the record has the table's length.
        unsafe { codec.image_from_record(&record, &mut image) }.unwrap();
        assert_eq!(image.len(), codec.image_len(), "seed {seed}");
        let parts: Vec<&KeyPart> = codec.parts().iter().collect();
        assert_eq!(image, image_of(&parts, &record), "seed {seed}");
        let whole = key_of(&codec, &record);
        let mut key = Vec::new();
        let info = codec.encode_image(&image, &mut key).unwrap();
        assert_eq!((info.parts, &key), (parts.len(), &whole), "seed {seed}");
        // A key image with only the first parts must encode to the first parts of the key.
        let some = rng.random_range(0..=parts.len());
        let mut key = Vec::new();
        let image = image_of(&parts[..some], &record);
        let info = codec.encode_image(&image, &mut key).unwrap();
        assert_eq!(info.parts, some);
        assert_eq!(
            key,
            whole[..codec.skip(&whole, some).unwrap()],
            "seed {seed}"
        );
        assert_eq!(info.has_null, codec.has_null(&whole, some).unwrap());
    }
}

#[test]
fn extended_images_reach_into_the_primary_key() {
    for seed in 0..400 {
        let mut rng = StdRng::seed_from_u64(seed);
        let table = random_table(&mut rng);
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let primary = table.random_key(&mut rng, &[0, 1], false);
        // The server passes no extended image for an index that has prefix parts, so use none here.
        let declared = table.random_key(&mut rng, &all, false);
        let index =
            IndexCodec::secondary(table.record_len, declared.clone(), Some(primary.clone()));
        let record = table.random_record(&mut rng);
        let mut whole = key_of(&declared, &record);
        let declared_len = whole.len();
        whole.extend(key_of(&primary, &record));
        let is_declared =
            |part: &&KeyPart| declared.parts().iter().any(|p| p.column == part.column);
        let behind: Vec<&KeyPart> = primary.parts().iter().filter(|p| !is_declared(p)).collect();
        let some = rng.random_range(0..=behind.len());
        let mut parts: Vec<&KeyPart> = declared.parts().iter().collect();
        parts.extend(&behind[..some]);
        let mut key = Vec::new();
        let info = index
            .encode_image(&image_of(&parts, &record), &mut key)
            .unwrap();
        assert_eq!(info.parts, parts.len(), "seed {seed}");
        assert!(whole.starts_with(&key), "seed {seed}");
        assert!(key.len() >= declared_len);
        if some == behind.len() && !primary.parts().last().is_some_and(|p| is_declared(&p)) {
            assert_eq!(key, whole, "seed {seed}");
        }
    }
}

#[test]
fn images_of_the_wrong_length_are_refused() {
    let mut rng = StdRng::seed_from_u64(9);
    let table = random_table(&mut rng);
    let index = table.random_index(&mut rng);
    let mut image = vec![0; index.declared().image_len() + 200];
    assert!(index.encode_image(&image, &mut Vec::new()).is_err());
    assert!(
        index
            .declared()
            .encode_image(&image, &mut Vec::new())
            .is_err()
    );
    image.truncate(index.declared().image_len() - 1);
    assert!(index.encode_image(&image, &mut Vec::new()).is_err());
}

#[test]
fn random_images_never_panic() {
    for seed in 0..2000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let table = random_table(&mut rng);
        let index = table.random_index(&mut rng);
        let len = index.declared().image_len();
        let image: Vec<u8> = (0..len).map(|_| rng.random()).collect();
        let info = index.encode_image(&image, &mut Vec::new()).unwrap();
        assert_eq!(info.parts, index.declared().parts().len());
    }
}

#[test]
fn ends_of_parts_are_found_one_after_the_other() {
    for seed in 0..400 {
        let mut rng = StdRng::seed_from_u64(seed);
        let table = random_table(&mut rng);
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let codec = table.random_key(&mut rng, &all, true);
        let key = key_of(&codec, &table.random_record(&mut rng));
        let user_key = [&7u32.to_be_bytes()[..], &key].concat();
        let ends = KeyPrefixExtractor::new(codec.clone(), false);
        assert_eq!(ends.prefixes(), codec.parts().len());
        let mut end = 4;
        for part in 0..ends.prefixes() {
            let next = ends.part_end(&user_key, part, end).unwrap();
            let fixed = ends.fixed_len(part);
            assert!(fixed.is_none_or(|len| next == end + len), "seed {seed}");
            end = next;
            let skipped = codec.skip(&key, part + 1).unwrap();
            assert_eq!(end, 4 + skipped, "seed {seed}");
        }
        assert_eq!(end, user_key.len());
        let cut = &user_key[..user_key.len() - 1];
        let last = ends.prefixes() - 1;
        let start = 4 + codec.skip(&key, last).unwrap();
        assert_eq!(ends.part_end(cut, last, start), None, "seed {seed}");
    }
}
