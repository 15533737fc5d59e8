//! Memory of open files, and dictionaries that are loaded on demand.

use super::*;
use crate::base::key::SEQNO_MAX;
use crate::env::ReadClass;
use crate::sst::dictionary::DigestedDictionary;
use crate::sst::format::{BlockKind, FOOTER_LEN, Footer, Handle};
use crate::sst::{Properties, block_frame};

/// Rows with words between noise, for which a dictionary pays, until the file has `bytes`.
pub(super) fn wordy(options: SstOptions, bytes: u64) -> Vec<u8> {
    let file = MemFile::default();
    let mut writer = SstWriter::new(Box::new(file.clone()), FILE_ID, options, 1);
    let mut rng = SmallRng::seed_from_u64(32);
    let words: Vec<[u8; 12]> = (0..40).map(|_| rng.random()).collect();
    let mut n = 0;
    while writer.estimated_size() < bytes {
        let mut tail: Vec<u8> = (0..30).map(|_| rng.random()).collect();
        (0..8).for_each(|_| tail.extend(words[rng.random_range(0..words.len())]));
        let key = edges::key(1, n);
        let key = InternalKey::new(&key, 0, Kind::Put);
        writer.add(key, Value::split(&[1], &tail)).unwrap();
        n += 1;
    }
    writer.finish().unwrap();
    file.0.lock().unwrap().clone()
}

pub(super) fn dictionary_options() -> SstOptions {
    SstOptions::last_level(1024)
}

/// The memory that a file of 32 MiB takes while it is open: little without its index partitions,
/// and a dictionary only once.
#[test]
fn a_large_file_costs_little_without_its_partitions() {
    for options in [dictionary_options(), SstOptions::upper_level(8192)] {
        let bytes = wordy(options, 32 << 20);
        let small = open_with(bytes.clone(), false).unwrap();
        assert!(!small.is_pinned());
        assert!(small.memory_bytes() < 32 << 10, "{}", small.memory_bytes());
        let whole = open_with(bytes, true).unwrap();
        assert!(whole.is_pinned());
        let partitions = whole.index().partitions_memory() as u64;
        assert_eq!(whole.memory_bytes(), small.memory_bytes() + partitions);
        for &(id, _) in &whole.properties().dictionaries {
            let stored = whole
                .read_dictionary(id, ReadClass::Verify)
                .unwrap()
                .unwrap();
            let digested = DigestedDictionary::of(&stored).unwrap().memory();
            assert!(digested < stored.bytes().len() + (32 << 10), "{digested}");
        }
    }
}

#[test]
fn a_dictionary_is_loaded_when_a_block_needs_it() {
    let file = MemFile(Arc::new(Mutex::new(wordy(dictionary_options(), 1 << 20))));
    let cache = Arc::new(SstBlockCache::new(16 << 20));
    let open = || SstReader::open(Arc::new(file.clone()), FILE_ID, NAME.into(), cache.clone());
    let reader = open().unwrap();
    assert_eq!(reader.properties().dictionaries.len(), 1);
    assert_eq!(cache.stats().entries, 0);
    get(&reader, &edges::key(1, 0), SEQNO_MAX).unwrap().unwrap();
    let stats = cache.stats();
    assert_eq!(stats.entries, 2, "a block and the dictionary");
    assert_eq!(
        (stats.hits, stats.misses),
        (0, 1),
        "the dictionary is not counted"
    );
    // Another reader of the file uses the dictionary that is cached. To see that, damage it in the
    // file.
    let at = reader.dictionary_bytes()[0].start as usize + 20;
    file.0.lock().unwrap()[at] ^= 1;
    let second = open().unwrap();
    let key = edges::key(1, 1000);
    get(&second, &key, SEQNO_MAX).unwrap().unwrap();
    // Without the cache the damage is found, and has the file's name.
    second.forget_cached().unwrap();
    assert_eq!(cache.stats().entries, 0, "the dictionary is forgotten, too");
    for result in [
        get(&second, &key, SEQNO_MAX).map(drop),
        scan(&second, false).map(drop),
        scan(&second, true).map(drop),
        second.verify().map(drop),
    ] {
        let error = result.unwrap_err();
        assert!(
            error.is_corruption() && error.to_string().contains(NAME),
            "{error}"
        );
    }
    let mut found = Vec::new();
    second.survey(&mut |error| found.push(error));
    assert_eq!(found.len(), 1, "not once for each block");
}

/// A scan that does not fill the cache, as those of compactions, loads a dictionary once.
#[test]
fn a_pass_loads_a_dictionary_once() {
    let env = crate::env::CountingEnv::new(Arc::new(crate::env::MemEnv::new()));
    let counters = Arc::clone(env.counters());
    let path = std::path::Path::new("/77.sst");
    let env: Arc<dyn crate::env::Env> = Arc::new(env);
    let mut out = env.create(path).unwrap();
    out.append(&wordy(dictionary_options(), 1 << 20)).unwrap();
    out.sync().unwrap();
    let cache = Arc::new(SstBlockCache::new(16 << 20));
    let reader = SstReader::open(env.open(path).unwrap(), FILE_ID, NAME.into(), cache).unwrap();
    let reads = || counters.file_reads().reads();
    let before = reads();
    scan(&reader, false).unwrap();
    let passes = reads() - before;
    assert!(passes < 20, "{passes} reads for 1 MiB and a dictionary");
}

/// A handle that points out of the tail is found when the file is opened, before anything is read
/// or allocated for it.
#[test]
fn a_dictionary_outside_of_the_tail_is_refused() {
    let bytes = wordy(dictionary_options(), 1 << 20);
    let size = bytes.len() as u64;
    let footer = bytes[bytes.len() - FOOTER_LEN..].try_into().unwrap();
    let footer = Footer::decode(&footer, FILE_ID, size).unwrap();
    let reader = open(bytes.clone()).unwrap();
    let (id, right) = reader.properties().dictionaries[0];
    let with = |handle: Handle| {
        let properties = Properties {
            dictionaries: vec![(id, handle)],
            ..reader.properties().clone()
        };
        let offset = footer.properties.offset;
        let mut bytes = bytes[..offset as usize].to_vec();
        let raw = properties.encode();
        let payload = (
            crate::sst::block_compression::StoredCodec::None,
            0,
            &raw[..],
        );
        let place = (FILE_ID, offset);
        let kind = BlockKind::Properties;
        let properties = block_frame::put(&mut bytes, kind, payload, raw.len(), place);
        let file_size = (bytes.len() + FOOTER_LEN) as u64;
        let footer = Footer {
            properties,
            file_size,
            ..footer
        };
        bytes.extend(footer.encode());
        open(bytes).and_then(|reader| reader.verify())
    };
    with(right).unwrap();
    for (offset, len) in [
        (0, right.len),
        (footer.meta_offset - 1, right.len),
        (right.offset, u32::MAX),
        (size + 1000, 10),
        (u64::MAX - 5, 10),
    ] {
        let error = with(Handle { offset, len }).unwrap_err();
        assert!(error.is_corruption(), "{offset}, {len}: {error}");
        assert!(
            error.to_string().contains("contradict"),
            "{offset}, {len}: {error}"
        );
    }
}
