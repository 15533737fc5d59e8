use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn cipher(random: u8) -> Cipher {
    Cipher::new(Key([7; 32]), [random; HALF])
}

/// The vectors of the specification of XAES-256-GCM.
#[test]
fn it_is_xaes_256_gcm() {
    let nonce: &[u8; 24] = b"ABCDEFGHIJKLMNOPQRSTUVWX";
    let cases: [(u8, &[u8], &str, &str); 2] = [
        (
            1,
            b"",
            "ce546ef63c9cc60765923609",
            "b33a9a1974e96e52daf2fcf7075e2271",
        ),
        (
            3,
            b"c2sp.org/XAES-256-GCM",
            "986ec1832593df5443a17943",
            "7fd083bf3fdb41abd740a21f71eb769d",
        ),
    ];
    for (key, bound, ciphertext, tag) in cases {
        let mut bytes = *b"XAES-256-GCM";
        let derived = Key([key; 32]).derive(nonce[..HALF].try_into().unwrap());
        let got =
            derived.encrypt_in_place_detached(Nonce::from_slice(&nonce[HALF..]), bound, &mut bytes);
        assert_eq!(
            (hex(&bytes).as_str(), hex(&got.unwrap()).as_str()),
            (ciphertext, tag)
        );
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    let (writer, reader) = (cipher(1), cipher(2));
    let mut bytes = *b"stored block";
    let (nonce, tag) = writer.encrypt(b"name", &mut bytes);
    for reader in [&writer, &reader] {
        let mut copy = bytes;
        assert!(reader.decrypt(b"name", &nonce, &mut copy, &tag));
        assert_eq!(&copy, b"stored block");
        assert!(
            !reader.decrypt(b"nama", &nonce, &mut bytes.clone(), &tag),
            "another name"
        );
        for bit in 0..8 * (NONCE_LEN + bytes.len() + TAG_LEN) {
            let (mut nonce, mut copy, mut tag) = (nonce, bytes, tag);
            let all = nonce.iter_mut().chain(&mut copy).chain(&mut tag);
            *all.into_iter().nth(bit / 8).unwrap() ^= 1 << (bit % 8);
            assert!(
                !reader.decrypt(b"name", &nonce, &mut copy, &tag),
                "bit {bit}"
            );
        }
    }
    assert!(
        reader.others.load().len() == 1,
        "forged nonces are not kept"
    );
}

#[test]
fn nonces_never_repeat() {
    let (one, other) = (cipher(1), cipher(2));
    let mut nonces = std::collections::HashSet::new();
    for _ in 0..100 {
        assert!(nonces.insert(one.encrypt(b"", &mut [0; 3]).0));
        assert!(nonces.insert(other.encrypt(b"", &mut [0; 3]).0));
    }
}

#[test]
fn keys_of_many_servers_come_and_go() {
    let reader = cipher(0);
    for round in 0..3 {
        for server in 1..=100 {
            let mut bytes = [round; 9];
            let (nonce, tag) = cipher(server).encrypt(b"", &mut bytes);
            assert!(reader.decrypt(b"", &nonce, &mut bytes, &tag) && bytes == [round; 9]);
        }
    }
    assert_eq!(reader.others.load().len(), KEPT_KEYS);
}

#[test]
fn a_key_file_has_64_digits() {
    let digits = "00ff".repeat(16);
    assert_eq!(
        Key::parse(&format!(" {digits}\n")).map(|key| key.0[1]),
        Ok(0xff)
    );
    for bad in [
        "",
        "00",
        &digits[1..],
        &format!("{digits}0"),
        &digits.replace('f', "g"),
    ] {
        let error = Key::parse(bad).map(|key| key.0).unwrap_err();
        assert!(error.contains("64 hexadecimal digits"));
    }
}
