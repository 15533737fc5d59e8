//! Files that released format versions wrote; later versions must still read them.

use super::*;
use crate::base::key::SEQNO_MAX;
use std::cmp::Reverse;
use std::path::PathBuf;

/// Name of the file, its content, the options it was written with.
type Fixture = (&'static str, Model, SstOptions);

fn fixtures() -> [Fixture; 3] {
    let dictionary = SstOptions::last_level(1024);
    let tuned = SstOptions {
        codec: Codec::Zstd {
            level: 3,
            dictionary: false,
        },
        ..SstOptions::last_level(4096)
    };
    [
        (
            "sst-v1-row-wise.sst",
            mixed(),
            SstOptions::upper_level(4096),
        ),
        ("sst-v1-sectioned.sst", mixed(), tuned),
        ("sst-v1-dictionary.sst", addresses(), dictionary),
    ]
}

/// A file in which every second block was copied from another file.
const COPIED: &str = "sst-v1-copied.sst";

fn copied() -> Vec<u8> {
    let options = SstOptions {
        codec: Codec::Zstd {
            level: 3,
            dictionary: false,
        },
        ..SstOptions::last_level(4096)
    };
    let (_, source) = super::copy::source(&addresses(), options.clone(), 5);
    let file = MemFile::default();
    let mut writer = SstWriter::new(Box::new(file.clone()), FILE_ID, options, 1_234_567);
    let mut wanted = false;
    let copied = super::copy::transfer(&source, &mut writer, || {
        wanted = !wanted;
        wanted
    });
    assert!(copied.unwrap() > 10);
    writer.finish().unwrap();
    let bytes = file.0.lock().unwrap();
    bytes.clone()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// A random generator of its own, whose output no update of a library changes.
fn digits(state: &mut u64, count: usize) -> String {
    let mut digit = || {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b'0' + ((*state >> 33) % 10) as u8)
    };
    (0..count).map(|_| digit()).collect()
}

/// Three indexes: integer keys with versions of all kinds, text keys with words as values, integer
/// keys with digits as values. A sectioned file of these entries has blocks with keys of one
/// length, blocks with prefix-compressed keys, and value tails as byte planes.
fn mixed() -> Model {
    let mut state = 1;
    let mut model = Model::new();
    for n in 0..200u64 {
        let user_key = [&1u32.to_be_bytes()[..], &(n * 3).to_be_bytes()].concat();
        for version in 0..1 + n % 3 {
            let kind = match n % 7 {
                0 => Kind::Delete,
                1 => Kind::PutBlobs,
                2 => Kind::RangeDelete,
                _ => Kind::Put,
            };
            let value = match kind {
                Kind::Delete => (kind, vec![], vec![]),
                _ => (
                    kind,
                    (n * 77 + version).to_le_bytes().to_vec(),
                    format!("row {n}, version {version}").repeat(2).into(),
                ),
            };
            model.insert((user_key.clone(), Reverse(1 + version * 10)), value);
        }
        let text = format!("customer {}", n * n * 97 % 10_007);
        let user_key = [&2u32.to_be_bytes()[..], text.as_bytes()].concat();
        let value = (Kind::Put, vec![], format!("known as {text}").into());
        model.insert((user_key, Reverse(0)), value);
        let user_key = [&700u32.to_be_bytes()[..], &n.to_be_bytes()].concat();
        let tail = digits(&mut state, 150).into_bytes();
        let value = (Kind::Put, (n as u32).to_le_bytes().to_vec(), tail);
        model.insert((user_key, Reverse(0)), value);
    }
    model
}

/// Rows that resemble each other enough for a dictionary to be trained.
fn addresses() -> Model {
    let mut state = 2;
    let mut model = Model::new();
    for n in 0..4000u64 {
        let user_key = [&9u32.to_be_bytes()[..], &n.to_be_bytes()].concat();
        let tail = format!(
            "{{\"name\":\"{}\",\"street\":\"Some Street {}\",\"city\":\"Town\",\"visits\":{}}}",
            digits(&mut state, 1 + n as usize % 7),
            n % 97,
            n % 11
        );
        let value = (Kind::Put, vec![1, 0, n as u8], tail.into_bytes());
        model.insert((user_key, Reverse(0)), value);
    }
    model
}

#[test]
fn version_1_stays_readable() {
    let fixtures = fixtures().map(|(name, model, _)| (name, model));
    for (name, model) in fixtures.into_iter().chain([(COPIED, addresses())]) {
        #[allow(clippy::disallowed_methods)] // A fixture of the test, not a file of the engine.
        let bytes = std::fs::read(path(name)).unwrap();
        let reader = open(bytes).unwrap();
        reader.verify().unwrap();
        let dictionaries = reader.properties().dictionaries.len();
        assert_eq!(dictionaries, usize::from(name.contains("dictionary")));
        assert_eq!(scan(&reader, false).unwrap(), model, "{name}");
        for ((key, seqno), value) in &model {
            let found = get(&reader, key, seqno.0).unwrap();
            assert_eq!(found, Some((seqno.0, value.clone())), "{name}");
        }
        assert_eq!(get(&reader, b"\0\0\0\x01absent", SEQNO_MAX).unwrap(), None);
    }
}

#[test]
fn the_properties_say_how_a_file_compresses() {
    let tuning = |name: &str| {
        #[allow(clippy::disallowed_methods)] // A fixture of the test, not a file of the engine.
        let bytes = std::fs::read(path(name)).unwrap();
        open(bytes).unwrap().properties().tuning
    };
    assert!(tuning(COPIED).is_some());
    assert!(tuning("sst-v1-dictionary.sst").is_none(), "it is older");
}

/// Writes the fixtures of the current version. Run by hand when a version is released; existing
/// fixtures are never written again.
#[test]
#[ignore = "writes files"]
fn write_fixtures() {
    for (name, model, options) in fixtures() {
        if !path(name).exists() {
            let (bytes, _) = write(&model, options);
            #[allow(clippy::disallowed_methods)]
            std::fs::write(path(name), bytes).unwrap();
        }
    }
    if !path(COPIED).exists() {
        #[allow(clippy::disallowed_methods)]
        std::fs::write(path(COPIED), copied()).unwrap();
    }
}
