use super::*;

#[test]
fn numbers_round_trip() {
    let mut values: Vec<u64> = (0..64).flat_map(|b| [1u64 << b, (1u64 << b) - 1]).collect();
    values.push(u64::MAX);
    let mut out = Vec::new();
    values.iter().for_each(|&v| put_u64(&mut out, v));
    let mut input = &out[..];
    for v in values {
        assert_eq!(take_u64(&mut input), Some(v));
    }
    assert!(input.is_empty());
}

#[test]
fn short_and_overlong_input_is_refused() {
    assert_eq!(take_u64(&mut &[0x80u8][..]), None);
    assert_eq!(take_u64(&mut &[0xffu8; 10][..]), None);
    assert_eq!(take_bytes(&mut &[5u8, 1, 2][..]), None);
    assert_eq!(take_u32(&mut &[0xff, 0xff, 0xff, 0xff, 0x7f][..]), None);
}
