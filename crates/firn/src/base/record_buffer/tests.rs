use super::*;

#[test]
fn padding_is_whole_spaces() {
    let wide = Pad::new(&[0, 0x20]).unwrap();
    assert_eq!(wide.stripped_len(&[0x20, 0x00, 0x20, 0x00]), 4);
    assert_eq!(wide.stripped_len(&[0, 0x41, 0, 0x20]), 2);
    assert_eq!(wide.stripped_len(&[0x41, 0, 0x20]), 3);
    assert_eq!(Pad::SPACE.stripped_len(b"a            "), 1);
    assert_eq!(Pad::SPACE.stripped_len(b"            "), 0);
    assert!(Pad::new(b"abc").is_err());
}

#[test]
fn padding_fills_its_room_and_nothing_beside_it() {
    for pad in [Pad::SPACE, Pad::new(&[0, b' ']).unwrap()] {
        let spaces = pad.as_bytes();
        for len in 0..40 {
            let mut bytes = [b'x'; 60];
            pad.fill(&mut bytes[10..10 + len]);
            for (i, &byte) in bytes.iter().enumerate() {
                let inside = i.checked_sub(10).filter(|&at| at < len);
                let expected = inside.map_or(b'x', |at| spaces[at % spaces.len()]);
                assert_eq!(byte, expected, "byte {i} of a room of {len}");
            }
        }
    }
}

#[test]
fn blobs_are_followed_unless_empty() {
    let bytes = b"hello";
    let mut field = vec![5u8, 0];
    field.extend_from_slice(&(bytes.as_ptr() as usize).to_ne_bytes());
    // SAFETY: the pointer refers to the five bytes of `bytes`, a static string.
    assert_eq!(unsafe { blob_bytes(&field, 2) }.unwrap(), bytes);
    // SAFETY: the length is zero, so no bytes are read.
    assert_eq!(unsafe { blob_bytes(&[0; 9], 1) }.unwrap(), b"");
    // SAFETY: the pointer is null, so it is not followed.
    assert!(unsafe { blob_bytes(&[1, 0, 0, 0, 0, 0, 0, 0, 0], 1) }.is_err());
}

#[test]
fn null_bits_are_set_and_cleared() {
    let bit = NullBit { offset: 1, mask: 4 };
    let mut record = [0xff, 0xfb];
    assert!(!bit.is_set(&record));
    bit.set(&mut record, true);
    assert!(bit.is_set(&record));
    bit.set(&mut record, false);
    assert_eq!(record, [0xff, 0xfb]);
}
