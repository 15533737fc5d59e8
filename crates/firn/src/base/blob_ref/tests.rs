use super::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

fn some_refs(rng: &mut StdRng) -> Vec<BlobRef> {
    (0..rng.random_range(0..4))
        .map(|_| {
            let len = rng.random_range(0..1u64 << 32);
            let codecs = [BlobCodec::None, BlobCodec::Zstd, BlobCodec::Chunks];
            let codec = codecs[rng.random_range(0..3)];
            let table = chunk_table_len(len);
            BlobRef {
                column: rng.random(),
                file: rng.random::<u64>() >> rng.random_range(2..64),
                offset: rng.random::<u64>() >> rng.random_range(2..64),
                len,
                codec,
                stored: match codec {
                    BlobCodec::None => len,
                    BlobCodec::Zstd => rng.random_range(0..=len),
                    BlobCodec::Chunks => rng.random_range(table..=table + len),
                },
                checksum: rng.random(),
            }
        })
        .collect()
}

#[test]
fn references_round_trip() {
    let mut rng = StdRng::seed_from_u64(11);
    for _ in 0..200 {
        let refs = some_refs(&mut rng);
        let row: Vec<u8> = (0..rng.random_range(0..20)).map(|_| rng.random()).collect();
        let mut tail = row.clone();
        append(&mut tail, &refs);
        let (proper, found) = split(&tail).unwrap();
        assert_eq!((proper, found), (row.as_slice(), refs));
    }
}

#[test]
fn damaged_trailers_are_errors() {
    let mut rng = StdRng::seed_from_u64(12);
    for _ in 0..5000 {
        let mut tail = vec![1, 2, 3];
        append(&mut tail, &some_refs(&mut rng));
        let at = rng.random_range(0..tail.len());
        tail[at] ^= 1 << rng.random_range(0..8);
        tail.truncate(rng.random_range(0..=tail.len()));
        if let Err(error) = split(&tail) {
            let encrypted = error.to_string().contains("encrypted");
            assert!(error.is_corruption() || encrypted, "{error}");
        }
    }
    assert!(split(&[]).unwrap_err().is_corruption());
    assert!(split(&[9, 0, 0, 0]).unwrap_err().is_corruption());
}

#[test]
fn a_reference_that_cannot_be_is_damage() {
    for (codec, stored, sane) in [
        (BlobCodec::Zstd, 300_000, true),
        (BlobCodec::Zstd, 300_001, false),
        (BlobCodec::Chunks, 35, false),
        (BlobCodec::Chunks, 36, true),
        (BlobCodec::Chunks, 300_036, true),
        (BlobCodec::Chunks, 300_037, false),
    ] {
        let mut tail = Vec::new();
        append(
            &mut tail,
            &[BlobRef {
                column: 1,
                file: 2,
                offset: 64,
                len: 300_000,
                codec,
                stored,
                checksum: 3,
            }],
        );
        assert_eq!(split(&tail).is_ok(), sane, "{codec:?}, {stored} bytes");
    }
}

#[test]
fn references_are_summed_by_file() {
    let blob = |file, stored| BlobRef {
        column: 1,
        file,
        offset: 64,
        len: 10_000,
        codec: BlobCodec::Zstd,
        stored,
        checksum: 1,
    };
    let mut uses = BlobUses::default();
    for refs in [vec![blob(9, 100), blob(4, 50)], vec![blob(9, 1)], vec![]] {
        let mut tail = vec![7; 3];
        append(&mut tail, &refs);
        uses.add_tail(&tail).unwrap();
    }
    let use_of = |file, refs, bytes| BlobUse { file, refs, bytes };
    let sums: Vec<BlobUse> = uses.iter().collect();
    assert_eq!(sums, [use_of(4, 1, 82), use_of(9, 2, 165)]);
    assert_eq!(
        (uses.of(9).bytes, uses.of(1).bytes, uses.bytes()),
        (165, 0, 247)
    );
    assert!(uses.add_tail(&[]).unwrap_err().is_corruption());
}

#[test]
fn a_reference_to_an_encrypted_value_is_refused_as_such() {
    let mut tail = Vec::new();
    let blob = BlobRef {
        column: 300,
        file: 1 << 40,
        offset: 64,
        len: 9,
        codec: BlobCodec::Zstd,
        stored: 5,
        checksum: 1,
    };
    append(&mut tail, &[blob]);
    let codec = tail.len() - FOOTER_LEN - 8 - 2;
    assert_eq!(tail[codec], BlobCodec::Zstd as u8);
    tail[codec] |= ENCRYPTED;
    let error = split(&tail).unwrap_err();
    assert_eq!(*error.kind(), crate::base::ErrorKind::Unsupported);
    assert!(error.to_string().contains("encrypted"), "{error}");
}
