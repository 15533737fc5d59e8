use super::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

fn some_refs(rng: &mut StdRng) -> Vec<BlobRef> {
    (0..rng.random_range(0..4))
        .map(|_| BlobRef {
            column: rng.random(),
            file: rng.random::<u64>() >> rng.random_range(0..64),
            offset: rng.random::<u64>() >> rng.random_range(0..64),
            len: rng.random_range(0..1 << 32),
            checksum: rng.random(),
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
            assert!(error.is_corruption());
        }
    }
    assert!(split(&[]).unwrap_err().is_corruption());
    assert!(split(&[9, 0, 0, 0]).unwrap_err().is_corruption());
}
