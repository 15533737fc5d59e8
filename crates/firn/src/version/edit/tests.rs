use super::*;
use crate::base::ErrorKind;
use crate::base::blob_ref::BlobUse;
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
        identity: Some(DatabaseIdentity {
            epoch: 5,
            after: 1 << 39,
            database: DatabaseId(*b"sixteen of bytes"),
        }),
        deferred: vec![deferred(FileKind::Sst, 77), deferred(FileKind::Blob, 0)],
        gtids: vec![Gtid {
            domain: 1,
            server: u32::MAX,
            sequence: 1 << 50,
        }],
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
    // The flags stand behind level, run, file id, size (two bytes) and checksum; 0x40 is unknown.
    field[2 + 1 + 2 + 8] = 0x40;
    let mut bytes = Vec::new();
    put_u64(&mut bytes, TAG_ADDED);
    put_bytes(&mut bytes, &field);
    let error = Edit::decode(&bytes, "m", 0).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
}

#[test]
fn impossible_fields_are_corruption_and_unknown_places_and_kinds_of_a_newer_version() {
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
    // The last two bytes of the encoding are the file's location and the length of its tail.
    let wrong = bytes_of(&|bytes| {
        let at = bytes.len() - 2;
        bytes[at] = 2;
    });
    let error = wrong.unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    let mut unknown_kind = vec![TAG_DEFERRED as u8];
    put_bytes(&mut unknown_kind, &[2, 1, 1, 1]);
    let error = Edit::decode(&unknown_kind, "m", 0).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    for (tag, field) in [
        (TAG_DEFERRED, &[2, 1, 1][..]),
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
            // A cut between two fields leaves a valid, shorter edit. Only the checksum of the
            // manifest record detects such a cut.
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
    assert!(whole < 19);
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

#[test]
fn fields_have_the_bytes_of_the_page() {
    #[track_caller]
    fn is(edit: &Edit, bytes: &[u8]) {
        assert_eq!(edit.encode(), bytes);
        assert_eq!(Edit::decode(bytes, "m", 0).unwrap(), *edit);
    }
    is(
        &Edit {
            identity: Some(DatabaseIdentity {
                epoch: 2,
                after: 300,
                database: DatabaseId(*b"sixteen of bytes"),
            }),
            ..Edit::default()
        },
        b"\x0b\x13\x02\xac\x02sixteen of bytes",
    );
    let waits = |kind, slot| DeferredDeletion {
        kind,
        file: 7,
        epoch: 1,
        slot,
    };
    is(
        &Edit {
            deferred: vec![waits(FileKind::Sst, 0), waits(FileKind::Blob, 300)],
            ..Edit::default()
        },
        &[12, 4, 0, 7, 1, 0, 12, 5, 1, 7, 1, 0xac, 2],
    );
    let set = CounterValue {
        generation: 1,
        value: 300,
    };
    is(
        &Edit {
            counters: vec![(5, 6.into()), (5, set)],
            ..Edit::default()
        },
        &[7, 2, 5, 6, 13, 4, 5, 1, 0xac, 2],
    );
    let gtid = Gtid {
        domain: 1,
        server: 2,
        sequence: 300,
    };
    is(
        &Edit {
            gtids: vec![gtid],
            ..Edit::default()
        },
        &[14, 4, 1, 2, 0xac, 2],
    );
    // A file with a location and a tail length: flag 16.
    let meta = FileMeta {
        size: 300,
        checksum: 0x0102_0304_0506_0708,
        dense_deletes: 0,
        per_index: Vec::new(),
        min_seqno: 1,
        max_seqno: 2,
        entries: 3,
        deletes: 1,
        superseded: 0,
        raw_bytes: 5,
        location: FileLocation::ObjectStore,
        tail_len: 300,
        ..file(3, b"a", b"b")
    };
    let head = [1, 28, 1, 0, 3, 0xac, 2, 8, 7, 6, 5, 4, 3, 2, 1, 16];
    let rest = [1, b'a', 1, b'b', 1, 2, 3, 1, 0, 5, 0, 1, 0xac, 2];
    is(
        &Edit {
            added: vec![(1, 0, meta)],
            ..Edit::default()
        },
        &[&head[..], &rest].concat(),
    );
}
