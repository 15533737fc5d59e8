use super::*;
use crate::base::ErrorKind;
use crate::rowcode::BlobUse;
use crate::version::FileLocation;
use crate::version::testing::file;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn deferred(kind: FileKind, slot: u64) -> DeferredDeletion {
    DeferredDeletion {
        kind,
        file: 1 << 41,
        epoch: 4,
        slot,
    }
}

pub(crate) fn full() -> Edit {
    let mut resting = file(8, b"\0\0\0\x01m", b"\0\0\0\x01z");
    resting.at_rest = true;
    let mut resting = resting.with_external_seqno(1 << 41);
    let blobs = |file| BlobUse {
        file,
        refs: 2,
        bytes: 9000,
    };
    resting.blobs = vec![blobs(3), blobs(1 << 40)];
    (resting.location, resting.tail_len) = (FileLocation::ObjectStore, 300);
    Edit {
        added: vec![
            (0, 5, file(7, b"\0\0\0\x01a", b"\0\0\0\x01f")),
            (6, 0, resting),
        ],
        removed: vec![(0, 3), (6, 4)],
        log_number: Some(12),
        next_file_id: Some(9),
        next_run_number: Some(6),
        last_seqno: Some(1 << 40),
        counters: vec![
            (1, 100.into()),
            (u64::MAX, u64::MAX.into()),
            (
                2,
                CounterValue {
                    generation: 3,
                    value: 0,
                },
            ),
        ],
        time_pairs: vec![(5, 1_700_000_000_000_000)],
        blobs_moved: vec![(7, 90), (8, 0)],
        identity: Some(Identity {
            epoch: 5,
            after: 1 << 39,
            database: DatabaseId(*b"sixteen of bytes"),
        }),
        deferred: vec![deferred(FileKind::Sst, 77), deferred(FileKind::Blob, 0)],
    }
}

#[test]
fn an_edit_survives_its_encoding() {
    for edit in [Edit::default(), full()] {
        assert_eq!(Edit::decode(&edit.encode(), "m", 0).unwrap(), edit);
    }
}

#[test]
fn unknown_fields_and_flags_are_refused() {
    let mut bytes = full().encode();
    put_u64(&mut bytes, 99);
    put_bytes(&mut bytes, b"future");
    let error = Edit::decode(&bytes, "m", 0).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported);

    let meta = file(1, b"\0\0\0\x01a", b"\0\0\0\x01a");
    let mut field = vec![0, 1];
    meta.encode(&mut field);
    // Level, run, file id, size (two bytes), checksum, then the flags.
    field[2 + 1 + 2 + 8] = 0x40;
    let mut bytes = Vec::new();
    put_u64(&mut bytes, TAG_ADDED);
    put_bytes(&mut bytes, &field);
    let error = Edit::decode(&bytes, "m", 0).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
}

#[test]
fn an_impossible_location_kind_or_identity_is_corruption() {
    let bytes_of = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut edit = Edit::default();
        let mut meta = file(2, b"\0\0\0\x01a", b"\0\0\0\x01a");
        meta.tail_len = 9;
        edit.added = vec![(1, 0, meta)];
        let mut bytes = edit.encode();
        change(&mut bytes);
        Edit::decode(&bytes, "m", 0)
    };
    assert_eq!(bytes_of(&|_| {}).unwrap().added[0].2.tail_len, 9);
    // The location and the length of the tail are the last two bytes.
    let wrong = bytes_of(&|bytes| {
        let at = bytes.len() - 2;
        bytes[at] = 2;
    });
    assert!(wrong.unwrap_err().is_corruption());
    for (tag, field) in [
        (TAG_DEFERRED, &[2, 1, 1, 1][..]),
        (TAG_DEFERRED, &[0, 1, 1]),
        (TAG_DEFERRED, &[0, 1, 1, 1, 1]),
        (TAG_IDENTITY, &[0; 17]),
        (TAG_IDENTITY, &[0; 19]),
    ] {
        let mut bytes = Vec::new();
        put_u64(&mut bytes, tag);
        put_bytes(&mut bytes, field);
        let error = Edit::decode(&bytes, "m", 0).unwrap_err();
        assert!(error.is_corruption(), "{tag} {field:?}");
    }
}

#[test]
fn cut_bytes_are_corruption_and_name_the_place() {
    let bytes = full().encode();
    let mut whole = 0;
    for cut in 1..bytes.len() {
        match Edit::decode(&bytes[..cut], "MANIFEST-000004", 77) {
            // Cut between two fields: a shorter edit. The record's checksum tells.
            Ok(edit) => {
                assert_eq!(edit.encode(), &bytes[..cut]);
                whole += 1;
            }
            Err(e) => {
                let kind = ErrorKind::Corruption {
                    file: "MANIFEST-000004".into(),
                    offset: 77,
                };
                assert_eq!(*e.kind(), kind);
            }
        }
    }
    assert!(whole < 18);
}

#[test]
fn mutated_bytes_never_panic() {
    for seed in 0..3000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = full().encode();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            match rng.random_range(0..3) {
                0 => bytes[at] = rng.random(),
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, rng.random()),
            }
        }
        if let Ok(edit) = Edit::decode(&bytes, "m", 0) {
            let again = Edit::decode(&edit.encode(), "m", 0).unwrap();
            assert_eq!(again, edit, "seed {seed}");
        }
    }
}
