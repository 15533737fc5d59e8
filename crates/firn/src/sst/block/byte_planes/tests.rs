use super::*;

#[test]
fn the_worked_example_holds() {
    let mut out = Vec::new();
    split(&[1, 7, 2, 7, 3, 7], 2, &mut out);
    assert_eq!(out, [0b11, 1, 1, 1, 7, 0, 0]);
}

#[test]
fn items_of_all_shapes_round_trip() {
    for n in [1, 2, 7, 8, 9, 15, 16, 17, 45, 130] {
        for w in [1, 2, 3, 8, 9, 10, 15, 16, 17, 31, 32, 64, 180] {
            let items: Vec<u8> = (0..n * w)
                .map(|i| match i % w {
                    0 => (i / w) as u8,
                    1 => 5,
                    _ => ((i * i * 31) >> 3) as u8,
                })
                .collect();
            let mut stored = vec![];
            split(&items, w, &mut stored);
            assert_eq!(stored.len(), stored_len(n, w).unwrap());
            let mut joined = vec![9];
            join(&mut stored, n, w, &mut joined).unwrap();
            assert_eq!(joined[1..], items, "{n} items of {w} bytes");
        }
    }
}

/// Compares the planes with a plain transposition, because the round trip would also succeed if
/// `split` and `join` had the same fault.
#[test]
fn rows_become_columns() {
    for (n, w) in [
        (1, 1),
        (16, 16),
        (16, 40),
        (41, 180),
        (33, 17),
        (5, 100),
        (100, 5),
    ] {
        let from: Vec<u8> = (0..n * w).map(|i| ((i * i * 31) >> 3) as u8).collect();
        let mut to = vec![0; n * w];
        transpose(&from, w, &mut to);
        for (at, byte) in from.iter().enumerate() {
            let (i, j) = (at / w, at % w);
            assert_eq!(to[j * n + i], *byte, "row {i}, byte {j} of {n} rows of {w}");
        }
    }
}

#[test]
fn a_wrong_length_is_refused() {
    assert!(join(&mut [0; 9], 4, 2, &mut Vec::new()).is_some());
    assert!(join(&mut [0; 10], 4, 2, &mut Vec::new()).is_none());
    assert!(join(&mut [0; 8], usize::MAX, 2, &mut Vec::new()).is_none());
}
