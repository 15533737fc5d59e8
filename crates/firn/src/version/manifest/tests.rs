use super::*;
use crate::env::{PosixEnv, ReadClass};
use crate::version::testing::file;
use crate::version::{ManifestState, load};

fn edits() -> Vec<Edit> {
    let mut edits: Vec<Edit> = (0..4u64)
        .map(|i| Edit {
            added: vec![(0, 10 + i, file(20 + i, b"\0\0\0\x01a", b"\0\0\0\x01f"))],
            log_number: Some(i),
            counters: vec![(i, (i * 100).into())],
            ..Edit::default()
        })
        .collect();
    edits[0] = ManifestState::default().snapshot();
    edits
}

fn write(dir: &Path, edits: &[Edit]) {
    let env = PosixEnv::new();
    let mut writer = ManifestWriter::create(&env, dir, 5, &edits[0]).unwrap();
    for edit in &edits[1..] {
        writer.add(edit).unwrap();
        writer.write_sync_marker().unwrap();
    }
    NextCurrent::create(&env, dir, 5, None)
        .unwrap()
        .switch(&env, dir, None)
        .unwrap();
}

fn bytes_of(dir: &Path) -> Vec<u8> {
    let file = PosixEnv::new().open(&dir.join(manifest_name(5))).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(ReadClass::Log, 0, &mut bytes).unwrap();
    bytes
}

fn put_bytes_of(dir: &Path, bytes: &[u8]) {
    let mut file = PosixEnv::new().create(&dir.join(manifest_name(5))).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

fn read(dir: &Path) -> Result<Vec<Edit>> {
    ManifestReader::open(&PosixEnv::new(), dir, 5)?.poll(false)
}

#[test]
fn names_are_parsed_back() {
    for id in [1, 999_999, 1_000_000, u64::MAX] {
        assert_eq!(parse_manifest_name(&manifest_name(id)), Some(id));
    }
    for name in [
        "MANIFEST-1",
        "MANIFEST-+00001",
        "MANIFEST-",
        "CURRENT",
        "MANIFEST-000001.x",
    ] {
        assert_eq!(parse_manifest_name(name), None);
    }
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let edits = edits();
    write(dir.path(), &edits);
    assert_eq!(read(dir.path()).unwrap(), edits);
    let good = bytes_of(dir.path());
    let last_mark = good.len() - RECORD_HEADER_LEN;
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            put_bytes_of(dir.path(), &bad);
            match read(dir.path()) {
                Ok(found) => {
                    assert!(at >= last_mark, "byte {at} bit {bit} went unnoticed");
                    assert_eq!(found, edits);
                }
                Err(e) => assert!(at < last_mark && e.is_corruption(), "byte {at}: {e}"),
            }
        }
    }
}

#[test]
fn a_cut_file_is_a_prefix_of_the_edits() {
    let dir = tempfile::tempdir().unwrap();
    let edits = edits();
    write(dir.path(), &edits);
    let good = bytes_of(dir.path());
    let mut longest = 0;
    for cut in 0..good.len() {
        put_bytes_of(dir.path(), &good[..cut]);
        match read(dir.path()) {
            Ok(found) => {
                assert_eq!(found, edits[..found.len()]);
                assert!(found.len() >= longest);
                longest = found.len();
            }
            Err(e) => assert!(cut < HEADER_LEN && e.is_corruption()),
        }
        // A manifest cut inside its first record is refused, since `CURRENT` names a manifest only
        // once its first record is durable.
        let loaded = load(&PosixEnv::new(), dir.path());
        assert_eq!(loaded.is_ok(), longest > 0, "cut at {cut}");
    }
    assert_eq!(longest, edits.len());
}

#[test]
fn garbage_after_the_end_is_a_torn_write() {
    let dir = tempfile::tempdir().unwrap();
    let edits = edits();
    write(dir.path(), &edits);
    for garbage in [vec![0; 4096], vec![0xff; 100], b"\x01\x02\x03".to_vec()] {
        let mut bytes = bytes_of(dir.path());
        let len = garbage.len() as u64;
        bytes.extend(garbage);
        put_bytes_of(dir.path(), &bytes);
        let loaded = load(&PosixEnv::new(), dir.path()).unwrap().unwrap();
        assert_eq!(loaded.torn, len);
        bytes.truncate(bytes.len() - len as usize);
        put_bytes_of(dir.path(), &bytes);
    }
}

#[test]
fn a_record_counts_only_at_its_place() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &edits());
    let bytes = bytes_of(dir.path());
    // The checksums cover the manifest's id and the record's offset. So a manifest renamed to
    // another id is refused, and so is a copy of the records at the end of the file.
    let copy = dir.path().join(manifest_name(6));
    PosixEnv::new()
        .rename(&dir.path().join(manifest_name(5)), &copy)
        .unwrap();
    let moved = ManifestReader::open(&PosixEnv::new(), dir.path(), 6);
    assert!(moved.is_err_and(|e| e.is_corruption()));
    let mut twice = bytes.clone();
    twice.extend_from_slice(&bytes[HEADER_LEN..]);
    put_bytes_of(dir.path(), &twice);
    assert_eq!(read(dir.path()).unwrap(), edits());
}

#[test]
fn a_follower_sees_edits_once_their_mark_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let env = PosixEnv::new();
    let edits = edits();
    let mut writer = ManifestWriter::create(&env, dir.path(), 5, &edits[0]).unwrap();
    let mut reader = ManifestReader::open(&env, dir.path(), 5).unwrap();
    assert_eq!(reader.poll(true).unwrap(), edits[..1]);
    writer.add(&edits[1]).unwrap();
    assert!(reader.poll(true).unwrap().is_empty());
    assert!(reader.unread() > 0);
    writer.write_sync_marker().unwrap();
    assert_eq!(reader.poll(true).unwrap(), edits[1..2]);
    assert_eq!(reader.unread(), 0);
    writer.add(&edits[2]).unwrap();
    assert_eq!(reader.poll(false).unwrap(), edits[2..3]);
    writer.write_sync_marker().unwrap();
    assert!(reader.poll(true).unwrap().is_empty());
}

#[test]
fn a_damaged_current_is_corruption() {
    let dir = tempfile::tempdir().unwrap();
    let env = PosixEnv::new();
    assert_eq!(read_current(&env, dir.path()).unwrap(), None);
    write(dir.path(), &edits());
    assert_eq!(read_current(&env, dir.path()).unwrap(), Some(5));
    let good = current_text(5).into_bytes();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let mut file = env.create(&dir.path().join(CURRENT)).unwrap();
        file.append(&bad).unwrap();
        file.sync().unwrap();
        assert!(read_current(&env, dir.path()).unwrap_err().is_corruption());
    }
}

#[test]
fn a_later_format_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &edits());
    let mut bytes = bytes_of(dir.path());
    for (version, said) in [(2, "is encrypted"), (3, "format version 3")] {
        bytes[8] = version;
        let sum = placed(&bytes[..20], 5, 0);
        bytes[20..28].copy_from_slice(&sum.to_le_bytes());
        put_bytes_of(dir.path(), &bytes);
        let salvaged = ManifestReader::salvage(&PosixEnv::new(), dir.path(), 5, &mut |_| {});
        for error in [read(dir.path()).unwrap_err(), salvaged.unwrap_err()] {
            assert_eq!(*error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}

/// A manifest in the first version of the format, written by the engine of that time. It must stay
/// readable.
#[test]
fn the_first_format_stays_readable() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/manifest-v1");
    let loaded = load(&PosixEnv::new(), &dir).unwrap().unwrap();
    let mut expected = ManifestState::default();
    for edit in fixture_edits() {
        assert_eq!(expected.check_edit(&edit), None);
        expected.apply(&edit);
    }
    assert_eq!(loaded.state, expected);
    assert_eq!((loaded.manifest_id, loaded.torn), (3, 0));
}

fn fixture_edits() -> Vec<Edit> {
    let mut resting = file(6, b"\0\0\0\x01n", b"\0\0\0\x01z");
    resting.at_rest = true;
    let flushed = file(4, b"\0\0\0\x01a", b"\0\0\0\x01m");
    vec![
        ManifestState::default().snapshot(),
        Edit {
            added: vec![
                (0, 1, flushed.clone()),
                (0, 1, file(5, b"\0\0\0\x01n", b"\0\0\0\x01z")),
            ],
            log_number: Some(2),
            next_file_id: Some(6),
            next_run_number: Some(2),
            last_seqno: Some(900),
            counters: vec![(1, 77.into())],
            time_pairs: vec![(900, 1_700_000_000_000_000)],
            ..Edit::default()
        },
        Edit {
            added: vec![(4, 0, flushed), (6, 0, resting)],
            removed: vec![(0, 4), (0, 5)],
            next_file_id: Some(7),
            ..Edit::default()
        },
    ]
}

/// Writes the fixture file: `cargo test -p firn write_the_fixture -- --ignored`.
#[test]
#[ignore = "rewrites a fixture"]
fn write_the_fixture() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/manifest-v1");
    let env = PosixEnv::new();
    env.create_dir_all(&dir).unwrap();
    let edits = fixture_edits();
    let mut writer = ManifestWriter::create(&env, &dir, 3, &edits[0]).unwrap();
    for edit in &edits[1..] {
        writer.add(edit).unwrap();
        writer.write_sync_marker().unwrap();
    }
    NextCurrent::create(&env, &dir, 3, None)
        .unwrap()
        .switch(&env, &dir, None)
        .unwrap();
}
