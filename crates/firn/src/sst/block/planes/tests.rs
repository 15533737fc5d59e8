use super::*;

#[test]
fn the_worked_example_holds() {
    let mut out = Vec::new();
    split(&[1, 7, 2, 7, 3, 7], 2, &mut out);
    assert_eq!(out, [0b11, 1, 1, 1, 7, 0, 0]);
}

#[test]
fn items_of_all_shapes_round_trip() {
    for n in [1, 2, 7, 8, 9, 16, 45, 130] {
        for w in [1, 2, 3, 8, 9, 10, 17, 64, 180] {
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

#[test]
fn a_wrong_length_is_refused() {
    assert!(join(&mut [0; 9], 4, 2, &mut Vec::new()).is_some());
    assert!(join(&mut [0; 10], 4, 2, &mut Vec::new()).is_none());
    assert!(join(&mut [0; 8], usize::MAX, 2, &mut Vec::new()).is_none());
}
