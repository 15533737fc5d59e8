use super::*;

#[test]
fn keys_sort_as_numbers() {
    assert!(key(9) < key(10) && key(99_999) < key(100_000));
    assert_eq!(&key(42), b"0000000000000042");
}

#[test]
fn a_permutation_hits_each_number_once() {
    for n in [1, 2, 3, 1000, 4096, 5001] {
        let permutation = Permutation::new(n);
        let mut seen: Vec<u64> = (0..n).map(|i| permutation.at(i)).collect();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..n), "n = {n}");
    }
}

#[test]
fn zipf_falls_as_one_over_rank() {
    let (zipf, mut random) = (Zipf::new(100_000, 1.0), Random::new(1));
    let mut hits = [0u64; 10];
    for _ in 0..1_000_000 {
        if let Some(hit) = hits.get_mut(zipf.sample(&mut random) as usize) {
            *hit += 1;
        }
    }
    // 1 / H(100,000) = 0.0827.
    assert!((80_000..86_000).contains(&hits[0]), "{hits:?}");
    let ratio = hits[0] as f64 / hits[9] as f64;
    assert!((9.0..11.0).contains(&ratio), "{hits:?}");
}

#[test]
fn values_tell_their_number_and_are_half_random() {
    let mut out = [0; VALUE_LEN];
    value(7, &mut Random::new(3), &mut out);
    assert!(is_value_of(7, &out) && !is_value_of(8, &out));
    assert_eq!(out[..VALUE_LEN / 2], out[VALUE_LEN / 2..]);
}
