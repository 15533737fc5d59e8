use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

fn sketch_of(values: impl IntoIterator<Item = u64>) -> Sketch {
    let mut sketch = Sketch::default();
    values
        .into_iter()
        .for_each(|value| sketch.add(xxh3(&value.to_be_bytes())));
    sketch
}

fn stored(sketch: &Sketch) -> Vec<u8> {
    let mut bytes = Vec::new();
    sketch.encode(&mut bytes);
    bytes
}

/// Mean and standard deviation of estimate / truth over many sets of `n` values.
fn errors(n: u64, sets: u64) -> (f64, f64) {
    let ratios: Vec<f64> = (0..sets)
        .map(|set| sketch_of((0..n).map(|i| set << 40 | i)).estimate() / n as f64)
        .collect();
    let mean = ratios.iter().sum::<f64>() / sets as f64;
    let variance = ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / sets as f64;
    (mean, variance.sqrt())
}

#[test]
fn the_error_is_as_promised_at_every_size_and_has_no_bias() {
    for n in [10, 50, 100, 200, 500, 700, 1000, 5000, 30_000] {
        let (mean, deviation) = errors(n, 200);
        assert!((mean - 1.0).abs() < 0.02, "mean {mean} at {n}");
        assert!(deviation < 0.075, "deviation {deviation} at {n}");
    }
    assert_eq!(sketch_of([]).estimate(), 0.0);
    assert_eq!(sketch_of([7, 7, 7]).estimate().round(), 1.0);
}

#[test]
fn ranks_reach_the_last_bit() {
    let mut sketch = Sketch::default();
    sketch.add(0);
    sketch.add(u64::MAX);
    sketch.add(1 << 56 | 1);
    assert_eq!(sketch.registers[0], RANK_MAX);
    assert_eq!(sketch.registers[255], 1);
    assert_eq!(sketch.registers[1], RANK_MAX - 1);
    let full = Sketch {
        registers: [RANK_MAX; REGISTERS],
    };
    assert!(full.estimate() > 1e15);
    assert_eq!(Sketch::decode(&stored(&full)), Some(full));
}

#[test]
fn unions_and_stored_forms_are_those_of_the_values() {
    let mut rng = StdRng::seed_from_u64(1);
    for n in [0, 1, 2, 60, 95, 96, 97, 130, 1000, 100_000u64] {
        let cut = rng.random_range(0..=n);
        let all = sketch_of(0..n);
        let mut union = sketch_of(0..cut);
        union.merge(&sketch_of(cut / 2..n));
        assert_eq!(union, all, "{n}");
        let bytes = stored(&all);
        assert!(bytes.len() <= DENSE_LEN);
        assert_eq!(Sketch::decode(&bytes), Some(all), "{n}");
    }
}

#[test]
fn damaged_forms_are_refused_or_decode_to_what_they_say() {
    for bad in [&[1u8][..], &[1, 0], &[1, 58], &[2, 1, 2, 1], &[2, 1, 1, 1]] {
        assert_eq!(Sketch::decode(bad), None, "{bad:?}");
    }
    assert_eq!(Sketch::decode(&[63; DENSE_LEN]), None);
    assert_eq!(Sketch::decode(&[1; DENSE_LEN + 2]), None);
    let mut rng = StdRng::seed_from_u64(2);
    for _ in 0..2000 {
        let len = rng.random_range(0..DENSE_LEN + 4);
        let bytes: Vec<u8> = (0..len).map(|_| rng.random_range(0..60)).collect();
        if let Some(sketch) = Sketch::decode(&bytes) {
            assert_eq!(Sketch::decode(&stored(&sketch)), Some(sketch));
        }
    }
}

/// Keys whose parts are a length byte and that many bytes: prefix-free.
struct Counted(usize);

impl PrefixExtractor for Counted {
    fn prefixes(&self) -> usize {
        self.0
    }

    fn fixed_len(&self, _part: usize) -> Option<usize> {
        None
    }

    fn part_end(&self, user_key: &[u8], _part: usize, from: usize) -> Option<usize> {
        Some(from + 1 + usize::from(*user_key.get(from)?))
    }
}

#[test]
fn shared_prefixes_are_counted_once_and_no_change_is_missed() {
    for seed in 0..50 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut keys = BTreeSet::new();
        for _ in 0..rng.random_range(1..400) {
            let mut key = 7u32.to_be_bytes().to_vec();
            for _ in 0..3 {
                let len = rng.random_range(0..3u8);
                key.push(len);
                key.extend((0..len).map(|_| rng.random_range(0..3u8)));
            }
            key.push(rng.random());
            keys.insert(key);
        }
        let mut sketcher = PrefixSketcher::new(Arc::new(Counted(3)));
        let mut expected = vec![Sketch::default(); 3];
        for key in &keys {
            sketcher.add(key);
            sketcher.add(key);
            let mut end = INDEX_ID_LEN;
            for (part, sketch) in expected.iter_mut().enumerate() {
                end = Counted(3).part_end(key, part, end).unwrap();
                sketch.add(xxh3(&key[..end]));
            }
        }
        assert_eq!(sketcher.finish(), Some(expected), "seed {seed}");
    }
}

#[test]
fn a_key_that_does_not_fit_leaves_no_sketch() {
    let mut sketcher = PrefixSketcher::new(Arc::new(Counted(2)));
    sketcher.add(&[0, 0, 0, 7, 1, 5, 0]);
    sketcher.add(&[0, 0, 0, 7, 1, 6, 9]);
    sketcher.add(&[0, 0, 0, 7, 1, 7, 0]);
    assert_eq!(sketcher.finish(), None);
}

#[test]
fn common_prefixes_end_at_the_first_difference() {
    let mut rng = StdRng::seed_from_u64(3);
    for _ in 0..20_000 {
        let mut some = || -> Vec<u8> {
            let len = rng.random_range(0..30);
            (0..len)
                .map(|at| u8::from(rng.random_range(0..30) == at))
                .collect()
        };
        let (a, b) = (some(), some());
        let expected = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        assert_eq!(common_prefix(&a, &b), expected, "{a:?} {b:?}");
    }
}
