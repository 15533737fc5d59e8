//! Files written by released format versions; tests keep reading them.

use super::*;
use crate::base::key::SEQNO_MAX;
use std::cmp::Reverse;
use std::path::PathBuf;

const FIXTURES: [&str; 2] = ["sst-v1-row-wise.sst", "sst-v1-sectioned.sst"];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// What the fixtures hold: computed without randomness, so that it never changes.
fn contents() -> Model {
    let mut model = Model::new();
    for index in [1u32, 2, 700] {
        for n in 0..400u64 {
            let user_key = [&index.to_be_bytes()[..], &(n * 3).to_be_bytes()].concat();
            for version in 0..1 + n % 3 {
                let kind = match n % 7 {
                    0 => Kind::Delete,
                    1 => Kind::PutBlobs,
                    _ => Kind::Put,
                };
                let (head, tail) = match kind {
                    Kind::Delete => (vec![], vec![]),
                    _ => (
                        (n * 77 + version).to_le_bytes().to_vec(),
                        format!("row {n} of index {index}, version {version}")
                            .repeat(2)
                            .into(),
                    ),
                };
                model.insert(
                    (user_key.clone(), Reverse(1 + version * 10)),
                    (kind, head, tail),
                );
            }
        }
    }
    model
}

#[test]
fn version_1_stays_readable() {
    let model = contents();
    for name in FIXTURES {
        #[allow(clippy::disallowed_methods)] // A fixture of the test, not a file of the engine.
        let bytes = std::fs::read(path(name)).unwrap();
        let reader = open(bytes).unwrap();
        reader.verify().unwrap();
        assert_eq!(scan(&reader, false).unwrap(), model, "{name}");
        for ((key, seqno), value) in &model {
            let found = get(&reader, key, seqno.0).unwrap();
            assert_eq!(found, Some((seqno.0, value.clone())), "{name}");
        }
        assert_eq!(get(&reader, b"\0\0\0\x01absent", SEQNO_MAX).unwrap(), None);
    }
}

/// Writes the fixtures of the current version. Run by hand when a version is released; existing
/// fixtures are never written again.
#[test]
#[ignore = "writes files"]
fn write_fixtures() {
    let options = [SstOptions::upper_level(4096), SstOptions::last_level(4096)];
    for (name, options) in FIXTURES.into_iter().zip(options) {
        assert!(!path(name).exists(), "{name} exists");
        let (bytes, _) = write(&contents(), options);
        #[allow(clippy::disallowed_methods)]
        std::fs::write(path(name), bytes).unwrap();
    }
}
