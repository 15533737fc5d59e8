use super::*;
use crate::base::ErrorKind;

fn sealed(ciphertext: &[u8]) -> EncryptedUnit<'_> {
    EncryptedUnit {
        envelope: Envelope {
            key: 0x0102_0304,
            version: 7,
            nonce: *b"twelve bytes",
        },
        ciphertext,
        tag: b"sixteen bytes...",
    }
}

#[test]
fn a_unit_survives_its_envelope() {
    for ciphertext in [&b""[..], b"c", b"much longer than a tag is"] {
        let mut bytes = Vec::new();
        sealed(ciphertext).put(&mut bytes);
        assert_eq!(bytes.len(), HEAD_LEN + ciphertext.len() + TAG_LEN);
        assert_eq!(&bytes[..9], b"\x04\x03\x02\x01\x07\0\0\0t");
        assert_eq!(EncryptedUnit::take(&bytes), Some(sealed(ciphertext)));
        for cut in 0..HEAD_LEN + TAG_LEN {
            assert_eq!(EncryptedUnit::take(&bytes[..cut]), None, "cut at {cut}");
        }
    }
}

#[test]
fn no_nonce_comes_twice_and_the_counter_ends() {
    let nonces = Nonces::new(5);
    let first: Vec<_> = (0..3).filter_map(|_| nonces.next_write()).collect();
    assert_eq!(first[0], *b"\x05\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(first[2][8..], [2, 0, 0, 0]);
    nonces.writes.store(u32::MAX - 1, Ordering::Relaxed);
    assert_eq!(nonces.next_write().unwrap()[8..], [254, 255, 255, 255]);
    assert_eq!(nonces.next_write(), None);
    assert_eq!(nonces.next_write(), None, "it does not begin again");
    assert_ne!(Nonces::new(6).next_write(), Some(first[0]));
}

#[test]
fn the_error_says_encrypted() {
    let error = refused("block 7");
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("block 7 is encrypted"));
}
