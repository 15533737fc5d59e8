use super::kit::*;
use crate::keycode::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

/// Small numbers, powers of two and their neighbours, or any number.
fn some_number(rng: &mut StdRng) -> i64 {
    match rng.random_range(0..3) {
        0 => rng.random_range(-3..4),
        1 => (1i64 << rng.random_range(0..63)) + rng.random_range(-1..2),
        _ => rng.random(),
    }
}

#[test]
fn integers_sort() {
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..4000 {
        let len = [1, 2, 3, 4, 8][rng.random_range(0..5)];
        let signed = rng.random_bool(0.5);
        let mut part = part(PartKind::Int { signed }, PartSource::Fixed, len);
        part.desc = rng.random_bool(0.3);
        let bits = 8 * len;
        let mut value = || {
            // Shift the number to the column's length, so that the shift back extends it by its
            // sign or by zeros.
            let number = some_number(&mut rng) << (64 - bits);
            if signed {
                i128::from(number >> (64 - bits))
            } else {
                i128::from(number as u64 >> (64 - bits))
            }
        };
        let (a, b) = (value(), value());
        let bytes = |v: i128| v.to_le_bytes()[..len as usize].to_vec();
        assert_order(&part, Some(&bytes(a)), Some(&bytes(b)), a.cmp(&b));
    }
}

#[test]
fn floats_sort_and_both_zeros_are_equal() {
    let mut rng = StdRng::seed_from_u64(2);
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
        -5e-324,
    ];
    for _ in 0..4000 {
        let mut value = || {
            if rng.random_bool(0.3) {
                special[rng.random_range(0..special.len())]
            } else {
                rng.random_range(-1e3..1e3) * 10f64.powi(rng.random_range(-30..30))
            }
        };
        let (a, b) = (value(), value());
        let double = part(PartKind::Float, PartSource::Fixed, 8);
        let expected = a.partial_cmp(&b).unwrap();
        assert_order(
            &double,
            Some(&a.to_le_bytes()),
            Some(&b.to_le_bytes()),
            expected,
        );
        let (a, b) = (a as f32, b as f32);
        let float = part(PartKind::Float, PartSource::Fixed, 4);
        let expected = a.partial_cmp(&b).unwrap();
        assert_order(
            &float,
            Some(&a.to_le_bytes()),
            Some(&b.to_le_bytes()),
            expected,
        );
    }
}

#[test]
fn binary_strings_sort() {
    let mut rng = StdRng::seed_from_u64(3);
    for _ in 0..4000 {
        let mut value = || -> Vec<u8> {
            (0..rng.random_range(0..6))
                .map(|_| [0, 1, 2, 0xff, rng.random()][rng.random_range(0..5)])
                .collect()
        };
        let (a, b) = (value(), value());
        let mut part = part(PartKind::VarBytes, PartSource::VarChar { len_bytes: 1 }, 9);
        assert_order(&part, Some(&a), Some(&b), a.cmp(&b));
        part.prefix = Some(2);
        let cut = |v: &[u8]| v[..v.len().min(2)].to_vec();
        assert_order(&part, Some(&a), Some(&b), cut(&a).cmp(&cut(&b)));
    }
}

#[test]
fn null_sorts_first_or_last() {
    let mut part = part(PartKind::VarBytes, PartSource::VarChar { len_bytes: 1 }, 9);
    part.null = Some(NullBit { offset: 0, mask: 1 });
    for desc in [false, true] {
        part.desc = desc;
        assert_order(&part, None, Some(b""), std::cmp::Ordering::Less);
        assert_order(&part, None, Some(b"\0"), std::cmp::Ordering::Less);
        assert_order(&part, None, None, std::cmp::Ordering::Equal);
        assert_order(&part, Some(b"a"), Some(b"b"), std::cmp::Ordering::Less);
    }
}

#[test]
fn text_sorts_by_its_collation() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let rules = random_rules(&mut rng);
        let kind = PartKind::Text(collation(&rules));
        let chars = 8;
        let is_char = rng.random_bool(0.4).then_some(chars);
        let source = match is_char {
            Some(chars) => PartSource::Char {
                chars: chars as u32,
            },
            None => PartSource::VarChar { len_bytes: 1 },
        };
        let mut part = part(kind, source, chars as u32);
        part.desc = rng.random_bool(0.3);
        if rng.random_bool(0.3) {
            part.prefix = Some(3);
        }
        for _ in 0..60 {
            let a = random_text(&mut rng, chars);
            let mut b = random_text(&mut rng, chars);
            if rng.random_bool(0.5) {
                b = a.clone();
                b.truncate(rng.random_range(0..=chars));
                b.extend(random_text(&mut rng, 2));
                b.truncate(chars);
            }
            let strip = |text: &[u8]| match is_char {
                Some(_) => text[..Pad::SPACE.stripped_len(text)].to_vec(),
                None => text.to_vec(),
            };
            let (a, b) = (strip(&a), strip(&b));
            let limit = part.prefix.map_or(chars, |p| p as usize);
            let cut = |text: &[u8]| text[..text.len().min(limit)].to_vec();
            let filled = is_char.map(|_| limit);
            let expected = compare_text(&rules, filled, &cut(&a), &cut(&b));
            assert_order(&part, Some(&a), Some(&b), expected);
        }
    }
}

#[test]
fn composite_keys_sort_part_by_part() {
    let null = Some(NullBit { offset: 0, mask: 1 });
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let rules = random_rules(&mut rng);
        let varchar = PartSource::VarChar { len_bytes: 1 };
        let mut parts = vec![
            part(PartKind::Text(collation(&rules)), varchar, 9),
            part(PartKind::VarBytes, varchar, 9),
            part(PartKind::Int { signed: true }, PartSource::Fixed, 1),
        ];
        for part in &mut parts {
            part.desc = rng.random_bool(0.3);
            part.null = null.filter(|_| rng.random_bool(0.3));
        }
        let mut row = || -> Vec<Option<Vec<u8>>> {
            parts
                .iter()
                .map(|part| {
                    if part.null.is_some() && rng.random_bool(0.3) {
                        return None;
                    }
                    Some(match part.kind {
                        PartKind::Int { .. } => vec![rng.random_range(0..3)],
                        _ => random_text(&mut rng, 2),
                    })
                })
                .collect()
        };
        for _ in 0..60 {
            let (a, b) = (row(), row());
            let mut expected = std::cmp::Ordering::Equal;
            let (mut a_key, mut b_key) = (Vec::new(), Vec::new());
            for (i, part) in parts.iter().enumerate() {
                let order = match (&a[i], &b[i], i) {
                    (Some(a), Some(b), 0) => compare_text(&rules, None, a, b),
                    (a, b, _) => a.cmp(b),
                };
                let order = if part.desc { order.reverse() } else { order };
                expected = expected.then(order);
                part.encode(a[i].as_deref(), &mut a_key);
                part.encode(b[i].as_deref(), &mut b_key);
            }
            assert_eq!(a_key.cmp(&b_key), expected, "seed {seed} {a:x?} {b:x?}");
        }
    }
}
