use super::*;
use crate::base::key::{SEQNO_COMMITTED_MAX, SEQNO_MAX, UNCOMMITTED_BIT};
use crate::base::{ErrorKind, checksum};
use crate::env::{CountingEnv, Env, MemEnv, ReadClass};
use crate::sst::format::FOOTER_LEN;
use std::cmp::Reverse;
use std::path::Path;

const PATH: &str = "/77.sst";

pub(super) fn key(index: u32, n: u64) -> Vec<u8> {
    [&index.to_be_bytes()[..], &n.to_be_bytes()].concat()
}

#[test]
fn a_file_of_one_empty_entry_works() {
    for (kind, seqno) in [(Kind::Put, 0), (Kind::Delete, SEQNO_COMMITTED_MAX)] {
        for options in option_sets(4096) {
            let mut model = Model::new();
            model.insert(
                (key(1, 1)[..4].to_vec(), Reverse(seqno)),
                (kind, vec![], vec![]),
            );
            let reader = open(write(&model, options).0).unwrap();
            reader.verify().unwrap();
            assert_eq!(scan(&reader, true).unwrap(), model);
            let (found, value) = get(&reader, &[0, 0, 0, 1], SEQNO_MAX).unwrap().unwrap();
            assert_eq!((found, value.0), (seqno, kind));
            assert_eq!(get(&reader, &[0, 0, 0, 2], SEQNO_MAX).unwrap(), None);
            assert_eq!(get(&reader, &[], SEQNO_MAX).unwrap(), None);
        }
    }
}

#[test]
fn a_file_without_entries_works() {
    for options in option_sets(4096) {
        let (bytes, summary) = write(&Model::new(), options);
        let reader = open(bytes).unwrap();
        assert_eq!(reader.verify().unwrap().entries, 0);
        assert_eq!(summary.entries, 0);
        let mut iter = reader.iter(ReadClass::Range, true);
        assert!(!iter.seek_to_first().unwrap());
        assert!(!iter.seek_to_last().unwrap());
        assert!(!iter.seek(&[], SEQNO_MAX).unwrap());
        assert!(!iter.seek_before(&[0xff; 9]).unwrap());
        assert!(!iter.valid());
        assert_eq!(get(&reader, &[0; 4], SEQNO_MAX).unwrap(), None);
    }
}

#[test]
fn values_of_a_megabyte_work() {
    let mut rng = SmallRng::seed_from_u64(9);
    let mut model = Model::new();
    for n in 0..5u64 {
        let random: Vec<u8> = (0..1 << 20).map(|_| rng.random()).collect();
        let (head, tail) = match n % 2 {
            0 => (vec![7; 1 << 20], random),
            _ => (random, vec![]),
        };
        model.insert((key(1, n), Reverse(n)), (Kind::Put, head, tail));
    }
    for options in option_sets(4096) {
        let reader = open(write(&model, options).0).unwrap();
        reader.verify().unwrap();
        assert_eq!(scan(&reader, true).unwrap(), model);
        for ((key, seqno), value) in &model {
            let found = get(&reader, key, SEQNO_MAX).unwrap();
            assert_eq!(found, Some((seqno.0, value.clone())));
        }
    }
}

#[test]
fn versions_of_one_key_may_fill_many_blocks() {
    let mut model = Model::new();
    for seqno in 0..2000u64 {
        model.insert(
            (key(1, 5), Reverse(seqno)),
            (Kind::Put, seqno.to_le_bytes().into(), vec![]),
        );
    }
    model.insert((key(1, 4), Reverse(1)), (Kind::Put, vec![4], vec![]));
    model.insert((key(1, 6), Reverse(1)), (Kind::Put, vec![6], vec![]));
    for options in option_sets(256) {
        let reader = open(write(&model, options).0).unwrap();
        reader.verify().unwrap();
        assert!(reader.properties().data_blocks > 50);
        for seqno in (0..2000).step_by(37) {
            let (found, value) = get(&reader, &key(1, 5), seqno).unwrap().unwrap();
            assert_eq!((found, value.1), (seqno, seqno.to_le_bytes().to_vec()));
            let mut iter = reader.iter(ReadClass::Range, true);
            assert!(iter.seek(&key(1, 5), seqno).unwrap());
            assert_eq!(iter.key().seqno, seqno);
        }
        let mut iter = reader.iter(ReadClass::Range, true);
        assert!(iter.seek_before(&key(1, 6)).unwrap());
        assert_eq!((iter.key().user_key, iter.key().seqno), (&key(1, 5)[..], 0));
        assert!(iter.seek_before(&key(1, 5)).unwrap());
        assert_eq!(iter.value().head, [4]);
    }
}

#[test]
fn a_dictionary_is_kept_where_it_pays_and_only_there() {
    let options = SstOptions::last_level(4096);
    let mut rng = SmallRng::seed_from_u64(3);
    let mut with_pattern = Model::new();
    let mut random = Model::new();
    for n in 0..12_000u64 {
        let digits: String = (0..60)
            .map(|_| char::from(b'0' + rng.random_range(0..10)))
            .collect();
        let tail = format!("name={digits};street=Some Street {};city=Town", n % 97);
        with_pattern.insert(
            (key(1, n), Reverse(0)),
            (Kind::Put, vec![1; 12], tail.into()),
        );
        let noise = (0..100).map(|_| rng.random()).collect();
        random.insert((key(1, n), Reverse(0)), (Kind::Put, noise, vec![]));
    }
    for (model, kept) in [(with_pattern, 1), (random, 0)] {
        let reader = open(write(&model, options.clone()).0).unwrap();
        assert_eq!(reader.properties().dictionaries.len(), kept);
        reader.verify().unwrap();
        assert_eq!(scan(&reader, false).unwrap(), model);
    }
}

#[test]
fn digits_shrink_to_little_more_than_their_entropy() {
    let mut rng = SmallRng::seed_from_u64(4);
    let mut model = Model::new();
    for n in 0..3000u64 {
        let mut head = n.to_le_bytes().to_vec();
        head.extend(rng.random_range(0..1u32 << 20).to_le_bytes());
        let group = |rng: &mut SmallRng| format!("{:011}", rng.random_range(0..100_000_000_000u64));
        let groups: Vec<String> = (0..10).map(|_| group(&mut rng)).collect();
        let tail = groups.join("-").into_bytes();
        model.insert((key(1, n), Reverse(0)), (Kind::Put, head, tail));
    }
    let options = SstOptions {
        codec: Codec::Zstd {
            level: 3,
            dictionary: false,
        },
        ..SstOptions::last_level(8192)
    };
    let reader = open(write(&model, options).0).unwrap();
    reader.verify().unwrap();
    assert_eq!(scan(&reader, false).unwrap(), model);
    for ((key, seqno), value) in model.iter().step_by(7) {
        assert_eq!(
            get(&reader, key, SEQNO_MAX).unwrap(),
            Some((seqno.0, value.clone()))
        );
    }
    // Each row takes at least 48.2 bytes: the 110 digits of its tail hold 45.7 bytes of
    // information, its value head 2.5.
    let per_row = reader.properties().data_bytes as f64 / 3000.0;
    assert!(per_row < 57.0, "{per_row} bytes a row");
}

#[test]
fn wrong_entries_are_refused() {
    let entries: [(&[u8], Seqno, &[u8], Seqno); 5] = [
        (&[0, 0, 0, 1, 5], 9, &[0, 0, 0, 1, 4], 9),
        (&[0, 0, 0, 1, 5], 9, &[0, 0, 0, 1, 5], 9),
        (&[0, 0, 0, 1, 5], 9, &[0, 0, 0, 1, 5], 10),
        (&[0, 0, 0, 1, 5], 9, &[0, 0, 0, 1, 6], UNCOMMITTED_BIT),
        (&[0, 0, 0, 1, 5], 9, &[1, 2, 3], 8),
    ];
    for (key, seqno, wrong_key, wrong_seqno) in entries {
        for block_size in [1, 4096] {
            let file = Box::new(MemFile::default());
            let mut writer = SstWriter::new(file, 1, SstOptions::upper_level(block_size), 0);
            writer
                .add(InternalKey::new(key, seqno, Kind::Put), Value::EMPTY)
                .unwrap();
            let wrong = InternalKey::new(wrong_key, wrong_seqno, Kind::Put);
            let error = writer.add(wrong, Value::EMPTY).unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
        }
    }
}

#[test]
fn counts_and_sizes_of_each_index_are_known() {
    let mut model = Model::new();
    for index in [3, 5, 9] {
        for n in 0..u64::from(index) * 50 {
            let kind = if n % 5 == 0 { Kind::Delete } else { Kind::Put };
            let head = if kind == Kind::Put {
                vec![b'x'; 20]
            } else {
                vec![]
            };
            model.insert((key(index, n), Reverse(n)), (kind, head, vec![]));
        }
    }
    let file = MemFile::default();
    let mut writer = SstWriter::new(
        Box::new(file.clone()),
        FILE_ID,
        SstOptions::upper_level(1024),
        5,
    );
    writer.set_user_property("firn.level", b"6");
    let mut estimate = 0;
    for ((user_key, seqno), (kind, head, _)) in &model {
        writer
            .add(
                InternalKey::new(user_key, seqno.0, *kind),
                Value::whole(head),
            )
            .unwrap();
        assert!(writer.estimated_size() + 2048 >= estimate);
        estimate = writer.estimated_size();
    }
    assert_eq!(writer.entries(), model.len() as u64);
    let summary = writer.finish().unwrap();
    assert!(estimate < summary.size * 2 && summary.size < estimate * 2);
    let reader = open(file.0.lock().unwrap().clone()).unwrap();
    let properties = reader.properties();
    assert_eq!(properties.user["firn.level"], b"6");
    assert_eq!(properties.created_micros, 5);
    let counts: Vec<_> = summary
        .per_index
        .iter()
        .map(|s| (s.index, s.entries, s.deletes))
        .collect();
    assert_eq!(counts, [(3, 150, 30), (5, 250, 50), (9, 450, 90)]);
    let stored: u64 = summary.per_index.iter().map(|s| s.stored_bytes).sum();
    assert_eq!(stored, properties.data_bytes);
    assert!(reader.memory_bytes() > 0);
}

#[test]
fn compaction_reads_leave_the_cache_alone() {
    let mut model = Model::new();
    for n in 0..3000u64 {
        model.insert((key(1, n), Reverse(0)), (Kind::Put, vec![9; 50], vec![]));
    }
    let bytes = write(&model, SstOptions::upper_level(1024)).0;
    let cache = Arc::new(SstBlockCache::new(4 << 20));
    let file = MemFile(Arc::new(Mutex::new(bytes)));
    let reader = SstReader::open(Arc::new(file), FILE_ID, NAME.into(), cache.clone()).unwrap();
    assert_eq!(scan(&reader, false).unwrap(), model);
    assert_eq!(cache.stats().entries, 0);
    assert_eq!(scan(&reader, true).unwrap(), model);
    let stats = cache.stats();
    assert_eq!(
        (stats.entries, stats.hits),
        (reader.properties().data_blocks, 0)
    );
    assert_eq!(scan(&reader, true).unwrap(), model);
    assert_eq!(cache.stats().hits, stats.entries);
}

/// The bytes of a file, after `change` has altered the block at `offset` of `len` bytes and the
/// block has got a new, right checksum.
pub(super) fn resealed(
    bytes: &[u8],
    offset: usize,
    len: usize,
    change: impl Fn(&mut [u8]),
) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let (covered, sum) = bytes[offset..offset + len].split_at_mut(len - 8);
    change(covered);
    let placed = checksum::placed(covered, FILE_ID, offset as u64);
    sum.copy_from_slice(&placed.to_le_bytes());
    bytes
}

#[test]
fn what_is_encrypted_or_columnar_is_refused_by_name() {
    let mut model = Model::new();
    for n in 0..500 {
        let value = (Kind::Put, vec![n as u8; 9], vec![3; 20]);
        model.insert((key(1, n), Reverse(7)), value);
    }
    for options in option_sets(512) {
        let bytes = write(&model, options).0;
        let reader = open(bytes.clone()).unwrap();
        let blocks = reader.blocks().unwrap();
        let len = blocks.iter().next().unwrap().bytes as usize;
        let refused = |bytes: Vec<u8>, said: &str| {
            let error = open(bytes).and_then(|reader| {
                let mut iter = reader.iter(ReadClass::Range, true);
                iter.seek_to_first()
            });
            let error = error.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(said), "{error}");
        };
        for envelope in [1, 200] {
            let changed = resealed(&bytes, 0, len, |block| block[2] = envelope);
            refused(changed, "is encrypted");
        }
        for kind in [8, 9] {
            let changed = resealed(&bytes, 0, len, |block| block[1] = kind);
            refused(changed, "columnar");
        }
        refused(
            resealed(&bytes, 0, len, |block| block[1] = 10),
            "block kind",
        );
        refused(resealed(&bytes, 0, len, |block| block[3] = 1), "flags");
        // The flags in the footer claim encryption, or an unknown feature, for the whole file.
        let footer = bytes.len() - FOOTER_LEN;
        let changed = resealed(&bytes, footer, FOOTER_LEN - 8, |footer| footer[48] = 1);
        refused(changed, "is encrypted");
        let changed = resealed(&bytes, footer, FOOTER_LEN - 8, |footer| footer[48] = 2);
        refused(changed, "feature flag");
    }
}

#[test]
fn a_file_is_opened_by_its_tail_if_that_is_as_long_as_known() {
    let mut model = Model::new();
    for n in 0..2000 {
        let value = (Kind::Put, vec![n as u8; 9], vec![3; 20]);
        model.insert((key(1, n), Reverse(7)), value);
    }
    for options in option_sets(512) {
        let (bytes, summary) = write(&model, options);
        assert!(summary.tail_len > FOOTER_LEN as u64 && summary.tail_len < summary.size);
        // Open the file with room in the pin budget for its index, and without.
        for room in [1 << 20, 0] {
            let open = |tail_len| {
                let cache = Arc::new(SstBlockCache::new(1 << 20));
                cache.set_room(1 << 20, room);
                let env = MemEnv::new();
                env.place(Path::new(PATH), bytes.clone());
                let counting = CountingEnv::new(Arc::new(env));
                let file = counting.open(Path::new(PATH)).unwrap();
                let hints = OpenHints {
                    tail_len,
                    ..OpenHints::default()
                };
                let opened = SstReader::open_at(file, FILE_ID, "f".into(), cache, hints);
                let reads = counting.counters().file_reads().reads();
                (opened, reads)
            };
            let (reader, reads) = open(summary.tail_len);
            assert_eq!(scan(&reader.unwrap(), true).unwrap(), model);
            let (reader, without) = open(0);
            assert_eq!(scan(&reader.unwrap(), true).unwrap(), model);
            match room {
                0 => assert_eq!(reads, without),
                _ => assert_eq!((reads, without), (1, 2)),
            }
            for wrong in [
                1,
                FOOTER_LEN as u64,
                summary.tail_len - 1,
                summary.tail_len + 1,
                summary.size,
                summary.size + 1,
                u64::MAX,
            ] {
                let error = open(wrong).0.err().unwrap();
                assert!(error.is_corruption(), "{wrong}: {error}");
            }
        }
    }
}
